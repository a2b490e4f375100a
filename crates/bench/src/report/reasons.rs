//! Why Crosspoint is behind a peer, if known: each reason is shown with the figures that it explains.

/// A reason, and what it applies to. An empty text matches anything.
pub struct Reason {
    suite: &'static str,
    /// The beginning of the peer's name.
    peer: &'static str,
    /// Part of the figure's name.
    figure: &'static str,
    /// Part of the load's text.
    load: &'static str,
    why: &'static str,
}

const fn reason(suite: &'static str, peer: &'static str, figure: &'static str, why: &'static str) -> Reason {
    Reason { suite, peer, figure, load: "", why }
}

impl Reason {
    /// The same for loads with this in their text.
    const fn of_load(self, load: &'static str) -> Reason {
        Reason { load, ..self }
    }
}

const KERNEL: &str = "the kernel forwards while the generator sends, and wakes no other thread";
const POLLS: &str = "its thread polls and never sleeps; Crosspoint's sleeps at this rate, and on shared \
                     processors waits for its turn when it is woken";

const MEETS: &str = "packets that come every 50 us are met by a worker that polls for 60 us before it sleeps: \
                     their median latency is 3.2 us, the peer's 36 us";

const SHARES: &str = "a worker that polls between two packets keeps a processor that it shares with the generator \
                      until its slice ends; the peer's thread sleeps after each packet, and preempts the generator \
                      when it is woken. At 20,000/s the medians are 3.3 us and 37 us with a processor each, and \
                      400 to 630 us and 33 to 64 us with one for all";

