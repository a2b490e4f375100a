//! `system`: any interface of the kernel, by the best driver that works on it.
//!
//! Packet sockets on a veth that passes TCP segments unsegmented: with AF_XDP its kernel would segment them,
//! and TCP between containers would be four times slower. On everything else AF_XDP if the interface supports
//! it, otherwise packet sockets. `driver=af_xdp` or `driver=af_packet` overrides that. The port's status
//! shows the choice and its reason.

use crate::af_packet::{self, AfPacketPort};
use crate::af_xdp::AfXdpPort;
use crate::af_xdp::device::Device;
use crate::driver::{Backing, DUMMY, Driver};
use crate::options::{KeyRow, N_RXQ, OptionRow, Values};
use crate::{PortError, PortSpec, af_xdp};
use packet::{DummyControl, Pool, Port, PortStats, PortStatus, RxQueue, TxQueue};
use std::collections::BTreeMap;

/// Options of AF_XDP alone.
const AF_XDP_ALONE: &[OptionRow] = &[af_xdp::XDP_MODE, af_xdp::USE_NEED_WAKEUP, af_xdp::N_TXQ_DESC];

/// Its row of the table of drivers.
pub(crate) const DRIVER: Driver = Driver {
    kind: "system",
    aliases: &[""],
    dummy: DUMMY,
    other_end: "any interface of the kernel, by the best driver that works",
    needs: af_xdp::DRIVER.needs,
    section: "system",
    options: OPTIONS,
    status: &[
        KeyRow {
            name: "driver",
            meaning: "`af_xdp` or `af_packet`, and why, if segmentation or an option decided",
        },
        KeyRow { name: "af_xdp-error", meaning: "why it is not AF_XDP" },
        KeyRow { name: "datapath", meaning: "packet sockets: `af_packet`" },
        KeyRow {
            name: "kernel-stack",
            meaning: "packet sockets: `blocked`, or `receives too` with the reason",
        },
        KeyRow { name: "offloads", meaning: "packet sockets: checksums and segments that cross whole" },
        of_af_xdp("xdp-mode"),
        of_af_xdp("use-need-wakeup"),
        of_af_xdp("xdp-multi-buffer"),
        of_af_xdp("xdp-vlan-tags"),
        of_af_xdp("xdp-umem"),
        of_af_xdp("n_rxq"),
        crate::options::DRIVER_NAME,
        crate::options::DRIVER_VERSION,
        crate::options::FIRMWARE_VERSION,
        crate::options::RENAMED_TO,
    ],
    statistics: &[],
    backing: Backing::Kernels,
    is_strict: false,
    is_pmd: false,
    spreads_flows: false,
    open: |spec, pool| Ok(Box::new(SystemPort::open(spec, pool)?)),
    check,
    have_same_effect: |a, b| crate::driver::are_equal(effect, a, b),
};

const fn of_af_xdp(name: &'static str) -> KeyRow {
    KeyRow { name, meaning: "AF_XDP: as for `afxdp`" }
}

const OPTIONS: &[OptionRow] = &[
    crate::options::IFNAME,
    OptionRow {
        name: "driver",
        values: Values::OneOf(&["af_xdp", "af_packet"]),
        default: "the best that works",
        is_live: false,
        meaning: "that driver, or an error",
    },
    af_packet::KERNEL_STACK,
    af_packet::N_RXQ_DESC,
    OptionRow { meaning: "as for `afxdp`; chooses AF_XDP", ..af_xdp::XDP_MODE },
    OptionRow { meaning: "as for `afxdp`; chooses AF_XDP", ..af_xdp::USE_NEED_WAKEUP },
    OptionRow { meaning: "as for `afxdp`; chooses AF_XDP", ..af_xdp::N_TXQ_DESC },
];

/// A port of type `system`.
pub struct SystemPort {
    inner: Box<dyn Port>,
    details: Vec<(String, String)>,
    spec: PortSpec,
}

impl SystemPort {
    /// Whether segmentation makes packet sockets the better choice. Options that only AF_XDP has select
    /// AF_XDP.
    fn prefers_packets(spec: &PortSpec) -> bool {
        let name = spec.option("ifname").unwrap_or(&spec.name);
        AF_XDP_ALONE.iter().all(|option| spec.option(option.name).is_none())
            && Device::find(name).is_ok_and(|device| device.is_veth_with_segments())
    }

