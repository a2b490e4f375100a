//! A second extraction, slow and plain: a cursor over the bytes, fields set one by one through the table of
//! fields, always everything; a shallower depth is the same with the deeper fields zeroed.

use flow::{Depth, FieldId, Key};

/// The key of a frame at a depth, given what the metadata are. `None` for a truncated one.
pub fn extract(frame: &[u8], depth: Depth, vlan_limit: usize, metadata: &Key) -> Option<Key> {
    let mut key = metadata.clone();
    let mut at = Cursor { rest: frame };
    everything(&mut at, vlan_limit, &mut key)?;
    for &field in FieldId::ALL {
        if field.depth() > depth {
            key.set(field, 0);
        }
    }
    Some(key)
}

#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [u8],
}

impl<'a> Cursor<'a> {
    fn bytes(&mut self, n: usize) -> Option<&'a [u8]> {
        if n > self.rest.len() {
            return None;
        }
        let (taken, rest) = self.rest.split_at(n);
        self.rest = rest;
        Some(taken)
    }

    fn number(&mut self, n: usize) -> Option<u128> {
        Some(self.bytes(n)?.iter().fold(0, |acc, &byte| acc << 8 | u128::from(byte)))
    }

    /// The number at the place, without moving.
    fn peek(&self, at: usize, n: usize) -> Option<u128> {
        let mut copy = *self;
        copy.bytes(at)?;
        copy.number(n)
    }
}

fn everything(at: &mut Cursor, vlan_limit: usize, key: &mut Key) -> Option<()> {
    if at.rest.len() < 14 {
        return None;
    }
    key.set(FieldId::EthDst, at.number(6)?);
    key.set(FieldId::EthSrc, at.number(6)?);
    let tags = [(FieldId::VlanTpid, FieldId::VlanTci), (FieldId::VlanTpid2, FieldId::VlanTci2)];
    for (tpid, tci) in tags.into_iter().take(vlan_limit) {
        if !matches!(at.peek(0, 2)?, 0x8100 | 0x88a8) || at.rest.len() < 6 {
            break;
        }
        key.set(tpid, at.number(2)?);
        key.set(tci, at.number(2)? | 0x1000);
    }
    let mut eth_type = at.number(2)?;
    if eth_type < 0x600 {
        eth_type = 0x5ff;
        if at.rest.len() >= 8 && at.peek(0, 6)? == 0xaaaa_0300_0000 {
            at.bytes(6)?;
            let snap_type = at.number(2)?;
            if snap_type >= 0x600 {
                eth_type = snap_type;
            }
        }
    }
    key.set(FieldId::EthType, eth_type);
    // From here on, what is cut off leaves the rest zero.
    let _ = match eth_type {
        0x0800 => ipv4(at, key),
        0x86dd => ipv6(at, key),
        0x0806 | 0x8035 => arp(at, key),
        0x8847 | 0x8848 => mpls(at, key),
        0x894f => nsh(at, key),
        _ => Some(()),
    };
    Some(())
}

fn ipv4(at: &mut Cursor, key: &mut Key) -> Option<()> {
    let room = at.rest.len();
    let header_len = (at.peek(0, 1)? & 15) as usize * 4;
    let total_len = at.peek(2, 2)? as usize;
    if room < 20 || header_len < 20 || header_len > total_len || total_len > room || room - total_len > 65535
    {
        return None;
    }
    let flags_offset = at.peek(6, 2)?;
    let frag = match (flags_offset & 0x2000 != 0, flags_offset & 0x1fff != 0) {
        (_, true) => 3,
        (true, false) => 1,
        (false, false) => 0,
    };
    key.set(FieldId::NwTos, at.peek(1, 1)?);
    key.set(FieldId::NwTtl, at.peek(8, 1)?);
    key.set(FieldId::NwProto, at.peek(9, 1)?);
    key.set(FieldId::NwSrc, at.peek(12, 4)?);
    key.set(FieldId::NwDst, at.peek(16, 4)?);
    key.set(FieldId::NwFrag, frag);
    at.rest = &at.rest[header_len..total_len];
    if frag != 3 {
        transport(at, key, 4)?;
    }
    Some(())
}

