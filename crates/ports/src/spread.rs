//! A worker's transmit queues of one port, over which it distributes flows: for a receiver that has several
//! queues, and more processors than the switch has workers (`other_config:tx-steering=hash`).
//!
//! Packets of one flow go to one queue as long as the device's number of queues stays the same, and so keep
//! their order.

use base::hash::mixed;
use base::{OfPort, PortNo};
use flow::{Depth, FieldId, Ingress, Key, extract};
use packet::{BURST, Batch, Packet, PoolCache, TxQueue};

/// Maximum number of queues.
pub(crate) const QUEUES_MAX: usize = 64;

/// Queues; only the first ones are in use.
pub(crate) struct Spread<Q, L> {
    queues: Vec<Q>,
    /// How many the device has now.
    live: L,
    /// Queues to flush, as bits.
    used: u64,
}

impl<Q: TxQueue, L: Fn() -> usize + Send> Spread<Q, L> {
    /// At least one queue.
    pub fn new(queues: Vec<Q>, live: L) -> Spread<Q, L> {
        assert!((1..=QUEUES_MAX).contains(&queues.len()), "{} queues", queues.len());
        Spread { queues, live, used: 0 }
    }

    fn live(&self) -> usize {
        (self.live)().clamp(1, self.queues.len())
    }

    fn send(&mut self, n: usize, cache: &mut PoolCache, batch: &mut Batch) {
        self.used |= 1 << n;
        self.queues[n].tx_burst(cache, batch);
    }
}

impl<Q: TxQueue, L: Fn() -> usize + Send> TxQueue for Spread<Q, L> {
    fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
        let live = self.live();
        if live == 1 {
            return self.send(0, cache, batch);
        }
        let mut chosen = [0; BURST];
        for (packet, chosen) in batch.iter().zip(&mut chosen) {
            *chosen = (flow_hash(packet) % live as u64) as usize;
        }
        let (mut left, mut waiting) = (Batch::new(), batch.len());
        while waiting > 0 {
            // Those for the first packet's queue leave, and the others move up.
            let (mut part, mut others) = (Batch::new(), Batch::new());
            let n = chosen[0];
            for (i, packet) in batch.drain(..).enumerate() {
                if chosen[i] == n {
                    part.push(packet);
                } else {
                    chosen[others.len()] = chosen[i];
                    others.push(packet);
                }
            }
            self.send(n, cache, &mut part);
            left.extend(part.drain(..));
            waiting = others.len();
            *batch = others;
        }
        *batch = left;
    }

    /// A full queue holds up none of the others.
    fn has_room(&mut self, packets: usize) -> bool {
        let live = self.live();
        self.queues[..live].iter_mut().any(|queue| queue.has_room(packets))
    }

    fn flush(&mut self, cache: &mut PoolCache) {
        for (n, queue) in self.queues.iter_mut().enumerate() {
            if self.used & 1 << n != 0 {
                queue.flush(cache);
                if !queue.has_pending() {
                    self.used &= !(1 << n);
                }
            }
        }
    }

    fn has_pending(&self) -> bool {
        self.used != 0
    }

    fn set_aside(&mut self, cache: &mut PoolCache) {
        self.queues.iter_mut().for_each(|queue| queue.set_aside(cache));
    }

    fn close(&mut self, cache: &mut PoolCache) {
        self.queues.iter_mut().for_each(|queue| queue.close(cache));
    }
}

