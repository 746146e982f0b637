//! What messages say, in a line of bounded length: for the log, where one line a step is enough to
//! follow what happens. Objects are named with their version, patches by the fields they set;
//! what these hold is for the level `trace`.

use std::fmt::{self, Display, Formatter};

use serde_json::Value;

use super::actions::{ActionsAnswer, ActionsCall, ActionsError, ActionsRequest};
use super::effect::{Effect, NoDirective};
use super::input::{Input, NoReport};
use super::kube::{KubeAnswer, KubeError, KubeRequest};
use super::object::KubeObject;
use super::reason::Reason;
use super::scale_set::{
    ListenerCommand, ListenerDirective, ListenerReport, RunnerCommand, RunnerDirective,
    RunnerReport, RunnerSetDirective, RunnerSetReport, ScaleSetDirective,
};

/// So many characters of a sentence are shown.
const SENTENCE: usize = 160;
/// So many fields of a patch, or effects of a step, are named.
const LISTED: usize = 12;

/// Something that can be told in a line.
pub trait Brief {
    /// Tells it.
    ///
    /// # Errors
    ///
    /// As the formatter.
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result;
}

/// Shows something in a line.
pub struct InBrief<'a, T: ?Sized>(pub &'a T);

impl<T: Brief + ?Sized> Display for InBrief<'_, T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.0.brief(f)
    }
}

/// A sentence of a server or a person, not longer than a line.
struct Clipped<'a>(&'a str);

impl Display for Clipped<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(SENTENCE) {
            Some((end, _)) => write!(f, "{:?}…", &self.0[..end]),
            None => write!(f, "{:?}", self.0),
        }
    }
}

impl<T: Brief> Brief for [T] {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (number, part) in self.iter().take(LISTED).enumerate() {
            if number > 0 {
                f.write_str("; ")?;
            }
            part.brief(f)?;
        }
        match self.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl<Tag: fmt::Debug, Command: Brief, Report: Brief> Brief for Input<Tag, Command, Report> {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Observed(object) => write!(f, "seen {object:?}"),
            Self::Gone { object, uid } => write!(f, "gone {object} uid {uid}"),
            Self::Kube(tag, Ok(answer)) => {
                write!(f, "{tag:?}: ")?;
                answer.brief(f)
            }
            Self::Kube(tag, Err(error)) => {
                write!(f, "{tag:?}: ")?;
                error.brief(f)
            }
            Self::Actions(tag, Ok(answer)) => {
                write!(f, "{tag:?}: ")?;
                answer.brief(f)
            }
            Self::Actions(tag, Err(error)) => {
                write!(f, "{tag:?}: ")?;
                error.brief(f)
            }
            Self::Command(command) => {
                f.write_str("told ")?;
                command.brief(f)
            }
            Self::Report(report) => {
                f.write_str("heard ")?;
                report.brief(f)
            }
            Self::Tick => f.write_str("time"),
        }
    }
}

impl<Tag, Report: Brief, Directive: Brief> Brief for Effect<Tag, Report, Directive> {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kube(_, request) => request.brief(f),
            Self::Actions(_, request) => request.brief(f),
            Self::Unregister(_, request) => request.brief(f),
            Self::WakeAt(time) => write!(f, "wake at {time:.3}"),
            Self::Event(note) => write!(f, "event {}", note.reason),
            Self::Count(tally) => write!(f, "count {tally:?}"),
            Self::Report(report) => {
                f.write_str("report ")?;
                report.brief(f)
            }
            Self::Child(directive) => directive.brief(f),
            Self::Stop => f.write_str("stop"),
        }
    }
}

// === the API server ===

impl Brief for KubeRequest {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Patch {
                target,
                body,
                status,
                lock,
            } => {
                write!(f, "patch {target}")?;
                if *status {
                    f.write_str(" status")?;
                }
                if let Some(lock) = lock {
                    write!(f, " at {lock}")?;
                }
                f.write_str(" [")?;
                fields(body, f)?;
                f.write_str("]")
            }
            other => write!(f, "{other:?}"),
        }
    }
}

