//! The frames that a generator sends: protocol, the differences between flows, and the order of flows.
//! Written as words joined by `+`: `udp`, `tcp-syn+l4+zipf`, `udp+vlan+ipv6`, `imix`, `pcap=FILE`.

use crate::measure::frames::addresses;
use flow::FieldId::{EthDst, EthSrc, Ipv6Dst, Ipv6Src, NwDst, NwSrc, TpDst, TpSrc};
use flow::Match;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;
use wire::compose::Compose;
use wire::ethernet::EthAddr;
use wire::vlan::VlanId;

/// Bytes of the generator's own in each frame: see [`super::receive`].
pub const STAMP: usize = 17;
/// Sizes of frames in the mix, with their check sequence, in a turn of twelve: seven small ones, four, one.
pub const IMIX: [u16; 12] = [64, 594, 64, 64, 594, 64, 1518, 64, 594, 64, 594, 64];
/// The VLAN of tagged frames.
pub const VLAN: u16 = 100;
/// Minimum length of a random order, which then repeats.
const PICKS: usize = 1 << 16;
/// It has this many frames for each flow: of even popularity, one flow in fifty has none.
const PICKS_PER_FLOW: usize = 4;

/// A frame's protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// UDP, all frames of one size.
    #[default]
    Udp,
    /// TCP segments that open a connection.
    TcpSyn,
    /// UDP in frames of three sizes ([`IMIX`]).
    Imix,
    /// The frames of a capture unchanged, each a flow.
    Pcap(PathBuf),
}

/// The differences between flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Vary {
    /// Ethernet addresses.
    L2,
    /// IP addresses.
    #[default]
    L3,
    /// Ports.
    L4,
}

/// The order of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    #[default]
    Sequential,
    /// At random, all as often.
    Random,
    /// At random, the n-th flow 1/n as often as the first.
    Zipf,
}

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pattern {
    /// For all frames.
    pub protocol: Protocol,
    /// Between flows.
    pub vary: Vary,
    /// The order of the flows.
    pub order: Order,
    /// Whether frames have a tag.
    pub vlan: bool,
    /// Whether they are IPv6.
    pub ipv6: bool,
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Pattern, String> {
        let mut pattern = Pattern::default();
        for word in text.split('+') {
            match word {
                "udp" => pattern.protocol = Protocol::Udp,
                "tcp-syn" => pattern.protocol = Protocol::TcpSyn,
                "imix" => pattern.protocol = Protocol::Imix,
                "l2" => pattern.vary = Vary::L2,
                "l3" => pattern.vary = Vary::L3,
                "l4" => pattern.vary = Vary::L4,
                "sequential" => pattern.order = Order::Sequential,
                "random" => pattern.order = Order::Random,
                "zipf" => pattern.order = Order::Zipf,
                "vlan" => pattern.vlan = true,
                "ipv6" => pattern.ipv6 = true,
                _ => match word.strip_prefix("pcap=") {
                    Some(path) => pattern.protocol = Protocol::Pcap(path.into()),
                    None => {
                        return Err(format!(
                            "{word}: expected udp, tcp-syn, imix or pcap=FILE, with l2, l3 or l4, sequential, random or \
                             zipf, vlan and ipv6, joined by +"
                        ));
                    }
                },
            }
        }
        Ok(pattern)
    }
}

impl TryFrom<String> for Pattern {
    type Error = String;

    fn try_from(text: String) -> Result<Pattern, String> {
        text.parse()
    }
}

impl From<Pattern> for String {
    fn from(pattern: Pattern) -> String {
        pattern.to_string()
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match &self.protocol {
            Protocol::Udp => f.write_str("udp")?,
            Protocol::TcpSyn => f.write_str("tcp-syn")?,
            Protocol::Imix => f.write_str("imix")?,
            Protocol::Pcap(path) => write!(f, "pcap={}", path.display())?,
        }
        f.write_str(match self.vary {
            Vary::L2 => "+l2",
            Vary::L3 => "",
            Vary::L4 => "+l4",
        })?;
        f.write_str(match self.order {
            Order::Sequential => "",
            Order::Random => "+random",
            Order::Zipf => "+zipf",
        })?;
        f.write_str(if self.vlan { "+vlan" } else { "" })?;
        f.write_str(if self.ipv6 { "+ipv6" } else { "" })
    }
}

