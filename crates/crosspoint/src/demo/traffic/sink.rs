//! The receiving end: counts, and sends back what asks for it.

use super::frame::{self, Kind};
use super::host::{Host, Interface};
use super::report::report;
use packet::Batch;
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum sleep before it checks whether to end.
const NAP_MS: u32 = 50;

/// Counters of received frames.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SinkReport {
    /// Packets of streams.
    pub stream: u64,
    /// Probes.
    pub probes: u64,
    /// Packets that came and found no room in the receiving socket.
    pub missed: u64,
}

/// Counts until standard input closes.
pub fn run(interface: &Interface) -> Result<(), String> {
    let mut host = Host::open(interface)?;
    let stop = Arc::new(AtomicBool::new(false));
    let on_close = stop.clone();
    std::thread::spawn(move || {
        // Nothing is ever written to it: reading returns when it is closed.
        let _ = std::io::stdin().read(&mut [0]);
        on_close.store(true, Ordering::Relaxed);
    });
    println!("ready");
    let (mut batch, mut replies) = (Batch::new(), Batch::new());
    let mut counts = SinkReport::default();
    while !stop.load(Ordering::Relaxed) {
        host.receive(&mut batch)?;
        if batch.is_empty() {
            host.wait(NAP_MS);
            continue;
        }
        for mut packet in batch.drain(..) {
            let kind = frame::read(packet.data()).map(|(kind, _)| kind);
            match kind {
                Some(Kind::Stream | Kind::StreamEcho) => counts.stream += 1,
                Some(Kind::Probe) => counts.probes += 1,
                None => {}
            }
            if matches!(kind, Some(Kind::StreamEcho | Kind::Probe)) {
                frame::turn_round(packet.data_mut());
                replies.push(packet);
            } else {
                host.cache.free(packet);
            }
        }
        host.send(&mut replies);
    }
    counts.missed = host.missed();
    report(&counts)
}
