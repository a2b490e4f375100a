//! Megaflows as shown to an operator.

use super::FlowCache;
use super::entry::Verdict;
use crate::action::DpAction;
use base::PortNo;
use flow::{Key, Mask};

/// A megaflow as `dpctl/dump-flows` shows it.
#[derive(Clone, Debug)]
pub struct DumpedFlow {
    /// The key of the packet that created it, or the masked key if there was no room to keep that.
    pub key: Key,
    /// The mask.
    pub mask: Mask,
    /// What it does.
    pub actions: Vec<DpAction>,
    /// Packets so far (packets that hit exact entries are included up to the last fold).
    pub packets: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Bytes of the packet whose miss created the flow; included in the counts above.
    pub first_bytes: u32,
    /// Time of the last hit, on the datapath's clock.
    pub used_ms: u64,
}

impl DumpedFlow {
    /// Packets and bytes that hit the flow in the cache: all except the packet that created it.
    pub fn since_made(&self) -> (u64, u64) {
        match self.first_bytes {
            0 => (self.packets, self.bytes),
            first => (self.packets.saturating_sub(1), self.bytes.saturating_sub(u64::from(first))),
        }
    }
}

/// How many places are looked at for one piece of a dump: a flood leaves millions of free ones.
const LOOKED_AT_MAX: u32 = 4_096;

impl FlowCache {
    /// Writes up to `room` megaflows, starting at entry `from`, into `out`. Returns where to continue, `None`
    /// at the end.
    pub fn dump(&self, from: u32, room: usize, out: &mut Vec<DumpedFlow>) -> Option<u32> {
        let mut taken = 0;
        let first = from.max(1);
        for idx in first..=self.mega.high {
            if taken == room || idx - first == LOOKED_AT_MAX {
                return Some(idx);
            }
            let e = &self.mega.entries[idx as usize];
            if e.is_free() || self.flush.has(idx) {
                continue;
            }
            taken += 1;
            let mask = &self.masks[usize::from(e.key.mask())].mask;
            let body = self.bodies.get(e.decision.body);
            let first = self.firsts.get(idx, body.first);
            let actions = match e.decision.verdict {
                Verdict::Output(port) => vec![DpAction::Output(PortNo(port.into()))],
                Verdict::Drop(reason) => vec![DpAction::Drop(reason)],
                _ => self.bodies.actions(e.decision.body).to_vec(),
            };
            out.push(DumpedFlow {
                key: first.unwrap_or_else(|| self.masked_key(idx, mask)),
                mask: mask.clone(),
                actions,
                packets: body.packets + e.counts.packets(),
                bytes: body.bytes + e.counts.bytes(),
                first_bytes: body.first_bytes,
                used_ms: e.used.at_ms(self.now_ms),
            });
        }
        None
    }

    fn masked_key(&self, idx: u32, mask: &Mask) -> Key {
        let mut key = Key::default();
        key.put(0, self.mega.blocks[idx as usize].0);
        let (start, len) = self.mega.entries[idx as usize].key.further();
        for (b, words) in mask.0.present_blocks().filter(|&b| b > 0).zip(self.arena.run(start, len)) {
            key.put(b, *words);
        }
        key
    }
}
