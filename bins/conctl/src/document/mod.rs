//! Documents: what people write in files, read so that numbers keep every digit and every error knows its place.
//!
//! `yaml.rs` and `json.rs` read text, `files.rs` finds it, `kind_of.rs` says which type of object a document is. A
//! document is its top-level fields, each in its bytes; only the fields conctl itself speaks about are ever looked into.

mod files;
mod json;
mod kind_of;
mod yaml;

use std::rc::Rc;

use converge_client::types::Json;
use serde_json::value::RawValue;

pub(crate) use files::{Source, Walk, read_app, read_paths, read_tree};
pub(crate) use json::{Shape, shape};
pub(crate) use yaml::plain as plain_literal;
#[cfg(test)]
pub(crate) use yaml::read as read_yaml;

use crate::exit::{self, Failure, Result};
use crate::names::ObjectType;
use yaml::Node;

/// A place in a file; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) line: usize,
    pub(crate) column: usize,
}

/// A text that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SyntaxError {
    pub(crate) place: Place,
    pub(crate) message: String,
}

impl SyntaxError {
    pub(crate) fn new(place: Place, message: impl Into<String>) -> Self {
        Self {
            place,
            message: message.into(),
        }
    }
}

/// One document of a file.
#[derive(Debug, Clone)]
pub(crate) struct Document {
    /// The file, as the person named it; `-` for stdin.
    pub(crate) file: Rc<str>,
    /// Where the document starts.
    pub(crate) place: Place,
    /// Its top-level fields, in order.
    fields: Vec<(String, Json)>,
    origin: Origin,
}

/// What a document was read from, to find places in it.
#[derive(Debug, Clone)]
enum Origin {
    Json {
        text: Rc<str>,
        start: usize,
        end: usize,
    },
    Yaml(Rc<Node>),
}

impl Document {
    /// A field in its bytes.
    pub(crate) fn field(&self, name: &str) -> Option<&RawValue> {
        self.fields
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| &**value)
    }

    /// Whether there is such a field.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.field(name).is_some()
    }

    /// A field that is a string.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        serde_json::from_str(self.field(name)?.get()).ok()
    }

    /// A field that is a string and says something.
    pub(crate) fn required(&self, name: &str) -> Result<String> {
        self.text(name)
            .filter(|text| !text.is_empty())
            .ok_or_else(|| {
                self.wrong(
                    &format!("/{name}"),
                    &format!("{name} must be a string that is not empty"),
                )
            })
    }

    /// A field that is a whole number.
    pub(crate) fn integer(&self, name: &str) -> Option<i64> {
        serde_json::from_str(self.field(name)?.get()).ok()
    }

    /// The fields, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.fields
            .iter()
            .map(|(key, value)| (key.as_str(), &**value))
    }

    /// Puts a field in place of the one with its name, or at the end.
    pub(crate) fn set(&mut self, name: &str, value: Json) {
        match self.fields.iter_mut().find(|(key, _)| key == name) {
            Some((_, stored)) => *stored = value,
            None => self.fields.push((name.to_owned(), value)),
        }
    }

    /// Keeps only the fields that `keep` wants.
    pub(crate) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.fields.retain(|(key, _)| keep(key));
    }

    /// The body to send: the fields in order, each in its bytes.
    pub(crate) fn body(&self) -> String {
        let mut body = String::from("{");
        for (index, (key, value)) in self.fields.iter().enumerate() {
            if index > 0 {
                body.push(',');
            }
            push_json_string(&mut body, key);
            body.push(':');
            body.push_str(value.get());
        }
        body.push('}');
        body
    }

    /// Where in the file the value at `pointer` is.
    pub(crate) fn place_of(&self, pointer: &str) -> Option<Place> {
        match &self.origin {
            Origin::Json { text, start, end } => {
                let within = text.get(*start..*end)?;
                let offset = json::offset_of(within, pointer)?;
                Some(json::place_at(text, start + offset))
            }
            Origin::Yaml(node) => node.at(pointer).map(|node| node.place),
        }
    }

    /// `file:line:column` of the value at `pointer`, for messages.
    pub(crate) fn at(&self, pointer: &str) -> Option<String> {
        let place = self.place_of(pointer)?;
        Some(format!("{}:{}:{}", self.file, place.line, place.column))
    }

    /// `file:line` of the document, for messages.
    pub(crate) fn location(&self) -> String {
        format!("{}:{}", self.file, self.place.line)
    }

    /// A failure that names the document.
    pub(crate) fn wrong(&self, pointer: &str, message: &str) -> Failure {
        let place = self.place_of(pointer).unwrap_or(self.place);
        Failure::new(
            exit::REFUSED,
            format!("{}:{}:{}: {message}", self.file, place.line, place.column),
        )
    }

    /// Which type of object it is: `asked` (from `--type`), else its `type`, else its file's name, else its keys.
    pub(crate) fn object_type(&self, asked: Option<ObjectType>) -> Result<ObjectType> {
        kind_of::object_type(self, asked)
    }
}

/// Adds `text` as a JSON string.
pub(crate) fn push_json_string(to: &mut String, text: &str) {
    // Serializing a string cannot fail.
    to.push_str(&serde_json::to_string(text).unwrap_or_default());
}

/// Makes a JSON string of `text`.
pub(crate) fn json_string(text: &str) -> Result<Json> {
    raw(serde_json::to_string(text).unwrap_or_default())
}

/// Takes a text that is JSON as a document.
pub(crate) fn raw(text: String) -> Result<Json> {
    RawValue::from_string(text).map_err(|err| {
        let SyntaxError { place, message } = json::syntax(&err);
        let message = format!(
            "this is not JSON: {message} (line {}, column {})",
            place.line, place.column
        );
        Failure::new(exit::REFUSED, message)
    })
}

/// Reads the documents of one text.
fn parse(file: &Rc<str>, text: &str, syntax: Syntax) -> Result<Vec<Document>, SyntaxError> {
    let documents = match syntax {
        Syntax::Json => json::documents(file, text)?,
        Syntax::Yaml => yaml_documents(file, text)?,
        // YAML that starts with a brace is nearly always JSON, and then JSON's errors are the ones that help.
        Syntax::Guess if text.trim_start().starts_with(['{', '[']) => {
            json::documents(file, text)
                .or_else(|err| yaml_documents(file, text).map_err(|_| err))?
        }
        Syntax::Guess => yaml_documents(file, text)?,
    };
    Ok(documents)
}

/// How a text is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    Json,
    Yaml,
    Guess,
}

fn yaml_documents(file: &Rc<str>, text: &str) -> Result<Vec<Document>, SyntaxError> {
    let mut documents = Vec::new();
    for node in yaml::read(text)? {
        for object in node.objects()? {
            documents.push(Document {
                file: file.clone(),
                place: object.place,
                fields: object.fields()?,
                origin: Origin::Yaml(object),
            });
        }
    }
    Ok(documents)
}

/// What a text must hold, said when it holds something else.
const WANTED: &str = "expected an object, a list of objects, or an answer with items";
