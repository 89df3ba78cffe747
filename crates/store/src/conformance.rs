//! The conformance suite of stores. Each function tests one fact; [`all`] checks every one, each on a
//! fresh store.
//!
//! The suite uses only the [`Store`] trait, so every implementation that passes it can be used by the
//! engine.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a suite says what must hold")]

mod chains;
mod keys;
mod lists;
mod queues;
mod roots;

use std::pin::Pin;
use std::sync::Arc;

use crate::store::Store;

/// A store under test.
pub type Subject = Arc<dyn Store>;

type Fact = fn(Subject) -> Pin<Box<dyn Future<Output = ()> + Send>>;

/// Declares facts by the names of their functions.
macro_rules! facts {
    ($($module:ident: $($fact:ident),* $(,)?;)*) => {
        /// Every fact with its name.
        pub const FACTS: &[(&str, Fact)] = &[
            $($((stringify!($fact), |store| Box::pin($module::$fact(store))),)*)*
        ];
    };
}

facts! {
    chains:
        a_job_is_read_back_as_it_was_committed,
        a_chain_grows_only_from_its_head,
        effects_are_durable_together_or_not_at_all,
        a_long_chain_is_read_by_pages,
        large_members_come_back_whole,
        a_record_can_refer_to_what_its_job_holds,
        a_reference_to_nothing_is_refused,
        a_deleted_job_leaves_nothing_behind,
        the_sub_jobs_of_a_root_are_counted_up_to_a_limit,
        progress_changes_nothing_but_itself,
        a_touch_is_counted_and_needs_its_job,
        commits_of_one_job_take_effect_in_order,
        what_the_fold_reads_is_there_however_long_it_is,
        many_large_jobs_fit_one_commit;
    lists:
        lists_are_in_the_order_of_commits,
        lists_show_only_what_is_asked_for,
        live_jobs_are_those_that_have_not_ended,
        live_jobs_are_counted_by_owner,
        deadlines_come_due_in_order,
        executions_are_found_by_their_key,
        sub_jobs_are_not_listed,
        lists_are_counted_as_they_grow_and_shrink,
        all_jobs_can_be_walked,
        jobs_of_all_owners_are_listed_in_the_order_of_commits,
        changes_are_read_in_the_order_of_commits,
        a_deletion_is_a_change,
        changes_of_sub_jobs_are_those_of_their_parent;
    queues:
        messages_wait_in_order_and_only_once,
        a_full_message_queue_refuses_more,
        messages_end_with_their_job,
        a_commit_may_depend_on_how_many_messages_wait,
        a_queue_gives_the_most_urgent_first,
        what_is_queued_before_all_others_is_found_however_many_have_left,
        a_job_is_acquired_by_one_process,
        a_job_is_handed_over_under_its_fence,
        late_results_are_fenced_off,
        a_job_that_starts_with_a_holder_loses_it_when_it_ends,
        a_process_is_alive_while_its_lease_lasts,
        a_worker_is_alive_while_its_lease_lasts_and_is_no_peer,
        queues_with_entries_are_listed_once,
        a_root_has_one_budget_for_all_who_use_it;
    roots:
        a_root_changes_only_from_what_it_is,
        a_root_that_exists_is_not_set_again,
        a_large_value_is_updated_cell_by_cell,
        a_root_cannot_refer_to_what_is_not_held,
        roots_are_listed_by_name,
        stored_bytes_are_counted_by_owner;
    keys:
        an_idempotency_key_is_taken_once,
        idempotency_keys_are_forgotten_in_time,
        small_blobs_are_kept;
}

/// Checks every fact on a fresh store.
pub async fn all(mut fresh: impl FnMut() -> Subject) {
    for (_, fact) in FACTS {
        fact(fresh()).await;
    }
}
