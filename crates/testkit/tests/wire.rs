//! The wire scenarios of the SDK, against the real broker: what the SDK's in-memory broker does, the real one does too.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use converge_sdk::testing::{BrokerUnderTest, Look, scenarios};
use converge_sdk::{Json, KindVersion};
use converge_testkit::Plane;
use serde_json::value::RawValue;

struct RealBroker {
    plane: Plane,
    lease: Duration,
}

#[async_trait]
impl BrokerUnderTest for RealBroker {
    fn addr(&self) -> String {
        self.plane.broker.clone()
    }

    fn lease(&self) -> Duration {
        self.lease
    }

    async fn declare(&self, pair: &KindVersion) {
        let manifest = serde_json::json!({
            "kind": pair.kind(), "kind_version": pair.version(),
            "reactions": [{"name": "work", "trigger": "specChange", "emits": ["status", "conditions"]}],
        });
        self.plane
            .manifest(pair.kind(), Bytes::from(manifest.to_string()))
            .await;
    }

    async fn set_default_config(&self, pair: &KindVersion, spec: Option<Json>) {
        let name = format!("{}-default", pair.kind());
        match spec {
            Some(spec) => {
                let body = format!(
                    r#"{{"name":"{name}","kind":"{}","kind_version":{},"is_default":true,"spec":{}}}"#,
                    pair.kind(),
                    pair.version(),
                    spec.as_str().expect("JSON is text")
                );
                let applied = self
                    .plane
                    .client
                    .providerconfig_apply(Bytes::from(body), false)
                    .await;
                applied
                    .map(drop)
                    .unwrap_or_else(|error| panic!("the config is refused: {error}"));
            }
            None => match self.plane.client.providerconfig_delete(&name).await {
                Ok(()) => {}
                Err(error) if error.is_not_found() => {}
                Err(error) => panic!("the config cannot be deleted: {error}"),
            },
        }
    }

    async fn apply(&self, pair: &KindVersion, name: &str, spec: Json) {
        let body = format!(
            r#"{{"kind":"{}","kind_version":{},"name":"{name}","spec":{}}}"#,
            pair.kind(),
            pair.version(),
            spec.as_str().expect("JSON is text")
        );
        let applied = self.plane.client.resource_apply(Bytes::from(body)).await;
        applied
            .map(drop)
            .unwrap_or_else(|error| panic!("{name} is refused: {error}"));
    }

    async fn look(&self, pair: &KindVersion, name: &str) -> Option<Look> {
        let answer = match self.plane.client.resource(pair.kind(), name).await {
            Ok(answer) => answer,
            Err(error) if error.is_not_found() => return None,
            Err(error) => panic!("GET {}/{name}: {error}", pair.kind()),
        };
        let resource = answer.value;
        let mut look = Look::default();
        look.generation = i64::try_from(resource.generation).expect("a generation");
        look.synced_gen = i64::try_from(resource.synced_gen).expect("a generation");
        look.status = resource.status.map(|status: Box<RawValue>| {
            Json::parse(status.get().to_owned()).expect("the API answers JSON")
        });
        if let Some(failure) = resource.failure {
            look.attempts = failure.attempts;
            look.is_failed = failure.terminal;
            look.message = failure.message;
        }
        Some(look)
    }
}

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let lease = Duration::from_secs(2);
                let broker = RealBroker { plane: Plane::start(lease).await, lease };
                scenarios::$name(&broker).await;
            }
        )*
    };
}

scenarios!(
    configs_come_before_tasks,
    a_stale_result_changes_nothing,
    a_resumed_claim_is_kept,
    a_resumed_claim_takes_a_slot,
    a_silent_claim_runs_out,
    the_end_of_a_drain_releases_claims,
    a_broken_stream_releases_nothing,
    a_half_close_with_a_pair_in_use_releases_nothing,
    an_edit_reaches_a_worker_without_a_task,
    interest_and_credit_are_kept_to,
    garbage_hurts_nobody_else,
    a_status_of_60_mib_arrives,
    a_cut_connection_costs_no_second_run,
    a_drain_counts_no_attempt,
);
