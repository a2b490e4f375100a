//! Feature bits: what a guest's driver and its monitor may request.
//!
//! Source: virtio 1.2 sections 2.2, 5.1.3 and 6; QEMU's docs/interop/vhost-user.rst.

/// Bits of the device's features.
#[allow(missing_docs)] // The standard's own names.
pub mod device {
    pub const CSUM: u64 = 1 << 0;
    pub const GUEST_CSUM: u64 = 1 << 1;
    pub const MTU: u64 = 1 << 3;
    pub const GUEST_TSO4: u64 = 1 << 7;
    pub const GUEST_TSO6: u64 = 1 << 8;
    pub const GUEST_ECN: u64 = 1 << 9;
    pub const HOST_TSO4: u64 = 1 << 11;
    pub const HOST_TSO6: u64 = 1 << 12;
    pub const HOST_ECN: u64 = 1 << 13;
    pub const MRG_RXBUF: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
    pub const CTRL_VQ: u64 = 1 << 17;
    pub const CTRL_RX: u64 = 1 << 18;
    pub const GUEST_ANNOUNCE: u64 = 1 << 21;
    pub const MQ: u64 = 1 << 22;
    pub const LOG_ALL: u64 = 1 << 26;
    pub const ANY_LAYOUT: u64 = 1 << 27;
    pub const INDIRECT_DESC: u64 = 1 << 28;
    pub const EVENT_IDX: u64 = 1 << 29;
    /// vhost-user's own: there are protocol features.
    pub const PROTOCOL_FEATURES: u64 = 1 << 30;
    pub const VERSION_1: u64 = 1 << 32;
    pub const RING_PACKED: u64 = 1 << 34;
    pub const IN_ORDER: u64 = 1 << 35;
    pub const GUEST_USO4: u64 = 1 << 54;
    pub const GUEST_USO6: u64 = 1 << 55;
    pub const HOST_USO: u64 = 1 << 56;
}

/// Bits of the protocol's features.
#[allow(missing_docs)] // The protocol's own names.
pub mod protocol {
    pub const MQ: u64 = 1 << 0;
    pub const LOG_SHMFD: u64 = 1 << 1;
    pub const RARP: u64 = 1 << 2;
    pub const REPLY_ACK: u64 = 1 << 3;
    pub const NET_MTU: u64 = 1 << 4;
    pub const BACKEND_REQ: u64 = 1 << 5;
    pub const RESET_DEVICE: u64 = 1 << 13;
    pub const CONFIGURE_MEM_SLOTS: u64 = 1 << 15;
    pub const STATUS: u64 = 1 << 16;
}

/// Unfinished checksums and uncut segments, both ways.
pub const OFFLOADS: u64 = {
    use device as d;
    let to_guest =
        d::GUEST_CSUM | d::GUEST_TSO4 | d::GUEST_TSO6 | d::GUEST_ECN | d::GUEST_USO4 | d::GUEST_USO6;
    let from_guest = d::CSUM | d::HOST_TSO4 | d::HOST_TSO6 | d::HOST_ECN | d::HOST_USO;
    to_guest | from_guest
};

/// The features that we offer a guest, including offloads.
pub const OFFERED: u64 = {
    use device as d;
    let net = d::MTU | d::MRG_RXBUF | d::STATUS | d::CTRL_VQ | d::CTRL_RX | d::GUEST_ANNOUNCE | d::MQ;
    let ring = d::LOG_ALL | d::ANY_LAYOUT | d::INDIRECT_DESC | d::EVENT_IDX | d::VERSION_1;
    net | ring | d::RING_PACKED | d::IN_ORDER | d::PROTOCOL_FEATURES | OFFLOADS
};

/// The features that we offer its monitor. Not post-copy migration: a page that has not arrived would make a
/// worker, and all ports that it serves, wait for as long as the monitor likes.
pub const PROTOCOL_OFFERED: u64 = {
    use protocol as p;
    let net = p::MQ | p::LOG_SHMFD | p::RARP | p::REPLY_ACK | p::NET_MTU | p::BACKEND_REQ;
    net | p::RESET_DEVICE | p::CONFIGURE_MEM_SLOTS | p::STATUS
};

/// What a guest needs to receive TCP segments of any size unsegmented.
pub const GUEST_TSO: u64 = device::GUEST_CSUM | device::GUEST_TSO4 | device::GUEST_TSO6;
/// The same for UDP.
pub const GUEST_USO: u64 = device::GUEST_CSUM | device::GUEST_USO4 | device::GUEST_USO6;
