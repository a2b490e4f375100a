//! `crosspoint demo`: real packets through a real switch, between two network namespaces, with figures.
//!
//! The usual test of switches for virtual machines (PVP): in at a physical port (here a veth), to a guest
//! over vhost-user, back, and out at another port. There are eight stages; each shows what it does and with
//! which command. Everything that it creates has one prefix and is removed at the end, on failure and on a
//! signal; the next start removes a killed demo's leftovers. One thread; every wait checks for the stop flag.
//!
//! The demo's switch is not special: it is this binary's `switch`, configured through its database and
//! OpenFlow, with the stock tools if they are installed, and queried through its control socket, as by any
//! user.

mod command;
mod error;
mod guest;
mod lab;
mod report;
mod rules;
mod sample;
mod stages;
mod switch;
pub mod traffic;
mod view;

use self::guest::Guest;
use command::Shell;
use error::DemoError;
use lab::Lab;
use stages::Durations;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use switch::Switch;
use view::View;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// Measure for about a second each, for tests.
    #[arg(long)]
    quick: bool,
    /// Write the streams' figures into this directory too, with a report: report.html.
    #[arg(long, value_name = "DIR")]
    report: Option<PathBuf>,
}

/// Runs the demo. 0 on success, 1 on failure, 130 if a signal ended it.
pub fn run(args: &Args) -> ExitCode {
    if !rustix::process::geteuid().is_root() {
        eprintln!(
            "crosspoint demo: this needs root, because it makes network namespaces and AF_XDP sockets. \
             Run: sudo env PATH=\"$PATH\" make demo"
        );
        return ExitCode::FAILURE;
    }
    match stop_flag().map_err(DemoError::from).and_then(|stop| demo(args, stop)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(DemoError::Interrupted) => {
            eprintln!("crosspoint demo: interrupted; everything that it made has been removed");
            ExitCode::from(130)
        }
        Err(DemoError::Failed(why)) => {
            eprintln!("crosspoint demo: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Raised by the signals that ask a program to end.
fn stop_flag() -> std::io::Result<Arc<AtomicBool>> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, stop.clone())?;
    }
    Ok(stop)
}

fn demo(args: &Args, stop: Arc<AtomicBool>) -> Result<(), DemoError> {
    let no_report = |why| DemoError::Failed(format!("no report: {why}"));
    if let Some(dir) = &args.report {
        bench::check_drawable(dir).map_err(no_report)?;
    }
    let shell = Shell::new(stop)?;
    let durations = if args.quick { Durations::QUICK } else { Durations::FULL };
    shell.introduce();
    shell.stage("two hosts: network namespaces, each connected to this one by a veth pair");
    let lab = Lab::build(&shell)?;
    shell.stage("a guest that sends every packet back, and a switch with one worker");
    let guest = Guest::start(&shell)?;
    let switch = Switch::start(&shell, guest.pid())?;
    let view = View::new();

    shell
        .stage("the database: a bridge with an AF_XDP port on each veth and a vhost-user port for the guest");
    switch.configure(&shell)?;
    shell.stage("OpenFlow rules: ARP, and one rule per flow and direction, all through the guest");
    rules::add_hosts(&shell)?;
    shell.stage("ping between the two hosts");
    let ping = stages::ping(&shell, &durations)?;
    shell.stage("TCP: one stream through kernel sockets, with offloaded checksums and segmentation");
    let tcp = stages::tcp(&shell, &switch, &view, &durations)?;
    shell.stage("UDP: frames of 64 and 1518 bytes in 10, 1,000 and 10,000 flows, each with its own rules");
    let streams = stages::streams(&shell, &switch, &view, &durations)?;
    shell.stage("drops: packets that match no rule are counted under a reason");
    let drops = stages::strangers(&shell, &switch)?;

    let shown: Vec<bench::Shown> = streams.iter().map(stages::Stream::shown).collect();
    let ports = switch.sample()?.ports;
    switch.stop();
    guest.stop();
    drop(lab);
    println!();
    print!("{}", report::text(&report::Figures { ping, tcp, streams, drops, ports }));
    if let Some(dir) = &args.report {
        let page = bench::draw(dir, &shown).map_err(no_report)?;
        println!("report: {}", page.display());
    }
    Ok(())
}
