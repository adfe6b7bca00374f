//! What workers do in a history, and what must hold of every task that is handed out.

use std::collections::BTreeMap;
use std::sync::Arc;

use converge_engine::command::{
    ClaimTasks, Command, Complete, Landed, LeaseLost, Outcome, Release, ReleaseReason, Reply, Task,
};
use converge_engine::model::{ClaimRef, Resource};
use converge_types::ids::{KindVersion, Uid};
use converge_types::phase::{ConditionStatus, Phase, Stage, Trigger};
use rand::RngExt as _;
use rand::rngs::SmallRng;

use super::plan::{self, PAIRS};
use super::{Sim, Step, Subject};
use crate::world::{self, done, empty, failed};

pub(super) fn claim_of(task: &Task) -> ClaimRef {
    ClaimRef {
        token: task.token,
        epoch: task.claim.epoch,
    }
}

/// A claim for a few tasks of most pairs.
fn draw(rng: &mut SmallRng, some_left_out: bool, reserved_for_composers: u32) -> ClaimTasks {
    let limit = rng.random_range(1..6);
    let mut pairs: Vec<_> = PAIRS.to_vec();
    if some_left_out && rng.random_bool(0.3) {
        pairs.remove(rng.random_range(0..pairs.len()));
    }
    ClaimTasks {
        worker: format!("w{}", rng.random_range(0..3)),
        broker: "b".to_owned(),
        pairs: pairs
            .iter()
            .filter_map(|(kind, version)| KindVersion::parse(kind, *version).ok())
            .collect(),
        limit,
        reserved_for_composers,
        suspects_on_stream: Vec::new(),
        busy_on_stream: Vec::new(),
        seed: (0..limit).map(|_| rng.random()).collect(),
    }
}

impl<S: Subject> Sim<S> {
    pub(super) fn claim(&mut self) -> Step {
        let tasks = self.claim_some()?;
        self.running.extend(tasks);
        Ok(())
    }

    /// Claims a few tasks of most pairs.
    pub(super) fn claim_some(&mut self) -> Result<Vec<Task>, String> {
        let reserved = u32::from(self.faults);
        let command = draw(&mut self.rng, self.faults, reserved);
        let Reply::Claimed { tasks } = self.must(Command::Claim(command))? else {
            return Err("a claim answers tasks".to_owned());
        };
        for task in &tasks {
            self.hand_out(task)?;
        }
        Ok(tasks)
    }

    /// A claim that stands while this command is carried out.
    pub(super) fn stand(&mut self, command: &Command) -> Option<ClaimTasks> {
        let rng = self.standing.as_mut()?;
        if matches!(command, Command::Claim(_)) || !self.faults || rng.random_bool(0.6) {
            return None;
        }
        Some(draw(rng, true, 0))
    }

    pub(super) fn hand_out(&mut self, task: &Task) -> Step {
        self.say(format_args!(
            "claim {} {}/{} e{} g{}",
            task.claim.stage,
            task.claim.kv,
            task.resource.row.name,
            task.claim.epoch,
            task.resource.row.generation
        ));
        self.check_task(task)
    }

