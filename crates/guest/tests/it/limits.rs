//! What a guest can make the switch hold and do with segments to be cut up, while another guest does not
//! read.

use base::PortNo;
use guest::{Guest, GuestConfig, QueuePair};
use packet::{Batch, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use ports::virtio_net::{MSS_MIN, SEGMENTS_MAX};
use std::path::Path;

const CHUNKS: usize = 16 * 1024;
const CHUNK_BYTES: usize = 2048;
/// What packets that wait at one port may hold.
const QUOTA: usize = CHUNKS / 16;
/// Workers that send to the guest which does not read.
const WORKERS: usize = 8;
const HEADERS: usize = 54;

/// A port with its guest.
struct End {
    port: VhostUserPort,
    rx: Box<dyn RxQueue>,
    tx: Vec<Box<dyn TxQueue>>,
    _guest: Guest,
    pair: QueuePair,
}

impl End {
    fn new(dir: &Path, name: &str) -> End {
        let spec = PortSpec::new(name, "dpdkvhostuser", PortNo(1));
        let mut port = VhostUserPort::open(&spec.with("vhost-sock-dir", dir.to_str().unwrap())).unwrap();
        let mut guest = Guest::connect(&dir.join(name), &GuestConfig::default()).unwrap();
        guest.synchronise().unwrap();
        let (rx, tx) = (port.take_rx_queues().remove(0), port.take_tx_queues(WORKERS));
        let pair = guest.take_pairs().remove(0);
        End { port, rx, tx, _guest: guest, pair }
    }
}

/// A TCP packet over IPv4 of `len` bytes, with its virtio-net header: to be cut into segments of `gso_size`.
fn segment(len: usize, gso_size: usize) -> ([u8; 12], Vec<u8>) {
    let mut frame = vec![0x5a; len];
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    frame[20..24].copy_from_slice(&[0, 0, 64, 6]);
    frame[46] = 0x50;
    let mut header = [0; 12];
    (header[0], header[1], header[6], header[8]) = (1, 1, 34, 16);
    header[4..6].copy_from_slice(&(gso_size as u16).to_ne_bytes());
    (header, frame)
}

/// What comes from `from` goes to one of the transmit queues of `to`.
fn forward(cache: &mut PoolCache, from: &mut End, to: &mut dyn TxQueue) -> usize {
    let mut batch = Batch::new();
    from.rx.rx_burst(cache, &mut batch);
    let received = batch.len();
    to.tx_burst(cache, &mut batch);
    to.flush(cache);
    // The worker drops what a port does not take.
    cache.free_all(&mut batch);
    received
}

#[test]
fn segments_for_a_guest_that_does_not_read_hold_no_more_than_its_share_of_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let [mut attacker, mut deaf, mut sender, mut neighbour] =
        ["attacker", "deaf", "sender", "neighbour"].map(|name| End::new(dir.path(), name));
    let longest = 65_535;
    // Each size is cut into as many frames as the limit allows, or far beyond it.
    let sizes = [1, MSS_MIN - 1, MSS_MIN, 255, 260, 1448];
    let mut refused = (0, 0);
    for round in 0..40 {
        for gso_size in sizes {
            for worker in 0..WORKERS {
                let (header, frame) = segment(longest, gso_size);
                assert!(attacker.pair.send_with_header(&header, &frame));
                forward(&mut cache, &mut attacker, &mut *deaf.tx[worker]);
            }
            let payload_frames = longest.div_ceil(gso_size);
            refused.0 += u64::from(gso_size < MSS_MIN) * WORKERS as u64;
            refused.1 += u64::from(gso_size >= MSS_MIN && payload_frames > SEGMENTS_MAX) * WORKERS as u64;
            let held = CHUNKS - pool.stats().free;
            assert!(held <= QUOTA, "round {round}, gso_size {gso_size}: {held} chunks wait at one port");
            // A neighbour notices nothing.
            let frames: Vec<Vec<u8>> = (0..32u8).map(|n| vec![n; 1514]).collect();
            assert_eq!(sender.pair.send_all(frames.iter().map(Vec::as_slice)), 32);
            assert_eq!(forward(&mut cache, &mut sender, &mut *neighbour.tx[0]), 32);
            let mut received = Vec::new();
            neighbour.pair.receive(64, |frame| received.push(frame.to_vec()));
            assert!(received == frames, "round {round}, gso_size {gso_size}: {} frames", received.len());
        }
    }
    let (from, to) = (attacker.port.stats(), deaf.port.stats());
    assert_eq!((from.rx_gso_size_drops, from.rx_gso_segments_drops), refused);
    assert_eq!(from.rx_dropped, refused.0 + refused.1);
    assert!(to.tx_quota_drops > 0, "eight queues want more than the share: {to:?}");
    assert_eq!((to.tx_dropped, to.tx_errors), (to.tx_quota_drops, 0));
    // It reads at last, and gets whole frames.
    let mut frames = 0;
    for _ in 0..1000 {
        deaf.pair.receive(1024, |frame| {
            assert!((HEADERS + 1..=1514).contains(&frame.len()));
            frames += 1;
        });
        deaf.tx.iter_mut().for_each(|tx| tx.flush(&mut cache));
    }
    assert!(frames > SEGMENTS_MAX);
    assert_eq!(pool.stats().free, CHUNKS);
    // Its share is free again.
    let before = deaf.port.stats().tx_quota_drops;
    let (header, frame) = segment(longest, 1448);
    assert!(attacker.pair.send_with_header(&header, &frame));
    forward(&mut cache, &mut attacker, &mut *deaf.tx[0]);
    assert_eq!(deaf.port.stats().tx_quota_drops, before);
}

