//! A commit of a git repository as a plain tree.
//!
//! Must hold: git reads no configuration but ours (a hook or an `insteadOf` of somebody else cannot act), speaks https only, never prompts,
//! follows no link and fetches no submodule; a ref or URL stands behind `--`; a login is given by a helper script that answers for this
//! host alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use url::Url;

use crate::failure::Failure;
use crate::home::write_private;
use crate::source::Login;
use crate::task::{Helper, Ran, Task, ended};

/// Where a repository is and how to get in.
pub(super) struct Access<'a> {
    pub(super) url: &'a Url,
    pub(super) login: Option<&'a Login>,
}

/// Fetches `reference` (the default branch without one) into `tree`; gives the commit.
pub(super) async fn checkout(
    task: &Task<'_>,
    access: &Access<'_>,
    reference: Option<&str>,
    subdir: Option<&str>,
    into: &Path,
    tree: &Path,
) -> Result<String, Failure> {
    let git = Git {
        task,
        access,
        tree,
        askpass: askpass(access, into)?,
    };
    let shown = access.url.as_str();
    tracing::info!(repository = %task.redactor().redact(shown), reference = reference.unwrap_or("HEAD"), "fetching the module");
    git.must(
        &["init", "-q", "--template="],
        "the repository could not be begun",
    )
    .await?;
    let commit = git.fetch(reference, shown).await?;
    git.check_tree(&commit, subdir, shown).await?;
    git.must(
        &["checkout", "-q", "--detach", &commit, "--"],
        "the commit could not be checked out",
    )
    .await?;
    fs::remove_dir_all(tree.join(".git"))
        .map_err(|error| Failure::disk("cannot remove git's own directory", &error))?;
    Ok(commit)
}

struct Git<'g> {
    task: &'g Task<'g>,
    access: &'g Access<'g>,
    tree: &'g Path,
    askpass: Option<String>,
}

