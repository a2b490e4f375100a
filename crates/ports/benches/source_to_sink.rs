//! What does a packet cost from a `pcap` source straight into a `null` sink? That is the floor under the
//! headline benchmark: `io_cycles_per_packet`.
//!
//! `cargo bench -p ports --bench source_to_sink [-- FLOWS…]`. Cycles are those of the time stamp counter per
//! packet and second of the thread's CPU time, the median of the rounds.

#![allow(unsafe_code)]

use base::PortNo;
use packet::{Batch, Pool, PoolConfig, Port};
use ports::pcap::file::Writer;
use ports::{PortSpec, null, open};
use std::time::Duration;

const ROUNDS: usize = 15;
const BURSTS: usize = 50_000;

fn main() {
    let given: Vec<u32> = std::env::args().skip(1).filter_map(|a| a.parse().ok()).collect();
    let flows = if given.is_empty() { vec![1, 1_000, 10_000, 100_000, 1_000_000] } else { given };
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    println!("{:>9} {:>18} {:>8} {:>8}", "flows", "cycles_per_packet", "min", "max");
    for flows in flows {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        let mut writer =
            Writer::new(std::io::BufWriter::new(file.reopen().expect("reopened"))).expect("written");
        for flow in 0..flows {
            writer.write(0, std::iter::once(&null::udp_frame(60, flow)[..])).expect("written");
        }
        writer.flush().expect("written");
        let spec = PortSpec::new("in", "pcap", PortNo(1))
            .with("rx_file", file.path().to_str().expect("UTF-8"))
            .with_files_beside([file.path()]);
        let mut source = open(&spec, pool).expect("a source");
        let mut sink = open(&PortSpec::new("out", "null", PortNo(2)), pool).expect("a sink");
        let mut rounds = measure(pool, &mut *source, &mut *sink);
        rounds.sort_by(f64::total_cmp);
        println!("{flows:>9} {:>18.2} {:>8.2} {:>8.2}", rounds[ROUNDS / 2], rounds[0], rounds[ROUNDS - 1]);
        assert_eq!(source.stats().rx_packets, sink.stats().tx_packets);
    }
}

fn measure(pool: &'static Pool, source: &mut dyn Port, sink: &mut dyn Port) -> Vec<f64> {
    let mut rx = source.take_rx_queues().remove(0);
    let mut tx = sink.take_tx_queues(1).remove(0);
    let mut cache = pool.cache();
    let mut batch = Batch::new();
    let hz = base::clock::tsc_hz() as f64;
    let mut round = || {
        let (start, before) = (thread_cpu_time(), sink.stats().tx_packets);
        for _ in 0..BURSTS {
            rx.rx_burst(&mut cache, &mut batch);
            tx.tx_burst(&mut cache, &mut batch);
        }
        let packets = sink.stats().tx_packets - before;
        (thread_cpu_time() - start).as_secs_f64() * hz / packets as f64
    };
    round();
    (0..ROUNDS).map(|_| round()).collect()
}

fn thread_cpu_time() -> Duration {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `at` outlives the call, which fills it.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut at) };
    Duration::new(at.tv_sec as u64, at.tv_nsec as u32)
}
