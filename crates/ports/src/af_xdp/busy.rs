//! An interface that another process has, or has not quite given up: how to wait for it.
//!
//! The kernel takes a killed process's program and sockets down a moment after its end. Opening a port never
//! waits for that, but reports [`PortError::Busy`] at once. The caller waits between attempts, all of which
//! have one deadline ([`Wait`]). An attempt may change the device for a moment (its offloads, say), so none
//! is made while the reason stands.

use super::{program, socket};
use crate::PortError;
use crate::spec::Blocker;
use std::time::{Duration, Instant};

/// How long an interface may be busy before that is an error.
pub(crate) const GRACE: Duration = Duration::from_millis(1500);
/// Between two looks at what is in the way.
const LOOK: Duration = Duration::from_millis(5);

/// Whether what was in the way of a port is so no longer. Does not wait.
pub fn is_gone(blocker: Blocker) -> bool {
    match blocker.queue_id {
        Some(queue_id) => socket::is_released(blocker.ifindex, queue_id),
        None => !program::is_ours_attached(blocker.ifindex),
    }
}

/// The wait for a busy interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    /// What was still in the way at the last look.
    by: Option<Blocker>,
    until: Instant,
    /// When to look or to try again.
    next: Instant,
    /// From when the way is free to the next attempt: to look at a queue is to bind a socket to it, which the
    /// kernel takes a moment to release. Each time twice as long.
    pause: Duration,
}

impl Wait {
    /// Begins when an attempt has failed because of this.
    pub fn begin(by: Blocker, now: Instant) -> Wait {
        Wait::of(GRACE, by, now)
    }

    fn of(grace: Duration, by: Blocker, now: Instant) -> Wait {
        Wait { by: Some(by), until: now + grace, next: now + LOOK, pause: LOOK }
    }

    /// Another attempt has failed, for this reason.
    pub fn go_on(&mut self, by: Blocker, now: Instant) {
        self.pause *= 2;
        (self.by, self.next) = (Some(by), now + LOOK);
    }

    /// Whether the time is over: the next attempt is the last.
    pub fn is_over(&self, now: Instant) -> bool {
        now >= self.until
    }

    /// Whether it is too soon for the next attempt. Looks whether the way is free if it is time for that.
    pub fn is_too_soon(&mut self, now: Instant, is_gone: impl Fn(Blocker) -> bool) -> bool {
        if self.is_over(now) {
            return false;
        }
        if now >= self.next {
            let Some(by) = self.by else { return false };
            let is_free = is_gone(by);
            self.by = self.by.filter(|_| !is_free);
            self.next = now + if is_free { self.pause } else { LOOK };
        }
        true
    }
}

/// Attempts until the interface is not busy any more, or `grace` is over. The argument says whether there may
/// be another attempt.
pub(crate) fn while_busy<T>(
    grace: Duration,
    mut attempt: impl FnMut(bool) -> Result<T, PortError>,
) -> Result<T, PortError> {
    let mut wait: Option<Wait> = None;
    loop {
        let is_last = wait.is_some_and(|wait| wait.is_over(Instant::now()));
        let by = match attempt(!is_last) {
            Err(PortError::Busy { by, .. }) if !is_last => by,
            result => return result,
        };
        let now = Instant::now();
        match &mut wait {
            Some(wait) => wait.go_on(by, now),
            None => wait = Some(Wait::of(grace, by, now)),
        }
        while wait.as_mut().is_some_and(|wait| wait.is_too_soon(Instant::now(), is_gone)) {
            std::thread::sleep(LOOK);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_get_rarer_and_have_one_deadline_and_none_is_made_while_the_reason_stands() {
        let by = Blocker { ifindex: 1, queue_id: None };
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut wait = Wait::begin(by, start);
        let mut attempts = Vec::new();
        for ms in 0..=1500 {
            // For a fifth of a second it stands.
            while !wait.is_too_soon(at(ms), |gone| gone == by && ms >= 200) {
                attempts.push(ms);
                if wait.is_over(at(ms)) {
                    break;
                }
                wait.go_on(by, at(ms));
            }
        }
        assert_eq!(attempts, [205, 220, 245, 290, 375, 540, 865, 1500]);
    }

    #[test]
    fn a_busy_port_is_attempted_to_the_end_of_the_grace_and_then_once_more_for_good() {
        let by = Blocker { ifindex: u32::MAX, queue_id: None };
        let mut attempts = Vec::new();
        let result: Result<(), _> = while_busy(Duration::from_millis(12), |may_retry| {
            attempts.push(may_retry);
            Err(PortError::Busy { by, why: "busy".into() })
        });
        assert_eq!(result.unwrap_err().to_string(), "busy");
        let last = attempts.pop();
        assert!(last == Some(false) && !attempts.is_empty() && attempts.iter().all(|may_retry| *may_retry));
        assert_eq!(while_busy(Duration::ZERO, |_| Ok(7)), Ok(7));
    }
}
