//! Maximum receive rate: as much as the generator can is offered, and loss allowed, as in Red Hat's test.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;

/// See the module documentation.
pub struct MaxRate;

impl Trial for MaxRate {
    fn name(&self) -> &'static str {
        "max-rate"
    }

    fn sets_rates(&self) -> bool {
        false
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        for _ in 0..times.turns {
            let offered = bed.offer(&Load { seconds: times.seconds, rate: None, ..load.clone() })?;
            outcome.turn(&offered);
        }
        Ok(outcome)
    }
}
