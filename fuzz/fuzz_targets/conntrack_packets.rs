#![no_main]
libfuzzer_sys::fuzz_target!(|input: &[u8]| fuzzing::conntrack::conntrack_packets(input));
