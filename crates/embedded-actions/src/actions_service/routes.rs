//! Which call a request is, by its method and path.

use http::Method;

use super::scope::ConfigScope;

/// The names of all calls, by which faults are asked for.
pub const CALLS: [&str; 19] = [
    "create_installation_token",
    "create_registration_token",
    "register",
    "get_runner_group",
    "find_scale_set",
    "create_scale_set",
    "get_scale_set",
    "update_scale_set",
    "delete_scale_set",
    "generate_jit_config",
    "find_runner",
    "get_runner",
    "remove_runner",
    "open_session",
    "refresh_session",
    "delete_session",
    "acquire_jobs",
    "get_message",
    "delete_message",
];

/// A call, recognized by its method and path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Route {
    InstallationToken(i64),
    RegistrationToken(ConfigScope),
    Registration,
    Tenant(i64, TenantRoute),
    Queue {
        session: String,
        message: Option<i64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TenantRoute {
    Groups,
    FindScaleSet,
    CreateScaleSet,
    GetScaleSet(i64),
    UpdateScaleSet(i64),
    DeleteScaleSet(i64),
    Jit(i64),
    FindRunner,
    GetRunner(i64),
    RemoveRunner(i64),
    OpenSession(i64),
    RefreshSession(i64, String),
    DeleteSession(i64, String),
    Acquire(i64),
}

impl Route {
    pub(super) fn of(method: &Method, segments: &[&str]) -> Option<Self> {
        let segments = segments.strip_prefix(&["api", "v3"]).unwrap_or(segments);
        let post = method == Method::POST;
        Some(match segments {
            ["app", "installations", id, "access_tokens"] if post => {
                Self::InstallationToken(id.parse().ok()?)
            }
            ["actions", "runner-registration"] if post => Self::Registration,
            [scope @ .., "actions", "runners", "registration-token"] if post => {
                Self::RegistrationToken(match scope {
                    ["orgs", name] => ConfigScope::Organization((*name).to_owned()),
                    ["enterprises", name] => ConfigScope::Enterprise((*name).to_owned()),
                    ["repos", owner, repository] => ConfigScope::Repository {
                        owner: (*owner).to_owned(),
                        repository: (*repository).to_owned(),
                    },
                    _ => return None,
                })
            }
            ["tenants", tenant, "_apis", path @ ..] => {
                Self::Tenant(tenant.parse().ok()?, TenantRoute::of(method, path)?)
            }
            ["tenants", _, "queue", session] if method == Method::GET => Self::Queue {
                session: (*session).to_owned(),
                message: None,
            },
            ["tenants", _, "queue", session, message] if method == Method::DELETE => Self::Queue {
                session: (*session).to_owned(),
                message: Some(message.parse().ok()?),
            },
            _ => return None,
        })
    }

    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::InstallationToken(_) => "create_installation_token",
            Self::RegistrationToken(_) => "create_registration_token",
            Self::Registration => "register",
            Self::Tenant(_, route) => route.name(),
            Self::Queue { message: None, .. } => "get_message",
            Self::Queue { .. } => "delete_message",
        }
    }
}

