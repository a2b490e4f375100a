//! One of several links or ports, chosen by a hash.

use super::body::{Body, Encoder, output_port};
use super::parser::{Parser, Printer};
use super::row::{Place, Row, nicira, with, word};
use super::subfield::{checked, from_ofs_nbits, ofs_nbits, short_field};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::number;
use crate::text::{TextError, bad, parse_subfield, put};
use base::OfPort;
use flow::Action;
use flow::action::{Bundle, HashFields, LinkChoice, MemberChoice, Multipath, SubField};

const HASH_FIELDS: [(&str, HashFields); 7] = [
    ("eth_src", HashFields::EthSrc),
    ("symmetric_l4", HashFields::SymmetricL4),
    ("symmetric_l3l4", HashFields::SymmetricL3L4),
    ("symmetric_l3l4+udp", HashFields::SymmetricL3L4Udp),
    ("nw_src", HashFields::NwSrc),
    ("nw_dst", HashFields::NwDst),
    ("symmetric_l3", HashFields::SymmetricL3),
];
const LINK_CHOICES: [(&str, LinkChoice); 4] = [
    ("modulo_n", LinkChoice::ModuloN),
    ("hash_threshold", LinkChoice::HashThreshold),
    ("hrw", LinkChoice::Hrw),
    ("iter_hash", LinkChoice::IterHash),
];
const MEMBER_CHOICES: [(&str, MemberChoice); 2] =
    [("active_backup", MemberChoice::ActiveBackup), ("hrw", MemberChoice::Hrw)];
/// The kind of the members: ports, by the NXM header of the input port.
const NXM_OF_IN_PORT: u32 = 2;
/// Maximum number of members of a bundle.
const MEMBERS_MAX: usize = 2048;

/// The entry with a number on the wire.
fn numbered<T: Copy, const N: usize>(
    table: &[(&str, T); N],
    to: fn(T) -> u16,
    n: u16,
) -> Result<T, ErrorKind> {
    table.iter().map(|entry| entry.1).find(|&value| to(value) == n).ok_or(OFPBAC_BAD_ARGUMENT)
}

fn named<T: Copy, const N: usize>(
    table: &[(&str, T); N],
    name: &str,
    what: &str,
    text: &str,
) -> Result<T, TextError> {
    match table.iter().find(|entry| entry.0.eq_ignore_ascii_case(name)) {
        Some(entry) => Ok(entry.1),
        None => bad!("{text}: unknown {what} `{name}'"),
    }
}

fn name_of<T: PartialEq + Copy, const N: usize>(table: &[(&'static str, T); N], value: T) -> &'static str {
    table.iter().find(|entry| entry.1 == value).map_or("", |entry| entry.0)
}

fn hash_fields(n: u16) -> Result<HashFields, ErrorKind> {
    numbered(&HASH_FIELDS, |fields| fields as u16, n)
}

pub(super) static MULTIPATH: Row = Row {
    name: "multipath",
    syntax: "multipath(FIELDS,BASIS,ALGORITHM,LINKS,ARG,FIELD[A..B])",
    summary: "Chooses one of LINKS links by a hash, and writes its number to a field.",
    place: Place::Lists,
    forms: &[nicira(
        10,
        |b| {
            let (fields, basis) = (b.u16()?, b.u16()?);
            b.skip(2)?;
            let algorithm = b.u16()?;
            let (max_link, arg) = (b.u16()?, b.u32()?);
            b.skip(2)?;
            let (offset, count) = from_ofs_nbits(b.u16()?);
            let field = short_field(b.u32()?)?;
            let fields = hash_fields(fields)?;
            let algorithm = numbered(&LINK_CHOICES, |choice| choice as u16, algorithm)?;
            if count < 16 && max_link >= 1 << count {
                return Err(OFPBAC_BAD_ARGUMENT);
            }
            let target = checked(field, offset, count, true)?;
            Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, target })))
        },
        |a, e| {
            with!(a, Action::Multipath(m) => {
                e.out.u16(m.fields as u16);
                e.out.u16(m.basis);
                e.out.zeros(2);
                e.out.u16(m.algorithm as u16);
                e.out.u16(m.max_link);
                e.out.u32(m.arg);
                e.out.zeros(2);
                e.out.u16(ofs_nbits(m.target));
                e.field(m.target.field);
            })
        },
    )
    .of_length(32)],
    words: &[word("multipath", |_, _, value| parse_multipath(value))],
    print: |a, p| {
        with!(a, Action::Multipath(m) => {
            let (fields, algorithm) = (name_of(&HASH_FIELDS, m.fields), name_of(&LINK_CHOICES, m.algorithm));
            let links = u32::from(m.max_link) + 1;
            put!(p.out, "multipath({fields},{},{algorithm},{links},{},", m.basis, m.arg);
            p.subfield(m.target);
            p.word(")");
        })
    },
    check: |a, c| match a {
        Action::Multipath(m) => c.writes(m.target.field),
        _ => Ok(()),
    },
    ..Row::PLAIN
};

