//! Connection tracking: `ct`, the address translation in it, and `ct_clear`.
//!
//! On the wire, what `ct` does to the connection is an action list in its body: NXAST_NAT, and set-fields of
//! its mark and label. In text, NAT is a separate argument and the others are in `exec`.

use super::body::{Body, Encoder};
use super::checker::{is_of_connection, target};
use super::row::{Place, Row, nicira, with, word};
use super::subfield::{checked, from_ofs_nbits, ofs_nbits, short_field};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::message::TABLE_ALL;
use crate::text::value::{number, write_ipv4};
use crate::text::{KeyValues, TextError, bad, parse_subfield, put};
use flow::action::{Ct, CtZone, Nat, NatSide};
use flow::{Action, FieldId};
use std::net::{Ipv4Addr, Ipv6Addr};

const FTP: u16 = 21;
const TFTP: u16 = 69;

const COMMIT: u16 = 1;
const FORCE: u16 = 2;

pub(super) static CT: Row = Row {
    name: "ct",
    syntax: "ct(commit,force,table=TABLE,zone=ZONE,nat(...),exec(ACTION,...),alg=ftp|tftp)",
    summary: "Tracks the packet's connection, and goes on with a copy in the table, where rules see the state; \
              `commit` puts a new connection down.",
    forms: &[nicira(35, read_ct, |a, e| with!(a, Action::Ct(ct) => write_ct(ct, e))).of_length_from(24)],
    words: &[word("ct", |p, _, value| parse_ct(p, value))],
    print: |a, p| with!(a, Action::Ct(ct) => print_ct(ct, p)),
    check: |a, c| match a {
        Action::Ct(ct) => check_ct(ct, c),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

pub(super) static NAT: Row = Row {
    name: "nat",
    syntax: "nat(src|dst=ADDRESS-ADDRESS:PORT-PORT,persistent,hash|random)",
    summary: "In `ct` alone: translates the addresses of the connection, as said for a new one, and as it was for \
              others.",
    place: Place::Lists,
    forms: &[nicira(36, read_nat, |a, e| with!(a, Action::Nat(nat) => write_nat(nat, e))).of_length_from(16)],
    words: &[word("nat", |p, _, value| {
        let nat = parse_nat(value)?;
        if p.is_in_ct() { Ok(nat) } else { bad!("Cannot have NAT action outside of \"ct\" action") }
    })],
    print: |a, p| with!(a, Action::Nat(nat) => print_nat(nat, p)),
    check: |_, c| if c.in_ct { Ok(()) } else { Err(OFPBAC_BAD_SET_ARGUMENT) },
    ..Row::PLAIN
};

pub(super) static CT_CLEAR: Row = Row {
    name: "ct_clear",
    syntax: "ct_clear",
    summary: "Forgets the connection that the packet was found to belong to.",
    forms: &[nicira(43, |_| Ok(Action::CtClear), |a, _| *a == Action::CtClear)],
    words: &[word("ct_clear", |_, _, _| Ok(Action::CtClear))],
    ..Row::PLAIN
};

/// What a list within `ct` may not contain.
fn misplaced(actions: &[Action]) -> Option<&Action> {
    let is_of_ct = |a: &&Action| matches!(a, Action::Nat(_)) || target(a).is_some_and(is_of_connection);
    actions.iter().find(|action| !is_of_ct(action))
}

fn read_ct(b: &mut Body) -> Result<Action, ErrorKind> {
    let (flags, zone_source, zone, table) = (b.u16()?, b.u32()?, b.u16()?, b.u8()?);
    b.skip(3)?;
    let alg = b.u16()?;
    let (commit, force) = (flags & COMMIT != 0, flags & FORCE != 0);
    if force && !commit {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let zone = if zone_source == 0 {
        CtZone::Is(zone)
    } else {
        let (offset, count) = from_ofs_nbits(zone);
        let sub = checked(short_field(zone_source)?, offset, count, false)?;
        if count != 16 {
            return Err(OFPBAC_BAD_SET_LEN);
        }
        CtZone::In(sub)
    };
    let actions = b.actions()?;
    if misplaced(&actions).is_some() {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    // Without a new connection there is nothing to set but the translation that it has.
    let is_plain = |action: &Action| matches!(action, Action::Nat(nat) if *nat == Nat::default());
    if !commit && !actions.iter().all(is_plain) {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let table = (table != TABLE_ALL).then_some(table);
    Ok(Action::Ct(Box::new(Ct { commit, force, zone, table, alg, actions })))
}

fn write_ct(ct: &Ct, e: &mut Encoder) {
    e.out.u16(if ct.commit { COMMIT } else { 0 } | if ct.force { FORCE } else { 0 });
    match ct.zone {
        CtZone::Is(zone) => {
            e.out.u32(0);
            e.out.u16(zone);
        }
        CtZone::In(sub) => {
            e.field(sub.field);
            e.out.u16(ofs_nbits(sub));
        }
    }
    e.out.u8(ct.table.unwrap_or(TABLE_ALL));
    e.out.zeros(3);
    e.out.u16(ct.alg);
    e.actions(&ct.actions);
}

fn check_ct(ct: &Ct, c: &mut super::checker::Checker) -> Result<(), ErrorKind> {
    const INVALID: u64 = 0x10;
    let is_invalid = c.matched(FieldId::CtState) & INVALID != 0;
    let protocol = c.nw_proto();
    let fits = match ct.alg {
        FTP => protocol == 6,
        TFTP => protocol == 17,
        _ => true,
    };
    let is_of_other_family = |action: &Action| matches!(action, Action::Nat(nat) if nat.addresses.is_some() && nat.is_ipv6 != c.is_ipv6());
    let fits_addresses = !ct.actions.iter().any(is_of_other_family);
    if !c.is_ip() || is_invalid && ct.commit || !fits || !fits_addresses {
        return Err(OFPBAC_MATCH_INCONSISTENT);
    }
    match ct.zone {
        CtZone::In(sub) => c.has(sub.field),
        CtZone::Is(_) => c.nested_in_ct(&ct.actions),
    }
}

fn parse_ct(p: &mut super::parser::Parser, value: &str) -> Result<Action, TextError> {
    let (mut commit, mut force, mut zone, mut table, mut alg) = (false, false, CtZone::Is(0), None, 0);
    let mut actions = Vec::new();
    for (key, value) in KeyValues::new(value) {
        match key {
            "commit" => commit = true,
            "force" => force = true,
            "table" => match p.ports.parse_table(value) {
                None => return bad!("unknown table {value}"),
                Some(255) => return bad!("invalid table 0xff"),
                Some(number) => table = Some(number),
            },
            "zone" => {
                zone = match number(value, 0xffff) {
                    Some(number) => CtZone::Is(number as u16),
                    None => CtZone::In(parse_subfield(value)?),
                }
            }
            "alg" => {
                alg = match value {
                    "ftp" => FTP,
                    "tftp" => TFTP,
                    other => return bad!("invalid conntrack helper \"{other}\""),
                }
            }
            "nat" => actions.push(parse_nat(value)?),
            "exec" => {
                let list = p.nested_in_ct(value)?;
                if let Some(action) = misplaced(&list) {
                    return match target(action) {
                        Some(field) => {
                            bad!("ct action doesn't support nested modification of {}", field.name())
                        }
                        None => bad!("ct action doesn't support nested action {}", (p.name_of)(action)),
                    };
                }
                actions.extend(list);
            }
            other => return bad!("invalid argument to \"ct\" action: `{other}'"),
        }
    }
    if force && !commit {
        return bad!("\"force\" flag requires \"commit\" flag.");
    }
    Ok(Action::Ct(Box::new(Ct { commit, force, zone, table, alg, actions })))
}

fn print_ct(ct: &Ct, p: &mut super::parser::Printer) {
    p.word("ct(");
    if ct.commit {
        p.word("commit,");
    }
    if ct.force {
        p.word("force,");
    }
    if let Some(table) = ct.table {
        p.word("table=");
        p.table(table);
        p.word(",");
    }
    match ct.zone {
        CtZone::Is(0) => {}
        CtZone::Is(zone) => put!(p.out, "zone={zone},"),
        CtZone::In(sub) => {
            p.word("zone=");
            p.subfield(sub);
            p.word(",");
        }
    }
    let mut rest = &ct.actions[..];
    if let [Action::Nat(nat), behind @ ..] = rest {
        print_nat(nat, p);
        p.word(",");
        rest = behind;
    }
    if !rest.is_empty() {
        p.nested("exec", rest);
        p.word(",");
    }
    match ct.alg {
        0 => {}
        FTP => p.word("alg=ftp,"),
        TFTP => p.word("alg=tftp,"),
        other => put!(p.out, "alg={other},"),
    }
    if p.out.ends_with(',') {
        p.out.pop();
    }
    p.word(")");
}

const SRC: u16 = 1;
const DST: u16 = 2;
const PERSISTENT: u16 = 4;
const HASH: u16 = 8;
const RANDOM: u16 = 16;

const IPV4: u16 = 1;
const IPV4_HIGH: u16 = 2;
const IPV6: u16 = 4;
const IPV6_HIGH: u16 = 8;
const PORT: u16 = 16;
const PORT_HIGH: u16 = 32;

fn read_nat(b: &mut Body) -> Result<Action, ErrorKind> {
    b.skip(2)?;
    let (flags, present) = (b.u16()?, b.u16()?);
    let has = |bits: u16| present & bits != 0;
    let side = match flags & (SRC | DST) {
        0 => None,
        SRC => Some(NatSide::Src),
        DST => Some(NatSide::Dst),
        _ => return Err(OFPBAC_BAD_ARGUMENT),
    };
    if flags > 0x1f || flags & (HASH | RANDOM) == HASH | RANDOM {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let mut nat = Nat {
        side,
        is_persistent: flags & PERSISTENT != 0,
        is_hash: flags & HASH != 0,
        is_random: flags & RANDOM != 0,
        ..Nat::default()
    };
    if has(IPV4 | IPV4_HIGH) && has(IPV6 | IPV6_HIGH)
        || has(IPV4_HIGH) && !has(IPV4)
        || has(IPV6_HIGH) && !has(IPV6)
        || has(PORT_HIGH) && !has(PORT)
        || has(PORT) && !has(IPV4 | IPV6)
    {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let short = |_| OFPBAC_BAD_ARGUMENT;
    if has(IPV4 | IPV6) {
        nat.is_ipv6 = has(IPV6);
        let mut address = || -> Result<u128, ErrorKind> {
            if has(IPV4) {
                b.u32().map(u128::from).map_err(short)
            } else {
                let (high, low) = (b.u64().map_err(short)?, b.u64().map_err(short)?);
                Ok(u128::from(high) << 64 | u128::from(low))
            }
        };
        let low = address()?;
        let high = if has(IPV4_HIGH | IPV6_HIGH) { address()? } else { low };
        if low == 0 || high < low {
            return Err(OFPBAC_BAD_ARGUMENT);
        }
        nat.addresses = Some((low, high));
    }
    if has(PORT) {
        let low = b.u16().map_err(short)?;
        let high = if has(PORT_HIGH) { b.u16().map_err(short)? } else { low };
        if low == 0 || high < low {
            return Err(OFPBAC_BAD_ARGUMENT);
        }
        nat.ports = Some((low, high));
    }
    Ok(Action::Nat(nat))
}

fn write_nat(nat: &Nat, e: &mut Encoder) {
    let side = match nat.side {
        None => 0,
        Some(NatSide::Src) => SRC,
        Some(NatSide::Dst) => DST,
    };
    let flag = |is_set, bit| if is_set { bit } else { 0 };
    let flags = flag(nat.is_persistent, PERSISTENT) | flag(nat.is_hash, HASH) | flag(nat.is_random, RANDOM);
    // All-zero addresses mean the packet's own, like no addresses.
    let addresses = nat.addresses.filter(|(low, _)| *low != 0);
    let has_high = addresses.is_some_and(|(low, high)| low != high);
    let ports = nat.ports.filter(|_| addresses.is_some());
    let present = match (addresses.is_some(), nat.is_ipv6) {
        (false, _) => 0,
        (true, false) => IPV4 | flag(has_high, IPV4_HIGH),
        (true, true) => IPV6 | flag(has_high, IPV6_HIGH),
    };
    let has_high_port = ports.is_some_and(|(low, high)| low != high);
    e.out.zeros(2);
    e.out.u16(side | flags);
    e.out.u16(present | flag(ports.is_some(), PORT) | flag(has_high_port, PORT_HIGH));
    if let Some((low, high)) = addresses {
        for address in [Some(low), has_high.then_some(high)].into_iter().flatten() {
            if nat.is_ipv6 {
                e.out.extend_from_slice(&address.to_be_bytes())
            } else {
                e.out.u32(address as u32)
            }
        }
    }
    if let Some((low, high)) = ports {
        e.out.u16(low);
        if has_high_port {
            e.out.u16(high);
        }
    }
}

fn parse_nat(value: &str) -> Result<Action, TextError> {
    let mut nat = Nat::default();
    for (key, value) in KeyValues::new(value) {
        match key {
            "src" | "dst" => {
                let side = if key == "src" { NatSide::Src } else { NatSide::Dst };
                if nat.side.is_some_and(|other| other != side) {
                    return bad!("May only specify one of \"src\" or \"dst\".");
                }
                nat.side = Some(side);
                parse_range(value, &mut nat)?;
            }
            "persistent" => nat.is_persistent = true,
            "hash" => nat.is_hash = true,
            "random" => nat.is_random = true,
            other => return bad!("invalid key \"{other}\" in \"nat\" argument"),
        }
    }
    if nat.side.is_none() && (nat.is_persistent || nat.is_hash || nat.is_random) {
        return bad!("Flags allowed only with \"src\" or \"dst\".");
    }
    if nat.is_hash && nat.is_random {
        return bad!("Both \"hash\" and \"random\" are not allowed.");
    }
    Ok(Action::Nat(nat))
}

/// The longest prefix of a text that is an address, and the rest. IPv6 addresses may be in brackets.
fn address(text: &str) -> Option<(u128, bool, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (inside, rest) = inner.split_once(']')?;
        return Some((inside.parse::<Ipv6Addr>().ok()?.to_bits(), true, rest));
    }
    let is_v4 = |c: char| c.is_ascii_digit() || c == '.';
    let is_v6 = |c: char| c.is_ascii_hexdigit() || c == ':' || c == '.';
    let (start, rest) = text.split_at(text.find(|c| !is_v4(c)).unwrap_or(text.len()));
    if let Ok(v4) = start.parse::<Ipv4Addr>() {
        return Some((v4.to_bits().into(), false, rest));
    }
    let (start, rest) = text.split_at(text.find(|c| !is_v6(c)).unwrap_or(text.len()));
    Some((start.parse::<Ipv6Addr>().ok()?.to_bits(), true, rest))
}

fn port(text: &str) -> Option<(u16, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn parse_range(text: &str, nat: &mut Nat) -> Result<(), TextError> {
    let invalid = || TextError::new(format!("invalid nat range \"{text}\""));
    let mut rest = text;
    if let Some((low, is_ipv6, behind)) = address(text) {
        let mut high = low;
        rest = behind;
        if let Some(second) = rest.strip_prefix('-') {
            let (address, is_same, behind) = address(second).ok_or_else(invalid)?;
            if is_same != is_ipv6 || address < low {
                return Err(invalid());
            }
            (high, rest) = (address, behind);
        }
        // Zero alone stands for none. No range begins with it.
        if low == 0 && high != 0 {
            return Err(invalid());
        }
        (nat.addresses, nat.is_ipv6) = (Some((low, high)), is_ipv6);
        if let Some(ports) = rest.strip_prefix(':') {
            let (low, behind) = port(ports).ok_or_else(invalid)?;
            let mut high = low;
            rest = behind;
            if let Some(second) = rest.strip_prefix('-') {
                (high, rest) = port(second).filter(|(high, _)| *high >= low).ok_or_else(invalid)?;
            }
            if low == 0 && high != 0 {
                return Err(invalid());
            }
            nat.ports = (low != 0).then_some((low, high));
            if nat.ports.is_some() && nat.addresses == Some((0, 0)) {
                return Err(invalid());
            }
        }
    }
    if !rest.is_empty() {
        let position = text.len() - rest.len();
        return bad!("garbage ({rest}) after nat range \"{text}\" (pos: {position})");
    }
    Ok(())
}

fn print_nat(nat: &Nat, p: &mut super::parser::Printer) {
    p.word("nat");
    let Some(side) = nat.side else { return };
    p.word(if side == NatSide::Src { "(src" } else { "(dst" });
    if let Some((low, high)) = nat.addresses {
        p.word("=");
        for (n, address) in [Some(low), (high != low).then_some(high)].into_iter().flatten().enumerate() {
            if n > 0 {
                p.word("-");
            }
            match (nat.is_ipv6, nat.ports) {
                (false, _) => write_ipv4(p.out, address as u32, u32::MAX),
                // Brackets keep the ports apart.
                (true, Some(_)) => put!(p.out, "[{}]", Ipv6Addr::from_bits(address)),
                (true, None) => put!(p.out, "{}", Ipv6Addr::from_bits(address)),
            }
        }
        if let Some((low, high)) = nat.ports {
            put!(p.out, ":{low}");
            if high != low {
                put!(p.out, "-{high}");
            }
        }
        for (is_set, name) in
            [(nat.is_persistent, ",persistent"), (nat.is_hash, ",hash"), (nat.is_random, ",random")]
        {
            if is_set {
                p.word(name);
            }
        }
    }
    p.word(")");
}
