//! Kubernetes quantities: `500m`, `1.5Gi`, `2e3`. Exact: a decimal mantissa in units of 10^-9.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::super::fault::Fault;
use super::super::value::Value;
use super::opaque::Opaque;
use super::{Function, global, method, no_overload, text};

pub(super) static FUNCTIONS: &[Function] = &[
    global("quantity", 1, 1, |_, args| {
        if let [Value::Opaque(_)] = args {
            return Ok(args[0].clone());
        }
        let text = text("quantity", args, 0)?;
        let parsed = Quantity::parse(text).ok_or_else(|| {
            let shown: String = text.chars().take(64).collect();
            Fault::domain(format!("`{shown}` is not a quantity such as 500m or 1.5Gi"))
        })?;
        Ok(wrap(parsed))
    }),
    global("isQuantity", 1, 1, |_, args| {
        Ok(Value::Bool(
            Quantity::parse(text("isQuantity", args, 0)?).is_some(),
        ))
    }),
    method("isInteger", 0, 0, |_, args| {
        Ok(Value::Bool(of("isInteger", args, 0)?.integer().is_some()))
    }),
    method("asInteger", 0, 0, |_, args| {
        let integer = of("asInteger", args, 0)?.integer();
        integer
            .map(Value::Int)
            .ok_or_else(|| Fault::domain("the quantity is no whole number of 64 bits"))
    }),
    method("asApproximateFloat", 0, 0, |_, args| {
        Ok(Value::Double(
            of("asApproximateFloat", args, 0)?.nanos as f64 / 1e9,
        ))
    }),
    method("sign", 0, 0, |_, args| {
        Ok(Value::Int(
            i64::try_from(of("sign", args, 0)?.nanos.signum()).unwrap_or_default(),
        ))
    }),
    method("add", 1, 1, |_, args| {
        combine("add", args, i128::checked_add)
    }),
    method("sub", 1, 1, |_, args| {
        combine("sub", args, i128::checked_sub)
    }),
    method("isGreaterThan", 1, 1, |_, args| {
        Ok(Value::Bool(order("isGreaterThan", args)?.is_gt()))
    }),
    method("isLessThan", 1, 1, |_, args| {
        Ok(Value::Bool(order("isLessThan", args)?.is_lt()))
    }),
    method("compareTo", 1, 1, |_, args| {
        Ok(Value::Int(order("compareTo", args)? as i64))
    }),
];

const SCALE: i128 = 1_000_000_000;

/// How the quantity was written, and is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Decimal,
    Binary,
}

/// An exact amount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Quantity {
    nanos: i128,
    form: Form,
}

impl Quantity {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.len() > 64 {
            return None;
        }
        let (negative, rest) = match text.as_bytes()[0] {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let length = rest
            .find(|c: char| !(c.is_ascii_digit() || c == '.'))
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(length);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && fraction.is_empty() || fraction.contains('.') {
            return None;
        }
        let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let places = i32::try_from(fraction.len()).ok()?;
        let (factor, exponent, form) = unit(suffix)?;
        // value = digits * factor * 10^(exponent - places), wanted in units of 10^-9.
        let power = exponent.checked_sub(places)?.checked_add(9)?;
        let mut nanos = digits.checked_mul(factor)?;
        if power >= 0 {
            nanos = nanos.checked_mul(10_i128.checked_pow(power.unsigned_abs())?)?;
        } else {
            // Finer than a billionth rounds up, away from zero, as Kubernetes does.
            let divisor = 10_i128.checked_pow(power.unsigned_abs())?;
            nanos = nanos / divisor + i128::from(nanos % divisor != 0);
        }
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            form,
        })
    }

    fn integer(&self) -> Option<i64> {
        (self.nanos % SCALE == 0)
            .then(|| i64::try_from(self.nanos / SCALE).ok())
            .flatten()
    }

    pub(crate) fn compare(&self, other: &Self) -> Option<Ordering> {
        Some(self.nanos.cmp(&other.nanos))
    }
}

fn unit(suffix: &str) -> Option<(i128, i32, Form)> {
    let binary = |power: u32| Some((1024_i128.pow(power), 0, Form::Binary));
    let decimal = |exponent: i32| Some((1, exponent, Form::Decimal));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        other => decimal(
            other
                .strip_prefix(['e', 'E'])?
                .parse()
                .ok()
                .filter(|power: &i32| power.abs() <= 18)?,
        ),
    }
}

impl fmt::Display for Quantity {
    /// The canonical form: the largest unit that leaves a whole number.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        if self.form == Form::Binary && self.nanos % SCALE == 0 {
            let mut whole = self.nanos / SCALE;
            let mut power = 0;
            while whole % 1024 == 0 && power < 6 {
                whole /= 1024;
                power += 1;
            }
            return write!(
                f,
                "{whole}{}",
                ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]
            );
        }
        let mut amount = self.nanos;
        let mut power = 0;
        while amount % 1000 == 0 && power < 9 {
            amount /= 1000;
            power += 1;
        }
        write!(
            f,
            "{amount}{}",
            ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power]
        )
    }
}

fn wrap(quantity: Quantity) -> Value {
    Value::Opaque(Arc::new(Opaque::Quantity(quantity)))
}

fn of<'v>(name: &str, args: &'v [Value], at: usize) -> Result<&'v Quantity, Fault> {
    match args.get(at) {
        Some(Value::Opaque(opaque)) => match &**opaque {
            Opaque::Quantity(quantity) => Ok(quantity),
            _ => Err(no_overload(name, args)),
        },
        _ => Err(no_overload(name, args)),
    }
}

fn combine(
    name: &str,
    args: &[Value],
    apply: fn(i128, i128) -> Option<i128>,
) -> Result<Value, Fault> {
    let left = of(name, args, 0)?;
    let right = match &args[1] {
        Value::Int(whole) => i128::from(*whole) * SCALE,
        _ => of(name, args, 1)?.nanos,
    };
    let nanos =
        apply(left.nanos, right).ok_or_else(|| Fault::domain("the quantity is out of range"))?;
    Ok(wrap(Quantity {
        nanos,
        form: left.form,
    }))
}

fn order(name: &str, args: &[Value]) -> Result<Ordering, Fault> {
    Ok(of(name, args, 0)?.nanos.cmp(&of(name, args, 1)?.nanos))
}
