//! `time/*`: tests stop the clock and move it by hand. Everything that times out follows: rules, cached flows, addresses,
//! connections, probes.

use crate::clock;
use crate::state::Vswitch;
use std::time::Duration;

/// Longest that a step waits for the workers to have seen the new time.
const STEP_WAIT: Duration = Duration::from_millis(1_000);
/// Most steps of one command.
const STEPS_MAX: u64 = 100_000;
/// Rounds of the control thread's work after a step, for what takes several.
const ROUNDS: usize = 8;

pub fn stop(_: &mut Vswitch, _: &[String]) -> Result<String, String> {
    clock::stop();
    Ok(String::new())
}

/// `time/warp [TOTAL] STEP`: forward by STEP, as often as TOTAL takes, with the switch's periodic work after each step.
pub fn warp(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let ms = |text: &String| text.parse::<u64>().ok().filter(|ms| (1..=i32::MAX as u64).contains(ms));
    let (total, step) = match args {
        [step] => (ms(step), ms(step)),
        [total, step] => (ms(total), ms(step)),
        _ => (None, None),
    };
    let (Some(total), Some(step)) = (total, step) else { return Err("invalid MSECS".into()) };
    if total / step > STEPS_MAX {
        return Err(format!("more than {STEPS_MAX} steps"));
    }
    let mut left = total;
    while left > 0 {
        let now = step.min(left);
        clock::warp(now);
        left -= now;
        // A worker that sleeps wakes by this, and judges what it caches by the new time.
        vswitch.dp.fold(STEP_WAIT);
        for _ in 0..ROUNDS {
            vswitch.tick();
            vswitch.dp.fold(STEP_WAIT);
        }
    }
    Ok("warped".into())
}
