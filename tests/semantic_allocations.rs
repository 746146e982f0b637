//! Comparison does not allocate where it finds no difference.

#[path = "semantic/counting.rs"]
mod counting;
#[path = "semantic/facts.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod facts;
#[path = "semantic/objects.rs"]
mod objects;

use std::fs;

use impresario::api::EphemeralRunnerSpec;
use impresario::semantic::{deep_equal, drift};
use k8s_openapi::api::core::v1::PodSpec;
use serde::de::DeserializeOwned;

use counting::allocations;

#[test]
fn the_counter_counts() {
    let (count, text) = allocations(|| "text".to_owned());
    assert_eq!((count, text.as_str()), (1, "text"));
}

#[test]
fn equality_never_allocates() {
    let runner = objects::runner();
    for (other, equal) in [
        (objects::runner(), true),
        (objects::runner_respelled(), true),
        (objects::runner_drifted_early(), false),
        (objects::runner_drifted_late(), false),
    ] {
        assert_eq!(allocations(|| deep_equal(&runner, &other)), (0, equal));
    }
}

#[test]
fn derivation_does_not_allocate_unless_there_is_drift() {
    let desired = objects::listener();
    let live = objects::listener_live();
    assert_eq!(allocations(|| drift(&desired, &live)), (0, None));
    let live = objects::listener_live_drifted();
    let (count, found) = allocations(|| drift(&desired, &live));
    assert_eq!(found.unwrap().path, "containers[listener].image");
    assert!(count > 0, "a difference is text");

    let runner = objects::runner();
    let respelled = objects::runner_respelled();
    assert_eq!(allocations(|| drift(&runner, &respelled)), (0, None));
}

#[test]
fn pairs_of_the_facts_are_compared_without_allocation() {
    let Some(runner) = read::<EphemeralRunnerSpec>("er_spec.a") else {
        return;
    };
    let respelled = read("er_spec.b_equal_respelled").unwrap();
    assert_eq!(allocations(|| deep_equal(&runner, &respelled)), (0, true));
    let desired = read::<PodSpec>("listener_pod_spec.desired").unwrap();
    let live = read("listener_pod_spec.live").unwrap();
    assert_eq!(allocations(|| drift(&desired, &live)), (0, None));
}

fn read<T: DeserializeOwned>(name: &str) -> Option<T> {
    let path = facts::path(&format!("semantic/{name}.json"))?;
    Some(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
}
