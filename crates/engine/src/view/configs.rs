//! Provider configs and their bundles in a view.

use super::*;

impl View<'_> {
    /// A config by name.
    pub fn config(&mut self, name: &ConfigName) -> Decision<Option<Arc<Config>>> {
        if let Some(slot) = self.configs.get(name) {
            return Ok(slot.now.clone());
        }
        let row = fetch!(self, Need::Config(name.clone()), Config);
        self.configs.insert(name.clone(), Slot::read(row.clone()));
        Ok(row)
    }

    /// One page of the resources that are stored as reading a config, whatever this command has made of them.
    pub fn config_users(
        &mut self,
        name: &ConfigName,
        after: Option<Uid>,
        limit: u32,
    ) -> Decision<Vec<Uid>> {
        Ok(fetch!(
            self,
            Need::ConfigUsers(name.clone(), after, limit),
            Uids
        ))
    }

    /// Corrects a set of configs the source answered by the overlay, with `belongs` telling which rows the set holds.
    fn configs_corrected(
        &mut self,
        base: Vec<Arc<Config>>,
        belongs: impl Fn(&Config) -> bool,
    ) -> Vec<Arc<Config>> {
        for row in base {
            self.configs
                .entry(row.name.clone())
                .or_insert_with(|| Slot::read(Some(row)));
        }
        self.configs
            .values()
            .filter_map(|slot| slot.now.clone())
            .filter(|row| belongs(row))
            .collect()
    }

    /// The default config of a pair.
    pub fn config_default(&mut self, kv: &KindVersion) -> Decision<Option<Arc<Config>>> {
        let base = fetch!(self, Need::DefaultConfig(kv.clone()), Config);
        Ok(self
            .configs_corrected(base.into_iter().collect(), |row| {
                row.kv == *kv && row.is_default
            })
            .pop())
    }

    /// Overrides of a pair, by name.
    pub fn config_overrides(&mut self, kv: &KindVersion) -> Decision<Vec<Arc<Config>>> {
        let base = fetch!(self, Need::Overrides(kv.clone()), Configs);
        Ok(self.configs_corrected(base, |row| row.kv == *kv && !row.is_default))
    }

    /// Configs a composite owns, by name.
    pub fn configs_owned_by(&mut self, owner: Uid) -> Decision<Vec<Arc<Config>>> {
        let base = fetch!(self, Need::ConfigsOwnedBy(owner), Configs);
        Ok(self.configs_corrected(base, |row| row.owner == Some(owner)))
    }

    /// Inserts or replaces a config; `None` deletes it (and its bundle).
    pub fn config_put(&mut self, name: &ConfigName, row: Option<Config>) -> Decision<()> {
        self.config(name)?;
        if row.is_none() {
            self.bundle_put(name, None);
        }
        if let Some(slot) = self.configs.get_mut(name) {
            slot.now = row.map(Arc::new);
            slot.dirty = true;
        }
        Ok(())
    }

    /// The bundle of a config.
    pub fn bundle(&mut self, name: &ConfigName) -> Decision<Option<Bundle>> {
        if let Some((bundle, _)) = self.bundles.get(name) {
            return Ok(bundle.clone());
        }
        let bundle = fetch!(self, Need::Bundle(name.clone()), Bundle);
        self.bundles.insert(name.clone(), (bundle.clone(), false));
        Ok(bundle)
    }

    /// Writes a bundle; `None` deletes it.
    pub fn bundle_put(&mut self, name: &ConfigName, bundle: Option<Bundle>) {
        self.bundles.insert(name.clone(), (bundle, true));
    }
}
