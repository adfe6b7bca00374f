//! Numbers what a command wrote: `revision` of rows and `seq` of events, from the store's one counter.
//!
//! A store calls it between deciding a command and writing what was decided, so that all stores count alike.

use std::sync::Arc;

use crate::command::Reply;
use crate::store::WriteSet;

/// Numbers every row of `set`, counting `revision` up, and shows the numbered rows in `reply`.
pub fn stamp(set: &mut WriteSet, reply: &mut Reply, revision: &mut i64) {
    let mut next = || {
        *revision += 1;
        *revision
    };
    for row in set.manifests.iter_mut().filter_map(|it| it.after.as_mut()) {
        Arc::make_mut(row).revision = next();
    }
    for row in set.resources.iter_mut().filter_map(|it| it.after.as_mut()) {
        Arc::make_mut(row).revision = next();
    }
    for row in set.configs.iter_mut().filter_map(|it| it.after.as_mut()) {
        Arc::make_mut(row).revision = next();
    }
    for row in &mut set.tombstones {
        row.revision = next();
    }
    for (event, _) in &mut set.events {
        event.seq = next();
    }
    show(set, reply);
}

fn show(set: &WriteSet, reply: &mut Reply) {
    match reply {
        Reply::Manifest { row, .. } => {
            let written = set.manifests.iter().filter_map(|it| it.after.as_ref());
            if let Some(stamped) = written.into_iter().find(|it| it.kv == row.kv) {
                *row = stamped.clone();
            }
        }
        Reply::Resource { row, .. } => {
            let written = set.resources.iter().filter_map(|it| it.after.as_ref());
            if let Some(stamped) = written.into_iter().find(|it| it.uid == row.uid) {
                *row = stamped.clone();
            }
        }
        Reply::Config { row, .. } => {
            let written = set.configs.iter().filter_map(|it| it.after.as_ref());
            if let Some(stamped) = written.into_iter().find(|it| it.name == row.name) {
                *row = stamped.clone();
            }
        }
        _ => {}
    }
}
