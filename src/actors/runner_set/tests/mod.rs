//! What the set decides, shown on the set and its runners together.

mod world;

use serde_json::json;

use crate::api::EphemeralRunnerSetPhase;
use crate::messages::{ActionsErrorKind, Kind, KubeErrorKind};
use world::{Fault, World};

#[test]
fn a_patch_is_served_and_its_runners_live_and_go() {
    let mut world = World::new();
    world.scale(2, 1);
    let names = world.live();
    assert_eq!(names.len(), 2, "{:#?}", world.log);
    assert_eq!(world.names(Kind::Pod), names);
    assert_eq!(
        world.set().status.unwrap().pending_ephemeral_runners,
        Some(2)
    );
    world.busy(&names[0]);
    world.exit(&names[0], 0);
    assert_eq!(world.live(), [names[1].clone()], "{:#?}", world.log);
    world.delete(Kind::EphemeralRunnerSet, "pool");
    world.advance(60);
    assert!(world.names(Kind::EphemeralRunner).is_empty());
    assert!(world.names(Kind::EphemeralRunnerSet).is_empty());
    assert!(world.registered.is_empty());
    assert!(world.violations.is_empty(), "{:?}", world.violations);
    println!("{:#?}", world.log);
}
