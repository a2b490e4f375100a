//! What a sender leaves to its device, done in software: transport checksums and segmentation.
//!
//! Inside one machine, checksums that will not be checked are not finished: the kernel passes a packet from
//! one virtual device to the next with the folded sum of the pseudo-header in the checksum field and a note
//! outside the packet (CHECKSUM_PARTIAL). XDP delivers the packet without the note. So an unfinished checksum
//! is recognised here by its value, and from then on the note travels in [`PacketFlags::CSUM_PARTIAL`]: a
//! port that can pass it on does so, and one that cannot calls [`complete_checksum`].
//!
//! Why the value suffices: let P be the folded pseudo-header sum and R the sum of the rest of the segment
//! without its checksum field. An unfinished packet has P in the field and needs ~(P + R). A finished one has
//! ~(P + R); if that happens to equal P (one packet in 65,536), finishing it again yields ~(P + R), which is
//! what is there. So the comparison with P needs no second look at the payload: where it is wrong, it does no
//! harm.
//!
//! A UDP checksum of zero means "none" and is left alone: P is never zero, because the protocol number is
//! not.
//!
//! The same holds inside a tunnel: a host that encapsulates leaves the inner checksum to the device, and
//! computes the outer one so that it will be correct afterwards. So packets to the ports of VXLAN and Geneve
//! are parsed. SCTP's checksum, a CRC, is left as zero, and none of our ports can pass that on: it is
//! finished wherever it is found.
//!
//! [`tunnel`] cuts up segments within a tunnel.
//!
//! Source: RFC 1071, RFC 768, RFC 9293, RFC 9260, RFC 7348, RFC 8926; Linux's
//! Documentation/networking/checksum-offloads.rst.

pub mod tunnel;

use packet::pool::HEADROOM_BYTES;
use packet::{Packet, PacketFlags, PoolCache};
use std::ops::Range;
use wire::Layers;
use wire::checksum::{Sum, nonzero};
use wire::crc32c::Crc32c;
use wire::layers::ALL_TAGS;
use wire::nsh::{NshHeader, next_protocol};

const ETHERNET_HEADER: usize = 14;
const ETH_IPV4: u16 = 0x0800;
const ETH_IPV6: u16 = 0x86dd;
/// An Ethernet frame, as tunnels name it.
const ETH_BRIDGED: u16 = 0x6558;
const ETH_MPLS: u16 = 0x8847;
const ETH_MPLS_MULTICAST: u16 = 0x8848;
const ETH_NSH: u16 = 0x894f;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// The longest headers that are copied before each segment of a packet. They fit into a chunk with room for
/// payload, and [`chunks_after_segmentation`] counts on no longer ones. A guest may well make longer ones, of
/// IPv6 options; TCP and UDP senders do not.
const HEADERS_MAX: usize = 512;

/// The layers of a complete TCP, UDP or SCTP packet that starts at `start`. `None` for everything else,
/// including fragments and truncated packets.
#[inline(always)]
fn find_transport(packet: &Packet, start: usize) -> Option<Layers> {
    let len = packet.len().checked_sub(start)?;
    let layers = Layers::of(packet.data().get(start..)?, len, ALL_TAGS)?;
    has_transport(&layers).then(|| layers.shifted(start as isize))
}

#[inline(always)]
fn has_transport(layers: &Layers) -> bool {
    matches!(layers.protocol, TCP | UDP | SCTP) && layers.payload != 0 && !layers.is_fragment()
}

/// Offset of the checksum in the transport header.
pub(crate) fn checksum_offset(layers: &Layers) -> usize {
    if layers.protocol == TCP { 16 } else { 6 }
}

