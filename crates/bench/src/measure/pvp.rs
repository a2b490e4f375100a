//! The test of the Red Hat text on Open vSwitch's performance: physical port, virtual machine, physical port.
//!
//! A source in memory represents the wire; its packets go to a guest over vhost-user, are looped back by it,
//! and end in a sink, with one OpenFlow rule for each flow and direction. The worker has one processor, the
//! guest the other. With `--peer ovs-dpdk` the same is measured on Open vSwitch with DPDK in turns: the same
//! frames from memory, the same rules, a guest of the same kind with rings of the same size. Packets are
//! offered at wire speed and may be lost; they are counted at the sink, and the cost of one is the switch's
//! busy cycles per packet delivered there.
//!
//! With `--path guest-to-guest`, or to find the highest rate that loses no more than `--loss` allows, the
//! packets come from a guest of the benchmark's own ([`pvp_guests`]) instead of a source in memory.

use crate::goals;
use crate::machine::lease;
use crate::machine::turns::turn;
use crate::measure::frames::{self, Order};
use crate::measure::ovs_dpdk::OvsDpdk;
use crate::measure::p2p::Peer;
use crate::measure::pvp_guests::{self, Route};
use crate::measure::pvp_types::{
    Args, GUEST, GuestKind, Lost, RING_SIZE, Row, SINK, SOURCE, Turn, Way, miss_ratio, row, rules, rules_text,
};
use crate::measure::rig::{DRIVER_CPU, Meter, Rig, settle};
use crate::measure::rows::Rows;
use crate::measure::trial::Goals;
use crate::process::{Process, TempDir};
use crate::result::MISSES_MAX;
use base::PortNo;
use datapath::Config;
use packet::LinkState;
use ports::PortSpec;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How often the counters of both ends are read; the quickest reading counts.
const READ_TRIES: usize = 3;

/// The goal for this figure.
fn goal(row: &Row, figure: &str) -> Option<f64> {
    let (size, flows) = (row.size.to_string(), row.flows.to_string());
    let path = match row.path {
        Way::Loopback => "loopback",
        Way::GuestToGuest => "guest-to-guest",
    };
    let loss = row.loss_allowed.map_or_else(|| "none".into(), |loss| loss.to_string());
    let labels = [("path", path), ("size", &*size), ("flows", &*flows), ("loss_allowed", &*loss)];
    goals::bound("pvp", &labels, figure)
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("pvp")?;
    let mut peer = match args.peer {
        Some(Peer::OvsDpdk) => Some(OvsDpdk::start()?),
        None => None,
    };
    if let Some(peer) = &peer {
        // The peer's own sink is its port 2 elsewhere; here 2 is the guest's.
        peer.drop_port("sink")?;
        peer.add_sink(SINK.0 as u16)?;
    }
    let mut rows = Rows::default();
    let mut goals = Goals::default();
    for &size in &args.sizes {
        for &flows in &args.flows {
            let new = match (args.path, args.loss) {
                (Way::GuestToGuest, _) => {
                    pvp_guests::point(args, &dir.0, Route::GuestToGuest, size, flows, peer.as_mut())?
                }
                (Way::Loopback, Some(_)) => {
                    pvp_guests::point(args, &dir.0, Route::Loopback, size, flows, peer.as_mut())?
                }
                (Way::Loopback, None) => {
                    let pcap = dir.0.join(format!("{size}-{flows}.pcap"));
                    frames::write_pcap_of(&pcap, flows, Order::Shuffled, usize::from(size) - 4)?;
                    point(args, &dir.0, size, flows, &pcap, peer.as_mut())?
                }
            };
            new.iter().for_each(print_row);
            compare(&new, &mut goals);
            rows.extend(new);
        }
        flatness(&rows, size, &mut goals);
    }
    args.common.finish(rows, goals)
}

