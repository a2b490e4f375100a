//! The XDP program, assembled by hand: six slots that pass each packet to the socket of its receive queue, or
//! to the kernel if there is no socket.
//!
//! Before that, if kernel and driver can report it, a VLAN tag that is stored outside the packet (the sender
//! left it to its device, as the kernel's VLAN devices do on veth, or the hardware removed it) is put back
//! in. Otherwise the packet would arrive untagged, and cross from one VLAN into another.
//!
//! It is attached by a BPF link, which the kernel removes when the last descriptor is closed, even if the
//! process is killed. A program that someone else attached is never replaced; one of ours that was attached
//! without a link (and so outlived its process) is.
//!
//! Source: linux/bpf.h, bpf(2), Documentation/bpf/map_xskmap.rst.

use super::btf;
use super::rtnetlink::{self, XDP_FLAGS_DRV_MODE, XDP_FLAGS_SKB_MODE, XdpAttached};
use super::sys::{BpfAttr, BpfCommand, bpf, bpf_fd};
use crate::PortError;
use crate::spec::Blocker;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// The name by which a later process recognises our programs.
pub(super) const PROGRAM_NAME: &str = "crosspoint_xsk";

const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_F_XDP_DEV_BOUND_ONLY: u32 = 1 << 6;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AttachMode {
    /// In the driver, before the kernel builds its own packet from it.
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
    /// An empty map for `queues` receive queues.
    pub(super) fn new(queues: u32) -> Result<XskMap, PortError> {
        let attr = BpfAttr::new().u32(0, BPF_MAP_TYPE_XSKMAP).u32(4, 4).u32(8, 4).u32(12, queues);
        // SAFETY: the attributes hold no pointer.
        let map = unsafe { bpf_fd(BpfCommand::MapCreate, &attr.name(28, "crosspoint_xsks")) };
        map.map(XskMap).map_err(|errno| os("create an XSK map (bpf)", errno))
    }

    /// Lets packets of `queue_id` go to the socket.
    pub(super) fn insert(&self, queue_id: u32, socket: RawFd) -> Result<(), PortError> {
        let value = socket as u32;
        let attr = BpfAttr::new().u32(0, self.0.as_raw_fd() as u32);
        let attr = attr.u64(8, (&raw const queue_id) as u64).u64(16, (&raw const value) as u64);
        // SAFETY: key and value are 4 bytes each, as the map was made for, and live on this stack frame.
        let result = unsafe { bpf(BpfCommand::MapUpdateElem, &attr) };
        result.map(drop).map_err(|errno| os("put a socket into the XSK map", errno))
    }

    /// Lets packets of `queue_id` pass to the kernel again. No effect if they already do.
    pub(super) fn remove(&self, queue_id: u32) {
        let attr = BpfAttr::new().u32(0, self.0.as_raw_fd() as u32).u64(8, (&raw const queue_id) as u64);
        // The one error, ENOENT, means that it is gone: the kernel takes a closed socket out by itself.
        // SAFETY: the key is 4 bytes, as the map was made for, and lives on this stack frame.
        let _ = unsafe { bpf(BpfCommand::MapDeleteElem, &attr) };
    }
}

/// A loaded program, not attached to anything yet.
pub(super) struct Program {
    fd: OwnedFd,
    /// Whether it accepts frames in several buffers.
    pub(super) multi_buffer: bool,
    /// Whether it puts back VLAN tags that are stored outside the packet.
    pub(super) restores_tags: bool,
}

/// The attachment of a program to a device; dropping it detaches.
pub(super) struct Link {
    _fd: OwnedFd,
}

pub(super) fn os(call: &str, errno: i32) -> PortError {
    PortError::Os { call: call.into(), errno }
}

