//! A worker on its own thread, and a control thread that changes things, or does nothing for a long time.

use base::PortNo;
use datapath::conntrack::seen::Seen;
use datapath::conntrack::timeouts::Phase;
use datapath::conntrack::tuple::Tuple;
use datapath::conntrack::{Moment, Request, Tracking};
use datapath::{Config, Datapath};
use flow::{Action, FieldId, Match};
use oracle::flood::Flood;
use oracle::home::{bridge_of, output, udp_frame};
use oracle::port::Link;
use oracle::rig::pool;
use packet::thread::CpuSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};
use switch::control::{Command, FlowMod};
use testkit::lab::wait_for;

pub fn links(dp: &mut Datapath<switch::Switch>, ports: &[u16]) -> Vec<Arc<Link>> {
    ports
        .iter()
        .map(|&p| {
            let link = Link::new(PortNo(p.into()));
            dp.add_port(PortNo(p.into()), link.port()).unwrap();
            link
        })
        .collect()
}

/// Waits for frames out of any of the links; which of them, and how many.
pub fn wait_sent(links: &[Arc<Link>], wanted: usize) -> Vec<usize> {
    let end = Instant::now() + Duration::from_secs(10);
    let mut sent = vec![0; links.len()];
    while sent.iter().sum::<usize>() < wanted {
        for (n, link) in links.iter().enumerate() {
            sent[n] += link.take_sent().len();
        }
        assert!(Instant::now() < end, "only {sent:?} of {wanted} came out");
        std::thread::yield_now();
    }
    sent
}

#[test]
fn a_changed_rule_holds_from_the_next_packet() {
    changes(testkit::cases("oracle::changed_rule", 1_000), 0);
}

#[test]
fn a_changed_rule_holds_from_the_next_packet_beside_a_flood() {
    changes(testkit::cases("oracle::changed_rule_beside_a_flood", 300), u64::MAX);
}

/// Changes rules and sends a packet after each, while another port receives bursts.
fn changes(count: u32, bursts: u64) {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2, 3]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    // The flood is dropped, by a rule above those that change.
    let at_flood =
        FlowMod { priority: 0xa000, ..FlowMod::add(Match::any().with(FieldId::InPort, 4), vec![]) };
    control.flow_mod(bridge, &at_flood, 0).unwrap();
    let (flood, port) = Flood::new(PortNo(4), udp_frame(), 500);
    dp.add_port(PortNo(4), port).unwrap();
    flood.set_bursts(bursts);
    let narrow =
        Match::any().with(FieldId::EthType, 0x800).with(FieldId::TpDst, 2000).with(FieldId::NwProto, 17);
    for n in 0..count {
        // By turns a rule modified, one added over it, and that one deleted.
        let fm = match n % 4 {
            0 | 1 => FlowMod {
                command: Command::ModifyStrict,
                ..FlowMod::add(Match::any(), vec![output(2 + (n % 2) as u16)])
            },
            2 => FlowMod { priority: 0x9000, ..FlowMod::add(narrow.clone(), vec![output(2)]) },
            _ => FlowMod {
                command: Command::DeleteStrict,
                priority: 0x9000,
                ..FlowMod::delete(narrow.clone())
            },
        };
        control.flow_mod(bridge, &fm, 0).unwrap();
        links[0].receive(vec![udp_frame(); 3]);
        let sent = wait_sent(&links, 3);
        let wanted = [[0, 3, 0], [0, 0, 3], [0, 3, 0], [0, 0, 3]][(n % 4) as usize];
        assert_eq!(sent, wanted, "after change {n}");
        control.tick(0);
    }
    assert_eq!(flood.received() > 1_000, bursts > 0);
}

