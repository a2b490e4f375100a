//! Fragments that wait for the rest of their datagram, so that it can be tracked as a whole.
//!
//! A fragment is held until its datagram is complete. The datagram is then reassembled in a buffer, for
//! reading only; the fragments themselves go on as they came in, each with the state of the whole. A fragment
//! that is invalid by itself (too small, a tiny first fragment, beyond 64 KB) or together with others
//! (overlapping, duplicate) is refused and becomes an invalid packet.
//!
//! Bounds: [`Settings::max_nfrags`] for the chunks of all held packets, or an eighth of the pool if that is
//! less; [`PIECES_MAX`] per datagram. When there is no room, the port that holds most loses its oldest
//! datagram to a port that holds less (`ct_fragment_purged`), until both hold the same. So a port below its
//! share finds room, however many others flood. A datagram belongs to one input port, so that no other port
//! can spoil it. A datagram that is incomplete after [`TIMEOUT_MS`] is dropped (`ct_fragment_timeout`).
//!
//! Threads: any. Everything held is behind one lock, which only fragments take. Memory is reserved at the
//! start. Source: RFC 791, 815, 1858, 5722, 8200; ovs-dpctl(8), `ipf-*`.

use super::seen::{self, Seen};
use arrayvec::ArrayVec;
use base::PortNo;
use packet::{BURST, Packet};
use std::collections::HashMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};
use std::sync::{Mutex, MutexGuard, PoisonError};
use wire::Layers;
use wire::checksum::checksum;

/// Maximum number of fragments of one datagram: they leave as one run.
pub const PIECES_MAX: usize = BURST;
/// Maximum of `ipf-set-max-nfrags`.
pub const MAX_NFRAGS_MAX: u32 = 5_000;
/// Minimum of `ipf-set-min-frag`.
pub const MIN_FRAG_MIN: u32 = 400;
const TIMEOUT_MS: u64 = 15_000;
/// How many datagrams one call of [`Fragments::expire`] looks at.
const EXPIRED_AT_ONCE: u32 = 64;
/// Groups of ports whose fragments are counted together.
const PORTS: usize = 256;
const NONE: u32 = u32::MAX;
/// The longest IPv6 packet without a jumbo payload.
pub const WHOLE_BYTES_MAX: usize = 40 + 65_535;

/// What an operator sets; arrays are by IP version (0: 4, 1: 6).
#[derive(Debug)]
pub struct Settings {
    pub is_enabled: [AtomicBool; 2],
    /// Minimum length, with header, of a fragment other than the last.
    pub min_frag: [AtomicU32; 2],
    pub max_nfrags: AtomicU32,
}

/// What happened to fragments, per IP version.
#[derive(Default, Debug)]
pub struct Figures {
    pub accepted: AtomicU64,
    pub completed: AtomicU64,
    pub expired: AtomicU64,
    pub too_small: AtomicU64,
    pub overlapped: AtomicU64,
    /// Belonged to a datagram of more than [`PIECES_MAX`] fragments.
    pub too_many: AtomicU64,
    /// Dropped early in favour of another port's fragments.
    pub purged: AtomicU64,
    /// Refused because there was no room.
    pub no_room: AtomicU64,
}

/// Which datagram a fragment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Key {
    src: u128,
    dst: u128,
    id: u32,
    /// IPv4's protocol; 0 for IPv6, whose identification suffices.
    protocol: u8,
    is_ipv6: bool,
    zone: u16,
    port: PortNo,
    recirc_id: u32,
}

/// A fragment that is valid by itself.
pub struct Examined {
    key: Key,
    layers: Layers,
    start: u32,
    end: u32,
    is_last: bool,
    chunks: u32,
    chunks_max: u32,
}

struct Piece {
    packet: Packet,
    layers: Layers,
    start: u32,
    end: u32,
    next: u32,
}

/// A datagram with some fragments here.
struct Datagram {
    key: Key,
    /// Its fragments, in order.
    first: u32,
    count: u32,
    chunks: u32,
    /// Bytes received, and the total once the last fragment has arrived.
    bytes: u32,
    total: Option<u32>,
    expires_ms: u64,
    /// Its neighbours in [`Held::all`] and in its port's queue.
    links: [(u32, u32); 2],
}

/// Datagrams in order of arrival.
#[derive(Clone, Copy)]
struct Queue {
    oldest: u32,
    newest: u32,
}

