//! Two guests in one thread of the benchmark's own: a tester that knows exactly what it has offered.
//!
//! The thread plays the drivers of both guests in turns, so that it needs only one processor and neither
//! guest waits for the other's time slice. Guest A sends, at a given rate or as fast as its ring accepts
//! packets. With [`Route::GuestToGuest`] guest B receives them; with [`Route::Loopback`] it sends them back,
//! and A receives them: A then represents the wire of the test through a guest, at a controlled rate, which a
//! source in memory cannot provide.
//!
//! A packet that is due while A's ring is full counts as offered and lost, as on a wire. If the thread itself
//! was held up, what it could not offer in time is not offered at all: sent at once, it could overflow rings
//! that are large enough for the rate, and the loss would be none of the switch's. A rate that a search finds
//! is the switch's if a higher one lost too much, and if the tester offered both in full.

use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::ovs_dpdk::OvsDpdk;
use crate::measure::pvp_types::{
    Args, GUEST, Lost, RING_SIZE, Row, SOURCE, Turn, miss_ratio, row, rules, rules_text,
};
use crate::measure::rig::{DRIVER_CPU, Meter, Rig, WARM_UP_CPU_NS_MAX, WARM_UP_LOOK, settle};
use base::PortNo;
use base::clock::tsc;
use datapath::Config;
use guest::{Guest, GuestConfig, QueuePair};
use packet::LinkState;
use ports::PortSpec;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets per call of a driver.
const BURST: usize = 32;
/// Packets overdue beyond this were not offered: the tester was held up. A ring has room for four times as
/// many.
const OVERDUE_MAX: u64 = RING_SIZE as u64 / 4;
/// The share of a rate that the tester must have offered.
const OFFERED_MIN: f64 = 0.99;
/// As fast as the ring takes packets.
const UNPACED: u64 = u64::MAX;
/// Steps of the search for the highest rate: it ends within a hundredth of the highest.
const SEARCH_STEPS: u32 = 7;
/// How often a rate is tried before it counts as too high: if the machine takes a processor away from the
/// switch or the tester for a moment, packets are lost that neither would lose.
const TRIES: u32 = 8;
/// Before a turn at a rate, packets come slowly, so that both switches are awake when it begins: the time to
/// wake up is measured separately (`wake`).
const AWAKENING: Duration = Duration::from_millis(10);
/// Packets per second meanwhile.
const AWAKENING_RATE: u64 = 100_000;
/// If nothing has arrived for this long, nothing is in flight any more.
const DRAIN: Duration = Duration::from_millis(20);
/// Without a rate, and with nothing come for this long, the tester's thread sleeps until it is woken.
const IDLE: Duration = Duration::from_millis(200);

/// The path of the tester's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// From A to B.
    GuestToGuest,
    /// From A to B, and back.
    Loopback,
}

#[derive(Default)]
struct Shared {
    /// Packets per second; 0: none.
    rate: AtomicU64,
    offered: AtomicU64,
    /// Of those, packets for which A's ring had no room.
    not_sent: AtomicU64,
    received: AtomicU64,
    thread_id: AtomicI32,
    is_ready: AtomicBool,
    ending: AtomicBool,
}

/// See the module documentation.
struct Tester {
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<Result<(), String>>>,
}

impl Tester {
    /// Listens for a switch on both sockets, one after the other.
    fn start(sockets: [PathBuf; 2], frames: Vec<Vec<u8>>, route: Route) -> Tester {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = std::thread::spawn(move || {
            packet::thread::pin(DRIVER_CPU);
            its.thread_id.store(packet::thread::id(), Ordering::Relaxed);
            let config = GuestConfig { ring_size: RING_SIZE as u16, ..GuestConfig::default() };
            let listen = |socket: &Path| {
                // A socket of one before would be in its way.
                let _ = std::fs::remove_file(socket);
                Guest::listen(socket, &config, Duration::from_secs(30)).map_err(|e| e.to_string())
            };
            let mut guests = [listen(&sockets[0])?, listen(&sockets[1])?];
            let mut pairs = guests.iter_mut().flat_map(Guest::take_pairs);
            let (Some(a), Some(b)) = (pairs.next(), pairs.next()) else { return Err("no rings".into()) };
            drop(pairs);
            its.is_ready.store(true, Ordering::Release);
            Work { shared: &its, a, b, frames: &frames, next: 0, route }.run();
            Ok(())
        });
        Tester { shared, thread: Some(thread) }
    }

