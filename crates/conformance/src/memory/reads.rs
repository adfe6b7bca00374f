//! The snapshot reads of the reference store.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use converge_engine::command::{ClaimTasks, Command, Reply};
use converge_engine::model::{
    Bundle, Config, DocSlot, Due, Edge, Event, History, Hold, ManifestRow, Millis, Pair, Resource,
    Tombstone,
};
use converge_engine::store::{
    Page, ResourceFilter, ResourceView, SignalStream, Standing, Store, StoreError, TransactError,
};
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::phase::Phase;

use super::tables::Tables;
use super::{MemorySignals, MemoryStore};

#[async_trait]
impl Store for MemoryStore {
    async fn transact(&self, commands: Vec<Command>) -> Vec<Result<Reply, TransactError>> {
        match self.check_open() {
            Ok(()) => self.carry_out(&commands),
            Err(error) => commands
                .iter()
                .map(|_| Err(TransactError::Store(error.clone())))
                .collect(),
        }
    }

    fn stand(&self, claim: ClaimTasks) -> Option<Standing> {
        Some(self.offers.add(claim))
    }

    fn subscribe(&self) -> Box<dyn SignalStream> {
        let mine = Arc::new(Mutex::default());
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&mine));
        Box::new(MemorySignals {
            mine,
            changed: self.signals.subscribe(),
        })
    }

    fn now_ms(&self) -> Millis {
        self.clock.now_ms()
    }

    async fn revision(&self) -> Result<i64, StoreError> {
        Ok(self.tables().revision)
    }

    async fn resource_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<ResourceView>, StoreError> {
        let tables = self.tables();
        let uid = tables.names.get(&(kind.clone(), name.clone()));
        Ok(uid.and_then(|uid| tables.view(*uid, true)))
    }

    async fn resource_get_by_uid(&self, uid: Uid) -> Result<Option<ResourceView>, StoreError> {
        Ok(self.tables().view(uid, true))
    }

    async fn resource_list(
        &self,
        filter: &ResourceFilter,
        cursor: Option<&str>,
        limit: u32,
        full: bool,
    ) -> Result<Page<ResourceView>, StoreError> {
        let tables = self.tables();
        let mut items = Vec::new();
        let mut next = None;
        for ((kind, name), uid) in &tables.names {
            let key = format!("{kind}/{name}");
            if cursor.is_some_and(|cursor| order(&key, cursor).is_le()) {
                continue;
            }
            let Some(row) = tables.resources.get(uid) else {
                continue;
            };
            if !matches(filter, row) {
                continue;
            }
            if items.len() >= limit as usize {
                next = items
                    .last()
                    .map(|item: &ResourceView| format!("{}/{}", item.row.kv.kind, item.row.name));
                break;
            }
            items.extend(tables.view(*uid, full));
        }
        Ok(Page {
            items,
            next,
            revision: tables.revision,
        })
    }

    async fn resource_summary(&self) -> Result<Vec<(KindVersion, Phase, u64)>, StoreError> {
        let mut counts = std::collections::BTreeMap::<_, u64>::new();
        for row in self.tables().resources.values() {
            *counts
                .entry((row.kv.clone(), row.derived.phase))
                .or_default() += 1;
        }
        Ok(counts
            .into_iter()
            .map(|((kv, phase), count)| (kv, phase, count))
            .collect())
    }

    async fn edge_list(&self, uid: Uid) -> Result<(Vec<Arc<Edge>>, Vec<Arc<Edge>>), StoreError> {
        let tables = self.tables();
        let live = |edges: Vec<Arc<Edge>>| edges.into_iter().filter(|edge| !edge.former).collect();
        Ok((live(tables.edges_from(uid)), live(tables.edges_to(uid))))
    }

    async fn graph_get(
        &self,
        uid: Uid,
        limit: u32,
    ) -> Result<(Vec<ResourceView>, Vec<Arc<Edge>>), StoreError> {
        let tables = self.tables();
        let mut order = vec![uid];
        let mut at = 0;
        while at < order.len() && order.len() < limit as usize {
            order.extend(tables.children_of(order[at]));
            at += 1;
        }
        order.truncate(limit as usize);
        let known: std::collections::BTreeSet<_> = order.iter().copied().collect();
        let edges = order
            .iter()
            .flat_map(|uid| tables.edges_from(*uid))
            .filter(|edge| !edge.former && known.contains(&edge.to))
            .collect();
        Ok((
            order
                .into_iter()
                .filter_map(|uid| tables.view(uid, false))
                .collect(),
            edges,
        ))
    }

    async fn history_list(&self, uid: Uid) -> Result<Vec<Arc<History>>, StoreError> {
        Ok(self.tables().history(uid))
    }

    async fn event_list(
        &self,
        uid: Uid,
        before_seq: Option<i64>,
        limit: u32,
    ) -> Result<Vec<Event>, StoreError> {
        let tables = self.tables();
        let events = tables.events.get(&uid).into_iter().flatten().rev();
        let older = events.filter(|event| before_seq.is_none_or(|before| event.seq < before));
        Ok(older.take(limit as usize).cloned().collect())
    }

    async fn tombstone_get(
        &self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Result<Option<Tombstone>, StoreError> {
        let tables = self.tables();
        let newest = tables
            .tombstones
            .iter()
            .rev()
            .find(|tombstone| tombstone.kind == *kind && tombstone.name == *name);
        Ok(newest.cloned())
    }

    async fn manifest_get(&self, kv: &KindVersion) -> Result<Option<Arc<ManifestRow>>, StoreError> {
        Ok(self.tables().manifests.get(kv).cloned())
    }

    async fn manifest_list(&self) -> Result<Vec<(Arc<ManifestRow>, Pair)>, StoreError> {
        let tables = self.tables();
        let pair = |kv: &KindVersion| {
            tables
                .pairs
                .get(kv)
                .cloned()
                .unwrap_or_else(|| Pair::new(kv.clone()))
        };
        Ok(tables
            .manifests
            .iter()
            .map(|(kv, row)| (row.clone(), pair(kv)))
            .collect())
    }

    async fn config_get(
        &self,
        name: &ConfigName,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError> {
        let tables = self.tables();
        Ok(tables
            .configs
            .get(name)
            .map(|config| (config.clone(), tables.bundles.get(name).cloned())))
    }

    async fn config_default(
        &self,
        kv: &KindVersion,
    ) -> Result<Option<(Arc<Config>, Option<Bundle>)>, StoreError> {
        let tables = self.tables();
        let default = tables
            .configs
            .values()
            .find(|config| config.is_default && config.kv == *kv);
        Ok(default.map(|config| (config.clone(), tables.bundles.get(&config.name).cloned())))
    }

    async fn config_list(
        &self,
        kind: Option<&Kind>,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<Arc<Config>>, StoreError> {
        let tables = self.tables();
        let mut items: Vec<_> = tables
            .configs
            .values()
            .filter(|config| kind.is_none_or(|kind| config.kv.kind == *kind))
            .filter(|config| cursor.is_none_or(|cursor| config.name.as_str() > cursor))
            .take(limit as usize + 1)
            .cloned()
            .collect();
        let more = items.len() > limit as usize;
        items.truncate(limit as usize);
        let next = items
            .last()
            .filter(|_| more)
            .map(|config| config.name.to_string());
        Ok(Page {
            items,
            next,
            revision: tables.revision,
        })
    }

    async fn claim_list(&self) -> Result<Vec<Arc<Resource>>, StoreError> {
        Ok(self
            .tables()
            .resources
            .values()
            .filter(|row| row.claim.is_some())
            .cloned()
            .collect())
    }

    fn writable(&self) -> Result<(), StoreError> {
        self.check_open()
    }

    async fn close(&self) {
        self.closed
            .store(true, std::sync::atomic::Ordering::Release);
    }
}

/// Compares `kind/name` keys in list order: by kind, then by name.
fn order(left: &str, right: &str) -> std::cmp::Ordering {
    left.split_once('/').cmp(&right.split_once('/'))
}

fn matches(filter: &ResourceFilter, row: &Resource) -> bool {
    filter.kind.as_ref().is_none_or(|kind| row.kv.kind == *kind)
        && filter.kv.as_ref().is_none_or(|kv| row.kv == *kv)
        && filter.phase.is_none_or(|phase| row.derived.phase == phase)
        && filter
            .name_contains
            .as_ref()
            .is_none_or(|part| row.name.as_str().contains(part.as_str()))
        && filter
            .labels
            .iter()
            .all(|(key, value)| row.labels.get(key) == Some(value.as_str()))
        && filter.owner.is_none_or(|owner| row.owner == Some(owner))
        && filter.root.is_none_or(|root| row.root == root)
        && (!filter.roots_only || row.owner.is_none())
}

impl Tables {
    fn view(&self, uid: Uid, full: bool) -> Option<ResourceView> {
        let row = self.resources.get(&uid)?.clone();
        let named = |uid: Uid| {
            self.resources
                .get(&uid)
                .map(|row| (row.kv.kind.clone(), row.name.clone()))
        };
        let doc = |slot: DocSlot| self.docs.get(&(uid, slot)).filter(|_| full).cloned();
        let held_on = match &row.due {
            Due::Held(Hold::Children(Some(child))) => Some(*child),
            Due::Held(Hold::Children(None)) => self.first_unsettled(&row),
            Due::Held(hold) => hold.on(),
            Due::Idle if row.below.sums.unsettled > 0 => self.first_unsettled(&row),
            Due::Idle | Due::Ready { .. } => None,
        };
        Some(ResourceView {
            spec: doc(DocSlot::Resolved).or_else(|| doc(DocSlot::Authored)),
            status: doc(DocSlot::Status),
            owner: row.owner.and_then(named),
            root: Some(row.root).filter(|root| *root != uid).and_then(named),
            held_on: held_on.and_then(named),
            row,
        })
    }

    /// What a row that waits for its children waits for: while it is deleted any child, else one that has not settled.
    fn first_unsettled(&self, row: &Resource) -> Option<Uid> {
        self.children_of(row.uid).into_iter().find(|child| {
            self.resources
                .get(child)
                .is_some_and(|child| row.is_deleting() || !child.derived.settled)
        })
    }
}
