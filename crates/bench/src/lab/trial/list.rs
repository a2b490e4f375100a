//! All trials.

use super::Trial;
use super::back_to_back::BackToBack;
use super::changes::Changes;
use super::effect::Effect;
use super::fixed::Fixed;
use super::latency::Latency;
use super::max_rate::MaxRate;
use super::mlr::Mlr;
use super::profile::Profile;
use super::reset::Reset;
use super::rfc2544::Rfc2544;
use super::soak::Soak;
use crate::lab::bed::Upset;

/// See the module documentation.
pub const TRIALS: &[&dyn Trial] = &[
    &Fixed,
    &MaxRate,
    &Mlr,
    &Rfc2544,
    &BackToBack,
    &Latency,
    &Soak,
    &Profile,
    &Reset { name: "reset-restart", upset: Upset::Restart },
    &Reset { name: "reset-kill", upset: Upset::Kill },
    &Reset { name: "reset-guest", upset: Upset::Guest },
    &Reset { name: "reset-link", upset: Upset::Link },
    &Reset { name: "blocked", upset: Upset::Block },
    &Changes { name: "changes-0", per_s: 0 },
    &Changes { name: "changes-1", per_s: 1 },
    &Changes { name: "changes-100", per_s: 100 },
    &Changes { name: "changes-10k", per_s: 10_000 },
    &Effect,
];

/// The trial of this name.
pub fn find(name: &str) -> Option<&'static dyn Trial> {
    TRIALS.iter().copied().find(|t| t.name() == name)
}