/// The same for all packets of a flow: computed from its addresses, protocol and ports. Fragments are hashed
/// without ports; otherwise the first one could go elsewhere.
fn flow_hash(packet: &Packet) -> u64 {
    use FieldId::*;
    let mut key = Key::default();
    let ingress = Ingress::new(OfPort(0), PortNo(0), Depth::Transport);
    if extract(packet.data(), packet.len(), &ingress, &mut key).is_none() {
        return 0;
    }
    let addresses = match key.get64(EthType) {
        0x0800 => u128::from(key.get64(NwSrc) << 32 | key.get64(NwDst)),
        0x86dd => key.get(Ipv6Src) ^ key.get(Ipv6Dst).rotate_left(64),
        _ => return 0,
    };
    let has_ports = key.get64(NwFrag) == 0 && matches!(key.get64(NwProto), 6 | 17 | 132);
    let ports = if has_ports { key.get64(TpSrc) << 16 | key.get64(TpDst) } else { 0 };
    let words = [addresses as u64, (addresses >> 64) as u64, key.get64(NwProto) << 32 | ports];
    // Flows are as regular as their senders; zero, which is mixed to zero, must not be its own hash.
    words.into_iter().fold(0, |hash, word| mixed((hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::udp_frame;
    use packet::{Pool, PoolConfig};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

    /// Takes up to so many packets of a burst, and remembers them.
    struct Took {
        most: usize,
        frames: Frames,
        flushes: Arc<AtomicUsize>,
    }

    impl TxQueue for Took {
        fn tx_burst(&mut self, cache: &mut PoolCache, batch: &mut Batch) {
            let count = self.most.min(batch.len());
            for packet in batch.drain(..count) {
                self.frames.lock().unwrap().push(packet.data().to_vec());
                cache.free(packet);
            }
        }

        fn flush(&mut self, _: &mut PoolCache) {
            self.flushes.fetch_add(1, Ordering::Relaxed);
        }
    }

    struct Rig {
        tx: Box<dyn TxQueue>,
        cache: PoolCache,
        live: Arc<AtomicUsize>,
        frames: Vec<Frames>,
        flushes: Arc<AtomicUsize>,
    }

    impl Rig {
        fn new(most: usize) -> Rig {
            let pool = Pool::new(PoolConfig { chunks: 128, chunk_bytes: 2048, huge_pages: false }).unwrap();
            let frames: Vec<Frames> = (0..4).map(|_| Frames::default()).collect();
            let (live, flushes) = (Arc::new(AtomicUsize::new(4)), Arc::<AtomicUsize>::default());
            let took = |frames: &Frames| Took { most, frames: frames.clone(), flushes: flushes.clone() };
            let (queues, now) = (frames.iter().map(took).collect(), live.clone());
            let tx = Box::new(Spread::new(queues, move || now.load(Ordering::Relaxed)));
            Rig { tx, cache: pool.cache(), live, frames, flushes }
        }

        /// Sends them; how many were left.
        fn send(&mut self, frames: &[Vec<u8>]) -> usize {
            let mut batch = Batch::new();
            frames.iter().for_each(|frame| batch.push(self.cache.alloc_frame(frame).unwrap()));
            self.tx.tx_burst(&mut self.cache, &mut batch);
            let left = batch.len();
            self.cache.free_all(&mut batch);
            left
        }

        /// What each queue has got since the last time.
        fn got(&self) -> Vec<Vec<Vec<u8>>> {
            self.frames.iter().map(|frames| std::mem::take(&mut *frames.lock().unwrap())).collect()
        }
    }

    fn flows(count: u32) -> Vec<Vec<u8>> {
        (0..count).map(|flow| udp_frame(60, flow)).collect()
    }

    #[test]
    fn flows_are_spread_over_the_queues_that_there_are_and_each_keeps_to_one() {
        let mut rig = Rig::new(BURST);
        assert_eq!(rig.send(&flows(BURST as u32)), 0);
        let first = rig.got();
        assert!(
            first.iter().all(|queue| queue.len() > 4),
            "{:?}",
            first.iter().map(Vec::len).collect::<Vec<_>>()
        );
        let all = flows(BURST as u32);
        let number = |frame: &Vec<u8>| all.iter().position(|other| other == frame);
        assert!(first.iter().all(|queue| queue.is_sorted_by_key(number)), "in the order in which they came");
        for (flow, frame) in flows(BURST as u32).iter().enumerate() {
            rig.send(std::slice::from_ref(frame));
            let at = |queues: Vec<Vec<Vec<u8>>>| queues.iter().position(|queue| queue.contains(frame));
            assert_eq!(at(rig.got()), at(first.clone()), "flow {flow}");
        }
        rig.live.store(2, Ordering::Relaxed);
        rig.send(&flows(BURST as u32));
        assert_eq!(rig.got().iter().filter(|queue| !queue.is_empty()).count(), 2);
        rig.live.store(0, Ordering::Relaxed);
        rig.send(&flows(BURST as u32));
        assert_eq!(rig.got()[0].len(), BURST, "what nobody is there to receive is the first queue's to drop");
    }

    #[test]
    fn what_a_queue_does_not_take_is_left_and_queues_that_were_used_are_flushed() {
        let mut rig = Rig::new(3);
        let left = rig.send(&flows(BURST as u32));
        assert_eq!(left, BURST - 4 * 3);
        assert!(rig.got().iter().all(|queue| queue.len() == 3));
        rig.tx.flush(&mut rig.cache);
        assert_eq!(rig.flushes.load(Ordering::Relaxed), 4);
        rig.send(&flows(1));
        rig.tx.flush(&mut rig.cache);
        assert_eq!(rig.flushes.load(Ordering::Relaxed), 5);
        assert!(!rig.tx.has_pending());
    }

    #[test]
    fn fragments_of_a_packet_have_one_hash() {
        let mut rig = Rig::new(BURST);
        let fragment = |port: u8, bits: [u8; 2]| {
            let mut frame = udp_frame(60, 1);
            (frame[20], frame[21], frame[35]) = (bits[0], bits[1], port);
            frame
        };
        // The first ones of packets from 16 ports, and a later one.
        let firsts = (0..16).map(|port| fragment(port, [0x20, 0]));
        rig.send(&firsts.chain([fragment(0, [0, 9])]).collect::<Vec<_>>());
        assert_eq!(rig.got().iter().filter(|queue| !queue.is_empty()).count(), 1);
    }
}
