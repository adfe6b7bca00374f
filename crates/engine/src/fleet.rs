//! The fleet: which workers are connected, as those who show it need to know.
//!
//! The broker fills it, the API reads it, neither knows the other. Nothing here is stored: a connection is a fact of the moment.

use converge_types::ids::KindVersion;

use crate::model::Millis;

/// Whether anybody serves a pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// No connected worker serves it.
    None,
    /// Workers serve it, and none is ready for it now.
    NotReady,
    /// At least one worker is ready for it.
    Ready,
}

/// One connected worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Identity, derived from the connection.
    pub identity: String,
    /// The pairs it serves, and whether it is ready for each.
    pub pairs: Vec<(KindVersion, bool)>,
    /// Tasks it takes at a time.
    pub credit: u32,
    /// Tasks it has.
    pub inflight: u32,
    /// When it connected.
    pub connected_ms: Millis,
    /// When it last sent anything that names its tasks.
    pub heartbeat_ms: Millis,
}

/// What is connected to one broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerMembers {
    /// Name of the broker.
    pub broker: String,
    /// Its workers, by identity.
    pub workers: Vec<Member>,
}

/// The fleet of the moment.
pub trait Fleet: Send + Sync {
    /// Brokers and their workers.
    fn members(&self) -> Vec<BrokerMembers>;

    /// Whether anybody serves this pair.
    fn service(&self, kv: &KindVersion) -> Service;
}
