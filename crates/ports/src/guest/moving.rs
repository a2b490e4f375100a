//! A guest that arrives ahead of its memory: the front end's part in post-copy migration, and a worker that touches what has
//! not come yet.

use super::front_end::FrontEnd;
use super::memory::{GUEST_BASE, GuestRam};
use super::{Guest, GuestConfig, QueuePair, queue_pairs};
use crate::PortSpec;
use crate::vhost_user::VhostUserPort;
use crate::vhost_user::features::protocol as p;
use crate::vhost_user::message::{Region, encode, request};
use base::PortNo;
use packet::{Batch, LinkState, Pool, PoolConfig, Port};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
/// `_IOR(0xaa, 0x02, struct uffdio_range)`.
const UFFDIO_WAKE: libc::c_ulong = 0x8010_aa02;
/// What the pages that come late are full of.
const CONTENTS: u8 = 0xa5;

fn port(dir: &Path) -> VhostUserPort {
    let spec = PortSpec::new("vm", "dpdkvhostuser", PortNo(1));
    let spec = spec.with("vhost-sock-dir", dir.to_str().unwrap()).with("vhost-postcopy", "true");
    VhostUserPort::open(&spec).unwrap()
}

/// A guest that listens for touches of its memory.
struct Arrival {
    guest: Guest,
    pairs: Vec<QueuePair>,
    ram: Arc<GuestRam>,
    faults: OwnedFd,
    /// Where the switch has the first byte of the memory.
    base: u64,
}

/// Sets a guest up as a monitor does that takes one in by post-copy migration. The memory's pages from `missing` on are not there.
fn arrive(dir: &Path, port: &VhostUserPort) -> Arrival {
    let config = GuestConfig { ring_size: 64, ..GuestConfig::default() };
    let mut front_end = FrontEnd::connect(&dir.join("vm")).unwrap();
    let features = front_end.negotiate(config.features, 1).unwrap();
    let protocol = p::REPLY_ACK | p::PAGEFAULT | p::CONFIGURE_MEM_SLOTS;
    front_end.say(request::SET_PROTOCOL_FEATURES, &protocol.to_le_bytes(), &[]).unwrap();
    let (ram, pairs) = queue_pairs(&config, features).unwrap();

    let mut fds = Vec::new();
    front_end.send(&encode(request::POSTCOPY_ADVISE, false, false, &[]), &[]).unwrap();
    assert!(front_end.receive_with(request::POSTCOPY_ADVISE, &mut fds).unwrap().is_empty());
    let faults = fds.pop().expect("a descriptor to hear of touches by");
    front_end.say(request::POSTCOPY_LISTEN, &[], &[]).unwrap();

    let region = Region { guest: GUEST_BASE, len: ram.len(), user: ram.user(0), offset: 0 };
    let payload = [&[0; 8][..], &region.encode()].concat();
    let add = encode(request::ADD_MEM_REG, false, false, &payload);
    front_end.send(&add, &[ram.fd().as_raw_fd()]).unwrap();
    let answer = front_end.receive_with(request::ADD_MEM_REG, &mut fds).unwrap();
    assert_eq!((&answer[..24], &answer[32..]), (&payload[..24], &payload[32..]));
    let base = u64::from_le_bytes(answer[24..32].try_into().unwrap());
    assert_ne!(base, region.user);

    let mut guest = Guest::start(front_end, &config, &ram, pairs).unwrap();
    assert_eq!(port.status().link, LinkState::Down, "the switch must not touch anything before it is heard");
    guest.front_end.send(&encode(request::ADD_MEM_REG, false, false, &[0; 8]), &[]).unwrap();
    guest.synchronise().unwrap();
    assert_eq!((port.status().link, port.status().error), (LinkState::Up, None));
    let pairs = guest.take_pairs();
    Arrival { guest, pairs, ram, faults, base }
}

impl Arrival {
    /// Takes the memory's last part, where the buffers are, away.
    fn lose_buffers(&self, from: usize) {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let (from, len) = (from as i64, (self.ram.len() as usize - from) as i64);
        // SAFETY: the descriptor is the memory's; the call takes no pointer.
        assert_eq!(unsafe { libc::fallocate(self.ram.fd().as_raw_fd(), mode, from, len) }, 0);
    }

