//! `service`, in the two versions that are alive at once.
//!
//! Version 1 knows one database and answers with an `address`. Version 2 takes any number of variables and answers with an `endpoint`. Its
//! schema takes away what version 1 had, which a control plane refuses for the same version: so it is another one, and each task reaches
//! the provider of exactly the version it is for. The thing itself is the same file for both, so a service that moves from one to the
//! other is changed in place.

use std::collections::BTreeMap;

use converge_sdk::{
    Condition, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
    async_trait,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::place::Place;

/// The kind's name, of both versions.
pub(crate) const KIND: &str = "service";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecV1 {
    port: u16,
    database_url: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SpecV2 {
    port: u16,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Version 1.
pub(crate) struct ServiceV1;

/// Version 2.
pub(crate) struct ServiceV2;

#[async_trait]
impl Provider for ServiceV1 {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        run(ctx, &request, |host| {
            let spec: SpecV1 = request.spec()?;
            Ok(Made {
                env: BTreeMap::from([("DATABASE_URL".to_owned(), spec.database_url)]),
                status: json!({"address": format!("{host}:{}", spec.port)}),
            })
        })
        .await
    }
}

#[async_trait]
impl Provider for ServiceV2 {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 2)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        run(ctx, &request, |host| {
            let spec: SpecV2 = request.spec()?;
            let url = format!("http://{host}:{}", spec.port);
            Ok(Made {
                env: spec.env,
                status: json!({"endpoint": {"host": host, "port": spec.port, "url": url}}),
            })
        })
        .await
    }
}

/// What a version makes of its spec.
struct Made {
    env: BTreeMap<String, String>,
    status: Value,
}

/// What both versions do alike.
async fn run(
    ctx: &TaskContext,
    request: &ReactionRequest,
    make: impl FnOnce(&str) -> Result<Made, TaskError>,
) -> Result<Outcome, TaskError> {
    let place = Place::of(ctx, request)?;
    match (request.stage, &*request.reaction) {
        (Stage::Work, "work") => {
            let made = make(&format!("{}.local", request.resource.name))?;
            place.put(&json!({"env": made.env})).await?;
            Ok(Outcome::new()
                .with_status(made.status)
                .with_condition(Condition::ready("Running")))
        }
        (Stage::Delete, "teardown") => {
            place.remove().await?;
            Ok(Outcome::new())
        }
        _ => Err(request.unknown_reaction()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::testing::{files, run, status};

    #[tokio::test]
    async fn both_versions_make_the_same_thing_and_answer_each_in_its_way() {
        let dir = tempfile::tempdir().unwrap();
        let v1 = run(
            &ServiceV1,
            Stage::Work,
            dir.path(),
            json!({"port": 80, "database_url": "pg://db"}),
        );
        assert_eq!(
            status(v1.await.unwrap()),
            json!({"address": "shop-x.local:80"})
        );
        let made = std::fs::read(dir.path().join("service-shop-x.json")).unwrap();
        let v2 = run(
            &ServiceV2,
            Stage::Work,
            dir.path(),
            json!({"port": 80, "env": {"DATABASE_URL": "pg://db"}}),
        );
        assert_eq!(
            status(v2.await.unwrap()),
            json!({"endpoint": {"host": "shop-x.local", "port": 80, "url": "http://shop-x.local:80"}})
        );
        assert_eq!(files(dir.path()), ["service-shop-x.json"]);
        assert_eq!(
            std::fs::read(dir.path().join("service-shop-x.json")).unwrap(),
            made
        );
    }

    #[tokio::test]
    async fn a_version_takes_no_spec_of_the_other() {
        let dir = tempfile::tempdir().unwrap();
        let error = run(
            &ServiceV2,
            Stage::Work,
            dir.path(),
            json!({"port": 80, "database_url": "pg://db"}),
        )
        .await
        .unwrap_err();
        assert!(
            error.is_terminal() && error.message().contains("database_url"),
            "{error}"
        );
    }
}
