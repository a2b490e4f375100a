//! Memory that the options of ports make the switch or the kernel keep: frames to be replayed, capture files
//! while they are read, rings of packet sockets.
//!
//! Options come from clients of the database, and memory must not run out because of them. So what one port
//! takes is bounded, and so is what all ports take together. A driver reserves memory before it takes it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that the frames which one port replays may take.
pub(crate) const REPLAY_BYTES_MAX: usize = 2 << 30;
/// Bytes that all ports may take: twice as much, so that a port of any size can be reopened.
const ALL_BYTES_MAX: usize = 4 << 30;

/// The memory of all ports that share this.
#[derive(Clone, Debug)]
pub struct PortMemory(Arc<Account>);

#[derive(Debug)]
struct Account {
    bytes_max: usize,
    used: AtomicUsize,
}

impl Default for PortMemory {
    fn default() -> PortMemory {
        PortMemory::new(ALL_BYTES_MAX)
    }
}

/// Whether it is the same memory.
impl PartialEq for PortMemory {
    fn eq(&self, other: &PortMemory) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for PortMemory {}

impl PortMemory {
    /// At most this many bytes.
    pub fn new(bytes_max: usize) -> PortMemory {
        PortMemory(Arc::new(Account { bytes_max, used: AtomicUsize::new(0) }))
    }

    /// Reserves memory until what is returned is dropped.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<Reserved, String> {
        let Account { bytes_max, used } = &*self.0;
        let add = |used: usize| used.checked_add(bytes).filter(|sum| sum <= bytes_max);
        match used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add) {
            Ok(_) => Ok(Reserved { memory: self.clone(), bytes }),
            Err(used) => Err(format!(
                "{} MB of memory is needed, but only {} MB of the {} MB for all ports are left",
                bytes.div_ceil(1 << 20),
                (bytes_max - used) >> 20,
                bytes_max >> 20
            )),
        }
    }

    /// Bytes that are reserved now.
    #[cfg(test)]
    pub(crate) fn used(&self) -> usize {
        self.0.used.load(Ordering::Relaxed)
    }
}

/// Memory that a port has reserved.
#[derive(Debug)]
pub(crate) struct Reserved {
    memory: PortMemory,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.memory.0.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Refuses frames that would take too much memory of one port.
pub(crate) fn check_replay(bytes: usize) -> Result<(), String> {
    match bytes {
        0..=REPLAY_BYTES_MAX => Ok(()),
        _ => Err(format!(
            "{} MB of memory is needed, but the frames of a port may take only {} MB",
            bytes.div_ceil(1 << 20),
            REPLAY_BYTES_MAX >> 20
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ports_together_take_no_more_than_there_is_and_give_it_back() {
        let memory = PortMemory::new(10 << 20);
        let first = memory.reserve(6 << 20).unwrap();
        let second = memory.reserve(4 << 20).unwrap();
        assert!(memory.reserve(usize::MAX).is_err() && memory.reserve(1).is_err());
        drop(second);
        let refused = memory.clone().reserve(5 << 20).unwrap_err();
        assert_eq!(refused, "5 MB of memory is needed, but only 4 MB of the 10 MB for all ports are left");
        drop(first);
        assert_eq!(memory.used(), 0);
    }
}
