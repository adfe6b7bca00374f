//! Graphs that try to take the worker down: each ends in an answer or a problem, soon, on a thread with a small stack.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use serde_json::json;
use stdcel::{Class, Graph, Instance, Problem};

/// What the worker promises is 2 s in a release build; this is a debug build on a machine that does other things too.
const SOON: Duration = Duration::from_secs(if cfg!(debug_assertions) { 10 } else { 2 });

fn compose(config: &serde_json::Value) -> Result<stdcel::Composition, Vec<Problem>> {
    let config = config.to_string();
    // A thread with the stack that a runtime's threads have, so that an overflow shows here.
    let run = move || {
        let started = Instant::now();
        let spec = br#"{"n": 3, "s": "text", "l": [1, 2, 3], "m": {"b": 1, "a": 2}}"#;
        let result = Graph::parse(config.as_bytes()).compose(&Instance {
            spec,
            name: "demo",
            ..Default::default()
        });
        (result, started.elapsed())
    };
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .stack_size(2 << 20)
        .spawn(move || sender.send(run()))
        .unwrap();
    // Nobody waits for one that goes on without end.
    let (result, took) = receiver
        .recv_timeout(SOON * 2)
        .expect("it ends, and without a panic");
    assert!(took < SOON, "it took {took:?}");
    result
}

fn leaf(expression: &str) -> Result<serde_json::Value, Vec<Problem>> {
    let spec = json!({"x": format!("${{{expression}}}")});
    let config =
        json!({"resources": [{"id": "a", "template": {"kind": "k", "name": "n", "spec": spec}}]});
    compose(&config).map(|composition| {
        let spec: serde_json::Value = serde_json::from_str(&composition.children[0].spec).unwrap();
        spec["x"].clone()
    })
}

fn class(result: Result<serde_json::Value, Vec<Problem>>) -> Class {
    result.expect_err("a problem").first().unwrap().class
}

#[test]
fn a_sum_of_ten_thousand_terms_is_computed() {
    assert_eq!(leaf(&vec!["1"; 10_000].join("+")).unwrap(), json!(10_000));
    assert_eq!(
        leaf(&vec!["'ab'"; 10_000].join("+")).unwrap(),
        json!("ab".repeat(10_000))
    );
    assert_eq!(
        leaf(&vec!["1 == 1"; 10_000].join(" && ")).unwrap(),
        json!(true)
    );
    assert_eq!(
        leaf(&format!("{}7", "false ? 1 : ".repeat(5_000))).unwrap(),
        json!(7)
    );
}

#[test]
fn long_chains_of_selections_end_in_an_answer_or_a_problem() {
    assert_eq!(
        class(leaf(&format!("schema.spec{}", ".a".repeat(10_000)))),
        Class::EvalError
    );
    assert_eq!(
        leaf(&format!("schema.spec.s{}", ".trim()".repeat(10_000))).unwrap(),
        json!("text")
    );
    assert_eq!(
        leaf(&format!("{}true", "!".repeat(10_000))).unwrap(),
        json!(true)
    );
    assert_eq!(
        leaf(&format!("{}1", "-".repeat(10_001))).unwrap(),
        json!(-1)
    );
}

#[test]
fn five_thousand_levels_of_nesting_are_refused() {
    for (open, close) in [
        ("(", ")"),
        ("[", "]"),
        ("{'a': ", "}"),
        ("size([", "])"),
        ("!(", ")"),
        ("[1].map(x, ", ")"),
        ("true ? (", ") : 1"),
    ] {
        let expression = format!("{}1{}", open.repeat(5_000), close.repeat(5_000));
        assert_eq!(class(leaf(&expression)), Class::ParseError, "{open}");
    }
    // As deep as it may be, in the worst form there is.
    for (open, close) in [
        ("[", "]"),
        ("[1].map(x, ", ")[0]"),
        ("{'a': ", "}.a"),
        ("(1 * ", ")"),
        ("optional.of(", ")"),
    ] {
        leaf(&format!("{}1{}", open.repeat(60), close.repeat(60))).unwrap();
    }
}

#[test]
fn loops_within_loops_run_out_of_steps() {
    let range = "lists.range(1000)";
    for expression in [
        format!("{range}.map(a, {range}.map(b, {range}.map(c, a + b + c)))"),
        format!("{range}.exists(a, {range}.exists(b, {range}.exists(c, false)))"),
        format!("{range}.all(a, {range}.all(b, {range}.all(c, a / 0 == 1 || true)))"),
        // Builds nothing: only the steps can end it.
        format!("cel.bind(r, {range}, r.exists(a, r.exists(b, r.exists(c, false))))"),
        "lists.range(1000000).map(a, a).map(a, a).map(a, a)".to_owned(),
        "lists.range(9223372036854775807)".to_owned(),
        "lists.range(1000).transformList(i, v, lists.range(1000)).flatten().sort()".to_owned(),
    ] {
        assert_eq!(class(leaf(&expression)), Class::Limit, "{expression}");
    }
}

#[test]
fn growing_values_run_out_of_memory_allowance() {
    let doubled =
        |seed: &str, step: &str| (0..40).fold(seed.to_owned(), |text, _| format!("{text}{step}"));
    for expression in [
        doubled("['xxxxxxxx']", ".map(a, a + a)"),
        doubled("[[1]]", ".map(a, a + a)"),
        doubled("'x'", ".replace('x', 'xxxxxxxxxx')"),
        "lists.range(100000).map(a, 'x').join('xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx').replace('x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy')".to_owned(),
        format!("'{}'.format([lists.range(1000)])", "%s") + &".split('').join('xxxxxxxxxx')".repeat(12),
        "lists.range(100000).map(a, cel.bind(s, 'x'.replace('x', 'yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy'), s.replace('y', s.replace('y', s))))".to_owned(),
    ] {
        assert_eq!(class(leaf(&expression)), Class::Limit, "{expression}");
    }
}