fn print_row(row: &Row) {
    println!(
        "{:<10} {:?} {:?} {:>4} bytes {:>6} flows: {:>7.1} busy cycles per packet delivered, {:>6.3} Mpps, loss {:.3}, \
         CPU switch {:.2} guest {:.2}{}",
        row.switch,
        row.path,
        row.guest,
        row.size,
        row.flows,
        row.cycles_per_packet,
        row.mpps,
        row.loss,
        row.cpu_switch,
        row.cpu_guest,
        if row.void { " (void: the guest or the tester was the limit)" } else { "" },
    );
}

fn compare(rows: &[Row], goals: &mut Goals) {
    let find = |name: &str| rows.iter().find(|r| r.switch == name);
    let (Some(ours), Some(theirs)) = (find("crosspoint"), find("ovs-dpdk")) else { return };
    let load = format!("{} bytes {} flows", ours.size, ours.flows);
    let ratios =
        |over: &[f64], under: &[f64]| over.iter().zip(under).map(|(o, u)| o / u).collect::<Vec<f64>>();
    let ratio = theirs.cycles_per_packet / ours.cycles_per_packet;
    println!("    packets per busy CPU-second in ratio to the peer's: {ratio:.2}");
    if let Some(missed) = [ours, theirs].into_iter().find(|row| row.miss_ratio > MISSES_MAX) {
        println!("    no ratio of rates or costs, since {} missed its caches", missed.switch);
        return;
    }
    if let Some(loss) = ours.loss_allowed {
        println!("    rate in ratio to the peer's: {:.2}", ours.mpps / theirs.mpps);
        if let Some(goal) = goal(ours, "mpps") {
            // If no rate of the peer was found, there is no ratio either.
            let ratios = ratios(&ours.raw_mpps, &theirs.raw_mpps);
            goals.at_least(
                &format!("{load}, rate at a loss of {loss} in ratio to the peer's"),
                &ratios,
                goal,
            );
        }
    } else if let Some(goal) = goal(ours, "cycles_per_packet") {
        // The goals of cost are those of tests at wire speed.
        let ratios = ratios(&theirs.raw, &ours.raw);
        goals.at_least(&format!("{load}, packets per busy CPU-second in ratio to the peer's"), &ratios, goal);
    }
}

/// The cost of our 10,000 flows as a ratio to 10 flows.
fn flatness(rows: &[Row], size: u16, goals: &mut Goals) {
    let ours =
        |flows: usize| rows.iter().find(|r| r.switch == "crosspoint" && (r.size, r.flows) == (size, flows));
    let (Some(few), Some(many)) = (ours(10), ours(10_000)) else { return };
    let Some(goal) = goal(many, "cycles_per_packet to flows=10") else { return };
    let ratios: Vec<f64> = many.raw.iter().zip(&few.raw).map(|(many, few)| many / few).collect();
    goals.at_most(&format!("{size} bytes: cost of 10,000 flows in ratio to 10"), &ratios, goal);
}

/// A guest process.
struct Guest {
    process: Process,
}

impl Guest {
    fn start(kind: GuestKind, dir: &Path, socket: &Path) -> Result<Guest, String> {
        // A socket of one before would be in its way.
        let _ = std::fs::remove_file(socket);
        let log = std::fs::File::create(dir.join("guest.log")).map_err(|e| e.to_string())?;
        let mut command = match kind {
            GuestKind::Builtin => {
                let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
                command.args(["guest", "--listen", "--poll", "--ring-size", &RING_SIZE.to_string()]);
                command.args(["--cpu", &DRIVER_CPU.to_string()]).arg(socket);
                command
            }
            GuestKind::Testpmd => {
                let mut command = Command::new("dpdk-testpmd");
                let name = socket.file_name().and_then(|n| n.to_str()).unwrap_or("guest").to_string();
                // The main thread sleeps; the forwarding one has the guest's processor.
                command.args(["--lcores", &format!("8@{DRIVER_CPU},9@{DRIVER_CPU}")]);
                command.args(["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"]);
                command.arg(format!("--file-prefix=pvp-{}-{name}", std::process::id()));
                lease::keep_dpdk_files_in(dir, &mut command);
                let device = format!("path={},server=1,queues=1,queue_size={RING_SIZE}", socket.display());
                command.arg(format!("--vdev=net_virtio_user0,{device}"));
                command.args(["--", "--forward-mode=io", "--nb-cores=1", "--total-num-mbufs=4096"]);
                command.args([format!("--rxd={RING_SIZE}"), format!("--txd={RING_SIZE}")]);
                command
            }
        };
        let copy = log.try_clone().map_err(|e| e.to_string())?;
        let process = Process::spawn(command.stdin(Stdio::piped()).stdout(copy).stderr(log))?;
        Ok(Guest { process })
    }

