//! Waiting for something to hold.

use std::future::Future;
use std::time::{Duration, Instant};

/// What nothing in a test takes longer than, on a busy machine with two cores.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Asks until the answer is `Some`.
///
/// # Panics
/// When it is not within `limit`; says what was waited for.
pub async fn until_within<T, F>(what: &str, limit: Duration, mut ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    let started = Instant::now();
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(started.elapsed() < limit, "waited {limit:?} for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// [`until_within`] the usual limit.
///
/// # Panics
/// As [`until_within`].
pub async fn until<T, F>(what: &str, ask: impl FnMut() -> F) -> T
where
    F: Future<Output = Option<T>>,
{
    until_within(what, LIMIT, ask).await
}