#[test]
fn a_control_thread_held_for_five_seconds_loses_no_packet() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2, 3]);
    let normal = Action::Output { port: base::OfPort::NORMAL, max_len: 0 };
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![normal]), 0).unwrap();
    let start = Instant::now();
    // None of the addresses is the destination's. More of them than the ring holds.
    let (mut given, mut address) = (0, 0x1_0000u32);
    // Nobody looks at effects meanwhile: the ring of the learned addresses runs full.
    let ring = 0x1_0000 + 4_096;
    while start.elapsed() < Duration::from_secs(5) || address <= ring {
        let burst: Vec<Vec<u8>> = (0..32)
            .map(|n| {
                let mut frame = udp_frame();
                if n % 2 == 0 {
                    address += 1;
                    frame[8..12].copy_from_slice(&address.to_be_bytes());
                }
                frame
            })
            .collect();
        given += burst.len();
        links[0].receive(burst);
        // Flooded to the two other ports.
        let sent = wait_sent(&links[1..], 64);
        assert_eq!(sent, [32, 32]);
        std::thread::sleep(Duration::from_millis(2));
    }
    let stats = dp.worker_stats(0);
    // What is sent is counted after the frames have left.
    let end = Instant::now() + Duration::from_secs(10);
    while stats.tx.get() < 2 * given as u64 {
        assert!(Instant::now() < end, "only {} of {} are counted", stats.tx.get(), 2 * given);
        std::thread::yield_now();
    }
    assert!(stats.effects_refused.get() > 0);
    assert_eq!((stats.drops.total(), stats.rx.get(), stats.tx.get()), (0, given as u64, 2 * given as u64));
}

#[test]
fn a_queue_that_changes_hands_loses_nothing_and_keeps_its_order() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    let mut given = 0u32;
    let mut seen = 0u32;
    let mut check = |links: &[Arc<Link>]| {
        for frame in links[1].take_sent() {
            let number = u32::from_be_bytes(frame[42..46].try_into().unwrap());
            assert_eq!(number, seen, "a frame is missing, or has overtaken another");
            seen += 1;
        }
        seen
    };
    for round in 0..testkit::cases("oracle::queue_changes_hands", 500) {
        let burst = (0..1 + round % 32).map(|_| {
            let mut frame = udp_frame();
            frame[42..46].copy_from_slice(&given.to_be_bytes());
            given += 1;
            frame
        });
        links[0].receive(burst.collect());
        dp.move_queue(PortNo(1), 0, (round % 2) as usize).unwrap();
        assert_eq!(dp.rx_workers(PortNo(1)), [(round % 2) as usize]);
        dp.events(0);
        check(&links);
    }
    let end = Instant::now() + Duration::from_secs(10);
    while check(&links) < given {
        assert!(Instant::now() < end, "frames are missing");
        dp.events(0);
        std::thread::yield_now();
    }
    // A burst is accounted for after its frames have left.
    while dp.rx_loads(PortNo(1))[0].packets.get() < u64::from(given) {
        assert!(Instant::now() < end, "bursts are not accounted for");
        std::thread::yield_now();
    }
    let both: u64 = (0..2).map(|n| dp.worker_stats(n).rx.get()).sum();
    assert_eq!((both, dp.rx_loads(PortNo(1))[0].packets.get()), (given.into(), given.into()));
    assert!(dp.rx_loads(PortNo(1))[0].cycles.get() > 0);
    assert!(dp.move_queue(PortNo(1), 0, 2).is_err() && dp.move_queue(PortNo(1), 1, 0).is_err());
    assert!(dp.move_queue(PortNo(9), 0, 0).is_err());
}

