//! What is answered, seen and signalled when, and what a command or a commit that fails leaves behind: nothing.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use converge_engine::Refusal;
use converge_engine::command::ConfigApply;
use converge_engine::store::Signals;

use super::*;

#[tokio::test]
async fn a_command_sees_what_the_one_before_it_wrote_and_a_refused_one_writes_nothing() {
    let world = World::with_leaf(Options::default()).await;
    let batch = vec![
        apply("a", "{}"),
        delete("nobody"),
        apply("a", "{}"),
        apply("a", "[]"),
    ];
    let answers = world.store.transact(batch).await;
    assert!(
        matches!(
            answers[..],
            [
                Ok(Reply::Resource {
                    applied: Applied::Created,
                    ..
                }),
                Err(TransactError::Refused(Refusal::NotFound(_))),
                Ok(Reply::Resource {
                    applied: Applied::Unchanged,
                    ..
                }),
                Err(TransactError::Refused(Refusal::Invalid { .. })),
            ]
        ),
        "{answers:?}"
    );
    let found = get(&world.store, "a").await.unwrap();
    assert_eq!(found.row.generation, 1);
}

fn config() -> Command {
    Command::ConfigApply(ConfigApply {
        name: "c".parse().unwrap(),
        kv: leaf(),
        is_default: Some(true),
        spec: Some("{}".parse().unwrap()),
        data: None,
        replace_default: false,
        precondition: Precondition::None,
        who: None,
    })
}

/// Holds COMMIT until told what to do with it.
#[derive(Default)]
struct Gate {
    armed: AtomicBool,
    refuse: AtomicBool,
    inside: Mutex<bool>,
    moved: Condvar,
}

impl Gate {
    fn hook(self: &Arc<Self>) -> Arc<dyn Fn() -> bool + Send + Sync> {
        let gate = self.clone();
        Arc::new(move || {
            if gate.armed.load(Ordering::SeqCst) {
                let mut inside = gate.inside.lock().unwrap();
                *inside = true;
                gate.moved.notify_all();
                while gate.armed.load(Ordering::SeqCst) {
                    inside = gate.moved.wait(inside).unwrap();
                }
                *inside = false;
            }
            gate.refuse.load(Ordering::SeqCst)
        })
    }

    /// From now on COMMIT is held, until [`Gate::open`] or the end of the test: a store that is dropped waits for its writer.
    fn arm(self: &Arc<Self>) -> Opens {
        self.armed.store(true, Ordering::SeqCst);
        Opens(self.clone())
    }

    fn wait_inside(&self) {
        let inside = self.inside.lock().unwrap();
        let limit = Duration::from_secs(10);
        let (inside, _) = self
            .moved
            .wait_timeout_while(inside, limit, |inside| !*inside)
            .unwrap();
        assert!(*inside, "the writer never came to its COMMIT");
    }

    fn open(&self) {
        let inside = self.inside.lock().unwrap();
        self.armed.store(false, Ordering::SeqCst);
        drop(inside);
        self.moved.notify_all();
    }
}

