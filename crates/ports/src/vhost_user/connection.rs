//! The socket to a guest's monitor: messages and the descriptors that accompany them.
//!
//! Reading waits for the socket and for the port's event at the same time, so a front end that stops in the
//! middle of a message blocks nothing: the port can be removed at any time.
//!
//! Source: unix(7), cmsg(3).

use super::descriptor::{Closer, Given};
use super::message::{self, FDS_MAX, HEADER_LEN, Header, MessageError, Request};
use crate::PortError;
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Why nothing more was read.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The front end has closed the connection, or the socket fails.
    Closed,
    /// The port's event was signalled.
    Woken,
    /// The input was not a valid message.
    Bad(MessageError),
}

/// A request with its descriptors.
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
    /// Time limit for the rest of a message, or for room for an answer.
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
            let result = receive_some(&self.stream, to, &mut came);
            fds.extend(came.into_iter().map(|fd| Given::new(fd, &self.closer)));
            if fds.len() > FDS_MAX {
                return Err(Ended::Closed);
            }
            match result {
                Ok(0) => return Err(Ended::Closed),
                Ok(n) => to = &mut to[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
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

    /// Sends an answer, with an optional descriptor.
    pub(crate) fn send(&mut self, request: u32, payload: &[u8]) -> Result<(), Ended> {
        let bytes = message::encode(request, true, false, payload);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            self.wait(libc::POLLOUT)?;
            match send(&self.stream, rest, SendFlags::NOSIGNAL) {
                Ok(n) => rest = &rest[n..],
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(_) => return Err(Ended::Closed),
            }
        }
        Ok(())
    }
}

/// Waits until `stream` is ready for `events` or the time is over; true if it is ready. `Err` if `event` is
/// readable.
fn wait_for(
    stream: &UnixStream,
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

/// Reads what is available, at most `to`, with any accompanying descriptors: all of them, so that surplus
/// ones are closed with the list.
fn receive_some(socket: &UnixStream, to: &mut [u8], fds: &mut Vec<OwnedFd>) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3 * FDS_MAX))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let read = recvmsg(socket, &mut [IoSliceMut::new(to)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            fds.extend(received);
        }
    }
    if fds.len() > FDS_MAX { Err(Errno::PROTO) } else { Ok(read.bytes) }
}