/// Ethernet addresses of flow `n`.
fn macs(n: usize, vary: Vary) -> (EthAddr, EthAddr) {
    let [_, a, b, c] = (n as u32).to_be_bytes();
    match vary {
        // The destination is that of the switch's interface where a switch routes, so the source varies.
        Vary::L2 => (EthAddr([2, 1, 0, a, b, c]), EthAddr([2, 0, 0, 0, 0, 2])),
        _ => (EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2])),
    }
}

fn ipv6(address: u32) -> Ipv6Addr {
    let [a, b, c, d] = address.to_be_bytes().map(u16::from);
    Ipv6Addr::new(0xfd00, a, 0, 0, 0, 0, b, c << 8 | d)
}

/// Ports of flow `n`: as many pairs as there may be flows.
fn ports(n: usize, vary: Vary) -> (u16, u16) {
    match vary {
        Vary::L4 => (1024 + (n & 0x7fff) as u16, 1025 + (n >> 15) as u16),
        _ => (1024, 1025),
    }
}

impl Pattern {
    /// The frames of flow `n`, each once: one, or the mix. `size` includes the check sequence. The other way
    /// they have source and destination swapped.
    pub fn frames(&self, n: usize, size: u16, is_back: bool) -> Result<Vec<Vec<u8>>, String> {
        let sizes = match self.protocol {
            // Small ones grow to what headers and stamp take.
            Protocol::Imix => IMIX.map(|size| size.max(self.size_min())).to_vec(),
            _ => vec![size],
        };
        sizes.into_iter().map(|size| self.frame(n, size, is_back)).collect()
    }

    fn frame(&self, n: usize, size: u16, is_back: bool) -> Result<Vec<u8>, String> {
        let swap = |(a, b)| if is_back { (b, a) } else { (a, b) };
        let (src_mac, dst_mac) = macs(n, self.vary);
        let (src_mac, dst_mac) = if is_back { (dst_mac, src_mac) } else { (src_mac, dst_mac) };
        let (src, dst) = swap(addresses(if self.vary == Vary::L3 { n } else { 0 }));
        let (src_port, dst_port) = ports(n, self.vary);
        let mut frame = Compose::ethernet(src_mac, dst_mac);
        if self.vlan {
            frame = frame.vlan(VlanId::new(VLAN).expect("below 4095"));
        }
        frame = match self.ipv6 {
            true => frame.ipv6(ipv6(src.to_bits()), ipv6(dst.to_bits())),
            false => frame.ipv4(src, dst),
        };
        frame = match self.protocol {
            Protocol::TcpSyn => frame.tcp(src_port, dst_port).tcp_flags(wire::tcp::TcpFlags::SYN),
            // UDP over IPv6 requires a checksum. It is that of a payload of zeros until there is a stamp.
            _ if self.ipv6 => frame.udp(src_port, dst_port),
            _ => frame.udp(src_port, dst_port).udp_checksum_zero(),
        };
        let least = frame.headers_len() + STAMP;
        let len = usize::from(size) - 4;
        if len < least {
            return Err(format!(
                "{size} bytes are too short for {self}: headers and the generator's number take {}",
                least + 4
            ));
        }
        frame.frame_len(len).build().map_err(|e| format!("{self}: {e}"))
    }

    /// Where frames have a checksum that covers the payload, if they have one.
    pub fn checksum_at(&self) -> Option<usize> {
        let transport = 14 + if self.vlan { 4 } else { 0 } + if self.ipv6 { 40 } else { 20 };
        match self.protocol {
            Protocol::Pcap(_) => None,
            Protocol::TcpSyn => Some(transport + 16),
            Protocol::Udp | Protocol::Imix => self.ipv6.then_some(transport + 6),
        }
    }

    /// Frames of the capture, each of which is a flow; `None` where there is none.
    pub fn frames_of_capture(&self) -> Option<usize> {
        let Protocol::Pcap(path) = &self.protocol else { return None };
        let bytes = std::fs::read(path).ok()?;
        ports::pcap::file::parse(&bytes).map(|frames| frames.len()).ok()
    }

