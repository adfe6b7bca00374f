//! Who is connected: filled by sessions, read by those who show the fleet.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use converge_engine::fleet::{BrokerMembers, Fleet, Member, Service};
use converge_types::ids::KindVersion;

/// See the module.
pub(crate) struct Registry {
    broker: String,
    members: Mutex<BTreeMap<u64, Member>>,
}

/// Takes a session off the list when it ends, however it ends.
pub(crate) struct Entry {
    registry: Arc<Registry>,
    session: u64,
}

impl Registry {
    pub(crate) fn new(broker: String) -> Self {
        Self {
            broker,
            members: Mutex::default(),
        }
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<u64, Member>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(self: &Arc<Self>, session: u64, member: Member) -> Entry {
        self.members().insert(session, member);
        Entry {
            registry: self.clone(),
            session,
        }
    }
}

impl Entry {
    pub(crate) fn update(&self, change: impl FnOnce(&mut Member)) {
        if let Some(member) = self.registry.members().get_mut(&self.session) {
            change(member);
        }
    }
}

impl Entry {
    /// Whether the worker said of every pair that it takes no more.
    pub(crate) fn all_shed(&self) -> bool {
        let members = self.registry.members();
        members
            .get(&self.session)
            .is_some_and(|member| member.pairs.iter().all(|(_, ready)| !ready))
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.registry.members().remove(&self.session);
    }
}

impl Fleet for Registry {
    fn members(&self) -> Vec<BrokerMembers> {
        let mut workers: Vec<_> = Registry::members(self).values().cloned().collect();
        workers.sort_by(|left, right| left.identity.cmp(&right.identity));
        vec![BrokerMembers {
            broker: self.broker.clone(),
            workers,
        }]
    }

    fn service(&self, kv: &KindVersion) -> Service {
        let members = Registry::members(self);
        let pairs = members
            .values()
            .flat_map(|member| &member.pairs)
            .filter(|(its, _)| its == kv);
        pairs
            .map(|(_, ready)| {
                if *ready {
                    Service::Ready
                } else {
                    Service::NotReady
                }
            })
            .max()
            .unwrap_or(Service::None)
    }
}
