//! The config URL: which enterprise, organization or repository a scale set serves.

use std::fmt;

/// A config URL, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigUrl {
    /// `https`, or `http` for a GitHub Enterprise Server without TLS.
    pub scheme: String,
    /// Host in lower case, with the port where the URL gives one.
    pub authority: String,
    /// Whose jobs.
    pub scope: ConfigScope,
}

/// Whose jobs the runners take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ConfigScope {
    /// An enterprise's.
    Enterprise(String),
    /// An organization's, or those of a user.
    Organization(String),
    /// A repository's.
    Repository {
        /// Its owner.
        owner: String,
        /// Its name.
        repository: String,
    },
}

/// A config URL of none of the three forms.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("githubConfigUrl {}", self.without_field())]
pub struct ConfigUrlError {
    /// The URL, without user information.
    pub url: String,
    /// What is wrong with it.
    pub problem: &'static str,
}

impl ConfigUrlError {
    /// The error without the field's name, for where a path names it already.
    #[must_use]
    pub fn without_field(&self) -> String {
        format!(
            "\"{}\" is not usable: {}; it must be one of https://HOST/ORGANIZATION, \
             https://HOST/OWNER/REPOSITORY and https://HOST/enterprises/ENTERPRISE",
            self.url, self.problem
        )
    }
}

impl ConfigUrl {
    /// Takes a config URL apart. Slashes around the path are ignored.
    ///
    /// # Errors
    ///
    /// When it is of none of the three forms. The error shows the URL and the forms.
    pub fn parse(text: &str) -> Result<Self, ConfigUrlError> {
        let error = |problem| ConfigUrlError {
            url: without_user_info(text),
            problem,
        };
        let (scheme, rest) = text
            .trim()
            .split_once("://")
            .ok_or_else(|| error("it has no scheme"))?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "https" && scheme != "http" {
            return Err(error("its scheme is not https"));
        }
        if rest.contains(['?', '#', '@']) {
            return Err(error("it has a user, query or fragment"));
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (host, port) = host_and_port(authority);
        if host.is_empty() || host.contains(char::is_whitespace) {
            return Err(error("it has no host"));
        }
        if port.is_some_and(|port| port.parse::<u16>().is_err()) {
            return Err(error("its port is no number"));
        }
        let parts: Vec<&str> = path.trim_matches('/').split('/').collect();
        let scope = match parts.as_slice() {
            [""] => return Err(error("it names no organization, repository or enterprise")),
            parts if parts.iter().any(|part| part.is_empty()) => {
                return Err(error("a part of its path is empty"));
            }
            parts if parts.iter().any(|part| !is_name(part)) => {
                return Err(error("a part of its path is no name"));
            }
            [only] if only.eq_ignore_ascii_case("enterprises") => {
                return Err(error("it names no enterprise"));
            }
            [owner] => ConfigScope::Organization((*owner).to_owned()),
            [kind, name] if kind.eq_ignore_ascii_case("enterprises") => {
                ConfigScope::Enterprise((*name).to_owned())
            }
            [owner, repository] => ConfigScope::Repository {
                owner: (*owner).to_owned(),
                repository: (*repository).to_owned(),
            },
            _ => return Err(error("its path has more than two parts")),
        };
        Ok(Self {
            scheme,
            authority: authority.to_ascii_lowercase(),
            scope,
        })
    }

    /// Whether the host is GitHub's own (github.com or `*.ghe.com`), and not a GitHub
    /// Enterprise Server.
    #[must_use]
    pub fn is_hosted(&self) -> bool {
        let host = self.host();
        matches!(host, "github.com" | "www.github.com" | "github.localhost")
            || host.ends_with(".ghe.com")
    }

    /// Base of the REST API, without a slash at its end. `force_ghes` treats every host as a
    /// GitHub Enterprise Server.
    #[must_use]
    pub fn api_base(&self, force_ghes: bool) -> String {
        if self.is_hosted() && !force_ghes {
            let host = self
                .authority
                .strip_prefix("www.")
                .unwrap_or(&self.authority);
            // a token is never sent in the clear over the network
            let scheme = match self.host() {
                "github.localhost" => &self.scheme,
                _ => "https",
            };
            format!("{scheme}://api.{host}")
        } else {
            format!("{}://{}/api/v3", self.scheme, self.authority)
        }
    }

    /// Names what the URL stands for: equal for URLs that are written differently and mean the
    /// same enterprise, organization or repository of the same server.
    #[must_use]
    pub fn place(&self) -> String {
        let server = self.api_base(false);
        let (_, server) = server.split_once("://").unwrap_or_default();
        let default_port = if self.scheme == "http" { ":80" } else { ":443" };
        let server = server.replacen(&format!("{default_port}/"), "/", 1);
        let server = server.strip_suffix(default_port).unwrap_or(&server);
        let scope = match &self.scope {
            ConfigScope::Enterprise(name) => format!("enterprises/{name}"),
            ConfigScope::Organization(name) => name.clone(),
            ConfigScope::Repository { owner, repository } => format!("{owner}/{repository}"),
        };
        format!("{server}/{}", scope.to_ascii_lowercase())
    }

    /// Whether both stand for the same.
    #[must_use]
    pub fn is_same_place(&self, other: &Self) -> bool {
        self.place() == other.place()
    }

    /// The enterprise, if the URL names one; else empty.
    #[must_use]
    pub fn enterprise(&self) -> &str {
        match &self.scope {
            ConfigScope::Enterprise(name) => name,
            _ => "",
        }
    }

    /// The organization or owner, if the URL names one; else empty.
    #[must_use]
    pub fn organization(&self) -> &str {
        match &self.scope {
            ConfigScope::Organization(name) => name,
            ConfigScope::Repository { owner, .. } => owner,
            ConfigScope::Enterprise(_) => "",
        }
    }

    /// The repository, if the URL names one; else empty.
    #[must_use]
    pub fn repository(&self) -> &str {
        match &self.scope {
            ConfigScope::Repository { repository, .. } => repository,
            _ => "",
        }
    }

    /// Host in lower case, without the port.
    #[must_use]
    pub fn host(&self) -> &str {
        host_and_port(&self.authority).0
    }

    /// The port in effect: the URL's, else its scheme's.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        match host_and_port(&self.authority).1 {
            Some(port) => port.parse().ok(),
            None if self.scheme == "http" => Some(80),
            None => Some(443),
        }
    }
}

