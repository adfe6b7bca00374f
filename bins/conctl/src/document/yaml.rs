//! YAML 1.2 (core schema) as JSON: exact numbers, places, no surprises.
//!
//! What must hold: `yes`, `no`, `on`, `off` are strings; a number is written into the JSON with the digits it had, however
//! many; duplicate keys are errors; anchors are bounded by what they expand to, so that a small file cannot become a large
//! one; nothing recurses deeper than [`DEPTH_LIMIT`].

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use converge_client::types::Json;
use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};
use serde_json::value::RawValue;

use super::json::{is_list, unescape};
use super::{Place, SyntaxError, WANTED, push_json_string};

/// The deepest nesting, that of JSON readers.
const DEPTH_LIMIT: usize = 126;

/// The largest a document may become with its anchors expanded.
const EXPANDED_LIMIT_BYTES: usize = 64 * 1024 * 1024;

/// A value and where it is.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) place: Place,
    value: Value,
    /// How many bytes of JSON it becomes, about.
    weight: usize,
    depth: usize,
}

#[derive(Debug)]
enum Value {
    /// `null`, `true`, `false` or a number, as JSON writes it.
    Literal(String),
    Text(String),
    List(Vec<Rc<Node>>),
    Map(Vec<(String, Rc<Node>)>),
}

impl Node {
    /// The documents in this one: itself, its elements, or its `items`.
    pub(super) fn objects(self: &Rc<Self>) -> Result<Vec<Rc<Self>>, SyntaxError> {
        let wanted = || SyntaxError::new(self.place, WANTED);
        match &self.value {
            Value::List(elements) => Ok(elements.clone()),
            Value::Map(members) if is_list(members.iter().map(|(key, _)| key.as_str())) => {
                match members
                    .iter()
                    .find(|(key, _)| key == "items")
                    .map(|(_, node)| &node.value)
                {
                    Some(Value::List(elements)) => Ok(elements.clone()),
                    _ => Err(wanted()),
                }
            }
            Value::Map(_) => Ok(vec![self.clone()]),
            _ => Err(wanted()),
        }
    }

    /// The members of an object, each as JSON.
    pub(super) fn fields(&self) -> Result<Vec<(String, Json)>, SyntaxError> {
        let Value::Map(members) = &self.value else {
            return Err(SyntaxError::new(self.place, WANTED));
        };
        let field = |(key, node): &(String, Rc<Self>)| {
            let json = RawValue::from_string(node.json()).map_err(|err| {
                SyntaxError::new(node.place, format!("this has no JSON form: {err}"))
            })?;
            Ok((key.clone(), json))
        };
        members.iter().map(field).collect()
    }

    /// The value at `pointer`, or the deepest one on the way that exists.
    pub(super) fn at(&self, pointer: &str) -> Option<&Self> {
        if !pointer.is_empty() && !pointer.starts_with('/') {
            return None;
        }
        let mut node = self;
        for token in pointer.split('/').skip(1) {
            let token = unescape(token);
            let next = match &node.value {
                Value::Map(members) => members
                    .iter()
                    .find(|(key, _)| *key == token)
                    .map(|(_, n)| n),
                Value::List(elements) => token.parse::<usize>().ok().and_then(|i| elements.get(i)),
                _ => None,
            };
            let Some(next) = next else { break };
            node = next;
        }
        Some(node)
    }

    /// The value as JSON.
    pub(crate) fn json(&self) -> String {
        let mut json = String::new();
        self.push_json(&mut json);
        json
    }

    fn push_json(&self, json: &mut String) {
        match &self.value {
            Value::Literal(literal) => json.push_str(literal),
            Value::Text(text) => push_json_string(json, text),
            Value::List(elements) => {
                json.push('[');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        json.push(',');
                    }
                    element.push_json(json);
                }
                json.push(']');
            }
            Value::Map(members) => {
                json.push('{');
                for (index, (key, node)) in members.iter().enumerate() {
                    if index > 0 {
                        json.push(',');
                    }
                    push_json_string(json, key);
                    json.push(':');
                    node.push_json(json);
                }
                json.push('}');
            }
        }
    }
}

/// The documents of a YAML text; empty ones are left out.
pub(crate) fn read(text: &str) -> Result<Vec<Rc<Node>>, SyntaxError> {
    let mut documents = Vec::new();
    let mut composer = Composer::default();
    for event in Parser::new_from_str(text) {
        let (event, span) =
            event.map_err(|err| SyntaxError::new(place_of(err.marker()), err.info()))?;
        if let Some(document) = composer.take(event, span)? {
            documents.push(document);
        }
    }
    Ok(documents)
}

/// A list or map that is not closed yet.
struct Open {
    place: Place,
    anchor: usize,
    inner: Inner,
    weight: usize,
    depth: usize,
}

