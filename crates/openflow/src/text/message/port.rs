//! Ports and their counters.

use super::words::MessageStyle;
use crate::message::{
    FRAME_COUNTERS, PortConfig, PortDesc, PortFeatures, PortState, PortStats, QueueConfig, QueueStats,
};
use crate::text::flow::write_duration;
use crate::text::value::write_ethernet;
use crate::text::{PortNames, put};
use crate::version::Version;

const CONFIG: [(PortConfig, &str); 7] = [
    (PortConfig::PORT_DOWN, "PORT_DOWN"),
    (PortConfig::NO_STP, "NO_STP"),
    (PortConfig::NO_RECV, "NO_RECV"),
    (PortConfig::NO_RECV_STP, "NO_RECV_STP"),
    (PortConfig::NO_FLOOD, "NO_FLOOD"),
    (PortConfig::NO_FWD, "NO_FWD"),
    (PortConfig::NO_PACKET_IN, "NO_PACKET_IN"),
];

const FEATURES: [(PortFeatures, &str); 16] = [
    (PortFeatures::MB10_HALF, "10MB-HD"),
    (PortFeatures::MB10_FULL, "10MB-FD"),
    (PortFeatures::MB100_HALF, "100MB-HD"),
    (PortFeatures::MB100_FULL, "100MB-FD"),
    (PortFeatures::GB1_HALF, "1GB-HD"),
    (PortFeatures::GB1_FULL, "1GB-FD"),
    (PortFeatures::GB10_FULL, "10GB-FD"),
    (PortFeatures::GB40_FULL, "40GB-FD"),
    (PortFeatures::GB100_FULL, "100GB-FD"),
    (PortFeatures::TB1_FULL, "1TB-FD"),
    (PortFeatures::OTHER, "OTHER"),
    (PortFeatures::COPPER, "COPPER"),
    (PortFeatures::FIBER, "FIBER"),
    (PortFeatures::AUTONEG, "AUTO_NEG"),
    (PortFeatures::PAUSE, "AUTO_PAUSE"),
    (PortFeatures::PAUSE_ASYM, "AUTO_PAUSE_ASYM"),
];

/// Appends names with blanks between, `0` for none, and a newline.
fn write_names<'a>(out: &mut String, names: impl Iterator<Item = &'a str>) {
    let names: Vec<&str> = names.collect();
    out.push_str(if names.is_empty() { "0" } else { "" });
    out.push_str(&names.join(" "));
    out.push('\n');
}

pub(super) fn write_config(out: &mut String, config: PortConfig) {
    write_names(out, CONFIG.iter().filter(|(c, _)| config.contains(*c)).map(|(_, name)| *name));
}

pub(super) fn write_features(out: &mut String, features: PortFeatures) {
    write_names(out, FEATURES.iter().filter(|(f, _)| features.contains(*f)).map(|(_, name)| *name));
}

fn write_state(out: &mut String, state: PortState) {
    let mut names = Vec::new();
    for (bit, name) in
        [(PortState::LINK_DOWN, "LINK_DOWN"), (PortState::BLOCKED, "BLOCKED"), (PortState::LIVE, "LIVE")]
    {
        if state.contains(bit) {
            names.push(name);
        }
    }
    match (state.contains(PortState::STP_LEARN), state.contains(PortState::STP_FORWARD)) {
        (true, true) => names.push("STP_BLOCK"),
        (true, false) => names.push("STP_LEARN"),
        (false, true) => names.push("STP_FORWARD"),
        (false, false) => {}
    }
    write_names(out, names.into_iter());
}

/// Appends the lines of a port's description.
pub fn write_port_desc(out: &mut String, desc: &PortDesc) {
    // The port's own name, rather than one from a map.
    put!(out, " {}({}): addr:", PortNames::none().text(desc.port), desc.name);
    write_ethernet(out, desc.hw_addr.iter().fold(0, |acc, b| acc << 8 | u64::from(*b)));
    out.push_str("\n     config:     ");
    write_config(out, desc.config);
    out.push_str("     state:      ");
    write_state(out, desc.state);
    let features = [
        ("current:    ", desc.current),
        ("advertised: ", desc.advertised),
        ("supported:  ", desc.supported),
        ("peer:       ", desc.peer),
    ];
    for (name, features) in features.into_iter().filter(|(_, f)| !f.is_empty()) {
        put!(out, "     {name}");
        write_features(out, features);
    }
    let (now, max) = (desc.current_speed_kbps / 1000, desc.max_speed_kbps / 1000);
    put!(out, "     speed: {now} Mbps now, {max} Mbps max\n");
}

