//! How single values read as text.

use super::value::Value;

/// What `string()` and text around an expression show: strings, numbers and booleans.
pub(crate) fn display_scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => double(*value),
        Value::Decimal(decimal) if decimal.text.contains(['.', 'e', 'E']) => double(decimal.value),
        Value::Decimal(decimal) => decimal.text.to_string(),
        Value::String(text) => text.to_string(),
        _ => return None,
    })
}

/// A double in its shortest form that reads back as the same number.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let magnitude = value.abs();
    if magnitude != 0.0 && !(1e-7..1e21).contains(&magnitude) {
        return format!("{value:e}");
    }
    value.to_string()
}
