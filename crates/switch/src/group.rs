//! Groups: the contents of a bridge's group table, and how a select group chooses a bucket.
//!
//! A group is immutable, as a rule is: a modification creates a new one.

use crate::numbered::{Numbered, NumberedTable};
use crate::topology::BridgeIdx;
use base::hash::mixed;
use datapath::hash::{HashAlgorithm, PacketHash};
use flow::Action;
use openflow::message::{Bucket, GroupDesc, GroupType};
use std::collections::HashMap;

/// Maximum number of buckets of a group: what fits into one message of group statistics (16 bytes each, plus
/// 56 for the group). A larger group could not be listed, and each change of it would take longer than the
/// last. If buckets have long actions, fewer are allowed, for the same reason.
pub(crate) const BUCKETS_MAX: usize = 4092;

/// A group in force.
#[derive(Debug)]
pub struct Group {
    /// Its bridge.
    pub bridge: BridgeIdx,
    /// As its owner defined it.
    pub desc: GroupDesc,
    /// When it was added. A modification does not change that.
    pub created_ms: u64,
    /// Counter slot of the group.
    pub slot: u32,
    /// Counter slot of each bucket.
    pub bucket_slots: Box<[u32]>,
    /// The groups to which its buckets send packets or whose state they watch, sorted.
    pub(crate) behind: Box<[u32]>,
    /// Each bucket's actions in the order in which an action set executes them; empty if they would do
    /// nothing.
    pub(crate) actions: Box<[Box<[Action]>]>,
    pub(crate) selection: Selection,
}

/// How a group selects a bucket for a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Selection {
    /// It does not: it uses all buckets, or the first live one.
    None,
    /// By a hash of addresses and ports that is the same in both directions.
    SymmetricL4,
    /// By a hash of the fields chosen by its owner.
    Fields,
    /// By a hash that the datapath computes; each value has a bucket.
    DpHash(DpHashTable),
}

/// Hash values, distributed over a group's buckets by weight.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DpHashTable {
    pub hash: PacketHash,
    /// The index of the bucket for each value.
    pub buckets: Box<[u16]>,
}

/// Maximum number of hash values that a group distinguishes.
const HASH_VALUES_MAX: u64 = 256;
/// Minimum, so that the packets of a bucket that is not live go to several others.
const HASH_VALUES_MIN: u64 = 16;

impl Selection {
    /// The selection for a group. Reports the choice to `log`, in Open vSwitch's words.
    pub fn of(desc: &GroupDesc, log: &mut impl FnMut(String)) -> Selection {
        if desc.kind != GroupType::Select {
            return Selection::None;
        }
        log(format!("Constructing select group {}", desc.group_id));
        let selection = &desc.selection;
        let hash = match selection.method.as_str() {
            "hash" => {
                log("Selection method specified: hash.".into());
                if !selection.fields.is_empty() {
                    return Selection::Fields;
                }
                log("No hash fields. Falling back to default hash method.".into());
                return Selection::SymmetricL4;
            }
            "dp_hash" => {
                log("Selection method specified: dp_hash.".into());
                let algorithm = match selection.param >> 32 {
                    1 => HashAlgorithm::SymmetricL4,
                    _ => HashAlgorithm::L4,
                };
                PacketHash { algorithm, basis: selection.param as u32, mask: 0 }
            }
            _ => {
                log("No selection method specified. Trying dp_hash.".into());
                PacketHash { algorithm: HashAlgorithm::SymmetricL4, basis: 0, mask: 0 }
            }
        };
        let Some(buckets) = spread(&desc.buckets, log) else {
            log("Falling back to default hash method.".into());
            return Selection::SymmetricL4;
        };
        let number = u8::from(hash.algorithm == HashAlgorithm::SymmetricL4);
        log(format!("Use dp_hash with {} hash values using algorithm {number}.", buckets.len()));
        let mask = buckets.len() as u32 - 1;
        Selection::DpHash(DpHashTable { hash: PacketHash { mask, ..hash }, buckets })
    }
}

