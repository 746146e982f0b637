//! Time and allocations of comparison, on realistic objects and, when they are there, on the
//! pairs in `../shared/facts/semantic/`, for which the figures of Go's comparison are known.

#[path = "../tests/semantic/counting.rs"]
mod counting;
#[path = "../tests/semantic/facts.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod facts;
#[path = "../tests/semantic/objects.rs"]
mod objects;

use std::fs;
use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use impresario::api::EphemeralRunnerSpec;
use impresario::semantic::{deep_equal, drift};
use k8s_openapi::api::core::v1::PodSpec;
use serde::de::DeserializeOwned;

use counting::allocations;

fn equality(criterion: &mut Criterion) {
    let runner = objects::runner();
    let mut pairs = vec![
        ("equal", runner.clone(), runner.clone()),
        ("respelled", runner.clone(), objects::runner_respelled()),
        (
            "early drift",
            runner.clone(),
            objects::runner_drifted_early(),
        ),
        ("late drift", runner, objects::runner_drifted_late()),
    ];
    for (name, file) in [
        ("facts: equal", "er_spec.a"),
        ("facts: respelled", "er_spec.b_equal_respelled"),
        ("facts: early drift", "er_spec.b_drift_early"),
        ("facts: late drift", "er_spec.b_drift_late"),
    ] {
        if let (Some(a), Some(b)) = (read::<EphemeralRunnerSpec>("er_spec.a"), read(file)) {
            pairs.push((name, a, b));
        }
    }
    let mut group = criterion.benchmark_group("DeepEqual");
    for (name, a, b) in &pairs {
        let (count, equal) = allocations(|| deep_equal(a, b));
        println!("DeepEqual/{name}: {equal}, {count} allocations");
        group.bench_function(*name, |bencher| {
            bencher.iter(|| deep_equal(black_box(a), black_box(b)));
        });
    }
    group.finish();
}

fn derivation(criterion: &mut Criterion) {
    let desired = objects::listener();
    let mut pairs = vec![
        ("derives", desired.clone(), objects::listener_live()),
        ("drift", desired, objects::listener_live_drifted()),
    ];
    for (name, file) in [
        ("facts: derives", "listener_pod_spec.live"),
        ("facts: drift", "listener_pod_spec.live_drift"),
    ] {
        let desired = read::<PodSpec>("listener_pod_spec.desired");
        if let (Some(desired), Some(live)) = (desired, read(file)) {
            pairs.push((name, desired, live));
        }
    }
    let mut group = criterion.benchmark_group("DeepDerivative");
    for (name, desired, live) in &pairs {
        let (count, found) = allocations(|| drift(desired, live));
        println!("DeepDerivative/{name}: {found:?}, {count} allocations");
        group.bench_function(*name, |bencher| {
            bencher.iter(|| drift(black_box(desired), black_box(live)));
        });
    }
    group.finish();
}

fn read<T: DeserializeOwned>(name: &str) -> Option<T> {
    let path = facts::path(&format!("semantic/{name}.json"))?;
    Some(serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap())
}

criterion_group!(benches, equality, derivation);
criterion_main!(benches);
