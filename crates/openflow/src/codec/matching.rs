//! Matches on the wire: the lists of NXM and OXM entries.
//!
//! An NXM entry is a header of 4 bytes (8 with an experimenter), the value, and with the has-mask bit a mask
//! of the same length. Bits of the value outside the mask must be zero. A field occurs once, after its
//! prerequisites. Sources: OpenFlow 1.3 section 7.2.3; ovs-fields(7).

use super::bytes::{Put, Reader};
use super::fields::for_each_field;
use super::match11;
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use base::OfPort;
use flow::mf::{Maskable, NxmHeader, Prereq, Wire};
use flow::options::{OPTION_BYTES_MAX, OptionMatch, Wide};
use flow::{FieldId, Match, Mf};

/// The flow's cookie as a pseudo-field of NXM requests.
pub(crate) const COOKIE: Wire =
    Wire { name: "NXM_NX_COOKIE", class: 1, experimenter: 0, number: 30, since: 0 };

/// The port on which a packet came in below a logical port. Here no port is layered on another, so it equals
/// the input port, which is its prerequisite: a match on it adds nothing.
const IN_PHY_PORT: (u16, u8) = (0x8000, 1);

/// OFPMT_OXM.
const OXM: u16 = 1;

/// A decoded entry: for a field, or for a tunnel option, which may be longer than any number.
pub(crate) enum AnyEntry {
    Field(Entry),
    Option(Box<OptionMatch>),
}

/// A decoded entry for a field.
pub(crate) struct Entry {
    pub mf: Mf,
    pub value: u128,
    pub mask: u128,
    /// Whether the header has the has-mask bit.
    pub masked: bool,
}

/// Reads a header, and the experimenter that belongs to it.
pub(crate) fn read_header(r: &mut Reader) -> Result<NxmHeader, ErrorKind> {
    let head = NxmHeader(u64::from(r.u32()?) << 32);
    if !head.is_experimenter() {
        return Ok(head);
    }
    if head.payload_length().is_none() {
        return Err(OFPBMC_BAD_LEN);
    }
    Ok(NxmHeader(head.0 | u64::from(r.u32()?)))
}

pub(crate) fn write_header(out: &mut Vec<u8>, header: NxmHeader) {
    out.u32((header.0 >> 32) as u32);
    if header.is_experimenter() {
        out.u32(header.experimenter());
    }
}

/// The numbers on the wire of ports differ from the switch's from OpenFlow 1.1 on.
fn is_port32(mf: Mf) -> bool {
    matches!(mf, Mf::InPortOxm | Mf::ActsetOutput)
}

pub(crate) fn value_to_wire(mf: Mf, value: u128) -> u128 {
    if is_port32(mf) { OfPort(value as u16).to_u32().into() } else { value }
}

/// The field of a header, which says the length of the field's value, and mask: of another length there is
/// none. A tunnel option is as long as the bridge's table says; some say its length, others the greatest.
pub(crate) fn field_of(header: NxmHeader) -> Option<Mf> {
    let field = Mf::from_nxm(header)?;
    let has_its_length = value_length(header) == Some(field.row().bytes.into());
    (matches!(field, Mf::TunMetadata(_)) || has_its_length).then_some(field)
}

/// Bytes of an entry's value.
fn value_length(header: NxmHeader) -> Option<usize> {
    let payload = header.payload_length()?;
    Some(if header.has_mask() { payload / 2 } else { payload })
}

/// Reads one entry for an action, which may set some bits of any field. Errors of the field are those of
/// actions; those of what follows, of matches, which actions translate.
pub(crate) fn read_entry(r: &mut Reader, may_mask: bool) -> Result<AnyEntry, ErrorKind> {
    let header = read_header(r).map_err(|_| OFPBMC_BAD_LEN)?;
    let payload = header.payload_length().ok_or(OFPBMC_BAD_LEN)?;
    let field = field_of(header).ok_or(match Mf::from_nxm(header) {
        Some(_) if value_length(header) != Some(0) => OFPBAC_BAD_SET_LEN,
        _ => OFPBAC_BAD_SET_TYPE,
    })?;
    let mut body = r.with_error(OFPBMC_BAD_LEN).sub(payload)?;
    r.skip(payload)?;
    check_mask(header, body)?;
    if header.has_mask() && !may_mask {
        return Err(OFPBMC_BAD_MASK);
    }
    match field {
        Mf::TunMetadata(idx) => {
            option_body(idx, header, &mut body).map(|option| AnyEntry::Option(Box::new(option)))
        }
        mf => masked_body(mf, header, &mut body).map(AnyEntry::Field),
    }
}

