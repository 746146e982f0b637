//! What can go wrong with a pod.

use std::fmt;
use std::str::FromStr;

/// What goes wrong with a pod. Written as the words of [`UnknownFault`], as `exit=7`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodFault {
    /// The program ends with this exit code instead of doing its work.
    Exit(i32),
    /// The program is killed for its memory.
    OutOfMemory,
    /// The kubelet evicts the pod.
    Evicted,
    /// The kubelet does not take the pod (`OutOfcpu`).
    Rejected,
    /// An init container fails.
    InitFailed,
    /// The image cannot be pulled, with this reason (`ImagePullBackOff`, `InvalidImageName`, …).
    Image(String),
    /// No node takes the pod.
    Unschedulable,
    /// Containers never get created; the pod shows no state of them.
    Silent,
    /// The node is gone: nothing is heard of the pod any more, and it hangs in deletion.
    NodeLost,
}

/// A fault that is asked for in words nobody knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown fault \"{0}\"; known are exit=CODE, oom, evicted, rejected, init-failed, \
     image=REASON, unschedulable, silent and node-lost"
)]
pub struct UnknownFault(String);

impl FromStr for PodFault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownFault(text.to_owned());
        match text.split_once('=') {
            Some(("exit", code)) => code.parse().map(Self::Exit).map_err(|_| unknown()),
            Some(("image", reason)) => Ok(Self::Image(reason.to_owned())),
            Some(_) => Err(unknown()),
            None => match text {
                "oom" => Ok(Self::OutOfMemory),
                "evicted" => Ok(Self::Evicted),
                "rejected" => Ok(Self::Rejected),
                "init-failed" => Ok(Self::InitFailed),
                "unschedulable" => Ok(Self::Unschedulable),
                "silent" => Ok(Self::Silent),
                "node-lost" => Ok(Self::NodeLost),
                _ => Err(unknown()),
            },
        }
    }
}

impl fmt::Display for PodFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(code) => write!(f, "exit={code}"),
            Self::OutOfMemory => f.write_str("oom"),
            Self::Evicted => f.write_str("evicted"),
            Self::Rejected => f.write_str("rejected"),
            Self::InitFailed => f.write_str("init-failed"),
            Self::Image(reason) => write!(f, "image={reason}"),
            Self::Unschedulable => f.write_str("unschedulable"),
            Self::Silent => f.write_str("silent"),
            Self::NodeLost => f.write_str("node-lost"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fault_reads_back_as_it_is_written() {
        for fault in [
            PodFault::Exit(7),
            PodFault::OutOfMemory,
            PodFault::Evicted,
            PodFault::Rejected,
            PodFault::InitFailed,
            PodFault::Image("ErrImagePull".into()),
            PodFault::Unschedulable,
            PodFault::Silent,
            PodFault::NodeLost,
        ] {
            assert_eq!(fault.to_string().parse(), Ok(fault));
        }
        assert!("exit=x".parse::<PodFault>().is_err());
    }
}
