//! What goes by the clock, in a process of its own whose time is stopped: nothing here depends on how fast
//! the machine is, or on what else it does.

mod clock_wrap;
mod counters;
mod new_connections;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Stops the process's time; the test that holds it moves it, one at a time.
fn stopped_time() -> MutexGuard<'static, ()> {
    static TIME: Mutex<()> = Mutex::new(());
    base::clock::stop();
    TIME.lock().unwrap_or_else(PoisonError::into_inner)
}
