//! Segments within a tunnel: what a sender that encapsulates leaves to its device beside its own checksum.
//!
//! A virtio-net header names the transport header whose payload is to be cut up, also where that lies within
//! a tunnel, and says nothing of what is in front of it. Every network header on the way there, UDP header
//! and GRE checksum must become those of one frame. No port could pass such a segment on, so it is cut up
//! where it comes in, and the frames are finished.
//!
//! Which tunnel it is does not matter: behind UDP or GRE, the next network header is looked for. It ends
//! where the outer one ends, and leads to the header that is to be found; nothing else does.
//!
//! Source: RFC 2784, RFC 2890 (GRE); RFC 2003, RFC 2473 (IP in IP); Linux's skb_udp_tunnel_segment and
//! gre_gso_segment.

use super::*;
use arrayvec::ArrayVec;

const IPIP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
/// Network headers in each other.
const LEVELS_MAX: usize = 4;
/// Places that are looked at for another network header: far more than any tunnel has, few enough for one
/// made up to cost something.
const LOOKS_MAX: u32 = 1024;

/// A segment within a tunnel.
pub struct InnerSegment {
    /// The outer packets, outermost first.
    outer: ArrayVec<Layers, LEVELS_MAX>,
    /// The innermost one, whose payload is cut up.
    inner: Layers,
    payload: Range<usize>,
}

impl InnerSegment {
    /// Finds the TCP or UDP header whose checksum starts at `start`, with its field `offset` bytes behind
    /// that, in the packets that lie in this one. `None` if it is not in a tunnel that is known.
    #[cold]
    pub fn find(packet: &Packet, start: usize, offset: usize) -> Option<InnerSegment> {
        InnerSegment::search(packet, Some((start, offset)))
    }

    /// Finds a TCP header whose checksum its sender left unfinished: what no note tells of.
    fn find_unfinished(packet: &Packet) -> Option<InnerSegment> {
        InnerSegment::search(packet, None)
    }

    fn search(packet: &Packet, checksum: Option<(usize, usize)>) -> Option<InnerSegment> {
        let head = packet.data();
        let layers = Layers::of(head, packet.len(), ALL_TAGS).filter(|layers| layers.is_ip())?;
        let mut search = Search {
            head: &head[..head.len().min(HEADERS_MAX)],
            end: layers.end(head),
            checksum,
            looks_left: LOOKS_MAX,
            levels: ArrayVec::new(),
        };
        if layers.is_fragment() || !search.leads_there(layers) {
            return None;
        }
        let (end, mut outer) = (search.end, search.levels);
        let inner = outer.pop()?;
        let payload = usize::from(inner.payload)..end;
        let is_sound = !outer.is_empty() && !payload.is_empty() && payload.start <= search.head.len();
        is_sound.then_some(InnerSegment { outer, inner, payload })
    }

    /// Appends the frames to `out`. False if the pool is exhausted; `out` is then unchanged.
    pub fn cut(&self, packet: &Packet, size: u16, cache: &mut PoolCache, out: &mut Vec<Packet>) -> bool {
        let before = out.len();
        let plan = Plan { layers: &self.inner, payload: self.payload.clone(), size: size.into() };
        let is_cut = plan.cut(packet, usize::MAX, cache, out, |frame, part| {
            complete_checksum(frame);
            for layers in self.outer.iter().rev() {
                finish_outer(frame, layers, part);
            }
        });
        if is_cut.is_none() {
            out.drain(before..).for_each(|made| cache.free(made));
        }
        is_cut.is_some()
    }
}

/// Frames that [`cut_unfinished`] makes of a packet: with a small MTU and long headers, 64 KB could take the
/// pool.
const UNFINISHED_FRAMES_MAX: usize = 256;

/// Cuts up a packet longer than a frame (`frame_max` bytes without VLAN tags), if it is TCP within a tunnel
/// that its sender left to segmentation, for drivers that get packets without the kernel's notes: the size
/// is lost, and the MTU bounds it. Appends the finished frames to `out`. False if that is not possible.
#[cold]
pub fn cut_unfinished(
    packet: &Packet,
    frame_max: usize,
    cache: &mut PoolCache,
    out: &mut Vec<Packet>,
) -> bool {
    let Some(segment) = InnerSegment::find_unfinished(packet) else { return false };
    let tags = usize::from(segment.outer[0].l2_5) - ETHERNET_HEADER;
    let size = (frame_max + tags).saturating_sub(segment.payload.start).min(u16::MAX.into());
    let fits = size > 0 && segment.payload.len().div_ceil(size) <= UNFINISHED_FRAMES_MAX;
    fits && segment.cut(packet, size as u16, cache, out)
}

