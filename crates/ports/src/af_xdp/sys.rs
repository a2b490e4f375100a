//! The system calls behind AF_XDP, with their errors named: socket options, ring mappings, bpf(2).
//!
//! Source: linux/if_xdp.h, linux/bpf.h, bpf(2). Structures that libc lacks are byte arrays with the offsets
//! of the kernel's union, which are ABI and so never change.

use crate::PortError;
use crate::wait::{last_errno, owned};
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

/// A shared mapping, unmapped on drop.
///
/// A mapping of a socket's ring holds a reference to the socket: closing the descriptor ends nothing before
/// the last mapping is gone.
pub(crate) struct Mapping {
    at: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping belongs to the process; the ring governs access to its bytes.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of a socket.
    pub(crate) fn new(fd: &OwnedFd, len: usize, offset: libc::off_t) -> Result<Mapping, PortError> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping at an address of the kernel's choice cannot overlap ours.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            return Err(PortError::last_os("map a ring of an AF_XDP socket"));
        }
        Ok(Mapping { at: NonNull::new(at.cast()).expect("mmap never returns null for a null hint"), len })
    }

    /// Address of a `T` at `offset`; panics if it would not be within the mapping, or not aligned.
    pub(crate) fn at<T>(&self, offset: u64, count: usize) -> NonNull<T> {
        let offset = offset as usize;
        assert!(offset + count * size_of::<T>() <= self.len, "ring outside its mapping");
        // SAFETY: `offset` lies within the mapping, asserted on the line above.
        let at = unsafe { self.at.add(offset) }.cast::<T>();
        assert!(at.is_aligned(), "ring not aligned");
        at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `new`, and the ring that used it dies with us.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// A socket that does not block and is not inherited.
pub(crate) fn socket(domain: i32, kind: i32, protocol: i32, call: &str) -> Result<OwnedFd, PortError> {
    // SAFETY: the call touches no memory of ours.
    let fd = unsafe { libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol) };
    owned(fd, call)
}

/// Sets an option of an AF_XDP socket. `T` is a plain structure of the kernel's ABI.
pub(crate) fn set_option<T: Copy>(
    fd: RawFd,
    level: i32,
    option: i32,
    value: &T,
    call: &str,
) -> Result<(), PortError> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is initialised, `len` bytes long, and outlives the call.
    match unsafe { libc::setsockopt(fd, level, option, (&raw const *value).cast(), len) } {
        0 => Ok(()),
        _ => Err(PortError::last_os(call)),
    }
}

/// Gets an option of an AF_XDP socket.
///
/// # Safety
/// Any bytes must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy>(fd: RawFd, option: i32, call: &str) -> Result<T, PortError> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes and outlives the call.
    if unsafe { libc::getsockopt(fd, libc::SOL_XDP, option, value.as_mut_ptr().cast(), &mut len) } != 0 {
        return Err(PortError::last_os(call));
    }
    // SAFETY: the bytes were zeroed and partly overwritten by the kernel; any are valid, says the caller.
    Ok(unsafe { value.assume_init() })
}

/// Binds an AF_XDP socket to one queue of one device. The error is an errno: the caller tries several ways.
pub(crate) fn bind(fd: RawFd, address: &libc::sockaddr_xdp) -> Result<(), i32> {
    let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    // SAFETY: `address` is initialised, `len` bytes long, and outlives the call.
    match unsafe { libc::bind(fd, (&raw const *address).cast(), len) } {
        0 => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Tells the kernel to transmit what is in the TX ring. The error is an errno.
#[inline]
pub(crate) fn kick_tx(fd: RawFd) -> Result<(), i32> {
    // SAFETY: no buffer and no address are passed.
    match unsafe { libc::sendto(fd, std::ptr::null(), 0, libc::MSG_DONTWAIT, std::ptr::null(), 0) } {
        0.. => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Tells the kernel to receive, and finds out whether the socket is still bound. The error is an errno.
pub(crate) fn kick_rx(fd: RawFd) -> Result<(), i32> {
    let (none, nobody) = (std::ptr::null_mut(), std::ptr::null_mut());
    // SAFETY: no buffer and no address are passed.
    match unsafe { libc::recvfrom(fd, none, 0, libc::MSG_DONTWAIT, nobody, std::ptr::null_mut()) } {
        0.. => Ok(()),
        _ => Err(last_errno()),
    }
}

/// Commands of bpf(2).
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum BpfCommand {
    MapCreate = 0,
    MapUpdateElem = 2,
    MapDeleteElem = 3,
    ProgLoad = 5,
    ProgGetFdById = 13,
    ObjGetInfoByFd = 15,
    LinkCreate = 28,
}

/// `union bpf_attr`, filled by offset.
#[repr(C, align(8))]
pub(crate) struct BpfAttr([u8; 128]);

impl BpfAttr {
    pub(crate) fn new() -> BpfAttr {
        BpfAttr([0; 128])
    }

    pub(crate) fn u32(mut self, offset: usize, value: u32) -> BpfAttr {
        self.0[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// A pointer, or a 64-bit value. What it points to must outlive the call of [`bpf`].
    pub(crate) fn u64(mut self, offset: usize, value: u64) -> BpfAttr {
        self.0[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
        self
    }

    /// A name of at most 15 bytes.
    pub(crate) fn name(mut self, offset: usize, name: &str) -> BpfAttr {
        assert!(name.len() < 16, "BPF object names have 15 bytes");
        self.0[offset..offset + name.len()].copy_from_slice(name.as_bytes());
        self
    }
}

/// bpf(2). Returns its result; the error is an errno.
///
/// # Safety
/// Pointers in `attr` must be valid for what the command does with them.
pub(crate) unsafe fn bpf(command: BpfCommand, attr: &BpfAttr) -> Result<i64, i32> {
    // SAFETY: `attr` is 128 initialised bytes; the pointers in it are good, says the caller.
    match unsafe { libc::syscall(libc::SYS_bpf, command as i32, attr.0.as_ptr(), attr.0.len()) } {
        result @ 0.. => Ok(result),
        _ => Err(last_errno()),
    }
}

/// bpf(2) with a command that yields a descriptor.
///
/// # Safety
/// As for [`bpf`].
pub(crate) unsafe fn bpf_fd(command: BpfCommand, attr: &BpfAttr) -> Result<OwnedFd, i32> {
    // SAFETY: the caller's promise is passed on.
    let fd = unsafe { bpf(command, attr) }?;
    // SAFETY: the command just returned this close-on-exec descriptor (as all of bpf's are); we own it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
