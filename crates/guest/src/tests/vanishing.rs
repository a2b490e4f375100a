//! A guest that takes memory away of which one burst touches more pages than the process may have further
//! mappings.

use super::attacks::{Attacker, NEXT, Victim};
use crate::{Guest, GuestConfig};
use packet::{Batch, Port};
use ports::vhost_user::message::{Region, request};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use std::ffi::c_void;
use std::os::fd::AsFd;
use testkit::lab::wait_for;

const RING_SIZE: u16 = 4096;
/// Chains of one burst, and descriptors of each: none may be much longer.
const CHAINS: u16 = 3;
const CHAIN: u16 = 1000;
/// Mappings that the process can still have: fewer than if every page touched made two more.
const MAPPINGS_LEFT: usize = 3000;
const PAGE: usize = 4096;
/// Where the memory begins that will vanish.
const GUEST: u64 = 1 << 40;
/// Every other page is touched.
const STEP: u64 = 2 * 4096;

/// Mappings of single pages.
struct Mappings {
    start: *mut c_void,
    len: usize,
}

impl Mappings {
    /// As many as leave the process [`MAPPINGS_LEFT`].
    fn take() -> Mappings {
        let read = |path: &str| std::fs::read_to_string(path).unwrap();
        let most: usize = read("/proc/sys/vm/max_map_count").trim().parse().unwrap();
        let count = most.saturating_sub(MAPPINGS_LEFT + read("/proc/self/maps").lines().count());
        let len = count.max(1) * PAGE;
        let start = std::ptr::null_mut();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { mmap_anonymous(start, len, ProtFlags::empty(), MapFlags::PRIVATE) }.unwrap();
        for page in (1..count).step_by(2) {
            let at = start.wrapping_byte_add(page * PAGE);
            // SAFETY: a page of the new mapping, which nothing refers to.
            unsafe { mprotect(at, PAGE, MprotectFlags::READ) }.unwrap();
        }
        Mappings { start, len }
    }
}

impl Drop for Mappings {
    fn drop(&mut self) {
        // SAFETY: mapped in `take`, and nothing refers to it.
        unsafe { munmap(self.start, self.len) }.unwrap();
    }
}

#[test]
fn memory_that_vanishes_in_many_places_at_once_costs_its_guest_alone() {
    let (_dir, mut cache, mut port) = Victim::alone();
    let config = GuestConfig { ring_size: 64, tx_ring_size: Some(RING_SIZE), ..GuestConfig::default() };
    let mut guest = Guest::connect(&port.path, &config).unwrap();
    guest.synchronise().unwrap();
    let mut attacker = Attacker::new(&mut guest, RING_SIZE);
    let fd = memfd_create("vanishing", MemfdFlags::CLOEXEC).unwrap();
    let len = u64::from(CHAINS * CHAIN) * STEP;
    ftruncate(&fd, len).unwrap();
    let mut payload = vec![0; 8];
    payload.extend_from_slice(&Region { guest: GUEST, len, user: 1 << 50, offset: 0 }.encode());
    attacker.say_with(request::ADD_MEM_REG, &payload, &[fd.as_fd()]);
    attacker.guest.synchronise().unwrap();
    // One byte in each descriptor.
    for idx in 0..CHAINS * CHAIN {
        let next = if (idx + 1).is_multiple_of(CHAIN) { 0 } else { NEXT };
        attacker.descriptor(attacker.tx[0], idx, GUEST + u64::from(idx) * STEP, 1, [next, idx + 1]);
    }
    (0..CHAINS).for_each(|n| attacker.avail(attacker.tx, n * CHAIN));
    ftruncate(&fd, 0).unwrap();
    let _mappings = Mappings::take();
    let mut batch = Batch::new();
    port.rx[0].rx_burst(&mut cache, &mut batch);
    cache.free_all(&mut batch);
    wait_for("the guest to be disconnected", || {
        port.port.status().error.is_some_and(|why| why.contains("vanished"))
    });
    let pool = cache.pool().stats();
    assert_eq!(pool.free, pool.total);
}
