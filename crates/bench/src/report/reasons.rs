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

const KERNEL: &str = "the kernel forwards in the system call by which the generator sends; a packet of Crosspoint's \
                      waits for another thread: below 16,000 packets/s for its waking, since it sleeps once none has \
                      come for 60 us, and on shared processors for its turn, which makes the p99 of Open vSwitch with \
                      DPDK, which never sleeps, as long (0.3 to 1.2 ms, run 2026-11-29-turns)";
const POLLS: &str = "its thread polls and never sleeps; Crosspoint's sleeps at this rate, and on shared processors waits \
                     for its turn when it is woken. Told never to sleep (pmd-maxsleep=0) it takes 7 us at 1 % of its \
                     rate (run 2026-11-29-awake)";

const OWN_SHARE: &str = "each was offered this share of its own rate without loss, and Crosspoint's rate is two to five \
                         times the peer's; where both were offered 20,000 to 200,000 packets/s, Crosspoint and Open \
                         vSwitch with DPDK both take 5 to 6 us (p50), and ovs-netdev 30 to 83 (load-curve, run \
                         2026-11-29-turns)";

const MEETS: &str = "packets come every 50 us, and a worker polls for 60 us before it sleeps, so it never does: \
                     its median is 5 to 7 us; the peer's, whose thread sleeps after each packet, is 31 to 43 us";

const OF_KERNEL: &str = "the kernel hands a frame on in the call that sends it: it goes to no other thread, and into no \
                         program's memory and back. Of points without the condition `generator's time` the figure does \
                         not hold what the kernel's forwarding costs";

const SHARED: &str = "generator, switch and guest share two processors, and the rate depends on how they are divided: \
                      the peer's thread polls and never gives its own up while it has nothing to do; Crosspoint's sleeps";

/// Of programs that are no switches.
pub const FLOOR: &str = "they do a part of a switch's work: `testpmd` looks nothing up, and a `loop-` program has one table and \
                         one thread for all; in costs, the distance is what rules that change, caches and counters cost. In latency they are \
                         ahead as the peers above are, by threads that never sleep";

/// The first one that fits is shown.
const REASONS: &[Reason] = &[
    reason(
        "load-rules",
        "",
        "bytes_per_rule",
        "about 20 MB do not depend on the number of rules; with 100,000 of them it is 582 bytes for each, and \
         891 in the peer (run 2026-11-27-floods)",
    ),
    reason(
        "conntrack",
        "",
        "cycles",
        "one connection: the peer answers every packet from its exact-match cache and one line of memory; \
         with more connections it loses that",
    ),
    reason(
        "mac-learning",
        "ovs-dpdk",
        "learned",
        "20,000 rules are learned in 0.3 s, much of which goes by until the stock tools have started and the \
         rules are counted, every 20 ms",
    ),
    reason("", "bridge", "machine_cycles", OF_KERNEL),
    reason("", "ip-forward", "machine_cycles", OF_KERNEL),
    reason("pvp-matrix", "ovs-dpdk", "pps", SHARED),
    reason(
        "zero-loss",
        "ovs-dpdk",
        "machine_cycles",
        "both take a whole processor at any rate that the search tries, so this is the inverse of the rate that \
         it found",
    ),
    reason(
        "restart",
        "ovs-dpdk",
        "reset",
        "DPDK's packet socket holds about 500 frames while the link is down and sends them, up to half a second \
         late, when it is back, as does testpmd's: they are not lost. The longest time without a packet is no \
         shorter",
    )
    .of_load("reset-link"),
    reason(
        "coupling",
        "ovs-",
        "barrier",
        "generator and worker keep a processor each busy, and the thread that answers waits until one of them is free; \
         the peer forwards in the thread that answers, or has a thread that sleeps",
    ),
    reason(
        "rule-to-effect",
        "ovs-",
        "statistics",
        "the answer waits until the workers have reported what their flows have counted, so it is exact; the peer \
         answers with what its revalidators have collected before",
    ),
    reason("packet-size", "ovs-dpdk", "pps", SHARED).of_load("PVP"),
    reason("forwarding-table", "ovs-dpdk", "pps", SHARED),
    reason("latency", "ovs-", "at_50_", OWN_SHARE),
    reason("latency", "ovs-", "at_90_", OWN_SHARE),
    reason("", "ovs-netdev", "machine_cycles", MEETS).of_load("offered_pps=20000 "),
    reason("", "ovs-afxdp-polled", "machine_cycles", "both threads poll all the time at this rate"),
    reason("", "ovs-afxdp", "machine_cycles", MEETS).of_load("offered_pps=20000 "),
    reason("", "ovs-dpdk", "latency", POLLS),
    reason("", "bridge", "latency", KERNEL),
    reason("", "ip-forward", "latency", KERNEL),
    reason("", "bridge", "pps", KERNEL),
    reason("", "ip-forward", "pps", KERNEL),
    reason(
        "ports-and-batches",
        "ovs-netdev",
        "cycles",
        "at 20,000 packets/s each wake has few packets, and most of the cost is sleeping and waking; with more \
         ports the two are alike",
    ),
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

/// What has the same reason together, in the order of the first of each.
pub fn together<T>(all: impl Iterator<Item = (&'static str, T)>) -> Vec<(&'static str, Vec<T>)> {
    let mut groups: Vec<(&str, Vec<T>)> = Vec::new();
    for (why, one) in all {
        match groups.iter_mut().find(|(there, _)| *there == why) {
            Some((_, rows)) => rows.push(one),
            None => groups.push((why, vec![one])),
        }
    }
    groups
}

/// What is said where none is known.
pub const UNKNOWN: &str = "not known yet";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_of_its_load_alone() {
        let of = |trial: &str| why("restart", "ovs-dpdk", "reset_ms", &format!("topology=P2P trial={trial}"));
        assert!(of("reset-link").contains("packet socket"));
        assert_eq!(of("reset-kill"), UNKNOWN);
        let of = |load: &str| why("soak", "ovs-netdev", "machine_cycles_per_packet", load);
        assert_eq!(of("offered_pps=20000 size=64"), MEETS);
        assert_eq!(of("offered_pps=200000 size=64"), UNKNOWN);
        // A worker sleeps at a hundredth of its rate, and not at half of it.
        let at = |figure: &str| why("latency", "ovs-dpdk", figure, "topology=P2P trial=latency");
        assert_eq!([at("at_1_latency_p99_us"), at("at_50_latency_p99_us")], [POLLS, OWN_SHARE]);
    }
}
