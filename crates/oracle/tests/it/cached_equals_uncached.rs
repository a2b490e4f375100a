//! Oracles 1, 2 and 5 of the design, on the real worker and caches with the real switch; and each mistake
//! that the comparison is there for, put in on purpose and found.

use oracle::check::{Coverage, check};
use oracle::pipelines::Mistake;

#[test]
fn caches_forward_count_and_learn_as_translation_and_the_model_do() {
    // One world can be looked at alone.
    if let Ok(seed) = std::env::var("CROSSPOINT_ORACLE_SEED") {
        check(seed.parse().expect("a number"), Mistake::None).unwrap();
    }
    let mut covered = Coverage::default();
    for seed in 0..u64::from(testkit::cases("oracle::cached_equals_uncached", 300)) {
        match check(seed, Mistake::None) {
            Ok(run) => covered += run,
            Err(error) => panic!("{error}"),
        }
    }
    println!("{covered:?}");
    testkit::record("oracle::cached_equals_uncached (packets)", covered.packets);
    // A run that misses its subject proves nothing.
    assert!(covered.exact_hits > covered.packets / 10, "{covered:?}");
    assert!(covered.megaflow_hits > covered.packets / 10, "{covered:?}");
    assert!(covered.misses > covered.packets / 20, "{covered:?}");
    assert!(covered.straight > covered.packets / 125, "{covered:?}");
    let kinds = [covered.straight_changed, covered.straight_twice, covered.straight_long];
    assert!(kinds.iter().all(|kind| *kind > covered.straight / 20), "{covered:?}");
    assert!(covered.touched > 100 && covered.packet_ins > 100 && covered.depth_changes > 100, "{covered:?}");
    assert_eq!(covered.depth_misses, 0, "{covered:?}");
}

/// A third VLAN tag, pushed: changes behind it (844), and NORMAL when it is stripped again (3204). An address
/// that is learned when its port is gone already (20194).
#[test]
fn worlds_that_once_disagreed_agree() {
    for seed in [844, 3204, 20194] {
        check(seed, Mistake::None).unwrap();
    }
}

#[test]
fn depths_and_needless_translations_make_no_difference() {
    for seed in 0..u64::from(testkit::cases("oracle::depths_and_needless_translations", 100)) {
        for harmless in [Mistake::DeeperAtTimes, Mistake::TouchedAtTimes] {
            if let Err(error) = check(seed, harmless) {
                panic!("{harmless:?}: {error}");
            }
        }
    }
}

fn must_be_found(mistake: Mistake) {
    let found = (0..300).find_map(|seed| check(seed, mistake).err());
    assert!(found.is_some(), "{mistake:?} was not found in 300 worlds");
}

#[test]
fn a_lost_bit_of_the_mask_is_found() {
    must_be_found(Mistake::MaskBitLost);
}

#[test]
fn a_stale_version_is_found() {
    must_be_found(Mistake::StaleVersion);
}

#[test]
fn a_change_judged_on_the_packet_is_found() {
    must_be_found(Mistake::JudgedOnPacket);
}

#[test]
fn a_forgotten_rewrite_is_found() {
    must_be_found(Mistake::RewritesForgotten);
}

#[test]
fn a_packet_read_less_deeply_than_its_rules_ask_is_found() {
    must_be_found(Mistake::TooShallow);
}

#[test]
fn flows_mixed_up_when_changes_are_watched_are_found() {
    must_be_found(Mistake::MarksMixedUp);
}
