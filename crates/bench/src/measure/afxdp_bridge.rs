//! Kernel interfaces: between two veth pairs, AF_XDP against Open vSwitch and the Linux bridge.
//!
//! Three namespaces: a generator, the switch, and a receiver that counts at its interface. Our daemon, Open
//! vSwitch with each port type that its build has, and the kernel's bridge forward the same stream, one at a
//! time, in alternating turns. The cost is the whole machine's: its non-idle time per packet that arrived,
//! less what the generator alone needs for the same rate (into a pair of interfaces with nothing behind),
//! since the kernel charges its own work to whatever is running. The switch's own CPU time is given as well.
//!
//! A switch that polls (Open vSwitch's `afxdp`) keeps a processor busy at any rate; its row shows that cost.

use crate::daemon::{Daemon, in_namespace};
use crate::lab::meter;
use crate::machine::conditions::{self, BURST};
use crate::machine::lease::{self, Resource};
use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals, cycles};
use crate::process::{Process, run};
use crate::stats::median;
use crate::units::count;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The share of a rate that must have been sent: it is read with an error of some milliseconds.
const SENT_MIN: f64 = 0.98;
/// On a machine that is busier than this before the start, its whole time says nothing.
const BACKGROUND_MAX: f64 = 0.05;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Offered packets per second, separated by commas.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "20k,100k,200k")]
    rates: Vec<usize>,
    /// Flows.
    #[arg(long, value_parser = count, default_value = "100")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    /// `crosspoint`, `ovs`, `bridge`, or `none`: the generator alone.
    switch: &'static str,
    /// The type of its ports.
    port_type: &'static str,
    offered_per_s: usize,
    received_per_s: f64,
    loss_ratio: f64,
    /// Non-idle time of the whole machine per packet received, less the generator's.
    machine_cycles_per_packet: f64,
    /// The same with the generator's.
    machine_cycles_per_packet_with_generator: f64,
    /// CPU time of the switch's own threads.
    own_cycles_per_packet: f64,
    /// How busy the machine was before all this.
    background_share: f64,
    /// The generator, if it did not send at that rate in some turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    runs: u32,
    /// Each turn's cost as in `machine_cycles_per_packet_with_generator`.
    raw: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Subject {
    Alone,
    Crosspoint,
    Ovs(&'static str),
    Bridge,
}

impl Subject {
    const ALL: [Subject; 6] = [
        Subject::Alone,
        Subject::Crosspoint,
        Subject::Ovs("afxdp"),
        Subject::Ovs("afxdp-nonpmd"),
        Subject::Ovs("system"),
        Subject::Bridge,
    ];

    fn names(self) -> (&'static str, &'static str) {
        match self {
            Subject::Alone => ("none", "none"),
            Subject::Crosspoint => ("crosspoint", "afxdp"),
            Subject::Ovs(port_type) => ("ovs", port_type),
            Subject::Bridge => ("bridge", "bridge"),
        }
    }
}

/// The switch that forwards at the moment.
enum Running {
    Nothing,
    Daemon(Daemon),
    Bridge(Namespaces),
}

impl Running {
    fn cpu_ns(&self) -> u64 {
        match self {
            Running::Daemon(daemon) => daemon.process.cpu_ns(),
            _ => 0,
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Running::Bridge(net) = self {
            let _ = net.on(&net.switch(), "ip link del br0");
        }
    }
}

/// The names of the namespaces, which [`Net`] makes and removes.
#[derive(Clone)]
struct Namespaces(String);

impl Namespaces {
    fn name(&self, which: &str) -> String {
        format!("{}{which}", self.0)
    }

    fn switch(&self) -> String {
        self.name("s")
    }

    fn on(&self, namespace: &str, line: &str) -> Result<String, String> {
        run(Command::new("ip").args(["netns", "exec", namespace]).args(line.split_whitespace()))
    }
}

/// Namespaces and interfaces, removed when dropped.
pub(crate) struct Net(Namespaces);

impl Net {
    /// `pairs` veth pairs: `p0`, `p1` ... in the switch's namespace, the other ends `eth0` in a namespace
    /// each.
    pub(crate) fn new(pairs: usize) -> Result<Net, String> {
        let net = Net(Namespaces(format!("benches{}", std::process::id())));
        let names = &net.0;
        lease::note(&Resource::Namespace(&names.switch()))?;
        run(Command::new("ip").args(["netns", "add", &names.switch()]))?;
        for n in 0..pairs {
            let host = names.name(&n.to_string());
            lease::note(&Resource::Namespace(&host))?;
            run(Command::new("ip").args(["netns", "add", &host]))?;
            let port = format!("p{n}");
            run(Command::new("ip")
                .args(["link", "add", &port, "netns", &names.switch(), "type", "veth"])
                .args(["peer", "name", "eth0", "netns", &host]))?;
            for (namespace, interface) in [(&names.switch(), port.as_str()), (&host, "eth0")] {
                // No neighbour discovery by the kernel among the counted packets.
                names.on(namespace, &format!("sysctl -qw net.ipv6.conf.{interface}.disable_ipv6=1"))?;
                names.on(namespace, &format!("ip link set {interface} up"))?;
            }
        }
        Ok(net)
    }

    /// The switch's namespace.
    pub(crate) fn switch(&self) -> String {
        self.0.switch()
    }

    /// Sets an interface up once the switch has made it there.
    pub(crate) fn set_up(&self, interface: &str) -> Result<(), String> {
        let start = Instant::now();
        loop {
            match self.0.on(&self.switch(), &format!("ip link set {interface} up")) {
                Err(_) if start.elapsed() < Duration::from_secs(10) => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                result => return result.map(|_| ()),
            }
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let listed = run(Command::new("ip").args(["netns", "list"])).unwrap_or_default();
        for name in listed.lines().filter_map(|l| l.split_whitespace().next()) {
            if name.starts_with(&self.0.0) {
                let _ = run(Command::new("ip").args(["netns", "del", name]));
            }
        }
    }
}

struct Turn {
    sent_per_s: f64,
    received_per_s: f64,
    loss: f64,
    with_generator: f64,
    own: f64,
}

/// Runs it.
pub fn run_bench(args: &Args) -> Result<(), String> {
    let background = background_share()?;
    if background > BACKGROUND_MAX {
        let busy = format!("{:.0} % of the machine is busy with something else", background * 100.0);
        if args.common.assert {
            return Err(format!("{busy}: the whole machine's time would say nothing"));
        }
        println!("{busy}: the figures of the machine's time say nothing");
    }
    let net = Net::new(2)?;
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    let mut subjects = Subject::ALL.to_vec();
    subjects.retain(|&s| match start(&net.0, s) {
        Ok(_) => true,
        // Its build lacks the type, or the type does not take these interfaces.
        Err(e) if matches!(s, Subject::Ovs(_)) => {
            println!("Open vSwitch cannot do {}: {e}", s.names().1);
            false
        }
        // Measured below, where the error ends the benchmark.
        Err(_) => true,
    });
    for &rate in &args.rates {
        let mut turns: Vec<Vec<Turn>> = subjects.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.common.runs {
            for (subject, turns) in subjects.iter().zip(&mut turns) {
                turns.push(one_turn(args, &net.0, *subject, rate)?);
            }
        }
        let generator: Vec<f64> = turns[0].iter().map(|t| t.with_generator).collect();
        for (subject, turns) in subjects.iter().zip(&turns) {
            rows.push(row(*subject, rate, turns, &generator, background));
        }
        compare(&rows[rows.len() - subjects.len()..], rate, &mut goals);
    }
    args.common.finish(rows, goals)
}

fn compare(rows: &[Row], rate: usize, goals: &mut Goals) {
    let Some(ours) = rows.iter().find(|r| r.switch == "crosspoint") else { return };
    for theirs in rows.iter().filter(|r| r.switch == "ovs" || r.switch == "bridge") {
        // The generator's cost cancels out in a difference; in a ratio its noise would be divided by the
        // remainder.
        let differences: Vec<f64> = ours.raw.iter().zip(&theirs.raw).map(|(o, t)| o - t).collect();
        let what = format!("cycles/packet above {} {} at {rate}/s", theirs.switch, theirs.port_type);
        if theirs.switch == "ovs" {
            goals.not_above(&what, &differences);
        } else {
            println!("    {what}: {:.0} (for orientation)", median(&differences));
        }
    }
}

fn row(subject: Subject, rate: usize, turns: &[Turn], generator: &[f64], background: f64) -> Row {
    let (switch, port_type) = subject.names();
    let of = |f: fn(&Turn) -> f64| median(&turns.iter().map(f).collect::<Vec<_>>());
    let raw: Vec<f64> = turns.iter().map(|t| t.with_generator).collect();
    let row = Row {
        switch,
        port_type,
        offered_per_s: rate,
        received_per_s: of(|t| t.received_per_s),
        loss_ratio: of(|t| t.loss),
        machine_cycles_per_packet: median(&raw) - median(generator),
        machine_cycles_per_packet_with_generator: median(&raw),
        own_cycles_per_packet: of(|t| t.own),
        background_share: background,
        limit: limit(rate, turns),
        runs: turns.len() as u32,
        raw,
    };
    let limit = row.limit.map(|who| format!("; the limit was {who}")).unwrap_or_default();
    println!(
        "{switch:<10} {port_type:<12} {rate:>7}/s offered: {:>8.0} received, loss {:.4}; {:>7.0} cycles/packet of the machine ({:.0} with the generator), {:>6.0} of its own threads{limit}",
        row.received_per_s,
        row.loss_ratio,
        row.machine_cycles_per_packet,
        row.machine_cycles_per_packet_with_generator,
        row.own_cycles_per_packet
    );
    row
}

fn limit(rate: usize, turns: &[Turn]) -> Option<&'static str> {
    let is_late = turns.iter().any(|turn| turn.sent_per_s < rate as f64 * SENT_MIN);
    is_late.then_some("the generator, which shares the processors")
}

fn start(net: &Namespaces, subject: Subject) -> Result<Running, String> {
    let namespace = net.switch();
    Ok(match subject {
        Subject::Alone => Running::Nothing,
        Subject::Crosspoint => {
            let ports = ["--port", "p0,type=afxdp,ofport=1", "--port", "p1,type=afxdp,ofport=2"];
            let burst = BURST.to_string();
            let args = [&ports[..], &["--rx-burst", &burst]].concat();
            let daemon = Daemon::crosspoint(Some(&namespace), &args)?;
            conditions::note("crosspoint", daemon.process.id(), BURST);
            daemon.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"])?;
            Running::Daemon(daemon)
        }
        Subject::Ovs(port_type) => {
            let daemon = Daemon::open_vswitch(Some(&namespace), "netdev")?;
            for (n, port) in ["p0", "p1"].into_iter().enumerate() {
                let kind = format!("type={port_type}");
                let ofport = format!("ofport_request={}", n + 1);
                let mut add = vec!["add-port", "br0", port, "--", "set", "interface", port, &ofport];
                // `system` is what a port without a type is.
                if port_type != "system" {
                    add.push(&kind);
                }
                daemon.vsctl(&add)?;
                let error = daemon.vsctl(&["get", "interface", port, "error"])?;
                if error.trim() != "[]" {
                    return Err(error.trim().to_string());
                }
            }
            daemon.ofctl(&["add-flow", "br0", "in_port=1,actions=output:2"])?;
            conditions::note("ovs", daemon.process.id(), BURST);
            Running::Daemon(daemon)
        }
        Subject::Bridge => {
            net.on(&namespace, "ip link add br0 type bridge")?;
            let running = Running::Bridge(net.clone());
            for line in ["ip link set p0 master br0", "ip link set p1 master br0", "ip link set br0 up"] {
                net.on(&namespace, line)?;
            }
            running
        }
    })
}

fn one_turn(args: &Args, net: &Namespaces, subject: Subject, rate: usize) -> Result<Turn, String> {
    // Remains of a switch that was killed.
    for port in ["p0", "p1"] {
        let _ = net.on(&net.switch(), &format!("ip link set {port} xdp off"));
    }
    let running = start(net, subject)?;
    let settle = Duration::from_millis(700);
    let length = args.common.turn();
    std::thread::sleep(settle);
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let seconds = (length + 3 * settle).as_secs_f64();
    let mut command = in_namespace(Some(&net.name("0")), &program);
    command.args(["bench", "generate", "--ifname", "eth0", "--rate", &rate.to_string()]);
    command.args(["--flows", &args.flows.to_string(), "--seconds", &seconds.to_string()]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit());
    let generator = Process::spawn(&mut command)?;
    std::thread::sleep(2 * settle);
    // Reading frames starts programs, whose time is no switch's: frames are counted around the time in which
    // processors are watched, each at its own rate.
    let frames = || Ok::<_, String>((Instant::now(), counted(net, "0", "tx")?, received(net, subject)?));
    let (counted_at, sent, got) = frames()?;
    let watch = Watch::start(&[std::process::id()]);
    let (start, own, busy) = (Instant::now(), running.cpu_ns(), busy_ns()?);
    std::thread::sleep(length);
    let (busy_after, own_after, watched) = (busy_ns()?, running.cpu_ns(), start.elapsed().as_secs_f64());
    turns::note(subject.names().0, watch.end());
    let (counted_after, sent_after, got_after) = frames()?;
    let elapsed = (counted_after - counted_at).as_secs_f64();
    drop(generator);
    let (sent, packets) = ((sent_after - sent) as f64, (got_after - got) as f64);
    if packets < 1.0 {
        let (switch, port_type) = subject.names();
        return Err(format!("{switch} {port_type}: no packet arrived of {sent} sent"));
    }
    Ok(Turn {
        sent_per_s: sent / elapsed,
        received_per_s: packets / elapsed,
        loss: (1.0 - packets / sent.max(1.0)).max(0.0),
        with_generator: cycles(busy_after - busy) / watched / (packets / elapsed),
        own: cycles(own_after - own) / watched / (packets / elapsed),
    })
}

/// Frames at the receiver's interface; for the generator alone, those at the interface it sends to.
fn received(net: &Namespaces, subject: Subject) -> Result<u64, String> {
    match subject {
        Subject::Alone => counted(net, "0", "tx"),
        _ => counted(net, "1", "rx"),
    }
}

fn counted(net: &Namespaces, host: &str, direction: &str) -> Result<u64, String> {
    let path = format!("/sys/class/net/eth0/statistics/{direction}_packets");
    let text = net.on(&net.name(host), &format!("cat {path}"))?;
    text.trim().parse().map_err(|_| format!("{path}: {text}"))
}

/// How busy the machine is with nothing of ours running.
fn background_share() -> Result<f64, String> {
    let (before, start) = (busy_ns()?, Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    Ok((busy_ns()? - before) as f64 / start.elapsed().as_nanos() as f64 / meter::processors() as f64)
}

/// Non-idle time of the machine since it started, in nanoseconds: all but idle and waiting for disks, over
/// all processors.
fn busy_ns() -> Result<u64, String> {
    let text = std::fs::read_to_string(Path::new("/proc/stat")).map_err(|e| format!("/proc/stat: {e}"))?;
    let line = text.lines().next().unwrap_or_default();
    // user nice system idle iowait irq softirq steal; guest time is in user time already.
    let ticks: Vec<u64> = line.split_whitespace().skip(1).take(8).filter_map(|n| n.parse().ok()).collect();
    if ticks.len() < 8 {
        return Err(format!("/proc/stat: {line}"));
    }
    let busy = ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6];
    // USER_HZ is 100 on every Linux that we run on.
    Ok(busy * 10_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_that_was_late_in_one_turn_was_the_limit() {
        let turn =
            |sent_per_s| Turn { sent_per_s, received_per_s: 9.0, loss: 0.0, with_generator: 1.0, own: 1.0 };
        let limit = |turns: &[f64]| limit(20_000, &turns.iter().copied().map(turn).collect::<Vec<_>>());
        assert_eq!(limit(&[19_900.0, 20_100.0]), None);
        assert_eq!(limit(&[20_000.0, 19_000.0]), Some("the generator, which shares the processors"));
    }
}
