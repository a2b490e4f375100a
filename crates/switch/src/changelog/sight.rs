//! What the log knows for all flows of a sort at once, see [`datapath::watch`].
//!
//! A kind is the changes of one mask in one table. It can be watched for a sort whose flows match all bits of
//! that mask and had rewritten nothing before they looked into the table: then each flow maps to one element
//! of the kind's array of versions, whose index is the flow's mark. All other changes raise the sort's floor:
//! to the last change of each kind, of the table, or of all ports or addresses.

use super::{BUCKETS_MAX, ChangeLog, MaskLog, TableLog, word_table};
use base::Version;
use base::rcu::Reader;
use datapath::FlowView;
use datapath::watch::{KINDS_MAX, Kind, Marks, Sight, Sort, Watch};
use flow::Mask;
use std::sync::atomic::Ordering;

/// A kind that has not changed for this many versions gives way to one that does.
const QUIET_VERSIONS: u64 = 1_000;

// A mark has 16 bits.
const _: () = assert!(BUCKETS_MAX <= 1 << 16);

impl ChangeLog {
    /// What is watched for the sort at `now`, see [`datapath::Pipeline::sight`].
    pub(crate) fn sight<'g>(
        &'g self,
        sort: Sort<'_>,
        watch: &mut Watch,
        now: Version,
        reader: &'g Reader,
    ) -> Sight<'g> {
        if watch.renewed != now {
            self.renew(sort, watch, now, reader);
        }
        let mut sight = Sight::new(watch);
        // Every packet is checked against this, so places after the last kind are left out.
        let len = watch.kinds.iter().rposition(|kind| kind.id != 0).map_or(0, |last| last + 1);
        for kind in &watch.kinds[..len] {
            match self.log_of(kind, reader) {
                Some(log) => sight.push(&log.buckets),
                None if kind.id == 0 => sight.push(&[]),
                // It gave way to another mask meanwhile.
                None => return Sight::NONE,
            }
        }
        sight
    }

    /// The marks of a flow, see [`datapath::Pipeline::marks`].
    pub(crate) fn marks(&self, watch: &Watch, flow: &FlowView<'_>, reader: &Reader) -> Marks {
        watch.kinds.map(|kind| {
            let Some(log) = self.log_of(&kind, reader) else { return 0 };
            let words = log.words.iter().map(|sw| flow.key.word(sw.block.into(), sw.word.into()));
            log.hash(words, &self.secret) as u16
        })
    }

    #[inline]
    fn log_of<'g>(&'g self, kind: &Kind, reader: &'g Reader) -> Option<&'g MaskLog> {
        let masks = self.table(kind.table, reader)?.masks.read(reader);
        masks.get(kind.place as usize).map(|log| &**log).filter(|log| log.id == kind.id)
    }

    fn table<'g>(&'g self, table: u32, reader: &'g Reader) -> Option<&'g TableLog> {
        self.tables.read(reader).get(table as usize)?.as_deref()
    }

    #[inline(never)]
    fn renew(&self, sort: Sort<'_>, watch: &mut Watch, now: Version, reader: &Reader) {
        let mut floor = self.floor.load(Ordering::Relaxed);
        let mut seen = [false; KINDS_MAX];
        // Among the kinds that could be watched but are not, the one that changed last.
        let mut newcomer = Kind::default();
        for t in sort.tables {
            if t.table & word_table::BIT != 0 {
                let last = self.words.of(t.table, reader).map_or(0, |log| log.last.load(Ordering::Relaxed));
                floor = floor.max(last);
                continue;
            }
            let Some(table) = self.table(t.table, reader) else { continue };
            floor = floor.max(table.floor.load(Ordering::Relaxed));
            if t.is_rewritten {
                floor = floor.max(table.last.load(Ordering::Relaxed));
                continue;
            }
            for (place, log) in table.masks.read(reader).iter().enumerate() {
                let kind = Kind {
                    id: log.id,
                    table: t.table,
                    place: place as u32,
                    last: log.last.load(Ordering::Relaxed),
                };
                if let Some(n) = watch.kinds.iter().position(|k| k.id == kind.id) {
                    (watch.kinds[n], seen[n]) = (kind, true);
                    continue;
                }
                floor = floor.max(kind.last);
                if newcomer.last < kind.last && is_within(log, sort.mask) {
                    newcomer = kind;
                }
            }
        }
        // A kind that gave way in the log has raised its table's floor, and with it this one.
        for (kind, seen) in watch.kinds.iter_mut().zip(seen) {
            if !seen {
                *kind = Kind::default();
            }
        }
        let free = |k: &Kind| k.id == 0;
        let quiet = |k: &Kind| k.last + QUIET_VERSIONS < now.0;
        let place = watch.kinds.iter().position(free).or_else(|| watch.kinds.iter().position(quiet));
        // No number of a set is used twice: when they have run out, the last set stays.
        if let Some(place) = place
            && newcomer.id != 0
            && watch.set < u8::MAX
        {
            floor = floor.max(watch.kinds[place].last);
            watch.kinds[place] = newcomer;
            watch.set += 1;
        }
        (watch.renewed, watch.floor) = (now, floor);
    }
}

