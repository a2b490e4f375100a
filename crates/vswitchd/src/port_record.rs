//! What the switch stores about a port besides the datapath's and the tables' data, and how observing its
//! device changes that.

use crate::config::wanted::{Interface, PATCH};
use crate::plane::ForwardingPlane;
use base::{OfPort, PortNo};
use openflow::message::{PortDesc, PortFeatures, PortState};
use packet::{LinkState, PortStatus};
use std::collections::BTreeMap;
use switch::{BridgeIdx, PortConfig, PortSpec, SlotStats};

/// All ports, by datapath number.
pub(crate) type Ports = BTreeMap<PortNo, PortRecord>;

/// A port.
pub(crate) struct PortRecord {
    pub port_no: PortNo,
    pub of_port: OfPort,
    pub bridge: BridgeIdx,
    pub name: String,
    /// The port that it belongs to; it has the same name, except for bonds.
    pub port_name: String,
    /// As configured.
    pub interface: Interface,
    /// The options with which the device was opened: the previous ones, if it did not accept the new ones.
    pub device_options: BTreeMap<String, String>,
    pub created_ms: u64,
    /// The last observed status.
    pub status: PortStatus,
    /// The NUMA node of its device, as last seen.
    pub numa: Option<usize>,
    /// The device is gone.
    pub gone: bool,
    /// How often the link was seen to go up or down.
    pub link_resets: u64,
    /// The part of its configuration that could not be applied.
    pub error: Option<String>,
    /// What its device refused when it was last asked, by setting, and why.
    pub refused: BTreeMap<&'static str, String>,
    /// Why the device has other options than those that are configured.
    pub options_error: Option<String>,
}

/// What has changed about a port's device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Observed {
    /// It is on another NUMA node.
    pub is_numa_changed: bool,
    /// Controllers see it.
    pub is_visible: bool,
    pub is_mtu_changed: bool,
}

impl PortRecord {
    /// A port that was just opened as its interface says.
    pub fn new(
        (bridge, port_no, of_port): (BridgeIdx, PortNo, OfPort),
        interface: &Interface,
        status: PortStatus,
    ) -> PortRecord {
        PortRecord {
            port_no,
            of_port,
            bridge,
            name: interface.name.clone(),
            port_name: interface.name.clone(),
            interface: interface.clone(),
            device_options: interface.options.clone(),
            created_ms: 0,
            status,
            numa: None,
            gone: false,
            link_resets: 0,
            error: None,
            refused: BTreeMap::new(),
            options_error: None,
        }
    }

    /// Whether it uses a kernel device that is gone or no longer works.
    pub fn is_broken(&self) -> bool {
        self.gone || self.interface.is_kernels() && self.status.error.is_some()
    }

    /// Why it is broken, or has nothing to replay.
    pub fn complaint(&self) -> Option<&str> {
        let error = self.status.error.as_deref();
        if self.is_broken() {
            error.or(Some("the device is gone"))
        } else {
            error.filter(|_| self.is_virtual())
        }
    }

    /// Whether there is no device and no guest: only files, or nothing.
    fn is_virtual(&self) -> bool {
        self.interface.backing() == Some(ports::Backing::None)
    }

    /// Patch ports have no device in the datapath.
    pub fn is_patch(&self) -> bool {
        self.interface.kind == PATCH
    }

    /// Records the present status of its device. Returns what other parts must know.
    pub fn observe(&mut self, mut status: PortStatus, numa: Option<usize>) -> Observed {
        let is_numa_changed = std::mem::replace(&mut self.numa, numa) != numa;
        if self.gone {
            status.link = LinkState::Down;
        }
        let seen = std::mem::replace(&mut self.status, status);
        let (name, status) = (&self.name, &self.status);
        if status.error != seen.error
            && let Some(error) = &status.error
        {
            tracing::warn!(target: "netdev", "{name}: {error}");
        }
        if seen.link != status.link {
            self.link_resets += 1;
            let link = if status.link == LinkState::Up { "up" } else { "down" };
            tracing::debug!(target: "netdev", "{name}: link state changed to {link}");
        }
        let visible = |s: &PortStatus| (s.link, s.admin_up, s.mac, s.speed_bps);
        Observed {
            is_numa_changed,
            is_visible: visible(&seen) != visible(status),
            is_mtu_changed: seen.mtu != status.mtu,
        }
    }

