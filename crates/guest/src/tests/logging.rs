//! What the switch writes into a guest's memory while that is copied to another machine must be in the log.

use super::attacks::Victim;
use crate::memory::GUEST_BASE;
use crate::{Guest, GuestConfig, RingLayout};
use packet::{Batch, Pool, PoolConfig};
use ports::vhost_user::features::device as d;
use ports::vhost_user::message::{VringAddr, request};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const PAGE: usize = 4096;
/// Bytes of the log: a bit for each page of 32 GB.
const LOG_BYTES: usize = 1 << 20;

#[test]
fn every_page_that_the_switch_writes_is_in_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    for layout in [RingLayout::Split, RingLayout::Packed] {
        let mut victim = Victim::new(dir.path(), &format!("{layout:?}"));
        // Tables of several pages, so that the parts of a ring share none.
        let features = d::MRG_RXBUF | d::LOG_ALL;
        let config = GuestConfig { ring_size: 1024, layout, features, ..GuestConfig::default() };
        let mut guest = Guest::connect(&victim.path, &config).unwrap();
        let log = memfd_create("log", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&log, LOG_BYTES as u64).unwrap();
        let place = [LOG_BYTES as u64, 0].map(u64::to_le_bytes).concat();
        guest.front_end.say(request::SET_LOG_BASE, &place, &[log.as_fd()]).unwrap();
        let pair = &guest.pairs[0];
        let ram = pair.ram.clone();
        for (index, ring) in [(0, &pair.rx.ring), (1, &pair.tx.ring)] {
            let [desc, avail, used] = [ring.descriptors, ring.avail, ring.used].map(|at| ram.user(at));
            // QEMU names the used part whatever the layout is, and so for packed rings not what is written.
            let addr =
                VringAddr { index, is_logged: true, desc, used, avail, log: GUEST_BASE + ring.used as u64 };
            guest.front_end.say(request::SET_VRING_ADDR, &addr.encode(), &[]).unwrap();
        }
        guest.synchronise().unwrap();
        let log = std::fs::File::from(log);
        let mut pair = guest.take_pairs().remove(0);
        for burst in 0..40 {
            for len in [60, 600, 1514, 5000] {
                assert!(pair.send(&vec![0x77; len]));
            }
            let before = ram.buffer(0, ram.len() as usize).to_vec();
            log.write_all_at(&vec![0; LOG_BYTES], 0).unwrap();
            let mut batch = Batch::new();
            victim.rx[0].rx_burst(&mut cache, &mut batch);
            assert_eq!(batch.len(), 4);
            victim.tx[0].tx_burst(&mut cache, &mut batch);
            cache.free_all(&mut batch);
            victim.tx[0].flush(&mut cache);
            let mut bits = vec![0; LOG_BYTES];
            log.read_exact_at(&mut bits, 0).unwrap();
            let after = ram.buffer(0, ram.len() as usize);
            for (n, (old, new)) in before.chunks(PAGE).zip(after.chunks(PAGE)).enumerate() {
                let page = GUEST_BASE as usize / PAGE + n;
                let is_logged = bits[page / 8] & 1 << (page % 8) != 0;
                assert!(old == new || is_logged, "{layout:?}, burst {burst}: page {n} is not in the log");
            }
            let mut received = 0;
            received += pair.discard(64);
            assert!(received > 0);
        }
    }
}
