//! `cargo xtask codegen`: the Rust code of the wire, from `sdk/proto`, without protoc.
//!
//! The output is checked in, so that nobody who builds the workspace runs this. Each end has its own copy: the SDK's (client, and
//! the server stubs under its `testing` feature) and the broker's. `--check` writes nothing and fails on a difference.
//!
//! The generator and what it links are behind the feature `codegen`: every other task compiles without them. Without the
//! feature this module calls cargo again with it.

#[cfg(not(feature = "codegen"))]
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(cargo);
    command.args([
        "run",
        "--quiet",
        "--package",
        "xtask",
        "--features",
        "codegen",
        "--",
        "codegen",
    ]);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    if check {
        command.arg("--check");
    }
    let status = command.status()?;
    anyhow::ensure!(status.success(), "codegen ended with {status}");
    Ok(())
}

#[cfg(feature = "codegen")]
pub(crate) use with_generator::run;

#[cfg(feature = "codegen")]
mod with_generator {
    use std::path::{Path, PathBuf};
    use std::process::Command;
    use std::{fs, io};

    use anyhow::{Context, Result, ensure};

    const PROTO: &str = "converge/worker/v1/worker.proto";
    const FILE: &str = "converge.worker.v1.rs";

    /// Where one copy goes, and which stubs it has.
    struct Copy {
        dir: &'static str,
        client: bool,
        server_only_if: Option<&'static str>,
    }

    const COPIES: [Copy; 2] = [
        Copy {
            dir: "sdk/src/generated",
            client: true,
            server_only_if: Some("#[cfg(feature = \"testing\")]"),
        },
        Copy {
            dir: "crates/broker/src/generated",
            client: false,
            server_only_if: None,
        },
    ];

    pub(crate) fn run(check: bool) -> Result<()> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"))
            .parent()
            .context("xtask lies in the workspace")?;
        let scratch = root.join("target/codegen");
        let mut stale = Vec::new();
        for copy in COPIES {
            let code = generate(root, &scratch, &copy)
                .with_context(|| format!("could not generate {}", copy.dir))?;
            let path = root.join(copy.dir).join(FILE);
            let old = match fs::read_to_string(&path) {
                Ok(old) => old,
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                Err(error) => {
                    return Err(error)
                        .with_context(|| format!("could not read {}", path.display()));
                }
            };
            if old == code {
                continue;
            }
            if check {
                stale.push(path.display().to_string());
            } else {
                fs::create_dir_all(root.join(copy.dir))?;
                fs::write(&path, code)
                    .with_context(|| format!("could not write {}", path.display()))?;
                println!("wrote {}", path.display());
            }
        }
        ensure!(
            stale.is_empty(),
            "generated code is older than sdk/proto/{PROTO}: {}; run `cargo xtask codegen`",
            stale.join(", ")
        );
        Ok(())
    }

    fn generate(root: &Path, scratch: &Path, copy: &Copy) -> Result<String> {
        let mut compiler = protox::Compiler::new([root.join("sdk/proto")])?;
        // Comments of the proto become docs of the code.
        compiler.include_source_info(true).open_file(PROTO)?;
        let out: PathBuf = scratch.join(copy.dir);
        fs::create_dir_all(&out)?;
        let mut builder = tonic_prost_build::configure()
            .build_client(copy.client)
            .build_transport(false)
            // Bytes, so that a document is never copied between the transport and its reader.
            .bytes(".")
            .btree_map(".")
            .out_dir(&out);
        if let Some(condition) = copy.server_only_if {
            builder = builder.server_mod_attribute(".", condition);
        }
        builder.compile_fds(compiler.file_descriptor_set())?;
        let file = out.join(FILE);
        let formatted = Command::new("rustfmt")
            .args(["--edition", "2024"])
            .arg(&file)
            .status()?;
        ensure!(formatted.success(), "rustfmt ended with {formatted}");
        Ok(fs::read_to_string(&file)?)
    }
}
