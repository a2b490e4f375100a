//! Small requests: the mapping of tunnel options to fields of a switch (`add-tlv-map`, `del-tlv-map`,
//! `dump-tlv-map`), and the removal of tracked connections (`ct-flush-zone`, `ct-flush`).

use super::client::{Failure, fail};
use super::context::Options;
use super::ports::print_reply;
use openflow::Message;
use openflow::message::{CtFlush, TlvMap, TlvTableCommand, TlvTableMod};
use openflow::text::parse_ct_tuple;
use std::process::ExitCode;

pub fn add_tlv_map(options: &Options) -> Result<ExitCode, Failure> {
    let maps = parse(options.word(2).unwrap_or(""))?;
    change(options, TlvTableMod { command: TlvTableCommand::Add, maps })
}

pub fn del_tlv_map(options: &Options) -> Result<ExitCode, Failure> {
    let change_of = match options.word(2) {
        Some(text) => TlvTableMod { command: TlvTableCommand::Delete, maps: parse(text)? },
        None => TlvTableMod { command: TlvTableCommand::Clear, maps: Vec::new() },
    };
    change(options, change_of)
}

fn change(options: &Options, change: TlvTableMod) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    client.prepare_dump(options.allowed)?;
    client.command(&Message::TlvTableMod(change))?;
    Ok(ExitCode::SUCCESS)
}

pub fn dump_tlv_map(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    print_reply(options, &mut client, &Message::TlvTableRequest)?;
    Ok(ExitCode::SUCCESS)
}

pub fn ct_flush_zone(options: &Options) -> Result<ExitCode, Failure> {
    let text = options.word(2).unwrap_or("");
    let Some(zone) = number(text).and_then(|zone| u16::try_from(zone).ok()) else {
        return fail!("invalid zone_id \"{text}\"");
    };
    let mut client = options.connect()?;
    client.command(&Message::CtFlushZone(zone))?;
    Ok(ExitCode::SUCCESS)
}

pub fn ct_flush(options: &Options) -> Result<ExitCode, Failure> {
    let mut flush = CtFlush::default();
    let mut words = options.args.words.iter().skip(2).peekable();
    if let Some(word) = words.next_if(|word| word.starts_with("zone=")) {
        let Ok(zone) = word["zone=".len()..].parse() else { return fail!("Failed to parse zone") };
        flush.zone = Some(zone);
    }
    for is_reply in [false, true] {
        if let Some(word) = words.next() {
            parse_ct_tuple(word, &mut flush.tuples, is_reply)
                .map_err(|why| Failure(format!("Failed to parse ct-tuple: {why}")))?;
        }
    }
    if words.next().is_some() {
        return fail!("invalid arguments: expected [zone=N] [ORIGINAL-TUPLE [REPLY-TUPLE]]");
    }
    let mut client = options.connect()?;
    client.command(&Message::CtFlush(Box::new(flush)))?;
    Ok(ExitCode::SUCCESS)
}

/// `{class=CLASS,type=TYPE,len=LENGTH}->tun_metadataN`, with commas between several.
fn parse(text: &str) -> Result<Vec<TlvMap>, Failure> {
    let mut maps = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        match one(rest) {
            Some((map, after)) => {
                maps.push(map);
                rest = after;
            }
            None => return fail!("invalid tlv mapping"),
        }
    }
    Ok(maps)
}

/// The first mapping of a text that is not empty, and the rest after its comma.
fn one(text: &str) -> Option<(TlvMap, &str)> {
    let (option, rest) = text.strip_prefix('{')?.split_once("}->tun_metadata")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (index, rest) = rest.split_at(digits);
    let mut values =
        option.split(',').zip(["class=", "type=", "len="]).map(|(word, key)| word.strip_prefix(key));
    let mut next = || number(values.next()??);
    let (class, kind, length) = (next()?, next()?, next()?);
    let map = TlvMap {
        option_class: class.try_into().ok()?,
        option_type: kind.try_into().ok()?,
        option_len: length.try_into().ok()?,
        index: index.parse().ok()?,
    };
    let is_whole = option.split(',').count() == 3;
    let rest = rest.trim_start();
    let rest = if rest.is_empty() { rest } else { rest.strip_prefix(',')?.trim_start() };
    is_whole.then_some((map, rest))
}

/// In C notation.
fn number(text: &str) -> Option<u32> {
    match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None if text.len() > 1 && text.starts_with('0') => u32::from_str_radix(text, 8).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_read_and_bad_ones_refused() {
        let map = |option_class, option_type, option_len, index| TlvMap {
            option_class,
            option_type,
            option_len,
            index,
        };
        let two = "{class=0xffff,type=0,len=4}->tun_metadata0, {class=1,type=0x80,len=124}->tun_metadata63";
        assert_eq!(parse(two).unwrap(), [map(0xffff, 0, 4, 0), map(1, 0x80, 124, 63)]);
        assert_eq!(parse("").unwrap(), []);
        for bad in [
            "foo",
            "{class=1,type=3}->tun_metadata3",
            "{class=1,type=3,len=4}",
            "{class=1,type=3,len=4}->tun_metadata",
            "{class=1,type=3,len=4}->tun_metadata1;x",
            "{class=0x10000,type=3,len=4}->tun_metadata1",
            "{class=1,type=3,len=4,x=1}->tun_metadata1",
            "{type=3,class=1,len=4}->tun_metadata1",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
