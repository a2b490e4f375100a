//! Packets of connections with a helper: the connections that they announce become expected, and the
//! addresses in their payload are translated like those in their headers.
//!
//! 1. A line of FTP, or a request of TFTP, is read ([`super::helper`]). A line that would make the other end
//!    connect to a third host is invalid.
//! 2. The connection that it announces becomes expected ([`super::expect`]), with the translation that leads
//!    it to the real address of the parent's end.
//! 3. If the parent is translated, the address in the line becomes the one that the other end knows. If
//!    another connection already expects that port, another port is used.
//! 4. TCP's sequence numbers follow the changed lengths ([`super::adjust`]).
//!
//! The payload of fragments and of frames of several chunks is not read: no line is that long. Their sequence
//! numbers are still adjusted. Threads: the worker that has the packet.

use super::adjust::Adjustment;
use super::expect::{Expected, Redirect};
use super::helper::{self, Announcement, Parsed};
use super::request::{Helper, Request, Side};
use super::track::{Helped, Moment};
use super::tuple::{TCP, Tuple, UDP};
use super::{Tracker, Tracking, state};
use packet::Packet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::Ordering::Relaxed;
use wire::Layers;
use wire::checksum::{checksum, pseudo_v4, pseudo_v6, update32};
use wire::ip::IpProtocol;

/// How many ports are tried in place of one that another connection expects.
const PORTS_TRIED: u16 = 16;
/// A header of TCP without options.
const TCP_LEN: usize = 20;

/// A connection, as its helper needs it.
struct Parent {
    forward: Tuple,
    reverse: Tuple,
    zone: u16,
    /// Which of its ends is translated.
    side: Option<Side>,
}

impl Parent {
    /// The connection to expect when an end announces that the other may connect to its port.
    fn expected(&self, helped: &Helped, port: u16, real_port: u16) -> Expected {
        let (forward, reverse) = (&self.forward, &self.reverse);
        let (from, to) = match helped.is_reply {
            // The client connects to the server's address as the client knows it.
            true => (forward.src, forward.dst),
            // The server connects to the client's address as the server knows it.
            false => (reverse.src, reverse.dst),
        };
        let redirect = self.side.map(|side| match (helped.is_reply, side) {
            (true, Side::Dst) => Redirect { side: Side::Dst, address: reverse.src, port: Some(real_port) },
            (true, Side::Src) => Redirect { side: Side::Src, address: reverse.dst, port: None },
            (false, Side::Src) => Redirect { side: Side::Dst, address: forward.src, port: Some(real_port) },
            (false, Side::Dst) => Redirect { side: Side::Src, address: forward.dst, port: None },
        });
        let tuple = Tuple { src: from, dst: to, src_port: 0, dst_port: port, ..*forward };
        let parent = (helped.entry, helped.generation);
        Expected { tuple, zone: self.zone, parent, redirect, expires_ms: 0 }
    }

    /// The address of the packet's sender, and the address under which the other end knows the sender.
    fn own_address(&self, is_reply: bool) -> (u128, u128) {
        match is_reply {
            true => (self.reverse.src, self.forward.dst),
            false => (self.forward.src, self.reverse.dst),
        }
    }
}

impl Tracker {
    /// How the sequence numbers of a connection's ends are shifted.
    pub(super) fn adjustments(&self, entry: u32) -> [Adjustment; 2] {
        match self.entry(entry).annex() {
            (0, _) => Default::default(),
            (annex, _) => self.entry(annex).adjustments(),
        }
    }

    /// The annex of a connection with a helper; allocates one if it has none. `None` if no entry is left or
    /// the connection is over.
    pub(super) fn annex_of(&self, helped: &Helped) -> Option<u32> {
        let entry = self.entry(helped.entry);
        let (annex, policy) = entry.annex();
        if annex != 0 {
            return Some(annex);
        }
        let shard = Tracker::shard_of(helped.entry);
        let mut lists = self.shard(shard);
        let new = lists.take(&self.entries, |number| self.block(shard, number))?;
        // It has no parent, or there was no room to keep whose it is.
        self.entry(new).set_forward(&entry.forward().packed(entry.zone()));
        self.entry(new).set_adjustments(&Default::default());
        let had = entry.hold(helped.generation).map(|held| {
            let (annex, _) = held.annex();
            if annex == 0 {
                held.set_state(held.traits(), new, policy);
            }
            annex
        });
        if had != Some(0) {
            lists.give_back(new, &self.entries);
        }
        had.map(|annex| if annex == 0 { new } else { annex })
    }

