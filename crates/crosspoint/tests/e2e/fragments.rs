//! Fragments and connection tracking: each datagram is tracked as a whole, beside the stock switch and by
//! what the commands say.

use crate::actions_beside_stock::{Both, ethernet};
use crate::common::Switch;
use crate::connection_tracking::{
    DNAT, EST, NEW, RPL, Random, SEED, SHOW, SNAT, both_tracking, icmp, ipv4, random_frame, summed, udp,
};
use std::net::{Ipv4Addr, Ipv6Addr};
use wire::checksum::{checksum, pseudo_v4, pseudo_v6};
use wire::ip::IpProtocol;

/// One fragment of IPv4 as a frame: `part` is what begins at byte `start` of the datagram.
pub fn fragment_v4(
    ends: [Ipv4Addr; 2],
    (protocol, id): (u8, u32),
    start: usize,
    more: bool,
    part: &[u8],
) -> Vec<u8> {
    let mut packet = ipv4(ends[0], ends[1], protocol, part);
    let word = (start / 8) as u16 | u16::from(more) << 13;
    packet[4..6].copy_from_slice(&(id as u16).to_be_bytes());
    packet[6..8].copy_from_slice(&word.to_be_bytes());
    packet[10..12].fill(0);
    let sum = checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x0800, &packet)
}

/// The same of IPv6.
fn fragment_v6(
    ends: [Ipv6Addr; 2],
    (protocol, id): (u8, u32),
    start: usize,
    more: bool,
    part: &[u8],
) -> Vec<u8> {
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((8 + part.len() as u16).to_be_bytes());
    packet.extend([44, 64]);
    packet.extend(ends[0].octets());
    packet.extend(ends[1].octets());
    packet.extend([protocol, 0]);
    packet.extend((start as u16 | u16::from(more)).to_be_bytes());
    packet.extend(id.to_be_bytes());
    packet.extend(part);
    ethernet(0x86dd, &packet)
}

/// Makes the frame of a fragment: its offset, whether more follow, its bytes.
type Framing<'a> = dyn Fn(usize, bool, &[u8]) -> Vec<u8> + 'a;

/// A datagram, cut.
struct Cut {
    /// Start and length of each fragment, in order.
    parts: Vec<(usize, usize)>,
    whole: Vec<u8>,
    frame: Box<Framing<'static>>,
}

impl Cut {
    /// A random one of a few connections, which are those of the whole packets in [`random_frame`].
    fn random(r: &mut Random, id: u32) -> Cut {
        let is_back = r.next().is_multiple_of(2);
        let data: Vec<u8> = (0..1_300 + r.next() % 4_000).map(|n| n as u8).collect();
        let (from, to) = if is_back { (80, 4000) } else { (4000, 80) };
        let is_udp = r.next().is_multiple_of(2);
        let echo = [&[0x12, 0x34, 0, 1], &data[..]].concat();
        let (whole, frame): (_, Box<Framing<'static>>) = if r.next().is_multiple_of(3) {
            let (a, b): (Ipv6Addr, Ipv6Addr) =
                ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
            let ends = if is_back { [b, a] } else { [a, b] };
            let pseudo = |protocol| move |len| pseudo_v6(ends[0], ends[1], IpProtocol(protocol), len as u32);
            let (protocol, whole) = if is_udp {
                (17, udp(from, to, &data, pseudo(17)))
            } else {
                let bytes = [&[if is_back { 129 } else { 128 }, 0, 0, 0], &echo[..]].concat();
                let pseudo = pseudo(58)(bytes.len());
                (58, summed(bytes, 2, pseudo))
            };
            (whole, Box::new(move |start, more, part| fragment_v6(ends, (protocol, id), start, more, part)))
        } else {
            let net = r.of(&[2, 7]);
            let (client, server) = (Ipv4Addr::new(10, net, 0, 1), Ipv4Addr::new(10, 1, 1, 1));
            // What is translated is answered to its new address.
            let shown = if net == 7 { Ipv4Addr::new(10, 9, 9, 1) } else { client };
            let ends = if is_back { [server, shown] } else { [client, server] };
            let (protocol, whole) = if is_udp {
                (17, udp(from, to, &data, |len| pseudo_v4(ends[0], ends[1], IpProtocol(17), len as u16)))
            } else {
                (1, icmp(if is_back { 0 } else { 8 }, 0, &echo))
            };
            (whole, Box::new(move |start, more, part| fragment_v4(ends, (protocol, id), start, more, part)))
        };
        let mut parts = vec![];
        let mut at = 0;
        while at < whole.len() {
            // None but the last is smaller than both switches allow.
            let len = (1_240 + 8 * (r.next() % 20) as usize).min(whole.len() - at);
            parts.push((at, len));
            at += len;
        }
        Cut { parts, whole, frame }
    }

