//! A router over a reference store, and requests to it.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Request, StatusCode};
use converge_api::{Api, Options};
use converge_conformance::clock::ManualClock;
use converge_conformance::memory::MemoryStore;
use converge_conformance::world::World;
use converge_engine::fleet::{BrokerMembers, Fleet, Member, Service};
use converge_types::ids::KindVersion;
use serde_json::Value;
use tower::ServiceExt as _;

/// A fleet that is what a test says.
#[derive(Default)]
pub(crate) struct TestFleet(Mutex<Vec<Member>>);

impl Fleet for TestFleet {
    fn members(&self) -> Vec<BrokerMembers> {
        let workers = self.0.lock().unwrap().clone();
        vec![BrokerMembers {
            broker: "b-1".to_owned(),
            workers,
        }]
    }

    fn service(&self, kv: &KindVersion) -> Service {
        let members = self.0.lock().unwrap();
        let pairs = members.iter().flat_map(|member| &member.pairs);
        let serving = pairs.filter(|(pair, _)| pair == kv);
        serving
            .map(|(_, ready)| {
                if *ready {
                    Service::Ready
                } else {
                    Service::NotReady
                }
            })
            .max()
            .unwrap_or(Service::None)
    }
}

pub(crate) struct Harness {
    pub(crate) world: World,
    pub(crate) clock: ManualClock,
    pub(crate) api: Arc<Api>,
    fleet: Arc<TestFleet>,
    router: Router,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// It is a problem document with this status; gives the text of it.
    #[track_caller]
    pub(crate) fn problem(&self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json"),
            "{}",
            self.text()
        );
        let problem: converge_api_types::Problem = serde_json::from_slice(&self.body).unwrap();
        assert_eq!(problem.status, status);
        assert!(
            !problem.title.is_empty() && !problem.detail.is_empty(),
            "{problem:?}"
        );
        self.text()
    }

    #[track_caller]
    pub(crate) fn ok(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text());
        self
    }
}

/// One text field of every item of a list.
pub(crate) fn column<'v>(items: &'v Value, field: &str) -> Vec<&'v str> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item[field].as_str().unwrap()).collect()
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Self {
        let clock = ManualClock::at(1_767_323_045_678);
        let store = Arc::new(MemoryStore::new(clock.clone()));
        let fleet = Arc::new(TestFleet::default());
        let mut options = Options {
            version: "0.1.0".to_owned(),
            store: "memory".to_owned(),
            role: "all".to_owned(),
            broker_address: "http://127.0.0.1:9090".to_owned(),
            started_ms: clock.now_ms(),
            ..Options::default()
        };
        change(&mut options);
        let api = Api::new(store.clone(), fleet.clone(), options);
        Self {
            world: World::on(store, clock.clone()),
            router: converge_api::router(api.clone()),
            clock,
            api,
            fleet,
        }
    }

    /// A worker that is ready for these kinds at version 1.
    pub(crate) fn connect(&self, identity: &str, kinds: &[&str]) {
        let now = self.clock.now_ms();
        self.fleet.0.lock().unwrap().push(Member {
            identity: identity.to_owned(),
            pairs: kinds
                .iter()
                .map(|kind| (KindVersion::parse(kind, 1).unwrap(), true))
                .collect(),
            credit: 8,
            inflight: 2,
            connected_ms: now,
            heartbeat_ms: now,
        });
    }

    pub(crate) async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let body = axum::body::to_bytes(body, usize::MAX)
            .await
            .unwrap()
            .to_vec();
        Answer {
            status: parts.status,
            headers: parts.headers,
            body,
        }
    }

    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: impl Into<Body>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost:8080");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.call("GET", path, &[], Body::empty()).await
    }

    /// The body of a GET that succeeds.
    pub(crate) async fn json(&self, path: &str) -> Value {
        self.get(path).await.ok(200).json()
    }

    pub(crate) async fn write(&self, method: &str, path: &str, body: impl Into<Body>) -> Answer {
        self.call(method, path, &[("content-type", "application/json")], body)
            .await
    }

    /// Applies a resource of `kind`.
    pub(crate) async fn apply(&self, kind: &str, name: &str, spec: &str) -> Answer {
        let body = format!(r#"{{"kind":"{kind}","name":"{name}","spec":{spec}}}"#);
        self.write("POST", "/api/v1/resources", body).await
    }
}