const fn instruction(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> u64 {
    code as u64
        | (dst as u64) << 8
        | (src as u64) << 12
        | (off as u16 as u64) << 16
        | (imm as u32 as u64) << 32
}

/// `return bpf_redirect_map(&map, ctx->rx_queue_index, XDP_PASS)` with the context in r6: the helper returns
/// its third argument where the map has no socket for the queue.
fn assemble_redirect(map: RawFd) -> [u64; 6] {
    const RX_QUEUE_INDEX: i16 = 16; // in struct xdp_md
    const PSEUDO_MAP_FD: u8 = 1;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        instruction(0x61, 2, 6, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r6 + 16)
        instruction(0x18, 1, PSEUDO_MAP_FD, 0, map), // r1 = map, in two slots
        0,
        instruction(0xb7, 3, 0, 0, XDP_PASS),     // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, REDIRECT_MAP), // r0 = bpf_redirect_map(r1, r2, r3)
        instruction(0x95, 0, 0, 0, 0),            // return r0
    ]
}

/// Asks for a tag stored outside the packet; if there is one, makes room for four bytes in front, moves the
/// addresses there, and writes the tag after them. Continues with the following code. If there is no room,
/// the packet is dropped rather than mistaken for an untagged one.
fn assemble_tag(function: u32) -> [u64; 30] {
    const PSEUDO_KFUNC: u8 = 2;
    const ADJUST_HEAD: i32 = 44;
    const XDP_DROP: i32 = 1;
    [
        instruction(0x7a, 10, 0, -8, 0),                        // *(u64 *)(r10 - 8) = 0
        instruction(0xbf, 1, 6, 0, 0),                          // r1 = context
        instruction(0xbf, 2, 10, 0, 0),                         // r2 = r10 - 2: room for the tag's ethertype
        instruction(0x07, 2, 0, 0, -2),                         //
        instruction(0xbf, 3, 10, 0, 0), // r3 = r10 - 4: room for its VLAN and priority
        instruction(0x07, 3, 0, 0, -4), //
        instruction(0x85, 0, PSEUDO_KFUNC, 0, function as i32), // r0 = bpf_xdp_metadata_rx_vlan_tag(r1, r2, r3)
        instruction(0x55, 0, 0, 22, 0),                         // there is none: skip the rest
        instruction(0xbf, 1, 6, 0, 0),                          // r1 = context
        instruction(0xb7, 2, 0, 0, -4),                         // r2 = -4
        instruction(0x85, 0, 0, 0, ADJUST_HEAD),                // r0 = bpf_xdp_adjust_head(r1, r2)
        instruction(0x55, 0, 0, 5, 0),                          // there is no room: drop
        instruction(0x61, 2, 6, 0, 0),                          // r2 = data
        instruction(0x61, 3, 6, 4, 0),                          // r3 = data_end
        instruction(0xbf, 4, 2, 0, 0),                          // r4 = data + 16
        instruction(0x07, 4, 0, 0, 16),                         //
        instruction(0xbd, 4, 3, 2, 0),                          // r4 <= data_end: go on
        instruction(0xb7, 0, 0, 0, XDP_DROP),                   // r0 = XDP_DROP
        instruction(0x95, 0, 0, 0, 0),                          // return r0
        instruction(0x61, 5, 2, 4, 0),                          // the addresses move, four bytes at a time
        instruction(0x63, 2, 5, 0, 0),                          //
        instruction(0x61, 5, 2, 8, 0),                          //
        instruction(0x63, 2, 5, 4, 0),                          //
        instruction(0x61, 5, 2, 12, 0),                         //
        instruction(0x63, 2, 5, 8, 0),                          //
        instruction(0x69, 5, 10, -2, 0),                        // the ethertype is in network order
        instruction(0x6b, 2, 5, 12, 0),                         //
        instruction(0x69, 5, 10, -4, 0),                        // VLAN and priority are not
        instruction(0xdc, 5, 0, 0, 16),                         //
        instruction(0x6b, 2, 5, 14, 0),                         //
    ]
}

