//! The test of the Red Hat text on Open vSwitch's performance: physical port, virtual machine, physical port.
//!
//! A source in memory stands for the wire; its packets go to a guest over vhost-user, are looped back by it, and end in a sink,
//! with one OpenFlow rule for each flow and direction. The worker has one processor, the guest the other. With `--peer ovs-dpdk`
//! the same is measured on Open vSwitch with DPDK in turns: the same frames from memory, the same rules, a guest of the same kind with
//! rings of the same size. Wire speed is offered and loss allowed; packets are counted at the sink, and the cost of one is the
//! switch's busy cycles per packet delivered there.
//!
//! With `--path guest-to-guest`, or to look for the highest rate that loses no more than `--loss` allows, the packets come from a
//! guest of the benchmark's own ([`guests`]) in place of a source in memory.

use crate::cli::count;
use crate::frames::{self, Order, addresses};
use crate::guests::{self, Route};
use crate::p2p::Peer;
use crate::peer::{OvsDpdk, Process, TempDir};
use crate::report::{json_file, lower_bound, median, write_json};
use crate::rig::{DRIVER_CPU, Rig};
use base::PortNo;
use datapath::Config;
use flow::{Action, FieldId, Match};
use packet::LinkState;
use ports::PortSpec;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use switch::control::FlowMod;

/// The share of its time that a switch must be busy for its throughput to be its own.
const BUSY_MIN: f64 = 0.95;
/// The highest rate that loses no more than is allowed, in ratio to the peer's.
const RATE_GOAL: f64 = 1.0;
/// Descriptors of the guest's rings, in all switches.
pub const RING_SIZE: usize = 256;
/// Ports, in both switches.
pub const SOURCE: PortNo = PortNo(1);
pub const GUEST: PortNo = PortNo(2);
const SINK: PortNo = PortNo(3);

/// Who loops packets back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GuestKind {
    /// `dpdk-testpmd` with a virtio-user device.
    Testpmd,
    /// `crosspoint guest`.
    Builtin,
}

/// The packets' way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// From a source to the guest, back, and to a sink.
    Loopback,
    /// From one guest to another.
    GuestToGuest,
}

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Frame sizes in bytes, frame check sequence included.
    #[arg(long, value_delimiter = ',', default_value = "64,1518", value_parser = clap::value_parser!(u16).range(64..=1518))]
    sizes: Vec<u16>,
    /// Numbers of flows; k and m stand for thousands and millions.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "10,1k,10k")]
    flows: Vec<usize>,
    /// The guest. On the way from guest to guest, and where a rate is looked for, both guests are the benchmark's own.
    #[arg(long, value_enum, default_value = "testpmd")]
    guest: GuestKind,
    /// The packets' way.
    #[arg(long, value_enum, default_value = "loopback")]
    path: Way,
    /// Look for the highest rate at which no more than this share of the packets is lost (0: none), by halving.
    #[arg(long, value_parser = share)]
    pub loss: Option<f64>,
    /// Measure another switch beside ours, in turns.
    #[arg(long, value_enum)]
    peer: Option<Peer>,
    /// Turns of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// Length of a turn in milliseconds.
    #[arg(long, default_value_t = 1000)]
    pub turn_ms: u64,
    /// Write the rows to this file.
    #[arg(long, value_parser = json_file)]
    json: Option<PathBuf>,
    /// Fail where a ratio misses its goal.
    #[arg(long)]
    assert: bool,
}

fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("{text}: expected a share from 0 to below 1"))
}

#[derive(serde::Serialize, Clone)]
pub struct Row {
    switch: &'static str,
    path: Way,
    guest: GuestKind,
    /// What a rate was allowed to lose; none where wire speed was offered.
    loss_allowed: Option<f64>,
    size: u16,
    flows: usize,
    queues: u32,
    /// Busy cycles for each packet delivered; null where none was.
    cycles_per_packet: f64,
    packets_per_cpu_second: f64,
    mpps: f64,
    /// The same of each turn.
    raw_mpps: Vec<f64>,
    /// Share of the offered packets that were not delivered; null where none was offered. With a source in memory what is under way
    /// when a turn begins and ends (as many as the guest's two rings hold, at most) is counted at one end alone: where next to
    /// nothing is lost in a short turn, this may be a little below 0.
    loss: f64,
    /// Share of a processor.
    cpu_switch: f64,
    cpu_guest: f64,
    /// The guest was the limit: `mpps` is no figure of the switch's.
    void: bool,
    runs: u32,
    raw: Vec<f64>,
}

