//! From guest to guest: a payload that is copied once, in whole frames and in order.

use crate::{Guest, GuestConfig, QueuePair, RingLayout};
use base::PortNo;
use packet::lent::HEAD_BYTES;
use packet::{Batch, Lent, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use ports::vhost_user::features::{self, device as d};
use std::path::Path;

pub const LAYOUTS: [RingLayout; 2] = [RingLayout::Split, RingLayout::Packed];
const CHUNKS: usize = 2048;

/// A guest and its port.
pub struct End {
    pub port: VhostUserPort,
    pub rx: Vec<Box<dyn RxQueue>>,
    pub tx: Vec<Box<dyn TxQueue>>,
    pub guest: Option<Guest>,
    pub pair: QueuePair,
}

impl End {
    pub fn new(dir: &Path, name: &str, config: &GuestConfig) -> End {
        let spec = PortSpec::new(name, "dpdkvhostuser", PortNo(1));
        let mut port = VhostUserPort::open(&spec.with("vhost-sock-dir", dir.to_str().unwrap())).unwrap();
        let mut guest = Guest::connect(&dir.join(name), config).unwrap();
        guest.synchronise().unwrap();
        port.set_mtu(9000).unwrap();
        let (rx, tx) = (port.take_rx_queues(), port.take_tx_queues(1));
        let pair = guest.take_pairs().remove(0);
        End { port, rx, tx, guest: Some(guest), pair }
    }

    pub fn received(&mut self) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.pair.receive(1024, |frame| frames.push(frame.to_vec()));
        frames
    }

    /// Frames that were sent and whose buffers the guest has not got back.
    pub fn on_offer(&mut self) -> usize {
        self.pair.reap();
        self.pair.tx.offered.iter().filter(|buffers| !buffers.is_empty()).count()
    }
}

/// Two guests, and what a worker between them has.
pub struct Pair {
    pub dir: tempfile::TempDir,
    pub pool: &'static Pool,
    pub cache: PoolCache,
    pub from: End,
    pub to: End,
}

/// Has each receiver copy what it can, and settles; what the receivers left stays.
fn copy_lent(ways: &mut [(&mut Box<dyn TxQueue>, &mut Batch)], cache: &mut PoolCache, mut lent: Lent<'_>) {
    let mut write = |(to, batch): &mut (&mut Box<dyn TxQueue>, &mut Batch)| {
        let written = to.tx_write(batch, &mut lent);
        lent.fetch_all(&mut batch[written..], cache);
        written
    };
    let written: Vec<usize> = ways.iter_mut().map(&mut write).collect();
    lent.settle();
    for ((to, batch), written) in ways.iter_mut().zip(written) {
        to.tx_publish();
        batch.drain(..written).for_each(|packet| cache.free(packet));
    }
}