    /// CPU time of all its threads.
    fn cpu_s(&self) -> f64 {
        self.process.cpu_ns() as f64 / 1e9
    }
}

/// Both switches at one size and number of flows.
fn point(
    args: &Args,
    dir: &Path,
    size: u16,
    flows: usize,
    pcap: &Path,
    mut peer: Option<&mut OvsDpdk>,
) -> Result<Vec<Row>, String> {
    let time = args.common.turn();
    let our_socket = dir.join("ours");
    let their_socket = dir.join("theirs");
    let their_guest = match &mut peer {
        Some(peer) => {
            peer.resume()?;
            peer.drop_source()?;
            peer.drop_port("vhost")?;
            peer.set_rules(&rules_text(flows, Some(SINK)))?;
            let guest = Guest::start(args.guest, dir, &their_socket)?;
            crate::process::wait_for(&their_socket)?;
            peer.add_vhost("vhost", &their_socket, GUEST.0 as u16)?;
            // It connects, then the guest's driver starts; only then may packets arrive.
            std::thread::sleep(Duration::from_secs(3));
            peer.set_source(pcap)?;
            peer.warm_up(Duration::from_secs(3))?;
            peer.pause()?;
            guest.process.pause();
            Some(guest)
        }
        None => None,
    };
    let our_guest = Guest::start(args.guest, dir, &our_socket)?;
    crate::process::wait_for(&our_socket)?;
    let mut rig = Rig::new(Config::default())?;
    let source = PortSpec::new("source", "pcap", SOURCE)
        .with("rx_file", &pcap.to_string_lossy())
        .with("loop", "true")
        .with_files_beside([pcap]);
    let guest = PortSpec::new("vhost", "dpdkvhostuserclient", GUEST)
        .with("vhost-server-path", &our_socket.to_string_lossy());
    rig.add_port(&PortSpec::new("sink", "null", SINK))?;
    rig.add_port(&guest)?;
    wait_for_link(&rig, dir, settle(2_000, args.common.turn_ms))?;
    rig.add_rules(&rules(flows, Some(SINK)))?;
    rig.add_port(&source)?;
    rig.warm_up(settle(2_000, args.common.turn_ms));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        ours.push(turn("crosspoint", || our_turn(&mut rig, &our_guest, time)));
        if let (Some(peer), Some(their_guest)) = (&mut peer, &their_guest) {
            rig.detach(SOURCE)?;
            our_guest.process.pause();
            their_guest.process.resume();
            peer.resume()?;
            peer.warm_up(Duration::from_millis(500))?;
            theirs.push(turn("ovs-dpdk", || their_turn(peer, their_guest, time))?);
            peer.pause()?;
            their_guest.process.pause();
            our_guest.process.resume();
            rig.add_port(&source)?;
            rig.run_for(Duration::from_millis(500));
        }
    }
    let mut rows = vec![row("crosspoint", args, size, flows, &ours)];
    if !theirs.is_empty() {
        rows.push(row("ovs-dpdk", args, size, flows, &theirs));
    }
    Ok(rows)
}

