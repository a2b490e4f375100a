//! Numbers as people type and read them.

/// The greatest count: the flows, rules and connections of benchmarks are held in memory.
const COUNT_MAX: usize = 100_000_000;

/// A count with a suffix: `10`, `1k`, `250k`, `1m`.
pub fn count(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_string(), 1_000),
        t if t.ends_with('m') => (t[..t.len() - 1].to_string(), 1_000_000),
        t => (t, 1),
    };
    let count = digits.parse().ok().and_then(|n: usize| n.checked_mul(factor));
    count.filter(|n| (1..=COUNT_MAX).contains(n)).ok_or_else(|| {
        format!("{text}: expected a number from 1 to 100m, with k or m for thousands or millions")
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_refuse_nonsense() {
        assert_eq!((count("7"), count("250k"), count("1M")), (Ok(7), Ok(250_000), Ok(1_000_000)));
        assert_eq!(count("100m"), Ok(COUNT_MAX));
        for text in ["0", "k", "-1", "101m", "99999999999999999m", "99999999999999999999"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        for (n, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (12_345_678, "12,345,678")] {
            assert_eq!(grouped(n), text);
        }
    }
}