/// Has other workers, and waits until they are there.
pub fn exchange(
    dp: &mut Datapath<switch::Switch>,
    places: &[CpuSet],
    cache: datapath::CacheConfig,
) -> Result<(), datapath::DatapathError> {
    dp.begin_workers(places, cache)?;
    loop {
        match dp.poll_workers(Instant::now()) {
            Poll::Ready(result) => return result,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

#[test]
fn workers_are_exchanged_under_traffic_and_no_frame_is_lost_or_counted_twice() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let config = Config::default();
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    dp.start_worker(None).unwrap();
    let mut links = links(&mut dp, &[1, 2]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    let mut given = 0;
    for round in 0..testkit::cases("oracle::workers_exchanged", 20) as usize {
        // More, fewer, all anew.
        let places = vec![CpuSet::all(); 1 + round % 3];
        let max_idle_ms = config.cache.max_idle_ms + (round / 3) as u32;
        dp.begin_workers(&places, datapath::CacheConfig { max_idle_ms, ..config.cache }).unwrap();
        loop {
            links[0].receive(vec![udp_frame(); 3]);
            given += 3;
            match dp.poll_workers(Instant::now()) {
                Poll::Ready(result) => break result.unwrap(),
                // What is asked for in between is refused, or done afterwards.
                Poll::Pending if round == 4 && links.len() == 2 => {
                    assert!(dp.is_exchanging() && dp.move_queue(PortNo(1), 0, 0).is_err());
                    let link = Link::new(PortNo(3));
                    dp.add_port(PortNo(3), link.port()).unwrap();
                    links.push(link);
                }
                Poll::Pending => std::thread::yield_now(),
            }
        }
        assert_eq!((dp.workers(), dp.is_exchanging()), (places.len(), false));
    }
    links[2].receive(vec![udp_frame(); 2]);
    wait_sent(&links[1..2], given + 2);
    assert!(dp.fold(Duration::from_secs(10)));
    let rules = control.rules(bridge, &switch::control::RuleFilter::default());
    let rule = rules.first().expect("the rule");
    assert_eq!(dp.slot(rule.slot).packets, given as u64 + 2);
}

#[test]
fn a_limit_that_no_cache_can_have_means_the_greatest() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let config = Config::default();
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    let unlimited = datapath::CacheConfig { flow_limit: usize::MAX, ..config.cache };
    exchange(&mut dp, &[CpuSet::all()], unlimited).unwrap();
    links[0].receive(vec![udp_frame(); 3]);
    wait_sent(&links[1..], 3);
}

#[test]
fn a_worker_does_not_hold_up_a_fold_that_was_asked_for_before_it_came() {
    let (domain, switch, ..) = bridge_of(&[]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    let before = dp.request_fold();
    dp.start_worker(None).unwrap();
    assert!(dp.fold_done(before));
    assert!(dp.fold(Duration::from_secs(10)), "later ones it serves");
}

/// A port whose transmit queue holds the worker that sends there until somebody lets it go; and how often the
/// queue was closed.
fn held_port(
    dp: &mut Datapath<switch::Switch>,
    no: PortNo,
) -> ([Arc<std::sync::Barrier>; 2], Arc<AtomicU64>) {
    let gate = [(); 2].map(|()| Arc::new(std::sync::Barrier::new(2)));
    let closed = Arc::new(AtomicU64::new(0));
    let held = Held { gate: gate.clone(), sent: Arc::default(), closed: closed.clone(), is_new: true };
    dp.add_port(no, Box::new(HeldPort(Some(held)))).unwrap();
    (gate, closed)
}

#[test]
fn a_stuck_worker_is_named_and_the_others_get_their_queues_back() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let config = Config::default();
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    (0..2).for_each(|_| _ = dp.start_worker(None).unwrap());
    let links = links(&mut dp, &[1, 2, 4]);
    let (gate, closed) = held_port(&mut dp, PortNo(3));
    let from = |port: u128| Match::any().with(FieldId::InPort, port);
    control.flow_mod(bridge, &FlowMod::add(from(1), vec![output(3)]), 0).unwrap();
    control.flow_mod(bridge, &FlowMod::add(from(2), vec![output(4)]), 0).unwrap();
    links[0].receive(vec![udp_frame(); 1]);
    gate[0].wait();
    let stuck = dp.rx_workers(PortNo(1))[0];
    assert_ne!(stuck, dp.rx_workers(PortNo(2))[0]);
    // Nobody waits for it. After a second the exchange is given up, and it is named.
    let give_up = |dp: &mut Datapath<switch::Switch>| {
        let start = Instant::now();
        dp.begin_workers(&[CpuSet::all()], config.cache).unwrap();
        assert!(dp.poll_workers(start).is_pending());
        wait_for_others(dp, stuck);
        assert!(start.elapsed() < Duration::from_millis(900));
        let late = start + Duration::from_secs(2);
        let Poll::Ready(Err(error)) = dp.poll_workers(late) else { panic!("a stuck worker has answered") };
        assert_eq!(error.to_string(), format!("no answer within 1 s from pmd-{stuck}"));
        let overdue = dp.overdue(late);
        assert!(!overdue.is_empty() && overdue.iter().all(|o| o.worker == stuck), "{overdue:?}");
        // The other one goes on.
        links[1].receive(vec![udp_frame(); 5]);
        wait_sent(&links[2..], 5);
    };
    give_up(&mut dp);
    dp.move_queue(PortNo(1), 0, 1 - stuck).unwrap();
    give_up(&mut dp);
    // What it is to send now waits for its outputs.
    assert_eq!(stuck, 0);
    assert!(dp.execute(&udp_frame(), PortNo(1), vec![datapath::DpAction::Output(PortNo(4))]));
    // A queue that is to go there, and is then called back, does not wait for it.
    dp.move_queue(PortNo(2), 0, stuck).unwrap();
    dp.move_queue(PortNo(2), 0, 1 - stuck).unwrap();
    wait_for_others(&mut dp, stuck);
    links[1].receive(vec![udp_frame(); 5]);
    wait_sent(&links[2..], 5);
    gate[1].wait();
    // Its late answers put everything where it is said to be.
    let end = Instant::now() + Duration::from_secs(10);
    control.flow_mod(bridge, &FlowMod::add(from(1), vec![output(4)]), 0).unwrap();
    links[0].receive(vec![udp_frame(); 7]);
    let mut sent = 0;
    while sent < 8 {
        sent += links[2].take_sent().len();
        dp.events(0);
        assert!(Instant::now() < end, "{sent} frames came out");
    }
    // The queue that they share is closed when the last of them has given it up.
    drop(dp.remove_port(PortNo(3)).unwrap());
    assert_eq!(closed.load(Relaxed), 1);
    exchange(&mut dp, &[CpuSet::all()], config.cache).unwrap();
    assert_eq!(dp.workers(), 1);
}

#[test]
fn the_end_of_the_datapath_does_not_wait_for_a_stuck_worker() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 3]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1]);
    let (gate, _) = held_port(&mut dp, PortNo(3));
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(3)]), 0).unwrap();
    links[0].receive(vec![udp_frame(); 1]);
    gate[0].wait();
    let start = Instant::now();
    drop(dp);
    assert!(start.elapsed() < Duration::from_secs(5));
    gate[1].wait();
}

