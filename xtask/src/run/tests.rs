//! The runner against stand-ins for the three programs, written in bash: what it says, and that nothing outlives it.

use std::process::Command;

use serde_json::json;

use super::*;

#[test]
fn ready_means_all_of_them_and_at_least_one() {
    let rows = [
        Row::made("a/x", "Ready", None),
        Row::made("a/y", "Degraded", None),
    ];
    assert_eq!(unready(&rows, None), ["a/y"]);
    assert_eq!(unready(&rows, Some(&["a/x".into()])), [""; 0]);
    assert_eq!(
        unready(&rows, Some(&["a/z".into()])),
        ["a/z"],
        "a resource that is not there is not Ready"
    );
    assert_eq!(
        unready(&[], None).len(),
        1,
        "an example that applies nothing proves nothing"
    );
}

#[test]
fn a_picture_is_drawn_of_each_composite_at_the_top() {
    let rows = [
        Row::made("leaf/alone", "Ready", None),
        Row::made("app/a", "Ready", None),
        Row::made("app/inner", "Ready", Some("app/a")),
        Row::made("leaf/deep", "Ready", Some("app/inner")),
        Row::made("app/empty", "Ready", None),
    ];
    assert_eq!(composites(&rows), ["app/a"]);
}

#[test]
fn a_promise_is_compared_by_value() {
    let answer = json!({"status": {"n": 3, "list": [1, 2]}});
    let wanted = |value: Value| {
        value
            .as_object()
            .unwrap()
            .clone()
            .into_iter()
            .collect::<BTreeMap<_, _>>()
    };
    assert_eq!(
        differences(
            "a/x",
            &answer,
            &wanted(json!({"/status/n": 3, "/status/list/1": 2}))
        ),
        [""; 0]
    );
    assert_eq!(
        differences(
            "a/x",
            &answer,
            &wanted(json!({"/status/n": 4, "/status/no": null}))
        ),
        [
            "a/x /status/n: 3 instead of 4",
            "a/x /status/no: missing, null was promised"
        ]
    );
}

#[test]
fn placeholders_are_replaced_in_text_and_bytes_are_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let from = dir.path().join("from");
    std::fs::create_dir_all(from.join("sub")).unwrap();
    std::fs::write(from.join("sub/a.json"), "{\"dir\": \"__X__/a\"}").unwrap();
    std::fs::write(from.join("b.bin"), b"\xff__X__").unwrap();
    let to = dir.path().join("to");
    render(&from, &to, &[("__X__", Path::new("/tmp/y"))]).unwrap();
    assert_eq!(
        std::fs::read_to_string(to.join("sub/a.json")).unwrap(),
        "{\"dir\": \"/tmp/y/a\"}"
    );
    assert_eq!(std::fs::read(to.join("b.bin")).unwrap(), b"\xff__X__");
}

/// An example folder and stand-ins whose state is files in a directory.
struct World {
    dir: tempfile::TempDir,
    programs: Programs,
    manifest: Manifest,
}

const CONVERGE: &str = r#"
while [ "$1" != --data-dir ]; do shift; done
mkdir -p "$2"
echo $$ > HERE/converge.pid
printf '{"api": "http://127.0.0.1:1", "broker": "http://127.0.0.1:2"}' > "$2/addresses.json.part"
mv "$2/addresses.json.part" "$2/addresses.json"
echo "converge says hello" >&2
exec sleep 1000
"#;

const WORKER: &str = r#"
printf '%s\n' "$BROKER_ADDR" "$PWD" "$EXAMPLE_DIR" "$FLAVOUR" "$(ls -A "$EXAMPLE_TMP" | wc -l)" > HERE/worker.seen.part
mv HERE/worker.seen.part HERE/worker.seen
echo $$ > HERE/worker.pid
echo "worker says hello" >&2
exec sleep 1000
"#;

/// Ready after the second list; a delete empties the list unless `stuck` is there.
const CONCTL: &str = r#"
echo "$CONVERGE_SERVER $*" >> HERE/calls
case "$1" in
  apply) cat "$3" >> HERE/applied; echo "leaf/a created" ;;
  list)
    if [ -e HERE/deleted ]; then echo '{"items": [], "revision": 9}'; exit; fi
    phase=Ready
    if ! [ -e HERE/looked ] || [ -e HERE/never ]; then phase=$(cat HERE/phase); fi
    touch HERE/looked
    echo '{"items": [{"kind": "leaf", "name": "a", "phase": "'"$phase"'", "failure": {"message": "boom"}}], "revision": 1}' ;;
  get) echo '{"status": {"n": 3}}' ;;
  describe) echo "described $2" ;;
  delete) [ -e HERE/stuck ] || touch HERE/deleted ;;
esac
"#;

