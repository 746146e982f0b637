//! What the Actions service is asked, and what is made of its answers.

use serde_json::json;

use super::world::{CONTROLLER, World, sharer};
use crate::actors::scale_set::{ScaleSetCommand, ScaleSetReport, ScaleSetTag};
use crate::api::AutoscalingRunnerSetPhase as Phase;
use crate::messages::{ActionsCall, ActionsErrorKind, Kind};

const ID: &str = "runner-scale-set-id";
const PLACE: &str = "actions.github.com/runner-scale-set-config-url";

fn names(world: &World) -> Vec<&'static str> {
    world.service.calls.iter().map(ActionsCall::name).collect()
}

#[test]
fn a_new_scale_set_is_looked_for_and_then_created() {
    let world = World::settled();
    assert_eq!(names(&world), ["find_scale_set", "create_scale_set"]);
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(
        world.annotation("actions.github.com/runner-scale-set-name"),
        "pool"
    );
    assert_eq!(
        world.annotation("actions.github.com/runner-group-name"),
        "Default"
    );
    let ars = world.ars();
    let labels = ars.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["actions.github.com/organization"], "acme");
    assert_eq!(labels["actions.github.com/repository"], "widgets");
    assert_eq!(
        world.cluster.count("patch AutoscalingRunnerSet"),
        2,
        "finalizer, annotations"
    );
}

#[test]
fn an_existing_scale_set_is_reused() {
    let mut world = World::new();
    world
        .service
        .put(40, "POOL".to_owned(), 1, vec!["pool".to_owned()]);
    world.pass(5);
    assert_eq!(world.annotation(ID), "40");
    assert_eq!(world.service.count("create_scale_set"), 0);
    assert_eq!(world.al().spec.runner_scale_set_id, 40);
}

#[test]
fn a_named_group_is_looked_up_first() {
    let mut world = World::new();
    world.edit(|ars| {
        ars["spec"]["runnerGroup"] = json!("gpu");
        ars["spec"]["runnerScaleSetLabels"] = json!(["big"]);
    });
    world.pass(5);
    assert_eq!(
        names(&world),
        ["get_runner_group", "find_scale_set", "create_scale_set"]
    );
    assert_eq!(world.service.sets[&11].group_id, 7);
    assert_eq!(world.service.sets[&11].labels, ["pool", "big"]);
}

#[test]
fn a_group_that_does_not_exist_is_named() {
    let mut world = World::new();
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("none"));
    world.pass(120);
    assert!(
        world
            .condition("Registered")
            .starts_with("False GroupNotFound")
    );
    assert_eq!(world.events_of("GroupNotFound"), 1);
    assert!(world.service.calls.len() < 12);
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("gpu"));
    world.pass(5);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn a_group_that_does_not_exist_is_forgotten_when_it_is_taken_back() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("none"));
    world.pass(120);
    assert!(
        world
            .condition("Registered")
            .starts_with("False GroupNotFound")
    );
    // the second one after the listener, whose name has the group in it, was replaced
    assert!(world.events_of("GroupNotFound") <= 2);
    world.edit(|ars| {
        ars["spec"].as_object_mut().unwrap().remove("runnerGroup");
    });
    world.pass(5);
    assert!(world.condition("Registered").starts_with("True Registered"));
    assert!(world.condition("Ready").starts_with("True"));
    assert!(world.is_observed());
}

#[test]
fn a_changed_name_is_changed_in_the_service() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["runnerScaleSetName"] = json!("arsenal"));
    world.pass(5);
    assert_eq!(world.service.sets[&11].name, "arsenal");
    assert_eq!(
        world.annotation("actions.github.com/runner-scale-set-name"),
        "arsenal"
    );
    assert_eq!(world.service.count("update_scale_set"), 1);
    assert!(world.is_observed());
    world.edit(|ars| ars["spec"]["runnerScaleSetName"] = json!("ARSENAL"));
    world.pass(5);
    assert_eq!(
        world.service.count("update_scale_set"),
        1,
        "case does not count"
    );
}

#[test]
fn changed_labels_are_changed_in_the_service() {
    let mut world = World::settled();
    world.edit(|ars| ars["spec"]["runnerScaleSetLabels"] = json!(["big"]));
    world.pass(5);
    assert_eq!(world.service.sets[&11].labels, ["pool", "big"]);
    assert_eq!(world.service.count("update_scale_set"), 1);
}

#[test]
fn a_group_taken_back_leads_to_the_default_group() {
    let mut world = World::new();
    world.edit(|ars| ars["spec"]["runnerGroup"] = json!("gpu"));
    world.pass(5);
    world.edit(|ars| {
        ars["spec"].as_object_mut().unwrap().remove("runnerGroup");
    });
    world.pass(5);
    assert_eq!(world.service.sets[&11].group_id, 1);
    assert_eq!(
        world.annotation("actions.github.com/runner-group-name"),
        "Default"
    );
}

