//! `crosspoint vsctl`, which is `ovs-vsctl`: queries and changes the switch's configuration in its database.
//!
//! The [commands] are pure functions on a copy of the rows that they need. Here is what they
//! need of the world: options, the connection, the output, waiting until the switch has done what the
//! database says.
//!
//! Source: ovs-vsctl(8).

pub mod commands;

mod help;
mod options;
mod session;

pub use help::manual;
pub use options::OPTIONS;
use options::{End, Global, say};

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;

use crate::ctl::table::{Format, Style};
use commands::Command;
use host::daemonize::LOGGING;
use host::getopt::{Opt, Order, Takes};
use host::{log, program, rundir::RunDir};
use ovsdb::Schema;
use transport::{CLIENT_TLS, MORE_TLS, Tls, TlsFiles, take_tls};

use crate::database::{TABLES, block_on, take_style};
use host::signals::{Deadline, end_well};
use host::usage::{log_all_messages, take_logging, timeout};

/// Runs the program with the arguments that follow its name.
pub fn run(args: &[String]) -> ExitCode {
    start_log();
    match try_run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(End::Exit(code)) => ExitCode::from(code),
        Err(End::Fatal(error)) => {
            eprintln!("{}: {error}", program::name());
            ExitCode::FAILURE
        }
    }
}

fn try_run(args: &[String]) -> Result<(), End> {
    let command_options = command_options();
    let tables: &[&[Opt]] = &[OPTIONS, LOGGING, TABLES, CLIENT_TLS, MORE_TLS, &command_options];
    let parsed = host::usage::parse(tables, args, Order::BeforeWords)?;
    let mut global = Global {
        db: format!("unix:{}", RunDir::from_env().file("db.sock").display()),
        waits: true,
        retries: false,
        is_dry_run: false,
        oneline: false,
        style: Style::new(Format::List),
        tls: None,
    };
    let mut local = BTreeMap::new();
    let mut tls = TlsFiles::default();
    let mut patience = None;
    for (name, value) in &parsed.options {
        let given = value.as_deref().unwrap_or_default();
        match *name {
            "db" => global.db = given.to_owned(),
            "no-syslog" => log_no_more_than_warnings(),
            "no-wait" => global.waits = false,
            "dry-run" => global.is_dry_run = true,
            "oneline" => global.oneline = true,
            "retry" => global.retries = true,
            "timeout" => patience = Some(timeout("-t", given)?),
            // A cluster has a leader, and its members an order; a server alone has neither.
            "leader-only" | "no-leader-only" | "shuffle-remotes" | "no-shuffle-remotes" => {}
            "help" => return print(&manual().help(program::name())),
            "commands" => return print(&help::commands()),
            "options" => return print(&help::options(tables)),
            "version" => return print(&version()),
            name if command_options.iter().any(|option| option.name == name) => {
                // The first of several is the one that counts.
                local.entry(format!("--{name}")).or_insert_with(|| value.clone());
            }
            name => {
                let taken = take_style(&mut global.style, name, value.as_deref())?
                    || take_tls(&mut tls, name, value.as_deref());
                if !taken {
                    take_logging(name, value.as_deref())?;
                }
            }
        }
    }
    let deadline = Deadline::new(patience);
    global.tls = (!tls.is_empty()).then(|| Arc::new(Tls::new(tls)));
    let commands = commands::parse_chain(&parsed.words, local, commands::COMMANDS)?;
    connect_and_run(global, deadline, &commands, args)
}

fn connect_and_run(
    global: Global,
    deadline: Option<Deadline>,
    commands: &[Command],
    args: &[String],
) -> Result<(), End> {
    let line = escape(args);
    // The system's log records who changed what.
    match commands.iter().any(|command| command.spec.writes) {
        true => tracing::info!(target: "vsctl", "Called as {} {line}", program::name()),
        false => tracing::debug!(target: "vsctl", "Called as {} {line}", program::name()),
    }
    let mut warnings = Vec::new();
    let known = Schema::open_vswitch();
    let selection = commands::prepare(commands, &known, &mut warnings);
    say(&mut warnings);
    let comment = match parent() {
        Some(parent) => format!("ovs-vsctl (invoked by {parent}): {} {line}", program::name()),
        None => format!("ovs-vsctl: {} {line}", program::name()),
    };
    end_well(deadline);
    let session = session::Session::new(global, commands, selection?, comment);
    block_on(session.run())
}

/// Options of a command may be among the program's if the command is the first.
fn command_options() -> Vec<Opt> {
    let mut options: Vec<Opt> = Vec::new();
    for spec in commands::COMMANDS {
        for option in spec.options.split(',').filter(|option| !option.is_empty()) {
            let takes = if option.ends_with('=') { Takes::Value } else { Takes::Nothing };
            let name = option.trim_start_matches("--").trim_end_matches('=');
            if !options.iter().any(|known| known.name == name) {
                options.push(Opt { name, short: None, takes, arg: "ARG", help: "" });
            }
        }
    }
    options
}

/// Warnings on stderr; changes and the command line in the system log.
fn start_log() {
    use log::{Destination, Level, Setting};
    log::start();
    log::set(&Setting::everything_at(Destination::Console, Level::Warning));
    log::set(&Setting::parse("reconnect:warn").expect("a module and a level"));
    log_all_messages();
}

fn log_no_more_than_warnings() {
    use log::{Destination, Level, Setting};
    log::set(&Setting::everything_at(Destination::Syslog, Level::Warning));
}

/// Prints text and ends; a reader that has gone is no error.
fn print(text: &str) -> Result<(), End> {
    print!("{text}");
    Ok(())
}

fn version() -> String {
    let schema = Schema::open_vswitch();
    program::version_text(program::name(), &[&format!("DB Schema {}", schema.version)])
}

/// Arguments as a shell would read them again.
fn escape(args: &[String]) -> String {
    let special = |c: char| c.is_ascii_whitespace() || matches!(c, '\\' | '\'' | '"');
    let quoted: Vec<String> = args
        .iter()
        .map(|arg| match arg.contains(special) || arg.is_empty() {
            true => format!("\"{}\"", arg.replace('\\', "\\\\").replace('"', "\\\"")),
            false => arg.clone(),
        })
        .collect();
    quoted.join(" ")
}

/// The command line and number of the process that called this one, for the database's log.
fn parent() -> Option<String> {
    let pid = rustix::process::getppid()?.as_raw_nonzero();
    let command = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<String> = command
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .take(16)
        .map(|word| String::from_utf8_lossy(word).chars().take(256).collect())
        .collect();
    (!words.is_empty()).then(|| format!("{} (pid {pid})", words.join(" ")))
}