fn parse_multipath(text: &str) -> Result<Action, TextError> {
    let parts: Vec<&str> = text.split([',', ' ']).filter(|part| !part.is_empty()).collect();
    let [fields, basis, algorithm, links, arg, target, ..] = parts[..] else {
        return bad!("{text}: not enough arguments to multipath action");
    };
    let fields = named(&HASH_FIELDS, fields, "fields", text)?;
    let basis = basis_of(basis, text)?;
    let algorithm = named(&LINK_CHOICES, algorithm, "algorithm", text)?;
    let links = match number(links, u128::MAX) {
        Some(links @ 1..=65_536) => links as u32,
        _ => return bad!("{text}: n_links {links} is not in valid range 1 to 65536"),
    };
    let Some(arg) = number(arg, u32::MAX.into()) else { return bad!("{text}: invalid argument {arg}") };
    let target = short_target(target, text)?;
    if target.count < 16 && links > 1 << target.count {
        return bad!(
            "{text}: {}-bit destination field has {} possible values, less than specified n_links {links}",
            target.count,
            1 << target.count
        );
    }
    let (max_link, arg) = ((links - 1) as u16, arg as u32);
    Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link, arg, target })))
}

/// Bits of a field with a four-byte header: these actions have no room for an experimenter's, and `dl_vlan`
/// has none. Open vSwitch says the same of both.
pub(super) fn short_target(name: &str, text: &str) -> Result<SubField, TextError> {
    let target = parse_subfield(name)?;
    if target.field.wire(0).is_none_or(|wire| wire.class == 0xffff) {
        return bad!("{text}: experimenter OXM field '{name}' not supported");
    }
    Ok(target)
}

fn basis_of(basis: &str, text: &str) -> Result<u16, TextError> {
    match number(basis, u16::MAX.into()) {
        Some(basis) => Ok(basis as u16),
        None => bad!("{text}: invalid basis {basis}"),
    }
}

pub(super) static BUNDLE: Row = Row {
    name: "bundle",
    syntax: "bundle(FIELDS,BASIS,ALGORITHM,ofport,members:PORT,...), or \
             bundle_load(FIELDS,BASIS,ALGORITHM,ofport,FIELD[A..B],members:PORT,...)",
    summary: "Chooses one of the ports that are up, and outputs to it or writes its number to a field.",
    place: Place::Lists,
    forms: &[
        nicira(
            12,
            |b| read_bundle(b, false),
            |a, e| with!(a, Action::Bundle(bundle) if bundle.target.is_none() => write_bundle(bundle, e)),
        )
        .of_length_from(32),
        nicira(
            13,
            |b| read_bundle(b, true),
            |a, e| with!(a, Action::Bundle(bundle) => write_bundle(bundle, e)),
        )
        .of_length_from(32),
    ],
    words: &[
        word("bundle", |p, _, value| parse_bundle(p, value, false)),
        word("bundle_load", |p, _, value| parse_bundle(p, value, true)),
    ],
    print: |a, p| with!(a, Action::Bundle(bundle) => print_bundle(bundle, p)),
    check: |a, c| {
        let Action::Bundle(bundle) = a else { return Ok(()) };
        if let Some(target) = bundle.target {
            c.writes(target.field)?;
        }
        bundle.members.iter().try_for_each(|&port| check_member(port))
    },
    ..Row::PLAIN
};

/// A member may be NONE. It cannot be a controller, because there is no length to send.
fn check_member(port: OfPort) -> Result<(), ErrorKind> {
    match port {
        OfPort::NONE => Ok(()),
        OfPort::CONTROLLER => Err(OFPBAC_BAD_OUT_PORT),
        port => output_port(port).map(drop),
    }
}

