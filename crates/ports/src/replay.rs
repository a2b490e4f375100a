//! Frames that wait in memory to be received, for the sources `pcap` and `null`.
//!
//! Frames are stored one after the other in whole cache lines, with a table of runs of equal length, and a
//! cursor that copies the next ones into new packets.
//!
//! The reason: this is the source of the headline benchmark, so a frame must cost only a few cycles. Whole
//! lines are copied with a constant size; the run-length table keeps the length out of the loop, so that a
//! million frames of 60 bytes need no index. A short list that repeats is stored several times, so that its
//! end does not come up within every burst.
//!
//! Threads: a [`Replay`] belongs to one receive queue.

use crate::port_memory::Reserved;
use base::PortNo;
use base::region::prefetch_at;
use packet::{Batch, LINE_BYTES, Line, PoolCache};
use std::sync::Arc;

/// A list that repeats is laid out until it has at least this many frames, or the lists of all queues take
/// this many lines (64 MB).
const FRAMES_MIN: usize = 4096;
const LINES_MAX: usize = 1 << 20;

/// How the frames of a queue are laid out, and so how much memory they take.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// The list starts again at its end; otherwise it is replayed once.
    repeats: bool,
    /// Lines that a list may take that is shorter than [`FRAMES_MIN`].
    lines_max: usize,
    frames: usize,
    lines: usize,
    runs: usize,
    last_len: usize,
}

impl Layout {
    /// Without frames, for one of `queues` queues.
    pub(crate) fn new(repeats: bool, queues: usize) -> Layout {
        Layout { repeats, lines_max: LINES_MAX / queues, frames: 0, lines: 0, runs: 0, last_len: 0 }
    }

    /// Has that many more frames of that length.
    pub(crate) fn add(&mut self, frames: usize, len: usize) {
        if frames > 0 && (self.frames == 0 || self.last_len != len) {
            self.runs += 1;
            self.last_len = len;
        }
        self.frames += frames;
        self.lines += frames * lines_of(len);
    }

    /// How many it has, each once.
    pub(crate) fn frames(&self) -> usize {
        self.frames
    }

    /// How often the list is stored.
    fn times(&self) -> usize {
        match self.repeats && self.frames > 0 {
            true => FRAMES_MIN.div_ceil(self.frames).min(self.lines_max / self.lines).max(1),
            false => 1,
        }
    }

    /// Runs of all times; at each end another begins, unless all frames have one length.
    fn all_runs(&self) -> usize {
        if self.runs > 1 { self.runs * self.times() } else { self.runs }
    }

    /// The memory that the frames take.
    pub(crate) fn bytes(&self) -> usize {
        self.lines * self.times() * LINE_BYTES + self.all_runs() * size_of::<Run>()
    }
}

/// Consecutive frames of one length.
#[derive(Clone, Copy, Debug)]
struct Run {
    first_line: usize,
    frames: usize,
    lines_each: usize,
    len: usize,
}

/// Frames in order, and the position of the next.
#[derive(Default)]
pub(crate) struct Replay {
    lines: Vec<Line>,
    runs: Vec<Run>,
    run: usize,
    frame: usize,
    repeats: bool,
    in_port: PortNo,
    _memory: Option<Arc<Reserved>>,
}

/// What [`Replay::rx`] moved.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Moved {
    pub packets: u64,
    pub bytes: u64,
}

impl Replay {
    /// With room for the frames of `layout`, for which [`Layout::bytes`] of `memory` are reserved.
    pub(crate) fn new(layout: &Layout, in_port: PortNo, memory: Arc<Reserved>) -> Replay {
        Replay {
            lines: huge_page_vec(layout.lines * layout.times()),
            runs: Vec::with_capacity(layout.all_runs()),
            repeats: layout.repeats,
            in_port,
            _memory: Some(memory),
            ..Replay::default()
        }
    }

