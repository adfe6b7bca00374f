//! What the in-memory broker knows: jobs, claims, sessions and configs, and the rules between them.
//!
//! No I/O: the service calls in and takes away what is to be sent.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tonic::Status;

use crate::wire::work_stream_server_msg::Body;
use crate::wire::{
    ProviderConfigUpdate, ResumedTask, StageComplete, StageTask, Subscribe, WorkStreamServerMsg,
};
use crate::{Json, KindVersion, ProviderConfig};

pub(super) type Down = mpsc::Sender<Result<WorkStreamServerMsg, Status>>;

/// One resource as an observer sees it.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Look {
    /// Grows with every apply.
    pub generation: i64,
    /// The generation of the last success.
    pub synced_gen: i64,
    /// The stored status.
    pub status: Option<Json>,
    /// Failures that count: neither interrupted nor lost.
    pub attempts: u32,
    /// True after a terminal failure.
    pub is_failed: bool,
    /// The message of the last failure; empty after a success.
    pub message: String,
}

impl Look {
    /// True if the last success is of the current generation.
    pub fn is_synced(&self) -> bool {
        self.generation > 0 && self.synced_gen == self.generation
    }
}

pub(super) struct Claim {
    pub(super) token: String,
    pub(super) epoch: i64,
    pub(super) generation: i64,
    pub(super) session: u64,
    pub(super) named_at: Instant,
}

pub(super) struct Entry {
    pub(super) pair: KindVersion,
    pub(super) task: StageTask,
    pub(super) look: Look,
    pub(super) epoch: i64,
    pub(super) claim: Option<Claim>,
    pub(super) is_due: bool,
    pub(super) not_before: Instant,
    /// How often it was given back without an outcome, and how often its lease ran out.
    pub(super) interrupted: u32,
    pub(super) lost: u32,
    pub(super) last: Option<StageComplete>,
}

pub(super) struct Session {
    pub(super) down: Down,
    pub(super) credit: usize,
    /// Each pair, and whether it takes tasks.
    pub(super) pairs: HashMap<KindVersion, bool>,
}

#[derive(Default)]
pub(super) struct Jobs {
    pub(super) entries: BTreeMap<String, Entry>,
    pub(super) sessions: BTreeMap<u64, Session>,
    pub(super) configs: HashMap<KindVersion, ProviderConfig>,
    last_session: u64,
    last_token: u64,
    /// Results that changed nothing.
    pub(super) fenced: u64,
    /// Heartbeats that came in.
    pub(super) heartbeats: u64,
}

impl Jobs {
    pub(super) fn put(&mut self, key: String, pair: &KindVersion, task: StageTask, now: Instant) {
        let generation = self
            .entries
            .get(&key)
            .map_or(0, |entry| entry.look.generation)
            + 1;
        let entry = self.entries.entry(key).or_insert_with(|| Entry {
            pair: pair.clone(),
            task: StageTask::default(),
            look: Look::default(),
            epoch: 0,
            claim: None,
            is_due: true,
            not_before: now,
            interrupted: 0,
            lost: 0,
            last: None,
        });
        entry.task = task;
        entry.look.generation = generation;
        entry.look.is_failed = false;
        entry.is_due = true;
        entry.not_before = now;
    }

    /// A stream begins. Configs go first, so that they precede every task.
    pub(super) fn subscribe(
        &mut self,
        subscribe: Subscribe,
        down: Down,
        push_configs: bool,
        now: Instant,
    ) -> Option<u64> {
        self.last_session += 1;
        let id = self.last_session;
        let mut pairs = HashMap::new();
        for (at, kind) in subscribe.kinds.iter().enumerate() {
            let version = subscribe
                .kind_versions
                .get(at)
                .copied()
                .filter(|v| *v != 0)
                .unwrap_or(1);
            let pair = KindVersion::new(kind, u16::try_from(version).ok()?);
            if push_configs {
                down.try_send(Ok(self.update(&pair))).ok()?;
            }
            pairs.insert(pair, true);
        }
        self.sessions.insert(
            id,
            Session {
                down,
                credit: subscribe.max_inflight as usize,
                pairs,
            },
        );
        for ResumedTask {
            lease_token,
            claim_epoch,
        } in subscribe.resumed
        {
            self.name(id, &lease_token, claim_epoch, now);
        }
        Some(id)
    }

    fn update(&self, pair: &KindVersion) -> WorkStreamServerMsg {
        let config = self.configs.get(pair).cloned().unwrap_or_default();
        WorkStreamServerMsg {
            body: Some(Body::Config(ProviderConfigUpdate {
                kind: pair.kind().to_owned(),
                kind_version: pair.version().into(),
                config: config.spec.map(Json::into_bytes).unwrap_or_default(),
                bundle: config.bundle.unwrap_or_default(),
            })),
        }
    }

    pub(super) fn set_config(&mut self, pair: &KindVersion, config: ProviderConfig) {
        self.configs.insert(pair.clone(), config);
        for session in self
            .sessions
            .values()
            .filter(|session| session.pairs.contains_key(pair))
        {
            // A stream that cannot take it is over soon; the next one begins with it.
            let _ = session.down.try_send(Ok(self.update(pair)));
        }
    }

