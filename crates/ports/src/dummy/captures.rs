//! Capture files of what passes through a dummy: each frame is in the file by the time an observer can see
//! its effect.

use crate::pcap::file::Writer;
use crate::{PortError, PortSpec};
use std::fs::File;
use std::io::BufWriter;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

/// Buffered, and flushed after each frame: whoever else appends to the file sees whole records.
type Shared = Arc<Mutex<Writer<BufWriter<File>>>>;

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
            let written = Writer::new(BufWriter::new(file)).and_then(|mut w| w.flush().map(|()| w));
            let writer = written.map_err(|e| spec.bad(option, base::os_text(&e)))?;
            Ok(Some(Arc::new(Mutex::new(writer))))
        };
        let (pcap, rxq, tx) = (spec.option("pcap"), spec.option("rxq_pcap"), spec.option("tx_pcap"));
        let both = match pcap {
            Some(_) => open("pcap")?,
            None if rxq == tx => open("tx_pcap")?,
            None => return Ok(Captures { rx: open("rxq_pcap")?, tx: open("tx_pcap")? }),
        };
        Ok(Captures { rx: both.clone(), tx: both })
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
        let _ = writer.write(since.as_nanos() as u64, std::iter::once(frame)).and_then(|()| writer.flush());
    }
}