impl Program {
    /// Loads a program that steers by `map`, for a device and a mode, with all that the kernel knows: VLAN
    /// tags (native mode alone, and bound to the device), several buffers.
    pub(super) fn load(map: &XskMap, ifindex: u32, mode: AttachMode) -> Result<Program, PortError> {
        Program::load_as(PROGRAM_NAME, map, ifindex, mode)
    }

    fn load_as(name: &str, map: &XskMap, ifindex: u32, mode: AttachMode) -> Result<Program, PortError> {
        let redirect = assemble_redirect(map.0.as_raw_fd());
        let keep_context = instruction(0xbf, 6, 1, 0, 0); // r6 = r1
        let mut ways = Vec::new();
        if let (AttachMode::Native, Some(function)) = (mode, btf::vlan_tag_function()) {
            let with_tags = [&[keep_context][..], &assemble_tag(function), &redirect].concat();
            ways.push((with_tags, BPF_F_XDP_HAS_FRAGS | BPF_F_XDP_DEV_BOUND_ONLY, true));
        }
        let plain = [&[keep_context][..], &redirect].concat();
        ways.push((plain.clone(), BPF_F_XDP_HAS_FRAGS, false));
        ways.push((plain, 0, false));
        let mut last = libc::EINVAL;
        for (instructions, flags, restores_tags) in ways {
            let device = if restores_tags { ifindex } else { 0 };
            match load_instructions(name, &instructions, flags, device) {
                Ok(fd) => {
                    return Ok(Program { fd, multi_buffer: flags & BPF_F_XDP_HAS_FRAGS != 0, restores_tags });
                }
                Err(errno) => last = errno,
            }
        }
        Err(os("load the XDP program (bpf)", last))
    }

    /// Attaches to a device by a link. If a program is already attached: replaces one of ours that has no
    /// link, and otherwise reports whose it is. One of a switch counts as busy: that switch may have been
    /// killed, and its program be about to go.
    pub(super) fn attach(&self, ifindex: u32, mode: AttachMode) -> Result<Link, PortError> {
        let attr = BpfAttr::new().u32(0, self.fd.as_raw_fd() as u32).u32(4, ifindex);
        let attr = attr.u32(8, BPF_XDP).u32(12, mode.flag());
        // SAFETY: the attributes hold no pointer.
        let attach = || unsafe { bpf_fd(BpfCommand::LinkCreate, &attr) }.map(|fd| Link { _fd: fd });
        let call = || format!("attach the XDP program in {mode:?} mode").to_lowercase();
        let busy = |why| PortError::Busy { by: Blocker { ifindex, queue_id: None }, why };
        let errno = match attach() {
            Ok(link) => return Ok(link),
            Err(errno) => errno,
        };
        let attached = rtnetlink::xdp_attached(ifindex)?;
        let attached = match (errno, attached) {
            (libc::EBUSY | libc::EEXIST, Some(attached)) => attached,
            // It has just gone.
            (libc::EBUSY | libc::EEXIST, None) => return Err(busy(os(&call(), errno).to_string())),
            _ => return Err(PortError::Os { call: call(), errno }),
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
        detach_ours(ifindex, &attached).map_err(|_| ()).and_then(|()| attach().map_err(|_| ())).map_err(
            |()| {
                let id = attached.program_id;
                busy(format!("another running switch has its XDP program (id {id}) attached"))
            },
        )
    }
}

/// Whether a program of a switch, this one or another, is attached to a device.
pub(super) fn is_ours_attached(ifindex: u32) -> bool {
    let attached = rtnetlink::xdp_attached(ifindex).ok().flatten();
    attached.and_then(|attached| program_name(attached.program_id)).as_deref() == Some(PROGRAM_NAME)
}

fn load_instructions(name: &str, instructions: &[u64], flags: u32, ifindex: u32) -> Result<OwnedFd, i32> {
    // Kernel functions are open to programs whose licence the kernel holds compatible with its own. These few
    // instructions are ours to give under two licences.
    let licence = c"Dual MIT/GPL";
    let attr = BpfAttr::new().u32(0, BPF_PROG_TYPE_XDP).u32(4, instructions.len() as u32);
    let attr = attr.u64(8, instructions.as_ptr() as u64).u64(16, licence.as_ptr() as u64);
    let attr = attr.u32(44, flags).name(48, name).u32(64, ifindex).u32(68, BPF_XDP);
    // SAFETY: instructions (of the count given) and licence (with its terminating zero) outlive the call.
    unsafe { bpf_fd(BpfCommand::ProgLoad, &attr) }
}

/// Detaches a program that was attached without a link. Fails if it has one: then its owner is alive.
fn detach_ours(ifindex: u32, attached: &XdpAttached) -> Result<(), PortError> {
    let program =
        program_by_id(attached.program_id).ok_or_else(|| os("open an XDP program", libc::ENOENT))?;
    rtnetlink::xdp_replace(ifindex, None, attached.mode_flag, Some(&program))
}

fn program_by_id(id: u32) -> Option<OwnedFd> {
    // SAFETY: the attributes hold no pointer.
    unsafe { bpf_fd(BpfCommand::ProgGetFdById, &BpfAttr::new().u32(0, id)) }.ok()
}

/// The name under which a program was loaded. `None` if it is gone.
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
pub(super) mod tests {
    use super::*;
    use crate::af_xdp::busy::{GRACE, is_gone, while_busy};

