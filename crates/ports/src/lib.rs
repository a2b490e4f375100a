//! The drivers: everything through which packets come in and go out.
//!
//! A driver implements [`packet::Port`] for the control thread, and provides receive and transmit queues that
//! belong to workers from then on. [`open`] makes a port from a [`PortSpec`], its configuration from the
//! database or the command line; the datapath sees only the traits and knows no driver.
//!
//! Invariants: a driver frees every packet it took, and takes back every chunk it lent to a device, by the
//! time its queues are closed; external changes to a device (it is deleted, its link goes down, its MTU
//! changes) are a state in [`packet::PortStatus`] and never a panic; statistics are counted by the queue that
//! moved the packet, one writer per counter.
//!
//! `unsafe` is used only for system calls and for rings shared with the kernel.
#![allow(unsafe_code)]

pub mod af_packet;
pub mod af_xdp;
pub mod crash;
mod cut;
mod driver;
pub mod dummy;
pub mod files;
mod loading;
pub mod netlink;
pub mod null;
pub mod offload;
mod options;
pub mod pcap;
mod port_memory;
mod replay;
mod spec;
mod spread;
mod stats;
pub mod system;
mod tails;
pub mod tap;
pub mod vhost_user;
pub mod virtio_net;
mod virtual_link;
mod wait;

pub use af_xdp::busy::{Wait, is_gone};
pub use driver::{Backing, Driver};
pub use options::{KeyRow, N_RXQ, OptionRow, Values};
pub use port_memory::PortMemory;
pub use spec::{Blocker, PortError, PortSpec};
pub use stats::QueueStats;

use packet::{Pool, Port};

/// The table of drivers, sorted by type.
pub const DRIVERS: &[&Driver] = &[
    &af_xdp::DRIVER,
    &vhost_user::SERVER,
    &vhost_user::CLIENT,
    &dummy::DRIVER,
    &dummy::INTERNAL,
    &dummy::PMD,
    &tap::INTERNAL,
    &null::DRIVER,
    &pcap::DRIVER,
    &system::DRIVER,
    &tap::TAP,
];

/// The row of what a bridge's own port is.
pub const INTERNAL: &Driver = &tap::INTERNAL;
/// The row of what an interface is whose type nobody says.
pub const SYSTEM: &Driver = &system::DRIVER;

/// The driver of a type, by the type's name or an alias.
pub fn driver(kind: &str) -> Option<&'static Driver> {
    DRIVERS.iter().find(|driver| driver.kind == kind || driver.aliases.contains(&kind)).copied()
}

/// All types, sorted.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    DRIVERS.iter().map(|driver| driver.kind)
}

/// Makes the port that `spec` describes, with its packets in `pool`. Waits a moment for an interface that
/// another process is giving up.
///
/// Errors: as [`open_now`].
pub fn open(spec: &PortSpec, pool: &'static Pool) -> Result<Box<dyn Port>, PortError> {
    af_xdp::busy::while_busy(af_xdp::busy::GRACE, |retries_busy| {
        open_now(&PortSpec { retries_busy, ..spec.clone() }, pool)
    })
}

/// The same without waiting: [`PortError::Busy`], after which a [`Wait`] says when to try again.
///
/// Errors: a type that is not in [`DRIVERS`], an option that the type does not have or whose value is
/// invalid, and errors of the operating system. Nothing is left behind in the kernel on an error.
pub fn open_now(spec: &PortSpec, pool: &'static Pool) -> Result<Box<dyn Port>, PortError> {
    let driver = driver_of(spec)?;
    let port = (driver.open)(spec, pool)?;
    if cfg!(debug_assertions) {
        let details = port.status().details;
        for (key, _) in &details {
            assert!(driver.has_status(key), "type {}: its row has no status {key}", driver.kind);
        }
    }
    Ok(port)
}

/// Whether [`open`] would accept the options. Returns the error that it would give for one of them, without
/// opening or changing anything. What only the device itself can refuse is not found.
pub fn check(spec: &PortSpec) -> Result<(), PortError> {
    (driver_of(spec)?.check)(spec)
}

/// Whether the options of two ports with the same name and type have the same effect, for example if one
/// gives the value that is the other's default. False if one of them would be refused, and for
/// `dpdkvhostuser` and its client, which decide themselves: see [`Port::set_options`].
pub fn have_same_effect(a: &PortSpec, b: &PortSpec) -> bool {
    (&a.name, &a.kind) == (&b.name, &b.kind)
        && driver(&a.kind).is_some_and(|row| (row.have_same_effect)(a, b))
}

