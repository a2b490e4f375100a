//! Rules and packets of `conntrack`.
//!
//! A TCP connection goes from inside (port 1) to outside (port 3); all traffic that passes goes to the sink.
//! Each connection has its own pair of addresses, so its port is unchanged when the source address is
//! translated, and the other end's packets can be written beforehand.

use crate::measure::frames::{Order, addresses, sequence};
use crate::measure::trial::{SOURCE, write_frames, write_timed_frames};
use base::PortNo;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use wire::compose::{Compose, FRAME_LEN_MIN};
use wire::ethernet::EthAddr;
use wire::tcp::{TcpFlags, TcpRepr};

/// The side that opens connections.
pub const INSIDE: PortNo = SOURCE;
/// The port from which they are answered.
pub const OUTSIDE: PortNo = PortNo(3);
/// Opens a few connections while another port is flooded.
pub const NEIGHBOUR: PortNo = PortNo(4);
/// The port of a flood of opening packets.
pub const FLOODED: PortNo = PortNo(5);
/// The address after translation.
const TRANSLATED: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const SERVICE: u16 = 80;
/// Initial sequence numbers of both ends.
const INSIDE_FIRST: u32 = 1_000;
const OUTSIDE_FIRST: u32 = 5_000;

/// The cookie of the rule for packets that open connections.
pub const OPENING: u64 = 2;
/// The rule for packets from inside that belong to existing connections.
pub const FROM_INSIDE: u64 = 3;
/// The rule for those from outside.
pub const FROM_OUTSIDE: u64 = 4;
/// The rule for all others, which drops.
pub const OTHERS: u64 = 5;

/// The rule for connections that the neighbour opens.
pub const NEIGHBOURLY: u64 = 6;
/// The rule for those that the flood opens.
const OF_FLOOD: u64 = 7;
/// Cookies are below this.
pub const COOKIES: usize = OF_FLOOD as usize + 1;

/// What the first packet of a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Kind {
    /// The first segment of a TCP connection.
    Tcp,
    /// The same in IPv6.
    Tcp6,
    /// The first datagram of a UDP flow.
    Udp,
}

impl Kind {
    /// As in flows.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Tcp => "tcp",
            Kind::Tcp6 => "tcp6",
            Kind::Udp => "udp",
        }
    }

    /// Rules beside the firewall's, for [`NEIGHBOUR`] and [`FLOODED`].
    pub fn rules(self) -> String {
        let name = self.name();
        format!(
            "cookie=6,table=1,priority=10,tcp,in_port=4,ct_state=+trk+new,actions=ct(commit),output:2\n\
             cookie=1,table=0,priority=10,{name},in_port=5,actions=ct(table=1)\n\
             cookie=7,table=1,priority=10,{name},in_port=5,ct_state=+trk+new,actions=ct(commit),output:2\n"
        )
    }

    /// The first packet of connection `n`.
    fn frame(self, n: usize) -> Vec<u8> {
        let (client, server) = addresses(n);
        let port = 1024 + (n % 60_000) as u16;
        let (near, far) = (EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        let tcp = TcpRepr { flags: TcpFlags::SYN, seq: INSIDE_FIRST, ..TcpRepr::new(port, SERVICE) };
        let composed = match self {
            Kind::Tcp => return frame(n, Segment::Syn, Rules::Firewall),
            Kind::Tcp6 => {
                let [from, to] = [client, server].map(|address| address.to_ipv6_mapped());
                Compose::ethernet(near, far).ipv6(from, to).tcp_repr(tcp)
            }
            Kind::Udp => Compose::ethernet(near, far).ipv4(client, server).udp(port, SERVICE),
        };
        let mut bytes = composed.build().expect("headers of 74 bytes at most");
        bytes.resize(FRAME_LEN_MIN.max(bytes.len()), 0);
        bytes
    }
}

/// A rule that drops the flood before it is tracked.
pub const DROPPING: &str = "cookie=7,table=0,priority=20,in_port=5,actions=drop\n";

