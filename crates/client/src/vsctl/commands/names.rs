//! The meaning of words on a command line: tables and columns, in full or abbreviated, and names of records.
//!
//! Source: ovs-vsctl(8), "Identifying Tables, Records, and Columns".

use base::suggest;
use ovsdb::{ColumnIdx, Schema, TableIdx};

/// A way to name records of a table other than by UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordName {
    /// `.`: the only one.
    Only,
    /// By the value of a column.
    By(&'static str),
    /// The record that `column` of a row of `table` refers to, whose column `name` has the value.
    Via {
        /// The table that refers.
        table: &'static str,
        /// Its column that is compared.
        name: &'static str,
        /// Its column that refers.
        column: &'static str,
    },
}

/// The ways to name records of `table`.
pub fn record_names(table: &str) -> &'static [RecordName] {
    macro_rules! via {
        ($table:literal, $column:literal) => {
            &[RecordName::Via { table: $table, name: "name", column: $column }]
        };
    }
    match table {
        "AutoAttach" => via!("Bridge", "auto_attach"),
        "Bridge" | "Flow_Table" | "Interface" | "Mirror" | "Port" => &[RecordName::By("name")],
        "Controller" => via!("Bridge", "controller"),
        "Flow_Sample_Collector_Set" => &[RecordName::By("id")],
        "IPFIX" => via!("Bridge", "ipfix"),
        "Manager" => &[RecordName::By("target")],
        "NetFlow" => via!("Bridge", "netflow"),
        "Open_vSwitch" | "SSL" => &[RecordName::Only],
        "QoS" => via!("Port", "qos"),
        "sFlow" => via!("Bridge", "sflow"),
        _ => &[],
    }
}

/// How well `text` matches `name`: not at all, as a prefix, or in full. Case is ignored, and `-` equals `_`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Match {
    No,
    Start,
    Full,
    Exact,
}

fn match_name(name: &str, text: &str) -> Match {
    let same = |(a, b): (u8, u8)| {
        let plain = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
        plain(a) == plain(b)
    };
    if name == text {
        Match::Exact
    } else if text.is_empty() || text.len() > name.len() || !name.bytes().zip(text.bytes()).all(same) {
        Match::No
    } else if text.len() == name.len() {
        Match::Full
    } else {
        Match::Start
    }
}

/// The places of the names that `text` matches best.
fn best<'a>(names: impl Iterator<Item = &'a str>, text: &str) -> Vec<(usize, &'a str)> {
    let mut best = Match::Start;
    let mut found = Vec::new();
    for (index, name) in names.enumerate() {
        let matched = match_name(name, text);
        if matched > best {
            best = matched;
            found.clear();
        }
        if matched == best {
            found.push((index, name));
        }
    }
    found
}

fn join(found: &[(usize, &str)]) -> String {
    found.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")
}

/// The table that `text` means.
pub fn table(schema: &Schema, text: &str) -> Result<TableIdx, String> {
    let names = || schema.tables().iter().map(|table| table.name.as_str());
    let found = best(names(), text);
    match found[..] {
        [(index, _)] => Ok(TableIdx(index as u16)),
        [] => Err(format!("unknown table \"{text}\"{}", suggest::line(text, names()))),
        _ => Err(format!("\"{text}\" matches multiple table names: {}", join(&found))),
    }
}

/// The column of `table` that `text` means.
pub fn column(schema: &Schema, table: TableIdx, text: &str) -> Result<ColumnIdx, String> {
    let table = schema.table(table);
    let names = || table.named_columns().map(|(_, column)| column.name.as_str());
    let found = best(names(), text);
    match found[..] {
        [(index, _)] => Ok(ColumnIdx(ColumnIdx::FIRST.0 + index as u16)),
        [] => Err(format!(
            "{} does not contain a column whose name matches \"{text}\"{}",
            table.name,
            suggest::line(text, names())
        )),
        _ => Err(format!(
            "{} contains more than one column whose name matches \"{text}\": {}",
            table.name,
            join(&found)
        )),
    }
}