/// Refuses a value with bits that its mask has not.
pub(super) fn check_mask(header: NxmHeader, body: Reader) -> Result<(), ErrorKind> {
    let (value, mask) = body.rest().split_at(body.len() / 2);
    let is_within = !header.has_mask() || value.iter().zip(mask).all(|(value, mask)| value & !mask == 0);
    if is_within { Ok(()) } else { Err(OFPBMC_BAD_WILDCARDS) }
}

/// Reads a tunnel option's value and mask. The sender may choose any length: a value that is shorter than the
/// option lacks leading zeros. Without a value but with the has-mask bit, it means that the option is
/// present.
fn option_body(idx: u8, header: NxmHeader, body: &mut Reader) -> Result<OptionMatch, ErrorKind> {
    let masked = header.has_mask();
    let bytes = if masked { body.len() / 2 } else { body.len() };
    if bytes > OPTION_BYTES_MAX {
        return Err(OFPBMC_BAD_LEN);
    }
    let mut number = || Wide::from_be_bytes(body.take(bytes)?).ok_or(OFPBMC_BAD_LEN);
    let value = number()?;
    let mask = if masked { number()? } else { Wide::ONES };
    body.end()?;
    // A mask of ones only conveys its length, which is the option's if the sender knows the option.
    let bytes = masked.then_some(bytes as u8);
    Ok(OptionMatch { idx, value, mask, bytes })
}

/// A match holds a part of no field that is matched as a whole.
fn entry_body(mf: Mf, header: NxmHeader, body: &mut Reader) -> Result<Entry, ErrorKind> {
    if header.has_mask() && mf.row().maskable == Maskable::No {
        let mask = &body.rest()[body.len() / 2..];
        if mask.iter().any(|byte| *byte != mask[0] || !matches!(byte, 0 | 0xff)) {
            return Err(OFPBMC_BAD_MASK);
        }
    }
    masked_body(mf, header, body)
}

/// The types of metadata that NSH has.
const NSH_TYPES: std::ops::RangeInclusive<u128> = 1..=2;

fn masked_body(mf: Mf, header: NxmHeader, body: &mut Reader) -> Result<Entry, ErrorKind> {
    let bytes = usize::from(mf.row().bytes);
    let masked = header.has_mask();
    let mut value = body.number(bytes)?;
    let mut mask = mf.ones();
    if masked {
        // Bits that a field has not, since it is narrower than its bytes, are 0 in every packet.
        mask = body.number(bytes)? & mf.ones();
    }
    if is_port32(mf) && mask != 0 {
        value = OfPort::from_u32(value as u32).ok_or(OFPBMC_BAD_VALUE)?.0.into();
    } else if !mf.is_valid(value) || mf == Mf::NshMdtype && !NSH_TYPES.contains(&value) {
        return Err(OFPBMC_BAD_VALUE);
    }
    Ok(Entry { mf, value, mask, masked })
}

/// What happens to entries for unknown fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unknown {
    /// The match is refused.
    Refused,
    /// They are skipped.
    Skipped,
    /// They are skipped, and what is no field of the pipeline is refused: what may accompany a packet.
    OfPipeline,
}

/// A list of NXM or OXM entries, in full.
pub(super) fn read_entries(r: Reader, cookie: Option<&mut (u64, u64)>) -> Result<Match, ErrorKind> {
    read_known_entries(r, cookie, Unknown::Refused)
}