enum Inner {
    List(Vec<Rc<Node>>),
    Map {
        members: Vec<(String, Rc<Node>)>,
        seen: HashSet<String>,
        key: Option<String>,
    },
}

/// Builds documents from events, without recursion.
#[derive(Default)]
struct Composer {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
}

impl Composer {
    fn take(&mut self, event: Event<'_>, span: Span) -> Result<Option<Rc<Node>>, SyntaxError> {
        let place = place_of(&span.start);
        match event {
            Event::DocumentStart(_) => {
                self.anchors.clear();
                self.root = None;
            }
            Event::DocumentEnd => {
                // A document of nothing but comments is a null that nobody wrote.
                let root = self.root.take();
                return Ok(
                    root.filter(|root| !matches!(&root.value, Value::Literal(l) if l == "null"))
                );
            }
            Event::Scalar(text, style, anchor, tag) => {
                if let Some(key) = self.awaited_key() {
                    *key = Some(key_text(&text, style, place)?);
                    return Ok(None).and_then(|none| self.key_is_new(place).map(|()| none));
                }
                let value = scalar(&text, style, tag.as_deref(), place)?;
                let weight = match &value {
                    Value::Text(text) => text.len() + 3,
                    Value::Literal(literal) => literal.len() + 1,
                    _ => 1,
                };
                self.close(
                    Node {
                        place,
                        value,
                        weight,
                        depth: 1,
                    },
                    anchor,
                )?;
            }
            Event::Alias(anchor) => {
                if self.awaited_key().is_some() {
                    return Err(SyntaxError::new(place, "a key cannot be an alias"));
                }
                let Some(node) = self.anchors.get(&anchor).cloned() else {
                    return Err(SyntaxError::new(
                        place,
                        "this alias is inside of what it refers to",
                    ));
                };
                self.attach(node, place)?;
            }
            Event::SequenceStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "seq", place)?;
                self.start(Inner::List(Vec::new()), anchor, place)?;
            }
            Event::MappingStart(anchor, tag) => {
                collection_tag(tag.as_deref(), "map", place)?;
                let inner = Inner::Map {
                    members: Vec::new(),
                    seen: HashSet::new(),
                    key: None,
                };
                self.start(inner, anchor, place)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(open) = self.open.pop() {
                    let value = match open.inner {
                        Inner::List(elements) => Value::List(elements),
                        Inner::Map { members, .. } => Value::Map(members),
                    };
                    let node = Node {
                        place: open.place,
                        value,
                        weight: open.weight,
                        depth: open.depth,
                    };
                    self.close(node, open.anchor)?;
                }
            }
            Event::StreamStart | Event::StreamEnd | Event::Nothing => {}
        }
        Ok(None)
    }

    /// Where the next scalar goes, when it is a key.
    fn awaited_key(&mut self) -> Option<&mut Option<String>> {
        match self.open.last_mut() {
            Some(Open {
                inner: Inner::Map { key, .. },
                ..
            }) if key.is_none() => Some(key),
            _ => None,
        }
    }

    fn key_is_new(&mut self, place: Place) -> Result<(), SyntaxError> {
        if let Some(Open {
            inner:
                Inner::Map {
                    seen,
                    key: Some(key),
                    ..
                },
            ..
        }) = self.open.last_mut()
            && !seen.insert(key.clone())
        {
            return Err(SyntaxError::new(
                place,
                format!("the key {key:?} is there twice"),
            ));
        }
        Ok(())
    }

    fn start(&mut self, inner: Inner, anchor: usize, place: Place) -> Result<(), SyntaxError> {
        if self.awaited_key().is_some() {
            return Err(SyntaxError::new(
                place,
                "a key must be a plain word or a string",
            ));
        }
        if self.open.len() >= DEPTH_LIMIT {
            return Err(too_deep(place));
        }
        self.open.push(Open {
            place,
            anchor,
            inner,
            weight: 2,
            depth: 1,
        });
        Ok(())
    }

    fn close(&mut self, node: Node, anchor: usize) -> Result<(), SyntaxError> {
        let place = node.place;
        let node = Rc::new(node);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        self.attach(node, place)
    }

    fn attach(&mut self, node: Rc<Node>, place: Place) -> Result<(), SyntaxError> {
        let levels_above = self.open.len();
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        if levels_above + node.depth > DEPTH_LIMIT {
            return Err(too_deep(place));
        }
        open.depth = open.depth.max(node.depth + 1);
        open.weight = open.weight.saturating_add(node.weight).saturating_add(1);
        match &mut open.inner {
            Inner::List(elements) => elements.push(node),
            Inner::Map { members, key, .. } => {
                let key = key.take().unwrap_or_default();
                open.weight = open.weight.saturating_add(key.len() + 4);
                members.push((key, node));
            }
        }
        if open.weight > EXPANDED_LIMIT_BYTES {
            return Err(SyntaxError::new(
                place,
                format!(
                    "with its aliases expanded the document is larger than {EXPANDED_LIMIT_BYTES} bytes"
                ),
            ));
        }
        Ok(())
    }
}

