//! The header in front of frames to and from taps, packet sockets and guests: what remains to be done about a
//! frame's checksum and length.
//!
//! It corresponds one to one to a packet's flags, so that between two ports that both use it a segment of 64
//! KB crosses the switch whole and with its checksum unfinished. Headers from outside are checked against the
//! frame: a position beyond the first segment is refused, since finishing the checksum would write there. A
//! checksum that is not the one of the packet's own TCP or UDP header, as within a tunnel, is finished at
//! once instead of noted: wherever a sender says that the field is, what is matched later is what is sent. A
//! segment within a tunnel is refused, but for the kernel's packet sockets, where it is cut up.
//!
//! Source: virtio 1.2 section 5.1.6 (struct virtio_net_hdr); linux/virtio_net.h.

use crate::offload::{self, tunnel::InnerSegment};
use packet::{Packet, PacketFlags, PoolCache};
use wire::Layers;
use wire::layers::ALL_TAGS;

/// Bytes of the header in the form with `num_buffers`, which is the one of virtio 1.0 and later.
pub const HEADER_LEN: usize = 12;

const NEEDS_CSUM: u8 = 1;
const DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// The smallest maximum segment size that TCP is cut to: Linux's sockets send no smaller segments either
/// (TCP_MIN_SND_MSS: the longest options and 8 bytes). It counts the options, which `gso_size` does not.
pub const MSS_MIN: usize = 48;
/// Frames that a segment of a smaller `gso_size` may become: the kernel merges small segments, too, where it
/// receives them (GRO), mostly no more than it gets at once from a card (NAPI_POLL_WEIGHT).
pub const SMALL_SEGMENTS_MAX: usize = 64;
/// Frames that one segment may become. One of 64 KB with a `gso_size` of 257 stays below, and so does the
/// most that Linux lets a program send over UDP (UDP_MAX_SEGMENTS, 128).
pub const SEGMENTS_MAX: usize = 256;

/// The offset of the CRC in SCTP's header.
const SCTP_CRC: usize = 8;

/// Why a frame with its header is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BadHeader {
    /// The header makes no sense for the frame.
    Nonsense,
    /// `gso_size` implies a maximum segment size below [`MSS_MIN`], and more than [`SMALL_SEGMENTS_MAX`].
    GsoSize,
    /// The frame would become more than [`SEGMENTS_MAX`].
    GsoSegments,
}

/// Sets the packet's flags from its header (in the machine's byte order). On an error the packet is
/// unchanged.
#[inline]
pub fn apply(header: &[u8; HEADER_LEN], packet: &mut Packet) -> Result<(), BadHeader> {
    // All zero except for the number of buffers: nearly every small packet.
    if u64::from_ne_bytes(header[..8].try_into().expect("8 bytes")) == 0 {
        return Ok(());
    }
    apply_offloads(header, packet)
}

/// Whether everything that a header requests concerns `head`, with which a frame of `frame_len` bytes begins:
/// no checksum field beyond it, and no checksum that would be finished at once.
#[inline]
pub fn is_for_head(header: &[u8], head: &[u8], frame_len: usize) -> bool {
    let word = |at: usize| usize::from(u16::from_ne_bytes([header[at], header[at + 1]]));
    let (start, offset) = (word(6), word(8));
    header[0] & NEEDS_CSUM == 0
        || start + offset + 2 <= head.len() && offload::is_transport_checksum(head, frame_len, start, offset)
}

