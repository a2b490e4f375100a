//! Ports and queues.

use crate::error::ErrorKind;
use base::OfPort;

bitflags::bitflags! {
    /// A port's administrative configuration (OFPPC_*).
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct PortConfig: u32 {
        /// Administratively down.
        const PORT_DOWN = 1 << 0;
        /// No spanning tree (1.0).
        const NO_STP = 1 << 1;
        /// Drop what comes in.
        const NO_RECV = 1 << 2;
        /// Drop spanning tree frames that come in (1.0).
        const NO_RECV_STP = 1 << 3;
        /// Leave out when flooding (1.0).
        const NO_FLOOD = 1 << 4;
        /// Drop what goes out.
        const NO_FWD = 1 << 5;
        /// No packet-ins for packets that come in here.
        const NO_PACKET_IN = 1 << 6;
    }
}

bitflags::bitflags! {
    /// State of a port (OFPPS_*): low bits as in OpenFlow 1.1 and later, the rest 1.0's spanning tree state.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct PortState: u32 {
        /// No link.
        const LINK_DOWN = 1 << 0;
        /// Blocked by a protocol such as RSTP (1.1 and later).
        const BLOCKED = 1 << 1;
        /// Live for fast failover groups (1.1 and later).
        const LIVE = 1 << 2;
        /// Spanning tree: learning (1.0); together with `STP_FORWARD`: blocked. Neither: listening.
        const STP_LEARN = 1 << 8;
        /// Spanning tree: forwarding (1.0).
        const STP_FORWARD = 2 << 8;
    }
}

bitflags::bitflags! {
    /// Speeds and media (OFPPF_*), with the numbers of OpenFlow 1.1 and later; 1.0 has others on the wire and
    /// lacks 40 Gb/s and above.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
    pub struct PortFeatures: u32 {
        /// 10 Mb/s half duplex.
        const MB10_HALF = 1 << 0;
        /// 10 Mb/s full duplex.
        const MB10_FULL = 1 << 1;
        /// 100 Mb/s half duplex.
        const MB100_HALF = 1 << 2;
        /// 100 Mb/s full duplex.
        const MB100_FULL = 1 << 3;
        /// 1 Gb/s half duplex.
        const GB1_HALF = 1 << 4;
        /// 1 Gb/s full duplex.
        const GB1_FULL = 1 << 5;
        /// 10 Gb/s full duplex.
        const GB10_FULL = 1 << 6;
        /// 40 Gb/s full duplex.
        const GB40_FULL = 1 << 7;
        /// 100 Gb/s full duplex.
        const GB100_FULL = 1 << 8;
        /// 1 Tb/s full duplex.
        const TB1_FULL = 1 << 9;
        /// Another rate.
        const OTHER = 1 << 10;
        /// Copper medium.
        const COPPER = 1 << 11;
        /// Fibre medium.
        const FIBER = 1 << 12;
        /// Auto-negotiation.
        const AUTONEG = 1 << 13;
        /// Pause.
        const PAUSE = 1 << 14;
        /// Asymmetric pause.
        const PAUSE_ASYM = 1 << 15;
    }
}

impl PortFeatures {
    /// The highest speed among them, in kb/s; 0 if there is none.
    pub fn max_speed_kbps(self) -> u32 {
        const SPEEDS: [(PortFeatures, u32); 10] = [
            (PortFeatures::TB1_FULL, 1_000_000_000),
            (PortFeatures::GB100_FULL, 100_000_000),
            (PortFeatures::GB40_FULL, 40_000_000),
            (PortFeatures::GB10_FULL, 10_000_000),
            (PortFeatures::GB1_FULL, 1_000_000),
            (PortFeatures::GB1_HALF, 1_000_000),
            (PortFeatures::MB100_FULL, 100_000),
            (PortFeatures::MB100_HALF, 100_000),
            (PortFeatures::MB10_FULL, 10_000),
            (PortFeatures::MB10_HALF, 10_000),
        ];
        SPEEDS.into_iter().find(|(f, _)| self.contains(*f)).map_or(0, |(_, speed)| speed)
    }
}

