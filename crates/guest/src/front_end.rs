//! The front end's half of the protocol: what a virtual machine monitor says to the switch.

use crate::memory::{GUEST_BASE, GuestRam};
use crate::side::{Side, poll_for};
use ports::PortError;
use ports::vhost_user::features::{device as d, protocol as p};
use ports::vhost_user::message::{FDS_MAX, HEADER_LEN, Header, Region, VringAddr, encode, request};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::io::{ErrorKind, IoSlice, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use unix_socket::Socket;

/// An answer takes a moment; a switch that does not answer at all is an error.
const ANSWER_TIME: Duration = Duration::from_secs(10);
/// While it waits for one, a guest asks this often whether it shall end.
const LOOK_TIME: Duration = Duration::from_millis(100);

pub(crate) struct FrontEnd {
    stream: UnixStream,
    ending: Arc<AtomicBool>,
    acknowledges: bool,
    /// The socket on which we listen, which is removed in the end. No other connection is accepted: its
    /// presence tells others that the path is in use.
    _listens_at: Option<(Socket, UnixListener)>,
}

impl FrontEnd {
    pub(crate) fn connect(path: &Path, ending: Arc<AtomicBool>) -> Result<FrontEnd, PortError> {
        let stream = UnixStream::connect(path);
        let stream = stream.map_err(|e| PortError::os(format!("connect to {}", path.display()), &e))?;
        Ok(FrontEnd { stream, ending, acknowledges: false, _listens_at: None })
    }

    /// A socket that is no longer served is replaced.
    pub(crate) fn listen(
        path: &Path,
        time: Duration,
        ending: Arc<AtomicBool>,
    ) -> Result<FrontEnd, PortError> {
        let listening = Socket::listen_by_umask(path).map_err(|e| PortError::file(path, &e))?;
        let (_, listener) = &listening;
        if !poll_for(listener, time) {
            let call = format!("wait for a switch at {}", path.display());
            return Err(PortError::os(call, &Errno::TIMEDOUT.into()));
        }
        let (stream, _) = listener.accept().map_err(|e| PortError::file(path, &e))?;
        Ok(FrontEnd { stream, ending, acknowledges: false, _listens_at: Some(listening) })
    }

    /// Agrees on features: those that are always wanted, those of `wanted` that the switch has. Returns them.
    pub(crate) fn negotiate(&mut self, wanted: u64, pairs: usize) -> Result<u64, PortError> {
        let offered = self.ask_u64(request::GET_FEATURES)?;
        let multi = if pairs > 1 { d::MQ | d::CTRL_VQ } else { 0 };
        let needed = d::VERSION_1 | d::PROTOCOL_FEATURES | multi;
        if needed & !offered != 0 {
            return Err(PortError::Unsupported(format!("the switch offers {offered:#x} only")));
        }
        let features = needed | wanted & offered;
        let protocol = self.ask_u64(request::GET_PROTOCOL_FEATURES)?;
        let protocol = protocol & (p::MQ | p::REPLY_ACK | p::RARP | p::NET_MTU);
        self.say(request::SET_PROTOCOL_FEATURES, &protocol.to_le_bytes(), &[])?;
        self.acknowledges = protocol & p::REPLY_ACK != 0;
        if self.ask_u64(request::GET_QUEUE_NUM)? < pairs as u64 {
            return Err(PortError::Unsupported("the switch has fewer queue pairs".into()));
        }
        self.say(request::SET_OWNER, &[], &[])?;
        self.say(request::SET_FEATURES, &features.to_le_bytes(), &[])?;
        Ok(features)
    }

    /// Shares the guest's memory.
    pub(crate) fn share(&mut self, ram: &GuestRam) -> Result<(), PortError> {
        let region = Region { guest: GUEST_BASE, len: ram.len(), user: ram.user(0), offset: 0 };
        let mut payload = 1u64.to_le_bytes().to_vec();
        payload.extend_from_slice(&region.encode());
        self.say(request::SET_MEM_TABLE, &payload, &[ram.fd().as_fd()])
    }

    /// Hands a ring over, which begins or goes on at `base`.
    pub(crate) fn start_ring(
        &mut self,
        index: u32,
        size: u16,
        base: u32,
        ram: &GuestRam,
        side: &Side,
    ) -> Result<(), PortError> {
        self.say_state(request::SET_VRING_NUM, index, u32::from(size))?;
        self.say_state(request::SET_VRING_BASE, index, base)?;
        let addr = VringAddr {
            index,
            is_logged: false,
            desc: ram.user(side.ring.descriptors),
            used: ram.user(side.ring.used),
            avail: ram.user(side.ring.avail),
            log: 0,
        };
        self.say(request::SET_VRING_ADDR, &addr.encode(), &[])?;
        let number = u64::from(index).to_le_bytes();
        self.say(request::SET_VRING_CALL, &number, &[side.call.as_fd()])?;
        self.say(request::SET_VRING_KICK, &number, &[side.kick.as_fd()])
    }

    pub(crate) fn enable_ring(&mut self, index: u32, enable: bool) -> Result<(), PortError> {
        self.say_state(request::SET_VRING_ENABLE, index, u32::from(enable))
    }

    /// Sets the device's status to 0.
    pub(crate) fn reset_status(&mut self) -> Result<(), PortError> {
        self.say(request::SET_STATUS, &0u64.to_le_bytes(), &[])
    }

    /// Stops a ring, and returns where it stopped.
    pub(crate) fn stop_ring(&mut self, index: u32) -> Result<u32, PortError> {
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 4]);
        self.send(&encode(request::GET_VRING_BASE, false, false, &payload), &[])?;
        match *self.receive(request::GET_VRING_BASE)? {
            [_, _, _, _, a, b, c, d] => Ok(u32::from_le_bytes([a, b, c, d])),
            _ => Err(PortError::Unsupported("an answer of a wrong length".into())),
        }
    }

    pub(crate) fn announce(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        let [a, b, c, e, f, g] = mac;
        self.say(request::SEND_RARP, &[a, b, c, e, f, g, 0, 0], &[])
    }

    pub(crate) fn is_connected(&self) -> bool {
        let mut look = [PollFd::new(&self.stream, PollFlags::empty())];
        // Reports a closed peer even though no events are requested.
        poll(&mut look, Some(&rustix::event::Timespec::default())) == Ok(0)
    }

    /// A request whose answer comes after all earlier ones have been processed.
    pub(crate) fn synchronise(&mut self) -> Result<(), PortError> {
        self.ask_u64(request::GET_FEATURES).map(|_| ())
    }

    pub(crate) fn say_state(&mut self, request: u32, index: u32, value: u32) -> Result<(), PortError> {
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(&value.to_le_bytes());
        self.say(request, &payload, &[])
    }

    /// Sends a message; waits for the acknowledgement if there is one.
    pub(crate) fn say(
        &mut self,
        request: u32,
        payload: &[u8],
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), PortError> {
        let bytes = encode(request, false, self.acknowledges, payload);
        self.send(&bytes, fds)?;
        if self.acknowledges {
            let answer = self.receive(request)?;
            if answer != 0u64.to_le_bytes() {
                return Err(PortError::Unsupported(format!("the switch refused request {request}")));
            }
        }
        Ok(())
    }

    fn ask_u64(&mut self, request: u32) -> Result<u64, PortError> {
        let bytes = encode(request, false, false, &[]);
        self.send(&bytes, &[])?;
        let answer = self.receive(request)?;
        let answer =
            answer.try_into().map_err(|_| PortError::Unsupported("an answer of a wrong length".into()))?;
        Ok(u64::from_le_bytes(answer))
    }

    pub(crate) fn send(&mut self, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), PortError> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(fds.is_empty() || control.push(SendAncillaryMessage::ScmRights(fds)), "no message has more");
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
        if sent == Ok(bytes.len()) { Ok(()) } else { Err(lost()) }
    }

    fn receive(&mut self, request: u32) -> Result<Vec<u8>, PortError> {
        let end = Instant::now() + ANSWER_TIME;
        let mut bytes = [0; HEADER_LEN];
        self.read(&mut bytes, end)?;
        let header = Header::parse(&bytes).map_err(|e| PortError::Unsupported(e.to_string()))?;
        if header.request != request {
            let what = format!("an answer to request {} in place of {request}", header.request);
            return Err(PortError::Unsupported(what));
        }
        let mut payload = vec![0; header.payload_len];
        self.read(&mut payload, end)?;
        Ok(payload)
    }

    /// Fills `to`, until `end` at the latest: a switch that sends byte by byte does not answer either.
    fn read(&mut self, to: &mut [u8], end: Instant) -> Result<(), PortError> {
        let mut done = 0;
        while done < to.len() {
            if self.ending.load(Ordering::Relaxed) || Instant::now() >= end {
                return Err(PortError::Unsupported("the switch does not answer".into()));
            }
            if poll_for(&self.stream, LOOK_TIME) {
                match self.stream.read(&mut to[done..]) {
                    Ok(0) => return Err(lost()),
                    Ok(len) => done += len,
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(_) => return Err(lost()),
                }
            }
        }
        Ok(())
    }
}

fn lost() -> PortError {
    PortError::Unsupported("the switch has closed the connection".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_switch_that_answers_byte_by_byte_is_given_up_when_the_time_is_over() {
        let (stream, mut switch) = UnixStream::pair().unwrap();
        let mut front = FrontEnd { stream, ending: Arc::default(), acknowledges: false, _listens_at: None };
        let dribble = std::thread::spawn(move || {
            while switch.write_all(&[0]).is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        // Bytes for seconds.
        let read = front.read(&mut [0; 4_096], Instant::now() + Duration::from_millis(50));
        assert!(read.is_err_and(|e| e.to_string().contains("does not answer")));
        drop(front);
        dribble.join().unwrap();
    }
}
