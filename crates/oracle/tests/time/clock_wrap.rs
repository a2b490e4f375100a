//! Entries of the caches keep the low 32 bits of their times, which wrap every 49.7 days.

use datapath::{CacheConfig, Config, ExactTier};
use flow::{FieldId, Match};
use oracle::home::{Home, output};

const MAX_IDLE_MS: u32 = 3_000;

#[test]
fn flows_in_use_stay_and_idle_ones_go_when_the_low_half_of_the_clock_wraps() {
    let _time = crate::stopped_time();
    let cache = CacheConfig { flow_limit: 4096, max_idle_ms: MAX_IDLE_MS };
    let config = Config { cache, exact_tier: ExactTier::On, hash_seed: Some(1), ..Config::default() };
    let mut home = Home::new(config);
    let by_source = Match::any().with(FieldId::EthType, 0x800).with(FieldId::NwSrc, 0x0b00_0000);
    home.rule(1, by_source, vec![output(2)]);
    home.rule(2, Match::any().with(FieldId::InPort, 2), vec![output(1)]);
    let to_wrap_ms = u64::from(u32::MAX) - u64::from(home.dp.now_ms() as u32);
    base::clock::warp(to_wrap_ms - 3_800);
    home.turn_for(2);
    // One flow is in use, behind its exact entry; the other is used once, before the wrap.
    home.flood(2, 1);
    home.settle();
    for _ in 0..16 {
        home.flood(1, 1);
        home.settle();
        base::clock::warp(500);
        home.turn_for(2);
    }
    assert!((home.dp.now_ms() as u32) < 10_000, "the clock has wrapped");
    home.flood(1, 1);
    home.settle();
    home.turn_for(300);
    let stats = home.dp.worker_stats(0);
    assert_eq!((stats.megaflows.get(), stats.exact_entries.get(), stats.misses.get()), (1, 1, 2));
    let rules = home.control.rules(home.bridge, &switch::control::RuleFilter::default());
    let rule = rules.iter().find(|r| r.priority == 1).expect("the rule");
    let (used, now) = (home.dp.slot(rule.slot), home.dp.now_ms());
    assert_eq!(used.packets, 17 * packet::BURST as u64);
    assert!(used.last_used_ms <= now && now - used.last_used_ms < 10_000, "{used:?} at {now}");
    // And then idle, it goes.
    base::clock::warp(u64::from(MAX_IDLE_MS) + 1_000);
    home.settle();
    home.turn_for(1_500);
    let stats = home.dp.worker_stats(0);
    assert_eq!((stats.megaflows.get(), stats.exact_entries.get()), (0, 0));
}
