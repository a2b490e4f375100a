//! What readers of a suite's figures must know besides its question.

const VNICS: &str = "A tap device and vhost-user are different kinds of vNIC: the kernel copies each packet to and from a tap, and \
                     a guest with vhost-user shares its memory with the switch. The kernel's own forwarding has taps alone. Both \
                     kinds stand in one graph, by their guest (tap, or another), and a ratio is given within a kind alone: across \
                     kinds it would mostly tell about the vNIC.";

/// Suites and notes.
const NOTES: &[(&str, &str)] = &[
    (
        "conntrack",
        "Of each load a first turn does not count, for either switch: in it the caches learn the flows. The figures \
         are of what a switch does once it knows them.",
    ),
    (
        "ablation",
        "Of what made Open vSwitch 2.4 with DPDK faster, this has no counterpart here, and so no row: vector receive \
         functions of poll-mode drivers (Crosspoint drives no NIC itself: AF_XDP leaves that to the kernel), and \
         vhost-user in place of vhost-cuse (Crosspoint never had the latter). The document's own text was not to be had: its list is known from those who \
         cite it, and may have more entries.",
    ),
    (
        "cores",
        "Each worker has caches of its own. A megaflow that all flows share is therefore one in the cache of each \
         worker that has some of the flows, and workers write to nothing that they share, whether flows have one \
         megaflow or one each. Several versions of the switch are measured in turns with --switch crosspoint@PATH.",
    ),
    ("forwarding-table", VNICS),
    ("native-vs-poll-mode", VNICS),
    (
        "native-vs-poll-mode",
        "Rates without loss are searched for. Loads of a quick run are too short to conclude anything from them: \
         one stall of the machine decides.",
    ),
];

/// The notes of a suite.
pub fn of_suite(suite: &str) -> impl Iterator<Item = &'static str> {
    NOTES.iter().filter(move |(name, _)| *name == suite).map(|(_, note)| *note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_note_is_of_a_suite() {
        for (suite, _) in NOTES {
            assert!(crate::suite::list::find(suite).is_some(), "{suite}");
        }
        assert!(of_suite("conntrack").any(|note| note.contains("caches learn")));
        assert_eq!(of_suite("p2p").count(), 0);
    }
}
