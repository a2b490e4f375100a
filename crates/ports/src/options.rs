//! Options and keys of ports in the form of the [table of drivers](crate::DRIVERS).

use std::collections::BTreeSet;

/// The values of an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Values {
    /// `true` or `false`.
    Flag,
    /// Whole numbers from `least` to `most`.
    Number {
        /// The smallest.
        least: u64,
        /// The greatest; `u64::MAX` for no limit.
        most: u64,
    },
    /// Powers of two from `least` to `most`.
    PowerOfTwo {
        /// The smallest.
        least: u64,
        /// The greatest.
        most: u64,
    },
    /// One of some words.
    OneOf(&'static [&'static str]),
    /// Text, which the driver looks at: what it says.
    Text(&'static str),
}

/// An option of a type of port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionRow {
    /// Its key in the `options` column.
    pub name: &'static str,
    /// Its values.
    pub values: Values,
    /// The default, in the words of docs/ports.md.
    pub default: &'static str,
    /// Whether it can change while the port runs. If not, the port is reopened.
    pub is_live: bool,
    /// What it does, in the words of docs/ports.md.
    pub meaning: &'static str,
}

/// A key of `status` or `statistics`. `N` in its name stands for a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRow {
    /// The key.
    pub name: &'static str,
    /// Its value, as docs/ports.md says it.
    pub meaning: &'static str,
}

impl KeyRow {
    /// Whether the row is that of `key`.
    pub fn is(&self, key: &str) -> bool {
        let Some((before, after)) = self.name.split_once('N') else { return self.name == key };
        let number = key.strip_prefix(before).and_then(|rest| rest.strip_suffix(after));
        number.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    }
}

/// The option that ports of every type have.
pub const N_RXQ: OptionRow = OptionRow {
    name: "n_rxq",
    values: Values::Number { least: 1, most: 64 },
    default: "1",
    is_live: false,
    meaning: "receive queues",
};

/// Keys that name the kernel driver of a device, as in `ethtool -i`.
pub(crate) const DRIVER_NAME: KeyRow = KeyRow { name: "driver_name", meaning: "as `ethtool -i` has it" };
pub(crate) const DRIVER_VERSION: KeyRow = KeyRow { name: "driver_version", ..DRIVER_NAME };
pub(crate) const FIRMWARE_VERSION: KeyRow = KeyRow { name: "firmware_version", ..DRIVER_NAME };

/// The present name of a device that the port has got by another.
pub(crate) const RENAMED_TO: KeyRow =
    KeyRow { name: "renamed_to", meaning: "the device's name, if it was renamed" };

/// The interface that a port is on, where its name is another.
pub(crate) const IFNAME: OptionRow = OptionRow {
    name: "ifname",
    values: Values::Text("an interface"),
    default: "the port's name",
    is_live: false,
    meaning: "the interface",
};

/// The names of options with [`N_RXQ`], sorted.
pub(crate) fn option_names(options: &[OptionRow]) -> Vec<&'static str> {
    let names: BTreeSet<&str> = options.iter().chain([&N_RXQ]).map(|row| row.name).collect();
    names.into_iter().collect()
}

impl Values {
    /// Whether `text` is one of them.
    pub fn allow(&self, text: &str) -> bool {
        let number = text.parse::<u64>();
        match *self {
            Values::Flag => matches!(text, "true" | "false"),
            Values::Number { least, most } => number.is_ok_and(|n| (least..=most).contains(&n)),
            Values::PowerOfTwo { least, most } => {
                number.is_ok_and(|n| n.is_power_of_two() && (least..=most).contains(&n))
            }
            Values::OneOf(words) => words.contains(&text),
            Values::Text(_) => true,
        }
    }
}

/// In the words of errors: "0 to 32", "true or false".
impl std::fmt::Display for Values {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {
            Values::Flag => f.write_str("true or false"),
            Values::Number { least, most: u64::MAX } => write!(f, "{least} or more"),
            Values::Number { least, most } => write!(f, "{least} to {most}"),
            Values::PowerOfTwo { least, most } => write!(f, "a power of two from {least} to {most}"),
            Values::OneOf(words) => f.write_str(&either(words)),
            Values::Text(what) => f.write_str(what),
        }
    }
}

/// `a, b or c`.
fn either(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_string(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_numbered_keys_is_that_of_each_number() {
        let row = |name| KeyRow { name, meaning: "" };
        assert!(row("socket").is("socket") && !row("socket").is("sockets"));
        let ring = row("vring_N_size");
        assert!(ring.is("vring_0_size") && ring.is("vring_12_size"));
        for other in ["vring_N_size", "vring__size", "vring_0", "vring_0_sizes", "vring_x_size", "numa"] {
            assert!(!ring.is(other), "{other}");
        }
    }

    #[test]
    fn values_are_allowed_from_end_to_end_and_said_in_words() {
        for (values, said, allowed, refused) in [
            (Values::Flag, "true or false", &["true", "false"][..], &["1", ""][..]),
            (Values::Number { least: 1, most: 64 }, "1 to 64", &["1", "64"], &["0", "65", "-1", "x"]),
            (
                Values::Number { least: 1, most: u64::MAX },
                "1 or more",
                &["1", "18446744073709551615"],
                &["0"],
            ),
            (
                Values::PowerOfTwo { least: 64, most: 4096 },
                "a power of two from 64 to 4096",
                &["64", "4096"],
                &["32", "65", "8192"],
            ),
            (Values::OneOf(&["a", "b", "c"]), "a, b or c", &["a", "c"], &["d", "A"]),
            (Values::Text("a path"), "a path", &["", "/x"], &[]),
        ] {
            assert_eq!(values.to_string(), said);
            assert!(allowed.iter().all(|text| values.allow(text)), "{said}");
            assert!(!refused.iter().any(|text| values.allow(text)), "{said}");
        }
    }
}
