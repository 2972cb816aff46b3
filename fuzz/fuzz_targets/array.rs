#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| ndpool_fuzz::array::run(input));