    /// Appends the next frame of the list.
    pub(crate) fn push(&mut self, frame: &[u8]) {
        let first_line = self.lines.len();
        let lines_each = lines_of(frame.len());
        for i in 0..lines_each {
            let piece = &frame[(i * LINE_BYTES).min(frame.len())..((i + 1) * LINE_BYTES).min(frame.len())];
            let mut line = Line([0; LINE_BYTES]);
            line.0[..piece.len()].copy_from_slice(piece);
            self.lines.push(line);
        }
        self.push_run(Run { first_line, frames: 1, lines_each, len: frame.len() });
    }

    fn push_run(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last) if last.len == run.len => last.frames += run.frames,
            _ => self.runs.push(run),
        }
    }

    /// Stores the list, which is complete now, as often as `layout` says.
    pub(crate) fn finish(mut self, layout: &Layout) -> Replay {
        let (lines, runs) = (self.lines.len(), self.runs.clone());
        for _ in 1..layout.times() {
            let first_line = self.lines.len();
            self.lines.extend_from_within(..lines);
            runs.iter()
                .for_each(|run| self.push_run(Run { first_line: first_line + run.first_line, ..*run }));
        }
        self
    }

    /// Whether the replay has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.run >= self.runs.len()
    }

    /// Appends up to `max` copies of the next frames to `batch`: fewer if it has no room, the list ends, or
    /// the pool is exhausted.
    #[inline]
    pub(crate) fn rx(&mut self, cache: &mut PoolCache, batch: &mut Batch, max: usize) -> Moved {
        let mut moved = Moved::default();
        let mut wanted = max.min(cache.room(batch));
        while wanted > 0
            && let Some(&run) = self.runs.get(self.run)
        {
            let frames = (run.frames - self.frame).min(wanted);
            let from = run.first_line + self.frame * run.lines_each;
            let lines = &self.lines[from..from + frames * run.lines_each];
            let got = if fits_a_chunk(cache, run.lines_each) {
                cache.alloc_copies(batch, self.in_port, lines, run.lines_each, run.len)
            } else {
                alloc_chains(cache, batch, self.in_port, lines, &run)
            };
            // The next burst's, which come by the time this one has been switched: after this one's, which
            // would wait behind them. The hardware's own prefetch ends at each page.
            for ahead in 0..frames {
                prefetch_at(&self.lines, from + (frames + ahead) * run.lines_each);
            }
            moved.packets += got as u64;
            moved.bytes += (got * run.len) as u64;
            wanted -= got;
            self.frame += got;
            if self.frame == run.frames {
                self.next_run();
            }
            if got < frames {
                break;
            }
        }
        moved
    }

    fn next_run(&mut self) {
        self.frame = 0;
        self.run += 1;
        if self.repeats && self.run == self.runs.len() {
            self.run = 0;
        }
    }
}

fn lines_of(len: usize) -> usize {
    len.div_ceil(LINE_BYTES).max(1)
}

fn fits_a_chunk(cache: &PoolCache, lines_each: usize) -> bool {
    packet::pool::HEADROOM_BYTES + lines_each * LINE_BYTES <= cache.pool().config().chunk_bytes
}

#[cold]
fn alloc_chains(
    cache: &mut PoolCache,
    batch: &mut Batch,
    in_port: PortNo,
    lines: &[Line],
    run: &Run,
) -> usize {
    let mut got = 0;
    for frame in lines.chunks_exact(run.lines_each) {
        let bytes: Vec<u8> = frame.iter().flat_map(|l| l.0).take(run.len).collect();
        let Some(mut packet) = cache.alloc_frame(&bytes) else { break };
        packet.in_port = in_port;
        batch.push(packet);
        got += 1;
    }
    got
}

