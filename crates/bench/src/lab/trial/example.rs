//! Two loads in a row, as CONTRIBUTING shows how to add a trial.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::result::Better;
use crate::result::judged::{Judged, Question};

/// How much the first load after a pause is slower than the second.
pub struct First;

impl Trial for First {
    fn name(&self) -> &'static str {
        "first"
    }

    /// It takes the rate from the load: a generator that cannot be held to one will do.
    fn sets_rates(&self) -> bool {
        false
    }

    /// Its own figures by which switches are judged, with their names for readers.
    fn judged(&self) -> Vec<Judged> {
        vec![Judged::new(Question::Own, "first_ratio", "rate of the first load")]
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        for _ in 0..times.turns {
            let load = Load { seconds: times.seconds, ..load.clone() };
            let (first, second) = (bed.offer(&load)?, bed.offer(&load)?);
            // Rate, loss, cost, account and limit.
            outcome.turn(&second);
            outcome.push("first_ratio", "ratio", Better::Higher, first.rate() / second.rate());
        }
        Ok(outcome)
    }
}

#[test]
fn the_page_of_contributing_is_this_code() {
    let code = include_str!("example.rs").split("\n#[test]").next().unwrap();
    assert!(include_str!("../../../../../CONTRIBUTING.md").contains(&format!("```rust\n{code}```\n")));
    assert!(!First.sets_rates() && First.judged()[0].name == "first_ratio");
}
