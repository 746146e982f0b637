//! What we rely on in a Kubernetes API server, as one suite through the kube client. It runs
//! against the embedded server, and against a real one when `KUBEBUILDER_ASSETS` is set.

mod deletion;
mod embedded;
mod pods;
mod rights;
mod schemas;
mod watching;
mod world;
mod writing;

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use futures::future::BoxFuture;

use world::World;

type Behaviour = fn(World) -> BoxFuture<'static, ()>;

/// Makes a test on the embedded server of each behaviour, and one on a real server of all.
macro_rules! behaviours {
    ($($module:ident::$name:ident),+ $(,)?) => {
        mod on_the_embedded_server {
            $(
                #[tokio::test(start_paused = true)]
                async fn $name() {
                    crate::$module::$name(crate::World::embedded()).await;
                }
            )+
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn all_the_same_on_a_real_server() {
            let Some(env) = real_kube::envtest::start().await else {
                return;
            };
            world::prepare(&env.client).await;
            let behaviours: &[(&str, Behaviour)] = &[
                $((
                    concat!(stringify!($module), "::", stringify!($name)),
                    |world| crate::$module::$name(world).boxed(),
                )),+
            ];
            let mut failed = Vec::new();
            for (name, behaviour) in behaviours {
                let world = World::real(&env, name).await;
                let outcome = AssertUnwindSafe(behaviour(world)).catch_unwind().await;
                if outcome.is_err() {
                    failed.push(*name);
                }
            }
            assert!(failed.is_empty(), "the real server differs in {failed:#?}");
        }
    };
}

behaviours![
    writing::a_new_object_is_stamped,
    writing::a_generated_name_adds_five_letters,
    writing::creating_twice_is_refused,
    writing::a_missing_object_is_not_found,
    writing::a_namespace_has_to_exist,
    writing::a_lost_update_is_refused,
    writing::a_patch_with_an_old_revision_is_refused,
    writing::a_custom_resource_is_not_replaced_blindly,
    writing::another_uid_is_refused,
    writing::a_custom_resource_says_its_kind,
    writing::a_patch_that_changes_nothing_writes_nothing,
    writing::null_removes_in_a_merge_patch,
    writing::a_json_patch_is_all_or_nothing,
    writing::status_and_spec_are_written_apart,
    writing::a_status_write_leaves_metadata_alone,
    writing::generation_counts_changes_of_the_spec,
    writing::a_dry_run_leaves_no_trace,
    writing::system_fields_cannot_be_changed,
    writing::a_name_must_be_a_name,
    writing::labels_must_be_labels,
    writing::an_owner_reference_must_be_whole,
    writing::a_secret_takes_texts_and_keeps_its_type,
    writing::a_binding_keeps_its_role,
    writing::the_wrong_kind_is_a_bad_request,
    writing::a_body_that_is_no_object_is_a_bad_request,
    writing::a_large_number_survives,
    deletion::what_nothing_holds_is_gone_at_once,
    deletion::a_finalizer_holds_an_object,
    deletion::no_finalizer_is_added_to_what_is_being_deleted,
    deletion::a_second_deletion_changes_nothing,
    deletion::preconditions_protect_a_successor,
    deletion::dependents_go_after_their_owner,
    deletion::a_dependent_stays_while_one_owner_does,
    deletion::an_owner_with_another_uid_is_no_owner,
    deletion::orphans_stay_and_forget_their_owner,
    deletion::in_the_foreground_the_owner_goes_last,
    deletion::a_collection_is_deleted_by_label,
    deletion::a_namespace_takes_its_content_along,
    deletion::nothing_is_created_in_a_terminating_namespace,
    pods::a_pod_is_filled_in,
    pods::a_pod_has_to_make_sense,
    pods::a_pods_spec_is_fixed_but_for_its_image,
    pods::a_pods_status_is_written_apart,
    pods::metadata_can_be_written_with_a_pods_status,
    pods::a_pod_on_a_node_is_given_time,
    pods::the_time_of_a_pod_can_only_be_shortened,
    pods::a_finalizer_holds_a_pod_after_its_time,
    pods::a_pod_without_a_node_is_gone_at_once,
    pods::a_finished_pod_is_gone_at_once,
    pods::a_pod_is_bound_once,
    watching::a_watch_shows_what_happens_after_its_revision,
    watching::a_watch_from_nowhere_begins_with_everything,
    watching::a_watch_ends_at_its_timeout,
    watching::entering_and_leaving_a_selector_are_added_and_deleted,
    watching::a_deletion_carries_a_newer_revision,
    watching::a_list_in_pages_shows_one_moment,
    watching::a_list_can_show_the_past,
    watching::labels_select_in_every_form,
    watching::pods_are_selected_by_node_and_phase,
    watching::an_unknown_field_selects_nothing,
    watching::metadata_alone_can_be_asked_for,
    schemas::unknown_fields_are_pruned,
    schemas::defaults_are_filled_in,
    schemas::a_value_out_of_bounds_is_refused,
    schemas::a_value_of_the_wrong_type_is_refused,
    schemas::a_status_obeys_the_schema_too,
    schemas::what_is_applied_belongs_to_its_manager,
    schemas::a_strategic_patch_merges_lists_by_key,
    schemas::a_custom_resource_takes_no_strategic_patch,
    schemas::writes_are_recorded_under_their_manager,
    rights::without_a_role_nothing_is_allowed,
    rights::a_role_allows_what_it_names,
    rights::a_role_does_not_reach_beyond_its_namespace,
    rights::nobody_grants_what_he_has_not,
    rights::whoever_may_change_a_role_may_release_it,
];
