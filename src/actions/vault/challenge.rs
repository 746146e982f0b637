//! What a vault asks for before it answers: a token of whom, for what. Pure.
//!
//! A challenge is followed only so far as it cannot do harm: the assertion goes to one of
//! Microsoft's login hosts, or to the vault's own origin (an emulator's), and nowhere else;
//! and a token is got only for the vault's own kind of resource, so that nobody who answers
//! in a vault's place is handed a token that opens something else.

use url::{Origin, Url};

use super::error::VaultError;

/// Microsoft's login hosts by every name they go by, and the one that is asked: those of
/// public Azure, of Azure Government and of Azure in China.
const LOGIN_HOSTS: [(&str, &str); 7] = [
    ("login.microsoftonline.com", "login.microsoftonline.com"),
    ("login.windows.net", "login.microsoftonline.com"),
    ("login.microsoft.com", "login.microsoftonline.com"),
    ("login.microsoftonline.us", "login.microsoftonline.us"),
    ("login-us.microsoftonline.com", "login.microsoftonline.us"),
    (
        "login.partner.microsoftonline.cn",
        "login.partner.microsoftonline.cn",
    ),
    ("login.chinacloudapi.cn", "login.partner.microsoftonline.cn"),
];

/// A vault's challenge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Who is to be asked for a token; without the path.
    pub(super) authority: Url,
    /// For what.
    pub(super) scope: String,
}

impl Challenge {
    /// Reads the challenge to a request to the vault, from the values of its
    /// `WWW-Authenticate` headers.
    pub(super) fn read<'a>(
        headers: impl Iterator<Item = &'a str>,
        vault: &Url,
    ) -> Result<Self, VaultError> {
        let refuse = |problem: String| VaultError::Challenge {
            vault: vault.host_str().unwrap_or_default().to_owned(),
            problem,
        };
        let mut bearers = headers.filter_map(bearer);
        let Some(parameters) = bearers.next() else {
            let problem = "answered 401 without saying whose token it wants; it may be no vault";
            return Err(refuse(problem.to_owned()));
        };
        let named = ["authorization", "authorization_uri"];
        let named = named.into_iter().find_map(|name| value(parameters, name));
        let named = named.unwrap_or_default();
        let authority = authority(named, vault).ok_or_else(|| {
            refuse(format!(
                "wants a token of \"{named}\", which is not Microsoft's"
            ))
        })?;
        let scope = value(parameters, "scope").map(str::to_owned);
        let scope = scope.or_else(|| {
            let resource = value(parameters, "resource")?;
            Some(format!("{}/.default", resource.trim_end_matches('/')))
        });
        let scope = scope.unwrap_or_default();
        if !is_of(&scope, vault) {
            let problem = format!("wants a token for \"{scope}\", which is not where it is");
            return Err(refuse(problem));
        }
        Ok(Self { authority, scope })
    }
}

/// The parameters of a challenge for a bearer token.
fn bearer(header: &str) -> Option<&str> {
    let (scheme, parameters) = header.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(parameters)
}

/// The quoted value of a parameter.
fn value<'a>(parameters: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = parameters;
    loop {
        let (before, after) = rest.split_once("=\"")?;
        let (value, tail) = after.split_once('"')?;
        let found = before.rsplit([',', ' ']).next().unwrap_or_default();
        if found.eq_ignore_ascii_case(name) {
            return Some(value);
        }
        rest = tail;
    }
}

/// Whom to ask, when it is somebody who may be.
fn authority(text: &str, vault: &Url) -> Option<Url> {
    let mut url = Url::parse(text).ok()?;
    url.set_path("");
    url.set_query(None);
    url.set_fragment(None);
    if matches!(url.origin(), Origin::Tuple(..)) && url.origin() == vault.origin() {
        return Some(url);
    }
    let host = url.host_str()?;
    let (_, asked) = LOGIN_HOSTS.iter().find(|(name, _)| *name == host)?;
    let is_plain = url.scheme() == "https"
        && url.port().is_none()
        && url.username().is_empty()
        && url.password().is_none();
    if !is_plain {
        return None;
    }
    Url::parse(&format!("https://{asked}")).ok()
}

