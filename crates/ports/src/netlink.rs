//! Kernel network interfaces: queried, changed, created, removed and watched over rtnetlink.
//!
//! Only what the drivers and their tests need, in blocking calls of one request and one answer, with a socket
//! per call: all of it happens when a port is created, changed or queried, never per packet.
//!
//! Not with `netlink-packet-route`: it has types for every attribute of every message, of which we need a
//! dozen for links and addresses, and leaves socket, errors and namespaces to us. `rtnetlink` covers those,
//! but brings an asynchronous runtime.
//!
//! Source: netlink(7), rtnetlink(7), linux/if_link.h, linux/rtnetlink.h; network_namespaces(7).

use crate::PortError;
use crate::wait::{last_errno, owned};
use std::collections::hash_map::RandomState;
use std::ffi::CString;
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

const HEADER: usize = 16;
pub(crate) const IFINFO: usize = 16;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_GROUP: u16 = 27;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;
const RTMSG: usize = 12;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const NDMSG: usize = 12;
const NDM_STATE: usize = 8;
const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const NESTED: u16 = 1 << 15;
const IF_OPER_UP: u8 = 6;
const IF_OPER_UNKNOWN: u8 = 0;

/// A network interface as the kernel describes it.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Link {
    /// Its index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// MTU in bytes.
    pub mtu: u32,
    /// Ethernet address; zeros if it has none.
    pub mac: [u8; 6],
    /// Whether it is administratively up.
    pub admin_up: bool,
    /// Whether frames pass: up, with a carrier.
    pub is_running: bool,
    /// Whether it is in promiscuous mode.
    pub is_promiscuous: bool,
    /// Its alias (`ip link set .. alias`), empty if it has none.
    pub alias: String,
}

/// Changes to an interface; `None` means no change.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LinkChange {
    /// Administrative state.
    pub up: Option<bool>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// Network namespace to move to, as an open descriptor.
    pub netns: Option<RawFd>,
    /// See [`Link::alias`]; at most 255 bytes.
    pub alias: Option<String>,
}

impl LinkChange {
    /// Whether there is something to change.
    pub fn is_any(&self) -> bool {
        *self != LinkChange::default()
    }
}

/// The interface with that name in the current namespace. `NoSuchInterface` if there is none.
pub fn link_by_name(name: &str) -> Result<Link, PortError> {
    check_name(name)?;
    let mut message = Message::link(libc::RTM_GETLINK, 0, 0);
    message.string(IFLA_IFNAME, name);
    get_link(message).map_err(|e| match e.errno() {
        Some(libc::ENODEV) => PortError::NoSuchInterface { name: name.into() },
        _ => e,
    })
}

/// The interface with that index in the current namespace. The error has `ENODEV` if there is none.
pub fn link_by_index(ifindex: u32) -> Result<Link, PortError> {
    get_link(Message::link(libc::RTM_GETLINK, 0, ifindex))
}

fn get_link(message: Message) -> Result<Link, PortError> {
    let reply = message.send("ask for a network interface")?;
    let incomplete = || PortError::Os { call: "read a network interface".into(), errno: libc::EPROTO };
    parse_link(&reply).ok_or_else(incomplete)
}

/// Applies a change. The error is the kernel's.
pub fn set_link(ifindex: u32, change: &LinkChange) -> Result<(), PortError> {
    let mut message = Message::link(libc::RTM_NEWLINK, libc::NLM_F_ACK, ifindex);
    if let Some(up) = change.up {
        message.set_up(up);
    }
    if let Some(mtu) = change.mtu {
        message.attribute(IFLA_MTU, &mtu.to_ne_bytes());
    }
    if let Some(mac) = change.mac {
        message.attribute(IFLA_ADDRESS, &mac);
    }
    if let Some(netns) = change.netns {
        message.attribute(IFLA_NET_NS_FD, &netns.to_ne_bytes());
    }
    if let Some(alias) = &change.alias {
        message.attribute(IFLA_IFALIAS, alias.as_bytes());
    }
    message.send("change a network interface").map(drop)
}

/// Makes a pair of virtual Ethernet interfaces.
pub fn create_veth(name: &str, peer: &str) -> Result<(), PortError> {
    check_name(name)?;
    check_name(peer)?;
    let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let mut message = Message::link(libc::RTM_NEWLINK, flags, 0);
    message.string(IFLA_IFNAME, name);
    message.nested(IFLA_LINKINFO, |info| {
        info.attribute(IFLA_INFO_KIND, b"veth");
        info.nested(IFLA_INFO_DATA, |data| {
            data.nested(VETH_INFO_PEER, |other| {
                other.bytes.extend_from_slice(&[0; IFINFO]);
                other.string(IFLA_IFNAME, peer);
            });
        });
    });
    message.send("make a veth pair").map(drop)
}