    fn part(&self, start: usize, end: usize) -> Vec<u8> {
        (self.frame)(start, end < self.whole.len(), &self.whole[start..end])
    }

    /// Its fragments in a random order, with some between them that make no sense beside those before.
    fn frames(&self, r: &mut Random) -> Vec<(&'static str, Vec<u8>)> {
        let mut parts = self.parts.clone();
        (1..parts.len()).for_each(|n| parts.swap(n, r.next() as usize % (n + 1)));
        let mut frames = vec![];
        for (n, (start, len)) in parts.iter().copied().enumerate() {
            frames.push(("fragment", self.part(start, start + len)));
            // Behind the last one they would be of another datagram.
            if n + 1 == parts.len() {
                break;
            }
            match r.next() % 12 {
                0 => frames.push(("again", self.part(start, start + len))),
                1 if start + len < self.whole.len() && len > 1_260 => {
                    frames.push(("its head again", self.part(start, start + 1_248)));
                }
                2 if start >= 8 && start + len < self.whole.len() => {
                    frames.push(("earlier by 8 bytes", self.part(start - 8, start + len - 8)));
                }
                3 => frames.push(("too small", self.part(0, 800))),
                _ => {}
            }
        }
        frames
    }
}

const STEPS: u32 = 120;

#[test]
fn random_fragments_get_the_same_state_and_translation_from_the_stock_switch() {
    let mut both = both_tracking();
    let mut r = Random(SEED);
    for step in 0..testkit::cases("crosspoint::fragments_beside_stock", STEPS) {
        let frames = Cut::random(&mut r, step).frames(&mut r);
        both.same_fates(&format!("step {step}"), &frames);
        both.same_fates(&format!("step {step}"), &[("a whole packet", random_frame(&mut r))]);
    }
    let status = both.appctl_ours(&["dpctl/ipf-get-status"]);
    assert!(status.contains("num frag: 0\n"), "all datagrams were completed: {status}");
}

/// The oracle's must-fail twin.
#[test]
fn planted_mistakes_of_fragments_are_found() {
    for command in [["dpctl/ipf-set-disabled", "v4"], ["dpctl/ipf-set-disabled", "v6"]] {
        let mut both = both_tracking();
        both.appctl_ours(&command);
        let mut r = Random(SEED);
        let mut differ = |both: &mut Both, id| {
            let frames = Cut::random(&mut r, id).frames(&mut r);
            frames.iter().any(|(_, frame)| both.differ(frame))
        };
        assert!((0..STEPS).any(|id| differ(&mut both, id)), "{command:?} is not found");
    }
}

/// A datagram of UDP as frames of fragments.
fn in_fragments([src, dst]: [&str; 2], ports: [u16; 2], data: &[u8]) -> Vec<Vec<u8>> {
    const PART: usize = 1240;
    let cut = |whole: Vec<u8>, frame: &Framing<'_>| {
        let parts = whole.chunks(PART).enumerate();
        parts.map(|(n, part)| frame(n * PART, (n + 1) * PART < whole.len(), part)).collect()
    };
    if let (Ok(src), Ok(dst)) = (src.parse::<Ipv4Addr>(), dst.parse::<Ipv4Addr>()) {
        let whole = udp(ports[0], ports[1], data, |len| pseudo_v4(src, dst, IpProtocol(17), len as u16));
        return cut(whole, &|start, more, part| fragment_v4([src, dst], (17, 0), start, more, part));
    }
    let (src, dst): (Ipv6Addr, Ipv6Addr) = (src.parse().unwrap(), dst.parse().unwrap());
    let whole = udp(ports[0], ports[1], data, |len| pseudo_v6(src, dst, IpProtocol(17), len as u32));
    cut(whole, &|start, more, part| fragment_v6([src, dst], (17, 77), start, more, part))
}

