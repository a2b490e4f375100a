//! The receive ring of a packet socket: slots that the kernel fills with whole frames, in shared memory.
//!
//! TPACKET_V2, although V3 is newer: V3 hands over blocks of frames, and a block that is not full only after
//! a timeout of at least a millisecond, so a ping would wait that long at each port. With V2 a frame is
//! visible as soon as its slot's status word changes, and checking costs one load.
//!
//! Invariants: a slot's status word says whether it belongs to the kernel or to us; we only look at slot
//! `next`, copy the frame out, and return the slot before looking at the following one. Slots have 2 KB; a
//! longer frame is whole in the socket's own queue (PACKET_COPY_THRESH), in the order of the slots, and is
//! fetched with `recvmsg`.
//!
//! Source: packet(7), Linux's Documentation/networking/packet_mmap.rst, linux/if_packet.h.

use crate::PortError;
use crate::af_xdp::sys::{self, Mapping};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a slot.
const SLOT_BYTES: usize = 2048;
const BLOCK_BYTES: usize = 1 << 18;
const PACKET_RX_RING: i32 = 5;
const STATUS_KERNEL: u32 = 0;
const STATUS_USER: u32 = 1;
const STATUS_COPY: u32 = 1 << 1;
const STATUS_VLAN_VALID: u32 = 1 << 4;
const STATUS_VLAN_TPID_VALID: u32 = 1 << 6;
/// Bytes of the virtio-net header that packet sockets put in front of a frame (without `num_buffers`).
pub(super) const VNET_LEN: usize = 10;

/// The fields of `struct tpacket_req`.
#[derive(Clone, Copy)]
#[repr(C)]
struct RingRequest {
    block_bytes: u32,
    blocks: u32,
    slot_bytes: u32,
    slots: u32,
}

/// The ring of one socket.
pub(super) struct RxRing {
    mapping: Mapping,
    slots: usize,
    next: usize,
}

/// A frame as the kernel noted it in a slot.
#[derive(Clone, Copy)]
pub(super) struct Slot<'a> {
    /// Header and frame where both fit the slot; `None` where the frame is elsewhere.
    pub(super) bytes: Option<(&'a [u8; VNET_LEN], &'a [u8])>,
    /// The whole frame waits in the socket's queue.
    pub(super) is_copied: bool,
    /// Tag protocol and tag that were taken out of the frame.
    pub(super) vlan: Option<[u8; 4]>,
}

/// The kernel's memory for a ring of `slots` frames, in whole blocks.
pub(super) fn ring_bytes(slots: usize) -> usize {
    (slots * SLOT_BYTES).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES)
}

impl RxRing {
    /// Asks the kernel for a ring of `slots` frames (rounded up to whole blocks) and maps it.
    pub(super) fn new(socket: &OwnedFd, slots: usize) -> Result<RxRing, PortError> {
        let blocks = ring_bytes(slots) / BLOCK_BYTES;
        let slots = blocks * BLOCK_BYTES / SLOT_BYTES;
        let request = RingRequest {
            block_bytes: BLOCK_BYTES as u32,
            blocks: blocks as u32,
            slot_bytes: SLOT_BYTES as u32,
            slots: slots as u32,
        };
        let call = "make the receive ring of a packet socket";
        sys::set_option(socket.as_raw_fd(), libc::SOL_PACKET, PACKET_RX_RING, &request, call)?;
        let mapping = Mapping::new(socket, blocks * BLOCK_BYTES, 0)?;
        Ok(RxRing { mapping, slots, next: 0 })
    }

    #[inline]
    fn status(&self) -> &AtomicU32 {
        let at = self.mapping.at::<AtomicU32>((self.next * SLOT_BYTES) as u64, 1);
        // SAFETY: `at` checks range and alignment; both sides access the word atomically.
        unsafe { at.as_ref() }
    }

    /// Whether the next slot belongs to us.
    #[inline]
    pub(super) fn has_next(&self) -> bool {
        self.status().load(Ordering::Acquire) & STATUS_USER != 0
    }