    /// The shortest frame, with its check sequence.
    pub fn size_min(&self) -> u16 {
        let headers = 14 + if self.vlan { 4 } else { 0 } + if self.ipv6 { 40 } else { 20 };
        let transport = if self.protocol == Protocol::TcpSyn { 20 } else { 8 };
        (headers + transport + STAMP + 4).max(64) as u16
    }

    /// What distinguishes the first flow from others, as a match of `ovs-ofctl`.
    pub fn match_text(&self, is_back: bool) -> String {
        let mut text = String::new();
        if self.vlan {
            text += &format!("dl_vlan={VLAN},");
        }
        let (side, other) = if is_back { ("dst", "src") } else { ("src", "dst") };
        let (src, dst) = addresses(0);
        let (src_port, dst_port) = ports(0, self.vary);
        let transport = match (&self.protocol, self.ipv6) {
            (Protocol::TcpSyn, false) => "tcp",
            (Protocol::TcpSyn, true) => "tcp6",
            (_, false) => "udp",
            (_, true) => "udp6",
        };
        text + &match self.vary {
            Vary::L2 => format!("dl_{side}={}", macs(0, self.vary).0),
            Vary::L3 if self.ipv6 => {
                format!("ipv6,ipv6_{side}={},ipv6_{other}={}", ipv6(src.to_bits()), ipv6(dst.to_bits()))
            }
            Vary::L3 => format!("ip,nw_{side}={src},nw_{other}={dst}"),
            // Ports are not swapped: the addresses say which way a frame goes.
            Vary::L4 => {
                let way = if self.ipv6 { String::new() } else { format!("nw_{side}={},", addresses(0).0) };
                format!("{transport},{way}tp_src={src_port},tp_dst={dst_port}")
            }
        }
    }

    /// The match of the first flow, made that of flow `n`.
    pub fn matching(&self, first: Match, n: usize, is_back: bool) -> Match {
        let ends = |src, dst| if is_back { (dst, src) } else { (src, dst) };
        let (src, dst) = addresses(n);
        match self.vary {
            Vary::L2 => first.with(ends(EthSrc, EthDst).0, macs(n, self.vary).0.to_u64().into()),
            Vary::L3 if self.ipv6 => {
                let (side, other) = ends(Ipv6Src, Ipv6Dst);
                first.with(side, ipv6(src.to_bits()).to_bits()).with(other, ipv6(dst.to_bits()).to_bits())
            }
            Vary::L3 => {
                let (side, other) = ends(NwSrc, NwDst);
                first.with(side, src.to_bits().into()).with(other, dst.to_bits().into())
            }
            // Ports are not swapped, see above.
            Vary::L4 => {
                let (src_port, dst_port) = ports(n, self.vary);
                first.with(TpSrc, src_port.into()).with(TpDst, dst_port.into())
            }
        }
    }

    /// The direction of the frames of all flows, as a match.
    pub fn way_text(&self, is_back: bool) -> String {
        let side = if is_back { "dst" } else { "src" };
        match (self.vary, self.ipv6) {
            (Vary::L2, _) => format!("dl_{side}=02:01:00:00:00:00/ff:ff:00:00:00:00"),
            (_, true) => format!("ipv6,ipv6_{side}=fd00:a::/32"),
            (_, false) => format!("ip,nw_{side}=10.0.0.0/8"),
        }
    }

