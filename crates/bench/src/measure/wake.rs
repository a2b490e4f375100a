//! Sleep: what waking costs, and what an idle switch costs.
//!
//! Wake: a frame is put into a port while the worker sleeps, and the time is taken until it has come out of
//! another; compared, in turns, with a bare thread that waits on an eventfd and answers. The difference is
//! what the switch adds.
//!
//! Guest: a sleeping guest sends a frame to the sleeping switch, which sends it back through the port that it
//! came from. That takes two wake-ups, the switch's and the guest's; the rest is due to the switch and the
//! rings. Also the CPU time of that switch while the guest is silent.
//!
//! Idle: our daemon with eight ports of a kind on kernel interfaces and no traffic; its CPU time relative to
//! the time that passes.

use crate::daemon::Daemon;
use crate::lab::net::Net;
use crate::lab::switch::MTU_USUAL;
use crate::machine::turns::turn;
use crate::measure::rig::{Rig, WORKER_CPU};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use base::{OfPort, PortNo};
use datapath::Config;
use flow::{Action, FieldId, Match};
use guest::{Guest, GuestConfig, QueuePair};
use packet::wait::Waiter;
use ports::PortSpec;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use switch::control::FlowMod;

/// Ports of the idle switch.
const IDLE_PORTS: usize = 8;
/// Wakes per turn, with time to fall asleep between them.
const WAKES: usize = 200;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Types of the idle switch's ports; `none` leaves that part out.
    #[arg(long, value_delimiter = ',', value_parser = ["afxdp", "tap", "none"], default_value = "afxdp,tap")]
    idle: Vec<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    /// `wake`, `guest` (a round trip of two wakes) or `idle`.
    what: &'static str,
    port_type: String,
    /// Medians over the wakes of a turn.
    wake_us: Option<f64>,
    bare_wake_us: Option<f64>,
    added_us: Option<f64>,
    /// Share of one processor.
    cpu_share: Option<f64>,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut goals = Goals::default();
    let mut rows = Rows::default();
    rows.push(wake_row(args, &mut goals)?);
    rows.extend(guest_rows(args, &mut goals)?);
    for kind in args.idle.iter().filter(|k| *k != "none") {
        rows.push(idle_row(args, kind, &mut goals)?);
    }
    args.common.finish(rows, goals)
}

/// The median of many, which are a turn.
fn median_of(mut one_us: impl FnMut() -> Result<f64, String>) -> Result<f64, String> {
    turn("crosspoint", || (0..WAKES).map(|_| one_us()).collect::<Result<Vec<_>, _>>()).map(|all| median(&all))
}

fn wake_row(args: &Args, goals: &mut Goals) -> Result<Row, String> {
    let mut rig = Rig::new(Config::default())?;
    let (input, output) = (PortSpec::new("in", "dummy", SOURCE), PortSpec::new("out", "null", SINK));
    rig.add_port(&input)?;
    rig.add_port(&output)?;
    rig.add_rules(&[FlowMod::add(Match::any().with(FieldId::InPort, 1), trial::to_sink())])?;
    rig.run_for(Duration::from_millis(300));
    let bare = BareWaker::start()?;
    let (mut switch_us, mut bare_us) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        bare_us.push(median_of(|| bare.wake())?);
        switch_us.push(median_of(|| through_switch(&rig))?);
    }
    let raw: Vec<f64> = switch_us.iter().zip(&bare_us).map(|(s, b)| s - b).collect();
    println!(
        "wake: {:.1} us through the switch, {:.1} us bare: {:.1} us added",
        median(&switch_us),
        median(&bare_us),
        median(&raw)
    );
    goals.never_above(
        "microseconds above a bare wake, the median of the turns",
        &[median(&raw)],
        crate::goals::WAKE_MOST_US,
    );
    Ok(Row {
        switch: "crosspoint",
        what: "wake",
        port_type: "dummy".into(),
        wake_us: Some(median(&switch_us)),
        bare_wake_us: Some(median(&bare_us)),
        added_us: Some(median(&raw)),
        cpu_share: None,
        runs: args.common.runs,
        raw,
    })
}

