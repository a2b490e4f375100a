//! The one binary. Each subcommand is a file; this one only chooses.

mod appctl;
mod bench;
mod daemon_args;
mod demo;
mod ofctl;
mod switch;

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
    /// Run a switch with the bridges and ports that flags say.
    Switch(switch::Args),
    /// Run a command in a switch that is running.
    Appctl(appctl::Args),
    /// Show and change flows, ports and settings of a bridge over OpenFlow.
    Ofctl(ofctl::Args),
    /// Measure this switch, and others beside it.
    Bench(bench::Args),
    /// Show real packets crossing a real switch between two network namespaces, with figures.
    Demo(demo::Args),
    /// What the demo starts in its namespaces.
    #[command(hide = true)]
    DemoTraffic(demo::traffic::Args),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Switch(args) => switch::run(args),
        Command::Appctl(args) => appctl::run(args),
        Command::Ofctl(args) => ofctl::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Demo(args) => demo::run(&args),
        Command::DemoTraffic(args) => demo::traffic::run(args),
    }
}
