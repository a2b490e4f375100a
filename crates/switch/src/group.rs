//! Groups: what a bridge's group table holds, and how a select group finds its bucket.
//!
//! A group is immutable, as a rule is: a modification makes a new one.

use crate::numbered::{Numbered, NumberedTable};
use crate::topology::BridgeIdx;
use flow::Action;
use openflow::message::{Bucket, GroupDesc, GroupType};

/// A group in force.
#[derive(Debug)]
pub struct Group {
    /// Its bridge.
    pub bridge: BridgeIdx,
    /// As its owner defined it.
    pub desc: GroupDesc,
    /// When it was added. A modification leaves that as it was.
    pub created_ms: u64,
    /// Counter slot of the group.
    pub slot: u32,
    /// Counter slot of each bucket.
    pub bucket_slots: Box<[u32]>,
    /// Each bucket's actions in the order in which an action set executes them; none where it would do
    /// nothing.
    pub(crate) actions: Box<[Box<[Action]>]>,
    pub(crate) selection: Selection,
}

/// How a group picks the bucket of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    /// It does not: all buckets, or the first live one.
    None,
    /// By a hash of addresses and ports that is the same in both directions.
    SymmetricL4,
    /// By a hash of the fields that its owner chose.
    Fields,
}

impl Selection {
    pub fn of(desc: &GroupDesc) -> Selection {
        match desc.kind {
            GroupType::Select if desc.selection.method == "hash" && !desc.selection.fields.is_empty() => {
                Selection::Fields
            }
            GroupType::Select => Selection::SymmetricL4,
            GroupType::All | GroupType::Indirect | GroupType::FastFailover => Selection::None,
        }
    }
}

impl Group {
    /// Its buckets as their owner defined them.
    pub fn buckets(&self) -> &[Bucket] {
        &self.desc.buckets
    }
}

/// Other groups that a group leads to or depends on, with repetitions.
pub(crate) fn groups_behind(desc: &GroupDesc) -> impl Iterator<Item = u32> {
    fn of_actions(actions: &[Action], found: &mut Vec<u32>) {
        for action in actions {
            match action {
                Action::Group(id) => found.push(*id),
                Action::WriteActions(inner) | Action::Clone(inner) => of_actions(inner, found),
                _ => {}
            }
        }
    }
    let mut found: Vec<u32> = desc.buckets.iter().filter_map(|b| b.watch_group).collect();
    desc.buckets.iter().for_each(|b| of_actions(&b.actions, &mut found));
    found.into_iter()
}

/// How well a bucket of this weight suits a packet of this hash: the one with the highest score gets it.
/// Weighted rendezvous hashing, so that each bucket gets its share exactly, and a bucket that comes or goes
/// moves no packets between the others. Weight 0 gets none.
pub(crate) fn score(bucket_id: u32, weight: u16, hash: u64) -> u64 {
    // Not secret: a restarted switch, and another of the same groups, picks the same. Hashes may be as
    // regular as the packets are, so they are mixed to the last bit (the finish of splitmix64).
    let mix = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let mixed = mix(mix(hash) ^ (u64::from(bucket_id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Above 0 and up to 1.
    let share = ((mixed >> 12) + 1) as f64 / (1u64 << 52) as f64;
    // The logarithm is at most 52, so 2^32 leaves different weights different scores.
    (f64::from(weight) / -share.log2().min(-f64::MIN_POSITIVE) * 4_294_967_296.0) as u64
}

/// The shared group table of one bridge.
pub(crate) type GroupTable = NumberedTable<Group>;

impl Numbered for Group {
    fn number(&self) -> u32 {
        self.desc.group_id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Packets of 100,000 hashes, by bucket.
    fn shares(weights: &[u16]) -> Vec<u32> {
        let mut shares = vec![0; weights.len()];
        for hash in 0..100_000u64 {
            let best = (0..weights.len()).max_by_key(|&n| score(n as u32, weights[n], hash));
            shares[best.unwrap()] += 1;
        }
        shares
    }

    #[test]
    fn each_bucket_gets_the_share_that_its_weight_says() {
        for weights in [&[1, 1][..], &[1; 7], &[5, 10, 25, 60], &[1, 1000], &[65535, 65535, 1], &[0, 3, 7]] {
            let total: u32 = weights.iter().map(|w| u32::from(*w)).sum();
            for (weight, got) in weights.iter().zip(shares(weights)) {
                let expected = 100_000.0 * f64::from(*weight) / f64::from(total);
                // Five standard deviations of a Poisson distribution.
                let off = (f64::from(got) - expected).abs();
                assert!(off <= 5.0 * expected.sqrt(), "{weights:?}: {got} in place of {expected}");
            }
        }
    }

    #[test]
    fn a_bucket_that_goes_moves_its_own_packets_alone() {
        let pick = |ids: &[u32], hash| *ids.iter().max_by_key(|id| score(**id, 1, hash)).unwrap();
        for hash in 0..10_000 {
            let before = pick(&[0, 1, 2, 3], hash);
            let after = pick(&[0, 1, 3], hash);
            assert!(before == 2 || before == after);
        }
    }
}
