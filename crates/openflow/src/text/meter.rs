//! Meters in text, as ovs-ofctl(8) reads them: `meter=1 kbps burst bands=type=drop rate=1000 burst_size=100`.

use super::value::u32_of;
use super::{TextError, bad};
use crate::message::{
    Band, BandType, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig,
    MeterFlags, MeterMod,
};

const FLAGS: [(&str, MeterFlags); 4] = [
    ("kbps", MeterFlags::KBPS),
    ("pktps", MeterFlags::PKTPS),
    ("burst", MeterFlags::BURST),
    ("stats", MeterFlags::STATS),
];

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(['=', ',', ' ', '\t', '\r', '\n']).filter(|word| !word.is_empty())
}

/// Reads the argument of `add-meter`, `mod-meter` or `del-meter`.
pub fn parse_meter_mod(text: &str, command: MeterCommand) -> Result<MeterMod, TextError> {
    let mut meter = MeterConfig::default();
    if command == MeterCommand::Delete {
        meter.meter_id = parse_meter_id(text)?;
        return Ok(MeterMod { command, meter });
    }
    let Some(at) = text.find("band") else { return bad!("must specify bands") };
    let Some(equals) = text[at..].find('=') else { return bad!("must specify bands") };
    let (head, bands) = (&text[..at], &text[at + equals + 1..]);
    let mut names = words(head);
    while let Some(name) = names.next() {
        match FLAGS.iter().find(|(flag, _)| *flag == name) {
            Some((_, flag)) => meter.flags |= *flag,
            None => match (name, names.next()) {
                (_, None) => return bad!("field {name} missing value"),
                ("meter", Some(value)) => meter.meter_id = meter_id(value)?,
                _ => return bad!("unknown keyword {name}"),
            },
        }
    }
    if meter.meter_id == 0 {
        return bad!("must specify 'meter'");
    }
    if meter.flags.is_empty() {
        return bad!("meter must specify either 'kbps' or 'pktps'");
    }
    meter.bands = parse_bands(bands, meter.flags)?;
    Ok(MeterMod { command, meter })
}

/// Reads `meter=ID`, as commands name the meter that they are about.
pub fn parse_meter_id(text: &str) -> Result<u32, TextError> {
    let mut id = None;
    let mut names = words(text);
    while let Some(name) = names.next() {
        match (name, names.next()) {
            (_, None) => return bad!("field {name} missing value"),
            ("meter", Some(value)) => id = Some(meter_id(value)?),
            _ => return bad!("unknown keyword {name}"),
        }
    }
    match id {
        Some(id) => Ok(id),
        None => bad!("must specify 'meter'"),
    }
}

fn meter_id(value: &str) -> Result<u32, TextError> {
    match value {
        "all" => Ok(METER_ALL),
        "controller" => Ok(METER_CONTROLLER),
        "slowpath" => Ok(METER_SLOWPATH),
        value => match u32_of(value)? {
            id @ 1..=METER_MAX => Ok(id),
            _ => bad!("invalid value for meter"),
        },
    }
}

fn parse_bands(text: &str, flags: MeterFlags) -> Result<Vec<Band>, TextError> {
    let mut bands: Vec<Band> = Vec::new();
    let mut names = words(text);
    while let Some(name) = names.next() {
        let Some(value) = names.next() else { return bad!("field {name} missing value") };
        if name == "type" {
            let kind = match value {
                "drop" => BandType::Drop,
                "dscp_remark" => BandType::DscpRemark { prec_level: 0 },
                _ => return bad!("field {name} unknown value {value}"),
            };
            bands.push(Band { kind, rate: 0, burst_size: 0 });
            continue;
        }
        let Some(band) = bands.last_mut() else { return bad!("band must start with the 'type' keyword") };
        match (name, &mut band.kind) {
            ("rate", _) => band.rate = u32_of(value)?,
            ("burst_size", _) => band.burst_size = u32_of(value)?,
            ("prec_level", BandType::DscpRemark { prec_level }) => match u8::try_from(u32_of(value)?) {
                Ok(level) => *prec_level = level,
                Err(_) => return bad!("invalid {name} \"{value}\""),
            },
            ("prec_level", BandType::Drop) => {
                return bad!("Only 'dscp_remark' band may have 'prec_level'");
            }
            _ => return bad!("unknown keyword {name}"),
        }
    }
    if bands.is_empty() {
        return bad!("meter must have bands");
    }
    for band in &bands {
        if band.kind == (BandType::DscpRemark { prec_level: 0 }) {
            return bad!("'dscp_remark' band must have 'prec_level'");
        }
        if band.rate == 0 {
            return bad!("band must have 'rate'");
        }
        match (flags.contains(MeterFlags::BURST), band.burst_size) {
            (true, 0) => return bad!("band must have 'burst_size' when 'burst' flag is set"),
            (false, 1..) => return bad!("band may have 'burst_size' only when 'burst' flag is set"),
            _ => {}
        }
    }
    Ok(bands)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_meter_is_read_whole_or_refused_with_a_reason() {
        let read = |text| parse_meter_mod(text, MeterCommand::Add).map(|m| m.meter);
        let meter = read("meter=1 kbps,burst bands=type=drop rate=10 burst_size=5,type=dscp_remark,rate=3 burst_size=1 prec_level=2")
            .unwrap();
        assert_eq!(meter.flags, MeterFlags::KBPS | MeterFlags::BURST);
        assert_eq!(meter.bands[1].kind, BandType::DscpRemark { prec_level: 2 });
        assert_eq!((meter.meter_id, meter.bands[0].rate, meter.bands[0].burst_size), (1, 10, 5));
        for (text, why) in [
            ("meter=1 kbps", "must specify bands"),
            ("kbps bands=type=drop rate=1", "must specify 'meter'"),
            ("meter=1 bands=type=drop rate=1", "meter must specify either 'kbps' or 'pktps'"),
            ("meter=0 kbps bands=type=drop rate=1", "invalid value for meter"),
            ("meter=1 kbps bands=", "meter must have bands"),
            ("meter=1 kbps bands=rate=1", "band must start with the 'type' keyword"),
            ("meter=1 kbps bands=type=drop", "band must have 'rate'"),
            (
                "meter=1 kbps bands=type=drop rate=1 burst_size=1",
                "band may have 'burst_size' only when 'burst' flag is set",
            ),
            (
                "meter=1 kbps burst bands=type=drop rate=1",
                "band must have 'burst_size' when 'burst' flag is set",
            ),
            (
                "meter=1 kbps bands=type=drop rate=1 prec_level=1",
                "Only 'dscp_remark' band may have 'prec_level'",
            ),
            ("meter=1 kbps bands=type=dscp_remark rate=1", "'dscp_remark' band must have 'prec_level'"),
            ("meter=1 kbps sats=1 bands=type=drop rate=1", "unknown keyword sats"),
        ] {
            assert_eq!(read(text).unwrap_err().message, why, "{text}");
        }
        assert_eq!(parse_meter_id("meter=controller").unwrap(), METER_CONTROLLER);
    }
}
