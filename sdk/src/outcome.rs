//! What a reaction that succeeded hands back.

use std::collections::BTreeMap;
use std::fmt;

use crate::{Json, KindVersion};

/// The result of a reaction. What its kind's manifest does not list under `emits` is dropped by the control plane.
///
/// ```
/// use converge_sdk::{Condition, Outcome};
///
/// let outcome = Outcome::new()
///     .with_status(serde_json::json!({"address": "10.0.0.7"}))
///     .with_condition(Condition::ready("Started"));
/// assert_eq!(outcome.conditions[0].type_, "Ready");
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Outcome {
    /// The new status, whole; `None` leaves the stored one.
    pub status: Option<Json>,
    /// The conditions of this reaction; those it reported before and does not report now go.
    pub conditions: Vec<Condition>,
    /// Compose: the children. `None` is no opinion: children, edges and configs all stay as they are. `Some(vec![])` is none.
    pub children: Option<Vec<Child>>,
    /// Compose: who depends on whom among the children. Read only when `children` is `Some`.
    pub edges: Vec<Edge>,
    /// Compose: the providerconfigs this composite owns. Read only when `children` is `Some`.
    pub configs: Vec<ConfigOut>,
    /// Operate: what the operation answers.
    pub operation_output: Option<Json>,
}

/// A resource that a composer wants to exist.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Child {
    /// Its kind and version.
    pub kind: KindVersion,
    /// Its name, unique within the kind.
    pub name: String,
    /// Its spec.
    pub spec: Json,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// `from` depends on `to`: it is dispatched once `to` is Ready, and torn down before it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Edge {
    /// The dependent.
    pub from: ResourceRef,
    /// The dependency.
    pub to: ResourceRef,
    /// Values copied from the status of `to` into the spec of `from`.
    pub values: Vec<ValueFlow>,
}

/// One value that flows along an [`Edge`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ValueFlow {
    /// RFC 6901 pointer into the spec of the dependent.
    pub dependent_field: String,
    /// RFC 6901 pointer into the status of the dependency.
    pub source_field: String,
}

/// A resource by kind and name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct ResourceRef {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// A providerconfig that a composer owns.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfigOut {
    /// Its name, unique over all kinds.
    pub name: String,
    /// The pair it configures.
    pub kind: KindVersion,
    /// True if it is the pair's default.
    pub is_default: bool,
    /// The configuration.
    pub spec: Json,
}

/// One aspect of a resource's state. `Ready` is the one that decides its health.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Condition {
    /// What it is about, `Ready` for example.
    pub type_: String,
    /// Whether it holds.
    pub status: ConditionStatus,
    /// One CamelCase word for programs.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
}

/// Whether a [`Condition`] holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ConditionStatus {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be told yet.
    Unknown,
}

impl Outcome {
    /// An outcome that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the status.
    #[must_use]
    pub fn with_status(mut self, status: impl Into<Json>) -> Self {
        self.status = Some(status.into());
        self
    }

    /// Adds a condition.
    #[must_use]
    pub fn with_condition(mut self, condition: Condition) -> Self {
        self.conditions.push(condition);
        self
    }

    /// Sets the children: an empty list means none.
    #[must_use]
    pub fn with_children(mut self, children: impl IntoIterator<Item = Child>) -> Self {
        self.children = Some(children.into_iter().collect());
        self
    }

    /// Adds edges.
    #[must_use]
    pub fn with_edges(mut self, edges: impl IntoIterator<Item = Edge>) -> Self {
        self.edges.extend(edges);
        self
    }

    /// Adds composer-owned configs.
    #[must_use]
    pub fn with_configs(mut self, configs: impl IntoIterator<Item = ConfigOut>) -> Self {
        self.configs.extend(configs);
        self
    }

    /// Sets what an operation answers.
    #[must_use]
    pub fn with_operation_output(mut self, output: impl Into<Json>) -> Self {
        self.operation_output = Some(output.into());
        self
    }
}

