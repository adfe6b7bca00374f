//! The calls: one function for each route, each one request.

use bytes::Bytes;
use converge_api_types::{
    ClusterMember, DeleteQuery, Dependencies, Graph, Json, Kind, KindReconciled, KindSchema, List,
    Manifest, Operation, OperationRequest, ProviderConfig, ReactorBinding, Resource, ResourceQuery,
    RollbackRequest, SpecRevision, Summary, Version, header,
};
use reqwest::Method;

use crate::answer::{Answer, Page};
use crate::error::Error;
use crate::transport::{Client, Request};

impl Client {
    /// `PUT /kinds/{kind}/manifest`.
    pub async fn manifest_apply(&self, kind: &str, body: Bytes) -> Result<Answer<Manifest>, Error> {
        self.write(Method::PUT, &["kinds", kind, "manifest"], &[], Some(body))
            .await
    }

    /// `GET /kinds/{kind}/versions/{v}/manifest`.
    pub async fn manifest(&self, kind: &str, version: i64) -> Result<Answer<Manifest>, Error> {
        let version = version.to_string();
        self.get(&["kinds", kind, "versions", &version, "manifest"], &[])
            .await
    }

    /// `DELETE /kinds/{kind}/versions/{v}/manifest`.
    pub async fn manifest_delete(&self, kind: &str, version: i64) -> Result<(), Error> {
        let version = version.to_string();
        self.delete(&["kinds", kind, "versions", &version, "manifest"], &[])
            .await
    }

    /// `GET /kinds/{kind}/schema`.
    pub async fn kind_schema(&self, kind: &str) -> Result<Answer<KindSchema>, Error> {
        self.get(&["kinds", kind, "schema"], &[]).await
    }

    /// All of `GET /kinds`.
    pub async fn kinds(&self) -> Result<List<Kind>, Error> {
        self.typed_list(&["kinds"]).await
    }

    /// `POST /kinds/{kind}/reconcile`.
    pub async fn kind_reconcile(
        &self,
        kind: &str,
        phase: Option<&str>,
    ) -> Result<Answer<KindReconciled>, Error> {
        let query: Vec<_> = phase.map(|phase| ("phase", phase)).into_iter().collect();
        self.write(Method::POST, &["kinds", kind, "reconcile"], &query, None)
            .await
    }

    /// `POST /resources`.
    pub async fn resource_apply(&self, body: Bytes) -> Result<Answer<Resource>, Error> {
        self.write(Method::POST, &["resources"], &[], Some(body))
            .await
    }

    /// `GET /resources/{kind}/{name}`.
    pub async fn resource(&self, kind: &str, name: &str) -> Result<Answer<Resource>, Error> {
        self.get(&["resources", kind, name], &[]).await
    }

    /// `DELETE /resources/{kind}/{name}`.
    pub async fn resource_delete(
        &self,
        kind: &str,
        name: &str,
        how: DeleteQuery,
    ) -> Result<(), Error> {
        let mut query = Vec::new();
        if how.force {
            query.push(("force", "true"));
        }
        if how.abandon {
            query.push(("abandon", "true"));
        }
        self.delete(&["resources", kind, name], &query).await
    }

    /// One page of `GET /resources`. The items are in their bytes.
    pub async fn resource_page(&self, query: &ResourceQuery) -> Result<Page, Error> {
        let limit = query.limit.map(|limit| limit.to_string());
        let single = [
            ("kind", query.kind.as_deref()),
            ("kv", query.kv.as_deref()),
            ("name", query.name.as_deref()),
            ("owner", query.owner.as_deref()),
            ("root", query.root.as_deref()),
            ("view", query.view.as_deref()),
            ("limit", limit.as_deref()),
            ("cursor", query.cursor.as_deref()),
        ];
        let mut pairs: Vec<(&str, &str)> = single
            .iter()
            .filter_map(|(key, value)| Some((*key, (*value)?)))
            .collect();
        pairs.extend(query.phase.iter().map(|phase| ("phase", phase.as_str())));
        pairs.extend(query.label.iter().map(|label| ("label", label.as_str())));
        self.page(&["resources"], &pairs).await
    }

