//! What keeps the kernel's own stack from receiving what the switch receives at an interface.

use crate::af_xdp::sys::{self, BpfAttr, BpfCommand};
use std::os::fd::{AsRawFd, OwnedFd};

/// What keeps traffic for the switch away from the kernel's stack.
pub(super) enum Ingress {
    /// A program that drops it; the link's descriptor holds it in place.
    Blocked { _link: OwnedFd },
    /// The administrator wants both to have it.
    Open,
    /// The kernel cannot.
    Unblocked(String),
}

/// Attaches a program of two instructions at the interface's ingress that drops everything.
pub(super) fn block_ingress(ifindex: u32) -> Ingress {
    const PROGRAM_TYPE_SCHED_CLS: u32 = 3;
    const ATTACH_TCX_INGRESS: u32 = 46;
    // r0 = TCX_DROP (2); exit.
    let instructions: [[u8; 8]; 2] = [[0xb7, 0, 0, 0, 2, 0, 0, 0], [0x95, 0, 0, 0, 0, 0, 0, 0]];
    let attr = BpfAttr::new().u32(0, PROGRAM_TYPE_SCHED_CLS).u32(4, instructions.len() as u32);
    let attr = attr.u64(8, instructions.as_ptr() as u64).u64(16, c"Apache-2.0".as_ptr() as u64);
    // SAFETY: instructions (of the count given) and licence (with its terminating zero) outlive the call.
    let program = match unsafe { sys::bpf_fd(BpfCommand::ProgLoad, &attr.name(48, "crosspoint_drop")) } {
        Ok(program) => program,
        Err(errno) => return unblocked(errno),
    };
    let attr = BpfAttr::new().u32(0, program.as_raw_fd() as u32).u32(4, ifindex).u32(8, ATTACH_TCX_INGRESS);
    // SAFETY: the attributes hold no pointer.
    match unsafe { sys::bpf_fd(BpfCommand::LinkCreate, &attr) } {
        Ok(link) => Ingress::Blocked { _link: link },
        Err(errno) => unblocked(errno),
    }
}

fn unblocked(errno: i32) -> Ingress {
    Ingress::Unblocked(base::os_text(&std::io::Error::from_raw_os_error(errno)))
}
