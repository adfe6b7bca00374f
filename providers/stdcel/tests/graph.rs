//! What a graph means, rule by rule.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;

use serde_json::{Value, json};
use stdcel::{Class, Composition, Graph, Instance, Problem, summary};

fn graph(resources: Value) -> Graph {
    Graph::parse(json!({"resources": resources}).to_string().as_bytes())
}

fn compose(resources: Value, spec: Value) -> Result<Composition, Vec<Problem>> {
    let labels = BTreeMap::from([("team".to_owned(), "blue".to_owned())]);
    let spec = spec.to_string();
    graph(resources).compose(&Instance {
        spec: spec.as_bytes(),
        name: "demo",
        uid: "u-1",
        labels,
    })
}

fn ok(resources: Value, spec: Value) -> Composition {
    compose(resources, spec).unwrap_or_else(|problems| panic!("{}", summary(&problems)))
}

/// Class and pointer of each problem.
fn wrong(resources: Value, spec: Value) -> Vec<(Class, String)> {
    let problems = compose(resources, spec).expect_err("problems");
    problems
        .into_iter()
        .map(|problem| (problem.class, problem.pointer.unwrap_or_default()))
        .collect()
}

fn specs(composition: &Composition) -> Vec<(&str, Value)> {
    let spec = |child: &stdcel::Child| serde_json::from_str(&child.spec).unwrap();
    composition
        .children
        .iter()
        .map(|child| (child.name.as_str(), spec(child)))
        .collect()
}

fn resource(id: &str, spec: Value) -> Value {
    json!({"id": id, "template": {"kind": "k", "name": format!("n-{id}"), "spec": spec}})
}

/// `resource` with more fields.
fn with(mut resource: Value, more: Value) -> Value {
    for (name, value) in more.as_object().unwrap() {
        resource[name] = value.clone();
    }
    resource
}

#[test]
fn a_resource_left_out_takes_those_that_need_it_along() {
    let resources = json!([
        with(
            resource("net", json!({})),
            json!({"includeWhen": ["${schema.spec.on}", "${true}"]})
        ),
        resource("a", json!({"v": "${net.status.id}"})),
        resource("b", json!({"v": "${a.spec.v}"})),
        resource(
            "c",
            json!({"v": "${schema.spec.on ? net.status.id : 'none'}"})
        ),
        resource("d", json!({"v": "${c.metadata.name}"})),
    ]);
    let composition = ok(resources.clone(), json!({"on": false}));
    assert_eq!(
        specs(&composition),
        [("n-c", json!({"v": "none"})), ("n-d", json!({"v": "n-c"}))]
    );
    assert!(composition.edges.is_empty());
    assert_eq!(ok(resources, json!({"on": true})).children.len(), 5);
}

#[test]
fn include_when_takes_bools_and_no_status() {
    let with_condition = |condition: &str| {
        json!([
            resource("net", json!({})),
            with(
                resource("a", json!({})),
                json!({"includeWhen": [condition]})
            )
        ])
    };
    let at = |class| vec![(class, "/includeWhen/0".to_owned())];
    assert_eq!(
        wrong(with_condition("${1}"), json!({})),
        at(Class::EvalError)
    );
    assert_eq!(
        wrong(with_condition("${net.status.ok}"), json!({})),
        at(Class::StatusInExpression)
    );
    assert_eq!(
        wrong(with_condition("${net.status.ok == 1}"), json!({})),
        at(Class::StatusInExpression)
    );
    assert_eq!(
        wrong(with_condition("true"), json!({})),
        at(Class::Malformed)
    );
    assert_eq!(
        ok(with_condition("${true || net.status.ok}"), json!({}))
            .children
            .len(),
        2
    );
}