fn apply_offloads(header: &[u8; HEADER_LEN], packet: &mut Packet) -> Result<(), BadHeader> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (flags, gso_type) = (header[0], header[1] & !GSO_ECN);
    let (gso_size, mut csum_start, mut csum_offset) = (word(4), word(6), word(8));
    let mut gso_flag = match gso_type {
        GSO_NONE => None,
        GSO_TCPV4 | GSO_TCPV6 => Some(PacketFlags::GSO_TCP),
        GSO_UDP_L4 => Some(PacketFlags::GSO_UDP),
        _ => return Err(BadHeader::Nonsense),
    };
    // A card that merges what it receives (LRO) vouches for the checksum instead of leaving it unfinished.
    let is_merged = gso_flag.is_some() && flags & (NEEDS_CSUM | DATA_VALID) == DATA_VALID;
    let merged = if is_merged { offload::transport_of(packet) } else { None };
    if let Some(layers) = &merged {
        (csum_start, csum_offset) = (layers.l4, offload::checksum_offset(layers) as u16);
    }
    let is_partial = flags & NEEDS_CSUM != 0 || merged.is_some();
    let field_end = usize::from(csum_start) + usize::from(csum_offset) + 2;
    if is_partial && (field_end > packet.data().len() || csum_offset > 255) {
        return Err(BadHeader::Nonsense);
    }
    let [start, offset] = [csum_start, csum_offset].map(usize::from);
    let is_transport =
        is_partial && offload::is_transport_checksum(packet.data(), packet.len(), start, offset);
    if let Some(flag) = gso_flag {
        let is_its_checksum = csum_offset == if flag == PacketFlags::GSO_TCP { 16 } else { 6 };
        if gso_size == 0 || !is_partial || !is_its_checksum {
            return Err(BadHeader::Nonsense);
        }
        if !is_transport && !offload::is_checksum_behind_labels(packet, csum_start, offset) {
            return Err(BadHeader::Nonsense);
        }
        // Not more than one segment: only the checksum is left to do.
        if check_segments(packet, flag, start, gso_size.into())? <= 1 {
            gso_flag = None;
        }
    }
    if let Some(layers) = &merged {
        offload::unfinish_checksum(packet, layers);
    }
    // No later stage would compute the CRC.
    let is_crc = is_partial && offset == SCTP_CRC && offload::finish_crc(packet, csum_start);
    if is_partial && !is_crc {
        packet.flags.set(PacketFlags::CSUM_PARTIAL);
        packet.csum_start = csum_start;
        packet.csum_offset = csum_offset as u8;
        if !is_transport && gso_flag.is_none() {
            offload::complete_checksum(packet);
        }
    } else if !is_partial && flags & DATA_VALID != 0 {
        packet.flags.set(PacketFlags::CSUM_VALID);
    }
    if let Some(flag) = gso_flag {
        packet.flags.set(flag);
        packet.gso_size = gso_size;
    }
    Ok(())
}

/// How many frames a segment becomes whose transport header is at `start`, where that is within the limits.
fn check_segments(packet: &Packet, flag: PacketFlags, start: usize, size: usize) -> Result<usize, BadHeader> {
    let is_tcp = flag == PacketFlags::GSO_TCP;
    let data_offset = packet.data().get(start + 12).map_or(0, |byte| usize::from(byte >> 4));
    let header_len = if is_tcp { data_offset * 4 } else { 8 };
    let frames = packet.len().saturating_sub(start + header_len).div_ceil(size);
    if is_tcp && size + header_len.saturating_sub(20) < MSS_MIN && frames > SMALL_SEGMENTS_MAX {
        return Err(BadHeader::GsoSize);
    }
    // The frame's own headers count as payload: where the header says that they end is the sender's word.
    if packet.len().div_ceil(size) > SEGMENTS_MAX {
        return Err(BadHeader::GsoSegments);
    }
    Ok(frames)
}

/// Cuts up what [`apply`] has refused as nonsense, if it is a segment within a tunnel: appends the finished
/// frames to `out`. `Ok(false)` if the pool is exhausted.
#[cold]
pub fn cut_inner(
    header: &[u8; HEADER_LEN],
    packet: &Packet,
    cache: &mut PoolCache,
    out: &mut Vec<Packet>,
) -> Result<bool, BadHeader> {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let (gso_size, start, offset) = (word(4), usize::from(word(6)), usize::from(word(8)));
    let flag = match (header[1] & !GSO_ECN, offset) {
        (GSO_TCPV4 | GSO_TCPV6, 16) => PacketFlags::GSO_TCP,
        (GSO_UDP_L4, 6) => PacketFlags::GSO_UDP,
        _ => return Err(BadHeader::Nonsense),
    };
    if gso_size == 0 || header[0] & NEEDS_CSUM == 0 {
        return Err(BadHeader::Nonsense);
    }
    let segment = InnerSegment::find(packet, start, offset).ok_or(BadHeader::Nonsense)?;
    check_segments(packet, flag, start, gso_size.into())?;
    Ok(segment.cut(packet, gso_size, cache, out))
}

/// The header for a packet: the inverse of [`apply`].
#[inline]
pub fn header_of(packet: &Packet) -> [u8; HEADER_LEN] {
    let mut header = [0; HEADER_LEN];
    if !packet.flags.is_empty() {
        write_offloads(&mut header, packet);
    }
    header
}

/// Whether a TCP packet whose checksum is unfinished has the flag CWR.
#[inline]
pub fn reports_congestion(packet: &Packet) -> bool {
    const CWR: u8 = 0x80;
    let flags_at = usize::from(packet.csum_start) + 13;
    packet.data().get(flags_at).is_some_and(|flags| flags & CWR != 0)
}

