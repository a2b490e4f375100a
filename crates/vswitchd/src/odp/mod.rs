//! The text form of the datapath's flows and actions, as `dpctl/dump-flows` shows them and `netdev-dummy/receive`
//! takes them: `in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,frag=no), packets:1, ..., actions:2`.
//!
//! It is an interface that scripts read. Source: ovs-dpctl(8) and the output of Open vSwitch 3.1.

mod actions;
mod flow;
mod frame;

pub use actions::{ActionContext, actions};
pub use flow::flow;
pub use frame::{BadFrame, frame};

use base::PortNo;

/// How ports are shown: by number, or by name where one is known.
pub type PortNames<'a> = &'a dyn Fn(PortNo) -> Option<String>;

/// Shows ports by number.
pub fn numbers(_: PortNo) -> Option<String> {
    None
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

fn decimal(value: u128) -> String {
    value.to_string()
}