    /// Waits until both guests have a switch.
    fn wait(&mut self) -> Result<(), String> {
        let start = Instant::now();
        while !self.shared.is_ready.load(Ordering::Acquire) {
            if self.thread.as_ref().is_none_or(|t| t.is_finished())
                || start.elapsed() > Duration::from_secs(40)
            {
                let ended = self.thread.take().filter(|t| t.is_finished());
                let why = ended.and_then(|t| t.join().ok()).and_then(Result::err);
                return Err(format!("the tester's guests: {}", why.unwrap_or("no switch came".into())));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn set_rate(&self, packets_per_second: u64) {
        self.shared.rate.store(packets_per_second, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        if let Some(thread) = &self.thread {
            thread.thread().unpark();
        }
    }

    /// Packets offered, packets received, CPU time.
    fn reading(&self) -> (u64, u64, f64) {
        let of = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let cpu = base::clock::cpu_time_ns(self.shared.thread_id.load(Ordering::Relaxed)).unwrap_or(0);
        (of(&self.shared.offered), of(&self.shared.received), cpu as f64 / 1e9)
    }

    fn not_sent(&self) -> u64 {
        self.shared.not_sent.load(Ordering::Relaxed)
    }
}

impl Drop for Tester {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        self.wake();
        if let Some(thread) = self.thread.take().filter(|_| self.shared.is_ready.load(Ordering::Acquire)) {
            // A panic in it was printed when it happened.
            let _ = thread.join();
        }
    }
}

/// The state of the tester's thread.
struct Work<'a> {
    shared: &'a Shared,
    a: QueuePair,
    b: QueuePair,
    frames: &'a [Vec<u8>],
    next: usize,
    route: Route,
}

impl Work<'_> {
    fn run(mut self) {
        let (mut rate, mut since, mut made) = (0, tsc(), 0u64);
        let mut idle_since = None;
        while !self.shared.ending.load(Ordering::Acquire) {
            let wanted = self.shared.rate.load(Ordering::Acquire);
            if wanted != rate {
                (rate, since, made) = (wanted, tsc(), 0);
            }
            let count = if rate == UNPACED {
                BURST as u64
            } else {
                let ticks = u128::from(tsc() - since);
                let due = (ticks * u128::from(rate) / u128::from(base::clock::tsc_hz())) as u64 - made;
                made += due.saturating_sub(OVERDUE_MAX);
                due.min(BURST as u64)
            };
            let sent = self.send(count as usize);
            made += count;
            let offered = if rate == UNPACED { sent } else { count };
            // This thread alone writes them.
            let add = |to: &AtomicU64, n| to.store(to.load(Ordering::Relaxed) + n, Ordering::Relaxed);
            add(&self.shared.offered, offered);
            add(&self.shared.not_sent, offered - sent);
            let received = match self.route {
                Route::GuestToGuest => self.b.discard(2 * BURST),
                Route::Loopback => {
                    self.b.loop_back(BURST);
                    self.a.discard(2 * BURST)
                }
            } as u64;
            add(&self.shared.received, received);
            if rate != 0 || received != 0 {
                idle_since = None;
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < IDLE {
                std::thread::sleep(Duration::from_micros(500));
            } else {
                // Until the next rate, or the end: whose turn it is has the processor to itself.
                std::thread::park();
            }
        }
    }

    fn send(&mut self, count: usize) -> u64 {
        let frame = |n: usize| self.frames[(self.next + n) % self.frames.len()].as_slice();
        let sent = self.a.send_all((0..count).map(frame));
        self.next = (self.next + sent) % self.frames.len();
        sent as u64
    }
}

/// A switch with the tester at it.
trait Switch {
    fn tester(&self) -> &Tester;
    /// As in rows.
    fn name(&self) -> &'static str;
    /// Lets the switch run for a while.
    fn run_for(&mut self, time: Duration);
    /// CPU time in seconds, cycles busy, cycles idle.
    fn reading(&self) -> Result<(f64, u64, u64), String>;
    /// Packets received, and those that no cache knew.
    fn lookups(&self) -> Result<(u64, u64), String>;
    /// Packets for which the guests' rings had no room.
    fn dropped(&self) -> Result<u64, String>;

    /// Ends the traffic, and waits some seconds at most for packets in flight.
    fn drain(&mut self) {
        self.tester().set_rate(0);
        for _ in 0..100 {
            let before = self.tester().reading().1;
            self.run_for(DRAIN);
            if self.tester().reading().1 == before {
                return;
            }
        }
    }

    /// One turn at this rate.
    fn turn(&mut self, rate: u64, time: Duration) -> Result<Turn, String> {
        // Packets in flight from before do not belong to this turn, and none of its own must be missed:
        // offered and received packets are compared between two moments at which nothing is in flight.
        let watch = Watch::start(&[std::process::id()]);
        self.drain();
        let empty_before = (self.tester().reading(), self.tester().not_sent(), self.dropped()?);
        if rate == UNPACED {
            self.tester().set_rate(rate);
            self.run_for(Duration::from_millis(200));
        } else {
            self.tester().set_rate(rate.min(AWAKENING_RATE));
            self.run_for(AWAKENING);
            self.tester().set_rate(rate);
        }
        let start = Instant::now();
        let lookups = self.lookups()?;
        let (before, load_before) = (self.tester().reading(), self.reading()?);
        self.run_for(time);
        let seconds = start.elapsed().as_secs_f64();
        if rate != UNPACED {
            self.drain();
        }
        let (after, load_after) = (self.tester().reading(), self.reading()?);
        let miss_ratio = miss_ratio(self.lookups()?, lookups);
        self.drain();
        let empty_after = (self.tester().reading(), self.tester().not_sent(), self.dropped()?);
        turns::note(self.name(), watch.end());
        let (busy, idle) = (load_after.1 - load_before.1, load_after.2 - load_before.2);
        let wanted = if rate == UNPACED { 0.0 } else { rate as f64 * seconds };
        Ok(Turn {
            seconds,
            delivered: after.1 - before.1,
            is_full: (after.0 - before.0) as f64 >= wanted * OFFERED_MIN,
            offered: empty_after.0.0 - empty_before.0.0,
            arrived: empty_after.0.1 - empty_before.0.1,
            lost: Lost {
                not_sent: empty_after.1 - empty_before.1,
                at_ports: empty_after.2 - empty_before.2,
                in_guest: 0,
            },
            from_before: 0,
            cpu_s: load_after.0 - load_before.0,
            busy: busy as f64 / ((busy + idle) as f64).max(1.0),
            miss_ratio,
            guest_cpu_s: after.2 - before.2,
        })
    }
}

struct Ours {
    rig: Rig,
    tester: Tester,
}

impl Switch for Ours {
    fn tester(&self) -> &Tester {
        &self.tester
    }

    fn name(&self) -> &'static str {
        "crosspoint"
    }

    fn run_for(&mut self, time: Duration) {
        self.rig.run_for(time);
    }

    fn reading(&self) -> Result<(f64, u64, u64), String> {
        let worker = self.rig.datapath.worker_stats(0);
        let cpu = base::clock::cpu_time_ns(self.rig.datapath.worker_thread_id(0)).unwrap_or(0);
        Ok((cpu as f64 / 1e9, worker.busy_cycles.get(), worker.idle_cycles.get()))
    }

    fn lookups(&self) -> Result<(u64, u64), String> {
        Ok(Meter::read(&self.rig).lookups())
    }

    fn dropped(&self) -> Result<u64, String> {
        let of = |no: PortNo| self.rig.datapath.port_stats(no).tx_dropped;
        Ok(of(SOURCE) + of(GUEST))
    }
}

struct Theirs<'a> {
    peer: &'a mut OvsDpdk,
    tester: Tester,
}