    /// Runs the helper on a packet whose addresses have been translated.
    pub(super) fn help(
        &self,
        helped: &Helped,
        packet: &mut Packet,
        layers: &Layers,
        request: &Request,
        tracking: &mut Tracking,
        moment: &Moment<'_>,
    ) {
        let entry = self.entry(helped.entry);
        let (forward, reverse, zone) = entry.tuples();
        let translated = tracking.state & (state::SRC_NAT | state::DST_NAT) != 0;
        let parent = Parent { forward, reverse, zone, side: self.side_of(helped.entry) };
        if !entry.is_still(helped.generation) {
            return;
        }
        if packet.is_chained() {
            return self.help_unread(helped, packet, layers, request);
        }
        match helped.helper {
            Helper::Tftp => {
                let payload = payload(packet, layers);
                if !helped.is_reply && helper::is_tftp_request(payload) && forward.protocol == UDP {
                    let expected = parent.expected(helped, reverse.dst_port, forward.src_port);
                    self.expect(expected, moment.now_ms);
                }
            }
            Helper::Ftp if forward.protocol == TCP => {
                let rewrites = request.nat.is_some() && translated;
                let by = match helper::ftp(payload(packet, layers), !helped.is_reply) {
                    Parsed::Other => 0,
                    Parsed::Bad => self.refuse_line(tracking),
                    Parsed::Is(line) => {
                        match self.announced(&line, helped, &parent, rewrites, moment.now_ms) {
                            None => self.refuse_line(tracking),
                            Some(text) => rewrite(packet, layers, &line, &text),
                        }
                    }
                };
                if request.nat.is_some() {
                    self.adjust(helped, packet, layers, by);
                }
            }
            Helper::Ftp => {}
        }
    }

    /// Handles a packet whose lines are not read because none is that long: a frame of several chunks, or the
    /// first fragment of a datagram. Its sequence numbers are still shifted by earlier changes.
    pub(super) fn help_unread(
        &self,
        helped: &Helped,
        packet: &mut Packet,
        layers: &Layers,
        request: &Request,
    ) {
        let is_tcp = self.entry(helped.entry).forward().protocol == TCP;
        if helped.helper == Helper::Ftp && is_tcp && request.nat.is_some() {
            self.adjust(helped, packet, layers, 0);
        }
    }

    /// Adds an expected connection. False if another connection expects the same.
    fn expect(&self, expected: Expected, now_ms: u64) -> bool {
        self.expected
            .put(expected, &self.secret, now_ms, |(idx, generation)| self.entry(idx).is_still(generation))
    }

    /// Marks a packet as invalid because of its payload. The length does not change.
    fn refuse_line(&self, tracking: &mut Tracking) -> i32 {
        self.figures.lines.fetch_add(1, Relaxed);
        tracking.state = state::INVALID | state::TRACKED;
        0
    }

    /// Makes the connection that a line announces expected. Returns the new line; `None` if it announces
    /// another host's address.
    fn announced(
        &self,
        line: &Announcement,
        helped: &Helped,
        parent: &Parent,
        rewrites: bool,
        now_ms: u64,
    ) -> Option<helper::Text> {
        let (real, known) = parent.own_address(helped.is_reply);
        if let Some(address) = line.address
            && (line.is_ipv6 != parent.forward.is_ipv6 || address != real && address != known)
        {
            return None;
        }
        let shown = if rewrites { known } else { line.address.unwrap_or(known) };
        let tries = if rewrites { PORTS_TRIED } else { 1 };
        let ports = (0..tries).filter_map(|n| line.port.checked_add(n));
        for port in ports {
            let expected = parent.expected(helped, port, line.port);
            if self.expect(expected, now_ms) {
                return Some(line.with(shown, port));
            }
        }
        Some(line.with(shown, line.port))
    }

