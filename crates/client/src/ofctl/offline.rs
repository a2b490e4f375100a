//! Commands that need no switch: they print, read and write messages and parts of them.

use super::client::{Failure, fail};
use super::context::Options;
use super::input::{bytes_of, hex, read_file};
use flow::Match;
use flow::compose::{Payload, compose};
use openflow::error::{ErrorCode, ErrorKind, OfError};
use openflow::text::{
    KeyValues, PortNames, Protocol, actions_text, bytes_text, packet_differences, packet_flow_text,
    packet_text, parse_group_line,
};
use openflow::{Codec, Header, Message, Version, VersionSet, check_actions};
use std::io::BufRead;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

/// Default verbosity of `ofp-print`.
const VERBOSITY: u8 = 2;

/// Bytes as messages show them, without text beside.
pub(super) fn dump(bytes: &[u8]) {
    for (i, line) in bytes.chunks(16).enumerate() {
        print!("{:08x} ", i * 16);
        for (n, byte) in line.iter().enumerate() {
            print!("{}{byte:02x}", if n == 8 { '-' } else { ' ' });
        }
        println!();
    }
}

pub fn ofp_print(options: &Options) -> Result<ExitCode, Failure> {
    let verbosity = match options.word(2) {
        None => VERBOSITY,
        Some(text) => {
            text.parse().map_err(|_| Failure(format!("{text}: not a level of verbosity (0 to 255)")))?
        }
    };
    // The state of the connection is unknown here: level 1 is what other commands print.
    let show = |bytes: &[u8]| {
        super::remarks::log(bytes);
        let text = bytes_text(bytes, PortNames::none(), verbosity.saturating_sub(1));
        print!("{}", options.painted(&text));
    };
    match options.word(1).unwrap_or("") {
        "-" if options.args.raw => show(&bytes_of("-")?),
        "-" => {
            let text = read_file("-")?;
            show(&hex(text.lines().next().unwrap_or(""))?);
        }
        text => show(&hex(text)?),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the messages that follow one another in bytes; gives what is left at the end.
fn print_stream<'a>(options: &Options, mut bytes: &'a [u8]) -> Result<&'a [u8], Failure> {
    while let Some(header) = Header::parse(bytes) {
        let length = usize::from(header.length);
        if length < openflow::codec::HEADER_LEN {
            return fail!("{length}-byte message is too short for OpenFlow");
        }
        let Some((message, rest)) = bytes.split_at_checked(length) else { break };
        print!("{}", options.painted(&bytes_text(message, PortNames::none(), options.more())));
        bytes = rest;
    }
    Ok(bytes)
}

pub fn ofp_parse(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.word(1).unwrap_or("-");
    let bytes = bytes_of(name)?;
    match print_stream(options, &bytes)? {
        [] => Ok(ExitCode::SUCCESS),
        rest => fail!("{name}: unexpected end of file mid-message: {} bytes are left", rest.len()),
    }
}

pub fn parse_group(options: &Options) -> Result<ExitCode, Failure> {
    let (group_mod, usable) = parse_group_line(options.word(1).unwrap_or(""), PortNames::none())?;
    println!("usable protocols: {usable}");
    let Some(version) = usable.intersect(options.allowed).iter().map(Protocol::version).next() else {
        return fail!("no usable protocol");
    };
    println!("chosen version: {}", version.name());
    let codec = Codec::new(version);
    let bytes = codec.encode(1, &Message::GroupMod(Box::new(group_mod)))?;
    print!("{}", options.painted(&bytes_text(&bytes, PortNames::none(), options.more())));
    Ok(ExitCode::SUCCESS)
}

fn version_argument(options: &Options) -> Result<Version, Failure> {
    let name = options.word(1).unwrap_or("");
    Version::from_name(name).ok_or_else(|| Failure(format!("Unknown OpenFlow version: \"{name}\"")))
}

