#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::openflow::openflow_text(input));
