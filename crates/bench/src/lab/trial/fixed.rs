//! A fixed rate.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;

/// See the module documentation.
pub struct Fixed;

impl Trial for Fixed {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn sets_rates(&self) -> bool {
        false
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        for _ in 0..times.turns {
            let offered = bed.offer(&Load { seconds: times.seconds, ..load.clone() })?;
            outcome.turn(&offered);
            outcome.latency("", &offered);
        }
        Ok(outcome)
    }
}
