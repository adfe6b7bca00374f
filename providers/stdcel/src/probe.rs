//! A way in for conformance tests and fuzzing: one expression, values in the JSON form of `cel.expr.Value`.
//!
//! Not part of the crate's promise; hidden from its documentation.

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value as Json, json};

use crate::cel::value::Key;
use crate::cel::{self, Budget, Env, Fault, Value};

struct Bindings(BTreeMap<String, Value>);

impl Env for Bindings {
    fn variable(&self, name: &str) -> Option<Result<Value, Fault>> {
        self.0.get(name).cloned().map(Ok)
    }
}

/// Parses and evaluates an expression.
///
/// # Errors
/// What is wrong, in words.
pub fn evaluate(source: &str, bindings: &serde_json::Map<String, Json>) -> Result<Json, String> {
    let expr = cel::parse(source)
        .map_err(|error| format!("{} (offset {})", error.message, error.offset))?;
    let mut values = BTreeMap::new();
    for (name, value) in bindings {
        values.insert(name.clone(), decode(value)?);
    }
    let mut budget = Budget::new(4_000_000, 64 << 20);
    let value =
        cel::evaluate(&expr, &Bindings(values), &mut budget).map_err(|fault| fault.to_string())?;
    encode(&value)
}

/// Composes a graph with one leaf that is any text, for an instance that never changes.
///
/// # Errors
/// All problems, in words.
pub fn compose_leaf(text: &str) -> Result<crate::Composition, String> {
    let config = json!({"resources": [
        {"id": "net", "template": {"kind": "k", "name": "net", "spec": {"a": 1, "list": ["x", null, 2.5]}}},
        {"id": "use", "template": {"kind": "k", "name": "use", "spec": {"leaf": text}}},
    ]});
    let instance = crate::Instance {
        spec: br#"{"app": "demo", "n": 3, "items": ["p", "q"], "big": 123456789012345678901234567890, "o": {"k": "v"}}"#,
        name: "demo",
        ..Default::default()
    };
    let graph = crate::Graph::parse(config.to_string().as_bytes());
    graph
        .compose(&instance)
        .map_err(|problems| crate::summary(&problems))
}

fn decode(json: &Json) -> Result<Value, String> {
    let object = json.as_object().ok_or("a value must be an object")?;
    let Some((form, content)) = object.iter().next() else {
        return Ok(Value::Null);
    };
    let text = || {
        content
            .as_str()
            .ok_or_else(|| format!("{form} must be a string"))
    };
    Ok(match form.as_str() {
        "nullValue" => Value::Null,
        "boolValue" => Value::Bool(content.as_bool().unwrap_or_default()),
        "int64Value" => Value::Int(text()?.parse().map_err(|_| "not an int")?),
        "uint64Value" => Value::Uint(text()?.parse().map_err(|_| "not a uint")?),
        "doubleValue" => Value::Double(match content {
            Json::String(text) => text.parse().map_err(|_| "not a double")?,
            other => other.as_f64().ok_or("not a double")?,
        }),
        "stringValue" => Value::string(text()?),
        "bytesValue" => Value::Bytes(Arc::from(
            STANDARD.decode(text()?).map_err(|err| err.to_string())?,
        )),
        "typeValue" => Value::Type(known_type(text()?)?),
        "listValue" => {
            let values = content["values"].as_array().cloned().unwrap_or_default();
            Value::list(values.iter().map(decode).collect::<Result<_, _>>()?)
                .map_err(|fault| fault.to_string())?
        }
        "mapValue" => {
            let mut entries = BTreeMap::new();
            for entry in content["entries"].as_array().into_iter().flatten() {
                let key = Key::lookup(&decode(&entry["key"])?).ok_or("not a key")?;
                entries.insert(key, decode(&entry["value"])?);
            }
            Value::map(entries).map_err(|fault| fault.to_string())?
        }
        "objectValue" => {
            let source = match content["@type"]
                .as_str()
                .unwrap_or_default()
                .rsplit('.')
                .next()
            {
                Some("Timestamp") => "timestamp(v)",
                Some("Duration") => "duration(v)",
                _ => return Err("messages are not supported".to_owned()),
            };
            let expr = cel::parse(source).map_err(|error| error.message)?;
            let text = Value::string(content["value"].as_str().unwrap_or_default());
            let bindings = Bindings(BTreeMap::from([("v".to_owned(), text)]));
            let mut budget = Budget::new(1_000, 1_000);
            cel::evaluate(&expr, &bindings, &mut budget).map_err(|fault| fault.to_string())?
        }
        other => return Err(format!("{other} is not supported")),
    })
}

fn known_type(name: &str) -> Result<&'static str, String> {
    cel::type_named(name).ok_or_else(|| format!("no type is called {name}"))
}

fn encode(value: &Value) -> Result<Json, String> {
    Ok(match value {
        Value::Null => json!({"nullValue": null}),
        Value::Bool(value) => json!({"boolValue": value}),
        Value::Int(value) => json!({"int64Value": value.to_string()}),
        Value::Uint(value) => json!({"uint64Value": value.to_string()}),
        Value::Double(_) | Value::Decimal(_) => {
            let number = value.as_double().unwrap_or_default();
            let special = if number.is_nan() {
                "NaN"
            } else if number > 0.0 {
                "Infinity"
            } else {
                "-Infinity"
            };
            match serde_json::Number::from_f64(number) {
                Some(number) => json!({"doubleValue": number}),
                None => json!({"doubleValue": special}),
            }
        }
        Value::String(text) => json!({"stringValue": &**text}),
        Value::Bytes(bytes) => json!({"bytesValue": STANDARD.encode(bytes)}),
        Value::List(list) => {
            json!({"listValue": {"values": list.items().iter().map(encode).collect::<Result<Vec<_>, _>>()?}})
        }
        Value::Map(map) => {
            let entries = map.entries().iter();
            let entries = entries.map(|(key, value)| {
                Ok(json!({"key": encode(&key.value())?, "value": encode(value)?}))
            });
            json!({"mapValue": {"entries": entries.collect::<Result<Vec<_>, String>>()?}})
        }
        Value::Type(name) => json!({"typeValue": name}),
        Value::Timestamp(_) | Value::Duration(_) => {
            let expr = cel::parse("string(v)").map_err(|error| error.message)?;
            let bindings = Bindings(BTreeMap::from([("v".to_owned(), value.clone())]));
            let text = cel::evaluate(&expr, &bindings, &mut Budget::new(100, 1_000))
                .map_err(|fault| fault.to_string())?;
            json!({"objectValue": {"@type": format!("type.googleapis.com/{}", value.type_name()), "value": text.as_str()}})
        }
        // A present optional has no form of its own; the specification's data compares its content.
        Value::Optional(Some(inner)) => json!({"optional": encode(inner)?}),
        Value::Optional(None) => json!({"optional": null}),
        Value::Opaque(opaque) => json!({"opaque": opaque.to_string()}),
        Value::Pending(_) => return Err("the value is not known".to_owned()),
    })
}
