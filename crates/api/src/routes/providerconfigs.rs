//! `/providerconfigs`: operator-owned configuration of kinds.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use converge_api_types as api;
use converge_engine::command::{self, Command, Reply};
use converge_engine::model::{Bundle, Config};
use converge_types::ids::{ConfigName, Kind, KindVersion, Uid};
use converge_types::json::Digest;
use converge_types::limits;
use converge_types::phase::rfc3339_ms;

use super::resources::kind_version;
use super::{Answer, unexpected};
use crate::Api;
use crate::answer::{self, json, list, raw, with_etag};
use crate::body::{check_type, object, shape};
use crate::check::{Checks, PathArgs, QueryArgs};
use crate::problem::Problem;
use crate::write::Write;

/// The spec, the bundle in base64, and what is around them.
const BODY_BYTES: usize = limits::CONFIG_BYTES + limits::BUNDLE_BYTES / 3 * 4 + (1 << 20);
const FIELDS: &[(&str, bool)] = &[
    ("type", false),
    ("name", true),
    ("kind", true),
    ("kind_version", false),
    ("is_default", false),
    ("spec", false),
    ("data", false),
];

pub(crate) fn router() -> Router<Arc<Api>> {
    Router::new()
        .route("/providerconfigs", post(apply).get(list_all))
        .route("/providerconfigs/{name}", get(read).delete(delete))
}

/// Applies one providerconfig.
#[utoipa::path(post, path = "/api/v1/providerconfigs", tag = "providerconfigs", request_body = api::ProviderConfigApply, params(api::ProviderConfigQuery), responses(
    (status = 201, description = "created", body = api::ProviderConfig), (status = 200, description = "configured or unchanged, see X-Apply-Result", body = api::ProviderConfig),
    (status = 400, description = "malformed, or it does not fit the kind's config schema", body = api::Problem, content_type = "application/problem+json"),
    (status = 409, description = "there is another default, or it is in use as one of another kind or version", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn apply(State(api): State<Arc<Api>>, query: QueryArgs, write: Write) -> Answer {
    let replace_default = query.read(&["replace_default"], &[], |checks| {
        query.flag(checks, "replace_default")
    })?;
    let (precondition, doc) = write.conditional(BODY_BYTES).await?;
    let body: api::ProviderConfigApply = shape(&doc, FIELDS)?;
    let mut checks = Checks::default();
    check_type(&mut checks, body.type_.as_deref(), "providerconfig");
    let name = checks.parse::<ConfigName>("/name", &body.name);
    let kind = checks.parse::<Kind>("/kind", &body.kind);
    let version = body
        .kind_version
        .and_then(|version| kind_version(&mut checks, version));
    let spec = body
        .spec
        .and_then(|spec| object(&mut checks, "/spec", spec));
    let data = body.data.and_then(|data| {
        checks.take(
            "/data",
            STANDARD
                .decode(data)
                .map_err(|error| format!("is not base64: {error}")),
        )
    });
    let (Some(name), Some(kind)) = (name, kind) else {
        return Err(checks.into_problem());
    };
    checks.finish()?;
    let version = match version {
        Some(version) => version,
        None => api
            .store
            .config_get(&name)
            .await?
            .map_or(1, |(row, _)| row.kv.version),
    };
    let command = Command::ConfigApply(command::ConfigApply {
        name: name.clone(),
        kv: KindVersion { kind, version },
        is_default: body.is_default,
        spec,
        data: data.map(Arc::from),
        replace_default,
        precondition,
        who: None,
    });
    match api.command(command).await? {
        Reply::Config { applied, row } => {
            let (row, bundle) = api.store.config_get(&name).await?.unwrap_or((row, None));
            let body = api.config(&row, bundle.as_ref()).await?;
            let response = answer::of_apply(applied, &body, row.revision);
            let path = format!("/api/v1/providerconfigs/{name}");
            Ok(answer::with_location(response, &path))
        }
        other => Err(unexpected(&other)),
    }
}

/// Providerconfigs by name, without their bundles.
#[utoipa::path(get, path = "/api/v1/providerconfigs", tag = "providerconfigs", params(("kind" = Option<String>, Query), ("limit" = Option<u32>, Query, minimum = 1, maximum = 500), ("cursor" = Option<String>, Query)), responses(
    (status = 200, description = "one page", body = api::List<api::ProviderConfig>)))]
