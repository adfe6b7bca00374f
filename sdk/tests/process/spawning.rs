//! What keeps a program from starting, and what it gets when it starts.

use super::*;

use std::os::unix::fs::PermissionsExt;

use converge_sdk::process::SpawnError;

async fn refused(command: Command) -> SpawnError {
    run_until(command, pending::<()>())
        .await
        .expect_err("it must not start")
}

fn plain(program: &str) -> Command {
    Command::new(program, Environment::inherited(&Inherit::All))
}

#[tokio::test]
async fn each_cause_has_a_message_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &str, mode: u32| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    };
    let plain_file = file("plain", "echo", 0o644);
    let no_shebang = file("noshebang", "echo hi\n", 0o755);
    let bad_interpreter = file("interp", "#!/no/such/interpreter\n", 0o755);
    let cases = [
        (plain(&dir.path().display().to_string()), "is a directory"),
        (plain("/no/such/program"), "was not found"),
        (plain("no-such-program-anywhere"), "in PATH"),
        (
            plain("true").cwd(dir.path().join("missing")),
            "does not exist",
        ),
        (plain("true").cwd(&plain_file), "is not a directory"),
        (plain(&no_shebang), "\"#!\""),
        (plain(&plain_file), "not executable"),
        (plain(&bad_interpreter), "interpreter its first line names"),
        (
            plain("true").arg("x").arg("a\0b"),
            "argument 2 contains a NUL byte",
        ),
        (plain("tr\0ue"), "the program's name contains a NUL byte"),
        (
            plain("true").cwd("/tmp\0"),
            "the working directory contains a NUL byte",
        ),
        (
            plain("true").arg("x".repeat(131_072)),
            "argument 1: too long",
        ),
        (
            plain("true").args(vec!["x".repeat(131_071); 17]),
            "together: too long",
        ),
    ];
    let mut messages = std::collections::BTreeSet::new();
    for (command, expected) in cases {
        let error = refused(command).await;
        assert!(!error.is_transient(), "{error}");
        assert!(
            error.to_string().contains(expected),
            "{error} should contain {expected:?}"
        );
        let task_error = converge_sdk::TaskError::from(error);
        assert!(task_error.is_terminal());
        assert!(
            messages.insert(task_error.message().to_owned()),
            "{}",
            task_error.message()
        );
    }
}

#[tokio::test]
async fn the_longest_argument_the_kernel_takes_is_passed() {
    let finished = finish(bash("echo ${#1}").arg("name").arg("x".repeat(131_071))).await;
    assert_eq!(finished.stdout.text(100), "131071\n");
}

#[tokio::test]
async fn a_script_runs_in_a_private_directory_that_is_gone_afterwards() {
    let command = plain("bash")
        .script("pwd; stat -c %a .; touch more; chmod 0 more; mkdir -p a/b; echo \"$0\"");
    let finished = finish(command).await;
    let text = finished.stdout.text(4096);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[1], "700");
    assert_eq!(lines[2], format!("{}/script", lines[0]));
    assert!(!Path::new(lines[0]).exists());
}

#[tokio::test]
async fn programs_lead_a_group_of_their_own_and_get_no_stray_descriptor() {
    converge_sdk::process::prepare_worker().await;
    let script = "[ $(ps -o pgid= -p $$) = $$ ] && echo leader; exec ls /proc/self/fd";
    let text = finish(bash(script)).await.stdout.text(4096);
    // 3 is the directory that ls reads.
    assert_eq!(text, "leader\n0\n1\n2\n3\n");
}

#[tokio::test]
async fn the_environment_is_exactly_what_was_given_and_the_cookie() {
    let mut env = Environment::empty();
    env.set("A", "1").set("PATH", "/usr/bin:/bin");
    let text = finish(Command::new("env", env)).await.stdout.text(4096);
    let mut names: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["A", "CONVERGE_TASK_COOKIE", "PATH"]);
}

/// Scripts are handed to their interpreter, so a descriptor of them that a concurrent spawn inherited for a moment does no harm.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_script_is_ever_busy() {
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let noise: Vec<_> = (0..4)
        .map(|_| {
            let stop = stop.clone();
            std::thread::spawn(move || {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::process::Command::new("/bin/true").status().unwrap();
                }
            })
        })
        .collect();
    let mut tasks = tokio::task::JoinSet::new();
    let mut failed = Vec::new();
    for _ in 0..500 {
        if tasks.len() >= 16 {
            failed.extend(tasks.join_next().await.unwrap().unwrap());
        }
        tasks.spawn(async { finish(plain("sh").script(":")).await.failure() });
    }
    while let Some(result) = tasks.join_next().await {
        failed.extend(result.unwrap());
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for thread in noise {
        thread.join().unwrap();
    }
    assert!(failed.is_empty(), "{failed:?}");
}
