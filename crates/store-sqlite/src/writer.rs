//! The one thread that writes.
//!
//! Commands wait in a bounded queue. The thread drains what is there into one transaction, commits, and only then answers. A command
//! that is refused has written nothing. When a statement of one command fails for a reason of its own, the transaction is rolled back
//! and all its commands run again, each under a savepoint, so that this one alone is undone; nobody was answered yet, so nobody sees the
//! difference. When the file or the disk fails, every command of the batch is answered with that. After any rollback the cache is
//! dropped, since it holds what was not committed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use converge_engine::Reply;
use converge_engine::command::{ClaimTasks, Command, run_embedded};
use converge_engine::model::Millis;
use converge_engine::offers::{self, Offers};
use converge_engine::stamp::stamp;
use converge_engine::store::{Signals, StoreError, TransactError};
use tokio::sync::{mpsc, oneshot};

use crate::clock::Monotonic;
use crate::fault::Fault;
use crate::signals::Hub;
use crate::sql;
use crate::tables::Tables;
use crate::wal::Wal;

/// How often a disk that took no writes is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// How long cutting the WAL may wait for readers.
const CUT_WAIT: Duration = Duration::from_millis(20);

pub(crate) type Answers = Vec<Result<Reply, TransactError>>;

/// What the writer is sent.
pub(crate) enum Message {
    /// Carry out and answer after COMMIT.
    Transact(Vec<Command>, oneshot::Sender<Answers>),
    /// Finish what was sent before, checkpoint and end.
    Close(oneshot::Sender<()>),
}

/// Whether writes go through; the reason when not.
#[derive(Default)]
pub(crate) struct Health(Mutex<Option<StoreError>>);

impl Health {
    pub(crate) fn get(&self) -> Option<StoreError> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set(&self, error: Option<StoreError>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = error;
    }
}

pub(crate) struct Writer {
    pub(crate) tables: Tables,
    pub(crate) clock: Arc<Monotonic>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) offers: Arc<Offers>,
    /// Claims that waited for what this batch makes claimable; a second run of the batch carries them out again.
    pub(crate) taken: Vec<(ClaimTasks, offers::Answer)>,
    pub(crate) health: Arc<Health>,
    pub(crate) wal: Wal,
    /// Commands after which a transaction takes no further message.
    pub(crate) batch: usize,
    /// Changes whenever another connection commits.
    pub(crate) data_version: i64,
}

type Job = (Vec<Command>, oneshot::Sender<Answers>);

/// A batch that was decided and written, not committed.
struct Done {
    answers: Vec<Answers>,
    /// What the claims of [`Writer::taken`] are answered.
    served: Vec<Result<Reply, TransactError>>,
    signals: Signals,
    wrote: bool,
}

