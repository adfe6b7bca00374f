//! The suite: one function a rule, each told in a fresh world. A store's crate runs all of them with [`crate::suite!`].

pub mod configs;
pub mod dispatch;
pub mod failures;
pub mod flows;
pub mod graphs;
pub mod manifests;
pub mod observed;
pub mod owed;
pub mod pairs;
pub mod passes;
pub mod resources;
pub mod settling;
pub mod teardown;

/// Runs every scenario of the suite on the store `$open` gives: an expression of a function `fn(ManualClock) -> (Arc<dyn Store>, G)`,
/// where `G` is kept until the scenario is over (a temporary directory).
#[macro_export]
macro_rules! suite {
    ($open:expr) => {
        $crate::suite!(@ $open; resources: an_apply_is_compared_by_value, every_violation_is_told, a_stale_precondition_is_refused,
            another_version_flips_in_place, labels_bump_nothing, history_keeps_twenty, names_come_back_with_a_new_uid);
        $crate::suite!(@ $open; manifests: a_compatible_edit_is_taken_and_a_breaking_one_refused, a_used_manifest_is_not_deleted,
            an_illegal_manifest_lists_everything, a_manifest_edit_ends_a_terminal_pin);
        $crate::suite!(@ $open; passes: a_result_lands_once, half_a_claim_is_fenced, what_runs_is_not_claimed_again, what_moved_while_it_ran_stays_due, status_outside_the_mask_is_dropped, the_mask_is_that_of_the_claim,
            bad_status_is_a_terminal_failure, a_condition_reported_twice_is_a_terminal_failure, a_second_look_doubles_until_true, a_resync_that_fails_pins_nothing, unknown_is_reconciling_and_false_is_degraded);
        $crate::suite!(@ $open; observed: a_policy_edit_begins_and_ends_resyncs, a_resync_composes_and_works, a_resync_under_way_changes_no_phase,
            a_look_that_loses_workers_backs_off, a_pass_asked_for_while_one_runs_is_run, a_pass_asked_for_stays_urgent_behind_a_retry,
            a_dropped_part_is_told_by_a_condition, conditions_go_with_the_version_that_reported_them, labels_make_the_compose_stage_due);
        $crate::suite!(@ $open; flows: what_does_not_fit_is_never_dispatched, a_composite_is_a_source, a_value_that_is_missing_holds, a_change_and_a_flow_at_once_bump_once,
            a_composer_flips_a_child);
        $crate::suite!(@ $open; settling: a_failed_rollup_runs_again_when_something_below_changes, a_config_name_that_is_freed_cures_a_refusal,
            a_failed_composite_settles_with_what_is_below, what_is_said_above_follows_a_lost_lease);
        $crate::suite!(@ $open; owed: a_flip_keeps_the_teardown_it_owes, a_missing_config_holds_a_teardown,
            teardown_reads_the_config_dispatched_last, an_orphan_keeps_the_config_its_composer_dropped);
        $crate::suite!(@ $open; failures: transient_failures_back_off_and_give_up_at_the_limit, a_terminal_failure_is_pinned_to_its_inputs,
            interrupted_is_no_attempt, the_third_lost_lease_counts, a_suspect_runs_alone, reconcile_ends_pin_and_backoff, quarantine_stops_claims, waking_says_when_the_next_timer_is);
        $crate::suite!(@ $open; dispatch: caps_hold_across_workers, higher_classes_go_first_and_none_starves, roots_take_turns,
            a_slot_is_kept_for_composers, a_standing_claim_has_what_becomes_claimable_first, a_standing_claim_that_was_taken_back_claims_nothing);
        $crate::suite!(@ $open; configs: an_edit_that_changes_what_is_read_makes_it_due, one_default_per_pair, a_missing_ref_holds,
            a_default_that_breaks_an_override_shows, a_referenced_config_stays, next_uses_an_edit_later);
        $crate::suite!(@ $open; pairs: a_config_in_use_stays_with_its_pair, a_config_of_the_wrong_pair_can_be_mended,
            a_config_stays_for_the_teardown_that_reads_it, a_composer_moves_a_config_with_what_reads_it,
            a_composer_keeps_the_config_a_teardown_reads);
        $crate::suite!(@ $open; graphs: a_composition_of_old_inputs_is_discarded, a_refused_composition_lists_everything_and_changes_nothing, a_refusal_ends_when_its_cure_comes,
            unchanged_children_are_untouched, flows_deliver_switch_and_go, a_flowed_spec_is_checked_whole, an_edge_to_a_composite_holds_for_all_below, what_a_composite_depends_on_holds_what_it_owns,
            a_dependency_that_turns_bad_is_what_is_waited_for, causes_roll_up, absent_children_are_the_last_result, a_composed_resource_belongs_to_its_composer, a_rollup_runs_once_settled);
        $crate::suite!(@ $open; teardown: a_leaf_without_finalizer_goes_at_once, teardown_runs_with_what_was_dispatched_last,
            dependents_go_first, a_failing_teardown_holds_what_is_above, a_teardown_is_tried_for_ever, abandon_gives_up_with_an_event, orphans_wait_for_grace_and_dependents,
            an_orphan_emitted_again_is_taken_back, force_replaces_a_child, a_running_claim_is_waited_for);
    };
    (@ $open:expr; $module:ident: $($name:ident),* $(,)?) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test]
                async fn $name() {
                    let clock = $crate::clock::ManualClock::at(1_700_000_000_000);
                    let (store, _keep) = ($open)(clock.clone());
                    $crate::suite::$module::$name($crate::world::World::on(store, clock)).await;
                }
            )*
        }
    };
}
