//! Archives from anyone: what is read, and what is refused by name.

use std::io::{Cursor, Write};

use stdstarlark::Bundle;
use zip::CompressionMethod;
use zip::write::SimpleFileOptions;

use crate::provider::zip;

const OK: &str = "def compose(spec, config):\n    return {}\n";

fn refused(bytes: &[u8]) -> String {
    Bundle::from_zip(bytes)
        .expect_err("must be refused")
        .to_string()
}

fn patched(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut out = bytes.to_vec();
    let mut hits = 0;
    for at in 0..=out.len() - from.len() {
        if out[at..].starts_with(from) {
            out[at..at + from.len()].copy_from_slice(to);
            hits += 1;
        }
    }
    assert!(hits > 0, "nothing to patch");
    out
}

fn build(entries: impl FnOnce(&mut zip::ZipWriter<Cursor<Vec<u8>>>)) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(Cursor::new(Vec::new()));
    entries(&mut writer);
    writer.finish().expect("memory").into_inner()
}

#[test]
fn programs_are_read_and_other_files_are_passed_over() {
    let bytes = build(|zip| {
        let stored = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
        zip.start_file("compose.star", stored).unwrap();
        zip.write_all(OK.as_bytes()).unwrap();
        zip.add_directory("lib/", SimpleFileOptions::default())
            .unwrap();
        zip.start_file("lib/a.star", SimpleFileOptions::default())
            .unwrap();
        zip.write_all("é = 1\n".as_bytes()).unwrap();
        zip.start_file("data.bin", SimpleFileOptions::default())
            .unwrap();
        zip.write_all(&[0, 255, 254]).unwrap();
    });
    let bundle = Bundle::from_zip(&bytes).expect("is good");
    assert_eq!(
        bundle.files().keys().collect::<Vec<_>>(),
        ["compose.star", "lib/a.star"]
    );
    assert_eq!(bundle.files()["lib/a.star"], "é = 1\n");
}

#[test]
fn a_commit_id_in_the_comment_is_fine_and_an_archive_in_it_is_not() {
    let mut bytes = zip(&[("compose.star", OK)]);
    let end = bytes.len();
    bytes[end - 2] = 40;
    bytes.extend_from_slice(&[b'f'; 40]);
    Bundle::from_zip(&bytes).expect("is good");
    bytes[end + 4] = b'P';
    bytes[end + 5] = b'K';
    assert!(refused(&bytes).contains("something follows the archive"));
}

#[test]
fn one_archive_and_nothing_else() {
    let good = zip(&[("compose.star", OK)]);
    let other = zip(&[("compose.star", "other")]);
    for (name, bytes) in [
        ("empty", Vec::new()),
        (
            "text",
            b"just a text that is long enough to be looked at".to_vec(),
        ),
        ("truncated", good[..good.len() - 5].to_vec()),
        ("headless", good[10..].to_vec()),
        ("junk before", [b"junk".as_slice(), &good].concat()),
        ("junk after", [good.as_slice(), b"junk"].concat()),
        ("two archives", [good.as_slice(), &other].concat()),
        ("only an end", good[good.len() - 22..].to_vec()),
    ] {
        assert!(Bundle::from_zip(&bytes).is_err(), "{name} was taken");
    }
}

#[test]
fn names_stay_inside_and_mean_one_thing() {
    for name in [
        "../x.star",
        "/x.star",
        "a//x.star",
        "./x.star",
        "a/../x.star",
        "C:x.star",
        "a\\x.star",
        "a\u{1}.star",
        "a\0.star",
    ] {
        let bytes = zip(&[("compose.star", OK), (name, "x = 1\n")]);
        let message = refused(&bytes);
        assert!(message.contains("the name has"), "{name:?}: {message}");
    }
    let long = format!("{}.star", "a".repeat(600));
    assert!(refused(&zip(&[("compose.star", OK), (&long, "")])).contains("longer than 512"));
    let deep = format!("{}x.star", "a/".repeat(40));
    assert!(refused(&zip(&[("compose.star", OK), (&deep, "")])).contains("more than 32 parts"));
    assert!(
        refused(&zip(&[
            ("compose.star", OK),
            ("A.star", ""),
            ("a.star", "")
        ]))
        .contains("\"a.star\": is there twice")
    );
    assert!(
        refused(&zip(&[
            ("compose.star", OK),
            ("a.star", ""),
            ("a.star/b.star", "")
        ]))
        .contains("both a file and a directory")
    );
    // The writer refuses duplicates, so one of two names is changed afterwards.
    let twice = patched(
        &zip(&[("compose.star", OK), ("bbb.star", "x"), ("ccc.star", "y")]),
        b"ccc.star",
        b"bbb.star",
    );
    assert!(Bundle::from_zip(&twice).is_err(), "a duplicate was taken");
    let latin = patched(
        &zip(&[("compose.star", OK), ("bbb.star", "x")]),
        b"bbb.star",
        b"\xe9bb.star",
    );
    assert!(Bundle::from_zip(&latin).is_err());
}

