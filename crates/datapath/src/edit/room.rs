//! Inserts bytes into a packet and removes them.

use base::DropReason;
use packet::{Packet, PacketFlags};

pub const MAC_LEN: usize = 6;
pub const LSE_LEN: usize = 4;

pub type Edit = Result<(), DropReason>;
pub const DOES_NOT_FIT: DropReason = DropReason::ActionNotApplicable;

pub fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

/// Makes room for `len` bytes before byte `at` of the frame. Moves the preceding bytes to the front, or the
/// following ones to the back if only that end has room.
pub fn insert(packet: &mut Packet, at: usize, len: usize) -> Edit {
    if packet.data().len() < at {
        return Err(DOES_NOT_FIT);
    }
    if packet.push_front(len).is_some() {
        packet.data_mut().copy_within(len..len + at, 0);
    } else {
        let end = packet.data().len();
        packet.set_len(end + len).ok_or(DropReason::NoHeadroom)?;
        packet.data_mut().copy_within(at..end, at + len);
    }
    packet.csum_start = packet.csum_start.wrapping_add(len as u16);
    Ok(())
}

/// Removes `len` bytes from byte `at` on.
pub fn remove(packet: &mut Packet, at: usize, len: usize) -> Edit {
    if packet.data().len() < at + len {
        return Err(DOES_NOT_FIT);
    }
    packet.data_mut().copy_within(0..at, len);
    packet.pull_front(len).ok_or(DOES_NOT_FIT)?;
    match packet.csum_start.checked_sub(len as u16) {
        Some(start) if usize::from(start) >= at => packet.csum_start = start,
        // No sender has a reason for a checksum that begins in front of what is removed. Passed on, its
        // position could lie outside the frame.
        _ => {
            for flag in [PacketFlags::CSUM_PARTIAL, PacketFlags::GSO_TCP, PacketFlags::GSO_UDP] {
                packet.flags.clear(flag);
            }
            packet.gso_size = 0;
        }
    }
    Ok(())
}
