//! `time/*`: tests stop the clock and warp it. All timeouts follow: rules, cached flows, addresses,
//! connections, probes.

use crate::state::{Shared, Vswitch};
use std::time::Duration;
use transport::clock;

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

/// A warp in progress.
pub(crate) struct Warp {
    left_ms: u64,
    step_ms: u64,
}

/// `time/warp [TOTAL] STEP`: forward by STEP, as often as TOTAL takes, with the switch's work after each
/// step.
pub fn warp(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let ms = |text: &String| text.parse::<u64>().ok().filter(|ms| (1..=i32::MAX as u64).contains(ms));
    let (total, step) = match args {
        [step] => (ms(step), ms(step)),
        [total, step] => (ms(total), ms(step)),
        _ => (None, None),
    };
    let (Some(left_ms), Some(step_ms)) = (total, step) else { return Err("invalid MSECS".into()) };
    if left_ms / step_ms > STEPS_MAX {
        return Err(format!("more than {STEPS_MAX} steps"));
    }
    vswitch.begin(async move |shared| {
        Warp { left_ms, step_ms }.run(&shared).await;
        Ok("warped".into())
    });
    Ok(String::new())
}

impl Warp {
    /// Runs all its steps. Connections have their turns after each: a peer that is probed in one step has
    /// answered by the next, if it is quick.
    pub async fn run(mut self, shared: &Shared) {
        while self.left_ms > 0 {
            let step_ms = self.step_ms.min(self.left_ms);
            clock::warp(step_ms);
            self.left_ms -= step_ms;
            // A worker that sleeps wakes by this, and judges what it caches by the new time.
            shared.borrow_mut().plane.dp.fold(STEP_WAIT);
            for _ in 0..ROUNDS {
                {
                    let mut vswitch = shared.borrow_mut();
                    vswitch.tick();
                    vswitch.plane.dp.fold(STEP_WAIT);
                }
                tokio::task::yield_now().await;
            }
        }
    }
}
