//! A module made ready to run against its state: fetched, prepared, initialised, and the commands run in it.
//!
//! Owns the order in which that must happen: dead runs first, then the source, the binary, our override last among the overrides, the move of
//! a state, `init`, the check that the effective backend is ours, and a kept `errored.tfstate` before anything else. Must hold: nothing
//! that changes a state runs before all of that. Not here: what is run then (`apply`, `destroy`, `drift`).

use std::path::{Path, PathBuf};
use std::time::Duration;

use converge_sdk::process::{self, Command, StopSignal};

use crate::backend::{StateBackend, override_name};
use crate::binary::{self, Resolved};
use crate::environment::Env;
use crate::failure::Failure;
use crate::fetch::{self, Fetched};
use crate::follow::{Follower, Logger, Tail};
use crate::hcl_scan::{self, Declared};
use crate::home::{DeadRun, ERRORED, LOG_OUT, RunDirectory};
use crate::messages::{Level, Line, LockInfo, Summary, VARIABLE_FILE, cut, is_lock_error, plain};
use crate::recovery::lock_failure;
use crate::redact::Secrets;
use crate::source::Source;
use crate::spec::{Vars, variable_file};
use crate::task::{Helper, Stop, Task, not_started};
use crate::version::Wanted;

/// How often the log of a run is read.
const POLL: Duration = Duration::from_millis(100);

/// Where the module of a session comes from.
#[derive(Debug)]
pub(crate) enum Origin<'o> {
    /// Fetched anew.
    Source(&'o Source),
    /// What was applied, or the closest there is; any when the digest is empty.
    Applied { source: &'o Source, digest: &'o str },
    /// No module: for looking at a state.
    Bare,
}

/// A module ready to run.
pub(crate) struct Session<'s, 't> {
    pub(crate) task: &'s mut Task<'t>,
    pub(crate) declared: Declared,
    pub(crate) digest: String,
    pub(crate) binary: Resolved,
    pub(crate) backend: StateBackend,
    pub(crate) dead: Vec<DeadRun>,
    run: RunDirectory,
    tree: PathBuf,
    module: PathBuf,
    env: Env,
}

/// How a command ended.
#[derive(Debug)]
pub(crate) struct Done {
    /// Its exit code; nothing when a signal ended it.
    pub(crate) code: Option<i32>,
    /// Why it was interrupted, when it was.
    pub(crate) stop: Option<Stop>,
    /// It did not end within its grace.
    pub(crate) killed: bool,
    pub(crate) summary: Summary,
    /// The end of what it said besides.
    pub(crate) tail: String,
}

impl Done {
    /// Whether it exited with 0.
    pub(crate) fn is_success(&self) -> bool {
        self.code == Some(0) && self.stop.is_none()
    }

    /// Everything it said about errors, for a message.
    pub(crate) fn errors(&self) -> String {
        if let Some(errors) = self.summary.errors_text() {
            return errors;
        }
        let text = self
            .tail
            .split_once("Error:")
            .map_or(self.tail.as_str(), |(_, error)| error);
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        // What stands before the first real error says only that there is one.
        let text = text
            .split_once("need to be installed. Error: ")
            .map_or(text.as_str(), |(_, errors)| errors);
        let how = self
            .code
            .map_or_else(|| "a signal".to_owned(), |code| format!("exit code {code}"));
        if text.is_empty() {
            format!("it ended with {how} and said nothing")
        } else {
            cut(text, 2000)
        }
    }

    /// Who holds the lock it could not take; the inner nothing when the lock does not say.
    pub(crate) fn lock(&self) -> Option<Option<LockInfo>> {
        if let Some(error) = self
            .summary
            .errors
            .iter()
            .find(|error| is_lock_error(&error.summary))
        {
            return Some(LockInfo::parse(&error.detail));
        }
        is_lock_error(&self.tail).then(|| LockInfo::parse(&self.tail))
    }

    /// Whether an error, or the plain text, holds these words.
    pub(crate) fn says(&self, part: &str) -> bool {
        let tail = self.tail.split_whitespace().collect::<Vec<_>>().join(" ");
        tail.contains(part)
            || self
                .summary
                .errors
                .iter()
                .any(|error| error.summary.contains(part))
    }
}

