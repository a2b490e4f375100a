//! The texts of `--help`, `--commands` and `--options`.

use std::fmt::Write;

use crate::vsctl::commands::COMMANDS;
use crate::vsctl::commands::names::{RecordName, record_names};
use host::daemonize::LOGGING;
use host::getopt::{Opt, Takes};
use ovsdb::Schema;

use crate::database::{METHODS, TABLES};
use host::manual::Manual;
use transport::{CLIENT_TLS, MORE_TLS};

/// Sections of commands, each with its introduction.
const SECTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "Switch",
        &[
            ("init", "initialize an empty database (every command does so)"),
            ("show", "show the configuration as a tree"),
            ("emer-reset", "remove controllers, managers, mirrors, flow export and other_config"),
        ],
    ),
    (
        "Bridges",
        &[
            ("add-br BRIDGE", "add a bridge"),
            ("add-br BRIDGE PARENT VLAN", "add a fake bridge for a VLAN of PARENT"),
            ("del-br BRIDGE", "delete a bridge with its ports"),
            ("list-br", "list bridges (--real or --fake: only those)"),
            ("br-exists BRIDGE", "exit with 2 if there is no such bridge"),
            ("br-to-vlan BRIDGE", "print the VLAN of a fake bridge, or 0 for a real one"),
            ("br-to-parent BRIDGE", "print the parent of a fake bridge, or the name of a real one"),
            ("br-set-external-id BRIDGE KEY [VALUE]", "set or remove an external ID"),
            ("br-get-external-id BRIDGE [KEY]", "print one external ID or all"),
        ],
    ),
    (
        "Ports (a bond is one port)",
        &[
            ("list-ports BRIDGE", "list ports"),
            ("add-port BRIDGE PORT [COLUMN[:KEY]=VALUE]...", "add a port of one interface"),
            ("del-port [BRIDGE] PORT", "delete a port (--with-iface: or the one with this interface)"),
            ("port-to-br PORT", "print the bridge of a port"),
            ("add-bond BRIDGE PORT IFACE... [COLUMN[:KEY]=VALUE]...", "add a port of several interfaces"),
            ("add-bond-iface BOND IFACE", "add an interface to a port"),
            ("del-bond-iface [BOND] IFACE", "remove an interface from its port"),
            ("list-ifaces BRIDGE", "list interfaces"),
            ("iface-to-br IFACE", "print the bridge of an interface"),
        ],
    ),
    (
        "Controllers and managers",
        &[
            ("get-controller BRIDGE", "print the controllers"),
            ("del-controller BRIDGE", "remove the controllers"),
            ("[--inactivity-probe=MS] set-controller BRIDGE TARGET...", "replace the controllers"),
            ("get-fail-mode BRIDGE", "print the fail mode"),
            ("del-fail-mode BRIDGE", "remove the fail mode"),
            ("set-fail-mode BRIDGE standalone|secure", "set the fail mode"),
            ("get-manager", "print the managers"),
            ("del-manager", "remove the managers"),
            ("[--inactivity-probe=MS] set-manager TARGET...", "replace the managers"),
            ("get-ssl", "print keys and certificates"),
            ("del-ssl", "remove keys and certificates"),
            ("[--bootstrap] set-ssl PRIVATE-KEY CERTIFICATE CA-CERT", "set keys and certificates"),
        ],
    ),
    (
        "Auto-Attach, conntrack zones, datapaths",
        &[
            ("add-aa-mapping BRIDGE I-SID VLAN", "map a service to a VLAN"),
            ("del-aa-mapping BRIDGE I-SID VLAN", "remove a mapping"),
            ("get-aa-mapping BRIDGE", "print the mappings"),
            ("add-zone-tp DATAPATH zone=ID KEY=SECONDS...", "set the timeouts of a conntrack zone"),
            ("del-zone-tp DATAPATH zone=ID", "remove the timeouts of a conntrack zone"),
            ("list-zone-tp DATAPATH", "print the timeouts of conntrack zones"),
            ("list-dp-cap DATAPATH", "print the capabilities of a datapath"),
        ],
    ),
    (
        "Any table",
        &[
            ("list TABLE [RECORD]...", "print records, or all of them"),
            ("find TABLE [COLUMN[:KEY]=VALUE]...", "print the records that match conditions"),
            ("get TABLE RECORD [COLUMN[:KEY]]...", "print columns of a record"),
            ("set TABLE RECORD COLUMN[:KEY]=VALUE...", "set columns"),
            ("add TABLE RECORD COLUMN [KEY=]VALUE...", "add to a set or map"),
            ("remove TABLE RECORD COLUMN KEY|VALUE|KEY=VALUE...", "remove from a set or map"),
            ("clear TABLE RECORD COLUMN...", "empty columns"),
            ("[--id=@NAME] create TABLE COLUMN[:KEY]=VALUE...", "add a record"),
            ("destroy TABLE RECORD...", "delete records (--all: every one)"),
            ("wait-until TABLE RECORD [COLUMN[:KEY]=VALUE]...", "wait until the record meets the conditions"),
            ("comment [WORD]...", "add words to the database's log"),
        ],
    ),
];