/// Removes an interface (with a veth, its peer goes too).
pub fn delete_link(ifindex: u32) -> Result<(), PortError> {
    Message::link(libc::RTM_DELLINK, libc::NLM_F_ACK, ifindex).send("remove a network interface").map(drop)
}

/// Removes interfaces. Many at once cost the kernel little more than one: each removal by itself waits until
/// no processor looks at the interface any more, here all wait together. (They are put into a group of their
/// own, and the group is removed.) One that is gone already is as good. On an error the others are removed
/// all the same.
pub fn delete_links(indexes: &[u32]) -> Result<(), PortError> {
    let gone = |result: Result<(), PortError>| match result {
        Err(e) if e.errno() == Some(libc::ENODEV) => Ok(()),
        other => other,
    };
    let delete_each = |indexes: &[u32]| {
        let mut result = Ok(());
        for index in indexes {
            let one = gone(delete_link(*index));
            result = result.and(one);
        }
        result
    };
    if indexes.len() < 2 {
        return delete_each(indexes);
    }
    let group = unused_group()?;
    let (grouped, refused): (Vec<u32>, Vec<u32>) = indexes.iter().partition(|index| {
        let mut message = Message::link(libc::RTM_NEWLINK, libc::NLM_F_ACK, **index);
        message.attribute(IFLA_GROUP, &group.to_ne_bytes());
        message.send("put a network interface into a group").is_ok()
    });
    let mut message = Message::link(libc::RTM_DELLINK, libc::NLM_F_ACK, 0);
    message.attribute(IFLA_GROUP, &group.to_ne_bytes());
    let all = match message.send("remove a group of network interfaces") {
        Ok(_) => Ok(()),
        Err(_) => delete_each(&grouped),
    };
    // Gone, or refused a group: by itself, then.
    all.and(delete_each(&refused))
}

/// An unused group of interfaces: a random one, so that it collides with no other.
fn unused_group() -> Result<u32, PortError> {
    let mut groups = Vec::new();
    dump_links(|body| groups.extend(attribute(body, IFINFO, IFLA_GROUP).and_then(|value| u32_at(value, 0))))?;
    loop {
        // 0 is the default group.
        let group = RandomState::new().build_hasher().finish() as u32 | 1 << 31;
        if !groups.contains(&group) {
            return Ok(group);
        }
    }
}

/// All interfaces of the current namespace.
pub fn links() -> Result<Vec<Link>, PortError> {
    let mut links = Vec::new();
    dump_links(|body| links.extend(parse_link(body)))?;
    Ok(links)
}

fn dump_links(mut each: impl FnMut(&[u8])) -> Result<(), PortError> {
    let call = "ask for all network interfaces";
    let request = Message::link(libc::RTM_GETLINK, libc::NLM_F_DUMP, 0);
    let socket = request.request(call)?;
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let len = receive_one(&socket, &mut buffer, call)?;
        for (kind, body) in messages(&buffer[..len]) {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => {
                    return Err(PortError::Os { call: call.into(), errno: errno_of(body) });
                }
                _ if kind == libc::RTM_NEWLINK => each(body),
                _ => {}
            }
        }
    }
}

/// The Ethernet address of the first host on the way to an address, a router or the address itself, if the
/// kernel knows it.
pub fn next_hop(address: Ipv4Addr) -> Option<[u8; 6]> {
    let mut message = Message::new(libc::RTM_GETROUTE, 0);
    message.bytes.extend_from_slice(&[libc::AF_INET as u8, 32]);
    message.bytes.resize(HEADER + RTMSG, 0);
    message.attribute(RTA_DST, &address.octets());
    let route = message.send("ask for a route").ok()?;
    let hop: [u8; 4] = match attribute(&route, RTMSG, RTA_GATEWAY) {
        Some(gateway) => gateway.try_into().ok()?,
        None => address.octets(),
    };
    let mut message = Message::new(libc::RTM_GETNEIGH, 0);
    message.bytes.extend_from_slice(&[libc::AF_INET as u8, 0, 0, 0]);
    message.bytes.extend_from_slice(attribute(&route, RTMSG, RTA_OIF)?);
    message.bytes.resize(HEADER + NDMSG, 0);
    message.attribute(NDA_DST, &hop);
    let neighbour = message.send("ask for a neighbour").ok()?;
    let is_failed = u16_at(&neighbour, NDM_STATE)? & libc::NUD_FAILED != 0;
    let address = attribute(&neighbour, NDMSG, NDA_LLADDR).filter(|_| !is_failed)?;
    address.try_into().ok().filter(|address| *address != [0; 6])
}

