//! Resource rows in a view: by uid, by name, and the sets they belong to (children, held, ready, curable).

use super::*;

impl View<'_> {
    /// A resource by uid.
    pub fn resource(&mut self, uid: Uid) -> Decision<Option<Arc<Resource>>> {
        if let Some(slot) = self.resources.get(&uid) {
            return Ok(slot.now.clone());
        }
        let row = fetch!(self, Need::Resource(uid), Resource);
        self.resources.insert(uid, Slot::read(row.clone()));
        Ok(row)
    }

    /// A resource by name.
    pub fn resource_by_name(
        &mut self,
        kind: &Kind,
        name: &ResourceName,
    ) -> Decision<Option<Arc<Resource>>> {
        let key = (kind.clone(), name.clone());
        if let Some(found) = self.names.get(&key).copied() {
            return match found {
                Some(uid) => self.resource(uid),
                None => Ok(None),
            };
        }
        let row = fetch!(
            self,
            Need::ResourceByName(kind.clone(), name.clone()),
            Resource
        );
        self.names.insert(key, row.as_ref().map(|row| row.uid));
        match row {
            // The overlay may know a newer state of the same row.
            Some(row) => {
                let slot = self
                    .resources
                    .entry(row.uid)
                    .or_insert_with(|| Slot::read(Some(row)));
                Ok(slot.now.clone())
            }
            None => Ok(None),
        }
    }

    /// Inserts a resource. Keeps the owner's child count and the pair's count.
    pub fn resource_insert(&mut self, row: Resource) -> Decision<()> {
        let uid = row.uid;
        self.names
            .insert((row.kv.kind.clone(), row.name.clone()), Some(uid));
        self.pair_update(&row.kv.clone(), |pair| pair.resources += 1)?;
        if let Some(owner) = row.owner {
            self.touched_owner.entry(owner).or_default().insert(uid);
            self.update(owner, |owner| owner.children += 1)?;
        }
        self.resources.insert(
            uid,
            Slot {
                before: None,
                now: Some(Arc::new(row)),
                dirty: true,
            },
        );
        Ok(())
    }

    /// Removes a resource row with its documents. The caller has taken its sums off its ancestors and written the tombstone.
    pub fn resource_remove(&mut self, uid: Uid) -> Decision<()> {
        let Some(row) = self.resource(uid)? else {
            return Ok(());
        };
        self.names
            .insert((row.kv.kind.clone(), row.name.clone()), None);
        self.pair_update(&row.kv.clone(), |pair| {
            pair.resources = pair.resources.saturating_sub(1)
        })?;
        if let Some(owner) = row.owner {
            self.touched_owner.entry(owner).or_default().insert(uid);
            self.update(owner, |owner| {
                owner.children = owner.children.saturating_sub(1)
            })?;
        }
        if let Due::Held(hold) = &row.due
            && let Some(on) = hold.on()
        {
            self.touched_held.entry(on).or_default().insert(uid);
        }
        for slot in DocSlot::ALL {
            self.doc_put(uid, slot, None);
        }
        if let Some(slot) = self.resources.get_mut(&uid) {
            slot.now = None;
            slot.dirty = true;
        }
        Ok(())
    }

    /// Changes a resource in place; does nothing when it does not exist. Rows that end as they began are no change, see [`View::finish`].
    pub fn update(&mut self, uid: Uid, change: impl FnOnce(&mut Resource)) -> Decision<()> {
        self.resource(uid)?;
        let Some(slot) = self.resources.get_mut(&uid) else {
            return Ok(());
        };
        let Some(row) = &mut slot.now else {
            return Ok(());
        };
        let (due, kv) = (row.due.clone(), row.kv.clone());
        let failure = row.failure.clone();
        // Copies the row only while somebody holds the state it had.
        let row = Arc::make_mut(row);
        change(row);
        if row.failure != failure {
            // What is said of it above follows.
            row.own_version += 1;
        }
        slot.dirty = true;
        let flipped = (row.kv != kv).then(|| row.kv.clone());
        if row.due != due {
            for due in [&due, &row.due] {
                if let Due::Held(hold) = due
                    && let Some(on) = hold.on()
                {
                    self.touched_held.entry(on).or_default().insert(uid);
                }
            }
        }
        if let Some(next) = flipped {
            self.pair_update(&kv, |pair| {
                pair.resources = pair.resources.saturating_sub(1)
            })?;
            self.pair_update(&next, |pair| pair.resources += 1)?;
        }
        Ok(())
    }

    /// Uids of the rows `owner` owns, in (position, uid) order.
    pub fn children(&mut self, owner: Uid) -> Decision<Vec<Uid>> {
        let known = self.children.get(&owner).cloned();
        let mut uids = match known {
            Some(known) => known,
            None => {
                let base: BTreeSet<Uid> = fetch!(self, Need::Children(owner), Uids)
                    .into_iter()
                    .collect();
                self.children.insert(owner, base.clone());
                base
            }
        };
        uids.extend(
            self.touched_owner
                .get(&owner)
                .into_iter()
                .flatten()
                .copied(),
        );
        let mut found = Vec::with_capacity(uids.len());
        for uid in uids {
            if let Some(row) = self.resource(uid)?
                && row.owner == Some(owner)
            {
                found.push((row.position, uid));
            }
        }
        found.sort_unstable();
        Ok(found.into_iter().map(|(_, uid)| uid).collect())
    }

    /// Uids of the rows held on `on`, in uid order.
    pub fn held_on(&mut self, on: Uid) -> Decision<Vec<Uid>> {
        let known = self.held_base.get(&on).cloned();
        let mut uids = match known {
            Some(known) => known,
            None => {
                let base: BTreeSet<Uid> =
                    fetch!(self, Need::HeldOn(on), Uids).into_iter().collect();
                self.held_base.insert(on, base.clone());
                base
            }
        };
        uids.extend(self.touched_held.get(&on).into_iter().flatten().copied());
        let mut found = Vec::new();
        for uid in uids {
            if let Some(row) = self.resource(uid)?
                && matches!(&row.due, Due::Held(hold) if hold.on() == Some(on))
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// Uids of rows whose failure lists `kind` among its cures.
    pub fn curable_by(&mut self, kind: &Kind) -> Decision<Vec<Uid>> {
        let base = fetch!(self, Need::CurableBy(kind.clone()), Uids);
        let mut found = Vec::new();
        for uid in base {
            if let Some(row) = self.resource(uid)?
                && row
                    .failure
                    .as_ref()
                    .is_some_and(|failure| failure.cures.contains(kind))
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// `Due::Ready` rows of (pair, class) in dispatch order, at most `limit`; this command's own changes are taken into account by
    /// leaving out rows that are no longer ready. Rows this command made ready are not added: claims do not make rows ready.
    pub fn ready(&mut self, kv: &KindVersion, class: Class, limit: u32) -> Decision<Vec<Uid>> {
        let base = fetch!(self, Need::Ready(kv.clone(), class, limit), Uids);
        let mut found = Vec::with_capacity(base.len());
        for uid in base {
            if let Some(row) = self.resource(uid)?
                && matches!(row.due, Due::Ready { class: its, .. } if its == class)
            {
                found.push(uid);
            }
        }
        Ok(found)
    }

    /// The largest turn taken by (pair, class, root) so far, this command's own included.
    pub fn root_turn(
        &mut self,
        kv: &KindVersion,
        class: Class,
        root: Uid,
    ) -> Decision<Option<i64>> {
        let key = (kv.clone(), class, root);
        if let Some(turn) = self.turns.get(&key) {
            return Ok(Some(*turn));
        }
        let turn = fetch!(self, Need::RootTurn(kv.clone(), class, root), Turn);
        if let Some(turn) = turn {
            self.turns.insert(key, turn);
        }
        Ok(turn)
    }

    /// Remembers a turn given out by this command.
    pub fn root_turn_put(&mut self, kv: &KindVersion, class: Class, root: Uid, turn: i64) {
        self.turns.insert((kv.clone(), class, root), turn);
    }
}