#[test]
fn for_each_makes_one_child_per_combination_the_last_dimension_fastest() {
    // `z` is listed before `a`: the order is that of the listing, not of the alphabet.
    let config = r#"{"resources": [
        {"id": "s", "forEach": {"z": "${schema.spec.zones}", "a": "${[1, 2]}"},
         "template": {"kind": "k", "name": "s-${z}-${a}", "spec": {"zone": "${z}", "n": "${a}"}}},
        {"id": "all", "template": {"kind": "k", "name": "all", "spec": {
            "names": "${s.metadata.map(m, m.name)}", "zones": "${s.spec.map(x, x.zone)}",
            "ids": "${s.status.map(x, x.id)}", "first": "${s.status[0].id}", "whole": "${s.status}"}}}
    ]}"#;
    let spec = br#"{"zones": ["u", "v"]}"#;
    let composition = Graph::parse(config.as_bytes())
        .compose(&Instance {
            spec,
            name: "demo",
            ..Default::default()
        })
        .unwrap();
    let names: Vec<&str> = composition
        .children
        .iter()
        .map(|child| child.name.as_str())
        .collect();
    assert_eq!(names, ["s-u-1", "s-u-2", "s-v-1", "s-v-2", "all"]);
    assert_eq!(composition.children[1].spec, r#"{"n":2,"zone":"u"}"#);
    let all: Value = serde_json::from_str(&composition.children[4].spec).unwrap();
    assert_eq!(all["names"], json!(["s-u-1", "s-u-2", "s-v-1", "s-v-2"]));
    assert_eq!(all["zones"], json!(["u", "u", "v", "v"]));
    assert_eq!(all["ids"], json!([null, null, null, null]));
    let flows: Vec<_> = composition
        .edges
        .iter()
        .map(|edge| (edge.from, edge.to, edge.values.clone()))
        .collect();
    assert_eq!(flows.len(), 4);
    let pair = |dependent: &str, source: &str| (dependent.to_owned(), source.to_owned());
    assert_eq!(
        flows[0],
        (
            4,
            0,
            vec![
                pair("/first", "/id"),
                pair("/ids/0", "/id"),
                pair("/whole/0", "")
            ]
        )
    );
    assert_eq!(
        flows[3],
        (4, 3, vec![pair("/ids/3", "/id"), pair("/whole/3", "")])
    );
}

#[test]
fn names_under_for_each_must_differ() {
    let resources = json!([with(
        resource("a", json!({})),
        json!({"forEach": {"x": "${[1, 2]}"}})
    )]);
    assert_eq!(
        wrong(resources, json!({})),
        [(Class::DuplicateObject, "/name".to_owned())]
    );
    let empty = json!([
        with(resource("a", json!({})), json!({"forEach": {"x": "${[]}"}})),
        resource("b", json!({"n": "${size(a.spec)}"}))
    ]);
    assert_eq!(specs(&ok(empty, json!({}))), [("n-b", json!({"n": 0}))]);
}

#[test]
fn labels_are_templates_and_two_belong_to_the_composer() {
    let labelled = |labels: Value| json!([{"id": "a", "template": {"kind": "k", "name": "n", "labels": labels}}]);
    let composition = ok(
        labelled(
            json!({"team": "${schema.metadata.labels.team}", "gone": "${schema.spec.?x}", "example.io/app": "${schema.metadata.name}-x"}),
        ),
        json!({}),
    );
    let labels = &composition.children[0].labels;
    let expected = [
        ("composed_by", "stdcel"),
        ("example.io/app", "demo-x"),
        ("graph_id", "a"),
        ("team", "blue"),
    ];
    assert_eq!(
        labels
            .iter()
            .map(|(key, value)| (key.as_str(), value.as_str()))
            .collect::<Vec<_>>(),
        expected
    );
    for (labels, class) in [
        (json!({"graph_id": "x"}), Class::BadLabel),
        (json!({"composed_by": "x"}), Class::BadLabel),
        (json!({"a": 1}), Class::BadLabel),
        (json!({"a": "${1}"}), Class::BadLabel),
        (json!({"a b": "x"}), Class::BadLabel),
        (json!({"${x}": "x"}), Class::ExpressionInKey),
    ] {
        assert_eq!(
            wrong(labelled(labels.clone()), json!({}))[0].0,
            class,
            "{labels}"
        );
    }
}

#[test]
fn kind_versions_start_at_one() {
    let versioned = |version: Value| json!([{"id": "a", "template": {"kind": "k", "kind_version": version, "name": "n"}}]);
    assert_eq!(
        ok(versioned(json!(3)), json!({})).children[0].kind_version,
        3
    );
    assert_eq!(
        ok(json!([resource("a", json!({}))]), json!({})).children[0].kind_version,
        1
    );
    for version in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("1"),
        json!(32768),
        json!(null),
    ] {
        assert_eq!(
            wrong(versioned(version), json!({})),
            [(Class::Malformed, "/kind_version".to_owned())]
        );
    }
}