/// The first one that fits is shown.
const REASONS: &[Reason] = &[
    reason(
        "load-rules",
        "",
        "bytes_per_rule",
        "some 20 MB do not depend on the number of rules; of a million, each took 332 bytes, and 884 in the \
         peer (run 2026-11-21)",
    ),
    reason(
        "conntrack",
        "",
        "cycles",
        "one connection: the peer answers every packet from its exact-match cache and one line of memory; \
         with more connections it loses that",
    ),
    reason("load-curve", "ovs-netdev", "latency", SHARES).of_load("offered_pps=10000 "),
    reason("clone", "ovs-netdev", "latency", SHARES),
    reason("ports-and-batches", "ovs-netdev", "latency", SHARES),
    reason("traffic", "ovs-netdev", "latency", SHARES),
    reason("coupling", "ovs-netdev", "latency", SHARES).of_load("offered_pps=20000 "),
    reason(
        "mac-learning",
        "ovs-dpdk",
        "learned",
        "20,000 rules are learned in 0.3 s, much of which goes by until the stock tools have started and the \
         rules are counted, every 20 ms: of 200,000 rules, in turns on a busy machine, Crosspoint learned \
         55,700/s and the peer 24,000/s",
    ),
    reason(
        "ovsdb",
        "ovsdb-server",
        "value",
        "the longest of one turn: in five more, on a busy machine, the longest transaction and the longest time \
         until ten monitors knew a change were the shorter ones in four each",
    ),
    reason(
        "pvp-matrix",
        "ovs-dpdk",
        "pps",
        "generator, switch and guest share two processors, of which the peer takes 1.5 and Crosspoint 0.6: a \
         packet costs Crosspoint half. In five more turns on a busy machine Crosspoint was ahead in four",
    ),
    reason(
        "zero-loss",
        "ovs-dpdk",
        "machine_cycles",
        "both take a whole processor at any rate that the search tries, so this is the inverse of the rate that \
         it found; searches in quick form found 0 to 77,000/s and 0 to 27,000/s in seven more turns on a busy \
         machine",
    ),
    reason(
        "restart",
        "ovs-dpdk",
        "reset",
        "Crosspoint looked for a guest that had gone every 200 ms (now every 20 ms, for two seconds), the peer looks \
         every second: it was lucky in this turn, and took 366 to 490 ms in four others",
    )
    .of_load("reset-guest"),
    reason(
        "restart",
        "ovs-dpdk",
        "reset",
        "DPDK's packet socket holds some 500 frames while the link is down and sends them, up to half a second \
         late, when it is back, as does testpmd's: they are not lost. The longest time without a packet is no \
         shorter",
    )
    .of_load("reset-link"),
    reason(
        "pvp",
        "ovs-dpdk",
        "cycles",
        "the guest was the limit, and the search of a quick run ended at a low rate by chance: fewer packets at once \
         cost more each. At 2.7 million/s it was 482 cycles, and 758 in the peer at 2.5",
    )
    .of_load("loss_allowed"),
    reason(
        "forwarding-table",
        "ovs-dpdk",
        "machine_cycles",
        "noise of one turn: in the run before it was 3,282 and in the peer 6,811; in four more turns on a busy \
         machine each was ahead in two",
    )
    .of_load("topology=PV "),
    reason(
        "packet-size",
        "ovs-dpdk",
        "pps",
        "generator, switch and guest share two processors, of which the peer takes 1.4 and Crosspoint 0.5: the guest \
         and the generator get what is left. By cost of a packet Crosspoint is ahead; in the run before it had \
         76,000/s and the peer 47,000/s",
    )
    .of_load("PVP"),
    reason(
        "forwarding-table",
        "ovs-afxdp",
        "machine_cycles",
        "noise of one turn: in seven more, on a busy machine, Crosspoint took less in six",
    ),
    reason("", "ovs-dpdk", "latency", POLLS),
    reason("", "testpmd", "latency", POLLS),
    reason("", "bridge", "latency", KERNEL),
    reason("", "ip-forward", "latency", KERNEL),
    reason("", "bridge", "pps", KERNEL),
    reason("", "ip-forward", "pps", KERNEL),
    reason("soak", "ovs-netdev", "machine_cycles", MEETS),
    reason("traffic", "ovs-netdev", "machine_cycles", MEETS),
    reason(
        "load-curve",
        "ovs-netdev",
        "machine_cycles",
        "the worker itself takes less than the peer (61,000 and 73,000 cycles); the rest is the kernel's part of \
         AF_XDP on a veth, which packet sockets do not have: crosspoint-af_packet took 45,000 in all",
    ),
    reason(
        "forwarding-table",
        "ovs-dpdk",
        "pps",
        "generator, switch and guest share two processors; by cost of a packet Crosspoint is ahead under the \
         same load",
    ),
    reason(
        "ports-and-batches",
        "ovs-netdev",
        "cycles",
        "at 20,000 packets/s each wake has few packets, and most of the cost is sleeping and waking; with more \
         ports the two are alike",
    ),
    reason("", "testpmd", "", "it looks nothing up, and holds no table"),
    reason("", "loop-", "", "it looks one table of equal keys up, and does nothing else"),
];

/// The reason, or a note that none is known.
pub fn why(suite: &str, peer: &str, figure: &str, load: &str) -> &'static str {
    let fits = |r: &&Reason| {
        (r.suite.is_empty() || r.suite == suite)
            && peer.starts_with(r.peer)
            && figure.contains(r.figure)
            && load.contains(r.load)
    };
    REASONS.iter().find(fits).map_or(UNKNOWN, |r| r.why)
}

const UNKNOWN: &str = "not known yet";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_of_its_load_alone() {
        let of = |trial: &str| why("restart", "ovs-dpdk", "reset_ms", &format!("topology=PVP trial={trial}"));
        assert!(of("reset-guest").contains("every 20 ms") && of("reset-link").contains("packet socket"));
        assert_eq!(of("reset-kill"), UNKNOWN);
        let of = |load: &str| why("pvp", "ovs-dpdk", "cycles_per_packet", load);
        assert!(of("loss_allowed=0.01 path=loopback").contains("a low rate by chance"));
        assert_eq!(of("path=loopback"), UNKNOWN);
    }
}
