//! Archives, each with the tool that knows its credentials.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use sha2::{Digest as _, Sha256};

use crate::archive::{Refused, unpack};
use crate::failure::Failure;
use crate::source::{Login, Source};
use crate::task::{Helper, Task, ended};

/// Downloads an archive and unpacks it into `tree`; gives its SHA-256.
pub(super) async fn archive(
    task: &Task<'_>,
    source: &Source,
    into: &Path,
    tree: &Path,
) -> Result<String, Failure> {
    let file = into.join("source.tar.gz");
    let shown = source.shown();
    let mut helper = command(task, source, &file.to_string_lossy());
    helper.watch = Some((file.clone(), task.options.limits.packed_bytes));
    let program = helper.program;
    tracing::info!(source = %task.redactor().redact(&shown), "fetching the module");
    let ran = task.run(helper).await?;
    if !ran.is_success() {
        return Err(Failure::transient(
            "SourceUnavailable",
            format!("{shown} could not be fetched: {program} {}", ended(&ran)),
        ));
    }
    let limits = task.options.limits;
    let target = tree.to_owned();
    let unpacked = tokio::task::spawn_blocking(move || {
        let digest = sha256(&file).map_err(Refused::Disk)?;
        unpack(&file, &target, limits)?;
        let _ = std::fs::remove_file(&file);
        Ok(digest)
    });
    match unpacked.await {
        Ok(Ok(digest)) => Ok(digest),
        Ok(Err(Refused::Bad(why))) => Err(Failure::terminal(
            "SourceInvalid",
            format!("the archive {shown} {why}"),
        )),
        Ok(Err(Refused::Disk(error))) => Err(Failure::disk(
            format_args!("the archive {shown} could not be unpacked"),
            &error,
        )),
        Err(error) => Err(Failure::transient(
            "SourceUnavailable",
            format!("unpacking {shown} failed: {error}"),
        )),
    }
}

fn command<'h>(task: &Task<'_>, source: &Source, file: &str) -> Helper<'h> {
    match source {
        Source::S3 { bucket, key } => {
            let from = format!("s3://{bucket}/{key}");
            Helper::new(
                task,
                "aws",
                [
                    "s3",
                    "cp",
                    "--only-show-errors",
                    "--no-progress",
                    "--cli-connect-timeout",
                    "10",
                    from.as_str(),
                    file,
                ],
            )
        }
        Source::Gcs { bucket, key } => Helper::new(
            task,
            "gcloud",
            [
                "storage",
                "cp",
                format!("gs://{bucket}/{key}").as_str(),
                file,
            ],
        ),
        Source::Azure {
            account,
            container,
            key,
        } => {
            let container = format!("--container-name={container}");
            let name = format!("--name={key}");
            let file = format!("--file={file}");
            let mut args = vec![
                "storage",
                "blob",
                "download",
                "--no-progress",
                "--only-show-errors",
                &container,
                &name,
                &file,
            ];
            let account = format!("--account-name={account}");
            if !task.env().contains_key("AZURE_STORAGE_CONNECTION_STRING") {
                args.extend([account.as_str(), "--auth-mode=login"]);
            }
            Helper::new(task, "az", args)
        }
        Source::Https { url, query, login } => {
            let protocols = if task.options.allow_plain_http {
                "=http,https"
            } else {
                "=https"
            };
            let mut helper = Helper::new(
                task,
                "curl",
                [
                    "-q",
                    "-fsS",
                    "-L",
                    "--proto",
                    protocols,
                    "--proto-redir",
                    protocols,
                    "--max-redirs",
                    "5",
                    "--globoff",
                    "--netrc-optional",
                    "--connect-timeout",
                    "10",
                    "--speed-limit",
                    "1000",
                    "--speed-time",
                    "60",
                    "-o",
                    file,
                    "-K",
                    "-",
                ],
            );
            helper.stdin = Some(curl_config(url.as_str(), query.as_deref(), login.as_ref()));
            helper.timeout = Duration::from_secs(1800);
            helper
        }
        // Never called with it; a wrong call must not fetch anything.
        Source::Git { .. } => Helper::new(task, "false", [] as [&str; 0]),
    }
}

/// What curl must not be told in arguments, which everybody on the machine can read.
fn curl_config(url: &str, query: Option<&str>, login: Option<&Login>) -> String {
    let quote = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let full = query.map_or_else(|| url.to_owned(), |query| format!("{url}?{query}"));
    let mut config = format!("url = {}\n", quote(&full));
    if let Some(login) = login {
        config.push_str(&format!(
            "user = {}\n",
            quote(&format!("{}:{}", login.user, login.password))
        ));
    }
    config
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = file.read(&mut buffer)?;
        if count == 0 {
            return Ok(hash
                .finalize()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect());
        }
        hash.update(&buffer[..count]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn curl_reads_its_secrets_from_stdin_as_they_are() {
        let login = Login {
            user: "me".into(),
            password: "a\"b\\c".into(),
        };
        assert_eq!(
            curl_config("https://h/x.tar.gz", Some("sig=1"), Some(&login)),
            "url = \"https://h/x.tar.gz?sig=1\"\nuser = \"me:a\\\"b\\\\c\"\n"
        );
    }
}
