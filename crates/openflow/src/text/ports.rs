//! Ports in text: numbers, the reserved names, and the names that a switch gives its ports.

use super::put;
use super::value::number;
use base::OfPort;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The reserved ports by the names that are read and, the first of each number, written.
const RESERVED: [(&str, OfPort); 10] = [
    ("IN_PORT", OfPort::IN_PORT),
    ("TABLE", OfPort::TABLE),
    ("NORMAL", OfPort::NORMAL),
    ("FLOOD", OfPort::FLOOD),
    ("ALL", OfPort::ALL),
    ("CONTROLLER", OfPort::CONTROLLER),
    ("LOCAL", OfPort::LOCAL),
    ("ANY", OfPort::NONE),
    ("NONE", OfPort::NONE),
    ("UNSET", OfPort::UNSET),
];

/// Names of ports and tables. Empty: only numbers. A name that is not unique is not used.
#[derive(Clone, Default, Debug)]
pub struct PortNames {
    by_number: BTreeMap<u16, String>,
    by_name: BTreeMap<String, Option<OfPort>>,
    tables: BTreeMap<u8, String>,
}

impl PortNames {
    /// No names.
    pub const fn none() -> &'static PortNames {
        static NONE: PortNames =
            PortNames { by_number: BTreeMap::new(), by_name: BTreeMap::new(), tables: BTreeMap::new() };
        &NONE
    }

    /// Adds one.
    pub fn insert(&mut self, port: OfPort, name: &str) {
        if port == OfPort::NONE || name.is_empty() {
            return;
        }
        self.by_number.insert(port.0, name.to_string());
        self.by_name
            .entry(name.to_string())
            .and_modify(|other| {
                if *other != Some(port) {
                    *other = None;
                }
            })
            .or_insert(Some(port));
    }

    /// The unique name of a port, if it has one.
    pub fn name(&self, port: OfPort) -> Option<&str> {
        let name = self.by_number.get(&port.0)?;
        self.by_name.get(name)?.is_some().then_some(name)
    }

    /// The port with a name.
    pub fn port(&self, name: &str) -> Option<OfPort> {
        self.by_name.get(name).copied().flatten()
    }

    /// Gives a table a name.
    pub fn insert_table(&mut self, table: u8, name: &str) {
        if !name.is_empty() {
            self.tables.insert(table, name.to_string());
        }
    }

    /// Whether a table has a unique name.
    pub fn has_table(&self, table: u8) -> bool {
        let name = self.tables.get(&table);
        name.is_some_and(|name| self.tables.values().filter(|other| *other == name).count() == 1)
    }

    /// Reads a table: a number up to 255, or a name, also in double quotes.
    pub fn parse_table(&self, text: &str) -> Option<u8> {
        if let Some(number) = number(text, 255) {
            return Some(number as u8);
        }
        let name = unquoted(text)?;
        self.tables.iter().find(|(id, known)| **known == *name && self.has_table(**id)).map(|(id, _)| *id)
    }

    /// Appends a table: its name or its number.
    pub fn write_table(&self, out: &mut String, table: u8) {
        match self.tables.get(&table).filter(|_| self.has_table(table)) {
            Some(name) => write_name(out, name),
            None => put!(out, "{table}"),
        }
    }

    /// Reads a port: a decimal number (of 16 bits, or 32 with the reserved ones at the top), a reserved name
    /// in any case, or a name, also in double quotes.
    pub fn parse(&self, text: &str) -> Option<OfPort> {
        if text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && text.bytes().all(|b| b.is_ascii_digit())
        {
            let number: u32 = text.parse().ok()?;
            return u16::try_from(number).ok().map(OfPort).or_else(|| OfPort::from_u32(number));
        }
        if let Some((_, port)) = RESERVED.iter().find(|(name, _)| name.eq_ignore_ascii_case(text)) {
            return Some(*port);
        }
        self.port(&unquoted(text)?)
    }

    /// Appends a port: its reserved name, its name, or its number.
    pub fn write(&self, out: &mut String, port: OfPort) {
        if let Some((name, _)) = RESERVED.iter().find(|(_, p)| *p == port) {
            out.push_str(name);
        } else if let Some(name) = self.name(port) {
            write_name(out, name);
        } else {
            put!(out, "{}", port.0);
        }
    }

    /// As text.
    pub fn text(&self, port: OfPort) -> String {
        let mut out = String::new();
        self.write(&mut out, port);
        out
    }
}

/// Appends a name; if it would be ambiguous, in double quotes and escaped as a string of JSON.
fn write_name(out: &mut String, name: &str) {
    let plain = name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|b| b.is_ascii_alphanumeric());
    if plain {
        return out.push_str(name);
    }
    out.push_str(&serde_json::to_string(name).expect("a string is always written"));
}

/// A name as [`write_name`] writes it, or without quotes. `None` for what begins with a quote but is no JSON
/// string.
fn unquoted(text: &str) -> Option<Cow<'_, str>> {
    if text.starts_with('"') { serde_json::from_str(text).ok().map(Cow::Owned) } else { Some(text.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_and_written_by_number_reserved_name_and_name() {
        let mut names = PortNames::default();
        names.insert(OfPort(1), "eth0");
        names.insert(OfPort(2), "1x");
        names.insert(OfPort(5), "s1-eth1");
        names.insert(OfPort(6), "veth_a.100");
        names.insert(OfPort(7), "x\"y");
        names.insert(OfPort(8), "p\\q\t\u{1}é'");
        names.insert(OfPort(3), "twice");
        names.insert(OfPort(4), "twice");
        for (text, port) in [
            ("eth0", OfPort(1)),
            ("\"1x\"", OfPort(2)),
            ("\"s1-eth1\"", OfPort(5)),
            ("\"veth_a.100\"", OfPort(6)),
            (r#""x\"y""#, OfPort(7)),
            (r#""p\\q\t\u0001é'""#, OfPort(8)),
            ("LOCAL", OfPort::LOCAL),
            ("ANY", OfPort::NONE),
        ] {
            assert_eq!(names.parse(text), Some(port), "{text}");
            assert_eq!(names.text(port), text);
        }
        assert_eq!(names.text(OfPort(3)), "3");
        assert_eq!(names.parse("s1-eth1"), Some(OfPort(5)));
        assert_eq!(names.parse("local"), Some(OfPort::LOCAL));
        assert_eq!(names.parse("4294967294"), Some(OfPort::LOCAL));
        assert_eq!(names.parse("\"eth0\""), Some(OfPort(1)));
        for (table, name) in [(0, "zero"), (1, "acl"), (2, "twin"), (3, "twin")] {
            names.insert_table(table, name);
        }
        let text = |table| {
            let mut out = String::new();
            names.write_table(&mut out, table);
            out
        };
        assert_eq!([text(0), text(1), text(2), text(9)], ["zero", "acl", "2", "9"]);
        assert_eq!(
            ["zero", "\"acl\"", "7", "twin", "x"].map(|t| names.parse_table(t)),
            [Some(0), Some(1), Some(7), None, None]
        );
        assert_eq!(names.parse(r#""\u0065th0""#), Some(OfPort(1)));
        let unfinished = [r#""eth0"#, r#""x"y""#, r#""eth0\""#, r#""\u65th0""#, r#""\eth0""#, r#""\ud800""#];
        for bad in
            ["", "twice", "eth1", "70000", "0x1", "-1", "\"", "99999999999"].into_iter().chain(unfinished)
        {
            assert_eq!(names.parse(bad), None, "{bad}");
        }
    }
}