pub(crate) async fn list_all(State(api): State<Arc<Api>>, query: QueryArgs) -> Answer {
    let (kind, limit, cursor) = query.read(&["kind", "limit", "cursor"], &[], |checks| {
        let kind = query.parsed::<Kind>(checks, "kind");
        let limit = query.limit(checks);
        // A cursor is the last item of the page before.
        query.parsed::<ConfigName>(checks, "cursor");
        (kind, limit, query.get("cursor"))
    })?;
    let page = api.store.config_list(kind.as_ref(), cursor, limit).await?;
    let mut items = Vec::with_capacity(page.items.len());
    for row in &page.items {
        items.push(api.config(row, None).await?);
    }
    Ok(list(items, page.revision, page.next))
}

/// One providerconfig, with its bundle.
#[utoipa::path(get, path = "/api/v1/providerconfigs/{name}", tag = "providerconfigs", params(("name" = String, Path)), responses(
    (status = 200, description = "the config", body = api::ProviderConfig), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn read(State(api): State<Arc<Api>>, path: PathArgs, query: QueryArgs) -> Answer {
    query.none()?;
    let name: ConfigName = path.only("name")?;
    let found = api.store.config_get(&name).await?;
    let (row, bundle) =
        found.ok_or_else(|| Problem::not_found(format!("there is no providerconfig {name}")))?;
    let body = api.config(&row, bundle.as_ref()).await?;
    Ok(with_etag(json(StatusCode::OK, &body), row.revision))
}

/// Deletes a providerconfig nothing refers to.
#[utoipa::path(delete, path = "/api/v1/providerconfigs/{name}", tag = "providerconfigs", params(("name" = String, Path)), responses(
    (status = 204, description = "gone"), (status = 404, description = "not there", body = api::Problem, content_type = "application/problem+json"),
    (status = 409, description = "referred to", body = api::Problem, content_type = "application/problem+json")))]
pub(crate) async fn delete(
    State(api): State<Arc<Api>>,
    path: PathArgs,
    query: QueryArgs,
    write: Write,
) -> Answer {
    query.none()?;
    let name: ConfigName = path.only("name")?;
    let precondition = write.conditional_bare().await?;
    let command = Command::ConfigDelete(command::ConfigDelete {
        name,
        precondition,
        who: None,
    });
    api.removed(command).await
}

impl Api {
    async fn config(
        &self,
        row: &Config,
        bundle: Option<&Bundle>,
    ) -> Result<api::ProviderConfig, Problem> {
        let owner = match row.owner {
            Some(owner) => self.store.resource_get_by_uid(owner).await?,
            None => None,
        };
        Ok(api::ProviderConfig {
            type_: "providerconfig".to_owned(),
            name: row.name.to_string(),
            kind: row.kv.kind.to_string(),
            kind_version: row.kv.version.into(),
            uid: identity(row).to_string(),
            is_default: row.is_default,
            spec: Some(raw(&row.spec)?),
            data: bundle.map(|bundle| STANDARD.encode(&bundle.0)),
            bundle: bundle.map(|bundle| api::Bundle {
                sha256: Digest::of(&bundle.0).to_string(),
                size: bundle.0.len() as u64,
            }),
            digest: format!("{:032x}", row.effective.0),
            owner: owner
                .map(|view| api::ObjectRef::new(view.row.kv.kind.as_str(), view.row.name.as_str())),
            created_at: rfc3339_ms(row.created_ms),
            updated_at: rfc3339_ms(row.updated_ms),
        })
    }
}

/// A config is stored by name; its identity is that name at that time, so that one created again under the same name has another.
fn identity(row: &Config) -> Uid {
    let digest = Digest::of(row.name.as_str().as_bytes());
    let mut random = [0; 10];
    random.copy_from_slice(&digest.as_bytes()[..10]);
    Uid::from_parts(u64::try_from(row.created_ms).unwrap_or(0), random)
}
