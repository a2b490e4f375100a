//! What a fuzz target does to the rings: guest memory with any content, a few bursts in each direction, and
//! every chunk must come back.

use super::chain::{Direction, Fault, KeptHeaders, RingParts, Sent};
use super::memory::{Extent, GuestMemory, Mapped};
use super::message::{Region, Request, VringAddr};
use super::packed::Packed;
use super::ring::Ring;
use super::split::Split;
use crate::QueueStats;
use base::PortNo;
use packet::lent::{HEAD_BYTES, Tails};
use packet::{Batch, Lent, PoolCache, RxOutcome, RxQueue};
use std::io::{Seek, SeekFrom, Write};
use std::sync::Arc;

/// Bytes of the guest's memory.
const MEMORY: usize = 32 << 10;
/// Entries of its ring.
const SIZE: u16 = 16;
/// In the gap that a packed ring leaves between its descriptors and its device's events.
const BASE_AT: usize = 0x110;

/// Runs a ring over memory that begins with `input`: its first byte chooses layout, direction and features.
/// At [`BASE_AT`] is where the front end says that it stopped: it is inverted in bits 15 and 31, so that
/// zeros mean the start.
pub fn rings(input: &[u8], cache: &mut PoolCache) {
    let Some((&choice, content)) = input.split_first() else { return };
    let fd = rustix::fs::memfd_create("fuzz", rustix::fs::MemfdFlags::CLOEXEC).expect("a memfd can be had");
    let mut file = std::fs::File::from(fd);
    file.set_len(MEMORY as u64).expect("memory can be sized");
    file.seek(SeekFrom::Start(0)).expect("memory has a start");
    file.write_all(&content[..content.len().min(MEMORY)]).expect("memory can be written");
    let region = Region { guest: 0x1000, len: MEMORY as u64, user: 0x10_0000, offset: 0 };
    let extent = Extent::default();
    let mapped = Mapped::new(region, &file.into(), &extent).expect("memory can be mapped");
    let memory =
        Arc::new(GuestMemory::new(vec![Arc::new(mapped)], extent).expect("one region overlaps nothing"));
    let (packed, to_guest, mergeable, event_idx) =
        (choice & 1 != 0, choice & 2 != 0, choice & 4 != 0, choice & 8 != 0);
    let user = region.user;
    // Descriptors first, so that short inputs reach them all.
    let (desc, avail, used) = (user, user + 0x100, user + 0x180);
    let addr = VringAddr { index: 0, is_logged: false, desc, used, avail, log: 0 };
    let parts = RingParts {
        memory: memory.clone(),
        lacks_memory: choice & 128 != 0,
        log: None,
        direction: if to_guest { Direction::ToGuest } else { Direction::FromGuest },
        is_mergeable: mergeable,
        header_len: if choice & 16 != 0 { 10 } else { 12 },
        counts: Arc::default(),
        kept_headers: KeptHeaders::default(),
    };
    let ring = if packed {
        let base = content.get(BASE_AT..BASE_AT + 4).map_or([0; 4], |at| at.try_into().expect("4 bytes"));
        let base = u32::from_le_bytes(base) ^ 0x8000_8000;
        Packed::new(&memory, &addr, SIZE, base, choice & 8 == 0)
            .map(|packed| Ring::packed(packed, SIZE.into(), parts))
    } else {
        Split::new(&memory, &addr, SIZE, event_idx).map(|split| Ring::split(split, SIZE.into(), parts))
    };
    let Ok(mut ring) = ring else { return };
    let stats = QueueStats::default();
    for _ in 0..4 {
        let mut batch = Batch::new();
        let result = if to_guest && choice & 64 != 0 {
            send_lent(&mut ring, cache, &mut batch)
        } else if to_guest {
            for len in [60, 1500, 3000] {
                batch.extend(cache.alloc_frame(&vec![0x5a; len]));
            }
            ring.send(&batch).map(|sent| assert!(sent.taken <= batch.len()))
        } else {
            let mut sender = Lender::default();
            let noted = (choice & 64 != 0).then_some(&mut *sender.0);
            ring.receive(PortNo(1), &stats, cache, &mut batch, noted).and_then(|()| {
                if let Some(mut lent) = Lent::of(&mut sender) {
                    lent.fetch_all(&mut batch, cache);
                    lent.settle();
                }
                ring.give_back()
            })
        };
        assert!(batch.iter().all(|packet| !packet.is_lent()));
        cache.free_all(&mut batch);
        ring.want_notifications(choice & 32 != 0);
        if result.is_err() || ring.has_available().is_err() {
            return;
        }
    }
}

/// Sends packets, some of which have lent tails.
fn send_lent(ring: &mut Ring, cache: &mut PoolCache, batch: &mut Batch) -> Result<(), Fault> {
    let mut sender = Lender::default();
    for len in [0, 1000, 5000] {
        let Some(mut packet) = cache.alloc_frame(&[0x5a; HEAD_BYTES]) else { break };
        assert!(len == 0 || sender.0.lend_owned(&mut packet, vec![0xa5; len], 1500));
        batch.push(packet);
    }
    let Some(mut lent) = Lent::of(&mut sender) else { return Ok(()) };
    let mut sent = Sent::default();
    let result = ring.write_lent(batch, &mut lent, &mut sent);
    assert!(sent.taken <= batch.len());
    lent.fetch_all(&mut batch[sent.taken..], cache);
    lent.settle();
    for packet in batch.drain(..sent.taken) {
        cache.free(packet);
    }
    result.and_then(|()| ring.show())
}

/// Tails whose sender gets nothing back but them.
struct Lender(Box<Tails>);

impl Default for Lender {
    fn default() -> Lender {
        Lender(Box::new(Tails::new()))
    }
}

impl RxQueue for Lender {
    fn rx_burst(&mut self, _cache: &mut PoolCache, _batch: &mut Batch) -> RxOutcome {
        RxOutcome::Ok
    }

    fn tails(&mut self) -> Option<&mut Tails> {
        (!self.0.is_empty()).then_some(&mut self.0)
    }

    fn rx_end(&mut self) {
        self.0.clear();
    }
}

/// Reads a message from any bytes: a request's number, and its payload.
pub fn message(input: &[u8]) {
    if let Some((number, payload)) = input.split_first() {
        // Whatever it is, it says how many descriptors it wants.
        let _ = Request::parse(u32::from(*number), payload).map(|request| request.fds_expected());
    }
}
