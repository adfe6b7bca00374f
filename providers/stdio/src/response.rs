//! What the program writes: one JSON object, read here; the same shape is written for every composer that is rendered offline.
//!
//! `{"status", "conditions": [{"type", "status", "reason"?, "message"?}], "children": [{"kind", "kind_version"?, "name",
//! "spec"?, "labels"?}], "edges": [{"from": {"kind", "name"}, "to": {"kind", "name"}, "values"?: [{"dependent_field",
//! "source_field"}]}], "configs": [{"name", "kind", "kind_version"?, "is_default"?, "spec"?}], "output"}`, all optional.
//!
//! Documents keep their bytes. A member this version does not know is passed over at the top, where a later version may add
//! one, and refused below, where it is a slip of the pen that would change what gets created.

use std::collections::BTreeMap;

use converge_sdk::process::tail_text;
use converge_sdk::{
    Bytes, Child, Condition, ConditionStatus, ConfigOut, Edge, Json, KindVersion, Outcome,
    ResourceRef, Stage, TaskError,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// How much of something unreadable a message quotes.
const QUOTED_BYTES: usize = 200;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConditionShape {
    #[serde(rename = "type")]
    type_: String,
    status: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    message: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ChildShape {
    kind: String,
    #[serde(default = "first_version")]
    kind_version: u16,
    name: String,
    #[serde(default = "Json::empty_object")]
    spec: Json,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RefShape {
    kind: String,
    name: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EdgeShape {
    from: RefShape,
    to: RefShape,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    values: Vec<FlowShape>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowShape {
    dependent_field: String,
    source_field: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ConfigShape {
    name: String,
    kind: String,
    #[serde(default = "first_version")]
    kind_version: u16,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_default: bool,
    #[serde(default = "Json::empty_object")]
    spec: Json,
}

#[derive(Serialize)]
struct ResponseShape<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a Json>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    conditions: Vec<ConditionShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    children: Option<Vec<ChildShape>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    edges: Vec<EdgeShape>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    configs: Vec<ConfigShape>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Json>,
}

fn first_version() -> u16 {
    1
}

/// Reads the response of a program that ran for a task of this stage. Blank is an empty success.
///
/// # Errors
/// Terminal: not one JSON object (the first 200 bytes are quoted), or members of another shape, all of them named.
pub fn decode(stage: Stage, stdout: &Bytes) -> Result<Outcome, TaskError> {
    let Some(mut members) = members(stdout)? else {
        return Ok(Outcome::new());
    };
    let mut problems = Vec::new();
    let mut outcome = Outcome::new();
    outcome.status = members.take("status");
    outcome.conditions = conditions(&mut members, &mut problems);
    let (children, edges, configs) = (
        members.take("children"),
        members.take("edges"),
        members.take("configs"),
    );
    if stage == Stage::Compose {
        outcome.children = children.map(|json| read_all(&json, "children", child, &mut problems));
        outcome.edges = edges
            .map(|json| read_all(&json, "edges", edge, &mut problems))
            .unwrap_or_default();
        outcome.configs = configs
            .map(|json| read_all(&json, "configs", config, &mut problems))
            .unwrap_or_default();
        if outcome.children.is_none() && !(outcome.edges.is_empty() && outcome.configs.is_empty()) {
            tracing::warn!(
                "the program's response has edges or configs but no children: the graph stays as it is, and they are passed over"
            );
            (outcome.edges, outcome.configs) = (Vec::new(), Vec::new());
        }
    }
    outcome.operation_output = members.take("output").filter(|_| stage == Stage::Operate);
    if !members.0.is_empty() {
        let names: Vec<&String> = members.0.keys().collect();
        tracing::warn!(members = ?names, "the program's response has members that are not known and are passed over");
    }
    if problems.is_empty() {
        Ok(outcome)
    } else {
        Err(TaskError::terminal(format!(
            "the program's response is not valid: {}",
            problems.join("; ")
        )))
    }
}

/// Status and conditions of a program that failed, as far as it wrote any.
pub fn decode_failed(stdout: &Bytes) -> (Option<Json>, Vec<Condition>) {
    match members(stdout) {
        Ok(Some(mut members)) => {
            let conditions = conditions(&mut members, &mut Vec::new());
            (members.take("status"), conditions)
        }
        _ => (None, Vec::new()),
    }
}

/// Writes an outcome in the shape of a response.
///
/// # Errors
/// Terminal: a document in it is not JSON.
pub fn encode(outcome: &Outcome) -> Result<Json, TaskError> {
    Json::of(&ResponseShape {
        status: outcome.status.as_ref(),
        conditions: outcome.conditions.iter().map(condition_shape).collect(),
        children: outcome
            .children
            .as_ref()
            .map(|children| children.iter().map(child_shape).collect()),
        edges: outcome.edges.iter().map(edge_shape).collect(),
        configs: outcome.configs.iter().map(config_shape).collect(),
        output: outcome.operation_output.as_ref(),
    })
}

/// The members of the response. `null` is as good as absent.
struct Members(BTreeMap<String, Json>);

impl Members {
    fn take(&mut self, name: &str) -> Option<Json> {
        self.0
            .remove(name)
            .filter(|json| json.as_bytes() != b"null")
    }
}

fn members(stdout: &Bytes) -> Result<Option<Members>, TaskError> {
    let text = stdout.trim_ascii();
    if text.is_empty() {
        return Ok(None);
    }
    // A view, no copy: an answer may have 64 MiB.
    let document = stdout.slice_ref(text);
    let members = Json::parse(document).and_then(|json| json.decode::<BTreeMap<String, Json>>());
    members
        .map(|members| Some(Members(members)))
        .map_err(|error| {
            TaskError::terminal(format!(
                "the program's stdout is not one JSON object: {error}; it begins: {}",
                quote(text)
            ))
        })
}

/// The beginning of what the program wrote, as text.
fn quote(text: &[u8]) -> String {
    let mut end = text.len().min(QUOTED_BYTES);
    // Not within a character.
    while end > 0 && end < text.len() && (text[end] & 0xC0) == 0x80 {
        end -= 1;
    }
    let more = if end < text.len() { "…" } else { "" };
    format!("{}{more}", tail_text(&text[..end], usize::MAX))
}

/// Every element of a list, and every problem of each.
fn read_all<S: DeserializeOwned, T>(
    json: &Json,
    member: &str,
    convert: impl Fn(S) -> Result<T, String>,
    problems: &mut Vec<String>,
) -> Vec<T> {
    let elements = match json.decode::<Vec<Json>>() {
        Ok(elements) => elements,
        Err(error) => {
            problems.push(format!("{member}: {error}"));
            return Vec::new();
        }
    };
    let mut read = Vec::with_capacity(elements.len());
    for (index, element) in elements.iter().enumerate() {
        let shape = element.decode::<S>().map_err(|error| {
            // Line and column would count from the element's start.
            format!("{}: {}", error.pointer(), error.message())
        });
        match shape.and_then(&convert) {
            Ok(value) => read.push(value),
            Err(problem) => problems.push(format!("{member}[{index}]{problem}")),
        }
    }
    read
}

fn conditions(members: &mut Members, problems: &mut Vec<String>) -> Vec<Condition> {
    let Some(json) = members.take("conditions") else {
        return Vec::new();
    };
    read_all(
        &json,
        "conditions",
        |shape: ConditionShape| {
            let status: ConditionStatus = shape
                .status
                .parse()
                .map_err(|error| format!("/status: {error}"))?;
            Ok(Condition::new(shape.type_, status)
                .with_reason(shape.reason)
                .with_message(shape.message))
        },
        problems,
    )
}

fn pair(kind: &str, version: u16) -> Result<KindVersion, String> {
    let pair = KindVersion::new(kind, version);
    pair.check().map_err(|error| format!(": {error}"))?;
    Ok(pair)
}

fn child(shape: ChildShape) -> Result<Child, String> {
    let child = Child::new(
        pair(&shape.kind, shape.kind_version)?,
        shape.name,
        shape.spec,
    );
    Ok(shape
        .labels
        .into_iter()
        .fold(child, |child, (key, value)| child.with_label(key, value)))
}

fn edge(shape: EdgeShape) -> Result<Edge, String> {
    let end = |end: RefShape| ResourceRef::new(end.kind, end.name);
    let edge = Edge::new(end(shape.from), end(shape.to));
    Ok(shape.values.into_iter().fold(edge, |edge, flow| {
        edge.with_value(pointer(&flow.dependent_field), pointer(&flow.source_field))
    }))
}

fn config(shape: ConfigShape) -> Result<ConfigOut, String> {
    let config = ConfigOut::new(
        shape.name,
        pair(&shape.kind, shape.kind_version)?,
        shape.spec,
    );
    Ok(if shape.is_default {
        config.as_default()
    } else {
        config
    })
}

/// A bare field name is a pointer of one segment.
fn pointer(field: &str) -> String {
    if field.is_empty() || field.starts_with('/') {
        return field.to_owned();
    }
    format!("/{}", field.replace('~', "~0").replace('/', "~1"))
}

fn condition_shape(condition: &Condition) -> ConditionShape {
    ConditionShape {
        type_: condition.type_.clone(),
        status: condition.status.to_string(),
        reason: condition.reason.clone(),
        message: condition.message.clone(),
    }
}

fn child_shape(child: &Child) -> ChildShape {
    ChildShape {
        kind: child.kind.kind().to_owned(),
        kind_version: child.kind.version(),
        name: child.name.clone(),
        spec: child.spec.clone(),
        labels: child.labels.clone(),
    }
}

fn edge_shape(edge: &Edge) -> EdgeShape {
    let end = |end: &ResourceRef| RefShape {
        kind: end.kind.clone(),
        name: end.name.clone(),
    };
    EdgeShape {
        from: end(&edge.from),
        to: end(&edge.to),
        values: edge
            .values
            .iter()
            .map(|flow| FlowShape {
                dependent_field: flow.dependent_field.clone(),
                source_field: flow.source_field.clone(),
            })
            .collect(),
    }
}

fn config_shape(config: &ConfigOut) -> ConfigShape {
    ConfigShape {
        name: config.name.clone(),
        kind: config.kind.kind().to_owned(),
        kind_version: config.kind.version(),
        is_default: config.is_default,
        spec: config.spec.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compose(text: &str) -> Result<Outcome, TaskError> {
        decode(Stage::Compose, &Bytes::copy_from_slice(text.as_bytes()))
    }

    #[test]
    fn blank_is_an_empty_success() {
        for text in ["", " \n\t"] {
            assert_eq!(compose(text).unwrap(), Outcome::new());
        }
    }

    #[test]
    fn absent_children_are_no_opinion_and_an_empty_list_is_none() {
        assert_eq!(compose("{}").unwrap().children, None);
        assert_eq!(compose(r#"{"children":null}"#).unwrap().children, None);
        assert_eq!(
            compose(r#"{"children":[]}"#).unwrap().children,
            Some(vec![])
        );
    }

    #[test]
    fn what_is_left_out_has_its_default_and_numbers_keep_their_digits() {
        let text = r#"{
            "children": [{"kind":"a","name":"x"},{"kind":"b","kind_version":7,"name":"y","spec":{"n":12345678901234567890123456789.10},"labels":{"k":"v"}}],
            "edges": [{"from":{"kind":"b","name":"y"},"to":{"kind":"a","name":"x"},"values":[{"dependent_field":"a/b~c","source_field":"/id"}]}],
            "configs": [{"name":"c","kind":"a","is_default":true}],
            "conditions": [{"type":"Ready","status":"Unknown"}]
        }"#;
        let outcome = compose(text).unwrap();
        let children = outcome.children.as_ref().unwrap();
        assert_eq!(
            (children[0].kind.version(), children[0].spec.as_str()),
            (1, Some("{}"))
        );
        assert_eq!(
            children[1].spec.as_str(),
            Some(r#"{"n":12345678901234567890123456789.10}"#)
        );
        assert_eq!(outcome.edges[0].values[0].dependent_field, "/a~1b~0c");
        assert_eq!(outcome.edges[0].values[0].source_field, "/id");
        assert!(outcome.configs[0].is_default);
        assert_eq!(outcome.conditions[0].status, ConditionStatus::Unknown);
        // And back.
        let again = compose(encode(&outcome).unwrap().as_str().unwrap()).unwrap();
        assert_eq!(again, outcome);
    }

    #[test]
    fn what_is_not_one_object_is_terminal_and_quoted() {
        let long = format!("[{}é{}", "x".repeat(198), "y".repeat(100));
        for text in ["oops", "[1]", "{} {}", "{\"a\":}", "\"x\"", &long] {
            let error = compose(text).unwrap_err();
            assert!(error.is_terminal());
            assert!(error.message().contains("not one JSON object"), "{error}");
        }
        let error = compose(&long).unwrap_err();
        assert!(
            error.message().ends_with("x…") && !error.message().contains('\u{FFFD}'),
            "{error}"
        );
        let error = decode(Stage::Work, &Bytes::from_static(b"\xff\xfe\0")).unwrap_err();
        assert!(
            error.is_terminal() && !error.message().contains('\0'),
            "{error}"
        );
    }

    #[test]
    fn every_problem_is_named_with_its_place() {
        let text = r#"{
            "children": [{"kind":"a","name":"x","specs":{}},{"kind":"B!","name":"x"},{"kind":"a","name":1},{"kind":"a","kind_version":0,"name":"z"}],
            "edges": {},
            "conditions": [{"type":"Ready","status":"true"}]
        }"#;
        let error = compose(text).unwrap_err();
        for part in [
            "children[0]",
            "specs",
            "children[1]",
            "\"B!\"",
            "children[2]/name",
            "children[3]",
            "edges:",
            "conditions[0]/status",
        ] {
            assert!(error.message().contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn a_graph_is_read_for_compose_only_and_an_output_for_operations_only() {
        let text = Bytes::from_static(
            br#"{"status":{"a":1},"children":"whatever","output":{"b":2},"later":1}"#,
        );
        let work = decode(Stage::Work, &text).unwrap();
        assert_eq!((work.children, work.operation_output), (None, None));
        assert!(work.status.is_some());
        let operate = decode(Stage::Operate, &text).unwrap();
        assert_eq!(
            operate.operation_output.unwrap().as_str(),
            Some(r#"{"b":2}"#)
        );
    }

    #[test]
    fn edges_without_children_leave_the_graph_as_it_is() {
        let text = r#"{"edges":[{"from":{"kind":"a","name":"x"},"to":{"kind":"a","name":"y"}}]}"#;
        assert_eq!(compose(text).unwrap(), Outcome::new());
    }

    #[test]
    fn a_failed_program_still_delivers_what_can_be_read() {
        let (status, conditions) = decode_failed(&Bytes::from_static(
            br#"{"status":{"step":2},"conditions":[{"type":"Ready","status":"False"},{}]}"#,
        ));
        assert_eq!(status.unwrap().as_str(), Some(r#"{"step":2}"#));
        assert_eq!(conditions.len(), 1);
        assert_eq!(
            decode_failed(&Bytes::from_static(b"no json")),
            (None, Vec::new())
        );
    }
}
