//! `/metrics`: counts in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::IntoResponse;

use super::Answer;
use crate::Api;

/// Resources by kind and phase, workers, answers by status class.
#[utoipa::path(get, path = "/api/v1/metrics", tag = "server", responses((status = 200, description = "the metrics", body = String, content_type = "text/plain")))]
pub(crate) async fn metrics(State(api): State<Arc<Api>>) -> Answer {
    let resources = api.store.resource_summary().await?;
    let revision = api.store.revision().await?;
    let members = api.fleet.members();
    let mut text = String::new();
    let mut family = |name: &str, kind: &str, help: &str, samples: Vec<(String, u64)>| {
        // Writing to a String does not fail.
        let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    };
    // Kinds and phases have no character that a label value would have to escape.
    let resources = resources.into_iter().map(|(kv, phase, count)| {
        let labels = format!(
            "{{kind=\"{}\",kind_version=\"{}\",phase=\"{phase}\"}}",
            kv.kind, kv.version
        );
        (labels, count)
    });
    family(
        "converge_resources",
        "gauge",
        "Resources by kind and phase.",
        resources.collect(),
    );
    family(
        "converge_revision",
        "gauge",
        "The store-wide revision.",
        vec![(String::new(), u64::try_from(revision).unwrap_or(0))],
    );
    let workers = members.iter().flat_map(|broker| &broker.workers);
    let (count, credit, inflight) = workers.fold((0, 0, 0), |(count, credit, inflight), worker| {
        (
            count + 1,
            credit + u64::from(worker.credit),
            inflight + u64::from(worker.inflight),
        )
    });
    family(
        "converge_workers",
        "gauge",
        "Connected workers.",
        vec![(String::new(), count)],
    );
    family(
        "converge_worker_slots",
        "gauge",
        "Tasks the connected workers take at a time.",
        vec![(String::new(), credit)],
    );
    family(
        "converge_tasks_inflight",
        "gauge",
        "Tasks the connected workers have.",
        vec![(String::new(), inflight)],
    );
    let answers = api.answered.iter().enumerate().skip(1);
    let answers = answers.map(|(class, count)| {
        (
            format!("{{status=\"{class}xx\"}}"),
            count.load(Ordering::Relaxed),
        )
    });
    family(
        "converge_http_responses_total",
        "counter",
        "Answers of the API by class of status.",
        answers.collect(),
    );
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    Ok(([(header::CONTENT_TYPE, kind)], text).into_response())
}