fn ipv6(at: &mut Cursor, key: &mut Key) -> Option<()> {
    let first = at.peek(0, 4)?;
    let payload_len = at.peek(4, 2)? as usize;
    let mut next = at.peek(6, 1)?;
    let hop_limit = at.peek(7, 1)?;
    let (src, dst) = (at.peek(8, 16)?, at.peek(24, 16)?);
    at.bytes(40)?;
    if payload_len > at.rest.len() || at.rest.len() - payload_len > 65535 {
        return None;
    }
    at.rest = &at.rest[..payload_len];
    key.set(FieldId::Ipv6Src, src);
    key.set(FieldId::Ipv6Dst, dst);
    let mut frag = 0;
    let mut chain = vec![next];
    while frag != 3 && [0, 43, 44, 51, 60].contains(&next) {
        let len = at.peek(1, 1)? as usize;
        let offset = at.peek(2, 2)?;
        at.peek(0, 8)?;
        let behind = at.peek(0, 1)?;
        match next {
            44 => {
                at.bytes(8)?;
                if offset != 0 {
                    frag = if offset >> 3 != 0 { 3 } else { 1 };
                }
                next = if frag == 3 { 44 } else { behind };
            }
            51 => {
                at.bytes((len + 2) * 4)?;
                next = behind;
            }
            _ => {
                at.bytes((len + 1) * 8)?;
                next = behind;
            }
        }
        if frag != 3 {
            chain.push(next);
        }
    }
    key.set(FieldId::Ipv6ExtHdr, extension_bits(&chain));
    key.set(FieldId::Ipv6Label, first & 0xf_ffff);
    key.set(FieldId::NwTos, first >> 20 & 0xff);
    key.set(FieldId::NwTtl, hop_limit);
    key.set(FieldId::NwProto, next);
    key.set(FieldId::NwFrag, frag);
    if frag != 3 {
        transport(at, key, 6)?;
    }
    Some(())
}

/// OpenFlow 1.3.5 section 7.2.3.8: one bit per kind, "unexpected repeats" and "unexpected sequencing".
fn extension_bits(chain: &[u128]) -> u128 {
    const BITS: [(u128, u128); 7] = [(59, 0), (50, 1), (51, 2), (60, 3), (44, 4), (43, 5), (0, 6)];
    let chain: Vec<u128> = chain.iter().copied().filter(|n| BITS.iter().any(|(kind, _)| kind == n)).collect();
    let mut bits = 0;
    for (kind, bit) in BITS {
        let times = chain.iter().filter(|&&n| n == kind).count();
        // Hop-by-hop options count as the first header alone.
        let counts = if kind == 0 { chain.first() == Some(&0) } else { times > 0 };
        bits |= u128::from(counts) << bit;
        bits |= u128::from(times > if kind == 60 { 2 } else { 1 }) << 7;
    }
    // In order: some way of taking each destination header as the early or the late one gives an ascending
    // sequence, with one early one at the most and hop-by-hop first.
    let destinations: Vec<usize> = (0..chain.len()).filter(|&i| chain[i] == 60).collect();
    let in_order = (0..=destinations.len()).any(|early| {
        let rank = |i: usize| match chain[i] {
            0 => 0,
            60 if early > 0 && destinations[early - 1] == i => 1,
            60 => 6,
            43 => 2,
            44 => 3,
            51 => 4,
            50 => 5,
            _ => 7,
        };
        (1..chain.len()).all(|i| rank(i - 1) <= rank(i)) && (1..chain.len()).all(|i| chain[i] != 0)
    });
    bits | u128::from(!in_order) << 8
}

