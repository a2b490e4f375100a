//! `crosspoint demo-traffic`: what the demo starts inside its network namespaces.
//!
//! A source and a sink of UDP packets on packet sockets, by Crosspoint's own driver, so that two cores
//! suffice for sender, switch and receiver; a TCP stream for machines without `iperf3`; and a guard that ends
//! a child together with the demo. Each prints its result as one line of JSON. All run in one thread and end
//! by themselves: at their time, or when their standard input closes.

mod frame;
mod guard;
mod host;
mod report;
mod sink;
mod source;
mod tcp;

pub use frame::addresses;
pub use sink::SinkReport;
pub use source::{ProbeReport, StreamReport};
pub use tcp::TcpReport;

use std::process::ExitCode;

/// Options of the hidden subcommand.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    role: Role,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Sends UDP packets, as many as come out at the sink, then single probes.
    Source(source::Args),
    /// Counts what the source sends, and sends back what asks for it.
    Sink(host::Interface),
    /// Receives one TCP stream.
    TcpServer(tcp::ServerArgs),
    /// Sends one TCP stream.
    TcpClient(tcp::ClientArgs),
    /// Runs a command that ends when its parent does.
    Guard(guard::Args),
}

/// Plays the role.
pub fn run(args: Args) -> ExitCode {
    let result = match args.role {
        Role::Source(args) => source::run(&args),
        Role::Sink(interface) => sink::run(&interface),
        Role::TcpServer(args) => tcp::serve(&args),
        Role::TcpClient(args) => tcp::send(&args),
        Role::Guard(args) => Err(guard::run(&args)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosspoint demo-traffic: {error}");
            ExitCode::FAILURE
        }
    }
}
