//! One AF_PACKET driver and one classifier under four I/O loops (Carbone's Figure 3): what a loop costs, and
//! how forwarding fares while the control thread is blocked.
//!
//! `rebuilt` and `kept` do everything on one thread, like Open vSwitch's main loop with its default netdev:
//! the first rebuilds its list of descriptors in each iteration, the second keeps it. `one` and `fifty`
//! forward on a separate thread, with that many packets of a port per poll. Each port forwards to its
//! neighbour.
//!
//! The process reads commands from its standard input: `block MS` blocks the control thread, `stats` prints
//! counters.

use super::{Ask, BATCH, Forwards, HUGE_PAGES, Running, Setup, Switch, Twice};
use crate::daemon::in_namespace;
use crate::lab::topology::End;
use crate::lab::traffic::pattern::{Pattern, Protocol};
use crate::machine::huge_pages;
use crate::process::Process;
use crate::units::count;
use base::{OfPort, PortNo};
use flow::{Depth, Ingress, Key};
use packet::wait::Waiter;
use packet::{Batch, Packet, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// How long a loop waits for packets before it does other work.
const WAIT_MS: u32 = 100;
/// Packets of a port between two polls of a loop that does everything.
const BURST: usize = 32;

/// How packets are waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Kind {
    /// One thread, which lists descriptors again in each iteration.
    Rebuilt,
    /// One thread, descriptors listed once.
    Kept,
    /// A thread for packets, one per poll.
    One,
    /// A thread for packets, fifty per poll.
    Fifty,
}

impl Kind {
    /// Packets that it takes from a port at once.
    fn per_poll(self) -> usize {
        match self {
            Kind::Rebuilt | Kind::Kept => BURST,
            Kind::One => 1,
            Kind::Fifty => 50,
        }
    }
}

/// See the module documentation.
pub struct Loop {
    /// Its name on the command line.
    pub name: &'static str,
    /// How it waits.
    pub kind: Kind,
}

/// Arguments of the process.
#[derive(clap::Args)]
pub struct Args {
    /// How packets are waited for.
    #[arg(value_enum)]
    kind: Kind,
    /// Interfaces; each two forward to each other.
    #[arg(long, value_delimiter = ',', required = true)]
    ports: Vec<String>,
    /// Flows that the classifier knows.
    #[arg(long, value_parser = count, default_value = "1")]
    flows: usize,
    /// What tells them apart.
    #[arg(long, default_value = "udp")]
    traffic: Pattern,
}

/// A port with what was received and not yet forwarded.
struct Side {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    ingress: Ingress,
    waiting: VecDeque<Packet>,
}

struct Forwarder {
    sides: Vec<Side>,
    /// Output by key.
    classifier: HashMap<Key, usize>,
    cache: PoolCache,
    key: Key,
    batch: Batch,
}

/// The process.
pub fn run(args: &Args) -> Result<(), String> {
    let config = PoolConfig { chunks: 16_384, ..PoolConfig::default() };
    let pool = Pool::new(config).map_err(|e| e.to_string())?;
    let (mut sides, mut devices) = (Vec::new(), Vec::new());
    for (n, name) in args.ports.iter().enumerate() {
        let spec = PortSpec::new(name, "system", PortNo(n as u32 + 1)).with("driver", "af_packet");
        let mut port = ports::open(&spec, pool).map_err(|e| format!("{name}: {e}"))?;
        let rx = port.take_rx_queues().into_iter().next().ok_or("no receive queue")?;
        let tx = port.take_tx_queues(1).into_iter().next().ok_or("no transmit queue")?;
        let ingress = Ingress::new(OfPort(n as u16 + 1), PortNo(n as u32 + 1), Depth::Transport);
        sides.push(Side { rx, tx, ingress, waiting: VecDeque::new() });
        devices.push(port);
    }
    let ingresses: Vec<Ingress> = sides.iter().map(|side| side.ingress).collect();
    let classifier = classifier(args.flows, &args.traffic, &ingresses)?;
    let forwarder =
        Forwarder { sides, classifier, cache: pool.cache(), key: Key::default(), batch: Batch::new() };
    let (send, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if send.send(line).is_err() {
                break;
            }
        }
    });
    println!("ready");
    let mut control = Control { commands, devices };
    match args.kind {
        Kind::Rebuilt | Kind::Kept => forwarder.forward(args.kind, &mut |wait| control.turn(wait)),
        Kind::One | Kind::Fifty => {
            let kind = args.kind;
            // The thread ends with the process.
            std::thread::spawn(move || forwarder.forward(kind, &mut |_| Ok(())));
            loop {
                control.turn(Duration::from_millis(WAIT_MS.into()))?;
            }
        }
    }
}

