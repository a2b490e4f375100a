//! `dpdk-testpmd` with a virtio-user device.

use super::{BURST, DESCRIPTORS, Guest, Place};
use crate::process::Process;
use std::path::Path;
use std::process::{Command, Stdio};

/// See the module's text.
pub struct Testpmd;

impl Guest for Testpmd {
    fn name(&self) -> &'static str {
        "testpmd"
    }

    fn refuses(&self) -> Option<String> {
        let is_there = Path::new("/usr/bin/dpdk-testpmd").exists();
        (!is_there).then(|| "dpdk-testpmd is missing: install dpdk-dev".to_string())
    }

    fn start(&self, place: &Place) -> Result<Process, String> {
        let socket = place.socket;
        let name = socket.file_name().and_then(|n| n.to_str()).unwrap_or("guest");
        let mut command = Command::new("/usr/bin/dpdk-testpmd");
        command.args(["--no-pci", "--no-huge", "-m", "256", "--no-telemetry", "--no-shconf", "-l", "0,1"]);
        command.arg(format!("--file-prefix=xpb-{}-{name}", std::process::id()));
        let device = format!("path={},server=1,queues=1,queue_size={DESCRIPTORS}", socket.display());
        command.arg(format!("--vdev=net_virtio_user0,{device}"));
        command.args(["--", "--forward-mode=io", "--nb-cores=1", "--auto-start", "--total-num-mbufs=4096"]);
        command.args([
            format!("--rxd={DESCRIPTORS}"),
            format!("--txd={DESCRIPTORS}"),
            format!("--burst={BURST}"),
        ]);
        Process::spawn(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()))
    }
}
