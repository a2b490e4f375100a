//! The one binary. Each subcommand is a file or a directory; this one only chooses.
//!
//! Called by the name of one of Open vSwitch's programs, it is that program (see `programs`).

#[macro_use]
extern crate host;

mod bench;
mod check;
mod daemon_args;
mod demo;
mod doctor;
mod generate;
mod guest;
mod manual;
mod programs;
mod switch;
mod top;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::io::{IsTerminal, stderr, stdout};
use std::process::ExitCode;

/// A virtual switch with a poll-mode datapath in user space, a drop-in replacement for Open vSwitch.
#[derive(Parser)]
#[command(name = "crosspoint", version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the switch, with bridges and ports from a database or from flags.
    Switch(Box<switch::Args>),
    /// Run a command in a running daemon (ovs-appctl).
    #[command(disable_help_flag = true)]
    Appctl(Elsewhere),
    /// Show and change flows, ports and settings of a bridge over OpenFlow (ovs-ofctl).
    #[command(disable_help_flag = true)]
    Ofctl(Elsewhere),
    /// Show and change the configuration of the switch (ovs-vsctl).
    #[command(disable_help_flag = true)]
    Vsctl(Elsewhere),
    /// Talk to a database server.
    #[command(disable_help_flag = true)]
    OvsdbClient(Elsewhere),
    /// Inspect the datapath of the running switch (ovs-dpctl).
    #[command(disable_help_flag = true)]
    Dpctl(Elsewhere),
    /// Serve databases without a switch.
    #[command(disable_help_flag = true)]
    OvsdbServer(Elsewhere),
    /// Create, convert, read and change database files.
    #[command(disable_help_flag = true)]
    OvsdbTool(Elsewhere),
    /// List what the switch would ignore or refuse in a database, before a migration.
    Check(check::Args),
    /// Watch the running switch live: workers, caches, queues, ports and drops.
    Top(top::Args),
    /// Show what on this machine slows the switch down, and how to change it.
    Doctor(doctor::Args),
    /// Measure this switch, and others beside it.
    Bench(bench::Args),
    /// Send real traffic through a switch between two network namespaces, and print figures.
    Demo(demo::Args),
    /// Attach a guest without a virtual machine to vhost-user ports: loop packets back, send, or count.
    Guest(guest::Args),
    /// Write manual pages and completion scripts.
    Generate(generate::Args),
    /// What the demo starts in its namespaces.
    #[command(hide = true)]
    DemoTraffic(demo::traffic::Args),
}

/// A subcommand that parses its own arguments: it is listed here, and runs before anything else is parsed.
#[derive(clap::Args)]
struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _args: Vec<String>,
}

fn main() -> ExitCode {
    base::heap::free_evenly();
    let args: Result<Vec<String>, _> = std::env::args_os().map(|arg| arg.into_string()).collect();
    let mut args = match args {
        Ok(args) => args,
        Err(arg) => {
            eprintln!("crosspoint: {}: this argument is not UTF-8", arg.to_string_lossy());
            return ExitCode::FAILURE;
        }
    };
    if let Some(code) = programs::asked_for(&mut args) {
        host::output::flush();
        return code;
    }
    let parsed = manual::own::cli(Cli::command()).try_get_matches_from(&args);
    let code = match parsed.and_then(|matches| Cli::from_arg_matches(&matches)) {
        Ok(cli) => run(cli.command),
        Err(error) => refused(&error),
    };
    host::output::flush();
    code
}

/// Prints the requested help or version, or what is wrong with the arguments.
fn refused(error: &clap::Error) -> ExitCode {
    let text = error.render();
    let is_seen = if error.use_stderr() { stderr().is_terminal() } else { stdout().is_terminal() };
    let text = if is_seen { text.ansi().to_string() } else { text.to_string() };
    if error.use_stderr() {
        eprint!("{text}");
    } else {
        print!("{text}");
    }
    ExitCode::from(error.exit_code() as u8)
}

fn run(command: Command) -> ExitCode {
    match command {
        Command::Switch(args) => switch::run(*args),
        Command::Appctl(_)
        | Command::Ofctl(_)
        | Command::Dpctl(_)
        | Command::OvsdbServer(_)
        | Command::OvsdbTool(_)
        | Command::Vsctl(_)
        | Command::OvsdbClient(_) => {
            unreachable!("run above: their names are in the table of programs")
        }
        Command::Check(args) => check::run(args),
        Command::Top(args) => top::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Guest(args) => guest::run(&args),
        Command::Generate(args) => generate::run(&args, Cli::command()),
        Command::DemoTraffic(args) => demo::traffic::run(args),
    }
}
