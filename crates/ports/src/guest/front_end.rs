//! The front end's half of the protocol: what a virtual machine monitor says to the switch.

use super::memory::{GUEST_BASE, GuestRam};
use super::{GuestConfig, Side};
use crate::PortError;
use crate::vhost_user::connection::{receive_some, send_with, wait_for};
use crate::vhost_user::features::{device as d, protocol as p};
use crate::vhost_user::message::{HEADER_LEN, Header, Region, VringAddr, encode, request};
use crate::wait::Event;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// An answer takes a moment; a switch that does not answer at all is an error.
const ANSWER_TIME: Duration = Duration::from_secs(10);

pub(super) struct FrontEnd {
    stream: UnixStream,
    /// Never signalled: what `wait_for` wants beside the socket.
    never: Event,
    acknowledges: bool,
    /// The socket where we listen, and its path, to be removed in the end. Nobody else is accepted: it tells others that somebody is
    /// there.
    listens_at: Option<(UnixListener, PathBuf)>,
}

impl FrontEnd {
    pub(super) fn connect(path: &Path) -> Result<FrontEnd, PortError> {
        let stream = UnixStream::connect(path);
        let stream = stream.map_err(|e| PortError::os(format!("connect to {}", path.display()), &e))?;
        FrontEnd::new(stream, None)
    }

    /// A socket that nobody serves any more is replaced.
    pub(super) fn listen(path: &Path, time: Duration) -> Result<FrontEnd, PortError> {
        let call = || format!("listen on {}", path.display());
        if UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
            && std::fs::symlink_metadata(path).is_ok_and(|meta| meta.file_type().is_socket())
        {
            // Who listened was killed. Where it cannot be removed it is in use, and that is said.
            let _ = std::fs::remove_file(path);
        }
        let listener = UnixListener::bind(path).map_err(|e| PortError::os(call(), &e))?;
        let never = Event::new()?;
        if !wait_for(&listener, libc::POLLIN, never.fd(), Some(time)).unwrap_or(false) {
            // Nobody will use it any more.
            let _ = std::fs::remove_file(path);
            let call = format!("wait for a switch at {}", path.display());
            return Err(PortError::Os { call, errno: libc::ETIMEDOUT });
        }
        let (stream, _) = listener.accept().map_err(|e| PortError::os(call(), &e))?;
        FrontEnd::new(stream, Some((listener, path.to_owned())))
    }

    fn new(stream: UnixStream, listens_at: Option<(UnixListener, PathBuf)>) -> Result<FrontEnd, PortError> {
        Ok(FrontEnd { stream, never: Event::new()?, acknowledges: false, listens_at })
    }

    /// Agrees on features: those that are always wanted, those of `wanted` that the switch has. Returns them.
    pub(super) fn negotiate(&mut self, wanted: u64, pairs: usize) -> Result<u64, PortError> {
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
    pub(super) fn share(&mut self, ram: &GuestRam) -> Result<(), PortError> {
        let region = Region { guest: GUEST_BASE, len: ram.len(), user: ram.user(0), offset: 0 };
        let mut payload = 1u64.to_le_bytes().to_vec();
        payload.extend_from_slice(&region.encode());
        self.say(request::SET_MEM_TABLE, &payload, &[ram.fd().as_raw_fd()])
    }

    pub(super) fn start_ring(
        &mut self,
        index: u32,
        config: &GuestConfig,
        ram: &GuestRam,
        side: &Side,
    ) -> Result<(), PortError> {
        self.say_state(request::SET_VRING_NUM, index, u32::from(config.ring_size))?;
        let base = if config.layout == super::RingLayout::Packed { 1 << 15 } else { 0 };
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
        self.say(request::SET_VRING_CALL, &number, &[side.call.fd()])?;
        self.say(request::SET_VRING_KICK, &number, &[side.kick.fd()])
    }

    pub(super) fn enable_ring(&mut self, index: u32, enable: bool) -> Result<(), PortError> {
        self.say_state(request::SET_VRING_ENABLE, index, u32::from(enable))
    }

    /// Sets the device's status to 0.
    pub(super) fn reset_status(&mut self) -> Result<(), PortError> {
        self.say(request::SET_STATUS, &0u64.to_le_bytes(), &[])
    }

    /// Stops a ring; where it stopped.
    pub(super) fn stop_ring(&mut self, index: u32) -> Result<u32, PortError> {
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(&[0; 4]);
        self.send(&encode(request::GET_VRING_BASE, false, false, &payload), &[])?;
        match *self.receive(request::GET_VRING_BASE)? {
            [_, _, _, _, a, b, c, d] => Ok(u32::from_le_bytes([a, b, c, d])),
            _ => Err(PortError::Unsupported("an answer of a wrong length".into())),
        }
    }

    pub(super) fn announce(&mut self, mac: [u8; 6]) -> Result<(), PortError> {
        let [a, b, c, e, f, g] = mac;
        self.say(request::SEND_RARP, &[a, b, c, e, f, g, 0, 0], &[])
    }

    pub(super) fn is_connected(&self) -> bool {
        let mut poll = libc::pollfd { fd: self.stream.as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        unsafe { libc::poll(&raw mut poll, 1, 0) };
        poll.revents & (libc::POLLHUP | libc::POLLERR) == 0
    }

    /// A question whose answer comes when all before it is done.
    pub(super) fn synchronise(&mut self) -> Result<(), PortError> {
        self.ask_u64(request::GET_FEATURES).map(|_| ())
    }

    pub(super) fn say_state(&mut self, request: u32, index: u32, value: u32) -> Result<(), PortError> {
        let mut payload = index.to_le_bytes().to_vec();
        payload.extend_from_slice(&value.to_le_bytes());
        self.say(request, &payload, &[])
    }

    /// Says something; waits for the acknowledgement where there are any.
    pub(super) fn say(&mut self, request: u32, payload: &[u8], fds: &[RawFd]) -> Result<(), PortError> {
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

    pub(super) fn send(&mut self, bytes: &[u8], fds: &[RawFd]) -> Result<(), PortError> {
        let sent = send_with(self.stream.as_raw_fd(), bytes, fds);
        if sent == Ok(bytes.len()) { Ok(()) } else { Err(self.lost()) }
    }

    fn receive(&mut self, request: u32) -> Result<Vec<u8>, PortError> {
        let mut bytes = [0; HEADER_LEN];
        self.read(&mut bytes)?;
        let header = Header::parse(&bytes).map_err(|e| PortError::Unsupported(e.to_string()))?;
        if header.request != request {
            let what = format!("an answer to request {} in place of {request}", header.request);
            return Err(PortError::Unsupported(what));
        }
        let mut payload = vec![0; header.payload_len];
        self.read(&mut payload)?;
        Ok(payload)
    }

    fn read(&mut self, mut to: &mut [u8]) -> Result<(), PortError> {
        while !to.is_empty() {
            if !wait_for(&self.stream, libc::POLLIN, self.never.fd(), Some(ANSWER_TIME)).unwrap_or(false) {
                return Err(PortError::Unsupported("the switch does not answer".into()));
            }
            match receive_some(self.stream.as_raw_fd(), to, &mut Vec::new()) {
                Ok(n) if n > 0 => to = &mut to[n..],
                _ => return Err(self.lost()),
            }
        }
        Ok(())
    }

    fn lost(&self) -> PortError {
        PortError::Unsupported("the switch has closed the connection".into())
    }
}

impl Drop for FrontEnd {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.listens_at {
            // Gone already is as good.
            let _ = std::fs::remove_file(path);
        }
    }
}