/// The URL in the form that the Actions service is told.
impl fmt::Display for ConfigUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}/", self.scheme, self.authority)?;
        match &self.scope {
            ConfigScope::Enterprise(name) => write!(f, "enterprises/{name}"),
            ConfigScope::Organization(name) => f.write_str(name),
            ConfigScope::Repository { owner, repository } => write!(f, "{owner}/{repository}"),
        }
    }
}

/// An IPv6 address stands in brackets, which are kept.
fn host_and_port(authority: &str) -> (&str, Option<&str>) {
    let from = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[from..].find(':') {
        Some(colon) => (
            &authority[..from + colon],
            Some(&authority[from + colon + 1..]),
        ),
        None => (authority, None),
    }
}

/// Whether a part of a path can be a name: letters, digits and a few signs.
fn is_name(part: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '%');
    part.chars().all(fits) && part != "." && part != ".."
}

fn without_user_info(text: &str) -> String {
    match (text.find("://"), text.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}://[redacted]@{}", &text[..scheme], &text[at + 1..])
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_are_told_apart() {
        for (text, enterprise, organization, repository) in [
            ("https://github.com/acme", "", "acme", ""),
            ("https://github.com//acme/widgets/", "", "acme", "widgets"),
            ("https://ghes.acme.io/enterprises/big", "big", "", ""),
        ] {
            let url = ConfigUrl::parse(text).unwrap();
            assert_eq!(url.enterprise(), enterprise, "{text}");
            assert_eq!(url.organization(), organization, "{text}");
            assert_eq!(url.repository(), repository, "{text}");
        }
    }

    #[test]
    fn other_forms_are_refused_with_the_url_and_the_three_forms() {
        for text in [
            "",
            "github.com/acme",
            "ftp://github.com/acme",
            "https://github.com",
            "https://github.com/",
            "https:///acme",
            "https://github.com/a/b/c",
            "https://github.com/a//b",
            "https://github.com/enterprises",
            "https://github.com/acme?x=1",
            "https://ghes.acme.io:https/acme",
            "https://ghes.acme.io:/acme",
            "https://:8443/acme",
            "https://github.com/acme/..",
            "https://github.com/ac me",
        ] {
            let error = ConfigUrl::parse(text).unwrap_err().to_string();
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
            assert!(
                error.contains("https://HOST/enterprises/ENTERPRISE"),
                "{error}"
            );
        }
    }

    #[test]
    fn a_password_in_the_url_is_not_shown() {
        let error = ConfigUrl::parse("https://me:hunter2@github.com/acme").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn urls_that_mean_the_same_are_told_from_those_that_do_not() {
        let here = ConfigUrl::parse("https://github.com/acme/widgets").unwrap();
        for (text, same) in [
            ("https://GitHub.com/Acme/Widgets/", true),
            ("https://www.github.com/acme/widgets", true),
            ("https://github.com:443/acme/widgets", true),
            ("http://github.com/acme/widgets", true),
            ("https://github.com/acme", false),
            ("https://github.com/acme/gadgets", false),
            ("https://acme.ghe.com/acme/widgets", false),
            ("https://ghes.acme.io/acme/widgets", false),
            ("https://github.com:8443/acme/widgets", false),
        ] {
            let there = ConfigUrl::parse(text).unwrap();
            assert_eq!(here.is_same_place(&there), same, "{text}");
        }
        let parse = |text| ConfigUrl::parse(text).unwrap();
        let ghes = parse("https://ghes.acme.io:443/acme");
        assert!(ghes.is_same_place(&parse("https://ghes.acme.io/acme")));
        assert!(!ghes.is_same_place(&parse("https://ghes.acme.io:444/acme")));
        let enterprise = parse("https://github.com/enterprises/acme");
        assert!(!enterprise.is_same_place(&parse("https://github.com/acme")));
    }

    #[test]
    fn the_api_base_follows_the_host() {
        for (text, force, base) in [
            ("https://GitHub.com/acme", false, "https://api.github.com"),
            (
                "https://www.github.com/acme",
                false,
                "https://api.github.com",
            ),
            (
                "https://acme.ghe.com/acme",
                false,
                "https://api.acme.ghe.com",
            ),
            (
                "http://github.localhost/acme",
                false,
                "http://api.github.localhost",
            ),
            (
                "https://ghes.acme.io:8443/a/b",
                false,
                "https://ghes.acme.io:8443/api/v3",
            ),
            (
                "http://[fd12::1]:8080/acme",
                false,
                "http://[fd12::1]:8080/api/v3",
            ),
            ("HTTP://github.com/acme", false, "https://api.github.com"),
            (
                "https://github.localhost/acme",
                false,
                "https://api.github.localhost",
            ),
            (
                "https://www.Big.GHE.com/enterprises/big/",
                false,
                "https://api.big.ghe.com",
            ),
            (
                "https://notghe.com/acme",
                false,
                "https://notghe.com/api/v3",
            ),
            (
                "https://acme.ghe.com/acme",
                true,
                "https://acme.ghe.com/api/v3",
            ),
            ("https://github.com/acme", true, "https://github.com/api/v3"),
        ] {
            assert_eq!(
                ConfigUrl::parse(text).unwrap().api_base(force),
                base,
                "{text}"
            );
        }
    }
}
