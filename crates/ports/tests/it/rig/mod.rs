//! Network namespaces for tests, and a forwarder of forty lines that stands in for the switch.
#![allow(unsafe_code)]

use packet::{Batch, Pool, PoolCache, Port, RxOutcome, RxQueue, TxQueue};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use testkit::lab::{Namespace, namespace, run_line};
pub use testkit::lab::{Process, Said};

/// Hosts `a` and `b` (10.9.0.1, 10.9.0.2, fd09::1, fd09::2, each with `eth0`), and between them namespace `s`
/// for the switch with the other ends `p0` and `p1`. All goes when this is dropped.
pub struct Net {
    a: Namespace,
    b: Namespace,
    s: Namespace,
}

impl Net {
    pub fn new(veth_options: &str) -> Net {
        let net = Net { a: namespace(), b: namespace(), s: namespace() };
        for (i, host) in ["a", "b"].iter().enumerate() {
            let (s, h) = (net.name("s"), net.name(host));
            run_line(&format!(
                "ip link add p{i} netns {s} {veth_options} type veth peer name eth0 netns {h} {veth_options}"
            ));
            net.on("s", &format!("sysctl -qw net.ipv6.conf.p{i}.disable_ipv6=1"));
            net.on("s", &format!("ip link set p{i} up"));
            net.on(host, &format!("ip addr add 10.9.0.{}/24 dev eth0", i + 1));
            net.on(host, &format!("ip addr add fd09::{}/64 dev eth0 nodad", i + 1));
            net.on(host, "ip link set eth0 up");
        }
        net
    }

    fn namespace(&self, host: &str) -> &Namespace {
        match host {
            "a" => &self.a,
            "b" => &self.b,
            _ => &self.s,
        }
    }

    pub fn name(&self, host: &str) -> &str {
        self.namespace(host).name()
    }

    /// Runs a command in a namespace; panics with its output where it fails.
    pub fn on(&self, host: &str, command: &str) -> String {
        self.namespace(host).run(command)
    }

    pub fn try_on(&self, host: &str, command: &str) -> Said {
        self.namespace(host).try_run(command)
    }

    pub fn spawn_on(&self, host: &str, command: &str) -> Process {
        let words: Vec<&str> = command.split_whitespace().collect();
        Process::silent(self.namespace(host).command(words[0]).args(&words[1..]))
    }

    /// Moves the calling thread into a namespace.
    pub fn enter(&self, host: &str) {
        let file = std::fs::File::open(format!("/run/netns/{}", self.name(host))).unwrap();
        // SAFETY: the descriptor is open; the call touches no memory of ours.
        assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
    }

    /// Sets the MTU at all four ends.
    pub fn set_mtu(&self, mtu: u32) {
        for (i, host) in ["a", "b"].iter().enumerate() {
            self.on("s", &format!("ip link set p{i} mtu {mtu}"));
            self.on(host, &format!("ip link set eth0 mtu {mtu}"));
        }
    }

    /// The XDP program that an interface in `s` has, as `ip` shows it.
    pub fn xdp_of(&self, port: &str) -> Option<String> {
        let text = self.on("s", &format!("ip -d link show dev {port}"));
        text.lines().find(|line| line.contains("prog/xdp")).map(|line| line.trim().to_string())
    }
}

/// One direction of the forwarder.
struct Leg {
    rx: Box<dyn RxQueue>,
    tx: Box<dyn TxQueue>,
    alive: bool,
}

/// What the forwarder did.
#[derive(Default, Debug)]
pub struct Report {
    pub packets: AtomicU64,
    pub bursts: AtomicU64,
    pub busy_loops: AtomicU64,
    pub sleeps: AtomicU64,
    pub cpu_ns: AtomicU64,
    pub tx_full: AtomicU64,
    pub chained: AtomicU64,
    pub unfinished: AtomicU64,
    pub gone: AtomicU64,
}

