//! A malicious guest: each attack by its name, on a port that must survive it.
//!
//! An attack may cost its own port alone: it is disabled with a reason, or goes on with what makes sense; a
//! second port on the same pool forwards as before, no chunk is lost, and the next honest guest on the
//! attacked port is served.

use crate::memory::{GUEST_BASE, GuestRam};
use crate::{BUFFER, Guest, GuestConfig, LEAD, RingLayout};
use base::PortNo;
use packet::{Batch, LinkState, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use ports::vhost_user::features::device as d;
use ports::vhost_user::message::{Region, VringAddr, encode, request};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use testkit::lab::wait_for;

pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

pub struct Victim {
    pub port: VhostUserPort,
    pub rx: Vec<Box<dyn RxQueue>>,
    pub tx: Vec<Box<dyn TxQueue>>,
    pub path: PathBuf,
}

impl Victim {
    pub fn new(dir: &std::path::Path, name: &str) -> Victim {
        let spec =
            PortSpec::new(name, "dpdkvhostuser", PortNo(1)).with("vhost-sock-dir", dir.to_str().unwrap());
        let mut port = VhostUserPort::open(&spec).unwrap();
        let (rx, tx) = (port.take_rx_queues(), port.take_tx_queues(1));
        Victim { port, rx, tx, path: dir.join(name) }
    }

    /// With a directory and a pool of its own.
    pub fn alone() -> (tempfile::TempDir, PoolCache, Victim) {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let victim = Victim::new(dir.path(), "victim");
        (dir, pool.cache(), victim)
    }

    /// What a worker does, for a while: receives, sends, sleeps.
    fn work(&mut self, cache: &mut PoolCache) {
        for _ in 0..50 {
            let mut batch = Batch::new();
            self.rx[0].rx_burst(cache, &mut batch);
            cache.free_all(&mut batch);
            for len in [60, 1500] {
                batch.push(cache.alloc_frame(&vec![0x55; len]).unwrap());
            }
            self.tx[0].tx_burst(cache, &mut batch);
            cache.free_all(&mut batch);
            self.tx[0].flush(cache);
            self.rx[0].arm();
            self.rx[0].disarm();
        }
    }
}

/// What an attack has in its hands: a guest that was set up honestly.
pub struct Attacker<'a> {
    pub guest: &'a mut Guest,
    pub ram: Arc<GuestRam>,
    size: u16,
    /// Places in its memory of the transmit ring's (ring 1) and receive ring's (ring 0) parts.
    pub tx: [usize; 3],
    pub rx: [usize; 3],
    /// A place that no ring and no buffer on offer uses: as many buffers long as the receive ring has.
    pub spare: usize,
}