impl TenantRoute {
    fn of(method: &Method, path: &[&str]) -> Option<Self> {
        let id = |text: &str| text.parse().ok();
        Some(match (method.as_str(), path) {
            ("GET", ["runtime", "runnergroups"]) => Self::Groups,
            ("GET", ["runtime", "runnerscalesets"]) => Self::FindScaleSet,
            ("POST", ["runtime", "runnerscalesets"]) => Self::CreateScaleSet,
            ("GET", ["runtime", "runnerscalesets", set]) => Self::GetScaleSet(id(set)?),
            ("PATCH", ["runtime", "runnerscalesets", set]) => Self::UpdateScaleSet(id(set)?),
            ("DELETE", ["runtime", "runnerscalesets", set]) => Self::DeleteScaleSet(id(set)?),
            ("POST", ["runtime", "runnerscalesets", set, "generatejitconfig"]) => {
                Self::Jit(id(set)?)
            }
            ("POST", ["runtime", "runnerscalesets", set, "sessions"]) => {
                Self::OpenSession(id(set)?)
            }
            ("PATCH", ["runtime", "runnerscalesets", set, "sessions", session]) => {
                Self::RefreshSession(id(set)?, (*session).to_owned())
            }
            ("DELETE", ["runtime", "runnerscalesets", set, "sessions", session]) => {
                Self::DeleteSession(id(set)?, (*session).to_owned())
            }
            ("POST", ["runtime", "runnerscalesets", set, "acquirejobs"]) => Self::Acquire(id(set)?),
            ("GET", ["distributedtask", "pools", "0", "agents"]) => Self::FindRunner,
            ("GET", ["distributedtask", "pools", "0", "agents", runner]) => {
                Self::GetRunner(id(runner)?)
            }
            ("DELETE", ["distributedtask", "pools", "0", "agents", runner]) => {
                Self::RemoveRunner(id(runner)?)
            }
            _ => return None,
        })
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Groups => "get_runner_group",
            Self::FindScaleSet => "find_scale_set",
            Self::CreateScaleSet => "create_scale_set",
            Self::GetScaleSet(_) => "get_scale_set",
            Self::UpdateScaleSet(_) => "update_scale_set",
            Self::DeleteScaleSet(_) => "delete_scale_set",
            Self::Jit(_) => "generate_jit_config",
            Self::FindRunner => "find_runner",
            Self::GetRunner(_) => "get_runner",
            Self::RemoveRunner(_) => "remove_runner",
            Self::OpenSession(_) => "open_session",
            Self::RefreshSession(..) => "refresh_session",
            Self::DeleteSession(..) => "delete_session",
            Self::Acquire(_) => "acquire_jobs",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_found_by_its_method_and_path_and_has_its_name() {
        let tenant = "tenants/3/_apis";
        let sets = format!("{tenant}/runtime/runnerscalesets");
        let agents = format!("{tenant}/distributedtask/pools/0/agents");
        let requests = [
            ("POST", "app/installations/7/access_tokens".to_owned()),
            (
                "POST",
                "orgs/acme/actions/runners/registration-token".to_owned(),
            ),
            ("POST", "actions/runner-registration".to_owned()),
            ("GET", format!("{tenant}/runtime/runnergroups/")),
            ("GET", sets.clone()),
            ("POST", sets.clone()),
            ("GET", format!("{sets}/8")),
            ("PATCH", format!("{sets}/8")),
            ("DELETE", format!("{sets}/8")),
            ("POST", format!("{sets}/8/generatejitconfig")),
            ("GET", agents.clone()),
            ("GET", format!("{agents}/9")),
            ("DELETE", format!("{agents}/9")),
            ("POST", format!("{sets}/8/sessions")),
            ("PATCH", format!("{sets}/8/sessions/s-1")),
            ("DELETE", format!("{sets}/8/sessions/s-1")),
            ("POST", format!("{sets}/8/acquirejobs")),
            ("GET", "tenants/3/queue/s-1".to_owned()),
            ("DELETE", "tenants/3/queue/s-1/5".to_owned()),
        ];
        for prefix in ["", "api/v3/"] {
            let name = |(method, path): &(&str, String)| {
                let path = format!("{prefix}{path}");
                let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
                Route::of(&method.parse().unwrap(), &segments).map(|route| route.name())
            };
            let names: Vec<Option<&str>> = requests.iter().map(name).collect();
            assert_eq!(names, CALLS.map(Some));
        }
    }

    #[test]
    fn another_method_path_or_id_is_no_call() {
        for (method, path) in [
            ("PUT", "tenants/3/_apis/runtime/runnerscalesets/8"),
            ("GET", "tenants/three/_apis/runtime/runnerscalesets"),
            ("GET", "tenants/3/_apis/runtime/runnerscalesets/eight"),
            ("POST", "users/acme/actions/runners/registration-token"),
            ("DELETE", "tenants/3/queue/s-1/first"),
        ] {
            let segments: Vec<&str> = path.split('/').collect();
            assert_eq!(
                Route::of(&method.parse().unwrap(), &segments),
                None,
                "{path}"
            );
        }
    }
}