fn transport(at: &mut Cursor, key: &mut Key, version: u8) -> Option<()> {
    let (src, dst) = (FieldId::TpSrc, FieldId::TpDst);
    match key.get(FieldId::NwProto) {
        6 => {
            at.peek(0, 20)?;
            let header_len = (at.peek(12, 1)? >> 4) as usize * 4;
            if header_len < 20 || header_len > at.rest.len() {
                return None;
            }
            key.set(FieldId::TcpFlags, at.peek(12, 2)? & 0xfff);
            key.set(src, at.peek(0, 2)?);
            key.set(dst, at.peek(2, 2)?);
        }
        17 | 132 => {
            at.peek(0, if key.get(FieldId::NwProto) == 17 { 8 } else { 12 })?;
            key.set(src, at.peek(0, 2)?);
            key.set(dst, at.peek(2, 2)?);
        }
        proto @ (1 | 2 | 58) => {
            at.peek(0, 8)?;
            key.set(src, at.peek(0, 1)?);
            key.set(dst, at.peek(1, 1)?);
            if proto == 2 && version == 4 {
                key.set(FieldId::IgmpGroup, at.peek(4, 4)?);
            }
            if proto == 58 && version == 6 && [0x8700, 0x8800].contains(&at.peek(0, 2)?) {
                key.set(FieldId::NdReserved, at.peek(4, 4)?);
                at.bytes(8)?;
                neighbour(at, key)?;
            }
        }
        _ => {}
    }
    Some(())
}

fn neighbour(at: &mut Cursor, key: &mut Key) -> Option<()> {
    key.set(FieldId::NdTarget, at.number(16)?);
    while at.rest.len() >= 8 {
        let (kind, len) = (at.peek(0, 1)?, at.peek(1, 1)? as usize * 8);
        let mac = at.peek(2, 6)?;
        if len == 0 {
            break;
        }
        at.bytes(len)?;
        let field = match (kind, len) {
            (1, 8) => FieldId::ArpSha,
            (2, 8) => FieldId::ArpTha,
            _ => continue,
        };
        if key.get(field) != 0 {
            for gone in [FieldId::ArpSha, FieldId::ArpTha, FieldId::NdTarget] {
                key.set(gone, 0);
            }
            break;
        }
        key.set(field, mac);
        if key.get(FieldId::NdOptionsType) == 0 {
            key.set(FieldId::NdOptionsType, kind);
        }
    }
    Some(())
}

fn arp(at: &mut Cursor, key: &mut Key) -> Option<()> {
    if at.rest.len() < 28 || at.number(6)? != 0x0001_0800_0604 {
        return None;
    }
    let opcode = at.number(2)?;
    key.set(FieldId::NwProto, if opcode > 255 { 0 } else { opcode });
    key.set(FieldId::ArpSha, at.number(6)?);
    key.set(FieldId::NwSrc, at.number(4)?);
    key.set(FieldId::ArpTha, at.number(6)?);
    key.set(FieldId::NwDst, at.number(4)?);
    Some(())
}

fn mpls(at: &mut Cursor, key: &mut Key) -> Option<()> {
    for field in [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2] {
        let entry = at.number(4)?;
        key.set(field, entry);
        if entry >> 8 & 1 == 1 {
            break;
        }
    }
    Some(())
}

fn nsh(at: &mut Cursor, key: &mut Key) -> Option<()> {
    at.peek(0, 8)?;
    let base = at.peek(0, 2)?;
    let len = (base & 0x3f) as usize * 4;
    let mdtype = at.peek(2, 1)?;
    let wrong = match mdtype {
        1 => len != 24,
        2 => len < 8,
        _ => false,
    };
    if base >> 14 != 0 || len > at.rest.len() || wrong {
        return None;
    }
    key.set(FieldId::NshFlags, base >> 12 & 3);
    key.set(FieldId::NshTtl, base >> 6 & 0x3f);
    key.set(FieldId::NshMdtype, mdtype);
    key.set(FieldId::NshNp, at.peek(3, 1)?);
    key.set(FieldId::NshSpi, at.peek(4, 3)?);
    key.set(FieldId::NshSi, at.peek(7, 1)?);
    if mdtype == 1 {
        for (i, field) in
            [FieldId::NshC1, FieldId::NshC2, FieldId::NshC3, FieldId::NshC4].into_iter().enumerate()
        {
            key.set(field, at.peek(8 + i * 4, 4)?);
        }
    }
    Some(())
}
