//! What tests use of the real Kubernetes, where the machine has it: a control plane of their own
//! ([`envtest`]), and unmodified [`kubectl`] and helm. Where it is missing, they are told so and
//! print what they skip.

pub mod envtest;
pub mod kubectl;
