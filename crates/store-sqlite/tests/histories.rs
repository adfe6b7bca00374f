//! Random histories on this store beside the reference store: reopened from what a kill leaves, and really killed.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use std::sync::Arc;

use converge_conformance::clock::ManualClock;
use converge_conformance::sim::{self, Mirror, Open};
use converge_engine::Store;
use converge_engine::model::Millis;
use converge_store_sqlite::{Clock, Options, SqliteStore};

const PATH: &str = "STORE_HISTORY_PATH";
const SEED: &str = "STORE_HISTORY_SEED";
const STEPS: usize = 120;

struct Hand(ManualClock);

impl Clock for Hand {
    fn now_ms(&self) -> Millis {
        self.0.now_ms()
    }
}

fn open(path: &Path, clock: &ManualClock, cache_rows: usize) -> Result<Arc<dyn Store>, String> {
    let options = Options {
        clock: Arc::new(Hand(clock.clone())),
        cache_rows,
        ..Options::default()
    };
    let store = SqliteStore::open(path, options).map_err(|error| error.to_string())?;
    Ok(Arc::new(store))
}

/// Opens copies of the files as they are: what is there when the process dies at this moment.
fn open_copies(dir: PathBuf, clock: ManualClock, cache_rows: usize) -> Open {
    let mut count = 0;
    let path = move |count: u32| dir.join(format!("store{count}.db"));
    Box::new(move || {
        let (from, to) = (path(count), path(count + 1));
        for suffix in ["", "-wal"] {
            let mut from = from.clone().into_os_string();
            let mut to = to.clone().into_os_string();
            from.push(suffix);
            to.push(suffix);
            match std::fs::copy(&from, &to) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error.to_string());
                }
                _ => {}
            }
        }
        count += 1;
        open(&to, &clock, cache_rows)
    })
}

fn fail(seed: u64, wrong: &sim::Wrong) -> ! {
    let tail: Vec<_> = wrong.log.lines().rev().take(60).collect();
    let tail: Vec<_> = tail.into_iter().rev().collect();
    panic!("seed {seed}: {}\n{}", wrong.why, tail.join("\n"));
}

#[test]
fn histories_are_those_of_the_reference_store_over_crashes() {
    for seed in 1..=24 {
        let dir = tempfile::tempdir().unwrap();
        let clock = ManualClock::at(sim::START_MS);
        // With next to no memory every row is read back from the file.
        let cache_rows = if seed % 2 == 0 { 1 } else { 100_000 };
        let open = open_copies(dir.path().to_owned(), clock.clone(), cache_rows);
        let mirror = Mirror::new(clock.clone(), open, Box::new(|| {})).unwrap();
        if let Err(wrong) = sim::run_on(mirror, clock, seed, STEPS) {
            fail(seed, &wrong);
        }
    }
}

/// Run by the test below in a process of its own: tells a history and says how many commands were answered.
#[test]
#[ignore = "the child of the test below"]
fn child() {
    let (Ok(path), Ok(seed)) = (std::env::var(PATH), std::env::var(SEED)) else {
        return;
    };
    let clock = ManualClock::at(sim::START_MS);
    let mut count = 0_u64;
    let answered = move || {
        count += 1;
        println!("answered {count}");
    };
    let store = clock.clone();
    let open: Open = Box::new(move || open(Path::new(&path), &store, 100_000));
    let mirror = Mirror::new(clock.clone(), open, Box::new(answered)).unwrap();
    let seed = seed.parse().unwrap();
    if let Err(wrong) = sim::run_on(mirror, clock, seed, STEPS) {
        fail(seed, &wrong);
    }
}

#[test]
fn a_killed_history_goes_on_from_what_was_answered() {
    for seed in 101..=112_u64 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store.db");
        let mut process = Process::new(std::env::current_exe().unwrap())
            .args(["--exact", "child", "--ignored", "--nocapture"])
            .env(PATH, &path)
            .env(SEED, seed.to_string())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut answered = 0_u64;
        let kill_after = 20 + seed * 37 % 120;
        let mut killed = false;
        for line in BufReader::new(process.stdout.take().unwrap()).lines() {
            let line = line.unwrap();
            let count = line
                .rsplit_once("answered ")
                .and_then(|(_, count)| count.parse().ok());
            // The last line may be torn: then it reads as a smaller number.
            if let Some(count) = count {
                answered = answered.max(count);
            }
            if answered >= kill_after && !killed {
                killed = true;
                process.kill().unwrap();
            }
        }
        process.wait().unwrap();
        assert!(killed, "the child ended by itself");
        let clock = ManualClock::at(sim::START_MS);
        let store = clock.clone();
        let open: Open = Box::new(move || open(&path, &store, 100_000));
        let mirror = Mirror::resumed(clock.clone(), open, answered).unwrap();
        if let Err(wrong) = sim::run_on(mirror, clock, seed, STEPS) {
            fail(seed, &wrong);
        }
    }
}
