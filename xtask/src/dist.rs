//! Release binaries, packed with what belongs beside them.

use std::process::Command;

use anyhow::{Context, Result};

use crate::tree;

/// The programs we ship.
const PROGRAMS: &[&str] = &["converge", "stdworker", "conctl"];

/// Builds `target/dist/converge-VERSION-HOST.tar.gz` and its checksum.
pub(crate) fn run() -> Result<()> {
    let mut selection = vec!["--profile", "shipped", "--locked"];
    PROGRAMS
        .iter()
        .for_each(|program| selection.extend(["-p", program]));
    let built = tree::build(&selection)?;
    let version = tree::read(tree::cargo().args(["pkgid", "-p", "converge"]))?;
    let version = version
        .trim()
        .rsplit(['#', '@'])
        .next()
        .unwrap_or_default()
        .to_owned();
    let host = tree::read(Command::new("rustc").arg("-vV"))?;
    let host = host
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc names no host")?;
    let name = format!("converge-{version}-{host}");
    let dist = tree::target_dir()?.join("dist");
    let stage = dist.join(&name);
    if stage.exists() {
        std::fs::remove_dir_all(&stage)
            .with_context(|| format!("could not clear {}", stage.display()))?;
    }
    std::fs::create_dir_all(stage.join("kinds"))
        .with_context(|| format!("could not create {}", stage.display()))?;
    let root = tree::root();
    let mut files: Vec<_> = PROGRAMS
        .iter()
        .map(|program| Ok((tree::built(&built, program)?, (*program).to_owned())))
        .collect::<Result<_>>()?;
    files.extend(
        ["LICENSE", "README.md", "CHANGELOG.md"].map(|file| (root.join(file), file.to_owned())),
    );
    for entry in root
        .join("kinds")
        .read_dir()
        .context("could not list kinds/")?
    {
        let entry = entry.context("could not list kinds/")?;
        files.push((
            entry.path(),
            format!("kinds/{}", entry.file_name().to_string_lossy()),
        ));
    }
    for (from, to) in files {
        // Follows the links of `kinds/`: the archive holds the manifests themselves.
        std::fs::copy(&from, stage.join(&to))
            .with_context(|| format!("could not copy {}", from.display()))?;
    }
    let archive = format!("{name}.tar.gz");
    tree::run(Command::new("tar").current_dir(&dist).args([
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "-czf",
        &archive,
        &name,
    ]))?;
    let sum = tree::read(Command::new("sha256sum").current_dir(&dist).arg(&archive))?;
    let file = dist.join(format!("{archive}.sha256"));
    std::fs::write(&file, &sum).with_context(|| format!("could not write {}", file.display()))?;
    println!("{}\n{}", dist.join(&archive).display(), sum.trim());
    Ok(())
}