    /// The offset of the page that somebody waits for.
    fn next_touch(&self) -> usize {
        let mut poll = libc::pollfd { fd: self.faults.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry, which outlives the call.
        assert_eq!(unsafe { libc::poll(&raw mut poll, 1, 20_000) }, 1, "nobody touches anything");
        let mut message = [0u64; 4];
        // SAFETY: the buffer has as many bytes as said.
        let n = unsafe { libc::read(self.faults.as_raw_fd(), message.as_mut_ptr().cast(), 32) };
        assert_eq!((n, message[0] & 0xff), (32, 0x12), "a page fault");
        (message[2] - self.base) as usize / PAGE * PAGE
    }

    /// Brings a page, and wakes who waits for it.
    fn bring(&self, page: usize) {
        let contents = [CONTENTS; PAGE];
        let fd = self.ram.fd().as_raw_fd();
        // SAFETY: the buffer has as many bytes as said.
        let n = unsafe { libc::pwrite(fd, contents.as_ptr().cast(), PAGE, page as i64) };
        assert_eq!(n, PAGE as isize);
        let mut range = [self.base + page as u64, PAGE as u64];
        // SAFETY: the structure is the one that the request is for, and outlives the call.
        assert_eq!(unsafe { libc::ioctl(self.faults.as_raw_fd(), UFFDIO_WAKE, range.as_mut_ptr()) }, 0);
    }
}

#[test]
fn a_worker_waits_for_a_page_that_has_not_come_and_spoils_nothing_beside_what_it_writes() {
    let dir = tempfile::tempdir().unwrap();
    let mut port = port(dir.path());
    let mut tx = port.take_tx_queues(1);
    let mut arrival = arrive(dir.path(), &port);
    let first = arrival.pairs[0].free.iter().copied().min().unwrap() / PAGE * PAGE;
    let buffers = first.min(*arrival.pairs[0].rx.offered.iter().flatten().min().unwrap());
    arrival.lose_buffers(buffers.next_multiple_of(PAGE));
    let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let worker = std::thread::spawn(move || {
        let (mut cache, mut batch) = (pool.cache(), Batch::new());
        batch.push(cache.alloc_frame(&[0x11; 100]).unwrap());
        tx[0].tx_burst(&mut cache, &mut batch);
        tx[0].flush(&mut cache);
        let left = batch.len();
        cache.free_all(&mut batch);
        (left, tx)
    });
    let page = arrival.next_touch();
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert!(!worker.is_finished(), "the page has not come");
    arrival.bring(page);
    let (left, tx) = worker.join().unwrap();
    assert_eq!(left, 0);
    let mut frames = Vec::new();
    arrival.pairs[0].receive(8, |frame| frames.push(frame.to_vec()));
    assert_eq!(frames, [vec![0x11; 100]]);
    let rest = arrival.ram.buffer(page, PAGE).iter().filter(|&&byte| byte == CONTENTS).count();
    assert!(rest >= PAGE - 112, "{rest} bytes beside the frame are as they came");
    arrival.guest.front_end.say(request::POSTCOPY_END, &[], &[]).unwrap();
    drop((tx, port));
}

/// A monitor that dies in the middle of a migration holds nobody.
#[test]
fn a_worker_that_waits_for_a_page_goes_on_when_the_front_end_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    let mut port = port(dir.path());
    let mut tx = port.take_tx_queues(1);
    let arrival = arrive(dir.path(), &port);
    let first = *arrival.pairs[0].rx.offered.iter().flatten().min().unwrap();
    arrival.lose_buffers(first.next_multiple_of(PAGE));
    let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let worker = std::thread::spawn(move || {
        let (mut cache, mut batch) = (pool.cache(), Batch::new());
        batch.push(cache.alloc_frame(&[0x11; 100]).unwrap());
        tx[0].tx_burst(&mut cache, &mut batch);
        cache.free_all(&mut batch);
        tx
    });
    arrival.next_touch();
    assert!(!worker.is_finished());
    drop(arrival);
    drop((worker.join().unwrap(), port));
}
