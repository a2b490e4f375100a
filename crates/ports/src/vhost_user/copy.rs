//! Copies between private and guest memory, and the header in front of a frame, in registers.
//!
//! The reason: a header that is built on the stack and copied from there is loaded by words that span several
//! stores. Such a load waits until those stores, and with them all earlier ones, are in the cache: for a
//! burst to a guest that is the whole previous frame, and the same holds for reception. It cost a fifth of a
//! worker's time with frames of 1,518 bytes. So a header is two words in registers, and nothing of it touches
//! the stack unless it requests something.
//!
//! Source: virtio 1.2 section 5.1.6 (struct virtio_net_hdr).

use crate::virtio_net::HEADER_LEN;
use std::ptr::NonNull;

/// The header of a frame: 12 bytes, or only the first 10 for old guests.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Header {
    /// Flags, type of segmentation, its sizes, and where a checksum starts.
    low: u64,
    /// The position of the checksum, and the number of buffers.
    high: u32,
}

impl Header {
    pub(super) fn from_bytes(bytes: [u8; HEADER_LEN]) -> Header {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
        Header { low: u64::from_ne_bytes([a, b, c, d, e, f, g, h]), high: u32::from_ne_bytes([i, j, k, l]) }
    }

    /// Its bytes, in the machine's order.
    pub(super) fn bytes(self) -> [u8; HEADER_LEN] {
        let ([a, b, c, d, e, f, g, h], [i, j, k, l]) = (self.low.to_ne_bytes(), self.high.to_ne_bytes());
        [a, b, c, d, e, f, g, h, i, j, k, l]
    }

    /// Whether it requests nothing.
    #[inline(always)]
    pub(super) fn is_plain(self) -> bool {
        self.low == 0
    }

    /// The same with a number of buffers.
    #[inline(always)]
    pub(super) fn with_buffers(self, buffers: u16) -> Header {
        let [i, j, _, _] = self.high.to_ne_bytes();
        let [k, l] = buffers.to_le_bytes();
        Header { high: u32::from_ne_bytes([i, j, k, l]), ..self }
    }
}

/// An unaligned number. Loading it takes one instruction; loading an array of bytes does not.
#[repr(C, packed)]
struct Anywhere<T: Copy>(T);

/// Reads a number once from memory that others may write at any time.
///
/// # Safety
/// That many bytes must be readable.
#[inline(always)]
pub(super) unsafe fn read_once<T: Copy>(at: NonNull<u8>) -> T {
    // SAFETY: as the caller vouches; the type needs no alignment.
    unsafe { at.cast::<Anywhere<T>>().read_volatile() }.0
}

/// Reads the header of a frame that a guest sends, except the number of buffers, which has no meaning in this
/// direction.
///
/// # Safety
/// 10 bytes must be readable.
#[inline(always)]
pub(super) unsafe fn header_from(at: NonNull<u8>) -> Header {
    // SAFETY: as the caller vouches.
    let low = unsafe { read_once::<u64>(at) };
    // SAFETY: as above.
    let rest = unsafe { at.add(8) };
    // SAFETY: as above.
    let [i, j] = unsafe { read_once::<u16>(rest) }.to_ne_bytes();
    Header { low, high: u32::from_ne_bytes([i, j, 0, 0]) }
}

/// Writes the first `len` bytes of a header; `len` is 12 or 10.
///
/// # Safety
/// `len` bytes must be writable.
#[inline(always)]
pub(super) unsafe fn header_to(header: Header, len: usize, at: NonNull<u8>) {
    debug_assert!(len == HEADER_LEN || len == HEADER_LEN - 2);
    let high = header.high.to_ne_bytes();
    // SAFETY: as the caller vouches; arrays of bytes need no alignment.
    unsafe { at.cast::<[u8; 8]>().write(header.low.to_ne_bytes()) };
    // SAFETY: as above.
    let rest = unsafe { at.add(8) };
    if len == HEADER_LEN {
        // SAFETY: as above.
        unsafe { rest.cast::<[u8; 4]>().write(high) };
    } else {
        // SAFETY: as above.
        unsafe { rest.cast::<[u8; 2]>().write([high[0], high[1]]) };
    }
}