fn write_offloads(header: &mut [u8; HEADER_LEN], packet: &Packet) {
    if !packet.flags.has(PacketFlags::CSUM_PARTIAL) {
        if packet.flags.has(PacketFlags::CSUM_VALID) {
            header[0] = DATA_VALID;
        }
        return;
    }
    header[0] = NEEDS_CSUM;
    header[6..8].copy_from_slice(&packet.csum_start.to_ne_bytes());
    header[8..10].copy_from_slice(&u16::from(packet.csum_offset).to_ne_bytes());
    let is_tcp = packet.flags.has(PacketFlags::GSO_TCP);
    if packet.gso_size == 0 || !(is_tcp || packet.flags.has(PacketFlags::GSO_UDP)) {
        return;
    }
    let frame = packet.data();
    let layers = Layers::of(frame, packet.len(), ALL_TAGS).unwrap_or_default();
    let gso_type = if is_tcp {
        let ecn = if reports_congestion(packet) { GSO_ECN } else { 0 };
        let version = if layers.eth_type == 0x86dd { GSO_TCPV6 } else { GSO_TCPV4 };
        version | ecn
    } else {
        GSO_UDP_L4
    };
    header[1] = gso_type;
    header[2..4].copy_from_slice(&layers.payload.to_ne_bytes());
    header[4..6].copy_from_slice(&packet.gso_size.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{Pool, PoolConfig};
    use wire::{Compose, EthAddr};

    fn frame(len: usize, ethertype: [u8; 2]) -> Vec<u8> {
        let mut f = vec![0; len];
        f[12..14].copy_from_slice(&ethertype);
        f
    }

    #[test]
    fn a_header_becomes_flags_and_flags_become_the_same_header() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let header = |flags, gso, hdr_len: u16, size: u16, start: u16, offset: u16| {
            let mut h = [0u8; HEADER_LEN];
            h[0] = flags;
            h[1] = gso;
            for (at, value) in [(2, hdr_len), (4, size), (6, start), (8, offset)] {
                h[at..at + 2].copy_from_slice(&value.to_ne_bytes());
            }
            h
        };
        let eth = || Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let v4 = || eth().ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let v6 = || eth().ipv6("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        let payload = [7; 1000];
        for (frame, h) in [
            (v4().udp(1, 2), [0; HEADER_LEN]),
            (v4().udp(1, 2), header(DATA_VALID, 0, 0, 0, 0, 0)),
            (v4().udp(1, 2), header(NEEDS_CSUM, 0, 0, 0, 34, 6)),
            (v4().tcp(1, 2), header(NEEDS_CSUM, GSO_TCPV4, 54, 448, 34, 16)),
            (v6().tcp(1, 2), header(NEEDS_CSUM, GSO_TCPV6 | GSO_ECN, 74, 428, 54, 16)),
            (v4().udp(1, 2), header(NEEDS_CSUM, GSO_UDP_L4, 42, 400, 34, 6)),
        ] {
            let mut bytes = frame.payload(&payload).build().unwrap();
            let l4 = u16::from_ne_bytes([h[6], h[7]]) as usize;
            if l4 > 0 {
                bytes[l4 + 13] |= h[1] & GSO_ECN;
            }
            let mut packet = cache.alloc_frame(&bytes).unwrap();
            apply(&h, &mut packet).unwrap();
            assert_eq!(header_of(&packet), h);
            cache.free(packet);
        }
    }

    #[test]
    fn a_crc_is_finished_at_once() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let eth = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let frame = eth.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).sctp(1, 2);
        let whole = frame.payload(&[7; 1000]).build().unwrap();
        let mut unfinished = whole.clone();
        unfinished[42..46].fill(0);
        let header = [NEEDS_CSUM, 0, 0, 0, 0, 0, 34, 0, 8, 0, 0, 0];
        assert!(!is_for_head(&header, &unfinished[..256], unfinished.len()));
        let mut packet = cache.alloc_frame(&unfinished).unwrap();
        apply(&header, &mut packet).unwrap();
        assert!(packet.data() == whole && packet.flags.is_empty());
        cache.free(packet);
    }

    #[test]
    fn segments_that_a_card_has_merged_are_cut_up_again_with_right_checksums() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let payload: Vec<u8> = (0..4000u32).map(|n| (n * 7) as u8).collect();
        let v4 = |payload: &[u8]| {
            let eth = Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
            let tcp = eth.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into()).tcp(1, 2);
            tcp.payload(payload).build().unwrap()
        };
        let bytes = v4(&payload);
        let mut header = [0; HEADER_LEN];
        (header[0], header[1]) = (DATA_VALID, GSO_TCPV4);
        header[4..6].copy_from_slice(&1448u16.to_ne_bytes());
        let mut packet = cache.alloc_frame(&bytes).unwrap();
        apply(&header, &mut packet).unwrap();
        let mut whole = packet.copy(&mut cache).unwrap();
        offload::complete_checksum(&mut whole);
        assert!(whole.segments().flatten().eq(&bytes));
        cache.free(whole);
        let mut frames = Vec::new();
        offload::segment(packet, &mut cache, &mut frames).unwrap();
        let mut data = Vec::new();
        for mut frame in frames {
            offload::complete_checksum(&mut frame);
            let ip = frame.data()[14..].to_vec();
            let pseudo = [&ip[12..20], &[0, 6], &(ip.len() as u16 - 20).to_be_bytes()].concat();
            assert!(wire::checksum::is_valid(&ip[..20]));
            assert!(wire::checksum::is_valid(&[&pseudo, &ip[20..]].concat()));
            data.extend_from_slice(&ip[40..]);
            cache.free(frame);
        }
        assert!(data == payload);
        // What is no TCP at all is refused as before.
        let mut packet = cache.alloc_frame(&frame(3000, [0x88, 0xb5])).unwrap();
        assert_eq!(apply(&header, &mut packet), Err(BadHeader::Nonsense));
        cache.free(packet);
    }

    /// A sender places the field over an address, and chooses the payload so that the sum is another one.
    #[test]
    fn a_checksum_that_is_not_the_packets_own_is_finished_at_once_and_never_cut_up() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let header = |gso: u8, start: u16, offset: u16| {
            let mut header = [0u8; HEADER_LEN];
            (header[0], header[1]) = (NEEDS_CSUM, gso);
            for (at, value) in [(4, 200u16), (6, start), (8, offset)] {
                header[at..at + 2].copy_from_slice(&value.to_ne_bytes());
            }
            header
        };
        let eth = || Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let v4 = |eth: Compose| eth.ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let tagged = || eth().vlan(wire::vlan::VlanId::new(7).unwrap());
        let v6 = || eth().ipv6("fe80::1".parse().unwrap(), "fe80::2".parse().unwrap());
        // (Frame, where its checksum starts, where the field is.)
        let packets = [
            (v4(eth()).udp(1, 2), 34, 6),
            (v4(eth()).tcp(1, 2), 34, 16),
            (v4(tagged()).udp(1, 2), 38, 6),
            (v4(tagged()).tcp(1, 2), 38, 16),
            (v6().udp(1, 2), 54, 6),
            (v6().tcp(1, 2), 54, 16),
        ];
        for (frame, own_start, own_offset) in packets {
            let bytes = frame.payload(&[7; 1000]).build().unwrap();
            let gso = if own_offset == 16 { GSO_TCPV4 } else { GSO_UDP_L4 };
            for (start, offset) in (0..60).flat_map(|start| [(start, 6), (start, 16), (start, 26)]) {
                let is_own = (start, offset) == (own_start, own_offset);
                let plain = header(GSO_NONE, start, offset);
                assert_eq!(is_for_head(&plain, &bytes[..256], bytes.len()), is_own, "{start}, {offset}");
                let mut packet = cache.alloc_frame(&bytes).unwrap();
                let result = apply(&header(gso, start, offset), &mut packet);
                assert_eq!(result.is_ok(), is_own, "{start}, {offset}");
                assert_eq!(packet.flags.is_empty(), !is_own);
                packet.flags = PacketFlags::default();
                apply(&plain, &mut packet).unwrap();
                assert_eq!(packet.flags.has(PacketFlags::CSUM_PARTIAL), is_own, "{start}, {offset}");
                let at = usize::from(start + offset);
                let is_left = packet.data()[at..at + 2] == bytes[at..at + 2];
                assert!(is_left || !is_own);
                offload::complete_checksum(&mut packet);
                let sum = wire::checksum::checksum(&bytes[usize::from(start)..]);
                let wanted = wire::checksum::nonzero(sum).to_be_bytes();
                assert_eq!(packet.data()[at..at + 2], wanted, "{start}, {offset}");
                cache.free(packet);
            }
        }
    }

    #[test]
    fn positions_beyond_the_frame_and_unknown_offloads_are_refused() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut packet = cache.alloc_frame(&frame(60, [8, 0])).unwrap();
        for bad in [
            [1, 0, 0, 0, 0, 0, 0x3b, 0, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0],
            [1, 3, 0, 0, 9, 0, 14, 0, 6, 0, 0, 0],
            [1, 1, 0, 0, 0, 0, 14, 0, 6, 0, 0, 0],
            [0, 1, 0, 0, 9, 0, 14, 0, 6, 0, 0, 0],
            [1, 1, 0, 0, 90, 0, 14, 0, 6, 0, 0, 0],
            [1, 5, 0, 0, 90, 0, 14, 0, 16, 0, 0, 0],
        ] {
            assert_eq!(apply(&bad, &mut packet), Err(BadHeader::Nonsense), "{bad:?}");
            assert!(packet.flags.is_empty());
        }
        cache.free(packet);
    }

    #[test]
    fn a_segment_is_cut_to_less_than_a_minimum_mss_and_into_many_frames_only_within_limits() {
        let pool = Pool::new(PoolConfig { chunks: 64, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut apply_to = |len: usize, gso_type: u8, gso_size: usize, data_offset: u8| {
            let mut bytes = frame(len, [8, 0]);
            (bytes[14], bytes[23]) = (0x45, if gso_type == GSO_UDP_L4 { 17 } else { 6 });
            bytes[34 + 12] = data_offset << 4;
            let mut packet = cache.alloc_frame(&bytes).unwrap();
            let mut header = [0; HEADER_LEN];
            (header[0], header[1], header[6]) = (NEEDS_CSUM, gso_type, 34);
            header[4..6].copy_from_slice(&(gso_size as u16).to_ne_bytes());
            header[8] = if gso_type == GSO_UDP_L4 { 6 } else { 16 };
            let result = apply(&header, &mut packet);
            assert_eq!(packet.flags.is_empty(), result.is_err());
            cache.free(packet);
            result
        };
        for kind in [GSO_TCPV4, GSO_TCPV6, GSO_TCPV4 | GSO_ECN] {
            // As many small ones as the kernel merges: without options, and with timestamps, which count.
            for (data_offset, least) in [(5, MSS_MIN), (8, MSS_MIN - 12)] {
                let headers = 34 + 4 * usize::from(data_offset);
                for size in [1, 10, least - 1] {
                    let len = headers + SMALL_SEGMENTS_MAX * size;
                    assert_eq!(apply_to(len, kind, size, data_offset), Ok(()));
                    assert_eq!(apply_to(len + 1, kind, size, data_offset), Err(BadHeader::GsoSize));
                }
                let len = headers + SMALL_SEGMENTS_MAX * least + 1;
                assert_eq!(apply_to(len, kind, least, data_offset), Ok(()));
            }
            assert_eq!(apply_to(100 * SEGMENTS_MAX, kind, 100, 5), Ok(()));
            assert_eq!(apply_to(100 * SEGMENTS_MAX + 1, kind, 100, 5), Err(BadHeader::GsoSegments));
            assert_eq!(apply_to(65_535, kind, 1, 5), Err(BadHeader::GsoSize));
        }
        assert_eq!(apply_to(65_535, GSO_UDP_L4, 1, 5), Err(BadHeader::GsoSegments));
        // As many as Linux lets a program send.
        assert_eq!(apply_to(42 + 128, GSO_UDP_L4, 1, 5), Ok(()));
    }

    #[test]
    fn a_segment_no_longer_than_one_frames_is_one_whose_checksum_alone_is_unfinished() {
        let pool = Pool::new(PoolConfig { chunks: 32, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let eth = || Compose::ethernet(EthAddr([2; 6]), EthAddr([4; 6]));
        let v4 = || eth().ipv4([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        for (payload_len, size, is_one) in
            [(0, 100, true), (0, 1, true), (99, 100, true), (100, 100, true), (101, 100, false)]
        {
            let payload = vec![7; payload_len];
            for (frame, gso_type, offset) in
                [(v4().tcp(1, 2), GSO_TCPV4, 16), (v4().udp(1, 2), GSO_UDP_L4, 6)]
            {
                let mut packet = cache.alloc_frame(&frame.payload(&payload).build().unwrap()).unwrap();
                apply(&[NEEDS_CSUM, gso_type, 0, 0, size, 0, 34, 0, offset, 0, 0, 0], &mut packet).unwrap();
                assert!(packet.flags.has(PacketFlags::CSUM_PARTIAL));
                assert_eq!(offload::is_segmentation_pending(&packet), !is_one, "{payload_len}, {size}");
                cache.free(packet);
            }
        }
    }
}