#[test]
fn one_big_text_read_over_and_over_is_paid_for() {
    let big = "lists.range(20000).map(i, 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx').join()";
    for use_it in [
        "lists.range(100000).exists(i, s == s + 'x')",
        "lists.range(100000).map(i, s).sort()",
        "lists.range(100000).exists(i, s.matches('y$'))",
        "lists.range(100000).exists(i, {s: 1}[s] == 2)",
        "lists.range(100000).map(i, s).distinct()",
        "lists.range(100000).map(i, hash.sha256(s))",
        "lists.range(100000).map(i, s.charAt(900000))",
        "lists.range(100000).map(i, int(s))",
    ] {
        let result = leaf(&format!("cel.bind(s, {big}, {use_it})"));
        assert!(
            matches!(class(result), Class::Limit | Class::EvalError),
            "{use_it}"
        );
    }
}

#[test]
fn hostile_patterns_and_numbers_are_problems() {
    for expression in [
        "'a'.matches('(((a{100}){100}){100}){100}')",
        "'a'.matches('(')",
        "'%.999999999f'.format([1.0])",
        "duration('9999999999999999999h')",
        "timestamp('99999-01-01T00:00:00Z')",
        "random.seededString(100000000, 's')",
        "1 << 2",
        "[1, 2][9223372036854775807]",
        "'abc'.substring(-1)",
        "math.bitShiftLeft(1, -1)",
        "quantity('99999999999999999999999999999999999999999999999E')",
        "json.unmarshal('[[[[')",
    ] {
        assert!(leaf(expression).is_err(), "{expression}");
    }
    assert!(leaf(&format!("json.unmarshal('{}')", "[".repeat(50_000))).is_err());
}

#[test]
fn a_chain_of_ten_thousand_resources_is_ordered_and_composed() {
    let resource = |at: usize| {
        let value = if at == 9_999 {
            json!("${schema.spec.n}")
        } else {
            json!(format!("${{r{}.spec.v}}", at + 1))
        };
        json!({"id": format!("r{at}"), "template": {"kind": "k", "name": format!("n{at}"), "spec": {"v": value}}})
    };
    let composition =
        compose(&json!({"resources": (0..10_000).map(resource).collect::<Vec<_>>()})).unwrap();
    assert_eq!(composition.children.len(), 10_000);
    assert_eq!(composition.children[0].name, "n9999");
    assert_eq!(composition.children[9_999].spec, r#"{"v":3}"#);
}

#[test]
fn specs_that_hold_specs_stop_at_a_bound() {
    let nested = |inner: &dyn Fn(usize) -> serde_json::Value| {
        let resource = |at: usize| {
            let spec = if at == 0 {
                json!({"v": 1})
            } else {
                inner(at - 1)
            };
            json!({"id": format!("r{at}"), "template": {"kind": "k", "name": format!("n{at}"), "spec": spec}})
        };
        json!({"resources": (0..2_000).map(resource).collect::<Vec<_>>()})
    };
    let deep = compose(&nested(&|at| json!({"in": format!("${{r{at}.spec}}")})));
    assert!(
        deep.expect_err("too deep")
            .iter()
            .any(|problem| problem.class == Class::Limit)
    );
    let wide = compose(&nested(
        &|at| json!({"a": format!("${{r{at}.spec}}"), "b": format!("${{r{at}.spec}}")}),
    ));
    assert!(
        wide.expect_err("too big")
            .iter()
            .any(|problem| problem.class == Class::Limit)
    );
}

#[test]
fn for_each_is_capped_whatever_its_dimensions() {
    let resource = json!({
        "id": "a", "forEach": {"x": "${lists.range(1000)}", "y": "${lists.range(1000)}", "z": "${lists.range(1000)}"},
        "template": {"kind": "k", "name": "n-${x}-${y}-${z}"},
    });
    let problems = compose(&json!({"resources": [resource]})).expect_err("too many");
    assert_eq!(problems[0].class, Class::Limit);
}

#[test]
fn a_graph_of_nothing_but_circles_is_reported_soon() {
    let resource = |at: usize| {
        let other = if at.is_multiple_of(2) { at + 1 } else { at - 1 };
        let spec = json!({"v": format!("${{r{other}.spec.v}}")});
        json!({"id": format!("r{at}"), "template": {"kind": "k", "name": format!("n{at}"), "spec": spec}})
    };
    let problems = compose(&json!({"resources": (0..10_000).map(resource).collect::<Vec<_>>()}))
        .expect_err("circles");
    assert!(problems.iter().all(|problem| problem.class == Class::Cycle));
}

#[test]
fn graphs_that_are_not_graphs_are_problems() {
    for config in [
        "",
        "null",
        "[]",
        "{\"resources\": 1}",
        "{\"resources\": [1, null, {}]}",
        "{\"resources\": [{\"id\": 1}]}",
        "\u{0}",
        "{\"resources\":",
    ] {
        assert!(
            !Graph::parse(config.as_bytes()).problems().is_empty(),
            "{config:?}"
        );
    }
    let deep = format!(
        "{{\"resources\": {}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(Graph::parse(deep.as_bytes()).problems().len(), 1);
}
