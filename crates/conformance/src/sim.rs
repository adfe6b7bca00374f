//! Random histories from one seed: graphs, failures, edits, version flips, configs, deletes, lost workers, clock steps, and a control
//! plane that is killed with a command under way.
//!
//! What holds after every step: nothing is derived differently when it is derived again (what became due was made due), counters equal
//! counts, a resource has one claim, epochs grow, a task is handed out only behind what it waits for, at its own version and with the
//! config it names, teardown goes in order, a result lands once. In every second history claims stand while commands are carried out. When the faults stop everything settles, and what is stored is what was
//! last asked for. The same seed gives the same history on every store whose clock goes as the machine's does.

mod crash;
mod end;
mod mirror;
mod people;
mod plan;
mod subject;
mod workers;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use converge_engine::command::{Command, Reply, SweepBatch, Task, Wake};
use converge_engine::store::TransactError;
use converge_types::ids::Uid;
use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use crate::clock::ManualClock;
use crate::memory::MemoryStore;

pub use mirror::{Mirror, Open};
pub use subject::{Answer, Subject};

/// When every history begins.
pub const START_MS: i64 = 1_700_000_000_000;

/// How one history ended.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Every step, for comparing two runs and for reading a failing one.
    pub log: String,
    /// Tasks that were run.
    pub tasks: usize,
    /// Tasks that standing claims got.
    pub served: usize,
}

/// Why a history is wrong.
#[derive(Debug)]
pub struct Wrong {
    /// What does not hold.
    pub why: String,
    /// What led there.
    pub log: String,
}

struct Sim<S> {
    subject: S,
    clock: ManualClock,
    rng: SmallRng,
    /// Whether claims stand, and what they are drawn from: a history without them is the same as before there were any.
    standing: Option<SmallRng>,
    running: Vec<Task>,
    /// What a task that was handed out beside a command should not have been.
    wrong: Option<String>,
    epochs: HashMap<Uid, i64>,
    /// Whose teardown was handed out before.
    torn: HashSet<Uid>,
    /// What was applied and not deleted, with the generation it got.
    wanted: BTreeMap<String, i64>,
    log: String,
    tasks: usize,
    served: usize,
    faults: bool,
}

/// Runs the history of `seed` on the reference store.
///
/// # Errors
/// What does not hold, with the history up to there.
pub fn run(seed: u64, steps: usize) -> Result<Ended, Wrong> {
    let clock = ManualClock::at(START_MS);
    run_on(MemoryStore::new(clock.clone()), clock, seed, steps)
}

/// Runs the history of `seed` on any store that tells this clock's time, which stands at [`START_MS`].
///
/// # Errors
/// What does not hold, with the history up to there.
pub fn run_on<S: Subject>(
    subject: S,
    clock: ManualClock,
    seed: u64,
    steps: usize,
) -> Result<Ended, Wrong> {
    let mut sim = Sim {
        subject,
        clock,
        rng: SmallRng::seed_from_u64(seed),
        standing: (seed & 2 != 0).then(|| SmallRng::seed_from_u64(!seed)),
        running: Vec::new(),
        wrong: None,
        epochs: HashMap::new(),
        torn: HashSet::new(),
        wanted: BTreeMap::new(),
        log: String::new(),
        tasks: 0,
        served: 0,
        faults: true,
    };
    match sim.history(steps) {
        Ok(()) => Ok(Ended {
            log: sim.log,
            tasks: sim.tasks,
            served: sim.served,
        }),
        Err(why) => Err(Wrong { why, log: sim.log }),
    }
}

type Step = Result<(), String>;

impl<S: Subject> Sim<S> {
    fn history(&mut self, steps: usize) -> Step {
        for manifest in plan::manifests() {
            self.apply_manifest(&manifest)?;
        }
        for _ in 0..steps {
            self.step()?;
            self.check()?;
        }
        self.end()
    }

    fn say(&mut self, line: std::fmt::Arguments<'_>) {
        let _ = writeln!(self.log, "{} {line}", self.clock.now_ms() - START_MS);
    }

    fn transact(&mut self, command: &Command) -> Result<Reply, TransactError> {
        let standing = self.stand(command);
        let Answer { reply, served } = self.subject.carry_out(command, standing.as_ref());
        for task in &served {
            if let Err(why) = self.hand_out(task) {
                self.wrong.get_or_insert(why);
            }
        }
        self.served += served.len();
        self.running.extend(served);
        reply
    }

    fn must(&mut self, command: Command) -> Result<Reply, String> {
        self.transact(&command)
            .map_err(|error| format!("refused: {error} for {command:?}"))
    }

    fn step(&mut self) -> Step {
        match self.rng.random_range(0..200) {
            0..16 => self.apply(),
            16..22 => self.delete(),
            22..26 => self.reconcile(),
            26..28 => self.quarantine(),
            28..30 => self.replace(),
            30..31 => self.rollback(),
            31..32 => self.edit_manifest(),
            32..36 => self.config(),
            36..40 => self.crash(),
            40..84 => self.claim(),
            84..168 => self.report(),
            168..174 => self.lose(),
            174..178 => self.release(),
            178..182 => {
                // A clock that steps back: nothing may be lost for it.
                if self.subject.goes_back() {
                    self.clock.step(-5_000);
                }
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

    fn check(&mut self) -> Step {
        if let Some(why) = self.wrong.take() {
            return Err(why);
        }
        let mut wrong = self.subject.reference().audit();
        // A timer that is over is a sweep's to find, not the last command's.
        let now = self.clock.now_ms();
        if !wrong.is_empty()
            && self
                .subject
                .rows()
                .iter()
                .any(|row| row.wake_ms.is_some_and(|wake| wake <= now))
        {
            self.sweep()?;
            wrong = self.subject.reference().audit();
        }
        if wrong.is_empty() {
            return Ok(());
        }
        // An edited config or manifest is looked at by its sweep.
        self.sweep()?;
        let wrong = self.subject.reference().audit();
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!("derived again it differs:\n{}", wrong.join("\n")))
        }
    }
}
