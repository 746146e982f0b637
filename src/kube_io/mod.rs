//! Running effects against Kubernetes: requests, retries, limits.
