use proptest::prelude::*;
use serde_json::json;

use super::*;

fn doc(text: &str) -> Doc {
    text.parse()
        .unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[test]
fn a_document_keeps_its_bytes() {
    for text in [
        "null",
        " {\"b\" : 1.0,\n\"a\":[ ]}\n",
        "\"\\u00e9\"",
        "123456789012345678901234567890",
    ] {
        assert_eq!(doc(text).as_bytes(), text.as_bytes());
        let json = serde_json::to_string(&vec![doc(text)]).expect("writes");
        assert_eq!(json, format!("[{}]", text.trim()));
    }
    let read: Vec<Doc> = serde_json::from_str("[ {\"b\" : 1.0} , 1e2]").expect("reads");
    assert_eq!(
        read.iter().map(Doc::as_bytes).collect::<Vec<_>>(),
        [&b"{\"b\" : 1.0}"[..], b"1e2"]
    );
}

#[test]
fn a_duplicate_key_is_named_with_its_place() {
    let table = [
        (
            "{\"a\":1,\"a\":2}",
            "duplicate key \"a\" at /a (line 1, column 8)",
        ),
        (
            "{\"a\":1,\n  \"\\u0061\":2}",
            "duplicate key \"a\" at /a (line 2, column 3)",
        ),
        (
            "{\"é\":{\"x\":[0,{\"b\":1,\"c\":2,\"b\":1}]}}",
            "duplicate key \"b\" at /é/x/1/b (line 1, column 27)",
        ),
        (
            "{\"a/b\":{\"~\":1,\"~\":1}}",
            "duplicate key \"~\" at /a~1b/~0 (line 1, column 15)",
        ),
    ];
    for (text, message) in table {
        assert_eq!(Doc::parse(text).expect_err(text).to_string(), message);
    }
    // The same key in different objects is none.
    doc("{\"a\":{\"a\":[{\"a\":1},{\"a\":1}]}}");
}

#[test]
fn a_duplicate_key_is_found_among_any_number_of_keys() {
    for count in 1..40 {
        for again in 0..count {
            let keys: Vec<_> = (0..count)
                .chain([again])
                .map(|i| format!("\"k{i}\":0"))
                .collect();
            let error = Doc::parse(format!("{{{}}}", keys.join(","))).expect_err("twice");
            assert_eq!(error.problem, DocProblem::DuplicateKey(format!("k{again}")));
        }
    }
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let table = [
        ("", "the document is empty (line 1, column 1)"),
        (" \n ", "the document is empty (line 2, column 2)"),
        ("{} x", "something follows the document (line 1, column 4)"),
        ("{}{}", "something follows the document (line 1, column 3)"),
        (
            "{\"a\":}",
            "not JSON: expected a value at /a (line 1, column 6)",
        ),
        (
            "{\"a\":1,}",
            "not JSON: expected a key in quotes (line 1, column 8)",
        ),
        ("{\"a\" 1}", "not JSON: expected ':' (line 1, column 6)"),
        ("[1,2", "not JSON: expected ',' or ']' (line 1, column 5)"),
        (
            "[1,\n 2 3]",
            "not JSON: expected ',' or ']' (line 2, column 4)",
        ),
        (
            "{\"a\":[nul]}",
            "not JSON: expected null at /a/0 (line 1, column 7)",
        ),
        (
            "\"a\nb\"",
            "not JSON: expected no control character in a string (write it as an escape) (line 1, column 3)",
        ),
        (
            "\"a",
            "not JSON: expected the end of the string (line 1, column 3)",
        ),
        (
            "[\"\\x\"]",
            "not JSON: expected an escape: one of \"\\/bfnrtu at /0 (line 1, column 4)",
        ),
        (
            "{\"$serde_json::private::Number\":\"1\"}",
            "the key \"$serde_json::private::Number\" cannot be used at /$serde_json::private::Number (line 1, column 2)",
        ),
        (
            "[1e10000]",
            "a number's exponent is beyond 9999 at /0 (line 1, column 2)",
        ),
        (
            "1e-99999999999999999999999999",
            "a number's exponent is beyond 9999 (line 1, column 1)",
        ),
    ];
    for (text, message) in table {
        assert_eq!(Doc::parse(text).expect_err(text).to_string(), message);
    }
    assert_eq!(
        Doc::parse(&b"\"a\xff\""[..])
            .expect_err("no text")
            .to_string(),
        "not JSON: not UTF-8 (line 1, column 3)"
    );
    for bad in [
        "01",
        "-",
        "1.",
        ".5",
        "+1",
        "1e",
        "1e+",
        "0x1",
        "NaN",
        "'a'",
        "\"\\ud800\"",
        "\"\\udc00\"",
        "\"\\ud800\\u0041\"",
        "\u{feff}{}",
        "tru",
        "{,}",
        "[,]",
    ] {
        Doc::parse(bad).expect_err(bad);
    }
}

#[test]
fn nesting_has_a_bound_and_serde_json_reads_all_within_it() {
    let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let deepest = doc(&nested(limits::DOCUMENT_DEPTH));
    deepest.to_value().expect("serde_json reads it");
    // Also inside of a body that adds levels of its own.
    serde_json::from_str::<Value>(&format!("[[[{}]]]", nested(limits::DOCUMENT_DEPTH)))
        .expect("reads");
    assert_eq!(
        Doc::parse(nested(limits::DOCUMENT_DEPTH + 1))
            .expect_err("deep")
            .problem,
        DocProblem::Depth
    );
    assert_eq!(
        Doc::parse("[".repeat(1_000_000)).expect_err("deep").problem,
        DocProblem::Depth
    );
}

#[test]
fn bytes_that_were_never_checked_do_no_harm() {
    let deep = "[".repeat(100_000);
    let closed = format!("{deep}{}", "]".repeat(100_000));
    for text in [
        "",
        "{",
        "[1,",
        "nul",
        "\"\\u12",
        "{\"a\"",
        "{\"a\":1,\"b\"",
        "1 2",
        &deep,
        &closed,
    ] {
        let bad = Doc::from_stored(text.to_owned());
        assert_eq!(bad, bad.clone());
        assert_ne!(bad, Doc::from_stored(format!(" {text}")), "{}", text.len());
        assert_eq!(bad.canonical(), text.as_bytes());
        bad.to_value().expect_err("no document");
        let _ = (
            bad.get(&Pointer::from_tokens(["a"])),
            bad.get(&Pointer::from_tokens(["0"])),
            bad.digest(),
        );
        // A deep one is JSON all the same.
        assert_eq!(serde_json::to_string(&bad).is_err(), text != closed);
    }
}

#[test]
fn documents_are_equal_by_value() {
    let equal = [
        ("{\"a\":1,\"b\":2}", " { \"b\" : 2 ,\n\"a\" : 1 } "),
        (
            "{\"a\":{\"x\":1,\"y\":[1,2]},\"b\":3,\"c\":4}",
            "{\"c\":4,\"a\":{\"y\":[1,2],\"x\":1},\"b\":3}",
        ),
        ("1", "1.0"),
        ("1", "1e0"),
        ("10", "1E+1"),
        ("100", "1e2"),
        ("0.001", "1e-3"),
        ("-0", "0"),
        ("-0.0e5", "0"),
        ("1.50", "15e-1"),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890.000",
        ),
        ("\"a\"", "\"\\u0061\""),
        ("\"\\ud83d\\ude00\"", "\"😀\""),
        (
            "\"\\/\\b\\f\\n\\r\\t\\\"\\\\\"",
            "\"/\\u0008\\u000c\\u000a\\u000d\\u0009\\u0022\\u005c\"",
        ),
        ("{\"\\u0061\":1}", "{\"a\":1}"),
        ("[ ]", "[]"),
        ("{ }", "{}"),
    ];
    for (a, b) in equal {
        assert_eq!(doc(a), doc(b));
        assert_eq!(doc(a).canonical(), doc(b).canonical(), "{a} {b}");
        assert_eq!(doc(a).digest(), doc(b).digest());
    }
    let different = [
        (
            "123456789012345678901234567890",
            "123456789012345678901234567891",
        ),
        ("1", "-1"),
        ("1", "10"),
        ("1", "\"1\""),
        ("0.1", "0.10000000000000000001"),
        ("1e400", "1e401"),
        ("1", "true"),
        ("null", "false"),
        ("[1,2]", "[2,1]"),
        ("[1]", "[1,2]"),
        ("[]", "{}"),
        ("{\"a\":1}", "{\"a\":1,\"b\":null}"),
        ("{\"a\":1,\"b\":2}", "{\"b\":1,\"a\":2}"),
        ("{\"a\":1,\"b\":2}", "{\"a\":1,\"c\":2}"),
        ("{\"a\":1,\"b\":2}", "{\"b\":2,\"a\":1,\"c\":3}"),
        ("{\"c\":3,\"b\":2,\"a\":1}", "{\"a\":1,\"b\":2}"),
        ("\"a\"", "\"A\""),
        ("\"\\\\u0061\"", "\"a\""),
    ];
    for (a, b) in different {
        assert_ne!(doc(a), doc(b));
        assert_ne!(doc(a).canonical(), doc(b).canonical(), "{a} {b}");
    }
}

