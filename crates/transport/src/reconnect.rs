//! When to connect, to probe a silent peer, and to give a connection up: pure, with time in and actions out.
//!
//! The owner of a connection asks [`Reconnect::run`] what to do, does it, and reports the result. A peer that
//! is silent for the probe interval gets an `echo`; if it is silent for as long again, it is disconnected.
//! After a failure the next attempt waits: one second, then twice as long each time up to the maximum; a
//! connection on which something was heard for at least as long as the preceding wait resets it.
//!
//! The database's information about a connection (`state`, `sec_since_connect`, `last_error` in the column
//! `status` of Manager and Controller) is read from here.

use std::time::{Duration, Instant};

/// Times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Wait after the first failure.
    pub backoff_min: Duration,
    /// Longest wait.
    pub backoff_max: Duration,
    /// Silence after which the peer is probed. `None`: never.
    pub probe_interval: Option<Duration>,
    /// Attempts that may be made in all. `None`: without end.
    pub tries_max: Option<u32>,
    /// The connection is made by the peer: there is one try, and its end is the end.
    pub passive: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            backoff_min: Duration::from_secs(1),
            backoff_max: Duration::from_secs(8),
            probe_interval: Some(Duration::from_secs(5)),
            tries_max: None,
            passive: false,
        }
    }
}

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// Connect, then tell by [`Reconnect::connected`] or [`Reconnect::failed`].
    Connect,
    /// Send an echo request.
    Probe,
    /// Close the connection (or give up the attempt), then tell by [`Reconnect::disconnected`] or
    /// [`Reconnect::failed`].
    Disconnect,
}

/// How a failure changed the wait before the next attempt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// The shortest, as nothing had failed before.
    First(Duration),
    /// Twice the one before.
    Longer(Duration),
    /// The longest wait: further failed attempts are not logged.
    Longest,
}

/// The [`Reconnect::last_error`] for a peer that did not answer a probe.
pub const SILENT: &str = "no response to inactivity probe";

/// The word that `status:state` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// No connection is wanted.
    Void,
    /// Waits before the next attempt.
    Backoff,
    /// An attempt is in progress.
    Connecting,
    /// Connected.
    Active,
    /// Connected, and a probe is unanswered.
    Idle,
}

impl State {
    /// The value of `status:state`.
    pub fn name(self) -> &'static str {
        match self {
            State::Void => "VOID",
            State::Backoff => "BACKOFF",
            State::Connecting => "CONNECTING",
            State::Active => "ACTIVE",
            State::Idle => "IDLE",
        }
    }
}

/// One connection's.
#[derive(Debug)]
pub struct Reconnect {
    options: Options,
    state: State,
    /// When the state began.
    since: Instant,
    /// When the peer was last heard.
    heard: Instant,
    /// The wait that the next failure leads to.
    backoff: Duration,
    tries: u32,
    /// The action that was returned and whose result has not been reported yet.
    pending: Option<Action>,
    force: bool,
    connected_at: Option<Instant>,
    disconnected_at: Option<Instant>,
    last_error: Option<String>,
    /// How the last failure changed the wait, if it did.
    wait: Option<Wait>,
    /// Connections made.
    connections: u64,
}

impl Reconnect {
    /// One that is not wanted yet.
    pub fn new(options: Options, now: Instant) -> Reconnect {
        Reconnect {
            options,
            state: State::Void,
            since: now,
            heard: now,
            backoff: Duration::ZERO,
            tries: 0,
            pending: None,
            force: false,
            connected_at: None,
            disconnected_at: None,
            last_error: None,
            wait: None,
            connections: 0,
        }
    }

    /// Wants the connection; the first attempt is due now.
    pub fn enable(&mut self, now: Instant) {
        if self.state == State::Void {
            self.tries = 0;
            self.enter(State::Backoff, now);
            self.backoff = Duration::ZERO;
        }
    }

    /// Wants it no more.
    pub fn disable(&mut self, now: Instant) {
        self.enter(State::Void, now);
    }

    /// Changes the intervals of a running state machine.
    pub fn set_options(&mut self, options: Options) {
        self.options = options;
        self.backoff = self.backoff.min(options.backoff_max);
    }

    /// Its times.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Drops the connection, if there is one, and reconnects.
    pub fn force(&mut self, now: Instant) {
        match self.state {
            State::Void => {}
            State::Backoff => {
                self.backoff = Duration::ZERO;
                self.since = now;
            }
            State::Connecting | State::Active | State::Idle => self.force = true,
        }
    }