impl Git<'_> {
    fn helper(&self, args: &[&str]) -> Helper<'_> {
        let tree = self.tree.to_string_lossy();
        let fixed = [
            "-C",
            &tree,
            "-c",
            "core.symlinks=false",
            "-c",
            "core.hooksPath=/dev/null",
            "-c",
            "gc.auto=0",
        ];
        let mut helper = Helper::new(self.task, "git", fixed.iter().chain(args).copied());
        // An operator who names a configuration of his own on purpose is followed; the one in HOME is not.
        for (name, value) in [
            ("GIT_CONFIG_GLOBAL", "/dev/null"),
            ("GIT_CONFIG_NOSYSTEM", "1"),
        ] {
            helper
                .env
                .entry(name.to_owned())
                .or_insert_with(|| value.to_owned());
        }
        let protocols = if self.task.options.allow_plain_http {
            "https:http"
        } else {
            "https"
        };
        for (name, value) in [
            ("GIT_ALLOW_PROTOCOL", protocols),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_HTTP_LOW_SPEED_LIMIT", "1000"),
            ("GIT_HTTP_LOW_SPEED_TIME", "60"),
            ("LC_ALL", "C"),
        ] {
            helper.env.insert(name.to_owned(), value.to_owned());
        }
        if let Some(askpass) = &self.askpass {
            helper.env.insert("GIT_ASKPASS".to_owned(), askpass.clone());
        }
        helper.timeout = Duration::from_secs(1800);
        helper.watch = Some((
            self.tree.join(".git"),
            self.task.options.limits.packed_bytes,
        ));
        helper
    }

    async fn must(&self, args: &[&str], what: &str) -> Result<Ran, Failure> {
        self.task
            .must(self.helper(args), "SourceUnavailable", what)
            .await
    }

    /// Fetches and gives the full commit.
    async fn fetch(&self, reference: Option<&str>, shown: &str) -> Result<String, Failure> {
        let wanted = reference.unwrap_or("HEAD");
        // Checked when the spec was read; git's own word is the last one, for it is git that reads the name.
        if reference.is_some() {
            let checked = self
                .task
                .run(self.helper(&["check-ref-format", "--allow-onelevel", wanted]))
                .await?;
            if !checked.is_success() {
                return Err(Failure::terminal(
                    "SourceInvalid",
                    format!("the ref of {shown} is no name that git accepts"),
                ));
            }
        }
        let shallow = [
            "fetch",
            "-q",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            self.access.url.as_str(),
            wanted,
        ];
        let first = self.task.run(self.helper(&shallow)).await?;
        if first.is_success() {
            return self.commit("FETCH_HEAD", shown).await;
        }
        let is_commit =
            (7..=40).contains(&wanted.len()) && wanted.bytes().all(|b| b.is_ascii_hexdigit());
        let unavailable = |ran: &Ran| {
            Failure::transient(
                "SourceUnavailable",
                format!(
                    "{shown} at {wanted} could not be fetched: git {}",
                    ended(ran)
                ),
            )
        };
        if !is_commit {
            return Err(unavailable(&first));
        }
        // A short commit cannot be asked for, and not every server gives a full one: get all that has a name.
        let all = [
            "fetch",
            "-q",
            "--no-tags",
            "--no-recurse-submodules",
            "--",
            self.access.url.as_str(),
            "+refs/heads/*:refs/remotes/all/*",
            "+refs/tags/*:refs/tags/*",
        ];
        let second = self.task.run(self.helper(&all)).await?;
        if !second.is_success() {
            return Err(unavailable(&second));
        }
        self.commit(wanted, shown).await
    }

    async fn commit(&self, name: &str, shown: &str) -> Result<String, Failure> {
        let peeled = format!("{name}^{{commit}}");
        let ran = self
            .task
            .run(self.helper(&["rev-parse", "--verify", "-q", "--end-of-options", &peeled]))
            .await?;
        let commit = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        if ran.is_success()
            && (40..=64).contains(&commit.len())
            && commit.bytes().all(|b| b.is_ascii_hexdigit())
        {
            return Ok(commit);
        }
        Err(Failure::transient(
            "SourceUnavailable",
            format!("{shown} has no commit {name}, or more than one that begins so"),
        ))
    }

    /// Refuses what would not become a plain tree, before anything is written.
    async fn check_tree(
        &self,
        commit: &str,
        subdir: Option<&str>,
        shown: &str,
    ) -> Result<(), Failure> {
        let ran = self
            .must(
                &["ls-tree", "-r", "-l", "-z", "--full-tree", commit],
                "the commit could not be listed",
            )
            .await?;
        let limits = self.task.options.limits;
        let (mut bytes, mut entries) = (0_u64, 0_usize);
        for line in ran
            .stdout
            .split(|byte| *byte == 0)
            .filter(|line| !line.is_empty())
        {
            let line = String::from_utf8_lossy(line);
            let Some((facts, path)) = line.split_once('\t') else {
                continue;
            };
            let mut facts = facts.split_whitespace();
            let mode = facts.next().unwrap_or_default();
            bytes += facts
                .nth(2)
                .and_then(|size| size.parse::<u64>().ok())
                .unwrap_or(0);
            entries += 1;
            let inside = subdir.is_none_or(|subdir| {
                path.strip_prefix(subdir)
                    .is_some_and(|rest| rest.starts_with('/'))
            });
            if mode == "120000" && inside {
                let path: String = path.chars().take(120).collect();
                return Err(Failure::terminal(
                    "SourceInvalid",
                    format!(
                        "{shown} holds the link {path:?}; only files and directories are taken"
                    ),
                ));
            }
        }
        if bytes > limits.unpacked_bytes || entries > limits.entries {
            return Err(Failure::terminal(
                "SourceTooLarge",
                format!(
                    "{shown} holds {entries} files of {bytes} bytes; at most {} of {} bytes are taken",
                    limits.entries, limits.unpacked_bytes
                ),
            ));
        }
        Ok(())
    }
}

/// A script that answers git's questions for this host, and nobody else's.
fn askpass(access: &Access<'_>, into: &Path) -> Result<Option<String>, Failure> {
    let Some(login) = access.login else {
        return Ok(None);
    };
    let path = into.join("askpass");
    let host = access.url.host_str().unwrap_or_default();
    let place = access
        .url
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    // git asks "Username for 'https://host': " and then "Password for 'https://user@host': ".
    let script = format!(
        "#!/bin/sh\ncase \"$1\" in\n*\"//{place}'\"*|*\"@{place}'\"*) ;;\n*) exit 1 ;;\nesac\ncase \"$1\" in\nUsername*) printf '%s\\n' {} ;;\n*) printf '%s\\n' {} ;;\nesac\n",
        shell_quoted(&login.user),
        shell_quoted(&login.password),
    );
    let made = write_private(&path, &script)
        .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)));
    made.map_err(|error| Failure::disk("cannot write the script that answers git", &error))?;
    Ok(Some(path.to_string_lossy().into_owned()))
}

fn shell_quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "'\\''"))
}