/// The same, with a choice for unknown fields.
pub(super) fn read_known_entries(
    mut r: Reader,
    mut cookie: Option<&mut (u64, u64)>,
    unknown: Unknown,
) -> Result<Match, ErrorKind> {
    r = r.with_error(OFPBMC_BAD_LEN);
    let mut m = Match::any();
    let mut has_in_phy_port = false;
    while !r.is_empty() {
        // Some count the padding in the length.
        if r.len() < 8 && r.rest().iter().all(|&b| b == 0) {
            break;
        }
        let header = read_header(&mut r)?;
        let payload = header.payload_length().ok_or(OFPBMC_BAD_LEN)?;
        let has_cookie = cookie.is_some() && is_cookie(header);
        let is_in_phy_port = (header.class(), header.number()) == IN_PHY_PORT;
        let field = field_of(header);
        let mut body = r.sub(payload)?;
        check_mask(header, body)?;
        if field.is_none() && unknown == Unknown::Refused && !has_cookie && !is_in_phy_port {
            return Err(OFPBMC_BAD_FIELD);
        }
        if let Some(cookie) = cookie.as_deref_mut()
            && has_cookie
        {
            read_cookie(header, &mut body, cookie)?;
            continue;
        }
        if is_in_phy_port {
            if std::mem::replace(&mut has_in_phy_port, true) {
                return Err(OFPBMC_DUP_FIELD);
            }
            read_in_phy_port(header, &mut body, &m)?;
            continue;
        }
        let Some(mf) = field else { continue };
        if unknown == Unknown::OfPipeline && !is_of_pipeline(mf) {
            return Err(OFPBRC_PIPELINE_FIELDS_ONLY);
        }
        if let Mf::TunMetadata(idx) = mf {
            let option = option_body(idx, header, &mut body)?;
            if m.options.get(idx).is_some() {
                return Err(OFPBMC_DUP_FIELD);
            }
            m.options.set(option);
            continue;
        }
        let entry = entry_body(mf, header, &mut body)?;
        if !m.has_prereq(mf) {
            return Err(OFPBMC_BAD_PREREQ);
        }
        if m.get_mf(mf).1 != 0 {
            return Err(OFPBMC_DUP_FIELD);
        }
        m.set_mf(mf, entry.value, entry.mask);
        // A field needs the header that it is in, even if none of its bits matters: no other packet type can
        // follow.
        if mf.row().prereq == Prereq::Ethernet && m.get_mf(Mf::PacketType).1 == 0 {
            m.set_masked(FieldId::PacketType, 0, FieldId::PacketType.ones());
        }
    }
    m.imply_packet_type();
    Ok(m)
}

/// Accepts `in_phy_port` if it repeats `in_port`. No packet has a different one.
fn read_in_phy_port(header: NxmHeader, body: &mut Reader, m: &Match) -> Result<(), ErrorKind> {
    if value_length(header) != Some(4) {
        return Err(OFPBMC_BAD_LEN);
    }
    let entry = entry_body(Mf::InPortOxm, header, body)?;
    match m.get_mf(Mf::InPortOxm) {
        (_, 0) => Err(OFPBMC_BAD_PREREQ),
        (in_port, _) if entry.mask != 0 && entry.value != in_port => Err(OFPBMC_BAD_VALUE),
        _ => Ok(()),
    }
}

/// The cookie shares its number with `mpls_ttl`, which is shorter.
fn is_cookie(header: NxmHeader) -> bool {
    let length = if header.has_mask() { 16 } else { 8 };
    (header.class(), header.number(), header.wire_length()) == (COOKIE.class, COOKIE.number, length)
}

fn read_cookie(header: NxmHeader, body: &mut Reader, cookie: &mut (u64, u64)) -> Result<(), ErrorKind> {
    if cookie.1 != 0 {
        return Err(OFPBMC_DUP_FIELD);
    }
    cookie.0 = body.u64()?;
    cookie.1 = if header.has_mask() { body.u64()? } else { u64::MAX };
    if cookie.0 & !cookie.1 != 0 {
        return Err(OFPBMC_BAD_WILDCARDS);
    }
    body.end()
}

