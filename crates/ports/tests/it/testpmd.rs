//! vhost-user ports against a driver that others wrote: `dpdk-testpmd` with virtio-user devices, which loops
//! packets back.

use base::PortNo;
use packet::{Batch, LinkState, Pool, PoolCache, PoolConfig, Port, RxQueue, TxQueue};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::lab::{Process, wait_for};

/// Starts a testpmd that forwards from its one port to the same.
fn testpmd(dir: &Path, device: &str, queues: usize) -> Process {
    let log = std::fs::File::create(dir.join("testpmd.log")).unwrap();
    let queues = queues.to_string();
    let prefix = dir.file_name().unwrap().to_str().unwrap().trim_start_matches('.');
    let mut command = Command::new("dpdk-testpmd");
    command
        .args(["-l", "0,1", "--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"])
        .args([format!("--file-prefix={prefix}"), format!("--vdev=net_virtio_user0,{device}")])
        .args(["--", "--forward-mode=io", "--no-flush-rx", "--total-num-mbufs=4096"])
        .args(["--rxq", &queues, "--txq", &queues]);
    // It ends when its standard input does.
    Process::start(command.stdin(Stdio::piped()).stdout(log.try_clone().unwrap()).stderr(log))
}

struct Worker {
    rx: Vec<Box<dyn RxQueue>>,
    tx: Vec<Box<dyn TxQueue>>,
    cache: PoolCache,
}

fn frame(n: u32) -> Vec<u8> {
    let mut bytes = vec![0u8; 60 + (n % 13) as usize * 100];
    bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
    bytes[16..20].copy_from_slice(&n.to_be_bytes());
    let len = bytes.len();
    for (i, byte) in bytes.iter_mut().enumerate().skip(20) {
        *byte = (n as usize + i * len) as u8;
    }
    bytes
}

impl Worker {
    /// Sends probes until the guest returns some: while its driver starts, frames that come early are thrown
    /// away. Returns how many came back, once no more do.
    fn wait_for_the_driver(&mut self) -> u64 {
        let start = Instant::now();
        let mut back = 0;
        let mut last = Instant::now();
        while back == 0 || last.elapsed() < Duration::from_millis(300) {
            let mut batch = Batch::new();
            if back == 0 {
                self.tx.iter_mut().for_each(|tx| {
                    batch.push(self.cache.alloc_frame(&frame(0)).unwrap());
                    tx.tx_burst(&mut self.cache, &mut batch);
                    tx.flush(&mut self.cache);
                    self.cache.free_all(&mut batch);
                });
                std::thread::sleep(Duration::from_millis(50));
            }
            for rx in &mut self.rx {
                rx.rx_burst(&mut self.cache, &mut batch);
                if !batch.is_empty() {
                    last = Instant::now();
                }
                back += batch.len() as u64;
                self.cache.free_all(&mut batch);
            }
            assert!(start.elapsed() < Duration::from_secs(30), "no frame comes back");
        }
        back
    }

    /// Sends numbered frames and takes them back until `count` have come, each once and unchanged.
    fn exchange(&mut self, dir: &Path, count: u32) {
        let start = Instant::now();
        let mut sent = 0;
        let mut back: BTreeMap<u32, ()> = BTreeMap::new();
        while back.len() < count as usize {
            let mut batch = Batch::new();
            while sent < count && sent - (back.len() as u32) < 200 && !batch.is_full() {
                batch.push(self.cache.alloc_frame(&frame(sent)).unwrap());
                sent += 1;
            }
            let offered = batch.len() as u32;
            let worker = (sent / 32) as usize % self.tx.len();
            self.tx[worker].tx_burst(&mut self.cache, &mut batch);
            sent -= batch.len() as u32;
            assert!(batch.len() as u32 <= offered);
            self.cache.free_all(&mut batch);
            self.tx.iter_mut().for_each(|tx| tx.flush(&mut self.cache));
            for rx in &mut self.rx {
                rx.rx_burst(&mut self.cache, &mut batch);
                for packet in &batch {
                    let bytes: Vec<u8> = packet.segments().flatten().copied().collect();
                    let n = u32::from_be_bytes(bytes[16..20].try_into().unwrap());
                    assert_eq!(bytes, frame(n));
                    assert_eq!(back.insert(n, ()), None, "frame {n} came twice");
                }
                self.cache.free_all(&mut batch);
            }
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{} of {sent} frames came back; {}",
                back.len(),
                std::fs::read_to_string(dir.join("testpmd.log")).unwrap()
            );
        }
    }
}

