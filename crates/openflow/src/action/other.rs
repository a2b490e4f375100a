//! Sampling, timeouts and notes.

use super::body::Body;
use super::row::{Place, Row, nicira, with, word};
use crate::codec::bytes::Put;
use crate::error::ErrorKind::{self, *};
use crate::text::value::{dotted_hex, u16_named, u32_of, write_dotted_hex};
use crate::text::{KeyValues, bad, put};
use base::OfPort;
use flow::Action;
use flow::action::SampleDirection;

pub(super) static FIN_TIMEOUT: Row = Row {
    name: "fin_timeout",
    syntax: "fin_timeout(idle_timeout=SECONDS,hard_timeout=SECONDS)",
    summary: "Lowers the rule's timeouts when a TCP packet with FIN or RST hits it.",
    place: Place::Lists,
    forms: &[nicira(
        19,
        |b| Ok(Action::FinTimeout { idle_timeout_s: b.u16()?, hard_timeout_s: b.u16()? }),
        |a, e| {
            with!(a, Action::FinTimeout { idle_timeout_s, hard_timeout_s } => {
                e.out.u16(*idle_timeout_s);
                e.out.u16(*hard_timeout_s);
            })
        },
    )],
    words: &[word("fin_timeout", |_, _, value| {
        let (mut idle_timeout_s, mut hard_timeout_s) = (0, 0);
        for (key, value) in KeyValues::new(value) {
            match key {
                "idle_timeout" => idle_timeout_s = u16_named(value, key)?,
                "hard_timeout" => hard_timeout_s = u16_named(value, key)?,
                _ => return bad!("invalid key '{key}' in 'fin_timeout' argument"),
            }
        }
        Ok(Action::FinTimeout { idle_timeout_s, hard_timeout_s })
    })],
    print: |a, p| {
        with!(a, Action::FinTimeout { idle_timeout_s, hard_timeout_s } => {
            p.word("fin_timeout(");
            if *idle_timeout_s != 0 {
                put!(p.out, "idle_timeout={idle_timeout_s},");
            }
            if *hard_timeout_s != 0 {
                put!(p.out, "hard_timeout={hard_timeout_s},");
            }
            if p.out.ends_with(',') {
                p.out.pop();
            }
            p.word(")");
        })
    },
    check: |_, c| c.needs(c.nw_proto() == 6),
    ..Row::PLAIN
};

/// On the wire the bytes end at a multiple of 8 with the header of 10.
pub(super) static NOTE: Row = Row {
    name: "note",
    syntax: "note:HEX",
    summary: "Does nothing: the bytes are the controller's.",
    place: Place::Lists,
    forms: &[nicira(
        8,
        |b| {
            let len = b.len();
            Ok(Action::Note(b.take(len)?.to_vec()))
        },
        |a, e| with!(a, Action::Note(bytes) => e.out.extend_from_slice(bytes)),
    )
    .of_length_from(16)],
    words: &[word("note", |_, _, value| match dotted_hex(value) {
        Some(mut bytes) => {
            bytes.resize((bytes.len() + 10).next_multiple_of(8) - 10, 0);
            Ok(Action::Note(bytes))
        }
        None => bad!("bad hex digit in `note' argument"),
    })],
    print: |a, p| {
        with!(a, Action::Note(bytes) => {
            p.word("note:");
            write_dotted_hex(p.out, bytes);
        })
    },
    ..Row::PLAIN
};