/// Encodes the entries of a match, without padding, in Open vSwitch's order. `cookie` and its mask come last,
/// if the mask is not 0.
pub(super) fn write_entries(out: &mut Vec<u8>, m: &Match, minor: u8, cookie: (u64, u64)) {
    for_each_field(m, minor, |mf, value, mask| match mf {
        Mf::Metadata => {}
        // From OpenFlow 1.5 on, two 32-bit registers form one of the standard's 64-bit ones.
        Mf::Reg(n) if minor >= 5 => {
            let pair = Mf::XReg(n / 2);
            if n % 2 == 0 || m.get_mf(Mf::Reg(n - 1)).1 == 0 {
                let (value, mask) = m.get_mf(pair);
                write_entry(out, pair, minor, value, mask);
            }
        }
        _ => write_entry(out, mf, minor, value, mask),
    });
    m.options.iter().for_each(|option| write_option(out, minor, option));
    let (value, mask) = m.get_mf(Mf::Metadata);
    if mask != 0 {
        write_entry(out, Mf::Metadata, minor, value, mask);
    }
    if cookie.1 != 0 {
        let masked = cookie.1 != u64::MAX;
        write_header(out, NxmHeader::new(COOKIE, masked, if masked { 16 } else { 8 }));
        out.u64(cookie.0 & cookie.1);
        if masked {
            out.u64(cookie.1);
        }
    }
}

/// Encodes an entry for a tunnel option: with the option's length if that is known, otherwise as short as
/// possible.
pub(crate) fn write_option(out: &mut Vec<u8>, minor: u8, option: &OptionMatch) {
    let Some(wire) = Mf::TunMetadata(option.idx).wire(minor) else { return };
    let masked = option.mask != Wide::ONES;
    let needed = if masked { option.mask.byte_len() } else { option.value.byte_len() };
    let bytes = option.bytes.map_or(needed, usize::from).max(needed);
    write_header(out, NxmHeader::new(wire, masked, if masked { 2 * bytes } else { bytes }));
    out.extend_from_slice(&option.value.to_be_bytes()[OPTION_BYTES_MAX - bytes..]);
    if masked {
        out.extend_from_slice(&option.mask.to_be_bytes()[OPTION_BYTES_MAX - bytes..]);
    }
}

/// Appends one entry. A field without a number on the wire is left out.
pub(crate) fn write_entry(out: &mut Vec<u8>, mf: Mf, minor: u8, value: u128, mask: u128) {
    // A receiver that knows more states than we do must not assume that they are matched.
    if mask != mf.ones() || mf == Mf::CtState {
        return write_masked(out, mf, minor, value, mask);
    }
    let Some(wire) = mf.wire(minor) else { return };
    let bytes = usize::from(mf.row().bytes);
    write_header(out, NxmHeader::new(wire, false, bytes));
    out.number(value_to_wire(mf, value), bytes);
}

/// The same with a mask, even one of all bits.
pub(crate) fn write_masked(out: &mut Vec<u8>, mf: Mf, minor: u8, value: u128, mask: u128) {
    let Some(wire) = mf.wire(minor) else { return };
    let bytes = usize::from(mf.row().bytes);
    write_header(out, NxmHeader::new(wire, true, 2 * bytes));
    out.number(value_to_wire(mf, value), bytes);
    out.number(mask, bytes);
}

/// `ofp_match` of OpenFlow 1.2 and later, with its padding.
pub(super) fn read_oxm_match(r: &mut Reader) -> Result<Match, ErrorKind> {
    read_entries(oxm_entries(r)?, None)
}

/// The same with fields of the pipeline alone, without its unknown fields.
pub(super) fn read_pipeline_match(r: &mut Reader) -> Result<Match, ErrorKind> {
    read_known_entries(oxm_entries(r)?, None, Unknown::OfPipeline)
}

/// Whether Open vSwitch lets a field accompany a packet.
pub fn is_of_pipeline(mf: Mf) -> bool {
    let name = mf.name();
    ["in_port", "in_port_oxm", "metadata", "packet_type"].contains(&name.as_str())
        || ["tun_", "reg", "xreg", "xxreg"].iter().any(|prefix| name.starts_with(prefix))
            && !matches!(name.as_str(), "tun_ttl" | "tun_tos")
}

