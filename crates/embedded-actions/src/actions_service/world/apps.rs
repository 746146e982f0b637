//! GitHub Apps: whether a JWT is one of theirs.

use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;

use super::super::faults::Refusal;
use super::{Moment, Outcome, World};

/// Longest life of an App's JWT, in seconds.
const LONGEST_LIFE: i64 = 600;

/// A GitHub App that is installed somewhere.
#[derive(Clone, Debug)]
pub struct App {
    /// What it may call itself: its id and its client id.
    pub issuers: Vec<String>,
    /// Its installation.
    pub installation_id: i64,
    /// The organization or user where it is installed; empty for everywhere.
    pub owner: String,
    key: Option<DecodingKey>,
}

/// A key that is no RSA public key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the key is no RSA public key in PEM form")]
pub struct BadKey;

impl App {
    /// An App installed everywhere, whose signatures are not looked at.
    #[must_use]
    pub fn new(issuer: impl Into<String>, installation_id: i64) -> Self {
        Self {
            issuers: vec![issuer.into()],
            installation_id,
            owner: String::new(),
            key: None,
        }
    }

    /// With another name: the client id beside the App's id.
    #[must_use]
    pub fn or_called(mut self, issuer: impl Into<String>) -> Self {
        self.issuers.push(issuer.into());
        self
    }

    /// Installed by this organization or user only.
    #[must_use]
    pub fn installed_by(mut self, owner: impl Into<String>) -> Self {
        self.owner = owner.into();
        self
    }

    /// With the public half of its key, in PEM form: signatures must be made with the other.
    ///
    /// # Errors
    ///
    /// When it is no RSA public key.
    pub fn signing_for(mut self, public_key: &str) -> Result<Self, BadKey> {
        let key = DecodingKey::from_rsa_pem(public_key.trim().as_bytes());
        self.key = Some(key.map_err(|_| BadKey)?);
        Ok(self)
    }

    fn signed(&self, jwt: &str) -> bool {
        let Some(key) = &self.key else {
            return true;
        };
        let mut validation = Validation::new(Algorithm::RS256);
        // times are judged by our clock, and not by the machine's
        validation.validate_exp = false;
        validation.required_spec_claims.clear();
        jsonwebtoken::decode::<Value>(jwt, key, &validation).is_ok()
    }
}

impl World {
    /// The owner for whom an App's JWT opens an installation; empty for all. Where no App is
    /// known, any that names itself is believed.
    pub(crate) fn installation(
        &self,
        jwt: &str,
        installation_id: i64,
        now: Moment,
    ) -> Outcome<String> {
        let refused = |problem: &str| {
            let body = serde_json::json!({"message": problem}).to_string();
            Refusal::new(401, "", body)
        };
        let claims: Value = jsonwebtoken::dangerous::insecure_decode_claims(jwt)
            .map_err(|_| refused("The token is no JWT."))?;
        let issuer = match &claims["iss"] {
            Value::String(issuer) => issuer.clone(),
            Value::Number(issuer) => issuer.to_string(),
            _ => String::new(),
        };
        let (issued, expires) = (claims["iat"].as_i64(), claims["exp"].as_i64());
        let (Some(issued), Some(expires)) = (issued, expires) else {
            return Err(refused("The JWT must say iat and exp."));
        };
        let seconds = now.time.as_second();
        if issued > seconds {
            return Err(refused("The JWT's iat lies in the future."));
        }
        if expires <= seconds {
            return Err(refused("The JWT has expired."));
        }
        if expires - issued > LONGEST_LIFE {
            return Err(refused("The JWT's exp is too far from its iat."));
        }
        if issuer.is_empty() {
            return Err(refused("The JWT must say iss."));
        }
        let Some(apps) = &self.apps else {
            return Ok(String::new());
        };
        let named = |app: &&App| app.issuers.contains(&issuer);
        let mut apps = apps.iter().filter(named).peekable();
        if apps.peek().is_none() {
            return Err(refused("The JWT's iss is no App."));
        }
        let mut apps = apps.filter(|app| app.signed(jwt)).peekable();
        if apps.peek().is_none() {
            return Err(refused("The JWT's signature does not fit the App's key."));
        }
        let app = apps.find(|app| app.installation_id == installation_id);
        app.map(|app| app.owner.clone()).ok_or_else(|| {
            let body = r#"{"message":"The App has no such installation."}"#;
            Refusal::new(404, "", body)
        })
    }
}