    /// What must hold when a task is handed out.
    fn check_task(&mut self, task: &Task) -> Step {
        let row = &task.resource.row;
        let key = format!("{}/{}", row.kv.kind, row.name);
        let last = self.epochs.insert(row.uid, task.claim.epoch).unwrap_or(0);
        if task.claim.epoch <= last {
            return Err(format!("{key}: epoch {} after {last}", task.claim.epoch));
        }
        if task.claim.kv != row.due_kv() {
            return Err(format!(
                "{key} is {} and was given out as {}",
                row.due_kv(),
                task.claim.kv
            ));
        }
        let named = match task.claim.stage {
            Stage::Delete => row.due_config(),
            _ => row.config_ref.as_ref(),
        };
        if task.config_override.is_some() != named.is_some() {
            return Err(format!("{key} runs without the config it names"));
        }
        let rows: BTreeMap<Uid, Arc<Resource>> = self
            .subject
            .rows()
            .into_iter()
            .map(|row| (row.uid, row))
            .collect();
        if task.claim.stage == Stage::Delete {
            return self.check_teardown(&key, row, &rows);
        }
        let is_look = row.derived.synced;
        if task.claim.stage == Stage::Rollup || task.claim.trigger == Trigger::Resync || is_look {
            return Ok(());
        }
        let edges = self.subject.edges();
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

    /// Nothing it owns is left, and nothing marked depends on it or on an ancestor of it.
    fn check_teardown(
        &mut self,
        key: &str,
        row: &Resource,
        rows: &BTreeMap<Uid, Arc<Resource>>,
    ) -> Step {
        if rows.values().any(|other| other.owner == Some(row.uid)) {
            return Err(format!("{key} is torn down and still owns something"));
        }
        let edges = self.subject.edges();
        // What came to depend on it after its teardown had begun, and vanished again, never saw it.
        let is_first = self.torn.insert(row.uid);
        let mut at = Some(row.uid);
        while let Some(uid) = at {
            for edge in edges.iter().filter(|edge| edge.to == uid) {
                let waited_for = is_first && edge.former && uid == row.uid && row.orphan.is_some();
                if let Some(from) = rows.get(&edge.from)
                    && (from.is_deleting() || waited_for)
                {
                    return Err(format!(
                        "{key} is torn down before {}/{}",
                        from.kv.kind, from.name
                    ));
                }
            }
            at = rows.get(&uid).and_then(|row| row.owner);
        }
        Ok(())
    }

    pub(super) fn take_running(&mut self) -> Option<Task> {
        if self.running.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.running.len());
        Some(self.running.swap_remove(at))
    }

    pub(super) fn report(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        let command = self.result_of(&task);
        let landed = self.send_result(&task, &command)?;
        let key = format!("{}/{}", task.claim.kv.kind, task.resource.row.name);
        if landed == Landed::Fenced {
            return Err(format!("{key}: the live claim was fenced"));
        }
        match self.must(Command::Complete(command))? {
            Reply::Landed(Landed::Fenced) => Ok(()),
            other => Err(format!("{key}: the same result again: {other:?}")),
        }
    }

    /// What a worker answers to this task.
    pub(super) fn result_of(&mut self, task: &Task) -> Complete {
        Complete {
            claim: claim_of(task),
            stage: task.claim.stage,
            outcome: self.outcome(task),
            seed: self.rng.random(),
        }
    }

    pub(super) fn send_result(
        &mut self,
        task: &Task,
        command: &Complete,
    ) -> Result<Landed, String> {
        let Reply::Landed(landed) = self.must(Command::Complete(command.clone()))? else {
            return Err("a result answers how it landed".to_owned());
        };
        let word = match &command.outcome.failure {
            Some(failure) => failure.message.clone(),
            None => "ok".to_owned(),
        };
        self.say(format_args!(
            "report {} {}/{} e{} {word}: {landed:?}",
            task.claim.stage, task.claim.kv.kind, task.resource.row.name, task.claim.epoch
        ));
        self.tasks += 1;
        Ok(landed)
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

    pub(super) fn lose(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        self.lose_task(&task)
    }

    /// The lease of a task runs out; its worker answers after all.
    pub(super) fn lose_task(&mut self, task: &Task) -> Step {
        self.say(format_args!(
            "lose {}/{} e{}",
            task.claim.kv.kind, task.resource.row.name, task.claim.epoch
        ));
        let claims = vec![claim_of(task)];
        let seed = self.rng.random();
        self.must(Command::LeaseLost(LeaseLost { claims, seed }))?;
        self.stale(task)
    }

    pub(super) fn release(&mut self) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        self.say(format_args!(
            "release {}/{} e{}",
            task.claim.kv.kind, task.resource.row.name, task.claim.epoch
        ));
        self.must(Command::Release(Release {
            claims: vec![claim_of(&task)],
            reason: ReleaseReason::Drained,
        }))?;
        self.stale(&task)
    }

    /// The worker that was given up answers after all: nothing may change.
    fn stale(&mut self, task: &Task) -> Step {
        let before = self.subject.rows();
        let command = Complete {
            claim: claim_of(task),
            stage: task.claim.stage,
            outcome: done("{\"stale\":true}"),
            seed: 1,
        };
        match self.must(Command::Complete(command))? {
            Reply::Landed(Landed::Fenced) if self.subject.rows() == before => Ok(()),
            other => Err(format!("a stale result: {other:?}")),
        }
    }
}
