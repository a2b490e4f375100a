//! One binary, many names: called as a program of Open vSwitch's it takes that program's command line.
//!
//! [`PROGRAMS`] has a row for each name. A row's options are the tables that its parser reads, so that the
//! test which holds them against the stock program's cannot go out of date.

pub mod appctl;
pub mod dpctl;
mod options;
pub mod ovs_vswitchd;
pub mod ovsdb_server;
pub mod pcap;
mod signals;

pub use options::{CLIENT_TLS, take_tls};
pub use signals::end_well;

use crate::manual::Manual;
use crate::suggest;
use std::path::Path;
use std::process::ExitCode;
use vswitchd::daemonize::{self, Options as DaemonOptions};
use vswitchd::getopt::{self, Opt, Order, Parsed};
use vswitchd::log::{self, Destination, Level, Setting};
use vswitchd::program;

/// A program.
pub struct Program {
    /// As which it may be called.
    pub name: &'static str,
    /// The subcommand of `crosspoint` that is the same.
    pub subcommand: &'static str,
    /// Its description, from the tables that its parser reads.
    pub manual: fn() -> Manual,
    /// Runs it with the arguments that follow its name.
    pub run: fn(&[String]) -> ExitCode,
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    row("ovs-vswitchd", "", ovs_vswitchd::manual, ovs_vswitchd::run),
    row("ovs-appctl", "appctl", appctl::manual, appctl::run),
    row("ovs-dpctl", "dpctl", dpctl::manual, dpctl::run),
    row("ovs-pcap", "", pcap::manual, pcap::run),
    row("ovsdb-server", "ovsdb-server", ovsdb_server::manual, ovsdb_server::run),
    row("ovs-ofctl", "ofctl", crate::ofctl::manual, crate::ofctl::run),
    row("ovsdb-tool", "ovsdb-tool", crate::ovsdb_tool::manual, crate::ovsdb_tool::run),
    row("ovs-vsctl", "vsctl", crate::vsctl::manual, crate::vsctl::run),
    row("ovsdb-client", "ovsdb-client", crate::ovsdb_client::manual, crate::ovsdb_client::run),
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
/// or by a subcommand.
pub fn asked_for(args: &[String]) -> Option<ExitCode> {
    let called_as = Path::new(args.first()?).file_name()?.to_str()?;
    if let Some(program) = PROGRAMS.iter().find(|p| p.name == called_as) {
        program::set_name(program.name);
        return Some((program.run)(&args[1..]));
    }
    // `crosspoint help vsctl` is `crosspoint vsctl --help`.
    let is_help = args.get(1).is_some_and(|word| word == "help") && args.len() == 3;
    let subcommand = args.get(if is_help { 2 } else { 1 })?;
    let found = PROGRAMS.iter().find(|p| !p.subcommand.is_empty() && p.subcommand == subcommand)?;
    program::set_name(&format!("crosspoint {subcommand}"));
    match is_help {
        true => {
            show(&(found.manual)().help(program::name()));
            Some(ExitCode::SUCCESS)
        }
        false => Some((found.run)(&args[2..])),
    }
}

/// What is the same in every program's command line.
pub struct Usage<'a> {
    /// Its options, in tables.
    pub tables: &'a [&'a [Opt]],
    /// Where options end.
    pub order: Order,
    /// The text of `--help`.
    pub help: String,
    /// Lines that the stock program's `--version` has after its first.
    pub version: &'a [&'a str],
}

impl Usage<'_> {
    /// Parses the arguments. An exit code: they asked for help, for the version or for the options, which
    /// were shown, or are wrong.
    pub fn parse(&self, args: &[String]) -> Result<Parsed, ExitCode> {
        self.parse_with(args, |_, _| Ok(()))
    }

    /// The same, with options taken in their order, the first that is wrong or asks for a text being the end.
    pub fn parse_with(
        &self,
        args: &[String],
        mut take: impl FnMut(&str, Option<&str>) -> Result<(), String>,
    ) -> Result<Parsed, ExitCode> {
        let parsed = parse(self.tables, args, self.order).map_err(|error| fail(&error))?;
        for (name, value) in &parsed.options {
            let text = match *name {
                "help" => self.help.clone(),
                "version" => program::version_text(program::name(), self.version),
                "option" => getopt::list(self.tables),
                _ => {
                    take(name, value.as_deref()).map_err(|error| fail(&error))?;
                    continue;
                }
            };
            show(&text);
            return Err(ExitCode::SUCCESS);
        }
        Ok(parsed)
    }
}

/// Parses options. The error suggests the nearest option for one that is unknown.
pub fn parse(tables: &[&[Opt]], args: &[String], order: Order) -> Result<Parsed, String> {
    getopt::parse(tables, args, order).map_err(|error| {
        let unknown = error.strip_prefix("unrecognized option '--").map(|rest| rest.trim_end_matches('\''));
        let names = tables.iter().copied().flatten().map(|opt| opt.name);
        let hint = unknown.map(|name| suggest::hint(name, names).replacen("'", "'--", 1));
        error + hint.as_deref().unwrap_or_default()
    })
}

/// What is said of a command that does not exist.
pub fn unknown_command<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    format!("unknown command '{name}'; use --help for help{}", suggest::hint(name, known))
}

/// Prints a text; a reader that has gone is no error.
pub fn show(text: &str) {
    print!("{text}");
}

/// Says what is wrong with the command line, or why a program fails.
pub fn fail(error: &str) -> ExitCode {
    eprintln!("{}: {error}", program::name());
    ExitCode::FAILURE
}

/// The log of a program that runs a command and ends: warnings on stderr, unless options say otherwise.
pub fn client_log() {
    log::start();
    for destination in [Destination::Console, Destination::Syslog] {
        log::set(&Setting::everything_at(destination, Level::Warning));
    }
    crate::database::log_all_messages();
}

/// Takes an option of the log's; false where it is another's. Opens the log file at once.
pub fn take_logging(name: &str, value: Option<&str>) -> Result<bool, String> {
    if !daemonize::LOGGING.iter().any(|o| o.name == name) {
        return Ok(false);
    }
    let mut options = DaemonOptions::default();
    options.take(name, value)?;
    options.open_log()?;
    Ok(true)
}

/// A number of seconds as `--timeout` takes it. The error is Open vSwitch's.
pub fn timeout(value: &str) -> Result<std::time::Duration, String> {
    match value.parse::<u64>() {
        Ok(seconds) if seconds > 0 => Ok(std::time::Duration::from_secs(seconds)),
        _ => Err(format!("value {value} on -T or --timeout is invalid")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_subcommands_are_told_from_other_words() {
        let args = |words: &[&str]| words.iter().map(|w| w.to_string()).collect::<Vec<_>>();
        assert!(asked_for(&args(&["crosspoint", "bench"])).is_none());
        assert!(asked_for(&args(&["/usr/bin/crosspoint"])).is_none());
        assert!(asked_for(&args(&["crosspoint", ""])).is_none());
        assert!(asked_for(&args(&["/x/ovs-appctl", "--version"])).is_some());
    }
}
