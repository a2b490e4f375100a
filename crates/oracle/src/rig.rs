//! A datapath with one worker that the test steps, and ports in memory; and a pair of them, the second
//! without caches.

use crate::pipelines::{Mistake, Mistaken, Uncached};
use crate::port::Link;
use base::rcu::Domain;
use base::{DropReason, PortNo};
use datapath::{Config, Datapath, Event, PacketInSpec, Pipeline, SteppedWorker};
use packet::{Pool, PoolConfig};
use std::collections::BTreeMap;
use std::sync::Arc;
use switch::Switch;

thread_local! {
    // Pools live as long as the process; one per thread is shared by all worlds that it tests.
    static POOL: &'static Pool =
        Pool::new(PoolConfig { chunks: 8192, chunk_bytes: 2048, huge_pages: false }).expect("a pool");
}

/// This thread's pool.
pub fn pool() -> &'static Pool {
    POOL.with(|p| *p)
}

/// See the module documentation.
pub struct Rig<P: Pipeline> {
    /// First, so that its packets are back in the pool before the datapath goes.
    pub worker: SteppedWorker<P>,
    /// Its other half.
    pub dp: Datapath<P>,
    /// The test's ends of the ports.
    pub links: BTreeMap<PortNo, Arc<Link>>,
}

/// What a packet-in told, and the frame.
#[derive(Clone, PartialEq, Debug)]
pub struct Told {
    /// Why and from where.
    pub spec: Arc<PacketInSpec>,
    /// The packet's mark.
    pub pkt_mark: u32,
    /// The packet.
    pub frame: Vec<u8>,
}

impl<P: Pipeline> Rig<P> {
    /// A rig with ports of these numbers.
    pub fn new(pipeline: Arc<P>, domain: Arc<Domain>, config: Config, ports: &[PortNo]) -> Rig<P> {
        Rig::with_links(pipeline, domain, config, ports, Link::new)
    }

    /// The same, with links of another kind.
    pub fn with_links(
        pipeline: Arc<P>,
        domain: Arc<Domain>,
        config: Config,
        ports: &[PortNo],
        link: fn(PortNo) -> Arc<Link>,
    ) -> Rig<P> {
        let mut dp = Datapath::new(pool(), pipeline, domain, config).expect("a datapath");
        let worker = dp.stepped_worker().expect("a worker");
        let mut rig = Rig { worker, dp, links: BTreeMap::new() };
        for &no in ports {
            let link = link(no);
            rig.dp.add_port(no, link.port()).expect("a port");
            rig.links.insert(no, link);
        }
        rig
    }

    /// Receives a burst at a port. All of it has left when this returns; it need not be folded.
    pub fn receive(&mut self, port: PortNo, burst: Vec<Vec<u8>>) {
        self.links[&port].receive(burst);
        while !self.links[&port].is_received() {
            self.worker.turn();
        }
    }

    /// Takes turns until there is nothing to do: nothing under way, all counters folded.
    pub fn settle(&mut self) {
        while self.worker.turn() {}
    }

    /// What was sent since the last call, by port.
    pub fn take_sent(&mut self) -> BTreeMap<PortNo, Vec<Vec<u8>>> {
        self.links.iter().map(|(no, link)| (*no, link.take_sent())).collect()
    }

    /// Effects and packet-ins since the last call.
    pub fn events(&mut self) -> (Vec<P::Effect>, Vec<Told>) {
        let (mut effects, mut told) = (vec![], vec![]);
        for event in self.dp.events(usize::MAX) {
            match event {
                Event::Effect(effect) => effects.push(effect),
                Event::PacketIn(packet_in) => {
                    let frame = packet_in.packet.segments().flatten().copied().collect();
                    told.push(Told { pkt_mark: packet_in.metadata.pkt_mark, spec: packet_in.spec, frame });
                    self.dp.free(packet_in.packet);
                }
                Event::PortGone(port) => panic!("port {port} cannot be gone"),
            }
        }
        (effects, told)
    }

    /// Drops so far, by reason.
    pub fn drops(&self) -> Vec<(DropReason, u64)> {
        let all = DropReason::ALL.iter().map(|&r| (r, self.dp.drops(r)));
        all.filter(|(_, n)| *n > 0).collect()
    }

    /// Whether what came in went out or was counted.
    pub fn account(&self) -> Result<(), String> {
        let s = self.dp.worker_stats(0);
        let came = s.rx.get() + s.copies.get();
        let went = s.tx.get() + s.packet_ins.get() + s.surplus.get() + s.drops.total();
        if came == went { Ok(()) } else { Err(format!("{came} came, {went} went: {s:?}")) }
    }

    /// Ends it. An error says how many chunks are missing from the pool.
    pub fn end(mut self) -> Result<(), String> {
        self.settle();
        self.events();
        self.account()?;
        drop(self.worker);
        drop(self.dp);
        Ok(())
    }
}

/// A switch behind its caches, and the same where each packet is translated by itself.
pub struct Pair {
    /// With caches, and perhaps with a mistake.
    pub cached: Rig<Mistaken>,
    /// Without.
    pub plain: Rig<Uncached>,
}

/// What was sent by each port.
pub type Sent = BTreeMap<PortNo, Vec<Vec<u8>>>;

impl Pair {
    /// Both with ports of these numbers; the one with caches makes a mistake.
    pub fn new(
        switch: &Arc<Switch>,
        mistake: Mistake,
        domain: &Arc<Domain>,
        config: Config,
        ports: &[PortNo],
    ) -> Pair {
        Pair {
            cached: Rig::new(Mistaken::new(switch.clone(), mistake), domain.clone(), config, ports),
            plain: Rig::new(Arc::new(Uncached(switch.clone())), domain.clone(), config, ports),
        }
    }

    /// Both receive a burst at a port.
    pub fn receive(&mut self, port: PortNo, burst: Vec<Vec<u8>>) {
        self.cached.receive(port, burst.clone());
        self.plain.receive(port, burst);
    }

    /// What both have sent since the last call and dropped so far, which must be the same: the frames of each
    /// port, in order of their bytes.
    pub fn same_fates(&mut self) -> Result<Sent, String> {
        let [mut found, mut wanted] = [self.cached.take_sent(), self.plain.take_sent()];
        found.values_mut().chain(wanted.values_mut()).for_each(|frames| frames.sort());
        let [drops, wanted_drops] = [self.cached.drops(), self.plain.drops()];
        if found != wanted || drops != wanted_drops {
            return Err(format!(
                "sent {found:02x?}\n and uncached {wanted:02x?}\n dropped {drops:?}\n and {wanted_drops:?}"
            ));
        }
        Ok(wanted)
    }

    /// Whether both have equal counters in the first `slots` slots, once all are folded.
    pub fn same_counts(&mut self, slots: u32) -> Result<(), String> {
        self.cached.settle();
        self.plain.settle();
        for slot in 0..slots {
            let (found, wanted) = (self.cached.dp.slot(slot), self.plain.dp.slot(slot));
            if (found.packets, found.bytes) != (wanted.packets, wanted.bytes) {
                return Err(format!("slot {slot} counts {found:?}\n and uncached {wanted:?}"));
            }
        }
        Ok(())
    }

    /// Ends both. An error says how many chunks are missing from the pool.
    pub fn end(self) -> Result<(), String> {
        self.cached.end()?;
        self.plain.end()
    }
}

/// Whether all of this thread's pool is free, which it is when no rig is there.
pub fn pool_is_whole() -> Result<(), String> {
    let stats = pool().stats();
    if stats.free == stats.total { Ok(()) } else { Err(format!("chunks are lost: {stats:?}")) }
}