impl Pair {
    pub fn new(config: &GuestConfig) -> Pair {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::new(PoolConfig { chunks: CHUNKS, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let (from, to) = (End::new(dir.path(), "from", config), End::new(dir.path(), "to", config));
        Pair { dir, pool, cache: pool.cache(), from, to }
    }

    /// One burst. How many packets had lent tails.
    pub fn forward(&mut self) -> usize {
        let Pair { cache, from, to, .. } = self;
        pass(cache, &mut from.rx[0], &mut to.tx[0], &mut || ())
    }

    /// The same, and `meanwhile` happens between reception and delivery.
    pub fn forward_while(&mut self, meanwhile: impl FnOnce(&mut End, &mut End)) -> usize {
        let Pair { cache, from, to, .. } = self;
        let (mut rx, mut tx) = (from.rx.remove(0), to.tx.remove(0));
        let mut meanwhile = Some(meanwhile);
        let mut once = || meanwhile.take().expect("one burst")(from, to);
        let lent = pass(cache, &mut rx, &mut tx, &mut once);
        (from.rx, to.tx) = (vec![rx], vec![tx]);
        lent
    }

    /// Ends it: no chunk is lost.
    pub fn end(self) {
        let Pair { pool, cache, .. } = self;
        drop(cache);
        assert_eq!(pool.stats().free, CHUNKS);
    }
}

fn pass(
    cache: &mut PoolCache,
    rx: &mut Box<dyn RxQueue>,
    to: &mut Box<dyn TxQueue>,
    meanwhile: &mut dyn FnMut(),
) -> usize {
    pass_to_all(cache, rx, std::slice::from_mut(to), meanwhile)
}

/// What a worker does: sends what comes from one guest to the others, to each all of it. `meanwhile` happens
/// between reception and delivery.
pub fn pass_to_all(
    cache: &mut PoolCache,
    rx: &mut Box<dyn RxQueue>,
    to: &mut [Box<dyn TxQueue>],
    meanwhile: &mut dyn FnMut(),
) -> usize {
    assert!(rx.lends());
    let mut batch = Batch::new();
    rx.rx_begin(cache, &mut batch);
    let lent = batch.iter().filter(|packet| packet.is_lent()).count();
    assert!(batch.iter().all(|packet| !packet.is_lent() || packet.data().len() == HEAD_BYTES));
    if batch.is_empty() {
        return 0;
    }
    meanwhile();
    let mut copies: Vec<Batch> =
        (1..to.len()).map(|_| batch.iter().map(|packet| packet.copy(cache).unwrap()).collect()).collect();
    copies.insert(0, batch);
    let mut ways: Vec<_> = to.iter_mut().zip(&mut copies).collect();
    if let Some(lent) = Lent::of(rx.as_mut()) {
        copy_lent(&mut ways, cache, lent);
    }
    for (to, batch) in ways {
        assert!(batch.iter().all(|packet| !packet.is_lent()));
        to.tx_burst(cache, batch);
        cache.free_all(batch);
        to.flush(cache);
    }
    lent
}

/// An IPv4 frame of UDP, whose bytes depend on its number and its length.
pub fn frame(n: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u32).wrapping_mul(7).wrapping_add(n) as u8).collect();
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    bytes[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
    bytes[20..22].fill(0);
    bytes[23] = 17;
    bytes
}

pub fn config(layout: RingLayout) -> GuestConfig {
    GuestConfig { layout, ring_size: 64, ..GuestConfig::default() }
}

#[test]
fn from_guest_to_guest_a_payload_is_copied_once_and_frames_stay_whole_and_in_order() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(&config(layout));
        // 1792 bytes fit a chunk, 2036 a buffer of the guest.
        let sizes = [60, 511, 512, 1518, 1792, 513, 1793, 5000, 2036, 2037, 9014, 9013, 1, 4084];
        let is_lent = |len: usize| len >= 512;
        let mut lent = 0;
        for round in 0..400u32 {
            let size = |n: u32| sizes[((round + n * n) as usize) % sizes.len()];
            let wanted: Vec<Vec<u8>> =
                (0..1 + round % 7).map(|n| frame(round * 8 + n, size(n).max(24))).collect();
            for frame in &wanted {
                assert!(pair.from.pair.send(frame));
            }
            let now = pair.forward();
            assert!(pair.to.received() == wanted, "{layout:?}, round {round}");
            assert_eq!(pair.from.on_offer(), 0);
            assert_eq!(now, wanted.iter().filter(|frame| is_lent(frame.len())).count());
            lent += now;
            assert_eq!(pair.from.port.stats().rx_lent_packets, lent as u64, "{layout:?}");
        }
        assert!(lent > 500);
        assert_eq!(pair.from.port.stats().rx_packets, pair.to.port.stats().tx_packets);
        let (from, to) = (pair.from.port.queue_counts(), pair.to.port.queue_counts());
        let seen = |counts: &packet::port::FrameCounts| (counts.packets, counts.bytes, counts.sizes);
        assert_eq!(seen(&from[0].rx), seen(&to[0].tx), "by size, copied once or twice");
        pair.end();
    }
}

