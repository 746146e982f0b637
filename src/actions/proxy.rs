//! Which proxy a request goes through. Follows the rules of Go's `httpproxy`, since the
//! settings were written for programs in Go.

use std::fmt;
use std::net::IpAddr;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use url::{Host, Url};

use crate::api::constants::keys;

/// Proxies by the scheme of the target, and the hosts reached without them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    http: Option<ProxyServer>,
    https: Option<ProxyServer>,
    no_proxy: Vec<Rule>,
}

/// One proxy server.
#[derive(Clone)]
pub struct ProxyServer {
    url: Url,
    credentials: Option<(String, SecretString)>,
}

/// A proxy setting that is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the proxy URL \"{url}\" is not usable: {problem}")]
pub struct ProxyError {
    /// The URL, without user information.
    pub url: String,
    /// What is wrong with it.
    pub problem: String,
}

/// What a target must be like to be reached directly.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Rule {
    All,
    Address {
        address: IpAddr,
        port: Option<u16>,
    },
    Network {
        address: IpAddr,
        prefix: u32,
    },
    /// A domain in lower case, without a dot in front; `itself` tells whether only what is
    /// below it is meant.
    Domain {
        name: String,
        itself: bool,
        port: Option<u16>,
    },
}

impl Proxies {
    /// Proxies for `http` and for `https` targets. Rules that cannot be understood match
    /// nothing.
    pub fn new<'a>(
        http: Option<ProxyServer>,
        https: Option<ProxyServer>,
        no_proxy: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let rules = no_proxy.into_iter().flat_map(|text| text.split(','));
        Self {
            http,
            https,
            no_proxy: rules.filter_map(Rule::parse).collect(),
        }
    }

    /// Proxies as the usual variables of an environment name them, in either case.
    ///
    /// # Errors
    ///
    /// When a proxy's URL is not usable.
    pub fn from_environment(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let either = |name: &str| {
            let found = variable(&name.to_uppercase()).filter(|value| !value.is_empty());
            found.or_else(|| variable(name).filter(|value| !value.is_empty()))
        };
        let server = |name| either(name).map(|url| ProxyServer::parse(&url)).transpose();
        let no_proxy = either(keys::NO_PROXY);
        let (http, https) = (server(keys::HTTP_PROXY)?, server(keys::HTTPS_PROXY)?);
        Ok(Self::new(http, https, no_proxy.as_deref()))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    /// The proxy's URL, with its credentials, for a request to the target.
    pub(super) fn for_url(&self, target: &Url) -> Option<Url> {
        self.server_for(target)
            .map(ProxyServer::url_with_credentials)
    }

    /// The proxy for a request to the target.
    pub(super) fn server_for(&self, target: &Url) -> Option<&ProxyServer> {
        let server = match target.scheme() {
            "https" => self.https.as_ref()?,
            "http" => self.http.as_ref()?,
            _ => return None,
        };
        let port = target.port_or_known_default()?;
        let direct = match target.host()? {
            Host::Domain(name) => {
                let name = name.trim_end_matches('.').to_ascii_lowercase();
                name == "localhost" || self.no_proxy.iter().any(|rule| rule.names(&name, port))
            }
            Host::Ipv4(address) => self.reaches_directly(address.into(), port),
            Host::Ipv6(address) => self.reaches_directly(address.into(), port),
        };
        (!direct).then_some(server)
    }

    fn reaches_directly(&self, address: IpAddr, port: u16) -> bool {
        let address = address.to_canonical();
        address.is_loopback() || self.no_proxy.iter().any(|rule| rule.holds(address, port))
    }
}