#[test]
fn many_guests_that_do_not_read_leave_the_others_their_part_of_the_pool() {
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let mut deaf: Vec<End> = (0..40).map(|n| End::new(dir.path(), &format!("deaf{n}"))).collect();
    let [mut attacker, mut neighbour] = ["attacker", "neighbour"].map(|name| End::new(dir.path(), name));
    let (header, frame) = segment(65_535, 1448);
    // Their rings are full, and frames that were cut wait for each of them in each worker.
    for _ in 0..12 {
        for end in &mut deaf {
            for tx in &mut end.tx {
                assert!(attacker.pair.send_with_header(&header, &frame));
                forward(&mut cache, &mut attacker, &mut **tx);
            }
        }
    }
    let held = CHUNKS - pool.stats().free;
    assert!(held <= CHUNKS / 4 * 3, "{held} of {CHUNKS} chunks wait");
    assert!(deaf.iter().all(|end| end.port.stats().tx_quota_drops > 0));
    // One that reads gets the same segment whole.
    assert!(attacker.pair.send_with_header(&header, &frame));
    forward(&mut cache, &mut attacker, &mut *neighbour.tx[0]);
    assert_eq!(neighbour.port.stats().tx_quota_drops, 0);
    let mut frames = 0;
    for _ in 0..100 {
        frames += neighbour.pair.receive(64, |_| ());
        neighbour.tx[0].flush(&mut cache);
    }
    assert_eq!(frames, (65_535usize - HEADERS).div_ceil(1448));
    for end in &mut deaf {
        end.tx.iter_mut().for_each(|tx| tx.close(&mut cache));
    }
    assert_eq!(pool.stats().free, CHUNKS);
}

#[test]
fn segments_that_cannot_be_cut_up_are_counted_and_cost_a_receiver_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let [mut attacker, mut victim] = ["attacker", "victim"].map(|name| End::new(dir.path(), name));
    let (header, frame) = segment(65_535, 1448);
    type Harm = fn(&mut [u8], &mut [u8; 12]);
    // Whether it is refused at once, since its checksum is not that of its own TCP header.
    let harms: [(&str, bool, Harm); 9] = [
        ("no network protocol", true, |frame, _| frame[12..14].copy_from_slice(&[0x88, 0xb5])),
        ("another transport protocol", true, |frame, _| frame[23] = 17),
        ("an unknown transport protocol", true, |frame, _| frame[23] = 99),
        ("a fragment", true, |frame, _| frame[20] = 0x20),
        ("a checksum elsewhere", true, |_, header| header[6] = 36),
        ("a header of UDP for one of TCP", true, |_, header| (header[1], header[8]) = (5, 6)),
        ("a length beyond its end", false, |frame, _| frame[16..18].fill(0xff)),
        ("a transport header that is too short", false, |frame, _| frame[46] = 0x40),
        ("no payload", false, |frame, _| frame[16..18].copy_from_slice(&[0, 40])),
    ];
    let times = CHUNKS as u64 / 16 / 30;
    for (name, is_refused, harm) in harms {
        let (mut header, mut frame) = (header, frame.clone());
        harm(&mut frame, &mut header);
        let before = (attacker.port.stats().rx_errors, victim.port.stats().tx_dropped);
        for _ in 0..times {
            assert!(attacker.pair.send_with_header(&header, &frame), "{name}");
            let received = forward(&mut cache, &mut attacker, &mut *victim.tx[0]);
            assert_eq!(received, usize::from(!is_refused), "{name}");
        }
        let stats = victim.port.stats();
        let counted = (attacker.port.stats().rx_errors - before.0, stats.tx_dropped - before.1);
        assert_eq!(counted, if is_refused { (times, 0) } else { (0, times) }, "{name}");
        assert_eq!((stats.tx_quota_drops, stats.tx_packets), (0, 0), "{name}");
    }
    assert!(attacker.pair.send_with_header(&header, &frame));
    forward(&mut cache, &mut attacker, &mut *victim.tx[0]);
    let mut frames = 0;
    for _ in 0..10 {
        frames += victim.pair.receive(64, |_| ());
        victim.tx[0].flush(&mut cache);
    }
    assert_eq!(frames, (65_535usize - HEADERS).div_ceil(1448));
    assert_eq!(pool.stats().free, CHUNKS);
}

