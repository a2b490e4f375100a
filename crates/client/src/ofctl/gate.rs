//! When the thread that reads from the switch may go on.

use std::sync::{Condvar, Mutex, PoisonError};

/// With so many bytes read and not taken yet, no more are read.
const QUEUED_MAX: usize = 4 << 20;

/// While it is closed nothing more is read from the switch, which then fills its buffers.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    opened: Condvar,
}

#[derive(Default)]
pub struct GateState {
    /// A command of the control socket has closed it.
    pub is_closed: bool,
    /// Bytes that were read and that the main thread has not taken yet. It may write to a terminal that is
    /// stopped, or to a slow pipe.
    pub queued: usize,
    /// The main thread is sending: the switch may have to be read first.
    pub is_sending: bool,
}

impl GateState {
    fn is_open(&self) -> bool {
        !self.is_closed && (self.queued < QUEUED_MAX || self.is_sending)
    }
}

impl Gate {
    /// Changes what it depends on.
    pub fn set(&self, change: impl FnOnce(&mut GateState)) {
        // The state is valid even if another thread panicked.
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut state);
        if state.is_open() {
            self.opened.notify_one();
        }
    }

    /// Waits until it is open.
    pub fn pass(&self) {
        let guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let is_shut = |state: &mut GateState| !state.is_open();
        let _open = self.opened.wait_while(guard, is_shut).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gate_is_shut_while_much_waits_unless_the_main_thread_sends() {
        let gate = Gate::default();
        let is_open = || gate.state.lock().unwrap().is_open();
        gate.set(|gate| gate.queued += QUEUED_MAX);
        assert!(!is_open());
        gate.set(|gate| gate.is_sending = true);
        assert!(is_open());
        gate.pass();
        gate.set(|gate| gate.is_closed = true);
        assert!(!is_open());
        gate.set(|gate| (gate.is_closed, gate.is_sending, gate.queued) = (false, false, QUEUED_MAX - 1));
        gate.pass();
    }
}
