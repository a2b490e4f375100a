//! The cost of a bare sleep and wake for a thread on this machine.

use rustix::event::{EventfdFlags, eventfd};
use std::sync::OnceLock;
use std::time::Duration;

/// Sleeps that are measured.
const SLEEPS: u32 = 1_000;
/// From one wake to the next: long enough to fall asleep.
const GAP: Duration = Duration::from_micros(200);

/// CPU time in seconds of the thread that sleeps and is woken, its two system calls included. Measured once
/// in a run.
pub fn wake_cost_s() -> Result<f64, String> {
    static COST: OnceLock<Result<f64, String>> = OnceLock::new();
    COST.get_or_init(measure).clone()
}

fn measure() -> Result<f64, String> {
    let event = eventfd(0, EventfdFlags::empty()).map_err(|e| format!("eventfd: {e}"))?;
    let one = 1u64.to_ne_bytes();
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| {
            let before = base::clock::thread_cpu_ns();
            for _ in 0..SLEEPS {
                rustix::io::read(&event, &mut [0; 8]).map_err(|e| format!("eventfd: {e}"))?;
            }
            Ok::<u64, String>(base::clock::thread_cpu_ns() - before)
        });
        // A sleeper that was late has had two events in one: it gets as many as it needs.
        while !sleeper.is_finished() {
            std::thread::sleep(GAP);
            rustix::io::write(&event, &one).map_err(|e| format!("eventfd: {e}"))?;
        }
        let cpu_ns = sleeper.join().map_err(|_| "the thread that sleeps has panicked".to_string())??;
        Ok(cpu_ns as f64 / f64::from(SLEEPS) / 1e9)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_costs_microseconds() {
        let cost_s = wake_cost_s().unwrap();
        assert!(cost_s > 2e-7 && cost_s < 1e-3, "{cost_s}");
    }
}