/// Waits until the other of two workers has answered all commands.
fn wait_for_others(dp: &mut Datapath<switch::Switch>, stuck: usize) {
    let last = dp.request_flows(1 - stuck, 0).unwrap();
    while dp.take_flows(last).is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn workers_run_where_they_were_told_to_and_move_when_told_otherwise() {
    let (domain, switch, _control, _) = bridge_of(&[1]);
    let config = Config::default();
    let cache = config.cache;
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    let cpus: Vec<usize> = (0..std::thread::available_parallelism().unwrap().get().min(2)).collect();
    dp.start_worker_on(CpuSet::of(cpus.clone())).unwrap();
    let last = *cpus.last().unwrap();
    let allowed = |dp: &Datapath<switch::Switch>| {
        let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", dp.worker_thread_id(0)));
        let status = status.unwrap_or_default();
        status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:\t")).unwrap_or_default().to_owned()
    };
    let is_soon = |dp: &Datapath<switch::Switch>, expected: &str| {
        let end = Instant::now() + Duration::from_secs(60);
        while allowed(dp) != expected {
            assert!(Instant::now() < end, "{} and not {expected}", allowed(dp));
            std::thread::yield_now();
        }
    };
    let own = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = own.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:\t")).unwrap().to_owned();
    is_soon(&dp, &if last == 0 { "0".to_owned() } else { format!("0-{last}") });
    exchange(&mut dp, &[CpuSet::from(Some(last))], cache).unwrap();
    assert_eq!((allowed(&dp), dp.worker_cpu(0)), (last.to_string(), Some(last)));
    exchange(&mut dp, &[CpuSet::all()], cache).unwrap();
    assert_eq!((allowed(&dp), dp.worker_cpu(0)), (own, None));
}

#[test]
fn a_workers_accounts_add_up_to_its_time() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2]);
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(2)]), 0).unwrap();
    let accounts = |dp: &Datapath<switch::Switch>| {
        let w = dp.worker_stats(0);
        w.busy_cycles.get() + w.idle_cycles.get() + w.sleep_cycles.get()
    };
    let exchange = |bursts: u32| {
        for _ in 0..bursts {
            // Many flows, so that there is something to sweep in between.
            let burst = (0..32u16).map(|n| {
                let mut frame = udp_frame();
                frame[34..36].copy_from_slice(&n.to_be_bytes());
                frame
            });
            links[0].receive(burst.collect());
            wait_sent(&links[1..], 32);
        }
        let slept = dp.worker_stats(0).sleeps.get();
        wait_for("it to sleep too", || dp.worker_stats(0).sleeps.get() > slept);
    };
    // The accounts just after a turn was added to them, and the times between which that was: the turn under
    // way is in none of them yet, and a sleep only when it has ended, for which there is a burst.
    let settled = || {
        links[0].receive(vec![udp_frame(); 32]);
        wait_sent(&links[1..], 32);
        let (before, seen) = (base::clock::tsc(), accounts(&dp));
        let end = Instant::now() + Duration::from_secs(10);
        let now = loop {
            let now = accounts(&dp);
            if now != seen {
                break now;
            }
            assert!(Instant::now() < end, "nothing is accounted for");
            std::thread::yield_now();
        };
        (before, base::clock::tsc(), now)
    };
    let start = settled();
    for _ in 0..20 {
        exchange(50);
    }
    let end = settled();
    let accounted = (end.2 - start.2) as f64;
    // These differ by microseconds where neither thread stood still meanwhile.
    let (least, most) = ((end.0 - start.1) as f64, (end.1 - start.0) as f64);
    let shares = (accounted / most, accounted / least);
    assert!(shares.1 > 0.9 && shares.0 < 1.1, "{shares:.3?} of its time is accounted for");
}

