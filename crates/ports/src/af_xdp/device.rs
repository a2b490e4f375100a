//! The network device behind an AF_XDP port or a tap, asked and changed by ioctl: state, MTU, address,
//! channels, offloads.
//!
//! The control socket is created in the network namespace of the thread that opens the port, and stays in
//! that namespace whichever thread uses it. The device is identified by its index, so that it can be renamed;
//! its name is looked up for each request.
//!
//! Source: netdevice(7), linux/ethtool.h.

use super::sys;
use crate::PortError;
use crate::netlink::check_name;
use crate::options;
use crate::wait::last_errno;
use packet::LinkState;
use std::os::fd::{AsRawFd, OwnedFd};

const ETHTOOL_GSET: u32 = 0x1;
const ETHTOOL_GDRVINFO: u32 = 0x3;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_SFLAGS: u32 = 0x26;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_SGRO: u32 = 0x2c;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETH_FLAG_LRO: u32 = 1 << 15;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// A device and the socket to ask about it.
pub(crate) struct Device {
    control: OwnedFd,
    pub(crate) ifindex: u32,
    /// By which it was found.
    name: String,
}

/// The present state of a device.
pub(crate) struct DeviceState {
    pub(crate) name: String,
    pub(crate) admin_up: bool,
    pub(crate) link: LinkState,
    pub(crate) mac: [u8; 6],
    pub(crate) mtu: u32,
}

/// `struct ethtool_channels`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[repr(C)]
pub(crate) struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

impl Channels {
    /// Receive queues in use.
    pub(crate) fn rx_queues(&self) -> u32 {
        (self.rx + self.combined).max(1)
    }

    /// The same with `count` receive queues, `None` where the device has no means to that.
    pub(crate) fn with_rx_queues(&self, count: u32) -> Option<Channels> {
        if (1..=self.max_combined).contains(&count) && self.rx == 0 {
            return Some(Channels { combined: count, ..*self });
        }
        if (1..=self.max_rx).contains(&count) && self.combined == 0 {
            return Some(Channels { rx: count, ..*self });
        }
        None
    }
}

/// `struct ethtool_value`.
#[repr(C)]
struct EthtoolValue {
    cmd: u32,
    data: u32,
}

/// Offloads that were on and that we turned off; [`Device::restore_offloads`] turns them on again.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct OffloadsOff {
    gro: bool,
    flags: u32,
}

