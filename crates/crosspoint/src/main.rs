//! The one binary. Each subcommand is a file or a directory; this one only chooses.
//!
//! Called by the name of one of Open vSwitch's programs, it is that program (see `programs`).

mod bench;
mod daemon_args;
mod database;
mod demo;
mod guest;
mod ofctl;
mod ovsdb_client;
mod ovsdb_tool;
mod programs;
mod switch;
mod top;
mod vsctl;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// A virtual switch with a poll-mode user-space datapath, spoken to with Open vSwitch's protocols and tools.
#[derive(Parser)]
#[command(name = "crosspoint", version, max_term_width = 120)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a switch with the bridges and ports that a database or flags say.
    Switch(Box<switch::Args>),
    /// Run a command in a daemon that is running, as ovs-appctl does.
    #[command(disable_help_flag = true)]
    Appctl(Elsewhere),
    /// Show and change flows, ports and settings of a bridge over OpenFlow, as ovs-ofctl does.
    #[command(disable_help_flag = true)]
    Ofctl(Elsewhere),
    /// Query and change the configuration of the switch in its database, as ovs-vsctl does.
    #[command(disable_help_flag = true)]
    Vsctl(Elsewhere),
    /// Speak to a database server, as ovsdb-client does.
    #[command(disable_help_flag = true)]
    OvsdbClient(Elsewhere),
    /// Look into the datapath of the switch that is running, as ovs-dpctl does.
    #[command(disable_help_flag = true)]
    Dpctl(Elsewhere),
    /// Serve databases without a switch, as ovsdb-server does.
    #[command(disable_help_flag = true)]
    OvsdbServer(Elsewhere),
    /// Make, convert, read and change database files, as ovsdb-tool does.
    #[command(disable_help_flag = true)]
    OvsdbTool(Elsewhere),
    /// Show what the running switch does: workers, caches, queues, ports, and packets dropped by reason.
    Top(top::Args),
    /// Measure this switch, and others beside it.
    Bench(bench::Args),
    /// Show real packets crossing a real switch between two network namespaces, with figures.
    Demo(demo::Args),
    /// A guest without a virtual machine: attach to vhost-user ports and loop packets back, send, or count.
    Guest(guest::Args),
    /// What the demo starts in its namespaces.
    #[command(hide = true)]
    DemoTraffic(demo::traffic::Args),
}

/// A subcommand that parses its arguments itself: listed here, and run before anything else is parsed.
#[derive(clap::Args)]
struct Elsewhere {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _args: Vec<String>,
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args_os().map(|a| a.to_string_lossy().into_owned()).collect();
    if let Some(code) = programs::asked_for(&args) {
        return code;
    }
    match Cli::parse().command {
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
        Command::Top(args) => top::run(&args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::Guest(args) => guest::run(&args),
        Command::DemoTraffic(args) => demo::traffic::run(args),
    }
}
