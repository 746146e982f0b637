//! The certificate that an application signs in with: read from a PEM file that holds its
//! private key too.
//!
//! PKCS#12 files are not read: the crates that can bring a dozen others and ciphers that
//! nothing else here needs, and one command converts such a file.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::{PemObject as _, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::{CertifiedKey, SigningKey};
use rustls::{SignatureAlgorithm, SignatureScheme};
use secrecy::SecretString;
use serde_json::json;

use crate::clock::Timestamp;

/// No file with a certificate is longer.
const LONGEST: u64 = 256 * 1024;
/// For how many seconds an assertion is valid.
const VALID: i64 = 600;
/// By how many seconds the clocks may differ.
const EARLIER: i64 = 60;
const CONVERT: &str = "make it with: openssl pkcs12 -in FILE.pfx -out FILE.pem -nodes";

/// A certificate with its private key.
pub(super) struct Certificate {
    key: Arc<dyn SigningKey>,
    thumbprint: String,
}

impl Certificate {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// What is wrong with the file, and what to do.
    pub(super) fn read(path: &Path) -> Result<Self, String> {
        const MOUNT: &str = "mount the certificate there, in the controller's pod and, by \
                             listenerTemplate, in the listener's";
        let unreadable = |error: std::io::Error| match error.kind() {
            std::io::ErrorKind::NotFound => format!("does not exist: {MOUNT}"),
            _ => format!("cannot be read ({error}): {MOUNT}"),
        };
        // The path comes from a user, and there are files that never end.
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(format!("is not a file: {MOUNT}"));
        }
        let mut content = Vec::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(LONGEST)
            .read_to_end(&mut content)
            .map_err(unreadable)?;
        Self::parse(&content)
    }

    /// Takes the certificate from the content of a file: of several (a chain), the one that
    /// belongs to the private key.
    fn parse(content: &[u8]) -> Result<Self, String> {
        let mut certificates = Vec::new();
        let mut keys = Vec::new();
        for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(content) {
            let (kind, der) = section.map_err(|_| format!("is not a sound PEM file; {CONVERT}"))?;
            match kind {
                SectionKind::Certificate => certificates.push(CertificateDer::from(der)),
                kind => keys.extend(PrivateKeyDer::from_pem(kind, der)),
            }
        }
        let Some(key) = keys.into_iter().next() else {
            return Err(no_key(content, !certificates.is_empty()));
        };
        if certificates.is_empty() {
            return Err("holds a private key but no certificate: put both into it".to_owned());
        }
        let key = any_supported_type(&key)
            .ok()
            .filter(|key| key.algorithm() == SignatureAlgorithm::RSA)
            .ok_or("holds a private key that is not an RSA key of 2048 bits or more")?;
        let certificate = certificates
            .into_iter()
            .find(|one| belongs(one, &key))
            .ok_or("holds a private key that belongs to none of its certificates")?;
        let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, &certificate));
        Ok(Self { key, thumbprint })
    }

    /// The assertion that the application of this id is who it says, for this audience. Its id
    /// comes from the system's chance, as the salt of its signature does: neither is seen by
    /// anybody else, so that a simulation repeats itself all the same.
    ///
    /// # Errors
    ///
    /// When the key cannot sign.
    pub(super) fn assertion(
        &self,
        client_id: &str,
        audience: &str,
        now: Timestamp,
    ) -> Result<SecretString, String> {
        let seconds = now.as_second();
        let mut id = [0; 16];
        aws_lc_rs::rand::fill(&mut id)
            .map_err(|_| "cannot be used: there is no chance to draw from")?;
        let header = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": self.thumbprint});
        let claims = json!({
            "aud": audience,
            "iss": client_id,
            "sub": client_id,
            "jti": URL_SAFE_NO_PAD.encode(id),
            "iat": seconds,
            "nbf": seconds - EARLIER,
            "exp": seconds + VALID,
        });
        let encode = |part: &serde_json::Value| URL_SAFE_NO_PAD.encode(part.to_string());
        let text = format!("{}.{}", encode(&header), encode(&claims));
        let signer = self.key.choose_scheme(&[SignatureScheme::RSA_PSS_SHA256]);
        let signature = signer
            .and_then(|signer| signer.sign(text.as_bytes()).ok())
            .ok_or("holds a private key that cannot sign")?;
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Ok(format!("{text}.{signature}").into())
    }
}

fn belongs(certificate: &CertificateDer<'static>, key: &Arc<dyn SigningKey>) -> bool {
    let pair = CertifiedKey::new(vec![certificate.clone()], Arc::clone(key));
    pair.keys_match().is_ok()
}

/// What a file without a usable key is instead.
fn no_key(content: &[u8], has_certificate: bool) -> String {
    let has = |text: &str| {
        let mut windows = content.windows(text.len());
        windows.any(|window| window == text.as_bytes())
    };
    if has("ENCRYPTED PRIVATE KEY") || has("Proc-Type: 4,ENCRYPTED") {
        "holds an encrypted private key: nobody can type its password here; write it without \
         one (openssl pkey -in FILE.pem)"
            .to_owned()
    } else if has_certificate {
        format!("holds a certificate but no private key: put both into it; {CONVERT}")
    } else if content.first() == Some(&0x30) {
        format!("is not a PEM file but a binary one: {CONVERT}")
    } else {
        format!("holds neither certificate nor private key in PEM form; {CONVERT}")
    }
}