#[test]
fn segments_that_become_frames_longer_than_the_mtu_are_counted_and_not_sent() {
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let [mut sender, mut receiver] = ["sender", "receiver"].map(|name| End::new(dir.path(), name));
    // The last of each is shorter: 5,946 bytes, 6,000, and 1,400.
    for (len, gso_size, frames) in [(60_000, 9_000, 0), (60_054, 9_000, 0), (HEADERS + 10_400, 9_000, 1)] {
        let (header, frame) = segment(len, gso_size);
        let dropped = receiver.port.stats().tx_mtu_drops;
        assert!(sender.pair.send_with_header(&header, &frame));
        forward(&mut cache, &mut sender, &mut *receiver.tx[0]);
        let mut received = Vec::new();
        receiver.pair.receive(64, |frame| received.push(frame.len()));
        assert!(received.len() == frames && received.iter().all(|len| *len <= 1514), "{received:?}");
        let stats = receiver.port.stats();
        assert_eq!(stats.tx_mtu_drops - dropped, ((len - HEADERS).div_ceil(gso_size) - frames) as u64);
        assert_eq!(stats.tx_quota_drops, 0);
    }
    assert_eq!(pool.stats().free, CHUNKS);
    // Nothing of its share is held.
    for _ in 0..20 {
        let (header, frame) = segment(65_535, 1448);
        assert!(sender.pair.send_with_header(&header, &frame));
        forward(&mut cache, &mut sender, &mut *receiver.tx[0]);
        receiver.pair.receive(64, |_| ());
    }
    assert_eq!(receiver.port.stats().tx_quota_drops, 0);
}

#[test]
fn segments_of_headers_that_fill_a_chunk_are_counted_after_a_tag_was_pushed() {
    const TAG: [u8; 4] = [0x81, 0, 0, 100];
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let [mut attacker, mut victim] = ["attacker", "victim"].map(|name| End::new(dir.path(), name));
    // IPv6 with 1,712 bytes of destination options: the payload begins 2 bytes before the chunk ends.
    let (options_len, l4) = (1712, 1766);
    let mut frame = vec![0; 3800];
    frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
    let payload_len = (frame.len() - 54) as u16;
    frame[18..20].copy_from_slice(&payload_len.to_be_bytes());
    (frame[20], frame[21]) = (60, 64);
    (frame[54], frame[55]) = (6, (options_len / 8 - 1) as u8);
    frame[l4 + 12] = 0x60;
    let mut header = [0; 12];
    (header[0], header[1], header[8]) = (1, 4, 16);
    header[4..6].copy_from_slice(&1000u16.to_ne_bytes());
    header[6..8].copy_from_slice(&(l4 as u16).to_ne_bytes());
    assert!(attacker.pair.send_with_header(&header, &frame));
    let mut batch = Batch::new();
    attacker.rx.rx_burst(&mut cache, &mut batch);
    assert_eq!((batch.len(), attacker.port.stats().rx_errors), (1, 0));
    // As the actions of a flow do, and a port with a tag.
    batch[0].push_front(TAG.len()).unwrap();
    batch[0].data_mut().copy_within(4..16, 0);
    batch[0].data_mut()[12..16].copy_from_slice(&TAG);
    batch[0].csum_start += TAG.len() as u16;
    victim.tx[0].tx_burst(&mut cache, &mut batch);
    let stats = victim.port.stats();
    assert_eq!((batch.len(), stats.tx_dropped, stats.tx_quota_drops, stats.tx_packets), (0, 1, 0, 0));
    assert_eq!(pool.stats().free, CHUNKS);
}

#[test]
fn a_queue_that_is_set_aside_or_dropped_gives_back_what_waits_in_it() {
    let dir = tempfile::tempdir().unwrap();
    let config = PoolConfig { chunks: CHUNKS, chunk_bytes: CHUNK_BYTES, huge_pages: false };
    let pool = Pool::new(config).unwrap();
    let mut cache = pool.cache();
    let [mut attacker, mut deaf] = ["attacker", "deaf"].map(|name| End::new(dir.path(), name));
    let (header, frame) = segment(65_535, 1448);
    let fill = |cache: &mut PoolCache, attacker: &mut End, to: &mut dyn TxQueue| {
        for _ in 0..12 {
            assert!(attacker.pair.send_with_header(&header, &frame));
            assert_eq!(forward(cache, attacker, to), 1);
        }
    };
    // Its ring is full, so nothing of the last segment has left.
    fill(&mut cache, &mut attacker, &mut *deaf.tx[0]);
    assert!(pool.stats().free < CHUNKS);
    // There are as many workers as before later.
    for _ in 0..2 {
        let dropped = deaf.port.stats().tx_dropped;
        deaf.tx[0].set_aside(&mut cache);
        assert_eq!(pool.stats().free, CHUNKS);
        assert!(deaf.port.stats().tx_dropped > dropped, "what waited is counted");
        fill(&mut cache, &mut attacker, &mut *deaf.tx[0]);
        assert!(pool.stats().free < CHUNKS, "it waits again");
    }
    // The port is deleted.
    let dropped = deaf.port.stats().tx_dropped;
    deaf.tx.clear();
    assert_eq!(pool.stats().free, CHUNKS);
    let stats = deaf.port.stats();
    assert!(stats.tx_dropped > dropped, "what waited is counted");
    assert_eq!(stats.tx_quota_drops, 0);
}
