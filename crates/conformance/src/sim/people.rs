//! What people do in a history: apply, delete, edit, stop, ask again. A refusal is an answer like another; it is only written down.

use converge_engine::command::{
    Applied, Command, ConfigApply, ConfigDelete, ManifestApply, Precondition, Reply, ResourceApply,
    ResourceDelete, ResourceQuarantine, ResourceReconcile, ResourceRollback,
};
use converge_engine::store::TransactError;
use converge_types::ids::{ConfigName, Kind, KindVersion, ResourceName, Uid};
use converge_types::labels::Labels;
use rand::RngExt as _;

use super::plan::{self, PAIRS};
use super::{Sim, Step, Subject};
use crate::world::doc;

/// The kinds a person applies.
const APPLIED: [&str; 3] = ["app", "group", "leaf"];

pub(super) fn split(key: &str) -> Result<(Kind, ResourceName), String> {
    let (kind, name) = key.split_once('/').ok_or("kind/name")?;
    Ok((
        Kind::new(kind).map_err(|error| error.to_string())?,
        ResourceName::new(name).map_err(|error| error.to_string())?,
    ))
}

fn config_name(text: &str) -> Result<ConfigName, String> {
    ConfigName::new(text).map_err(|error| error.to_string())
}

impl<S: Subject> Sim<S> {
    /// Carries out what may be refused; `None` when it was.
    pub(super) fn ask(&mut self, command: Command) -> Result<Option<Reply>, String> {
        match self.transact(&command) {
            Ok(reply) => Ok(Some(reply)),
            Err(TransactError::Refused(refusal)) => {
                self.say(format_args!("refused: {refusal}"));
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    pub(super) fn new_uid(&mut self) -> Uid {
        let now = u64::try_from(self.clock.now_ms()).unwrap_or(0);
        Uid::from_parts(now, self.rng.random())
    }

    pub(super) fn some_apply(&mut self) -> Result<ResourceApply, String> {
        let kind = APPLIED[self.rng.random_range(0..3)];
        let name = format!("r{}", self.rng.random_range(0..3));
        let spec_seed = self.rng.random_range(0..1_000_u64);
        let labels = [("l".to_owned(), self.rng.random_range(0..3).to_string())];
        let labels = Labels::new(labels.into()).unwrap_or_default();
        let version = [None, None, Some(1), Some(2)][self.rng.random_range(0..4)];
        let version = version.filter(|_| kind != "group");
        let config_ref = match self.rng.random_range(0..6) {
            0 => Some(plan::override_of(kind, version.unwrap_or(1))),
            _ => None,
        };
        let key = format!("{kind}/{name}");
        self.say(format_args!(
            "apply {key} v{version:?} {spec_seed} {labels:?} {config_ref:?}"
        ));
        let (kind, name) = split(&key)?;
        Ok(ResourceApply {
            kind,
            kind_version: version,
            name,
            labels,
            config_ref: config_ref.as_deref().map(config_name).transpose()?,
            spec: doc(&format!("{{\"s\":{spec_seed}}}")),
            new_uid: self.new_uid(),
            precondition: Precondition::None,
            who: None,
        })
    }

    pub(super) fn apply(&mut self) -> Step {
        let command = self.some_apply()?;
        self.carry_out_apply(command).map(drop)
    }

    pub(super) fn carry_out_apply(
        &mut self,
        command: ResourceApply,
    ) -> Result<Option<Applied>, String> {
        let key = format!("{}/{}", command.kind, command.name);
        match self.ask(Command::ResourceApply(command))? {
            Some(Reply::Resource { applied, row, .. }) => {
                self.wanted.insert(key, row.generation);
                Ok(Some(applied))
            }
            Some(other) => Err(format!("an apply answered {other:?}")),
            None => Ok(None),
        }
    }

    fn pick_wanted(&mut self) -> Option<String> {
        let at = self.rng.random_range(0..self.wanted.len().max(1));
        self.wanted.keys().nth(at).cloned()
    }

    pub(super) fn delete(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        self.say(format_args!("delete {key}"));
        let (kind, name) = split(&key)?;
        let command = ResourceDelete {
            kind,
            name,
            force: false,
            abandon: self.rng.random_bool(0.1),
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ResourceDelete(command))?;
        self.wanted.remove(&key);
        Ok(())
    }

    /// A person goes back to what was applied before.
    pub(super) fn rollback(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        let now = self.wanted.get(&key).copied().unwrap_or(1);
        let generation = self.rng.random_range(1..=now);
        self.say(format_args!("roll {key} back to {generation}"));
        let (kind, name) = split(&key)?;
        let command = Command::ResourceRollback(ResourceRollback {
            kind,
            name,
            generation,
            who: None,
        });
        match self.ask(command)? {
            Some(Reply::Resource { row, .. }) => {
                self.wanted.insert(key, row.generation);
                Ok(())
            }
            Some(other) => Err(format!("a rollback answered {other:?}")),
            None => Ok(()),
        }
    }

    /// A person stops something, or lets it go again.
    pub(super) fn quarantine(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        let on = self.rng.random_bool(0.5);
        let recursive = self.rng.random_bool(0.5);
        self.say(format_args!("quarantine {key} {on} {recursive}"));
        self.set_quarantine(&key, on, recursive)
    }

    pub(super) fn set_quarantine(&mut self, key: &str, on: bool, recursive: bool) -> Step {
        let (kind, name) = split(key)?;
        let command = ResourceQuarantine {
            kind,
            name,
            recursive,
            on,
            who: None,
        };
        self.must(Command::ResourceQuarantine(command)).map(drop)
    }

    /// A person has a composed resource replaced.
    pub(super) fn replace(&mut self) -> Step {
        let mut owned = self.subject.rows();
        owned.retain(|row| row.owner.is_some() && row.orphan.is_none());
        if owned.is_empty() {
            return Ok(());
        }
        let row = owned.swap_remove(self.rng.random_range(0..owned.len()));
        self.say(format_args!("replace {}/{}", row.kv.kind, row.name));
        let command = ResourceDelete {
            kind: row.kv.kind.clone(),
            name: row.name.clone(),
            force: true,
            abandon: self.rng.random_bool(0.2),
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ResourceDelete(command)).map(drop)
    }

    pub(super) fn reconcile(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        self.say(format_args!("reconcile {key}"));
        let (kind, name) = split(&key)?;
        let recursive = self.rng.random_bool(0.3);
        self.must(Command::ResourceReconcile(ResourceReconcile {
            kind,
            name,
            recursive,
            who: None,
        }))
        .map(drop)
    }

    /// A default or an override is written, or an override is taken away.
    pub(super) fn config(&mut self) -> Step {
        let (kind, version) = PAIRS[self.rng.random_range(0..PAIRS.len())];
        let value = self.rng.random_range(0..3);
        match self.rng.random_range(0..5) {
            0..2 => self.set_config(&format!("c-{kind}-{version}"), kind, version, true, value)?,
            2..4 => {
                let name = plan::override_of(kind, version);
                self.set_config(&name, kind, version, false, value)?;
            }
            _ => {
                let name = plan::override_of(kind, version);
                self.say(format_args!("delete config {name}"));
                self.ask(Command::ConfigDelete(ConfigDelete {
                    name: config_name(&name)?,
                    precondition: Precondition::None,
                    who: None,
                }))?;
            }
        }
        if self.rng.random_bool(0.7) {
            self.sweep()
        } else {
            Ok(())
        }
    }

    pub(super) fn set_config(
        &mut self,
        name: &str,
        kind: &str,
        version: i32,
        is_default: bool,
        value: u32,
    ) -> Step {
        self.say(format_args!("config {name} {value}"));
        let command = ConfigApply {
            name: config_name(name)?,
            kv: KindVersion::parse(kind, version).map_err(|error| error.to_string())?,
            is_default: Some(is_default),
            spec: Some(doc(&format!("{{\"v\":{value}}}"))),
            data: None,
            replace_default: false,
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ConfigApply(command)).map(drop)
    }

    /// A manifest is edited so that nothing but its pins end.
    pub(super) fn edit_manifest(&mut self) -> Step {
        let manifests = plan::manifests();
        let at = self.rng.random_range(0..manifests.len());
        let note = self.rng.random_range(0..3);
        self.say(format_args!("manifest {at} {note}"));
        self.apply_manifest(&manifests[at].replacen(
            '{',
            &format!("{{\"description\":\"note {note}\","),
            1,
        ))
    }

    pub(super) fn apply_manifest(&mut self, manifest: &str) -> Step {
        let command = ManifestApply {
            doc: doc(manifest),
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ManifestApply(command)).map(drop)
    }
}
