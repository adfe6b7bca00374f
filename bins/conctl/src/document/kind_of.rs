//! Which type of object a document is.

use super::Document;
use crate::exit::Result;
use crate::names::ObjectType;

/// Says it from `asked` (`--type`), else the document's `type`, else its file's name, else its keys.
pub(super) fn object_type(document: &Document, asked: Option<ObjectType>) -> Result<ObjectType> {
    if let Some(asked) = asked {
        return Ok(asked);
    }
    if document.has("type") {
        let word = document.text("type");
        return word.as_deref().and_then(ObjectType::parse_exact).ok_or_else(|| {
            document.wrong(
                "/type",
                "type must be one of \"resource\", \"manifest\", \"providerconfig\", \"reactorbinding\"",
            )
        });
    }
    let file = document.file.to_ascii_lowercase();
    if [".kind.json", ".kind.yaml", ".kind.yml"]
        .iter()
        .any(|ending| file.ends_with(ending))
    {
        return Ok(ObjectType::Manifest);
    }
    by_keys(document).ok_or_else(|| {
        document.wrong(
            "",
            "cannot tell what this is: write a \"type\" (resource, manifest, providerconfig, reactorbinding) into it, \
             or give --type",
        )
    })
}

/// Keys that only one type has. A providerconfig without any of its own looks like a resource, and is taken for one.
fn by_keys(document: &Document) -> Option<ObjectType> {
    let any = |keys: &[&str]| keys.iter().any(|key| document.has(key));
    if any(&[
        "reactions",
        "spec_schema",
        "status_schema",
        "config_schema",
        "finalizer_name",
    ]) {
        Some(ObjectType::Manifest)
    } else if any(&["watch_kind", "reactor", "transition"]) {
        Some(ObjectType::ReactorBinding)
    } else if any(&["is_default", "data"]) {
        Some(ObjectType::ProviderConfig)
    } else if any(&["kind"]) && any(&["name", "spec"]) {
        Some(ObjectType::Resource)
    } else {
        None
    }
}