/// Whether flows of this mask match all bits that the changes use.
fn is_within(log: &MaskLog, mask: &Mask) -> bool {
    log.words.iter().all(|sw| sw.bits & !mask.0.word(sw.block.into(), sw.word.into()) == 0)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Fixture, fixture};
    use super::super::{MASKS_MAX, RING};
    use super::*;
    use datapath::watch::tables_of;
    use datapath::{Rewrite, Visit};
    use flow::{FieldId, Key, Match};

    /// A worker's memory of one flow.
    struct Cached {
        key: Key,
        mask: Mask,
        visits: Vec<Visit>,
        since: Version,
        set: u8,
        marks: Marks,
    }

    impl Cached {
        fn new(m: Match, tables: &[(u32, u16)], since: u64) -> Cached {
            let visit =
                |&(table, rewrites_len): &(u32, u16)| Visit { table, rewrites_start: 0, rewrites_len };
            Cached {
                key: m.key,
                mask: m.mask,
                visits: tables.iter().map(visit).collect(),
                since: Version(since),
                set: 0,
                marks: Marks::default(),
            }
        }
    }

    #[derive(Clone, Copy, PartialEq, Debug)]
    enum Judged {
        AtAGlance,
        InFull,
        /// It was translated again.
        Touched,
    }

    /// What a worker does with a flow that it meets at `now`.
    fn judge(f: &Fixture, flow: &mut Cached, watch: &mut Watch, now: u64) -> Judged {
        let reader = f.domain.register();
        let tables = tables_of(&flow.visits).unwrap();
        let sort = Sort { mask: &flow.mask, tables: &tables };
        let sight = f.log.sight(sort, watch, Version(now), &reader);
        let since = std::mem::replace(&mut flow.since, Version(now));
        if sight.is_untouched(since, flow.set, &flow.marks) {
            return Judged::AtAGlance;
        }
        let rewrites = [Rewrite { mask: 1, value: 1, block: 5, word: 0 }];
        let view = FlowView { key: &flow.key, mask: &flow.mask, visits: &flow.visits, rewrites: &rewrites };
        if f.log.touched(&view, since, &reader) {
            flow.set = 0;
            return Judged::Touched;
        }
        (flow.set, flow.marks) = (watch.set, f.log.marks(watch, &view, &reader));
        Judged::InFull
    }

    fn host(src: u64) -> Match {
        Match::any().with(FieldId::InPort, 1).with(FieldId::NwSrc, u128::from(src))
    }

    #[test]
    fn a_flow_that_was_judged_once_is_passed_at_a_glance_until_its_own_place_changes() {
        let (mut f, mut watch) = (fixture(), Watch::default());
        f.change(host(7), 1);
        let mut flow = Cached::new(host(8), &[(0, 0)], 0);
        assert_eq!(judge(&f, &mut flow, &mut watch, 1), Judged::InFull, "it has no marks yet");
        let mut glances = 0;
        for version in 2..500 {
            f.change(host(1_000 + version), version);
            glances += usize::from(judge(&f, &mut flow, &mut watch, version) == Judged::AtAGlance);
        }
        assert!(glances > 480, "{glances}");
        f.change(host(8), 500);
        assert_eq!(judge(&f, &mut flow, &mut watch, 500), Judged::Touched);
    }

    #[test]
    fn changes_that_cut_through_flows_or_come_after_rewrites_are_not_watched() {
        let (mut f, mut watch) = (fixture(), Watch::default());
        let wide = Match::any().with(FieldId::InPort, 1);
        let mut flow = Cached::new(wide, &[(0, 0)], 0);
        for version in 1..RING as u64 {
            f.change(Match::any().with(FieldId::InPort, 2).with(FieldId::NwSrc, 9), version);
            assert_eq!(judge(&f, &mut flow, &mut watch, version), Judged::InFull);
        }
        assert_eq!(watch.set, 0);
        let (mut flow, mut watch) = (Cached::new(host(8), &[(0, 1)], 100), Watch::default());
        f.change(host(7), 101);
        assert_ne!(judge(&f, &mut flow, &mut watch, 101), Judged::AtAGlance);
        assert_eq!(watch.set, 0);
    }

    #[test]
    fn more_kinds_than_are_watched_and_kinds_that_gave_way_are_judged_in_full() {
        let (mut f, mut watch) = (fixture(), Watch::default());
        let all = [FieldId::InPort, FieldId::NwSrc, FieldId::NwDst, FieldId::TpSrc, FieldId::TpDst];
        let mut flow = Cached::new(all.iter().fold(Match::any(), |m, f| m.with(*f, 1)), &[(0, 0)], 0);
        let mut version = 0;
        for _ in 0..20 {
            for field in all {
                version += 1;
                f.change(Match::any().with(field, 2), version);
                assert_ne!(judge(&f, &mut flow, &mut watch, version), Judged::Touched);
            }
        }
        assert!(watch.kinds.iter().all(|k| k.id != 0));
        // All masks of the table change, none of those that are watched: they give way.
        for i in 0..MASKS_MAX as u32 {
            version += 1;
            let prefix = u128::from(u32::MAX << i);
            f.change(Match::any().with(FieldId::InPort, 9).with_masked(FieldId::NwDst, 0, prefix), version);
        }
        assert_ne!(judge(&f, &mut flow, &mut watch, version), Judged::AtAGlance);
        f.change(Match::any().with(FieldId::TpDst, 1), version + 1);
        assert_eq!(judge(&f, &mut flow, &mut watch, version + 1), Judged::Touched);
    }

    #[test]
    fn ports_addresses_and_everything_raise_the_floor() {
        let (mut f, mut watch) = (fixture(), Watch::default());
        let (ports, macs) = (word_table::ports(1), word_table::macs(1));
        let mut flow = Cached::new(host(8), &[(ports, 0), (0, 0)], 1);
        f.change(host(7), 3);
        judge(&f, &mut flow, &mut watch, 3);
        f.writer.word(macs, 7, Version(4));
        assert_eq!(judge(&f, &mut flow, &mut watch, 4), Judged::AtAGlance, "it asked for no address");
        f.writer.word(ports, 7, Version(5));
        assert_eq!(judge(&f, &mut flow, &mut watch, 5), Judged::InFull);
        f.writer.everything(Version(6));
        assert_eq!(judge(&f, &mut flow, &mut watch, 6), Judged::Touched);
        f.writer.whole_table(0, Version(7));
        assert_eq!(judge(&f, &mut flow, &mut watch, 7), Judged::Touched);
    }
}
