//! What this binary hosts: each kind once, with the provider that serves it and a word on what it is for.

use std::collections::BTreeMap;
use std::sync::Arc;

use converge_sdk::{KindVersion, KindVersionError, Provider};
use stdio::Stdio;

use crate::EXIT_USAGE;
use crate::flags::Flags;

/// One kind, ready to be served.
pub(crate) struct HostedKind {
    pub(crate) pair: KindVersion,
    /// The crate that serves it.
    pub(crate) provider: &'static str,
    /// What it is for.
    pub(crate) about: &'static str,
    served_by: Arc<dyn Provider>,
}

/// All kinds of this binary.
pub(crate) struct Hosted(Vec<HostedKind>);

/// Why the kinds make no sense.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostedError {
    #[error(
        "{kind} is in STDIO_KINDS and in STDIO_COMPOSER_KINDS: a kind is a leaf or a composer, so name it in one of them"
    )]
    BothRoles { kind: String },
    #[error("{variable}: {source}")]
    Name {
        variable: &'static str,
        source: KindVersionError,
    },
    #[error(
        "{variable}={value:?} has an empty name: write a comma list such as dns,mail, or nothing at all for none"
    )]
    EmptyName {
        variable: &'static str,
        value: String,
    },
    #[error(
        "{kind} is in {variable}, but this worker serves {kind} itself: take it out of {variable}, or choose another name"
    )]
    Twice {
        kind: String,
        variable: &'static str,
    },
    #[error("WORKER_KINDS names {unknown}, which this worker does not host; it hosts {hosted}")]
    NotHosted { unknown: String, hosted: String },
    #[error(
        "the evaluator of stdstarlark cannot be started: the path of this program is not known"
    )]
    Evaluator {
        #[source]
        source: std::io::Error,
    },
}

impl HostedError {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            HostedError::Evaluator { .. } => 1,
            _ => EXIT_USAGE,
        }
    }
}

impl Hosted {
    /// What the flags make of it, or everything that is wrong with them: the kinds of stdio are the operator's to name.
    pub(crate) fn of(flags: &Flags) -> Result<Self, Vec<HostedError>> {
        let mut wrong = Vec::new();
        let leaves = names(
            &mut wrong,
            "STDIO_KINDS",
            flags.stdio_kinds.as_deref(),
            stdio::KIND,
        );
        let composers = names(
            &mut wrong,
            "STDIO_COMPOSER_KINDS",
            flags.stdio_composer_kinds.as_deref(),
            stdio::COMPOSER_KIND,
        );
        let both = leaves.iter().filter(|kind| composers.contains(kind));
        wrong.extend(both.map(|kind| HostedError::BothRoles { kind: kind.clone() }));
        let command = || flags.stdio_command.clone();
        let mut kinds = Vec::new();
        for kind in &leaves {
            let provider = Stdio::leaf(kind).with_fallback(command()).into_provider();
            kinds.push(HostedKind::new(
                provider,
                "STDIO_KINDS",
                "an external program, in any language",
            ));
        }
        for kind in &composers {
            let provider = Stdio::composer(kind)
                .with_fallback(command())
                .into_provider();
            kinds.push(HostedKind::new(
                provider,
                "STDIO_COMPOSER_KINDS",
                "children from an external program",
            ));
        }
        kinds.push(HostedKind::new(
            stdshell::provider(),
            "stdshell",
            "an inline script",
        ));
        kinds.push(HostedKind::new(
            Arc::new(stdterraform::StdTerraform::from_env()),
            "stdterraform",
            "a Terraform or OpenTofu module",
        ));
        kinds.push(HostedKind::new(
            Arc::new(stdcel::Stdcel::new()),
            "stdcel",
            "children from a graph with CEL expressions",
        ));
        match stdstarlark::provider() {
            Ok(starlark) => kinds.push(HostedKind::new(
                starlark,
                "stdstarlark",
                "children from a Starlark program",
            )),
            Err(source) => wrong.push(HostedError::Evaluator { source }),
        }

        // A kind in both lists is reported as that above; here one of them meets a kind of another provider.
        let mut seen: BTreeMap<&str, &'static str> = BTreeMap::new();
        for kind in &kinds {
            let earlier = seen.insert(kind.pair.kind(), kind.provider);
            if let Some(variable) = earlier
                && kind.provider != "STDIO_COMPOSER_KINDS"
            {
                let kind = kind.pair.kind().to_owned();
                wrong.push(HostedError::Twice { kind, variable });
            }
        }
        if wrong.is_empty() {
            Ok(Hosted(kinds))
        } else {
            Err(wrong)
        }
    }

    /// Those that `WORKER_KINDS` leaves.
    pub(crate) fn selected<'a>(
        &'a self,
        only: Option<&'a [String]>,
    ) -> impl Iterator<Item = &'a HostedKind> {
        self.0.iter().filter(move |kind| {
            only.is_none_or(|only| only.iter().any(|name| name == kind.pair.kind()))
        })
    }

    /// Every name in `WORKER_KINDS` must be one of these.
    pub(crate) fn check_selection(&self, only: Option<&[String]>) -> Result<(), HostedError> {
        let is_hosted = |name: &String| self.0.iter().any(|kind| kind.pair.kind() == name);
        let unknown: Vec<&str> = only
            .unwrap_or_default()
            .iter()
            .filter(|name| !is_hosted(name))
            .map(String::as_str)
            .collect();
        if unknown.is_empty() {
            return Ok(());
        }
        let hosted: Vec<&str> = self.0.iter().map(|kind| kind.pair.kind()).collect();
        Err(HostedError::NotHosted {
            unknown: unknown.join(", "),
            hosted: hosted.join(", "),
        })
    }

    /// The providers, for the worker.
    pub(crate) fn into_providers(self) -> Vec<Arc<dyn Provider>> {
        self.0.into_iter().map(|kind| kind.served_by).collect()
    }
}

impl HostedKind {
    fn new(served_by: Arc<dyn Provider>, provider: &'static str, about: &'static str) -> Self {
        HostedKind {
            pair: served_by.kind(),
            provider,
            about,
            served_by,
        }
    }
}

/// A comma list of kinds; the default when it is not set, none when it is empty. A name that comes twice counts once, one that
/// is none is left out and told.
fn names(
    wrong: &mut Vec<HostedError>,
    variable: &'static str,
    value: Option<&str>,
    default: &str,
) -> Vec<String> {
    let Some(value) = value else {
        return vec![default.to_owned()];
    };
    let mut names: Vec<String> = Vec::new();
    if value.trim().is_empty() {
        return names;
    }
    let (empty, named): (Vec<&str>, Vec<&str>) = value
        .split(',')
        .map(str::trim)
        .partition(|name| name.is_empty());
    if !empty.is_empty() {
        wrong.push(HostedError::EmptyName {
            variable,
            value: value.to_owned(),
        });
    }
    for name in named {
        if names.iter().any(|known| known == name) {
            continue;
        }
        match KindVersion::new(name, 1).check() {
            Ok(()) => names.push(name.to_owned()),
            Err(source) => wrong.push(HostedError::Name { variable, source }),
        }
    }
    names
}
