//! The golden files are the contract: each is read into its type and written back, and must come out the same, field for
//! field, in the same order, with every digit. Each shows every field its shape can have.

use std::collections::BTreeSet;
use std::path::PathBuf;

use converge_api_types::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

fn golden_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn golden(name: &str) -> String {
    let path = golden_dir().join(format!("{name}.json"));
    std::fs::read_to_string(&path).unwrap_or_else(|err| panic!("{}: {err}", path.display()))
}

fn round_trip<T: Serialize + DeserializeOwned>(name: &str) {
    let text = golden(name);
    let value: T = serde_json::from_str(&text).unwrap_or_else(|err| panic!("{name}: {err}"));
    let again = serde_json::to_string_pretty(&value).expect("a golden shape serializes") + "\n";
    assert_eq!(again, text, "{name} does not come back as it was");
}

macro_rules! shapes {
    ($($name:ident: $type:ty,)*) => {
        const NAMES: &[&str] = &[$(stringify!($name)),*];
        $(#[test] fn $name() { round_trip::<$type>(stringify!($name)); })*
    };
}

shapes! {
    resource_apply: ResourceApply,
    resource: Resource,
    resource_deleting: Resource,
    resource_list: List<Resource>,
    resource_rollback: RollbackRequest,
    spec_history: List<SpecRevision>,
    roots: List<Root>,
    summary: Summary,
    manifest_apply: ManifestApply,
    manifest: Manifest,
    policy_apply: PolicyApply,
    policy: Policy,
    kinds: List<Kind>,
    kind_schema: KindSchema,
    kind_reconciled: KindReconciled,
    providerconfig_apply: ProviderConfigApply,
    providerconfig: ProviderConfig,
    reactor_binding_apply: ReactorBindingApply,
    reactor_binding: ReactorBinding,
    events: List<Event>,
    watch_event: WatchEvent,
    graph: Graph,
    dependencies: Dependencies,
    operation_request: OperationRequest,
    operation: Operation,
    operation_list: List<Operation>,
    cluster_members: List<ClusterMember>,
    version: Version,
    health: Health,
    problem: Problem,
}

#[test]
fn every_golden_file_has_its_shape() {
    let files: BTreeSet<String> = std::fs::read_dir(golden_dir())
        .unwrap()
        .map(|entry| {
            entry
                .unwrap()
                .path()
                .file_stem()
                .unwrap()
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    let shapes: BTreeSet<String> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(files, shapes);
}

#[test]
fn a_thirty_digit_integer_survives_in_a_document() {
    let body: ResourceApply = serde_json::from_str(&golden("resource_apply")).unwrap();
    assert!(body.spec.get().contains("987654321098765432109876543210"));
}

#[test]
fn a_request_body_refuses_a_field_it_does_not_know() {
    let text = golden("resource_apply").replacen("\"spec\"", "\"sepc\"", 1);
    let err = serde_json::from_str::<ResourceApply>(&text)
        .unwrap_err()
        .to_string();
    assert!(err.contains("unknown field `sepc`"), "{err}");
}

#[test]
fn an_answer_may_have_fields_a_client_does_not_know() {
    let text = golden("resource").replacen('{', "{\"new_field\": [1],", 1);
    serde_json::from_str::<Resource>(&text).unwrap();
}

#[test]
fn every_shape_has_a_schema() {
    use utoipa::PartialSchema;
    let schema = serde_json::to_value(Resource::schema()).unwrap();
    assert_eq!(
        schema["properties"]["spec"]["type"],
        serde_json::json!(["object", "null"])
    );
    let list = serde_json::to_value(List::<Resource>::schema()).unwrap();
    assert_eq!(list["properties"]["items"]["type"], "array");
}