/// Every flow's key at every port where its frames come in, in both directions, and its destination.
fn classifier(flows: usize, traffic: &Pattern, ports: &[Ingress]) -> Result<HashMap<Key, usize>, String> {
    let mut table = HashMap::new();
    for n in 0..flows {
        for is_back in [false, true] {
            let frame = traffic.frames(n, 512, is_back)?.remove(0);
            for (from, ingress) in ports.iter().enumerate() {
                let mut key = Key::default();
                if flow::extract(&frame, frame.len(), ingress, &mut key).is_some() {
                    table.insert(key, from ^ 1);
                }
            }
        }
    }
    Ok(table)
}

/// The control thread's other work.
struct Control {
    commands: Receiver<String>,
    devices: Vec<Box<dyn Port>>,
}

impl Control {
    /// Handles commands, and waits at most this long for one.
    fn turn(&mut self, wait: Duration) -> Result<(), String> {
        let Ok(line) = self.commands.recv_timeout(wait) else { return Ok(()) };
        if let Some(ms) = line.strip_prefix("block ") {
            let ms = ms.parse().map_err(|_| format!("{line}: expected milliseconds"))?;
            std::thread::sleep(Duration::from_millis(ms));
        } else {
            let stats = self.devices.iter().map(|d| d.stats());
            let counts: Vec<[u64; 2]> = stats.map(|s| [s.rx_dropped, s.tx_dropped + s.tx_errors]).collect();
            println!("{}", serde_json::to_string(&counts).map_err(|e| e.to_string())?);
        }
        Ok(())
    }
}

impl Forwarder {
    fn forward(
        mut self,
        kind: Kind,
        control: &mut dyn FnMut(Duration) -> Result<(), String>,
    ) -> Result<(), String> {
        let per_poll = kind.per_poll();
        let mut waiter = self.waiter()?;
        loop {
            if kind == Kind::Rebuilt {
                waiter = self.waiter()?;
            }
            self.wait(&waiter);
            for from in 0..self.sides.len() {
                self.take(from, per_poll);
            }
            control(Duration::ZERO)?;
        }
    }

    fn waiter(&self) -> Result<Waiter, String> {
        let waiter = Waiter::new().map_err(|e| e.to_string())?;
        for fd in self.sides.iter().filter_map(|side| side.rx.wait_fd()) {
            waiter.add(fd).map_err(|e| e.to_string())?;
        }
        Ok(waiter)
    }

    /// Asks the kernel what has come, once an iteration also where packets are known to wait: so the loops
    /// do.
    fn wait(&mut self, waiter: &Waiter) {
        let mut is_idle = self.sides.iter().all(|side| side.waiting.is_empty());
        for side in &mut self.sides {
            is_idle &= side.rx.arm();
        }
        waiter.wait(if is_idle { WAIT_MS } else { 0 });
        for side in &mut self.sides {
            side.rx.disarm();
        }
    }

    /// Forwards at most `most` packets of a port.
    fn take(&mut self, from: usize, most: usize) {
        let side = &mut self.sides[from];
        if side.waiting.len() < most {
            side.rx.rx_burst(&mut self.cache, &mut self.batch);
            side.waiting.extend(self.batch.drain(..));
        }
        let count = most.min(side.waiting.len());
        let packets: Vec<Packet> = side.waiting.drain(..count).collect();
        let ingress = side.ingress;
        for packet in packets {
            let data = packet.data();
            let is_frame = flow::extract(data, data.len(), &ingress, &mut self.key).is_some();
            match self.classifier.get(&self.key).filter(|_| is_frame) {
                // A port sends what it has before its batch overflows.
                Some(to) => {
                    let to = *to;
                    self.batch.push(packet);
                    if self.batch.is_full() {
                        self.send(to);
                    }
                }
                None => self.cache.free(packet),
            }
        }
        self.send(from ^ 1);
    }

    fn send(&mut self, to: usize) {
        let tx = &mut self.sides[to].tx;
        tx.tx_burst(&mut self.cache, &mut self.batch);
        self.cache.free_all(&mut self.batch);
        tx.flush(&mut self.cache);
    }
}

impl Switch for Loop {
    fn name(&self) -> &str {
        self.name
    }

