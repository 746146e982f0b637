//! What runs the actors: the actix actor around a step function, its mailbox and its children,
//! the watches that bring news, the router that finds who they are for, and the controller that
//! starts and ends it all.
//!
//! Knows actix and tokio, and decides nothing about objects.

mod actions_io;
mod actor;
#[cfg(test)]
mod actor_tests;
mod children;
mod controller;
mod decoded;
mod first_lists;
mod mailbox;
mod registered_runners;
mod router;
mod schema_watch;
mod services;
mod unregistrar_actor;
mod watch;
mod workers;

pub use actions_io::{CallMetrics, Fenced, KubeSources};
pub use actor::{ActorSpec, Children, MachineActor, NoChildren};
pub use controller::{ControllerError, ControllerOptions, run as run_controller};
pub use mailbox::{Deliver, Mailbox};
pub use router::{ActorKey, ActorKind, ObjectEvent, Router};
pub use services::{ActionsIo, Journal, Services, Unregister};
pub use unregistrar_actor::UnregistrarHandle;
pub use watch::{StoreRestored, WatchEnded, WatchLost};
pub use workers::{WorkerEnded, Workers};
