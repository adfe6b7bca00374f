//! The columns of each type of object.

use std::collections::BTreeMap;

use converge_client::types::{Kind, ProviderConfig, ReactorBinding, Resource};

use super::table::{Cell, Table};
use super::{Clock, brief, clean, phase_cell, since};

/// How much of a failure or a waiting reason fits into a row.
const REASON_CHARS: usize = 60;

/// The table for resources, without rows.
pub(crate) fn resource_table(wide: bool) -> Table {
    let mut headers = vec!["NAME", "PHASE", "GEN", "AGE", "WAITING"];
    if wide {
        headers.extend(["VERSION", "SYNCED", "OWNER", "CONFIG", "LABELS", "UID"]);
    }
    Table::new(&headers)
}

/// One resource's row.
pub(crate) fn resource_row(resource: &Resource, wide: bool, colour: bool, now: Clock) -> Vec<Cell> {
    // What stands in the way is the most useful thing to say: a failure if there is one, else what it waits for.
    let reason = match (&resource.failure, &resource.waiting) {
        (Some(failure), _) => brief(&failure.message, REASON_CHARS),
        (None, Some(waiting)) => brief(waiting, REASON_CHARS),
        (None, None) => String::new(),
    };
    let mut cells = vec![
        Cell::from(clean(&resource.reference().to_string())),
        phase_cell(resource.phase, colour),
        resource.generation.to_string().into(),
        since(&resource.created_at, now).into(),
        reason.into(),
    ];
    if wide {
        cells.extend([
            Cell::from(format!("v{}", resource.kind_version)),
            resource.synced_gen.to_string().into(),
            resource
                .owner
                .as_ref()
                .map(|owner| clean(&owner.to_string()))
                .unwrap_or_default()
                .into(),
            clean(resource.provider_config_ref.as_deref().unwrap_or_default()).into(),
            labels(&resource.labels).into(),
            clean(&resource.uid).into(),
        ]);
    }
    cells
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    clean(&pairs.join(","))
}

/// Kinds.
pub(crate) fn kind_table(kinds: &[Kind], wide: bool, now: Clock) -> Table {
    let mut headers = vec!["KIND", "VERSION", "COMPOSER", "RESOURCES", "WORKERS", "AGE"];
    if wide {
        headers.extend(["MAX_INFLIGHT", "DEADLINE", "RESYNC", "DESCRIPTION"]);
    }
    let mut table = Table::new(&headers);
    for kind in kinds {
        let mut cells = vec![
            Cell::from(clean(&kind.kind)),
            format!("v{}", kind.kind_version).into(),
            if kind.composer { "yes" } else { "no" }.into(),
            kind.resources.to_string().into(),
            kind.workers.to_string().into(),
            since(&kind.created_at, now).into(),
        ];
        if wide {
            let seconds = |secs: u64| {
                if secs == 0 {
                    String::new()
                } else {
                    format!("{secs}s")
                }
            };
            let cap = kind.policy.max_inflight;
            cells.extend([
                Cell::from(if cap == 0 {
                    String::new()
                } else {
                    cap.to_string()
                }),
                seconds(kind.policy.task_deadline_secs).into(),
                seconds(kind.policy.resync_interval_secs).into(),
                brief(&kind.description, REASON_CHARS).into(),
            ]);
        }
        table.row(cells);
    }
    table
}

/// Providerconfigs.
pub(crate) fn provider_config_table(configs: &[ProviderConfig], wide: bool, now: Clock) -> Table {
    let mut headers = vec!["NAME", "KIND", "VERSION", "DEFAULT", "BUNDLE", "AGE"];
    if wide {
        headers.extend(["OWNER", "DIGEST"]);
    }
    let mut table = Table::new(&headers);
    for config in configs {
        let mut cells = vec![
            Cell::from(clean(&config.name)),
            clean(&config.kind).into(),
            format!("v{}", config.kind_version).into(),
            if config.is_default { "yes" } else { "no" }.into(),
            config
                .bundle
                .as_ref()
                .map(|bundle| format!("{} B", bundle.size))
                .unwrap_or_default()
                .into(),
            since(&config.created_at, now).into(),
        ];
        if wide {
            cells.extend([
                Cell::from(
                    config
                        .owner
                        .as_ref()
                        .map(|o| clean(&o.to_string()))
                        .unwrap_or_default(),
                ),
                clean(&config.digest).into(),
            ]);
        }
        table.row(cells);
    }
    table
}

/// Reactor bindings.
pub(crate) fn reactor_binding_table(bindings: &[ReactorBinding], wide: bool, now: Clock) -> Table {
    let mut headers = vec![
        "NAME", "WATCHES", "ON", "REACTOR", "ENABLED", "PENDING", "DEAD", "AGE",
    ];
    if wide {
        headers.extend(["LABELS", "UID"]);
    }
    let mut table = Table::new(&headers);
    for binding in bindings {
        let watches = match binding.watch_kind_version {
            Some(version) => format!("{}/v{version}", binding.watch_kind),
            None => binding.watch_kind.clone(),
        };
        let mut cells = vec![
            Cell::from(clean(&binding.name)),
            clean(&watches).into(),
            clean(&binding.transition).into(),
            clean(&format!("{}/v{}", binding.reactor, binding.reactor_version)).into(),
            if binding.enabled { "yes" } else { "no" }.into(),
            binding.pending.to_string().into(),
            binding.dead_letters.to_string().into(),
            since(&binding.created_at, now).into(),
        ];
        if wide {
            cells.extend([
                Cell::from(labels(&binding.label_match)),
                clean(&binding.uid).into(),
            ]);
        }
        table.row(cells);
    }
    table
}
