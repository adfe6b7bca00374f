//! Waiting for a resource: asks again until what is waited for holds, fails for good, or time is up.

use std::time::Duration;

use converge_client::types::{ObjectRef, Phase, Resource};
use converge_client::{Client, Error};
use tokio::time::{Instant, sleep};

use crate::context::{POLL_INTERVAL, Progress};
use crate::exit::{self, Failure, Result};

/// How often a server that went away while it was waited on may fail to answer in a row: it may be restarting.
const UNREACHABLE_LIMIT: u32 = 20;

/// When to give up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// A deadline `timeout` from now.
    pub(crate) fn after(timeout: Duration) -> Self {
        let now = Instant::now();
        // A time nobody lives to see is as good as none.
        let at = now
            .checked_add(timeout)
            .unwrap_or(now + Duration::from_secs(86_400 * 365));
        Self { at, timeout }
    }

    fn is_over(self) -> bool {
        Instant::now() >= self.at
    }

    async fn pause(self) {
        let left = self.at.saturating_duration_since(Instant::now());
        sleep(POLL_INTERVAL.min(left)).await;
    }

    fn missed(self, what: &str) -> Failure {
        Failure::new(exit::TIMEOUT, format!("{what} (waited {:?})", self.timeout))
    }
}

/// What is waited for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Goal {
    /// This phase, with at least this generation synced when it is Ready.
    Phase {
        phase: Phase,
        generation: u64,
        /// How long the resource may go on being Failed before that counts.
        grace: Duration,
    },
    /// A condition with this status, observed at the newest generation.
    Condition { type_: String, status: String },
    /// That it is gone; or, when an identity is given, that this one is.
    Gone { uid: Option<String> },
}

/// How one look at the resource went.
enum Verdict {
    Reached,
    NotYet,
    Never(Failure),
}

/// Waits until `goal` holds for the resource and gives its last answer, if it still has one.
pub(crate) async fn wait_for(
    client: &Client,
    progress: &mut Progress,
    target: &ObjectRef,
    goal: &Goal,
    deadline: Deadline,
) -> Result<Option<Resource>> {
    let mut unreachable = 0;
    let started = Instant::now();
    loop {
        let answer = client.resource(&target.kind, &target.name).await;
        match answer {
            Ok(answer) => {
                unreachable = 0;
                let resource = answer.value;
                progress.status(&situation(&resource));
                match judge(goal, &resource, started.elapsed()) {
                    Verdict::Reached => {
                        progress.clear();
                        return Ok(Some(resource));
                    }
                    Verdict::Never(failure) => {
                        progress.clear();
                        return Err(failure);
                    }
                    Verdict::NotYet if deadline.is_over() => {
                        progress.clear();
                        return Err(deadline.missed(&short_of(goal, &resource)));
                    }
                    Verdict::NotYet => {}
                }
            }
            Err(err) if err.is_not_found() => {
                progress.clear();
                return match goal {
                    Goal::Gone { .. } => Ok(None),
                    _ => Err(Failure::from(err).about(target)),
                };
            }
            Err(err) => {
                unreachable += 1;
                let passes = matches!(err, Error::Unreachable { .. }) || err.status() == Some(503);
                if !passes || unreachable > UNREACHABLE_LIMIT || deadline.is_over() {
                    progress.clear();
                    return Err(Failure::from(err).about(target));
                }
            }
        }
        deadline.pause().await;
    }
}

fn judge(goal: &Goal, resource: &Resource, waited: Duration) -> Verdict {
    match goal {
        Goal::Phase {
            phase,
            generation,
            grace,
        } => {
            let synced = *phase != Phase::Ready || resource.synced_gen >= *generation;
            if resource.phase == *phase && synced && resource.generation >= *generation {
                return Verdict::Reached;
            }
            // Failed means: at the current inputs, for good. A generation that came after the one waited for took its
            // place, so its failure counts too.
            if resource.phase == Phase::Failed
                && resource.generation >= *generation
                && waited >= *grace
            {
                return Verdict::Never(Failure::new(exit::REFUSED, situation(resource)));
            }
            Verdict::NotYet
        }
        Goal::Condition { type_, status } => {
            let holds = resource.conditions.iter().any(|c| {
                c.type_.eq_ignore_ascii_case(type_)
                    && c.status.as_str().eq_ignore_ascii_case(status)
                    // What was so of an older spec says nothing of this one.
                    && c.observed_generation >= resource.generation
            });
            if holds {
                Verdict::Reached
            } else {
                Verdict::NotYet
            }
        }
        Goal::Gone { uid } => match uid {
            // Deleted and made again: the one that was meant is gone.
            Some(uid) if *uid != resource.uid => Verdict::Reached,
            _ => Verdict::NotYet,
        },
    }
}

/// How the resource is doing, and what it lacks of the condition that was waited for.
fn short_of(goal: &Goal, resource: &Resource) -> String {
    let situation = situation(resource);
    let Goal::Condition { type_, .. } = goal else {
        return situation;
    };
    let conditions = &resource.conditions;
    let found = conditions
        .iter()
        .find(|condition| condition.type_.eq_ignore_ascii_case(type_));
    match found {
        Some(condition) if condition.observed_generation < resource.generation => format!(
            "{situation}; {} is {} of generation {}, and the newest is {}",
            condition.type_,
            condition.status.as_str(),
            condition.observed_generation,
            resource.generation
        ),
        Some(condition) => format!(
            "{situation}; {} is {}",
            condition.type_,
            condition.status.as_str()
        ),
        None => {
            let types: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
            let others = match types.is_empty() {
                true => "it has none".to_owned(),
                false => format!("it has {}", types.join(", ")),
            };
            format!("{situation}; it has no condition {type_}: {others}")
        }
    }
}

/// How the resource is doing, in a sentence.
pub(crate) fn situation(resource: &Resource) -> String {
    let mut text = format!("{} is {}", resource.reference(), resource.phase);
    if let Some(waiting) = &resource.waiting {
        text.push_str(&format!(", waiting: {waiting}"));
    }
    if let Some(failure) = &resource.failure {
        text.push_str(&format!(": {}", failure.message.trim_end()));
    } else if matches!(resource.phase, Phase::Degraded | Phase::Failed) {
        let unhealthy = resource.conditions.iter().find(|condition| {
            condition.status == converge_client::types::ConditionStatus::False
                && !condition.message.is_empty()
        });
        if let Some(condition) = unhealthy {
            text.push_str(&format!(
                ": {}: {}",
                condition.type_,
                condition.message.trim_end()
            ));
        }
    }
    text
}