impl<'s, 't> Session<'s, 't> {
    /// Makes everything ready up to, not including, `init`.
    pub(crate) async fn prepare(
        task: &'s mut Task<'t>,
        backend: StateBackend,
        origin: Origin<'_>,
        wanted: Option<&Wanted>,
    ) -> Result<Self, Failure> {
        let dead = task.home.dead_runs(&task.uid)?;
        for run in &dead {
            if let Some(errored) = run.errored() {
                let kept = task.home.keep_errored(&task.uid, &errored)?;
                tracing::warn!(kept = %kept.display(), "a dead run left a state that it could not save; it is pushed first");
            }
        }
        let run = task.home.new_run(&task.uid)?;
        let fetched = match origin {
            Origin::Source(source) => fetch::fetch(task, source, run.path()).await?,
            Origin::Applied { source, digest } => {
                fetch::applied(task, source, digest, run.path()).await?
            }
            Origin::Bare => {
                let tree = run.path().join("tree");
                std::fs::create_dir(&tree)
                    .map_err(|error| Failure::disk("cannot make a directory", &error))?;
                Fetched {
                    digest: String::new(),
                    module: tree.clone(),
                    tree,
                }
            }
        };
        let scanned = hcl_scan::scan(&fetched.module, task.is_tofu());
        let declared = scanned.map_err(|error| Failure::disk("cannot list the module", &error))?;
        let wanted = binary::wanted(wanted, Some(&fetched.module), &declared, task.config.binary)?;
        let binary = binary::resolve(task, &wanted, &declared).await?;
        let env = session_environment(task, &run)?;
        Ok(Self {
            task,
            declared,
            digest: fetched.digest,
            binary,
            backend,
            run,
            tree: fetched.tree,
            module: fetched.module,
            env,
            dead,
        })
    }

    /// The directory the module runs in.
    pub(crate) fn module(&self) -> &Path {
        &self.module
    }

