//! Kubernetes' quantities: `500m`, `2`, `1Gi`.

use std::fmt;
use std::ops::Add;

use serde_json::Value;

const BINARY: &[(&str, i128)] = &[
    ("Ei", 1 << 60),
    ("Pi", 1 << 50),
    ("Ti", 1 << 40),
    ("Gi", 1 << 30),
    ("Mi", 1 << 20),
    ("Ki", 1 << 10),
];

const DECIMAL: &[(&str, i128)] = &[
    ("E", 1_000_000_000_000_000_000),
    ("P", 1_000_000_000_000_000),
    ("T", 1_000_000_000_000),
    ("G", 1_000_000_000),
    ("M", 1_000_000),
    ("k", 1_000),
];

/// An amount, in thousandths, that remembers whether it was written in powers of two.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Quantity {
    thousandths: i128,
    is_binary: bool,
}

impl Quantity {
    pub const ONE: Self = Self {
        thousandths: 1000,
        is_binary: false,
    };

    /// Reads a quantity, which may be written as a number; none when it is malformed.
    pub fn parse(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse_text(text),
            Value::Number(number) => Self::parse_text(&number.to_string()),
            _ => None,
        }
    }

    fn parse_text(text: &str) -> Option<Self> {
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '-' | '+')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let (factor, is_binary) = match suffix {
            "" => (1000, false),
            "m" => (1, false),
            _ => {
                let find = |table: &[(&str, i128)]| {
                    let row = table.iter().find(|row| row.0 == suffix);
                    row.map(|row| row.1 * 1000)
                };
                match find(BINARY) {
                    Some(factor) => (factor, true),
                    None => (find(DECIMAL)?, false),
                }
            }
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let mut thousandths = whole.parse::<i128>().ok()?.checked_mul(factor)?;
        if !fraction.is_empty() {
            let digits = u32::try_from(fraction.len()).ok()?;
            let part = fraction.parse::<i128>().ok()?.checked_mul(factor)?;
            thousandths += part / 10_i128.checked_pow(digits)?;
        }
        Some(Self {
            thousandths,
            is_binary,
        })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.thousandths == other.thousandths
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.thousandths.cmp(&other.thousandths)
    }
}

impl Add for Quantity {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            thousandths: self.thousandths.saturating_add(other.thousandths),
            is_binary: self.is_binary || other.is_binary,
        }
    }
}

impl fmt::Display for Quantity {
    /// The shortest exact form, as the real server writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let amount = self.thousandths;
        if amount % 1000 != 0 {
            return write!(f, "{amount}m");
        }
        let amount = amount / 1000;
        let table = if self.is_binary { BINARY } else { DECIMAL };
        let exact = |row: &&(&str, i128)| amount != 0 && amount % row.1 == 0;
        match table.iter().find(exact) {
            Some((suffix, factor)) => write!(f, "{}{suffix}", amount / factor),
            None => write!(f, "{amount}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_compared_and_written_in_their_shortest_form() {
        let parse = |text: &str| Quantity::parse_text(text).unwrap();
        assert_eq!(parse("0.5"), parse("500m"));
        assert_eq!(parse("1Gi"), parse("1024Mi"));
        assert!(parse("1G") < parse("1Gi"));
        assert_eq!((parse("512Mi") + parse("512Mi")).to_string(), "1Gi");
        assert_eq!((parse("500m") + parse("1500m")).to_string(), "2");
        assert_eq!(parse("1500m").to_string(), "1500m");
        assert!(Quantity::parse_text("lots").is_none());
    }
}
