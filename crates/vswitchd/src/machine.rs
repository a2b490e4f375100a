//! What the [device manager](crate::device_manager) needs done by the machine: drivers opened, the kernel's
//! devices listed, and released ones taken down. The manager decides; only what stands here touches a device.

use crate::janitor::{Fate, Janitor};
use packet::{Pool, Port};
use ports::netlink::Link;
use ports::{Blocker, PortError, PortSpec};

/// See the module documentation.
pub(crate) trait Machine {
    /// Opens a driver, without waiting for a device that is busy.
    fn open(&self, spec: &PortSpec, pool: &'static Pool) -> Result<Box<dyn Port>, PortError>;

    /// Whether what made a device busy is gone.
    fn is_gone(&self, blocker: Blocker) -> bool;

    /// The kernel's devices.
    fn links(&self) -> Result<Vec<Link>, PortError>;

    /// Takes down a port that no worker has a queue of any more; `device` is the name of its device.
    fn take_port(&self, device: &str, port: Box<dyn Port>, fate: Fate);

    /// Removes one of the kernel's devices.
    fn remove_device(&self, device: &str, ifindex: u32);

    /// Whether a device with that name has yet to be taken down.
    fn is_leaving(&self, device: &str) -> bool;

    /// The number of devices that have.
    fn leaving(&self) -> usize;

    /// The number of the last one that is to be taken down.
    fn last(&self) -> u64;

    /// Whether it and all before it have been.
    fn is_down(&self, last: u64) -> bool;

    /// Whether no more can be taken down for now.
    fn is_full(&self) -> bool;

    /// Waits until everything is taken down.
    fn finish(&self);
}

/// The machine that we run on.
pub(crate) struct ThisMachine(Janitor);

impl ThisMachine {
    /// Starts the janitor.
    pub fn start() -> std::io::Result<ThisMachine> {
        Ok(ThisMachine(Janitor::start()?))
    }
}

impl Machine for ThisMachine {
    fn open(&self, spec: &PortSpec, pool: &'static Pool) -> Result<Box<dyn Port>, PortError> {
        ports::open_now(spec, pool)
    }

    fn is_gone(&self, blocker: Blocker) -> bool {
        ports::is_gone(blocker)
    }

    fn links(&self) -> Result<Vec<Link>, PortError> {
        ports::netlink::links()
    }

    fn take_port(&self, device: &str, port: Box<dyn Port>, fate: Fate) {
        self.0.take_port(device, port, fate);
    }

    fn remove_device(&self, device: &str, ifindex: u32) {
        self.0.remove_device(device, ifindex);
    }

    fn is_leaving(&self, device: &str) -> bool {
        self.0.is_leaving(device)
    }

    fn leaving(&self) -> usize {
        self.0.waiting()
    }

    fn last(&self) -> u64 {
        self.0.last()
    }

    fn is_down(&self, last: u64) -> bool {
        self.0.is_down(last)
    }

    fn is_full(&self) -> bool {
        self.0.is_full()
    }

    fn finish(&self) {
        self.0.finish();
    }
}
