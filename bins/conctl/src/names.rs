//! How objects are named on the command line: `[TYPE] NAME…`.

use clap::ValueEnum;
use converge_client::types::ObjectRef;

use crate::exit::{Failure, Result};

/// A type of object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ObjectType {
    /// Teaches a kind. The order of these is the order in which documents are applied.
    Manifest,
    /// Configures a kind.
    ProviderConfig,
    /// Tells transitions to a reactor.
    ReactorBinding,
    /// What people want.
    Resource,
    /// The fleet; only read.
    Cluster,
}

impl ObjectType {
    const ALL: [Self; 5] = [
        Self::Manifest,
        Self::ProviderConfig,
        Self::ReactorBinding,
        Self::Resource,
        Self::Cluster,
    ];

    /// The long name, as in the `type` of a document.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Manifest => "manifest",
            Self::ProviderConfig => "providerconfig",
            Self::ReactorBinding => "reactorbinding",
            Self::Resource => "resource",
            Self::Cluster => "cluster",
        }
    }

    fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::Manifest => &["manifests", "crd", "crds", "kind", "kinds"],
            Self::ProviderConfig => &["providerconfigs", "pc", "pcs"],
            Self::ReactorBinding => &[
                "reactorbindings",
                "reactor-binding",
                "reactor-bindings",
                "rb",
                "rbs",
            ],
            Self::Resource => &["resources", "res"],
            Self::Cluster => &["clusters", "nodes", "node", "cluster-members"],
        }
    }

    /// Reads a singular, plural or short name.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        let word = word.to_ascii_lowercase();
        Self::ALL
            .into_iter()
            .find(|t| t.as_str() == word || t.aliases().contains(&word.as_str()))
    }

    /// Reads the `type` of a document.
    pub(crate) fn parse_exact(word: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|t| t.as_str() == word && *t != Self::Cluster)
    }
}

impl ValueEnum for ObjectType {
    fn value_variants<'a>() -> &'a [Self] {
        &[
            Self::Manifest,
            Self::ProviderConfig,
            Self::ReactorBinding,
            Self::Resource,
        ]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.as_str()).aliases(self.aliases()))
    }
}

/// One object, named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `kind/name`.
    Resource(ObjectRef),
    /// `kind` or `kind/vN`; the newest version when absent.
    Manifest { kind: String, version: Option<i64> },
    /// A name.
    ProviderConfig(String),
    /// A name.
    ReactorBinding(String),
}

impl Target {
    /// What messages and `-o name` call it.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Resource(reference) => reference.to_string(),
            Self::Manifest {
                kind,
                version: Some(version),
            } => format!("manifest/{kind}/v{version}"),
            Self::Manifest {
                kind,
                version: None,
            } => format!("manifest/{kind}"),
            Self::ProviderConfig(name) => format!("providerconfig/{name}"),
            Self::ReactorBinding(name) => format!("reactorbinding/{name}"),
        }
    }
}

/// What `[TYPE] NAME…` named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Targets {
    /// A type alone: all of it.
    All(ObjectType),
    /// Objects.
    Some(Vec<Target>),
}

/// Reads `[TYPE] NAME…`.
pub(crate) fn targets(words: &[String]) -> Result<Targets> {
    let Some(first) = words.first() else {
        return Err(Failure::usage(
            "name an object: [TYPE] NAME, where a resource is kind/name",
        ));
    };
    let (object_type, names) = match ObjectType::parse(first) {
        Some(object_type) => (Some(object_type), &words[1..]),
        None => (None, words),
    };
    match (object_type, names) {
        (Some(object_type), []) => Ok(Targets::All(object_type)),
        (Some(ObjectType::Cluster), _) => Err(Failure::usage("cluster takes no name")),
        _ => names
            .iter()
            .map(|name| target(object_type, name))
            .collect::<Result<_>>()
            .map(Targets::Some),
    }
}

/// Reads `[TYPE] NAME…` where at least one name is needed.
pub(crate) fn some_targets(words: &[String]) -> Result<Vec<Target>> {
    match targets(words)? {
        Targets::Some(targets) => Ok(targets),
        Targets::All(object_type) => Err(Failure::usage(format!(
            "{} needs a name",
            object_type.as_str()
        ))),
    }
}

/// Reads `[TYPE] NAME…` where only resources make sense.
pub(crate) fn resources(words: &[String]) -> Result<Vec<ObjectRef>> {
    some_targets(words)?
        .into_iter()
        .map(|target| match target {
            Target::Resource(reference) => Ok(reference),
            other => Err(Failure::usage(format!(
                "{} is not a resource: this works on resources only, named kind/name",
                other.label()
            ))),
        })
        .collect()
}