impl Device {
    /// Finds a device by name in the network namespace of the calling thread; the loopback device is refused.
    pub(crate) fn find(name: &str) -> Result<Device, PortError> {
        let control =
            sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0, "make a socket for interface requests")?;
        let missing = || PortError::NoSuchInterface { name: name.into() };
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        // The kernel would ignore what follows a colon, and open another interface.
        check_name(name)?;
        let mut request = empty_request();
        for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
            *to = from as libc::c_char;
        }
        let mut device = Device { control, ifindex: 0, name: name.into() };
        device.ioctl(libc::SIOCGIFINDEX, &mut request).map_err(|_| missing())?;
        // SAFETY: SIOCGIFINDEX fills this member.
        device.ifindex = unsafe { request.ifr_ifru.ifru_ifindex } as u32;
        device.ioctl(libc::SIOCGIFFLAGS, &mut request).map_err(|_| missing())?;
        // SAFETY: SIOCGIFFLAGS fills this member.
        let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
        if flags & libc::IFF_LOOPBACK != 0 {
            return Err(PortError::Loopback { name: name.into() });
        }
        Ok(device)
    }

    fn ioctl(&self, what: libc::c_ulong, request: &mut libc::ifreq) -> Result<(), i32> {
        // SAFETY: `request` is initialised and outlives the call; pointers in it are the caller's care.
        match unsafe { libc::ioctl(self.control.as_raw_fd(), what as _, &raw mut *request) } {
            0 => Ok(()),
            _ => Err(last_errno()),
        }
    }

    /// A request with the device's present name. ENODEV if it is gone.
    fn request(&self) -> Result<libc::ifreq, i32> {
        let mut request = empty_request();
        request.ifr_ifru.ifru_ifindex = self.ifindex as i32;
        self.ioctl(libc::SIOCGIFNAME, &mut request)?;
        Ok(request)
    }

    /// Its state. The error is an errno; ENODEV when it is gone. None of these requests waits for the
    /// kernel's lock of all devices (rtnl), which others hold for long when devices go.
    pub(crate) fn state(&self) -> Result<DeviceState, i32> {
        let mut request = self.request()?;
        let name = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| char::from(*c as u8)).collect();
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS fills this member.
        let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
        self.ioctl(libc::SIOCGIFMTU, &mut request)?;
        // SAFETY: SIOCGIFMTU fills this member.
        let mtu = unsafe { request.ifr_ifru.ifru_mtu } as u32;
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: SIOCGIFHWADDR fills this member.
        let address = unsafe { request.ifr_ifru.ifru_hwaddr };
        let up = flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0;
        Ok(DeviceState {
            name,
            admin_up: flags & libc::IFF_UP != 0,
            link: if up { LinkState::Up } else { LinkState::Down },
            mac: std::array::from_fn(|i| address.sa_data[i] as u8),
            mtu,
        })
    }

    /// The entry of a port's status that tells its present name, if that is another than it was found by.
    pub(crate) fn renamed_to(&self, state: &DeviceState) -> Option<(String, String)> {
        (state.name != self.name).then(|| (options::RENAMED_TO.name.into(), state.name.clone()))
    }

    /// Sets it up or down.
    pub(crate) fn set_admin_up(&self, up: bool) -> Result<(), i32> {
        let mut request = self.request()?;
        self.ioctl(libc::SIOCGIFFLAGS, &mut request)?;
        // SAFETY: SIOCGIFFLAGS fills this member.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let bit = libc::IFF_UP as libc::c_short;
        request.ifr_ifru.ifru_flags = if up { flags | bit } else { flags & !bit };
        self.ioctl(libc::SIOCSIFFLAGS, &mut request)
    }

    /// Sets the MTU in bytes.
    pub(crate) fn set_mtu(&self, mtu: u32) -> Result<(), i32> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_mtu = mtu as i32;
        self.ioctl(libc::SIOCSIFMTU, &mut request)
    }

    /// Sets the Ethernet address.
    pub(crate) fn set_mac(&self, mac: [u8; 6]) -> Result<(), i32> {
        let mut request = self.request()?;
        self.ioctl(libc::SIOCGIFHWADDR, &mut request)?;
        // SAFETY: SIOCGIFHWADDR fills this member.
        let mut address = unsafe { request.ifr_ifru.ifru_hwaddr };
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        self.ioctl(libc::SIOCSIFHWADDR, &mut request)
    }

    /// One ethtool request. `T` starts with the command and is what the command reads and fills.
    fn ethtool<T>(&self, argument: &mut T) -> Result<(), i32> {
        let mut request = self.request()?;
        request.ifr_ifru.ifru_data = (&raw mut *argument).cast();
        self.ioctl(libc::SIOCETHTOOL, &mut request)
    }

    /// Receive and transmit channels; one of each where the device cannot tell.
    pub(crate) fn channels(&self) -> Channels {
        let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Default::default() };
        match self.ethtool(&mut channels) {
            Ok(()) => channels,
            Err(_) => Channels { combined: 1, max_combined: 1, ..Default::default() },
        }
    }

    /// Sets the channels as [`Channels::with_rx_queues`] has made them.
    pub(crate) fn set_channels(&self, channels: Channels) -> Result<(), i32> {
        self.ethtool(&mut Channels { cmd: ETHTOOL_SCHANNELS, ..channels })
    }

    /// Whether it is one end of a veth pair that passes TCP segments of up to 64 KB unsegmented.
    pub(crate) fn is_veth_with_segments(&self) -> bool {
        let is_veth = self.driver_info().is_some_and(|[driver, ..]| driver == "veth");
        is_veth && self.value(ETHTOOL_GTSO) != 0 && self.value(ETHTOOL_GGSO) != 0
    }

    fn value(&self, cmd: u32) -> u32 {
        let mut value = EthtoolValue { cmd, data: 0 };
        match self.ethtool(&mut value) {
            Ok(()) => value.data,
            Err(_) => 0,
        }
    }

    fn set_value(&self, cmd: u32, data: u32) -> Result<(), i32> {
        self.ethtool(&mut EthtoolValue { cmd, data })
    }

    /// Turns off what hides or merges packets before the program sees them: stripping of VLAN tags into the
    /// descriptor, LRO, and (`gro`) GRO, which matters if the program runs after it. What the device refuses
    /// to change stays as it is.
    pub(crate) fn turn_off_offloads(&self, gro: bool) -> OffloadsOff {
        let mut off = OffloadsOff::default();
        if gro && self.value(ETHTOOL_GGRO) != 0 {
            off.gro = self.set_value(ETHTOOL_SGRO, 0).is_ok();
        }
        off.flags = self.turn_off_flags(ETH_FLAG_LRO | ETH_FLAG_RXVLAN);
        off
    }

    /// The same for LRO alone: what it merges is not what was sent, and cannot be sent on as it was.
    pub(crate) fn turn_off_lro(&self) -> OffloadsOff {
        OffloadsOff { gro: false, flags: self.turn_off_flags(ETH_FLAG_LRO) }
    }

    /// Those of the flags that were on and are off now.
    fn turn_off_flags(&self, unwanted: u32) -> u32 {
        let flags = self.value(ETHTOOL_GFLAGS);
        let on = flags & unwanted;
        if on != 0 && self.set_value(ETHTOOL_SFLAGS, flags & !on).is_ok() { on } else { 0 }
    }

    /// Turns on again what [`Self::turn_off_offloads`] turned off. Best effort: the device may be gone.
    pub(crate) fn restore_offloads(&self, off: OffloadsOff) {
        if off.gro {
            let _ = self.set_value(ETHTOOL_SGRO, 1);
        }
        if off.flags != 0 {
            let _ = self.set_value(ETHTOOL_SFLAGS, self.value(ETHTOOL_GFLAGS) | off.flags);
        }
    }

    /// Link speed in bits per second, 0 where unknown.
    pub(crate) fn speed_bps(&self) -> u64 {
        const SPEED: usize = 6; // in units of 16 bits, in struct ethtool_cmd
        const SPEED_HIGH: usize = 14;
        let mut command = [0u16; 22];
        command[..2].copy_from_slice(&split(ETHTOOL_GSET));
        if self.ethtool(&mut command).is_err() {
            return 0;
        }
        let megabits = u64::from(command[SPEED_HIGH]) << 16 | u64::from(command[SPEED]);
        if megabits == u64::from(u32::MAX) { 0 } else { megabits * 1_000_000 }
    }

    /// The driver's name, its version, and the firmware's, for a port's status. Waits like
    /// [`Self::driver_info`].
    pub(crate) fn driver_details(&self) -> Vec<(String, String)> {
        let keys = ["driver_name", "driver_version", "firmware_version"].map(String::from);
        keys.into_iter().zip(self.driver_info().into_iter().flatten()).collect()
    }

    /// The same, with the device's address on its bus, empty if there is no bus. Waits for the kernel's lock
    /// on all devices.
    fn driver_info(&self) -> Option<[String; 4]> {
        let mut info = [0u8; 196];
        info[..4].copy_from_slice(&ETHTOOL_GDRVINFO.to_ne_bytes());
        self.ethtool(&mut info).ok()?;
        // `struct ethtool_drvinfo`: four texts of 32 bytes behind the command.
        Some([4, 36, 68, 100].map(|at| {
            let bytes = info[at..at + 32].split(|b| *b == 0).next().unwrap_or_default();
            String::from_utf8_lossy(bytes).into_owned()
        }))
    }

    /// Its NUMA node; `None` if it is no card, or the machine does not tell. Looked up by its bus address,
    /// because names are local to a network namespace and sysfs may show another namespace's. Waits like
    /// [`Self::driver_info`].
    pub(crate) fn numa_node(&self) -> Option<usize> {
        let [_, _, _, address] = self.driver_info()?;
        node_of_card(std::path::Path::new("/sys/bus/pci/devices"), &address)
    }
}