const EMPTY: Queue = Queue { oldest: NONE, newest: NONE };
/// Indices into a datagram's links.
const OF_ALL: usize = 0;
const OF_PORT: usize = 1;

impl Queue {
    fn push(&mut self, idx: u32, of: usize, datagrams: &mut [Datagram]) {
        match datagrams.get_mut(self.newest as usize) {
            Some(last) => last.links[of].1 = idx,
            None => self.oldest = idx,
        }
        datagrams[idx as usize].links[of] = (self.newest, NONE);
        self.newest = idx;
    }

    fn remove(&mut self, idx: u32, of: usize, datagrams: &mut [Datagram]) {
        let (older, newer) = datagrams[idx as usize].links[of];
        match datagrams.get_mut(older as usize) {
            Some(before) => before.links[of].1 = newer,
            None => self.oldest = newer,
        }
        match datagrams.get_mut(newer as usize) {
            Some(after) => after.links[of].0 = older,
            None => self.newest = older,
        }
    }
}

/// What the ports of a group hold: chunks and datagrams.
#[derive(Clone, Copy)]
struct OfPort {
    chunks: u32,
    datagrams: Queue,
}

/// What is held. Vectors never grow beyond their reserved capacity.
struct Held {
    by_key: HashMap<Key, u32>,
    datagrams: Vec<Datagram>,
    free_datagrams: Vec<u32>,
    pieces: Vec<Option<Piece>>,
    free_pieces: Vec<u32>,
    all: Queue,
    by_port: Box<[OfPort; PORTS]>,
}

/// Why a fragment does not fit into its datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Misfit {
    Overlaps,
    OneTooMany,
}

/// The fragments of a complete datagram, in order.
pub type Whole = ArrayVec<(Packet, Layers), PIECES_MAX>;

/// What happens to a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    Refused,
    Waits,
    /// Its datagram is now complete.
    Completes,
}

/// See the module documentation.
pub struct Fragments {
    pub settings: Settings,
    pub figures: [Figures; 2],
    /// Chunks of held packets.
    chunks: AtomicU32,
    held: Mutex<Held>,
}