/// Runs `f` in another network namespace, on a thread of its own: sockets that it opens stay there.
pub fn in_netns<T: Send>(
    netns: RawFd,
    f: impl FnOnce() -> Result<T, PortError> + Send,
) -> Result<T, PortError> {
    let enter = || {
        // SAFETY: the call touches no memory; it changes the namespace of this thread alone.
        if unsafe { libc::setns(netns, libc::CLONE_NEWNET) } != 0 {
            return Err(PortError::last_os("enter a network namespace"));
        }
        f()
    };
    std::thread::scope(|scope| scope.spawn(enter).join())
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Something that happened to an interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// It is new, or has changed.
    Changed(Link),
    /// It is gone, or has moved to another namespace.
    Gone {
        /// Its index.
        ifindex: u32,
    },
    /// So many events occurred that some were lost: query every interface again.
    Overrun,
}

/// The events of all interfaces of the current namespace.
pub struct LinkEvents {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl LinkEvents {
    /// Starts to listen.
    pub fn new() -> Result<LinkEvents, PortError> {
        let socket = open_socket(libc::SOCK_NONBLOCK, libc::RTMGRP_LINK as u32)?;
        Ok(LinkEvents { socket, buffer: vec![0; 64 * 1024] })
    }

    /// Readable when events wait.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Takes what has happened since the last call.
    pub fn take(&mut self) -> Vec<LinkEvent> {
        let mut events = Vec::new();
        loop {
            match receive(&self.socket, &mut self.buffer) {
                Ok(len) => parse_events(&self.buffer[..len], &mut events),
                Err(libc::ENOBUFS) => events.push(LinkEvent::Overrun),
                Err(libc::EINTR) => {}
                Err(_) => return events,
            }
        }
    }
}

impl AsFd for LinkEvents {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn parse_events(bytes: &[u8], events: &mut Vec<LinkEvent>) {
    for (kind, body) in messages(bytes) {
        match kind {
            libc::RTM_NEWLINK => events.extend(parse_link(body).map(LinkEvent::Changed)),
            libc::RTM_DELLINK => events.extend(u32_at(body, 4).map(|ifindex| LinkEvent::Gone { ifindex })),
            _ => {}
        }
    }
}

/// The messages in what was received, up to the first that is cut off: kind, and what follows the header.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (u32_at(bytes, 0)? as usize, u16_at(bytes, 4)?);
        let body = bytes.get(HEADER..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, body))
    })
}

fn parse_link(body: &[u8]) -> Option<Link> {
    let flags = u32_at(body, 8)? as i32;
    let mut link = Link {
        ifindex: u32_at(body, 4)?,
        name: String::new(),
        mtu: 0,
        mac: [0; 6],
        admin_up: flags & libc::IFF_UP != 0,
        is_running: flags & libc::IFF_RUNNING != 0 && flags & libc::IFF_UP != 0,
        is_promiscuous: flags & libc::IFF_PROMISC != 0,
        alias: String::new(),
    };
    let text = |value: &[u8]| String::from_utf8_lossy(value.strip_suffix(&[0]).unwrap_or(value)).into_owned();
    for (kind, value) in attributes(body.get(IFINFO..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_IFALIAS => link.alias = text(value),
            IFLA_MTU => link.mtu = u32_at(value, 0)?,
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_OPERSTATE => {
                link.is_running &= matches!(value.first(), Some(&(IF_OPER_UP | IF_OPER_UNKNOWN)));
            }
            _ => {}
        }
    }
    Some(link)
}