    /// What to do now, if anything. Each action is returned once until its result is reported.
    pub fn run(&mut self, now: Instant) -> Option<Action> {
        if self.deadline().is_none_or(|deadline| now < deadline) {
            return None;
        }
        let action = match self.state {
            State::Void => return None,
            State::Backoff => {
                self.tries += 1;
                self.enter(State::Connecting, now);
                // `enter` clears it; the attempt is then in progress.
                return Some(Action::Connect);
            }
            State::Connecting => Action::Disconnect,
            State::Active if !self.force => {
                self.enter(State::Idle, now);
                return Some(Action::Probe);
            }
            State::Active | State::Idle => {
                if !self.force {
                    self.last_error = Some(SILENT.into());
                }
                Action::Disconnect
            }
        };
        self.pending = Some(action);
        Some(action)
    }

    /// When [`Self::run`] will next have something to do. `None`: not before something is reported.
    pub fn deadline(&self) -> Option<Instant> {
        if self.pending.is_some() {
            return None;
        }
        if self.force && self.state != State::Void {
            return Some(self.since);
        }
        match self.state {
            State::Void => None,
            State::Backoff => Some(self.since + self.backoff),
            // An attempt may take as long as a wait, and at least a second.
            State::Connecting => Some(self.since + self.backoff.max(Duration::from_secs(1)) * 10),
            State::Active => {
                self.options.probe_interval.map(|interval| self.heard.max(self.since) + interval)
            }
            State::Idle => self.options.probe_interval.map(|interval| self.since + interval),
        }
    }

    /// The attempt succeeded, or the peer connected.
    pub fn connected(&mut self, now: Instant) {
        self.enter(State::Active, now);
        self.heard = now;
        self.connections += 1;
        self.connected_at = Some(now);
    }

    /// The attempt failed.
    pub fn failed(&mut self, now: Instant, error: &str) {
        self.last_error = Some(error.into());
        self.end(now, false);
    }

    /// The connection ended; `None` if it was closed without an error.
    pub fn disconnected(&mut self, now: Instant, error: Option<&str>) {
        let mut was_good = false;
        if self.is_connected() {
            self.disconnected_at = Some(now);
            // It worked for a while, so an error now is a new one. A peer that said nothing did not work.
            was_good = self.connected_at.is_some_and(|at| self.heard - at >= self.backoff);
        }
        if let Some(error) = error {
            self.last_error = Some(error.into());
        }
        self.end(now, was_good);
    }

    /// Something came from the peer.
    pub fn heard(&mut self, now: Instant) {
        self.heard = now;
        if self.state == State::Idle && self.pending.is_none() {
            self.enter(State::Active, now);
        }
    }

