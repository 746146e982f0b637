//! Private keys of a GitHub App, as people paste them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

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
        (PKCS1.replace("wbJQ", "").replacen("MIIE", "MIIF", 1), "no whole RSA private key"),
        (PKCS1.replacen("MII", "M!I", 1), "holds characters that are in no key"),
        ([&lines[..9], &lines[20..]].concat().join("\n"), "no whole RSA private key"),
        (PUBLIC.to_owned(), "is a public key: give the private key"),
        (PUBLIC.replace("PUBLIC", "RSA PUBLIC"), "is a public key"),
        (labelled("CERTIFICATE"), "is a certificate: give the private key"),
        (labelled("EC PRIVATE KEY"), "is an EC key"),
        (labelled("OPENSSH PRIVATE KEY"), "OpenSSH's form"),
        (labelled("ENCRYPTED PRIVATE KEY"), "is encrypted with a passphrase"),
        (
            PKCS1.replacen("-----\n", "-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: x\n\n", 1),
            "is encrypted with a passphrase",
        ),
        (labelled("PGP PRIVATE KEY BLOCK"), "is no RSA private key"),
        (format!("ssh-rsa {}", middle.replace('\n', "")), "is a public SSH key"),
        (STANDARD.encode(&middle), "does not begin with -----BEGIN"),
        ("hunter2-hunter2-hunter2".to_owned(), "does not begin with -----BEGIN"),
        (String::new(), "does not begin with -----BEGIN"),
    ] {
        let error = claims(&text).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Credentials, "{error}");
        assert!(error.message.contains("the value of github_app_private_key"), "{error}");
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

