//! Big-endian numbers at constant offsets in arrays of known length: the compiler knows that no read can be
//! out of bounds, so each is one load and one byte swap.

/// The 16 bits at `AT`.
#[inline(always)]
pub(super) fn be16<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(AT + 2 <= N) };
    u64::from(u16::from_be_bytes([bytes[AT], bytes[AT + 1]]))
}

/// The 32 bits at `AT`.
#[inline(always)]
pub(super) fn be32<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(AT + 4 <= N) };
    u64::from(u32::from_be_bytes(std::array::from_fn(|i| bytes[AT + i])))
}

/// The 48 bits at `AT`.
#[inline(always)]
pub(super) fn be48<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u64 {
    be16::<AT, N>(bytes) << 32 | u64::from(u32::from_be_bytes(std::array::from_fn(|i| bytes[AT + 2 + i])))
}

/// The 64 bits at `AT`.
#[inline(always)]
pub(super) fn be64<const AT: usize, const N: usize>(bytes: &[u8; N]) -> u64 {
    const { assert!(AT + 8 <= N) };
    u64::from_be_bytes(std::array::from_fn(|i| bytes[AT + i]))
}