/// A port with one transmit queue for all workers, in which the first burst is held until both barriers were
/// passed.
struct Held {
    gate: [Arc<std::sync::Barrier>; 2],
    sent: Arc<AtomicU64>,
    closed: Arc<AtomicU64>,
    is_new: bool,
}

impl packet::TxQueue for Held {
    fn tx_burst(&mut self, cache: &mut packet::PoolCache, batch: &mut packet::Batch) {
        if std::mem::take(&mut self.is_new) {
            self.gate.iter().for_each(|barrier| _ = barrier.wait());
        }
        self.sent.fetch_add(batch.len() as u64, std::sync::atomic::Ordering::Relaxed);
        cache.free_all(batch);
    }
    fn close(&mut self, _cache: &mut packet::PoolCache) {
        self.closed.fetch_add(1, Relaxed);
    }
}

struct HeldPort(Option<Held>);

impl packet::Port for HeldPort {
    fn kind(&self) -> &'static str {
        "held"
    }
    fn take_rx_queues(&mut self) -> Vec<Box<dyn packet::RxQueue>> {
        Vec::new()
    }
    fn take_tx_queues(&mut self, _count: usize) -> Vec<Box<dyn packet::TxQueue>> {
        self.0.take().into_iter().map(|queue| Box::new(queue) as Box<dyn packet::TxQueue>).collect()
    }
    fn stats(&self) -> packet::PortStats {
        packet::PortStats::default()
    }
    fn status(&self) -> packet::PortStatus {
        packet::PortStatus::up([2, 0, 0, 0, 0, 9], 1500)
    }
    fn set_admin_up(&mut self, _up: bool) -> Result<(), String> {
        Ok(())
    }
    fn set_mtu(&mut self, _mtu: u32) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn a_worker_that_finds_a_shared_queue_in_use_goes_on_and_its_packets_are_sent() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let pool = pool();
    let mut dp = Datapath::new(pool, switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    dp.start_worker(None).unwrap();
    let links = links(&mut dp, &[1, 2, 4]);
    let gate = [(); 2].map(|()| Arc::new(std::sync::Barrier::new(2)));
    let sent = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let held = Held { gate: gate.clone(), sent: sent.clone(), closed: Arc::default(), is_new: true };
    dp.add_port(PortNo(3), Box::new(HeldPort(Some(held)))).unwrap();
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(3), output(4)]), 0).unwrap();
    // The worker of port 1 is in the queue, and stays there.
    links[0].receive(vec![udp_frame(); 3]);
    gate[0].wait();
    // That of port 2 goes on meanwhile: what it sends to the same port waits, and comes out of the other one.
    for _ in 0..20 {
        links[1].receive(vec![udp_frame(); 5]);
        wait_sent(&links[2..], 5);
    }
    gate[1].wait();
    let end = Instant::now() + Duration::from_secs(10);
    let total =
        |of: &dyn Fn(&datapath::WorkerStats) -> u64| (0..2).map(|n| of(dp.worker_stats(n))).sum::<u64>();
    // Three of the frames to port 4 come from the worker that was held.
    while sent.load(std::sync::atomic::Ordering::Relaxed) < 103 || total(&|s| s.tx.get()) < 206 {
        assert!(Instant::now() < end, "only {sent:?} of 103 frames were sent");
        std::thread::yield_now();
    }
    assert_eq!((total(&|s| s.rx.get()), total(&|s| s.drops.total())), (103, 0));
}