#[test]
fn fragments_are_tracked_and_translated_as_a_whole_and_leave_as_they_came() {
    let hex = |frame: &[u8]| -> String { frame.iter().map(|byte| format!("{byte:02x}")).collect() };
    for (family, client, server, shown) in
        [("ip", "10.0.0.1", "10.0.0.2", "10.9.9.9"), ("ipv6", "2001:db8::1", "2001:db8::2", "2001:db8::9")]
    {
        let switch = Switch::dummy();
        switch.add_flow(&format!("{family},actions=ct(table=5,zone=5,nat)"));
        switch.add_flow(&format!(
            "table=5,ct_state=+new+trk,{family},actions={SHOW},ct(commit,zone=5,nat(src={shown})),output:2"
        ));
        switch.add_flow(&format!("table=5,priority=1,actions={SHOW},output:2"));
        let data: Vec<u8> = (0..3000u32).map(|n| n as u8).collect();
        let sent = |way: [&str; 2], becomes: [&str; 2], ports: [u16; 2], state: u8| {
            let (frames, expected) = (in_fragments(way, ports, &data), in_fragments(becomes, ports, &data));
            assert_eq!(frames.len(), 3);
            // The last comes first.
            frames.iter().rev().for_each(|frame| switch.receive("p1", &hex(frame)));
            let sent = switch.sent("p2", 3);
            for (n, (sent, expected)) in sent.iter().zip(&expected).enumerate() {
                assert_eq!(&sent[10..12], format!("{state:02x}"), "{family}, {way:?}, fragment {n}");
                assert_eq!(&sent[12..], &hex(expected)[12..], "{family}, {way:?}, fragment {n}");
            }
        };
        sent([client, server], [shown, server], [4000, 53], NEW);
        sent([server, shown], [server, client], [53, 4000], EST | RPL | DNAT);
        sent([client, server], [shown, server], [4000, 53], EST | SNAT);
        let status = switch.appctl(&["dpctl/ipf-get-status"]).ok();
        let version = if family == "ip" { "v4" } else { "v6" };
        // The first datagram is tracked twice.
        assert!(status.contains(&format!("{version} frags completed: 12\n")), "{status}");
        assert!(status.contains("num frag: 0\n"), "{status}");
        // One that never completes is shown, and what overlaps it is invalid.
        let frames = in_fragments([client, server], [4000, 53], &data);
        switch.receive("p1", &hex(&frames[1]));
        switch.receive("p1", &hex(&frames[1]));
        assert_eq!(&switch.sent("p2", 1)[0][10..12], "30");
        let status = switch.appctl(&["dpctl/ipf-get-status", "-m"]).ok();
        assert!(status.contains("num_fragments=1,state=other frag)"), "{status}");
        switch.appctl(&["dpctl/ipf-set-disabled", version]).ok();
        switch.receive("p1", &hex(&frames[0]));
        assert_eq!(&switch.sent("p2", 1)[0][10..12], "30", "as without reassembly");
    }
}

#[test]
fn commands_of_fragments_say_what_the_stock_switch_says() {
    let switch = Switch::dummy();
    for (command, says) in [
        ("set-enabled v4", "enabling fragmentation reassembly successful"),
        ("set-disabled v6", "disabling fragmentation reassembly successful"),
        ("set-enabled x", "parameter missing: 'v4' for IPv4 or 'v6' for IPv6 (Invalid argument)"),
        ("set-min-frag v4 1000", "setting minimum fragment size successful"),
        (
            "set-min-frag v4 300",
            "requested minimum fragment size too small; see documentation (Operation not",
        ),
        ("set-min-frag v9 1300", "parameter missing: v4 for IPv4 or v6 for IPv6 (Invalid argument)"),
        ("set-min-frag v4 x", "parameter missing for minimum fragment size (Invalid argument)"),
        ("set-max-nfrags 500", "setting maximum fragments successful"),
        ("set-max-nfrags 50000", "setting maximum fragments failed (Operation not permitted)"),
        (
            "get-status",
            "v6 enabled: 0\n        max num frags (v4/v6): 500\n        num frag: 0\n        min v4 frag size: 1000",
        ),
    ] {
        let words: Vec<String> = format!("dpctl/ipf-{command}").split(' ').map(str::to_owned).collect();
        let said = switch.appctl(&words.iter().map(String::as_str).collect::<Vec<_>>());
        assert!((said.out.clone() + &said.err).contains(says), "{command}: {said:?}");
    }
}
