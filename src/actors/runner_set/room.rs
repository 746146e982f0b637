//! How many runners are on their way at a time. What refuses one for want of room refuses all: the
//! whole set learns it from the first, and does not register runners that get no pod.
//!
//! A set begins with a few, and has twice as many on their way each time that these have got their
//! pods. After a refusal there is one at a time, which shows when there is room again.

use super::creation::MAX_CREATES;
use super::machine::RunnerSetMachine;
use crate::actors::core::step_context::StepContext;
use crate::api::EphemeralRunnerSet;
use crate::clock::{Timestamp, after};
use crate::messages::{Effect, EventSeverity, RunnerCommand, RunnerDirective, codes};

/// With so many on their way a set begins.
const FIRST: usize = 2;
/// After so many seconds without a pod it has more on their way: something slow keeps these.
const PATIENCE: i64 = 5;

/// How many runners are on their way at a time.
#[derive(Debug)]
pub(super) struct QuotaRoom {
    width: usize,
    /// Pods since the width was last changed.
    launched: usize,
    /// Since when all that may be are on their way.
    full_since: Option<Timestamp>,
    /// A quota has refused one since all that are wanted were there.
    refused: bool,
    /// Pods or runners have gone: there may be room.
    freed: bool,
}

impl Default for QuotaRoom {
    fn default() -> Self {
        Self {
            width: FIRST,
            launched: 0,
            full_since: None,
            refused: false,
            freed: false,
        }
    }
}

impl QuotaRoom {
    /// A runner's pod was accepted.
    pub fn launched(&mut self) {
        self.full_since = None;
        self.launched += 1;
        if self.launched >= self.width.max(FIRST) {
            self.widen();
        }
    }

    /// A runner has gone, or its pod has.
    pub const fn freed(&mut self) {
        self.freed = true;
    }

    fn widen(&mut self) {
        self.launched = 0;
        self.width = self.width.saturating_mul(2).min(MAX_CREATES);
    }

    /// A quota refuses. Says whether that is news.
    fn refuse(&mut self) -> bool {
        self.width = 1;
        self.launched = 0;
        self.full_since = None;
        !std::mem::replace(&mut self.refused, true)
    }
}

impl RunnerSetMachine {
    /// Whether a quota keeps some runner from being made or from its pod.
    fn is_crowded(&self) -> bool {
        self.creation.is_crowded() || self.runners.first_crowded().is_some()
    }

    /// Follows the quota: says once that it leaves no room, keeps one runner that shows when there
    /// is some, and lets the others go, which have no pod.
    pub(super) fn follow_room(&mut self, set: &EphemeralRunnerSet, ctx: &mut StepContext<Self>) {
        let freed = std::mem::take(&mut self.quota_room.freed);
        if !self.is_crowded() {
            return;
        }
        if self.quota_room.refuse() {
            let trouble = self.problem().map(|problem| problem.message);
            let message = format!(
                "a quota leaves no room for more runners; they are made as soon as there is: {}",
                trouble.unwrap_or_default()
            );
            ctx.event(set, EventSeverity::Warning, codes::QUOTA_EXCEEDED, message);
        }
        self.creation.trim(1);
        while let Some(name) = self.runners.next_crowded() {
            self.command_runner(name, RunnerCommand::Delete, ctx);
        }
        if freed {
            self.creation.hurry();
            if let Some(name) = self.runners.first_crowded() {
                let command = RunnerCommand::TryAgain;
                ctx.push(Effect::Child(RunnerDirective::Tell { name, command }));
            }
        }
    }

    /// How many of `gap` runners may be made now.
    pub(super) fn room_for(&mut self, gap: usize, ctx: &mut StepContext<Self>) -> usize {
        let under_way = self.runners.starting() + self.creation.len();
        if self.is_crowded() {
            let one = under_way == 0 && self.runners.first_crowded().is_none();
            return usize::from(one);
        }
        if gap > 0 && under_way >= self.quota_room.width {
            let since = *self.quota_room.full_since.get_or_insert(ctx.now);
            let due = after(since, PATIENCE);
            if due > ctx.now {
                ctx.wake_at(due);
                return 0;
            }
            self.quota_room.widen();
            self.quota_room.full_since = Some(ctx.now);
            ctx.wake_at(after(ctx.now, PATIENCE));
        }
        self.quota_room.width.saturating_sub(under_way)
    }

    /// All runners that are wanted are there.
    pub(super) fn rest_room(&mut self) {
        if !self.is_crowded() && self.runners.starting() == 0 {
            self.quota_room = QuotaRoom::default();
        }
    }
}