/// The configuration of the switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub enum Rules {
    /// Like the firewall, without connection tracking.
    Stateless,
    /// Connections are opened from inside only.
    Firewall,
    /// And inside addresses are translated.
    Snat,
}

impl Rules {
    /// As in a label.
    pub fn name(self) -> &'static str {
        match self {
            Rules::Stateless => "stateless",
            Rules::Firewall => "firewall",
            Rules::Snat => "snat",
        }
    }

    /// Rules in `ovs-ofctl`'s syntax.
    pub fn text(self) -> String {
        let (track, commit) = match self {
            Rules::Stateless => {
                return "cookie=1,table=0,priority=10,tcp,actions=resubmit(,1)\n\
                    cookie=3,table=1,priority=10,tcp,in_port=1,actions=output:2\n\
                    cookie=4,table=1,priority=10,tcp,in_port=3,actions=output:2\n\
                    cookie=5,table=1,priority=0,actions=drop\n"
                    .into();
            }
            Rules::Firewall => ("ct(table=1)", "ct(commit)".to_string()),
            Rules::Snat => ("ct(table=1,nat)", format!("ct(commit,nat(src={TRANSLATED}))")),
        };
        format!(
            "cookie=1,table=0,priority=10,tcp,actions={track}\n\
             cookie=2,table=1,priority=10,tcp,in_port=1,ct_state=+trk+new,actions={commit},output:2\n\
             cookie=3,table=1,priority=10,tcp,in_port=1,ct_state=+trk+est,actions=output:2\n\
             cookie=4,table=1,priority=10,tcp,in_port=3,ct_state=+trk+est,actions=output:2\n\
             cookie=5,table=1,priority=0,actions=drop\n"
        )
    }
}

/// A capture, and the port that it comes in at.
#[derive(Clone)]
pub struct Source {
    /// The port.
    pub port: PortNo,
    /// The capture.
    pub pcap: PathBuf,
    /// Frames in it.
    pub frames: u64,
}

/// A segment of a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Segment {
    Syn,
    SynAck,
    AckFromInside,
    AckFromOutside,
}

/// The first segment of each of this many connections.
pub fn opening(dir: &Path, connections: usize) -> Result<Source, String> {
    write(dir, "opening", Segment::Syn, Rules::Firewall, 0..connections)
}

/// What opens other connections, from number `first` on, and comes in at a port: so many packets per second,
/// for so long.
pub fn opening_at(
    dir: &Path,
    (port, kind): (PortNo, Kind),
    first: usize,
    (per_s, time): (usize, Duration),
) -> Result<Source, String> {
    let pcap = dir.join(format!("opening-at-{port}.pcap"));
    let frames = (per_s as f64 * time.as_secs_f64()).ceil() as usize;
    let interval_ns = 1e9 / per_s as f64;
    let timed = (0..frames).map(|n| ((n as f64 * interval_ns) as u64, kind.frame(first + n)));
    write_timed_frames(&pcap, timed)?;
    Ok(Source { port, pcap, frames: frames as u64 })
}

/// The answer to each.
pub fn answering(dir: &Path, connections: usize, rules: Rules) -> Result<Source, String> {
    write(dir, "answering", Segment::SynAck, rules, 0..connections)
}

/// A segment of each from both ends, in an order without pattern.
pub fn established(dir: &Path, connections: usize, rules: Rules) -> Result<Vec<Source>, String> {
    let order = sequence(connections, Order::Shuffled);
    let inside = write(dir, "inside", Segment::AckFromInside, rules, order.iter().copied())?;
    // Differs from the other end's segment of the same connection at the same moment.
    let outside = write(dir, "outside", Segment::AckFromOutside, rules, order.iter().rev().copied())?;
    Ok(vec![inside, outside])
}