impl Rule {
    fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        if text.is_empty() {
            return None;
        }
        if text == "*" {
            return Some(Self::All);
        }
        if let Some((address, prefix)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let prefix: u32 = prefix.parse().ok()?;
            return (prefix <= bits(address)).then(|| Self::network(address, prefix));
        }
        let (host, port) = host_and_port(&text)?;
        if let Ok(address) = host.parse::<IpAddr>() {
            let address = address.to_canonical();
            return Some(Self::Address { address, port });
        }
        // "*.acme.io" and ".acme.io" mean what is below it, "acme.io" means itself as well.
        let below = host.strip_prefix("*.").or_else(|| host.strip_prefix('.'));
        let itself = below.is_none();
        let name = below.unwrap_or(host);
        // a name with other than Latin letters, in the form that a URL has it in
        let name = match Host::parse(name) {
            Ok(Host::Domain(name)) => name,
            _ => name.to_owned(),
        };
        (!name.is_empty()).then_some(Self::Domain { name, itself, port })
    }

    /// IPv4 addresses in IPv6 clothes are IPv4 addresses.
    fn network(address: IpAddr, prefix: u32) -> Self {
        match address.to_canonical() {
            IpAddr::V4(plain) if address.is_ipv6() && prefix >= 96 => Self::Network {
                address: plain.into(),
                prefix: prefix - 96,
            },
            _ => Self::Network { address, prefix },
        }
    }

    fn names(&self, host: &str, target_port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Domain { name, itself, port } => {
                let same = *itself && host == name;
                let below = || {
                    let rest = host.strip_suffix(name.as_str());
                    rest.is_some_and(|rest| rest.ends_with('.'))
                };
                (same || below()) && port.is_none_or(|port| port == target_port)
            }
            Self::Address { .. } | Self::Network { .. } => false,
        }
    }

    fn holds(&self, target: IpAddr, target_port: u16) -> bool {
        match self {
            Self::All => true,
            Self::Address { address, port } => {
                *address == target && port.is_none_or(|port| port == target_port)
            }
            Self::Network { address, prefix } => in_network(target, *address, *prefix),
            Self::Domain { .. } => false,
        }
    }
}

/// `HOST`, `HOST:PORT`, `[IPV6]` or `[IPV6]:PORT`; an empty port is none.
fn host_and_port(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let (host, port) = rest.split_once(']')?;
        (host, port.strip_prefix(':').unwrap_or(port))
    } else {
        match text.split_once(':') {
            // More than one colon: an IPv6 address without a port.
            Some((_, rest)) if rest.contains(':') => (text, ""),
            Some((host, port)) => (host, port),
            None => (text, ""),
        }
    };
    match port {
        "" => Some((host, None)),
        port => Some((host, Some(port.parse().ok()?))),
    }
}

const fn bits(address: IpAddr) -> u32 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn in_network(target: IpAddr, network: IpAddr, prefix: u32) -> bool {
    let number = |address| match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => u128::from(address),
    };
    let host_bits = bits(network) - prefix;
    bits(target) == bits(network)
        && (number(target) ^ number(network))
            .checked_shr(host_bits)
            .unwrap_or(0)
            == 0
}

impl ProxyServer {
    /// A proxy from its URL; `http` is meant when it gives no scheme. Credentials in the URL
    /// are taken out of it and used.
    ///
    /// # Errors
    ///
    /// When it is not a URL of a proxy.
    pub fn parse(text: &str) -> Result<Self, ProxyError> {
        let text = text.trim();
        let error = |problem: &str| ProxyError {
            url: without_user_info(text),
            problem: problem.to_owned(),
        };
        let with_scheme = if text.contains("://") {
            text.to_owned()
        } else {
            format!("http://{text}")
        };
        let mut url = Url::parse(&with_scheme).map_err(|cause| error(&cause.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(error("its scheme is neither http nor https"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(error("it has no host"));
        }
        let credentials = (!url.username().is_empty()).then(|| {
            let password = percent_decode(url.password().unwrap_or_default());
            (percent_decode(url.username()), SecretString::from(password))
        });
        let taken_out = url.set_username("").and_then(|()| url.set_password(None));
        taken_out.map_err(|()| error("it has no host"))?;
        Ok(Self { url, credentials })
    }

    /// With other credentials than the URL's.
    #[must_use]
    pub fn credentials(mut self, user: String, password: SecretString) -> Self {
        self.credentials = Some((user, password));
        self
    }

    /// Whether it is signed in to.
    pub(super) const fn has_credentials(&self) -> bool {
        self.credentials.is_some()
    }

    /// The URL with the credentials in it, as programs take it from their environment. Not to
    /// be shown.
    fn url_with_credentials(&self) -> Url {
        let mut url = self.url.clone();
        if let Some((user, password)) = &self.credentials {
            // Cannot fail: the URL has a host. It would leave a `%` as it is.
            let _ = url.set_username(&percent_encode(user));
            let _ = url.set_password(Some(&percent_encode(password.expose_secret())));
        }
        url
    }
}

/// Host and port, without credentials.
impl fmt::Display for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.host_str().unwrap_or_default())?;
        match self.url.port_or_known_default() {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}

impl PartialEq for ProxyServer {
    fn eq(&self, other: &Self) -> bool {
        self.url_with_credentials() == other.url_with_credentials()
    }
}

impl Eq for ProxyServer {}

impl fmt::Debug for ProxyServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)?;
        match self.credentials {
            Some(_) => f.write_str(" with credentials"),
            None => Ok(()),
        }
    }
}

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A text as a part of a URL.
fn percent_encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED).to_string()
}