#[test]
fn the_canonical_form_is_this() {
    let table = [
        (
            " { \"b\" : [ 1.0 , -0, 1E3, 2.50 ], \"a\" : { \"z\":null, \"\\u0079\":true } } ",
            "{\"a\":{\"y\":true,\"z\":null},\"b\":[1,0,1000,2.5]}",
        ),
        ("1e9999", "1e9999"),
        ("123e-9999", "123e-9999"),
        ("1000e9990", "1e9993"),
        ("1e-3", "0.001"),
        ("-12345e-2", "-123.45"),
        ("1e39", &format!("1{}", "0".repeat(39))),
        ("1e40", "1e40"),
        ("\"\\u00e9\\u0007\\/\"", "\"é\\u0007/\""),
    ];
    for (text, canonical) in table {
        assert_eq!(
            String::from_utf8(doc(text).canonical()).expect("text"),
            canonical
        );
    }
    assert_eq!(
        doc("{}").digest().to_string(),
        "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    );
}

#[test]
fn a_thirty_digit_integer_survives_a_tree() {
    let text = "{\"n\":123456789012345678901234567890,\"x\":1e+400}";
    let value = doc(text).to_value().expect("reads");
    assert_eq!(
        Doc::from_value(&value).expect("writes").as_bytes(),
        text.as_bytes()
    );
}

#[test]
fn a_value_is_found_as_it_is_written() {
    let document = doc("{ \"a\" : [ 1.0, {\"b\\u002f\": \"x\"} ] , \"c\":{} }");
    let at = |pointer: &str| {
        document
            .get(&pointer.parse().expect("pointer"))
            .map(|d| String::from_utf8(d.as_bytes().to_vec()).expect("text"))
    };
    assert_eq!(at("/a/0").as_deref(), Some("1.0"));
    assert_eq!(at("/a/1/b~1").as_deref(), Some("\"x\""));
    assert_eq!(at("/a").as_deref(), Some("[ 1.0, {\"b\\u002f\": \"x\"} ]"));
    assert_eq!(at("/c").as_deref(), Some("{}"));
    for nothing in ["/b", "/a/2", "/a/-", "/a/00", "/c/x", "/a/0/x"] {
        assert_eq!(at(nothing), None, "{nothing}");
    }
}

#[test]
fn parts_of_a_digest_do_not_run_together() {
    assert_ne!(
        Digest::of_parts(&[b"ab", b"c"]),
        Digest::of_parts(&[b"a", b"bc"])
    );
}

#[test]
fn a_large_array_is_compared_and_checked_in_little_memory_and_time() {
    let text = format!("[{}0]", "0,".repeat(1_000_000));
    let spaced = format!("[{}0 ]", "0, ".repeat(1_000_000));
    assert_eq!(doc(&text), doc(&spaced));
}

#[test]
fn numbers_are_ordered_by_value() {
    let ascending = [
        "-1e3",
        "-999.5",
        "-12",
        "-2",
        "-1.5",
        "-1",
        "-0.5",
        "-1e-9999",
        "0",
        "1e-9999",
        "0.5",
        "1",
        "1.5",
        "2",
        "12",
        "999.5",
        "1e3",
        "1001",
        "123456789012345678901234567890",
        "123456789012345678901234567891",
        "1e9999",
    ];
    for (i, a) in ascending.iter().enumerate() {
        for (j, b) in ascending.iter().enumerate() {
            assert_eq!(compare_numbers(a, b), i.cmp(&j), "{a} {b}");
        }
    }
    for (a, b) in [
        ("0", "-0.0"),
        ("1", "1.0"),
        ("100", "1e2"),
        ("-10", "-1E+1"),
    ] {
        assert_eq!(compare_numbers(a, b), std::cmp::Ordering::Equal, "{a} {b}");
    }
}

#[test]
fn deep_objects_in_opposite_order_are_compared_in_time() {
    // The same deep objects in opposite key order: each level falls back to sorting.
    let nest = |first: &str, second: &str| {
        (0..limits::DOCUMENT_DEPTH).fold("0".to_owned(), |inner, _| {
            if first == "a" {
                format!("{{\"a\":{inner},\"b\":1}}")
            } else {
                format!("{{\"{first}\":1,\"{second}\":{inner}}}")
            }
        })
    };
    assert_eq!(doc(&nest("a", "b")), doc(&nest("b", "a")));
}

fn number() -> impl Strategy<Value = String> {
    "-?(0|[1-9][0-9]{0,3})(\\.[0-9]{1,3})?([eE][+-]?[0-9]{1,2})?"
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::Bool),
        number().prop_map(|n| serde_json::from_str(&n).expect("a number")),
        "[a-c\"\\\\é\u{1}]{0,3}".prop_map(Value::String),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::vec(("[a-dé]{0,2}", inner), 0..5)
                .prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

/// Writes a value with spacing and key order taken from `bits`.
fn scribble(value: &Value, bits: &mut u64, out: &mut String) {
    *bits = bits.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let space = ["", " ", "\n", "\t "][(*bits >> 32) as usize % 4];
    out.push_str(space);
    match value {
        Value::Array(elements) => {
            out.push('[');
            for (i, element) in elements.iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                scribble(element, bits, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            if !members.is_empty() {
                let by = (*bits >> 40) as usize % members.len();
                members.rotate_left(by);
                if *bits >> 63 == 1 {
                    members.reverse();
                }
            }
            out.push('{');
            for (i, (key, member)) in members.into_iter().enumerate() {
                if i > 0 {
                    out.push(',');
                }
                let key: String = key
                    .encode_utf16()
                    .map(|unit| format!("\\u{unit:04X}"))
                    .collect();
                out.push_str(&format!("\"{key}\"{space}:"));
                scribble(member, bits, out);
            }
            out.push('}');
        }
        Value::Number(number) => {
            let text = number.to_string();
            // The same number written another way.
            match text.split_once(['e', 'E']) {
                Some((mantissa, exponent)) if mantissa.contains('.') => {
                    out.push_str(&format!("{mantissa}0E{exponent}"))
                }
                Some(_) => out.push_str(&text),
                None if text.contains('.') => out.push_str(&format!("{text}00")),
                None => out.push_str(&format!("{text}.0e0")),
            }
        }
        scalar => out.push_str(&scalar.to_string()),
    }
    out.push_str(space);
}

proptest! {
    #[test]
    fn spacing_order_and_spelling_do_not_count(value in value(), mut bits: u64) {
        let plain = Doc::from_value(&value).expect("a document");
        let mut text = String::new();
        scribble(&value, &mut bits, &mut text);
        let other = doc(&text);
        prop_assert_eq!(&plain, &other);
        prop_assert_eq!(plain.canonical(), other.canonical());
    }

    #[test]
    fn equality_and_canonical_form_agree(a in value(), b in value()) {
        let (a, b) = (Doc::from_value(&a).expect("a document"), Doc::from_value(&b).expect("a document"));
        prop_assert_eq!(a == b, a.canonical() == b.canonical());
        prop_assert_eq!(a == b, b == a);
    }

    #[test]
    fn the_canonical_form_is_a_document_of_the_same_value_and_its_own_canonical_form(value in value()) {
        let document = Doc::from_value(&value).expect("a document");
        let canonical = Doc::parse(document.canonical()).expect("a document");
        prop_assert_eq!(&canonical, &document);
        prop_assert_eq!(canonical.canonical(), document.canonical());
    }

    #[test]
    fn short_numbers_compare_as_integers_do(a in number(), b in number()) {
        // Scaled by 10^102 every number of the strategy is whole, and its digits decide.
        let scaled = |text: &str| {
            let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
            let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
            let zeros = 102 - fraction.len() as i32 + exponent.parse::<i32>().expect("small");
            let digits = format!("{}{}{}", whole.trim_start_matches('-'), fraction, "0".repeat(zeros as usize));
            let digits = digits.trim_start_matches('0').to_owned();
            (whole.starts_with('-') && !digits.is_empty(), digits)
        };
        prop_assert_eq!(doc(&a) == doc(&b), scaled(&a) == scaled(&b), "{} {}", a, b);
    }

    #[test]
    fn we_accept_what_serde_json_accepts(text in "[\\[\\]{}:,\"a1e.\\-0 ]{0,12}") {
        let theirs = serde_json::from_str::<Value>(&text);
        match Doc::parse(text.clone()) {
            Ok(document) => prop_assert_eq!(document.to_value().expect("a document"), theirs.expect("they accept it too")),
            Err(error) => {
                let ours_alone = matches!(error.problem, DocProblem::DuplicateKey(_) | DocProblem::Exponent);
                prop_assert!(theirs.is_err() || ours_alone, "{}: {}", text, error);
            }
        }
    }

    #[test]
    fn no_bytes_make_anything_panic(bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b"{}[]\",:\\u0d8e-1."[..])], 0..40)) {
        let _ = Doc::parse(bytes.clone());
        let unchecked = Doc::from_stored(bytes.clone());
        let _ = (unchecked.canonical(), unchecked.to_value(), unchecked == Doc::null(), format!("{unchecked:?}"));
        let _ = (unchecked.get(&Pointer::from_tokens(["0", "a"])), unchecked == Doc::from_stored([&bytes[..], b" "].concat()));
    }

    #[test]
    fn finding_agrees_with_the_tree(value in value(), tokens in proptest::collection::vec("[a-d0-2]", 0..4)) {
        let pointer = Pointer::from_tokens(tokens);
        let found = Doc::from_value(&value).expect("a document").get(&pointer).map(|d| d.to_value().expect("a document"));
        prop_assert_eq!(found.as_ref(), pointer.get(&value));
    }
}
