//! `dpdk-testpmd` with a virtio-user device.

use super::{Guest, Place};
use crate::lab::testpmd;
use crate::process::{Process, missing};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

/// See the module documentation.
pub struct Testpmd;

impl Guest for Testpmd {
    fn name(&self) -> &'static str {
        "testpmd"
    }

    fn refuses(&self) -> Option<String> {
        let is_there = Path::new(testpmd::PROGRAM).exists();
        (!is_there).then(|| missing(testpmd::PROGRAM))
    }

    fn start(&self, place: &Place) -> Result<Process, String> {
        let socket = place.socket;
        let name = socket.file_name().and_then(|n| n.to_str()).unwrap_or("guest");
        let mut command = Command::new("stdbuf");
        command.args(testpmd::ANSWERS_AT_ONCE);
        command.args(["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf"]);
        command.arg(testpmd::threads(place.cpu));
        command.arg(format!("--file-prefix=xpb-{}-{name}", std::process::id()));
        let (rings, queues) = (place.rings, place.queues);
        // virtio-user has one size for all rings; testpmd then uses fewer descriptors of one of them.
        let queue_size = rings.rx.max(rings.tx);
        let device = format!("path={},server=1,queues={queues},queue_size={queue_size}", socket.display());
        command.arg(format!("--vdev=net_virtio_user0,{device}"));
        let frame = u32::from(place.mtu) + 18;
        // Both rings full, and packets in flight.
        let buffers = (u32::from(rings.rx) + u32::from(rings.tx)) * queues as u32 + 3_584;
        command.args(["--", "--interactive", "--forward-mode=io", "--nb-cores=1", "--auto-start"]);
        command.args([
            format!("--total-num-mbufs={buffers}"),
            format!("--rxq={queues}"),
            format!("--txq={queues}"),
            format!("--rxd={}", rings.rx),
            format!("--txd={}", rings.tx),
            format!("--burst={}", rings.burst),
            format!("--max-pkt-len={frame}"),
            // With DPDK's headroom, and the header of virtio.
            format!("--mbuf-size={}", (frame + 256).max(2_176)),
        ]);
        Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    fn dropped(&self, started: &Process) -> Result<BTreeMap<&'static str, u64>, String> {
        Ok(testpmd::counted(started)?.dropped)
    }
}
