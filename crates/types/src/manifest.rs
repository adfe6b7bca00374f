//! Kind manifests: the data that teaches the control plane a kind.
//!
//! [`Manifest::parse`] reads one and checks all of it: its shape, its names, the rules between reactions, and that its
//! schemas compile. Whatever is wrong is reported together, each with the place it is at. A [`Manifest`] built by hand
//! or read back from a store goes through [`Manifest::compile`], which checks the rules again.
//!
//! Not here: whether an edit of a manifest is safe for what exists ([`compat`]), schemas as such
//! ([`schema`](crate::schema)).

pub mod compat;
mod legality;

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::ids::{FinalizerName, Kind, KindVersion, ReactionName, Verb};
use crate::json::{self, Doc};
use crate::limits;
use crate::phase::{Emit, EmitMask, Stage, Trigger};
use crate::pointer::Pointer;
use crate::schema::{CompiledSchema, Violation};

/// The JSON Schema of a manifest, for editors and documentation; [`Manifest::parse`] applies it too.
pub const MANIFEST_SCHEMA: &str = include_str!("manifest/manifest.schema.json");

/// What an edit of a config does to the resources that read it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnConfigChange {
    /// They become due.
    #[default]
    Reconcile,
    /// They use it from their next pass on.
    Next,
}

/// What operators tune: seeded by the first apply of a manifest, edited live since.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Claims at a time in the whole cluster; 0 = no cap.
    pub max_inflight: u32,
    /// Longest run of one task; 0 = none.
    pub task_deadline_secs: u32,
    /// How often what is synced is observed again; 0 = never.
    pub resync_interval_secs: u32,
    /// Whether a resync composes again.
    pub resync_recomposes: bool,
    /// How long a child that vanished from a composition is kept.
    pub orphan_grace_secs: u32,
    /// Transient failures in a row that make it terminal; 0 = try for ever.
    pub max_transient_attempts: u32,
    /// What an edit of the config does.
    pub on_config_change: OnConfigChange,
}

/// One thing a kind does: when, under which name, and what of the outcome is applied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reaction {
    /// Its name, unique in the manifest.
    pub name: ReactionName,
    /// What calls it.
    pub trigger: Trigger,
    /// The parts of an outcome that are applied.
    #[serde(default)]
    pub emits: EmitMask,
    /// The verb of an operation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verb: Option<Verb>,
    /// The manifest's finalizer once more, where an author wants to say it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finalizer: Option<FinalizerName>,
}

impl Reaction {
    /// Whether it computes children.
    pub fn composes(&self) -> bool {
        self.emits.lists(Emit::Children)
    }

    /// The stage it runs as.
    pub fn stage(&self) -> Stage {
        match self.trigger {
            Trigger::SpecChange | Trigger::Resync if self.composes() => Stage::Compose,
            Trigger::SpecChange | Trigger::Resync => Stage::Work,
            Trigger::ChildrenSettled => Stage::Rollup,
            Trigger::DeleteRequested => Stage::Delete,
            Trigger::Operation => Stage::Operate,
            Trigger::Reactor => Stage::React,
        }
    }
}

/// A kind manifest. Equal when everything in it is, schemas by value.
///
/// In JSON the policy's fields stand beside the others, and a field `type` with the value `manifest` may be there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Body", into = "Body")]
pub struct Manifest {
    /// The pair it teaches.
    pub kind: KindVersion,
    /// What the kind is for, in a sentence.
    pub description: String,
    /// JSON Schema of specs; none accepts everything.
    pub spec_schema: Option<Doc>,
    /// JSON Schema of statuses; advisory.
    pub status_schema: Option<Doc>,
    /// JSON Schema of effective configs; none accepts everything.
    pub config_schema: Option<Doc>,
    /// What the kind does.
    pub reactions: Vec<Reaction>,
    /// What its resources carry until their teardown has run.
    pub finalizer_name: Option<FinalizerName>,
    /// The policy a first apply seeds.
    pub policy: Policy,
}

/// A manifest as it is written.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    #[serde(rename = "$schema", default, skip_serializing)]
    _schema: Option<String>,
    #[serde(rename = "type", default, skip_serializing)]
    _type: Option<String>,
    kind: Kind,
    kind_version: i32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec_schema: Option<Doc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status_schema: Option<Doc>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    config_schema: Option<Doc>,
    #[serde(default)]
    reactions: Vec<Reaction>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    finalizer_name: Option<FinalizerName>,
    #[serde(default)]
    max_inflight: u32,
    #[serde(default)]
    task_deadline_secs: u32,
    #[serde(default)]
    resync_interval_secs: u32,
    #[serde(default)]
    resync_recomposes: bool,
    #[serde(default)]
    orphan_grace_secs: u32,
    #[serde(default)]
    max_transient_attempts: u32,
    #[serde(default)]
    on_config_change: OnConfigChange,
}

impl TryFrom<Body> for Manifest {
    type Error = crate::ids::KindVersionError;

    fn try_from(body: Body) -> Result<Manifest, Self::Error> {
        Ok(Manifest {
            kind: KindVersion::new(body.kind, body.kind_version)?,
            description: body.description,
            spec_schema: body.spec_schema,
            status_schema: body.status_schema,
            config_schema: body.config_schema,
            reactions: body.reactions,
            finalizer_name: body.finalizer_name,
            policy: Policy {
                max_inflight: body.max_inflight,
                task_deadline_secs: body.task_deadline_secs,
                resync_interval_secs: body.resync_interval_secs,
                resync_recomposes: body.resync_recomposes,
                orphan_grace_secs: body.orphan_grace_secs,
                max_transient_attempts: body.max_transient_attempts,
                on_config_change: body.on_config_change,
            },
        })
    }
}

