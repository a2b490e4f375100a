//! The sending half: bursts by `sendmmsg`, what is in pieces by itself.

use super::ring::VNET_LEN;
use crate::wait::last_errno;
use crate::{QueueStats, offload, virtio_net};
use packet::{BURST, Batch, Packet, PoolCache, TxQueue};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

/// A frame in more pieces than this cannot be sent.
const SEGMENTS_MAX: usize = 128;

/// A transmit queue: a socket of its own.
pub(super) struct PacketTx {
    pub(super) socket: OwnedFd,
    pub(super) stats: Arc<QueueStats>,
}

/// What happened to a burst's first packets.
enum Sent {
    /// So many went out.
    Some(usize),
    /// The first one was refused.
    Refused(i32),
}

impl PacketTx {
    /// Sends the unchained packets at the front of `packets` in one call.
    fn send_run(&self, packets: &mut [Packet]) -> Sent {
        let mut places = arrayvec::ArrayVec::<libc::iovec, BURST>::new();
        let mut messages = arrayvec::ArrayVec::<libc::mmsghdr, BURST>::new();
        for packet in packets.iter_mut() {
            let header = virtio_net::header_of(packet);
            packet.push_front(VNET_LEN).expect("the caller has looked at the headroom");
            packet.data_mut()[..VNET_LEN].copy_from_slice(&header[..VNET_LEN]);
            let bytes = packet.data_mut();
            places.push(libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() });
        }
        for place in &mut places {
            // SAFETY: zero bytes are a valid mmsghdr.
            let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
            message.msg_hdr.msg_iov = place;
            message.msg_hdr.msg_iovlen = 1;
            messages.push(message);
        }
        let count = messages.len() as libc::c_uint;
        // SAFETY: messages, places and the packets' bytes outlive the call, which only reads the bytes.
        let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
        let errno = last_errno();
        for packet in packets.iter_mut() {
            packet.pull_front(VNET_LEN).expect("pushed above");
        }
        usize::try_from(sent).map_or(Sent::Refused(errno), Sent::Some)
    }

    /// Sends one packet in pieces.
    fn send_chain(&self, packet: &Packet) -> Sent {
        let header = virtio_net::header_of(packet);
        let mut places = arrayvec::ArrayVec::<libc::iovec, SEGMENTS_MAX>::new();
        for segment in std::iter::once(&header[..VNET_LEN]).chain(packet.segments()) {
            let place = libc::iovec { iov_base: segment.as_ptr().cast_mut().cast(), iov_len: segment.len() };
            if places.try_push(place).is_err() {
                return Sent::Refused(libc::EINVAL);
            }
        }
        let fd = self.socket.as_raw_fd();
        // SAFETY: header and segments outlive the call, which only reads them.
        let written = unsafe { libc::writev(fd, places.as_ptr(), places.len() as libc::c_int) };
        if written < 0 { Sent::Refused(last_errno()) } else { Sent::Some(1) }
    }

    /// Counts a packet that was refused. False if it may be tried again later.
    fn refuse(&self, errno: i32) -> bool {
        match errno {
            libc::EAGAIN | libc::EINTR => return false,
            // The kernel compares with the present MTU.
            libc::EMSGSIZE => self.stats.too_long(),
            // Down, gone, or the device's own queue is full. ENOMEM is also what the kernel says of a segment
            // that it cannot cut, which must not hold up those behind it.
            libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::ENOBUFS | libc::ENOMEM => {
                self.stats.dropped.add(1);
            }
            _ => self.stats.errors.add(1),
        }
        true
    }
}

impl PacketTx {
    /// Sends one packet or more from the front.
    fn send_front(&self, packets: &mut [Packet]) -> Sent {
        let goes_alone =
            |p: &Packet| p.is_chained() || p.headroom() < VNET_LEN || offload::is_segmentation_ours(p);
        let run = packets.iter().take_while(|p| !goes_alone(p)).count();
        if run > 0 { self.send_run(&mut packets[..run]) } else { self.send_chain(&packets[0]) }
    }

    /// Cuts up a packet that the kernel would not, and sends what it becomes. What finds no room is dropped.
    #[cold]
    fn send_in_segments(&self, packet: &Packet, cache: &mut PoolCache) {
        let mut frames = Vec::new();
        if !offload::segment_copied(packet, cache, &mut frames) {
            self.stats.dropped.add(1);
        }
        let mut rest = &mut frames[..];
        while !rest.is_empty() {
            let count = rest.len().min(BURST);
            let done = match self.send_front(&mut rest[..count]) {
                Sent::Some(count) => {
                    let bytes: usize = rest[..count].iter().map(Packet::len).sum();
                    self.stats.passed(count as u64, bytes as u64);
                    count
                }
                Sent::Refused(errno) => {
                    let is_counted = self.refuse(errno);
                    self.stats.dropped.add(u64::from(!is_counted));
                    1
                }
            };
            rest = &mut rest[done..];
        }
        frames.drain(..).for_each(|frame| cache.free(frame));
    }
}

impl TxQueue for PacketTx {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let mut done = 0;
        while done < batch.len() {
            let rest = &mut batch[done..];
            if offload::is_segmentation_ours(&rest[0]) {
                self.send_in_segments(&rest[0], cache);
                done += 1;
                continue;
            }
            match self.send_front(rest) {
                Sent::Some(count) => {
                    let bytes: usize = rest[..count].iter().map(Packet::len).sum();
                    self.stats.passed(count as u64, bytes as u64);
                    done += count;
                }
                Sent::Refused(errno) if self.refuse(errno) => done += 1,
                Sent::Refused(_) => break,
            }
        }
        if done == batch.len() {
            cache.free_all(batch);
        } else {
            for packet in batch.drain(..done) {
                cache.free(packet);
            }
        }
    }
}
