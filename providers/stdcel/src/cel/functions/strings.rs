//! Strings. Positions count characters, not bytes.

use super::super::eval::Budget;
use super::super::fault::Fault;
use super::super::value::Value;
use super::{Function, global, int, items, list, method, no_overload, string, text};

pub(super) static FUNCTIONS: &[Function] = &[
    method("contains", 1, 1, |budget, args| {
        search(budget, "contains", args, |a, b| a.contains(b))
    }),
    method("startsWith", 1, 1, |budget, args| {
        search(budget, "startsWith", args, |a, b| a.starts_with(b))
    }),
    method("endsWith", 1, 1, |budget, args| {
        search(budget, "endsWith", args, |a, b| a.ends_with(b))
    }),
    method("charAt", 1, 1, char_at),
    method("indexOf", 1, 2, index_of),
    method("lastIndexOf", 1, 2, last_index_of),
    method("join", 0, 1, join),
    method("lowerAscii", 0, 0, |b, args| {
        string(b, text("lowerAscii", args, 0)?.to_ascii_lowercase())
    }),
    method("upperAscii", 0, 0, |b, args| {
        string(b, text("upperAscii", args, 0)?.to_ascii_uppercase())
    }),
    method("trim", 0, 0, |b, args| {
        string(b, text("trim", args, 0)?.trim())
    }),
    method("reverse", 0, 0, reverse),
    method("replace", 2, 3, replace),
    method("split", 1, 2, split),
    method("substring", 1, 2, substring),
    method("trimPrefix", 1, 1, |b, args| {
        let (from, cut) = (text("trimPrefix", args, 0)?, text("trimPrefix", args, 1)?);
        string(b, from.strip_prefix(cut).unwrap_or(from))
    }),
    method("trimSuffix", 1, 1, |b, args| {
        let (from, cut) = (text("trimSuffix", args, 0)?, text("trimSuffix", args, 1)?);
        string(b, from.strip_suffix(cut).unwrap_or(from))
    }),
    global("strings.quote", 1, 1, quote),
];

fn search(
    budget: &mut Budget,
    name: &str,
    args: &[Value],
    test: fn(&str, &str) -> bool,
) -> Result<Value, Fault> {
    let (within, what) = (text(name, args, 0)?, text(name, args, 1)?);
    budget.steps(within.len() as u64 / 64)?;
    Ok(Value::Bool(test(within, what)))
}

fn char_at(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let within = text("charAt", args, 0)?;
    let at = int("charAt", args, 1)?;
    budget.steps(within.len() as u64 / 64)?;
    let length = within.chars().count();
    match usize::try_from(at) {
        Ok(at) if at < length => Ok(within
            .chars()
            .nth(at)
            .map_or(Value::Null, |c| Value::string(c.to_string()))),
        Ok(at) if at == length => Ok(Value::string("")),
        _ => Err(outside(at, length)),
    }
}

fn outside(at: i64, length: usize) -> Fault {
    Fault::domain(format!(
        "position {at} is outside a text of {length} characters"
    ))
}

/// The byte position of a character position.
fn byte_at(within: &str, at: i64) -> Result<usize, Fault> {
    let wanted = usize::try_from(at).map_err(|_| outside(at, within.chars().count()))?;
    let mut ends = within
        .char_indices()
        .map(|(at, _)| at)
        .chain([within.len()]);
    ends.nth(wanted)
        .ok_or_else(|| outside(at, within.chars().count()))
}

fn position(within: &str, byte: Option<usize>) -> Value {
    byte.map_or(Value::Int(-1), |byte| {
        Value::Int(i64::try_from(within[..byte].chars().count()).unwrap_or(i64::MAX))
    })
}

fn index_of(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    if let Value::List(list) = &args[0] {
        return super::lists::index_of(budget, list.items(), args, false);
    }
    let (within, what) = (text("indexOf", args, 0)?, text("indexOf", args, 1)?);
    budget.steps(within.len() as u64 / 64)?;
    let from = if args.len() > 2 {
        byte_at(within, int("indexOf", args, 2)?)?
    } else {
        0
    };
    Ok(position(
        within,
        within[from..].find(what).map(|at| from + at),
    ))
}

