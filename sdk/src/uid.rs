//! The identity of a resource for life: a UUID, carried as its 16 bytes.

use std::fmt;
use std::str::FromStr;

/// The identity of a resource, written as a UUID in lower case. It survives every edit, and is not reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Uid([u8; 16]);

/// A text that is not a UUID.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a UUID: expected 32 hexadecimal digits as 8-4-4-4-12")]
pub struct UidError(String);

impl Uid {
    /// From the 16 bytes of a UUID.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The 16 bytes of the UUID.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            if matches!(at, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uid {
    type Err = UidError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bad = || UidError(text.to_owned());
        let hyphens = [8, 13, 18, 23];
        if text.len() != 36 {
            return Err(bad());
        }
        let mut bytes = [0; 16];
        let mut digits = 0;
        for (at, c) in text.bytes().enumerate() {
            if hyphens.contains(&at) {
                if c != b'-' {
                    return Err(bad());
                }
                continue;
            }
            let digit = char::from(c)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
                .ok_or_else(bad)?;
            let byte = &mut bytes[digits / 2];
            *byte = *byte << 4 | digit;
            digits += 1;
        }
        Ok(Self(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uid_reads_and_writes_as_a_uuid() {
        let text = "0198f0c2-7a1b-7c3d-8e4f-00112233aaff";
        let uid: Uid = text.parse().unwrap();
        assert_eq!(uid.to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Uid>().unwrap(), uid);
        for bad in [
            "",
            "0198f0c2",
            "0198f0c2-7a1b-7c3d-8e4f-00112233aafg",
            "0198f0c2x7a1b-7c3d-8e4f-00112233aaff",
        ] {
            assert!(bad.parse::<Uid>().is_err(), "{bad}");
        }
    }
}