/// The attributes in the bytes, up to the first that is cut off.
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (len, kind) = (usize::from(u16_at(bytes, 0)?), u16_at(bytes, 2)? & !NESTED);
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// An attribute of a message, behind its fixed part.
pub(crate) fn attribute(body: &[u8], fixed: usize, wanted: u16) -> Option<&[u8]> {
    attributes(body.get(fixed..)?).find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// The error number in a message of the kernel's; 0 for an acknowledgement.
fn errno_of(body: &[u8]) -> i32 {
    u32_at(body, 0).map_or(libc::EPROTO, |code| -(code as i32))
}

/// A request in the making.
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    fn new(kind: u16, flags: i32) -> Message {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        Message { bytes }
    }

    pub(crate) fn link(kind: u16, flags: i32, ifindex: u32) -> Message {
        let mut message = Message::new(kind, flags);
        message.bytes.extend_from_slice(&[0; 4]);
        message.bytes.extend_from_slice(&ifindex.to_ne_bytes());
        message.bytes.extend_from_slice(&[0; 8]);
        message
    }

    fn set_up(&mut self, up: bool) {
        let value = if up { libc::IFF_UP } else { 0 };
        self.bytes[HEADER + 8..HEADER + 12].copy_from_slice(&value.to_ne_bytes());
        self.bytes[HEADER + 12..HEADER + 16].copy_from_slice(&libc::IFF_UP.to_ne_bytes());
    }

    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.bytes.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn string(&mut self, kind: u16, value: &str) {
        self.attribute(kind, &[value.as_bytes(), &[0]].concat());
    }

    pub(crate) fn nested(&mut self, kind: u16, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message { bytes: Vec::new() };
        fill(&mut inner);
        self.attribute(kind | NESTED, &inner.bytes);
    }

    /// Sends it and returns what follows the answer's header. `call` says in the error what was tried.
    pub(crate) fn send(self, call: &str) -> Result<Vec<u8>, PortError> {
        let socket = self.request(call)?;
        let mut reply = vec![0; 64 * 1024];
        let len = receive_one(&socket, &mut reply, call)?;
        let incomplete = || PortError::Os { call: call.into(), errno: libc::EPROTO };
        let (kind, body) = messages(&reply[..len]).next().ok_or_else(incomplete)?;
        match errno_of(body) {
            errno if i32::from(kind) == libc::NLMSG_ERROR && errno != 0 => {
                Err(PortError::Os { call: call.into(), errno })
            }
            _ => Ok(body.to_vec()),
        }
    }

    /// Sends it; the answer comes through the socket.
    fn request(mut self, call: &str) -> Result<OwnedFd, PortError> {
        let len = (self.bytes.len() as u32).to_ne_bytes();
        self.bytes[..4].copy_from_slice(&len);
        let socket = open_socket(0, 0)?;
        // SAFETY: the buffer is initialised, of the length given, and outlives the call.
        let sent = unsafe { libc::send(socket.as_raw_fd(), self.bytes.as_ptr().cast(), self.bytes.len(), 0) };
        if sent < 0 {
            return Err(PortError::last_os(call));
        }
        Ok(socket)
    }
}

fn receive_one(socket: &OwnedFd, buffer: &mut [u8], call: &str) -> Result<usize, PortError> {
    loop {
        match receive(socket, buffer) {
            Err(libc::EINTR) => {}
            Err(errno) => return Err(PortError::Os { call: call.into(), errno }),
            Ok(len) => return Ok(len),
        }
    }
}

fn open_socket(flags: i32, groups: u32) -> Result<OwnedFd, PortError> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags;
    // SAFETY: the call touches no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_ROUTE) };
    let socket = owned(fd, "open a netlink socket")?;
    // SAFETY: zero bytes are a valid sockaddr_nl.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups;
    let len = size_of_val(&address) as u32;
    // SAFETY: the address is initialised, of the length given, and outlives the call.
    if unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) } != 0 {
        return Err(PortError::last_os("bind a netlink socket"));
    }
    Ok(socket)
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: the buffer has the length given and outlives the call.
    let len = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    usize::try_from(len).map_err(|_| last_errno())
}

/// The name of an interface in the kernel's form. `BadOption` if it is not a valid name.
pub(crate) fn check_name(name: &str) -> Result<CString, PortError> {
    let fits = !name.is_empty()
        && name.len() < libc::IFNAMSIZ
        && !name.contains(|c: char| "/:%".contains(c) || c.is_ascii_whitespace());
    let text = CString::new(name).ok().filter(|_| fits && name != "." && name != "..");
    text.ok_or_else(|| PortError::BadOption {
        option: "name".into(),
        value: name.into(),
        why: "no interface can have this name (1 to 15 bytes without slash, space, colon or percent)".into(),
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_index() {
        let lo = link_by_name("lo").unwrap();
        assert_eq!((lo.name.as_str(), lo.mac), ("lo", [0; 6]));
        assert_eq!(link_by_index(lo.ifindex).unwrap().name, "lo");
        let missing = link_by_name("kports-none").unwrap_err();
        assert_eq!(missing, PortError::NoSuchInterface { name: "kports-none".into() });
        assert_eq!(link_by_index(u32::MAX >> 1).unwrap_err().errno(), Some(libc::ENODEV));
    }

    #[test]
    fn names_that_no_interface_can_have_are_refused() {
        for name in ["", "a-name-too-long-", "a/b", "a b", "a\tb", "lo:1", "tap%d", "..", "nul\0"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn cut_off_events_are_ignored() {
        let mut message = Message::link(libc::RTM_NEWLINK, 0, 7);
        message.string(IFLA_IFNAME, "eth7");
        let len = message.bytes.len();
        message.bytes[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        for end in 0..len {
            let mut events = Vec::new();
            parse_events(&message.bytes[..end], &mut events);
            assert!(events.is_empty());
        }
        let mut events = Vec::new();
        parse_events(&message.bytes, &mut events);
        let [LinkEvent::Changed(link)] = &events[..] else { panic!("{events:?}") };
        assert_eq!((link.ifindex, link.name.as_str()), (7, "eth7"));
    }
}