/// One turn.
#[derive(Clone, Copy)]
pub struct Turn {
    pub seconds: f64,
    /// In these seconds.
    pub delivered: u64,
    /// Packets offered, and those of them that were delivered, sooner or later.
    pub offered: u64,
    pub arrived: u64,
    pub cpu_s: f64,
    /// Of its CPU time.
    pub busy: f64,
    pub guest_cpu_s: f64,
}

impl Turn {
    fn mpps(&self) -> f64 {
        self.delivered as f64 / self.seconds / 1e6
    }

    /// Not a number where there were no packets.
    fn cycles_per_packet(&self) -> f64 {
        match self.delivered {
            0 => f64::NAN,
            packets => self.cpu_s * self.busy * base::clock::tsc_hz() as f64 / packets as f64,
        }
    }

    /// Share of the offered packets that were not delivered; not a number where none was offered.
    pub fn loss(&self) -> f64 {
        1.0 - self.arrived as f64 / self.offered as f64
    }
}

/// Packets delivered per busy CPU-second, in ratio to the peer's.
fn goal(size: u16, flows: usize) -> Option<f64> {
    Some(match (size, flows) {
        (64, 10) => 1.6,
        (64, 1_000) => 2.5,
        (64, 10_000) => 5.0,
        (1518, 10) => 1.3,
        (1518, 1_000) => 1.5,
        (1518, 10_000) => 2.5,
        _ => return None,
    })
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
    let mut rows: Vec<Row> = Vec::new();
    let mut missed = Vec::new();
    for &size in &args.sizes {
        for &flows in &args.flows {
            let new = match (args.path, args.loss) {
                (Way::GuestToGuest, _) => {
                    guests::point(args, &dir.0, Route::GuestToGuest, size, flows, peer.as_mut())?
                }
                (Way::Loopback, Some(_)) => {
                    guests::point(args, &dir.0, Route::Loopback, size, flows, peer.as_mut())?
                }
                (Way::Loopback, None) => {
                    let pcap = dir.0.join(format!("{size}-{flows}.pcap"));
                    frames::write_pcap_of(&pcap, flows, Order::Shuffled, usize::from(size) - 4)
                        .map_err(|e| format!("{}: {e}", pcap.display()))?;
                    point(args, &dir.0, size, flows, &pcap, peer.as_mut())?
                }
            };
            new.iter().for_each(print_row);
            compare(&new, &mut missed);
            rows.extend(new);
        }
        flatness(&rows, size, &mut missed);
    }
    if let Some(file) = &args.json {
        write_json(file, rows).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    if missed.is_empty() || !args.assert {
        return Ok(());
    }
    Err(format!("goals missed: {}", missed.join("; ")))
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
        if row.void { " (void: the guest was the limit)" } else { "" },
    );
}

fn compare(rows: &[Row], missed: &mut Vec<String>) {
    let find = |name: &str| rows.iter().find(|r| r.switch == name);
    let (Some(ours), Some(theirs)) = (find("crosspoint"), find("ovs-dpdk")) else { return };
    let pairs: Vec<f64> = ours.raw.iter().zip(&theirs.raw).map(|(o, t)| t / o).collect();
    let ratio = theirs.cycles_per_packet / ours.cycles_per_packet;
    // The goals are those of tests at wire speed.
    let goal = match ours.path {
        _ if ours.loss_allowed.is_some() => None,
        Way::Loopback => goal(ours.size, ours.flows),
        Way::GuestToGuest => (ours.size == 64).then_some(1.5),
    };
    let low = lower_bound(&pairs);
    if let Some(loss) = ours.loss_allowed {
        let pairs: Vec<f64> = ours.raw_mpps.iter().zip(&theirs.raw_mpps).map(|(o, t)| o / t).collect();
        let (ratio, low) = (ours.mpps / theirs.mpps, lower_bound(&pairs));
        println!("    rate in ratio to the peer's: {ratio:.2} (goal {RATE_GOAL}), at least {low:.2}");
        // Where no rate of the peer's was found there is no ratio either.
        if !low.is_finite() || low < RATE_GOAL {
            let what = format!("{} bytes {} flows, rate at a loss of {loss}", ours.size, ours.flows);
            missed.push(format!("{what}: {ratio:.2}, goal {RATE_GOAL}"));
        }
    }
    println!(
        "    packets per busy CPU-second in ratio to the peer's: {ratio:.2} (goal {goal:?}), at least {low:.2}"
    );
    if let Some(goal) = goal.filter(|goal| low.is_nan() || low < *goal) {
        missed.push(format!("{} bytes {} flows: {ratio:.2}, goal {goal}", ours.size, ours.flows));
    }
}