fn driver_of(spec: &PortSpec) -> Result<&'static Driver, PortError> {
    driver(&spec.kind)
        .ok_or_else(|| PortError::UnknownKind { kind: spec.kind.clone(), known: kinds().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;

    #[test]
    fn an_unknown_type_says_which_there_are() {
        let pool = Pool::new(packet::PoolConfig { chunks: 32, ..Default::default() }).unwrap();
        let Err(error) = open(&PortSpec::new("p1", "nul", PortNo(1)), pool) else { panic!("made a port") };
        let text = error.to_string();
        assert!(text.contains("nul") && text.contains("internal, null, pcap"), "{text}");
        assert!(text.ends_with("tap (did you mean 'null'?)"), "{text}");
    }

    #[test]
    fn a_type_that_is_gone_names_its_successor() {
        let pool = Pool::new(packet::PoolConfig { chunks: 32, ..Default::default() }).unwrap();
        for kind in ["dpdkvhost", "dpdkvhostcuse"] {
            let Err(error) = open(&PortSpec::new("p1", kind, PortNo(1)), pool) else { panic!("made a port") };
            let expected = format!("port type \"{kind}\" is gone: use dpdkvhostuser or dpdkvhostuserclient");
            assert_eq!(error.to_string(), expected);
        }
    }

    #[test]
    fn an_option_that_the_type_does_not_have_is_named_with_those_it_has() {
        let pool = Pool::new(packet::PoolConfig { chunks: 32, ..Default::default() }).unwrap();
        let Err(error) = open(&PortSpec::new("p1", "null", PortNo(1)).with("sizze", "60"), pool) else {
            panic!("made a port")
        };
        let text = error.to_string();
        let names = driver("null").unwrap().option_names();
        assert!(names.is_sorted() && names.contains(&"n_rxq") && names.contains(&"size"), "{names:?}");
        let expected = format!("ports of type null take {}", names.join(", "));
        assert!(text.contains("sizze") && text.contains(&expected), "{text}");
        assert!(text.ends_with(" (did you mean 'size'?)"), "{text}");
    }

    #[test]
    fn every_driver_refuses_values_that_its_row_does_not_have() {
        for driver in DRIVERS {
            for row in driver.options.iter().chain([&N_RXQ]) {
                if row.values.allow("nonsense") {
                    continue; // Text, which the driver looks at.
                }
                let error = check(&PortSpec::new("p1", driver.kind, PortNo(1)).with(row.name, "nonsense"));
                let expected = format!("option {}=nonsense: expected {}", row.name, row.values);
                assert_eq!(error.unwrap_err().to_string(), expected, "{}", driver.kind);
            }
        }
        assert!(kinds().is_sorted());
    }

    #[test]
    fn options_that_together_would_take_too_much_memory_are_refused_before_anything_is_made() {
        let frames = "but the frames of a port may take only 2048 MB";
        let rings = "but those of a port may take only 256 MB";
        for (kind, options, why) in [
            ("null", &[("size", "65535"), ("flows", "4194304")][..], frames),
            ("null", &[("size", "65535"), ("flows", "4194304"), ("n_rxq", "64")], frames),
            ("null", &[("size", "1518"), ("flows", "1400000")], frames),
            ("system", &[("driver", "af_packet"), ("n_rxq", "64"), ("n_rxq_desc", "65536")], rings),
            ("system", &[("driver", "af_packet"), ("n_rxq", "64"), ("n_rxq_desc", "2049")], rings),
        ] {
            let spec = options.iter().fold(PortSpec::new("p1", kind, PortNo(1)), |s, (k, v)| s.with(k, v));
            let error = check(&spec).unwrap_err().to_string();
            assert!(error.contains(why), "{kind} {options:?}: {error}");
        }
        for options in [&[("size", "64"), ("flows", "4194304")][..], &[("size", "65535"), ("n_rxq", "64")]] {
            let spec = options.iter().fold(PortSpec::new("p1", "null", PortNo(1)), |s, (k, v)| s.with(k, v));
            assert_eq!(check(&spec), Ok(()), "{options:?}");
        }
    }

    #[test]
    fn a_value_that_is_the_default_has_the_effect_of_none() {
        let spec = |kind: &str, options: &[(&str, &str)]| {
            options.iter().fold(PortSpec::new("p1", kind, PortNo(1)), |spec, (k, v)| spec.with(k, v))
        };
        for (kind, option, default, other) in [
            ("dummy", "n_rxq", "1", "2"),
            ("dummy", "numa_id", "0", "1"),
            ("tap", "ifname", "p1", "p2"),
            ("internal", "n_rxq", "1", "4"),
            ("null", "n_rxq", "1", "2"),
            ("pcap", "loop", "true", "false"),
            ("afxdp", "xdp-mode", "best-effort", "generic"),
            ("afxdp", "use-need-wakeup", "true", "false"),
            ("afxdp", "ifname", "p1", "p2"),
            ("system", "n_rxq_desc", "2048", "1024"),
            ("system", "kernel-stack", "false", "true"),
        ] {
            let [bare, with_default, changed] =
                [spec(kind, &[]), spec(kind, &[(option, default)]), spec(kind, &[(option, other)])];
            assert!(have_same_effect(&bare, &with_default), "{kind} {option}={default}");
            let differs = |one| !have_same_effect(one, &changed);
            assert!(
                differs(&bare) && differs(&with_default),
                "{kind} {option}={other}: is it in `Settings`?"
            );
        }
        // How many a device has is not known: to ask for one is another thing than to ask for none.
        assert!(!have_same_effect(&spec("afxdp", &[]), &spec("afxdp", &[("n_rxq", "1")])));
        let refused = spec("dummy", &[("n_rxq", "many")]);
        assert!(!have_same_effect(&refused, &refused));
        assert!(!have_same_effect(&spec("pcap", &[]), &spec("pcap", &[("tx_file", "x")])));
    }
}