/// Whether the scope is of the domain that the vault is in.
fn is_of(scope: &str, vault: &Url) -> bool {
    let (Ok(scope), Some(vault)) = (Url::parse(scope), vault.host_str()) else {
        return false;
    };
    scope.host_str().is_some_and(|domain| {
        let below = vault.strip_suffix(domain);
        below
            .is_some_and(|below| below.is_empty() || (below.ends_with('.') && domain.contains('.')))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(header: &str, vault: &str) -> Result<(String, String), String> {
        let vault = Url::parse(vault).unwrap();
        let read = Challenge::read([header].into_iter(), &vault);
        let challenge = read.map_err(|error| error.to_string())?;
        let authority = challenge
            .authority
            .as_str()
            .trim_end_matches('/')
            .to_owned();
        Ok((authority, challenge.scope))
    }

    #[test]
    fn each_cloud_is_asked_at_its_own_login_host() {
        for (header, vault, host, scope) in [
            (
                r#"Bearer authorization="https://login.windows.net/t", resource="https://vault.azure.net""#,
                "https://acme.vault.azure.net",
                "https://login.microsoftonline.com",
                "https://vault.azure.net/.default",
            ),
            (
                r#"bearer resource="https://vault.usgovcloudapi.net/",authorization="https://login.microsoftonline.us/t""#,
                "https://acme.vault.usgovcloudapi.net/",
                "https://login.microsoftonline.us",
                "https://vault.usgovcloudapi.net/.default",
            ),
            (
                r#"Bearer authorization="https://login.chinacloudapi.cn/t" scope="https://vault.azure.cn/.default""#,
                "https://acme.vault.azure.cn",
                "https://login.partner.microsoftonline.cn",
                "https://vault.azure.cn/.default",
            ),
            (
                r#"Bearer authorization="http://127.0.0.1:7/t", resource="http://127.0.0.1:7""#,
                "http://127.0.0.1:7",
                "http://127.0.0.1:7",
                "http://127.0.0.1:7/.default",
            ),
        ] {
            let expected = (host.to_owned(), scope.to_owned());
            assert_eq!(read(header, vault), Ok(expected), "{header}");
        }
    }

    #[test]
    fn a_challenge_that_leads_elsewhere_is_not_followed() {
        let good = r#"resource="https://vault.azure.net""#;
        for authority in [
            "https://login.evil.example/t",
            "https://login.microsoftonline.com.evil.example/t",
            "http://login.microsoftonline.com/t",
            "https://login.microsoftonline.com:8443/t",
            "https://login.microsoftonline.com@evil.example/t",
            "https://other.vault.azure.net/t",
            "not a url",
        ] {
            let header = format!(r#"Bearer authorization="{authority}", {good}"#);
            let error = read(&header, "https://acme.vault.azure.net").unwrap_err();
            assert!(error.contains("which is not Microsoft's"), "{error}");
            assert!(error.contains("acme.vault.azure.net"), "{error}");
        }
        let login = r#"authorization="https://login.microsoftonline.com/t""#;
        for (resource, vault) in [
            (
                "https://management.azure.com",
                "https://acme.vault.azure.net",
            ),
            ("https://vault.azure.net", "https://acmevault.azure.net"),
            (
                "https://vault.azure.net",
                "https://vault.azure.net.evil.example",
            ),
            ("https://net", "https://acme.vault.azure.net"),
            ("", "https://acme.vault.azure.net"),
        ] {
            let header = format!(r#"Bearer {login}, resource="{resource}""#);
            let error = read(&header, vault).unwrap_err();
            assert!(error.contains("not where it is"), "{error}");
        }
    }

    #[test]
    fn an_answer_without_a_challenge_is_told() {
        for header in ["", "Basic realm=\"x\"", "Bearer"] {
            let error = read(header, "https://acme.vault.azure.net").unwrap_err();
            assert!(error.contains("without saying whose token"), "{error}");
        }
    }
}
