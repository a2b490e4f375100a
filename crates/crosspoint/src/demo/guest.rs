//! The demo's guest: this binary's `guest`, which stands for a virtual machine that forwards every packet
//! back to where it came from.

use super::command::{Child, RUN_DIR, Shell};
use super::error::DemoError;
use std::fs::{self, File};
use std::path::Path;
use std::time::{Duration, Instant};

/// Descriptors of its rings: more than the source has on its way.
const RING_SIZE: u16 = 1024;
/// How long it may take to listen.
const START_WITHIN: Duration = Duration::from_secs(10);

/// The running guest. Ended when dropped.
pub struct Guest {
    child: Child,
}

impl Guest {
    /// Starts it, and waits until the switch can connect.
    pub fn start(shell: &Shell) -> Result<Guest, DemoError> {
        let (socket, log_path) = (socket(), format!("{RUN_DIR}/guest.log"));
        let command = format!("crosspoint guest --listen --mode loopback --ring-size {RING_SIZE} {socket}");
        shell.show(&format!("{command} &"));
        let log = File::create(&log_path).map_err(|e| DemoError::new(format!("{log_path}: {e}")))?;
        let mut child = shell.spawn_logging(&command, log)?;
        let start = Instant::now();
        while !Path::new(&socket).exists() {
            if !child.is_running()? || start.elapsed() > START_WITHIN {
                let said = fs::read_to_string(&log_path).unwrap_or_default();
                return Err(DemoError::new(format!("the guest did not start:\n{said}")));
            }
            shell.nap()?;
        }
        Ok(Guest { child })
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Asks it to end, and waits for that.
    pub fn stop(self) {
        self.child.terminate();
    }
}

/// The socket on which it listens for the switch.
pub fn socket() -> String {
    format!("{RUN_DIR}/guest.sock")
}