    #[test]
    fn the_redirecting_part_is_these_six_slots() {
        let bytes: Vec<[u8; 8]> = assemble_redirect(0x1234).iter().map(|slot| slot.to_le_bytes()).collect();
        assert_eq!(
            bytes,
            [
                [0x61, 0x62, 0x10, 0, 0, 0, 0, 0],
                [0x18, 0x11, 0, 0, 0x34, 0x12, 0, 0],
                [0; 8],
                [0xb7, 0x03, 0, 0, 2, 0, 0, 0],
                [0x85, 0, 0, 0, 51, 0, 0, 0],
                [0x95, 0, 0, 0, 0, 0, 0, 0],
            ]
        );
    }

    /// A program for the device. In generic mode it can be attached, without a link, to any device.
    fn load(name: &str, ifindex: u32, mode: AttachMode) -> Program {
        Program::load_as(name, &XskMap::new(1).unwrap(), ifindex, mode).unwrap()
    }

    /// A veth in a network namespace that this thread alone has, and that goes with the thread.
    pub(crate) fn veth() -> u32 {
        // SAFETY: the call touches no memory of ours.
        let unshared = unsafe { libc::unshare(libc::CLONE_NEWNET) };
        assert_eq!(unshared, 0, "this test makes a network namespace: run it as root");
        let made = std::process::Command::new("ip").args(["link", "add", "p0", "type", "veth"]).status();
        assert!(made.unwrap().success());
        crate::af_xdp::device::Device::find("p0").unwrap().ifindex
    }

    #[test]
    fn a_program_of_ours_without_a_link_is_replaced_and_the_link_detaches_on_drop() {
        let ifindex = veth();
        let stale = load(PROGRAM_NAME, ifindex, AttachMode::Native);
        rtnetlink::xdp_replace(ifindex, Some(&stale.fd), AttachMode::Native.flag(), None).unwrap();
        let stale_id = rtnetlink::xdp_attached(ifindex).unwrap().unwrap().program_id;
        assert_eq!(program_name(stale_id).as_deref(), Some(PROGRAM_NAME));
        let program = load(PROGRAM_NAME, ifindex, AttachMode::Native);
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
        let stale = load(PROGRAM_NAME, ifindex, AttachMode::Generic);
        rtnetlink::xdp_replace(ifindex, Some(&stale.fd), AttachMode::Generic.flag(), None).unwrap();
        let program = load(PROGRAM_NAME, ifindex, AttachMode::Native);
        let _link = program.attach(ifindex, AttachMode::Native).unwrap();
        let attached = rtnetlink::xdp_attached(ifindex).unwrap().unwrap();
        assert_eq!(attached.mode_flag, AttachMode::Native.flag());
    }