/// An empty vector with room for `lines`, in huge pages if the kernel has them: otherwise a million frames
/// would cost a TLB miss each.
fn huge_page_vec(lines: usize) -> Vec<Line> {
    const HUGE_PAGE: usize = 2 << 20;
    let vec: Vec<Line> = Vec::with_capacity(lines);
    let start = (vec.as_ptr() as usize).next_multiple_of(HUGE_PAGE);
    let end = (vec.as_ptr() as usize + vec.capacity() * LINE_BYTES) / HUGE_PAGE * HUGE_PAGE;
    if start < end {
        // A hint: where it is refused the pages are small.
        // SAFETY: the range lies within the vector's allocation; the advice changes no content.
        unsafe { libc::madvise(start as *mut libc::c_void, end - start, libc::MADV_HUGEPAGE) };
    }
    vec
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port_memory::PortMemory;
    use packet::{Pool, PoolConfig};

    fn replay<'a>(frames: impl Iterator<Item = &'a [u8]> + Clone, repeats: bool) -> Replay {
        let mut layout = Layout::new(repeats, 1);
        frames.clone().for_each(|frame| layout.add(1, frame.len()));
        let memory = PortMemory::default();
        let mut replay = Replay::new(&layout, PortNo(1), Arc::new(memory.reserve(layout.bytes()).unwrap()));
        let room = (replay.lines.capacity(), replay.runs.capacity());
        frames.for_each(|frame| replay.push(frame));
        let replay = replay.finish(&layout);
        assert_eq!((replay.lines.capacity(), replay.runs.capacity()), room, "more than was reserved");
        assert_eq!(memory.used(), replay.lines.len() * LINE_BYTES + room.1 * size_of::<Run>());
        replay
    }

    fn take(replay: &mut Replay, cache: &mut PoolCache, max: usize) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        let moved = replay.rx(cache, &mut batch, max);
        let frames: Vec<Vec<u8>> = batch.iter().map(|p| p.segments().flatten().copied().collect()).collect();
        assert_eq!(moved.packets as usize, frames.len());
        assert_eq!(moved.bytes as usize, frames.iter().map(Vec::len).sum::<usize>());
        cache.free_all(&mut batch);
        frames
    }

    #[test]
    fn frames_of_all_lengths_come_in_order_once_or_again_and_again() {
        let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let frames: Vec<Vec<u8>> = [60, 60, 64, 65, 1514, 0, 1792, 1793, 9018, 60]
            .map(|n| (0..n).map(|i| (i + n) as u8).collect())
            .into();
        for repeats in [false, true] {
            let mut replay = replay(frames.iter().map(Vec::as_slice), repeats);
            let mut seen = Vec::new();
            for max in [1, 3, 32, 32] {
                seen.extend(take(&mut replay, &mut cache, max));
            }
            assert_eq!(seen.len(), if repeats { 68 } else { 10 });
            assert!(seen.iter().eq(frames.iter().cycle().take(seen.len())));
            assert_eq!(replay.is_done(), !repeats);
        }
        assert_eq!(pool.stats().free, 256);
    }

    #[test]
    fn an_exhausted_pool_delays_a_frame_and_loses_none() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let frames: Vec<[u8; 60]> = (0..40u8).map(|i| [i; 60]).collect();
        let mut replay = replay(frames.iter().map(|f| &f[..]), false);
        let held: Vec<_> = (0..20).map(|_| cache.alloc().unwrap()).collect();
        let mut seen = take(&mut replay, &mut cache, 32);
        assert_eq!(seen.len(), 12);
        held.into_iter().for_each(|p| cache.free(p));
        seen.extend(take(&mut replay, &mut cache, 32));
        assert_eq!(seen, frames);
    }

    #[test]
    fn few_long_frames_take_a_bounded_share_of_memory() {
        let (long, short) = (vec![0; 262_144], vec![0; 60]);
        for (frames, lines) in [(vec![&long[..]], LINES_MAX), (vec![&short[..]], FRAMES_MIN)] {
            let replay = replay(frames.iter().copied(), true);
            assert_eq!(replay.lines.len(), lines, "{} bytes", frames[0].len());
        }
    }

    #[test]
    fn an_empty_list_is_done_at_once() {
        assert!(replay(std::iter::empty(), true).is_done());
    }
}
