//! What the machine did in the turns of a measurement, until rows are made of them. Turns and rows are of one
//! thread: each row gets what happened in the turns of its switch since rows were last made.

use super::watch::{Watch, Watched};
use std::cell::RefCell;

#[derive(Default)]
struct Turns {
    /// With the name of the switch that had it.
    all: Vec<(String, Watched)>,
    /// Whether a row has been made of them: then the next turn is another row's.
    have_row: bool,
}

thread_local! {
    static TURNS: RefCell<Turns> = RefCell::default();
}

/// Has a turn of a switch, and notes what the machine did meanwhile to this process and to those that it has
/// started.
pub fn turn<T>(switch: &str, act: impl FnOnce() -> T) -> T {
    let watch = Watch::start(&[std::process::id()]);
    let result = act();
    note(switch, watch.end());
    result
}

/// Notes a turn.
pub fn note(switch: &str, watched: Watched) {
    TURNS.with_borrow_mut(|turns| {
        if std::mem::take(&mut turns.have_row) {
            turns.all.clear();
        }
        turns.all.push((switch.to_string(), watched));
    });
}

/// What the machine did in the turns of a switch of which rows are made now; `None` if it had none.
pub fn of_row(switch: &str) -> Option<Watched> {
    TURNS.with_borrow_mut(|turns| {
        turns.have_row = true;
        let own = turns.all.iter().filter(|(name, _)| name == switch);
        own.map(|(_, watched)| *watched).reduce(Watched::and)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_turns_of_its_switch_since_rows_were_made() {
        let of = |steal, preemptions| Watched { seconds: 1.0, steal, preemptions, ..Watched::default() };
        assert_eq!(turn("ours", || 7), 7);
        assert!(of_row("ours").is_some() && of_row("theirs").is_none());
        for n in 0..3 {
            note("ours", of(0.0, n));
            note("theirs", of(0.2, 10));
        }
        // Two rows of one switch may be made of the same turns.
        for _ in 0..2 {
            let (ours, theirs) = (of_row("ours").unwrap(), of_row("theirs").unwrap());
            assert_eq!((ours.steal_at_worst, ours.preemptions, ours.warning()), (Some(0.0), 3, None));
            assert_eq!((theirs.seconds, theirs.preemptions), (3.0, 30));
            assert!(theirs.warning().is_some());
        }
        note("ours", of(0.0, 1));
        assert_eq!((of_row("ours").unwrap().preemptions, of_row("theirs")), (1, None));
    }
}