/// Segments from inside for this many connections, repeatedly.
pub fn repeated(dir: &Path, connections: usize, frames: usize) -> Result<Source, String> {
    let order = sequence(connections, Order::Shuffled);
    let numbers = order.iter().copied().cycle().take(frames);
    write(dir, &format!("repeated-{frames}"), Segment::AckFromInside, Rules::Stateless, numbers)
}

fn write(
    dir: &Path,
    name: &str,
    segment: Segment,
    rules: Rules,
    numbers: impl Iterator<Item = usize>,
) -> Result<Source, String> {
    let pcap = dir.join(format!("{name}-{}.pcap", rules.name()));
    let mut frames = 0;
    write_frames(&pcap, numbers.inspect(|_| frames += 1).map(|n| frame(n, segment, rules)))?;
    let is_inside = matches!(segment, Segment::Syn | Segment::AckFromInside);
    Ok(Source { port: if is_inside { INSIDE } else { OUTSIDE }, pcap, frames })
}

/// A segment of connection `n` without payload, padded to the shortest frame.
fn frame(n: usize, segment: Segment, rules: Rules) -> Vec<u8> {
    let (client, server) = addresses(n);
    let port = 1024 + (n % 60_000) as u16;
    let (flags, seq, ack) = match segment {
        Segment::Syn => (TcpFlags::SYN, INSIDE_FIRST, 0),
        Segment::SynAck => (TcpFlags::from_bits(0x12), OUTSIDE_FIRST, INSIDE_FIRST + 1),
        Segment::AckFromInside => (TcpFlags::ACK, INSIDE_FIRST + 1, OUTSIDE_FIRST + 1),
        Segment::AckFromOutside => (TcpFlags::ACK, OUTSIDE_FIRST + 1, INSIDE_FIRST + 1),
    };
    let (near, far) = (EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
    let composed = match segment {
        Segment::Syn | Segment::AckFromInside => {
            let tcp = TcpRepr { flags, seq, ack, ..TcpRepr::new(port, SERVICE) };
            Compose::ethernet(near, far).ipv4(client, server).tcp_repr(tcp)
        }
        Segment::SynAck | Segment::AckFromOutside => {
            let to = if rules == Rules::Snat { TRANSLATED } else { client };
            let tcp = TcpRepr { flags, seq, ack, ..TcpRepr::new(SERVICE, port) };
            Compose::ethernet(far, near).ipv4(server, to).tcp_repr(tcp)
        }
    };
    let mut bytes = composed.build().expect("headers of 54 bytes");
    bytes.resize(FRAME_LEN_MIN, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_acknowledge_each_other_and_the_padding_is_no_payload() {
        let at = |f: &[u8], at: usize| u32::from_be_bytes(f[at..at + 4].try_into().unwrap());
        let [syn, answer, ack] =
            [Segment::Syn, Segment::SynAck, Segment::AckFromInside].map(|s| frame(7, s, Rules::Snat));
        assert_eq!((syn.len(), syn[17]), (60, 40), "an IP packet of 40 bytes");
        assert_eq!(at(&answer, 42), at(&syn, 38) + 1);
        assert_eq!((at(&ack, 38), at(&ack, 42)), (at(&answer, 42), at(&answer, 38) + 1));
        assert_eq!((&syn[30..34], &answer[30..34]), (&answer[26..30], &TRANSLATED.octets()[..]));
    }

    #[test]
    fn the_firewall_has_five_rules_that_our_parser_takes_too() {
        let flooded = |kind: Kind| Rules::Firewall.text() + &kind.rules() + DROPPING;
        let texts = [(Rules::Stateless.text(), 4), (Rules::Firewall.text(), 5), (Rules::Snat.text(), 5)];
        let flooded = [Kind::Tcp, Kind::Tcp6, Kind::Udp].map(|kind| (flooded(kind), 9));
        for (text, count) in texts.into_iter().chain(flooded) {
            let names = openflow::text::PortNames::none();
            let parsed = openflow::text::parse_flow_file(&text, None, names).unwrap();
            assert_eq!(parsed.len(), count);
        }
    }
}
