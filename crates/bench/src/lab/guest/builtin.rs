//! `crosspoint guest`: needs neither QEMU nor DPDK.

use super::{Guest, Place};
use crate::process::Process;
use std::process::{Command, Stdio};

/// See the module documentation.
pub struct Builtin;

impl Guest for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn refuses(&self) -> Option<String> {
        None
    }

    fn start(&self, place: &Place) -> Result<Process, String> {
        let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        command.args(["guest", "--listen"]).arg(place.socket);
        let rings = place.rings;
        let numbers = [("--ring-size", rings.rx), ("--tx-ring-size", rings.tx), ("--burst", rings.burst)];
        command.args(numbers.map(|(option, number)| format!("{option}={number}")));
        command.arg(format!("--queues={}", place.queues));
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))
    }
}
