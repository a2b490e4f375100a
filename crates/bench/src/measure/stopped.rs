//! A guest that stops reading, and the rate that another port keeps meanwhile.
//!
//! An established flow goes from a source in memory to a sink; another source sends, as fast as it is polled,
//! to a guest of the benchmark's own (`feeds`: only there, or every other packet to the sink, so that it is
//! never held back). The guest reads or does not, in turns: the rate to the sink while it does not, relative
//! to the rate while it does, is what the other port keeps.

use crate::machine::turns::turn;
use crate::measure::frames::{addresses, frame};
use crate::measure::rig::{DRIVER_CPU, Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::process::TempDir;
use crate::stats::median;
use base::{OfPort, PortNo};
use datapath::Config;
use flow::{Action, FieldId, Match};
use guest::{Guest, GuestConfig, QueuePair};
use packet::LinkState;
use ports::PortSpec;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use switch::control::FlowMod;

/// The source that feeds the guest.
const FEEDER: PortNo = PortNo(3);
const GUEST: PortNo = PortNo(4);
/// Packets that the guest takes at once.
const BURST: usize = 64;
/// From a change of the guest's behaviour to a turn.
const SETTLE: Duration = Duration::from_millis(200);

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    /// Whom the guest's source feeds: `guest`, or `guest_and_sink` in turn.
    feeds: &'static str,
    /// Packets that leave by the other port, per second of the worker's CPU time.
    reading_packets_per_s: f64,
    stopped_packets_per_s: f64,
    /// The second in ratio to the first.
    kept_ratio: f64,
    /// Packets that the guest did not take, counted at its port while it had stopped.
    dropped_per_s: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// A guest's driver with a thread of its own.
struct Reader {
    reads: Arc<AtomicBool>,
    ending: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
    /// Its connection, as long as it should exist.
    _guest: Guest,
}

impl Reader {
    fn start(mut guest: Guest) -> Result<Reader, String> {
        let mut pair = guest.take_pairs().pop().ok_or("a guest without rings")?;
        let (reads, ending) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
        let its = (reads.clone(), ending.clone());
        let thread = std::thread::spawn(move || {
            packet::thread::pin(DRIVER_CPU);
            read(&mut pair, &its.0, &its.1);
        });
        Ok(Reader { reads, ending, thread: Some(thread), _guest: guest })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn read(pair: &mut QueuePair, reads: &AtomicBool, ending: &AtomicBool) {
    while !ending.load(Ordering::Relaxed) {
        if !reads.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        } else if pair.discard(BURST) == 0 {
            std::hint::spin_loop();
        }
    }
}

/// `fairness --beside stopped-guest`.
pub fn run(common: &Common) -> Result<(), String> {
    let dir = TempDir::new("stopped")?;
    let (one, two) = (dir.0.join("one.pcap"), dir.0.join("two.pcap"));
    trial::write_frames(&one, std::iter::once(frame(0)))?;
    trial::write_frames(&two, (1..3).map(frame))?;
    let mut rig = Rig::new(Config::default())?;
    let reader = add_guest(&mut rig, &dir.0.join("guest"))?;
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::source(SOURCE, &one))?;
    rig.add_port(&trial::source(FEEDER, &two))?;
    let from = |port: PortNo| Match::any().with(FieldId::InPort, port.0.into());
    let to_guest = || vec![Action::Output { port: OfPort(GUEST.0 as u16), max_len: 0 }];
    rig.add_rules(&[FlowMod::add(from(SOURCE), trial::to_sink()), FlowMod::add(from(FEEDER), to_guest())])?;
    let mut rows = Rows::default();
    rows.push(measure(&mut rig, &reader, common, "guest"));
    // Every other packet of the feeder is the other flow's.
    let second = from(FEEDER)
        .with(FieldId::EthType, 0x0800)
        .with(FieldId::NwSrc, addresses(2).0.to_bits().into())
        .with(FieldId::NwDst, addresses(2).1.to_bits().into());
    rig.add_rules(&[FlowMod { priority: 0xffff, ..FlowMod::add(second, trial::to_sink()) }])?;
    rows.push(measure(&mut rig, &reader, common, "guest_and_sink"));
    let mut goals = Goals::default();
    for row in rows.iter() {
        goals.at_least(
            &format!("rate that another port keeps (fed: {})", row.feeds),
            &row.raw,
            crate::goals::STOPPED_GUEST_LEAST,
        );
        goals.at_least("packets per second that the guest did not take", &[row.dropped_per_s], 1.0);
    }
    common.finish(rows, goals)
}

fn add_guest(rig: &mut Rig, socket: &Path) -> Result<Reader, String> {
    let path = socket.to_owned();
    let listener = std::thread::spawn(move || {
        Guest::listen(&path, &GuestConfig::default(), Duration::from_secs(30)).map_err(|e| e.to_string())
    });
    crate::process::wait_for(socket)?;
    let spec = PortSpec::new("guest", "dpdkvhostuserclient", GUEST);
    rig.add_port(&spec.with("vhost-server-path", &socket.to_string_lossy()))?;
    let guest = listener.join().map_err(|_| "the guest's thread failed")??;
    let start = Instant::now();
    while rig.datapath.port(GUEST).map(|p| p.status().link) != Some(LinkState::Up) {
        if start.elapsed() > Duration::from_secs(10) {
            return Err("the guest's port did not come up".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Reader::start(guest)
}

fn measure(rig: &mut Rig, reader: &Reader, common: &Common, feeds: &'static str) -> Row {
    rig.warm_up(settle(1_000, common.turn_ms));
    let (mut reading, mut stopped, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..common.runs {
        reading.push(rates(rig, common.turn()).0);
        reader.reads.store(false, Ordering::Relaxed);
        rig.run_for(SETTLE);
        let (sent, lost) = rates(rig, common.turn());
        stopped.push(sent);
        dropped.push(lost);
        reader.reads.store(true, Ordering::Relaxed);
        rig.run_for(SETTLE);
    }
    let raw: Vec<f64> = stopped.iter().zip(&reading).map(|(s, r)| s / r).collect();
    let row = Row {
        switch: "crosspoint",
        what: "stopped_guest",
        feeds,
        reading_packets_per_s: median(&reading),
        stopped_packets_per_s: median(&stopped),
        kept_ratio: median(&raw),
        dropped_per_s: median(&dropped),
        runs: common.runs,
        raw,
    };
    println!(
        "another port beside a guest that has stopped (fed: {feeds}): {:.2} million packets/s, {:.2} while it read: \
         keeps {:.3}; {:.3} million/s lost at the guest",
        row.stopped_packets_per_s / 1e6,
        row.reading_packets_per_s / 1e6,
        row.kept_ratio,
        row.dropped_per_s / 1e6,
    );
    row
}

/// Packets that left by the sink, and packets that the guest's port lost, per second of the worker's CPU
/// time.
fn rates(rig: &mut Rig, time: Duration) -> (f64, f64) {
    let read = |rig: &Rig| {
        let cpu = base::clock::cpu_time_ns(rig.datapath.worker_thread_id(0)).unwrap_or(0);
        let (sink, guest) = (rig.datapath.port_stats(SINK), rig.datapath.port_stats(GUEST));
        (sink.tx_packets, guest.tx_dropped, cpu)
    };
    let before = read(rig);
    turn("crosspoint", || rig.run_for(time));
    let after = read(rig);
    let cpu_s = (after.2 - before.2) as f64 / 1e9;
    ((after.0 - before.0) as f64 / cpu_s, (after.1 - before.1) as f64 / cpu_s)
}