fn wait_for_link(rig: &Rig, dir: &Path, long: Duration) -> Result<(), String> {
    let start = Instant::now();
    let link = || rig.datapath.port(GUEST).map(|port| port.status().link);
    // A driver may start twice before it stays.
    let mut up_since = None;
    while up_since.is_none_or(|since: Instant| since.elapsed() < long) {
        up_since = if link() == Some(LinkState::Up) { up_since.or(Some(Instant::now())) } else { None };
        if start.elapsed() > Duration::from_secs(30) {
            let log = std::fs::read_to_string(dir.join("guest.log")).unwrap_or_default();
            return Err(format!("the guest did not start: {log}"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn our_turn(rig: &mut Rig, guest: &Guest, time: Duration) -> Turn {
    let reading = |rig: &Rig| {
        let stats = |no: PortNo| rig.datapath.port_stats(no);
        let worker = rig.datapath.worker_stats(0);
        let at_guest = stats(GUEST);
        Reading {
            offered: stats(SOURCE).rx_packets,
            given: at_guest.tx_packets,
            refused: at_guest.tx_dropped,
            taken: at_guest.rx_packets,
            delivered: stats(SINK).tx_packets,
            cpu_ns: base::clock::cpu_time_ns(rig.datapath.worker_thread_id(0)).unwrap_or(0),
            busy: worker.busy_cycles.get(),
            idle: worker.idle_cycles.get(),
            lookups: Meter::read(rig).lookups(),
            guest_cpu_s: guest.cpu_s(),
            at: Instant::now(),
        }
    };
    // Counters of one moment: this thread may lose its processor between two of them.
    let at_once = |rig: &Rig| {
        let tries = || {
            let start = Instant::now();
            (reading(rig), start.elapsed())
        };
        let soonest = std::iter::repeat_with(tries).take(READ_TRIES).min_by_key(|(_, took)| *took);
        soonest.expect("there are tries").0
    };
    let before = at_once(rig);
    rig.run_for(time);
    at_once(rig).since(&before)
}

fn their_turn(peer: &OvsDpdk, guest: &Guest, time: Duration) -> Result<Turn, String> {
    let reading = || -> Result<_, String> {
        let [offered, given, refused, taken, delivered] = peer.port_counters([
            ("source", "RX", "packets"),
            ("vhost", "TX", "packets"),
            ("vhost", "TX", "dropped"),
            ("vhost", "RX", "packets"),
            ("sink", "TX", "packets"),
        ])?;
        let (cpu_ns, busy, idle) = peer.busy_reading()?;
        let lookups = peer.lookups()?;
        let (guest_cpu_s, at) = (guest.cpu_s(), Instant::now());
        Ok(Reading {
            offered,
            given,
            refused,
            taken,
            delivered,
            cpu_ns,
            busy,
            idle,
            lookups,
            guest_cpu_s,
            at,
        })
    };
    let before = reading()?;
    std::thread::sleep(time);
    Ok(reading()?.since(&before))
}

/// Counters at a moment.
struct Reading {
    offered: u64,
    /// Packets that the guest got, those for which its ring had no room, and those that came back.
    given: u64,
    refused: u64,
    taken: u64,
    delivered: u64,
    cpu_ns: u64,
    busy: u64,
    idle: u64,
    /// Packets received, and those that no cache knew.
    lookups: (u64, u64),
    guest_cpu_s: f64,
    at: Instant,
}

impl Reading {
    fn since(&self, before: &Reading) -> Turn {
        let (busy, idle) = (self.busy - before.busy, self.idle - before.idle);
        let delivered = self.delivered - before.delivered;
        let (given, taken) = (self.given - before.given, self.taken - before.taken);
        Turn {
            seconds: (self.at - before.at).as_secs_f64(),
            delivered,
            is_full: true,
            offered: self.offered - before.offered,
            arrived: delivered,
            lost: Lost {
                not_sent: 0,
                at_ports: self.refused - before.refused,
                in_guest: given.saturating_sub(taken),
            },
            from_before: taken.saturating_sub(given),
            cpu_s: (self.cpu_ns - before.cpu_ns) as f64 / 1e9,
            busy: busy as f64 / ((busy + idle) as f64).max(1.0),
            miss_ratio: miss_ratio(self.lookups, before.lookups),
            guest_cpu_s: self.guest_cpu_s - before.guest_cpu_s,
        }
    }
}
