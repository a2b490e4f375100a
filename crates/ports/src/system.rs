//! `system`: any interface of the kernel, by the best driver that works on it.
//!
//! Packet sockets on a veth that passes TCP segments on whole: with AF_XDP its kernel would cut every segment
//! up, and TCP between containers be four times slower. On everything else AF_XDP where the interface takes
//! it, else packet sockets. `driver=af_xdp` or `driver=af_packet` decides by hand. The choice and its reason
//! are in the port's status.

use crate::af_packet::{self, AfPacketPort};
use crate::af_xdp::AfXdpPort;
use crate::af_xdp::device::Device;
use crate::{PortError, PortSpec, af_xdp};
use packet::{DummyControl, Pool, Port, PortStats, PortStatus, RxQueue, TxQueue};
use std::collections::BTreeMap;

/// Options that say which driver, or that both have.
const COMMON: &[&str] = &["ifname", "n_rxq_desc", "driver"];
/// Options of AF_XDP alone.
const AF_XDP_OPTIONS: &[&str] = &["xdp-mode", "use-need-wakeup", "n_txq_desc"];

/// The option that both drivers lack.
pub(crate) const OPTIONS: &[&str] = &["driver"];

/// A port of type `system`.
pub struct SystemPort {
    inner: Box<dyn Port>,
    details: Vec<(String, String)>,
    spec: PortSpec,
}

impl SystemPort {
    /// Whether segmentation makes packet sockets the better choice. Who asks for something that only AF_XDP
    /// has gets AF_XDP.
    fn prefers_packets(spec: &PortSpec) -> bool {
        let name = spec.option("ifname").unwrap_or(&spec.name);
        AF_XDP_OPTIONS.iter().all(|option| spec.option(option).is_none())
            && Device::find(name).is_ok_and(|device| device.is_veth_with_segments())
    }

    /// Takes the options of both drivers, each of which ignores the other's, and `driver`.
    pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<SystemPort, PortError> {
        check_options(spec)?;
        let note = |driver: &str| ("driver".to_string(), driver.to_string());
        let spec = spec.clone();
        match spec.option("driver") {
            None => {}
            Some("af_packet") => {
                let inner = Box::new(AfPacketPort::open(&restricted(&spec, af_packet::OPTIONS), pool)?);
                return Ok(SystemPort { inner, details: vec![note("af_packet (chosen by option)")], spec });
            }
            Some("af_xdp") => {
                let inner = Box::new(AfXdpPort::open(&for_af_xdp(&spec), pool)?);
                return Ok(SystemPort { inner, details: vec![note("af_xdp (chosen by option)")], spec });
            }
            Some(_) => return Err(spec.bad("driver", "expected af_xdp or af_packet".into())),
        }
        if Self::prefers_packets(&spec)
            && let Ok(port) = AfPacketPort::open(&restricted(&spec, af_packet::OPTIONS), pool)
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
            Err(e) => e.to_string(),
        };
        let inner = Box::new(AfPacketPort::open(&restricted(&spec, af_packet::OPTIONS), pool)?);
        Ok(SystemPort { inner, details: vec![note("af_packet"), ("af_xdp-error".into(), why)], spec })
    }
}

/// See [`crate::check`].
pub(crate) fn check(spec: &PortSpec) -> Result<(), PortError> {
    check_options(spec)?;
    let as_packet = || af_packet::check(&restricted(spec, af_packet::OPTIONS));
    let as_xdp = || af_xdp::check(&for_af_xdp(spec));
    match spec.option("driver") {
        // Whichever of the two it will be.
        None => as_xdp().and_then(|()| as_packet()),
        Some("af_packet") => as_packet(),
        Some("af_xdp") => as_xdp(),
        Some(_) => Err(spec.bad("driver", "expected af_xdp or af_packet".into())),
    }
}

/// All that the options come to, whichever of the drivers it will be.
pub(crate) fn effect(spec: &PortSpec) -> Result<impl PartialEq + use<>, PortError> {
    check_options(spec)?;
    let as_xdp = af_xdp::effect(&for_af_xdp(spec))?;
    let as_packet = af_packet::effect(&restricted(spec, af_packet::OPTIONS))?;
    Ok((spec.option("driver").map(str::to_string), as_xdp, as_packet))
}

fn check_options(spec: &PortSpec) -> Result<(), PortError> {
    spec.check_options(&[COMMON, AF_XDP_OPTIONS, af_packet::OPTIONS].concat())
}

fn for_af_xdp(spec: &PortSpec) -> PortSpec {
    restricted(spec, &[COMMON, AF_XDP_OPTIONS].concat())
}

/// The same with only those options that the driver has.
fn restricted(spec: &PortSpec, options: &[&str]) -> PortSpec {
    let mut spec = spec.clone();
    spec.options.retain(|k, _| k == "n_rxq" || (k != "driver" && options.contains(&k.as_str())));
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
                Some("af_packet") => {
                    restricted(&spec, af_packet::OPTIONS) == restricted(&self.spec, af_packet::OPTIONS)
                }
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
