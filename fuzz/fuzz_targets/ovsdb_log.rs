#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::ovsdb_log::ovsdb_log(input));
