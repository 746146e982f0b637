//! Private keys of a GitHub App, as people paste them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use crate::key_files::{PKCS1, PKCS8, PUBLIC};
use crate::world::*;

/// Keeps what the first request is authorized with, and refuses it.
#[derive(Default)]
struct FirstJwt(Mutex<Option<String>>);

impl Transport for FirstJwt {
    fn send(&self, request: http::Request<Bytes>) -> Answering {
        let value = request.headers()["authorization"].to_str().unwrap();
        self.0.lock().unwrap().get_or_insert(value.to_owned());
        answer(401, "no")
    }
}

fn app(private_key: &str) -> Credentials {
    Credentials::App {
        app_id: "Iv23liOrchid".to_owned(),
        installation_id: 4711,
        private_key: private_key.into(),
    }
}

/// The claims of the JWT that a client signs with the key; why it does not, otherwise.
async fn claims(private_key: &str) -> Result<serde_json::Value, Error> {
    let clock = Clock::simulated("2026-01-02T03:04:05Z".parse().unwrap());
    let transport = Arc::new(FirstJwt::default());
    let client = client_over(transport.clone(), &clock, app(private_key))?;
    client.get_scale_set(1).await.unwrap_err();
    let sent = transport.0.lock().unwrap().take().unwrap();
    let jwt = sent.strip_prefix("Bearer ").unwrap();
    let mut validation = Validation::new(Algorithm::RS256);
    validation.validate_exp = false;
    let public = DecodingKey::from_rsa_pem(PUBLIC.as_bytes()).unwrap();
    let decoded = jsonwebtoken::decode(jwt, &public, &validation);
    Ok(decoded.expect("the key's signature").claims)
}

#[tokio::test(start_paused = true)]
async fn both_forms_of_a_key_sign_a_jwt_with_the_apps_claims() {
    // 2026-01-02T03:04:05Z less a minute, and nine minutes more
    let expected = serde_json::json!({
        "iss": "Iv23liOrchid", "iat": 1_767_322_985, "exp": 1_767_323_525,
    });
    for pem in [PKCS1, PKCS8] {
        assert_eq!(claims(pem).await, Ok(expected.clone()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_read_however_its_line_ends_were_lost() {
    let lines = |between: &str| PKCS1.trim_end().replace('\n', between);
    for (what, text) in [
        ("literal backslash-n", lines("\\n")),
        ("literal backslash-r-backslash-n", lines("\\r\\n")),
        ("doubly escaped", lines("\\\\n")),
        ("backslash before each line end", lines("\\\n")),
        ("one line, with spaces", lines(" ")),
        ("one line, with nothing", lines("")),
        ("CRLF", lines("\r\n")),
        ("old Mac", lines("\r")),
        ("indented", lines("\n    ")),
        ("double quotes", format!("\"{}\"", PKCS1.trim_end())),
        ("single quotes, escaped", format!("'{}'\n", lines("\\n"))),
        ("byte order mark", format!("\u{feff}{PKCS1}")),
        ("base64 of the PEM", STANDARD.encode(PKCS1)),
        ("base64 of the PEM, in lines", base64_lines(PKCS8)),
        ("text around it", format!("my key:\n{PKCS8}\n-- end\n")),
        ("behind its public key", format!("{PUBLIC}{PKCS1}")),
    ] {
        assert!(claims(&text).await.is_ok(), "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_private_key_is_told_with_what_to_do_and_without_the_key() {
    let lines: Vec<&str> = PKCS1.lines().collect();
    let middle = lines[1..lines.len() - 1].join("\n");
    let labelled = |label: &str| PKCS8.replace("PRIVATE KEY", label);
    for (text, expected) in [
        (lines[1..].join("\n"), "lacks its first line"),
        (middle.clone(), "lacks its first line"),
        (lines[..9].join("\n"), "lacks its last line"),
        (
            PKCS1.replace("wbJQ", "").replacen("MIIE", "MIIF", 1),
            "no whole RSA private key",
        ),
        (
            PKCS1.replacen("MII", "M!I", 1),
            "holds characters that are in no key",
        ),
        (
            [&lines[..9], &lines[20..]].concat().join("\n"),
            "no whole RSA private key",
        ),
        (PUBLIC.to_owned(), "is a public key: give the private key"),
        (PUBLIC.replace("PUBLIC", "RSA PUBLIC"), "is a public key"),
        (
            labelled("CERTIFICATE"),
            "is a certificate: give the private key",
        ),
        (labelled("EC PRIVATE KEY"), "is an EC key"),
        (labelled("OPENSSH PRIVATE KEY"), "OpenSSH's form"),
        (
            labelled("ENCRYPTED PRIVATE KEY"),
            "is encrypted with a passphrase",
        ),
        (
            PKCS1.replacen(
                "-----\n",
                "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\n",
                1,
            ),
            "is encrypted with a passphrase",
        ),
        (labelled("PGP PRIVATE KEY BLOCK"), "is no RSA private key"),
        (
            format!("ssh-rsa {}", middle.replace('\n', "")),
            "is a public SSH key",
        ),
        (STANDARD.encode(&middle), "does not begin with -----BEGIN"),
        (
            "hunter2-hunter2-hunter2".to_owned(),
            "does not begin with -----BEGIN",
        ),
        (String::new(), "does not begin with -----BEGIN"),
    ] {
        let error = claims(&text).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Credentials, "{error}");
        assert!(
            error
                .message
                .contains("the value of github_app_private_key"),
            "{error}"
        );
        assert!(error.message.contains(expected), "{expected}: {error}");
        let shown = format!("{error} {error:?}");
        let parts = text.as_bytes().windows(12).map(String::from_utf8_lossy);
        let mut parts = parts.filter(|part| !part.contains(['-', ' ']));
        assert_eq!(parts.find(|part| shown.contains(&**part)), None, "{shown}");
    }
}

fn base64_lines(text: &str) -> String {
    let encoded = STANDARD.encode(text);
    let lines = encoded.as_bytes().chunks(76).map(String::from_utf8_lossy);
    lines.collect::<Vec<_>>().join("\n")
}