    /// One page of any list. The items are in their bytes.
    pub async fn page(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Page, Error> {
        let reply = self.read(path, query).await?;
        let list: List<Json> = self.decode(&reply.body)?;
        Ok(Page {
            items: list.items,
            revision: list.revision,
            next_cursor: reply.next_cursor,
        })
    }

    /// Every page of any list as one. The revision is the first page's, so that nothing after it is missed.
    pub async fn list(&self, path: &[&str], query: &[(&str, &str)]) -> Result<List<Json>, Error> {
        let mut page = self.page(path, query).await?;
        let mut all = List {
            items: page.items,
            revision: page.revision,
        };
        while let Some(cursor) = page.next_cursor {
            let mut next: Vec<(&str, &str)> = query.to_vec();
            next.push(("cursor", &cursor));
            page = self.page(path, &next).await?;
            all.items.append(&mut page.items);
            if page.next_cursor.as_deref() == Some(cursor.as_str()) {
                return Err(self.not_this_api("a list's next page is the same page again"));
            }
        }
        Ok(all)
    }

    /// `GET /resources/summary`.
    pub async fn summary(&self) -> Result<Answer<Summary>, Error> {
        self.get(&["resources", "summary"], &[]).await
    }

    /// `POST …/reconcile`; `key` makes a repeat harmless.
    pub async fn resource_reconcile(
        &self,
        kind: &str,
        name: &str,
        recursive: bool,
        key: &str,
    ) -> Result<(), Error> {
        self.act(
            &["resources", kind, name, "reconcile"],
            recursive,
            &[(header::IDEMPOTENCY_KEY, key)],
        )
        .await
    }

    /// `POST …/quarantine`.
    pub async fn resource_quarantine(
        &self,
        kind: &str,
        name: &str,
        recursive: bool,
    ) -> Result<(), Error> {
        self.act(&["resources", kind, name, "quarantine"], recursive, &[])
            .await
    }

    /// `POST …/unquarantine`.
    pub async fn resource_unquarantine(
        &self,
        kind: &str,
        name: &str,
        recursive: bool,
    ) -> Result<(), Error> {
        self.act(&["resources", kind, name, "unquarantine"], recursive, &[])
            .await
    }

    /// `POST …/rollback`.
    pub async fn resource_rollback(
        &self,
        kind: &str,
        name: &str,
        generation: u64,
    ) -> Result<Answer<Resource>, Error> {
        let body = self.encode(&RollbackRequest { generation })?;
        self.write(
            Method::POST,
            &["resources", kind, name, "rollback"],
            &[],
            Some(body),
        )
        .await
    }

    /// `GET …/graph`.
    pub async fn resource_graph(&self, kind: &str, name: &str) -> Result<Answer<Graph>, Error> {
        self.get(&["resources", kind, name, "graph"], &[]).await
    }

    /// `GET …/dependencies`.
    pub async fn resource_dependencies(
        &self,
        kind: &str,
        name: &str,
    ) -> Result<Answer<Dependencies>, Error> {
        self.get(&["resources", kind, name, "dependencies"], &[])
            .await
    }

    /// All of `GET …/children`.
    pub async fn resource_children(&self, kind: &str, name: &str) -> Result<List<Resource>, Error> {
        self.typed_list(&["resources", kind, name, "children"])
            .await
    }

    /// All of `GET …/spec-history`.
    pub async fn spec_history(&self, kind: &str, name: &str) -> Result<List<SpecRevision>, Error> {
        self.typed_list(&["resources", kind, name, "spec-history"])
            .await
    }

    /// `POST …/ops`; `key` makes a repeat harmless.
    pub async fn operation_start(
        &self,
        kind: &str,
        name: &str,
        request: &OperationRequest,
        key: &str,
    ) -> Result<Answer<Operation>, Error> {
        let body = self.encode(request)?;
        let request = Request {
            path: &["resources", kind, name, "ops"],
            body: Some(body),
            headers: &[(header::IDEMPOTENCY_KEY, key)],
            ..Request::default()
        };
        let reply = self.send(Method::POST, request).await?;
        self.answer(reply)
    }

    /// `GET …/ops/{uid}`.
    pub async fn operation(
        &self,
        kind: &str,
        name: &str,
        uid: &str,
    ) -> Result<Answer<Operation>, Error> {
        self.get(&["resources", kind, name, "ops", uid], &[]).await
    }

    /// `POST /providerconfigs`.
    pub async fn providerconfig_apply(
        &self,
        body: Bytes,
        replace_default: bool,
    ) -> Result<Answer<ProviderConfig>, Error> {
        let query: &[_] = if replace_default {
            &[("replace_default", "true")]
        } else {
            &[]
        };
        self.write(Method::POST, &["providerconfigs"], query, Some(body))
            .await
    }

    /// `GET /providerconfigs/{name}`.
    pub async fn providerconfig(&self, name: &str) -> Result<Answer<ProviderConfig>, Error> {
        self.get(&["providerconfigs", name], &[]).await
    }

    /// `DELETE /providerconfigs/{name}`.
    pub async fn providerconfig_delete(&self, name: &str) -> Result<(), Error> {
        self.delete(&["providerconfigs", name], &[]).await
    }

    /// `POST /reactor-bindings`.
    pub async fn reactor_binding_apply(
        &self,
        body: Bytes,
    ) -> Result<Answer<ReactorBinding>, Error> {
        self.write(Method::POST, &["reactor-bindings"], &[], Some(body))
            .await
    }

    /// `GET /reactor-bindings/{name}`.
    pub async fn reactor_binding(&self, name: &str) -> Result<Answer<ReactorBinding>, Error> {
        self.get(&["reactor-bindings", name], &[]).await
    }

    /// `DELETE /reactor-bindings/{name}`.
    pub async fn reactor_binding_delete(&self, name: &str) -> Result<(), Error> {
        self.delete(&["reactor-bindings", name], &[]).await
    }

    /// All of `GET /cluster-members`.
    pub async fn cluster_members(&self) -> Result<List<ClusterMember>, Error> {
        self.typed_list(&["cluster-members"]).await
    }

    /// `GET /version`.
    pub async fn version(&self) -> Result<Answer<Version>, Error> {
        self.get(&["version"], &[]).await
    }

    /// Reads any object by its route, for callers that show it as it came.
    pub async fn object(&self, path: &[&str]) -> Result<Answer<Json>, Error> {
        self.get(path, &[]).await
    }
}
