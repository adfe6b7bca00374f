//! `app`: a composer with a rollup.
//!
//! `compose` turns the spec into a database and its services, with an edge for everything a service needs; it never waits for them.
//! `rollup` runs when all of them have settled and gathers their addresses into the app's own status.

use std::collections::{BTreeMap, BTreeSet};

use converge_sdk::{
    Child, Condition, Edge, KindVersion, Outcome, Provider, ReactionRequest, Resource, ResourceRef,
    Stage, TaskContext, TaskError, async_trait,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{database, service};

/// The child label that holds a service's name within its app.
const PART: &str = "part";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    #[serde(default = "postgres")]
    engine: String,
    services: Vec<Service>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Service {
    name: String,
    port: u16,
    /// Which version of `service` it is.
    #[serde(default = "newest")]
    version: u16,
    /// Services whose addresses it gets.
    #[serde(default)]
    needs: Vec<String>,
}

fn postgres() -> String {
    "postgres".to_owned()
}

fn newest() -> u16 {
    2
}

impl Service {
    /// Where its address is in its status.
    fn address(&self) -> &'static str {
        if self.version == 1 {
            "/address"
        } else {
            "/endpoint/url"
        }
    }
}

/// Composes apps.
pub(crate) struct App;

#[async_trait]
impl Provider for App {
    fn kind(&self) -> KindVersion {
        KindVersion::new("app", 1)
    }

    async fn work(
        &self,
        _ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        match (request.stage, &*request.reaction) {
            (Stage::Compose, "compose") => compose(&request.resource.name, &request.spec()?),
            (Stage::Rollup, "rollup") => rollup(&request.descendants),
            _ => Err(request.unknown_reaction()),
        }
    }
}

fn compose(app: &str, spec: &Spec) -> Result<Outcome, TaskError> {
    check(spec)?;
    let database = Child::new(
        KindVersion::new(database::KIND, 1),
        format!("{app}-db"),
        json!({"engine": spec.engine}),
    );
    let by_name: BTreeMap<&str, &Service> = spec
        .services
        .iter()
        .map(|service| (service.name.as_str(), service))
        .collect();
    let reference = |name: &str| ResourceRef::new(service::KIND, format!("{app}-{name}"));
    let mut children = vec![database.clone()];
    let mut edges = Vec::new();
    for one in &spec.services {
        // What flows in is not in the spec: the control plane adds it before it hands the spec to the service's provider.
        children.push(
            Child::new(
                KindVersion::new(service::KIND, one.version),
                format!("{app}-{}", one.name),
                json!({"port": one.port}),
            )
            .with_label(PART, &one.name),
        );
        let url = if one.version == 1 {
            "/database_url"
        } else {
            "/env/DATABASE_URL"
        };
        edges.push(Edge::new(reference(&one.name), database.reference()).with_value(url, "/url"));
        for needed in one
            .needs
            .iter()
            .filter_map(|name| by_name.get(name.as_str()))
        {
            let variable = format!("/env/{}_URL", needed.name.to_uppercase().replace('-', "_"));
            edges.push(
                Edge::new(reference(&one.name), reference(&needed.name))
                    .with_value(variable, needed.address()),
            );
        }
    }
    let message = format!("a database and {} services", spec.services.len());
    Ok(Outcome::new()
        .with_children(children)
        .with_edges(edges)
        .with_condition(
            Condition::new("Planned", converge_sdk::ConditionStatus::True)
                .with_reason("Composed")
                .with_message(message),
        ))
}

