//! Credentials for GitHub, as a Secret or a vault entry holds them.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use secrecy::SecretString;

use super::constants::keys;

/// Credentials for GitHub.
#[derive(Clone, Debug)]
pub enum Credentials {
    /// A personal access token.
    Token(SecretString),
    /// A GitHub App's installation.
    App {
        /// App id or client id.
        app_id: String,
        /// Installation id.
        installation_id: i64,
        /// RSA private key in PEM form.
        private_key: SecretString,
    },
}

/// Why a Secret's data holds no usable credentials. Says which key, never its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CredentialsError {
    /// Neither kind is there.
    #[error(
        "it holds no credentials: set {}, or {}, {} and {}",
        keys::GITHUB_TOKEN,
        keys::GITHUB_APP_ID,
        keys::GITHUB_APP_INSTALLATION_ID,
        keys::GITHUB_APP_PRIVATE_KEY
    )]
    Missing,
    /// Both kinds are there.
    #[error(
        "it holds both a personal access token ({}) and a GitHub App ({found}): remove one",
        keys::GITHUB_TOKEN
    )]
    Both {
        /// A key of the App's.
        found: &'static str,
    },
    /// Some of an App's keys are missing.
    #[error("the GitHub App's key {key} is missing or empty")]
    Incomplete {
        /// The key.
        key: &'static str,
    },
    /// A key's value is not usable.
    #[error("the value of {key} {problem}")]
    Invalid {
        /// The key.
        key: &'static str,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl Credentials {
    /// Reads credentials from the data of a Secret.
    ///
    /// # Errors
    ///
    /// When there are none, both kinds, or one that is not complete.
    pub fn from_data(data: &BTreeMap<String, ByteString>) -> Result<Self, CredentialsError> {
        let token = text(data, keys::GITHUB_TOKEN)?;
        let app_keys = [
            keys::GITHUB_APP_ID,
            keys::GITHUB_APP_INSTALLATION_ID,
            keys::GITHUB_APP_PRIVATE_KEY,
        ];
        let mut app = [None, None, None];
        for (slot, key) in app.iter_mut().zip(app_keys) {
            *slot = text(data, key)?;
        }
        let found = app_keys
            .iter()
            .zip(&app)
            .find_map(|(key, value)| value.is_some().then_some(*key));
        match (token, found) {
            (Some(_), Some(found)) => Err(CredentialsError::Both { found }),
            (Some(token), None) => {
                one_word(keys::GITHUB_TOKEN, &token)?;
                Ok(Self::Token(token.into()))
            }
            (None, None) => Err(CredentialsError::Missing),
            (None, Some(_)) => app_credentials(app_keys, app),
        }
    }
}

fn app_credentials(
    app_keys: [&'static str; 3],
    app: [Option<String>; 3],
) -> Result<Credentials, CredentialsError> {
    let mut values = Vec::with_capacity(3);
    for (key, value) in app_keys.into_iter().zip(app) {
        values.push(value.ok_or(CredentialsError::Incomplete { key })?);
    }
    let [app_id, installation_id, private_key] =
        <[String; 3]>::try_from(values).map_err(|_| CredentialsError::Missing)?;
    one_word(keys::GITHUB_APP_ID, &app_id)?;
    Ok(Credentials::App {
        app_id,
        installation_id: installation_id
            .parse()
            .map_err(|_| CredentialsError::Invalid {
                key: keys::GITHUB_APP_INSTALLATION_ID,
                problem: "is not a number",
            })?,
        private_key: private_key.into(),
    })
}

/// Refuses what no token and no id holds, before GitHub says no more than that it is wrong.
fn one_word(key: &'static str, text: &str) -> Result<(), CredentialsError> {
    let problem = if text.starts_with(['"', '\'']) || text.ends_with(['"', '\'']) {
        "is in quotes: remove them"
    } else if !text.chars().all(|c| c.is_ascii_graphic()) {
        "holds spaces, line ends or characters that are in none: give it alone"
    } else {
        return Ok(());
    };
    Err(CredentialsError::Invalid { key, problem })
}

/// The trimmed text under a key; `None` when it is missing or empty. People paste tokens with a
/// line end behind them.
fn text(
    data: &BTreeMap<String, ByteString>,
    key: &'static str,
) -> Result<Option<String>, CredentialsError> {
    let Some(bytes) = data.get(key) else {
        return Ok(None);
    };
    let text = std::str::from_utf8(&bytes.0).map_err(|_| CredentialsError::Invalid {
        key,
        problem: "is not text",
    })?;
    Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty()))
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    fn data(pairs: &[(&str, &str)]) -> BTreeMap<String, ByteString> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec())))
            .collect()
    }

    #[test]
    fn a_token_is_read_without_the_line_end_behind_it() {
        let read = Credentials::from_data(&data(&[("github_token", "ghp_abc\n")])).unwrap();
        let Credentials::Token(token) = read else {
            panic!("not a token")
        };
        assert_eq!(token.expose_secret(), "ghp_abc");
    }

    #[test]
    fn each_fault_names_its_key_and_never_a_value() {
        for (pairs, expected) in [
            (vec![], "it holds no credentials"),
            (vec![("github_token", "  ")], "it holds no credentials"),
            (
                vec![("github_token", "s3cret"), ("github_app_id", "1")],
                "both a personal access token (github_token) and a GitHub App (github_app_id)",
            ),
            (
                vec![("github_app_id", "1"), ("github_app_private_key", "s3cret")],
                "key github_app_installation_id is missing",
            ),
            (
                vec![
                    ("github_app_id", "1"),
                    ("github_app_installation_id", "s3cret"),
                    ("github_app_private_key", "k"),
                ],
                "the value of github_app_installation_id is not a number",
            ),
            (
                vec![("github_token", "\"s3cret\"")],
                "the value of github_token is in quotes",
            ),
            (
                vec![("github_token", "s3cret\ns3cret")],
                "the value of github_token holds spaces",
            ),
            (
                vec![
                    ("github_app_id", "s3cret id"),
                    ("github_app_installation_id", "7"),
                    ("github_app_private_key", "k"),
                ],
                "the value of github_app_id holds spaces",
            ),
        ] {
            let error = Credentials::from_data(&data(&pairs))
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
    }
}