    /// Accepts `driver` and the options of both drivers, each of which ignores the other's.
    pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<SystemPort, PortError> {
        spec.check_options(OPTIONS)?;
        let note = |driver: &str| ("driver".to_string(), driver.to_string());
        let spec = spec.clone();
        match spec.option("driver") {
            None => {}
            Some("af_packet") => {
                let inner = Box::new(AfPacketPort::open(&for_af_packet(&spec), pool)?);
                return Ok(SystemPort { inner, details: vec![note("af_packet (chosen by option)")], spec });
            }
            Some(_) => {
                let inner = Box::new(AfXdpPort::open(&for_af_xdp(&spec), pool)?);
                return Ok(SystemPort { inner, details: vec![note("af_xdp (chosen by option)")], spec });
            }
        }
        if Self::prefers_packets(&spec)
            && let Ok(port) = AfPacketPort::open(&for_af_packet(&spec), pool)
            && (port.is_kernels_stack_blocked() || spec.option("kernel-stack").is_some())
        {
            let details = vec![note("af_packet (the veth passes TCP segments whole)")];
            return Ok(SystemPort { inner: Box::new(port), details, spec });
        }
        let why = match AfXdpPort::open(&for_af_xdp(&spec), pool) {
            Ok(port) => return Ok(SystemPort { inner: Box::new(port), details: vec![note("af_xdp")], spec }),
            // Another driver would not help there.
            Err(
                e @ (PortError::NoSuchInterface { .. }
                | PortError::Loopback { .. }
                | PortError::BadOption { .. }),
            ) => return Err(e),
            Err(e @ PortError::Busy { .. }) if spec.retries_busy => return Err(e),
            Err(e) => e.to_string(),
        };
        let inner = Box::new(AfPacketPort::open(&for_af_packet(&spec), pool)?);
        Ok(SystemPort { inner, details: vec![note("af_packet"), ("af_xdp-error".into(), why)], spec })
    }
}

/// See [`crate::check`].
fn check(spec: &PortSpec) -> Result<(), PortError> {
    spec.check_options(OPTIONS)?;
    let as_packet = || af_packet::check(&for_af_packet(spec));
    let as_xdp = || af_xdp::check(&for_af_xdp(spec));
    match spec.option("driver") {
        // Whichever of the two it will be.
        None => as_xdp().and_then(|()| as_packet()),
        Some("af_packet") => as_packet(),
        Some(_) => as_xdp(),
    }
}

/// Everything that the options determine, whichever driver is used.
fn effect(spec: &PortSpec) -> Result<impl PartialEq + use<>, PortError> {
    spec.check_options(OPTIONS)?;
    let as_xdp = af_xdp::effect(&for_af_xdp(spec))?;
    let as_packet = af_packet::effect(&for_af_packet(spec))?;
    Ok((spec.option("driver").map(str::to_string), as_xdp, as_packet))
}

fn for_af_packet(spec: &PortSpec) -> PortSpec {
    restricted(spec, af_packet::OPTIONS)
}

fn for_af_xdp(spec: &PortSpec) -> PortSpec {
    restricted(spec, af_xdp::DRIVER.options)
}

/// The same with only those options that the driver has.
fn restricted(spec: &PortSpec, options: &[OptionRow]) -> PortSpec {
    let mut spec = spec.clone();
    spec.options.retain(|k, _| k == N_RXQ.name || options.iter().any(|row| row.name == k));
    spec
}

impl Port for SystemPort {
    fn kind(&self) -> &'static str {
        "system"
    }

    fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
        self.inner.take_rx_queues()
    }

    fn take_tx_queues(&mut self, count: usize) -> Vec<Box<dyn TxQueue>> {
        self.inner.take_tx_queues(count)
    }

    /// Options of the driver that was not chosen change nothing.
    fn set_options(&mut self, options: &BTreeMap<String, String>) -> Result<bool, String> {
        let spec = PortSpec { options: options.clone(), ..self.spec.clone() };
        let driver = spec.option("driver");
        let same = driver == self.spec.option("driver")
            && match driver {
                Some("af_packet") => for_af_packet(&spec) == for_af_packet(&self.spec),
                Some("af_xdp") => for_af_xdp(&spec) == for_af_xdp(&self.spec),
                _ => false,
            };
        if same {
            self.spec = spec;
        }
        Ok(same)
    }

    fn numa_node(&self) -> Option<usize> {
        self.inner.numa_node()
    }

    fn stats(&self) -> PortStats {
        self.inner.stats()
    }

    fn status(&self) -> PortStatus {
        let mut status = self.inner.status();
        status.details.splice(0..0, self.details.iter().cloned());
        status
    }

    fn set_admin_up(&mut self, up: bool) -> Result<(), String> {
        self.inner.set_admin_up(up)
    }

    fn set_mtu(&mut self, mtu: u32) -> Result<(), String> {
        self.inner.set_mtu(mtu)
    }

    fn as_dummy(&self) -> Option<&dyn DummyControl> {
        None
    }
}
