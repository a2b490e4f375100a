//! Finds a kernel function in the kernel's type information. An XDP program calls it by its number there.
//!
//! Source: Documentation/bpf/btf.rst.

use crate::netlink::u32_at;
use std::sync::OnceLock;

const HEADER: usize = 24;
const MAGIC: u16 = 0xeb9f;
const KIND_FUNC: u32 = 12;

/// The number of `bpf_xdp_metadata_rx_vlan_tag` (since Linux 6.8). `None` where the kernel has no such
/// function or does not say.
pub(super) fn vlan_tag_function() -> Option<u32> {
    static FOUND: OnceLock<Option<u32>> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let bytes = std::fs::read("/sys/kernel/btf/vmlinux").ok()?;
        find_function(&bytes, b"bpf_xdp_metadata_rx_vlan_tag")
    })
}

/// Bytes that follow a type's three words, by kind and number of members.
fn trailing_bytes(kind: u32, members: usize) -> Option<usize> {
    Some(match kind {
        1 | 14 | 17 => 4,                // integer, variable, declaration tag
        3 => 12,                         // array
        4 | 5 | 15 | 19 => 12 * members, // structure, union, data section, 64-bit enumeration
        6 | 13 => 8 * members,           // enumeration, function prototype
        2 | 7..=12 | 16 | 18 => 0,       // pointer, forward, typedef, qualifiers, function, float, type tag
        _ => return None,
    })
}

fn find_function(btf: &[u8], name: &[u8]) -> Option<u32> {
    if btf.get(..2)? != MAGIC.to_ne_bytes() {
        return None;
    }
    let header = u32_at(btf, 4)? as usize;
    let part = |at: usize| {
        let start = header.max(HEADER) + u32_at(btf, at)? as usize;
        btf.get(start..start + u32_at(btf, at + 4)? as usize)
    };
    let (mut types, strings) = (part(8)?, part(16)?);
    let mut id = 1;
    while !types.is_empty() {
        let (name_at, info) = (u32_at(types, 0)? as usize, u32_at(types, 4)?);
        let kind = info >> 24 & 31;
        let named = || strings.get(name_at..name_at + name.len() + 1);
        if kind == KIND_FUNC && named().is_some_and(|s| s[..name.len()] == *name && s[name.len()] == 0) {
            return Some(id);
        }
        types = types.get(12 + trailing_bytes(kind, (info & 0xffff) as usize)?..)?;
        id += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, an array, a structure of two members, and a function.
    fn sample() -> Vec<u8> {
        let strings = b"\0other\0wanted\0";
        let mut types: Vec<u32> = vec![0, 3 << 24, 0, 1, 1, 1];
        types.extend([1, 4 << 24 | 2, 8, 0, 0, 0, 0, 0, 0]);
        types.extend([7, 12 << 24, 1]);
        let types_len = types.len() as u32 * 4;
        let mut btf = MAGIC.to_ne_bytes().to_vec();
        btf.extend([1, 0]);
        for word in [24, 0, types_len, types_len, strings.len() as u32] {
            btf.extend(word.to_ne_bytes());
        }
        types.iter().for_each(|word| btf.extend(word.to_ne_bytes()));
        btf.extend(strings);
        btf
    }

    #[test]
    fn a_function_is_found_behind_types_of_every_length() {
        assert_eq!(find_function(&sample(), b"wanted"), Some(3));
        assert_eq!(find_function(&sample(), b"other"), None, "a structure is not a function");
        assert_eq!(find_function(&sample(), b"want"), None);
    }

    #[test]
    fn cut_off_anywhere_it_finds_nothing_and_does_not_panic() {
        let btf = sample();
        (0..btf.len()).for_each(|len| assert_eq!(find_function(&btf[..len], b"wanted"), None));
    }
}