    /// Splits variables into those that may be shown and those that may not; what may not is learnt as secret.
    pub(crate) fn withhold(&self, vars: &Vars) -> Vars {
        let mut secrets = Secrets::default();
        for (name, value) in vars
            .iter()
            .filter(|(name, _)| self.declared.is_sensitive(name))
        {
            tracing::trace!(variable = %name, "the variable is sensitive");
            if let Ok(value) = serde_json::from_str(value.get()) {
                secrets.add_json(&value);
            }
        }
        self.task.learn(&secrets);
        let redactor = self.task.redactor();
        vars.iter()
            .filter(|(name, value)| {
                !self.declared.is_sensitive(name) && !redactor.finds(value.get())
            })
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    /// Writes the variable file and gives the argument that passes it.
    pub(crate) fn variables(&self, vars: &Vars) -> Result<String, Failure> {
        let path = self.run.write(VARIABLE_FILE, &variable_file(vars))?;
        Ok(format!("-var-file={}", path.display()))
    }

    /// Puts our backend in place and initialises; fails closed when the effective backend is another one.
    pub(crate) async fn init(&mut self) -> Result<(), Failure> {
        self.clean_module()?;
        let text = self.backend.text.clone();
        let name = override_name(&self.declared.overrides, self.backend.suffix);
        let path = self.module.join(&name);
        crate::home::write_private(&path, &text)
            .map_err(|error| Failure::disk("cannot write the backend file", &error))?;
        if let Some(later) = self
            .declared
            .backend_overrides
            .iter()
            .find(|other| **other >= name)
        {
            return Err(Failure::terminal(
                "BackendNotOurs",
                format!(
                    "the module's {later} would set another backend and sorts after every name there is; rename it"
                ),
            ));
        }
        if self.backend.place.backend == "local"
            && let Some(parent) = Path::new(&self.backend.place.key).parent()
        {
            std::fs::create_dir_all(parent).map_err(|error| {
                Failure::disk(
                    format_args!(
                        "cannot make the directory of the state {}",
                        parent.display()
                    ),
                    &error,
                )
            })?;
        }
        let done = {
            // One at a time on a cold cache, else they trip over each other (measured: 5 of 24).
            let _cache = self.task.home.lock("plugins").await?;
            self.run(
                "init",
                &["init", "-reconfigure", "-input=false", "-no-color"],
            )
            .await?
        };
        if !done.is_success() {
            return Err(self.init_failure(&done));
        }
        let written =
            std::fs::read_to_string(self.module.join(".terraform/terraform.tfstate")).ok();
        self.backend
            .check_effective(written.as_deref())
            .map_err(|why| Failure::terminal("BackendNotOurs", format!("nothing was run: {why}")))
    }

    fn init_failure(&self, done: &Done) -> Failure {
        if let Some(stop) = done.stop {
            return Failure::transient("Interrupted", format!("init was ended by {stop}"));
        }
        if let Some(lock) = done.lock() {
            return lock_failure(lock.as_ref(), &self.backend);
        }
        let terminal = [
            "problems with the configuration",
            "Unsupported Terraform Core version",
            "Unsupported OpenTofu Core version",
            "Invalid backend configuration argument",
            "Unsupported backend type",
            "Unsupported argument",
            "Unreadable module directory",
        ];
        let message = format!("init failed: {}", done.errors());
        if terminal.iter().any(|part| done.says(part)) {
            Failure::terminal("InitFailed", message)
        } else {
            Failure::transient("InitFailed", message)
        }
    }

    /// What a module must not bring along: another run's backend and state.
    fn clean_module(&self) -> Result<(), Failure> {
        let failed = |error: &std::io::Error| {
            Failure::disk("cannot remove what the module brought along", error)
        };
        let gone = |result: std::io::Result<()>| match result {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(failed(&error)),
            _ => Ok(()),
        };
        let dot = self.module.join(".terraform");
        if dot.is_dir() {
            gone(std::fs::remove_dir_all(&dot))?;
        } else {
            gone(std::fs::remove_file(&dot))?;
        }
        for entry in std::fs::read_dir(&self.module)
            .map_err(|error| failed(&error))?
            .flatten()
        {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let state = name.starts_with("terraform.tfstate")
                || name == ERRORED
                || name.starts_with(".terraform.tfstate");
            if state && entry.file_type().is_ok_and(|kind| kind.is_file()) {
                gone(std::fs::remove_file(entry.path()))?;
            }
        }
        Ok(())
    }

    /// Runs one command in the module; its messages go to the log as they come. An interrupt is sent once, then it is waited for.
    pub(crate) async fn run(&self, phase: &'static str, args: &[&str]) -> Result<Done, Failure> {
        self.task.may_begin(phase)?;
        let started = std::time::SystemTime::now();
        let out = self.run.path().join(LOG_OUT);
        let err = self.run.path().join("err.log");
        let failed =
            |error: std::io::Error| Failure::disk("cannot follow the log of the run", &error);
        let mut stdout = Follower::open(&out).map_err(failed)?;
        let mut stderr = Follower::open(&err).map_err(failed)?;
        let mut summary = Summary::default();
        let mut tail = Tail::default();
        let mut logger = Logger::new(phase, self.task.redactor());

        let command = self.command(args, &out, &err);
        let mut stop = None;
        let cancel = async { stop = Some(self.task.stopped().await) };
        let finished = {
            let running = process::run_until(command, cancel);
            tokio::pin!(running);
            loop {
                let ended = tokio::select! {
                    finished = &mut running => Some(finished),
                    () = tokio::time::sleep(POLL) => None,
                };
                let last = ended.is_some();
                let read = stdout
                    .poll(last, |line| {
                        if !line.trim_start().starts_with('{') {
                            tail.add(&plain(line));
                        }
                        if let Some(line) = summary.take(line) {
                            logger.log(&line);
                        }
                    })
                    .and_then(|()| {
                        stderr.poll(last, |line| {
                            let text = plain(line);
                            tail.add(&text);
                            if !text.trim().is_empty() {
                                logger.log(&Line {
                                    level: Level::Info,
                                    text,
                                });
                            }
                        })
                    });
                if let Err(error) = read {
                    tracing::warn!(%error, "the log of the run cannot be read");
                }
                if let Some(finished) = ended {
                    break finished.map_err(|error| {
                        not_started(&self.binary.path.to_string_lossy(), error)
                    })?;
                }
            }
        };
        logger.finish();
        let killed =
            stop.is_some() && matches!(finished.exit, None | Some(process::Exit::Signal(9)));
        let errored = self.keep_errored()?;
        let unreleased = summary
            .errors
            .iter()
            .any(|error| error.summary.contains("Error releasing the state lock"));
        if errored || killed || unreleased {
            self.task.home.note_unreleased(&self.task.uid, started);
        }
        Ok(Done {
            code: finished.exit_code(),
            stop,
            killed,
            summary,
            tail: tail.text().to_owned(),
        })
    }

    /// Runs a command that prints a document; gives the document.
    pub(crate) async fn read(
        &self,
        phase: &'static str,
        args: &[&str],
    ) -> Result<Vec<u8>, Failure> {
        self.task.may_begin(phase)?;
        let helper = self.helper(args);
        let ran = self.task.run(helper).await?;
        if ran.is_success() {
            return Ok(ran.stdout);
        }
        Err(Failure::transient(
            "StateUnreadable",
            format!("{phase} failed: {}", crate::task::ended(&ran)),
        ))
    }

    /// The binary in the module, for what changes nothing and prints a document.
    pub(crate) fn helper(&self, args: &[&str]) -> Helper<'_> {
        let mut helper = Helper::new(self.task, self.program(), args.iter().copied());
        helper.env = self.env.clone();
        helper.cwd = Some(&self.module);
        helper
    }

