//! Random histories: graphs, failures, edits, deletes, lost workers and clock steps, from one seed.
//!
//! What holds after every step: nothing is derived differently when it is derived again (what became due was made due), counters equal
//! counts, a resource has one claim, epochs grow, a task is handed out only behind what it waits for, teardown goes in order. When the
//! faults stop everything settles, and what is stored is what was last asked for. The same seed gives the same history.

mod plan;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::sync::Arc;

use converge_engine::command::{
    ClaimTasks, Command, Complete, Landed, LeaseLost, Outcome, Precondition, Release,
    ReleaseReason, Reply, ResourceApply, ResourceDelete, ResourceQuarantine, ResourceReconcile,
    SweepBatch, Task, Wake,
};
use converge_engine::model::{ClaimRef, Due, Hold, Resource};
use converge_engine::store::TransactError;
use converge_types::ids::{Kind, KindVersion, ResourceName, Uid};
use converge_types::labels::Labels;
use converge_types::phase::{ConditionStatus, Phase, Stage, Trigger};
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::clock::ManualClock;
use crate::memory::MemoryStore;
use crate::world::{self, doc, done, empty, failed};

/// How one history ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Every step, for comparing two runs and for reading a failing one.
    pub log: String,
    /// Tasks that were run.
    pub tasks: usize,
}

/// Why a history is wrong.
#[derive(Debug)]
pub struct Wrong {
    /// What does not hold.
    pub why: String,
    /// What led there.
    pub log: String,
}

const KINDS: [&str; 5] = ["app", "group", "leaf", "torn", "slow"];

struct Sim {
    store: Arc<MemoryStore>,
    clock: ManualClock,
    rng: SmallRng,
    running: Vec<Task>,
    epochs: HashMap<Uid, i64>,
    wanted: BTreeMap<String, u64>,
    deleted: Vec<String>,
    log: String,
    tasks: usize,
    faults: bool,
}

/// Runs the history of `seed`.
///
/// # Errors
/// What does not hold, with the history up to there.
pub fn run(seed: u64, steps: usize) -> Result<Ended, Wrong> {
    let clock = ManualClock::at(1_700_000_000_000);
    let mut sim = Sim {
        store: Arc::new(MemoryStore::new(clock.clone())),
        clock,
        rng: SmallRng::seed_from_u64(seed),
        running: Vec::new(),
        epochs: HashMap::new(),
        wanted: BTreeMap::new(),
        deleted: Vec::new(),
        log: String::new(),
        tasks: 0,
        faults: true,
    };
    match sim.history(steps) {
        Ok(()) => Ok(Ended {
            log: sim.log,
            tasks: sim.tasks,
        }),
        Err(why) => Err(Wrong { why, log: sim.log }),
    }
}

type Step = Result<(), String>;

impl Sim {
    fn history(&mut self, steps: usize) -> Step {
        for manifest in [
            world::composer("app"),
            world::composer_with_rollup("group"),
            world::leaf("leaf"),
            world::leaf_with_teardown("torn"),
            world::leaf_with_teardown("slow").replace(
                "\"kind_version\":1",
                "\"kind_version\":1,\"orphan_grace_secs\":20,\"max_inflight\":2",
            ),
        ] {
            let command = converge_engine::command::ManifestApply {
                doc: doc(&manifest),
                precondition: Precondition::None,
                who: None,
            };
            self.must(Command::ManifestApply(command))?;
        }
        for _ in 0..steps {
            self.step()?;
            self.check()?;
        }
        self.faults = false;
        for row in self.store.rows().iter().filter(|row| row.quarantined) {
            let key = format!("{}/{}", row.kv.kind, row.name);
            self.set_quarantine(&key, false, false)?;
        }
        self.settle()?;
        self.check_end()
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(
            self.log,
            "{} {line}",
            self.clock.now_ms() - 1_700_000_000_000
        );
    }

    fn transact(&mut self, command: Command) -> Result<Reply, TransactError> {
        self.store.carry_out(&[command]).remove(0)
    }

    fn must(&mut self, command: Command) -> Result<Reply, String> {
        let text = format!("{command:?}");
        self.transact(command)
            .map_err(|error| format!("refused: {error} for {text}"))
    }

