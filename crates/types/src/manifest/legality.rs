//! What makes a manifest legal, apart from its schemas.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use serde_json::Value;

use super::{MANIFEST_SCHEMA, Manifest};
use crate::ids::{FinalizerName, Kind, ReactionName, Verb};
use crate::json::Doc;
use crate::phase::{Emit, Trigger};
use crate::pointer::Pointer;
use crate::schema::{CompiledSchema, Violation};

/// What is wrong with the shape and the names of a manifest as it is written.
///
/// When there is nothing, it reads as a [`Manifest`]. When there is, the rules between reactions and the schemas are
/// checked all the same as far as they can be read, so that an author sees everything at once.
pub(super) fn of_document(doc: &Doc) -> Vec<Violation> {
    static SCHEMA: OnceLock<Option<CompiledSchema>> = OnceLock::new();
    let schema =
        SCHEMA.get_or_init(|| CompiledSchema::compile(&MANIFEST_SCHEMA.parse().ok()?).ok());
    let value = match doc.to_value() {
        Ok(value) => value,
        Err(error) => return vec![Violation::new(Pointer::root(), error.to_string())],
    };
    let Some(schema) = schema else {
        return vec![Violation::new(
            Pointer::root(),
            "the schema of manifests is broken".to_owned(),
        )];
    };
    let mut violations = schema.violations(&value);
    name::<Kind>(&value, &["kind"], &mut violations);
    name::<FinalizerName>(&value, &["finalizer_name"], &mut violations);
    let reactions = value
        .get("reactions")
        .and_then(Value::as_array)
        .map_or(0, Vec::len);
    for index in 0..reactions {
        let index = index.to_string();
        name::<ReactionName>(&value, &["reactions", &index, "name"], &mut violations);
        name::<Verb>(&value, &["reactions", &index, "verb"], &mut violations);
        name::<FinalizerName>(&value, &["reactions", &index, "finalizer"], &mut violations);
    }
    if !violations.is_empty() {
        let reactions = readable(&value);
        violations.extend(reactions.as_ref().map(of_reactions).unwrap_or_default());
        for field in ["spec_schema", "status_schema", "config_schema"] {
            let base = Pointer::from_tokens([field]);
            if let Some(schema @ (Value::Object(_) | Value::Bool(_))) = value.get(field) {
                let found = Doc::from_value(schema)
                    .ok()
                    .and_then(|schema| CompiledSchema::compile(&schema).err());
                violations.extend(
                    found
                        .into_iter()
                        .flatten()
                        .map(|violation| violation.below(&base)),
                );
            }
        }
    }
    violations
}

/// The manifest with its reactions alone, when these can be read although something else cannot.
fn readable(value: &Value) -> Option<Manifest> {
    let mut kept = serde_json::json!({"kind": "k", "kind_version": 1});
    for field in ["reactions", "finalizer_name"] {
        if let Some(found) = value.get(field) {
            kept[field] = found.clone();
        }
    }
    serde_json::from_str(&kept.to_string()).ok()
}

fn name<N>(value: &Value, path: &[&str], violations: &mut Vec<Violation>)
where
    N: for<'a> TryFrom<&'a str, Error = crate::ids::NameError>,
{
    let pointer = Pointer::from_tokens(path.iter().copied());
    if let Some(Value::String(text)) = pointer.get(value)
        && let Err(error) = N::try_from(text)
    {
        violations.push(Violation::new(pointer, error.to_string()));
    }
}

/// What is wrong between the reactions of a manifest.
pub(super) fn of_reactions(manifest: &Manifest) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut refuse = |index: usize, field: &str, message: String| {
        let tokens = ["reactions".to_owned(), index.to_string(), field.to_owned()];
        violations.push(Violation::new(Pointer::from_tokens(tokens), message));
    };
    let mut names = HashSet::new();
    let mut verbs = HashSet::new();
    // The first reaction of each trigger, those on specChange by whether they compose.
    let mut taken = HashMap::new();
    let reacts = manifest
        .reactions
        .iter()
        .any(|reaction| reaction.trigger == Trigger::Reactor);
    for (index, reaction) in manifest.reactions.iter().enumerate() {
        let trigger = reaction.trigger;
        if !names.insert(&reaction.name) {
            refuse(
                index,
                "name",
                format!("a second reaction is called {}", reaction.name),
            );
        }
        match (trigger, &reaction.verb) {
            (Trigger::Operation, None) => refuse(
                index,
                "verb",
                "a reaction on operation needs a verb".to_owned(),
            ),
            (Trigger::Operation, Some(verb)) if !verbs.insert(verb) => {
                refuse(
                    index,
                    "verb",
                    format!("a second operation has the verb {verb}"),
                );
            }
            (Trigger::Operation, Some(_)) | (_, None) => {}
            (_, Some(_)) => refuse(
                index,
                "verb",
                format!("only a reaction on operation has a verb, not one on {trigger}"),
            ),
        }
        if trigger != Trigger::Operation {
            let composes = trigger == Trigger::SpecChange && reaction.composes();
            if let Some(first) = taken.insert((trigger, composes), &reaction.name) {
                let which = match (trigger, composes) {
                    (Trigger::SpecChange, true) => " that emits children",
                    (Trigger::SpecChange, false) => " that emits no children",
                    _ => "",
                };
                refuse(
                    index,
                    "trigger",
                    format!("a second reaction on {trigger}{which}; the first is {first}"),
                );
            }
        }
        if reaction.composes() {
            if !matches!(trigger, Trigger::SpecChange | Trigger::Resync) {
                refuse(
                    index,
                    "emits",
                    format!("a reaction on {trigger} cannot emit children"),
                );
            }
            if !reaction.emits.lists(Emit::Status) && !reaction.emits.lists(Emit::Conditions) {
                refuse(
                    index,
                    "emits",
                    "a reaction that emits children also emits status or conditions".to_owned(),
                );
            }
            if reaction.emits.lists(Emit::SideEffect) {
                refuse(
                    index,
                    "emits",
                    "a reaction that emits children cannot emit sideEffect".to_owned(),
                );
            }
        }
        if trigger == Trigger::DeleteRequested {
            if !reaction.emits.lists(Emit::Finalizer) {
                refuse(
                    index,
                    "emits",
                    "a reaction on deleteRequested emits finalizer".to_owned(),
                );
            }
            if manifest.finalizer_name.is_none() {
                refuse(
                    index,
                    "trigger",
                    "a reaction on deleteRequested needs the manifest's finalizer_name".to_owned(),
                );
            }
        }
        if trigger == Trigger::Reactor {
            if !reaction.emits.iter().eq([Emit::SideEffect]) {
                refuse(
                    index,
                    "emits",
                    "a reaction on reactor emits sideEffect and nothing else".to_owned(),
                );
            }
        } else if reacts {
            refuse(
                index,
                "trigger",
                "a kind with a reaction on reactor has no other reaction".to_owned(),
            );
        }
        if reaction.finalizer.is_some() && reaction.finalizer != manifest.finalizer_name {
            refuse(
                index,
                "finalizer",
                "a reaction's finalizer equals the manifest's finalizer_name".to_owned(),
            );
        }
    }
    violations
}