impl Writer {
    /// Runs until told to close or until nobody can send any more.
    pub(crate) fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let mut closing = None;
        while closing.is_none() {
            let Some(first) = self.receive(&mut queue) else {
                break;
            };
            let mut jobs = Vec::new();
            let mut commands = 0;
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Transact(job, answer) => {
                        commands += job.len();
                        jobs.push((job, answer));
                    }
                    Message::Close(done) => {
                        closing = Some(done);
                        break;
                    }
                }
                if commands < self.batch {
                    next = queue.try_recv().ok();
                }
            }
            if !jobs.is_empty() {
                self.carry_out(jobs);
                self.cut_wal();
            }
        }
        queue.close();
        let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
        if let Err(error) = self.tables.conn.query_row(checkpoint, [], |_| Ok(())) {
            tracing::warn!(error = %error, "could not checkpoint; the WAL is kept and read again at the next start");
        }
        drop(self);
        if let Some(done) = closing {
            let _ = done.send(());
        }
    }

    /// The next message; while the disk takes no writes, it is tried again now and then.
    fn receive(&mut self, queue: &mut mpsc::Receiver<Message>) -> Option<Message> {
        while self.health.get().is_some() {
            let timer = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .build();
            let Ok(timer) = timer else { break };
            match timer.block_on(async { tokio::time::timeout(AGAIN, queue.recv()).await }) {
                Ok(message) => return message,
                Err(_) => self.probe(),
            }
        }
        queue.blocking_recv()
    }

    fn probe(&mut self) {
        let conn = &self.tables.conn;
        let grow = conn.execute("INSERT INTO probe (filler) VALUES (zeroblob(65536))", []);
        let probed = grow.and_then(|_| conn.execute("DELETE FROM probe", []));
        match probed {
            Ok(_) => {
                tracing::info!("the store takes writes again");
                self.health.set(None);
            }
            Err(error) => tracing::debug!(error = %error, "the store still takes no writes"),
        }
    }

    fn carry_out(&mut self, jobs: Vec<Job>) {
        let now = self.clock.now_ms();
        let mut done = self.commit(&jobs, now, false);
        // Where SQLite has ended the transaction itself, something else is wrong than what the statement said.
        if let Err(fault) = &done
            && fault.is_of_one_statement()
            && !self.tables.conn.is_autocommit()
        {
            tracing::error!(error = ?fault, "a command could not be written; running its batch again, each command on its own");
            done = self.undo().and_then(|()| self.commit(&jobs, now, true));
        }
        match done {
            Ok(done) => {
                if done.wrote && self.health.get().is_some() {
                    self.health.set(None);
                }
                self.hub.publish(&done.signals);
                for ((_, answer), claimed) in self.taken.drain(..).zip(done.served) {
                    let _ = answer.send(claimed);
                }
                for ((_, answer), answers) in jobs.into_iter().zip(done.answers) {
                    // Whoever asked may have gone; the commands are carried out all the same.
                    let _ = answer.send(answers);
                }
            }
            Err(fault) => {
                let error = fault.on_write();
                self.taken.clear();
                tracing::error!(error = %error, commands = jobs.iter().map(|(job, _)| job.len()).sum::<usize>(), "a batch was not written");
                if let Err(fault) = self.undo() {
                    tracing::error!(error = ?fault, "could not read the store after a failed write");
                }
                self.health.set(Some(error.clone()));
                for (job, answer) in jobs {
                    let refused = || Err(TransactError::Store(error.clone()));
                    let _ = answer.send(job.iter().map(|_| refused()).collect());
                }
            }
        }
    }

    /// Rolls back and forgets what was not committed.
    fn undo(&mut self) -> Result<(), Fault> {
        // SQLite rolls back by itself after some failures.
        if !self.tables.conn.is_autocommit() {
            sql::run(&self.tables.conn, "ROLLBACK", [])?;
        }
        // Where memory was short, what SQLite holds of the file would keep it so. Nothing depends on it.
        let _ = self.tables.conn.execute_batch("PRAGMA shrink_memory");
        self.tables.reload()
    }

    /// One transaction. `alone`: a command that fails to be written is undone by itself.
    fn commit(&mut self, jobs: &[Job], now: Millis, alone: bool) -> Result<Done, Fault> {
        sql::run(&self.tables.conn, "BEGIN IMMEDIATE", [])?;
        let version = sql::one(&self.tables.conn, "PRAGMA data_version", [], |cols| {
            cols.get()
        })?;
        if version != Some(self.data_version) {
            self.data_version = version.unwrap_or_default();
            self.tables.reload()?;
        }
        let mut done = Done {
            answers: Vec::with_capacity(jobs.len()),
            served: Vec::new(),
            signals: Signals::default(),
            wrote: false,
        };
        for (commands, _) in jobs {
            let mut answers = Vec::with_capacity(commands.len());
            for command in commands {
                answers.push(self.either(command, now, alone, &mut done)?);
            }
            done.answers.push(answers);
        }
        self.serve_offers(now, alone, &mut done)?;
        // A claim queues up behind this batch, so it may be on its way while the disk writes; after a rollback it finds nothing.
        self.hub.publish(&Signals {
            ready: std::mem::take(&mut done.signals.ready),
            ..Signals::default()
        });
        done.wrote |= self.tables.flush(now)?;
        if self.tables.conn.is_autocommit() {
            return Err(Fault::rolled_back());
        }
        sql::run(&self.tables.conn, "COMMIT", [])?;
        Ok(done)
    }

    /// Carries out the claims that waited for what became claimable. A pair of which nothing is left is no news to anybody.
    fn serve_offers(&mut self, now: Millis, alone: bool, done: &mut Done) -> Result<(), Fault> {
        let mut ready = std::mem::take(&mut done.signals.ready);
        loop {
            ready = offers::left_to_claim(ready, |need| self.tables.answer(need))?;
            if done.served.len() == self.taken.len() {
                match self.offers.take_for(&ready) {
                    Some(offer) => self.taken.push(offer),
                    None => break,
                }
            }
            let Some((claim, _)) = self.taken.get(done.served.len()) else {
                break;
            };
            let claim = Command::Claim(claim.clone());
            let claimed = self.either(&claim, now, alone, done)?;
            done.served.push(claimed);
        }
        done.signals.ready.append(&mut ready);
        Ok(())
    }

    fn either(
        &mut self,
        command: &Command,
        now: Millis,
        alone: bool,
        done: &mut Done,
    ) -> Result<Result<Reply, TransactError>, Fault> {
        match alone {
            false => self.one(command, now, done),
            true => self.one_alone(command, now, done),
        }
    }

    /// Decides and writes one command. The outer error undoes the batch, the inner one is the answer.
    fn one(
        &mut self,
        command: &Command,
        now: Millis,
        done: &mut Done,
    ) -> Result<Result<Reply, TransactError>, Fault> {
        let decided = catch_unwind(AssertUnwindSafe(|| {
            run_embedded(command, &mut self.tables, now)
        }));
        if let Some(fault) = self.tables.broken.take() {
            return Err(fault);
        }
        let (mut reply, mut set) = match decided {
            Ok(Ok(decided)) => decided,
            Ok(Err(refused)) => return Ok(Err(refused)),
            Err(_) => {
                // Nothing was written for it: a command writes nothing before it has decided.
                tracing::error!(command = name(command), "a command panicked");
                let what = format!("the command {} panicked: see the log", name(command));
                return Ok(Err(StoreError::Corrupt(what).into()));
            }
        };
        if !set.is_empty() {
            stamp(&mut set, &mut reply, &mut self.tables.revision);
            self.tables.apply(&set)?;
            done.wrote = true;
        }
        done.signals.merge(std::mem::take(&mut set.signals));
        Ok(Ok(reply))
    }

    fn one_alone(
        &mut self,
        command: &Command,
        now: Millis,
        done: &mut Done,
    ) -> Result<Result<Reply, TransactError>, Fault> {
        sql::run(&self.tables.conn, "SAVEPOINT command", [])?;
        let mut its = Done {
            answers: Vec::new(),
            served: Vec::new(),
            signals: Signals::default(),
            wrote: false,
        };
        let written = self.one(command, now, &mut its).and_then(|answer| {
            self.tables.flush(now)?;
            Ok(answer)
        });
        let answer = match written {
            Ok(answer) => {
                done.signals.merge(its.signals);
                done.wrote |= its.wrote;
                answer
            }
            Err(fault) if fault.is_of_one_statement() => {
                sql::run(&self.tables.conn, "ROLLBACK TO command", [])?;
                self.tables.reload()?;
                Err(TransactError::Store(fault.on_write()))
            }
            Err(fault) => return Err(fault),
        };
        sql::run(&self.tables.conn, "RELEASE command", [])?;
        Ok(answer)
    }

    /// Cuts a WAL that has grown over its limit. Readers may prevent it; then it is tried again later.
    fn cut_wal(&mut self) {
        let Some(size) = self.wal.grown() else {
            return;
        };
        let conn = &self.tables.conn;
        let cut = conn.busy_timeout(CUT_WAIT).and_then(|()| {
            let busy = conn.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
                row.get::<_, bool>(0)
            });
            conn.busy_timeout(crate::connection::BUSY)?;
            busy
        });
        match cut {
            Ok(false) => tracing::debug!(size, "cut the WAL"),
            Ok(true) => self.wal.put_off(),
            Err(error) => {
                tracing::warn!(size, error = %error, "could not cut the WAL");
                self.wal.put_off();
            }
        }
    }
}

/// What a log line calls a command.
fn name(command: &Command) -> &'static str {
    match command {
        Command::ManifestApply(_) => "manifest apply",
        Command::ManifestDelete(_) => "manifest delete",
        Command::PolicySet(_) => "policy set",
        Command::ResourceApply(_) => "resource apply",
        Command::ResourceDelete(_) => "resource delete",
        Command::ResourceReconcile(_) => "resource reconcile",
        Command::ResourceQuarantine(_) => "resource quarantine",
        Command::ResourceRollback(_) => "resource rollback",
        Command::ConfigApply(_) => "config apply",
        Command::ConfigDelete(_) => "config delete",
        Command::Claim(_) => "claim",
        Command::Complete(_) => "complete",
        Command::Release(_) => "release",
        Command::LeaseLost(_) => "lease lost",
        Command::Wake(_) => "wake",
        Command::ConfigSweep(_) => "config sweep",
        Command::Forget(_) => "forget",
    }
}