    /// Shifts sequence numbers by earlier changes, and records by how much this packet became longer.
    fn adjust(&self, helped: &Helped, packet: &mut Packet, layers: &Layers, by: i32) {
        let tcp = usize::from(layers.l4);
        let Some(seq) = be32(packet.data(), tcp + 4) else { return };
        let (own, other) = (usize::from(helped.is_reply), usize::from(!helped.is_reply));
        if by != 0 && self.annex_of(helped).is_some() {
            // Read under the lock, because a packet from the other end may change them at the same moment.
            if let Some(held) = self.entry(helped.entry).hold(helped.generation) {
                let mut both = self.adjustments(helped.entry);
                both[own].lengthen(seq, by);
                let (annex, _) = held.annex();
                self.entry(annex).set_adjustments(&both);
            }
        }
        let both = self.adjustments(helped.entry);
        if both.iter().all(Adjustment::is_none) {
            return;
        }
        // Only the head of a frame of several chunks is here, so the checksum is updated word by word.
        let mut change = |at: usize, shift: &dyn Fn(u32) -> u32| {
            let Some(old) = be32(packet.data(), at) else { return };
            shift_number(packet, (tcp, at), old, shift(old));
        };
        change(tcp + 4, &|seq| both[own].sent(seq));
        change(tcp + 8, &|ack| both[other].acknowledged(ack));
        for at in sacks(packet.data(), tcp, usize::from(layers.payload)) {
            let Some(old) = be32(packet.data(), at) else { return };
            shift_number(packet, (tcp, at), old, both[other].acknowledged(old));
        }
    }
}