    /// The next slot's frame. Call [`Self::release`] when it has been copied.
    #[inline]
    pub(super) fn peek(&self) -> Option<Slot<'_>> {
        let status = self.status().load(Ordering::Acquire);
        if status & STATUS_USER == 0 {
            return None;
        }
        let at = self.mapping.at::<u8>((self.next * SLOT_BYTES) as u64, SLOT_BYTES);
        // SAFETY: the slot lies within the mapping (checked by `at`), and is ours since the acquiring load
        // above.
        let slot = unsafe { std::slice::from_raw_parts(at.as_ptr(), SLOT_BYTES) };
        Some(parse_slot(status, slot))
    }

    /// Gives the slot that [`Self::peek`] showed back to the kernel.
    #[inline]
    pub(super) fn release(&mut self) {
        self.status().store(STATUS_KERNEL, Ordering::Release);
        self.next += 1;
        if self.next == self.slots {
            self.next = 0;
        }
    }
}

/// Reads `struct tpacket2_hdr` and what it points to. Positions that make no sense leave `bytes` empty.
fn parse_slot(status: u32, slot: &[u8]) -> Slot<'_> {
    let word = |at: usize| u32::from_ne_bytes(slot[at..at + 4].try_into().expect("4 bytes"));
    let half = |at: usize| u16::from_ne_bytes(slot[at..at + 2].try_into().expect("2 bytes"));
    let (len, captured, start) = (word(4) as usize, word(8) as usize, usize::from(half(12)));
    let vlan = (status & STATUS_VLAN_VALID != 0).then(|| {
        let protocol = if status & STATUS_VLAN_TPID_VALID != 0 { half(26) } else { libc::ETH_P_8021Q as u16 };
        let ([p0, p1], [t0, t1]) = (protocol.to_be_bytes(), half(24).to_be_bytes());
        [p0, p1, t0, t1]
    });
    let is_copied = status & STATUS_COPY != 0;
    let whole = || {
        let header = slot.get(start.checked_sub(VNET_LEN)?..start)?.try_into().ok()?;
        Some((header, slot.get(start..start + len)?))
    };
    let bytes = if captured == len && !is_copied { whole() } else { None };
    Slot { bytes, is_copied, vlan }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(len: u32, captured: u32, start: u16) -> Vec<u8> {
        let mut slot = vec![0; SLOT_BYTES];
        slot[4..8].copy_from_slice(&len.to_ne_bytes());
        slot[8..12].copy_from_slice(&captured.to_ne_bytes());
        slot[12..14].copy_from_slice(&start.to_ne_bytes());
        slot[24..26].copy_from_slice(&0x6005u16.to_ne_bytes());
        slot[26..28].copy_from_slice(&0x88a8u16.to_ne_bytes());
        slot[92..152].fill(7);
        slot
    }

    #[test]
    fn a_slot_gives_frame_header_and_tag() {
        let bytes = slot(60, 60, 92);
        let parsed = parse_slot(STATUS_USER, &bytes);
        assert_eq!(parsed.bytes.unwrap().1, [7; 60]);
        assert_eq!(parsed.vlan, None);
        let tagged = parse_slot(STATUS_USER | STATUS_VLAN_VALID | STATUS_VLAN_TPID_VALID, &bytes);
        assert_eq!(tagged.vlan, Some([0x88, 0xa8, 0x60, 0x05]));
        assert_eq!(parse_slot(STATUS_VLAN_VALID, &bytes).vlan, Some([0x81, 0x00, 0x60, 0x05]));
    }

    #[test]
    fn what_was_cut_off_or_points_nowhere_is_no_frame() {
        for (len, captured, start) in [(61, 60, 92), (60, 60, 9), (60, 60, 2000), (u32::MAX, u32::MAX, 92)] {
            assert!(parse_slot(STATUS_USER, &slot(len, captured, start)).bytes.is_none(), "{len} {start}");
        }
        assert!(parse_slot(STATUS_USER | STATUS_COPY, &slot(60, 60, 92)).bytes.is_none());
    }
}
