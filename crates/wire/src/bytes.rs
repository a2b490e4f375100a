//! Reading and writing big-endian fields by byte range, and the macro for a checked view.
//!
//! The ranges are constants inside the length that a view's constructor has checked; that is why indexing
//! here does not panic.

use std::ops::Range;

use crate::{Result, WireError};

/// `Err(Truncated)` unless `bytes` holds `need` bytes.
pub(crate) fn need(layer: &'static str, bytes: &[u8], need: usize) -> Result<()> {
    if bytes.len() < need {
        return Err(WireError::Truncated { layer, need, have: bytes.len() });
    }
    Ok(())
}

/// The first `len` bytes to write to, or `Err(Truncated)`.
pub(crate) fn room<'a>(layer: &'static str, buffer: &'a mut [u8], len: usize) -> Result<&'a mut [u8]> {
    need(layer, buffer, len)?;
    Ok(&mut buffer[..len])
}

/// `Err(Invalid)`, for brevity.
pub(crate) fn invalid<T>(layer: &'static str, field: &'static str, value: u64) -> Result<T> {
    Err(WireError::Invalid { layer, field, value })
}

/// A length as the 16-bit field that carries it, or `Err(Invalid)`.
pub(crate) fn len16(layer: &'static str, field: &'static str, len: usize) -> Result<u16> {
    u16::try_from(len).or_else(|_| invalid(layer, field, len as u64))
}

/// The bytes from `start`, up to `end` or as many as there are; empty if there are none.
pub(crate) fn clamped(bytes: &[u8], start: usize, end: usize) -> &[u8] {
    let end = end.min(bytes.len());
    bytes.get(start..end).unwrap_or(&[])
}

/// As [`clamped`], to write to.
pub(crate) fn clamped_mut(bytes: &mut [u8], start: usize, end: usize) -> &mut [u8] {
    let end = end.min(bytes.len());
    bytes.get_mut(start..end).unwrap_or(&mut [])
}

pub(crate) fn array<const N: usize>(bytes: &[u8], range: Range<usize>) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[range]);
    out
}

pub(crate) fn be16(bytes: &[u8], range: Range<usize>) -> u16 {
    u16::from_be_bytes(array(bytes, range))
}

pub(crate) fn be32(bytes: &[u8], range: Range<usize>) -> u32 {
    u32::from_be_bytes(array(bytes, range))
}

pub(crate) fn put(bytes: &mut [u8], range: Range<usize>, value: &[u8]) {
    bytes[range].copy_from_slice(value);
}

pub(crate) fn put16(bytes: &mut [u8], range: Range<usize>, value: u16) {
    put(bytes, range, &value.to_be_bytes());
}

pub(crate) fn put32(bytes: &mut [u8], range: Range<usize>, value: u32) {
    put(bytes, range, &value.to_be_bytes());
}

/// Declares a view: a newtype over a buffer, `new` that runs the given check, and access to the buffer.
macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<B>(B);

        impl<B: AsRef<[u8]>> $name<B> {
            /// Checks lengths once, so that no getter needs to. Errors say what was too short or impossible.
            pub fn new(buffer: B) -> crate::Result<Self> {
                $check(buffer.as_ref())?;
                Ok(Self(buffer))
            }

            /// The buffer.
            pub fn into_inner(self) -> B {
                self.0
            }

            /// All bytes of the buffer: the header and whatever follows it.
            pub fn as_bytes(&self) -> &[u8] {
                self.0.as_ref()
            }
        }
    };
}

/// Getters of whole big-endian 16- and 32-bit fields and of bytes, with their setters:
/// `docs; getter, setter: type at FIELD;`.
macro_rules! fields {
    (@get u8, $bytes:expr, $field:expr) => { $bytes[$field] };
    (@get u16, $bytes:expr, $field:expr) => { crate::bytes::be16($bytes, $field) };
    (@get u32, $bytes:expr, $field:expr) => { crate::bytes::be32($bytes, $field) };
    (@get EthAddr, $bytes:expr, $field:expr) => { crate::EthAddr(crate::bytes::array($bytes, $field)) };
    (@get Ipv4Addr, $bytes:expr, $field:expr) => {
        std::net::Ipv4Addr::from(crate::bytes::array::<4>($bytes, $field))
    };
    (@get Ipv6Addr, $bytes:expr, $field:expr) => {
        std::net::Ipv6Addr::from(crate::bytes::array::<16>($bytes, $field))
    };
    (@get EtherType, $bytes:expr, $field:expr) => { crate::EtherType(crate::bytes::be16($bytes, $field)) };
    (@get IpProtocol, $bytes:expr, $field:expr) => { crate::IpProtocol($bytes[$field]) };
    (@set u8, $bytes:expr, $field:expr, $v:expr) => { $bytes[$field] = $v };
    (@set u16, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put16($bytes, $field, $v) };
    (@set u32, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put32($bytes, $field, $v) };
    (@set EthAddr, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put($bytes, $field, &$v.0) };
    (@set Ipv4Addr, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put($bytes, $field, &$v.octets()) };
    (@set Ipv6Addr, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put($bytes, $field, &$v.octets()) };
    (@set EtherType, $bytes:expr, $field:expr, $v:expr) => { crate::bytes::put16($bytes, $field, $v.0) };
    (@set IpProtocol, $bytes:expr, $field:expr, $v:expr) => { $bytes[$field] = $v.0 };
    ($view:ident { $($(#[$doc:meta])* $get:ident, $set:ident: $ty:tt at $field:expr;)* }) => {
        impl<B: AsRef<[u8]>> $view<B> {
            $($(#[$doc])* pub fn $get(&self) -> $ty {
                fields!(@get $ty, self.0.as_ref(), $field)
            })*
        }
        impl<B: AsRef<[u8]> + AsMut<[u8]>> $view<B> {
            $(#[doc = concat!("Sets what [`Self::", stringify!($get), "`] reads.")]
            pub fn $set(&mut self, value: $ty) {
                fields!(@set $ty, self.0.as_mut(), $field, value)
            })*
        }
    };
}

/// Calls `f` with every proper prefix of `bytes`, the empty one first: truncation at every length.
#[cfg(test)]
pub(crate) fn each_prefix(bytes: &[u8], mut f: impl FnMut(&[u8])) {
    for len in 0..bytes.len() {
        f(&bytes[..len]);
    }
}
