//! Kind manifests as stored, and the small row of counters each pair has.

use converge_types::ids::KindVersion;
use converge_types::json::Doc;
use converge_types::manifest::{CompiledManifest, Manifest, Policy};

use super::{Digest, Millis};

/// A kind manifest. Key: `kv`.
#[derive(Debug, Clone)]
pub struct ManifestRow {
    /// The pair.
    pub kv: KindVersion,
    /// As applied, parsed, its schemas compiled.
    pub compiled: CompiledManifest,
    /// The policy of now: seeded by the first apply, edited live since.
    pub policy: Policy,
    /// As applied, verbatim.
    pub doc: Doc,
    /// Counts accepted changes of the manifest, from 1.
    pub version: i64,
    /// First applied at.
    pub created_ms: Millis,
    /// Last changed at.
    pub updated_ms: Millis,
    /// Store-wide revision of its last change; stamped by the store.
    pub revision: i64,
}

impl ManifestRow {
    /// The manifest as applied; its policy is what it was then, [`ManifestRow::policy`] is what holds.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        self.compiled.manifest()
    }
}

/// Counters of one pair: what dispatch needs. Key: `kv`; absent reads as [`Pair::new`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The pair.
    pub kv: KindVersion,
    /// Live claims, cluster-wide; bounded by the policy's `max_inflight`.
    pub inflight: u32,
    /// Per class: the turn of the last claim, the virtual time of fair queueing.
    pub turn: [i64; 5],
    /// Per class: claims of the pair since this class was last served.
    pub since: [u8; 5],
    /// Effective digest of the default config; zero = none.
    pub default_config: Digest,
    /// Resources of the pair, removed ones left out.
    pub resources: u64,
}

impl Pair {
    /// A pair nothing has happened to.
    #[must_use]
    pub fn new(kv: KindVersion) -> Self {
        Self {
            kv,
            inflight: 0,
            turn: [0; 5],
            since: [0; 5],
            default_config: Digest::default(),
            resources: 0,
        }
    }
}
