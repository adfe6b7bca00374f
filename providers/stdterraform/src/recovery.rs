//! What runs that ended badly left: states they could not save, locks they could not release.
//!
//! Must hold: a kept state is pushed before anything else runs and never over one it does not follow; a lock is freed only when its own words
//! (who, when) say that a run which is over made it on this machine. Any other lock is waited for, and its holder named.

use crate::backend::StateBackend;
use crate::failure::Failure;
use crate::home::DeadRun;
use crate::messages::LockInfo;
use crate::session::Session;

/// The phase that saves what an earlier run could not.
pub(crate) const PUSH: &str = "push of the kept state";

impl Session<'_, '_> {
    /// Pushes a state that an earlier run could not save.
    pub(crate) async fn push_errored(&self) -> Result<(), Failure> {
        let kept = self.task.home.kept(&self.task.uid);
        if !kept.exists() {
            return Ok(());
        }
        let path = kept.to_string_lossy();
        let done = self.run_locked(PUSH, &["state", "push", &path]).await?;
        if done.is_success() {
            tracing::warn!("the state that an earlier run could not save is in its place now");
            return std::fs::remove_file(&kept)
                .map_err(|error| Failure::disk("cannot remove the pushed state", &error));
        }
        if let Some(lock) = done.lock() {
            return Err(lock_failure(lock.as_ref(), &self.backend));
        }
        if done.says("cannot import state with") || done.says("cannot overwrite existing state") {
            return Err(Failure::terminal(
                "StateDiverged",
                format!(
                    "a state that an earlier run could not save, {} on this worker, does not follow the one in {}: compare the two, push or remove the file, then reconcile ({})",
                    kept.display(),
                    self.backend.place,
                    done.errors()
                ),
            ));
        }
        Err(Failure::transient(
            "StateUnsaved",
            format!(
                "the state that an earlier run could not save cannot be pushed yet: {}",
                done.errors()
            ),
        ))
    }

    /// Frees a lock when a run that is over, of this worker or of a dead one on this machine, left it.
    pub(crate) async fn free_dead_lock(&self, lock: &LockInfo) -> Result<bool, Failure> {
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let from_here = lock
            .who
            .rsplit_once('@')
            .is_some_and(|(_, host)| host == here.trim());
        let created = parse_created(&lock.created);
        let mut over = self
            .dead
            .iter()
            .map(DeadRun::window)
            .chain(self.task.home.unreleased(&self.task.uid));
        let by_dead = created.is_some_and(|created| over.any(|run| run.holds(created)));
        let plain_id = lock
            .id
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !lock.id.starts_with('-');
        if !(from_here && by_dead && plain_id) {
            return Ok(false);
        }
        tracing::warn!(lock = %lock.id, who = %lock.who, "freeing the lock of a run that is over and could not release it");
        let done = self
            .run("force-unlock", &["force-unlock", "-force", &lock.id])
            .await?;
        Ok(done.is_success())
    }

    /// Whether runs of this resource that are over may have left a lock.
    pub(crate) fn has_dead_runs(&self) -> bool {
        !self.dead.is_empty() || !self.task.home.unreleased(&self.task.uid).is_empty()
    }

    /// Says that what dead runs left is dealt with.
    pub(crate) fn forget_dead_runs(&mut self) {
        for run in self.dead.drain(..) {
            run.remove();
        }
        self.task.home.forget_unreleased(&self.task.uid);
    }
}

/// A lock that somebody else holds.
pub(crate) fn lock_failure(lock: Option<&LockInfo>, backend: &StateBackend) -> Failure {
    match lock {
        Some(lock) => Failure::transient(
            "WaitingForLock",
            format!(
                "the state is locked by {lock}; if that run is dead, free it with `force-unlock {}`",
                lock.id
            ),
        ),
        None => Failure::transient(
            "WaitingForLock",
            format!(
                "the state in {} is locked, but the lock does not say by whom; if nothing runs, remove the lock object",
                backend.place
            ),
        ),
    }
}

/// `2026-11-29 23:39:33.515417766 +0000 UTC`
fn parse_created(text: &str) -> Option<std::time::SystemTime> {
    let text = text
        .strip_suffix(" +0000 UTC")
        .map(|text| format!("{}Z", text.replacen(' ', "T", 1)));
    let time: jiff::Timestamp = text?.parse().ok()?;
    Some(std::time::SystemTime::from(time))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_a_lock_is_read() {
        let time = parse_created("2026-11-29 23:39:33.515417766 +0000 UTC").unwrap();
        assert_eq!(
            time.duration_since(std::time::UNIX_EPOCH)
                .unwrap()
                .as_secs(),
            1_795_995_573
        );
        assert!(parse_created("yesterday").is_none());
    }
}