#[test]
fn every_problem_of_a_graph_is_listed_at_once() {
    let resources = json!([
        {"id": "a", "template": {"kind": "K", "name": "${nope(1)}", "spec": {"x": "${schema.spec.x +}", "y": "${b.spec}"}}, "readyWen": []},
        {"id": "b", "template": {"kind": "k", "name": "n b", "spec": {"p": "${schema.spec.p}", "q": ["${schema.spec.q}", "t-${[1]}"]}}},
        {"id": "b", "template": {"name": "x"}},
    ]);
    let mut found = wrong(resources, json!({}));
    found.sort();
    let expected = [
        (Class::Malformed, "/kind"),
        (Class::Malformed, "/kind"),
        (Class::Malformed, "/readyWen"),
        (Class::DuplicateId, ""),
        (Class::ParseError, "/spec/x"),
        (Class::UnknownFunction, "/name"),
        (Class::EvalError, "/spec/p"),
        (Class::EvalError, "/spec/q/0"),
        (Class::EvalError, "/spec/q/1"),
        (Class::BadName, "/name"),
    ];
    assert_eq!(
        found,
        expected.map(|(class, pointer)| (class, pointer.to_owned()))
    );
}

#[test]
fn one_wrong_leaf_does_not_hide_another() {
    let leaves = json!({
        "parse": "${1 +}", "id": "${nope.spec}", "missing": "${schema.spec.gone}", "status": "${net.status.n + 1}",
        "text": "${'a'}-${}-${schema.spec.lost}-${net.status.n}", "good": "${net.spec.x}",
    });
    let dimension = json!({"forEach": {"z": "${[1, }"}});
    let resources = json!([
        resource("net", json!({"x": 1})),
        resource("a", leaves),
        with(resource("b", json!({"z": "${z}"})), dimension),
    ]);
    let mut found = wrong(resources, json!({}));
    found.sort();
    let expected = [
        (Class::EmptyExpression, "/spec/text"),
        (Class::ParseError, "/forEach/z"),
        (Class::ParseError, "/spec/parse"),
        (Class::UnknownId, "/spec/id"),
        (Class::StatusInExpression, "/spec/status"),
        (Class::StatusInExpression, "/spec/text"),
        (Class::EvalError, "/spec/missing"),
        (Class::EvalError, "/spec/text"),
    ];
    assert_eq!(
        found,
        expected.map(|(class, pointer)| (class, pointer.to_owned()))
    );
}

#[test]
fn a_status_that_can_never_be_read_there_is_found_without_an_instance() {
    for (expression, found) in [
        ("id-${net.status.id}", true),
        ("${has(net.status.id)}", true),
        ("${net.status.n + 1}", true),
        ("${size(net.status.l)}", true),
        ("${[net.status.n]}", true),
        ("${net.status.on ? 1 : 2}", true),
        ("${net.status.id}", false),
        (
            "${schema.spec.on ? net.status.id : string(net.status.n)}",
            false,
        ),
        ("${schema.spec.on && net.status.on}", false),
        ("${[1].map(net, net.status)}", false),
    ] {
        let graph = graph(json!([
            resource("net", json!({})),
            resource("a", json!({"v": expression}))
        ]));
        let classes: Vec<Class> = graph
            .problems()
            .iter()
            .map(|problem| problem.class)
            .collect();
        let expected: &[Class] = if found {
            &[Class::StatusInExpression]
        } else {
            &[]
        };
        assert_eq!(classes, expected, "{expression}");
    }
}

