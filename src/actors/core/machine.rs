//! What every actor's decision part looks like.

use std::fmt::Debug;

use crate::clock::Timestamp;
use crate::messages::{
    Brief, Effect, Input, ListenerCommand, ListenerReport, NoReport, RunnerCommand, RunnerReport,
    RunnerSetReport,
};

/// The decision part of an actor: a state that turns inputs into effects.
///
/// `step` is level triggered: it takes the input into the state, then looks at the whole
/// state and does the first things that are missing. It never fails; what it cannot do now it
/// asks to be woken for.
pub trait Machine: Unpin + 'static {
    /// The actor's name in logs and metrics.
    const NAME: &'static str;
    /// Names an effect, so that its result is recognised.
    type Tag: Clone + Debug + PartialEq + Send + Unpin + 'static;
    /// What the parent tells it.
    type Command: Brief + Topic + Clone + Debug + Send + Unpin + 'static;
    /// What it tells its parent.
    type Report: Brief + Clone + Debug + PartialEq + Send + Unpin + 'static;
    /// What its children tell it.
    type ChildReport: Brief + Coalesce + Clone + Debug + Send + Unpin + 'static;
    /// What a step notes on its way, beside its effects, for its end.
    type Notes: Default;
    /// What it wants of its children.
    type Directive: Brief + Clone + Debug + PartialEq + Send + 'static;

    /// Takes one input at the time `now` and answers with what is to be done.
    fn step(&mut self, now: Timestamp, input: InputOf<Self>) -> Vec<EffectOf<Self>>;
}

/// A command of which a newer one about the same topic takes the place of an older one.
pub trait Topic {
    /// What it is about.
    fn topic(&self) -> &'static str;
    /// Whether it holds until another one about its topic comes. A state that is made anew is
    /// told all that hold, in the alphabetical order of their topics.
    fn holds(&self) -> bool;
}

/// A report of which a newer one can take the place of an older one.
pub trait Coalesce {
    /// Who reports.
    fn subject(&self) -> String;
    /// Takes over from an older report of the same subject what must not be lost with it.
    fn absorb(&mut self, older: &Self);
}

/// The inputs of a machine.
pub type InputOf<M> =
    Input<<M as Machine>::Tag, <M as Machine>::Command, <M as Machine>::ChildReport>;

/// The effects of a machine.
pub type EffectOf<M> =
    Effect<<M as Machine>::Tag, <M as Machine>::Report, <M as Machine>::Directive>;

impl Topic for ListenerCommand {
    fn topic(&self) -> &'static str {
        match self {
            Self::RefreshSources => "sources",
            Self::Orphaned => "orphaned",
        }
    }
    fn holds(&self) -> bool {
        match self {
            // a new state reads them anyway
            Self::RefreshSources => false,
            Self::Orphaned => true,
        }
    }
}

impl Topic for RunnerCommand {
    fn topic(&self) -> &'static str {
        // the one does not take the other back
        match self {
            Self::Delete => "delete",
            Self::Release => "release",
            Self::TryAgain => "try again",
        }
    }
    fn holds(&self) -> bool {
        !matches!(self, Self::TryAgain)
    }
}

impl Coalesce for NoReport {
    fn subject(&self) -> String {
        match *self {}
    }
    fn absorb(&mut self, _older: &Self) {}
}

impl Coalesce for RunnerReport {
    fn subject(&self) -> String {
        self.name.clone()
    }
    fn absorb(&mut self, older: &Self) {
        // said once, so it must survive a newer report of the same runner
        if self.refused.is_none() && self.uid == older.uid {
            self.refused.clone_from(&older.refused);
        }
    }
}

impl Coalesce for ListenerReport {
    fn subject(&self) -> String {
        self.name.clone()
    }
    fn absorb(&mut self, _older: &Self) {}
}

impl Coalesce for RunnerSetReport {
    fn subject(&self) -> String {
        "runner set".to_owned()
    }
    fn absorb(&mut self, _older: &Self) {}
}