/// A guest's round trip through a switch that sleeps, and what that switch costs while nothing comes.
fn guest_rows(args: &Args, goals: &mut Goals) -> Result<[Row; 2], String> {
    let dir = TempDir::new("wake")?;
    let socket = dir.0.join("guest");
    let mut rig = Rig::new(Config::default())?;
    let listener = {
        let socket = socket.clone();
        std::thread::spawn(move || {
            Guest::listen(&socket, &GuestConfig::default(), Duration::from_secs(30))
                .map_err(|e| e.to_string())
        })
    };
    crate::process::wait_for(&socket)?;
    let port = PortSpec::new("guest", "dpdkvhostuserclient", SOURCE);
    rig.add_port(&port.with("vhost-server-path", &socket.to_string_lossy()))?;
    let back = vec![Action::Output { port: OfPort::IN_PORT, max_len: 0 }];
    rig.add_rules(&[FlowMod::add(Match::any().with(FieldId::InPort, 1), back)])?;
    let mut guest = listener.join().map_err(|_| "the guest's thread panicked")??;
    let mut pair = guest.take_pairs().pop().ok_or("a guest without rings")?;
    rig.run_for(Duration::from_millis(500));
    let bare = BareWaker::start()?;
    let (mut trip_us, mut bare_us) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        bare_us.push(median_of(|| bare.wake())?);
        trip_us.push(median_of(|| round_trip(&mut pair))?);
    }
    let raw: Vec<f64> = trip_us.iter().zip(&bare_us).map(|(t, b)| t - 2.0 * b).collect();
    println!(
        "guest: {:.1} us from the guest through the switch and back, {:.1} us a bare wake: {:.1} us above two of them",
        median(&trip_us),
        median(&bare_us),
        median(&raw)
    );
    goals.never_above(
        "microseconds of a guest's round trip above two bare wakes, the median of the turns",
        &[median(&raw)],
        crate::goals::GUEST_WAKE_MOST_US,
    );
    let worker = rig.datapath.worker_thread_id(0);
    let mut shares = Vec::new();
    for _ in 0..args.common.runs {
        let (before, start) = (base::clock::cpu_time_ns(worker).unwrap_or(0), Instant::now());
        turn("crosspoint", || std::thread::sleep(2 * args.common.turn()));
        let ns = base::clock::cpu_time_ns(worker).unwrap_or(0) - before;
        shares.push(ns as f64 / start.elapsed().as_nanos() as f64);
    }
    println!("idle with a guest attached: {:.4} of a processor", median(&shares));
    goals.never_above(
        "idle share of a processor with a guest attached",
        &[median(&shares)],
        crate::goals::IDLE_MOST,
    );
    let row = |what, wake_us: Option<f64>, bare_wake_us, added_us, cpu_share, raw| Row {
        switch: "crosspoint",
        what,
        port_type: "dpdkvhostuserclient".into(),
        wake_us,
        bare_wake_us,
        added_us,
        cpu_share,
        runs: args.common.runs,
        raw,
    };
    let trip = row("guest", Some(median(&trip_us)), Some(median(&bare_us)), Some(median(&raw)), None, raw);
    Ok([trip, row("idle", None, None, None, Some(median(&shares)), shares)])
}

/// Microseconds from a frame's leaving a guest until the guest has slept, been woken and seen it come back.
fn round_trip(pair: &mut QueuePair) -> Result<f64, String> {
    // Long enough for the worker to be asleep again.
    std::thread::sleep(Duration::from_millis(2));
    let frame = crate::measure::frames::frame(0);
    let start = Instant::now();
    if !pair.send(&frame) || !pair.wait(Duration::from_secs(5)) {
        return Err("a frame did not come back to the guest in 5 s".into());
    }
    let us = start.elapsed().as_secs_f64() * 1e6;
    match pair.discard(2) {
        1 => Ok(us),
        n => Err(format!("{n} frames came back for one")),
    }
}

