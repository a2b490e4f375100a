//! Packets that the control thread hands over to a worker: more of them than it can send, and while workers
//! are exchanged.

use crate::threads::exchange;
use base::{DropReason, PortNo};
use datapath::{CacheConfig, Config, Datapath, DpAction};
use oracle::home::{Home, bridge_of, udp_frame};
use oracle::rig::pool;
use packet::BURST;
use packet::thread::CpuSet;
use std::task::Poll;
use std::time::Instant;

fn to_port(no: u32) -> Vec<DpAction> {
    vec![DpAction::Output(PortNo(no))]
}

/// Chunks that the packets of a bridge may hold: a 16th of [`pool`].
const SHARE: u64 = 8192 / 16;

#[test]
fn ports_have_their_turns_however_many_packets_the_control_thread_sends() {
    let mut home = Home::new(Config::default());
    (0..SHARE).for_each(|_| assert!(home.dp.execute(&udp_frame(), PortNo(1), to_port(2))));
    home.floods[2].set_bursts(u64::MAX);
    home.worker.turn();
    let sent = home.floods[1].sent();
    assert!((1..=BURST as u64).contains(&sent), "{sent}");
    turn_until_sent(&mut home, SHARE);
    // Dear ones leave as much time to the ports as they take, and none of them waits for ever.
    let (dear, copies) = (50, 4_000);
    let actions = vec![DpAction::Output(PortNo(2)); copies];
    (0..dear).for_each(|_| assert!(home.dp.execute(&udp_frame(), PortNo(1), actions.clone())));
    let turns = turn_until_sent(&mut home, SHARE + dear * copies as u64);
    assert!(turns > 2 * dear, "{turns}");
    assert_eq!(home.dp.worker_stats(0).drops.get(DropReason::OutputPortGone), 0);
    home.floods[2].set_bursts(0);
    home.settle();
    drop((home.worker, home.dp));
    assert_eq!(pool().stats().free, pool().stats().total);
}

/// Takes turns until as many packets have left port 2. Returns how many: in each, a burst has come in at port
/// 3.
fn turn_until_sent(home: &mut Home, wanted: u64) -> u64 {
    let mut turns = 0;
    while home.floods[1].sent() < wanted {
        let before = home.floods[2].received();
        home.worker.turn();
        assert_eq!(home.floods[2].received(), before + BURST as u64);
        turns += 1;
    }
    turns
}

#[test]
fn commands_keep_their_order_behind_packets_that_wait_for_their_turn() {
    let mut home = Home::new(Config::default());
    (0..SHARE).for_each(|_| assert!(home.dp.execute(&udp_frame(), PortNo(1), to_port(2))));
    let flows = home.dp.request_flows(0, 0).unwrap();
    home.worker.turn();
    assert!(home.dp.take_flows(flows).is_none(), "it overtook them");
    // A worker that has some left has something to do.
    home.settle();
    assert_eq!(home.floods[1].sent(), SHARE);
    assert!(home.dp.take_flows(flows).is_some());
}

#[test]
fn packets_of_the_control_thread_hold_their_share_of_the_pool_at_most() {
    let mut home = Home::new(Config::default());
    for round in 1..=3 {
        (0..2_000).for_each(|_| assert!(home.dp.execute(&udp_frame(), PortNo(1), to_port(2))));
        let stats = pool().stats();
        assert_eq!((stats.total - stats.free) as u64, SHARE);
        assert_eq!(home.dp.drops(DropReason::PacketOutQuota), round * (2_000 - SHARE));
        home.settle();
        assert_eq!(home.floods[1].sent(), round * SHARE);
    }
    assert_eq!(pool().stats().free, pool().stats().total);
    // A packet counts by its chunks.
    (0..SHARE).for_each(|_| assert!(home.dp.execute(&[0; 9_000], PortNo(1), to_port(2))));
    let stats = pool().stats();
    let held = (stats.total - stats.free) as u64;
    assert!((SHARE - 8..=SHARE).contains(&held), "{held}");
    home.settle();
    assert_eq!(pool().stats().free, pool().stats().total);
}

