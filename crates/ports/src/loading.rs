//! Bringing the frames that a port replays into memory, without holding up the thread that opens the port.
//!
//! Many frames are loaded by a thread of their own. Until it has finished, the port's link is down and its
//! queues receive nothing; an error becomes the port's state. A few frames are loaded while the port is
//! opened, and an error is that of opening it. Programs that measure have all frames loaded then
//! ([`PortSpec::loads_in_background`] is false).

use crate::virtual_link::VirtualLink;
use crate::{PortError, PortSpec};
use std::sync::mpsc::{Receiver, TryRecvError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};

/// Frames and files up to this size are loaded at once, which takes a few milliseconds.
const AT_ONCE_BYTES: usize = 8 << 20;

/// One load at a time: while they are read, frames take more memory than what is kept of them.
static LOADS: Mutex<()> = Mutex::new(());

/// A queue that sleeps on a timer looks this often whether its frames have come.
pub(crate) const LOOK_AGAIN_NS: u64 = 10_000_000;

/// What a queue will replay, as soon as it is loaded.
pub(crate) struct Coming<T>(Option<Receiver<T>>);

impl<T> Coming<T> {
    /// It, if it has come since the last call.
    pub(crate) fn take(&mut self) -> Option<T> {
        let come = self.0.as_ref()?.try_recv();
        if !matches!(come, Err(TryRecvError::Empty)) {
            self.0 = None;
        }
        come.ok()
    }

    /// Whether it may still come.
    pub(crate) fn is_awaited(&self) -> bool {
        self.0.is_some()
    }
}

/// Has `load` make what each queue of a port will replay, from `bytes` of memory or files.
pub(crate) fn load<T: Send + 'static>(
    spec: &PortSpec,
    link: &Arc<VirtualLink>,
    bytes: usize,
    load: impl FnOnce() -> Result<Vec<T>, PortError> + Send + 'static,
) -> Result<Vec<Coming<T>>, PortError> {
    let (senders, receivers): (Vec<_>, Vec<_>) = link.rx.iter().map(|_| sync_channel(1)).unzip();
    let hand_over = move |all: Vec<T>| {
        for (sender, one) in senders.iter().zip(all) {
            // A queue that is gone needs nothing.
            let _ = sender.send(one);
        }
    };
    if bytes <= AT_ONCE_BYTES || !spec.loads_in_background {
        hand_over(load()?);
    } else {
        link.set_loading(true);
        let link = link.clone();
        let thread = std::thread::Builder::new().name("load".into());
        let one_by_one = move || {
            let _turn = LOADS.lock().unwrap_or_else(PoisonError::into_inner);
            load()
        };
        let work = move || match one_by_one() {
            Ok(all) => {
                hand_over(all);
                link.set_loading(false);
            }
            Err(error) => *link.error.lock().expect("no panic while held") = Some(error.to_string()),
        };
        thread.spawn(work).map_err(|e| PortError::os("start a thread to load frames", &e))?;
    }
    Ok(receivers.into_iter().map(|receiver| Coming(Some(receiver))).collect())
}
