//! Kubernetes quantities by their value, without allocation.
//!
//! The grammar is the one in the documentation of [`Quantity`]. As the API server does, what
//! is finer than 10⁻⁹ is rounded up, away from zero. A text that is no quantity, or one beyond
//! 3·10²⁹, has no value here and is compared as text.
//!
//! [`Quantity`]: k8s_openapi::apimachinery::pkg::api::resource::Quantity

/// Powers of ten from the unit of a value here, 10⁻⁹.
const NANO: i32 = 9;

/// The largest quantity with a binary suffix; larger ones are cut to it.
const MAX_BINARY: u128 = (i64::MAX as u128) * 1_000_000_000;

/// Whether both texts stand for the same amount.
pub fn equal(a: &str, b: &str) -> bool {
    a == b || matches!((parse(a), parse(b)), (Some(a), Some(b)) if a == b)
}

/// Whether the text stands for nothing, as an absent quantity does.
pub fn is_zero(text: &str) -> bool {
    parse(text).is_some_and(|amount| amount.nanos == 0)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Amount {
    /// Never set for zero.
    negative: bool,
    nanos: u128,
}

/// What a suffix multiplies the number with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suffix {
    /// A power of ten.
    Decimal(i32),
    /// A power of two.
    Binary(u32),
}

fn parse(text: &str) -> Option<Amount> {
    // what Go makes of an absent quantity, and k8s-openapi's default
    if text.is_empty() {
        return Some(Amount {
            negative: false,
            nanos: 0,
        });
    }
    let (negative, rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, rest) = split_digits(rest);
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_digits(rest),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let nanos = nanos(whole, fraction.trim_end_matches('0'), suffix(rest)?)?;
    Some(Amount {
        negative: negative && nanos != 0,
        nanos,
    })
}

fn split_digits(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

fn suffix(text: &str) -> Option<Suffix> {
    Some(match text {
        "n" => Suffix::Decimal(-9),
        "u" => Suffix::Decimal(-6),
        "m" => Suffix::Decimal(-3),
        "" => Suffix::Decimal(0),
        "k" => Suffix::Decimal(3),
        "M" => Suffix::Decimal(6),
        "G" => Suffix::Decimal(9),
        "T" => Suffix::Decimal(12),
        "P" => Suffix::Decimal(15),
        "E" => Suffix::Decimal(18),
        "Ki" => Suffix::Binary(10),
        "Mi" => Suffix::Binary(20),
        "Gi" => Suffix::Binary(30),
        "Ti" => Suffix::Binary(40),
        "Pi" => Suffix::Binary(50),
        "Ei" => Suffix::Binary(60),
        _ => Suffix::Decimal(text.strip_prefix(['e', 'E'])?.parse().ok()?),
    })
}

/// The number in units of 10⁻⁹, rounded up.
fn nanos(whole: &str, fraction: &str, suffix: Suffix) -> Option<u128> {
    let places = i32::try_from(fraction.len()).ok()?;
    match suffix {
        Suffix::Decimal(exponent) => {
            let shift = exponent.checked_add(NANO)?.checked_sub(places)?;
            shifted(number(whole, fraction)?, shift)
        }
        Suffix::Binary(power) => {
            let shift = NANO.checked_sub(places)?;
            let amount = number(whole, fraction)
                .and_then(|number| number.checked_mul(1_u128.checked_shl(power)?))
                .and_then(|number| shifted(number, shift));
            match amount {
                Some(amount) => Some(amount.min(MAX_BINARY)),
                // so many digits before the point, not behind it
                None if shift >= 0 => Some(MAX_BINARY),
                None => None,
            }
        }
    }
}

/// The number times ten to the `shift`, rounded up.
fn shifted(number: u128, shift: i32) -> Option<u128> {
    let power = 10_u128.checked_pow(shift.unsigned_abs());
    match power {
        _ if number == 0 => Some(0),
        Some(power) if shift >= 0 => number.checked_mul(power),
        Some(power) => Some(number.div_ceil(power)),
        None if shift >= 0 => None,
        None => Some(1),
    }
}

/// The number that the digits of both make.
fn number(whole: &str, fraction: &str) -> Option<u128> {
    whole
        .bytes()
        .chain(fraction.bytes())
        .try_fold(0_u128, |number, digit| {
            let digit = u128::from(digit.checked_sub(b'0')?);
            number.checked_mul(10)?.checked_add(digit)
        })
}

#[cfg(test)]
mod tests {
    use super::{equal, is_zero};

    #[test]
    fn the_same_amount_is_equal_however_it_is_written() {
        for (a, b) in [
            ("1", "1000m"),
            ("0.5", "500m"),
            (".5", "500m"),
            ("5.", "5"),
            ("+1", "1"),
            ("-1", "-1000m"),
            ("1Gi", "1024Mi"),
            ("1.5Gi", "1536Mi"),
            ("0.1Ki", "102.4"),
            ("1k", "1000"),
            ("1e3", "1k"),
            ("1E3", "1k"),
            ("1e-3", "1m"),
            ("1E", "1e18"),
            ("1.024k", "1Ki"),
            ("100", "1e2"),
            ("0", "0Gi"),
            ("0", "-0"),
            ("00012", "12.000"),
            ("1n", "0.001u"),
        ] {
            assert!(equal(a, b), "{a} {b}");
            assert!(equal(b, a), "{b} {a}");
        }
    }

    #[test]
    fn different_amounts_are_not_equal() {
        for (a, b) in [
            ("1", "2"),
            ("1", "-1"),
            ("1Gi", "1G"),
            ("1m", "1M"),
            ("1E", "1e17"),
            ("1", "1001m"),
            ("1Mi", "1048577"),
            ("1", "0.999999999"),
        ] {
            assert!(!equal(a, b), "{a} {b}");
        }
    }

    #[test]
    fn what_is_finer_than_a_billionth_is_rounded_up() {
        assert!(equal("0.1n", "1n"));
        assert!(equal("1e-100", "1n"));
        assert!(equal("-0.0000000001", "-1n"));
        assert!(equal("1.0000000001", "1.000000001"));
        assert!(!equal("1.0000000011", "1.000000001"));
    }

    #[test]
    fn large_amounts_are_cut_to_the_limit_or_compared_as_text() {
        assert!(equal("8Ei", "9Ei"));
        assert!(equal("99999999999999999999999999999999999999999Ki", "8Ei"));
        assert!(!equal("1e40", "10e39"));
        assert!(equal("1e40", "1e40"));
        assert!(!equal("1e2147483647", "1"));
        assert!(!equal("1e99999999999", "1"));
    }

    #[test]
    fn what_is_no_quantity_is_compared_as_text() {
        for text in [
            "abc", ".", "-", "1 ", "1KB", "1e", "0x1", "1.1.1", "١", "--1",
        ] {
            assert!(equal(text, text), "{text}");
            assert!(!equal(text, "1"), "{text}");
            assert!(!is_zero(text), "{text}");
        }
    }

    #[test]
    fn only_nothing_is_zero() {
        for text in ["", "0", "0m", "-0Ki", "0.000", "0e9", "0e2147483000"] {
            assert!(is_zero(text), "{text}");
        }
        for text in ["1n", "0.0000000001", "-1"] {
            assert!(!is_zero(text), "{text}");
        }
    }
}
