//! Equality and derivation of Kubernetes objects that mean the same, and drift with its path.