/// The sum of the pseudo-header for `len` bytes of transport header and payload, unless a routing header has
/// the destination that belongs there ([`Layers::is_routed`]).
#[inline(always)]
fn pseudo_sum(frame: &[u8], layers: &Layers, len: usize) -> Option<Sum> {
    let l3 = usize::from(layers.l3);
    let addresses = if layers.is_ipv6() { l3 + 8..l3 + 40 } else { l3 + 12..l3 + 20 };
    Some(Sum::new().bytes(frame.get(addresses)?).u32(len as u32).u16(u16::from(layers.protocol)))
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Marks a packet whose checksum its sender left unfinished, and one longer than a frame (`frame_max` bytes
/// without VLAN tag) that it left to segmentation. For drivers that get packets without the kernel's notes.
#[inline]
pub fn recognise_unfinished(packet: &mut Packet, frame_max: u32) {
    let Some(layers) = find_transport(packet, 0) else { return };
    if !is_unfinished(packet.data(), &layers) {
        if layers.protocol != TCP {
            recognise_uncommon(packet, &layers);
        }
        return;
    }
    mark_unfinished(packet, &layers);
    if packet.len() > frame_max as usize {
        recognise_segmentation(packet, &layers, frame_max as usize);
    }
}

/// Whether the checksum field holds the sum of the pseudo-header.
#[inline(always)]
fn is_unfinished(frame: &[u8], layers: &Layers) -> bool {
    let l4 = usize::from(layers.l4);
    let Some(field) = be16(frame, l4 + checksum_offset(layers)) else { return false };
    let pseudo = pseudo_sum(frame, layers, layers.end(frame) - l4);
    layers.protocol != SCTP && !layers.is_routed() && pseudo.is_some_and(|pseudo| pseudo.fold() == field)
}

fn mark_unfinished(packet: &mut Packet, layers: &Layers) {
    packet.csum_start = layers.l4;
    packet.csum_offset = checksum_offset(layers) as u8;
    packet.flags.set(PacketFlags::CSUM_PARTIAL);
}

/// The rare cases that are not TCP: an SCTP checksum to finish, or a tunnel to parse.
#[inline]
fn recognise_uncommon(packet: &mut Packet, layers: &Layers) {
    if layers.protocol == SCTP {
        return finish_sctp(packet, layers);
    }
    let Some(port) = be16(packet.data(), usize::from(layers.l4) + 2) else { return };
    if matches!(port, VXLAN_PORT | VXLAN_PORT_OF_LINUX | GENEVE_PORT) {
        recognise_inner(packet, layers.payload.into(), port);
    }
}

const VXLAN_PORT: u16 = 4789;
/// The port that Linux used before one was assigned, and still uses by default.
const VXLAN_PORT_OF_LINUX: u16 = 8472;
const GENEVE_PORT: u16 = 6081;

#[cold]
fn recognise_inner(packet: &mut Packet, tunnel: usize, port: u16) {
    let Some(header) = packet.data().get(tunnel..tunnel + 8) else { return };
    let inner = if port == GENEVE_PORT {
        if u16::from_be_bytes([header[2], header[3]]) != ETH_BRIDGED {
            return;
        }
        tunnel + 8 + usize::from(header[0] & 0x3f) * 4
    } else {
        const VNI_VALID: u8 = 0x08;
        if header[0] & VNI_VALID == 0 {
            return;
        }
        tunnel + 8
    };
    let Some(layers) = find_transport(packet, inner) else { return };
    if is_unfinished(packet.data(), &layers) {
        mark_unfinished(packet, &layers);
    }
}

/// Whether a checksum that starts at `start`, with its field `offset` bytes behind that, is the one of the
/// TCP or UDP header that a frame (`frame_len` bytes that begin with `head`) is classified by. Such a field
/// is matched by nothing; any other may be part of what is.
#[inline]
pub fn is_transport_checksum(head: &[u8], frame_len: usize, start: usize, offset: usize) -> bool {
    is_plain_transport_checksum(head, start, offset) == Some(true)
        || is_any_transport_checksum(head, frame_len, start, offset)
}

/// The same for a header directly behind IPv4 without options or IPv6. Their lengths do not matter: if they
/// are wrong, there is even less to match.
#[inline(always)]
fn is_plain_transport_checksum(head: &[u8], start: usize, offset: usize) -> Option<bool> {
    let link = Layers::of_link(head, ALL_TAGS)?;
    let ip = head.get(usize::from(link.l2_5)..)?.first_chunk::<20>()?;
    let (header_len, protocol) = match link.eth_type {
        // Not a fragment: bits "more fragments" and the offset are zero.
        ETH_IPV4 if ip[0] == 0x45 && u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0 => (20, ip[9]),
        ETH_IPV6 => (40, ip[6]),
        _ => return None,
    };
    let is_its_field = matches!((protocol, offset), (TCP, 16) | (UDP, 6));
    Some(is_its_field && usize::from(link.l2_5) + header_len == start)
}

#[cold]
fn is_any_transport_checksum(head: &[u8], frame_len: usize, start: usize, offset: usize) -> bool {
    let layers = Layers::of(head, frame_len, ALL_TAGS).filter(has_transport);
    layers.is_some_and(|layers| is_checksum_of(&layers, start, offset))
}

/// The same for one behind MPLS labels or NSH headers, for a segment that [`segment`] will cut up.
#[cold]
pub fn is_checksum_behind_labels(packet: &Packet, start: u16, offset: usize) -> bool {
    let layers = find_behind_labels(packet, start);
    layers.is_some_and(|layers| is_checksum_of(&layers, start.into(), offset))
}

fn is_checksum_of(layers: &Layers, start: usize, offset: usize) -> bool {
    layers.protocol != SCTP && usize::from(layers.l4) == start && checksum_offset(layers) == offset
}

/// The layers of a complete TCP or UDP packet whose checksum sums up its own addresses.
#[cold]
pub fn transport_of(packet: &Packet) -> Option<Layers> {
    find_transport(packet, 0).filter(|layers| layers.protocol != SCTP && !layers.is_routed())
}

/// Makes the right checksum of a packet with these layers ([`transport_of`]) an unfinished one.
#[cold]
pub fn unfinish_checksum(packet: &mut Packet, layers: &Layers) {
    let l4 = usize::from(layers.l4);
    let len = layers.end(packet.data()) - l4;
    if let Some(pseudo) = pseudo_sum(packet.data(), layers, len) {
        put16(packet.data_mut(), l4 + checksum_offset(layers), pseudo.fold());
        mark_unfinished(packet, layers);
    }
}

/// Finishes the CRC of an SCTP packet whose transport header is at `csum_start`. False for every other.
#[cold]
pub fn finish_crc(packet: &mut Packet, csum_start: u16) -> bool {
    let layers = find_transport(packet, 0);
    let layers = layers.filter(|layers| layers.protocol == SCTP && layers.l4 == csum_start);
    layers.inspect(|layers| finish_sctp(packet, layers)).is_some()
}

/// Computes the CRC of an SCTP packet whose field is zero. A finished packet whose CRC is zero keeps it.
#[cold]
fn finish_sctp(packet: &mut Packet, layers: &Layers) {
    let l4 = usize::from(layers.l4);
    let field = l4 + 8..l4 + 12;
    if packet.data().get(field.clone()) != Some(&[0; 4]) {
        return;
    }
    let mut crc = Crc32c::new();
    let mut left = layers.end(packet.data()) - l4;
    for (n, segment) in packet.segments().enumerate() {
        let bytes = if n == 0 { segment.get(l4..).unwrap_or_default() } else { segment };
        let bytes = &bytes[..bytes.len().min(left)];
        crc = crc.bytes(bytes);
        left -= bytes.len();
    }
    // RFC 9260 appendix A: the CRC is sent with its least significant byte first.
    packet.data_mut()[field].copy_from_slice(&crc.finish().to_le_bytes());
}

/// A TCP packet that no link would take: its sender counts on segmentation. The size of the segments was in a
/// note that is lost; the MTU bounds it.
#[cold]
fn recognise_segmentation(packet: &mut Packet, layers: &Layers, frame_max: usize) {
    if layers.protocol != TCP || !is_longer_than(packet, frame_max) {
        return;
    }
    let tags = usize::from(layers.l2_5) - ETHERNET_HEADER;
    let size = (frame_max + tags).checked_sub(layers.payload.into()).filter(|size| *size > 0);
    let Some(gso_size) = size else { return };
    packet.gso_size = gso_size.min(usize::from(u16::MAX)) as u16;
    packet.flags.set(PacketFlags::GSO_TCP);
}

/// Whether a frame is longer than `frame_max` bytes, not counting one VLAN tag, like the kernel's devices.
pub fn is_longer_than(packet: &Packet, frame_max: usize) -> bool {
    let tagged = matches!(packet.data().get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
    packet.len() > frame_max + if tagged { 4 } else { 0 }
}

/// Whether the packet must be segmented before a device that cannot do so itself sends it.
#[inline(always)]
pub fn is_segmentation_pending(packet: &Packet) -> bool {
    packet.gso_size > 0 && (packet.flags.has(PacketFlags::GSO_TCP) || packet.flags.has(PacketFlags::GSO_UDP))
}

/// Whether segmentation is pending for a packet behind MPLS labels or an NSH header: neither the kernel nor a
/// guest segments such a packet, so its port does.
#[inline(always)]
pub fn is_segmentation_ours(packet: &Packet) -> bool {
    is_segmentation_pending(packet)
        && Layers::of_link(packet.data(), ALL_TAGS)
            .is_some_and(|link| matches!(link.eth_type, ETH_MPLS | ETH_MPLS_MULTICAST | ETH_NSH))
}

/// Finishes the checksum of a packet that is flagged as unfinished, and clears the flag. No effect on others.
/// If the position is outside the packet's first segment, nothing can be finished, but the flag is still
/// cleared.
pub fn complete_checksum(packet: &mut Packet) {
    if !packet.flags.has(PacketFlags::CSUM_PARTIAL) {
        return;
    }
    packet.flags.clear(PacketFlags::CSUM_PARTIAL);
    let start = usize::from(packet.csum_start);
    let field_at = start + usize::from(packet.csum_offset);
    if field_at + 2 > packet.data().len() {
        return;
    }
    let checksum = nonzero(!sum_from(packet, start));
    put16(packet.data_mut(), field_at, checksum);
}

/// The folded sum of the frame's bytes from `start` (in the first segment) to its end.
fn sum_from(packet: &Packet, start: usize) -> u16 {
    let (mut total, mut odd) = (0u32, false);
    for (n, segment) in packet.segments().enumerate() {
        let bytes = if n == 0 { &segment[start..] } else { segment };
        let sum = Sum::new().bytes(bytes).fold();
        // After an odd number of bytes, the next ones sit in the other halves of their words.
        total += u32::from(if odd { sum.swap_bytes() } else { sum });
        odd ^= bytes.len() % 2 == 1;
    }
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The maximum number of chunks that the packet takes after [`segment`].
pub fn chunks_after_segmentation(packet: &Packet) -> usize {
    let size = usize::from(packet.gso_size).max(1);
    let count = packet.len().div_ceil(size);
    let headers = packet.len().min(HEADERS_MAX);
    count * (size + headers).div_ceil(packet.pool().config().chunk_bytes - HEADROOM_BYTES)
}

/// Segments a packet whose segmentation is pending into frames with `gso_size` bytes of payload, in new
/// chunks, each with its checksum unfinished ([`PacketFlags::CSUM_PARTIAL`]: most devices do the rest).
/// Appends them to `out` and frees the packet.
///
/// Errors: returns the packet itself if it is no TCP or UDP packet over IPv4 or IPv6 (possibly behind labels
/// and NSH headers), as its flag and its unfinished checksum claim, if its headers are not in its first
/// segment or longer than 512 bytes, or if the pool is exhausted; `out` is then unchanged.
pub fn segment(packet: Packet, cache: &mut PoolCache, out: &mut Vec<Packet>) -> Result<(), Packet> {
    if !segment_copied(&packet, cache, out) {
        return Err(packet);
    }
    cache.free(packet);
    Ok(())
}

/// The same for a packet that stays as it is. False on an error.
pub fn segment_copied(packet: &Packet, cache: &mut PoolCache, out: &mut Vec<Packet>) -> bool {
    segment_some(packet, usize::MAX, cache, out)
}

/// The same, with the first `most` frames only.
pub fn segment_some(packet: &Packet, most: usize, cache: &mut PoolCache, out: &mut Vec<Packet>) -> bool {
    let before = out.len();
    let is_cut = segment_into(packet, most, cache, out).is_some();
    if !is_cut {
        out.drain(before..).for_each(|made| cache.free(made));
    }
    is_cut
}

/// How many frames [`segment`] makes of a packet if the pool has room for them. `None`: it returns the
/// packet.
pub fn frames_of(packet: &Packet) -> Option<usize> {
    let (_, payload) = find_payload(packet)?;
    Some(payload.len().div_ceil(packet.gso_size.into()))
}

/// The layers of a packet that can be segmented, and where the payload is that segments share.
fn find_payload(packet: &Packet) -> Option<(Layers, Range<usize>)> {
    let is_partial = packet.flags.has(PacketFlags::CSUM_PARTIAL);
    let behind_labels = || find_behind_labels(packet, packet.csum_start).filter(|_| is_partial);
    let layers = find_transport(packet, 0).or_else(behind_labels);
    let flag = match layers?.protocol {
        TCP => PacketFlags::GSO_TCP,
        UDP => PacketFlags::GSO_UDP,
        _ => return None,
    };
    // For a segment within a tunnel, only the sender knows what the outer headers must become.
    let layers = layers.filter(|layers| packet.flags.has(flag) && packet.csum_start == layers.l4)?;
    // Bytes behind the network packet are padding of the link and belong to no segment.
    let payload = usize::from(layers.payload)..layers.end(packet.data());
    let fits = payload.start <= packet.data().len().min(HEADERS_MAX);
    (fits && packet.gso_size > 0 && !payload.is_empty()).then_some((layers, payload))
}

fn segment_into(packet: &Packet, most: usize, cache: &mut PoolCache, out: &mut Vec<Packet>) -> Option<()> {
    let (layers, payload) = find_payload(packet)?;
    let plan = Plan { layers: &layers, payload, size: packet.gso_size.into() };
    plan.cut(packet, most, cache, out, |_, _| ())
}

/// How a packet is cut up: its layers, the payload that its segments share, and how much each has of it.
struct Plan<'a> {
    layers: &'a Layers,
    payload: Range<usize>,
    size: usize,
}

impl Plan<'_> {
    /// Appends the first `most` segments to `out`, each after `finish`. `None` if the pool is exhausted.
    fn cut(
        &self,
        packet: &Packet,
        most: usize,
        cache: &mut PoolCache,
        out: &mut Vec<Packet>,
        mut finish: impl FnMut(&mut Packet, &Part),
    ) -> Option<()> {
        let headers = packet.data().get(..self.payload.start)?;
        let (size, of) = (self.size, self.payload.len());
        let mut source = gather(packet, self.payload.start);
        let mut done = 0;
        while done < of && done / size < most {
            let len = size.min(of - done);
            let mut segment = source.take(cache, headers, len)?;
            segment.in_port = packet.in_port;
            mark_unfinished(&mut segment, self.layers);
            let part = Part { done, len, of, size };
            write_headers(segment.data_mut(), self.layers, &part);
            finish(&mut segment, &part);
            out.push(segment);
            done += len;
        }
        Some(())
    }
}

/// The layers of a TCP or UDP packet behind MPLS labels or NSH headers. Labels do not say what they precede:
/// it is a packet whose transport header is where the unfinished checksum starts.
#[cold]
fn find_behind_labels(packet: &Packet, csum_start: u16) -> Option<Layers> {
    let head = packet.data();
    let link = Layers::of_link(head, ALL_TAGS)?;
    let (mut eth_type, mut at) = (link.eth_type, usize::from(link.l2_5));
    // Each header takes some bytes, so this ends.
    loop {
        let rest = head.get(at..)?;
        let found = |eth_type: u16, at: usize| {
            let layers = match eth_type {
                ETH_BRIDGED => find_transport(packet, at)?,
                _ => {
                    let len = packet.len().checked_sub(at)?;
                    let bare = Layers::without_link(head.get(at..)?, len, eth_type);
                    if has_transport(&bare) { bare.shifted(at as isize) } else { return None }
                }
            };
            (layers.l4 == csum_start).then_some(layers)
        };
        match eth_type {
            ETH_MPLS | ETH_MPLS_MULTICAST => {
                let (entries, _) = rest.as_chunks::<4>();
                let bottom = entries.iter().position(|entry| entry[2] & 1 == 1)?;
                at += 4 * (bottom + 1);
                return [ETH_IPV4, ETH_IPV6, ETH_BRIDGED].into_iter().find_map(|inner| found(inner, at));
            }
            ETH_NSH => {
                let header = NshHeader::new(rest).ok()?;
                at += header.header_len();
                eth_type = match header.next_protocol() {
                    next_protocol::IPV4 => ETH_IPV4,
                    next_protocol::IPV6 => ETH_IPV6,
                    next_protocol::ETHERNET => ETH_BRIDGED,
                    next_protocol::NSH => ETH_NSH,
                    next_protocol::MPLS => ETH_MPLS,
                    _ => return None,
                };
            }
            inner => return found(inner, at),
        }
    }
}

/// The part of the payload in a segment.
struct Part {
    done: usize,
    len: usize,
    of: usize,
    size: usize,
}

/// Makes the copied headers those of one segment: lengths, IPv4 identification and checksum, sequence number,
/// flags.
fn write_headers(frame: &mut [u8], layers: &Layers, part: &Part) {
    let [l4, payload] = [layers.l4, layers.payload].map(usize::from);
    let l4_len = payload - l4 + part.len;
    write_network(frame, layers, l4 + l4_len, part);
    if layers.protocol == TCP {
        const FIN_PSH: u8 = 0x09;
        const CWR: u8 = 0x80;
        let sequence: [u8; 4] = std::array::from_fn(|i| frame[l4 + 4 + i]);
        let sequence = u32::from_be_bytes(sequence).wrapping_add(part.done as u32);
        frame[l4 + 4..l4 + 8].copy_from_slice(&sequence.to_be_bytes());
        if part.done + part.len < part.of {
            frame[l4 + 13] &= !FIN_PSH;
        }
        if part.done > 0 {
            // RFC 3168 section 6.1.2: once per window reduction.
            frame[l4 + 13] &= !CWR;
        }
    } else {
        put16(frame, l4 + 4, l4_len as u16);
    }
    let field_at = l4 + checksum_offset(layers);
    let pseudo = if layers.is_routed() {
        // The sender's sum, of another length.
        let whole_len = (payload - l4 + part.of) as u32;
        be16(frame, field_at).map(|field| Sum::new().u16(field).u32(l4_len as u32).u32(!whole_len))
    } else {
        pseudo_sum(frame, layers, l4_len)
    };
    if let Some(pseudo) = pseudo {
        put16(frame, field_at, pseudo.fold());
    }
}

/// The network header's part of that, for a packet that ends at `end`.
fn write_network(frame: &mut [u8], layers: &Layers, end: usize, part: &Part) {
    let [l3, l4] = [layers.l3, layers.l4].map(usize::from);
    if layers.is_ipv6() {
        put16(frame, l3 + 4, (end - l3 - 40) as u16);
        return;
    }
    put16(frame, l3 + 2, (end - l3) as u16);
    let id = u16::from_be_bytes([frame[l3 + 4], frame[l3 + 5]]);
    put16(frame, l3 + 4, id.wrapping_add((part.done / part.size) as u16));
    put16(frame, l3 + 10, 0);
    let checksum = wire::checksum::checksum(&frame[l3..l4]);
    put16(frame, l3 + 10, checksum);
}

/// Reads a packet's bytes in order, across its segments.
struct Gather<'a, I: Iterator<Item = &'a [u8]>> {
    segments: I,
    rest: &'a [u8],
}

/// Reads from byte `skip` on, which is in the first segment.
fn gather(packet: &Packet, skip: usize) -> Gather<'_, impl Iterator<Item = &[u8]>> {
    let mut segments = packet.segments();
    let first = segments.next().unwrap_or_default();
    Gather { rest: first.get(skip..).unwrap_or_default(), segments }
}

impl<'a, I: Iterator<Item = &'a [u8]>> Gather<'a, I> {
    /// A fresh packet of `headers` (at most [`HEADERS_MAX`] bytes) and the next `len` bytes (fewer at the
    /// end), in as many chunks as it takes. `None` when the pool is exhausted.
    fn take(&mut self, cache: &mut PoolCache, headers: &[u8], len: usize) -> Option<Packet> {
        let room = cache.pool().config().chunk_bytes - HEADROOM_BYTES;
        let mut left = len;
        let mut whole: Option<Packet> = None;
        let mut front = headers;
        loop {
            let Some(mut chunk) = cache.alloc() else {
                if let Some(whole) = whole {
                    cache.free(whole);
                }
                return None;
            };
            let bytes = (front.len() + left).min(room);
            chunk.set_len(bytes).expect("a chunk has room for its size less the headroom");
            let (head, body) = chunk.data_mut().split_at_mut(front.len());
            head.copy_from_slice(front);
            left -= body.len();
            front = &[];
            self.read(body);
            match &mut whole {
                Some(whole) => whole.append(chunk),
                None => whole = Some(chunk),
            }
            if left == 0 {
                return whole;
            }
        }
    }

    fn read(&mut self, mut to: &mut [u8]) {
        while !to.is_empty() {
            if self.rest.is_empty() {
                match self.segments.next() {
                    Some(segment) => self.rest = segment,
                    // The frame is shorter than its network header says; the caller bounded by the frame.
                    None => return to.fill(0),
                }
                continue;
            }
            let n = to.len().min(self.rest.len());
            to[..n].copy_from_slice(&self.rest[..n]);
            self.rest = &self.rest[n..];
            to = &mut to[n..];
        }
    }
}

/// A copy of a packet with the usual headroom in front of every segment, including metadata. `None` if the
/// pool is exhausted.
pub fn copy_linear(packet: &Packet, cache: &mut PoolCache) -> Option<Packet> {
    let mut copy = gather(packet, 0).take(cache, &[], packet.len())?;
    copy.in_port = packet.in_port;
    copy.gso_size = packet.gso_size;
    copy.csum_start = packet.csum_start;
    copy.csum_offset = packet.csum_offset;
    copy.flags = packet.flags;
    Some(copy)
}