#[test]
fn packets_of_one_bridge_leave_some_of_the_share_to_those_of_others() {
    let mut home = Home::new(Config::default());
    let execute = |home: &mut Home, bridge, packets: u64| {
        let before = home.dp.drops(DropReason::PacketOutQuota);
        for _ in 0..packets {
            let packet = home.dp.cache().alloc_frame(&udp_frame()).unwrap();
            assert!(home.dp.execute_tracked(bridge, packet, None, to_port(2)));
        }
        packets - (home.dp.drops(DropReason::PacketOutQuota) - before)
    };
    for round in 1..=3 {
        assert_eq!(execute(&mut home, 1, 2_000), SHARE);
        assert_eq!(execute(&mut home, 2, 2_000), SHARE / 2, "as many as are left then");
        assert_eq!(execute(&mut home, 3, 10), 10);
        // What has been sent is no longer held.
        home.worker.turn();
        assert_eq!(execute(&mut home, 1, 10), 0, "others hold some still");
        home.settle();
        assert_eq!(home.floods[1].sent(), round * (SHARE + SHARE / 2 + 10));
    }
    // However many bridges there are, ports have most of the pool.
    (1..200).for_each(|bridge| _ = execute(&mut home, bridge, SHARE));
    let stats = pool().stats();
    let held = (stats.total - stats.free) as u64;
    assert!((2 * SHARE - 10..=2 * SHARE).contains(&held), "{held}");
    home.settle();
    assert_eq!(pool().stats().free, pool().stats().total);
}

#[test]
fn packets_that_the_control_thread_sends_while_workers_are_exchanged_are_sent_by_the_new_ones() {
    let (domain, switch, ..) = bridge_of(&[1, 2]);
    let config = Config::default();
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    dp.start_worker(None).unwrap();
    let links = crate::threads::links(&mut dp, &[1, 2]);
    for round in 0..20 {
        // More, fewer, all anew.
        let places = vec![CpuSet::all(); 1 + round % 3];
        let max_idle_ms = config.cache.max_idle_ms + (round / 2) as u32;
        dp.begin_workers(&places, CacheConfig { max_idle_ms, ..config.cache }).unwrap();
        let mut in_round = 0;
        loop {
            let is_over = match dp.poll_workers(Instant::now()) {
                Poll::Ready(result) => result.map(|()| true).unwrap(),
                Poll::Pending => false,
            };
            if in_round < 10 {
                assert!(dp.execute(&udp_frame(), PortNo(1), to_port(2)));
                in_round += 1;
            }
            if is_over {
                break;
            }
            std::thread::yield_now();
        }
        crate::threads::wait_sent(&links[1..], in_round);
    }
    // Nor are they more than at other times.
    dp.begin_workers(&[CpuSet::all()], config.cache).unwrap();
    assert!(dp.poll_workers(Instant::now()).is_pending());
    (0..2_000).for_each(|_| assert!(dp.execute(&udp_frame(), PortNo(1), to_port(2))));
    assert_eq!(dp.drops(DropReason::PacketOutQuota), 2_000 - SHARE);
    while dp.poll_workers(Instant::now()).is_pending() {
        std::thread::yield_now();
    }
    crate::threads::wait_sent(&links[1..], SHARE as usize);
    let others = DropReason::ALL.iter().filter(|reason| **reason != DropReason::PacketOutQuota);
    assert_eq!(others.map(|reason| dp.drops(*reason)).sum::<u64>(), 0);
    exchange(&mut dp, &[CpuSet::all(), CpuSet::all()], config.cache).unwrap();
    drop(dp);
    assert_eq!(pool().stats().free, pool().stats().total);
}

#[test]
fn packets_that_wait_when_the_datapath_ends_return_to_the_pool() {
    let (domain, switch, ..) = bridge_of(&[1, 2]);
    let config = Config::default();
    let mut dp = Datapath::new(pool(), switch, domain, config).unwrap();
    dp.start_worker(None).unwrap();
    let _links = crate::threads::links(&mut dp, &[1, 2]);
    let cache = CacheConfig { max_idle_ms: config.cache.max_idle_ms + 1, ..config.cache };
    dp.begin_workers(&[CpuSet::all()], cache).unwrap();
    assert!(dp.poll_workers(Instant::now()).is_pending());
    (0..100).for_each(|_| assert!(dp.execute(&udp_frame(), PortNo(1), to_port(2))));
    drop(dp);
    assert_eq!(pool().stats().free, pool().stats().total);
}
