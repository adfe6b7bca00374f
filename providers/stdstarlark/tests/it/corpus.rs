//! The fuzz corpus, on the stable toolchain: every file of it gives an answer, and the same one twice.

use std::path::{Path, PathBuf};

use stdstarlark::Bundle;

use crate::{block_on, json, meta, new_engine};

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target);
    let mut files: Vec<PathBuf> = dir
        .read_dir()
        .expect("is checked in")
        .map(|entry| entry.expect("can be listed").path())
        .collect();
    files.sort();
    assert!(
        files.len() > 20,
        "{} has only {} files",
        dir.display(),
        files.len()
    );
    files
        .into_iter()
        .map(|path| (path.clone(), std::fs::read(path).expect("can be read")))
        .collect()
}

#[test]
fn every_bundle_gives_an_answer() {
    let mut taken = Vec::new();
    for (path, bytes) in corpus("bundle") {
        let name = path
            .file_name()
            .expect("has a name")
            .to_string_lossy()
            .into_owned();
        match Bundle::from_zip(&bytes) {
            Ok(_) => taken.push(name),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
    assert_eq!(
        taken,
        ["comment", "directories", "good", "packed", "stored"]
    );
}

#[test]
fn every_program_gives_the_same_answer_twice() {
    let spec = r#"{"name":"a","n":3,"big":123456789012345678901234567890,"list":[1,2.5,null,true],"o":{"k":"v"}}"#;
    let engine = new_engine();
    block_on(async {
        for (path, bytes) in corpus("program") {
            let source = String::from_utf8(bytes).expect("programs are text");
            let bundle = Bundle::from_files([("compose.star", source)]).expect("is within bounds");
            let mut answers = Vec::new();
            for _ in 0..2 {
                let result = engine
                    .compose(&bundle, &json(spec), &json(r#"{"zone":"eu"}"#), &meta())
                    .await;
                answers.push(match result {
                    Ok(outcome) => format!("{outcome:?}"),
                    Err(error) => {
                        assert!(error.is_terminal(), "{}: {error}", path.display());
                        // Which of two bounds a program runs into first may depend on what its child did before.
                        let over = ["more memory", "took more than"]
                            .iter()
                            .any(|part| error.message().contains(part));
                        if over {
                            "over a bound".to_owned()
                        } else {
                            error.message().to_owned()
                        }
                    }
                });
            }
            assert_eq!(answers[0], answers[1], "{}", path.display());
        }
    });
}
