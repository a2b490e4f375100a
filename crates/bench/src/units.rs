//! Numbers, and the time, as people type and read them.

/// The greatest count: the flows and rules of benchmarks are held in memory, a rule with its flow in half a
/// kilobyte.
const COUNT_MAX: usize = 10_000_000;

/// A count with a suffix: `10`, `1k`, `250k`, `1m`.
pub fn count(text: &str) -> Result<usize, String> {
    up_to::<COUNT_MAX>(text)
}

/// The same with another maximum.
pub fn up_to<const MOST: usize>(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_string(), 1_000),
        t if t.ends_with('m') => (t[..t.len() - 1].to_string(), 1_000_000),
        t => (t, 1),
    };
    let count = digits.parse().ok().and_then(|n: usize| n.checked_mul(factor));
    count.filter(|n| (1..=MOST).contains(n)).ok_or_else(|| {
        format!("must be 1 to {}, with k or m for thousands or millions", grouped(MOST as u64))
    })
}

/// Seconds with a fraction, up to a day.
pub fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| *seconds > 0.0 && *seconds <= 86_400.0);
    seconds.ok_or_else(|| "must be above 0 and at most 86400".into())
}

/// A number with commas between groups of three digits.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Why a command ends without success. The exit code says which, the text what to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// A regression, a goal that is missed, a trial that failed.
    Check(String),
    /// Something on the command line is wrong.
    Usage(String),
    /// The machine lacks something.
    Machine(String),
}

impl Failure {
    /// The exit code.
    pub fn code(&self) -> u8 {
        match self {
            Failure::Check(_) => 1,
            Failure::Usage(_) => 2,
            Failure::Machine(_) => 3,
        }
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let (Failure::Check(text) | Failure::Usage(text) | Failure::Machine(text)) = self;
        f.write_str(text)
    }
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Check(text)
    }
}

/// The time as `2026-11-23T11:34:37Z`.
pub fn now_utc() -> String {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    host::log::strftime("%Y-%m-%dT%H:%M:%SZ", since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_refuse_nonsense() {
        assert_eq!((count("7"), count("250k"), count("1M")), (Ok(7), Ok(250_000), Ok(1_000_000)));
        assert_eq!(count("10m"), Ok(COUNT_MAX));
        for text in ["0", "k", "-1", "11m", "99999999999999999m", "99999999999999999999"] {
            let why = count(text).unwrap_err();
            assert!(why.starts_with("must be 1 to 10,000,000, with k or m"), "{text}: {why}");
        }
        assert_eq!((up_to::<64>("64").ok(), up_to::<64>("65").ok()), (Some(64), None));
        assert_eq!((seconds("0.5").ok(), seconds("86400").ok()), (Some(0.5), Some(86_400.0)));
        for text in ["0", "-1", "1e400", "nan", "86401", ""] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(n), text);
        }
    }
}