#[test]
fn segments_of_64_kilobytes_are_copied_once_where_the_receiver_takes_them_whole() {
    let offloads = d::MRG_RXBUF | d::CSUM | d::HOST_TSO4 | d::HOST_TSO6 | features::GUEST_TSO;
    for (layout, knows) in LAYOUTS.into_iter().flat_map(|layout| [(layout, true), (layout, false)]) {
        let known = if knows { offloads } else { d::MRG_RXBUF };
        let config = GuestConfig { layout, features: known, ..GuestConfig::default() };
        let mut pair = Pair::new(&config);
        for round in 0..100 {
            let mut header = [0u8; 12];
            (header[0], header[1], header[6], header[8]) = (1, 1, 34, 16);
            header[4..6].copy_from_slice(&1448u16.to_le_bytes());
            let sizes = [65_000, 54 + 1, 30_000, 65_550];
            let frames: Vec<_> = (0..4).map(|n| segment(round * 4 + n, sizes[n as usize])).collect();
            for frame in &frames {
                assert!(pair.from.pair.send_with_header(&header, frame));
            }
            let is_lent = pair.forward() == 3;
            let received = pair.to.received();
            assert!(!knows || is_lent, "{layout:?}");
            assert_eq!(received == frames, knows, "{layout:?}, round {round}");
            assert_eq!(pair.from.on_offer(), 0);
        }
        let straight = if knows { 300 } else { 0 };
        assert_eq!(pair.from.port.stats().rx_lent_packets, straight, "{layout:?}");
        pair.end();
    }
}

/// A TCP segment in IPv4, of so many bytes in all.
fn segment(n: u32, len: usize) -> Vec<u8> {
    let mut bytes = frame(n, len);
    bytes[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
    bytes[23] = 6;
    (bytes[46], bytes[47]) = (0x50, 0x10);
    bytes
}

#[test]
fn several_guests_copy_from_the_one_and_what_one_has_no_room_for_costs_the_others_nothing() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(&config(layout));
        let mut third = End::new(pair.dir.path(), "third", &config(layout));
        let mut ways = vec![pair.to.tx.remove(0), third.tx.remove(0)];
        let frames: Vec<_> = (0..80).map(|n| frame(n, [1000, 60, 3000][n as usize % 3])).collect();
        let (mut sent, mut lent, mut first) = (frames.iter(), 0, Vec::new());
        for burst in [16, 9, 8, 17, 30] {
            for frame in sent.by_ref().take(burst) {
                assert!(pair.from.pair.send(frame));
            }
            lent += pass_to_all(&mut pair.cache, &mut pair.from.rx[0], &mut ways, &mut || ());
            // The third never makes room.
            first.append(&mut pair.to.received());
            assert_eq!(pair.from.on_offer(), 0, "{layout:?}");
        }
        let number = |frame: &Vec<u8>| (u32::from_be_bytes(*frame.first_chunk().unwrap()), frame.len());
        let numbers = |frames: &[Vec<u8>]| frames.iter().map(number).collect::<Vec<_>>();
        assert_eq!(numbers(&first), numbers(&frames), "{layout:?}");
        assert!(first == frames);
        let received = third.received();
        assert!(received.len() > 40 && received.len() < 70, "{layout:?}: {}", received.len());
        assert!(received == frames[..received.len()], "{layout:?}");
        assert_eq!(pair.from.port.stats().rx_lent_packets, lent as u64, "{layout:?}");
        pair.end();
    }
}

#[test]
fn frames_whose_headers_may_lie_deep_and_those_with_work_to_do_are_copied_whole() {
    let plain = [0u8; 12];
    let mut checksum = plain;
    (checksum[0], checksum[6], checksum[8]) = (1, 34, 6);
    let mut far = checksum;
    far[6..8].copy_from_slice(&400u16.to_le_bytes());
    // Within the head, and not the packet's own.
    let mut address = checksum;
    (address[6], address[8]) = (0, 26);
    let mut segments = checksum;
    (segments[1], segments[4]) = (5, 200);
    let mut extension = frame(1, 1000);
    extension[12..14].copy_from_slice(&[0x86, 0xdd]);
    extension[20] = 0;
    let mut unknown = frame(2, 1000);
    unknown[12..14].copy_from_slice(&[0x88, 0xb5]);
    // (Header, frame, whether it is lent, whether it goes straight to a guest that knows no offloads.)
    let cases = [
        (plain, frame(3, 1000), true, true),
        (checksum, frame(4, 1000), true, false),
        (far, frame(5, 1000), false, false),
        (address, frame(7, 1000), false, false),
        (segments, frame(6, 1000), true, false),
        (plain, extension, false, false),
        (plain, unknown, false, false),
    ];
    for (n, (header, frame, is_lent, is_straight)) in cases.into_iter().enumerate() {
        let mut pair = Pair::new(&GuestConfig { features: d::MRG_RXBUF, ..config(RingLayout::Split) });
        assert!(pair.from.pair.send_with_header(&header, &frame));
        assert_eq!(pair.forward(), usize::from(is_lent), "case {n}");
        assert_eq!(pair.from.port.stats().rx_lent_packets, u64::from(is_straight), "case {n}");
        let received = pair.to.received();
        // What is to be cut is no whole packet here.
        assert_eq!(received.len(), usize::from(header != segments), "case {n}");
        if header == plain {
            assert_eq!(received, [frame], "case {n}");
        }
        assert_eq!(pair.from.on_offer(), 0, "case {n}");
        pair.end();
    }
}