    /// Keeps a copy of the tree as it came, for a destroy on a day when the source is gone.
    pub(crate) async fn keep_tree(&self) -> Result<(), Failure> {
        let (home, uid) = (self.task.home.clone(), self.task.uid.clone());
        let (digest, tree) = (self.digest.clone(), self.tree.clone());
        let kept = tokio::task::spawn_blocking(move || home.keep_tree(&uid, &digest, &tree));
        kept.await
            .unwrap_or_else(|error| Err(std::io::Error::other(error)))
            .map_err(|error| Failure::disk("cannot keep a copy of the module", &error))
    }

    /// The program as a command line has it. The data directory and PATH are checked to be UTF-8.
    fn program(&self) -> &str {
        self.binary.path.to_str().unwrap_or("terraform")
    }

    /// Through a shell that only redirects and then becomes the binary: a file outlives the worker, a pipe does not.
    fn command(&self, args: &[&str], out: &Path, err: &Path) -> Command {
        const REDIRECT: &str = "out=$1; err=$2; shift 2; exec \"$@\" >>\"$out\" 2>>\"$err\"";
        Command::new("/bin/sh", self.task.environment(&self.env))
            .args(["-c", REDIRECT, "sh"])
            .arg(out.to_string_lossy())
            .arg(err.to_string_lossy())
            .arg(self.program())
            .args(args.iter().copied())
            .cwd(&self.module)
            .stop_signal(StopSignal::Interrupt)
            .grace(self.task.config.kill_grace)
            .log_stderr(false)
    }

    /// Keeps a state that a command could not save; says whether there was one.
    fn keep_errored(&self) -> Result<bool, Failure> {
        let file = self.module.join(ERRORED);
        let errored = file.exists();
        if errored {
            let kept = self.task.home.keep_errored(&self.task.uid, &file)?;
            tracing::error!(kept = %kept.display(), "the state could not be saved; it is kept here and pushed first next time");
        }
        Ok(errored)
    }
}

/// What Terraform itself sees.
fn session_environment(task: &Task<'_>, run: &RunDirectory) -> Result<Env, Failure> {
    let mut env = task.env().clone();
    for (name, value) in [
        ("TF_IN_AUTOMATION", "1"),
        ("TF_INPUT", "0"),
        ("CHECKPOINT_DISABLE", "1"),
    ] {
        env.insert(name.to_owned(), value.to_owned());
    }
    env.insert(
        "TF_PLUGIN_CACHE_DIR".to_owned(),
        task.home.plugins().to_string_lossy().into_owned(),
    );
    env.insert(
        "TF_PLUGIN_CACHE_MAY_BREAK_DEPENDENCY_LOCK_FILE".to_owned(),
        "1".to_owned(),
    );
    // An operator may name a file of his own (a provider mirror); the one in HOME is not read by accident.
    if !env.contains_key("TF_CLI_CONFIG_FILE") {
        let path = run.write("terraform.rc", "disable_checkpoint = true\n")?;
        env.insert(
            "TF_CLI_CONFIG_FILE".to_owned(),
            path.to_string_lossy().into_owned(),
        );
    }
    // The script that answers git for the module serves the modules it names on the same host.
    let askpass = run.path().join("askpass");
    if askpass.exists() {
        env.insert(
            "GIT_ASKPASS".to_owned(),
            askpass.to_string_lossy().into_owned(),
        );
    }
    env.insert("GIT_TERMINAL_PROMPT".to_owned(), "0".to_owned());
    Ok(env)
}
