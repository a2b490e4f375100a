//! The packet path allocates nothing: neither where flows are known, nor, once warm, where each packet is of
//! a new one.

use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo, Version};
use datapath::{
    CacheConfig, Config, Datapath, DpAction, ExactTier, FlowView, Pipeline, PortView, Translation,
};
use flow::{Action, Depth, FieldId, Key, Match, Mf};
use oracle::flood::Flood;
use oracle::home::{Home, output, udp_frame};
use oracle::rig::pool;
use std::sync::Arc;
use testkit::alloc::{Counting, allocations};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn home(exact_tier: ExactTier, flow_limit: usize) -> Home {
    assert!(allocations() > 0, "the allocator does not count");
    let cache = CacheConfig { flow_limit, max_idle_ms: 5_000 };
    Home::new(Config { cache, exact_tier, ..Config::default() })
}

fn at_port(in_port: u128) -> Match {
    Match::any().with(FieldId::InPort, in_port).with(FieldId::EthType, 0x800)
}

/// Rules that drop, output, and execute a list, each reading the source address, so that each is a flow of
/// its own.
fn with_rules(mut home: Home) -> Home {
    let exact = |port: u128, source: u128| {
        Match::any().with(FieldId::InPort, port).with(FieldId::EthType, 0x800).with_masked(
            FieldId::NwSrc,
            source,
            0xffff_ffff,
        )
    };
    let set = Action::SetField { field: Mf::NwDst, value: 0x0a00_0009, mask: Mf::NwDst.ones() };
    for (priority, port, actions) in [
        (1, 1, vec![output(2)]),
        (2, 2, vec![]),
        (3, 3, vec![set, output(1), output(2), Action::DecTtl(None), output(4)]),
        (4, 4, vec![output(OfPort::NORMAL.0)]),
    ] {
        // Prefixes of every length keep the megaflows of all others narrow.
        home.rule(100 + priority, exact(port, 0x0c00_0000), vec![output(1)]);
        home.rule(priority, at_port(port), actions);
        home.rule(200 + priority, exact(port, 0x0b00_0000 + 0x00ff_ffff), vec![output(1)]);
    }
    home
}

/// Each packet goes round twice, and a copy of it too: more than a burst's worth waits at a time.
struct Twice;

impl Pipeline for Twice {
    type Effect = ();
    fn version(&self) -> Version {
        Version(1)
    }
    fn port_view(&self, port: PortNo) -> Arc<PortView> {
        Arc::new(PortView::new(OfPort(port.0 as u16), Depth::Ethernet))
    }
    fn translate(&self, _: Version, key: &Key, _: &Reader, out: &mut Translation<()>) {
        for f in [FieldId::InPort, FieldId::DpPort, FieldId::RecircId, FieldId::EthType, FieldId::NwFrag] {
            out.mask.add_exact(f);
        }
        match key.get(FieldId::RecircId) {
            0 => out.actions.extend([DpAction::Clone(vec![DpAction::Recirc(1)]), DpAction::Recirc(1)]),
            1 => out.actions.push(DpAction::Recirc(2)),
            _ => out.actions.push(DpAction::Output(PortNo(2))),
        }
    }
    fn touched(&self, _: FlowView<'_>, _: Version, _: Version, _: &Reader) -> bool {
        false
    }
}

#[test]
fn packets_that_go_round_allocate_nothing() {
    let mut dp = Datapath::new(pool(), Arc::new(Twice), Domain::new(), Config::default()).unwrap();
    let mut worker = dp.stepped_worker().unwrap();
    let (from, port) = Flood::new(PortNo(1), udp_frame(), 1);
    dp.add_port(PortNo(1), port).unwrap();
    let (to, port) = Flood::new(PortNo(2), udp_frame(), 1);
    dp.add_port(PortNo(2), port).unwrap();
    let mut flood = |bursts| {
        from.set_bursts(bursts);
        while from.bursts_left() > 0 {
            worker.turn();
        }
    };
    flood(3);
    let before = allocations();
    flood(100);
    assert_eq!(allocations() - before, 0);
    assert_eq!(to.sent(), 103 * 2 * packet::BURST as u64);
}

#[test]
fn neither_hits_nor_warm_misses_allocate() {
    for exact_tier in [ExactTier::On, ExactTier::Off] {
        let mut home = with_rules(home(exact_tier, 4096));
        for flows in [1, 1_000] {
            home.floods.iter().for_each(|f| f.set_flows(flows));
            for _ in 0..3 {
                (1..=4).for_each(|port| home.flood(port, 64));
                home.pump();
            }
            let misses = home.dp.worker_stats(0).misses.get();
            let before = allocations();
            // Longer than a second, so that a sweep and an expiry are in it.
            for _ in 0..12 {
                (1..=4).for_each(|port| home.flood(port, 64));
                home.turn_for(100);
            }
            assert_eq!(allocations() - before, 0, "hits of {flows} flows, {exact_tier:?}");
            let new = home.dp.worker_stats(0).misses.get() - misses;
            assert!(new < 64, "{new} misses");
        }
    }
}

#[test]
fn flows_that_never_come_again_allocate_nothing_once_warm() {
    for exact_tier in [ExactTier::On, ExactTier::Off] {
        let mut home = with_rules(home(exact_tier, 1024));
        // A rule for every source address: no two flows share a megaflow.
        for source in 0..2_000 {
            let m = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 0x0b00_0000 + source);
            home.rule(1_000 + source as i32, m, vec![output(2), output(3)]);
        }
        home.floods.iter().for_each(|f| f.set_flows(2_000));
        // A place keeps the room for the longest list that it ever had. Let all places have long ones: those
        // of flows in use would get them one by one.
        (1..=4).for_each(|port| home.flood(port, 64));
        home.pump();
        home.turn_for(2_100);
        home.flood(3, 256);
        home.pump();
        for _ in 0..6 {
            (1..=4).for_each(|port| home.flood(port, 64));
            home.pump();
        }
        let (misses, before) = (home.dp.worker_stats(0).misses.get(), allocations());
        for _ in 0..6 {
            (1..=4).for_each(|port| home.flood(port, 64));
        }
        assert_eq!(allocations() - before, 0, "misses, {exact_tier:?}");
        let new = home.dp.worker_stats(0).misses.get() - misses;
        assert!(new > 20_000, "{new} misses");
    }
}