    /// A heartbeat or `resumed` names a claim.
    pub(super) fn name(&mut self, session: u64, token: &str, epoch: i64, now: Instant) {
        let named = self.entries.values_mut().find_map(|entry| {
            entry
                .claim
                .as_mut()
                .filter(|claim| claim.token == token && claim.epoch == epoch)
        });
        if let Some(claim) = named {
            claim.session = session;
            claim.named_at = now;
        }
    }

    /// A result. Lands only on the exact claim.
    pub(super) fn complete(&mut self, complete: StageComplete, retry: Duration, now: Instant) {
        let entry = self.entries.values_mut().find(|entry| {
            entry.claim.as_ref().is_some_and(|claim| {
                claim.token == complete.lease_token && claim.epoch == complete.claim_epoch
            })
        });
        let Some((entry, claim)) =
            entry.and_then(|entry| entry.claim.take().map(|claim| (entry, claim)))
        else {
            self.fenced += 1;
            return;
        };
        let status = match &complete.compose {
            Some(compose) => compose.status.clone(),
            None => complete.status.clone(),
        };
        if !status.is_empty() {
            entry.look.status = Some(Json::from_bytes_unchecked(status));
        }
        entry.look.message.clone_from(&complete.error_message);
        let is_current = claim.generation == entry.look.generation;
        if complete.error_message.is_empty() {
            entry.look.synced_gen = claim.generation;
            entry.is_due = !is_current;
        } else if complete.error_message.starts_with("interrupted: ") {
            entry.interrupted += 1;
            entry.not_before = now + retry;
        } else if complete.terminal {
            entry.look.is_failed = is_current;
            entry.is_due = !is_current;
        } else {
            entry.look.attempts += 1;
            entry.not_before = now + retry;
        }
        entry.last = Some(complete);
    }

    /// A stream is over. A half-close after every pair said that it takes no tasks is the end of a drain and gives the claims
    /// back; anything else gives nothing back.
    pub(super) fn end(&mut self, id: u64, half_closed: bool, now: Instant) {
        let Some(session) = self.sessions.remove(&id) else {
            return;
        };
        if half_closed && session.pairs.values().all(|takes| !takes) {
            for entry in self.entries.values_mut() {
                if entry
                    .claim
                    .as_ref()
                    .is_some_and(|claim| claim.session == id)
                {
                    entry.claim = None;
                    entry.not_before = now;
                }
            }
        }
    }

    /// Ends claims that nothing has named for a lease, then claims what is due for free slots. Returns when to look again.
    pub(super) fn pump(&mut self, lease: Duration, now: Instant) -> Option<Instant> {
        let mut used: HashMap<u64, usize> = HashMap::new();
        let mut again: Option<Instant> = None;
        let mut at = |when: Instant| again = Some(again.map_or(when, |again| again.min(when)));
        for entry in self.entries.values_mut() {
            if let Some(claim) = &entry.claim {
                if now.duration_since(claim.named_at) >= lease {
                    entry.claim = None;
                    entry.lost += 1;
                    entry.not_before = now;
                } else {
                    at(claim.named_at + lease);
                    *used.entry(claim.session).or_default() += 1;
                }
            }
        }
        for entry in self.entries.values_mut() {
            if !entry.is_due || entry.claim.is_some() {
                continue;
            }
            if entry.not_before > now {
                at(entry.not_before);
                continue;
            }
            let free = self.sessions.iter().find(|(id, session)| {
                session.pairs.get(&entry.pair) == Some(&true)
                    && used.get(id).copied().unwrap_or(0) < session.credit
            });
            let Some((id, session)) = free else {
                continue;
            };
            self.last_token += 1;
            let mut task = entry.task.clone();
            task.lease_token = format!("lease-{}", self.last_token);
            task.claim_epoch = entry.epoch + 1;
            task.generation = entry.look.generation;
            let claim = Claim {
                token: task.lease_token.clone(),
                epoch: task.claim_epoch,
                generation: task.generation,
                session: *id,
                named_at: now,
            };
            let message = WorkStreamServerMsg {
                body: Some(Body::Task(task)),
            };
            if session.down.try_send(Ok(message)).is_ok() {
                *used.entry(*id).or_default() += 1;
                entry.epoch += 1;
                entry.claim = Some(claim);
                at(now + lease);
            }
        }
        again
    }

    /// Changes whenever a pump has done something that an observer could see.
    pub(super) fn counts(&self) -> (u64, u32) {
        (
            self.last_token,
            self.entries.values().map(|entry| entry.lost).sum(),
        )
    }

    /// The pairs that some stream takes tasks for.
    pub(super) fn served(&self) -> HashSet<&KindVersion> {
        self.sessions
            .values()
            .flat_map(|session| {
                session
                    .pairs
                    .iter()
                    .filter(|(_, takes)| **takes)
                    .map(|(pair, _)| pair)
            })
            .collect()
    }
}