/// Our own 10,000 flows keep 85 % of 10 flows.
fn flatness(rows: &[Row], size: u16, missed: &mut Vec<String>) {
    let ours =
        |flows: usize| rows.iter().find(|r| r.switch == "crosspoint" && (r.size, r.flows) == (size, flows));
    let (Some(few), Some(many)) = (ours(10), ours(10_000)) else { return };
    let kept = few.cycles_per_packet / many.cycles_per_packet;
    println!("    {size} bytes: 10,000 flows keep {kept:.2} of 10 flows (goal 0.85)");
    if kept.is_nan() || kept < 0.85 {
        missed.push(format!("{size} bytes: 10,000 flows keep {kept:.2} of 10 flows"));
    }
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
                let device = format!("path={},server=1,queues=1,queue_size={RING_SIZE}", socket.display());
                command.arg(format!("--vdev=net_virtio_user0,{device}"));
                command.args(["--", "--forward-mode=io", "--nb-cores=1", "--total-num-mbufs=4096"]);
                command.args([format!("--rxd={RING_SIZE}"), format!("--txd={RING_SIZE}")]);
                command
            }
        };
        let child = command
            .stdin(Stdio::piped())
            .stdout(log.try_clone().map_err(|e| e.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|e| format!("the guest: {e}"))?;
        Ok(Guest { process: Process(child) })
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
    let turn = Duration::from_millis(args.turn_ms);
    let our_socket = dir.join("ours");
    let their_socket = dir.join("theirs");
    let their_guest = match &mut peer {
        Some(peer) => {
            peer.resume();
            peer.drop_source()?;
            peer.drop_port("vhost")?;
            peer.set_rules(&rules_text(flows, Some(SINK)))?;
            let guest = Guest::start(args.guest, dir, &their_socket)?;
            crate::peer::wait_for(&their_socket)?;
            peer.add_vhost("vhost", &their_socket, GUEST.0 as u16)?;
            // It connects, the guest's driver starts; then packets may come.
            std::thread::sleep(Duration::from_secs(3));
            peer.set_source(pcap)?;
            std::thread::sleep(Duration::from_secs(3));
            peer.pause();
            guest.process.pause();
            Some(guest)
        }
        None => None,
    };
    let our_guest = Guest::start(args.guest, dir, &our_socket)?;
    crate::peer::wait_for(&our_socket)?;
    let mut rig = Rig::new(Config::default())?;
    let source = PortSpec::new("source", "pcap", SOURCE)
        .with("rx_file", &pcap.to_string_lossy())
        .with("loop", "true")
        .with_files_beside([pcap]);
    let guest = PortSpec::new("vhost", "dpdkvhostuserclient", GUEST)
        .with("vhost-server-path", &our_socket.to_string_lossy());
    rig.add_port(&PortSpec::new("sink", "null", SINK))?;
    rig.add_port(&guest)?;
    wait_for_link(&rig, dir)?;
    rig.add_rules(&rules(flows, Some(SINK)))?;
    rig.add_port(&source)?;
    rig.warm_up(Duration::from_millis(2_000));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..args.runs {
        ours.push(our_turn(&mut rig, &our_guest, turn));
        if let (Some(peer), Some(their_guest)) = (&mut peer, &their_guest) {
            rig.detach(SOURCE)?;
            our_guest.process.pause();
            their_guest.process.resume();
            peer.resume();
            std::thread::sleep(Duration::from_millis(500));
            theirs.push(their_turn(peer, their_guest, turn)?);
            peer.pause();
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

fn wait_for_link(rig: &Rig, dir: &Path) -> Result<(), String> {
    let start = Instant::now();
    let link = || rig.datapath.port(GUEST).map(|port| port.status().link);
    // A driver may start twice before it stays.
    let mut up_since = None;
    while up_since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(2)) {
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
        let stats = |no: PortNo| rig.datapath.port(no).map(|p| p.stats()).unwrap_or_default();
        let worker = rig.datapath.worker_stats(0);
        let cpu = base::clock::cpu_time_ns(rig.datapath.worker_thread_id(0)).unwrap_or(0);
        let cycles = (worker.busy_cycles.get(), worker.idle_cycles.get());
        (stats(SOURCE).rx_packets, stats(SINK).tx_packets, cpu, cycles, guest.cpu_s(), Instant::now())
    };
    let before = reading(rig);
    rig.run_for(time);
    let after = reading(rig);
    let (busy, idle) = (after.3.0 - before.3.0, after.3.1 - before.3.1);
    Turn {
        seconds: (after.5 - before.5).as_secs_f64(),
        delivered: after.1 - before.1,
        offered: after.0 - before.0,
        arrived: after.1 - before.1,
        cpu_s: (after.2 - before.2) as f64 / 1e9,
        busy: busy as f64 / ((busy + idle) as f64).max(1.0),
        guest_cpu_s: after.4 - before.4,
    }
}

fn their_turn(peer: &OvsDpdk, guest: &Guest, time: Duration) -> Result<Turn, String> {
    let reading = || -> Result<_, String> {
        let offered = peer.port_packets("source", "RX")?;
        let delivered = peer.port_packets("sink", "TX")?;
        Ok((offered, delivered, peer.busy_reading()?, guest.cpu_s(), Instant::now()))
    };
    let before = reading()?;
    std::thread::sleep(time);
    let after = reading()?;
    let (busy, idle) = (after.2.1 - before.2.1, after.2.2 - before.2.2);
    Ok(Turn {
        seconds: (after.4 - before.4).as_secs_f64(),
        delivered: after.1 - before.1,
        offered: after.0 - before.0,
        arrived: after.1 - before.1,
        cpu_s: (after.2.0 - before.2.0) as f64 / 1e9,
        busy: busy as f64 / ((busy + idle) as f64).max(1.0),
        guest_cpu_s: after.3 - before.3,
    })
}

pub fn row(switch: &'static str, args: &Args, size: u16, flows: usize, turns: &[Turn]) -> Row {
    let of = |f: &dyn Fn(&Turn) -> f64| median(&turns.iter().map(f).collect::<Vec<_>>());
    let cycles_per_packet = of(&Turn::cycles_per_packet);
    let busy = of(&|t| t.busy * t.cpu_s / t.seconds);
    let is_own = args.path == Way::GuestToGuest || args.loss.is_some();
    Row {
        switch,
        path: args.path,
        guest: if is_own { GuestKind::Builtin } else { args.guest },
        loss_allowed: args.loss,
        size,
        flows,
        queues: 1,
        cycles_per_packet,
        packets_per_cpu_second: base::clock::tsc_hz() as f64 / cycles_per_packet,
        mpps: of(&Turn::mpps),
        raw_mpps: turns.iter().map(Turn::mpps).collect(),
        loss: of(&Turn::loss),
        cpu_switch: busy,
        cpu_guest: of(&|t| t.guest_cpu_s / t.seconds),
        void: of(&|t| t.busy) < BUSY_MIN,
        runs: turns.len() as u32,
        raw: turns.iter().map(Turn::cycles_per_packet).collect(),
    }
}

/// One rule for each flow and direction: to the guest, and what the guest sends to `back`.
pub fn rules(flows: usize, back: Option<PortNo>) -> Vec<FlowMod> {
    let rule = |n: usize, in_port: PortNo, out: PortNo| {
        let (src, dst) = addresses(n);
        let fields = Match::any()
            .with(FieldId::InPort, in_port.0.into())
            .with(FieldId::EthType, 0x0800)
            .with(FieldId::NwSrc, src.to_bits().into())
            .with(FieldId::NwDst, dst.to_bits().into());
        FlowMod::add(fields, vec![Action::Output { port: base::OfPort(out.0 as u16), max_len: 0 }])
    };
    let of_flow = |n: usize| {
        let there = rule(n, SOURCE, GUEST);
        std::iter::once(there).chain(back.map(|back| rule(n, GUEST, back)))
    };
    (0..flows).flat_map(of_flow).collect()
}

/// The same in the syntax of `ovs-ofctl`.
pub fn rules_text(flows: usize, back: Option<PortNo>) -> String {
    let rule = |n: usize, in_port: PortNo, out: PortNo| {
        let (src, dst) = addresses(n);
        format!("ip,in_port={},nw_src={src},nw_dst={dst},actions=output:{}\n", in_port.0, out.0)
    };
    let of_flow = |n: usize| {
        let there = rule(n, SOURCE, GUEST);
        there + &back.map(|back| rule(n, GUEST, back)).unwrap_or_default()
    };
    (0..flows).map(of_flow).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_without_packets_has_no_cost_of_one_and_no_share_that_was_lost() {
        let some = Turn {
            seconds: 1.0,
            delivered: 90,
            offered: 100,
            arrived: 95,
            cpu_s: 1.0,
            busy: 1.0,
            guest_cpu_s: 1.0,
        };
        assert_eq!(some.cycles_per_packet(), base::clock::tsc_hz() as f64 / 90.0);
        assert!((some.loss() - 0.05).abs() < 1e-9);
        let none = Turn { delivered: 0, offered: 0, arrived: 0, busy: 0.0, ..some };
        let json = serde_json::to_value([none.cycles_per_packet(), none.loss()]).unwrap();
        assert_eq!(json, serde_json::json!([null, null]));
    }
}
