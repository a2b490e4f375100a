//! Capture files of what passes through a dummy: each frame is in the file by the time an observer can see
//! its effect.

use crate::pcap::file::Writer;
use crate::{PortError, PortSpec};
use std::fs::File;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

type Shared = Arc<Mutex<Writer<File>>>;

/// The files of one port.
pub(super) struct Captures {
    rx: Option<Shared>,
    tx: Option<Shared>,
}

impl Captures {
    /// Makes the files that the options name: `pcap` gets both directions, `rxq_pcap` and `tx_pcap` get one.
    pub fn open(spec: &PortSpec) -> Result<Captures, PortError> {
        let open = |option: &str| -> Result<Option<Shared>, PortError> {
            let Some(path) = spec.option(option) else { return Ok(None) };
            let file = spec.files.create(path).map_err(|why| spec.bad(option, why))?;
            let writer = Writer::new(file).map_err(|e| spec.bad(option, e.to_string()))?;
            Ok(Some(Arc::new(Mutex::new(writer))))
        };
        match open("pcap")? {
            Some(both) => Ok(Captures { rx: Some(both.clone()), tx: Some(both) }),
            None => Ok(Captures { rx: open("rxq_pcap")?, tx: open("tx_pcap")? }),
        }
    }

    /// A frame was received.
    pub fn received(&self, frame: &[u8]) {
        write(&self.rx, frame);
    }

    /// A frame was sent.
    pub fn sent(&self, frame: &[u8]) {
        write(&self.tx, frame);
    }
}

/// A file that cannot be written to any more (a full disk) lacks the frame: nothing here may stop packets.
fn write(file: &Option<Shared>, frame: &[u8]) {
    if let Some(file) = file {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut writer = file.lock().expect("no panic while held");
        let _ = writer.write(since.as_nanos() as u64, std::iter::once(frame));
    }
}