#[test]
fn a_scale_set_that_the_service_has_lost_is_registered_again_before_a_listener_is_made() {
    let mut world = World::settled();
    world.service.sets.clear();
    let name = world.al().metadata.name.clone().unwrap();
    world
        .cluster
        .delete(Kind::AutoscalingListener, CONTROLLER, &name);
    world.pass(10);
    assert_eq!(world.annotation(ID), "12");
    assert_eq!(world.al().spec.runner_scale_set_id, 12);
    let ers = world.ers();
    let spec = ers.spec.ephemeral_runner_spec.as_ref().unwrap();
    assert_eq!(spec.runner_scale_set_id, 12);
    assert_eq!(ers.spec.actionable_revision, Some(2));
    assert_eq!(world.cluster.count("create AutoscalingListener"), 2);
}

#[test]
fn a_listener_that_ends_for_want_of_the_scale_set_has_it_registered_again() {
    let mut world = World::settled();
    world.service.sets.clear();
    world.end_listener(44);
    world.pass(20);
    assert_eq!(world.annotation(ID), "12");
    assert_eq!(world.al().spec.runner_scale_set_id, 12);
    assert_eq!(world.events_of("ScaleSetLost"), 1);
    assert_eq!(world.service.count("get_scale_set"), 1);
    assert_eq!(world.service.count("create_scale_set"), 2);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.most_pods, 1);
}

#[test]
fn a_scale_set_that_is_there_after_all_is_asked_for_once_and_stays() {
    let mut world = World::settled();
    let al = world.al().metadata.uid.clone();
    world.end_listener(44);
    world.pass(3600);
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(world.al().metadata.uid, al);
    assert_eq!(world.service.count("get_scale_set"), 1);
    assert_eq!(world.service.count("create_scale_set"), 1);
    assert_eq!(world.events_of("ScaleSetLost"), 0);
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn an_id_that_is_no_number_is_no_id() {
    let mut world = World::new();
    world.edit(|ars| ars["metadata"]["annotations"] = json!({ID: "eleven"}));
    world.pass(5);
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(world.phase(), Some(Phase::Running));
}

#[test]
fn another_config_url_is_another_registration() {
    let mut world = World::settled();
    world.service.sets.clear();
    world.service.next = 70;
    world
        .service
        .put(11, "somebody else's".to_owned(), 1, Vec::new());
    world.edit(|ars| ars["spec"]["githubConfigUrl"] = json!("https://github.com/other"));
    world.pass(10);
    assert_eq!(world.annotation(ID), "71");
    assert_eq!(world.service.sets[&11].name, "somebody else's");
    let ars = world.ars();
    let labels = ars.metadata.labels.as_ref().unwrap();
    assert_eq!(labels["actions.github.com/organization"], "other");
    assert!(!labels.contains_key("actions.github.com/repository"));
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.most_pods, 1);
}

#[test]
fn another_host_of_the_same_organization_is_another_registration() {
    let mut world = World::settled();
    assert_eq!(world.annotation(PLACE), "https://github.com/acme/widgets");
    world.service.sets.clear();
    world.service.next = 70;
    let url = "https://acme.ghe.com/acme/widgets";
    world.edit(|ars| ars["spec"]["githubConfigUrl"] = json!(url));
    world.pass(10);
    assert_eq!(world.annotation(ID), "71");
    assert_eq!(world.annotation(PLACE), url);
    assert_eq!(world.events_of("ScaleSetLeft"), 1);
    assert_eq!(world.al().spec.runner_scale_set_id, 71);
    assert_eq!(world.phase(), Some(Phase::Running));
    assert_eq!(world.most_pods, 1);
}

#[test]
fn another_way_to_write_the_config_url_is_no_move() {
    let mut world = World::settled();
    world
        .edit(|ars| ars["spec"]["githubConfigUrl"] = json!("https://www.github.com/Acme/widgets/"));
    world.pass(10);
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(world.events_of("ScaleSetLeft"), 0);
    assert_eq!(world.service.count("create_scale_set"), 1);
}

#[test]
fn a_scale_set_that_an_older_controller_registered_gets_its_place_written_down_once() {
    let mut world = World::settled();
    world.edit(|ars| {
        let annotations = ars["metadata"]["annotations"].as_object_mut();
        annotations.unwrap().remove(PLACE);
    });
    let before = world.cluster.count("patch AutoscalingRunnerSet");
    world.pass(60);
    assert_eq!(world.annotation(PLACE), "https://github.com/acme/widgets");
    assert_eq!(
        world.cluster.count("patch AutoscalingRunnerSet"),
        before + 1
    );
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(world.service.count("find_scale_set"), 1);
}

