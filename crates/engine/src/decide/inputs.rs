//! The inputs of a stage as they are now; what a mark, a failure and a claim are compared with.

use converge_types::ids::{ConfigName, KindVersion};
use converge_types::phase::Stage;
use sha2::{Digest as _, Sha256};

use crate::model::{Digest, Inputs, Resource};
use crate::view::{Decision, View};

/// The config a resource reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectiveConfig {
    /// There is one, or there is none and none is named.
    Digest(Digest),
    /// The ref names nothing, or a config of another pair: the resource is held.
    Missing,
    /// A later default broke the override: a terminal failure naming both.
    Broken(String),
}

/// The effective config of a resource that names this override, at the pair it is dispatched as.
///
/// # Errors
/// As the view's reads.
pub fn effective_config(
    view: &mut View<'_>,
    named: Option<&ConfigName>,
    kv: &KindVersion,
) -> Decision<EffectiveConfig> {
    let Some(name) = named else {
        return Ok(EffectiveConfig::Digest(view.pair(kv)?.default_config));
    };
    Ok(match view.config(name)? {
        Some(config) if config.kv == *kv => match &config.broken {
            Some(why) => EffectiveConfig::Broken(why.clone()),
            None => EffectiveConfig::Digest(config.effective),
        },
        _ => EffectiveConfig::Missing,
    })
}

/// The inputs `stage` would be claimed with now.
#[must_use]
pub fn inputs(row: &Resource, stage: Stage, config: Digest) -> Inputs {
    Inputs {
        generation: row.generation,
        kind_version: row.kv.version,
        config,
        labels: if stage == Stage::Compose {
            labels_digest(row)
        } else {
            Digest::default()
        },
        below: if stage == Stage::Rollup {
            row.below.version
        } else {
            0
        },
    }
}

/// Digest of the labels; zero without any.
fn labels_digest(row: &Resource) -> Digest {
    if row.labels.is_empty() {
        return Digest::default();
    }
    let mut hash = Sha256::new();
    for (key, value) in row.labels.iter() {
        for part in [key, value] {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part.as_bytes());
        }
    }
    digest(&hash.finalize())
}

/// The first half of a SHA-256.
#[must_use]
pub fn digest(sha256: &[u8]) -> Digest {
    let mut half = [0; 16];
    for (to, from) in half.iter_mut().zip(sha256) {
        *to = *from;
    }
    Digest(u128::from_be_bytes(half))
}