#[test]
fn the_sender_has_its_buffers_back_before_the_receiver_sees_anything_and_not_before_all_is_copied() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(&config(layout));
        for n in 0..8 {
            assert!(pair.from.pair.send(&frame(n, 1518)));
        }
        pair.forward_while(|from, to| {
            assert_eq!(from.on_offer(), 8, "{layout:?}: their tails are still needed");
            assert!(!to.pair.rx.ring.has_used());
        });
        assert_eq!((pair.from.on_offer(), pair.to.received().len()), (0, 8));

        // Step by step, with two receivers.
        let mut third = End::new(pair.dir.path(), "third", &config(layout));
        let sent = frame(9, 1518);
        assert!(pair.from.pair.send(&sent));
        let Pair { cache, from, to, .. } = &mut pair;
        let (mut rx, mut batch) = (from.rx.remove(0), Batch::new());
        rx.rx_begin(cache, &mut batch);
        batch.push(batch[0].copy(cache).unwrap());
        let mut lent = Lent::of(rx.as_mut()).unwrap();
        for (end, packet) in [&mut *to, &mut third].into_iter().zip(batch.chunks(1)) {
            assert_eq!(end.tx[0].tx_write(packet, &mut lent), 1);
        }
        assert_eq!(from.on_offer(), 1, "{layout:?}: the worker has not ended yet");
        lent.settle();
        assert_eq!(from.on_offer(), 0);
        for end in [&mut *to, &mut third] {
            assert!(!end.pair.rx.ring.has_used(), "{layout:?}: shown before it was published");
            end.tx[0].tx_publish();
            assert_eq!(end.received(), [&sent[..]]);
        }
        assert_eq!(from.port.stats().rx_lent_packets, 9, "once, whatever the number of receivers");
        cache.free_all(&mut batch);
        pair.end();
    }
}

#[test]
fn a_receiver_without_room_takes_what_it_can_and_the_rest_is_fetched_or_dropped() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(&config(layout));
        let frames: Vec<_> = (0..80).map(|n| frame(n, 1000)).collect();
        let mut sent = frames.iter();
        let mut lent = 0;
        for burst in [32, 20, 28] {
            for frame in sent.by_ref().take(burst) {
                assert!(pair.from.pair.send(frame));
            }
            lent += pair.forward();
        }
        assert_eq!(lent, 80);
        assert_eq!(pair.to.received(), frames[..64], "{layout:?}");
        assert_eq!(pair.from.port.stats().rx_lent_packets, 64);
        assert_eq!(pair.from.on_offer(), 0, "{layout:?}: what is dropped comes back too");
        pair.end();
    }
}

#[test]
fn who_sends_where_tails_must_be_fetched_is_asked_for_them_ever_less_and_soon_again() {
    let mut pair = Pair::new(&config(RingLayout::Split));
    let wanted: Vec<_> = (0..200).map(|n| frame(n, 1000)).collect();
    let mut lent = Vec::new();
    let (mut received, mut next) = (Vec::new(), Vec::new());
    for (n, frame) in wanted.iter().enumerate() {
        assert!(pair.from.pair.send(frame));
        if n < 100 {
            // As where a packet goes to a port of another type.
            let Pair { cache, from, .. } = &mut pair;
            let mut sink: Box<dyn TxQueue> = Box::new(Sink(Vec::new()));
            lent.push(pass(cache, &mut from.rx[0], &mut sink, &mut || ()));
        } else {
            next.push(pair.forward());
            received.append(&mut pair.to.received());
        }
    }
    let asked: Vec<_> = (0..lent.len()).filter(|n| lent[*n] > 0).collect();
    assert_eq!(asked, [0, 2, 5, 10, 19, 36, 69]);
    // The pause ends at burst 102, and then each is straight.
    assert_eq!((next.iter().position(|n| *n > 0), next.iter().sum::<usize>()), (Some(2), 98));
    assert_eq!(received, wanted[100..]);
    pair.end();
}