/// What the schema cannot say, all of it at once. (A circle of needs the control plane refuses by itself, naming it.)
fn check(spec: &Spec) -> Result<(), TaskError> {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for (at, service) in spec.services.iter().enumerate() {
        if !names.insert(service.name.as_str()) {
            problems.push(format!(
                "/services/{at}/name: {:?} is there twice",
                service.name
            ));
        }
    }
    for (at, service) in spec.services.iter().enumerate() {
        if service.version == 1 && !service.needs.is_empty() {
            problems.push(format!(
                "/services/{at}/needs: version 1 knows nothing but its database; use version 2"
            ));
        }
        for needed in service
            .needs
            .iter()
            .filter(|name| !names.contains(name.as_str()))
        {
            problems.push(format!(
                "/services/{at}/needs: there is no service {needed:?}"
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(TaskError::terminal(format!(
        "the spec does not fit together\n  {}",
        problems.join("\n  ")
    )))
}

/// What both versions of `service` may say about where they answer.
#[derive(Debug, Deserialize)]
struct Answers {
    address: Option<String>,
    endpoint: Option<Endpoint>,
}

#[derive(Debug, Deserialize)]
struct Endpoint {
    url: String,
}

fn rollup(descendants: &[Resource]) -> Result<Outcome, TaskError> {
    let mut addresses = BTreeMap::new();
    for one in descendants.iter().filter(|one| one.kind == service::KIND) {
        let Some(part) = one.labels.get(PART) else {
            continue;
        };
        let answers: Option<Answers> = one.status_as()?;
        let address = answers.and_then(|answers| {
            answers
                .address
                .or(answers.endpoint.map(|endpoint| endpoint.url))
        });
        addresses.insert(part.as_str(), address);
    }
    let ready = descendants.iter().filter(|one| one.is_ready).count();
    let message = format!("{ready} of {} parts are ready", descendants.len());
    let condition = if ready == descendants.len() {
        Condition::ready("Serving")
    } else {
        Condition::not_ready("PartsNotReady")
    };
    let status: Value = json!({"addresses": addresses, "parts": descendants.len()});
    Ok(Outcome::new()
        .with_status(status)
        .with_condition(condition.with_message(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn run(request: ReactionRequest) -> Result<Outcome, TaskError> {
        let ctx = TaskContext::builder(App.kind()).build();
        App.work(&ctx, request).await
    }

    async fn composed(spec: Value) -> Result<Outcome, TaskError> {
        let resource = Resource::new("app", "shop").with_spec(spec);
        run(ReactionRequest::builder(Stage::Compose, "compose", App.kind(), resource).build()).await
    }

    #[tokio::test]
    async fn a_service_gets_what_it_needs_where_its_version_reads_it() {
        let outcome = composed(json!({"services": [
            {"name": "api", "port": 81},
            {"name": "web", "port": 82, "needs": ["api", "old-mail"]},
            {"name": "old-mail", "port": 83, "version": 1}
        ]}))
        .await
        .unwrap();
        let children: Vec<String> = outcome
            .children
            .unwrap()
            .iter()
            .map(|child| {
                format!(
                    "{} {} {}",
                    child.kind,
                    child.name,
                    child.spec.as_str().unwrap()
                )
            })
            .collect();
        assert_eq!(
            children,
            [
                r#"database/v1 shop-db {"engine":"postgres"}"#,
                r#"service/v2 shop-api {"port":81}"#,
                r#"service/v2 shop-web {"port":82}"#,
                r#"service/v1 shop-old-mail {"port":83}"#
            ]
        );
        let edges: Vec<String> = outcome
            .edges
            .iter()
            .map(|edge| {
                let flow = &edge.values[0];
                format!(
                    "{} {} <- {} {}",
                    edge.from.name, flow.dependent_field, edge.to.name, flow.source_field
                )
            })
            .collect();
        assert_eq!(
            edges,
            [
                "shop-api /env/DATABASE_URL <- shop-db /url",
                "shop-web /env/DATABASE_URL <- shop-db /url",
                "shop-web /env/API_URL <- shop-api /endpoint/url",
                "shop-web /env/OLD_MAIL_URL <- shop-old-mail /address",
                "shop-old-mail /database_url <- shop-db /url"
            ]
        );
    }

    #[tokio::test]
    async fn all_that_does_not_fit_together_is_said_at_once() {
        let error = composed(json!({"services": [
            {"name": "api", "port": 81, "needs": ["nobody"]},
            {"name": "api", "port": 82, "version": 1, "needs": ["api"]}
        ]}))
        .await
        .unwrap_err();
        assert!(error.is_terminal());
        for wanted in [
            "/services/1/name: \"api\" is there twice",
            "/services/0/needs: there is no service \"nobody\"",
            "/services/1/needs: version 1",
        ] {
            assert!(error.message().contains(wanted), "{error}");
        }
    }

    #[tokio::test]
    async fn the_rollup_reads_both_versions_and_tells_what_is_missing() {
        let part =
            |name: &str| Resource::new("service", format!("shop-{name}")).with_label(PART, name);
        let parts = [
            Resource::new("database", "shop-db").with_ready(true),
            part("api")
                .with_ready(true)
                .with_status(json!({"endpoint": {"url": "http://a"}})),
            part("mail")
                .with_ready(true)
                .with_status(json!({"address": "m:83"})),
            part("web"),
        ];
        let request = ReactionRequest::builder(
            Stage::Rollup,
            "rollup",
            App.kind(),
            Resource::new("app", "shop"),
        )
        .descendants(parts)
        .build();
        let outcome = run(request).await.unwrap();
        let status: Value = outcome.status.unwrap().decode().unwrap();
        assert_eq!(
            status,
            json!({"addresses": {"api": "http://a", "mail": "m:83", "web": null}, "parts": 4})
        );
        let ready = &outcome.conditions[0];
        assert_eq!(
            (ready.status.as_str(), ready.message.as_str()),
            ("False", "3 of 4 parts are ready")
        );
    }
}