    #[test]
    fn somebody_elses_program_stays_and_the_error_names_it() {
        let ifindex = veth();
        let other = load("their_program", ifindex, AttachMode::Native);
        rtnetlink::xdp_replace(ifindex, Some(&other.fd), AttachMode::Native.flag(), None).unwrap();
        let before = rtnetlink::xdp_attached(ifindex).unwrap();
        let program = load(PROGRAM_NAME, ifindex, AttachMode::Native);
        let Err(error) = program.attach(ifindex, AttachMode::Native) else { panic!("attached") };
        assert!(error.to_string().contains("their_program"), "{error}");
        assert_eq!(rtnetlink::xdp_attached(ifindex).unwrap(), before);
    }

    #[test]
    fn a_program_that_goes_meanwhile_is_in_nobodys_way() {
        let ifindex = veth();
        let net = std::fs::File::open("/proc/thread-self/ns/net").unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // SAFETY: the descriptor is open; the call touches no memory of ours.
                assert_eq!(unsafe { libc::setns(net.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
                let other = load(PROGRAM_NAME, ifindex, AttachMode::Generic);
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    drop(other.attach(ifindex, AttachMode::Generic));
                }
            });
            let program = load(PROGRAM_NAME, ifindex, AttachMode::Generic);
            let attach = |_| program.attach(ifindex, AttachMode::Generic);
            let failed = (0..60).find_map(|_| while_busy(GRACE, attach).err());
            is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(failed.is_none(), "{failed:?}");
        });
    }

    #[test]
    fn a_running_switchs_program_stays() {
        let ifindex = veth();
        let running = load(PROGRAM_NAME, ifindex, AttachMode::Native);
        let _link = running.attach(ifindex, AttachMode::Native).unwrap();
        let program = load(PROGRAM_NAME, ifindex, AttachMode::Native);
        let Err(error) = program.attach(ifindex, AttachMode::Native) else { panic!("attached") };
        assert!(error.to_string().contains("another running switch"), "{error}");
        let by = Blocker { ifindex, queue_id: None };
        assert!(matches!(error, PortError::Busy { by: found, .. } if found == by));
        assert!(!is_gone(by));
    }

    /// Makes every frame that leaves through the device tagged with VLAN 10, like the kernel's own VLAN
    /// devices: the tag is stored outside the packet, and the device must insert it.
    pub(crate) fn push_tags_on_egress(ifindex: u32) -> [OwnedFd; 2] {
        const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
        const BPF_TCX_EGRESS: u32 = 47;
        const SKB_VLAN_PUSH: i32 = 18;
        let instructions = [
            instruction(0xb7, 2, 0, 0, 0x0081), // 0x8100 in network order
            instruction(0xb7, 3, 0, 0, 10),
            instruction(0x85, 0, 0, 0, SKB_VLAN_PUSH),
            instruction(0xb7, 0, 0, 0, 0),
            instruction(0x95, 0, 0, 0, 0),
        ];
        let attr = BpfAttr::new().u32(0, BPF_PROG_TYPE_SCHED_CLS).u32(4, instructions.len() as u32);
        let attr = attr.u64(8, instructions.as_ptr() as u64).u64(16, c"GPL".as_ptr() as u64);
        // SAFETY: instructions (of the count given) and licence (with its terminating zero) outlive the call.
        let program = unsafe { bpf_fd(BpfCommand::ProgLoad, &attr) }.unwrap();
        let attr = BpfAttr::new().u32(0, program.as_raw_fd() as u32).u32(4, ifindex).u32(8, BPF_TCX_EGRESS);
        // SAFETY: the attributes hold no pointer.
        let link = unsafe { bpf_fd(BpfCommand::LinkCreate, &attr) }.unwrap();
        [program, link]
    }
}