/// Names the fields that a merge patch sets, two levels deep, without what they are set to.
fn fields(body: &Value, f: &mut Formatter<'_>) -> fmt::Result {
    let mut names = Vec::new();
    for (name, value) in body.as_object().into_iter().flatten() {
        match value.as_object() {
            Some(inner) if !inner.is_empty() => {
                names.extend(inner.keys().map(|inner| format!("{name}.{inner}")));
            }
            _ => names.push(name.clone()),
        }
    }
    let more = names.len().saturating_sub(LISTED);
    names.truncate(LISTED);
    f.write_str(&names.join(" "))?;
    match more {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

impl Brief for KubeAnswer {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "{object:?}"),
            Self::Objects(objects) => write!(f, "{} objects", objects.len()),
            Self::Deleted => f.write_str("deleted"),
        }
    }
}

impl Brief for KubeError {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind.as_str(), Clipped(&self.message))
    }
}

// === the Actions service ===

impl Brief for ActionsRequest {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.call.name())?;
        match &self.call {
            ActionsCall::GetRunnerGroup { name }
            | ActionsCall::FindScaleSet { name, .. }
            | ActionsCall::CreateScaleSet { name, .. }
            | ActionsCall::GenerateJitConfig { name, .. }
            | ActionsCall::FindRunner { name } => write!(f, " {name}"),
            ActionsCall::GetScaleSet { id }
            | ActionsCall::UpdateScaleSet { id, .. }
            | ActionsCall::DeleteScaleSet { id }
            | ActionsCall::RemoveRunner { id } => write!(f, " {id}"),
        }
    }
}

impl Brief for ActionsAnswer {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Group(group) => write!(f, "group {} {}", group.id, group.name),
            Self::ScaleSet(Some(set)) => write!(f, "scale set {} {}", set.id, set.name),
            Self::ScaleSet(None) | Self::Runner(None) => f.write_str("none"),
            Self::Jit(jit) => write!(f, "runner {} {}", jit.runner.id, jit.runner.name),
            Self::Runner(Some(runner)) => write!(f, "runner {} {}", runner.id, runner.name),
            Self::Done => f.write_str("done"),
        }
    }
}

impl Brief for ActionsError {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, Clipped(&self.message))
    }
}

// === parents and children ===

impl Brief for NoReport {
    fn brief(&self, _: &mut Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Brief for NoDirective {
    fn brief(&self, _: &mut Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl Brief for ListenerCommand {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Brief for RunnerCommand {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Why something is as it is: the word alone, since the sentence is on the object.
fn reason(reason: Option<&Reason>, f: &mut Formatter<'_>) -> fmt::Result {
    match reason {
        Some(reason) => write!(f, " {}", reason.code),
        None => Ok(()),
    }
}

/// A copy of an object, or that there is none.
fn copy<K: KubeObject>(object: Option<&std::sync::Arc<K>>, f: &mut Formatter<'_>) -> fmt::Result {
    match object {
        Some(object) => write!(f, "{:?}", object.clone().into_object()),
        None => f.write_str("none"),
    }
}

impl Brief for RunnerReport {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "runner {} {:?}", self.name, self.state)?;
        for (flag, word) in [
            (self.has_job, " job"),
            (self.ready, " ready"),
            (self.deleting, " deleting"),
            (self.refused.is_some(), " refused"),
        ] {
            if flag {
                f.write_str(word)?;
            }
        }
        reason(self.reason.as_ref(), f)
    }
}

impl Brief for ListenerReport {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "listener {} ", self.name)?;
        copy(self.listener.as_ref(), f)?;
        write!(f, " pod {} ready {}", self.has_pod, self.ready)?;
        reason(self.reason.as_ref(), f)?;
        reason(self.problem.as_ref(), f)
    }
}

impl Brief for RunnerSetReport {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("runner set ")?;
        copy(self.set.as_ref(), f)?;
        write!(f, " {:?}", self.counts)?;
        reason(self.problem.as_ref(), f)
    }
}

impl Brief for ScaleSetDirective {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listener { name, directive } => {
                write!(f, "listener {name}: ")?;
                match directive {
                    ListenerDirective::Observe(listener) => copy(Some(listener), f),
                    ListenerDirective::Gone { object, uid } => write!(f, "gone {object} uid {uid}"),
                    ListenerDirective::Tell(command) => command.brief(f),
                }
            }
            Self::RunnerSet(RunnerSetDirective::Deliver(object)) => {
                write!(f, "runner set: {object:?}")
            }
            Self::RunnerSet(RunnerSetDirective::Gone { object, uid }) => {
                write!(f, "runner set: gone {object} uid {uid}")
            }
        }
    }
}

