//! Network namespaces for tests, and a forwarder of forty lines that stands in for the switch.
#![allow(unsafe_code)]

use packet::{Batch, Pool, PoolCache, Port, RxOutcome, RxQueue, TxQueue};
use std::os::fd::AsRawFd;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Ends the test with the reason where it is not run as root.
pub fn need_root() {
    // SAFETY: the call touches no memory.
    assert_eq!(unsafe { libc::geteuid() }, 0, "this test makes network namespaces: run it as root");
}

/// Runs a command to its end; panics with its output where it fails.
pub fn run(command: &str) -> String {
    let output = try_run(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command}: {}\n{text}{errors}", output.status);
    text
}

/// Runs a command to its end.
pub fn try_run(command: &str) -> Output {
    let words: Vec<&str> = command.split_whitespace().collect();
    Command::new(words[0]).args(&words[1..]).output().unwrap_or_else(|e| panic!("{command}: {e}"))
}

/// Hosts `a` and `b` (10.9.0.1, 10.9.0.2, fd09::1, fd09::2, each with `eth0`), and between them namespace `s`
/// for the switch with the other ends `p0` and `p1`. All goes when this is dropped.
pub struct Net {
    prefix: String,
}

static NEXT: AtomicU32 = AtomicU32::new(0);

impl Net {
    pub fn new(veth_options: &str) -> Net {
        need_root();
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let net = Net { prefix: format!("afxdp{}x{n}", std::process::id()) };
        for host in ["a", "b", "s"] {
            run(&format!("ip netns add {}", net.name(host)));
            net.on(host, "ip link set lo up");
        }
        for (i, host) in ["a", "b"].iter().enumerate() {
            let (s, h) = (net.name("s"), net.name(host));
            run(&format!(
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

    pub fn name(&self, host: &str) -> String {
        format!("{}{host}", self.prefix)
    }

    /// Runs a command in a namespace.
    pub fn on(&self, host: &str, command: &str) -> String {
        run(&format!("ip netns exec {} {command}", self.name(host)))
    }

    pub fn try_on(&self, host: &str, command: &str) -> Output {
        try_run(&format!("ip netns exec {} {command}", self.name(host)))
    }

    pub fn spawn_on(&self, host: &str, command: &str) -> Process {
        let line = format!("ip netns exec {} {command}", self.name(host));
        let words: Vec<&str> = line.split_whitespace().collect();
        let null = || std::process::Stdio::null();
        let child =
            Command::new(words[0]).args(&words[1..]).stdin(null()).stdout(null()).stderr(null()).spawn();
        Process(child.unwrap_or_else(|e| panic!("{line}: {e}")))
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

impl Drop for Net {
    fn drop(&mut self) {
        for host in ["a", "b", "s"] {
            try_run(&format!("ip netns del {}", self.name(host)));
        }
    }
}

/// A child process, killed when dropped.
pub struct Process(pub std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

/// Waits until `done`, or panics after a time that is ample.
pub fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "waited 20 s in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