    /// The flows in their order, to be repeated.
    pub fn picks(&self, flows: usize) -> Vec<u32> {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        let length = (PICKS_PER_FLOW * flows).max(PICKS);
        match self.order {
            Order::Sequential => (0..flows as u32).collect(),
            Order::Random => (0..length).map(|_| (random() * flows as f64) as u32).collect(),
            Order::Zipf => {
                let mut sum = 0.0;
                let sums: Vec<f64> = (1..=flows)
                    .map(|n| {
                        sum += 1.0 / n as f64;
                        sum
                    })
                    .collect();
                let pick = |at: f64| sums.partition_point(|s| *s < at * sum).min(flows - 1) as u32;
                (0..length).map(|_| pick(random())).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_written_as_they_are_read() {
        for text in ["udp", "tcp-syn+l4+zipf", "udp+vlan+ipv6", "imix+l2+random", "pcap=/tmp/x.pcap"] {
            assert_eq!(text.parse::<Pattern>().unwrap().to_string(), text);
        }
        assert!("udp+juggling".parse::<Pattern>().unwrap_err().contains("juggling: expected udp"));
    }

    #[test]
    fn frames_have_the_size_and_headers_that_were_asked_for() {
        let of = |text: &str, size| text.parse::<Pattern>().unwrap().frames(3, size, false);
        assert_eq!(of("udp", 64).unwrap()[0].len(), 60);
        let tagged = of("udp+vlan", 128).unwrap().remove(0);
        assert_eq!((&tagged[12..16], tagged.len()), (&[0x81, 0, 0, 100][..], 124));
        let syn = of("tcp-syn", 128).unwrap().remove(0);
        assert_eq!((syn[23], syn[47] & 0x3f), (6, 2), "TCP, SYN alone");
        assert_eq!(of("udp+ipv6", 128).unwrap()[0][12..14], [0x86, 0xdd]);
        let mix: usize = of("imix", 64).unwrap().iter().map(|f| f.len() + 4).sum();
        assert_eq!(mix, 7 * 64 + 4 * 594 + 1518);
        let shortest = |text: &str| of(text, 64).unwrap().iter().map(|f| f.len() + 4).min();
        assert_eq!((shortest("imix"), shortest("imix+ipv6+vlan")), (Some(64), Some(87)));
        assert!(of("tcp-syn+ipv6", 64).unwrap_err().contains("too short"));
        for text in ["udp", "tcp-syn", "udp+vlan", "udp+ipv6", "tcp-syn+vlan+ipv6"] {
            let pattern: Pattern = text.parse().unwrap();
            assert!(pattern.frames(0, pattern.size_min(), false).is_ok(), "{text}");
            assert!(text == "udp" || pattern.frames(0, pattern.size_min() - 1, false).is_err(), "{text}");
        }
    }

    #[test]
    fn each_flow_is_told_from_the_others_by_what_varies() {
        for text in ["udp+l2", "udp", "udp+l4", "tcp-syn+l4", "udp+ipv6"] {
            let pattern: Pattern = text.parse().unwrap();
            let frames: std::collections::BTreeSet<_> =
                (0..40_000).step_by(1_000).map(|n| pattern.frames(n, 128, false).unwrap()).collect();
            assert_eq!(frames.len(), 40, "{text}");
        }
    }

    #[test]
    fn the_way_back_is_the_way_there_with_both_ends_swapped() {
        let pattern = Pattern::default();
        let (there, back) =
            (pattern.frames(7, 64, false).unwrap().remove(0), pattern.frames(7, 64, true).unwrap().remove(0));
        assert_eq!((&there[..6], &there[26..30]), (&back[6..12], &back[30..34]));
        assert_eq!(pattern.match_text(true), "ip,nw_dst=10.0.0.0,nw_src=11.0.0.85");
    }

    #[test]
    fn popularity_is_even_or_falls_with_the_rank() {
        let count = |text: &str, flow| {
            let picks = text.parse::<Pattern>().unwrap().picks(1_000);
            picks.iter().filter(|p| **p == flow).count()
        };
        assert_eq!((count("udp", 0), count("udp", 999)), (1, 1));
        assert!((40..100).contains(&count("udp+random", 500)));
        // One in 7.49 and one in 749.
        assert!((8_000..9_500).contains(&count("udp+zipf", 0)), "{}", count("udp+zipf", 0));
        assert!((50..130).contains(&count("udp+zipf", 99)), "{}", count("udp+zipf", 99));
    }

    #[test]
    fn of_many_flows_in_random_order_next_to_all_have_frames() {
        let distinct = |text: &str| {
            let picks = text.parse::<Pattern>().unwrap().picks(200_000);
            picks.into_iter().collect::<std::collections::BTreeSet<u32>>().len()
        };
        assert!(distinct("udp+random") > 195_000, "{}", distinct("udp+random"));
        // The rarest of them one frame in 2.6 million.
        assert!(distinct("udp+zipf") > 100_000, "{}", distinct("udp+zipf"));
    }
}
