//! Reading request bodies: bounded, checked once, documents kept as the bytes they came in.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_LENGTH, EXPECT};
use converge_types::json::{self, Doc, JsonType};
use futures::StreamExt;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

use crate::check::Checks;
use crate::problem::Problem;

/// While a body arrives, this much of it, or its end, must come within each [`STRETCH`]. So a slow line may take its time over a large
/// body, and what does not move ends; the largest body there is has ended after two hours at the most.
const STRETCH_BYTES: usize = 256 << 10;
/// See [`STRETCH_BYTES`].
const STRETCH: Duration = Duration::from_secs(60);
/// Bodies over this size take a permit, and are parsed where they hold nobody up.
const LARGE_BYTES: usize = 1 << 20;
/// Large bodies in memory at a time.
static LARGE: Semaphore = Semaphore::const_new(16);
/// How long a large body waits for its turn.
const LARGE_WAIT: Duration = Duration::from_secs(60);

/// So much of a body that is refused is taken all the same, and thrown away: most clients send to the end before they read an answer, and
/// would find the connection broken instead of being told why.
const DISCARD_BYTES: usize = 128 << 20;
/// As long as something comes within this.
const DISCARD_WAIT: Duration = Duration::from_secs(1);
/// And no longer than this in all.
const DISCARD_TIME: Duration = Duration::from_secs(10);

/// A body that has not been read yet.
#[derive(Debug)]
pub(crate) struct Incoming {
    declared: Option<usize>,
    /// The client sends nothing before it is told to.
    asks_first: bool,
    stream: BodyDataStream,
}

impl<S: Send + Sync> FromRequest<S> for Incoming {
    type Rejection = Problem;

    async fn from_request(request: Request<Body>, _: &S) -> Result<Self, Problem> {
        let declared = request.headers().get(CONTENT_LENGTH);
        let declared = declared.and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Self {
            declared,
            asks_first: request.headers().contains_key(EXPECT),
            stream: request.into_body().into_data_stream(),
        })
    }
}

impl Incoming {
    /// The body as a JSON document.
    pub(crate) async fn doc(self, limit: usize) -> Result<Doc, Problem> {
        let (bytes, _permit) = self.read(limit).await?;
        if bytes.len() <= LARGE_BYTES {
            return parse(bytes);
        }
        let parsed = tokio::task::spawn_blocking(move || parse(bytes)).await;
        parsed.map_err(|error| Problem::internal(format!("reading the body failed: {error}")))?
    }

    /// Refuses a body where none is taken. Spaces and an empty object count as none.
    pub(crate) async fn none(self) -> Result<(), Problem> {
        const LIMIT: usize = 1 << 10;
        let empty = match self.read(LIMIT).await {
            Ok((bytes, _)) => {
                let text = bytes.trim_ascii();
                text.is_empty() || parse(bytes.clone())? == Doc::empty_object()
            }
            Err(problem) if problem.status() == StatusCode::REQUEST_TIMEOUT => return Err(problem),
            Err(_) => false,
        };
        if empty {
            return Ok(());
        }
        Err(Problem::bad_request("this route takes no body"))
    }

    async fn read(
        mut self,
        limit: usize,
    ) -> Result<(Bytes, Option<SemaphorePermit<'static>>), Problem> {
        let too_large = || {
            Problem::too_large(format!(
                "the body is over {limit} bytes, the most this route takes"
            ))
        };
        if self.declared.is_some_and(|declared| declared > limit) {
            if !self.asks_first {
                self.discard().await;
            }
            return Err(too_large());
        }
        let mut permit = None;
        let mut whole = Vec::new();
        let mut stretch = Stretch::begin();
        while let Some(chunk) = timeout_at(stretch.until, self.stream.next())
            .await
            .map_err(|_| too_slow(whole.len()))?
        {
            let chunk = chunk.map_err(|error| {
                Problem::bad_request(format!("the body did not arrive: {error}"))
            })?;
            if whole.len() + chunk.len() > limit {
                drop((whole, chunk, permit));
                self.discard().await;
                return Err(too_large());
            }
            if whole.is_empty() {
                whole.reserve(self.declared.unwrap_or(chunk.len()).min(LARGE_BYTES));
            }
            stretch.came(chunk.len());
            if permit.is_none() && whole.len() + chunk.len() > LARGE_BYTES {
                permit = Some(turn_of_large().await?);
                // That wait was ours.
                stretch = Stretch::begin();
            }
            whole.extend_from_slice(&chunk);
        }
        Ok((whole.into(), permit))
    }

    async fn discard(&mut self) {
        let all = async {
            let mut left = DISCARD_BYTES;
            while let Ok(Some(Ok(chunk))) = timeout(DISCARD_WAIT, self.stream.next()).await {
                left = left.saturating_sub(chunk.len());
                if left == 0 {
                    return;
                }
            }
        };
        // Whether it came to its end or not, the answer is the same.
        let _ = timeout(DISCARD_TIME, all).await;
    }
}

