//! Any bytes as a bundle: an answer, never a panic, and what is taken obeys the limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stdstarlark::{Bundle, limits};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(bundle) = Bundle::from_zip(bytes) {
        let sizes: Vec<u64> = bundle
            .files()
            .values()
            .map(|text| text.len() as u64)
            .collect();
        assert!(bundle.files().contains_key("compose.star"));
        assert!(
            sizes.len() <= limits::ENTRIES && sizes.iter().sum::<u64>() <= limits::UNPACKED_BYTES
        );
        assert!(sizes.iter().all(|size| *size <= limits::FILE_BYTES));
        assert!(
            bundle
                .files()
                .keys()
                .all(|name| !name.contains("..") && !name.starts_with('/'))
        );
    }
});