impl Switch for Theirs<'_> {
    fn tester(&self) -> &Tester {
        &self.tester
    }

    fn name(&self) -> &'static str {
        "ovs-dpdk"
    }

    fn run_for(&mut self, time: Duration) {
        std::thread::sleep(time);
    }

    fn reading(&self) -> Result<(f64, u64, u64), String> {
        let (cpu, busy, idle) = self.peer.busy_reading()?;
        Ok((cpu as f64 / 1e9, busy, idle))
    }

    fn lookups(&self) -> Result<(u64, u64), String> {
        self.peer.lookups()
    }

    fn dropped(&self) -> Result<u64, String> {
        let counters = [("vhost", "TX", "dropped"), ("vhost2", "TX", "dropped")];
        Ok(self.peer.port_counters(counters)?.iter().sum())
    }
}

fn ours(sockets: [PathBuf; 2], frames: Vec<Vec<u8>>, route: Route, flows: usize) -> Result<Ours, String> {
    let mut tester = Tester::start(sockets.clone(), frames, route);
    let mut rig = Rig::new(Config::default())?;
    for (no, socket) in [SOURCE, GUEST].into_iter().zip(&sockets) {
        crate::process::wait_for(socket)?;
        let spec = PortSpec::new(&format!("vhost{no}"), "dpdkvhostuserclient", no);
        rig.add_port(&spec.with("vhost-server-path", &socket.to_string_lossy()))?;
    }
    rig.add_rules(&rules(flows, back(route)))?;
    tester.wait()?;
    let is_up = |no: PortNo| rig.datapath.port(no).map(|p| p.status().link) == Some(LinkState::Up);
    let start = Instant::now();
    while !(is_up(SOURCE) && is_up(GUEST)) {
        if start.elapsed() > Duration::from_secs(10) {
            return Err("the tester's ports did not come up".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(Ours { rig, tester })
}

fn theirs<'a>(
    peer: &'a mut OvsDpdk,
    sockets: [PathBuf; 2],
    frames: Vec<Vec<u8>>,
    route: Route,
    flows: usize,
) -> Result<Theirs<'a>, String> {
    peer.drop_source()?;
    peer.set_rules(&rules_text(flows, back(route)))?;
    let mut tester = Tester::start(sockets.clone(), frames, route);
    for (name, no, socket) in [("vhost", SOURCE, &sockets[0]), ("vhost2", GUEST, &sockets[1])] {
        peer.drop_port(name)?;
        crate::process::wait_for(socket)?;
        peer.add_vhost(name, socket, no.0 as u16)?;
    }
    tester.wait()?;
    // It looks at new rings when its own threads come round.
    std::thread::sleep(Duration::from_secs(2));
    Ok(Theirs { peer, tester })
}

/// The destination of guest B's packets, if it sends any.
fn back(route: Route) -> Option<PortNo> {
    (route == Route::Loopback).then_some(SOURCE)
}

/// Both switches at one size and number of flows.
pub fn point(
    args: &Args,
    dir: &Path,
    route: Route,
    size: u16,
    flows: usize,
    peer: Option<&mut OvsDpdk>,
) -> Result<Vec<Row>, String> {
    let order = crate::measure::frames::sequence(flows, crate::measure::frames::Order::Shuffled);
    let frames: Vec<Vec<u8>> =
        order.into_iter().map(|n| crate::measure::frames::frame_of(n, usize::from(size) - 4)).collect();
    let time = args.common.turn();
    let sockets = |name: &str| [dir.join(format!("{name}-a")), dir.join(format!("{name}-b"))];
    let measure = |switch: &mut dyn Switch| match args.loss {
        Some(loss) => search(switch, loss, time),
        None => switch.turn(UNPACED, time),
    };
    let mut ours = ours(sockets("ours"), frames.clone(), route, flows)?;
    warm_up(&mut ours, args.common.turn_ms)?;
    let mut theirs = match peer {
        Some(peer) => {
            peer.resume()?;
            let mut theirs = theirs(peer, sockets("theirs"), frames, route, flows)?;
            warm_up(&mut theirs, args.common.turn_ms)?;
            theirs.peer.pause()?;
            Some(theirs)
        }
        None => None,
    };
    let (mut our_turns, mut their_turns) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        our_turns.push(measure(&mut ours)?);
        // Our worker sleeps while nothing comes.
        if let Some(theirs) = &mut theirs {
            theirs.peer.resume()?;
            std::thread::sleep(Duration::from_millis(300));
            their_turns.push(measure(theirs)?);
            theirs.peer.pause()?;
        }
    }
    let mut rows = vec![row(ours.name(), args, size, flows, &our_turns)];
    if let Some(theirs) = theirs {
        rows.push(row(theirs.name(), args, size, flows, &their_turns));
        theirs.peer.resume()?;
        theirs.peer.drop_port("vhost")?;
        theirs.peer.drop_port("vhost2")?;
    }
    Ok(rows)
}

