//! Pipes: floods, deadlocks, early ends, bytes that are no text.

use super::*;

use converge_sdk::process::{Capture, Ending, REDACTED, Redactions};

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test]
async fn writing_much_before_reading_does_not_deadlock() {
    let script = "head -c 8388608 /dev/zero | tr '\\0' x; cat >/dev/null";
    let command = bash(script)
        .stdin(vec![b'y'; 8 << 20])
        .stdout(Capture::Whole(16 << 20));
    let finished = finish(command.timeout(Some(Duration::from_secs(30)))).await;
    assert!(finished.failure().is_none(), "{:?}", finished.failure());
    assert_eq!(finished.stdout.total_bytes(), 8 << 20);
}

#[tokio::test]
async fn eight_mebibytes_come_back_as_they_went_in() {
    let sent: Vec<u8> = (0..8_u32 << 20).map(|at| b'a' + (at % 23) as u8).collect();
    let finished = finish(
        bash("cat")
            .stdin(sent.clone())
            .stdout(Capture::Whole(16 << 20)),
    )
    .await;
    assert!(finished.stdout.bytes() == sent);
}

#[tokio::test]
async fn not_reading_stdin_is_no_failure() {
    for script in [
        "echo '{\"ok\":1}'",
        "exec 0<&-; sleep .3; echo '{}'",
        "head -c 1 >/dev/null; echo '{}'",
    ] {
        let finished = finish(bash(script).stdin(vec![b'x'; 1 << 20])).await;
        assert!(
            finished.failure().is_none(),
            "{script}: {:?}",
            finished.failure()
        );
        assert!(finished.stdout.text(100).starts_with('{'), "{script}");
    }
}

#[tokio::test]
async fn without_stdin_a_program_reads_its_end_at_once() {
    let finished = finish(bash("cat; echo done")).await;
    assert_eq!(finished.stdout.text(100), "done\n");
}

#[tokio::test]
async fn an_end_of_stdout_is_not_an_exit() {
    let finished = finish(bash("exec 1>&- 2>&-; sleep .3; exit 3")).await;
    assert_eq!(finished.exit_code(), Some(3));
    assert!(finished.duration >= Duration::from_millis(300));
}

#[tokio::test]
async fn bytes_that_are_no_text_become_text_and_are_counted_exactly() {
    let finished = finish(bash(
        r"printf '\x88\xff\xc3'; head -c 70000 /dev/urandom; printf 'é'",
    ))
    .await;
    let text = finished.stdout.text(4096);
    assert_eq!(finished.stdout.total_bytes(), 70_005);
    assert!(text.len() <= 4096 && text.ends_with('é') && !text.contains('\0'));
    serde_json::to_string(&text).unwrap();
}

#[tokio::test]
async fn a_gibibyte_in_one_line_costs_no_memory() {
    finish(bash(":")).await;
    let before = resident_kib();
    let command = bash("head -c 1073741824 /dev/zero; head -c 268435456 /dev/zero >&2")
        .stdout(Capture::Tail(64 << 10));
    let finished = finish(command).await;
    assert_eq!(finished.stdout.total_bytes(), 1 << 30);
    assert_eq!(finished.stderr.total_bytes(), 1 << 28);
    assert_eq!(finished.stdout.bytes().len(), 64 << 10);
    // The other tests of this process run meanwhile and hold up to some 50 MiB: far below what would be kept otherwise.
    let grown = resident_kib().saturating_sub(before);
    assert!(grown < 128 << 10, "{grown} KiB");
}

#[tokio::test]
async fn an_answer_beyond_its_hard_limit_kills_the_program_and_is_terminal() {
    let started = Instant::now();
    let command = bash("trap '' TERM; yes; sleep 60").stdout(Capture::Whole(1 << 20));
    let finished = finish(command.timeout(Some(Duration::from_secs(30)))).await;
    assert_eq!(
        finished.ending,
        Ending::OutputTooLarge {
            limit_bytes: 1 << 20
        }
    );
    assert!(started.elapsed() < Duration::from_secs(5));
    let failure = finished.failure().unwrap();
    assert!(
        failure.terminal && failure.message.contains("1048576"),
        "{}",
        failure.message
    );
}

#[tokio::test]
async fn an_answer_of_exactly_the_limit_is_an_answer() {
    let finished = finish(bash("head -c 100000 /dev/zero").stdout(Capture::Whole(100_000))).await;
    assert!(finished.failure().is_none());
}

#[tokio::test]
async fn a_secret_in_pieces_is_in_no_tail_and_no_message() {
    let secret = "line-one-0001\nline-two-0002";
    let script = format!(
        "s=$'{}'; printf '%s' \"${{s:0:20}}\"; sleep .05; echo \"${{s:20}}\"; echo \"  ${{s#*$'\\n'}}  \"; echo \"$s\" >&2; exit 1",
        secret.replace('\n', "\\n")
    );
    let lines = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
    let seen = lines.clone();
    let command = bash(&script)
        .redact(Redactions::new([secret]))
        .on_stdout_line(move |line| seen.lock().unwrap().push_str(line));
    let finished = finish(command).await;
    let all = format!(
        "{}{}{}{}",
        finished.stdout.text(4096),
        finished.stderr.text(4096),
        finished.failure().unwrap().message,
        lines.lock().unwrap()
    );
    assert!(
        !all.contains("line-two") && !all.contains("line-one") && !all.contains("0002"),
        "{all}"
    );
    assert!(all.contains(REDACTED));
}

#[tokio::test]
async fn lines_of_stdout_arrive_as_they_come() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let command = bash("printf 'a\\r\\nb'; printf 'c\\nd'")
        .on_stdout_line(move |line| sender.send(line.to_owned()).unwrap());
    finish(command).await;
    assert_eq!(receiver.iter().collect::<Vec<_>>(), ["a", "bc", "d"]);
}
