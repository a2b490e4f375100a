//! Pushing and popping whole headers.

use super::body::{Body, Encoder};
use super::row::{Row, nicira, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::{number, u16_named, write_hex};
use crate::text::{KeyValues, Protocols, TextError, bad, put};
use crate::version::Version;
use flow::Action;
use flow::action::NshProperty;

/// Headers that can be put around a packet: name and packet type.
const HEADERS: [(&str, u32); 4] =
    [("ethernet", 0), ("nsh", 0x1_894f), ("mpls", 0x1_8847), ("mpls_mc", 0x1_8848)];
const NSH: u32 = 0x1_894f;

/// Class and types of properties (OFPPPC_NSH, OFPPPT_PROP_NSH_*).
mod property {
    pub const CLASS_NSH: u16 = 4;
    pub const MD_TYPE: u8 = 1;
    pub const TLV: u8 = 2;
}

pub(super) static ENCAP: Row = Row {
    name: "encap",
    syntax: "encap(HEADER(md_type=N,tlv(CLASS,TYPE,VALUE)))",
    summary: "Puts an Ethernet, NSH or MPLS header around the packet.",
    forms: &[nicira(46, read_encap, write_encap).of_length_from(16).since(Version::V13)],
    words: &[word("encap", |p, _, value| {
        p.only_in(Protocols::OF13_UP);
        parse_encap(value)
    })],
    print: |a, p| {
        with!(a, Action::Encap { packet_type, properties, .. } => {
            let header = HEADERS.iter().find(|(_, number)| number == packet_type);
            put!(p.out, "encap({}", header.map_or("UNKNOWN", |(name, _)| name));
            for (i, property) in properties.iter().enumerate() {
                p.word(if i == 0 { "(" } else { "," });
                match property {
                    NshProperty::MdType(kind) => put!(p.out, "md_type={kind}"),
                    NshProperty::Tlv { class, kind, value } => {
                        put!(p.out, "tlv(0x{class:04x},{kind},0x");
                        value.iter().for_each(|byte| put!(p.out, "{byte:02x}"));
                        p.word(")");
                    }
                }
            }
            p.word(if properties.is_empty() { ")" } else { "))" });
        })
    },
    check: |a, c| {
        if let Action::Encap { packet_type, .. } = a {
            c.begins_with(*packet_type);
        }
        Ok(())
    },
    ..Row::PLAIN
};

fn read_encap(b: &mut Body) -> Result<Action, ErrorKind> {
    let (header_size, packet_type) = (b.u16()?, b.u32()?);
    if !HEADERS.iter().any(|(_, number)| *number == packet_type) {
        return Err(NXBAC_BAD_HEADER_TYPE);
    }
    let mut properties = Vec::new();
    while !b.is_empty() {
        let (class, kind, len) = (b.u16()?, b.u8()?, usize::from(b.u8()?));
        let mut value = b.sub(len.checked_sub(4).ok_or(OFPBAC_BAD_LEN)?)?.with_error(NXBAC_BAD_ED_PROP);
        b.skip(len.next_multiple_of(8) - len)?;
        properties.push(match (class, kind) {
            (property::CLASS_NSH, property::MD_TYPE) if len <= 8 => NshProperty::MdType(value.u8()?),
            (property::CLASS_NSH, property::TLV) => {
                let (class, kind, len) = (value.u16()?, value.u8()?, usize::from(value.u8()?));
                if value.len() != len.next_multiple_of(8) {
                    return Err(NXBAC_BAD_ED_PROP);
                }
                NshProperty::Tlv { class, kind, value: value.take(len)?.to_vec() }
            }
            (property::CLASS_NSH, property::MD_TYPE) => return Err(NXBAC_BAD_ED_PROP),
            _ => return Err(NXBAC_UNKNOWN_ED_PROP),
        });
    }
    Ok(Action::Encap { packet_type, header_size, properties })
}

fn write_encap(a: &Action, e: &mut Encoder) -> bool {
    let Action::Encap { packet_type, header_size, properties } = a else { return false };
    e.out.u16(*header_size);
    e.out.u32(*packet_type);
    for property in properties {
        let start = e.out.len();
        e.out.u16(property::CLASS_NSH);
        match property {
            NshProperty::MdType(kind) => {
                e.out.u8(property::MD_TYPE);
                e.out.u8(5);
                e.out.u8(*kind);
            }
            NshProperty::Tlv { class, kind, value } => {
                e.out.u8(property::TLV);
                e.out.u8((8 + value.len().next_multiple_of(8)) as u8);
                e.out.u16(*class);
                e.out.u8(*kind);
                e.out.u8(value.len() as u8);
                e.out.extend_from_slice(value);
            }
        }
        e.out.pad8(start);
    }
    true
}

fn parse_encap(text: &str) -> Result<Action, TextError> {
    let Some((name, properties)) = KeyValues::new(text).next() else {
        return bad!("Missing encap hdr: {text}");
    };
    let Some((_, packet_type)) = HEADERS.iter().find(|(header, _)| *header == name) else {
        // For a header with properties, the stock tool names those.
        return bad!("Encap hdr not supported: {}", if properties.is_empty() { name } else { properties });
    };
    let mut parsed = Vec::new();
    for (key, value) in KeyValues::new(properties) {
        if *packet_type != NSH || !["md_type", "tlv"].contains(&key) {
            return bad!("Invalid property: {key}");
        }
        if value.is_empty() {
            return bad!("Value missing for encap property");
        }
        parsed.push(if key == "md_type" {
            match number(value, u8::MAX.into()) {
                Some(kind @ 1..=2) => NshProperty::MdType(kind as u8),
                Some(_) => return bad!("invalid md_type"),
                None => return bad!("invalid md_type \"{value}\""),
            }
        } else {
            match parse_tlv(value) {
                Some(property) => property,
                None => return bad!("Invalid NSH TLV header: {value}"),
            }
        });
    }
    Ok(Action::Encap { packet_type: *packet_type, header_size: 0, properties: parsed })
}

/// `0xCLASS,TYPE,0xVALUE`, the value of whole bytes, as many as fit into one property.
fn parse_tlv(text: &str) -> Option<NshProperty> {
    const VALUE_MAX: usize = 240;
    let mut parts = text.split(',');
    let (class, kind, value) = (parts.next()?, parts.next()?, parts.next()?);
    let class = u16::from_str_radix(class.strip_prefix("0x")?, 16).ok()?;
    let kind = kind.parse().ok()?;
    let digits = value.strip_prefix("0x")?.as_bytes();
    let byte = |pair: &[u8]| {
        let digit = |b: u8| (b as char).to_digit(16);
        pair.iter().try_fold(0, |n, b| Some(n << 4 | digit(*b)?)).map(|n| n as u8)
    };
    let value: Option<Vec<u8>> = digits.chunks_exact(2).map(byte).collect();
    let value = value.filter(|value| !value.is_empty() && value.len() <= VALUE_MAX)?;
    Some(NshProperty::Tlv { class, kind, value })
}

/// Namespaces of packet types.
const NAMESPACES: u16 = 4;

pub(super) static DECAP: Row = Row {
    name: "decap",
    syntax: "decap(packet_type(ns=NAMESPACE,type=TYPE))",
    summary: "Takes the outermost header off the packet.",
    forms: &[nicira(
        47,
        |b| {
            b.skip(2)?;
            let packet_type = b.u32()?;
            if b.is_empty() { Ok(Action::Decap { packet_type }) } else { Err(NXBAC_UNKNOWN_ED_PROP) }
        },
        |a, e| {
            with!(a, Action::Decap { packet_type } => {
                e.out.zeros(2);
                e.out.u32(*packet_type);
            })
        },
    )
    .of_length_from(16)
    .since(Version::V13)],
    words: &[word("decap", |p, _, value| {
        p.only_in(Protocols::OF13_UP);
        parse_decap(value)
    })],
    print: |a, p| {
        with!(a, Action::Decap { packet_type } => {
            p.word("decap(");
            if *packet_type != Action::USE_NEXT_PROTO {
                put!(p.out, "packet_type(ns={},type=", packet_type >> 16);
                write_hex(p.out, u128::from(packet_type & 0xffff));
                p.word(")");
            }
            p.word(")");
        })
    },
    check: |_, c| {
        c.loses_first_header();
        Ok(())
    },
    ..Row::PLAIN
};

fn parse_decap(text: &str) -> Result<Action, TextError> {
    let mut packet_type = Action::USE_NEXT_PROTO;
    if let Some((key, value)) = KeyValues::new(text).next() {
        if key != "packet_type" {
            return bad!("Invalid decap argument: {key}");
        }
        let mut parts = KeyValues::new(value);
        let Some(("ns", ns)) = parts.next() else { return bad!("Missing packet_type attribute ns") };
        let ns = u16_named(ns, "ns")?;
        if ns >= NAMESPACES {
            return bad!("Unsupported ns value: {ns}");
        }
        let Some(("type", kind)) = parts.next() else { return bad!("Missing packet_type attribute type") };
        packet_type = u32::from(ns) << 16 | u32::from(u16_named(kind, "type")?);
    }
    Ok(Action::Decap { packet_type })
}
