//! The wire scenarios, against the in-memory broker.
#![cfg(feature = "testing")]

use std::time::Duration;

use converge_sdk::testing::{BrokerOptions, MemoryBroker, scenarios};

macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                let mut options = BrokerOptions::default();
                options.lease = Duration::from_secs(1);
                let broker = MemoryBroker::start_with(options).await.unwrap();
                scenarios::$name(&broker).await;
            }
        )*
    };
}

scenarios!(
    configs_come_before_tasks,
    a_stale_result_changes_nothing,
    a_resumed_claim_is_kept,
    a_resumed_claim_takes_a_slot,
    a_silent_claim_runs_out,
    the_end_of_a_drain_releases_claims,
    a_broken_stream_releases_nothing,
    a_half_close_with_a_pair_in_use_releases_nothing,
    an_edit_reaches_a_worker_without_a_task,
    interest_and_credit_are_kept_to,
    garbage_hurts_nobody_else,
    a_status_of_60_mib_arrives,
    a_cut_connection_costs_no_second_run,
    a_drain_counts_no_attempt,
);
