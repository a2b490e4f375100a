//! Why a packet did not go out: the one list from which counters, texts and documentation derive.
//!
//! Every packet that comes in goes out or is counted under exactly one of these.

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The one reason under which a packet that was received is not sent.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, zerocopy::TryFromBytes)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $name,)* }

        impl DropReason {
            /// All of them, in the order of their numbers.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$name,)*];

            /// The name that `dpctl`, `coverage` and metrics show, in lower case with underscores.
            pub fn name(self) -> &'static str {
                match self { $(DropReason::$name => $text,)* }
            }
        }
    };
}

drop_reasons! {
    /// A rule says so: its action list is empty, or `drop`.
    ActionDrop = "action_drop",
    /// A fragment of an IP packet, and the bridge drops those (`ovs-ofctl set-frags`).
    Fragment = "fragment",
    /// No rule matched and the table's miss configuration drops.
    TableMiss = "table_miss",
    /// The bridge has no port to send to but the one that the packet came from.
    NoOutput = "no_output",
    /// The group has no live bucket, or there is no such group.
    NoLiveBucket = "no_live_bucket",
    /// The output port is gone, or was never there.
    OutputPortGone = "output_port_gone",
    /// The output port's queue was full.
    TxQueueFull = "tx_queue_full",
    /// The packets that wait at the output port hold its share of the pool already.
    TxQuota = "tx_quota",
    /// The packet is longer than the output port's MTU, and segmentation could not help.
    TxMtuExceeded = "tx_mtu_exceeded",
    /// The output port is down (administratively, or its `no_fwd` is set).
    TxPortDown = "tx_port_down",
    /// The output port's driver did not send the packet: the link is down, the device gone, the kernel
    /// refused it, or no buffer of a guest's holds it.
    TxError = "tx_error",
    /// The packet came in at a port whose configuration forbids receiving.
    RxPortConfig = "rx_port_config",
    /// A frame shorter than an Ethernet header, or cut off by the driver.
    RxTruncated = "rx_truncated",
    /// The input port's driver had no buffer for the packet, or nobody took it in time.
    RxDropped = "rx_dropped",
    /// The input port's driver refused what came: an offload's header that contradicts its frame, a frame
    /// without contents.
    RxError = "rx_error",
    /// A TCP segment that its sender wants cut into many pieces smaller than any peer's maximum segment size
    /// (`gso_size`).
    RxGsoSize = "rx_gso_size",
    /// A segment that its sender wants cut into more pieces than a frame may become.
    RxGsoSegments = "rx_gso_segments",
    /// The input port belongs to no bridge.
    RxNoBridge = "rx_no_bridge",
    /// The switch forwards nothing until its rules are restored (`flow-restore-wait`).
    FlowRestoreWait = "flow_restore_wait",
    /// The packet pool was exhausted when the packet had to be copied.
    PoolExhausted = "pool_exhausted",
    /// Recirculated more often than the limit allows.
    RecircDepth = "recirc_depth",
    /// Packets with too many different metadata wait to be recirculated, or too much comes back of one burst.
    RecircQueueFull = "recirc_queue_full",
    /// Resubmitted more often than the limit allows.
    ResubmitLimit = "resubmit_limit",
    /// The translations of packets that came with it had taken as long as those of a burst may.
    TranslationTime = "translation_time",
    /// Resubmitted deeper than the limit allows.
    ResubmitDepth = "resubmit_depth",
    /// More values were pushed than the stack of a translation holds.
    StackLimit = "stack_limit",
    /// The packet has as many MPLS labels as the switch can handle, and got another.
    MplsLabelLimit = "mpls_label_limit",
    /// A header cannot be put around a packet of this type or taken off it (`encap`, `decap`), or its port
    /// takes Ethernet frames alone.
    UnsupportedPacketType = "unsupported_packet_type",
    /// A recirculation id that nobody knows (any more).
    RecircUnknown = "recirc_unknown",
    /// The time to live reached zero.
    TtlExpired = "ttl_expired",
    /// An action does not fit the packet (pop a label of what has none).
    ActionNotApplicable = "action_not_applicable",
    /// No headroom left to push a header.
    NoHeadroom = "no_headroom",
    /// Input port and its VLAN configuration forbid the packet (wrong tag, double tag, not a member).
    VlanViolation = "vlan_violation",
    /// The destination address is reserved for link-local protocols (01:80:c2:00:00:0x).
    ReservedMulticast = "reserved_multicast",
    /// Over the rate that a meter allows.
    MeterDrop = "meter",
    /// Over the ingress policing rate of the port.
    PolicerDrop = "policer",
    /// The packet would begin a connection, and its input port has had its share of new ones for now
    /// (`ct(commit)`).
    CtPortShare = "ct_port_share",
    /// A fragment whose datagram was to be tracked, and was not whole in time.
    CtFragmentTimeout = "ct_fragment_timeout",
    /// A fragment that waited for the rest of its datagram, and gave way to one of a port that holds fewer.
    CtFragmentPurged = "ct_fragment_purged",
    /// The translation failed (a stack underflow, an action that the switch cannot do).
    TranslationError = "translation_error",
    /// A packet-in found its ring to the control thread full.
    PacketInRingFull = "packet_in_ring_full",
    /// Packets of controllers, and those that taught a rule, hold their share of the pool already: they come
    /// faster than a worker can send them.
    PacketOutQuota = "packet_out_quota",
    /// The port was removed while the packet waited in it.
    PortRemoved = "port_removed",
    /// The worker ended while it held the packet, or there was none for a packet of a controller.
    WorkerStopped = "worker_stopped",
}

impl DropReason {
    /// How many there are.
    pub const COUNT: usize = Self::ALL.len();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_numbers_are_positions() {
        let names: std::collections::HashSet<_> = DropReason::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), DropReason::COUNT);
        for (i, r) in DropReason::ALL.iter().enumerate() {
            assert_eq!(*r as usize, i);
        }
    }
}
