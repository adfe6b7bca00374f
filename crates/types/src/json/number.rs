//! Numbers by their exact decimal value.
//!
//! A number is sign, digits and a power of ten; two spellings are the same number when these agree after leading and
//! trailing zeros are gone. No arithmetic on the value, so the length of a number costs no more than reading it.

use std::cmp::Ordering;

/// Largest exponent a number may be written with, either sign.
///
/// A bound, because others who read the document turn such numbers into digits.
pub const MAX_EXPONENT: u32 = 9_999;

/// Longest run of digits and zeros that is written without an exponent.
const PLAIN_DIGITS: i64 = 40;

/// A number in normal form: `digits` has no zero at either end, and is empty for zero.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Normal {
    negative: bool,
    digits: Vec<u8>,
    /// The power of ten that `digits`, read as a whole number, is multiplied by.
    exponent: i64,
}

impl Normal {
    /// Reads a number that is one by JSON's grammar.
    pub(super) fn of(text: &[u8]) -> Normal {
        let (negative, text) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let split = text
            .iter()
            .position(|b| matches!(b, b'e' | b'E'))
            .unwrap_or(text.len());
        let (mantissa, power) = text.split_at(split);
        let mut exponent = power_of(power.get(1..).unwrap_or_default());
        let mut digits = Vec::with_capacity(mantissa.len());
        let mut fraction = false;
        for byte in mantissa {
            match byte {
                b'.' => fraction = true,
                digit => {
                    exponent -= i64::from(fraction);
                    if *digit != b'0' || !digits.is_empty() {
                        digits.push(*digit);
                    }
                }
            }
        }
        while digits.last() == Some(&b'0') {
            digits.pop();
            exponent += 1;
        }
        if digits.is_empty() {
            return Normal {
                negative: false,
                digits,
                exponent: 0,
            };
        }
        Normal {
            negative,
            digits,
            exponent,
        }
    }

    /// Appends the one spelling of this number.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        if self.digits.is_empty() {
            return out.push(b'0');
        }
        if self.negative {
            out.push(b'-');
        }
        let len = self.digits.len() as i64;
        // How many digits stand before the point.
        let whole = len + self.exponent;
        if self.exponent >= 0 && (self.exponent == 0 || whole <= PLAIN_DIGITS) {
            out.extend(&self.digits);
            out.extend(std::iter::repeat_n(b'0', self.exponent as usize));
        } else if whole > 0 && self.exponent < 0 {
            let (before, after) = self.digits.split_at(whole as usize);
            out.extend(before);
            out.push(b'.');
            out.extend(after);
        } else if whole <= 0 && len - whole <= PLAIN_DIGITS {
            out.extend(b"0.");
            out.extend(std::iter::repeat_n(b'0', -whole as usize));
            out.extend(&self.digits);
        } else {
            out.extend(&self.digits);
            out.push(b'e');
            out.extend(self.exponent.to_string().bytes());
        }
    }
}

/// The value of an exponent, `[+-]digits`, held within what fits.
fn power_of(text: &[u8]) -> i64 {
    let (negative, digits) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let power = digits.iter().fold(0i64, |power, digit| {
        (power * 10 + i64::from(digit - b'0')).min(i64::MAX / 100)
    });
    if negative { -power } else { power }
}

/// Whether the exponent of a number is within [`MAX_EXPONENT`].
pub(super) fn exponent_is_bounded(text: &[u8]) -> bool {
    match text.iter().position(|b| matches!(b, b'e' | b'E')) {
        Some(at) => {
            power_of(text.get(at + 1..).unwrap_or_default()).unsigned_abs()
                <= u64::from(MAX_EXPONENT)
        }
        None => true,
    }
}

/// Whether two numbers have the same value.
pub(super) fn equal(a: &[u8], b: &[u8]) -> bool {
    a == b || Normal::of(a) == Normal::of(b)
}

/// Which of two numbers is larger.
pub(crate) fn compare(a: &str, b: &str) -> Ordering {
    let (a, b) = (Normal::of(a.as_bytes()), Normal::of(b.as_bytes()));
    let sign = |n: &Normal| {
        if n.digits.is_empty() {
            0
        } else if n.negative {
            -1
        } else {
            1
        }
    };
    sign(&a).cmp(&sign(&b)).then_with(|| {
        // Digits before the point first, then digit by digit: neither begins with a zero.
        let size = |n: &Normal| n.digits.len() as i64 + n.exponent;
        let magnitude = size(&a)
            .cmp(&size(&b))
            .then_with(|| a.digits.cmp(&b.digits));
        if a.negative {
            magnitude.reverse()
        } else {
            magnitude
        }
    })
}
