//! From a bundle and documents to an outcome: what the provider and the offline renderer share.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use converge_sdk::{
    Child, Condition, ConditionStatus, ConfigOut, Edge, Json, KindVersion, Outcome, ResourceRef,
    TaskError,
};
use serde_json::value::RawValue;

use crate::bundle::Bundle;
use crate::limits;
use crate::pool::{ChildProgram, Pool, RunError};
use crate::protocol::{self, Composed, Meta, RequestRef, Task};

/// Whether `main` has called [`enter_child_if_asked`](crate::enter_child_if_asked). If it has not, starting this binary
/// again would start a second worker instead of a child.
pub(crate) static CAN_BE_CHILD: AtomicBool = AtomicBool::new(false);

/// Evaluates programs in child processes. Cheap to keep, meant to be shared.
#[derive(Debug)]
pub struct Engine {
    pool: Pool,
    this_binary: bool,
}

impl Engine {
    /// Uses the running binary as the child. Its `main` must begin with
    /// [`enter_child_if_asked`](crate::enter_child_if_asked).
    ///
    /// # Errors
    /// When the path of the running binary cannot be found out.
    pub fn of_this_binary() -> std::io::Result<Self> {
        Ok(Self {
            pool: Pool::new(ChildProgram::this_binary()?),
            this_binary: true,
        })
    }

    /// Uses another binary whose `main` begins with [`enter_child_if_asked`](crate::enter_child_if_asked).
    #[must_use]
    pub fn of_program(path: impl Into<PathBuf>) -> Self {
        Self {
            pool: Pool::new(ChildProgram::at(path.into())),
            this_binary: false,
        }
    }

    /// Runs `compose`. Printed lines go to the log as they come.
    ///
    /// # Errors
    /// Terminal when the program or its result is wrong or over a bound, transient when no child could be had.
    pub async fn compose(
        &self,
        bundle: &Bundle,
        spec: &Json,
        config: &Json,
        meta: &Meta,
    ) -> Result<Outcome, TaskError> {
        let composed = self.run(Task::Compose, bundle, spec, config, meta).await?;
        outcome(composed)
    }

    /// Loads every file of the bundle and looks at `compose` without calling it.
    ///
    /// # Errors
    /// As [`compose`](Self::compose).
    pub async fn check(&self, bundle: &Bundle) -> Result<(), TaskError> {
        let empty = Json::empty_object();
        self.run(Task::Check, bundle, &empty, &empty, &Meta::default())
            .await
            .map(drop)
    }

    async fn run(
        &self,
        task: Task,
        bundle: &Bundle,
        spec: &Json,
        config: &Json,
        meta: &Meta,
    ) -> Result<Composed, TaskError> {
        if self.this_binary && !CAN_BE_CHILD.load(Ordering::Acquire) {
            return Err(TaskError::terminal(
                "the main function of this worker must begin with stdstarlark::enter_child_if_asked()",
            ));
        }
        let size = spec.len() + config.len();
        if size > limits::INPUT_BYTES {
            return Err(TaskError::terminal(format!(
                "spec and config have {size} bytes together; a program takes at most {}",
                limits::INPUT_BYTES
            )));
        }
        let request = RequestRef {
            task,
            files: bundle.files(),
            spec: document("spec", spec)?,
            config: document("config", config)?,
            meta,
        };
        let request =
            serde_json::to_vec(&request).map_err(|err| TaskError::terminal(err.to_string()))?;
        let mut print = |line: &str| tracing::info!(target: "stdstarlark::print", "{line}");
        self.pool
            .run(bundle.id(), &request, &mut print)
            .await
            .map_err(|error| match error {
                RunError::Refused(text) | RunError::OverLimit(text) => TaskError::terminal(text),
                RunError::Unavailable(text) => TaskError::transient(text),
            })
    }

    /// The process ids of the children that are kept warm and wait for work.
    #[must_use]
    pub fn idle_children(&self) -> Vec<u32> {
        self.pool.idle_ids()
    }
}

fn document<'j>(what: &str, json: &'j Json) -> Result<&'j RawValue, TaskError> {
    serde_json::from_slice(json.as_bytes())
        .map_err(|err| TaskError::terminal(format!("{what} is not valid JSON: {err}")))
}

fn json(raw: Box<RawValue>) -> Json {
    Json::from_bytes_unchecked(String::from(Box::<str>::from(raw)))
}

/// The child has checked everything; what is left is to change types.
fn outcome(composed: Composed) -> Result<Outcome, TaskError> {
    let pair = |kind: &str, version: i32| {
        u16::try_from(version)
            .map(|version| KindVersion::new(kind, version))
            .map_err(|_| TaskError::terminal(format!("{kind} has no version {version}")))
    };
    let mut children = Vec::with_capacity(composed.children.len());
    for child in composed.children {
        let mut out = Child::new(
            pair(&child.kind, child.kind_version)?,
            child.name,
            json(child.spec),
        );
        out.labels = child.labels;
        children.push(out);
    }
    let reference =
        |reference: protocol::Reference| ResourceRef::new(reference.kind, reference.name);
    let edges = composed.edges.into_iter().map(|edge| {
        let out = Edge::new(reference(edge.dependent), reference(edge.dependency));
        edge.values
            .into_iter()
            .fold(out, |out, (dependent, source)| {
                out.with_value(dependent, source)
            })
    });
    let mut configs = Vec::with_capacity(composed.configs.len());
    for config in composed.configs {
        let out = ConfigOut::new(
            config.name,
            pair(&config.kind, config.kind_version)?,
            json(config.spec),
        );
        configs.push(if config.is_default {
            out.as_default()
        } else {
            out
        });
    }
    let mut out = Outcome::new()
        .with_children(children)
        .with_edges(edges)
        .with_configs(configs);
    if let Some(status) = composed.status {
        out = out.with_status(json(status));
    }
    for condition in composed.conditions {
        let status: ConditionStatus = condition.status.parse().map_err(TaskError::terminal_from)?;
        out = out.with_condition(
            Condition::new(condition.kind, status)
                .with_reason(condition.reason)
                .with_message(condition.message),
        );
    }
    Ok(out)
}
