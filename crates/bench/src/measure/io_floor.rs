//! A source and a sink with no switch between: what the ports alone cost.

use crate::measure::rig::{WORKER_CPU, pool};
use packet::Batch;
use std::time::{Duration, Instant};

/// TSC cycles of CPU time per packet, over `time`.
pub fn measure(source: &ports::PortSpec, sink: &ports::PortSpec, time: Duration) -> Result<f64, String> {
    let pool = pool()?;
    let mut source = ports::open(source, pool).map_err(|e| e.to_string())?;
    let mut sink = ports::open(sink, pool).map_err(|e| e.to_string())?;
    let mut rx = source.take_rx_queues().into_iter().next().ok_or("the source has no receive queue")?;
    let mut tx = sink.take_tx_queues(1).into_iter().next().ok_or("the sink has no transmit queue")?;
    let forward = move || {
        packet::thread::pin(WORKER_CPU);
        let me = packet::thread::id();
        let mut cache = pool.cache();
        let mut batch = Batch::new();
        let mut packets = 0u64;
        let mut turn = |packets: &mut u64| {
            for _ in 0..1024 {
                rx.rx_burst(&mut cache, &mut batch);
                *packets += batch.len() as u64;
                tx.tx_burst(&mut cache, &mut batch);
                cache.free_all(&mut batch);
                tx.flush(&mut cache);
            }
        };
        for _ in 0..100 {
            turn(&mut packets);
        }
        packets = 0;
        let (start, cpu) = (Instant::now(), base::clock::cpu_time_ns(me).unwrap_or(0));
        while start.elapsed() < time {
            turn(&mut packets);
        }
        let spent = base::clock::cpu_time_ns(me).unwrap_or(0) - cpu;
        spent as f64 * base::clock::tsc_hz() as f64 / 1e9 / packets.max(1) as f64
    };
    std::thread::spawn(forward).join().map_err(|_| "the floor's thread panicked".to_string())
}