impl Child {
    /// A child without labels.
    pub fn new(kind: KindVersion, name: impl Into<String>, spec: impl Into<Json>) -> Self {
        Self {
            kind,
            name: name.into(),
            spec: spec.into(),
            labels: BTreeMap::new(),
        }
    }

    /// Adds a label.
    #[must_use]
    pub fn with_label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// The reference that edges use.
    pub fn reference(&self) -> ResourceRef {
        ResourceRef::new(self.kind.kind(), &*self.name)
    }
}

impl Edge {
    /// `from` depends on `to`; no values flow.
    pub fn new(from: ResourceRef, to: ResourceRef) -> Self {
        Self {
            from,
            to,
            values: Vec::new(),
        }
    }

    /// Lets `source_field` of the dependency's status flow into `dependent_field` of the dependent's spec, both RFC 6901
    /// pointers.
    #[must_use]
    pub fn with_value(
        mut self,
        dependent_field: impl Into<String>,
        source_field: impl Into<String>,
    ) -> Self {
        self.values
            .push(ValueFlow::new(dependent_field, source_field));
        self
    }
}

impl ValueFlow {
    /// A flow between two RFC 6901 pointers.
    pub fn new(dependent_field: impl Into<String>, source_field: impl Into<String>) -> Self {
        Self {
            dependent_field: dependent_field.into(),
            source_field: source_field.into(),
        }
    }
}

impl ResourceRef {
    /// A reference.
    pub fn new(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            kind: kind.into(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.name)
    }
}

impl ConfigOut {
    /// A named override for a pair.
    pub fn new(name: impl Into<String>, kind: KindVersion, spec: impl Into<Json>) -> Self {
        Self {
            name: name.into(),
            kind,
            is_default: false,
            spec: spec.into(),
        }
    }

    /// Makes it the pair's default.
    #[must_use]
    pub fn as_default(mut self) -> Self {
        self.is_default = true;
        self
    }
}

impl Condition {
    /// A condition without reason and message.
    pub fn new(type_: impl Into<String>, status: ConditionStatus) -> Self {
        Self {
            type_: type_.into(),
            status,
            reason: String::new(),
            message: String::new(),
        }
    }

    /// `Ready=True` with a reason.
    pub fn ready(reason: impl Into<String>) -> Self {
        Self::new("Ready", ConditionStatus::True).with_reason(reason)
    }

    /// `Ready=False` with a reason.
    pub fn not_ready(reason: impl Into<String>) -> Self {
        Self::new("Ready", ConditionStatus::False).with_reason(reason)
    }

    /// Sets the reason: one CamelCase word.
    #[must_use]
    pub fn with_reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = reason.into();
        self
    }

    /// Sets the message: a sentence for people.
    #[must_use]
    pub fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = message.into();
        self
    }
}

impl ConditionStatus {
    /// `True`, `False` or `Unknown`.
    pub fn as_str(self) -> &'static str {
        match self {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        }
    }
}

impl fmt::Display for ConditionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for ConditionStatus {
    type Err = UnknownConditionStatus;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "True" => Ok(Self::True),
            "False" => Ok(Self::False),
            "Unknown" => Ok(Self::Unknown),
            _ => Err(UnknownConditionStatus(text.to_owned())),
        }
    }
}

/// A text that is none of `True`, `False` and `Unknown`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("condition status {0:?} is not valid: expected True, False or Unknown")]
pub struct UnknownConditionStatus(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_opinion_and_none_are_told_apart() {
        assert_eq!(Outcome::new().children, None);
        assert_eq!(Outcome::new().with_children([]).children, Some(vec![]));
    }

    #[test]
    fn a_condition_status_reads_back() {
        for status in [
            ConditionStatus::True,
            ConditionStatus::False,
            ConditionStatus::Unknown,
        ] {
            assert_eq!(status.to_string().parse(), Ok(status));
        }
        let error = "true".parse::<ConditionStatus>().unwrap_err().to_string();
        assert!(error.contains("expected True, False or Unknown"), "{error}");
    }
}