    /// The state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, State::Active | State::Idle)
    }

    /// When the last connection was made.
    pub fn connected_at(&self) -> Option<Instant> {
        self.connected_at
    }

    /// When the last connection ended.
    pub fn disconnected_at(&self) -> Option<Instant> {
        self.disconnected_at
    }

    /// The error of the last failure.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// Number of connections made so far.
    pub fn connections(&self) -> u64 {
        self.connections
    }

    /// The present wait, or the one that the next failure leads to.
    pub fn backoff(&self) -> Duration {
        self.backoff
    }

    /// Whether to log an attempt and its failure: not once waits are longest, because it is retried for ever.
    pub fn is_told(&self) -> bool {
        self.backoff < self.options.backoff_max
    }

    /// How the last failure changed the wait, if that should be logged.
    pub fn wait(&self) -> Option<Wait> {
        self.wait
    }

    fn end(&mut self, now: Instant, was_good: bool) {
        self.wait = None;
        let exhausted = self.options.tries_max.is_some_and(|max| self.tries >= max);
        if self.options.passive || exhausted || self.state == State::Void {
            return self.enter(State::Void, now);
        }
        let (before, min) = (self.backoff, self.options.backoff_min);
        let max = self.options.backoff_max.max(min);
        self.backoff = match (self.force, was_good) {
            (true, _) => Duration::ZERO,
            (false, true) => min,
            (false, false) => (before * 2).clamp(min, max),
        };
        if !self.force && !was_good && before < max {
            self.wait = Some(match self.backoff {
                first if before < min => Wait::First(first),
                longer if longer < max => Wait::Longer(longer),
                _ => Wait::Longest,
            });
        }
        self.enter(State::Backoff, now);
    }

    fn enter(&mut self, state: State, now: Instant) {
        self.state = state;
        self.since = now;
        self.pending = None;
        self.force = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn waits_double_up_to_the_maximum_and_start_over_after_a_good_connection() {
        let mut now = Instant::now();
        let mut reconnect = Reconnect::new(Options::default(), now);
        assert_eq!(reconnect.run(now), None);
        reconnect.enable(now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            assert_eq!(reconnect.run(now), Some(Action::Connect));
            assert_eq!(reconnect.run(now), None, "given once");
            reconnect.failed(now, "Connection refused");
            let due = reconnect.deadline().unwrap();
            waits.push((due - now).as_secs());
            assert_eq!(reconnect.run(due - Duration::from_millis(1)), None);
            now = due;
        }
        assert_eq!(waits, [1, 2, 4, 8, 8, 8]);
        assert_eq!(reconnect.last_error(), Some("Connection refused"));

        assert_eq!(reconnect.run(now), Some(Action::Connect));
        reconnect.connected(now);
        reconnect.disconnected(now + seconds(7), None);
        assert_eq!(
            reconnect.backoff(),
            seconds(8),
            "seven seconds do not make a good connection after eight"
        );
        now = reconnect.deadline().unwrap();
        assert_eq!(reconnect.run(now), Some(Action::Connect));
        reconnect.connected(now);
        reconnect.heard(now + seconds(9));
        reconnect.disconnected(now + seconds(9), None);
        assert_eq!((reconnect.backoff(), reconnect.wait()), (seconds(1), None));

        now = reconnect.deadline().unwrap();
        assert_eq!(reconnect.run(now), Some(Action::Connect));
        reconnect.connected(now);
        reconnect.disconnected(now + seconds(10), Some(SILENT));
        assert_eq!(reconnect.backoff(), seconds(2), "a peer that accepts and says nothing is not a good one");
    }

    #[test]
    fn waits_that_change_are_told_and_attempts_until_the_longest() {
        let mut now = Instant::now();
        let mut reconnect = Reconnect::new(Options::default(), now);
        reconnect.enable(now);
        let told: Vec<_> = (0..5)
            .map(|_| {
                assert_eq!(reconnect.run(now), Some(Action::Connect));
                let is_told = reconnect.is_told();
                reconnect.failed(now, "Connection refused");
                now = reconnect.deadline().unwrap();
                (is_told, reconnect.wait())
            })
            .collect();
        let [first, two, four] =
            [Wait::First(seconds(1)), Wait::Longer(seconds(2)), Wait::Longer(seconds(4))];
        let longest = Wait::Longest;
        assert_eq!(
            told,
            [
                (true, Some(first)),
                (true, Some(two)),
                (true, Some(four)),
                (true, Some(longest)),
                (false, None)
            ]
        );
    }

    #[test]
    fn a_silent_peer_is_probed_and_then_given_up() {
        let now = Instant::now();
        let mut reconnect = Reconnect::new(Options::default(), now);
        reconnect.enable(now);
        reconnect.run(now);
        reconnect.connected(now);
        reconnect.heard(now + seconds(2));
        assert_eq!(reconnect.run(now + seconds(6)), None);
        assert_eq!(reconnect.run(now + seconds(7)), Some(Action::Probe));
        assert_eq!(reconnect.state().name(), "IDLE");
        reconnect.heard(now + seconds(8));
        assert_eq!(reconnect.state().name(), "ACTIVE");
        assert_eq!(reconnect.run(now + seconds(13)), Some(Action::Probe));
        assert_eq!(reconnect.run(now + seconds(17)), None);
        assert_eq!(reconnect.run(now + seconds(18)), Some(Action::Disconnect));
        reconnect.disconnected(now + seconds(18), None);
        assert_eq!(reconnect.last_error(), Some("no response to inactivity probe"));
        assert_eq!(reconnect.state().name(), "BACKOFF");
    }

    #[test]
    fn an_attempt_without_end_is_given_up() {
        let now = Instant::now();
        let mut reconnect = Reconnect::new(Options::default(), now);
        reconnect.enable(now);
        reconnect.run(now);
        let due = reconnect.deadline().unwrap();
        assert_eq!(reconnect.run(due), Some(Action::Disconnect));
        reconnect.failed(due, "Connection timed out");
        assert_eq!(reconnect.state(), State::Backoff);
    }

    #[test]
    fn a_forced_reconnection_waits_for_nothing() {
        let now = Instant::now();
        let mut reconnect = Reconnect::new(Options::default(), now);
        reconnect.enable(now);
        reconnect.run(now);
        reconnect.connected(now);
        reconnect.force(now);
        assert_eq!(reconnect.run(now), Some(Action::Disconnect));
        reconnect.disconnected(now, None);
        assert_eq!(reconnect.run(now), Some(Action::Connect));
    }

    #[test]
    fn tries_may_be_limited_and_a_passive_end_is_the_end() {
        let now = Instant::now();
        let limited = Options { tries_max: Some(1), ..Options::default() };
        let passive = Options { passive: true, ..Options::default() };
        for options in [limited, passive] {
            let mut reconnect = Reconnect::new(options, now);
            reconnect.enable(now);
            assert_eq!(reconnect.run(now), Some(Action::Connect));
            reconnect.connected(now);
            reconnect.disconnected(now, Some("End of file"));
            assert_eq!((reconnect.state(), reconnect.deadline()), (State::Void, None));
        }
    }

    #[test]
    fn without_a_probe_interval_nobody_is_probed() {
        let now = Instant::now();
        let mut reconnect = Reconnect::new(Options { probe_interval: None, ..Options::default() }, now);
        reconnect.enable(now);
        reconnect.run(now);
        reconnect.connected(now);
        assert_eq!(reconnect.deadline(), None);
    }
}
