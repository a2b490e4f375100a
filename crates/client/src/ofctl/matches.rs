//! Commands that parse matches in wire form, and show the result of encoding them again.

use super::client::{Failure, fail};
use super::context::Options;
use super::input::hex;
use super::offline::{dump, print_differences};
use base::OfPort;
use flow::{Match, Mf};
use openflow::codec::{Unknown, normalized};
use openflow::error::ErrorKind;
use openflow::text::{PortNames, entries_text, match_text, parse_entries, parse_match, raw_entries};
use openflow::{Codec, Version};
use std::io::BufRead;
use std::process::ExitCode;

/// Bytes of `ofp_match` of OpenFlow 1.0 and 1.1.
const MATCH10_LEN: usize = 40;
const MATCH11_LEN: usize = 88;

/// NXM entries, and the cookie among them.
pub fn parse_nxm(options: &Options) -> Result<ExitCode, Failure> {
    entries(options, |bytes, unknown| {
        let (m, cookie) = Codec::decode_nxm(bytes, unknown)?;
        let out = Codec::encode_nxm(&m, cookie);
        let padding = out.len().next_multiple_of(8) - out.len();
        Ok(Encoded { entries: out.clone(), message: [out, vec![0; padding]].concat() })
    })
}

/// OXM entries.
pub fn parse_oxm(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.word(1).unwrap_or("");
    let Some(version) = Version::from_name(name).filter(|version| *version >= Version::V12) else {
        return fail!("{name}: not a valid version for OXM");
    };
    let codec = Codec::new(version);
    entries(options, |bytes, unknown| {
        let entries = codec.encode_match(&codec.decode_match(bytes, unknown)?);
        let length = 4 + entries.len();
        let mut message = vec![0, 1, (length >> 8) as u8, length as u8];
        message.extend(&entries);
        message.resize(length.next_multiple_of(8), 0);
        Ok(Encoded { entries, message })
    })
}

/// A match on its way back.
struct Encoded {
    entries: Vec<u8>,
    /// The wire form, with header and padding.
    message: Vec<u8>,
}

