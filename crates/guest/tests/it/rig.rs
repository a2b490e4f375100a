//! A port of the switch and a guest at it, with the buffers that workers have.

use base::PortNo;
use guest::{Guest, GuestConfig, QueuePair, RingLayout};
use packet::{Batch, LinkState, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub const LAYOUTS: [RingLayout; 2] = [RingLayout::Split, RingLayout::Packed];

/// A port that listens, and a guest that has connected to it.
pub struct Rig {
    _dir: TempDir,
    pub path: PathBuf,
    pub port: VhostUserPort,
    pub rx: Vec<Box<dyn RxQueue>>,
    pub tx: Vec<Box<dyn TxQueue>>,
    pub cache: PoolCache,
    pub pool: &'static Pool,
    pub guest: Option<Guest>,
    pub pairs: Vec<QueuePair>,
}

pub fn server(dir: &Path, options: &[(&str, &str)]) -> VhostUserPort {
    let spec =
        PortSpec::new("vhost0", "dpdkvhostuser", PortNo(7)).with("vhost-sock-dir", dir.to_str().unwrap());
    let spec = options.iter().fold(spec, |spec, (key, value)| match *key {
        "tx-steering" => PortSpec { spreads_flows: *value == "hash", ..spec },
        _ => spec.with(key, value),
    });
    VhostUserPort::open(&spec).unwrap()
}

pub fn rig(config: &GuestConfig) -> Rig {
    rig_with(config, &[])
}

pub fn rig_with(config: &GuestConfig, options: &[(&str, &str)]) -> Rig {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { chunks: 4096, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut port = server(dir.path(), options);
    let path = dir.path().join("vhost0");
    let mut guest = Guest::connect(&path, config).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(port.status().link, LinkState::Up);
    let rx = port.take_rx_queues();
    let tx = port.take_tx_queues(1);
    let pairs = guest.take_pairs();
    Rig { _dir: dir, path, port, rx, tx, cache: pool.cache(), pool, guest: Some(guest), pairs }
}

/// Frame number `n`: its bytes depend on its number and its length.
pub fn frame(n: u32, len: usize) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..len).map(|i| (i as u32).wrapping_mul(7).wrapping_add(n) as u8).collect();
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    // No protocol, so that nobody looks for a checksum.
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes
}

impl Rig {
    pub fn receive(&mut self, queue: usize) -> Vec<Vec<u8>> {
        let mut batch = Batch::new();
        self.rx[queue].rx_burst(&mut self.cache, &mut batch);
        let frames = batch.iter().map(|p| p.segments().flatten().copied().collect()).collect();
        assert!(batch.iter().all(|p| p.in_port == PortNo(7)));
        self.cache.free_all(&mut batch);
        frames
    }

    pub fn send(&mut self, frames: &[Vec<u8>]) -> usize {
        let mut batch = Batch::new();
        for frame in frames {
            batch.push(self.cache.alloc_frame(frame).unwrap());
        }
        self.tx[0].tx_burst(&mut self.cache, &mut batch);
        self.tx[0].flush(&mut self.cache);
        let sent = frames.len() - batch.len();
        self.cache.free_all(&mut batch);
        sent
    }

    pub fn guest_receives(&mut self, pair: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        self.pairs[pair].receive(1024, |frame| frames.push(frame.to_vec()));
        frames
    }

    pub fn assert_no_chunk_is_lost(self) {
        let Rig { port, rx, tx, cache, pool, .. } = self;
        drop((rx, tx, port));
        assert_eq!(cache.pool().stats().free, pool.config().chunks);
    }
}

/// A key of the port's status.
pub fn told(port: &VhostUserPort, key: &str) -> Option<String> {
    port.status().details.into_iter().find(|(k, _)| k == key).map(|(_, value)| value)
}
