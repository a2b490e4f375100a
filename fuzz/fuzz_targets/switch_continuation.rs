#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::switch::switch_continuation(input));
