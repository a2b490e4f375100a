//! The keepalive thread: what must happen in time, however long the control thread is busy. (Requests do not
//! occupy it for long, but it may be starved of its processor or stopped by the kernel.) It handles the
//! probes of OpenFlow connections; exporters and protocols that send hellos attach in the same way.
//!
//! An attached task is a function that is called when it is due, and returns when it is due next. It may take
//! locks that are held only briefly, and must not wait for anything.
//!
//! Threads: [`Keepalive`] belongs to the control thread, which updates the [`Pulse`]; attached tasks read it
//! to learn whether the control thread is late.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The control thread is late when its [`Pulse`] is this old. It beats ten times a second.
const LATE: Duration = Duration::from_millis(300);
/// Longest sleep of the thread.
const LONGEST: Duration = Duration::from_secs(3_600);

/// Called when it is due. Returns when it is due next; `None` when it is done.
type Attached = Box<dyn FnMut(Instant) -> Option<Instant> + Send>;

/// See the module documentation. The thread ends with it.
pub(crate) struct Keepalive {
    attach: Sender<Attached>,
    pulse: Arc<Pulse>,
}

/// When the control thread last came round.
pub(crate) struct Pulse {
    start: Instant,
    beat_ms: AtomicU64,
}

impl Pulse {
    fn new(start: Instant) -> Pulse {
        Pulse { start, beat_ms: AtomicU64::new(0) }
    }

    fn beat(&self, now: Instant) {
        let ms = now.saturating_duration_since(self.start).as_millis() as u64;
        self.beat_ms.store(ms, Ordering::Relaxed);
    }

    /// Whether the control thread is late.
    pub fn is_late(&self, now: Instant) -> bool {
        let beat = self.start + Duration::from_millis(self.beat_ms.load(Ordering::Relaxed));
        now.saturating_duration_since(beat) >= LATE
    }

    /// The next multiple of an interval since the start. What is due by it is due together, so that a
    /// thousand connections wake the thread no more often than one.
    pub fn next(&self, now: Instant, interval: Duration) -> Instant {
        let passed = now.saturating_duration_since(self.start).as_nanos();
        let intervals = passed / interval.as_nanos().max(1) + 1;
        self.start + Duration::from_nanos((intervals * interval.as_nanos()) as u64)
    }
}

impl Keepalive {
    /// Starts the thread.
    pub fn start() -> io::Result<Keepalive> {
        let (attach, attached) = channel();
        let thread = std::thread::Builder::new().name("keepalive".into());
        thread.spawn(move || run(&attached))?;
        Ok(Keepalive { attach, pulse: Arc::new(Pulse::new(Instant::now())) })
    }

    /// The control thread has come round.
    pub fn beat(&self) {
        self.pulse.beat(Instant::now());
    }

    pub fn pulse(&self) -> Arc<Pulse> {
        self.pulse.clone()
    }

    /// Attaches a function: it is called at once, and then whenever it has said that it is due.
    pub fn attach(&self, task: impl FnMut(Instant) -> Option<Instant> + Send + 'static) {
        if self.attach.send(Box::new(task)).is_err() {
            tracing::error!(target: "vswitchd", "the keepalive thread is gone");
        }
    }
}

fn run(attached: &Receiver<Attached>) {
    let mut tasks: Vec<(Instant, Attached)> = Vec::new();
    loop {
        let now = Instant::now();
        tasks.retain_mut(|(due, task)| {
            *due > now
                || task(now).is_some_and(|next| {
                    *due = next;
                    true
                })
        });
        let next = tasks.iter().map(|(due, _)| *due).min().unwrap_or(now + LONGEST);
        match attached.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(task) => tasks.push((now, task)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_late_once_it_is_old() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        assert!(!pulse.is_late(start + LATE - Duration::from_millis(1)));
        assert!(pulse.is_late(start + LATE));
        pulse.beat(start + LATE);
        assert!(!pulse.is_late(start + LATE + Duration::from_millis(1)));
        assert!(pulse.is_late(start + LATE * 2));
    }

    #[test]
    fn what_is_due_by_an_interval_is_due_together() {
        let start = Instant::now();
        let pulse = Pulse::new(start);
        let after = |ms| pulse.next(start + Duration::from_millis(ms), Duration::from_millis(200)) - start;
        assert_eq!([0, 1, 199, 200].map(after), [200, 200, 200, 400].map(Duration::from_millis));
    }

    #[test]
    fn what_is_attached_is_called_when_it_is_due_until_it_is_done() {
        let keepalive = Keepalive::start().unwrap();
        let (calls, called) = channel();
        let mut left = 3;
        keepalive.attach(move |now| {
            calls.send(now).unwrap();
            left -= 1;
            (left > 0).then(|| now + Duration::from_millis(5))
        });
        let times: Vec<Instant> = called.iter().collect();
        assert_eq!(times.len(), 3, "its end of the channel went with it");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_millis(5)));
    }
}