pub(super) static SAMPLE: Row = Row {
    name: "sample",
    syntax: "sample(probability=N,collector_set_id=SET,obs_domain_id=DOMAIN,obs_point_id=POINT,sampling_port=PORT,\
             ingress|egress)",
    summary: "Sends a sample of N in 65,535 packets to the collectors.",
    place: Place::Lists,
    forms: &[
        nicira(
            29,
            |b| read_sample(b, 1),
            |a, e| {
                with!(a, Action::Sample { sampling_port: OfPort::NONE, direction: SampleDirection::Default, .. } => {
                    write_sample(e.out, a);
                })
            },
        ).of_length(24),
        nicira(
            38,
            |b| read_sample(b, 2),
            |a, e| {
                with!(a, Action::Sample { direction: SampleDirection::Default, sampling_port, .. } => {
                    write_sample(e.out, a);
                    e.out.u16(sampling_port.0);
                    e.out.zeros(6);
                })
            },
        ).of_length(32),
        nicira(
            41,
            |b| read_sample(b, 3),
            |a, e| {
                with!(a, Action::Sample { direction, sampling_port, .. } => {
                    write_sample(e.out, a);
                    e.out.u16(sampling_port.0);
                    e.out.u8(*direction as u8);
                    e.out.zeros(5);
                })
            },
        ).of_length(32),
    ],
    words: &[word("sample", |p, _, value| {
        let (mut probability, mut collector_set_id, mut obs_domain_id, mut obs_point_id) = (0, 0, 0, 0);
        let (mut sampling_port, mut direction) = (OfPort::NONE, SampleDirection::Default);
        for (key, value) in KeyValues::new(value) {
            match key {
                "probability" => match u16_named(value, "probability")? {
                    0 => return bad!("invalid probability value \"{value}\""),
                    p => probability = p,
                },
                "collector_set_id" => collector_set_id = u32_of(value)?,
                "obs_domain_id" => obs_domain_id = u32_of(value)?,
                "obs_point_id" => obs_point_id = u32_of(value)?,
                "sampling_port" => match p.ports.parse(value) {
                    Some(port) => sampling_port = port,
                    None => return bad!("{value}: unknown port"),
                },
                "ingress" => direction = SampleDirection::Ingress,
                "egress" => direction = SampleDirection::Egress,
                _ => return bad!("invalid key \"{key}\" in \"sample\" argument"),
            }
        }
        if probability == 0 {
            return bad!("non-zero \"probability\" must be specified on sample");
        }
        Ok(Action::Sample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            sampling_port,
            direction,
        })
    })],
    print: |a, p| {
        let Action::Sample {
            probability,
            collector_set_id,
            obs_domain_id,
            obs_point_id,
            sampling_port,
            direction,
        } = *a
        else {
            return false;
        };
        put!(p.out, "sample(probability={probability},collector_set_id={collector_set_id}");
        put!(p.out, ",obs_domain_id={obs_domain_id},obs_point_id={obs_point_id}");
        if sampling_port != OfPort::NONE {
            p.word(",sampling_port=");
            p.port(sampling_port);
        }
        p.word(match direction {
            SampleDirection::Default => ")",
            SampleDirection::Ingress => ",ingress)",
            SampleDirection::Egress => ",egress)",
        });
        true
    },
    ..Row::PLAIN
};

fn read_sample(b: &mut Body, form: u8) -> Result<Action, ErrorKind> {
    let probability = b.u16()?;
    let (collector_set_id, obs_domain_id, obs_point_id) = (b.u32()?, b.u32()?, b.u32()?);
    let (mut sampling_port, mut direction) = (OfPort::NONE, SampleDirection::Default);
    if form > 1 {
        sampling_port = OfPort(b.u16()?);
        let number = if form == 3 { b.u8()? } else { 0 };
        direction = match number {
            0 => SampleDirection::Default,
            1 => SampleDirection::Ingress,
            2 => SampleDirection::Egress,
            _ => return Err(OFPBAC_BAD_ARGUMENT),
        };
        b.zero_rest()?;
    }
    if probability == 0 {
        return Err(OFPBAC_BAD_ARGUMENT);
    }
    Ok(Action::Sample {
        probability,
        collector_set_id,
        obs_domain_id,
        obs_point_id,
        sampling_port,
        direction,
    })
}

fn write_sample(out: &mut Vec<u8>, action: &Action) {
    if let Action::Sample { probability, collector_set_id, obs_domain_id, obs_point_id, .. } = action {
        out.u16(*probability);
        [collector_set_id, obs_domain_id, obs_point_id].into_iter().for_each(|n| out.u32(*n));
    }
}

/// As in Open vSwitch, a switch accepts it only with --enable-dummy.
pub(super) static DEBUG_RECIRC: Row = Row {
    name: "debug_recirc",
    syntax: "debug_recirc",
    summary: "For tests, with --enable-dummy alone: what follows waits until the datapath has read the packet \
              again.",
    place: Place::Lists,
    forms: &[nicira(255, |_| Ok(Action::DebugRecirc), |a, _| *a == Action::DebugRecirc)],
    words: &[word("debug_recirc", |_, _, _| Ok(Action::DebugRecirc))],
    ..Row::PLAIN
};

/// As in Open vSwitch, a switch accepts it only with --enable-dummy.
pub(super) static DEBUG_SLOW: Row = Row {
    name: "debug_slow",
    syntax: "debug_slow",
    summary: "For tests, with --enable-dummy alone: each packet of the flow is translated anew.",
    place: Place::Lists,
    forms: &[nicira(254, |_| Ok(Action::DebugSlow), |a, _| *a == Action::DebugSlow)],
    words: &[word("debug_slow", |_, _, _| Ok(Action::DebugSlow))],
    ..Row::PLAIN
};
