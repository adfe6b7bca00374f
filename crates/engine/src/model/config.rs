//! Provider configs: operator-owned configuration of a kind.

use std::sync::Arc;

use converge_types::ids::{ConfigName, KindVersion, Uid};
use converge_types::json::Doc;
use serde::{Deserialize, Serialize};

use super::Millis;

/// 128 bits of a SHA-256; all zero means "nothing to digest".
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Digest(pub u128);

/// One provider config. Key: `name`. Its bundle is a row of its own ([`Bundle`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Unique over all kinds.
    pub name: ConfigName,
    /// The pair it configures.
    pub kv: KindVersion,
    /// At most one default per pair.
    pub is_default: bool,
    /// The spec as authored; `{}` when none was given.
    pub spec: Doc,
    /// Size of the bundle; 0 = none.
    pub bundle_bytes: u64,
    /// Digest of the bundle alone; zero = none.
    pub bundle_digest: Digest,
    /// Digest of default ⊕ this one (for a default: of itself); what resources that read it compare with.
    pub effective: Digest,
    /// A later default made the merge impossible or invalid: why. Shows at the resources that read it.
    pub broken: Option<String>,
    /// The composite whose compose result owns it.
    pub owner: Option<Uid>,
    /// Dropped by a later compose result, kept until nothing reads it: what is torn down still needs it.
    pub former: bool,
    /// Created at.
    pub created_ms: Millis,
    /// Last changed at.
    pub updated_ms: Millis,
    /// Store-wide revision of its last change; stamped by the store.
    pub revision: i64,
}

/// The opaque bytes of a config. Key: the config's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle(pub Arc<[u8]>);

/// A config or manifest edit whose readers are still to be looked at, in batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigSweep {
    /// Whose resources.
    pub kv: KindVersion,
    /// Only resources that name this override; `None`: all of the pair.
    pub config_ref: Option<ConfigName>,
    /// Resources up to this uid are done.
    pub after: Option<Uid>,
}