fn too_deep(place: Place) -> SyntaxError {
    SyntaxError::new(place, format!("nested deeper than {DEPTH_LIMIT} levels"))
}

fn place_of(marker: &saphyr_parser::Marker) -> Place {
    Place {
        line: marker.line().max(1),
        column: marker.col() + 1,
    }
}

fn key_text(text: &str, style: ScalarStyle, place: Place) -> Result<String, SyntaxError> {
    if text == "<<" && style == ScalarStyle::Plain {
        return Err(SyntaxError::new(
            place,
            "merge keys (<<) are not part of YAML 1.2: write the keys out, or alias the whole value",
        ));
    }
    Ok(text.to_owned())
}

fn collection_tag(tag: Option<&Tag>, wanted: &str, place: Place) -> Result<(), SyntaxError> {
    match tag {
        None => Ok(()),
        Some(tag) if tag.is_yaml_core_schema() && tag.suffix == wanted => Ok(()),
        Some(tag) => Err(unknown_tag(tag, place)),
    }
}

fn unknown_tag(tag: &Tag, place: Place) -> SyntaxError {
    SyntaxError::new(place, format!("the tag {tag} has no meaning here"))
}

fn scalar(
    text: &str,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Place,
) -> Result<Value, SyntaxError> {
    let literal = match tag {
        None if style == ScalarStyle::Plain => plain(text, place)?,
        None => None,
        Some(tag) if tag.is_yaml_core_schema() => match tag.suffix.as_str() {
            "str" => None,
            "null" | "bool" | "int" | "float" => {
                let literal = plain(text, place)?;
                let fits = literal
                    .as_deref()
                    .is_some_and(|literal| match tag.suffix.as_str() {
                        "null" => literal == "null",
                        "bool" => matches!(literal, "true" | "false"),
                        "int" => is_number(literal) && !literal.contains(['.', 'e', 'E']),
                        _ => is_number(literal),
                    });
                if !fits {
                    return Err(SyntaxError::new(
                        place,
                        format!("{text:?} is not a {}", tag.suffix),
                    ));
                }
                literal
            }
            _ => return Err(unknown_tag(tag, place)),
        },
        Some(tag) => return Err(unknown_tag(tag, place)),
    };
    Ok(literal.map_or_else(|| Value::Text(text.to_owned()), Value::Literal))
}

fn is_number(literal: &str) -> bool {
    literal.starts_with(|c: char| c == '-' || c.is_ascii_digit())
}

/// The core schema's reading of a plain scalar as JSON, `None` when it is a string.
pub(crate) fn plain(text: &str, place: Place) -> Result<Option<String>, SyntaxError> {
    let word = match text {
        "" | "~" | "null" | "Null" | "NULL" => Some("null"),
        "true" | "True" | "TRUE" => Some("true"),
        "false" | "False" | "FALSE" => Some("false"),
        _ => None,
    };
    if let Some(word) = word {
        return Ok(Some(word.to_owned()));
    }
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(SyntaxError::new(
            place,
            format!("{text} has no JSON form; quote it to have it as a string"),
        ));
    }
    for (prefix, radix) in [("0o", 8), ("0x", 16)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return u128::from_str_radix(digits, radix)
                .map(|n| Some(n.to_string()))
                .map_err(|_| {
                    SyntaxError::new(
                        place,
                        format!("{text} is too large; write it as a decimal number"),
                    )
                });
        }
    }
    Ok(decimal(text))
}

/// A decimal number as JSON writes it: the same digits, only the forms that JSON does not have put right.
fn decimal(text: &str) -> Option<String> {
    let (sign, unsigned) = match text.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", text.strip_prefix('+').unwrap_or(text)),
    };
    let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
        Some(at) => (&unsigned[..at], Some(&unsigned[at..])),
        None => (unsigned, None),
    };
    if let Some(exponent) = exponent {
        let digits = exponent[1..]
            .strip_prefix(['+', '-'])
            .unwrap_or(&exponent[1..]);
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
    }
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let all_digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit());
    if !all_digits(whole) || !fraction.is_none_or(all_digits) {
        return None;
    }
    if whole.is_empty() && fraction.is_none_or(str::is_empty) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let mut number = format!("{sign}{whole}");
    if let Some(fraction) = fraction {
        number.push('.');
        number.push_str(if fraction.is_empty() { "0" } else { fraction });
    }
    number.push_str(exponent.unwrap_or_default());
    Some(number)
}

#[cfg(test)]
mod tests;
