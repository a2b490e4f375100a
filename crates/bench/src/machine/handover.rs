//! What handing a line of memory to another processor and back costs here at the moment.
//!
//! A hypervisor moves its processors about: those of one machine share a cache now and lie far apart a second
//! later, and the packets that a switch exchanges with a guest cost three times as much. No other figure of
//! the machine shows that.

use crate::stats::median;
use base::clock::tsc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Times that the line goes to and fro in one round.
const TURNS: u32 = 500;
/// Rounds; the median of them counts: in some, one of the threads loses its processor.
const ROUNDS: u32 = 41;

/// Cycles for a line's way from the first of these processors to the second one and back. `None` if there is
/// only one.
pub fn handover_cycles(cpus: &[usize]) -> Option<f64> {
    let &[here, there, ..] = cpus else { return None };
    // A line of its own.
    #[repr(align(128))]
    struct Ball(AtomicU32);
    let ball = Ball(AtomicU32::new(0));
    let wait_for = |n: u32| {
        while ball.0.load(Ordering::Acquire) != n {
            std::hint::spin_loop();
        }
    };
    let turns = || (0..TURNS * ROUNDS).map(|n| 2 * n + 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            packet::thread::pin(there);
            for n in turns() {
                wait_for(n);
                ball.0.store(n + 1, Ordering::Release);
            }
        });
        let player = scope.spawn(|| {
            packet::thread::pin(here);
            let (mut rounds, mut start) = (Vec::new(), tsc());
            for n in turns() {
                ball.0.store(n, Ordering::Release);
                wait_for(n + 1);
                if n.div_ceil(2) % TURNS == 0 {
                    let now = tsc();
                    rounds.push((now - start) as f64 / f64::from(TURNS));
                    start = now;
                }
            }
            median(&rounds)
        });
        player.join().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_more_than_an_access_and_less_than_a_sleep() {
        let cycles = handover_cycles(&[0, 1]).unwrap();
        assert!((20.0..50_000.0).contains(&cycles), "{cycles}");
        assert_eq!(handover_cycles(&[0]), None);
    }
}
