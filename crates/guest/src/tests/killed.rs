//! A switch that is killed and comes again: the front end does not know where packed rings stopped.

use super::attacks::Victim;
use crate::front_end::FrontEnd;
use crate::{Guest, GuestConfig, RingLayout};
use packet::Batch;
use ports::vhost_user::features::device as d;
use std::sync::atomic::Ordering::Relaxed;

const SIZE: usize = 64;

#[test]
fn a_packed_ring_goes_on_where_it_stopped_although_the_front_end_names_its_start() {
    let (_dir, mut cache, mut victim) = Victim::alone();
    let config = GuestConfig {
        layout: RingLayout::Packed,
        ring_size: SIZE as u16,
        features: d::MRG_RXBUF,
        ..GuestConfig::default()
    };
    let mut guest = Guest::connect(&victim.path, &config).unwrap();
    let (mut sent, mut number) = (0, 0u8);
    // Bursts that end at and around the ring's end, in rounds of either counter.
    for burst in [1, 30, 33, 1, 62, 1, 2, 63, 64, 3, 60, 64, 64, 5].into_iter().cycle().take(60) {
        guest.synchronise().unwrap();
        let pair = &mut guest.pairs[0];
        let mut expected = Vec::new();
        for _ in 0..burst {
            number = number.wrapping_add(1);
            expected.push(vec![number; 60]);
        }
        assert_eq!(pair.send_all(expected.iter().map(Vec::as_slice)), burst);
        let start = sent % SIZE;
        let flags = [pair.tx.ring.descriptors, pair.rx.ring.descriptors].map(|table| table + 16 * start + 14);
        let ram = pair.ram.clone();
        let before = flags.map(|at| ram.u16(at).load(Relaxed));
        let mut batch = Batch::new();
        victim.rx[0].rx_burst(&mut cache, &mut batch);
        let received: Vec<Vec<u8>> = batch.iter().map(|packet| packet.data().to_vec()).collect();
        assert_eq!(received, expected, "from descriptor {start}");
        victim.tx[0].tx_burst(&mut cache, &mut batch);
        assert!(batch.is_empty());
        victim.tx[0].flush(&mut cache);
        // Killed just before it would have shown the burst: the first descriptor comes last.
        if (2..SIZE - 1).contains(&burst) && number % 2 == 0 {
            flags.iter().zip(before).for_each(|(at, was)| ram.u16(*at).store(was, Relaxed));
        }
        sent += burst;
        // The next switch is connected to, and told that the rings begin at their start.
        let Guest { front_end, pairs } = guest;
        drop(front_end);
        let mut front_end = FrontEnd::connect(&victim.path).unwrap();
        front_end.negotiate(config.features | d::RING_PACKED, 1).unwrap();
        front_end.share(&ram).unwrap();
        guest = Guest::start(front_end, &config, &ram, pairs).unwrap();
        guest.synchronise().unwrap();
        let mut frames = Vec::new();
        guest.pairs[0].receive(SIZE, |frame| frames.push(frame.to_vec()));
        assert_eq!(frames, expected, "from descriptor {start}");
    }
}