/// A power of two of hash values, each with a bucket, so that each bucket's share is as exact as whole
/// numbers allow (Webster's method, as in Open vSwitch). `None` if that takes too many values.
fn spread(buckets: &[Bucket], log: &mut impl FnMut(String)) -> Option<Box<[u16]>> {
    if buckets.is_empty() {
        log("  Don't apply dp_hash method without buckets.".into());
        return None;
    }
    let total: u64 = buckets.iter().map(|b| u64::from(b.weight)).sum();
    let Some(least) = buckets.iter().map(|b| b.weight).filter(|weight| *weight > 0).min() else {
        log("  Total weight is zero. No active buckets.".into());
        return None;
    };
    log(format!("  Minimum weight: {least}, total weight: {total}"));
    let count = total.div_ceil(least.into()).next_power_of_two().max(HASH_VALUES_MIN);
    if count > HASH_VALUES_MAX {
        log(format!("  Too many hash values required: {count}"));
        return None;
    }
    log(format!("  Using {count} hash values:"));
    let mut hits = vec![0u32; buckets.len()];
    let claim = |n: usize, hits: &[u32]| f64::from(buckets[n].weight) / f64::from(2 * hits[n] + 1);
    let mut chosen = Vec::new();
    for _ in 0..count {
        let first =
            (0..buckets.len()).reduce(|best, n| if claim(n, &hits) > claim(best, &hits) { n } else { best });
        let winner = first.unwrap_or(0);
        hits[winner] += 1;
        chosen.push(winner as u16);
    }
    for (bucket, hits) in buckets.iter().zip(hits) {
        let target = (count * u64::from(bucket.weight)) as f64 / total as f64;
        let Bucket { id, weight, .. } = bucket;
        log(format!("  Bucket {id}: weight={weight}, target={target:.2} hits={hits}"));
    }
    Some(chosen.into())
}

/// How a select group selects buckets, in the words of Open vSwitch's debug log; empty for other groups.
pub fn selection_log(desc: &GroupDesc) -> Vec<String> {
    let mut lines = Vec::new();
    Selection::of(desc, &mut |line| lines.push(line));
    lines
}

impl Group {
    /// Its buckets as their owner defined them.
    pub fn buckets(&self) -> &[Bucket] {
        &self.desc.buckets
    }

    /// The memory that it takes, in bytes, except for what single actions point to.
    pub(crate) fn memory_bytes(&self) -> usize {
        let ordered: usize = self.actions.iter().map(|list| size_of_val(&**list)).sum();
        let described: usize = self.desc.buckets.iter().map(|bucket| size_of_val(&*bucket.actions)).sum();
        let numbers = size_of_val(&*self.bucket_slots) + size_of_val(&*self.behind);
        let buckets = size_of_val(&*self.actions) + size_of_val(&*self.desc.buckets);
        size_of::<Group>() + numbers + buckets + ordered + described
    }

    /// The counter slot of each bucket, by the bucket's number.
    pub(crate) fn slots_by_bucket(&self) -> HashMap<u32, u32> {
        self.desc.buckets.iter().map(|bucket| bucket.id).zip(self.bucket_slots.iter().copied()).collect()
    }
}

/// Other groups that a group uses or depends on, with repetitions.
pub(crate) fn groups_behind(desc: &GroupDesc) -> Box<[u32]> {
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
    found.sort_unstable();
    found.dedup();
    found.into()
}

/// How well a bucket of this weight suits a packet with this hash: the one with the highest score gets it.
/// Weighted rendezvous hashing, so that each bucket gets exactly its share, and adding or removing a bucket
/// moves no packets between the others. Weight 0 gets none.
pub(crate) fn score(bucket_id: u32, weight: u16, hash: u64) -> u64 {
    // Not secret: a restarted switch, and another one with the same groups, makes the same choice. Hashes may
    // be as regular as the packets are, so they are mixed to the last bit.
    let z = mixed(mixed(hash) ^ (u64::from(bucket_id) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    // Above 0 and up to 1.
    let share = ((z >> 12) + 1) as f64 / (1u64 << 52) as f64;
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
    fn hash_values_are_shared_out_by_weight() {
        let bucket =
            |(id, weight): (usize, &u16)| Bucket { id: id as u32, weight: *weight, ..Bucket::default() };
        let counts = |weights: &[u16]| {
            let buckets: Vec<Bucket> = weights.iter().enumerate().map(bucket).collect();
            let values = spread(&buckets, &mut |_| {})?;
            Some(
                (0..weights.len()).map(|n| values.iter().filter(|v| usize::from(**v) == n).count()).collect(),
            )
        };
        assert_eq!(counts(&[1, 1]), Some(vec![8, 8]));
        assert_eq!(counts(&[5, 10, 25, 60, 0]), Some(vec![2, 3, 8, 19, 0]));
        assert_eq!(counts(&[1, 1000]), None::<Vec<usize>>);
        assert_eq!(counts(&[0, 0]), None);
        assert_eq!(counts(&[]), None);
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
