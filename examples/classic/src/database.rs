//! `database`: a leaf. Its status holds the URL that services get.

use converge_sdk::{
    Condition, KindVersion, Outcome, Provider, ReactionRequest, Stage, TaskContext, TaskError,
    async_trait,
};
use serde::Deserialize;
use serde_json::json;

use crate::place::Place;

/// The kind's name.
pub(crate) const KIND: &str = "database";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    engine: String,
}

/// Makes databases.
pub(crate) struct Database;

#[async_trait]
impl Provider for Database {
    fn kind(&self) -> KindVersion {
        KindVersion::new(KIND, 1)
    }

    async fn work(
        &self,
        ctx: &TaskContext,
        request: ReactionRequest,
    ) -> Result<Outcome, TaskError> {
        let place = Place::of(ctx, &request)?;
        match (request.stage, &*request.reaction) {
            (Stage::Work, "work") => {
                let spec: Spec = request.spec()?;
                let url = format!("{}://{}.local", spec.engine, request.resource.name);
                place.put(&json!({ "url": url })).await?;
                Ok(Outcome::new()
                    .with_status(json!({ "url": url }))
                    .with_condition(Condition::ready("Created")))
            }
            (Stage::Delete, "teardown") => {
                place.remove().await?;
                Ok(Outcome::new())
            }
            _ => Err(request.unknown_reaction()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::testing::{files, run, status};

    #[tokio::test]
    async fn made_twice_it_is_there_once_and_removed_twice_it_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let spec = || json!({"engine": "postgres"});
        for _ in 0..2 {
            let made = run(&Database, Stage::Work, dir.path(), spec()).await;
            assert_eq!(
                status(made.unwrap()),
                json!({"url": "postgres://shop-x.local"})
            );
            assert_eq!(files(dir.path()), ["database-shop-x.json"]);
        }
        for _ in 0..2 {
            let gone = run(&Database, Stage::Delete, dir.path(), spec()).await;
            gone.unwrap();
            assert_eq!(files(dir.path()), [""; 0]);
        }
    }

    #[tokio::test]
    async fn what_may_pass_is_tried_again_and_a_wrong_spec_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let missing = dir.path().join("not-mounted-yet");
        let error = run(
            &Database,
            Stage::Work,
            &missing,
            json!({"engine": "postgres"}),
        )
        .await
        .unwrap_err();
        assert!(!error.is_terminal(), "{error}");
        let error = run(&Database, Stage::Work, dir.path(), json!({"engine": 7}))
            .await
            .unwrap_err();
        assert!(
            error.is_terminal() && error.message().contains("/engine"),
            "{error}"
        );
    }
}