impl Default for Fragments {
    fn default() -> Fragments {
        let most = MAX_NFRAGS_MAX as usize;
        let held = Held {
            // Twice the maximum, so that removals never make it grow.
            by_key: HashMap::with_capacity(2 * most),
            datagrams: Vec::with_capacity(most),
            free_datagrams: Vec::with_capacity(most),
            pieces: Vec::with_capacity(most),
            free_pieces: Vec::with_capacity(most),
            all: EMPTY,
            by_port: Box::new([OfPort { chunks: 0, datagrams: EMPTY }; PORTS]),
        };
        Fragments {
            settings: Settings {
                is_enabled: [AtomicBool::new(true), AtomicBool::new(true)],
                min_frag: [AtomicU32::new(1200), AtomicU32::new(1280)],
                max_nfrags: AtomicU32::new(1000),
            },
            figures: Default::default(),
            chunks: AtomicU32::new(0),
            held: Mutex::new(held),
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

impl Fragments {
    /// Chunks of held packets.
    pub fn held(&self) -> u32 {
        self.chunks.load(Relaxed)
    }

    /// Incomplete datagrams, in Open vSwitch's format.
    pub fn waiting(&self) -> Vec<String> {
        struct Waiting {
            key: Key,
            protocol: u8,
            count: u32,
            has_first: bool,
            has_last: bool,
        }
        // Workers wait for the lock, so only the copy is made under it.
        let held = self.lock();
        let next = |idx: u32| held.datagrams.get(idx as usize);
        let datagrams =
            std::iter::successors(next(held.all.oldest), |datagram| next(datagram.links[OF_ALL].1));
        let all: Vec<Waiting> = datagrams
            .map(|Datagram { key, first, count, total, .. }| {
                let first = held.pieces.get(*first as usize).and_then(Option::as_ref);
                Waiting {
                    key: *key,
                    protocol: if key.is_ipv6 { first.map_or(0, |p| p.layers.protocol) } else { key.protocol },
                    count: *count,
                    has_first: first.is_some_and(|piece| piece.start == 0),
                    has_last: total.is_some(),
                }
            })
            .collect();
        drop(held);
        let text = |Waiting { key, protocol, count, has_first, has_last }: &Waiting| {
            let Key { src, dst, id, is_ipv6, zone, recirc_id, .. } = key;
            let address = |address: u128| match is_ipv6 {
                true => Ipv6Addr::from_bits(address).to_string(),
                false => Ipv4Addr::from_bits(address as u32).to_string(),
            };
            let state = match (has_first, has_last) {
                (true, true) => "first/last frag",
                (true, false) => "first frag",
                (false, true) => "last frag",
                (false, false) => "other frag",
            };
            format!(
                "(src={},dst={},recirc_id={recirc_id},ip_id={id},dl_type={:#x},zone={zone},\
                 nw_proto={protocol},num_fragments={count},state={state})",
                address(*src),
                address(*dst),
                if *is_ipv6 { 0x86dd } else { 0x800 },
            )
        };
        all.iter().map(text).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        // No code panics while it holds this lock.
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Examines a fragment by itself. `None` if it is invalid.
    pub fn examine(&self, packet: &Packet, layers: &Layers, zone: u16, recirc_id: u32) -> Option<Examined> {
        let is_ipv6 = layers.is_ipv6();
        let version = usize::from(is_ipv6);
        if !layers.is_fragment() || layers.is_cut() || !self.settings.is_enabled[version].load(Relaxed) {
            return None;
        }
        let (l3, end) = (usize::from(layers.l3), layers.end(packet.data()));
        let ip = packet.data().get(l3..)?;
        let len = end.min(packet.len()).checked_sub(l3)?;
        let data = layers.fragment_header_len(packet.data())?;
        let (src, dst) = seen::addresses(ip, is_ipv6)?;
        let (id, offset, has_more, protocol) = if is_ipv6 {
            let head: &[u8; 8] = ip.get(data - 8..)?.first_chunk()?;
            let word = u16::from_be_bytes([head[2], head[3]]);
            let id = u32::from_be_bytes([head[4], head[5], head[6], head[7]]);
            (id, word & 0xfff8, word & 1 != 0, 0)
        } else {
            if !wire::checksum::is_valid(ip.get(..data)?) {
                return None;
            }
            let word = be16(ip, 6)?;
            (be16(ip, 4)?.into(), (word & 0x1fff).checked_mul(8)?, word & 0x2000 != 0, *ip.get(9)?)
        };
        let bytes = len.checked_sub(data).filter(|bytes| *bytes > 0)?;
        let (start, end) = (u32::from(offset), u32::from(offset) + bytes as u32);
        // The whole must form a valid packet, and a first fragment must contain all headers (RFC 1858, RFC
        // 7112).
        let header = if is_ipv6 { data - 40 } else { data };
        let is_tiny = offset == 0 && layers.payload == 0;
        if end as usize + header > 65_535 || has_more && bytes % 8 != 0 || is_tiny {
            return None;
        }
        if has_more && (len as u32) < self.settings.min_frag[version].load(Relaxed) {
            self.figures[version].too_small.fetch_add(1, Relaxed);
            return None;
        }
        let key = Key { src, dst, id, protocol, is_ipv6, zone, port: packet.in_port, recirc_id };
        Some(Examined {
            key,
            layers: *layers,
            start,
            end,
            is_last: !has_more,
            chunks: packet.segments().count() as u32,
            chunks_max: (packet.pool().config().chunks / 8) as u32,
        })
    }

    /// Holds a fragment if there is room for it and it does not contradict others. Passes what gives way to
    /// it to `drop`, and puts the datagram that it completes into `whole`.
    pub fn hold(
        &self,
        piece: &Examined,
        now_ms: u64,
        take: impl FnOnce() -> Packet,
        drop: impl FnMut(Packet),
        whole: &mut Whole,
    ) -> Fate {
        let figures = &self.figures[usize::from(piece.key.is_ipv6)];
        let mut held = self.lock();
        let known = held.by_key.get(&piece.key).copied();
        let before = match known.map(|idx| held.place(idx, piece)) {
            None => NONE,
            Some(Ok(before)) => before,
            Some(Err(misfit)) => {
                let figure = match misfit {
                    Misfit::Overlaps => &figures.overlapped,
                    Misfit::OneTooMany => &figures.too_many,
                };
                figure.fetch_add(1, Relaxed);
                return Fate::Refused;
            }
        };
        if !self.has_room(piece, &mut held, drop) {
            figures.no_room.fetch_add(1, Relaxed);
            return Fate::Refused;
        }
        let Some(idx) = known.or_else(|| held.begin(piece.key, now_ms)) else { return Fate::Refused };
        held.insert(idx, before, piece, take());
        self.chunks.fetch_add(piece.chunks, Relaxed);
        figures.accepted.fetch_add(1, Relaxed);
        let datagram = &held.datagrams[idx as usize];
        if datagram.total != Some(datagram.bytes) {
            return Fate::Waits;
        }
        let chunks = held.end(idx, |packet, layers| whole.push((packet, layers)));
        self.chunks.fetch_sub(chunks, Relaxed);
        figures.completed.fetch_add(whole.len() as u64, Relaxed);
        Fate::Completes
    }

    /// Whether a port may hold one more fragment. Any port may hold as much as is free. When there is no
    /// room, a port that holds less than another may still hold one, and the other loses its oldest
    /// datagrams.
    fn has_room(&self, piece: &Examined, held: &mut Held, mut drop: impl FnMut(Packet)) -> bool {
        let most = self.settings.max_nfrags.load(Relaxed).min(piece.chunks_max);
        let free = || most.saturating_sub(self.chunks.load(Relaxed));
        let wanted = held.by_port[port_of(&piece.key)].chunks + piece.chunks;
        if free() >= piece.chunks && wanted <= free().max(1) {
            return true;
        }
        let Some(most_of) = (0..PORTS).max_by_key(|n| held.by_port[*n].chunks) else { return false };
        // Bound: each datagram holds at least one chunk. The victim is never the port of `piece`, which holds
        // less.
        while held.by_port[most_of].chunks > wanted {
            if free() >= piece.chunks {
                return true;
            }
            let idx = held.by_port[most_of].datagrams.oldest;
            let figures = &self.figures[usize::from(held.datagrams[idx as usize].key.is_ipv6)];
            let chunks = held.end(idx, |packet, _| {
                figures.purged.fetch_add(1, Relaxed);
                drop(packet);
            });
            self.chunks.fetch_sub(chunks, Relaxed);
        }
        free() >= piece.chunks && wanted <= free().max(1)
    }

    /// Gives up incomplete datagrams whose time is over, and passes their packets to `drop`. True if more of
    /// them are left.
    pub fn expire(&self, now_ms: u64, mut drop: impl FnMut(Packet)) -> bool {
        if self.held() == 0 {
            return false;
        }
        // If another worker holds the lock, expiry can wait.
        let Ok(mut held) = self.held.try_lock() else { return true };
        for _ in 0..EXPIRED_AT_ONCE {
            let idx = held.all.oldest;
            let Some(oldest) = held.datagrams.get(idx as usize) else { return false };
            if oldest.expires_ms > now_ms {
                return false;
            }
            let figures = &self.figures[usize::from(oldest.key.is_ipv6)];
            let chunks = held.end(idx, |packet, _| {
                figures.expired.fetch_add(1, Relaxed);
                drop(packet);
            });
            self.chunks.fetch_sub(chunks, Relaxed);
        }
        true
    }
}

/// The port group whose datagrams include this one.
fn port_of(key: &Key) -> usize {
    key.port.0 as usize % PORTS
}

impl Held {
    /// The fragment after which a new one belongs ([`NONE`]: it is the first). `Err` if it overlaps another,
    /// is after the last, or there are too many.
    fn place(&self, idx: u32, new: &Examined) -> Result<u32, Misfit> {
        let datagram = &self.datagrams[idx as usize];
        if datagram.total.is_some_and(|total| new.is_last || new.end > total) {
            return Err(Misfit::Overlaps);
        }
        let (mut before, mut at) = (NONE, datagram.first);
        while let Some(Some(piece)) = self.pieces.get(at as usize) {
            if new.is_last && piece.end > new.start {
                return Err(Misfit::Overlaps);
            }
            if piece.start >= new.end {
                break;
            }
            if piece.end > new.start {
                return Err(Misfit::Overlaps);
            }
            (before, at) = (at, piece.next);
        }
        if datagram.count as usize >= PIECES_MAX {
            return Err(Misfit::OneTooMany);
        }
        Ok(before)
    }

    /// Begins a datagram without fragments.
    fn begin(&mut self, key: Key, now_ms: u64) -> Option<u32> {
        let new = Datagram {
            key,
            first: NONE,
            count: 0,
            chunks: 0,
            bytes: 0,
            total: None,
            expires_ms: now_ms + TIMEOUT_MS,
            links: [(NONE, NONE); 2],
        };
        let idx = match self.free_datagrams.pop() {
            Some(idx) => {
                self.datagrams[idx as usize] = new;
                idx
            }
            None if self.datagrams.len() < MAX_NFRAGS_MAX as usize => {
                self.datagrams.push(new);
                self.datagrams.len() as u32 - 1
            }
            None => return None,
        };
        self.all.push(idx, OF_ALL, &mut self.datagrams);
        self.by_port[port_of(&key)].datagrams.push(idx, OF_PORT, &mut self.datagrams);
        self.by_key.insert(key, idx);
        Some(idx)
    }

    /// Bound: there are at most as many fragments as chunks, so one is free.
    fn insert(&mut self, idx: u32, before: u32, new: &Examined, packet: Packet) {
        let datagram = &mut self.datagrams[idx as usize];
        datagram.count += 1;
        datagram.chunks += new.chunks;
        datagram.bytes += new.end - new.start;
        if new.is_last {
            datagram.total = Some(new.end);
        }
        self.by_port[port_of(&new.key)].chunks += new.chunks;
        let next = match self.pieces.get(before as usize) {
            Some(Some(piece)) => piece.next,
            _ => datagram.first,
        };
        let piece = Some(Piece { packet, layers: new.layers, start: new.start, end: new.end, next });
        let at = match self.free_pieces.pop() {
            Some(at) => {
                self.pieces[at as usize] = piece;
                at
            }
            None => {
                self.pieces.push(piece);
                self.pieces.len() as u32 - 1
            }
        };
        match self.pieces.get_mut(before as usize) {
            Some(Some(piece)) => piece.next = at,
            _ => datagram.first = at,
        }
    }

    /// Removes a datagram, and returns how many chunks it held.
    fn end(&mut self, idx: u32, mut each: impl FnMut(Packet, Layers)) -> u32 {
        let Datagram { key, first, chunks, .. } = self.datagrams[idx as usize];
        self.by_key.remove(&key);
        self.all.remove(idx, OF_ALL, &mut self.datagrams);
        let of_port = &mut self.by_port[port_of(&key)];
        of_port.datagrams.remove(idx, OF_PORT, &mut self.datagrams);
        of_port.chunks -= chunks;
        self.free_datagrams.push(idx);
        let mut at = first;
        while let Some(piece) = self.pieces.get_mut(at as usize).and_then(Option::take) {
            self.free_pieces.push(at);
            each(piece.packet, piece.layers);
            at = piece.next;
        }
        chunks
    }
}

/// What a complete datagram, reassembled in `to`, says about its connection. `None`: it is invalid.
pub fn read_whole(whole: &Whole, to: &mut [u8]) -> Option<Seen> {
    let (first, layers) = whole.first()?;
    let is_ipv6 = layers.is_ipv6();
    let header_len = layers.fragment_header_len(first.data())?;
    let mut len = 0;
    for (packet, layers) in whole {
        let l3 = usize::from(layers.l3);
        let end = layers.end(packet.data()).min(packet.len());
        // Only the first fragment's headers.
        let from = if len == 0 { l3 } else { l3 + layers.fragment_header_len(packet.data())? };
        let mut at = 0;
        for segment in packet.segments() {
            let wanted = from.clamp(at, at + segment.len())..end.clamp(at, at + segment.len());
            let bytes = &segment[wanted.start - at..wanted.end - at];
            to.get_mut(len..len + bytes.len())?.copy_from_slice(bytes);
            len += bytes.len();
            at += segment.len();
        }
    }
    let ip = to.get_mut(..len)?;
    if is_ipv6 {
        // A fragment header with offset 0 and no more fragments: RFC 6946.
        ip[header_len - 6..header_len - 4].fill(0);
        ip[4..6].copy_from_slice(&u16::try_from(len - 40).ok()?.to_be_bytes());
    } else {
        ip[2..4].copy_from_slice(&u16::try_from(len).ok()?.to_be_bytes());
        ip[6..8].fill(0);
        ip[10..12].fill(0);
        let sum = checksum(&ip[..header_len]);
        ip[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let layers = Layers::without_link(ip, ip.len(), layers.eth_type);
    seen::read_bytes(ip, &layers)
}

#[cfg(test)]
mod tests;