/// Either switch, by the same rule as [`Rig::warm_up`].
fn warm_up(switch: &mut dyn Switch, turn_ms: u64) -> Result<(), String> {
    let turn = switch.turn(UNPACED, settle(1_500, turn_ms))?;
    if turn.delivered == 0 {
        return Err("nothing came through the switch".into());
    }
    let start_s = switch.reading()?.0;
    switch.tester().set_rate(UNPACED);
    loop {
        let before = switch.lookups()?.1;
        switch.run_for(WARM_UP_LOOK);
        let cpu_ns = (switch.reading()?.0 - start_s) * 1e9;
        if switch.lookups()?.1 == before || cpu_ns > WARM_UP_CPU_NS_MAX as f64 {
            switch.drain();
            return Ok(());
        }
    }
}

/// The turn with the highest rate found at which no more than this share of the packets is lost.
fn search(switch: &mut dyn Switch, loss: f64, time: Duration) -> Result<Turn, String> {
    let most = switch.turn(UNPACED, time)?;
    let none = Turn { delivered: 0, offered: 0, arrived: 0, lost: Lost::default(), ..most };
    highest(none, most.delivered as f64 / most.seconds * 1.05, |rate| {
        let mut last = switch.turn(rate, time)?;
        for _ in 1..TRIES {
            if is_good(&last, loss) {
                break;
            }
            last = switch.turn(rate, time)?;
        }
        Ok((is_good(&last, loss), last))
    })
}

