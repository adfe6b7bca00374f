//! The control plane is killed with a command under way, and another opens what it left.
//!
//! Whoever asked hears nothing, whether the command was committed or not, and asks again when the new one is up: an apply that is
//! repeated changes nothing more, a result that is sent again lands once, a task whose message was lost is given out again when its lease
//! runs out, and a sweep that was cut goes on.

use std::collections::BTreeSet;

use converge_engine::command::{Applied, Command, Landed, SweepBatch, Wake};
use rand::RngExt as _;

use super::{Sim, Step, Subject};

impl<S: Subject> Sim<S> {
    pub(super) fn crash(&mut self) -> Step {
        let committed = self.rng.random_bool(0.5);
        match self.rng.random_range(0..5) {
            0 => self.crash_in_claim(),
            1 => self.crash_in_result(committed),
            2 => self.crash_in_apply(committed),
            3 => {
                self.say(format_args!("crash in a sweep"));
                self.must(Command::ConfigSweep(SweepBatch { limit: 1 }))?;
                self.must(Command::Wake(Wake { limit: 1 }))?;
                self.restart()
            }
            _ => {
                self.say(format_args!("crash"));
                self.restart()
            }
        }
    }

    fn crash_in_claim(&mut self) -> Step {
        self.say(format_args!("crash in a claim"));
        let unheard = self.claim_some()?;
        let heard = self.running.len();
        self.running.extend(unheard);
        self.restart()?;
        // No worker names them: their leases run out.
        for task in self.running.split_off(heard.min(self.running.len())) {
            self.lose_task(&task)?;
        }
        Ok(())
    }

    fn crash_in_result(&mut self, committed: bool) -> Step {
        let Some(task) = self.take_running() else {
            return Ok(());
        };
        self.say(format_args!("crash in a result, committed {committed}"));
        let result = self.result_of(&task);
        if committed {
            self.send_result(&task, &result)?;
            self.restart()?;
        } else {
            self.running.push(task.clone());
            self.restart()?;
            self.running.pop();
        }
        let before = self.subject.rows();
        let landed = self.send_result(&task, &result)?;
        match (committed, landed == Landed::Fenced) {
            (true, true) if before == self.subject.rows() => Ok(()),
            (false, false) => Ok(()),
            _ => Err(format!(
                "a result sent again (committed before: {committed}) was {landed:?}"
            )),
        }
    }

    fn crash_in_apply(&mut self, committed: bool) -> Step {
        let command = self.some_apply()?;
        self.say(format_args!("crash in it, committed {committed}"));
        let mut first = None;
        if committed {
            first = self.carry_out_apply(command.clone())?;
        }
        self.restart()?;
        let mut again = command;
        again.new_uid = self.new_uid();
        let second = self.carry_out_apply(again)?;
        if first.is_some() && second != Some(Applied::Unchanged) {
            return Err(format!("an apply that was repeated was {second:?}"));
        }
        Ok(())
    }

    /// Another control plane takes over: it finds exactly the claims that were given out and not answered, and gives each a lease.
    fn restart(&mut self) -> Step {
        self.subject.reopen()?;
        let found: BTreeSet<_> = self
            .subject
            .rows()
            .iter()
            .filter_map(|row| Some((row.uid, row.claim.as_ref()?.epoch)))
            .collect();
        let known: BTreeSet<_> = self
            .running
            .iter()
            .map(|task| (task.resource.row.uid, task.claim.epoch))
            .collect();
        if found != known {
            return Err(format!(
                "claims after a restart: {found:?}, given out: {known:?}"
            ));
        }
        Ok(())
    }
}