/// Reads a list of entries per line and prints its re-encoding. Lines without entries are printed unchanged.
fn entries(
    options: &Options,
    again: impl Fn(&[u8], Unknown) -> Result<Encoded, ErrorKind>,
) -> Result<ExitCode, Failure> {
    let unknown = if options.args.strict { Unknown::Refused } else { Unknown::Skipped };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let text = line.split('#').next().unwrap_or("").trim();
        if text.is_empty() {
            println!("{line}");
            continue;
        }
        let bytes = parse_entries(text)?;
        match again(&bytes, unknown) {
            Ok(encoded) => {
                println!("{}", entries_text(&encoded.entries));
                if options.args.more > 0 {
                    dump(&encoded.message);
                }
            }
            Err(error) => {
                explain(&bytes, error);
                println!("nx_pull_match() returned error {}", error.name());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs which entry asks for bits that its mask leaves out, as the stock tool does.
fn explain(bytes: &[u8], error: ErrorKind) {
    if error != ErrorKind::OFPBMC_BAD_WILDCARDS {
        return;
    }
    if let Some(entry) = raw_entries(bytes).find(|entry| entry.is_beyond_mask()) {
        tracing::warn!(
            target: "nx_match",
            "Rejecting NXM/OXM entry {}:{}:{}:1:{} with 1-bits in value for bits wildcarded by the mask.",
            entry.header.experimenter(),
            entry.header.class(),
            entry.header.number(),
            entry.header.wire_length()
        );
    }
}

/// A match of OpenFlow 1.0 per line, and its normal form in a switch. Each `x` stands for any digit.
pub fn parse_match10(_: &Options) -> Result<ExitCode, Failure> {
    let codec = Codec::new(Version::V10);
    // Digits that do not matter: other ones from line to line.
    let mut any_digits = "5af0913c7be2846d".chars().cycle();
    for text in match_lines() {
        let text = text?;
        let expected = sized(&hex(&text.replace('x', "0"))?, MATCH10_LEN)?;
        let any: String =
            text.chars().map(|c| if c == 'x' { any_digits.next().unwrap_or('0') } else { c }).collect();
        let m = codec
            .decode_match(&hex(&any)?, Unknown::Refused)
            .map_err(|error| Failure(format!("bad ofp_match: {}", error.name())))?;
        println!("{}", match_text(&m, PortNames::none()));
        let again = codec.encode_match(&m);
        print_differences("", &expected, &again);
        let usual = normalized(&m);
        if usual != m {
            let (pre, post) = (match_text(&m, PortNames::none()), match_text(&usual, PortNames::none()));
            super::flows::log_normalization(&pre, &post);
        }
        print_differences("normal: ", &again, &codec.encode_match(&usual));
        println!();
    }
    Ok(ExitCode::SUCCESS)
}

/// A match of OpenFlow 1.1 per line.
pub fn parse_match11(_: &Options) -> Result<ExitCode, Failure> {
    let codec = Codec::new(Version::V11);
    for text in match_lines() {
        let bytes = sized(&hex(&text?)?, MATCH11_LEN)?;
        match codec.decode_match(&bytes, Unknown::Refused) {
            Ok(m) => {
                println!("{}", match_text(&m, PortNames::none()));
                print_differences("", &bytes, &codec.encode_match(&m));
                println!();
            }
            Err(error) => {
                explain_port(&bytes);
                println!("bad ofp11_match: {}\n", error.name());
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Logs that a match of OpenFlow 1.1 names a port that cannot be, as the stock tool does.
fn explain_port(bytes: &[u8]) {
    let number = |at: usize| bytes[at..at + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
    // Bit 0 of the wildcards belongs to the port.
    let (port, is_any) = (number(4), number(8) & 1 != 0);
    if !is_any && OfPort::from_u32(port).is_none() {
        tracing::warn!(
            target: "ofp_port",
            "port {port} is outside the supported range 0 through 65279 or 0xffffff00 through 0xffffffff"
        );
    }
}

/// The lines of standard input that contain more than a comment.
fn match_lines() -> impl Iterator<Item = Result<String, Failure>> {
    std::io::stdin().lock().lines().filter_map(|line| match line {
        Ok(line) => {
            let text = line.split('#').next().unwrap_or("").trim();
            (!text.is_empty()).then(|| Ok(text.to_string()))
        }
        Err(error) => Some(Err(error.into())),
    })
}

fn sized(bytes: &[u8], length: usize) -> Result<Vec<u8>, Failure> {
    if bytes.len() != length {
        return fail!("Input is {} bytes, expected {length}", bytes.len());
    }
    Ok(bytes.to_vec())
}

/// A match of a VLAN tag in each encoding, and the match that decoding yields.
pub fn check_vlan(options: &Options) -> Result<ExitCode, Failure> {
    let number = |n: usize| {
        let text = options.word(n).unwrap_or("");
        let digits = text.strip_prefix("0x").or(text.strip_prefix("0X")).unwrap_or(text);
        u16::from_str_radix(digits, 16)
            .map_err(|_| Failure(format!("{text}: not a number of up to four hexadecimal digits")))
    };
    let (tci, mask) = (number(1)?, number(2)?);
    if tci & !mask != 0 {
        return fail!("{tci:04x}/{mask:04x}: the value has bits that the mask leaves out");
    }
    let mut m = Match::any();
    m.set_mf(Mf::VlanTci, tci.into(), mask.into());
    let tag = |m: &Match| {
        let (tci, mask) = m.get_mf(Mf::VlanTci);
        format!("{tci:04x}/{mask:04x}")
    };
    let text = match_text(&m, PortNames::none());
    println!("{text} -> {}", tag(&parse_match(&text, PortNames::none())?));

    let said = |read: Result<String, ErrorKind>| read.unwrap_or_else(|error| error.name().into());
    let nxm = Codec::encode_nxm(&m, (0, 0));
    let again = Codec::decode_nxm(&nxm, Unknown::Refused).map(|(again, _)| tag(&again));
    println!("NXM: {} -> {}", entries_text(&nxm), said(again));

    let codec = Codec::new(Version::V12);
    let oxm = codec.encode_match(&m);
    let again = codec.decode_match(&oxm, Unknown::Refused).map(|again| {
        let (vid, mask) = again.get_mf(Mf::VlanVid);
        match again.get_mf(Mf::VlanPcp) {
            (_, 0) => format!("{vid:04x}/{mask:04x},--"),
            (priority, _) => format!("{vid:04x}/{mask:04x},{priority:02x}"),
        }
    });
    println!("OXM: {} -> {}", entries_text(&oxm), said(again));

    // Offsets of the fixed fields: the wildcards, the bits of VLAN and priority in them, and the VLAN.
    for (name, version, wildcards, bits, vlan) in
        [("OF1.0", Version::V10, 0, [1, 20], 18), ("OF1.1", Version::V11, 8, [1, 2], 36)]
    {
        let codec = Codec::new(version);
        let bytes = codec.encode_match(&m);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte));
        let wildcards = number(&bytes[wildcards..wildcards + 4]);
        let [is_any_vlan, is_any_priority] = bits.map(|bit| wildcards >> bit & 1);
        let (id, priority) = (number(&bytes[vlan..vlan + 2]), bytes[vlan + 2]);
        let again = said(codec.decode_match(&bytes, Unknown::Refused).map(|again| tag(&again)));
        println!("{name}: {id:04x}/{is_any_vlan},{priority:02x}/{is_any_priority} -> {again}");
    }
    Ok(ExitCode::SUCCESS)
}