impl Attacker<'_> {
    pub fn new(guest: &mut Guest, size: u16) -> Attacker<'_> {
        let place = |side: &crate::Side| [side.ring.descriptors, side.ring.avail, side.ring.used];
        let pair = &guest.pairs[0];
        let (ram, tx, rx, spare) = (pair.ram.clone(), place(&pair.tx), place(&pair.rx), pair.free[0] - LEAD);
        Attacker { guest, ram, size, tx, rx, spare }
    }

    /// Writes a descriptor of a table.
    pub fn descriptor(&self, table: usize, idx: u16, guest: u64, len: u32, words: [u16; 2]) {
        let at = table + usize::from(idx) * 16;
        self.ram.u64(at).store(guest, Relaxed);
        self.ram.u32(at + 8).store(len, Relaxed);
        self.ram.u16(at + 12).store(words[0], Relaxed);
        self.ram.u16(at + 14).store(words[1], Relaxed);
    }

    /// Makes a head of a split ring available.
    pub fn avail(&self, ring: [usize; 3], head: u16) {
        let idx = self.ram.u16(ring[1] + 2).load(Relaxed);
        self.ram.u16(ring[1] + 4 + 2 * usize::from(idx & (self.size - 1))).store(head, Relaxed);
        self.ram.u16(ring[1] + 2).store(idx.wrapping_add(1), std::sync::atomic::Ordering::Release);
    }

    /// Offers one split descriptor for transmission.
    fn offer(&self, guest: u64, len: u32, flags: u16) {
        self.descriptor(self.tx[0], 0, guest, len, [flags, 0]);
        self.avail(self.tx, 0);
    }

    /// Offers one packed descriptor for transmission, the first of the ring.
    fn offer_packed(&self, guest: u64, len: u32, flags: u16) {
        self.descriptor(self.tx[0], 0, guest, len, [0, flags | 1 << 7]);
    }

    pub fn say(&mut self, request: u32, payload: &[u8]) {
        // The switch may well have closed the connection before it answers.
        let _ = self.guest.front_end.say(request, payload, &[]);
    }

    pub fn say_with(&mut self, request: u32, payload: &[u8], fds: &[BorrowedFd<'_>]) {
        let _ = self.guest.front_end.say(request, payload, fds);
    }

    fn mem_table(&mut self, regions: &[Region]) {
        let mut payload = (regions.len() as u64).to_le_bytes().to_vec();
        for region in regions {
            payload.extend_from_slice(&region.encode());
        }
        let ram = self.ram.clone();
        self.say_with(request::SET_MEM_TABLE, &payload, &vec![ram.fd().as_fd(); regions.len()]);
    }

    /// Adds the guest's region once more, of this memory.
    fn add_again(&mut self, ram: &GuestRam) {
        let region = Region { guest: GUEST_BASE, len: self.ram.len(), user: self.ram.user(0), offset: 0 };
        let mut payload = [0u8; 8].to_vec();
        payload.extend_from_slice(&region.encode());
        self.say_with(request::ADD_MEM_REG, &payload, &[ram.fd().as_fd()]);
    }

    /// Adds regions of a file in memory of which nothing exists but its length.
    fn add_sparse(&mut self, lens: &[u64]) {
        let fd = memfd_create("sparse", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, lens.iter().copied().max().unwrap_or(0)).unwrap();
        for (n, &len) in (1..).zip(lens) {
            let mut payload = [0u8; 8].to_vec();
            payload.extend_from_slice(&Region { guest: n << 50, len, user: n << 50, offset: 0 }.encode());
            self.say_with(request::ADD_MEM_REG, &payload, &[fd.as_fd()]);
        }
    }

    /// Has the switch log what it writes to the used part of the receive ring, at the end of all addresses.
    fn log_at_the_end(&mut self) {
        let payload = [[0, 0, 1, 0, 0, 0, 0, 0], [0; 8]].concat();
        let ram = self.ram.clone();
        self.say_with(request::SET_LOG_BASE, &payload, &[ram.fd().as_fd()]);
        let [desc, avail, used] = self.rx.map(|at| ram.user(at));
        let addr = VringAddr { index: 0, is_logged: true, desc, used, avail, log: u64::MAX - 1 };
        self.say(request::SET_VRING_ADDR, &addr.encode());
        self.guest.synchronise().unwrap();
    }

    fn ring_addr(&mut self, index: u32, desc: u64, avail: u64, used: u64) {
        let addr = VringAddr { index, is_logged: false, desc, used, avail, log: 0 };
        self.say(request::SET_VRING_ADDR, &addr.encode());
    }
}