fn is_good(turn: &Turn, loss: f64) -> bool {
    turn.offered > 0 && turn.loss() <= loss
}

/// The best turn by halving; `none` if no rate was good. Unless a rate above it was bad, and the tester
/// offered both in full, the turn is marked as the tester's.
fn highest(
    none: Turn,
    mut high: f64,
    mut try_rate: impl FnMut(u64) -> Result<(bool, Turn), String>,
) -> Result<Turn, String> {
    let (mut low, mut best, mut is_switch) = (0.0, none, false);
    for _ in 0..SEARCH_STEPS {
        let rate = (low + high) / 2.0;
        match try_rate(rate as u64)? {
            (true, turn) => (low, best) = (rate, turn),
            (false, turn) => (high, is_switch) = (rate, turn.is_full),
        }
    }
    best.is_full &= is_switch;
    Ok(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_testers_unless_a_higher_one_that_was_offered_in_full_lost_too_much() {
        let turn = |rate: u64| Turn {
            seconds: 1.0,
            delivered: rate,
            offered: rate,
            arrived: rate,
            ..Turn::default()
        };
        let found = |limit: u64, full_to: u64| {
            let try_rate = |rate| Ok((rate <= limit, Turn { is_full: rate <= full_to, ..turn(rate) }));
            let best = highest(Turn { is_full: true, ..turn(0) }, 1_000.0, try_rate).unwrap();
            (best.delivered, best.is_full)
        };
        // 1,000 halved seven times leaves steps of 8.
        assert_eq!(found(600, 2_000), (593, true));
        // Nothing was lost at any rate; and the tester did not offer what lost too much, or what did not.
        assert_eq!(found(2_000, 2_000), (992, false));
        assert_eq!((found(600, 600), found(600, 500)), ((593, false), (593, false)));
        assert_eq!(found(0, 2_000), (0, true));
    }
}
