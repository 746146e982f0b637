//! Whose jobs a scale set runs, as the service itself reads it from URLs.

/// An enterprise, an organization or user, or a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfigScope {
    Enterprise(String),
    Organization(String),
    Repository { owner: String, repository: String },
}

impl ConfigScope {
    /// What a config URL names: `https://HOST/OWNER`, `https://HOST/OWNER/REPOSITORY` or
    /// `https://HOST/enterprises/ENTERPRISE`.
    pub(crate) fn of_url(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        if !matches!(scheme, "https" | "http") {
            return None;
        }
        let (_, path) = rest.split_once('/')?;
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        if parts.contains(&"") {
            return None;
        }
        match parts.as_slice() {
            [kind, name] if kind.eq_ignore_ascii_case("enterprises") => {
                Some(Self::Enterprise((*name).to_owned()))
            }
            [owner, repository] => Some(Self::Repository {
                owner: (*owner).to_owned(),
                repository: (*repository).to_owned(),
            }),
            [kind] if kind.eq_ignore_ascii_case("enterprises") => None,
            [owner] => Some(Self::Organization((*owner).to_owned())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_an_enterprise_an_organization_a_repository_or_nothing() {
        let organization = || ConfigScope::Organization("acme".into());
        let repository = ConfigScope::Repository {
            owner: "acme".into(),
            repository: "widgets".into(),
        };
        let enterprise = ConfigScope::Enterprise("big".into());
        for (url, scope) in [
            ("https://github.com/acme", Some(organization())),
            ("http://127.0.0.1:9000/acme/", Some(organization())),
            ("https://github.com/acme/widgets", Some(repository)),
            ("https://ghes.example/enterprises/big", Some(enterprise)),
            ("https://github.com/enterprises", None),
            ("https://github.com/", None),
            ("https://github.com/acme//widgets", None),
            ("https://github.com/acme/widgets/more", None),
            ("ftp://github.com/acme", None),
            ("acme", None),
        ] {
            assert_eq!(ConfigScope::of_url(url), scope, "{url}");
        }
    }
}