/// A port as features replies, port descriptions and port-status describe it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortDesc {
    /// Its number.
    pub port: OfPort,
    /// Ethernet address.
    pub hw_addr: [u8; 6],
    /// Name: truncated to 15 bytes on the wire before 1.4.
    pub name: String,
    /// Configuration.
    pub config: PortConfig,
    /// State.
    pub state: PortState,
    /// Current.
    pub current: PortFeatures,
    /// Advertised by the port.
    pub advertised: PortFeatures,
    /// Supported by the port.
    pub supported: PortFeatures,
    /// Advertised by the peer.
    pub peer: PortFeatures,
    /// Current speed, kb/s. On the wire from 1.1 on; decoding 1.0 takes it from `current`.
    pub current_speed_kbps: u32,
    /// Maximum speed, kb/s; decoding 1.0 takes it from `supported`.
    pub max_speed_kbps: u32,
}

/// What happened to a port (OFPPR_*), with the numbers of the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PortReason {
    Add = 0,
    Delete = 1,
    Modify = 2,
}

/// OFPT_PORT_STATUS.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// What happened.
    pub reason: PortReason,
    /// To which port.
    pub desc: PortDesc,
}

/// OFPT_PORT_MOD.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// The port.
    pub port: OfPort,
    /// Must be the port's, as a check.
    pub hw_addr: [u8; 6],
    /// New values of the bits of `mask`.
    pub config: PortConfig,
    /// Which bits to change.
    pub mask: PortConfig,
    /// What to advertise; empty: no change.
    pub advertise: PortFeatures,
    /// The error of its first unknown property: a switch reports it, and who only shows the change ignores
    /// it.
    pub unknown: Option<ErrorKind>,
}

/// Counters of frames by size and kind (RFC 2819), by the names that an interface's statistics have for them.
pub const FRAME_COUNTERS: [&str; 21] = [
    "rx_1_to_64_packets",
    "rx_65_to_127_packets",
    "rx_128_to_255_packets",
    "rx_256_to_511_packets",
    "rx_512_to_1023_packets",
    "rx_1024_to_1522_packets",
    "rx_1523_to_max_packets",
    "tx_1_to_64_packets",
    "tx_65_to_127_packets",
    "tx_128_to_255_packets",
    "tx_256_to_511_packets",
    "tx_512_to_1023_packets",
    "tx_1024_to_1522_packets",
    "tx_1523_to_max_packets",
    "tx_multicast_packets",
    "rx_broadcast_packets",
    "tx_broadcast_packets",
    "rx_undersized_errors",
    "rx_oversize_errors",
    "rx_fragmented_errors",
    "rx_jabber_errors",
];

/// Counters of a port. `u64::MAX` for a counter that is not kept.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct PortStats {
    pub port: OfPort,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// Seconds that the port has existed; `u32::MAX` where unknown. On the wire from 1.3 on.
    pub duration_s: u32,
    /// And nanoseconds.
    pub duration_ns: u32,
    /// One for each of [`FRAME_COUNTERS`]. On the wire from 1.4 on, in Intel's extension, as is `custom`.
    pub frames: [u64; FRAME_COUNTERS.len()],
    /// Further counters of the device, by name.
    pub custom: Vec<(String, u64)>,
}

impl PortStats {
    /// A port without any counters.
    pub fn unknown(port: OfPort) -> PortStats {
        PortStats {
            port,
            rx_packets: u64::MAX,
            tx_packets: u64::MAX,
            rx_bytes: u64::MAX,
            tx_bytes: u64::MAX,
            rx_dropped: u64::MAX,
            tx_dropped: u64::MAX,
            rx_errors: u64::MAX,
            tx_errors: u64::MAX,
            rx_frame_err: u64::MAX,
            rx_over_err: u64::MAX,
            rx_crc_err: u64::MAX,
            collisions: u64::MAX,
            duration_s: u32::MAX,
            duration_ns: u32::MAX,
            frames: [u64::MAX; FRAME_COUNTERS.len()],
            custom: Vec::new(),
        }
    }
}

/// Counters of a queue. `u64::MAX` for a counter that is not kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct QueueStats {
    pub port: OfPort,
    pub queue_id: u32,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    /// Seconds that the queue has existed; `u32::MAX` where unknown. On the wire from 1.3 on.
    pub duration_s: u32,
    /// And nanoseconds.
    pub duration_ns: u32,
}

/// Configuration of a queue. Rates in tenths of a percent of the port's speed, above 1000
/// disabled; `None`: not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct QueueConfig {
    pub port: OfPort,
    pub queue_id: u32,
    pub min_rate: Option<u16>,
    pub max_rate: Option<u16>,
}