/// The description of the program.
pub fn manual() -> Manual {
    let mut manual = Manual::new(
        "queries and changes the configuration of the switch",
        &["[OPTIONS] COMMAND [ARG...] [-- [OPTIONS] COMMAND [ARG...]]..."],
    )
    .about("All commands of one call are one transaction.");
    for (title, commands) in SECTIONS {
        manual = manual
            .commands(title, commands.iter().map(|(usage, what)| (usage.to_string(), what.to_string())));
    }
    let records = records();
    let records: Vec<(&str, &str)> =
        records.iter().map(|(table, by)| (table.as_str(), by.as_str())).collect();
    manual
        .terms("A record is named by its UUID, by the first four or more digits of it, or by", &records)
        .terms(METHODS.0, METHODS.1)
        .options("Options", &[super::options::OPTIONS])
        .options("Output options", &[TABLES])
        .options("TLS options", &[CLIENT_TLS, MORE_TLS])
        .options("Logging options", &[LOGGING])
        .examples(&[
            (
                "{name} add-br br0 -- add-port br0 eth1 tag=10",
                "Add a bridge and an access port, in one transaction.",
            ),
            ("{name} set interface eth1 ofport_request=5", "Ask for a port number."),
            (
                "{name} --columns=name,error find interface error!=[]",
                "Print interfaces that could not be opened, and why.",
            ),
        ])
}

/// How the records of each table may be named.
fn records() -> Vec<(String, String)> {
    let schema = Schema::open_vswitch();
    let mut rows = Vec::new();
    for table in schema.tables() {
        for record in record_names(&table.name) {
            let by = match record {
                RecordName::Only => "\".\"".to_string(),
                RecordName::By(column) => format!("its {column}"),
                RecordName::Via { table: from, column, .. } => {
                    format!("the name of the {from} whose {column} it is")
                }
            };
            rows.push((table.name.to_string(), by));
        }
    }
    rows
}

/// One line a command: options, name, arguments, separated by commas.
pub(super) fn commands() -> String {
    let mut out = String::new();
    for spec in COMMANDS {
        for option in spec.options.split(',').filter(|option| !option.is_empty()) {
            let _ = write!(out, "[{option}] ");
        }
        let _ = writeln!(out, ",{},{}", spec.name, spec.args);
    }
    out
}

/// Every option, with `ARG` if it takes an argument. Options of commands are in `--commands`.
pub(super) fn options(tables: &[&[Opt]]) -> String {
    let mut out = String::new();
    for option in tables[..tables.len() - 1].iter().copied().flatten() {
        let (long, short) = match option.takes {
            Takes::Nothing => ("", ""),
            Takes::Value | Takes::Optional => ("=ARG", " ARG"),
        };
        let _ = writeln!(out, "--{}{long}", option.name);
        if let Some(letter) = option.short {
            let _ = writeln!(out, "-{letter}{short}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_help_has_every_command() {
        let text = manual().help("ovs-vsctl");
        for spec in COMMANDS {
            let is_there = text.split_whitespace().any(|word| word == spec.name);
            assert!(is_there, "{} is not in the help", spec.name);
        }
    }
}