/// A port that takes no lent tails.
struct Sink(Vec<Vec<u8>>);

impl TxQueue for Sink {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        self.0.extend(batch.iter().map(|packet| packet.segments().flatten().copied().collect()));
        assert!(self.0.iter().all(|frame| frame.len() == 1000));
        cache.free_all(batch);
    }
}

#[test]
fn a_guest_may_send_to_itself() {
    let mut pair = Pair::new(&config(RingLayout::Split));
    let wanted: Vec<_> = (0..16).map(|n| frame(n, 1518)).collect();
    for frame in &wanted {
        assert!(pair.from.pair.send(frame));
    }
    let Pair { cache, from, .. } = &mut pair;
    assert_eq!(pass(cache, &mut from.rx[0], &mut from.tx[0], &mut || ()), 16);
    assert_eq!(from.received(), wanted);
    pair.end();
}

/// A ring whose loan nobody ends would stand still, and the protocol thread would wait for it for ever.
#[test]
fn a_ring_whose_large_frames_were_all_refused_goes_on() {
    for layout in LAYOUTS {
        let dir = tempfile::tempdir().unwrap();
        let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
        let mut cache = pool.cache();
        let mut end = End::new(dir.path(), "a", &GuestConfig { layout, ..GuestConfig::default() });
        // A kind of segmentation that there is not.
        let mut header = [0; 12];
        header[1] = 3;
        let (large, small) = (frame(1, 2_000), frame(2, 100));
        let mut batch = Batch::new();
        for frames in 1..=3 {
            for _ in 0..frames {
                assert!(end.pair.send_with_header(&header, &large));
            }
            end.rx[0].rx_begin(&mut cache, &mut batch);
            assert!(batch.is_empty() && Lent::of(end.rx[0].as_mut()).is_none());
            assert_eq!(end.on_offer(), 0, "it has its buffers back");
        }
        assert_eq!(end.port.stats().rx_errors, 6);
        assert!(end.pair.send(&small));
        end.rx[0].rx_begin(&mut cache, &mut batch);
        assert_eq!(batch.len(), 1);
        cache.free_all(&mut batch);
        let guest = end.guest.as_mut().unwrap();
        guest.enable_pair(0, false).unwrap();
        guest.synchronise().unwrap();
        drop((end, cache));
        assert_eq!(pool.stats().free, 256);
    }
}

#[test]
fn a_guest_is_notified_although_another_worker_holds_its_ring_at_that_moment() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(&config(layout));
        pair.to.tx.extend(pair.to.port.take_tx_queues(1));
        pair.to.pair.rx.ring.want_calls(true);
        let is_called = |pair: &Pair| crate::side::poll_for(&pair.to.pair.rx.call, std::time::Duration::ZERO);
        // It is notified once when it begins.
        assert!(is_called(&pair));
        rustix::io::read(&pair.to.pair.rx.call, &mut [0u8; 8]).unwrap();
        let mut batch = Batch::new();
        batch.push(pair.cache.alloc_frame(&frame(0, 60)).unwrap());
        pair.to.tx[0].tx_burst(&mut pair.cache, &mut batch);
        assert!(batch.is_empty() && !is_called(&pair));
        // The other one writes what is lent to it, and is not done with that yet.
        assert!(pair.from.pair.send(&frame(1, 1000)));
        pair.from.rx[0].rx_begin(&mut pair.cache, &mut batch);
        let mut lent = Lent::of(pair.from.rx[0].as_mut()).unwrap();
        assert_eq!(pair.to.tx[1].tx_write(&batch, &mut lent), 1);
        pair.to.tx[0].flush(&mut pair.cache);
        lent.settle();
        let tries_again = !is_called(&pair) && pair.to.tx[0].has_pending();
        pair.to.tx[1].tx_publish();
        assert!(tries_again, "{layout:?}");
        pair.to.tx[0].flush(&mut pair.cache);
        assert!(is_called(&pair) && !pair.to.tx[0].has_pending(), "{layout:?}");
        pair.cache.free_all(&mut batch);
        pair.end();
    }
}
