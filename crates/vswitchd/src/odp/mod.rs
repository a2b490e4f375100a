//! The text form of the datapath's flows and actions, as `dpctl/dump-flows` shows them and
//! `netdev-dummy/receive` takes them:
//! `in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,frag=no), packets:1, ..., actions:2`.
//!
//! It is an interface that scripts read. Source: ovs-dpctl(8) and the output of Open vSwitch 3.1.

mod actions;
mod flow;
mod frame;

pub use actions::{ActionContext, actions};
pub use flow::flow;
pub use frame::{BadFrame, frame, frame_of_len};

use ::flow::{FieldId, Mask};
use base::PortNo;

/// How ports are shown: by number, or by name where one is known.
pub type PortNames<'a> = &'a dyn Fn(PortNo) -> Option<String>;

/// Shows ports by number.
pub fn numbers(_: PortNo) -> Option<String> {
    None
}

/// The mask of a packet of which everything matters.
pub fn exact_mask() -> Mask {
    let mut mask = Mask::wild();
    FieldId::ALL.iter().for_each(|field| mask.add_exact(*field));
    mask
}

fn port(port: PortNo, names: PortNames<'_>) -> String {
    names(port).unwrap_or_else(|| port.to_string())
}

/// A number in hexadecimal with `0x`, zero without.
fn hex(value: u128) -> String {
    if value == 0 { "0".into() } else { format!("{value:#x}") }
}

fn mac(value: u128) -> String {
    let b = (value as u64).to_be_bytes();
    format!("{:02x}:{:02x}:{:02x}:{:02x}:{:02x}:{:02x}", b[2], b[3], b[4], b[5], b[6], b[7])
}

fn ipv4(value: u128) -> String {
    std::net::Ipv4Addr::from(value as u32).to_string()
}

fn ipv6(value: u128) -> String {
    std::net::Ipv6Addr::from(value).to_string()
}

/// The flags of TCP, lowest bit first.
const TCP_FLAGS: [&str; 9] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns"];

/// `syn|ack` or `-fin+syn+ack` as a number; `None` where that is no list of flags.
fn tcp_flags_of(text: &str) -> Option<u16> {
    let bit = |name: &str| Some(1 << TCP_FLAGS.iter().position(|flag| *flag == name.trim())?);
    if !text.starts_with(['+', '-']) {
        return text.split(['|', ',']).try_fold(0, |flags, name| Some(flags | bit(name)?));
    }
    text.split_inclusive(['+', '-']).zip(text.split(['+', '-']).skip(1)).try_fold(0, |flags, (sign, name)| {
        let bit: u16 = bit(name)?;
        Some(if sign.ends_with('+') { flags | bit } else { flags })
    })
}

/// Flags of TCP by name, as they stand where all of them matter.
fn tcp_flags(value: u128) -> String {
    let names = TCP_FLAGS.iter().enumerate().filter(|(bit, _)| value >> bit & 1 == 1).map(|(_, name)| *name);
    match names.collect::<Vec<_>>().join("|") {
        text if text.is_empty() => hex(value),
        text => text,
    }
}

fn decimal(value: u128) -> String {
    value.to_string()
}
