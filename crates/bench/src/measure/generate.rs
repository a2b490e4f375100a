//! A traffic generator for kernel interfaces: small UDP frames at a fixed rate through a packet socket, in
//! bursts between which it sleeps, so that what it costs the machine is what it does.

use crate::measure::frames;
use crate::units::{count, seconds};
use base::PortNo;
use packet::{BURST, Batch, Pool, PoolConfig};
use ports::PortSpec;
use std::time::{Duration, Instant};

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// The interface.
    #[arg(long)]
    ifname: String,
    /// Frames per second.
    #[arg(long, value_parser = count)]
    rate: usize,
    /// Flows, in turn.
    #[arg(long, value_parser = count, default_value = "100")]
    flows: usize,
    /// For how long.
    #[arg(long, value_parser = seconds)]
    seconds: f64,
}

/// Sends.
pub fn run(args: &Args) -> Result<(), String> {
    let pool = Pool::new(PoolConfig { chunks: 1024, ..PoolConfig::default() }).map_err(|e| e.to_string())?;
    let spec = PortSpec::new(&args.ifname, "system", PortNo(1)).with("driver", "af_packet");
    let mut port = ports::open(&spec, pool).map_err(|e| e.to_string())?;
    let mut tx = port.take_tx_queues(1).into_iter().next().ok_or("no transmit queue")?;
    let mut cache = pool.cache();
    let frames: Vec<Vec<u8>> = (0..args.flows).map(frames::frame).collect();
    let mut next = frames.iter().cycle();
    let (start, mut sent, mut batch) = (Instant::now(), 0u64, Batch::new());
    let length = Duration::from_secs_f64(args.seconds);
    while start.elapsed() < length {
        let due = (start.elapsed().as_secs_f64() * args.rate as f64) as u64;
        // Late by more than this it skips: a burst that floods the receiver measures nothing.
        sent = sent.max(due.saturating_sub(4 * BURST as u64));
        if due < sent + BURST as u64 {
            let wait = (sent + BURST as u64 - due) as f64 / args.rate as f64;
            std::thread::sleep(Duration::from_secs_f64(wait));
            continue;
        }
        for frame in next.by_ref().take(BURST) {
            batch.extend(cache.alloc_frame(frame));
        }
        tx.tx_burst(&mut cache, &mut batch);
        cache.free_all(&mut batch);
        tx.flush(&mut cache);
        sent += BURST as u64;
    }
    tx.close(&mut cache);
    println!("{}", port.stats().tx_packets);
    Ok(())
}
