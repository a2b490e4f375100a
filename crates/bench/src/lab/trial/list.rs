//! All trials.

use super::Trial;
use super::back_to_back::BackToBack;
use super::fixed::Fixed;
use super::latency::Latency;
use super::max_rate::MaxRate;
use super::mlr::Mlr;
use super::rfc2544::Rfc2544;

/// See the module's text.
pub const TRIALS: &[&dyn Trial] = &[&Fixed, &MaxRate, &Mlr, &Rfc2544, &BackToBack, &Latency];

/// The trial of this name.
pub fn find(name: &str) -> Option<&'static dyn Trial> {
    TRIALS.iter().copied().find(|t| t.name() == name)
}