/// Makes a program of a text. Another process writes it: a descriptor of ours, open for writing, could be inherited by what another test
/// starts at that moment, and the kernel runs no file that is open for writing.
fn script(dir: &Path, name: &str, text: &str) -> PathBuf {
    let (draft, path) = (dir.join(format!("{name}.draft")), dir.join(name));
    std::fs::write(&draft, format!("#!/usr/bin/env bash\n{text}")).unwrap();
    tree::run(
        Command::new("install")
            .args(["-m", "755"])
            .arg(&draft)
            .arg(&path),
    )
    .unwrap();
    path
}

impl World {
    fn new(manifest: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let here = dir.path();
        let program = |name: &str, text: &str| {
            script(
                here,
                name,
                &text.replace("HERE", &here.display().to_string()),
            )
        };
        let programs = Programs {
            converge: program("converge", CONVERGE),
            conctl: program("conctl", CONCTL),
            worker: Some(program("worker", WORKER)),
        };
        std::fs::create_dir(here.join("example")).unwrap();
        std::fs::write(here.join("example/a.json"), "in __EXAMPLE_DIR__").unwrap();
        std::fs::write(here.join("phase"), "Reconciling").unwrap();
        let mut full = json!({"about": "x", "apply": ["a.json"], "timeout_seconds": 1});
        full.as_object_mut()
            .unwrap()
            .extend(manifest.as_object().unwrap().clone());
        Self {
            dir,
            programs,
            manifest: serde_json::from_value(full).unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What a stand-in wrote, once it has.
    fn read(&self, name: &str) -> String {
        let limit = Instant::now() + Duration::from_secs(20);
        loop {
            match std::fs::read_to_string(self.path(name)) {
                Ok(text) if !text.is_empty() => return text,
                _ => assert!(Instant::now() < limit, "{name} was not written"),
            }
            std::thread::yield_now();
        }
    }

    fn runs(&self, name: &str) -> bool {
        Path::new(&format!("/proc/{}", self.read(name).trim())).exists()
    }
}

#[test]
fn a_run_applies_waits_compares_takes_down_and_leaves_nothing() {
    let world =
        World::new(json!({"env": {"FLAVOUR": "mint"}, "expect": {"leaf/a": {"/status/n": 3}}}));
    let dir = world.path("example");
    let mut run = Run::start(&dir, &world.manifest, &world.programs).unwrap();
    let scratch = run.stack.dir().to_owned();
    run.until_ready().unwrap();
    run.expect().unwrap();
    assert!(world.runs("converge.pid") && world.runs("worker.pid"));
    let shown = dir.display().to_string();
    assert_eq!(
        world.read("worker.seen").lines().collect::<Vec<_>>(),
        ["http://127.0.0.1:2", &shown, &shown, "mint", "0"]
    );
    assert_eq!(world.read("applied"), format!("in {shown}"));
    run.take_down().unwrap();
    assert!(
        world
            .read("calls")
            .lines()
            .any(|call| call == "http://127.0.0.1:1 delete leaf/a --wait --timeout 1s")
    );
    drop(run);
    assert!(
        !world.runs("converge.pid") && !world.runs("worker.pid"),
        "a process outlived the run"
    );
    assert!(!scratch.exists(), "the data directory outlived the run");
}

#[test]
fn what_does_not_get_ready_is_told_with_its_story_and_both_logs() {
    let world = World::new(json!({}));
    std::fs::write(world.path("never"), "").unwrap();
    let dir = world.path("example");
    let mut run = Run::start(&dir, &world.manifest, &world.programs).unwrap();
    world.read("worker.pid");
    let error = run.until_ready().unwrap_err().to_string();
    for wanted in [
        "not Ready: leaf/a",
        "described leaf/a",
        "converge says hello",
        "worker says hello",
    ] {
        assert!(error.contains(wanted), "{error:?} does not say {wanted:?}");
    }
}

#[test]
fn a_broken_promise_and_a_leftover_fail_the_run() {
    let world = World::new(json!({"expect": {"leaf/a": {"/status/n": 4}}}));
    std::fs::write(world.path("stuck"), "").unwrap();
    let dir = world.path("example");
    let mut run = Run::start(&dir, &world.manifest, &world.programs).unwrap();
    run.until_ready().unwrap();
    assert!(
        run.expect()
            .unwrap_err()
            .to_string()
            .contains("leaf/a /status/n: 3 instead of 4")
    );
    assert!(
        run.take_down()
            .unwrap_err()
            .to_string()
            .contains("left over: leaf/a")
    );
}

#[test]
fn a_control_plane_that_ends_at_once_is_told_with_its_last_words() {
    let world = World::new(json!({}));
    script(
        world.dir.path(),
        "converge",
        "echo 'port taken' >&2; exit 3",
    );
    let dir = world.path("example");
    let Err(error) = Run::start(&dir, &world.manifest, &world.programs) else {
        panic!("it started")
    };
    let error = error.to_string();
    assert!(
        error.contains("port taken") && error.contains("exit status: 3"),
        "{error}"
    );
}