fn oxm_entries<'a>(r: &mut Reader<'a>) -> Result<Reader<'a>, ErrorKind> {
    let mut head = r.with_error(OFPBMC_BAD_LEN);
    let (kind, length) = (head.u16()?, usize::from(head.u16()?));
    if length < 4 || kind == OXM && length.next_multiple_of(8) > r.len() {
        return Err(OFPBMC_BAD_LEN);
    }
    if kind != OXM {
        return Err(OFPBMC_BAD_TYPE);
    }
    r.skip(4)?;
    let entries = r.sub(length - 4)?;
    r.zeros(length.next_multiple_of(8) - length, OFPBMC_BAD_LEN).or(Ok::<(), ErrorKind>(()))?;
    Ok(entries)
}

/// Appends an `ofp_match` of OpenFlow 1.2 and later, with its padding.
pub(super) fn write_oxm_match(out: &mut Vec<u8>, m: &Match, minor: u8) {
    let start = out.len();
    out.u16(OXM);
    out.u16(0);
    write_entries(out, m, minor, (0, 0));
    out.set_u16(start + 2, (out.len() - start) as u16);
    out.pad8(start);
}

/// A list of NXM entries of the length given, with its padding to a multiple of 8.
pub(super) fn read_nxm_match(
    r: &mut Reader,
    length: u16,
    cookie: Option<&mut (u64, u64)>,
) -> Result<Match, ErrorKind> {
    let length = usize::from(length);
    if length.next_multiple_of(8) > r.len() {
        return Err(OFPBMC_BAD_LEN);
    }
    let entries = r.sub(length)?;
    r.skip(length.next_multiple_of(8) - length)?;
    read_entries(entries, cookie)
}

/// Appends NXM entries and their padding; returns their length without it.
pub(super) fn write_nxm_match(out: &mut Vec<u8>, m: &Match, minor: u8, cookie: (u64, u64)) -> u16 {
    let start = out.len();
    write_entries(out, m, minor, cookie);
    let length = out.len() - start;
    out.pad8(start);
    length as u16
}

/// `ofp_match` of OpenFlow 1.1 and later, of either type. The standard has that of 1.1 in 1.1 alone, but Open
/// vSwitch takes it in all.
pub(super) fn read_match(r: &mut Reader) -> Result<Match, ErrorKind> {
    match r.with_error(OFPBMC_BAD_LEN).u16()? {
        match11::TYPE => match11::read(r),
        OXM => read_oxm_match(r),
        _ => Err(OFPBMC_BAD_TYPE),
    }
}

