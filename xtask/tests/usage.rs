//! What a command line that makes no sense exits with.

use std::process::Command;

#[test]
fn wrong_usage_is_sixty_four_and_help_is_none() {
    for (args, code) in [
        (&["frobnicate"][..], 64),
        (&[], 64),
        (&["demo", "--twice"], 64),
        (&["ci", "--step", "nothing"], 64),
        (&["bench", "nothing"], 64),
        (&["guards", "nothing"], 64),
        (&["example", "nothing"], 64),
        (&["new-provider", "Not A Name"], 64),
        (&["new-provider", "mine", "--from", "nothing"], 64),
        (&["--help"], 0),
        (&["ci", "--help"], 0),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(args)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(said.is_empty(), code == 0, "{args:?}: {said}");
    }
}
