//! Protocol headers as they are on the wire: one file per protocol, nothing but bytes in and bytes out.
//!
//! Why it is separate: here no `unsafe` and no I/O exist, so whatever bytes a network or a guest sends,
//! the worst outcome is an error value.
//!
//! Each protocol file has the same order: byte ranges (`mod field`), checked view, getters, setters, the
//! parsed representation (`...Repr`) with `parse` and `emit`, tests on literal bytes.
//!
//! # Panic contract
//!
//! A view's `new` checks every length that its getters rely on, so getters and setters on a view never panic,
//! whatever the bytes are. A setter may make a header inconsistent (say, a longer header length than the
//! buffer): then parts of variable length are cut at the end of the buffer. `emit` into a buffer that is too
//! short is an error. Only a buffer whose `as_ref()` changes length between calls could panic.
//!
//! Invariants: no getter reads outside the buffer; every iterator over options, labels or extension headers
//! makes progress with each step or ends; `parse` of what `emit` wrote gives the same representation.
//! Threads: all types are plain values.

#[macro_use]
mod bytes;
mod error;
mod ids;
mod options;

pub mod arp;
pub mod checksum;
pub mod compose;
pub mod crc32c;
pub mod ethernet;
pub mod geneve;
pub mod gre;
pub mod icmp;
pub mod icmpv6;
pub mod igmp;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_ext;
pub mod layers;
pub mod mpls;
pub mod nd;
pub mod nsh;
pub mod sctp;
pub mod tcp;
pub mod udp;
pub mod vlan;
pub mod vxlan;

pub use compose::Compose;
pub use error::{Result, WireError};
pub use ids::{EthAddr, EtherType};
pub use ip::IpProtocol;
pub use layers::Layers;
pub use options::{OptionBytes, Options, TlvOption};
pub use vlan::VlanId;