/// Reads exactly one resource.
pub(crate) fn resource(words: &[String]) -> Result<ObjectRef> {
    match <[ObjectRef; 1]>::try_from(resources(words)?) {
        Ok([reference]) => Ok(reference),
        Err(_) => Err(Failure::usage("name exactly one resource: kind/name")),
    }
}

fn target(object_type: Option<ObjectType>, name: &str) -> Result<Target> {
    // Without a type, what `-o name` prints is read back: `providerconfig/fast`.
    let (object_type, name) = match (object_type, name.split_once('/')) {
        (Some(object_type), _) => (object_type, name),
        (None, Some((prefix, rest))) => match ObjectType::parse_exact(prefix) {
            Some(ObjectType::Resource) | None if !rest.contains('/') => {
                (ObjectType::Resource, name)
            }
            Some(object_type) => (object_type, rest),
            None => (ObjectType::Resource, name),
        },
        (None, None) => (ObjectType::Resource, name),
    };
    match object_type {
        ObjectType::Resource => match name.split_once('/') {
            Some((kind, name)) if !kind.is_empty() && !name.is_empty() && !name.contains('/') => {
                Ok(Target::Resource(ObjectRef::new(kind, name)))
            }
            _ => Err(Failure::usage(format!(
                "{name:?} does not name a resource: a resource is kind/name, such as stdshell/hello"
            ))),
        },
        ObjectType::Manifest => manifest(name),
        ObjectType::ProviderConfig => plain(name).map(Target::ProviderConfig),
        ObjectType::ReactorBinding => plain(name).map(Target::ReactorBinding),
        ObjectType::Cluster => Err(Failure::usage("cluster takes no name")),
    }
}

fn manifest(name: &str) -> Result<Target> {
    let (kind, version) = match name.split_once('/') {
        None => (name, None),
        Some((kind, version)) => {
            let digits = version.strip_prefix('v').unwrap_or(version);
            let version = digits.parse().map_err(|_| {
                Failure::usage(format!(
                    "{name:?} does not name a manifest: write kind or kind/vN"
                ))
            })?;
            (kind, Some(version))
        }
    };
    let kind = plain(kind)?;
    Ok(Target::Manifest { kind, version })
}

fn plain(name: &str) -> Result<String> {
    if name.is_empty() || name.contains('/') {
        return Err(Failure::usage(format!("{name:?} is not a name")));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Targets, String> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        targets(&words).map_err(|failure| failure.message)
    }

    fn one(target: Target) -> Result<Targets, String> {
        Ok(Targets::Some(vec![target]))
    }

    #[test]
    fn the_type_defaults_to_resource() {
        let hello = || one(Target::Resource(ObjectRef::new("stdshell", "hello")));
        assert_eq!(read(&["stdshell/hello"]), hello());
        assert_eq!(read(&["res", "stdshell/hello"]), hello());
        assert_eq!(read(&["resource/stdshell/hello"]), hello());
    }

    #[test]
    fn every_type_has_its_short_and_plural_names() {
        for (words, object_type) in [
            (&["resource", "resources", "res"][..], ObjectType::Resource),
            (
                &["manifest", "manifests", "crd", "crds", "kind", "kinds"],
                ObjectType::Manifest,
            ),
            (
                &["providerconfig", "providerconfigs", "pc"],
                ObjectType::ProviderConfig,
            ),
            (
                &["reactorbinding", "reactorbindings", "rb"],
                ObjectType::ReactorBinding,
            ),
            (&["cluster", "nodes"], ObjectType::Cluster),
        ] {
            for word in words {
                assert_eq!(read(&[word]), Ok(Targets::All(object_type)), "{word}");
            }
        }
    }

    #[test]
    fn a_manifest_may_name_its_version() {
        let manifest = |version| {
            one(Target::Manifest {
                kind: "demo".to_owned(),
                version,
            })
        };
        assert_eq!(read(&["crd", "demo"]), manifest(None));
        assert_eq!(read(&["crd", "demo/v2"]), manifest(Some(2)));
        assert_eq!(read(&["manifest/demo/v2"]), manifest(Some(2)));
        assert!(read(&["crd", "demo/latest"]).is_err());
    }

    #[test]
    fn what_name_output_prints_is_read_back() {
        for word in [
            "providerconfig/fast",
            "reactorbinding/notify",
            "manifest/demo/v2",
            "stdshell/a",
        ] {
            let Ok(Targets::Some(targets)) = read(&[word]) else {
                panic!("{word}")
            };
            assert_eq!(targets[0].label(), word);
        }
    }

    #[test]
    fn a_name_that_is_none_says_how_names_look() {
        for words in [&["hello"][..], &["a/b/c"], &["/x"], &["x/"]] {
            let err = read(words).unwrap_err();
            assert!(err.contains("a resource is kind/name"), "{words:?}: {err}");
        }
    }
}