impl Brief for RunnerDirective {
    fn brief(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Created(runner) => {
                f.write_str("start ")?;
                copy(Some(runner), f)
            }
            Self::Observe(runner) => {
                f.write_str("hand on ")?;
                copy(Some(runner), f)
            }
            Self::Tell { name, command } => write!(f, "tell {name} {command:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;
    use crate::api::EphemeralRunner;
    use crate::messages::{Kind, KubeErrorKind, Object, ObjectRef};

    type AnyInput = Input<u8, RunnerCommand, RunnerReport>;
    type AnyEffect = Effect<u8, RunnerReport, RunnerDirective>;

    /// Nothing that an object holds may be in a line.
    const BODY: &str = "what-the-object-holds";

    fn runner() -> Arc<EphemeralRunner> {
        let runner = serde_json::from_value(json!({
            "metadata": {"name": "r", "namespace": "ci", "resourceVersion": "7",
                         "annotations": {"a": BODY}},
            "spec": {"githubConfigUrl": BODY, "githubConfigSecret": BODY, "runnerScaleSetId": 1},
        }));
        Arc::new(runner.unwrap())
    }

    fn line(message: &(impl Brief + ?Sized)) -> String {
        InBrief(message).to_string()
    }

    #[test]
    fn inputs_name_objects_and_versions_and_no_bodies() {
        let runner = Object::EphemeralRunner(runner());
        let refused = KubeError {
            kind: KubeErrorKind::Invalid,
            message: format!("Invalid value: {}", "x".repeat(100_000)),
            retry_after: None,
        };
        for (input, expected) in [
            (
                AnyInput::Observed(runner.clone()),
                "seen EphemeralRunner ci/r@7",
            ),
            (
                AnyInput::Kube(3, Ok(KubeAnswer::Object(runner.clone()))),
                "3: EphemeralRunner ci/r@7",
            ),
            (
                AnyInput::Kube(3, Ok(KubeAnswer::Objects(vec![runner; 400]))),
                "3: 400 objects",
            ),
            (
                AnyInput::Kube(3, Err(refused)),
                "3: invalid \"Invalid value: xxx",
            ),
            (AnyInput::Command(RunnerCommand::Release), "told Release"),
            (AnyInput::Tick, "time"),
        ] {
            let line = line(&input);
            assert!(line.starts_with(expected), "{line}");
            assert!(line.len() < 300 && !line.contains(BODY), "{line}");
        }
    }

    #[test]
    fn effects_name_verb_object_and_fields() {
        let target = ObjectRef::new(Kind::EphemeralRunner, "ci", "r");
        let patch = KubeRequest::Patch {
            target: target.clone(),
            body: json!({"metadata": {"finalizers": [BODY]}, "status": {"phase": BODY, "x": {}}}),
            status: true,
            lock: Some("7".into()),
        };
        let effects = [
            AnyEffect::Kube(1, patch),
            AnyEffect::Kube(2, KubeRequest::Get(target)),
            AnyEffect::Kube(3, KubeRequest::Create(Object::from(Pod::default()))),
            AnyEffect::Child(RunnerDirective::Created(runner())),
            AnyEffect::Stop,
        ];
        assert_eq!(
            line(&effects[..]),
            "patch EphemeralRunner ci/r status at 7 [metadata.finalizers status.phase status.x]; \
             get EphemeralRunner ci/r; create Pod /; start EphemeralRunner ci/r@7; stop"
        );
        let none: &[AnyEffect] = &[];
        assert_eq!(line(none), "nothing");
    }

    #[test]
    fn a_thousand_effects_and_fields_are_a_line() {
        let mut names = serde_json::Map::new();
        for number in 0..1_000 {
            names.insert(format!("label-{number}"), json!(BODY));
        }
        let patch = KubeRequest::patch(
            ObjectRef::new(Kind::Secret, "ci", "s"),
            json!({ "data": names }),
        );
        let effects = vec![AnyEffect::Kube(1, patch); 1_000];
        let line = line(&effects[..]);
        assert!(line.ends_with("; and 988 more"), "{line}");
        assert!(line.len() < 6_000 && !line.contains(BODY), "{}", line.len());
    }
}