impl From<Manifest> for Body {
    fn from(manifest: Manifest) -> Body {
        let policy = manifest.policy;
        Body {
            _schema: None,
            _type: None,
            kind: manifest.kind.kind,
            kind_version: manifest.kind.version,
            description: manifest.description,
            spec_schema: manifest.spec_schema,
            status_schema: manifest.status_schema,
            config_schema: manifest.config_schema,
            reactions: manifest.reactions,
            finalizer_name: manifest.finalizer_name,
            max_inflight: policy.max_inflight,
            task_deadline_secs: policy.task_deadline_secs,
            resync_interval_secs: policy.resync_interval_secs,
            resync_recomposes: policy.resync_recomposes,
            orphan_grace_secs: policy.orphan_grace_secs,
            max_transient_attempts: policy.max_transient_attempts,
            on_config_change: policy.on_config_change,
        }
    }
}

/// Why bytes are no manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// They are larger than a manifest may be.
    #[error("a manifest of {0} bytes is larger than {max}", max = limits::MANIFEST_BYTES)]
    Size(usize),
    /// They are no document at all.
    #[error(transparent)]
    Doc(#[from] crate::json::DocError),
    /// What they say is not legal; everything that is not, with its place.
    #[error("the manifest is not legal: {}", crate::schema::list(.0))]
    Illegal(Vec<Violation>),
}

/// A legal manifest with its schemas ready for use. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CompiledManifest(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    manifest: Manifest,
    spec: CompiledSchema,
    status: CompiledSchema,
    config: CompiledSchema,
}

impl Manifest {
    /// Reads and checks a manifest as somebody wrote it.
    ///
    /// # Errors
    /// The bytes are no document, or everything that is not legal about what they say.
    pub fn parse(bytes: impl Into<Bytes>) -> Result<CompiledManifest, ManifestError> {
        let bytes = bytes.into();
        if bytes.len() > limits::MANIFEST_BYTES {
            return Err(ManifestError::Size(bytes.len()));
        }
        let doc = Doc::parse(bytes)?;
        let violations = legality::of_document(&doc);
        if !violations.is_empty() {
            return Err(ManifestError::Illegal(violations));
        }
        // The schema has accepted the shape, so this fails for nothing an author could meet; still an error, not a panic.
        let manifest: Manifest = serde_json::from_slice(doc.as_bytes()).map_err(|error| {
            ManifestError::Illegal(vec![Violation::new(
                Pointer::root(),
                json::without_place(&error),
            )])
        })?;
        manifest.compile().map_err(ManifestError::Illegal)
    }

    /// Checks the rules and compiles the schemas.
    ///
    /// # Errors
    /// Everything that is not legal, with its place.
    pub fn compile(self) -> Result<CompiledManifest, Vec<Violation>> {
        let mut violations = legality::of_reactions(&self);
        let mut compile = |field: &str, schema: &Option<Doc>| {
            let Some(schema) = schema else {
                return CompiledSchema::anything();
            };
            CompiledSchema::compile(schema).unwrap_or_else(|found| {
                let base = Pointer::from_tokens([field]);
                violations.extend(found.into_iter().map(|violation| violation.below(&base)));
                CompiledSchema::anything()
            })
        };
        let spec = compile("spec_schema", &self.spec_schema);
        let status = compile("status_schema", &self.status_schema);
        let config = compile("config_schema", &self.config_schema);
        if violations.is_empty() {
            Ok(CompiledManifest(Arc::new(Compiled {
                manifest: self,
                spec,
                status,
                config,
            })))
        } else {
            Err(violations)
        }
    }
}

impl CompiledManifest {
    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.0.manifest
    }

    /// The pair it teaches.
    pub fn kind(&self) -> &KindVersion {
        &self.0.manifest.kind
    }

    /// The schema of specs.
    pub fn spec(&self) -> &CompiledSchema {
        &self.0.spec
    }

    /// The schema of statuses.
    pub fn status(&self) -> &CompiledSchema {
        &self.0.status
    }

    /// The schema of effective configs.
    pub fn config(&self) -> &CompiledSchema {
        &self.0.config
    }

    fn find(&self, wanted: impl Fn(&Reaction) -> bool) -> Option<&Reaction> {
        self.0
            .manifest
            .reactions
            .iter()
            .find(|reaction| wanted(reaction))
    }

    /// The reaction of this name.
    pub fn reaction(&self, name: &str) -> Option<&Reaction> {
        self.find(|reaction| reaction.name == *name)
    }

    /// The reaction on `specChange` that emits children.
    pub fn composer(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::SpecChange && reaction.composes())
    }

    /// The reaction on `specChange` that does not.
    pub fn work(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::SpecChange && !reaction.composes())
    }

    /// The reaction on `childrenSettled`.
    pub fn rollup(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::ChildrenSettled)
    }

    /// The reaction on `deleteRequested`.
    pub fn teardown(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::DeleteRequested)
    }

    /// The reaction on `resync`.
    pub fn resync(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::Resync)
    }

    /// The reaction on `reactor`.
    pub fn reactor(&self) -> Option<&Reaction> {
        self.find(|reaction| reaction.trigger == Trigger::Reactor)
    }

    /// The reaction on `operation` with this verb.
    pub fn operation(&self, verb: &str) -> Option<&Reaction> {
        self.find(|reaction| {
            reaction.trigger == Trigger::Operation
                && reaction.verb.as_ref().is_some_and(|own| *own == *verb)
        })
    }
}

impl PartialEq for CompiledManifest {
    fn eq(&self, other: &CompiledManifest) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.manifest == other.0.manifest
    }
}

impl Eq for CompiledManifest {}

#[cfg(test)]
mod tests;
