//! Front ends that have connected to the socket of a listening port and have not sent anything yet.
//!
//! A port has one guest. A front end that is connected but has no device yet may never have one: it is
//! silent, or its machine does not start. It must not keep others away. So as long as there is no device, a
//! front end that sends something replaces the present one; a silent one waits, and replaces none.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;
use unix_socket::Socket;

/// Maximum number of waiting connections; beyond it, the one that has waited longest is disconnected.
const WAITING_MAX: usize = 64;
/// How long to wait after accepting has failed.
const ACCEPT_AGAIN_AFTER: Duration = Duration::from_millis(100);

pub(super) struct Pending {
    /// Removed before nobody listens any more.
    _socket: Socket,
    listener: UnixListener,
    waiting: VecDeque<UnixStream>,
}

/// What happened first.
pub(super) enum Heard {
    /// The port's event was signalled.
    Event,
    /// The front end that is served says something, or is gone.
    Present,
    /// One that waited says something.
    Newcomer(UnixStream),
}

impl Pending {
    /// `listener` does not block.
    pub(super) fn new((socket, listener): (Socket, UnixListener)) -> Pending {
        Pending { _socket: socket, listener, waiting: VecDeque::new() }
    }

    /// Waits until something happens. `present` is the connection being served, if any.
    pub(super) fn wait(&mut self, event: RawFd, present: Option<&UnixStream>) -> Heard {
        loop {
            let entry = |fd: RawFd| libc::pollfd { fd, events: libc::POLLIN | libc::POLLRDHUP, revents: 0 };
            // Entries with negative descriptors are passed over.
            let fds = [event, present.map_or(-1, AsRawFd::as_raw_fd), self.listener.as_raw_fd()];
            let waiting = self.waiting.iter().map(AsRawFd::as_raw_fd);
            let mut polls: Vec<_> = fds.into_iter().chain(waiting).map(entry).collect();
            // SAFETY: the array has as many entries as said and outlives the call.
            unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
            if polls[0].revents != 0 {
                return Heard::Event;
            }
            if polls[1].revents != 0 {
                return Heard::Present;
            }
            let mut newcomer = None;
            for (i, poll) in polls[fds.len()..].iter().enumerate().rev() {
                if poll.revents & !libc::POLLIN != 0 {
                    self.waiting.remove(i);
                } else if poll.revents != 0 {
                    newcomer = Some(i);
                    break;
                }
            }
            if let Some(stream) = newcomer.and_then(|i| self.waiting.remove(i)) {
                return Heard::Newcomer(stream);
            }
            if polls[2].revents == 0 {
                continue;
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    if self.waiting.len() == WAITING_MAX {
                        self.waiting.pop_front();
                    }
                    self.waiting.push_back(stream);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                // Without descriptors the socket stays readable: not again at once.
                Err(_) => std::thread::sleep(ACCEPT_AGAIN_AFTER),
            }
        }
    }
}
