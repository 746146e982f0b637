//! Registry, actor metrics, and the HTTP endpoint with health and readiness.
