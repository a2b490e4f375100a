#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::ports::ports_vhost_rings(input));
