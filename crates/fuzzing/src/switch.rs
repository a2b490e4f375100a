//! Targets for `switch`: what a controller hands back is read, and written the same.

use ::switch::{read_continuation, write_continuation};

/// A continuation. What is read says the same when it is written and read again.
pub fn switch_continuation(input: &[u8]) {
    let Ok(rest) = read_continuation(input) else { return };
    let Some(written) = write_continuation(&rest) else { return };
    let again = read_continuation(&written).expect("what was written is read");
    let actions = |rest: &::switch::Rest| rest.actions().cloned().collect::<Vec<_>>();
    assert_eq!(actions(&again), actions(&rest));
    assert_eq!(write_continuation(&again), Some(written));
}
