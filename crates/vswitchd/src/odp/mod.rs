//! The text form of the datapath's flows and actions, in the format of `dpctl/dump-flows` and
//! `netdev-dummy/receive`: `in_port(1),eth_type(0x0800),ipv4(src=10.0.0.1,frag=no), packets:1, ...,
//! actions:2`.
//!
//! Scripts read it, so it is an interface. Source: ovs-dpctl(8) and the output of Open vSwitch 3.1.

mod actions;
mod attributes;
mod flow;
mod frame;
mod read;
mod words;

pub use actions::{ActionContext, actions};
pub use attributes::BadFrame;
pub use flow::{flow, hand_flow, packet, ufid};
pub use frame::{frame, frame_of_len, payload};
pub use read::{PortByName, metadata, read_actions, read_flow};
pub use words::{PortNames, numbers};