/// Makes the headers of an outer packet those of one frame, whose inner ones are finished.
fn finish_outer(frame: &mut Packet, layers: &Layers, part: &Part) {
    let (l4, end) = (usize::from(layers.l4), frame.len());
    write_network(frame.data_mut(), layers, end, part);
    match layers.protocol {
        UDP => {
            put16(frame.data_mut(), l4 + 4, (end - l4) as u16);
            // Zero means that there is none.
            if be16(frame.data(), l4 + 6) != Some(0) {
                unfinish_checksum(frame, layers);
                complete_checksum(frame);
            }
        }
        GRE if frame.data()[l4] & GRE_CHECKSUM != 0 => {
            put16(frame.data_mut(), l4 + 4, 0);
            let checksum = !sum_from(frame, l4);
            put16(frame.data_mut(), l4 + 4, checksum);
        }
        _ => {}
    }
}

struct Search<'a> {
    /// The first bytes of the packet, in which all headers lie.
    head: &'a [u8],
    /// Where the network packets end, all of them.
    end: usize,
    /// Where the checksum starts that is looked for, and its field behind that.
    checksum: Option<(usize, usize)>,
    looks_left: u32,
    levels: ArrayVec<Layers, LEVELS_MAX>,
}

impl Search<'_> {
    /// Whether this packet is the one that is looked for, or one of those within it is. Notes them all.
    fn leads_there(&mut self, layers: Layers) -> bool {
        if self.levels.try_push(layers).is_err() {
            return false;
        }
        self.is_there(&layers) || self.has_within(&layers) || {
            self.levels.pop();
            false
        }
    }

    fn is_there(&self, layers: &Layers) -> bool {
        if layers.payload == 0 {
            return false;
        }
        match self.checksum {
            Some((start, offset)) => {
                matches!(layers.protocol, TCP | UDP) && is_checksum_of(layers, start, offset)
            }
            None => layers.protocol == TCP && is_unfinished(self.head, layers),
        }
    }

    fn has_within(&mut self, layers: &Layers) -> bool {
        let l4 = usize::from(layers.l4);
        let last = self.checksum.map_or(self.head.len(), |(start, _)| start);
        let places = match layers.protocol {
            _ if l4 == 0 => return false,
            IPIP | IPV6_IN_IP => l4..l4 + 1,
            // A sum over addresses that are elsewhere.
            UDP if layers.is_routed() && be16(self.head, l4 + 6) != Some(0) => return false,
            UDP => l4 + 8..last,
            GRE => match gre_header_len(self.head.get(l4..).unwrap_or_default()) {
                Some(len) => l4 + len..last,
                None => return false,
            },
            _ => return false,
        };
        for at in places.step_by(2) {
            let Some(left) = self.looks_left.checked_sub(1) else { return false };
            self.looks_left = left;
            if self.network_at(at).is_some_and(|layers| self.leads_there(layers)) {
                return true;
            }
        }
        false
    }

    /// The network packet that starts at `at` and ends where those around it do.
    fn network_at(&self, at: usize) -> Option<Layers> {
        let (rest, len) = (self.head.get(at..)?, self.end.checked_sub(at)?);
        let eth_type = match rest.first()? >> 4 {
            4 => ETH_IPV4,
            6 => ETH_IPV6,
            _ => return None,
        };
        let layers = Layers::without_link(rest, len, eth_type);
        let is_whole = layers.is_ip() && !layers.is_fragment() && layers.end(rest) == len;
        is_whole.then(|| layers.shifted(at as isize))
    }
}

const GRE_CHECKSUM: u8 = 0x80;

/// The length of a GRE header, unless each frame needs a number of its own or a route.
fn gre_header_len(header: &[u8]) -> Option<usize> {
    const KEY: u8 = 0x20;
    let [flags, version, ..] = *header.first_chunk::<4>()?;
    let has = |flag| usize::from(flags & flag != 0);
    (flags & !(GRE_CHECKSUM | KEY) == 0 && version == 0).then(|| 4 + 4 * has(GRE_CHECKSUM) + 4 * has(KEY))
}
