//! Building blocks of suites.

use super::{Grid, Measure, Peer, Step};
use crate::lab::guest;

/// A switch for comparison.
pub const OVS_DPDK: Option<Peer> = Some(Peer {
    switch: "ovs-dpdk",
    argument: "--peer ovs-dpdk",
    program: "/usr/lib/openvswitch-switch-dpdk/ovs-vswitchd-dpdk",
    package: "openvswitch-switch-dpdk",
    needs_root: true,
});
/// A switch for comparison.
pub const OVS_VSWITCHD: Option<Peer> = Some(Peer {
    switch: "ovs-vswitchd",
    argument: "--peer ovs-vswitchd",
    program: "/usr/lib/openvswitch-switch/ovs-vswitchd",
    package: "openvswitch-switch",
    needs_root: false,
});
/// A server for comparison.
pub const OVSDB_SERVER: Option<Peer> = Some(Peer {
    switch: "ovsdb-server",
    argument: "--peer ovsdb-server",
    program: "/usr/sbin/ovsdb-server",
    package: "openvswitch-switch",
    needs_root: false,
});

/// A step that is one measurement.
pub const fn measure(
    step: &'static str,
    what: &'static str,
    normal: &'static str,
    quick: &'static str,
    peer: Option<Peer>,
) -> Step {
    Step::Measure(Measure { step, what, normal, quick, peer, beside: &[] })
}

/// Switches between kernel interfaces, and ours with a worker that never sleeps.
pub const AWAKE_OR_NOT: &[&str] = &[
    "crosspoint-never-sleeps",
    "crosspoint",
    "crosspoint-af_packet",
    "ovs-netdev",
    "ovs-dpdk",
    "bridge",
    "ip-forward",
    "testpmd-macswap",
];

/// Switches between kernel interfaces.
pub const KERNEL: &[&str] = AWAKE_OR_NOT.split_at(1).1;

/// Switches between kernel interfaces that are processes, which can be sampled.
pub const PROCESSES: &[&str] =
    &["crosspoint", "crosspoint-af_packet", "ovs-netdev", "ovs-dpdk", "testpmd-macswap"];

/// One classifier under four loops, and what forwards between the same interfaces.
pub const LOOPS: &[&str] = &[
    "loop-rebuilt",
    "loop-kept",
    "loop-one",
    "loop-fifty",
    "crosspoint-af_packet",
    "ovs-netdev",
    "bridge",
    "ip-forward",
];

/// Ways to forward between two kernel interfaces, with and without a thread that polls.
pub const VETH: &[&str] =
    &["crosspoint", "ovs-afxdp", "ovs-afxdp-polled", "ovs-netdev", "bridge", "ip-forward"];

/// Those of [`LOOPS`] that are processes, and so have a control thread that can be blocked.
pub const BLOCKABLE: &[&str] =
    &["loop-rebuilt", "loop-kept", "loop-one", "loop-fifty", "crosspoint-af_packet", "ovs-netdev"];

/// Switches whose rules are those of OpenFlow.
pub const OPENFLOW: &[&str] =
    &["crosspoint", "crosspoint-af_packet", "ovs-netdev", "ovs-afxdp", "ovs-dpdk", "ovs-kernel"];

/// Changes of rules under traffic, from none to 10,000 a second.
pub const CHANGES: &[&str] = &["changes-0", "changes-1", "changes-100", "changes-10k"];

/// A step on test beds with the built-in generator and guest; the rest is set by what differs.
pub const GRID: Grid = Grid {
    step: "",
    topologies: &["P2P"],
    switches: KERNEL,
    guests: &["builtin"],
    rings: guest::USUAL,
    workers: 1,
    generator: "builtin",
    sizes: &[64],
    flows: &[100],
    rules: &[0],
    rates: &[0],
    traffic: &["udp"],
    trials: &["max-rate"],
};

/// Offered packets per second from little to more than any switch here takes.
pub const RATES: &[u64] = &[10_000, 20_000, 50_000, 100_000, 200_000, 400_000];

/// RFC 2544's sizes of frames.
pub const SIZES: &[u16] = &[64, 128, 256, 512, 1024, 1280, 1518];

/// Every size from one to two cache lines of a processor, and those around the ends of the next two.
pub const BYTE_BY_BYTE: [u16; 72] = {
    let further = [191, 192, 193, 194, 255, 256, 257];
    let mut all = [0; 72];
    let mut n = 0;
    while n < 65 {
        all[n] = 64 + n as u16;
        n += 1;
    }
    while n < 72 {
        all[n] = further[n - 65];
        n += 1;
    }
    all
};

/// The same with every mode.
pub const ALL: &[&str] = crate::lab::switch::list::NAMES;

/// A group of suites.
pub const KERNEL_PATHS: &str = "Between kernel interfaces";
/// A group of suites.
pub const RULES: &str = "Rules, new flows and changes";
/// A group of suites.
pub const MEMORY: &str = "Datapath in memory";
/// A group of suites.
pub const GUESTS: &str = "Through guests";
/// A group of suites.
pub const IO: &str = "Ports, batches and I/O loops";
/// A group of suites.
pub const CONTROL: &str = "Control plane and memory";