fn read_bundle(b: &mut Body, load: bool) -> Result<Action, ErrorKind> {
    let algorithm = numbered(&MEMBER_CHOICES, |choice| choice as u16, b.u16()?);
    let (fields, basis) = (hash_fields(b.u16()?), b.u16()?);
    let (kind, n_members, bits) = (b.u32()?, usize::from(b.u16()?), b.u16()?);
    // Of several faults, the same is reported as in Open vSwitch.
    let field = if load { Some(short_field(b.u32()?)?) } else { None };
    let (algorithm, fields) = (algorithm?, fields?);
    if n_members > MEMBERS_MAX || kind != NXM_OF_IN_PORT {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    let target = if let Some(field) = field {
        let (offset, count) = from_ofs_nbits(bits);
        if count < 16 {
            return Err(OFPBAC_BAD_ARGUMENT);
        }
        Some(checked(field, offset, count, true)?)
    } else if bits != 0 || b.u32()? != 0 {
        return Err(OFPBAC_BAD_ARGUMENT);
    } else {
        None
    };
    b.zeros(4, OFPBAC_BAD_ARGUMENT)?;
    let members: Result<Vec<OfPort>, ErrorKind> = (0..n_members)
        .map(|_| {
            let port = OfPort(b.u16()?);
            check_member(port)?;
            Ok(port)
        })
        .collect();
    let members = members?;
    b.skip_rest()?;
    Ok(Action::Bundle(Box::new(Bundle { fields, basis, algorithm, target, members })))
}

fn write_bundle(bundle: &Bundle, e: &mut Encoder) {
    e.out.u16(bundle.algorithm as u16);
    e.out.u16(bundle.fields as u16);
    e.out.u16(bundle.basis);
    e.out.u32(NXM_OF_IN_PORT);
    e.out.u16(bundle.members.len() as u16);
    match bundle.target {
        Some(target) => {
            e.out.u16(ofs_nbits(target));
            e.field(target.field);
        }
        None => e.out.zeros(6),
    }
    e.out.zeros(4);
    bundle.members.iter().for_each(|port| e.out.u16(port.0));
}

fn parse_bundle(p: &Parser, text: &str, load: bool) -> Result<Action, TextError> {
    let separators = [',', ' '];
    let mut rest = text;
    let mut next = |separators: &[char]| {
        rest = rest.trim_start_matches(separators);
        let end = rest.find(separators).unwrap_or(rest.len());
        let part = &rest[..end];
        rest = &rest[end..];
        part
    };
    let (fields, basis, algorithm) = (next(&separators), next(&separators), next(&separators));
    let kind = next(&separators);
    let target = if load { next(&separators) } else { "" };
    let delimiter = next(&[':', ' ', ',']);
    let members = rest.trim_start_matches(':');
    if delimiter.is_empty() {
        return bad!("{text}: not enough arguments to bundle action");
    }
    if !["members", "slaves"].iter().any(|word| delimiter.eq_ignore_ascii_case(word)) {
        return bad!("{text}: missing member delimiter, expected `members', got `{delimiter}'");
    }
    let members = members.split([',', ' ', '[', ']']).filter(|member| !member.is_empty()).take(MEMBERS_MAX);
    let members: Result<Vec<OfPort>, TextError> = members
        .map(|member| {
            p.ports.parse(member).ok_or_else(|| TextError::new(format!("{member}: bad port number")))
        })
        .collect();
    let members = members?;
    let basis = basis_of(basis, text)?;
    let fields = named(&HASH_FIELDS, fields, "fields", text)?;
    let algorithm = named(&MEMBER_CHOICES, algorithm, "algorithm", text)?;
    if !kind.eq_ignore_ascii_case("ofport") {
        return bad!("{text}: unknown member_type `{kind}'");
    }
    let target = if load { Some(short_target(target, text)?) } else { None };
    Ok(Action::Bundle(Box::new(Bundle { fields, basis, algorithm, target, members })))
}

fn print_bundle(bundle: &Bundle, p: &mut Printer) {
    let name = if bundle.target.is_some() { "bundle_load" } else { "bundle" };
    let fields = name_of(&HASH_FIELDS, bundle.fields);
    let algorithm = name_of(&MEMBER_CHOICES, bundle.algorithm);
    put!(p.out, "{name}({fields},{},{algorithm},ofport,", bundle.basis);
    if let Some(target) = bundle.target {
        p.subfield(target);
        p.word(",");
    }
    p.word("members:");
    for (i, port) in bundle.members.iter().enumerate() {
        if i > 0 {
            p.word(",");
        }
        p.port(*port);
    }
    p.word(")");
}
