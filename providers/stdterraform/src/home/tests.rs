//! Tests of `home`.

use super::*;

fn home() -> (tempfile::TempDir, Home) {
    let directory = tempfile::tempdir().unwrap();
    let home = Home::open(&directory.path().join("data")).unwrap();
    (directory, home)
}

#[test]
fn a_live_run_is_not_dead_and_a_dead_one_is() {
    let (_directory, home) = home();
    let run = home.new_run("uid-1").unwrap();
    assert!(home.dead_runs("uid-1").unwrap().is_empty());
    let path = run.path().to_owned();
    fs::create_dir_all(path.join("tree/mod")).unwrap();
    fs::write(path.join("tree/mod").join(ERRORED), "{}").unwrap();
    drop(run);
    assert!(
        home.dead_runs("other").unwrap().is_empty(),
        "another uid's run is nobody's business"
    );
    let dead = home.dead_runs("uid-1").unwrap();
    assert_eq!(dead.len(), 1);
    assert!(
        home.dead_runs("uid-1").unwrap().is_empty(),
        "one deals with it at a time"
    );
    let kept = home
        .keep_errored("uid-1", &dead[0].errored().unwrap())
        .unwrap();
    assert_eq!(kept, home.kept("uid-1"));
    assert!(dead[0].window().holds(SystemTime::now()));
    assert!(
        !dead[0]
            .window()
            .holds(SystemTime::now() - Duration::from_secs(3600))
    );
    assert!(
        !dead[0]
            .window()
            .holds(SystemTime::now() + Duration::from_secs(3600))
    );
    dead.into_iter().for_each(DeadRun::remove);
    assert!(!path.exists() && kept.exists());
}

#[test]
fn a_dead_run_in_which_a_process_works_is_waited_for() {
    let (_directory, home) = home();
    let run = home.new_run("u").unwrap();
    let path = run.path().to_owned();
    run.write(ERRORED, "{}").unwrap();
    drop(run);
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .current_dir(&path)
        .spawn()
        .unwrap();
    let failure = home.dead_runs("u").unwrap_err();
    assert!(!failure.terminal && failure.message.contains(&child.id().to_string()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(home.dead_runs("u").unwrap().len(), 1);
}

#[test]
fn a_run_leaves_nothing_behind() {
    let (_directory, home) = home();
    let run = home.new_run("u").unwrap();
    let path = run.path().to_owned();
    run.write("secret", "x").unwrap();
    drop(run);
    assert!(!path.exists());
}

#[test]
fn a_tree_lives_as_long_as_somebody_needs_it() {
    let (directory, home) = home();
    let tree = directory.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    fs::write(tree.join("a/b/main.tf"), "x").unwrap();
    home.keep_tree("one", "sha256:aa", &tree).unwrap();
    home.keep_tree("two", "sha256:aa", &tree).unwrap();
    home.keep_tree("one", "git:bb", &tree).unwrap();
    home.release_trees("one", Some("git:bb"));
    let kept = home.tree("sha256:aa").unwrap();
    assert_eq!(fs::read_to_string(kept.join("a/b/main.tf")).unwrap(), "x");
    home.forget("two");
    assert!(home.tree("sha256:aa").is_none() && home.tree("git:bb").is_some());
    assert!(home.tree("").is_none());
}

#[test]
fn a_kept_state_is_never_overwritten() {
    let (directory, home) = home();
    for text in ["first", "second"] {
        let file = directory.path().join(text);
        fs::write(&file, text).unwrap();
        home.keep_errored("u", &file).unwrap();
    }
    assert_eq!(fs::read_to_string(home.kept("u")).unwrap(), "first");
    assert_eq!(listed(home.kept("u").parent().unwrap()).len(), 2);
    home.forget("u");
    assert!(home.kept("u").exists());
}

#[test]
fn a_run_that_left_its_lock_is_remembered_until_the_next() {
    let (_directory, home) = home();
    let before = SystemTime::now();
    home.note_unreleased("u", before);
    home.note_unreleased("u", before);
    let windows = home.unreleased("u");
    assert_eq!(windows.len(), 2);
    assert!(windows[0].holds(before) && !windows[0].holds(before - Duration::from_secs(60)));
    home.forget_unreleased("u");
    assert!(home.unreleased("u").is_empty());
}

#[tokio::test]
async fn a_lock_is_held_by_one_at_a_time() {
    let (_directory, home) = home();
    let held = home.lock("x").await.unwrap();
    let second = home.lock("x");
    tokio::pin!(second);
    assert!(
        tokio::time::timeout(Duration::from_millis(50), second.as_mut())
            .await
            .is_err()
    );
    drop(held);
    tokio::time::timeout(Duration::from_secs(5), second)
        .await
        .unwrap()
        .unwrap();
}
