//! `cargo xtask demo` and `cargo xtask example`: find the folder, build, run, and leave nothing behind.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::manifest::{Manifest, check_kinds};
use crate::run::{Build, Options, Programs, Run};
use crate::usage::usage;
use crate::{interrupt, needs, tree};

/// The examples there are: every folder with an `example.json`, and those one level below (`datadriven/starlark`).
pub(crate) fn names() -> Result<Vec<String>> {
    let dir = tree::root().join("examples");
    let mut names = Vec::new();
    for folder in folders(&dir)? {
        let name = |path: &Path| {
            path.strip_prefix(&dir)
                .map(|name| name.to_string_lossy().into_owned())
        };
        for path in [vec![folder.clone()], folders(&folder)?].concat() {
            if path.join("example.json").is_file() {
                names.push(name(&path)?);
            }
        }
    }
    names.sort();
    Ok(names)
}

fn folders(dir: &Path) -> Result<Vec<PathBuf>> {
    let listed = || format!("could not list {}", dir.display());
    let mut folders = Vec::new();
    for entry in dir.read_dir().with_context(listed)? {
        let entry = entry.with_context(listed)?;
        if entry.file_type().with_context(listed)?.is_dir() {
            folders.push(entry.path());
        }
    }
    Ok(folders)
}

/// The demo: live until Ctrl-C, or until Ready with `once`.
pub(crate) fn demo(once: bool, options: Options) -> Result<()> {
    let ending = if once {
        Ending::Ready
    } else {
        Ending::Interrupt
    };
    start("demo", ending, options)
}

/// One example: Ready, promises, teardown; or live until Ctrl-C.
pub(crate) fn one(name: &str, watch: bool, options: Options) -> Result<()> {
    start(
        name,
        if watch {
            Ending::Interrupt
        } else {
            Ending::Teardown
        },
        options,
    )
}

/// Every example whose programs are installed; what is left out is said.
pub(crate) fn all(options: Options) -> Result<()> {
    interrupt::listen()?;
    let mut failed = Vec::new();
    for name in names()? {
        let manifest = read(&name)?;
        let missing = needs::missing(manifest.needs.iter().map(String::as_str));
        if !missing.is_empty() {
            println!("\n{name}: left out, not on PATH: {}", missing.join(", "));
            continue;
        }
        if let Err(error) = run(&name, Ending::Teardown, options) {
            interrupt::check()?;
            println!("{name}: FAILED: {error:#}");
            failed.push(name);
        }
    }
    if !failed.is_empty() {
        bail!("examples failed: {}", failed.join(", "));
    }
    Ok(())
}

/// What CI does with the examples.
pub(crate) fn all_in_ci() -> Result<()> {
    all(Options {
        keep: false,
        build: Build::AsTested,
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// As soon as all is Ready and as promised.
    Ready,
    /// After that and a teardown.
    Teardown,
    /// When a person says so.
    Interrupt,
}

fn read(name: &str) -> Result<Manifest> {
    let known = names()?;
    if !known.iter().any(|known| known == name) {
        return Err(usage(format!(
            "there is no example {name:?}; there are: {}",
            known.join(", ")
        )));
    }
    let root = tree::root();
    Manifest::read(&root.join("examples").join(name))
}

fn start(name: &str, ending: Ending, options: Options) -> Result<()> {
    interrupt::listen()?;
    run(name, ending, options)
}

fn run(name: &str, ending: Ending, options: Options) -> Result<()> {
    let manifest = read(name)?;
    println!("\n{name}: {}", manifest.about);
    needs::check(manifest.needs.iter().map(String::as_str))?;
    check_kinds(&tree::root(), &manifest.kinds)?;
    let programs = Programs::build(&manifest.worker, options)?;
    let dir = tree::root().join("examples").join(name);
    let began = Instant::now();
    let mut run = Run::start(&dir, &manifest, &programs)?;
    let result = finish(&mut run, ending, began);
    if options.keep {
        println!("kept: {}", run.stack.keep().display());
    }
    result
}

fn finish(run: &mut Run<'_>, ending: Ending, began: Instant) -> Result<()> {
    let ready = run.until_ready().and_then(|()| run.expect());
    if ending == Ending::Interrupt {
        match ready {
            Ok(()) => {
                println!("\nall Ready after {:.1} s", began.elapsed().as_secs_f64());
                print!("{}", run.graphs()?);
            }
            Err(_) if interrupt::asked() => return Ok(()),
            // A person may want to look around, and to mend it.
            Err(error) => println!("\n{error:#}"),
        }
        println!(
            "look around, in another terminal:\n  {} list\n  {0} describe KIND/NAME\n  {0} graph KIND/NAME\nCtrl-C ends it.\n",
            run.conctl.shown()
        );
        while !interrupt::asked() {
            run.look()?;
            let next = Instant::now() + Duration::from_millis(500);
            while Instant::now() < next && !interrupt::asked() {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        println!("\nstopping");
        return Ok(());
    }
    ready?;
    println!("all Ready after {:.1} s", began.elapsed().as_secs_f64());
    if ending == Ending::Ready {
        print!("{}", run.graphs()?);
    }
    if ending == Ending::Teardown {
        run.take_down()?;
        println!(
            "{}: taken down, nothing left",
            run.dir().file_name().unwrap_or_default().to_string_lossy()
        );
    }
    Ok(())
}