fn node_of_card(devices: &std::path::Path, address: &str) -> Option<usize> {
    let is_address = |c: char| c.is_ascii_hexdigit() || ":.".contains(c);
    if address.is_empty() || address.starts_with('.') || !address.chars().all(is_address) {
        return None;
    }
    // -1 if the firmware has not told the kernel.
    std::fs::read_to_string(devices.join(address).join("numa_node")).ok()?.trim().parse().ok()
}

fn split(value: u32) -> [u16; 2] {
    let b = value.to_ne_bytes();
    [u16::from_ne_bytes([b[0], b[1]]), u16::from_ne_bytes([b[2], b[3]])]
}

fn empty_request() -> libc::ifreq {
    // SAFETY: `ifreq` is plain bytes, integers and a pointer, for which zero is valid.
    unsafe { std::mem::zeroed() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_does_not_open_the_interface_before_its_colon() {
        let refused = |name: &str| Device::find(name).err().expect("a refusal").to_string();
        assert!(refused("lo:1").contains("without slash, space, colon"), "{}", refused("lo:1"));
        assert!(refused("lo").contains("loopback"));
    }

    #[test]
    fn a_cards_node_is_that_of_its_place_on_the_bus() {
        let devices = tempfile::tempdir().unwrap();
        for (address, node) in [("0000:3b:00.0", "1\n"), ("0000:00:03.0", "-1\n")] {
            std::fs::create_dir(devices.path().join(address)).unwrap();
            std::fs::write(devices.path().join(address).join("numa_node"), node).unwrap();
        }
        assert_eq!(node_of_card(devices.path(), "0000:3b:00.0"), Some(1));
        for other in ["0000:00:03.0", "0000:00:04.0", "", "..", "../0000:3b:00.0", "N/A"] {
            assert_eq!(node_of_card(devices.path(), other), None, "{other}");
        }
    }

    #[test]
    fn the_kind_of_channels_that_a_device_has_is_the_one_that_changes() {
        let veth = Channels { max_rx: 8, max_tx: 8, rx: 1, tx: 1, ..Default::default() };
        assert_eq!(veth.with_rx_queues(4).map(|c| (c.rx, c.combined)), Some((4, 0)));
        assert_eq!(veth.with_rx_queues(9), None);
        let nic = Channels { max_combined: 16, combined: 16, ..Default::default() };
        assert_eq!(nic.rx_queues(), 16);
        assert_eq!(nic.with_rx_queues(2).map(|c| (c.rx, c.combined)), Some((0, 2)));
    }
}
