//! The private key of a GitHub App, as people paste it, and what is signed with it.
//!
//! What can be understood without a guess is read: either kind of PEM, with its line ends
//! lost, written as `\n` or doubled, in quotes, or encoded in base64 once more. Anything else
//! is answered by what is wrong and how to mend it. No answer holds a part of the key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use crate::clock::Timestamp;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
const LINE: usize = 64;

const LOST_BEGIN: &str = "lacks its first line, -----BEGIN RSA PRIVATE KEY-----: give the key file \
                          whole, as GitHub made it";
const NO_PEM: &str = "does not begin with -----BEGIN RSA PRIVATE KEY-----: give the key file whole, \
                      as GitHub made it";
const BROKEN: &str = "is no whole RSA private key: it was cut off or changed on its way; give the \
                      key file whole, as GitHub made it";

/// A private key that can sign.
pub(super) struct AppKey(EncodingKey);

impl AppKey {
    /// Reads a key.
    ///
    /// # Errors
    ///
    /// When it is not an RSA private key. The error goes on from "the value of the key": it
    /// says what is wrong with it, and what to do.
    pub(super) fn read(text: &SecretString) -> Result<Self, &'static str> {
        let pem = pem_of(text.expose_secret())?;
        let key = EncodingKey::from_rsa_pem(pem.expose_secret().as_bytes()).map_err(|_| BROKEN)?;
        let key = Self(key);
        // one that cannot sign is found out now, and not at the first call
        key.jwt("probe", Timestamp::UNIX_EPOCH).ok_or(BROKEN)?;
        Ok(key)
    }

    /// A JWT of the App: issued a minute ago, since clocks differ, and valid for nine minutes.
    pub(super) fn jwt(&self, issuer: &str, now: Timestamp) -> Option<SecretString> {
        let issued = now.as_second() - 60;
        let claims = json!({"iss": issuer, "iat": issued, "exp": issued + 540});
        let jwt = jsonwebtoken::encode(&Header::new(Algorithm::RS256), &claims, &self.0);
        jwt.ok().map(SecretString::from)
    }
}

/// The key as clean PEM.
fn pem_of(text: &str) -> Result<SecretString, &'static str> {
    let text = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}');
    let text = with_line_ends(without_quotes(text));
    if text.contains(BEGIN) {
        return clean(&text);
    }
    if text.contains(END) {
        return Err(LOST_BEGIN);
    }
    if text.starts_with("ssh-") {
        return Err("is a public SSH key: give the private key that GitHub made for the App");
    }
    match base64(&text) {
        Some(bytes) if bytes.first() == Some(&0x30) => Err(LOST_BEGIN),
        Some(bytes) => match std::str::from_utf8(&bytes) {
            Ok(inner) if inner.contains(BEGIN) => clean(&with_line_ends(inner)),
            _ => Err(NO_PEM),
        },
        None => Err(NO_PEM),
    }
}

fn without_quotes(text: &str) -> &str {
    let inner = ['"', '\'', '`'].into_iter().find_map(|quote| {
        let inner = text.strip_prefix(quote)?;
        Some(inner.strip_suffix(quote).unwrap_or(inner))
    });
    inner.unwrap_or(text)
}

/// Line ends that were written as two characters, as JSON and shells do, become real ones.
/// Base64 has no backslash, so nothing else can be meant.
fn with_line_ends(text: &str) -> String {
    let text = text.replace("\\r", "").replace("\\n", "\n");
    text.replace('\\', "")
}

/// The first private key among the blocks, in lines of the usual length.
fn clean(text: &str) -> Result<SecretString, &'static str> {
    let mut problem = None;
    for block in text.split(BEGIN).skip(1) {
        match clean_block(block) {
            Ok(pem) => return Ok(pem),
            Err(found) => problem = problem.or(Some(found)),
        }
    }
    Err(problem.unwrap_or(NO_PEM))
}

/// Cleans one block, which begins behind its `-----BEGIN `.
fn clean_block(block: &str) -> Result<SecretString, &'static str> {
    let (label, rest) = block.split_once(DASHES).ok_or(BROKEN)?;
    let label = match label.trim() {
        "RSA PRIVATE KEY" => "RSA PRIVATE KEY",
        "PRIVATE KEY" => "PRIVATE KEY",
        other => return Err(other_kind(other)),
    };
    let (body, _) = rest.split_once(END).ok_or(
        "lacks its last line, -----END RSA PRIVATE KEY-----: it was cut off; give the key file \
         whole, as GitHub made it",
    )?;
    if body.contains("ENCRYPTED") {
        return Err(ENCRYPTED);
    }
    let body: String = body.chars().filter(|c| !c.is_whitespace()).collect();
    let bytes = base64(&body).ok_or(
        "holds characters that are in no key: it was changed on its way; give the key file \
         whole, as GitHub made it",
    )?;
    let encoded = STANDARD.encode(bytes);
    let mut pem = format!("{BEGIN}{label}{DASHES}\n");
    for line in encoded.as_bytes().chunks(LINE) {
        pem.extend(line.iter().copied().map(char::from));
        pem.push('\n');
    }
    pem.push_str(&format!("{END}{label}{DASHES}\n"));
    Ok(pem.into())
}

const ENCRYPTED: &str = "is encrypted with a passphrase: give it decrypted, as GitHub made it";

fn other_kind(label: &str) -> &'static str {
    match label {
        "ENCRYPTED PRIVATE KEY" => ENCRYPTED,
        "EC PRIVATE KEY" => "is an EC key: a GitHub App signs with the RSA key that GitHub made",
        "OPENSSH PRIVATE KEY" => {
            "is a key in OpenSSH's form: give the private key that GitHub made for the App"
        }
        label if label.ends_with("PUBLIC KEY") => {
            "is a public key: give the private key that GitHub made for the App"
        }
        label if label.contains("CERTIFICATE") => {
            "is a certificate: give the private key that GitHub made for the App"
        }
        _ => "is no RSA private key: give the key file whole, as GitHub made it",
    }
}

fn base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    STANDARD.decode(text).ok().filter(|bytes| !bytes.is_empty())
}
