//! The socket to a guest's monitor: messages and the descriptors that come beside them.
//!
//! Reading waits for the socket and for the port's event at once, so a front end that stops in the middle of a message holds
//! nobody up: the port can be removed at any time.
//!
//! Source: unix(7), cmsg(3).

use super::descriptor::{Closer, Given};
use super::message::{self, FDS_MAX, HEADER_LEN, Header, MessageError, Request};
use crate::PortError;
use crate::wait::owned;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Room for the descriptors of a message, with their header.
const CONTROL_LEN: usize = 128;

/// Why nothing more was read.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed the connection, or the socket fails.
    Closed,
    /// The port's event was signalled.
    Woken,
    /// What came is no message.
    Bad(MessageError),
}

/// A request with what came beside it.
pub(crate) struct Incoming {
    pub(crate) header: Header,
    pub(crate) request: Request,
    pub(crate) fds: Vec<Given>,
}

pub(crate) struct Connection {
    stream: UnixStream,
    /// Readable where the port wants the protocol thread's attention.
    event: RawFd,
    closer: Closer,
    /// When the rest of a message, or room for an answer, must have come.
    pub(crate) deadline: Option<Instant>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream, event: RawFd, closer: Closer) -> Result<Connection, PortError> {
        stream.set_nonblocking(true).map_err(|e| PortError::os("set up a guest's socket", &e))?;
        Ok(Connection { stream, event, closer, deadline: None })
    }

    pub(crate) fn stream(&self) -> &UnixStream {
        &self.stream
    }

    /// The next message.
    pub(crate) fn receive(&mut self) -> Result<Incoming, Ended> {
        let mut bytes = [0u8; HEADER_LEN];
        let mut fds = Vec::new();
        self.read(&mut bytes, &mut fds)?;
        let header = Header::parse(&bytes).map_err(Ended::Bad)?;
        let mut payload = vec![0; header.payload_len];
        self.read(&mut payload, &mut fds)?;
        let request = Request::parse(header.request, &payload).map_err(Ended::Bad)?;
        if !request.fds_expected().contains(&fds.len()) {
            let error = MessageError::Descriptors { request: header.request, count: fds.len() };
            return Err(Ended::Bad(error));
        }
        Ok(Incoming { header, request, fds })
    }

    /// Fills `to`, waiting as long as it may take.
    fn read(&mut self, mut to: &mut [u8], fds: &mut Vec<Given>) -> Result<(), Ended> {
        while !to.is_empty() {
            self.wait(libc::POLLIN)?;
            let mut came = Vec::new();
            let result = receive_some(self.stream.as_raw_fd(), to, &mut came);
            fds.extend(came.into_iter().map(|fd| Given::new(fd, &self.closer)));
            if fds.len() > FDS_MAX {
                return Err(Ended::Closed);
            }
            match result {
                Ok(0) => return Err(Ended::Closed),
                Ok(n) => to = &mut to[n..],
                Err(libc::EAGAIN | libc::EINTR) => {}
                Err(_) => return Err(Ended::Closed),
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready. The event comes first.
    fn wait(&self, events: libc::c_short) -> Result<(), Ended> {
        loop {
            let now = Instant::now();
            let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
            if wait_for(&self.stream, events, self.event, left)? {
                return Ok(());
            }
            if left.is_some_and(|left| left.is_zero()) {
                return Err(Ended::Closed);
            }
        }
    }

    /// Sends an answer, with a descriptor where there is one.
    pub(crate) fn send(&mut self, request: u32, payload: &[u8], fd: Option<&OwnedFd>) -> Result<(), Ended> {
        let bytes = message::encode(request, true, false, payload);
        let mut rest = &bytes[..];
        let mut fd = fd;
        while !rest.is_empty() {
            self.wait(libc::POLLOUT)?;
            match send_some(self.stream.as_raw_fd(), rest, fd) {
                Ok(n) => {
                    rest = &rest[n..];
                    fd = None;
                }
                Err(libc::EAGAIN | libc::EINTR) => {}
                Err(_) => return Err(Ended::Closed),
            }
        }
        Ok(())
    }
}

/// Waits until `stream` is ready for `events` or the time is over, whichever comes first; true where it is ready.
/// `Err` where `event` is readable.
pub(crate) fn wait_for(
    stream: &impl AsRawFd,
    events: libc::c_short,
    event: RawFd,
    time: Option<Duration>,
) -> Result<bool, Ended> {
    let mut polls = [
        libc::pollfd { fd: event, events: libc::POLLIN, revents: 0 },
        libc::pollfd { fd: stream.as_raw_fd(), events, revents: 0 },
    ];
    let timeout = time.map_or(-1, |time| time.as_millis().min(i32::MAX as u128) as i32);
    // SAFETY: the array has as many entries as said and outlives the call.
    unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, timeout) };
    if polls[0].revents != 0 { Err(Ended::Woken) } else { Ok(polls[1].revents != 0) }
}

