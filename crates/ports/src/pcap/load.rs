//! From a capture file to what each receive queue replays.

use super::file::{Record, Records};
use super::schedule::{Schedule, round_ns};
use crate::port_memory::{PortMemory, check_replay};
use crate::replay::{Layout, Replay};
use base::PortNo;
use std::fs::File;
use std::io::Read;
use std::sync::Arc;

/// How a file is replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Settings {
    pub(super) queues: usize,
    pub(super) repeats: bool,
    pub(super) timed: bool,
}

/// What a queue replays.
#[derive(Default)]
pub(super) struct Source {
    pub(super) replay: Replay,
    /// Without frames unless the replay is timed.
    pub(super) schedule: Schedule,
}

/// Reads the first `len` bytes of a file, for which memory is reserved. Returns what each queue replays, and
/// the number of frames.
pub(super) fn load(
    file: &File,
    len: usize,
    settings: Settings,
    in_port: PortNo,
    memory: &PortMemory,
) -> Result<(Vec<Source>, usize), String> {
    let Settings { queues, repeats, timed } = settings;
    let mut bytes = Vec::with_capacity(len);
    // Only that much, even if it grows meanwhile.
    file.take(len as u64).read_to_end(&mut bytes).map_err(|e| base::os_text(&e))?;
    let found = Records::new(&bytes)?;
    let count = found.clone().count();
    // Twice: sorting takes as much again.
    let _while_loading = memory.reserve(2 * count * size_of::<Record>())?;
    let mut records = Vec::with_capacity(count);
    for record in found {
        records.push(record?);
    }
    if timed {
        records.sort_by_key(|r| r.time_ns); // Stable. A merged capture may not be in order.
    }

    let mut layouts = vec![Layout::new(repeats, queues); queues];
    records.iter().for_each(|r| layouts[queue_of(r.frame, queues)].add(1, r.frame.len()));
    let times_bytes = if timed { count * size_of::<u64>() } else { 0 };
    let kept_bytes = layouts.iter().map(Layout::bytes).sum::<usize>() + times_bytes;
    check_replay(kept_bytes)?;
    let kept = Arc::new(memory.reserve(kept_bytes)?);

    let new = |layout| (Replay::new(layout, in_port, kept.clone()), Vec::new());
    let mut parts: Vec<(Replay, Vec<u64>)> = layouts.iter().map(new).collect();
    let first_ns = records.first().map_or(0, |r| r.time_ns);
    for (layout, (_, times_ns)) in layouts.iter().zip(&mut parts).filter(|_| timed) {
        times_ns.reserve_exact(layout.frames());
    }
    for record in &records {
        let (replay, times_ns) = &mut parts[queue_of(record.frame, queues)];
        replay.push(record.frame);
        if timed {
            times_ns.push(record.time_ns - first_ns);
        }
    }
    let span_ns = records.last().map_or(0, |r| r.time_ns.saturating_sub(first_ns));
    let period_ns = repeats.then(|| round_ns(count, span_ns));
    let source = |(layout, (replay, times_ns)): (&Layout, (Replay, _))| Source {
        replay: replay.finish(layout),
        schedule: Schedule::new(times_ns, period_ns),
    };
    Ok((layouts.iter().zip(parts).map(source).collect(), count))
}

/// The queue for a frame: a sum over its addresses and ports, or MAC addresses if it is not IPv4.
fn queue_of(frame: &[u8], queues: usize) -> usize {
    let fields: &[u8] = match frame {
        // IPv4 without options: protocol, addresses, and ports if it is no fragment.
        [_, _, _, _, _, _, _, _, _, _, _, _, 8, 0, 0x45, _, _, _, _, _, flags, offset, ..]
            if frame.len() >= 38 =>
        {
            if flags & 0x3f == 0 && *offset == 0 {
                &frame[26..38]
            } else {
                &frame[26..34]
            }
        }
        _ => &frame[..frame.len().min(12)],
    };
    let sum = fields.iter().fold(0u64, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3));
    ((sum >> 32) % queues as u64) as usize
}
