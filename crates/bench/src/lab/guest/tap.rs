//! A guest behind a tap device, as QEMU without vhost-user has it: the switch has the device's kernel side, a
//! process has the file and sends back what it reads.

use super::{Guest, Place};
use crate::daemon::in_namespace;
use crate::lab::topology::Vnic;
use crate::process::Process;
use packet::{Batch, Pool, PoolConfig};
use ports::PortSpec;
use std::process::Stdio;
use std::time::Duration;

/// See the module documentation.
pub struct Tap;

/// Arguments of the process.
#[derive(clap::Args)]
pub struct Args {
    /// The device to make.
    name: String,
}

/// The process: loops packets back until it is killed.
pub fn run(args: &Args) -> Result<(), String> {
    let config = PoolConfig { chunks: 4_096, ..PoolConfig::default() };
    let pool = Pool::new(config).map_err(|e| e.to_string())?;
    let spec = PortSpec::new(&args.name, "tap", base::PortNo(1));
    let mut port = ports::open(&spec, pool).map_err(|e| e.to_string())?;
    let mut rx = port.take_rx_queues().into_iter().next().ok_or("no receive queue")?;
    let mut tx = port.take_tx_queues(1).into_iter().next().ok_or("no transmit queue")?;
    let (mut cache, mut batch, mut empty) = (pool.cache(), Batch::new(), 0u32);
    loop {
        rx.rx_burst(&mut cache, &mut batch);
        empty = if batch.is_empty() { empty + 1 } else { 0 };
        tx.tx_burst(&mut cache, &mut batch);
        cache.free_all(&mut batch);
        tx.flush(&mut cache);
        // It shares processors with the switch.
        if empty > 1_000 {
            std::thread::sleep(Duration::from_micros(50));
        } else if empty > 10 {
            std::thread::yield_now();
        }
    }
}

impl Guest for Tap {
    fn name(&self) -> &'static str {
        "tap"
    }

    fn vnic(&self) -> Vnic {
        Vnic::Tap
    }

    /// One, whatever is requested.
    fn queues(&self, _wanted: usize) -> usize {
        1
    }

    fn refuses(&self) -> Option<String> {
        let is_there = std::path::Path::new("/dev/net/tun").exists();
        (!is_there).then(|| "/dev/net/tun is missing: load the module tun".to_string())
    }

    fn start(&self, place: &Place) -> Result<Process, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = in_namespace(Some(place.namespace), &program);
        command.args(["bench", "tap-guest", place.interface]);
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }
}
