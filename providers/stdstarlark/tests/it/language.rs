//! The language: values in and out, loads, builtins, what is refused, and how errors read.

use crate::{run, run_files, specs, terminal, value_of};

#[test]
fn spec_and_config_read_as_attributes_and_as_mappings() {
    let program = r#"
def compose(spec, config):
    return struct(status = {
        "attribute": spec.name,
        "index": spec["name"],
        "nested": spec.net.cidrs[1],
        "in": "net" in spec and "nope" not in spec,
        "keys": [k for k in spec],
        "len": len(spec),
        "default": getattr(spec, "missing", 7),
        "has": [hasattr(spec, "net"), hasattr(spec, "missing")],
        "shadowed": spec.items,
        "config": config.zone,
        "same": spec == spec and spec.net != spec,
        "empty": bool(spec.empty),
        "whole": spec.net,
    })
"#;
    let spec = r#"{"name":"a","net":{"cidrs":["x","y"]},"items":3,"empty":{}}"#;
    let outcome = run(program, spec, r#"{"zone":"eu"}"#).expect("composes");
    assert_eq!(
        outcome.status.expect("there is one").as_str(),
        Some(concat!(
            r#"{"attribute":"a","index":"a","nested":"y","in":true,"keys":["name","net","items","empty"],"len":4,"#,
            r#""default":7,"has":[true,false],"shadowed":3,"config":"eu","same":true,"empty":false,"#,
            r#""whole":{"cidrs":["x","y"]}}"#
        ))
    );
}

#[test]
fn numbers_keep_every_digit() {
    for (given, wanted) in [
        ("0", "0"),
        ("-1", "-1"),
        ("9007199254740993", "9007199254740993"),
        ("18446744073709551615", "18446744073709551615"),
        (
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        (
            "-123456789012345678901234567890",
            "-123456789012345678901234567890",
        ),
        ("3.0", "3"),
        ("1e3", "1000"),
        ("-2.50", "-2.5"),
        ("0.1", "0.1"),
        ("1e21", "1e+21"),
    ] {
        let out = value_of("spec.n", &format!(r#"{{"n":{given}}}"#)).expect("composes");
        assert_eq!(out, wanted, "given {given}");
    }
    assert_eq!(
        value_of("spec.n + 1", r#"{"n":123456789012345678901234567890}"#).expect("composes"),
        "123456789012345678901234567891"
    );
    assert_eq!(
        value_of("type(spec.n)", r#"{"n":3.0}"#).expect("composes"),
        "\"int\""
    );
}

#[test]
fn numbers_beyond_reason_are_refused_and_named() {
    let message = terminal(value_of("spec.a.n", r#"{"a":{"n":1e400}}"#));
    assert_eq!(
        message,
        "spec .a.n is a number beyond what a float can hold: 1e400"
    );
    let message = terminal(value_of(
        "1",
        &format!(r#"{{"n":[0,{}]}}"#, "9".repeat(2_000)),
    ));
    assert_eq!(
        message,
        "spec .n[1] is a whole number of 2000 digits, which is too long"
    );
    let message = terminal(value_of("{'x': [float('inf')]}", "{}"));
    assert_eq!(message, "status.x[0] is inf, which has no JSON form");
    let message = terminal(value_of("1 << 5000", "{}"));
    assert_eq!(
        message,
        "status is a whole number of 5001 bits; at most 4096 fit"
    );
}

#[test]
fn text_survives_both_ways() {
    let text = r#""quote \" slash \\ control \u0001 snow ☃ pair \ud83d\ude00""#;
    let out = value_of("spec.t", &format!(r#"{{"t":{text}}}"#)).expect("composes");
    let (given, returned): (String, String) = (
        serde_json::from_str(text).unwrap(),
        serde_json::from_str(&out).unwrap(),
    );
    assert_eq!(given, returned);
}

#[test]
fn input_cannot_be_changed() {
    for statement in ["spec.items.append(1)", "spec.name = 2", "spec['name'] = 2"] {
        let program = format!("def compose(spec, config):\n    {statement}\n    return {{}}\n");
        let message = terminal(run(&program, r#"{"items":[],"name":1}"#, "{}"));
        assert!(
            message.contains("compose.star:2:"),
            "{statement}: {message}"
        );
    }
}

#[test]
fn a_third_parameter_gets_meta() {
    let program = "def compose(spec, config, meta):\n    return struct(status=[meta.name, meta.kind, meta.uid, meta.labels['team']])\n";
    let outcome = run(program, "{}", "{}").expect("composes");
    assert_eq!(
        outcome.status.unwrap().as_str(),
        Some(r#"["shop","stdstarlark","0197c0de","blue"]"#)
    );
    let optional = "def compose(spec, config, meta=None):\n    return struct(status=meta.name)\n";
    assert_eq!(
        run(optional, "{}", "{}").unwrap().status.unwrap().as_str(),
        Some("\"shop\"")
    );
}

#[test]
fn files_load_by_their_path() {
    let files = [
        (
            "compose.star",
            "load('lib/a.star', 'twice')\nload('policies/x.star', limit='LIMIT')\ndef compose(spec, config):\n    return struct(status=twice(limit))\n",
        ),
        (
            "lib/a.star",
            "load('lib/b.star', 'add')\ndef twice(x):\n    return add(x, x)\n",
        ),
        ("lib/b.star", "def add(a, b):\n    return a + b\n"),
        ("policies/x.star", "LIMIT = 21\n"),
    ];
    assert_eq!(
        run_files(&files, "{}", "{}")
            .unwrap()
            .status
            .unwrap()
            .as_str(),
        Some("42")
    );
}

#[test]
fn what_is_wrong_with_loads_is_told_at_once_and_in_place() {
    let files = [
        (
            "compose.star",
            "load('a.star', 'x')\nload('librarry.star', 'y')\ndef compose(spec, config):\n    return {}\n",
        ),
        ("a.star", "load('b.star', 'x')\n"),
        ("b.star", "load('compose.star', 'x')\nx = 1\n"),
        ("library.star", "y = 1\n"),
    ];
    let message = terminal(run_files(&files, "{}", "{}"));
    assert!(message.contains("compose.star:2:6: the bundle has no file \"librarry.star\"; did you mean \"library.star\"?"), "{message}");
    assert!(
        message
            .contains("b.star:1:6: load cycle: compose.star -> a.star -> b.star -> compose.star"),
        "{message}"
    );
    assert!(
        message.contains("1 | load('compose.star', 'x')"),
        "{message}"
    );

    let files = [
        (
            "compose.star",
            "load('a.star', 'nope')\ndef compose(spec, config):\n    return {}\n",
        ),
        ("a.star", "x = 1\n"),
    ];
    let message = terminal(run_files(&files, "{}", "{}"));
    assert!(
        message.starts_with("compose.star:1:") && message.contains("nope"),
        "{message}"
    );
    let files = [
        (
            "compose.star",
            "load('a.star', '_x')\ndef compose(spec, config):\n    return {}\n",
        ),
        ("a.star", "_x = 1\n"),
    ];
    assert!(terminal(run_files(&files, "{}", "{}")).starts_with("compose.star:1:"));
}

#[test]
fn an_error_names_file_line_and_column_quotes_the_line_and_lists_the_callers() {
    let files = [
        (
            "compose.star",
            "load('lib/size.star', 'size')\n\ndef compose(spec, config):\n    cpu = size(spec)\n    return struct(status=cpu)\n",
        ),
        (
            "lib/size.star",
            "def size(spec):\n    if True:\n        fail(\"no size for\", spec.name)\n    return 1\n",
        ),
    ];
    let message = terminal(run_files(&files, r#"{"name":"web"}"#, "{}"));
    assert_eq!(
        message,
        "lib/size.star:3:9: fail: no size for web\n   |\n 3 |         fail(\"no size for\", spec.name)\n   |         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^\n  in size, called from compose.star:4:11"
    );
}

#[test]
fn faults_of_programs_read_well() {
    for (body, wanted) in [
        (
            "return struct(status=spec.nmae)",
            "compose.star:2:26: Object of type `object` has no attribute `nmae`",
        ),
        ("return struct(status=1 + 'x')", "compose.star:2:26:"),
        (
            "return struct(status={}['k'])",
            "compose.star:2:26: Key `\"k\"` was not found",
        ),
        ("x = = 1", "compose.star:2:9: Parse error"),
        (
            "return undefined_name",
            "compose.star:2:12: Variable `undefined_name` not found",
        ),
        ("return 1 // 0", "compose.star:2:12:"),
    ] {
        let message = terminal(run(
            &format!("def compose(spec, config):\n    {body}\n"),
            r#"{"name":1}"#,
            "{}",
        ));
        assert!(message.starts_with(wanted), "{body}: {message}");
        assert!(
            message.contains(&format!(" 2 |     {body}")),
            "{body}: {message}"
        );
    }
}

#[test]
fn recursion_is_refused_however_it_is_reached() {
    for (name, program) in [
        (
            "direct",
            "def f(n):\n    if n == 0:\n        return 0\n    return f(n - 1)\ndef compose(spec, config):\n    return struct(status=f(3))\n",
        ),
        (
            "mutual",
            "def f(n):\n    if n == 0:\n        return 0\n    return g(n - 1)\ndef g(n):\n    x = f(n)\n    return x\ndef compose(spec, config):\n    return struct(status=f(3))\n",
        ),
        (
            "through a value",
            "def f(me, n):\n    if n == 0:\n        return 0\n    return me(me, n - 1)\ndef compose(spec, config):\n    return struct(status=f(f, 3))\n",
        ),
        (
            "lambda",
            "def compose(spec, config):\n    f = lambda me, n: 0 if n == 0 else me(me, n - 1)\n    return struct(status=f(f, 3))\n",
        ),
        (
            "through a builtin",
            "def f(n):\n    if n == 0:\n        return 0\n    return sorted([n - 1], key=f)\ndef compose(spec, config):\n    return struct(status=f(3))\n",
        ),
    ] {
        let result = run(program, "{}", "{}");
        assert!(result.is_err(), "{name}: {result:?}");
        let message = terminal(result);
        assert!(
            message.contains("is called recursively"),
            "{name}: {message}"
        );
        assert!(message.starts_with("compose.star:"), "{name}: {message}");
    }
}

#[test]
fn calling_a_function_again_is_not_recursion() {
    let program = r#"
def b(x):
    y = x
    return y
def wrap(f, x):
    r = f(x)
    return r
def compose(spec, config):
    n = b(b(1)) + b(2)
    s = sorted([b(3), b(1)], key=b)
    t = sorted(b([2, 1]), key=lambda x: b(x))
    w = wrap(lambda x: b(x) + 1, b(4)) + wrap(b, 1)
    return struct(status=[n, s, t, w])
"#;
    assert_eq!(
        run(program, "{}", "{}")
            .expect("composes")
            .status
            .unwrap()
            .as_str(),
        Some("[3,[1,3],[1,2],6]")
    );
    // The same name in two files is two functions.
    let files = [
        (
            "compose.star",
            "load('a.star', inner='size')\ndef size(x):\n    y = inner(x)\n    return y\ndef compose(spec, config):\n    return struct(status=size(1))\n",
        ),
        ("a.star", "def size(x):\n    y = x\n    return y\n"),
    ];
    assert_eq!(
        run_files(&files, "{}", "{}")
            .expect("composes")
            .status
            .unwrap()
            .as_str(),
        Some("1")
    );
}

#[test]
fn globals_are_assigned_once() {
    for (program, place) in [
        ("x = 1\nx = 2\n", "2:1"),
        ("x = 1\nx += 2\n", "2:1"),
        ("x, y = 1, 2\n(z, [y]) = 1, [2]\n", "2:6"),
        ("def f():\n    pass\ndef f():\n    pass\n", "3:5"),
        ("def f():\n    pass\nf = 1\n", "3:1"),
        // A comment that switches off the interpreter's own lint changes nothing.
        (
            "x = 1\n# starlark-lint-disable duplicate-top-level-assign\nx = 2\n",
            "3:1",
        ),
    ] {
        let source = format!("{program}def compose(spec, config):\n    return {{}}\n");
        let message = terminal(run(&source, "{}", "{}"));
        assert!(
            message.starts_with(&format!("compose.star:{place}: cannot reassign global ")),
            "{message}"
        );
    }
    let files = [
        (
            "compose.star",
            "load('a.star', 'x')\nx = 1\ndef compose(spec, config):\n    return {}\n",
        ),
        ("a.star", "x = 1\n"),
    ];
    assert!(terminal(run_files(&files, "{}", "{}")).starts_with(
        "compose.star:2:1: cannot reassign global x, first bound at compose.star:1:16"
    ));
    // Locals may be assigned again, and an element is no global.
    let fine = "d = {}\nd['a'] = 1\nd['a'] = 2\ndef compose(spec, config):\n    x = 1\n    x = 2\n    return struct(status=[x, d])\n";
    assert_eq!(
        run(fine, "{}", "{}")
            .expect("composes")
            .status
            .unwrap()
            .as_str(),
        Some("[2,{\"a\":2}]")
    );
}

#[test]
fn top_level_control_flow_and_other_extensions_are_off() {
    for source in [
        "for x in [1]:\n    pass\n",
        "if True:\n    pass\n",
        "x = f'{1}'\n",
        "def f(x: int):\n    pass\n",
        "x = set([1])\n",
    ] {
        let message = terminal(run(
            &format!("{source}def compose(spec, config):\n    return {{}}\n"),
            "{}",
            "{}",
        ));
        assert!(
            message.starts_with("compose.star:1:"),
            "{source}: {message}"
        );
    }
}

#[test]
fn match_is_a_glob_over_the_whole_text() {
    for (pattern, text, wanted) in [
        ("team-*", "team-blue", true),
        ("team-*", "my-team-blue", false),
        ("*", "a/b", true),
        ("a?c", "abc", true),
        ("[a-c]x", "bx", true),
        ("[!a-c]x", "bx", false),
        ("{dev,prod}-*", "prod-1", true),
        ("a.c", "abc", false),
    ] {
        let out = value_of(&format!("match({pattern:?}, {text:?})"), "{}").expect("composes");
        assert_eq!(out, wanted.to_string(), "{pattern} on {text}");
    }
    let message = terminal(value_of("match('[', 'x')", "{}"));
    assert!(
        message.starts_with("compose.star:2:26: match: "),
        "{message}"
    );
}

#[test]
fn json_encodes_and_decodes() {
    assert_eq!(
        value_of(
            r#"json.encode({"b": [1, 2.5, None, True], "a": struct(z="é", y=spec)})"#,
            r#"{"k":1}"#
        )
        .unwrap(),
        r#""{\"a\":{\"y\":{\"k\":1},\"z\":\"é\"},\"b\":[1,2.5,null,true]}""#
    );
    assert_eq!(
        value_of(
            r#"json.decode('{"b": [1, 12345678901234567890123], "a": null}')"#,
            "{}"
        )
        .unwrap(),
        r#"{"b":[1,12345678901234567890123],"a":null}"#
    );
    for bad in ["1e400", "[1,", "{\"a\":}", "nul"] {
        let message = terminal(value_of(&format!("json.decode({bad:?})"), "{}"));
        assert!(
            message.starts_with("compose.star:2:26: json.decode: x"),
            "{bad}: {message}"
        );
    }
    let message = terminal(value_of("json.encode({'a': [lambda x: x]})", "{}"));
    assert!(
        message.contains("json.encode: x.a[0] is a function, which has no JSON form"),
        "{message}"
    );
}

#[test]
fn there_is_no_clock_no_file_and_no_randomness() {
    for name in [
        "time",
        "open",
        "random",
        "os",
        "rand",
        "hash_random",
        "breakpoint",
        "set",
        "call_stack",
        "debug",
        "pprint",
        "Label",
    ] {
        let message = terminal(value_of(name, "{}"));
        assert!(
            message.contains(&format!("Variable `{name}` not found")),
            "{message}"
        );
    }
}

#[test]
fn entry_points_of_the_wrong_kind_are_named() {
    for (program, wanted) in [
        (
            "x = 1\n",
            "compose.star defines no compose; it must define: def compose(spec, config)",
        ),
        (
            "compose = 3\n",
            "compose.star defines compose as a int; it must define: def compose(spec, config)",
        ),
        (
            "def compose(spec):\n    return {}\n",
            "compose.star defines compose with 1 required and 1 possible positional parameters; it must define: def compose(spec, config)",
        ),
        (
            "def compose(a, b, c, d):\n    return {}\n",
            "compose.star defines compose with 4 required and 4 possible positional parameters; it must define: def compose(spec, config)",
        ),
    ] {
        assert_eq!(terminal(run(program, "{}", "{}")), wanted);
    }
}

#[test]
fn order_is_that_of_the_program() {
    let program = "def compose(spec, config):\n    return struct(children=[struct(kind='a', name='x', spec={'z': 1, 'b': {'y': 1, 'a': 2}, 'a': struct(q=1, c=2)})])\n";
    assert_eq!(
        specs(&run(program, "{}", "{}").unwrap()),
        [r#"{"z":1,"b":{"y":1,"a":2},"a":{"q":1,"c":2}}"#]
    );
}