#[test]
fn headers_must_agree() {
    let good = zip(&[("compose.star", OK), ("bbb.star", "x")]);
    let first = good
        .windows(8)
        .position(|w| w == b"bbb.star")
        .expect("is there");
    let mut local = good.clone();
    local[first..first + 8].copy_from_slice(b"ccc.star");
    assert!(
        Bundle::from_zip(&local).is_err(),
        "a local name that differs was taken"
    );
    // A directory that claims a smaller or larger size than what inflates.
    let entry = good
        .windows(4)
        .rposition(|w| w == b"PK\x01\x02")
        .expect("is there");
    for size in [0_u32, 1_000, u32::MAX] {
        let mut lie = good.clone();
        lie[entry + 24..entry + 28].copy_from_slice(&size.to_le_bytes());
        assert!(Bundle::from_zip(&lie).is_err(), "declared {size} was taken");
    }
    let mut crc = good.clone();
    crc[entry + 16] ^= 1;
    assert!(
        Bundle::from_zip(&crc).is_err(),
        "a wrong checksum was taken"
    );
    let mut encrypted = good;
    encrypted[entry + 8] |= 1;
    assert!(
        Bundle::from_zip(&encrypted).is_err(),
        "an encrypted entry was taken"
    );
}

#[test]
fn links_are_refused() {
    let bytes = build(|zip| {
        zip.start_file("compose.star", SimpleFileOptions::default())
            .unwrap();
        zip.write_all(OK.as_bytes()).unwrap();
        zip.add_symlink("passwd.star", "/etc/passwd", SimpleFileOptions::default())
            .unwrap();
    });
    assert!(refused(&bytes).contains("\"passwd.star\": is neither a plain file nor a directory"));
}

#[test]
fn sizes_are_counted_on_real_bytes() {
    let big = "#".repeat(512 << 10);
    Bundle::from_zip(&zip(&[("compose.star", OK), ("big.star", &big)]))
        .expect("exactly at the limit");
    let message = refused(&zip(&[
        ("compose.star", OK),
        ("big.star", &format!("{big}#")),
    ]));
    assert_eq!(
        message,
        "bundle entry \"big.star\": is larger than 524288 bytes"
    );
    let files: Vec<(String, String)> = (0..9)
        .map(|i| (format!("f{i}.star"), big.clone()))
        .collect();
    let refs: Vec<(&str, &str)> = files
        .iter()
        .map(|(n, c)| (n.as_str(), c.as_str()))
        .chain([("compose.star", OK)])
        .collect();
    assert!(refused(&zip(&refs)).contains("unpacks to more than 4194304 bytes"));
    let bomb = "0".repeat(5 << 20);
    assert!(
        refused(&zip(&[("compose.star", OK), ("bomb.txt", &bomb)]))
            .contains("unpacks to more than")
    );
    let names: Vec<String> = (0..2_001).map(|i| format!("f{i}")).collect();
    let many: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    assert_eq!(
        refused(&zip(&many)),
        "the bundle has more than 2000 entries"
    );
    assert!(refused(&vec![0; 7 << 20]).contains("the bundle has 7340032 bytes"));
}

#[test]
fn content_is_text() {
    let bytes = build(|zip| {
        zip.start_file("compose.star", SimpleFileOptions::default())
            .unwrap();
        zip.write_all(b"x = 1\ny = '\xff'\n").unwrap();
    });
    assert_eq!(
        refused(&bytes),
        "bundle entry \"compose.star\": is not UTF-8 (line 2)"
    );
}

#[test]
fn a_directory_reads_like_the_archive_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir_all(dir.path().join("lib/deep")).unwrap();
    std::fs::create_dir_all(dir.path().join(".git")).unwrap();
    std::fs::write(dir.path().join(".git/x.star"), "hidden").unwrap();
    std::fs::write(dir.path().join("compose.star"), OK).unwrap();
    std::fs::write(dir.path().join("lib/deep/a.star"), "x = 1\n").unwrap();
    std::fs::write(dir.path().join("README.md"), "text").unwrap();
    let bundle = Bundle::from_dir(dir.path()).expect("is good");
    assert_eq!(
        bundle,
        Bundle::from_zip(&zip(&[
            ("compose.star", OK),
            ("lib/deep/a.star", "x = 1\n")
        ]))
        .unwrap()
    );
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("link.star")).unwrap();
    assert!(
        Bundle::from_dir(dir.path())
            .unwrap_err()
            .to_string()
            .contains("\"link.star\": is neither")
    );
    assert!(
        Bundle::from_dir(&dir.path().join("lib"))
            .unwrap_err()
            .to_string()
            .contains("no compose.star")
    );
}

#[test]
fn a_packed_directory_instead_of_its_content_gets_a_hint() {
    let message = refused(&zip(&[("program/compose.star", OK)]));
    assert!(
        message.contains("pack the directory's content"),
        "{message}"
    );
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(2_000))]

    /// Any damage gives an answer, and what is still taken is within the limits.
    #[test]
    fn damaged_archives_never_panic(edits in proptest::collection::vec((0_usize..400, 0_u8..=255), 1..6), cut in 0_usize..400) {
        let mut bytes = zip(&[("compose.star", OK), ("lib/a.star", "x = 1\n"), ("lib/b.star", "y = 2\n")]);
        for (at, byte) in edits {
            if let Some(slot) = bytes.get_mut(at) {
                *slot = byte;
            }
        }
        let keep = bytes.len().saturating_sub(cut % 40);
        for bytes in [&bytes[..], &bytes[..keep]] {
            if let Ok(bundle) = Bundle::from_zip(bytes) {
                proptest::prop_assert!(bundle.files().contains_key("compose.star"));
            }
        }
    }
}