    fn step(&mut self) -> Step {
        match self.rng.random_range(0..100) {
            0..8 => self.apply(),
            8..11 => self.delete(),
            11..13 => self.reconcile(),
            13..14 => self.quarantine(),
            14..15 => self.replace(),
            15..40 => self.claim(),
            40..85 => self.report(),
            85..88 => self.lose(),
            88..90 => self.release(),
            90..92 => self.config(),
            92..93 => {
                // A clock that steps back: nothing may be lost for it.
                self.clock.step(-5_000);
                Ok(())
            }
            _ => {
                let ms = [10, 1_000, 5_000, 60_000][self.rng.random_range(0..4)];
                self.clock.step(ms);
                self.sweep()
            }
        }
    }

    fn sweep(&mut self) -> Step {
        for command in [
            Command::Wake(Wake { limit: 50 }),
            Command::ConfigSweep(SweepBatch { limit: 3 }),
        ] {
            for round in 0.. {
                match self.must(command.clone())? {
                    Reply::Swept { more: true, .. } if round < 10_000 => {}
                    Reply::Swept { more: true, .. } => {
                        return Err("a sweep does not end".to_owned());
                    }
                    _ => break,
                }
            }
        }
        Ok(())
    }

    fn apply(&mut self) -> Step {
        let kind = KINDS[self.rng.random_range(0..3)];
        let name = format!("r{}", self.rng.random_range(0..3));
        let spec_seed = self.rng.random_range(0..1_000_u64);
        let labels = [("l".to_owned(), self.rng.random_range(0..3).to_string())];
        let labels = Labels::new(labels.into()).unwrap_or_default();
        self.say(format_args!("apply {kind}/{name} {spec_seed} {labels:?}"));
        let command = ResourceApply {
            kind: Kind::new(kind).map_err(|error| error.to_string())?,
            kind_version: None,
            name: ResourceName::new(&name).map_err(|error| error.to_string())?,
            labels,
            config_ref: None,
            spec: doc(&format!("{{\"s\":{spec_seed}}}")),
            new_uid: Uid::from_parts(
                u64::try_from(self.clock.now_ms()).unwrap_or(0),
                self.rng.random(),
            ),
            precondition: Precondition::None,
            who: None,
        };
        match self.transact(Command::ResourceApply(command)) {
            Ok(_) => {
                self.wanted.insert(format!("{kind}/{name}"), spec_seed);
                Ok(())
            }
            Err(TransactError::Refused(refusal)) => {
                self.say(format_args!("refused: {refusal}"));
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn pick_wanted(&mut self) -> Option<String> {
        let at = self.rng.random_range(0..self.wanted.len().max(1));
        self.wanted.keys().nth(at).cloned()
    }

    fn delete(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        self.say(format_args!("delete {key}"));
        let (kind, name) = key.split_once('/').ok_or("kind/name")?;
        let command = ResourceDelete {
            kind: Kind::new(kind).map_err(|error| error.to_string())?,
            name: ResourceName::new(name).map_err(|error| error.to_string())?,
            force: false,
            abandon: self.rng.random_bool(0.1),
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ResourceDelete(command))?;
        self.wanted.remove(&key);
        self.deleted.push(key);
        Ok(())
    }

    /// A person stops something, or lets it go again.
    fn quarantine(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        let on = self.rng.random_bool(0.5);
        let recursive = self.rng.random_bool(0.5);
        self.say(format_args!("quarantine {key} {on} {recursive}"));
        self.set_quarantine(&key, on, recursive)
    }

    fn set_quarantine(&mut self, key: &str, on: bool, recursive: bool) -> Step {
        let (kind, name) = key.split_once('/').ok_or("kind/name")?;
        let command = ResourceQuarantine {
            kind: Kind::new(kind).map_err(|error| error.to_string())?,
            name: ResourceName::new(name).map_err(|error| error.to_string())?,
            recursive,
            on,
            who: None,
        };
        self.must(Command::ResourceQuarantine(command)).map(drop)
    }

    /// A person has a composed resource replaced.
    fn replace(&mut self) -> Step {
        let rows = self.store.rows();
        let owned: Vec<_> = rows
            .iter()
            .filter(|row| row.owner.is_some() && row.orphan.is_none())
            .collect();
        if owned.is_empty() {
            return Ok(());
        }
        let row = owned[self.rng.random_range(0..owned.len())].clone();
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

    fn reconcile(&mut self) -> Step {
        let Some(key) = self.pick_wanted() else {
            return Ok(());
        };
        self.say(format_args!("reconcile {key}"));
        let (kind, name) = key.split_once('/').ok_or("kind/name")?;
        let command = ResourceReconcile {
            kind: Kind::new(kind).map_err(|error| error.to_string())?,
            name: ResourceName::new(name).map_err(|error| error.to_string())?,
            recursive: self.rng.random_bool(0.3),
            who: None,
        };
        self.must(Command::ResourceReconcile(command)).map(drop)
    }

    fn config(&mut self) -> Step {
        let kind = KINDS[self.rng.random_range(0..5)];
        let value = self.rng.random_range(0..3);
        self.say(format_args!("config of {kind} {value}"));
        let command = converge_engine::command::ConfigApply {
            name: converge_types::ids::ConfigName::new(format!("c-{kind}"))
                .map_err(|error| error.to_string())?,
            kv: KindVersion::parse(kind, 1).map_err(|error| error.to_string())?,
            is_default: Some(true),
            spec: Some(doc(&format!("{{\"v\":{value}}}"))),
            data: None,
            replace_default: false,
            precondition: Precondition::None,
            who: None,
        };
        self.must(Command::ConfigApply(command))?;
        if self.rng.random_bool(0.7) {
            self.sweep()
        } else {
            Ok(())
        }
    }

    fn claim(&mut self) -> Step {
        let limit = self.rng.random_range(1..6);
        let mut kinds: Vec<&str> = KINDS.to_vec();
        if self.faults && self.rng.random_bool(0.3) {
            kinds.remove(self.rng.random_range(0..5));
        }
        let command = ClaimTasks {
            worker: format!("w{}", self.rng.random_range(0..3)),
            broker: "b".to_owned(),
            pairs: kinds
                .iter()
                .filter_map(|kind| KindVersion::parse(kind, 1).ok())
                .collect(),
            limit,
            reserved_for_composers: u32::from(self.faults),
            suspects_on_stream: Vec::new(),
            busy_on_stream: Vec::new(),
            seed: (0..limit).map(|_| self.rng.random()).collect(),
        };
        let Reply::Claimed { tasks } = self.must(Command::Claim(command))? else {
            return Err("a claim answers tasks".to_owned());
        };
        for task in tasks {
            self.say(format_args!(
                "claim {} {}/{} e{} g{}",
                task.claim.stage,
                task.claim.kv.kind,
                task.resource.row.name,
                task.claim.epoch,
                task.resource.row.generation
            ));
            self.check_task(&task)?;
            self.running.push(task);
        }
        Ok(())
    }

    /// What must hold when a task is handed out.
    fn check_task(&mut self, task: &Task) -> Step {
        let row = &task.resource.row;
        let key = format!("{}/{}", row.kv.kind, row.name);
        let last = self.epochs.insert(row.uid, task.claim.epoch).unwrap_or(0);
        if task.claim.epoch <= last {
            return Err(format!("{key}: epoch {} after {last}", task.claim.epoch));
        }
        let rows: BTreeMap<Uid, Arc<Resource>> = self
            .store
            .rows()
            .into_iter()
            .map(|row| (row.uid, row))
            .collect();
        let edges = self.store.edges();
        if task.claim.stage == Stage::Delete {
            if rows.values().any(|other| other.owner == Some(row.uid)) {
                return Err(format!("{key} is torn down and still owns something"));
            }
            let mut at = Some(row.uid);
            while let Some(uid) = at {
                for edge in edges.iter().filter(|edge| edge.to == uid) {
                    if let Some(from) = rows.get(&edge.from)
                        && (from.is_deleting()
                            || (edge.former && uid == row.uid && row.orphan.is_some()))
                    {
                        return Err(format!(
                            "{key} is torn down before {}/{}",
                            from.kv.kind, from.name
                        ));
                    }
                }
                at = rows.get(&uid).and_then(|row| row.owner);
            }
            return Ok(());
        }
        let is_look = row.derived.synced;
        if task.claim.stage == Stage::Rollup || task.claim.trigger == Trigger::Resync || is_look {
            return Ok(());
        }
        let mut at = Some(row.uid);
        while let Some(uid) = at {
            for edge in edges.iter().filter(|edge| edge.from == uid && !edge.former) {
                if rows
                    .get(&edge.to)
                    .is_none_or(|to| to.derived.phase != Phase::Ready)
                {
                    return Err(format!("{key} runs before its dependency is Ready"));
                }
                if uid == row.uid && edge.flows.iter().any(|flow| flow.value.is_none()) {
                    return Err(format!("{key} runs without a flowed value"));
                }
            }
            at = rows.get(&uid).and_then(|row| row.owner);
        }
        Ok(())
    }

    fn take_running(&mut self) -> Option<Task> {
        if self.running.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.running.len());
        Some(self.running.swap_remove(at))
    }

    fn report(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        let outcome = self.outcome(&task);
        let (stage, key) = (
            task.claim.stage,
            format!("{}/{}", task.claim.kv.kind, task.resource.row.name),
        );
        let word = match &outcome.failure {
            Some(failure) => failure.message.clone(),
            None => "ok".to_owned(),
        };
        let command = Complete {
            claim: ClaimRef {
                token: task.token,
                epoch: task.claim.epoch,
            },
            stage,
            outcome,
            seed: self.rng.random(),
        };
        let Reply::Landed(landed) = self.must(Command::Complete(command.clone()))? else {
            return Err("a result answers how it landed".to_owned());
        };
        self.say(format_args!(
            "report {stage} {key} e{} {word}: {landed:?}",
            task.claim.epoch
        ));
        self.tasks += 1;
        if landed == Landed::Fenced {
            return Err(format!("{key}: the live claim was fenced"));
        }
        match self.must(Command::Complete(command))? {
            Reply::Landed(Landed::Fenced) => Ok(()),
            other => Err(format!("{key}: the same result again: {other:?}")),
        }
    }

    fn outcome(&mut self, task: &Task) -> Outcome {
        if self.faults {
            match self.rng.random_range(0..20) {
                0..3 => return failed("transient", false),
                3 => return failed("terminal", true),
                4 => return failed("interrupted: drain", false),
                5 => {
                    let mut outcome = done("{\"id\":\"unhealthy\"}");
                    outcome.conditions = vec![world::ready(ConditionStatus::False)];
                    if matches!(task.claim.stage, Stage::Work | Stage::Rollup) {
                        return outcome;
                    }
                }
                _ => {}
            }
        }
        match task.claim.stage {
            Stage::Compose => plan::compose(task),
            Stage::Work => done(&format!(
                "{{\"id\":\"{}-{}\",\"n\":{}}}",
                task.resource.row.name,
                task.resource.row.generation,
                if self.faults && self.rng.random_bool(0.2) {
                    "null".to_owned()
                } else {
                    "1".to_owned()
                }
            )),
            _ => empty(),
        }
    }

    fn lose(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        self.say(format_args!(
            "lose {}/{} e{}",
            task.claim.kv.kind, task.resource.row.name, task.claim.epoch
        ));
        let claims = vec![ClaimRef {
            token: task.token,
            epoch: task.claim.epoch,
        }];
        let seed = self.rng.random();
        self.must(Command::LeaseLost(LeaseLost { claims, seed }))?;
        self.stale(&task)
    }

    fn release(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        self.say(format_args!(
            "release {}/{} e{}",
            task.claim.kv.kind, task.resource.row.name, task.claim.epoch
        ));
        let claims = vec![ClaimRef {
            token: task.token,
            epoch: task.claim.epoch,
        }];
        self.must(Command::Release(Release {
            claims,
            reason: ReleaseReason::Drained,
        }))?;
        self.stale(&task)
    }

    /// The worker that was given up answers after all: nothing may change.
    fn stale(&mut self, task: &Task) -> Step {
        let before = self.store.rows();
        let command = Complete {
            claim: ClaimRef {
                token: task.token,
                epoch: task.claim.epoch,
            },
            stage: task.claim.stage,
            outcome: done("{\"stale\":true}"),
            seed: 1,
        };
        match self.must(Command::Complete(command))? {
            Reply::Landed(Landed::Fenced) if self.store.rows() == before => Ok(()),
            other => Err(format!("a stale result: {other:?}")),
        }
    }

    fn check(&mut self) -> Step {
        let mut wrong = self.store.audit();
        // A timer that is over is a sweep's to find, not the last command's.
        let now = self.clock.now_ms();
        if !wrong.is_empty()
            && self
                .store
                .rows()
                .iter()
                .any(|row| row.wake_ms.is_some_and(|wake| wake <= now))
        {
            self.sweep()?;
            wrong = self.store.audit();
        }
        if wrong.is_empty() {
            return Ok(());
        }
        // An edited config is looked at by its sweep.
        self.sweep()?;
        let wrong = self.store.audit();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!("derived again it differs:\n{}", wrong.join("\n")))
        }
    }

    /// No more faults: run all there is until nothing moves, for a bounded time.
    fn settle(&mut self) -> Step {
        for round in 0..2_000 {
            self.sweep()?;
            self.claim()?;
            let idle = self.running.is_empty();
            while !self.running.is_empty() {
                self.report()?;
            }
            if idle {
                let next = self.store.rows().iter().filter_map(|row| row.wake_ms).min();
                let now = self.clock.now_ms();
                match next {
                    Some(at) if at > now => self.clock.step(at - now),
                    Some(_) => {}
                    // A look at what was queued out of date may have queued others; were one never claimed, this would not end.
                    None if self
                        .store
                        .rows()
                        .iter()
                        .any(|row| matches!(row.due, Due::Ready { .. })) => {}
                    None => {
                        if self.retry_failed()? {
                            continue;
                        }
                        self.say(format_args!("settled after {round} rounds"));
                        return Ok(());
                    }
                }
            }
        }
        Err("it does not settle when the faults stop".to_owned())
    }

    /// What was pinned by a fault is asked for again by hand, as a person would.
    fn retry_failed(&mut self) -> Result<bool, String> {
        let mut any = false;
        let rows = self.store.rows();
        // A source that left a value out while there were faults gives it when it runs again.
        let dry: Vec<Uid> = rows
            .iter()
            .filter_map(|row| match &row.due {
                Due::Held(Hold::Flow { on, .. }) => Some(*on),
                _ => None,
            })
            .collect();
        for row in rows {
            let pinned = row
                .failure
                .as_ref()
                .is_some_and(|failure| failure.terminal && failure.message == "terminal");
            if pinned || dry.contains(&row.uid) {
                any = true;
                let command = ResourceReconcile {
                    kind: row.kv.kind.clone(),
                    name: row.name.clone(),
                    recursive: false,
                    who: None,
                };
                self.must(Command::ResourceReconcile(command))?;
            }
        }
        Ok(any)
    }

    /// Everything that was asked for is there, at rest, and nothing else is.
    fn check_end(&mut self) -> Step {
        self.check()?;
        let rows = self.store.rows();
        for row in &rows {
            let key = format!("{}/{}", row.kv.kind, row.name);
            let refused = row
                .failure
                .as_ref()
                .is_some_and(|failure| failure.message.starts_with("the composition was refused"));
            let below_refused = row.below.sums.failed > 0 || row.derived.phase == Phase::Degraded;
            if row.claim.is_some() {
                return Err(format!("{key} is still claimed"));
            }
            let on = match &row.due {
                Due::Held(hold) => hold.on(),
                _ => None,
            };
            let on = on.and_then(|on| rows.iter().find(|row| row.uid == on));
            let on = on.map(|on| {
                format!(
                    "{}/{} {:?} {:?} {:?}",
                    on.kv.kind, on.name, on.derived, on.due, on.failure
                )
            });
            // An orphan waits for its former dependents to sync, however long those are blocked.
            let waits = matches!(&row.due, Due::Held(Hold::Released(on)) if rows.iter().any(|other| other.uid == *on && !other.derived.synced));
            if waits {
                continue;
            }
            if row.is_deleting() || row.orphan.is_some() {
                return Err(format!(
                    "{key} should be gone: {:?} {:?}; held on {on:?}",
                    row.due, row.failure
                ));
            }
            let blocked = row.derived.settled && matches!(row.due, Due::Held(_));
            if row.derived.phase != Phase::Ready && !refused && !below_refused && !blocked {
                let below: Vec<_> = rows
                    .iter()
                    .filter(|other| other.root == row.root && other.derived.phase != Phase::Ready)
                    .map(|other| {
                        format!(
                            "\n{}/{} {:?} {:?} {:?}",
                            other.kv.kind, other.name, other.derived, other.due, other.failure
                        )
                    })
                    .collect();
                return Err(format!(
                    "{key} is {:?}: {:?} {:?}; held on {on:?}{}",
                    row.derived,
                    row.due,
                    row.failure,
                    below.concat()
                ));
            }
        }
        for (key, spec_seed) in &self.wanted {
            let row = rows
                .iter()
                .find(|row| format!("{}/{}", row.kv.kind, row.name) == *key);
            let Some(row) = row else {
                return Err(format!("{key} was applied and is not there"));
            };
            if row.derived.phase == Phase::Ready && row.synced_gen != row.generation {
                return Err(format!("{key} is Ready and has not synced {spec_seed}"));
            }
        }
        for row in rows.iter().filter(|row| row.owner.is_none()) {
            let key = format!("{}/{}", row.kv.kind, row.name);
            if !self.wanted.contains_key(&key) {
                return Err(format!("{key} was deleted and is there"));
            }
        }
        Ok(())
    }
}