/// Appends an `ofp_match` of OpenFlow 1.1 and later. What that of 1.1 cannot say goes as entries of NXM, as
/// with Open vSwitch.
pub(super) fn write_match(version: Version, out: &mut Vec<u8>, m: &Match) {
    match version {
        Version::V11 => {
            let start = out.len();
            match11::write(out, m);
            let mut written = Reader::new(&out[start..], OFPBMC_BAD_LEN);
            if match11::read(&mut written).as_ref() != Ok(m) {
                out.truncate(start);
                write_oxm_match(out, m, version.minor());
            }
        }
        later => write_oxm_match(out, m, later.minor()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
    }

    fn oxm(text: &str) -> Result<Match, ErrorKind> {
        read_entries(Reader::new(&hex(text), OFPBMC_BAD_LEN), None)
    }

    #[test]
    fn entries_are_refused_with_the_error_that_says_why() {
        let cases = [
            ("80000004 00000001", Ok(())),
            ("80000004 00000001 80000004 00000001", Err(OFPBMC_DUP_FIELD)),
            ("80000004 0000", Err(OFPBMC_BAD_LEN)),
            ("80000002 0001", Err(OFPBMC_BAD_FIELD)),
            ("80000004 00010000", Err(OFPBMC_BAD_VALUE)),
            ("80007e04 00000001", Err(OFPBMC_BAD_FIELD)),
            ("80001604 0a000001", Err(OFPBMC_BAD_PREREQ)),
            ("80000a02 0800 80001604 0a000001", Ok(())),
            ("80000a02 0800 80001708 0a000001 ff000000", Err(OFPBMC_BAD_WILDCARDS)),
            ("80000a02 0800 80001708 0a000000 ff0000ff", Ok(())),
            ("80000b04 0800 ff00", Err(OFPBMC_BAD_MASK)),
            ("80000b04 0800 ffff", Ok(())),
            ("80000a02 0800 80001001 40", Err(OFPBMC_BAD_VALUE)),
            ("80000a02 894f ffff0405 005ad650 02", Ok(())),
            ("80000a02 894f ffff0405 005ad650 00", Err(OFPBMC_BAD_VALUE)),
            ("ffff0405 005ad650 03", Err(OFPBMC_BAD_VALUE)),
            ("80000c02 1003 80000e01 05", Ok(())),
            ("80000e01 05", Err(OFPBMC_BAD_PREREQ)),
            ("80000a02 86dd 80004e02 0041", Ok(())),
            ("80000a02 86dd 80004f04 0040 0048", Ok(())),
            ("80000a02 86dd 80004f04 0041 0040", Err(OFPBMC_BAD_WILDCARDS)),
            ("80000a02 86dd 80004f04 0000 0200", Ok(())),
            ("0001d104 0000 fffe", Ok(())),
            ("00000b02 00 fc", Err(OFPBMC_BAD_MASK)),
            ("80000a02 0800 00000b02 00 ff", Ok(())),
            ("80000a02 0800 00013502 00 fd", Ok(())),
            ("80000a02 86dd 80004e02 0200", Err(OFPBMC_BAD_VALUE)),
            ("80000a02 86dd 80004e01 01", Err(OFPBMC_BAD_FIELD)),
            ("80000a02 86dd 80004e02 0041 80004e02 0041", Err(OFPBMC_DUP_FIELD)),
            ("80000a02 0800 80004e02 0041", Err(OFPBMC_BAD_PREREQ)),
            ("80004e02 0041", Err(OFPBMC_BAD_PREREQ)),
            ("80000004 00000001 80000204 00000001", Ok(())),
            ("80000004 00000001 80000308 00000001 ffffffff", Ok(())),
            ("80000004 00000001 80000308 00000001 000000ff", Err(OFPBMC_BAD_MASK)),
            ("80000004 00000001 80000204 00000002", Err(OFPBMC_BAD_VALUE)),
            ("80000004 00000001 80000202 0001", Err(OFPBMC_BAD_LEN)),
            ("80000004 00000001 80000204 00000001 80000204 00000001", Err(OFPBMC_DUP_FIELD)),
            ("80000204 00000001", Err(OFPBMC_BAD_PREREQ)),
            // The service id of provider backbone bridging.
            ("80000a02 88e7 80004a03 000001", Err(OFPBMC_BAD_FIELD)),
            // An Ethernet field and the packet type.
            ("80000806 020000000001 80005804 00010800", Err(OFPBMC_DUP_FIELD)),
            ("8000090c 000000000000 000000000000 80005804 00010800", Err(OFPBMC_DUP_FIELD)),
            ("80000a02 0800 80001604 0a000001 80005804 00010800", Err(OFPBMC_DUP_FIELD)),
            ("80000a02 86dd 80005804 00000000", Err(OFPBMC_DUP_FIELD)),
            ("80000c02 0000 80005804 00010800", Err(OFPBMC_DUP_FIELD)),
            ("80005804 00000000 80000806 020000000001", Ok(())),
            ("80005804 00010800 80000806 020000000001", Err(OFPBMC_BAD_PREREQ)),
            ("80005804 00010800 80001604 0a000001", Ok(())),
            ("ffff0002 0000", Err(OFPBMC_BAD_LEN)),
            ("ffff1806 00002320", Err(OFPBMC_BAD_LEN)),
            ("00015004 00000000", Ok(())),
            ("00015000", Ok(())),
            ("00015100 00015200", Ok(())),
            ("00015100 00015001 05", Err(OFPBMC_DUP_FIELD)),
            ("00015103 050701", Err(OFPBMC_BAD_LEN)),
            ("00015102 0504", Err(OFPBMC_BAD_WILDCARDS)),
            ("00015002 05", Err(OFPBMC_BAD_LEN)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(oxm(bytes).map(drop), expected, "{bytes}");
        }
    }
}
