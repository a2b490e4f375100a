//! One binary, many names: called as a program of Open vSwitch's it takes that program's command line.
//!
//! [`PROGRAMS`] has a row for each name. A row's options are the tables that its parser reads, so that the
//! test which holds them against the stock program's cannot go out of date.

pub mod ovs_vswitchd;
pub mod ovsdb_server;

use client::{appctl, dpctl, ofctl, ovsdb_client, ovsdb_tool, pcap, tcpdump, vsctl};
use host::manual::Manual;
use host::program;
use std::path::Path;
use std::process::ExitCode;

/// A program.
pub struct Program {
    /// The name by which it may be called.
    pub name: &'static str,
    /// The subcommand of `crosspoint` that is the same.
    pub subcommand: &'static str,
    /// Its description, from the tables that its parser reads.
    pub manual: fn() -> Manual,
    /// Runs it with the arguments that follow its name.
    pub run: fn(&[String]) -> ExitCode,
}

/// All programs.
pub const PROGRAMS: &[Program] = &[
    row("ovs-vswitchd", "", ovs_vswitchd::manual, ovs_vswitchd::run),
    row("ovs-appctl", "appctl", appctl::manual, appctl::run),
    row("ovs-dpctl", "dpctl", dpctl::manual, dpctl::run),
    row("ovs-pcap", "", pcap::manual, pcap::run),
    row("ovs-tcpdump", "", tcpdump::manual, tcpdump::run),
    row("ovsdb-server", "ovsdb-server", ovsdb_server::manual, ovsdb_server::run),
    row("ovs-ofctl", "ofctl", ofctl::manual, ofctl::run),
    row("ovsdb-tool", "ovsdb-tool", ovsdb_tool::manual, ovsdb_tool::run),
    row("ovs-vsctl", "vsctl", vsctl::manual, vsctl::run),
    row("ovsdb-client", "ovsdb-client", ovsdb_client::manual, ovsdb_client::run),
];

const fn row(
    name: &'static str,
    subcommand: &'static str,
    manual: fn() -> Manual,
    run: fn(&[String]) -> ExitCode,
) -> Program {
    Program { name, subcommand, manual, run }
}

/// What the process's arguments ask for, if that is one of the programs: by the name that it was called by,
/// or by a subcommand, behind which `--help` stands then where `help` was before it.
pub fn asked_for(args: &mut [String]) -> Option<ExitCode> {
    let called_as = Path::new(args.first()?).file_name()?.to_str()?;
    if let Some(program) = PROGRAMS.iter().find(|p| p.name == called_as) {
        program::set_name(program.name);
        return Some((program.run)(&args[1..]));
    }
    // `crosspoint help vsctl` is `crosspoint vsctl --help`, whose error names the nearest command.
    if args.len() == 3 && args[1] == "help" {
        args[1] = "--help".into();
        args.swap(1, 2);
    }
    let subcommand = args.get(1)?;
    let found = PROGRAMS.iter().find(|p| !p.subcommand.is_empty() && p.subcommand == subcommand)?;
    program::set_name(&format!("crosspoint {subcommand}"));
    Some((found.run)(&args[2..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_subcommands_are_told_from_other_words() {
        let args = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        assert!(asked_for(&mut args(&["crosspoint", "bench"])).is_none());
        assert!(asked_for(&mut args(&["/usr/bin/crosspoint"])).is_none());
        assert!(asked_for(&mut args(&["crosspoint", ""])).is_none());
        assert!(asked_for(&mut args(&["/x/ovs-appctl", "--version"])).is_some());
    }
}
