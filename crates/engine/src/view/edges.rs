//! Edges in a view.

use super::*;

impl View<'_> {
    fn edge_absorb(&mut self, edges: Vec<Arc<Edge>>) {
        for edge in edges {
            self.edges_by_to
                .entry(edge.to)
                .or_default()
                .insert(edge.from);
            self.edges
                .entry((edge.from, edge.to))
                .or_insert_with(|| Slot::read(Some(edge)));
        }
    }

    /// Edges from a resource, in (position, to) order, former ones included.
    pub fn edges_from(&mut self, from: Uid) -> Decision<Vec<Arc<Edge>>> {
        if !self.edge_sets_from.contains(&from) {
            let rows = fetch!(self, Need::EdgesFrom(from), Edges);
            self.edge_sets_from.insert(from);
            self.edge_absorb(rows);
        }
        let range = (from, Uid::from_bytes([0; 16]))..=(from, Uid::from_bytes([0xff; 16]));
        let mut edges: Vec<_> = self
            .edges
            .range(range)
            .filter_map(|(_, slot)| slot.now.clone())
            .collect();
        edges.sort_by_key(|edge| (edge.position, edge.to));
        Ok(edges)
    }

    /// Edges to a resource, in (position, from) order, former ones included.
    pub fn edges_to(&mut self, to: Uid) -> Decision<Vec<Arc<Edge>>> {
        if !self.edge_sets_to.contains(&to) {
            let rows = fetch!(self, Need::EdgesTo(to), Edges);
            self.edge_sets_to.insert(to);
            self.edge_absorb(rows);
        }
        let froms = self.edges_by_to.get(&to);
        let mut edges: Vec<_> = froms
            .into_iter()
            .flatten()
            .filter_map(|from| {
                self.edges
                    .get(&(*from, to))
                    .and_then(|slot| slot.now.clone())
            })
            .collect();
        edges.sort_by_key(|edge| (edge.position, edge.from));
        Ok(edges)
    }

    /// Every edge `owner`'s result holds, former ones included; its children's edge sets need no reads of their own afterwards.
    pub fn edges_of(&mut self, owner: Uid, children: &[Uid]) -> Decision<Vec<Arc<Edge>>> {
        let rows = fetch!(self, Need::EdgesOf(owner), Edges);
        self.edge_absorb(rows);
        let mut edges = Vec::new();
        for child in children {
            self.edge_sets_from.insert(*child);
            self.edge_sets_to.insert(*child);
            let range = (*child, Uid::from_bytes([0; 16]))..=(*child, Uid::from_bytes([0xff; 16]));
            edges.extend(
                self.edges
                    .range(range)
                    .filter_map(|(_, slot)| slot.now.clone()),
            );
        }
        Ok(edges)
    }

    /// Inserts or replaces the edge `(from, to)`; `None` deletes it.
    pub fn edge_put(&mut self, from: Uid, to: Uid, edge: Option<Edge>) -> Decision<()> {
        self.edges_from(from)?;
        self.edges_by_to.entry(to).or_default().insert(from);
        let slot = self.edges.entry((from, to)).or_insert(Slot::read(None));
        slot.now = edge.map(Arc::new);
        slot.dirty = true;
        Ok(())
    }
}