/// Keys made for this test. They open nothing.
pub const PKCS1: &str = "\
-----BEGIN RSA PRIVATE KEY-----\n\
MIIEowIBAAKCAQEA1ytAkbEgWiu2tkMU4jmU8JgQKrSOCi/NiBb8j2hYm/ocvglX\n\
KlGyiVsovVRRgHYFcDusdLOZzsIO7Ln5DIOWdjmyGmqT1ZQSaZ0ToT7+ymZReeMR\n\
1ievc+sdQrTxRG2IuTBec4fXnTS9OjYFnaWATwZc6SM+z051luYbMl59igD6956E\n\
dboWL1xexzmDtig4ImhQNGGlWMKC9ppWxh+B1+BkhZ9qaeXrnBVWJ0KSxy7mCHmL\n\
w1+KG3hf1Cl8YDwERAkKxqT6jVnLjU31LzT4szoIXSJ73rejXND7/vkUe3eVtHA+\n\
2lj8mFY+/sYXozRuMPmmj4xJi/LYeiR2GBwE+QIDAQABAoIBADxe8lrua7lhEn7J\n\
C479wQBQahjRWBkbmHtal7pU+Keq4W2giUhia8mGPkQA6G02sAfxdk24JquQX0ek\n\
VnBga1L4lTQ8OwZt6UygueVAG5UGaE3enB6OO/g2O5t/0UH1yarMG3Qm5SRCq+Ut\n\
Sx4UVY/WpTL0pKbdyLhyD6duQ6L4Z4epdawbJ0Oegqb/R/EHUkKk+5Wy4BKAELI8\n\
k/1atr6uIqAUAPkA1w5Fw7mTxkBgPzJ+HRmgAGeCa4LHucmZPs6gEpcEQF51f3F8\n\
MQe3qMju57gQwWrXz4HuE8FI2KV1xxQwfsBuwWOVFa/sEtylG1Lvzq//4qyxYN60\n\
1Qg2VBECgYEA+G/8UYEn1Yfb0n72JtZWBt7F/rk38O4mE9GjODBfLJ2NEvULJfci\n\
6y6WvSehS6w6SL4kL8pjZfHrQINGZJVkAsbLhjdpWBBfIF4XaiJbvOj0MApijMB6\n\
oDExrP2s/rjupJikKtzfma9ViLXCVmzIjqZxSyS7ZC0WD3WHJFWMx3cCgYEA3bgD\n\
W10ICuBV2+VVXW1HtH6eY5klDtXdfVAbLLPz1+jJBqIHXGFclvdP5yOAFv0EGgzV\n\
yFiWM/wR8/k+eEg2R+GbR8KmSWeRnRwBb+AfARYRtiUUHUoakG2JEMEUeyL0InoV\n\
b0ArAd5Gsd8umJsNCUBP3cllGfz2Ggspfa8Fkw8CgYEA7o4JyPGuIFoOeLe1AWH6\n\
xSoRESElWFI1ef5pLkE0gpDer/9grxn6C752vDdbqGA+ry71bHZ4r6F29kGXzGmu\n\
2QOu1rhKjWdbEKeI8D8BvAoswByYuPLyTPQv8R69iPJnJOH1cbsZcmdsSJPPglF+\n\
24tzamZhEjZA4qNGG1uSjM0CgYBD+g/lag92LjOEuLpEa6XJW+y5wpFPDBjdO7sp\n\
KH8BWliP1QuGsj8N9gMkbYjvA2HHjtnYk/hxNb5XW7pgbFtgDHZsOOx8oulNDvIN\n\
19wJnDeP7axOEpM0ZrDYVyotWpkZHO8HbdgBuaFZFYEWvqrvhC04ZW++2QSnFXcC\n\
FrAR1wKBgCzv0PeiVrSwzWSTGPS47wpaB8CV99NCQQRPpFiz7tRab1C21SXciuSM\n\
1uX2aBZDAQE7rSDhUAfBlGMErW7+oJWvNS4YSVtp3jTFyrNrOZfQlGLpl84jPmfo\n\
63HCaoBZPhpknhm3oe+KnAEvlc340+GqOue9K8h6rbMN2AM5N83h\n\
-----END RSA PRIVATE KEY-----\n\
";
pub const PKCS8: &str = "\
-----BEGIN PRIVATE KEY-----\n\
MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQDXK0CRsSBaK7a2\n\
QxTiOZTwmBAqtI4KL82IFvyPaFib+hy+CVcqUbKJWyi9VFGAdgVwO6x0s5nOwg7s\n\
ufkMg5Z2ObIaapPVlBJpnROhPv7KZlF54xHWJ69z6x1CtPFEbYi5MF5zh9edNL06\n\
NgWdpYBPBlzpIz7PTnWW5hsyXn2KAPr3noR1uhYvXF7HOYO2KDgiaFA0YaVYwoL2\n\
mlbGH4HX4GSFn2pp5eucFVYnQpLHLuYIeYvDX4obeF/UKXxgPARECQrGpPqNWcuN\n\
TfUvNPizOghdInvet6Nc0Pv++RR7d5W0cD7aWPyYVj7+xhejNG4w+aaPjEmL8th6\n\
JHYYHAT5AgMBAAECggEAPF7yWu5ruWESfskLjv3BAFBqGNFYGRuYe1qXulT4p6rh\n\
baCJSGJryYY+RADobTawB/F2Tbgmq5BfR6RWcGBrUviVNDw7Bm3pTKC55UAblQZo\n\
Td6cHo47+DY7m3/RQfXJqswbdCblJEKr5S1LHhRVj9alMvSkpt3IuHIPp25Dovhn\n\
h6l1rBsnQ56Cpv9H8QdSQqT7lbLgEoAQsjyT/Vq2vq4ioBQA+QDXDkXDuZPGQGA/\n\
Mn4dGaAAZ4Jrgse5yZk+zqASlwRAXnV/cXwxB7eoyO7nuBDBatfPge4TwUjYpXXH\n\
FDB+wG7BY5UVr+wS3KUbUu/Or//irLFg3rTVCDZUEQKBgQD4b/xRgSfVh9vSfvYm\n\
1lYG3sX+uTfw7iYT0aM4MF8snY0S9Qsl9yLrLpa9J6FLrDpIviQvymNl8etAg0Zk\n\
lWQCxsuGN2lYEF8gXhdqIlu86PQwCmKMwHqgMTGs/az+uO6kmKQq3N+Zr1WItcJW\n\
bMiOpnFLJLtkLRYPdYckVYzHdwKBgQDduANbXQgK4FXb5VVdbUe0fp5jmSUO1d19\n\
UBsss/PX6MkGogdcYVyW90/nI4AW/QQaDNXIWJYz/BHz+T54SDZH4ZtHwqZJZ5Gd\n\
HAFv4B8BFhG2JRQdShqQbYkQwRR7IvQiehVvQCsB3kax3y6Ymw0JQE/dyWUZ/PYa\n\
Cyl9rwWTDwKBgQDujgnI8a4gWg54t7UBYfrFKhERISVYUjV5/mkuQTSCkN6v/2Cv\n\
GfoLvna8N1uoYD6vLvVsdnivoXb2QZfMaa7ZA67WuEqNZ1sQp4jwPwG8CizAHJi4\n\
8vJM9C/xHr2I8mck4fVxuxlyZ2xIk8+CUX7bi3NqZmESNkDio0YbW5KMzQKBgEP6\n\
D+VqD3YuM4S4ukRrpclb7LnCkU8MGN07uykofwFaWI/VC4ayPw32AyRtiO8DYceO\n\
2diT+HE1vldbumBsW2AMdmw47Hyi6U0O8g3X3AmcN4/trE4SkzRmsNhXKi1amRkc\n\
7wdt2AG5oVkVgRa+qu+ELThlb77ZBKcVdwIWsBHXAoGALO/Q96JWtLDNZJMY9Ljv\n\
CloHwJX300JBBE+kWLPu1FpvULbVJdyK5IzW5fZoFkMBATutIOFQB8GUYwStbv6g\n\
la81LhhJW2neNMXKs2s5l9CUYumXziM+Z+jrccJqgFk+GmSeGbeh74qcAS+VzfjT\n\
4ao6570ryHqtsw3YAzk3zeE=\n\
-----END PRIVATE KEY-----\n\
";
const PUBLIC: &str = "\
-----BEGIN PUBLIC KEY-----\n\
MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA1ytAkbEgWiu2tkMU4jmU\n\
8JgQKrSOCi/NiBb8j2hYm/ocvglXKlGyiVsovVRRgHYFcDusdLOZzsIO7Ln5DIOW\n\
djmyGmqT1ZQSaZ0ToT7+ymZReeMR1ievc+sdQrTxRG2IuTBec4fXnTS9OjYFnaWA\n\
TwZc6SM+z051luYbMl59igD6956EdboWL1xexzmDtig4ImhQNGGlWMKC9ppWxh+B\n\
1+BkhZ9qaeXrnBVWJ0KSxy7mCHmLw1+KG3hf1Cl8YDwERAkKxqT6jVnLjU31LzT4\n\
szoIXSJ73rejXND7/vkUe3eVtHA+2lj8mFY+/sYXozRuMPmmj4xJi/LYeiR2GBwE\n\
+QIDAQAB\n\
-----END PUBLIC KEY-----\n\
";