/// Reads a list of actions per line, prints it, and says how encoding it again differs.
pub fn lists(
    options: &Options,
    what: &str,
    decode: fn(&Codec, &[u8]) -> Result<Vec<flow::Action>, ErrorKind>,
    encode: fn(&Codec, &[flow::Action]) -> Vec<u8>,
) -> Result<ExitCode, Failure> {
    let version = version_argument(options)?;
    let codec = Codec::new(version);
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        // Instructions may follow the number of the table that the flow would be in.
        let (table, line) = match line.split_once(',') {
            Some((table, line)) if what == "instructions" => (table.trim().parse::<u8>().ok(), line),
            _ => (None, line),
        };
        let bytes = hex(line)?;
        let read = decode(&codec, &bytes).and_then(|actions| {
            if what == "instructions" {
                check_actions(version, &Match::any(), &actions, table)?;
            }
            Ok(actions)
        });
        let actions = match read {
            Ok(actions) => actions,
            Err(error) => {
                explain(what, &bytes, error, |prefix| decode(&codec, prefix).is_err());
                println!("bad {} {what}: {}\n", version.name(), error.name());
                continue;
            }
        };
        println!("actions={}", actions_text(&actions, version, PortNames::none()));
        let again = encode(&codec, &actions);
        print_differences("", &bytes, &again);
        println!();
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the bytes in which the re-encoding differs from the input.
pub(super) fn print_differences(prefix: &str, bytes: &[u8], again: &[u8]) {
    for (i, (before, after)) in bytes.iter().zip(again).enumerate() {
        if before != after {
            println!("{prefix}{i:2}: {before:02x} -> {after:02x}");
        }
    }
    for (i, byte) in bytes.iter().enumerate().skip(again.len()) {
        println!("{prefix}{i:2}: {byte:02x} -> (none)");
    }
    for (i, byte) in again.iter().enumerate().skip(bytes.len()) {
        println!("{prefix}{i:2}: (none) -> {byte:02x}");
    }
}

/// Logs which of a list of actions is bad, as the stock tool does.
fn explain(what: &str, bytes: &[u8], error: ErrorKind, is_bad: impl Fn(&[u8]) -> bool) {
    if error == ErrorKind::OFPBIC_UNSUP_INST {
        return tracing::warn!(target: "ofp_actions", "write_metadata instruction not allowed here");
    }
    if !bytes.len().is_multiple_of(8) {
        return tracing::warn!(
            target: "ofp_actions",
            "OpenFlow message {what} length {} is not a multiple of 8",
            bytes.len()
        );
    }
    // A list with wrong lengths cannot be split into parts.
    if what != "actions" || error == ErrorKind::OFPBAC_BAD_LEN {
        return;
    }
    let mut at = 0;
    while let Some(&[high, low]) = bytes.get(at + 2..at + 4) {
        let end = at + usize::from(u16::from_be_bytes([high, low]));
        if end <= at || end > bytes.len() {
            return;
        }
        if is_bad(&bytes[..end]) {
            return tracing::warn!(
                target: "ofp_actions",
                has_lines = true,
                "bad action at offset {} ({error}):\n{}",
                if at == 0 { "0".into() } else { format!("{at:#x}") },
                hex_lines(bytes)
            );
        }
        at = end;
    }
}

/// Bytes without text next to them, sixteen per line; a half line ends where the other half would start.
fn hex_lines(bytes: &[u8]) -> String {
    let line = |(i, line): (usize, &[u8])| {
        let byte = |(n, byte): (usize, &u8)| format!("{}{byte:02x}", if n == 8 { '-' } else { ' ' });
        let hex: String = line.iter().enumerate().map(byte).collect();
        format!("{:08x} {hex}{}", i * 16, if line.len() == 8 { "-" } else { "" })
    };
    bytes.chunks(16).enumerate().map(line).collect::<Vec<_>>().join("\n")
}

fn error_argument(options: &Options) -> Result<ErrorKind, Failure> {
    let name = options.word(1).unwrap_or("");
    let kind = ErrorKind::ALL.iter().find(|kind| kind.name() == name);
    kind.copied().ok_or_else(|| Failure(format!("unknown error \"{name}\"")))
}

pub fn print_error(options: &Options) -> Result<ExitCode, Failure> {
    let kind = error_argument(options)?;
    for version in Version::ALL {
        if let Some(number) = kind.number(version) {
            let dotted = format!("1.{}", version.minor());
            println!(
                "OpenFlow {dotted}: vendor {}, type {}, code {}",
                vendor_text(number.vendor),
                number.error_type,
                number.code
            );
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// In hexadecimal, except 0.
fn vendor_text(vendor: u32) -> String {
    if vendor == 0 { "0".into() } else { format!("{vendor:#x}") }
}

pub fn encode_error_reply(options: &Options) -> Result<ExitCode, Failure> {
    let kind = error_argument(options)?;
    let request = hex(options.word(2).unwrap_or(""))?;
    let Some(header) = Header::parse(&request) else { return fail!("the request is shorter than a header") };
    let Some(version) = Version::from_wire(header.version) else {
        return fail!("the request's version {:#04x} is not an OpenFlow version", header.version);
    };
    if kind.number(version).is_none() {
        let dotted = format!("1.{}", version.minor());
        tracing::error!(target: "ofp_errors", "cannot encode {} for OpenFlow {dotted}", kind.name());
    }
    let error = OfError { code: ErrorCode::Known(kind), data: request };
    dump(&Codec::new(version).encode(header.xid, &Message::Error(error))?);
    Ok(ExitCode::SUCCESS)
}

pub fn encode_hello(options: &Options) -> Result<ExitCode, Failure> {
    let text = options.word(1).unwrap_or("");
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let Ok(bitmap) = u64::from_str_radix(digits, if digits.len() < text.len() { 16 } else { 10 }) else {
        return fail!("{text}: not a bitmap of versions");
    };
    let versions = VersionSet(bitmap);
    if versions.greatest().is_none() {
        return fail!("{text}: names no version of OpenFlow");
    }
    let bytes = Codec::hello(versions, 1);
    dump(&bytes);
    print!("{}", options.painted(&bytes_text(&bytes, PortNames::none(), 1)));
    Ok(ExitCode::SUCCESS)
}

pub fn parse_key_value(options: &Options) -> Result<ExitCode, Failure> {
    for word in options.args.words.iter().skip(1) {
        let pairs: Vec<String> = KeyValues::new(word)
            .map(|(key, value)| if value.is_empty() { key.to_string() } else { format!("{key}={value}") })
            .collect();
        println!("{}", pairs.join(", "));
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the packets of capture files as flows.
pub fn parse_pcap(options: &Options) -> Result<ExitCode, Failure> {
    for path in options.args.words.iter().skip(1) {
        let bytes = bytes_of(path)?;
        let records = ports::pcap::file::parse(&bytes).map_err(|why| Failure(format!("{path}: {why}")))?;
        records.iter().for_each(|record| println!("{}", packet_flow_text(record.frame)));
    }
    Ok(ExitCode::SUCCESS)
}

pub fn compose_packet(options: &Options) -> Result<ExitCode, Failure> {
    let flow = options.word(1).unwrap_or("");
    let m = match openflow::text::parse_packet(flow, PortNames::none()) {
        Ok(m) => m,
        Err(why) => return fail!("{flow}: {why}"),
    };
    let payload = match options.word(2) {
        Some(text) => match hex(text) {
            Ok(bytes) => Some(bytes),
            Err(_) => return fail!("{text}: trailing garbage in packet data"),
        },
        None => None,
    };
    let frame = compose(&m.key, payload.as_deref().map_or(Payload::Usual, Payload::Bytes))
        .map_err(|error| Failure(format!("{flow}: {error}")))?;
    if options.args.pcap {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut capture = ports::pcap::file::Writer::new(std::io::stdout().lock())?;
        capture.write(now.as_nanos() as u64, std::iter::once(&*frame))?;
        capture.flush()?;
    } else {
        dump(&frame);
    }
    // A frame contains neither its input port nor fields that its protocol has no place for.
    let Some([specified, extracted]) = packet_differences(&m, &frame) else { return Ok(ExitCode::SUCCESS) };
    eprintln!("specified and extracted flows differ:\nspecified: {specified}\nextracted: {extracted}");
    Ok(ExitCode::FAILURE)
}

pub fn parse_packet(_: &Options) -> Result<ExitCode, Failure> {
    println!("{}", packet_text(&bytes_of("-")?));
    Ok(ExitCode::SUCCESS)
}