#[test]
fn what_is_shared_with_another_set_is_said_until_it_is_over() {
    let mut world = World::settled();
    let others = vec![sharer(true)];
    world.command(ScaleSetCommand::Shared(others.clone()));
    world.command(ScaleSetCommand::Shared(others));
    let registered = world.condition("Registered");
    assert!(
        registered.starts_with("True ScaleSetShared"),
        "{registered}"
    );
    for part in ["team-b/pool", "runnerScaleSetName", "id 11"] {
        assert!(registered.contains(part), "{registered}");
    }
    assert!(world.condition("Ready").starts_with("True ScaleSetShared"));
    assert_eq!(world.events_of("ScaleSetShared"), 1);
    assert_eq!(world.phase(), Some(Phase::Running));
    world.command(ScaleSetCommand::Shared(Vec::new()));
    assert!(world.condition("Registered").starts_with("True Registered"));
    assert!(world.condition("Ready").starts_with("True Ready"));
}

#[test]
fn a_made_up_claim_is_not_said_and_has_the_scale_set_looked_at_once() {
    let mut world = World::settled();
    world.restart();
    world.pass(5);
    let before = world.service.count("get_scale_set");
    world.command(ScaleSetCommand::Shared(vec![sharer(false)]));
    let registered = world.condition("Registered");
    assert!(registered.starts_with("True Registered"), "{registered}");
    assert_eq!(world.events_of("ScaleSetShared"), 0);
    world.pass(600);
    // so that it can show its own claim to the other
    assert_eq!(world.service.count("get_scale_set"), before + 1);
    let proven = world.reports.iter().rev().find_map(|report| match report {
        ScaleSetReport::Summary(summary) => Some(summary.proven),
        ScaleSetReport::Gone => None,
    });
    assert_eq!(proven, Some(true));
}

#[test]
fn an_id_that_the_service_has_under_another_name_proves_nothing() {
    let mut world = World::settled();
    world.service.sets.get_mut(&11).unwrap().name = "victim".to_owned();
    world.restart();
    world.reports.clear();
    world.pass(5);
    world.command(ScaleSetCommand::Shared(vec![sharer(false)]));
    world.pass(60);
    let proven = world.reports.iter().any(|report| match report {
        ScaleSetReport::Summary(summary) => summary.proven,
        ScaleSetReport::Gone => false,
    });
    assert!(!proven);
}

#[test]
fn refused_credentials_are_said_once_and_mended_without_an_edit() {
    for (kind, reason) in [
        (ActionsErrorKind::Credentials, "CredentialsUnusable"),
        (ActionsErrorKind::Unauthorized, "CredentialsRefused"),
        (ActionsErrorKind::Config, "ConfigInvalid"),
    ] {
        let mut world = World::new();
        world.service.fault = Some(kind);
        world.pass(600);
        assert!(
            world
                .condition("Registered")
                .starts_with(&format!("False {reason}"))
        );
        assert!(
            world
                .condition("Ready")
                .starts_with(&format!("False {reason}"))
        );
        assert_eq!(world.events_of(reason), 1);
        let calls = world.service.calls.len();
        // each reads the credentials; what is sent to the service is the client's business
        assert!((10..90).contains(&calls), "{calls} calls in ten minutes");
        world.service.fault = None;
        world.pass(10);
        assert_eq!(world.phase(), Some(Phase::Running));
        assert!(world.condition("Registered").starts_with("True"));
    }
}

#[test]
fn a_service_out_of_order_leaves_a_registered_scale_set_at_work() {
    let mut world = World::settled();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    world.edit(|ars| ars["spec"]["template"]["spec"]["containers"][0]["image"] = json!("runner:2"));
    world.pass(120);
    assert_eq!(world.ers().spec.actionable_revision, Some(2));
    assert!(world.condition("Registered").starts_with("True"));
    assert!(!world.is_observed());
    assert_eq!(world.events_of("ServiceUnavailable"), 1);
    world.service.fault = None;
    world.pass(60);
    assert!(world.is_observed());
}

#[test]
fn a_service_is_not_called_before_it_wishes_to_be() {
    let mut world = World::new();
    world.service.fault = Some(ActionsErrorKind::Unavailable);
    world.service.wait = Some(std::time::Duration::from_secs(90));
    world.pass(89);
    assert_eq!(world.service.calls.len(), 1);
    world.pass(2);
    assert_eq!(world.service.calls.len(), 2);
}

#[test]
fn a_late_answer_to_an_earlier_call_says_nothing() {
    let mut world = World::settled();
    world.answer_twice(ScaleSetTag::Registration(1));
    world.pass(60);
    assert!(world.condition("Registered").starts_with("True"));
    assert_eq!(world.events_of("RegistrationFailed"), 0);
}

#[test]
fn an_annotation_removed_by_hand_is_looked_up_and_written_again() {
    let mut world = World::settled();
    world.edit(|ars| {
        ars["metadata"]["annotations"]
            .as_object_mut()
            .unwrap()
            .remove(ID);
    });
    world.pass(5);
    assert_eq!(world.annotation(ID), "11");
    assert_eq!(world.service.count("find_scale_set"), 2);
    assert_eq!(world.service.count("create_scale_set"), 1);
}
