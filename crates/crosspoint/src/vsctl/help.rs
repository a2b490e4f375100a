//! The texts of `--help`, `--commands` and `--options`.

use std::fmt::Write;

use ovsdb::Schema;
use ovsdb::vsctl::COMMANDS;
use ovsdb::vsctl::names::{RecordName, record_names};
use vswitchd::getopt::{Opt, Takes};
use vswitchd::program;
use vswitchd::rundir::RunDir;

/// Sections of commands, each with what it says of them.
const SECTIONS: &[(&str, &[(&str, &str)])] = &[
    (
        "The whole",
        &[
            ("init", "initialise an empty database (every command does)"),
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
            ("br-exists BRIDGE", "exit with 2 where there is no such bridge"),
            ("br-to-vlan BRIDGE", "print the VLAN of a fake bridge, 0 of a real one"),
            ("br-to-parent BRIDGE", "print the parent of a fake bridge, the name of a real one"),
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
            ("del-bond-iface [BOND] IFACE", "take an interface from its port"),
            ("list-ifaces BRIDGE", "list interfaces"),
            ("iface-to-br IFACE", "print the bridge of an interface"),
        ],
    ),
    (
        "Controllers and managers",
        &[
            ("get-controller BRIDGE", "print the controllers"),
            ("del-controller BRIDGE", "remove them"),
            ("[--inactivity-probe=MS] set-controller BRIDGE TARGET...", "replace them"),
            ("get-fail-mode BRIDGE", "print the fail mode"),
            ("del-fail-mode BRIDGE", "remove it"),
            ("set-fail-mode BRIDGE standalone|secure", "set it"),
            ("get-manager", "print the managers"),
            ("del-manager", "remove them"),
            ("[--inactivity-probe=MS] set-manager TARGET...", "replace them"),
            ("get-ssl", "print keys and certificates"),
            ("del-ssl", "remove them"),
            ("[--bootstrap] set-ssl PRIVATE-KEY CERTIFICATE CA-CERT", "set them"),
        ],
    ),
    (
        "Auto-Attach, conntrack zones, datapaths",
        &[
            ("add-aa-mapping BRIDGE I-SID VLAN", "map a service to a VLAN"),
            ("del-aa-mapping BRIDGE I-SID VLAN", "remove a mapping"),
            ("get-aa-mapping BRIDGE", "print the mappings"),
            ("add-zone-tp DATAPATH zone=ID KEY=SECONDS...", "set the timeouts of a conntrack zone"),
            ("del-zone-tp DATAPATH zone=ID", "remove them"),
            ("list-zone-tp DATAPATH", "print them"),
            ("list-dp-cap DATAPATH", "print what a datapath can do"),
        ],
    ),
    (
        "Any table",
        &[
            ("list TABLE [RECORD]...", "print records, all where none is named"),
            ("find TABLE [COLUMN[:KEY]=VALUE]...", "print the records that fulfil conditions"),
            ("get TABLE RECORD [COLUMN[:KEY]]...", "print columns of a record"),
            ("set TABLE RECORD COLUMN[:KEY]=VALUE...", "set columns"),
            ("add TABLE RECORD COLUMN [KEY=]VALUE...", "add to a set or map"),
            ("remove TABLE RECORD COLUMN KEY|VALUE|KEY=VALUE...", "remove from a set or map"),
            ("clear TABLE RECORD COLUMN...", "empty columns"),
            ("[--id=@NAME] create TABLE COLUMN[:KEY]=VALUE...", "add a record"),
            ("destroy TABLE RECORD...", "delete records (--all: every one)"),
            ("wait-until TABLE RECORD [COLUMN[:KEY]=VALUE]...", "wait until conditions are fulfilled"),
            ("comment [WORD]...", "leave words in the database's log"),
        ],
    ),
];

pub(super) fn text() -> String {
    let name = program::name();
    let mut out = format!(
        "{name}: queries and changes the configuration of a switch\nusage: {name} [OPTIONS] COMMAND [ARG...] [-- [OPTIONS] COMMAND [ARG...]]...\n\nAll commands of a call are one transaction.\n"
    );
    for (title, commands) in SECTIONS {
        let _ = writeln!(out, "\n{title}:");
        for (usage, what) in *commands {
            let _ = writeln!(out, "  {usage:<27} {what}");
        }
    }
    out.push_str("\nA record is named by its UUID, or the first four or more digits of it, or:\n");
    let schema = Schema::open_vswitch();
    for table in schema.tables() {
        for record in record_names(&table.name) {
            let _ = match record {
                RecordName::Only => writeln!(out, "  {:<27} \".\"", table.name),
                RecordName::By(column) => writeln!(out, "  {:<27} its {column}", table.name),
                RecordName::Via { table: from, column, .. } => {
                    writeln!(out, "  {:<27} the name of the {from} whose {column} it is", table.name)
                }
            };
        }
    }
    let db = RunDir::from_env().file("db.sock");
    let _ = write!(
        out,
        "
Options:
  --db=METHOD                 the database server (default: unix:{})
  --no-wait                   do not wait until the switch has done it
  --retry                     keep trying to connect
  -t, --timeout=SECONDS       give up after so long
  --dry-run                   check everything and change nothing
  --oneline                   one line of output per command
  --no-syslog                 do not log to the system log what is called
  --commands, --options       list them, for completion
  -h, --help                  this text
  -V, --version               versions
{}",
        db.display(),
        crate::database::HELP
    );
    out
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

/// Every option with `ARG` where it takes one, needed or not. Options of commands are in `--commands`.
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
        let text = text();
        for spec in COMMANDS {
            let is_there = text.split_whitespace().any(|word| word == spec.name);
            assert!(is_there, "{} is not in the help", spec.name);
        }
    }
}