/// What is to become of the port.
enum Outcome {
    /// The guest is disconnected for a reason that contains this.
    Disabled(&'static str),
    /// It is not: what the guest did only wastes its own packets.
    Survives,
}
use Outcome::{Disabled, Survives};

type Attack = (&'static str, Outcome, fn(&mut Attacker));

fn run(layout: RingLayout, attacks: &[Attack]) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    let config = GuestConfig {
        layout,
        ring_size: 64,
        features: d::MRG_RXBUF | d::INDIRECT_DESC | d::LOG_ALL,
        ..GuestConfig::default()
    };
    let mut other = Victim::new(dir.path(), "other");
    let mut honest = Guest::connect(&other.path, &config).unwrap();
    let mut honest_pair = honest.take_pairs().remove(0);
    let mut victim = Victim::new(dir.path(), "victim");
    for (name, outcome, attack) in attacks {
        let mut guest = Guest::connect(&victim.path, &config).unwrap();
        guest.synchronise().unwrap();
        victim.work(&mut cache);
        attack(&mut Attacker::new(&mut guest, config.ring_size));
        let start = Instant::now();
        let is_disabled = |port: &VhostUserPort| port.status().error.is_some();
        match outcome {
            Disabled(reason) => {
                while !is_disabled(&victim.port) {
                    victim.work(&mut cache);
                    assert!(start.elapsed() < Duration::from_secs(5), "{name}: the guest was not disabled");
                }
                let status = victim.port.status();
                let why = status.error.unwrap();
                assert!(why.contains(reason), "{name}: {why}");
                assert_eq!(status.link, LinkState::Down, "{name}");
            }
            Survives => {
                // A fault that the worker finds is told a little later.
                for _ in 0..3 {
                    victim.work(&mut cache);
                    std::thread::sleep(Duration::from_millis(5));
                    let error = victim.port.status().error;
                    assert_eq!(error, None, "{name}");
                }
            }
        }
        victim.work(&mut cache);
        // The other port has seen nothing of it.
        assert!(honest_pair.send(&[0x77; 60]), "{name}");
        let mut batch = Batch::new();
        other.rx[0].rx_burst(&mut cache, &mut batch);
        assert_eq!(batch.len(), 1, "{name}");
        cache.free_all(&mut batch);
        drop(guest);
        // The next guest is served.
        let mut next = Guest::connect(&victim.path, &config).unwrap();
        next.synchronise().unwrap();
        let mut pair = next.take_pairs().remove(0);
        assert!(pair.send(&[0x66; 60]), "{name}");
        while batch.is_empty() {
            victim.rx[0].rx_burst(&mut cache, &mut batch);
            assert!(start.elapsed() < Duration::from_secs(10), "{name}: the next guest is not served");
        }
        assert_eq!(batch[0].data(), [0x66; 60], "{name}");
        cache.free_all(&mut batch);
        drop((pair, next));
        // Between guests: wait until this one is known to have gone, so that its end is not taken for the
        // next one's.
        while victim.port.status().link == LinkState::Up {
            assert!(start.elapsed() < Duration::from_secs(10), "{name}");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(pool.stats().free, 2048, "{name}: chunks were lost");
    }
}

#[test]
fn attacks_on_split_rings_cost_their_own_port_alone() {
    run(
        RingLayout::Split,
        &[
            ("available index far ahead", Disabled("further ahead"), |a| {
                a.ram.u16(a.tx[1] + 2).store(40_000, Relaxed);
            }),
            ("available index behind", Disabled("further ahead"), |a| {
                let idx = a.ram.u16(a.tx[1] + 2).load(Relaxed);
                a.ram.u16(a.tx[1] + 2).store(idx.wrapping_sub(1), Relaxed);
            }),
            ("head outside the table", Disabled("outside the table"), |a| a.avail(a.tx, 64)),
            ("next outside the table", Disabled("outside the table"), |a| {
                a.descriptor(a.tx[0], 0, GUEST_BASE, 60, [NEXT, 999]);
                a.avail(a.tx, 0);
            }),
            ("chain that points at itself", Disabled("never ends"), |a| {
                a.descriptor(a.tx[0], 0, GUEST_BASE, 60, [NEXT, 0]);
                a.avail(a.tx, 0);
            }),
            ("chain of two that goes round", Disabled("never ends"), |a| {
                a.descriptor(a.tx[0], 0, GUEST_BASE, 60, [NEXT, 1]);
                a.descriptor(a.tx[0], 1, GUEST_BASE, 60, [NEXT, 0]);
                a.avail(a.tx, 0);
            }),
            ("buffer below memory", Disabled("outside the guest's memory"), |a| a.offer(0, 100, 0)),
            ("buffer beyond memory", Disabled("outside the guest's memory"), |a| {
                a.offer(GUEST_BASE + a.ram.len() - 10, 100, 0);
            }),
            ("buffer that wraps around", Disabled("outside the guest's memory"), |a| {
                a.offer(u64::MAX - 20, 100, 0);
            }),
            ("length of 4 GB", Disabled("outside the guest's memory"), |a| a.offer(GUEST_BASE, u32::MAX, 0)),
            ("buffer to write in the transmit ring", Disabled("other direction"), |a| {
                a.offer(GUEST_BASE, 100, WRITE);
            }),
            ("buffer to read in the receive ring", Disabled("other direction"), |a| {
                for idx in 0..64 {
                    a.descriptor(a.rx[0], idx, GUEST_BASE, 100, [0, 0]);
                    a.avail(a.rx, idx);
                }
            }),
            ("frame without a header", Survives, |a| a.offer(GUEST_BASE, 5, 0)),
            ("frame of nothing", Survives, |a| a.offer(GUEST_BASE, 12, 0)),
            ("frame of no length at all", Survives, |a| a.offer(GUEST_BASE, 0, 0)),
            ("frame longer than any", Survives, |a| a.offer(GUEST_BASE, 200_000, 0)),
            ("header that points outside the frame", Survives, |a| {
                a.ram.buffer_mut(a.spare, 12).copy_from_slice(&[1, 1, 0, 0, 9, 0, 255, 255, 255, 0, 0, 0]);
                a.offer(GUEST_BASE + a.spare as u64, 112, 0);
            }),
            ("indirect table of a crooked length", Disabled("indirect table of a wrong length"), |a| {
                a.offer(GUEST_BASE, 17, INDIRECT);
            }),
            ("indirect table longer than the ring", Disabled("indirect table of a wrong length"), |a| {
                a.offer(GUEST_BASE, 16 * 65, INDIRECT);
            }),
            ("indirect table outside memory", Disabled("indirect table outside"), |a| {
                a.offer(GUEST_BASE + a.ram.len(), 16, INDIRECT);
            }),
            ("indirect table within another", Disabled("within another"), |a| {
                a.descriptor(a.spare, 0, GUEST_BASE, 16, [INDIRECT, 0]);
                a.offer(GUEST_BASE + a.spare as u64, 16, INDIRECT);
            }),
            ("indirect table that a descriptor follows", Disabled("that a descriptor follows"), |a| {
                a.descriptor(a.spare, 0, GUEST_BASE, 16, [0, 0]);
                a.offer(GUEST_BASE + a.spare as u64, 16, INDIRECT | NEXT);
            }),
            ("buffer of no bytes outside memory", Disabled("outside the guest's memory"), |a| {
                a.offer(7, 0, 0)
            }),
            ("indirect chain that goes round", Disabled("never ends"), |a| {
                a.descriptor(a.spare, 0, GUEST_BASE, 16, [NEXT, 0]);
                a.offer(GUEST_BASE + a.spare as u64, 32, INDIRECT);
            }),
            ("indirect table at an odd address", Survives, |a| {
                // Three bytes further on, this is a buffer of 16 bytes at the start of the memory.
                a.descriptor(a.spare, 0, GUEST_BASE << 24, 16 << 24, [0, 0]);
                a.offer(GUEST_BASE + a.spare as u64 + 3, 16, INDIRECT);
            }),
            ("indirect table of zeros", Disabled("outside the guest's memory"), |a| {
                a.offer(GUEST_BASE + a.spare as u64 + 3, 16, INDIRECT);
            }),
            ("receive buffers of one byte", Disabled("shorter than a header"), |a| {
                for idx in 0..64 {
                    a.descriptor(a.rx[0], idx, GUEST_BASE + a.spare as u64, 1, [WRITE, 0]);
                    a.avail(a.rx, idx);
                }
            }),
            ("receive buffers over the rings themselves", Survives, |a| {
                for idx in 0..64 {
                    a.descriptor(a.rx[0], idx, GUEST_BASE + a.rx[2] as u64, BUFFER as u32, [WRITE, 0]);
                    a.avail(a.rx, idx);
                }
            }),
            ("ring that is logged at the end of all addresses", Survives, |a| a.log_at_the_end()),
            ("ring outside memory", Disabled("ring outside"), |a| a.ring_addr(1, 0x1000, 0x2000, 0x3000)),
            ("ring across the end of memory", Disabled("ring outside"), |a| {
                let end = a.ram.user(0) + a.ram.len();
                a.ring_addr(1, end - 16, end - 64, end - 64);
            }),
            ("ring at an odd address", Disabled("not aligned"), |a| {
                let at = a.ram.user(0);
                a.ring_addr(1, at + 1, at + 4097, at + 8193);
            }),
        ],
    );
}

#[test]
fn attacks_on_packed_rings_cost_their_own_port_alone() {
    run(
        RingLayout::Packed,
        &[
            ("chain that never ends", Disabled("never ends"), |a| {
                for idx in 0..64 {
                    a.descriptor(a.tx[0], idx, GUEST_BASE, 60, [0, NEXT | 1 << 7]);
                }
            }),
            ("buffer outside memory", Disabled("outside the guest's memory"), |a| a.offer_packed(7, 100, 0)),
            ("buffer to write in the transmit ring", Disabled("other direction"), |a| {
                a.offer_packed(GUEST_BASE, 100, WRITE);
            }),
            ("indirect table of a crooked length", Disabled("indirect table of a wrong length"), |a| {
                a.offer_packed(GUEST_BASE, 3, INDIRECT);
            }),
            ("indirect table outside memory", Disabled("indirect table outside"), |a| {
                a.offer_packed(GUEST_BASE - 16, 32, INDIRECT);
            }),
            ("indirect table within another", Disabled("within another"), |a| {
                a.descriptor(a.spare, 0, GUEST_BASE, 16, [0, INDIRECT]);
                a.offer_packed(GUEST_BASE + a.spare as u64, 16, INDIRECT);
            }),
            ("indirect table that a descriptor follows", Disabled("that a descriptor follows"), |a| {
                a.descriptor(a.spare, 0, GUEST_BASE, 16, [0, 0]);
                a.offer_packed(GUEST_BASE + a.spare as u64, 16, INDIRECT | NEXT);
            }),
            ("buffer of no bytes outside memory", Disabled("outside the guest's memory"), |a| {
                a.offer_packed(7, 0, 0);
            }),
            ("number of a buffer that does not exist", Survives, |a| {
                a.descriptor(a.tx[0], 0, GUEST_BASE, 100, [60_000, 1 << 7]);
            }),
            ("frame without a header", Survives, |a| a.offer_packed(GUEST_BASE, 5, 0)),
            ("ring that is logged at the end of all addresses", Survives, |a| a.log_at_the_end()),
            ("event areas full of ones", Survives, |a| {
                a.ram.u32(a.tx[1]).store(u32::MAX, Relaxed);
                a.ram.u32(a.rx[1]).store(0x0002_ffff, Relaxed);
            }),
            ("start beyond the ring's end", Disabled("beyond its end"), |a| {
                a.guest.front_end.say_state(request::SET_VRING_BASE, 1, 64).unwrap_err();
            }),
        ],
    );
}

/// Held by tests with guests that take more addresses than others would leave them.
static ADDRESSES: Mutex<()> = Mutex::new(());

#[test]
fn guests_that_take_all_the_memory_they_can_leave_enough_for_one_more() {
    let _alone = ADDRESSES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let dir = tempfile::tempdir().unwrap();
    let config = GuestConfig { ring_size: 64, ..GuestConfig::default() };
    let (mut ports, mut guests) = (Vec::new(), Vec::new());
    // Half of what one may have, less what it has already, as often as it is granted, and ever less.
    for shift in [43, 43, 43, 43, 42, 41, 40, 38, 36, 34, 32, 30, 28, 26, 25, 24, 23, 22] {
        let port = Victim::new(dir.path(), &format!("port{}", ports.len()));
        let mut guest = Guest::connect(&port.path, &config).unwrap();
        guest.synchronise().unwrap();
        let mut attacker = Attacker::new(&mut guest, config.ring_size);
        let half = (1u64 << shift).saturating_sub(attacker.ram.len()).max(4096);
        attacker.add_sparse(&[half, 1 << shift]);
        let _ = guest.synchronise();
        ports.push(port);
        guests.push(guest);
    }
    let port = Victim::new(dir.path(), "port");
    let mut honest = Guest::connect(&port.path, &config).unwrap();
    honest.synchronise().unwrap();
    assert_eq!((port.port.status().error, port.port.status().link), (None, LinkState::Up));
}

#[test]
fn attacks_by_messages_cost_their_own_port_alone() {
    let _alone = ADDRESSES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    run(
        RingLayout::Split,
        &[
            ("a wrong version", Disabled("version 2"), |a| {
                let mut bytes = encode(request::GET_FEATURES, false, false, &[]);
                bytes[4] = 2;
                a.guest.front_end.send(&bytes, &[]).unwrap();
            }),
            ("a payload of 4 GB", Disabled("4294967295 bytes"), |a| {
                let mut bytes = encode(request::SET_FEATURES, false, false, &[]);
                bytes[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
                a.guest.front_end.send(&bytes, &[]).unwrap();
            }),
            ("a payload that is cut short", Disabled("payload of 7 bytes"), |a| {
                a.say(request::SET_FEATURES, &[0; 7]);
            }),
            ("half a message, and then nothing", Survives, |a| {
                let bytes = encode(request::SET_FEATURES, false, false, &[0; 8]);
                a.guest.front_end.send(&bytes[..9], &[]).unwrap();
            }),
            ("a request that nobody knows", Survives, |a| a.say(250, &[1, 2, 3])),
            ("features that were not offered", Disabled("not offered"), |a| {
                a.say(request::SET_FEATURES, &u64::MAX.to_le_bytes());
            }),
            ("protocol features that were not offered", Disabled("not offered"), |a| {
                a.say(request::SET_PROTOCOL_FEATURES, &u64::MAX.to_le_bytes());
            }),
            ("a ring that does not exist", Disabled("beyond the last"), |a| {
                let _ = a.guest.front_end.say_state(request::SET_VRING_ENABLE, 5_000, 1);
            }),
            ("a ring of no descriptors", Disabled("no possible size"), |a| {
                let _ = a.guest.front_end.say_state(request::SET_VRING_NUM, 1, 0);
            }),
            ("a ring of too many descriptors", Disabled("no possible size"), |a| {
                let _ = a.guest.front_end.say_state(request::SET_VRING_NUM, 1, 65_536);
            }),
            ("a ring whose size is not a power of two", Disabled("not a power of two"), |a| {
                let _ = a.guest.front_end.say_state(request::SET_VRING_NUM, 1, 63);
            }),
            ("memory without descriptors", Disabled("0 file descriptors"), |a| {
                let mut payload = 1u64.to_le_bytes().to_vec();
                payload.extend_from_slice(&Region { guest: 0, len: 4096, user: 0, offset: 0 }.encode());
                a.say(request::SET_MEM_TABLE, &payload);
            }),
            ("descriptors that nobody asked for", Disabled("1 file descriptors"), |a| {
                let ram = a.ram.clone();
                let fd = ram.fd().as_fd();
                a.say_with(request::SET_OWNER, &[], &[fd]);
            }),
            ("nine regions in a table of eight", Disabled("payload"), |a| {
                a.say(request::SET_MEM_TABLE, &9u64.to_le_bytes());
            }),
            ("regions that overlap", Disabled("overlap"), |a| {
                let region = Region { guest: 0, len: 8192, user: 0, offset: 0 };
                a.mem_table(&[region, Region { guest: 4096, user: 1 << 40, ..region }]);
            }),
            ("a region that wraps around", Disabled("wraps around"), |a| {
                a.mem_table(&[Region { guest: u64::MAX - 100, len: 4096, user: 0, offset: 0 }]);
            }),
            ("a region longer than its file", Disabled("in a file of"), |a| {
                let len = a.ram.len() + 4096;
                a.mem_table(&[Region { guest: 0, len, user: 0, offset: 0 }]);
            }),
            ("a region beyond its file", Disabled("in a file of"), |a| {
                let offset = a.ram.len();
                a.mem_table(&[Region { guest: 0, len: 4096, user: 0, offset }]);
            }),
            ("a region of no length", Disabled("wraps around"), |a| {
                a.mem_table(&[Region { guest: 0, len: 0, user: 0, offset: 0 }]);
            }),
            ("memory taken away under the rings", Disabled("ring outside"), |a| a.mem_table(&[])),
            ("a region removed that was never added", Survives, |a| {
                let mut payload = [0u8; 8].to_vec();
                payload.extend_from_slice(&Region { guest: 1, len: 2, user: 3, offset: 4 }.encode());
                a.say(request::REM_MEM_REG, &payload);
            }),
            ("a region added again", Survives, |a| {
                a.add_again(&a.ram.clone());
                a.guest.synchronise().unwrap();
            }),
            ("a region added again, of another file", Disabled("overlap"), |a| {
                a.add_again(&GuestRam::new(a.ram.len() as usize).unwrap());
            }),
            ("a dirty log longer than its file", Disabled("in a file of"), |a| {
                let mut payload = u64::MAX.to_le_bytes().to_vec();
                payload[7] = 0x0f;
                payload.extend_from_slice(&[0; 8]);
                let ram = a.ram.clone();
                let fd = ram.fd().as_fd();
                a.say_with(request::SET_LOG_BASE, &payload, &[fd]);
            }),
            ("all addresses that the switch has, at once", Disabled("more than 16 TB"), |a| {
                a.add_sparse(&[1 << 46]);
            }),
            ("all addresses that the switch has, bit by bit", Disabled("more than 16 TB"), |a| {
                a.add_sparse(&[1 << 43; 3]);
            }),
            ("memory in a file on a disk", Disabled("only memfd, tmpfs and hugetlbfs"), |a| {
                let file = File::open(std::env::current_exe().unwrap()).unwrap();
                let mut payload = 1u64.to_le_bytes().to_vec();
                payload.extend_from_slice(&Region { guest: 0, len: 4096, user: 0, offset: 0 }.encode());
                a.say_with(request::SET_MEM_TABLE, &payload, &[file.as_fd()]);
            }),
            ("more memory, in a file on a disk", Disabled("only memfd, tmpfs and hugetlbfs"), |a| {
                let file = File::open(std::env::current_exe().unwrap()).unwrap();
                let mut payload = [0u8; 8].to_vec();
                payload.extend_from_slice(&Region { guest: 0, len: 4096, user: 0, offset: 0 }.encode());
                a.say_with(request::ADD_MEM_REG, &payload, &[file.as_fd()]);
            }),
            ("a dirty log that is made up as it is read", Disabled("only memfd, tmpfs and hugetlbfs"), |a| {
                let file = File::open("/proc/self/status").unwrap();
                let mut payload = 4096u64.to_le_bytes().to_vec();
                payload.extend_from_slice(&[0; 8]);
                a.say_with(request::SET_LOG_BASE, &payload, &[file.as_fd()]);
            }),
            ("requests in flight, of which it knows nothing, in a file on a disk", Survives, |a| {
                const SET_INFLIGHT_FD: u32 = 32;
                let file = File::open(std::env::current_exe().unwrap()).unwrap();
                a.say_with(SET_INFLIGHT_FD, &[0; 24], &[file.as_fd()]);
            }),
            ("a file for a channel", Disabled("not a Unix socket"), |a| {
                let file = tempfile::tempfile().unwrap();
                a.say_with(request::SET_BACKEND_REQ_FD, &[], &[file.as_fd()]);
            }),
            ("a file for a notifier", Disabled("not an eventfd"), |a| {
                let file = tempfile::tempfile().unwrap();
                a.say_with(request::SET_VRING_KICK, &1u64.to_le_bytes(), &[file.as_fd()]);
            }),
            ("a reset in the middle of it all", Survives, |a| a.say(request::RESET_DEVICE, &[])),
            ("rings enabled and disabled a thousand times", Survives, |a| {
                for n in 0..1000 {
                    a.guest.front_end.say_state(request::SET_VRING_ENABLE, n % 2, n / 2 % 2).unwrap();
                }
            }),
            ("memory that is cut off under us", Disabled("vanished"), |a| {
                // This process touches that memory no more.
                rustix::fs::ftruncate(a.ram.fd(), 0).unwrap();
            }),
        ],
    );
}

#[test]
fn a_guest_that_stops_one_pair_of_two_is_still_connected() {
    let dir = tempfile::tempdir().unwrap();
    let port = Victim::new(dir.path(), "port");
    let config = GuestConfig { pairs: 2, ..GuestConfig::default() };
    let mut guest = Guest::connect(&port.path, &config).unwrap();
    guest.synchronise().unwrap();
    let is_connected =
        || port.port.status().details.contains(&("status".to_string(), "connected".to_string()));
    for (ring, is_left) in [(2, true), (3, true), (0, false)] {
        guest.front_end.stop_ring(ring).unwrap();
        assert_eq!(is_connected(), is_left, "ring {ring} has stopped");
        assert_eq!(port.port.status().link == LinkState::Up, is_left);
    }
}

#[test]
fn a_guest_that_was_disconnected_does_not_wake_its_ports_worker_any_more() {
    let (_dir, mut cache, mut victim) = Victim::alone();
    let config = GuestConfig { ring_size: 64, ..GuestConfig::default() };
    let watched = format!("/proc/self/fdinfo/{}", victim.rx[0].wait_fd().unwrap());
    let watches = || std::fs::read_to_string(&watched).unwrap().matches("tfd:").count();
    let unused = watches();
    let mut kicks = Vec::new();
    for n in 0..5 {
        let mut guest = Guest::connect(&victim.path, &config).unwrap();
        guest.synchronise().unwrap();
        assert_eq!(watches(), unused + 1, "guest {n}");
        // What the kernel watches is gone when its last owner closes it: this one never does.
        kicks.push(guest.pairs[0].tx.kick.try_clone().unwrap());
        let attacker = Attacker::new(&mut guest, config.ring_size);
        attacker.ram.u16(attacker.tx[1] + 2).store(40_000, Relaxed);
        victim.work(&mut cache);
        wait_for("the guest to be disconnected", || !guest.is_connected());
        assert_eq!(watches(), unused, "guest {n}");
    }
}

#[test]
fn packets_for_a_guest_that_was_disconnected_are_dropped_at_once() {
    let (_dir, mut cache, mut victim) = Victim::alone();
    let config = GuestConfig { ring_size: 64, ..GuestConfig::default() };
    let mut guest = Guest::connect(&victim.path, &config).unwrap();
    // Its receive ring is the only one, and faulty.
    guest.front_end.enable_ring(1, false).unwrap();
    let attacker = Attacker::new(&mut guest, config.ring_size);
    attacker.ram.u16(attacker.rx[1] + 2).store(40_000, Relaxed);
    victim.work(&mut cache);
    wait_for("the guest to be disconnected", || !guest.is_connected());
    let before = victim.port.stats().tx_dropped;
    let mut batch = Batch::from_iter([cache.alloc_frame(&[0x55; 60]).unwrap()]);
    victim.tx[0].tx_burst(&mut cache, &mut batch);
    assert_eq!((batch.len(), victim.port.stats().tx_dropped - before), (0, 1));
}
