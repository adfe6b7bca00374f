//! A histogram of how long tasks ran.
//!
//! The library's own takes a lock for each observation and holds it while it is read: a reader that loses its processor in between would
//! hold up the loop. This one is atomics; the library writes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::{MetricType, TypedMetric};

/// Upper bounds in seconds: from a call of an API to an apply of an hour.
pub(super) const BOUNDS: [f64; 16] = [
    0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 180.0, 600.0, 1800.0,
    3600.0,
];

/// See the module. A clone is another handle of the same.
#[derive(Debug, Clone, Default)]
pub(crate) struct Durations(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// How many were within each bound and above the one before; the last is for those above all.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    sum_us: AtomicU64,
}

impl Durations {
    /// A task ran for so long.
    pub(crate) fn observe(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let at = BOUNDS.partition_point(|bound| *bound < seconds);
        self.0.buckets[at].fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.0.sum_us.fetch_add(micros, Ordering::Relaxed);
    }
}

impl EncodeMetric for Durations {
    fn encode(&self, mut encoder: MetricEncoder) -> Result<(), std::fmt::Error> {
        let bounds = BOUNDS.into_iter().chain([f64::INFINITY]);
        let counts = self
            .0
            .buckets
            .iter()
            .map(|count| count.load(Ordering::Relaxed));
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        // Of the same reading, so that it is never less than the sum of the buckets.
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_micros(self.0.sum_us.load(Ordering::Relaxed)).as_secs_f64();
        encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        Self::TYPE
    }
}

impl TypedMetric for Durations {
    const TYPE: MetricType = MetricType::Histogram;
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::prometheus_text;
    use prometheus_client::registry::Registry;

    use super::*;

    #[test]
    fn a_duration_counts_in_every_bucket_that_holds_it() {
        let durations = Durations::default();
        for took in [0, 1_000, 1_001, 700_000, 9_000_000_000] {
            durations.observe(Duration::from_micros(took));
        }
        let mut registry = Registry::default();
        registry.register("took", "So long", durations);
        let mut text = String::new();
        prometheus_text::encode(&mut text, &registry).unwrap();
        for line in [
            "# TYPE took histogram",
            "took_bucket{le=\"0.001\"} 2",
            "took_bucket{le=\"0.005\"} 3",
            "took_bucket{le=\"0.5\"} 3",
            "took_bucket{le=\"1\"} 4",
            "took_bucket{le=\"3600\"} 4",
            "took_bucket{le=\"+Inf\"} 5",
            "took_sum 9000.702001",
            "took_count 5",
        ] {
            assert!(text.lines().any(|each| each == line), "{line} in\n{text}");
        }
    }
}