/// Runs traffic through a guest described by `device` (of net_virtio_user), twice: the guest is killed in
/// between.
fn check(device: &str, queues: usize, is_client: bool) {
    let dir = tempfile::tempdir().unwrap();
    let pool = Pool::new(PoolConfig { chunks: 4096, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let socket = dir.path().join("vhost0");
    let kind = if is_client { "dpdkvhostuserclient" } else { "dpdkvhostuser" };
    let (option, value) =
        if is_client { ("vhost-server-path", &*socket) } else { ("vhost-sock-dir", dir.path()) };
    let spec = PortSpec::new("vhost0", kind, PortNo(1)).with(option, value.to_str().unwrap());
    let mut port = VhostUserPort::open(&spec).unwrap();
    let mut worker = Worker { rx: port.take_rx_queues(), tx: port.take_tx_queues(2), cache: pool.cache() };
    let server = if is_client { ",server=1" } else { "" };
    let device = format!("path={},queues={queues}{server},{device}", socket.display());
    let mut probes = 0;
    for _ in 0..2 {
        let guest = testpmd(dir.path(), &device, queues);
        let start = Instant::now();
        let all_up = |port: &VhostUserPort| {
            let status = port.status();
            let rings = (2 * queues).to_string();
            let told = status.details.contains(&("num_of_vrings".into(), rings));
            // A ring is told of when its size is set, and there when it has been enabled.
            status.link == LinkState::Up && told && (0..queues).all(|pair| port.is_rx_enabled(pair))
        };
        while !all_up(&port) {
            assert!(
                start.elapsed() < Duration::from_secs(30),
                "{:?}; {}",
                port.status(),
                std::fs::read_to_string(dir.path().join("testpmd.log")).unwrap()
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        worker.rx.extend(port.take_rx_queues());
        assert_eq!(worker.rx.len(), queues);
        probes += worker.wait_for_the_driver();
        worker.exchange(dir.path(), 20_000);
        drop(guest);
        wait_for("the link to go with the guest", || port.status().link != LinkState::Up);
        assert_eq!(port.status().error, None);
        if is_client {
            // It was killed and could not remove its socket, at which the next one wants to listen.
            std::fs::remove_file(&socket).unwrap();
        }
    }
    let stats = port.stats();
    assert_eq!((stats.rx_packets, stats.rx_errors, stats.rx_dropped), (40_000 + probes, 0, 0));
    drop((worker, port));
    assert_eq!(pool.stats().free, 4096);
}

#[test]
fn testpmd_with_split_rings_loops_every_frame_back() {
    check("mrg_rxbuf=1", 1, false);
}

#[test]
fn testpmd_with_split_rings_in_order_and_without_mergeable_buffers() {
    check("mrg_rxbuf=0,in_order=1,vectorized=1", 1, false);
}

#[test]
fn testpmd_with_packed_rings_loops_every_frame_back() {
    check("packed_vq=1,mrg_rxbuf=1", 1, false);
}

#[test]
fn testpmd_with_packed_rings_in_order_and_vectorised() {
    check("packed_vq=1,in_order=1,mrg_rxbuf=0,vectorized=1", 1, false);
}

#[test]
fn testpmd_with_four_queue_pairs() {
    check("mrg_rxbuf=1", 4, false);
}

#[test]
fn testpmd_as_the_server_and_packed_with_two_pairs() {
    check("packed_vq=1,mrg_rxbuf=1", 2, true);
}

#[test]
fn testpmd_as_the_server_with_split_rings() {
    check("mrg_rxbuf=1", 1, true);
}