/// What must come by when.
struct Stretch {
    until: Instant,
    left: usize,
}

impl Stretch {
    fn begin() -> Self {
        Self {
            until: Instant::now() + STRETCH,
            left: STRETCH_BYTES,
        }
    }

    fn came(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        if self.left == 0 {
            *self = Self::begin();
        }
    }
}

fn too_slow(came: usize) -> Problem {
    let detail = format!(
        "the body stopped arriving after {came} bytes: every {} s {} KiB of it must come, or its end",
        STRETCH.as_secs(),
        STRETCH_BYTES >> 10
    );
    Problem::new(StatusCode::REQUEST_TIMEOUT, detail)
}

async fn turn_of_large() -> Result<SemaphorePermit<'static>, Problem> {
    let turn = timeout(LARGE_WAIT, LARGE.acquire()).await;
    turn.ok().and_then(Result::ok).ok_or_else(|| {
        let detail = "too many large bodies are arriving at once; try again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })
}

fn parse(bytes: Bytes) -> Result<Doc, Problem> {
    Doc::parse(bytes).map_err(|error| {
        let mut checks = Checks::default();
        checks.add(error.pointer.to_string(), error.without_pointer());
        checks.into_problem()
    })
}

/// Reads a checked document into the shape of a body.
///
/// `fields` are the names of that shape and whether each is required, for a message that lists everything at once.
pub(crate) fn shape<T: DeserializeOwned>(doc: &Doc, fields: &[(&str, bool)]) -> Result<T, Problem> {
    if doc.json_type() != JsonType::Object {
        // Said here: serde would take an array for a struct.
        let mut checks = Checks::default();
        let message = format!("the body must be a JSON object, not {}", described(doc));
        checks.add("", message);
        return Err(checks.into_problem());
    }
    serde_json::from_slice(doc.as_bytes()).map_err(|error| {
        let mut checks = Checks::default();
        let found = serde_json::from_slice::<BTreeMap<String, &RawValue>>(doc.as_bytes());
        let found = found.unwrap_or_default();
        for key in found.keys() {
            if !fields.iter().any(|(name, _)| name == key) {
                let known: Vec<_> = fields.iter().map(|(name, _)| *name).collect();
                let message = format!("unknown field; there are: {}", known.join(", "));
                checks.add(format!("/{key}"), message);
            }
        }
        for (name, required) in fields {
            if *required && !found.contains_key(*name) {
                checks.add(format!("/{name}"), "is missing");
            }
        }
        for (name, value) in &found {
            if fields.iter().any(|(known, _)| known == name)
                && let Some((location, message)) = wrong_type::<T>(name, value)
            {
                checks.add(location, message);
            }
        }
        if checks.is_clean() {
            checks.add("", json::without_place(&error));
        }
        checks.into_problem()
    })
}

/// Where in this field, and how, its value is not of the type it should be. The field is read alone, so that every field is
/// judged: the others are then missing, which is no complaint about this one.
fn wrong_type<T: DeserializeOwned>(name: &str, value: &RawValue) -> Option<(String, String)> {
    let alone = serde_json::to_string(&BTreeMap::from([(name, value)])).ok()?;
    let mut reader = serde_json::Deserializer::from_str(&alone);
    let Err(error) = serde_path_to_error::deserialize::<_, T>(&mut reader) else {
        return None;
    };
    let message = error.inner().to_string();
    if message.starts_with("missing field") && error.path().iter().count() == 0 {
        return None;
    }
    let mut location = String::new();
    for segment in error.path() {
        location.push('/');
        let text = segment.to_string();
        location.push_str(&text.replace('~', "~0").replace('/', "~1"));
    }
    // The line and column are those of the field alone.
    let message = json::without_place(error.inner())
        .replace("expected i64", "expected a whole number")
        .replace("expected u64", "expected a whole number, not negative");
    Some((location, message))
}

/// Checks the optional `type` of an apply body.
pub(crate) fn check_type(checks: &mut Checks, found: Option<&str>, expected: &str) {
    if let Some(found) = found.filter(|found| *found != expected) {
        checks.add(
            "/type",
            format!("must be {expected:?} on this route, got {found:?}"),
        );
    }
}

/// A document of a body that must be an object. It has been checked as part of the body.
pub(crate) fn object(checks: &mut Checks, location: &str, raw: Box<RawValue>) -> Option<Doc> {
    let doc = Doc::from_stored(String::from(Box::<str>::from(raw)));
    if doc.json_type() == JsonType::Object {
        return Some(doc);
    }
    checks.add(
        location,
        format!("must be an object, not {}", described(&doc)),
    );
    None
}

fn described(doc: &Doc) -> String {
    doc.json_type().to_string()
}
