//! What handing a cache line to another processor and back costs here at the moment.
//!
//! A hypervisor moves processors: those of one machine share a cache now and lie far apart a second later,
//! and the packets that a switch exchanges with a guest then cost two to three times as much. No other figure
//! of the machine shows that.

use crate::stats::median;
use base::clock::{tsc, tsc_hz};
use std::sync::atomic::{AtomicU32, Ordering};

/// Times that the line goes to and fro in one round.
const TURNS: u32 = 500;
/// Rounds; the median of them counts: in some, one of the threads loses its processor.
const ROUNDS: u32 = 41;
/// Without this many, nothing is told.
const ROUNDS_MIN: usize = 11;
/// The two threads may have to wait for processors that poll. They give up after one part in this many of a
/// second.
const PATIENCE: u64 = 10;
/// The clock is read after so many looks at the line.
const LOOKS: u32 = 1_024;

/// A line of its own.
#[derive(Default)]
#[repr(align(128))]
struct Ball(AtomicU32);

impl Ball {
    /// False if it does not come in time.
    fn comes(&self, n: u32, end: u64) -> bool {
        loop {
            for _ in 0..LOOKS {
                if self.0.load(Ordering::Acquire) == n {
                    return true;
                }
                std::hint::spin_loop();
            }
            if tsc() > end {
                return false;
            }
        }
    }

    fn goes(&self, n: u32) {
        self.0.store(n, Ordering::Release);
    }
}

/// Cycles for handing a cache line from the machine's first processor to its second one and back. `None` if
/// there is only one, or this process may not use both, or they are too busy to tell.
pub fn handover_cycles() -> Option<f64> {
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    between(first_two(&online)?)
}

/// Of a list like `0-3,5`.
fn first_two(list: &str) -> Option<[usize; 2]> {
    let ranges = list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().ok().zip(last.parse().ok()).map(|(first, last): (usize, usize)| first..=last)
    });
    let mut cpus = ranges.flatten().flatten();
    Some([cpus.next()?, cpus.next()?])
}

fn between([here, there]: [usize; 2]) -> Option<f64> {
    let ball = Ball::default();
    let end = tsc() + tsc_hz() / PATIENCE;
    let turns = || (0..TURNS * ROUNDS).map(|n| 2 * n + 1);
    let rounds = std::thread::scope(|scope| {
        scope.spawn(|| {
            // A thread that stays on the other's processor would wait for it by the time slice.
            if packet::thread::pin(there) {
                turns().take_while(|n| ball.comes(*n, end)).for_each(|n| ball.goes(n + 1));
            }
        });
        let player = scope.spawn(|| {
            let mut rounds = Vec::new();
            if !packet::thread::pin(here) {
                return rounds;
            }
            let mut start = tsc();
            for n in turns() {
                ball.goes(n);
                if !ball.comes(n + 1, end) {
                    break;
                }
                if n.div_ceil(2).is_multiple_of(TURNS) {
                    let now = tsc();
                    rounds.push((now - start) as f64 / f64::from(TURNS));
                    start = now;
                }
            }
            rounds
        });
        player.join().unwrap_or_default()
    });
    (rounds.len() >= ROUNDS_MIN).then(|| median(&rounds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_takes_more_than_an_access_and_less_than_a_sleep() {
        // Tests beside this one may keep both processors busy.
        let cycles = (0..100).find_map(|_| handover_cycles()).expect("two processors");
        assert!((20.0..50_000.0).contains(&cycles), "{cycles}");
        assert_eq!(between([0, 100_000]), None);
    }

    #[test]
    fn the_first_two_of_a_list_are_found() {
        assert_eq!(first_two("0-3\n"), Some([0, 1]));
        assert_eq!(first_two("1,4-7\n"), Some([1, 4]));
        assert_eq!((first_two("0\n"), first_two("")), (None, None));
    }
}