    /// The description for OpenFlow.
    pub fn desc(&self, spec: &PortSpec) -> PortDesc {
        use openflow::message::PortConfig as C;
        let PortConfig { port_down, no_stp, no_recv, no_recv_stp, no_flood, no_fwd, no_packet_in } =
            spec.config;
        let bits = [
            (port_down || !self.status.admin_up, C::PORT_DOWN),
            (no_stp, C::NO_STP),
            (no_recv, C::NO_RECV),
            (no_recv_stp, C::NO_RECV_STP),
            (no_flood, C::NO_FLOOD),
            (no_fwd, C::NO_FWD),
            (no_packet_in, C::NO_PACKET_IN),
        ];
        let config = bits.iter().filter(|(set, _)| *set).map(|(_, bit)| *bit).collect();
        let link_up = self.status.link == LinkState::Up && !self.gone;
        let state = if link_up { PortState::LIVE } else { PortState::LINK_DOWN };
        let (current, speed_kbps) = features(self.status.speed_bps);
        PortDesc {
            port: self.of_port,
            hw_addr: self.status.mac,
            name: self.name.clone(),
            config,
            state,
            current,
            advertised: PortFeatures::empty(),
            supported: PortFeatures::empty(),
            peer: PortFeatures::empty(),
            current_speed_kbps: speed_kbps,
            max_speed_kbps: 0,
        }
    }
}

impl ForwardingPlane {
    /// The counts of a patch port, in and out; `None` for ports with a device, whose drivers count.
    pub(crate) fn patch_totals(&self, record: &PortRecord) -> Option<(SlotStats, SlotStats)> {
        let port = self.control.topology().port(record.port_no).filter(|_| record.is_patch())?;
        Some((self.slot(port.rx_slot), self.slot(port.tx_slot)))
    }

    /// A port as OpenFlow describes it.
    pub(crate) fn port_desc(&self, record: &PortRecord) -> Option<openflow::message::PortDesc> {
        Some(record.desc(self.port_spec(record.port_no)?))
    }
}

fn features(speed_bps: u64) -> (PortFeatures, u32) {
    use PortFeatures as F;
    let current = match speed_bps {
        10_000_000 => F::MB10_FULL,
        100_000_000 => F::MB100_FULL,
        1_000_000_000 => F::GB1_FULL,
        10_000_000_000 => F::GB10_FULL,
        40_000_000_000 => F::GB40_FULL,
        100_000_000_000 => F::GB100_FULL,
        1_000_000_000_000 => F::TB1_FULL,
        0 => F::empty(),
        _ => F::OTHER,
    };
    (current, (speed_bps / 1000).min(u64::from(u32::MAX)) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(link: LinkState) -> PortStatus {
        PortStatus { link, ..PortStatus::up([2, 0, 0, 0, 0, 1], 1_500) }
    }

    fn record() -> PortRecord {
        let numbers = (BridgeIdx(0), PortNo(1), OfPort(1));
        PortRecord::new(numbers, &Interface::new("p1", "dummy"), status(LinkState::Up))
    }

    #[test]
    fn only_what_has_changed_of_a_device_is_told() {
        let mut record = record();
        let nothing = Observed { is_numa_changed: false, is_visible: false, is_mtu_changed: false };
        assert_eq!(record.observe(status(LinkState::Up), None), nothing);
        let numa = record.observe(status(LinkState::Up), Some(1));
        assert_eq!(numa, Observed { is_numa_changed: true, ..nothing });
        let down = record.observe(status(LinkState::Down), Some(1));
        assert_eq!(down, Observed { is_visible: true, ..nothing });
        let larger = PortStatus { mtu: 9_000, ..status(LinkState::Down) };
        assert_eq!(record.observe(larger.clone(), Some(1)), Observed { is_mtu_changed: true, ..nothing });
        assert_eq!(record.link_resets, 1);
        record.gone = true;
        let up = PortStatus { link: LinkState::Up, ..larger };
        assert_eq!(record.observe(up, Some(1)), nothing, "a device that is gone is down, whatever it says");
        let desc = record.desc(&PortSpec::new(PortNo(1), OfPort(1), "p1"));
        assert_eq!((desc.state, desc.port), (PortState::LINK_DOWN, OfPort(1)));
    }
}
