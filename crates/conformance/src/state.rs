//! All that a store holds, as text: two stores that were told the same hold the same.

use std::fmt::Write as _;

use converge_engine::store::{ResourceFilter, ResourceView, Store, StoreError};
use converge_types::json::Doc;
use converge_types::phase::Phase;

/// Everything a person or a broker could see, read through every reading method a page at a time.
///
/// # Errors
/// What could not be read.
pub async fn state(store: &dyn Store) -> Result<String, String> {
    read(store).await.map_err(|error| error.to_string())
}

async fn read(store: &dyn Store) -> Result<String, StoreError> {
    let mut out = String::new();
    let mut cursor: Option<String> = None;
    loop {
        let page = store
            .resource_list(&ResourceFilter::default(), cursor.as_deref(), 7, true)
            .await?;
        for view in &page.items {
            show(&mut out, view);
            beside(&mut out, store, view).await?;
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    let mut summary = store.resource_summary().await?;
    summary.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
    let _ = writeln!(out, "{summary:?}");
    for (row, pair) in store.manifest_list().await? {
        let _ = writeln!(
            out,
            "{} version {} policy {:?} {pair:?} {}",
            row.kv,
            row.version,
            row.policy,
            text(Some(&row.doc))
        );
        if let Some((default, _)) = store.config_default(&row.kv).await? {
            let _ = writeln!(out, "  default {}", default.name);
        }
    }
    for row in store.config_list(None, None, 500).await?.items {
        let found = store.config_get(&row.name).await?;
        let bundle = found.and_then(|(_, bundle)| bundle.map(|bundle| bundle.0.len()));
        let _ = writeln!(
            out,
            "config {} of {} default {} {} {:?} broken {:?} owner {:?} bundle {bundle:?}",
            row.name,
            row.kv,
            row.is_default,
            text(Some(&row.spec)),
            row.effective,
            row.broken,
            row.owner
        );
    }
    for filter in [
        ResourceFilter {
            phase: Some(Phase::Failed),
            ..ResourceFilter::default()
        },
        ResourceFilter {
            roots_only: true,
            ..ResourceFilter::default()
        },
        ResourceFilter {
            name_contains: Some("e".to_owned()),
            ..ResourceFilter::default()
        },
    ] {
        let page = store.resource_list(&filter, None, 500, false).await?;
        let names: Vec<_> = page
            .items
            .iter()
            .map(|view| view.row.name.to_string())
            .collect();
        let _ = writeln!(out, "{filter:?}: {names:?}");
    }
    let mut claims: Vec<_> = store
        .claim_list()
        .await?
        .iter()
        .map(|row| format!("{} {:?}", row.uid, row.claim))
        .collect();
    claims.sort();
    let _ = writeln!(out, "claims {claims:?}");
    Ok(out)
}

fn text(doc: Option<&Doc>) -> String {
    doc.map_or_else(
        || "none".to_owned(),
        |doc| String::from_utf8_lossy(doc.as_bytes()).into_owned(),
    )
}

fn show(out: &mut String, view: &ResourceView) {
    let row = &view.row;
    let _ = writeln!(
        out,
        "{}/{} {} {row:?}\n  owner {:?} root {:?} held on {:?} spec {} status {}",
        row.kv,
        row.name,
        row.derived.phase,
        view.owner,
        view.root,
        view.held_on,
        text(view.spec.as_ref()),
        text(view.status.as_ref())
    );
}

/// What is kept beside a resource: events, history, edges, the graph below it.
async fn beside(
    out: &mut String,
    store: &dyn Store,
    view: &ResourceView,
) -> Result<(), StoreError> {
    let uid = view.row.uid;
    for event in store.event_list(uid, None, 500).await? {
        let _ = writeln!(
            out,
            "  {:?} at {} {} {:?} {} x{} {:?}",
            event.kind,
            event.at_ms,
            event.generation,
            event.reaction,
            event.message,
            event.count,
            event.who
        );
    }
    for kept in store.history_list(uid).await? {
        let _ = writeln!(out, "  kept {kept:?}");
    }
    let (from, to) = store.edge_list(uid).await?;
    let edges = from.iter().chain(&to);
    let mut edges: Vec<_> = edges.map(|edge| format!("{edge:?}")).collect();
    edges.sort();
    let _ = writeln!(out, "  edges {edges:?}");
    let (nodes, mut edges) = store.graph_get(uid, 1_000).await?;
    let shown: Vec<_> = nodes.iter().map(|node| node.row.uid).collect();
    edges.retain(|edge| shown.contains(&edge.from) && shown.contains(&edge.to));
    let mut names: Vec<_> = nodes.iter().map(|node| node.row.name.to_string()).collect();
    names.sort();
    let _ = writeln!(out, "  graph {names:?} and {} edges", edges.len());
    Ok(())
}