    fn forwards(&self) -> Forwards {
        Forwards::Floor
    }

    fn refuses(&self, ask: &Ask) -> Option<String> {
        let topology = ask.topology;
        let is_pairs = topology.ports.iter().all(|end| *end == End::Nic)
            && topology.hops.iter().all(|hop| hop.to == [hop.from ^ 1]);
        if !topology.has_switch() || !is_pairs {
            return Some("the loops forward between pairs of network interfaces only".into());
        }
        let is_capture = matches!(ask.pattern.protocol, Protocol::Pcap(_) | Protocol::Imix);
        is_capture.then(|| format!("the loops' classifier does not know the flows of {}", ask.pattern))
    }

    fn start(&self, setup: &Setup) -> Result<Box<dyn Running>, String> {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        let mut command = in_namespace(Some(&setup.net.switch), &program);
        let ports: Vec<String> = (0..setup.topology.ports.len()).map(|n| setup.port(n)).collect();
        command.args(["bench", "loop", &format!("{:?}", self.kind).to_lowercase()]);
        command.args(["--ports", &ports.join(","), "--flows", &setup.flows.to_string()]);
        command.args(["--traffic", &setup.pattern.to_string()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command)?;
        let (Some(stdin), Some(stdout)) = (process.0.stdin.take(), process.0.stdout.take()) else {
            return Err("the loop has no pipes".into());
        };
        let mut pipes = (stdin, BufReader::new(stdout));
        let mut line = String::new();
        pipes.1.read_line(&mut line).map_err(|e| e.to_string())?;
        if line.trim() != "ready" {
            return Err(format!("the loop said {line:?}"));
        }
        Ok(Box::new(Started { process, kind: self.kind, pipes: Mutex::new(pipes) }))
    }
}

struct Started {
    process: Process,
    kind: Kind,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Running for Started {
    fn identity(&self) -> BTreeMap<String, String> {
        let kind = format!("{:?}", self.kind).to_lowercase();
        [("kind".to_string(), "one classifier".to_string()), ("loop".to_string(), kind)].into()
    }

    fn conditions(&self) -> Vec<(&'static str, String)> {
        let pages = huge_pages::taken_by(self.process.id());
        let batch = self.kind.per_poll().to_string();
        vec![("workers", "1".into()), ("queues", "1".into()), (HUGE_PAGES, pages), (BATCH, batch)]
    }

    fn process(&self) -> Option<&Process> {
        Some(&self.process)
    }

    fn process_mut(&mut self) -> Option<&mut Process> {
        Some(&mut self.process)
    }

    fn dropped(&self) -> Result<BTreeMap<String, u64>, String> {
        let mut pipes = self.pipes.lock().map_err(|_| "the loop's pipes are broken")?;
        let mut line = String::new();
        pipes.0.write_all(b"stats\n").map_err(|e| format!("the loop: {e}"))?;
        pipes.1.read_line(&mut line).map_err(|e| format!("the loop: {e}"))?;
        let counts: Vec<[u64; 2]> =
            serde_json::from_str(&line).map_err(|e| format!("the loop said {line:?}: {e}"))?;
        let of = |n: usize| counts.iter().map(|c| c[n]).sum();
        Ok([("switch: rx_dropped".to_string(), of(0)), ("switch: tx_error".to_string(), of(1))].into())
    }

    fn twice(&self) -> Twice {
        Twice { tx: true, ..Twice::default() }
    }

    fn block(&mut self, ms: u64) -> Result<(), String> {
        let mut pipes = self.pipes.lock().map_err(|_| "the loop's pipes are broken")?;
        pipes.0.write_all(format!("block {ms}\n").as_bytes()).map_err(|e| format!("the loop: {e}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_both_ways_are_known_at_each_port() {
        let ports = [1, 2].map(|n| Ingress::new(OfPort(n), PortNo(n.into()), Depth::Transport));
        let traffic: Pattern = "udp".parse().unwrap();
        let table = classifier(3, &traffic, &ports).unwrap();
        for is_back in [false, true] {
            let frame = traffic.frames(2, 64, is_back).unwrap().remove(0);
            for (from, ingress) in ports.iter().enumerate() {
                let mut key = Key::default();
                flow::extract(&frame, frame.len(), ingress, &mut key).unwrap();
                assert_eq!(table.get(&key), Some(&(from ^ 1)), "back: {is_back}, port {from}");
            }
        }
    }
}
