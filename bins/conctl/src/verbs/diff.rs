//! `conctl diff`: what an apply of these files would change.
//!
//! Both sides are laid out alike before they are compared: keys sorted, equal numbers written alike, so that only
//! differences by value show, which are those the server goes by.

use std::collections::BTreeMap;

use clap::Args;
use converge_client::Client;
use serde_json::value::RawValue;
use similar::TextDiff;

use super::apply::{FileFlags, Planned};
use super::get;
use crate::context::Context;
use crate::document::{Document, Shape, json_string, push_json_string, raw, shape};
use crate::exit::{self, Failure, Result};
use crate::names::{ObjectType, Target};
use crate::output::{clean, to_yaml};

/// What is deeper is compared as it is written.
const DEPTH_LIMIT: usize = 128;

/// How long a bundle's text is shown.
const DATA_CHARS: usize = 48;

/// Show what apply would change.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  conctl diff -f demo.yaml
  conctl diff -f kinds/ -f app.yaml --exit-code    exits 1 when something would change")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    files: FileFlags,
    /// Exit 1 when something would change.
    #[arg(long)]
    exit_code: bool,
}

pub(crate) async fn run(cx: &mut Context, args: DiffArgs) -> Result {
    let plan = args.files.plan()?;
    let client = cx.client()?;
    let mut differs = false;
    for planned in &plan {
        if let Some(text) = difference(&client, planned).await? {
            differs = true;
            cx.out.text(&text)?;
        }
    }
    if differs && args.exit_code {
        return Err(Failure::reported(exit::REFUSED));
    }
    Ok(())
}

/// What applying one document would change, as a unified diff; `None` for nothing.
pub(crate) async fn difference(client: &Client, planned: &Planned) -> Result<Option<String>> {
    let document = &planned.document;
    let target = super::delete::named_by(planned.object_type, document)?;
    let stored = match get::fetch(client, &target).await {
        Ok(body) => Some(body),
        Err(failure) if failure.code == exit::NOT_FOUND => None,
        Err(failure) => return Err(failure.about(clean(&target.label()))),
    };
    let wanted = wanted(planned);
    let before = stored
        .as_deref()
        .map(|body| comparable(&wanted, &members(body)));
    let after = wanted
        .iter()
        .map(|(key, value)| (key.as_str(), canonical(value, 0)))
        .collect();
    let (before, after) = (
        before
            .map(|side| yaml(&side))
            .transpose()?
            .unwrap_or_default(),
        yaml(&after)?,
    );
    if before == after {
        return Ok(None);
    }
    let label = clean(&target.label());
    let old = if before.is_empty() {
        "/dev/null".to_owned()
    } else {
        format!("server/{label}")
    };
    let diff = TextDiff::from_lines(&before, &after);
    let text = diff
        .unified_diff()
        .context_radius(3)
        .header(&old, &format!("{}/{label}", document.file))
        .to_string();
    Ok(Some(text))
}

fn members(body: &RawValue) -> BTreeMap<String, Box<RawValue>> {
    match shape(body) {
        Some(Shape::Object(members)) => members
            .into_iter()
            .map(|(key, value)| (key, value.to_owned()))
            .collect(),
        _ => BTreeMap::new(),
    }
}

/// What the document says, with what an apply takes for absent parts of a resource.
fn wanted(planned: &Planned) -> BTreeMap<String, Box<RawValue>> {
    let document: &Document = &planned.document;
    let mut wanted: BTreeMap<String, Box<RawValue>> = document
        .fields()
        .filter(|(key, _)| *key != "type")
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    if planned.object_type == ObjectType::Resource {
        // An apply is the whole desired state: absent labels mean none, an absent ref means none.
        if let Ok(none) = raw("{}".to_owned()) {
            wanted.entry("labels".to_owned()).or_insert(none);
        }
        if let Ok(none) = raw("null".to_owned()) {
            wanted
                .entry("provider_config_ref".to_owned())
                .or_insert(none);
        }
    }
    wanted
}

/// The stored side, with only what the document speaks about: what is left out of it is kept as it is by the server.
fn comparable<'a>(
    wanted: &'a BTreeMap<String, Box<RawValue>>,
    stored: &BTreeMap<String, Box<RawValue>>,
) -> BTreeMap<&'a str, String> {
    wanted
        .keys()
        .map(|key| {
            let value = stored
                .get(key)
                .map_or_else(|| "null".to_owned(), |value| canonical(value, 0));
            (key.as_str(), value)
        })
        .collect()
}