fn last_index_of(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    if let Value::List(list) = &args[0] {
        return super::lists::index_of(budget, list.items(), args, true);
    }
    let (within, what) = (text("lastIndexOf", args, 0)?, text("lastIndexOf", args, 1)?);
    budget.steps(within.len() as u64 / 64)?;
    if args.len() < 3 {
        return Ok(position(within, within.rfind(what)));
    }
    let latest = byte_at(within, int("lastIndexOf", args, 2)?)?;
    // The last match may start at the offset and reach beyond it.
    let end = (latest + what.len()).min(within.len());
    // A match ends where a character does, so nothing is lost by stopping at the last such place.
    let end = (0..=end)
        .rev()
        .find(|end| within.is_char_boundary(*end))
        .unwrap_or(0);
    Ok(position(
        within,
        within[..end].rfind(what).filter(|at| *at <= latest),
    ))
}

fn join(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let parts = items("join", args, 0)?;
    let separator = if args.len() > 1 {
        text("join", args, 1)?
    } else {
        ""
    };
    let mut length = separator.len().saturating_mul(parts.len());
    for part in parts {
        let Value::String(part) = part else {
            let fault = Fault::of_type(format!(
                "`join` needs a list of strings; it holds {}",
                part.type_name()
            ));
            return Err(fault.with_hint("convert the elements with .map(x, string(x))"));
        };
        length = length.saturating_add(part.len());
    }
    budget.bytes(length as u64 + parts.len() as u64)?;
    let parts: Vec<&str> = parts.iter().filter_map(Value::as_str).collect();
    Ok(Value::string(parts.join(separator)))
}

fn reverse(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    match &args[0] {
        Value::String(text) => string(budget, text.chars().rev().collect::<String>()),
        Value::List(items) => list(budget, items.items().iter().rev().cloned().collect()),
        _ => Err(no_overload("reverse", args)),
    }
}

fn replace(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (within, from, to) = (
        text("replace", args, 0)?,
        text("replace", args, 1)?,
        text("replace", args, 2)?,
    );
    let limit = if args.len() > 3 {
        int("replace", args, 3)?
    } else {
        -1
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    budget.steps(within.len() as u64 / 16)?;
    // An empty pattern matches around every character.
    let matches = if from.is_empty() {
        within.len() + 1
    } else {
        within.matches(from).count()
    }
    .min(limit);
    let size = within.len() as u64 + (matches as u64).saturating_mul(to.len() as u64);
    budget.bytes(size)?;
    Ok(Value::string(within.replacen(from, to, limit)))
}

fn split(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let (within, separator) = (text("split", args, 0)?, text("split", args, 1)?);
    let limit = if args.len() > 2 {
        int("split", args, 2)?
    } else {
        -1
    };
    budget.bytes(within.len() as u64)?;
    let parts: Vec<Value> = match usize::try_from(limit) {
        Ok(0) => Vec::new(),
        Ok(limit) if separator.is_empty() => {
            let cut = within
                .char_indices()
                .nth(limit - 1)
                .map_or(within.len(), |(at, _)| at);
            let single = within[..cut].chars().map(|c| Value::string(c.to_string()));
            single
                .chain((cut < within.len()).then(|| Value::string(&within[cut..])))
                .collect()
        }
        Ok(limit) => within.splitn(limit, separator).map(Value::string).collect(),
        Err(_) if separator.is_empty() => within
            .chars()
            .map(|c| Value::string(c.to_string()))
            .collect(),
        Err(_) => within.split(separator).map(Value::string).collect(),
    };
    list(budget, parts)
}

fn substring(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let within = text("substring", args, 0)?;
    budget.steps(within.len() as u64 / 64)?;
    let start = byte_at(within, int("substring", args, 1)?)?;
    let end = if args.len() > 2 {
        byte_at(within, int("substring", args, 2)?)?
    } else {
        within.len()
    };
    match within.get(start..end) {
        Some(part) => string(budget, part),
        None => Err(Fault::domain("the substring ends before it starts")),
    }
}

fn quote(budget: &mut Budget, args: &[Value]) -> Result<Value, Fault> {
    let mut out = String::from("\"");
    for c in text("strings.quote", args, 0)?.chars() {
        match c {
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            other => out.push(other),
        }
    }
    out.push('"');
    string(budget, out)
}