#[test]
fn a_status_is_moved_but_never_read() {
    let leaf = |leaf: Value| {
        json!([
            resource("net", json!({})),
            resource("a", json!({"v": leaf}))
        ])
    };
    for expression in [
        "${net.status.n + 1}",
        "${string(net.status.n)}",
        "${size(net.status)}",
        "${[net.status.n]}",
        "${{'a': net.status.n}}",
        "${net.status.n ? 1 : 2}",
        "${net.status.?n}",
        "${net.status.l.map(x, x)}",
        "${net.status.n == 1}",
        "${1 in net.status.l}",
        "${net.status.m[net.status.k]}",
        "${json.marshal(net.status)}",
        "x${net.status.n}",
        "${net.status.n.orValue(1)}",
    ] {
        assert_eq!(
            wrong(leaf(json!(expression)), json!({})),
            [(Class::StatusInExpression, "/spec/v".to_owned())],
            "{expression}"
        );
    }
    for (expression, source) in [
        ("${net.status.a.b}", "/a/b"),
        ("${net.status['a b']}", "/a b"),
        ("${net.status.l[schema.spec.i]}", "/l/2"),
        ("${net.status}", ""),
        ("${cel.bind(s, net.status, s.id)}", "/id"),
        (
            "${schema.spec.i == 2 ? (true ? net.status.id : 1) : 2}",
            "/id",
        ),
        ("${optional.of(net.status.id).orValue(1)}", "/id"),
        ("${false && net.status.on ? 1 : net.status.id}", "/id"),
    ] {
        let composition = ok(leaf(json!(expression)), json!({"i": 2}));
        assert_eq!(
            composition.edges[0].values,
            [("/v".to_owned(), source.to_owned())],
            "{expression}"
        );
    }
}

#[test]
fn only_the_parts_that_exist_can_be_read() {
    let leaf = |expression: &str| {
        json!([
            resource("net", json!({})),
            resource("a", json!({"v": expression}))
        ])
    };
    for expression in [
        "${net.metadata.uid}",
        "${net['spec' + '']}",
        "${schema}",
        "${schema.status.x}",
        "${schema.metadata.namespace}",
        "${net.kind}",
        "${[net]}",
        "${has(net.stats)}",
        "${net.map(x, x)}",
    ] {
        assert_eq!(
            wrong(leaf(expression), json!({}))[0].0,
            Class::BadReference,
            "{expression}"
        );
    }
    let good = "${net['metadata'].name + schema.metadata.name + schema.metadata.uid}";
    assert_eq!(
        specs(&ok(leaf(good), json!({})))[1].1,
        json!({"v": "n-netdemou-1"})
    );
}

