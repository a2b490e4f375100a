//! What a guest's buffers can make a packet cost that is sent to it.

use super::*;
use crate::vhost_user::memory::{Extent, GuestMemory, Mapped};
use crate::vhost_user::message::Region;
use packet::{BURST, Pool, PoolCache, PoolConfig};
use std::fs::File;
use std::sync::Arc;

const HEADER_LEN: usize = 12;
/// Segments of the longest buffer.
const CHAIN_MAX: usize = 64;
/// Descriptors that may be read for one packet: each of its guesses takes a buffer, and then it takes those
/// that it needs.
const READ_MAX: usize = 3 * CHAIN_MAX + PACKET_SEGMENTS + CHAIN_MAX;

/// A guest that never runs out of buffers: number `n` has all but one byte of nothing before the last one of
/// its segments.
struct Offers {
    shape: fn(usize) -> (usize, u32),
    next: usize,
    given_back: usize,
    read: usize,
}

impl Layout for Offers {
    fn available(&mut self, wanted: usize) -> Result<usize, Fault> {
        Ok(wanted)
    }

    fn has_available(&mut self, _wanted: usize) -> bool {
        true
    }

    fn take(&mut self, out: &mut Gather<'_>) -> Result<Option<(u16, u16)>, Fault> {
        let (segments, len) = (self.shape)(self.next);
        for segment in 1..=segments {
            self.read += 1;
            out.add(0x1000, if segment == segments { len } else { 0 }, true)?;
        }
        self.next += 1;
        Ok(Some((0, 1)))
    }

    fn untake(&mut self, chains: &[Chain]) {
        self.next -= chains.len();
    }

    fn give_back(&mut self, _chain: Chain, _written: u32, _log: Option<&DirtyLog>) {
        self.given_back += 1;
    }

    fn publish(&mut self, _log: Option<&DirtyLog>) -> bool {
        false
    }

    fn want_notifications(&mut self, _wanted: bool) {}

    fn base(&self) -> u32 {
        0
    }
}

fn parts(is_mergeable: bool) -> RingParts {
    let file = File::from(rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
    file.set_len(1 << 20).unwrap();
    let extent = Extent::default();
    let region = Region { guest: 0x1000, len: 1 << 20, user: 0, offset: 0 };
    let mapped = Arc::new(Mapped::new(region, &file.into(), &extent).unwrap());
    RingParts {
        memory: Arc::new(GuestMemory::new(vec![mapped], extent).unwrap()),
        lacks_memory: false,
        log: None,
        direction: Direction::ToGuest,
        is_mergeable,
        header_len: HEADER_LEN,
        counts: Arc::default(),
        kept_headers: KeptHeaders::default(),
    }
}

/// Sends packets of these lengths; returns what became of them, and the buffers.
fn send(
    cache: &mut PoolCache,
    is_mergeable: bool,
    shape: fn(usize) -> (usize, u32),
    lens: &[usize],
) -> (Result<Sent, Fault>, Offers) {
    let mut offers = Offers { shape, next: 0, given_back: 0, read: 0 };
    let mut segments = Segments { list: Vec::new(), chain_max: CHAIN_MAX };
    let parts = parts(is_mergeable);
    let mut transmit = Transmit { parts: &parts, segments: &mut segments, sent: Sent::default() };
    let batch: Vec<Packet> = lens.iter().map(|len| cache.alloc_frame(&vec![0x55; *len]).unwrap()).collect();
    let result = transmit.burst(&mut offers, &batch).map(|_| transmit.sent);
    batch.into_iter().for_each(|packet| cache.free(packet));
    (result, offers)
}

#[test]
fn what_is_read_for_a_packet_is_bounded_whatever_buffers_its_receiver_has() {
    let pool = Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    let shapes: [fn(usize) -> (usize, u32); 7] = [
        |_| (CHAIN_MAX, 12),
        |_| (CHAIN_MAX, 100),
        |_| (CHAIN_MAX, 1_000),
        |_| (CHAIN_MAX, 2_048),
        |n| (CHAIN_MAX, if n.is_multiple_of(2) { 2_048 } else { 20 }),
        // Each holds all packets of the last burst below but the next one.
        |n| (CHAIN_MAX, 1_511 - 16 * n as u32),
        |_| (1, 12),
    ];
    let bursts: [Vec<usize>; 4] = [
        vec![60],
        vec![1_500; BURST],
        (0..BURST).map(|n| if n % 2 == 0 { 60 } else { 1_500 }).collect(),
        (0..BURST).map(|n| 1_500 - 16 * n).collect(),
    ];
    for (n, shape) in shapes.into_iter().enumerate() {
        for lens in &bursts {
            for is_mergeable in [false, true] {
                let (result, offers) = send(&mut cache, is_mergeable, shape, lens);
                let sent = result.unwrap();
                let name = format!("shape {n}, {} packets of {}, {is_mergeable}", lens.len(), lens[0]);
                assert_eq!(sent.taken, lens.len(), "{name}");
                assert_eq!(offers.next, offers.given_back, "{name}: the others are on offer");
                let read = offers.read;
                assert!(read <= lens.len() * READ_MAX, "{name}: {read} descriptors read");
            }
        }
    }
}

#[test]
fn what_one_packet_did_not_find_room_for_is_not_looked_at_for_the_others_of_the_burst() {
    let pool = Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    for is_mergeable in [false, true] {
        let (result, offers) = send(&mut cache, is_mergeable, |_| (CHAIN_MAX, 12), &[1_500; 8]);
        assert_eq!(result.unwrap().refused, 8);
        assert!(offers.read <= 8 * CHAIN_MAX + PACKET_SEGMENTS + CHAIN_MAX, "{} descriptors", offers.read);
    }
}

#[test]
fn a_receive_buffer_shorter_than_a_header_is_a_fault() {
    let pool = Pool::new(PoolConfig { chunks: 512, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    for is_mergeable in [false, true] {
        let (result, _) = send(&mut cache, is_mergeable, |_| (2, 11), &[60]);
        assert_eq!(result.err(), Some(Fault("a receive buffer shorter than a header")));
    }
}
