//! The XDP program, assembled by hand: six slots that hand each packet to the socket of its receive queue, or let
//! it pass to the kernel where there is none.
//!
//! It is attached by a BPF link, which the kernel takes away when the last descriptor is closed: also when the
//! process is killed. A program that somebody else attached is never replaced; one of ours that was
//! attached without a link (and so outlived its process) is.
//!
//! Source: linux/bpf.h, bpf(2), Documentation/bpf/map_xskmap.rst.

use super::rtnetlink::{self, XdpAttached};
use super::sys::{BpfAttr, BpfCommand, bpf, bpf_fd};
use crate::PortError;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

/// The name by which a later start knows our programs.
pub(super) const PROGRAM_NAME: &str = "crosspoint_xsk";

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const XDP_FLAGS_SKB_MODE: u32 = 1 << 1;
const XDP_FLAGS_DRV_MODE: u32 = 1 << 2;

/// How long a killed predecessor's program may take to go away before we call the device busy.
const PREDECESSOR_GRACE: Duration = Duration::from_millis(1500);

/// Where in the kernel the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttachMode {
    /// In the driver, before the kernel makes its own packet of it.
    Native,
    /// In the network stack, for any device.
    Generic,
}

impl AttachMode {
    pub(super) fn flag(self) -> u32 {
        match self {
            AttachMode::Native => XDP_FLAGS_DRV_MODE,
            AttachMode::Generic => XDP_FLAGS_SKB_MODE,
        }
    }
}

/// The map from receive queue to socket.
pub(super) struct XskMap(OwnedFd);

impl XskMap {
    /// Lets packets of `queue_id` go to the socket.
    pub(super) fn insert(&self, queue_id: u32, socket: RawFd) -> Result<(), PortError> {
        let value = socket as u32;
        let attr = BpfAttr::new().u32(0, self.0.as_raw_fd() as u32);
        let attr = attr.u64(8, (&raw const queue_id) as u64).u64(16, (&raw const value) as u64);
        // SAFETY: key and value are 4 bytes each, as the map was made for, and live on this stack frame.
        let result = unsafe { bpf(BpfCommand::MapUpdateElem, &attr) };
        result.map(drop).map_err(|errno| os("put a socket into the XSK map", errno))
    }

    /// Lets packets of `queue_id` pass to the kernel again. Without effect where they do already.
    pub(super) fn remove(&self, queue_id: u32) {
        let attr = BpfAttr::new().u32(0, self.0.as_raw_fd() as u32).u64(8, (&raw const queue_id) as u64);
        // The one error, ENOENT, means that it is gone: the kernel takes a closed socket out by itself.
        // SAFETY: the key is 4 bytes, as the map was made for, and lives on this stack frame.
        let _ = unsafe { bpf(BpfCommand::MapDeleteElem, &attr) };
    }
}

/// A loaded program with its map, not attached to anything yet.
pub(super) struct Program {
    fd: OwnedFd,
    /// Whether it takes frames in several buffers.
    pub(super) multi_buffer: bool,
}

/// The attachment of a program to a device; dropping it detaches.
pub(super) struct Link {
    _fd: OwnedFd,
}

fn os(call: &str, errno: i32) -> PortError {
    PortError::Os { call: call.into(), errno }
}

const fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (off as u16 as u64) << 16
        | (imm as u32 as u64) << 32
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)`: the helper returns its third
/// argument where the map has no socket for the queue.
fn assemble(map: RawFd) -> [u64; 6] {
    const RX_QUEUE_INDEX: i16 = 16; // in struct xdp_md
    const PSEUDO_MAP_FD: u8 = 1;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r1 + 16)
        instruction(0x18, 1, PSEUDO_MAP_FD, 0, map), // r1 = map, in two slots
        0,
        instruction(0xb7, 3, 0, 0, XDP_PASS),     // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, REDIRECT_MAP), // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),            // return r0
    ]
}

impl Program {
    /// Makes the map for `queues` receive queues and loads the program. Multi-buffer where the kernel knows it.
    pub(super) fn load(queues: u32) -> Result<(Program, XskMap), PortError> {
        Program::load_as(PROGRAM_NAME, queues)
    }

    fn load_as(name: &str, queues: u32) -> Result<(Program, XskMap), PortError> {
        let attr = BpfAttr::new().u32(0, BPF_MAP_TYPE_XSKMAP).u32(4, 4).u32(8, 4).u32(12, queues);
        // SAFETY: the attributes hold no pointer.
        let map = unsafe { bpf_fd(BpfCommand::MapCreate, &attr.name(28, "crosspoint_xsks")) };
        let map = map.map_err(|errno| os("create an XSK map (bpf)", errno))?;
        let load = |flags| {
            let instructions = assemble(map.as_raw_fd());
            let attr = BpfAttr::new().u32(0, BPF_PROG_TYPE_XDP).u32(4, instructions.len() as u32);
            let attr = attr.u64(8, instructions.as_ptr() as u64).u64(16, c"Apache-2.0".as_ptr() as u64);
            let attr = attr.u32(44, flags).name(48, name).u32(68, BPF_XDP);
            // SAFETY: instructions (of the count given) and licence (with its terminating zero) outlive the call.
            unsafe { bpf_fd(BpfCommand::ProgLoad, &attr) }
        };
        let (fd, multi_buffer) = match load(BPF_F_XDP_HAS_FRAGS) {
            Ok(fd) => (fd, true),
            Err(libc::EINVAL) => (load(0).map_err(|errno| os("load the XDP program (bpf)", errno))?, false),
            Err(errno) => return Err(os("load the XDP program (bpf)", errno)),
        };
        Ok((Program { fd, multi_buffer }, XskMap(map)))
    }

    /// Attaches to a device by a link. Where a program is attached already: waits a moment for that of a
    /// killed predecessor to go, replaces one of ours that has no link, and else says whose it is.
    pub(super) fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<Link, PortError> {
        let attr = BpfAttr::new().u32(0, self.fd.as_raw_fd() as u32).u32(4, ifindex);
        let attr = attr.u32(8, BPF_XDP).u32(12, mode.flag());
        let deadline = Instant::now() + PREDECESSOR_GRACE;
        loop {
            // SAFETY: the attributes hold no pointer.
            let errno = match unsafe { bpf_fd(BpfCommand::LinkCreate, &attr) } {
                Ok(fd) => return Ok(Link { _fd: fd }),
                Err(errno) => errno,
            };
            let call = format!("attach the XDP program in {mode:?} mode").to_lowercase();
            let attached = rtnetlink::xdp_attached(ifindex)?;
            let (libc::EBUSY | libc::EEXIST, Some(attached)) = (errno, attached) else {
                return Err(PortError::Os { call, errno });
            };
            let name = program_name(attached.program_id);
            if name.as_deref() != Some(PROGRAM_NAME) {
                let name = name.unwrap_or_else(|| "unknown".into());
                return Err(PortError::Unsupported(format!(
                    "an XDP program that is not ours is attached (id {}, name \"{name}\"): detach it first \
                     (ip link set dev … xdp off)",
                    attached.program_id
                )));
            }
            if detach_ours(ifindex, &attached).is_ok() {
                continue;
            }
            if Instant::now() > deadline {
                return Err(PortError::Unsupported(format!(
                    "another running switch has its XDP program (id {}) attached",
                    attached.program_id
                )));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Detaches a program that was attached without a link. Fails where it has one: then its owner lives.
fn detach_ours(ifindex: u32, attached: &XdpAttached) -> Result<(), PortError> {
    let program =
        program_by_id(attached.program_id).ok_or_else(|| os("open an XDP program", libc::ENOENT))?;
    rtnetlink::xdp_replace(ifindex, None, attached.mode_flag, Some(&program))
}

fn program_by_id(id: u32) -> Option<OwnedFd> {
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf_fd(BpfCommand::ProgGetFdById, &BpfAttr::new().u32(0, id)) }.ok()
}

/// The name under which a program was loaded. `None` where it is gone.
pub(super) fn program_name(id: u32) -> Option<String> {
    const NAME: usize = 64; // in struct bpf_prog_info
    let program = program_by_id(id)?;
    let mut info = [0u64; 16];
    let attr = BpfAttr::new().u32(0, program.as_raw_fd() as u32).u32(4, 128).u64(8, info.as_mut_ptr() as u64);
    // SAFETY: `info` has room for the 128 bytes announced and outlives the call.
    unsafe { bpf(BpfCommand::ObjGetInfoByFd, &attr) }.ok()?;
    let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).skip(NAME).take(16).collect();
    let name = bytes.split(|b| *b == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_these_six_slots() {
        let bytes: Vec<[u8; 8]> = assemble(0x1234).iter().map(|slot| slot.to_le_bytes()).collect();
        assert_eq!(
            bytes,
            [
                [0x61, 0x12, 0x10, 0, 0, 0, 0, 0],
                [0x18, 0x11, 0, 0, 0x34, 0x12, 0, 0],
                [0; 8],
                [0xb7, 0x03, 0, 0, 2, 0, 0, 0],
                [0x85, 0, 0, 0, 51, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    /// A veth in a network namespace that this thread alone has, and that goes with the thread.
    fn veth() -> u32 {
        // SAFETY: the call touches no memory of ours.
        let unshared = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(unshared, 0, "this test makes a network namespace: run it as root");
        let made = std::process::Command::new("ip").args(["link", "add", "p0", "type", "veth"]).status();
        assert!(made.unwrap().success());
        super::super::device::Device::find("p0").unwrap().ifindex
    }

    #[test]
    fn a_program_of_ours_without_a_link_is_replaced_and_the_link_detaches_on_drop() {
        let ifindex = veth();
        let (stale, _map) = Program::load(1).unwrap();
        rtnetlink::xdp_replace(ifindex, Some(&stale.fd), AttachMode::Native.flag(), None).unwrap();
        let stale_id = rtnetlink::xdp_attached(ifindex).unwrap().unwrap().program_id;
        assert_eq!(program_name(stale_id).as_deref(), Some(PROGRAM_NAME));
        let (program, _map) = Program::load(1).unwrap();
        let link = program.attach(ifindex, AttachMode::Native).unwrap();
        let attached = rtnetlink::xdp_attached(ifindex).unwrap().unwrap();
        assert_ne!(attached.program_id, stale_id);
        assert_eq!(attached.mode_flag, AttachMode::Native.flag());
        drop(link);
        assert_eq!(rtnetlink::xdp_attached(ifindex).unwrap(), None);
    }

    #[test]
    fn a_stale_program_in_the_other_mode_is_replaced_too() {
        let ifindex = veth();
        let (stale, _map) = Program::load(1).unwrap();
        rtnetlink::xdp_replace(ifindex, Some(&stale.fd), AttachMode::Generic.flag(), None).unwrap();
        let (program, _map) = Program::load(1).unwrap();
        let _link = program.attach(ifindex, AttachMode::Native).unwrap();
        let attached = rtnetlink::xdp_attached(ifindex).unwrap().unwrap();
        assert_eq!(attached.mode_flag, AttachMode::Native.flag());
    }

    #[test]
    fn somebody_elses_program_stays_and_the_error_names_it() {
        let ifindex = veth();
        let (other, _map) = Program::load_as("their_program", 1).unwrap();
        rtnetlink::xdp_replace(ifindex, Some(&other.fd), AttachMode::Native.flag(), None).unwrap();
        let before = rtnetlink::xdp_attached(ifindex).unwrap();
        let (program, _map) = Program::load(1).unwrap();
        let Err(error) = program.attach(ifindex, AttachMode::Native) else { panic!("attached") };
        assert!(error.to_string().contains("their_program"), "{error}");
        assert_eq!(rtnetlink::xdp_attached(ifindex).unwrap(), before);
    }

    #[test]
    fn a_running_switchs_program_stays() {
        let ifindex = veth();
        let (running, _map) = Program::load(1).unwrap();
        let _link = running.attach(ifindex, AttachMode::Native).unwrap();
        let (program, _map) = Program::load(1).unwrap();
        let Err(error) = program.attach(ifindex, AttachMode::Native) else { panic!("attached") };
        assert!(error.to_string().contains("another running switch"), "{error}");
    }
}