struct Opens(Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_answered_or_seen_before_commit_and_only_what_may_be_claimed_is_told() {
    let gate = Arc::new(Gate::default());
    let world = World::with_leaf(Options {
        on_commit: Some(gate.hook()),
        ..Options::default()
    })
    .await;
    let mut signals = world.store.subscribe();
    let _opens = gate.arm();
    let mut answers = Box::pin(world.store.transact(vec![config(), apply("a", "{}")]));
    let soon = Duration::from_millis(1);
    // Polling once sends it.
    tokio::time::timeout(soon, &mut answers)
        .await
        .expect_err("answered while COMMIT is held");
    gate.wait_inside();
    let told = tokio::time::timeout(Duration::from_secs(10), signals.next())
        .await
        .expect("whoever claims may hurry");
    let ready = Signals {
        ready: [leaf()].into(),
        ..Signals::default()
    };
    assert_eq!(told, ready, "told while COMMIT is held");
    let mut claimed = Box::pin(world.one(claim(1)));
    tokio::time::timeout(soon, &mut claimed)
        .await
        .expect_err("claimed while COMMIT is held");
    tokio::time::timeout(soon, &mut answers)
        .await
        .expect_err("answered while COMMIT is held");
    tokio::time::timeout(soon, signals.next())
        .await
        .expect_err("signalled while COMMIT is held");
    assert!(get(&world.store, "a").await.is_none());
    gate.open();
    assert!(answers.await.iter().all(Result::is_ok));
    assert!(get(&world.store, "a").await.is_some());
    assert!(signals.next().await.configs.contains(&leaf()));
    // The claim that was under way is carried out after the commit it was told of.
    assert_eq!(tasks(claimed.await.unwrap()).len(), 1);
}

#[tokio::test]
async fn a_commit_that_fails_fails_every_command_of_the_batch_and_leaves_no_trace() {
    let gate = Arc::new(Gate::default());
    let world = World::with_leaf(Options {
        on_commit: Some(gate.hook()),
        ..Options::default()
    })
    .await;
    row(world.one(apply("a", "{}")).await);
    let before = world.store.revision().await.unwrap();
    gate.refuse.store(true, Ordering::SeqCst);
    let batch = vec![apply("a", r#"{"n": 1}"#), apply("b", "{}")];
    let answers = world.store.transact(batch).await;
    for answer in &answers {
        assert!(matches!(answer, Err(TransactError::Store(_))), "{answer:?}");
    }
    assert_eq!(answers.len(), 2);
    world.store.writable().expect_err("it just failed");
    gate.refuse.store(false, Ordering::SeqCst);
    assert!(get(&world.store, "b").await.is_none());
    assert_eq!(world.store.revision().await.unwrap(), before);
    // What was not committed is not remembered either.
    let (applied, again) = row(world.one(apply("a", r#"{"n": 1}"#)).await);
    assert_eq!((applied, again.generation), (Applied::Configured, 2));
    world.store.writable().expect("it takes writes again");
    let summary = world.store.resource_summary().await.unwrap();
    assert_eq!(summary, [(leaf(), Phase::Reconciling, 1)]);
}

#[tokio::test]
async fn a_command_that_cannot_be_written_is_undone_alone() {
    let world = World::with_leaf(Options::default()).await;
    let mut twin = apply("b", "{}");
    let (_, a) = row(world.one(apply("a", "{}")).await);
    if let Command::ResourceApply(apply) = &mut twin {
        // No two resources have one uid: the row is refused by the table, not by the engine.
        apply.new_uid = a.uid;
    }
    let batch = vec![apply("c", "{}"), twin, apply("d", "{}")];
    let answers = world.store.transact(batch).await;
    assert!(
        matches!(
            answers[..],
            [
                Ok(_),
                Err(TransactError::Store(StoreError::Unwritable(_))),
                Ok(_)
            ]
        ),
        "{answers:?}"
    );
    for (name, is_there) in [("a", true), ("b", false), ("c", true), ("d", true)] {
        assert_eq!(get(&world.store, name).await.is_some(), is_there, "{name}");
    }
    let summary = world.store.resource_summary().await.unwrap();
    assert_eq!(summary, [(leaf(), Phase::Reconciling, 3)]);
    assert_eq!(world.store.manifest_list().await.unwrap()[0].1.resources, 3);
    world
        .store
        .writable()
        .expect("one bad command is no full disk");
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let world = World::with_leaf(Options::default()).await;
    world.store.close().await;
    world.store.close().await;
    let answer = world.one(apply("a", "{}")).await;
    assert!(matches!(
        answer,
        Err(TransactError::Store(StoreError::Closed))
    ));
    assert!(matches!(
        world.store.revision().await,
        Err(StoreError::Closed)
    ));
    assert!(matches!(world.store.writable(), Err(StoreError::Closed)));
}

fn offered(command: Command) -> ClaimTasks {
    match command {
        Command::Claim(claim) => claim,
        other => panic!("{other:?}"),
    }
}

/// How many transactions have written.
fn counting() -> (Arc<AtomicUsize>, Options) {
    let commits = Arc::new(AtomicUsize::new(0));
    let counted = commits.clone();
    let hook = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        false
    };
    let options = Options {
        on_commit: Some(Arc::new(hook)),
        ..Options::default()
    };
    (commits, options)
}

#[tokio::test]
async fn a_standing_claim_is_carried_out_with_what_makes_something_claimable() {
    let (commits, options) = counting();
    let world = World::with_leaf(options).await;
    let before = commits.load(Ordering::SeqCst);
    let standing = world.store.stand(offered(claim(4))).unwrap();
    row(world.one(apply("a", "{}")).await);
    let claimed = tasks(standing.answer.await.unwrap());
    assert_eq!(claimed.len(), 1);
    assert_eq!(commits.load(Ordering::SeqCst) - before, 1, "one commit");
    let found = get(&world.store, "a").await.unwrap();
    assert_eq!(found.row.epoch, claimed[0].claim.epoch);
    assert!(found.row.claim.is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_standing_claim_is_answered_after_commit_and_claims_nothing_when_that_fails() {
    let gate = Arc::new(Gate::default());
    let world = World::with_leaf(Options {
        on_commit: Some(gate.hook()),
        ..Options::default()
    })
    .await;
    let mut standing = world.store.stand(offered(claim(4))).unwrap();
    let _opens = gate.arm();
    let mut applied = Box::pin(world.one(apply("a", "{}")));
    let soon = Duration::from_millis(1);
    tokio::time::timeout(soon, &mut applied)
        .await
        .expect_err("answered while COMMIT is held");
    gate.wait_inside();
    tokio::time::timeout(soon, &mut standing.answer)
        .await
        .expect_err("claimed while COMMIT is held");
    gate.refuse.store(true, Ordering::SeqCst);
    gate.open();
    applied.await.expect_err("the commit was refused");
    assert!(tasks(standing.answer.await.unwrap()).is_empty());
    gate.refuse.store(false, Ordering::SeqCst);
    row(world.one(apply("a", "{}")).await);
    assert_eq!(tasks(world.one(claim(4)).await.unwrap()).len(), 1);
}

#[tokio::test]
async fn a_standing_claim_survives_a_command_that_cannot_be_written() {
    let world = World::with_leaf(Options::default()).await;
    let (_, a) = row(world.one(apply("a", "{}")).await);
    assert_eq!(tasks(world.one(claim(1)).await.unwrap()).len(), 1);
    let standing = world.store.stand(offered(claim(4))).unwrap();
    let mut twin = apply("b", "{}");
    if let Command::ResourceApply(apply) = &mut twin {
        apply.new_uid = a.uid;
    }
    let answers = world.store.transact(vec![apply("c", "{}"), twin]).await;
    assert!(answers[0].is_ok() && answers[1].is_err(), "{answers:?}");
    assert_eq!(tasks(standing.answer.await.unwrap()).len(), 1);
    let found = get(&world.store, "c").await.unwrap();
    assert!(found.row.claim.is_some());
}
