//! The rows of taps in the table of drivers.

use super::{OPTIONS, TapPort, settings};
use crate::driver::{Backing, DUMMY, Driver};
use crate::dummy;
use crate::options::KeyRow;

/// Its row of the table of drivers.
pub(crate) const TAP: Driver = Driver {
    kind: "tap",
    aliases: &[],
    dummy: DUMMY,
    other_end: "the kernel's own network stack",
    needs: "root (or `CAP_NET_ADMIN`)",
    section: "tap-and-internal",
    options: OPTIONS,
    status: &[
        crate::options::DRIVER_NAME,
        crate::options::DRIVER_VERSION,
        crate::options::FIRMWARE_VERSION,
        KeyRow { name: "offloads", meaning: "what is left to the device: checksums, segmentation" },
        crate::options::RENAMED_TO,
    ],
    statistics: &[],
    backing: Backing::Own,
    is_strict: false,
    is_pmd: false,
    spreads_flows: true,
    open: |spec, pool| Ok(Box::new(TapPort::open(spec, pool)?)),
    check: |spec| settings(spec).map(drop),
    have_same_effect: |a, b| crate::driver::are_equal(settings, a, b),
};

/// The same under the name that bridges' own ports have.
pub(crate) const INTERNAL: Driver = Driver { kind: "internal", dummy: dummy::INTERNAL.kind, ..TAP };
