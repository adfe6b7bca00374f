//! The example's program: what it composes, and how it refuses.

use std::path::Path;

use converge_sdk::Outcome;
use stdstarlark::Bundle;

use crate::{block_on, json, meta, new_engine, specs, terminal};

const CONFIG: &str = r#"{"registry":"registry.example","allowed_teams":"team-*","most_teams":50,"timeout_seconds":30}"#;

fn compose(spec: &str) -> Result<Outcome, converge_sdk::TaskError> {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/pipeline");
    let bundle = Bundle::from_dir(&program).expect("the example's program is a good bundle");
    block_on(async {
        new_engine()
            .compose(&bundle, &json(spec), &json(CONFIG), &meta())
            .await
    })
}

#[test]
fn twenty_five_teams_make_125_children_with_edges_and_flows() {
    let teams: Vec<String> = (1..=25)
        .map(|i| format!(r#"{{"name":"team-{i:02}"}}"#))
        .collect();
    let outcome = compose(&format!(r#"{{"teams":[{}]}}"#, teams.join(","))).expect("composes");
    let children = outcome.children.as_deref().expect("there are some");
    assert_eq!((children.len(), outcome.edges.len()), (125, 125));
    assert!(outcome.edges.iter().all(|edge| edge.values.len() == 1));
    let deploy: Vec<_> = outcome
        .edges
        .iter()
        .filter(|edge| edge.from.name == "shop-team-25-deploy")
        .collect();
    assert_eq!(deploy.len(), 2);
    assert_eq!(deploy[0].values[0].dependent_field, "/env/REPORT");
    assert_eq!(
        specs(&outcome)[1],
        r#"{"script":"printf 'artifact of %s' \"$REVISION\"","env":{"TEAM":"team-01","REPOSITORY":"git.example/team-01","REGISTRY":"registry.example","REVISION":null},"timeout_seconds":30}"#
    );
    assert_eq!(
        outcome.status.expect("there is one").as_str(),
        Some(r#"{"teams":25,"steps":125}"#)
    );
}

#[test]
fn a_policy_refuses_in_its_own_words_and_place() {
    let message = terminal(compose(r#"{"teams":[{"name":"red"}]}"#));
    assert!(
        message.starts_with(
            "policies/teams.star:11:13: fail: team \"red\" is not allowed here (allowed: team-*)"
        ),
        "{message}"
    );
    assert!(
        message.contains("in check, called from compose.star:11:13"),
        "{message}"
    );
}