/// A port with a transmit queue for each worker that count what they keep, and what they drop of it.
#[derive(Default)]
struct KeepingPort(Arc<[AtomicU64; 2]>);

/// Keeps what it is to send, until it is set aside.
struct Keeping {
    kept: Vec<packet::Packet>,
    counts: Arc<[AtomicU64; 2]>,
}

impl packet::TxQueue for Keeping {
    fn tx_burst(&mut self, _cache: &mut packet::PoolCache, batch: &mut packet::Batch) {
        self.counts[0].fetch_add(batch.len() as u64, Relaxed);
        self.kept.extend(batch.drain(..));
    }
    fn set_aside(&mut self, cache: &mut packet::PoolCache) {
        self.counts[1].fetch_add(self.kept.len() as u64, Relaxed);
        self.kept.drain(..).for_each(|packet| cache.free(packet));
    }
}

impl packet::Port for KeepingPort {
    fn kind(&self) -> &'static str {
        "keeping"
    }
    fn take_rx_queues(&mut self) -> Vec<Box<dyn packet::RxQueue>> {
        Vec::new()
    }
    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn packet::TxQueue>> {
        let queue = |_| -> Box<dyn packet::TxQueue> {
            Box::new(Keeping { kept: Vec::new(), counts: self.0.clone() })
        };
        (0..count).map(queue).collect()
    }
    fn stats(&self) -> packet::PortStats {
        packet::PortStats::default()
    }
    fn status(&self) -> packet::PortStatus {
        packet::PortStatus::up([2, 0, 0, 0, 0, 9], 1500)
    }
    fn set_admin_up(&mut self, _up: bool) -> Result<(), String> {
        Ok(())
    }
    fn set_mtu(&mut self, _mtu: u32) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn transmit_queues_for_which_there_is_no_worker_any_more_keep_no_packets() {
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3]);
    let config = Config::default();
    let pool = pool();
    let mut dp = Datapath::new(pool, switch, domain, config).unwrap();
    (0..2).for_each(|_| _ = dp.start_worker(None).unwrap());
    let links = links(&mut dp, &[1, 2]);
    let counts = Arc::<[AtomicU64; 2]>::default();
    dp.add_port(PortNo(3), Box::new(KeepingPort(counts.clone()))).unwrap();
    control.flow_mod(bridge, &FlowMod::add(Match::any(), vec![output(3)]), 0).unwrap();
    let [kept, dropped] = [0, 1].map(|n| move |counts: &[AtomicU64; 2]| counts[n].load(Relaxed));
    // Each worker has sent some.
    assert_ne!(dp.rx_workers(PortNo(1)), dp.rx_workers(PortNo(2)));
    links[0].receive(vec![udp_frame(); 3]);
    links[1].receive(vec![udp_frame(); 3]);
    wait_for("both workers to send", || kept(&counts) == 6);
    exchange(&mut dp, &[CpuSet::all()], config.cache).unwrap();
    assert_eq!(dropped(&counts), 3, "those of the worker that has ended");
    exchange(&mut dp, &[CpuSet::all(), CpuSet::all()], config.cache).unwrap();
    links[0].receive(vec![udp_frame(); 1]);
    links[1].receive(vec![udp_frame(); 1]);
    wait_for("both workers to send again", || kept(&counts) == 8);
    assert_eq!(dropped(&counts), 3);
}

