//! What `compose` may return, and how wrong shapes are told.

use crate::{run, terminal};

fn compose(result: &str) -> Result<converge_sdk::Outcome, converge_sdk::TaskError> {
    run(
        &format!("def compose(spec, config):\n    return {result}\n"),
        r#"{"o":{"a":1}}"#,
        "{}",
    )
}

#[test]
fn a_whole_result_arrives() {
    let outcome = compose(
        r#"struct(
        children=[
            struct(kind="stdshell", name="db", spec={"script": "true"}, labels={"tier": "data"}),
            {"kind": "stdshell", "kind_version": 2, "name": "web", "spec": spec.o},
        ],
        edges=[struct(dependent=struct(kind="stdshell", name="web"), dependency={"kind": "stdshell", "name": "db"},
                      values=[struct(dependent="/env/DB", source="/stdout"), struct(dependent="port", source="a~b")])],
        configs=[struct(kind="stdshell", name="shell-a", spec={"env": {}}, is_default=False)],
        status={"children": 2},
        conditions=[struct(type="Planned", status="True", reason="Done", message="two")],
    )"#,
    )
    .expect("composes");
    let children = outcome.children.expect("there are some");
    assert_eq!(children.len(), 2);
    assert_eq!(children[0].kind.to_string(), "stdshell/v1");
    assert_eq!(children[0].labels["tier"], "data");
    assert_eq!(children[1].kind.to_string(), "stdshell/v2");
    assert_eq!(children[1].spec.as_str(), Some(r#"{"a":1}"#));
    let edge = &outcome.edges[0];
    assert_eq!(
        (edge.from.to_string().as_str(), edge.to.to_string().as_str()),
        ("stdshell/web", "stdshell/db")
    );
    assert_eq!(
        (
            edge.values[0].dependent_field.as_str(),
            edge.values[0].source_field.as_str()
        ),
        ("/env/DB", "/stdout")
    );
    assert_eq!(
        (
            edge.values[1].dependent_field.as_str(),
            edge.values[1].source_field.as_str()
        ),
        ("/port", "/a~0b")
    );
    assert_eq!(outcome.configs[0].name, "shell-a");
    assert!(!outcome.configs[0].is_default);
    assert_eq!(
        outcome.status.expect("there is one").as_str(),
        Some(r#"{"children":2}"#)
    );
    assert_eq!(outcome.conditions[0].message, "two");
}

#[test]
fn everything_is_optional_and_no_children_means_none() {
    for result in [
        "struct()",
        "{}",
        "struct(children=[])",
        "struct(children=None, edges=None)",
    ] {
        let outcome = compose(result).expect("composes");
        assert_eq!(outcome.children, Some(Vec::new()), "{result}");
        assert!(
            outcome.status.is_none() && outcome.edges.is_empty() && outcome.conditions.is_empty()
        );
    }
    let outcome = compose("struct(children=[struct(kind='a', name='x')])").expect("composes");
    assert_eq!(outcome.children.unwrap()[0].spec.as_str(), Some("{}"));
}

#[test]
fn wrong_shapes_name_the_path() {
    for (result, wanted) in [
        (
            "None",
            "compose must return struct(children=[…], …), got None (is a return missing?)",
        ),
        (
            "[]",
            "the result of compose must be a struct or dict, got list",
        ),
        (
            "struct(childs=[])",
            "the result of compose has an unknown field \"childs\"; did you mean \"children\"?",
        ),
        ("struct(children={})", "children must be a list, got dict"),
        (
            "struct(children=[1])",
            "children[0] must be a struct or dict, got int",
        ),
        (
            "struct(children=[struct(kind='a', name='x', spec=[])])",
            "children[0].spec must be a dict, got list",
        ),
        (
            "struct(children=[struct(kind='a', name='x', specs={})])",
            "children[0] has an unknown field \"specs\"; did you mean \"spec\"?",
        ),
        (
            "struct(children=[struct(name='x')])",
            "children[0].kind is required: a string",
        ),
        (
            "struct(children=[struct(kind='a', name='')])",
            "children[0].name must not be empty",
        ),
        (
            "struct(children=[struct(kind='A B', name='x')])",
            "children[0].kind must be a kind ([a-z][a-z0-9-]*, at most 63 characters), got \"A B\"",
        ),
        (
            "struct(children=[struct(kind='a', name='x', kind_version=0)])",
            "children[0].kind_version must be from 1 to 32767, got 0",
        ),
        (
            "struct(children=[struct(kind='a', name='x', kind_version='1')])",
            "children[0].kind_version must be an int, got string",
        ),
        (
            "struct(children=[struct(kind='a', name='x', labels={'k': 1})])",
            "children[0].labels.k must be a string, got int",
        ),
        (
            "struct(children=[struct(kind='a', name='x', spec={'a': [1, {'b': len}]})])",
            "children[0].spec.a[1].b is a function, which has no JSON form",
        ),
        (
            "struct(children=[struct(kind='a', name='x', spec={'a b': {1: 2}})])",
            "children[0].spec[\"a b\"] has a key of type int; the keys of a JSON object are strings",
        ),
        (
            "struct(children=[struct(kind='a', name='x', spec={'r': range(3)})])",
            "children[0].spec.r is a range, which has no JSON form; use list(…)",
        ),
        (
            "struct(edges=[struct(dependent=struct(kind='a', name='x'))])",
            "edges[0].dependency is required: struct(kind=…, name=…)",
        ),
        (
            "struct(conditions=[struct(type='Ready', status='true')])",
            "conditions[0].status must be \"True\", \"False\" or \"Unknown\", got \"true\"",
        ),
        (
            "struct(configs=[struct(kind='a', name='x', is_default=1)])",
            "configs[0].is_default must be a bool, got int",
        ),
        (
            "struct(children=[struct(kind='a', name='x')], edges=[struct(dependent=struct(kind='a', name='x'), dependency=struct(kind='a', name='x'), values=[struct(dependent='/a~2', source='b')])])",
            "edges[0].values[0].dependent is not a JSON pointer: \"/a~2\" (after ~ comes 0 or 1)\nedges[0] makes a \"x\" depend on itself",
        ),
    ] {
        assert_eq!(terminal(compose(result)), wanted, "{result}");
    }
}

#[test]
fn all_problems_come_together_and_the_list_is_bounded() {
    let message = terminal(compose(
        "struct(children=[struct(kind='a', name='x', spec=1), 2], status=len)",
    ));
    assert_eq!(
        message.lines().collect::<Vec<_>>(),
        [
            "children[0].spec must be a dict, got int",
            "children[1] must be a struct or dict, got int",
            "status is a function, which has no JSON form"
        ]
    );
    let message = terminal(compose("struct(children=[i for i in range(100)])"));
    assert_eq!(message.lines().count(), 21);
    assert!(message.ends_with("(and 80 more problems)"), "{message}");
}

#[test]
fn graphs_that_the_result_alone_shows_wrong_are_refused_here() {
    let message = terminal(compose(
        "struct(children=[struct(kind='a', name='x'), struct(kind='b', name='x'), struct(kind='a', name='x', kind_version=2)])",
    ));
    assert_eq!(
        message,
        "children[2] is the same child as children[0]: a \"x\""
    );

    let edge = |from: &str, to: &str| {
        format!(
            "struct(dependent=struct(kind='a', name='{from}'), dependency=struct(kind='a', name='{to}'))"
        )
    };
    let children = "children=[struct(kind='a', name='database'), struct(kind='a', name='web'), struct(kind='a', name='cache')]";
    let message = terminal(compose(&format!(
        "struct({children}, edges=[{}, {}])",
        edge("web", "databse"),
        edge("web", "zzz")
    )));
    assert_eq!(
        message,
        "edges[0].dependency: no child of this result is a \"databse\"; did you mean \"database\"?\nedges[1].dependency: no child of this result is a \"zzz\""
    );
    let cycle = [
        edge("web", "database"),
        edge("database", "cache"),
        edge("cache", "web"),
    ]
    .join(", ");
    let message = terminal(compose(&format!("struct({children}, edges=[{cycle}])")));
    assert!(
        message.starts_with("the edges form a cycle: a/cache -> a/web -> a/database -> a/cache"),
        "{message}"
    );
}

#[test]
fn edges_between_the_same_children_become_one() {
    let edge = |field: &str| {
        format!(
            "struct(dependent=struct(kind='a', name='x'), dependency=struct(kind='a', name='y'), values=[struct(dependent='/{field}', source='/s')])"
        )
    };
    let outcome = compose(&format!(
        "struct(children=[struct(kind='a', name='x'), struct(kind='a', name='y')], edges=[{}, {}, {}])",
        edge("p"), edge("q"), edge("p")
    ))
    .expect("composes");
    assert_eq!(outcome.edges.len(), 1);
    assert_eq!(outcome.edges[0].values.len(), 2);
}

#[test]
fn sizes_are_bounded_with_a_path() {
    let message = terminal(run(
        "def compose(spec, config):\n    x = []\n    x.append(x)\n    return struct(status={'loop': x})\n",
        "{}",
        "{}",
    ));
    assert!(
        message.starts_with("status.loop[0]")
            && message.ends_with("nests deeper than 64 levels (does a value contain itself?)"),
        "{message}"
    );
    let shared = "def compose(spec, config):\n    x = [1]\n    for _ in range(30):\n        x = [x, x]\n    return struct(status=x)\n";
    assert!(terminal(run(shared, "{}", "{}")).contains("a result may have 1000000"));
    let long = "def compose(spec, config):\n    return struct(status='x' * 20000000)\n";
    assert!(
        terminal(run(long, "{}", "{}"))
            .contains("is a string of 20000000 bytes; a result may have 16777216")
    );
    let message = terminal(run(
        "def compose(spec, config):\n    return {}\n",
        &format!("{}{}{}", r#"{"a":"#, "[".repeat(70) + &"]".repeat(70), "}"),
        "{}",
    ));
    assert!(message.contains("nests deeper than 64 levels"), "{message}");
}
