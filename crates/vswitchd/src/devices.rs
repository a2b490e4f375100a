//! Network devices that come, go and change under the switch, as the kernel tells of them.
//!
//! A port whose device is gone stays, its link down, until there is a device of that name again: then it is
//! opened anew. A device that was replaced by another of its name is gone too, however quickly that went: the
//! two have different indexes.

use crate::state::{PortRecord, Shared, Vswitch};
use base::PortNo;
use ports::netlink::{LinkEvent, LinkEvents, links};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;
use tokio::sync::Notify;

/// A step that waits for a device to go is tried again after this time.
pub const DEVICE_WAIT: Duration = Duration::from_millis(5);

/// The kernel's word on devices of this network namespace.
struct Devices {
    events: LinkEvents,
    /// The same socket, to wait for it. The runtime waits for sockets of the kinds that it knows; what it is
    /// read as does not matter, since it is never read here.
    ready: UdpSocket,
}

impl Devices {
    /// Starts to listen. `None`, with a warning, where the kernel does not let us.
    fn new() -> Option<Devices> {
        let listen = || {
            let events = LinkEvents::new().map_err(|e| e.to_string())?;
            let copy = events.as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
            let ready = UdpSocket::from_std(copy.into()).map_err(|e| e.to_string())?;
            Ok::<_, String>(Devices { events, ready })
        };
        listen()
            .map_err(|why| {
                tracing::warn!(
                    target: "bridge",
                    "the kernel does not tell of new devices ({why}): ports wait for the next change"
                );
            })
            .ok()
    }

    /// What happened, once something did.
    async fn next(&mut self) -> Vec<LinkEvent> {
        loop {
            if self.ready.readable().await.is_err() {
                return std::future::pending().await;
            }
            let taken = self.events.take();
            // All was taken: the runtime shall wait for more.
            let none = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.ready.try_io(Interest::READABLE, none);
            if !taken.is_empty() {
                return taken;
            }
        }
    }
}

/// Takes note of what happens from now on, whether there is a database or not: links go down at any time.
pub fn follow(shared: Shared, port_may_come: Rc<Notify>) {
    let Some(mut devices) = Devices::new() else { return };
    tokio::task::spawn_local(async move {
        loop {
            let events = devices.next().await;
            let mut vswitch = shared.borrow_mut();
            if vswitch.devices_changed(&events) {
                port_may_come.notify_one();
            }
            vswitch.deliver();
        }
    });
}

impl Vswitch {
    /// Takes note of what happened. True where a port may come that could not before.
    fn devices_changed(&mut self, events: &[LinkEvent]) -> bool {
        let (mut may_come, mut look) = (false, false);
        let mut changed = BTreeSet::new();
        for event in events {
            match event {
                LinkEvent::Gone { ifindex } => self.devices_gone(|r| r.status.ifindex == *ifindex),
                LinkEvent::Changed(link) => {
                    // Another device of the name, or the one before: an event may be older than its port.
                    let is_another = |r: &PortRecord| {
                        r.interface.device() == link.name && ![0, link.ifindex].contains(&r.status.ifindex)
                    };
                    look |= self.ports.values().any(is_another);
                    let is_it = |r: &&PortRecord| {
                        r.interface.device() == link.name && r.status.ifindex == link.ifindex
                    };
                    changed.extend(self.ports.values().filter(is_it).map(|r| r.port_no));
                    may_come |= self.waits_for(&link.name);
                }
                LinkEvent::Overrun => (may_come, look) = (true, true),
            }
        }
        if look {
            may_come |= self.look_for_devices();
        }
        // Its link may be down: groups leave it now, not when its turn comes to be looked at.
        changed.into_iter().for_each(|port_no| self.watch_port(port_no));
        may_come
    }

    /// Compares ports with the devices that there are. True where a port waits for one that is there.
    fn look_for_devices(&mut self) -> bool {
        let there: BTreeMap<String, u32> = match links() {
            Ok(links) => links.into_iter().map(|link| (link.name, link.ifindex)).collect(),
            Err(error) => {
                tracing::warn!(target: "bridge", "devices cannot be listed: {error}");
                return true;
            }
        };
        self.devices_gone(|r| there.get(r.interface.device()) != Some(&r.status.ifindex));
        there.keys().any(|device| self.waits_for(device))
    }

    /// Ports whose device is gone know it now, before a worker has noticed. Only devices of others: those of
    /// the switch may have been moved to another network namespace, where they work on.
    fn devices_gone(&mut self, is_gone: impl Fn(&PortRecord) -> bool) {
        let is_others = |r: &&PortRecord| r.interface.is_others();
        let gone: Vec<PortNo> = (self.ports.values().filter(is_others))
            .filter(|r| r.status.ifindex != 0 && !r.gone && is_gone(r))
            .map(|r| r.port_no)
            .collect();
        gone.into_iter().for_each(|port_no| self.port_gone(port_no));
    }

    fn waits_for(&self, device: &str) -> bool {
        self.failures.wait_for(device)
            || self.ports.values().any(|r| r.interface.device() == device && r.is_broken())
    }
}
