//! Every ordering and every crash point of revisions, verdicts and patch ids: whole runs of the
//! real controller in virtual time, in which one thing comes early, late, twice or not at all.
//! Judged are the end, and every version of the objects on the way there.

mod adoption;
mod crash_points;
mod deletions;
mod fixes;
mod history;
mod patch_ids;
mod seam;
#[path = "../support/stage/mod.rs"]
#[allow(dead_code, reason = "shared with other tests, which use other parts")]
mod stage;
mod streams;
mod verdicts;
mod world;