/// Nobody polls, and no flow is cached that would have to expire.
#[test]
fn connections_end_in_time_in_a_worker_that_sleeps() {
    let (domain, switch, _control, _) = bridge_of(&[1]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.tracker().set_zone_timeouts(0, Some(&[(Phase::UdpFirst, 2)]));
    let request = Request { commit: true, ..Request::default() };
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let now_ms = dp.now_ms();
    let mut may_begin = || true;
    let mut moment = Moment::new(now_ms, 1, &mut may_begin);
    let tuple = Tuple { src: 1, dst: 2, src_port: 3, dst_port: 4, protocol: 17, is_ipv6: false };
    let seen = Seen { tuple, is_error: false, is_plain: false, tcp: Default::default() };
    dp.tracker().track(Some(&seen), &request, &mut tracking, &mut original, &mut moment).unwrap();
    assert_eq!(dp.tracker().count(), 1);
    dp.start_worker(None).unwrap();
    let _links = links(&mut dp, &[1]);
    wait_for("a connection of 2 s to end", || dp.tracker().count() == 0);
    assert!(dp.worker_stats(0).sleeps.get() > 0);
}

/// Sending is most of what the first queue's packets cost.

#[test]
fn a_worker_that_never_sleeps_is_told_so_while_it_sleeps_or_before_it_starts() {
    let (domain, switch, _control, _) = bridge_of(&[1]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.start_worker(None).unwrap();
    let loops = |dp: &Datapath<switch::Switch>, n: usize| dp.worker_stats(n).idle_loops.get();
    let polls = |dp: &Datapath<switch::Switch>, n: usize| {
        let before = loops(dp, n);
        std::thread::sleep(Duration::from_millis(50));
        loops(dp, n) - before > 100
    };
    wait_for("the worker to sleep", || !polls(&dp, 0));
    dp.set_never_sleeps(true);
    wait_for("the worker to rest, which has nothing to poll", || !polls(&dp, 0));
    let link = Link::of_device(PortNo(1));
    dp.add_port(PortNo(1), link.port()).unwrap();
    wait_for("the worker to poll", || polls(&dp, 0));
    dp.set_never_sleeps(false);
    wait_for("the worker to sleep again", || !polls(&dp, 0));
    dp.set_never_sleeps(true);
    wait_for("the worker to poll again", || polls(&dp, 0));
    dp.start_worker(None).unwrap();
    wait_for("the second worker to rest", || !polls(&dp, 1));

    let (domain, switch, _control, _) = bridge_of(&[1]);
    let mut dp = Datapath::new(pool(), switch, domain, Config::default()).unwrap();
    dp.set_never_sleeps(true);
    dp.start_worker(None).unwrap();
    let link = Link::of_device(PortNo(1));
    dp.add_port(PortNo(1), link.port()).unwrap();
    wait_for("a worker that was told before it started to poll", || polls(&dp, 0));
}