/// Appends descriptions in the order of the ports' numbers.
pub(super) fn write_port_descs(out: &mut String, descs: &[PortDesc]) {
    let mut sorted: Vec<&PortDesc> = descs.iter().collect();
    sorted.sort_by_key(|desc| desc.port);
    for desc in sorted {
        write_port_desc(out, desc);
    }
}

fn write_counter(out: &mut String, name: &str, counter: u64, last: bool) {
    out.push_str(name);
    match counter {
        u64::MAX => out.push('?'),
        n => put!(out, "{n}"),
    }
    out.push_str(if last { "\n" } else { ", " });
}

pub(super) fn write_stats(out: &mut String, all: &[PortStats], version: Version, ports: &PortNames) {
    put!(out, " {} ports\n", all.len());
    for s in all {
        let name = ports.text(s.port);
        let pad = if s.port.0 < 10 { " " } else { "" };
        put!(out, "  port {pad}{name}: rx ");
        write_counter(out, "pkts=", s.rx_packets, false);
        write_counter(out, "bytes=", s.rx_bytes, false);
        write_counter(out, "drop=", s.rx_dropped, false);
        write_counter(out, "errs=", s.rx_errors, false);
        write_counter(out, "frame=", s.rx_frame_err, false);
        write_counter(out, "over=", s.rx_over_err, false);
        write_counter(out, "crc=", s.rx_crc_err, true);
        out.push_str("           tx ");
        write_counter(out, "pkts=", s.tx_packets, false);
        write_counter(out, "bytes=", s.tx_bytes, false);
        write_counter(out, "drop=", s.tx_dropped, false);
        write_counter(out, "errs=", s.tx_errors, false);
        write_counter(out, "coll=", s.collisions, true);
        if version >= Version::V13 && s.duration_s != u32::MAX {
            out.push_str("           duration=");
            write_duration(out, s.duration_s, s.duration_ns);
            out.push('\n');
        }
        write_frame_counters(out, &s.frames);
        write_custom_counters(out, &s.custom);
    }
}

/// The counters that are kept, a line for each direction. Two have the direction first, as in Open vSwitch.
fn write_frame_counters(out: &mut String, frames: &[u64; FRAME_COUNTERS.len()]) {
    for direction in ["rx", "tx"] {
        let kept = FRAME_COUNTERS.iter().zip(frames).filter(|(_, counter)| **counter != u64::MAX);
        let mut begun = false;
        for (name, counter) in kept {
            let Some(short) = name.strip_prefix(direction).and_then(|rest| rest.strip_prefix('_')) else {
                continue;
            };
            let name = if ["fragmented_errors", "jabber_errors"].contains(&short) { name } else { short };
            if !std::mem::replace(&mut begun, true) {
                put!(out, "           {direction} rfc2819 ");
            }
            put!(out, "{name}={counter}, ");
        }
        if begun {
            out.push('\n');
        }
    }
}

/// Three in a line.
fn write_custom_counters(out: &mut String, custom: &[(String, u64)]) {
    if custom.is_empty() {
        return;
    }
    out.push_str("           CUSTOM Statistics");
    for (n, (name, counter)) in custom.iter().enumerate().filter(|(_, (name, _))| !name.is_empty()) {
        out.push_str(if n % 3 == 0 { "\n                      " } else { " " });
        put!(out, "{name}={counter},");
    }
    out.push('\n');
}

pub(super) fn write_queue_stats(out: &mut String, all: &[QueueStats], ports: &PortNames) {
    put!(out, " {} queues\n", all.len());
    for s in all {
        put!(out, "  port {} queue {}: ", ports.text(s.port), s.queue_id);
        write_counter(out, "bytes=", s.tx_bytes, false);
        write_counter(out, "pkts=", s.tx_packets, false);
        write_counter(out, "errors=", s.tx_errors, false);
        out.push_str("duration=");
        write_duration(out, s.duration_s, s.duration_ns);
        out.push('\n');
    }
}

/// Queues with their rates, by number, after the port that they are of.
pub(super) fn queue_configs(out: &mut String, queues: &[QueueConfig], style: MessageStyle) {
    let mut sorted: Vec<&QueueConfig> = queues.iter().collect();
    sorted.sort_by_key(|queue| (queue.port, queue.queue_id));
    let mut port = None;
    for queue in sorted {
        if port != Some(queue.port) {
            put!(out, "{}port={}\n", if port.is_none() { " " } else { "" }, style.ports.text(queue.port));
            port = Some(queue.port);
        }
        put!(out, "queue {}:", queue.queue_id);
        for (name, rate) in [("min_rate", queue.min_rate), ("max_rate", queue.max_rate)] {
            if let Some(rate) = rate {
                match rate {
                    0..=1000 => put!(out, " {name}:{}.{}%", rate / 10, rate % 10),
                    _ => put!(out, " {name}:(disabled)"),
                }
            }
        }
        out.push('\n');
    }
}
