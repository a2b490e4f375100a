//! The traffic: 60-byte UDP frames, as a generator gives them without the frame check sequence, one address
//! pair a flow.

use crate::measure::rig::Rig;
use crate::measure::trial::{to_sink, write_frames};
use flow::{FieldId, Match};
use std::net::Ipv4Addr;
use std::path::Path;
use switch::control::FlowMod;
use wire::compose::Compose;
use wire::ethernet::EthAddr;

/// Destination of all frames.
pub const DST_MAC: EthAddr = EthAddr([2, 0, 0, 0, 0, 2]);
const SRC_MAC: EthAddr = EthAddr([2, 0, 0, 0, 0, 1]);

/// The order of flows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// One after the other.
    Sequential,
    /// In a random order, the same in every run.
    Shuffled,
}

/// Source and destination address of flow `n`.
pub fn addresses(n: usize) -> (Ipv4Addr, Ipv4Addr) {
    let n = n as u32;
    (Ipv4Addr::from_bits(0x0a00_0000 + n), Ipv4Addr::from_bits(0x0b00_0000 + (n ^ 0x55)))
}

/// `ip,in_port=1,nw_src=..,nw_dst=..` of flow `n`.
pub fn exact_match(n: usize) -> Match {
    let (src, dst) = addresses(n);
    Match::any()
        .with(FieldId::InPort, 1)
        .with(FieldId::EthType, 0x0800)
        .with(FieldId::NwSrc, src.to_bits().into())
        .with(FieldId::NwDst, dst.to_bits().into())
}

/// The frame of flow `n`, as short as frames are.
pub fn frame(n: usize) -> Vec<u8> {
    frame_of(n, 60)
}

/// The frame of flow `n`, of `len` bytes.
pub fn frame_of(n: usize, len: usize) -> Vec<u8> {
    let (src, dst) = addresses(n);
    let udp = Compose::ethernet(SRC_MAC, DST_MAC).ipv4(src, dst).udp(1024, 1025).udp_checksum_zero();
    udp.frame_len(len).build().expect("headers of 42 bytes in a frame of 60 or more")
}

/// The numbers of the flows in their order.
pub fn sequence(flows: usize, order: Order) -> Vec<usize> {
    let mut numbers: Vec<usize> = (0..flows).collect();
    if order == Order::Shuffled {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        for i in (1..flows).rev() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            numbers.swap(i, (state % (i as u64 + 1)) as usize);
        }
    }
    numbers
}

/// Writes one frame per flow into a capture file.
pub fn write_pcap(path: &Path, flows: usize, order: Order) -> Result<(), String> {
    write_pcap_of(path, flows, order, 60)
}

/// The same with frames of `len` bytes.
pub fn write_pcap_of(path: &Path, flows: usize, order: Order, len: usize) -> Result<(), String> {
    write_frames(path, sequence(flows, order).into_iter().map(|n| frame_of(n, len)))
}

/// Adds a rule of its own for each of so many flows, and lets the control thread have its turns in between.
pub fn add_exact_rules(rig: &mut Rig, flows: usize) -> Result<(), String> {
    let numbers: Vec<usize> = (0..flows).collect();
    for some in numbers.chunks(10_000) {
        let mods: Vec<FlowMod> = some.iter().map(|n| FlowMod::add(exact_match(*n), to_sink())).collect();
        rig.add_rules(&mods)?;
        rig.pump();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffling_keeps_every_flow_once() {
        let mut s = sequence(1000, Order::Shuffled);
        assert_ne!(s, sequence(1000, Order::Sequential));
        s.sort_unstable();
        assert_eq!(s, sequence(1000, Order::Sequential));
    }

    #[test]
    fn flows_have_addresses_of_their_own() {
        let pairs: std::collections::HashSet<_> = (0..100_000).map(addresses).collect();
        assert_eq!(pairs.len(), 100_000);
        assert_eq!(frame(5).len(), 60);
    }
}