/// A thread that forwards between two ports and owns their queues.
pub struct Forwarder {
    stop: Arc<AtomicBool>,
    pub report: Arc<Report>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Forwards between queue `i` of the first and queue `i` of the second port until stopped.
    pub fn start(pool: &'static Pool, ports: [&mut dyn Port; 2]) -> Forwarder {
        let [first, second] = ports;
        let (rx0, rx1) = (first.take_rx_queues(), second.take_rx_queues());
        let (tx0, tx1) = (first.take_tx_queues(rx1.len()), second.take_tx_queues(rx0.len()));
        let leg = |(rx, tx)| Leg { rx, tx, alive: true };
        let mut legs: Vec<Leg> = rx0.into_iter().zip(tx1).map(leg).collect();
        legs.extend(rx1.into_iter().zip(tx0).map(leg));
        let (stop, report) = (Arc::new(AtomicBool::new(false)), Arc::new(Report::default()));
        let (thread_stop, thread_report) = (stop.clone(), report.clone());
        let thread = std::thread::spawn(move || {
            let mut cache = pool.cache();
            forward(&mut legs, &mut cache, &thread_stop, &thread_report);
            for leg in &mut legs {
                leg.rx.close(&mut cache);
                leg.tx.close(&mut cache);
            }
            thread_report.cpu_ns.store(thread_cpu_ns(), Ordering::Relaxed);
        });
        Forwarder { stop, report, thread: Some(thread) }
    }

    /// Stops, closes the queues, and returns what was done.
    pub fn stop(mut self) -> Arc<Report> {
        self.end();
        self.report.clone()
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the forwarder does not panic");
        }
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The forwarder's loop: polls while there is work, sleeps on the queues' descriptors when there is none.
fn forward(legs: &mut [Leg], cache: &mut PoolCache, stop: &AtomicBool, report: &Report) {
    let mut batch = Batch::new();
    let mut idle_loops = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for leg in legs.iter_mut().filter(|leg| leg.alive) {
            if leg.rx.rx_burst(cache, &mut batch) == RxOutcome::Gone {
                leg.alive = false;
                add(&report.gone, 1);
                leg.rx.close(cache);
            }
            if !batch.is_empty() {
                moved += batch.len();
                add(&report.bursts, 1);
                add(&report.chained, batch.iter().filter(|p| p.is_chained()).count());
                let partial = packet::PacketFlags::CSUM_PARTIAL;
                add(&report.unfinished, batch.iter().filter(|p| p.flags.has(partial)).count());
                leg.tx.tx_burst(cache, &mut batch);
                add(&report.tx_full, batch.len());
                cache.free_all(&mut batch);
                leg.tx.flush(cache);
            } else if leg.tx.has_pending() {
                leg.tx.flush(cache);
            }
        }
        add(&report.packets, moved);
        if moved > 0 {
            add(&report.busy_loops, 1);
            idle_loops = 0;
            continue;
        }
        idle_loops += 1;
        if idle_loops > 200 {
            sleep(legs, report);
        }
    }
}

fn sleep(legs: &mut [Leg], report: &Report) {
    if legs.iter().any(|leg| leg.alive && leg.tx.has_pending()) {
        return;
    }
    let armed = legs.iter_mut().filter(|leg| leg.alive).all(|leg| leg.rx.arm());
    if armed {
        let waiting = legs.iter().filter(|leg| leg.alive).filter_map(|leg| leg.rx.wait_fd());
        let mut fds: Vec<_> =
            waiting.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
        // SAFETY: the array has as many entries as said and outlives the call.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, 100) };
        add(&report.sleeps, 1);
    }
    legs.iter_mut().filter(|leg| leg.alive).for_each(|leg| leg.rx.disarm());
}

fn add(counter: &AtomicU64, n: usize) {
    counter.fetch_add(n as u64, Ordering::Relaxed);
}

/// CPU time that the calling thread has used.
pub fn thread_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is writable and outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
