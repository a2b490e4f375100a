//! Passes the kernel's notifications about network devices to the [device manager](crate::port_watch), and
//! the consequences to the parts concerned.

use crate::port_watch::PortEvent;
use crate::scheduler::Event;
use crate::state::{Shared, Vswitch};
use base::OfPort;
use openflow::message::PortReason;
use ports::netlink::{LinkEvent, LinkEvents};
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// A step that waits for a device to go is tried again after this time.
pub const DEVICE_WAIT: Duration = Duration::from_millis(5);

/// The kernel's word on devices of this network namespace.
struct Devices {
    events: LinkEvents,
    /// The same socket, to wait for it. The runtime can only wait for the kinds of sockets that it knows; the
    /// kind does not matter, since it is never read here.
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
                    "the kernel does not report new devices ({why}): ports are retried with the next change"
                );
            })
            .ok()
    }

    /// Waits for events and returns them.
    async fn next(&mut self) -> Vec<LinkEvent> {
        loop {
            if self.ready.readable().await.is_err() {
                return std::future::pending().await;
            }
            let taken = self.events.take();
            // Everything has been read: the runtime must wait for more.
            let none = || Err::<(), _>(io::ErrorKind::WouldBlock.into());
            let _ = self.ready.try_io(Interest::READABLE, none);
            if !taken.is_empty() {
                return taken;
            }
        }
    }
}

/// Takes note of what happens from now on, whether there is a database or not: links go down at any time.
pub fn follow(shared: Shared) {
    let Some(mut devices) = Devices::new() else { return };
    tokio::task::spawn_local(async move {
        loop {
            let told = devices.next().await;
            let vswitch = &mut *shared.borrow_mut();
            let (events, may_come) = vswitch.devices.hear(&mut vswitch.plane, &told);
            vswitch.follow_devices(events);
            if may_come {
                vswitch.devices.may_come.notify_one();
            }
            vswitch.deliver();
        }
    });
}

impl Vswitch {
    /// Applies the consequences of changed ports elsewhere.
    pub(crate) fn follow_devices(&mut self, events: impl IntoIterator<Item = PortEvent>) {
        for event in events {
            match event {
                PortEvent::Queues => self.workers.scheduler.note(Event::Queues),
                PortEvent::Changed(port_no) => self.tell_port(port_no, PortReason::Modify),
                PortEvent::Mtu(bridge) => {
                    self.devices.behind_mtu.insert(bridge, OfPort(0));
                    self.urgent.notify_one();
                }
            }
        }
    }
}