fn yaml(side: &BTreeMap<&str, String>) -> Result<String> {
    let mut json = String::from("{");
    for (key, value) in side {
        // Absent and null are the same here, and an absent one is not worth a line.
        if value == "null" {
            continue;
        }
        if json.len() > 1 {
            json.push(',');
        }
        push_json_string(&mut json, key);
        json.push(':');
        if *key == "data" {
            json.push_str(data(value)?.get());
        } else {
            json.push_str(value);
        }
    }
    json.push('}');
    Ok(to_yaml(&raw(json)?))
}

/// A bundle is megabytes of base64: enough of it to be told from another.
fn data(value: &str) -> Result<Box<RawValue>> {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    let start: String = value.trim_matches('"').chars().take(DATA_CHARS).collect();
    json_string(&format!(
        "{start}… ({} characters, fingerprint {:016x})",
        value.len() - 2,
        hasher.finish()
    ))
}

/// A value with its keys sorted and its numbers in one form.
fn canonical(value: &RawValue, depth: usize) -> String {
    if depth > DEPTH_LIMIT {
        return crate::output::compact(value.get());
    }
    match shape(value) {
        Some(Shape::Object(members)) => {
            let members: BTreeMap<String, &RawValue> = members.into_iter().collect();
            let members: Vec<String> = members
                .into_iter()
                .map(|(key, value)| {
                    let mut member = String::new();
                    push_json_string(&mut member, &key);
                    format!("{member}:{}", canonical(value, depth + 1))
                })
                .collect();
            format!("{{{}}}", members.join(","))
        }
        Some(Shape::Array(elements)) => {
            let elements: Vec<String> = elements
                .into_iter()
                .map(|element| canonical(element, depth + 1))
                .collect();
            format!("[{}]", elements.join(","))
        }
        Some(Shape::Text(text)) => {
            let mut quoted = String::new();
            push_json_string(&mut quoted, &text);
            quoted
        }
        Some(Shape::Literal(literal)) => number(literal).unwrap_or_else(|| literal.to_owned()),
        None => value.get().to_owned(),
    }
}

/// A number in one form for each value: whole where it is whole, without zeros at the ends.
fn number(literal: &str) -> Option<String> {
    let (sign, unsigned) = match literal.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", literal),
    };
    if !unsigned.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (mantissa, exponent) = unsigned.split_once(['e', 'E']).unwrap_or((unsigned, "0"));
    let exponent: i64 = exponent.parse().ok()?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = format!("{whole}{fraction}");
    let mut exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
    let significant = digits.trim_start_matches('0');
    let trimmed = significant.trim_end_matches('0');
    exponent = exponent.checked_add(i64::try_from(significant.len() - trimmed.len()).ok()?)?;
    if trimmed.is_empty() {
        return Some("0".to_owned());
    }
    match usize::try_from(exponent) {
        Ok(zeros) if zeros <= 40 => Some(format!("{sign}{trimmed}{}", "0".repeat(zeros))),
        _ => {
            let places = usize::try_from(exponent.unsigned_abs()).ok()?;
            if exponent < 0 && places < trimmed.len() {
                let (whole, fraction) = trimmed.split_at(trimmed.len() - places);
                return Some(format!("{sign}{whole}.{fraction}"));
            }
            if exponent < 0 && places <= 40 {
                return Some(format!(
                    "{sign}0.{}{trimmed}",
                    "0".repeat(places - trimmed.len())
                ));
            }
            Some(format!("{sign}{trimmed}e{exponent}"))
        }
    }
}

/// What a document names.
pub(crate) fn target(planned: &Planned) -> Result<Target> {
    super::delete::named_by(planned.object_type, &planned.document)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_numbers_have_one_form() {
        for (a, b) in [
            ("1", "1.0"),
            ("100", "1e2"),
            ("1.5", "15e-1"),
            ("0", "-0.00"),
            ("0.001", "1e-3"),
            ("-2.50", "-2.5"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890.0",
            ),
            ("1e400", "10e399"),
        ] {
            assert_eq!(number(a), number(b), "{a} {b}");
        }
        assert_ne!(number("9007199254740993"), number("9007199254740992"));
        assert_eq!(number("0.05").as_deref(), Some("0.05"));
        assert_eq!(number("12.05").as_deref(), Some("12.05"));
        assert_eq!(number("true"), None);
    }

    #[test]
    fn a_canonical_value_is_json_and_sorted() {
        let value: Box<RawValue> =
            serde_json::from_str(r#"{"b": [1.0, {"z":1,"a":"x"}], "a": null}"#).unwrap();
        assert_eq!(
            canonical(&value, 0),
            r#"{"a":null,"b":[1,{"a":"x","z":1}]}"#
        );
    }
}