/// Microseconds from the injection of a frame until the other port has counted it.
fn through_switch(rig: &Rig) -> Result<f64, String> {
    // Long enough to be asleep again: it polls for 60 us.
    std::thread::sleep(Duration::from_millis(2));
    let port = |no: PortNo| rig.datapath.port(no).ok_or("the rig's port");
    let dummy = port(SOURCE)?.as_dummy().ok_or("a dummy port")?;
    let sink = port(SINK)?;
    let frame = crate::measure::frames::frame(0);
    let before = sink.stats().tx_packets;
    let start = Instant::now();
    dummy.inject(&frame);
    while sink.stats().tx_packets == before {
        if start.elapsed() > Duration::from_secs(5) {
            return Err("a frame did not come through in 5 s".into());
        }
        std::hint::spin_loop();
    }
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// A thread on the worker's processor that waits on an eventfd and counts.
struct BareWaker {
    bell: Arc<packet::wait::Bell>,
    woken: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl BareWaker {
    fn start() -> Result<BareWaker, String> {
        let waiter = Waiter::new().map_err(|e| e.to_string())?;
        let (bell, woken, stop) =
            (waiter.bell(), Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (its_woken, its_stop) = (woken.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            packet::thread::pin(WORKER_CPU);
            while !its_stop.load(Ordering::Acquire) {
                waiter.wait(60_000);
                its_woken.fetch_add(1, Ordering::Release);
            }
        });
        Ok(BareWaker { bell, woken, stop, thread: Some(thread) })
    }

    /// Microseconds from ringing until the thread runs.
    fn wake(&self) -> Result<f64, String> {
        std::thread::sleep(Duration::from_millis(2));
        let before = self.woken.load(Ordering::Acquire);
        let start = Instant::now();
        self.bell.ring();
        while self.woken.load(Ordering::Acquire) == before {
            if start.elapsed() > Duration::from_secs(5) {
                return Err("a bare thread did not wake in 5 s".into());
            }
            std::hint::spin_loop();
        }
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }
}

impl Drop for BareWaker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        // It contains nothing that could panic.
        let _ = self.thread.take().map(std::thread::JoinHandle::join);
    }
}

/// Sets an interface up once the switch has made it there.
fn set_up(net: &Net, interface: &str) -> Result<(), String> {
    let start = Instant::now();
    loop {
        match net.batch(&net.switch, &format!("link set {interface} up")) {
            Err(_) if start.elapsed() < Duration::from_secs(10) => {
                std::thread::sleep(Duration::from_millis(50));
            }
            result => return result,
        }
    }
}

fn idle_row(args: &Args, kind: &str, goals: &mut Goals) -> Result<Row, String> {
    // Taps are made by the ports themselves, and left down.
    let pairs: Vec<usize> = (0..if kind == "afxdp" { IDLE_PORTS } else { 0 }).collect();
    let net = Net::new(&pairs, false, MTU_USUAL, 1, &[])?;
    let ports: Vec<String> = (0..IDLE_PORTS).map(|n| format!("p{n},type={kind},ofport={}", n + 1)).collect();
    let flags: Vec<&str> = ports.iter().flat_map(|p| ["--port", p.as_str()]).collect();
    let daemon = Daemon::crosspoint(Some(&net.switch), &flags)?;
    for n in 0..IDLE_PORTS {
        set_up(&net, &format!("p{n}"))?;
    }
    // In a quick run, too: for this long, links that have just come up send frames (IPv6's addresses).
    std::thread::sleep(Duration::from_secs(2));
    let mut raw = Vec::new();
    for _ in 0..args.common.runs {
        let (before, start) = (daemon.process.cpu_ns(), Instant::now());
        turn("crosspoint", || std::thread::sleep(2 * args.common.turn()));
        raw.push((daemon.process.cpu_ns() - before) as f64 / start.elapsed().as_nanos() as f64);
    }
    println!("idle with {IDLE_PORTS} {kind} ports: {:.4} of a processor", median(&raw));
    goals.never_above(
        &format!("idle share of a processor with {kind} ports"),
        &[median(&raw)],
        crate::goals::IDLE_MOST,
    );
    Ok(Row {
        switch: "crosspoint",
        what: "idle",
        port_type: kind.into(),
        wake_us: None,
        bare_wake_us: None,
        added_us: None,
        cpu_share: Some(median(&raw)),
        runs: args.common.runs,
        raw,
    })
}