fn last_errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

/// Reads what is there, at most `to`, and takes descriptors that come with it.
pub(crate) fn receive_some(socket: RawFd, to: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, i32> {
    let mut place = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let mut control = [0u64; CONTROL_LEN / 8];
    // SAFETY: zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut place;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LEN;
    // SAFETY: the header names buffers that outlive the call.
    let n = unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let n = usize::try_from(n).map_err(|_| last_errno())?;
    // SAFETY: the kernel has filled the control buffer that the header names.
    let mut cmsg = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !cmsg.is_null() {
        // SAFETY: not null, so within the control buffer.
        let head = unsafe { *cmsg };
        if head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS {
            // SAFETY: as above.
            let data = unsafe { libc::CMSG_DATA(cmsg) }.cast::<RawFd>();
            // SAFETY: a length of 0 takes no pointer.
            let overhead = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = (head.cmsg_len as usize).saturating_sub(overhead) / size_of::<RawFd>();
            for i in 0..count {
                // SAFETY: the message has `count` descriptors.
                let at = unsafe { data.add(i) };
                // SAFETY: within the control buffer, of no particular alignment.
                let fd = unsafe { at.read_unaligned() };
                // Owned at once, also those that are too many: they are closed with the list.
                if let Ok(fd) = owned(fd, "receive a descriptor") {
                    fds.push(fd);
                }
            }
        }
        // SAFETY: both pointers are the kernel's.
        cmsg = unsafe { libc::CMSG_NXTHDR(&raw const header, cmsg) };
    }
    if fds.len() > FDS_MAX {
        return Err(libc::EPROTO);
    }
    Ok(n)
}

/// Sends what fits, with a descriptor where there is one.
pub(crate) fn send_some(socket: RawFd, bytes: &[u8], fd: Option<&OwnedFd>) -> Result<usize, i32> {
    let fds: Vec<RawFd> = fd.iter().map(|fd| fd.as_raw_fd()).collect();
    send_with(socket, bytes, &fds)
}

/// Sends what fits, with these descriptors.
pub(crate) fn send_with(socket: RawFd, bytes: &[u8], fds: &[RawFd]) -> Result<usize, i32> {
    assert!(fds.len() <= FDS_MAX, "no message has more");
    let mut place = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; CONTROL_LEN / 8];
    // SAFETY: zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut place;
    header.msg_iovlen = 1;
    if !fds.is_empty() {
        let len = size_of_val(fds) as u32;
        header.msg_control = control.as_mut_ptr().cast();
        // SAFETY: a computation on lengths.
        header.msg_controllen = unsafe { libc::CMSG_SPACE(len) } as usize;
        // SAFETY: the control buffer has room for a header, which is written below.
        let cmsg = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
        // SAFETY: a computation on lengths.
        let cmsg_len = unsafe { libc::CMSG_LEN(len) } as usize;
        let head = libc::cmsghdr { cmsg_len, cmsg_level: libc::SOL_SOCKET, cmsg_type: libc::SCM_RIGHTS };
        // SAFETY: within the control buffer, which is aligned for it.
        unsafe { cmsg.write(head) };
        // SAFETY: within the control buffer: 8 descriptors and a header are 48 bytes.
        let data = unsafe { libc::CMSG_DATA(cmsg) };
        // SAFETY: as above; the two do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), data, size_of_val(fds)) };
    }
    // SAFETY: the header names buffers that outlive the call.
    let n = unsafe { libc::sendmsg(socket, &raw const header, libc::MSG_NOSIGNAL) };
    usize::try_from(n).map_err(|_| last_errno())
}