/// Whether the first `len` bytes of a header are those in a guest's memory; `len` is 12 or 10.
///
/// # Safety
/// `len` bytes must be readable.
#[inline(always)]
pub(super) unsafe fn is_header_at(header: Header, len: usize, at: NonNull<u8>) -> bool {
    debug_assert!(len == HEADER_LEN || len == HEADER_LEN - 2);
    // SAFETY: as the caller vouches.
    if unsafe { read_once::<u64>(at) } != header.low {
        return false;
    }
    // SAFETY: as above.
    let rest = unsafe { at.add(8) };
    if len == HEADER_LEN {
        // SAFETY: as above.
        unsafe { read_once::<u32>(rest) == header.high }
    } else {
        let [i, j, _, _] = header.high.to_ne_bytes();
        // SAFETY: as above.
        unsafe { read_once::<u16>(rest) == u16::from_ne_bytes([i, j]) }
    }
}

/// Prefetches a line at any address for exclusive use.
#[inline(always)]
pub(super) fn prefetch_to_write(at: *mut u8) {
    // The intrinsic with the hint to write becomes a prefetch to read where the compiler may not assume the
    // instruction, which a processor without it ignores.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch of any address is no access.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies `len` bytes. Those of small frames are copied in two overlapping pieces of constant size.
///
/// # Safety
/// Both must have that many bytes, and must not overlap.
#[inline(always)]
pub(super) unsafe fn bytes(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: as the caller vouches.
        32..=64 => unsafe { two::<32>(from, to, len) },
        // SAFETY: as above.
        65..=128 => unsafe { two::<64>(from, to, len) },
        // SAFETY: as above.
        _ => unsafe { std::ptr::copy_nonoverlapping(from, to, len) },
    }
}

/// Copies the first `N` bytes of `len`, and the last `N`.
///
/// # Safety
/// As for [`bytes`]; `len` is at least `N`, and at most twice that.
#[inline(always)]
unsafe fn two<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    debug_assert!((N..=2 * N).contains(&len));
    // SAFETY: `N <= len` bytes, as the caller vouches; arrays of bytes need no alignment.
    let first = unsafe { from.cast::<[u8; N]>().read() };
    // SAFETY: `len - N` is within `len`.
    let from_last = unsafe { from.add(len - N) };
    // SAFETY: the last `N` of `len` bytes.
    let last = unsafe { from_last.cast::<[u8; N]>().read() };
    // SAFETY: as for reading.
    unsafe { to.cast::<[u8; N]>().write(first) };
    // SAFETY: as for reading.
    let to_last = unsafe { to.add(len - N) };
    // SAFETY: as for reading.
    unsafe { to_last.cast::<[u8; N]>().write(last) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_any_length_is_that_long_and_the_same() {
        let from: Vec<u8> = (0..300u32).map(|n| (n * 7 + 1) as u8).collect();
        for len in 0..=200 {
            let mut to = vec![0xee; 300];
            // SAFETY: both have 300 bytes, and are two.
            unsafe { bytes(from[3..].as_ptr(), to[5..].as_mut_ptr(), len) };
            assert_eq!(to[5..5 + len], from[3..3 + len]);
            assert!(to[..5].iter().chain(&to[5 + len..]).all(|byte| *byte == 0xee), "{len}");
        }
    }

    #[test]
    fn a_header_is_its_bytes_and_the_number_of_buffers_is_read_as_none() {
        let bytes: [u8; HEADER_LEN] = std::array::from_fn(|n| n as u8 + 1);
        assert_eq!(Header::from_bytes(bytes).bytes(), bytes);
        assert!(!Header::from_bytes(bytes).is_plain() && Header::default().with_buffers(3).is_plain());
        let mut memory = [0xeeu8; 16];
        for (len, written) in [(10, [0xee; 3]), (12, [3, 0, 0xee])] {
            let header = Header::from_bytes(bytes).with_buffers(3);
            let at = NonNull::from(&mut memory).cast::<u8>();
            // SAFETY: 16 bytes, of which at most 12 are written.
            unsafe { header_to(header, len, at) };
            // SAFETY: as above.
            let read = unsafe { header_from(at) };
            assert_eq!(read.bytes()[..10], bytes[..10]);
            assert_eq!(read.bytes()[10..], [0, 0]);
            assert_eq!(memory[10..13], written, "{len}");
            // SAFETY: as above.
            let is_there = |header| unsafe { is_header_at(header, len, at) };
            assert!(is_there(header) && !is_there(Header { low: header.low ^ 1, ..header }));
            assert!(!is_there(Header { high: header.high ^ u32::from_ne_bytes([0, 1, 0, 0]), ..header }));
            assert_eq!(is_there(header.with_buffers(4)), len == 10);
        }
    }
}
