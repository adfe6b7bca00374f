use proptest::prelude::*;

use super::*;

#[test]
fn a_kind_is_lower_case_starts_with_a_letter_and_has_at_most_63_bytes() {
    for good in ["a", "stdio", "my-kind-2", &"k".repeat(63)] {
        assert_eq!(Kind::new(good).expect(good), *good);
    }
    for bad in [
        "",
        "A",
        "1a",
        "-a",
        "a_b",
        "a.b",
        "a/b",
        "ä",
        "a b",
        "a\n",
        &"k".repeat(64),
    ] {
        let error = Kind::new(bad).expect_err(bad).to_string();
        assert!(
            error.starts_with("kind ") && error.contains("expected 1 to 63"),
            "{error}"
        );
    }
}

#[test]
fn a_resource_name_starts_alphanumeric_and_has_at_most_253_bytes() {
    for good in ["a", "A", "0", "a.b_c-D", &"n".repeat(253)] {
        assert_eq!(ResourceName::new(good).expect(good).as_str(), good);
    }
    for bad in ["", ".a", "-a", "_a", "a/b", "a b", "é", &"n".repeat(254)] {
        ResourceName::new(bad).expect_err(bad);
    }
}

#[test]
fn an_error_about_a_long_name_is_short() {
    let error = ResourceName::new("é".repeat(100_000))
        .expect_err("too long")
        .to_string();
    assert!(error.len() < 300, "{}", error.len());
}

#[test]
fn a_finalizer_may_carry_one_prefix() {
    for good in ["teardown", "example.com/teardown"] {
        FinalizerName::new(good).expect(good);
    }
    for bad in ["", "/", "a/", "/a", "a/b/c", &"n".repeat(64)] {
        FinalizerName::new(bad).expect_err(bad);
    }
}

#[test]
fn a_kind_version_reads_what_it_prints_and_nothing_else() {
    let pair: KindVersion = "stdio/v2".parse().expect("valid");
    assert_eq!((pair.kind.as_str(), pair.version), ("stdio", 2));
    assert_eq!(pair.to_string(), "stdio/v2");
    assert_eq!(
        "a/v32767".parse::<KindVersion>().expect("valid").version,
        32_767
    );
    for bad in [
        "stdio",
        "stdio/2",
        "stdio/v",
        "stdio/v0",
        "stdio/v01",
        "stdio/v+1",
        "stdio/v-1",
        "/v1",
        "A/v1",
        "a/v32768",
        "a/v99999999999",
        "a/v1 ",
        "a/v999999999999999999999",
    ] {
        bad.parse::<KindVersion>().expect_err(bad);
    }
    for bad in [0, -1, 32_768, i32::MAX, i32::MIN] {
        assert!(KindVersion::parse("a", bad).is_err(), "{bad}");
    }
}

#[test]
fn serde_checks_names_and_escapes_are_read() {
    let name: ResourceName = serde_json::from_str(r#""\u0061b""#).expect("valid");
    assert_eq!(name, "ab");
    assert_eq!(serde_json::to_string(&name).expect("writes"), r#""ab""#);
    let error = serde_json::from_str::<Kind>(r#""No""#)
        .expect_err("upper case")
        .to_string();
    assert!(error.contains(r#"kind "No" is not valid"#), "{error}");
    assert_eq!(
        serde_json::from_str::<KindVersion>(r#""a/v3""#)
            .expect("valid")
            .version,
        3
    );
}

#[test]
fn a_resource_reference_is_kind_slash_name() {
    let reference: ResourceRef = "stdio/web.1".parse().expect("valid");
    assert_eq!(reference.to_string(), "stdio/web.1");
    for bad in ["stdio", "stdio/", "/web", "stdio/a/b"] {
        bad.parse::<ResourceRef>().expect_err(bad);
    }
    let json = serde_json::to_string(&reference).expect("writes");
    assert_eq!(json, r#"{"kind":"stdio","name":"web.1"}"#);
    serde_json::from_str::<ResourceRef>(r#"{"kind":"a","name":"b","more":1}"#)
        .expect_err("unknown field");
}

#[test]
fn identities_made_later_sort_later() {
    let (early, late) = (
        Uid::from_parts(1_000, [0xff; 10]),
        Uid::from_parts(1_001, [0; 10]),
    );
    assert!(early < late && early.to_string() < late.to_string());
    assert!(Uid::now() > late);
    assert_eq!(early.to_string().as_bytes()[14], b'7', "version 7");
}

proptest! {
    #[test]
    fn an_identity_survives_bytes_text_and_json(bytes: [u8; 16]) {
        let uid = Uid::from_bytes(bytes);
        prop_assert_eq!(Uid::try_from(&uid.as_bytes()[..]).expect("16 bytes"), uid);
        prop_assert_eq!(uid.to_string().parse::<Uid>().expect("own text"), uid);
        let json = serde_json::to_string(&uid).expect("writes");
        prop_assert_eq!(json.len(), 38);
        prop_assert_eq!(serde_json::from_str::<Uid>(&json).expect("own json"), uid);
    }

    #[test]
    fn bytes_of_any_other_length_are_no_identity(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
        prop_assert_eq!(Uid::try_from(&bytes[..]).is_ok(), bytes.len() == 16);
    }

    #[test]
    fn no_text_makes_a_name_panic(text: String) {
        let _ = (Kind::new(&text), ResourceName::new(&text), FinalizerName::new(&text));
        let _ = (text.parse::<KindVersion>(), text.parse::<Uid>(), text.parse::<ResourceRef>());
    }

    #[test]
    fn a_kind_version_survives_its_text(kind in "[a-z][a-z0-9-]{0,62}", version in 1..=32_767) {
        let pair = KindVersion::parse(&kind, version).expect("valid");
        prop_assert_eq!(pair.to_string().parse::<KindVersion>().expect("own text"), pair);
    }
}