/// Undoes the percent encoding of a part of a URL.
pub(super) fn percent_decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn without_user_info(text: &str) -> String {
    match text.rsplit_once('@') {
        Some((_, rest)) => format!("[redacted]@{rest}"),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(no_proxy: &[&str]) -> Proxies {
        let server = |url| Some(ProxyServer::parse(url).unwrap());
        Proxies::new(
            server("http://plain.proxy:3128"),
            server("http://tls.proxy:3129"),
            no_proxy.iter().copied(),
        )
    }

    fn proxied(proxies: &Proxies, target: &str) -> Option<String> {
        let target = Url::parse(target).unwrap();
        proxies.for_url(&target).map(String::from)
    }

    #[test]
    fn the_scheme_of_the_target_chooses_the_proxy() {
        let both = proxies(&[]);
        for (target, expected) in [
            ("http://acme.io/x", "http://plain.proxy:3128/"),
            ("https://acme.io/x", "http://tls.proxy:3129/"),
        ] {
            assert_eq!(proxied(&both, target).as_deref(), Some(expected));
        }
        let only_http = Proxies::new(ProxyServer::parse("p:1").ok(), None, []);
        assert_eq!(proxied(&only_http, "https://acme.io"), None);
        assert!(proxied(&only_http, "http://acme.io").is_some());
    }

    #[test]
    fn no_proxy_follows_the_rules_of_go() {
        for (rule, target, direct) in [
            ("acme.io", "https://acme.io/", true),
            ("acme.io", "https://api.acme.io/", true),
            ("acme.io", "https://notacme.io/", false),
            ("ACME.io ", "https://Api.Acme.IO/", true),
            (".acme.io", "https://acme.io/", false),
            (".acme.io", "https://api.acme.io/", true),
            ("*.acme.io", "https://api.acme.io/", true),
            ("acme.io:8443", "https://acme.io/", false),
            ("acme.io:8443", "https://acme.io:8443/", true),
            ("acme.io:443", "https://acme.io/", true),
            ("10.1.2.3", "https://10.1.2.3/", true),
            ("10.1.2.3:80", "https://10.1.2.3/", false),
            ("10.1.0.0/16", "https://10.1.2.3/", true),
            ("10.1.0.0/16", "https://10.2.2.3/", false),
            ("0.0.0.0/0", "https://10.2.2.3/", true),
            ("fd00::/8", "https://[fd12::1]/", true),
            ("fd00::/8", "https://[fe80::1]/", false),
            ("fd12::1", "https://[fd12::1]/", true),
            ("[fd12::1]:443", "https://[fd12::1]/", true),
            ("::/0", "https://10.2.2.3/", false),
            ("a.io,acme.io", "https://acme.io/", true),
            ("*", "https://acme.io/", true),
            ("10.1.0.0/99", "https://10.1.2.3/", false),
            ("", "https://acme.io/", false),
            ("", "http://localhost:8080/", true),
            ("", "http://127.0.0.1:8080/", true),
            ("", "http://[::1]:8080/", true),
            ("", "https://LocalHost/", true),
            ("", "https://127.8.9.10/", true),
            ("", "https://[::ffff:127.0.0.1]/", true),
            ("", "https://localhost.acme.io/", false),
            ("acme.io:", "https://acme.io/", true),
            ("acme.io:https", "https://acme.io/", false),
            ("*.acme.io", "https://acme.io/", false),
            ("*.acme.io", "https://a.b.acme.io/", true),
            (".acme.io:8443", "https://api.acme.io:8443/", true),
            (".acme.io:8443", "https://api.acme.io/", false),
            (".", "https://acme.io/", false),
            ("*:443", "https://acme.io/", false),
            ("b.io, *", "https://acme.io/", true),
            (" , acme.io ,", "https://acme.io/", true),
            ("acme.io other.io", "https://acme.io/", false),
            ("b\u{fc}cher.example", "https://B\u{dc}CHER.example/", true),
            (
                "b\u{fc}cher.example",
                "https://shop.xn--bcher-kva.example/",
                true,
            ),
            ("10.1.2.3", "https://10.1.2.3:8443/", true),
            ("10.1.2.3", "https://10.1.2.30/", false),
            ("10.1.2.3/32", "https://10.1.2.3/", true),
            ("10.1.2.3/32", "https://10.1.2.4/", false),
            ("10.1.2.3/8", "https://10.9.9.9/", true),
            ("10.1.2.3/", "https://10.1.2.3/", false),
            ("10.0.0.0/8", "https://ten.acme.io/", false),
            ("[fd12::1]", "https://[fd12::1]/", true),
            ("[fd12::1]:80", "https://[fd12::1]/", false),
            ("FD12::1", "https://[fd12:0:0::1]/", true),
            ("::/0", "https://[fd12::1]/", true),
            ("fd00::/129", "https://[fd12::1]/", false),
            ("::ffff:10.1.0.0/112", "https://10.1.2.3/", true),
            ("::ffff:10.1.2.3", "https://10.1.2.3/", true),
            ("10.1.2.3", "https://[::ffff:10.1.2.3]/", true),
        ] {
            let found = proxied(&proxies(&[rule]), target).is_none();
            assert_eq!(found, direct, "{rule} {target}");
        }
    }

    #[test]
    fn credentials_are_used_and_not_shown() {
        let given = ProxyServer::parse("http://us%40er:s%2Fcret@p.acme.io:3128").unwrap();
        let set = ProxyServer::parse("http://p.acme.io:3128").unwrap();
        let set = set.credentials("us@er".to_owned(), "s/cret".to_owned().into());
        assert_eq!(given, set);
        let proxies = Proxies::new(Some(given), None, []);
        let used = proxied(&proxies, "http://acme.io").unwrap();
        assert_eq!(used, "http://us%40er:s%2Fcret@p.acme.io:3128/");
        let shown = format!("{proxies:?}");
        assert!(shown.contains("p.acme.io:3128"), "{shown}");
        assert!(!shown.contains("cret") && !shown.contains("us@"), "{shown}");
    }

    #[test]
    fn every_character_of_a_password_reaches_the_proxy() {
        let password = "p%41:/?#[]@!$&'()*+,;= \u{fc}\\\"<>^`{|}~-._";
        let server = ProxyServer::parse("http://old:gone@p:1").unwrap();
        let server = server.credentials("100%2Fme".to_owned(), password.into());
        let url = server.url_with_credentials();
        assert_eq!(percent_decode(url.username()), "100%2Fme");
        assert_eq!(percent_decode(url.password().unwrap()), password);
        assert_eq!(url.host_str(), Some("p"));
        assert_eq!(server.to_string(), "p:1");
    }

    #[test]
    fn a_bad_url_is_refused_without_its_credentials() {
        for url in [
            "socks5://u:s3cret@p:1",
            "http://u:s3cret@",
            "http://u:s3cret@p:port",
        ] {
            let error = ProxyServer::parse(url).err().unwrap().to_string();
            assert!(!error.contains("s3cret"), "{error}");
            assert!(error.contains("[redacted]@"), "{error}");
        }
    }

    #[test]
    fn the_environment_is_read_in_either_case() {
        let environment = |name: &str| {
            let value = match name {
                "https_proxy" => "tls.proxy:3129",
                "HTTP_PROXY" => "http://plain.proxy:3128",
                "no_proxy" => "acme.io,10.0.0.0/8",
                _ => return None,
            };
            Some(value.to_owned())
        };
        let found = Proxies::from_environment(environment).unwrap();
        assert_eq!(found, proxies(&["acme.io", "10.0.0.0/8"]));
        assert!(Proxies::from_environment(|_| None).unwrap().is_empty());
    }
}