#[test]
fn the_functions_people_use_are_there() {
    for (expression, expected) in [
        ("lists.sum([1, 2]) + [3, 4].sum()", json!(10)),
        ("[lists.min([2, 1]), lists.max([2, 1])]", json!([1, 2])),
        (
            "json.marshal({'b': [1, 2.0], 'a': null})",
            json!(r#"{"a":null,"b":[1,2.0]}"#),
        ),
        (
            "json.unmarshal('{\"a\": 12345678901234567890123}').a",
            serde_json::from_str("12345678901234567890123").unwrap(),
        ),
        (
            "hash.sha256('abc')",
            json!("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ),
        ("hash.fnv64a('a')", json!("af63dc4c8601ec8c")),
        (
            "random.seededString(8, 'x') == random.seededString(8, 'x')",
            json!(true),
        ),
        ("random.seededString(40, 'x').size()", json!(40)),
        ("random.seededInt(5, 7, 'x') in [5, 6]", json!(true)),
        ("{'a': 1, 'b': 1}.merge({'b': 2})", json!({"a": 1, "b": 2})),
        (
            "'a1b22'.find('[0-9]+') + '/' + 'a1b22'.findAll('[0-9]+').join(',')",
            json!("1/1,22"),
        ),
        (
            "url('https://u@ex.io:8080/a%20b?q=1&q=2').getHost()",
            json!("ex.io:8080"),
        ),
        (
            "[url('https://[::1]:80/x').getHostname(), url('https://ex.io').getPort(), url('https://ex.io/p/q').getEscapedPath()]",
            json!(["::1", "", "/p/q"]),
        ),
        (
            "url('https://ex.io/?q=1&q=2').getQuery().q",
            json!(["1", "2"]),
        ),
        (
            "isURL('nope') || isIP('10.0.0') || isCIDR('10.0.0.0/33') || isQuantity('x')",
            json!(false),
        ),
        (
            "cidr('10.1.0.0/16').containsIP('10.1.2.3') && !cidr('10.1.0.0/16').containsCIDR('10.0.0.0/8')",
            json!(true),
        ),
        (
            "string(cidr('10.1.2.3/16').masked()) + ' ' + string(ip('2001:db8::1').family())",
            json!("10.1.0.0/16 6"),
        ),
        (
            "quantity('1.5Gi').isGreaterThan(quantity('1G')) && quantity('500m').add(quantity('1500m')).asInteger() == 2",
            json!(true),
        ),
        (
            "[string(quantity('2048Mi')), string(quantity('1500m')), string(quantity('1e3'))]",
            json!(["2Gi", "1500m", "1k"]),
        ),
        (
            "[1, 2, 3].transformMapEntry(i, v, {string(v): i})",
            json!({"1": 0, "2": 1, "3": 2}),
        ),
        ("{'b': 1, 'a': 2}.map(k, k)", json!(["a", "b"])),
        ("cel.bind(x, 2, x * x)", json!(4)),
        ("'%s is %d'.format(['x', 3])", json!("x is 3")),
        (
            "base64.encode(b'hi') + string(base64.decode('aGk='))",
            json!("aGk=hi"),
        ),
        (
            "[3, 1, 2].sort() + [[1], [2]].flatten() + lists.range(2)",
            json!([1, 2, 3, 1, 2, 0, 1]),
        ),
        ("['ab', 'c'].sortBy(s, size(s))", json!(["c", "ab"])),
        ("math.greatest(1, 3, 2) + math.least([4, 5])", json!(7)),
        (
            "[schema.?spec.?none.orValue('d'), optional.none().or(optional.of(1)).value()]",
            json!(["d", 1]),
        ),
        ("[?schema.spec.?none, 1]", json!([1])),
        (
            "{?'a': schema.spec.?none, 'b': [optional.none(), optional.of(2)]}",
            json!({"b": [2]}),
        ),
    ] {
        let composition = ok(
            json!([resource("a", json!({"v": format!("${{{expression}}}")}))]),
            json!({}),
        );
        assert_eq!(specs(&composition)[0].1["v"], expected, "{expression}");
    }
}

#[test]
fn what_has_no_json_form_is_a_problem_with_a_way_out() {
    for expression in [
        "0.0 / 0.0",
        "{1: 2}",
        "[b'x']",
        "type(1)",
        "duration('1s')",
        "{'a': timestamp('2026-01-01T00:00:00Z')}",
        "url('/x')",
    ] {
        let found = wrong(
            json!([resource("a", json!({"v": format!("${{{expression}}}")}))]),
            json!({}),
        );
        assert_eq!(
            found,
            [(Class::NonJsonValue, "/spec/v".to_owned())],
            "{expression}"
        );
    }
}

#[test]
fn numbers_pass_through_as_they_were_written() {
    let config = br#"{"resources": [{"id": "a", "template": {"kind": "k", "name": "n", "spec":
        {"literal": 1.50, "big": 123456789012345678901234567890, "copied": "${schema.spec.big}", "text": "v${schema.spec.big}"}}}]}"#;
    let spec = br#"{"big": 123456789012345678901234567890}"#;
    let composition = Graph::parse(config)
        .compose(&Instance {
            spec,
            name: "demo",
            ..Default::default()
        })
        .unwrap();
    let expected = r#"{"big":123456789012345678901234567890,"copied":123456789012345678901234567890,"literal":1.50,"text":"v123456789012345678901234567890"}"#;
    assert_eq!(composition.children[0].spec, expected);
}

#[test]
fn the_same_graph_and_instance_give_the_same_bytes() {
    let resources = json!([
        resource(
            "a",
            json!({"m": "${schema.spec.m}", "k": "${schema.spec.m.map(k, k)}", "t": "${schema.spec.m.transformMap(k, v, v + 1)}"})
        ),
        resource(
            "b",
            json!({"x": "${a.spec.m}", "y": "${a.status.y}", "w": "${a.status}"})
        ),
    ]);
    let first = ok(resources.clone(), json!({"m": {"z": 1, "b": 2, "y": 3}}));
    for _ in 0..20 {
        assert_eq!(
            ok(resources.clone(), json!({"m": {"y": 3, "z": 1, "b": 2}})),
            first
        );
    }
}