/// Changes a number in a TCP header, and the checksum that covers it if that is finished.
fn shift_number(packet: &mut Packet, (tcp, at): (usize, usize), old: u32, new: u32) {
    let is_finished = packet.unfinished_checksum() != Some(tcp + 16);
    let bytes = packet.data_mut();
    bytes[at..at + 4].copy_from_slice(&new.to_be_bytes());
    let Some(&sum) = bytes.get(tcp + 16..).and_then(|rest| rest.first_chunk()) else { return };
    if is_finished {
        // At an odd position in an option, the number's bytes straddle the checksum's words.
        let turned = |number: u32| if (at - tcp) % 2 == 1 { number.rotate_left(8) } else { number };
        let sum = update32(u16::from_be_bytes(sum), turned(old), turned(new));
        bytes[tcp + 16..tcp + 18].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Positions of a segment's selective acknowledgements (RFC 2018): four bytes each, at most eight.
fn sacks(bytes: &[u8], tcp: usize, payload: usize) -> arrayvec::ArrayVec<usize, 8> {
    let mut found = arrayvec::ArrayVec::new();
    let mut at = tcp + TCP_LEN;
    while at + 1 < payload.min(bytes.len()) {
        let len = match bytes[at] {
            0 => break,
            1 => 1,
            _ => usize::from(bytes[at + 1]).max(2),
        };
        let end = at + len;
        if bytes[at] == 5 && end <= payload {
            found.extend((at + 2..end.saturating_sub(3)).step_by(4).take(8));
            break;
        }
        at = end;
    }
    found
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// What follows the transport header; empty if its position is unknown.
fn payload<'a>(packet: &'a Packet, layers: &Layers) -> &'a [u8] {
    let bytes = packet.data();
    let start = match layers.protocol {
        UDP => usize::from(layers.l4) + 8,
        _ => usize::from(layers.payload),
    };
    let end = layers.end(bytes).min(bytes.len());
    if layers.l4 == 0 || start == 0 { &[] } else { bytes.get(start..end).unwrap_or_default() }
}

/// Replaces the text in a line. Returns by how much the packet became longer; 0 also if the new text would
/// not fit.
fn rewrite(packet: &mut Packet, layers: &Layers, line: &Announcement, text: &[u8]) -> i32 {
    let start = usize::from(layers.payload);
    let (from, to) = (start + line.text.start, start + line.text.end);
    if packet.data().get(from..to).is_none_or(|old| old == text) {
        return 0;
    }
    // Everything after the IP packet is padding.
    let end = layers.end(packet.data()).min(packet.data().len());
    let (old_len, by) = (to - from, text.len() as i32 - (to - from) as i32);
    let new_end = end - old_len + text.len();
    if packet.set_len(end.max(new_end)).is_none() {
        return 0;
    }
    let bytes = packet.data_mut();
    bytes.copy_within(to..end, from + text.len());
    bytes[from..from + text.len()].copy_from_slice(text);
    let l3 = usize::from(layers.l3);
    if layers.is_ipv6() {
        let len = (new_end - l3 - 40) as u16;
        bytes[l3 + 4..l3 + 6].copy_from_slice(&len.to_be_bytes());
    } else {
        let len = (new_end - l3) as u16;
        bytes[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
        bytes[l3 + 10..l3 + 12].fill(0);
        let header_len = usize::from(bytes[l3] & 0xf) * 4;
        let sum = checksum(&bytes[l3..l3 + header_len]);
        bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    // Truncates the frame if it became shorter.
    let _ = packet.set_len(new_end);
    // No header has moved: the text is behind them.
    sum_tcp(packet, layers);
    by
}

/// Recomputes a segment's checksum; if it is unfinished, only the pseudo-header's sum.
fn sum_tcp(packet: &mut Packet, layers: &Layers) {
    let unfinished = packet.unfinished_checksum();
    let (l3, l4, end) =
        (usize::from(layers.l3), usize::from(layers.l4), layers.end(packet.data()).min(packet.data().len()));
    let bytes = packet.data_mut();
    if l4 == 0 || l4 + TCP_LEN > end {
        return;
    }
    let pseudo = if layers.is_ipv6() {
        let at =
            |at: usize| -> Ipv6Addr { <[u8; 16]>::try_from(&bytes[at..at + 16]).unwrap_or_default().into() };
        pseudo_v6(at(l3 + 8), at(l3 + 24), IpProtocol(TCP), (end - l4) as u32)
    } else {
        let at =
            |at: usize| -> Ipv4Addr { <[u8; 4]>::try_from(&bytes[at..at + 4]).unwrap_or_default().into() };
        pseudo_v4(at(l3 + 12), at(l3 + 16), IpProtocol(TCP), (end - l4) as u16)
    };
    bytes[l4 + 16..l4 + 18].fill(0);
    let sum =
        if unfinished == Some(l4 + 16) { pseudo.fold() } else { pseudo.bytes(&bytes[l4..end]).finish() };
    bytes[l4 + 16..l4 + 18].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::seen;
    use super::*;
    use crate::edit::layers_of;
    use crate::packet_type;
    use packet::{Pool, PoolConfig};
    use wire::compose::Compose;
    use wire::ethernet::EthAddr;

    #[test]
    fn a_line_in_a_packet_without_an_ethernet_header_is_rewritten_and_its_checksums_are_right() {
        let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]))
            .ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let frame = compose.tcp(1000, 21).payload(b"PORT 10,0,0,1,4,1\r\n").build().unwrap();
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        for header_len in [0, 14] {
            let mut packet = cache.alloc_frame(&frame[14 - header_len..]).unwrap();
            let ethernet = header_len != 0;
            let kind = if ethernet { packet_type::ETHERNET } else { packet_type::of_eth_type(0x800) };
            let mut layers = layers_of(&packet, kind);
            layers.know(packet.data(), packet.len(), 2);
            let Parsed::Is(line) = helper::ftp(payload(&packet, &layers), true) else { panic!("a line") };
            assert_eq!(rewrite(&mut packet, &layers, &line, b"192,168,0,1,4,1"), 3);
            assert_eq!(payload(&packet, &layers), b"PORT 192,168,0,1,4,1\r\n");
            assert_eq!(packet.len(), frame.len() + 3 - (14 - header_len));
            assert!(seen::read(&packet, &layers, false).is_some(), "its checksums are wrong");
            cache.free(packet);
        }
    }
}
