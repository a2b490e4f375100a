//! Requests for exact counters, and the timeouts that go by these.

use datapath::{CacheConfig, Config, ExactTier};
use flow::{FieldId, Match};
use oracle::home::Home;
use switch::SlotStats;
use switch::control::{FlowMod, RuleFilter};

/// Flows in the exact tier of a saturated worker.
const FLOWS: u64 = 100_000;
/// How much later than its idle timeout a rule may go: up to a tenth of a second until it is looked at, and
/// two requests, one that was made too early to tell and the next. Each waits for two rounds, the one that is
/// open and its own, which are paced over a millisecond for a thousand entries.
const LATE_MS: u64 = 100 + 4 * (FLOWS / 1_000) + 10;

/// A worker that is never idle, with so many flows.
fn saturated() -> Home {
    let cache = CacheConfig { flow_limit: 2 * FLOWS as usize, max_idle_ms: 60_000 };
    let config = Config { cache, exact_tier: ExactTier::On, hash_seed: Some(1), ..Config::default() };
    let mut home = Home::new(config);
    home.rule(2, Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 1), vec![]);
    home.rule(1, Match::any(), vec![]);
    home.floods[0].set_flows(FLOWS);
    // Of flows that were never hit few get entries; once these are hit, all do.
    let entries = |home: &Home| home.dp.worker_stats(0).exact_entries.get();
    for _ in 0..20 {
        home.flood(1, 2 * FLOWS.div_ceil(packet::BURST as u64));
        home.turn_for(100);
        if entries(&home) == FLOWS {
            break;
        }
    }
    assert_eq!(entries(&home), FLOWS);
    home.floods[0].set_bursts(u64::MAX);
    home
}

/// Who asks for exact counters a thousand times a second is served, and holds up nobody's: rules expire by
/// them, to the second.
#[test]
fn counters_asked_for_all_the_time_do_not_keep_rules_from_expiring() {
    let _time = crate::stopped_time();
    let mut home = saturated();
    let began_ms = home.dp.now_ms();
    for n in 0..20 {
        let matching = Match::any().with(FieldId::InPort, 2).with(FieldId::EthDst, n);
        let rule = FlowMod { idle_timeout_s: 1, ..FlowMod::add(matching, vec![]) };
        home.control.flow_mod(home.bridge, &rule, began_ms).unwrap();
    }
    // The schedule's own request, among those of everybody else.
    let (mut own, mut gone_at) = (None, Vec::new());
    let filter = RuleFilter { matching: Match::any().with(FieldId::InPort, 2), ..RuleFilter::default() };
    while gone_at.len() < 20 {
        let now_ms = home.dp.now_ms();
        assert!(now_ms - began_ms <= 1_000 + LATE_MS, "{} of 20 rules are gone", gone_at.len());
        let ticket = home.dp.request_fold();
        let (asked, asked_ms) = *own.get_or_insert((ticket, now_ms));
        if home.dp.fold_done(asked) {
            let dp = &home.dp;
            home.control.expire(asked_ms, &|slot: u32| {
                let totals = dp.slot(slot);
                SlotStats { packets: totals.packets, bytes: totals.bytes, last_used_ms: totals.last_used_ms }
            });
            own = None;
            gone_at.resize(20 - home.control.rules(home.bridge, &filter).len(), now_ms - began_ms);
        }
        home.turn_for(1);
    }
    assert!(gone_at[0] >= 1_000, "a rule went after {} ms", gone_at[0]);
    home.floods[0].set_bursts(0);
}

/// A worker that other programs seldom let on its core serves requests in time: when it comes back, it makes
/// up for the milliseconds that it missed.
#[test]
fn a_worker_that_is_rarely_on_its_core_serves_requests_in_time() {
    const AWAY_MS: u64 = 100;
    const TURNS: u64 = 200;
    let _time = crate::stopped_time();
    let mut home = saturated();
    let (ticket, asked_ms) = (home.dp.request_fold(), home.dp.now_ms());
    while !home.dp.fold_done(ticket) {
        let waited_ms = home.dp.now_ms() - asked_ms;
        assert!(waited_ms <= 20 * AWAY_MS, "no answer in {waited_ms} ms");
        base::clock::warp(AWAY_MS);
        home.flood(1, TURNS);
    }
}

/// What a command flushes goes in steps between bursts, and before the worker sleeps.
#[test]
fn a_flush_keeps_no_burst_waiting_for_more_than_a_step() {
    const BURSTS: u64 = 500;
    let _time = crate::stopped_time();
    let mut home = saturated();
    home.floods[0].set_flows(1);
    home.floods[0].set_bursts(BURSTS);
    let received = home.floods[0].received();
    home.dp.flush_flows();
    while home.floods[0].bursts_left() > 0 {
        home.worker.turn();
    }
    assert_eq!(home.floods[0].received() - received, BURSTS * packet::BURST as u64);
    let idle_turns = (0..).take_while(|_| home.worker.turn()).count() as u64;
    // 1,024 places with the command, 64 with each burst, 1,024 with each turn that has none.
    let left = FLOWS - 1_024 - 64 * BURSTS;
    assert!(idle_turns >= left / 1_024, "{idle_turns} turns for {left} flows");
    home.turn_for(200);
    // The flow of the bursts is cached anew if its place was reached before the last of them.
    assert!(home.dp.worker_stats(0).exact_entries.get() <= 1);
}
