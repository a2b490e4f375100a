//! The driver of every connection that is made again when it is lost: it does what [`Reconnect`] says.

use crate::clock;
use crate::reconnect::{Action, Reconnect, SILENT, Wait};
use std::ops::ControlFlow;
use std::time::Duration;

/// The text for the end of a connection that the peer has closed.
pub const CLOSED: &str = "End of file";

/// The owner of a connection. By default it logs Open vSwitch's texts.
pub trait Keep {
    /// A connection.
    type Link;
    /// What ends the loop.
    type Done;

    /// The peer's name in the log.
    fn name(&self) -> String;

    /// Runs `f` on the state machine. `None`: no connection is wanted any more.
    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T>;

    /// Makes a connection. The error is a sentence.
    fn connect(&mut self) -> impl Future<Output = Result<Self::Link, String>>;

    /// Uses it until it ends: why, with `None` for an end without an error.
    fn converse(&mut self, link: Self::Link)
    -> impl Future<Output = ControlFlow<Self::Done, Option<String>>>;

    /// Waits until the state machine must be checked before its deadline. An attempt to connect begins anew.
    fn changed(&self) -> impl Future<Output = ()> + use<Self> {
        std::future::pending()
    }

    /// An attempt begins.
    fn connecting(&mut self) {
        if self.with(|reconnect| reconnect.is_told()) == Some(true) {
            tracing::info!(target: "reconnect", "{}: connecting...", self.name());
        }
    }

    /// The attempt succeeded.
    fn connected(&mut self) {
        self.with(|reconnect| reconnect.connected(clock::now()));
        tracing::info!(target: "reconnect", "{}: connected", self.name());
    }

    /// The attempt failed.
    fn failed(&mut self, why: &str) {
        let told = self.with(|reconnect| {
            let is_told = reconnect.is_told();
            reconnect.failed(clock::now(), why);
            (is_told, reconnect.wait())
        });
        let Some((is_told, wait)) = told else { return };
        if is_told {
            tracing::info!(target: "reconnect", "{}: connection attempt failed ({why})", self.name());
        }
        tell_wait(&self.name(), wait);
    }

    /// The connection ended.
    fn disconnected(&mut self, why: Option<&str>) {
        self.tell_end(why);
        let wait = self.with(|reconnect| {
            reconnect.disconnected(clock::now(), why);
            reconnect.wait()
        });
        tell_wait(&self.name(), wait.flatten());
    }

    /// Tells why it ended.
    fn tell_end(&mut self, why: Option<&str>) {
        let interval = self.with(|reconnect| reconnect.options().probe_interval).flatten();
        tell_end(&self.name(), why, interval);
    }
}

/// Tells why a connection ended that was probed after `interval`.
pub fn tell_end(name: &str, why: Option<&str>, interval: Option<Duration>) {
    match (why, interval) {
        // A server that is stopped on purpose takes its leave this way.
        (None | Some(CLOSED), _) => tracing::info!(target: "reconnect", "{name}: connection closed by peer"),
        (Some(SILENT), Some(interval)) => {
            tell_silence(name, interval);
            tracing::info!(target: "reconnect", "{name}: connection dropped");
        }
        (Some(why), _) => tracing::warn!(target: "reconnect", "{name}: connection dropped ({why})"),
    }
}

/// Reports a peer that did not answer a probe within the interval.
pub fn tell_silence(name: &str, interval: Duration) {
    let seconds = interval.as_secs_f64();
    tracing::error!(
        target: "reconnect",
        "{name}: no response to inactivity probe after {seconds} seconds, disconnecting"
    );
}

fn tell_wait(name: &str, wait: Option<Wait>) {
    match wait {
        None | Some(Wait::First(_)) => {}
        Some(Wait::Longer(wait)) => {
            let seconds = wait.as_secs_f64();
            tracing::info!(target: "reconnect", "{name}: waiting {seconds} seconds before reconnect");
        }
        Some(Wait::Longest) => tracing::info!(
            target: "reconnect",
            "{name}: continuing to reconnect in the background but suppressing further logging"
        ),
    }
}

/// Connects, and reconnects, until no connection is wanted any more (`None`) or something else ends it.
pub async fn keep_connected<K: Keep>(keep: &mut K) -> Option<K::Done> {
    loop {
        let (action, due) = keep.with(|reconnect| {
            let action = reconnect.run(clock::now());
            (action, reconnect.deadline())
        })?;
        if action == Some(Action::Connect) {
            keep.connecting();
            let made = loop {
                let changed = keep.changed();
                tokio::select! {
                    made = keep.connect() => break made,
                    () = changed => keep.with(|_| ())?,
                }
            };
            match made {
                Err(why) => keep.failed(&why),
                Ok(link) => {
                    keep.connected();
                    match keep.converse(link).await {
                        ControlFlow::Break(done) => return Some(done),
                        ControlFlow::Continue(why) => keep.disconnected(why.as_deref()),
                    }
                }
            }
            continue;
        }
        tokio::select! {
            () = clock::sleep_until(due) => {}
            () = keep.changed() => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reconnect::Options;
    use std::rc::Rc;
    use tokio::sync::Notify;

    struct Peer {
        reconnect: Reconnect,
        attempts: u32,
        told: Vec<&'static str>,
    }

    impl Keep for Peer {
        type Link = ();
        type Done = u32;

        fn name(&self) -> String {
            "peer".into()
        }

        fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
            Some(f(&mut self.reconnect))
        }

        async fn connect(&mut self) -> Result<(), String> {
            self.attempts += 1;
            if self.attempts == 1 { Err("Connection refused".into()) } else { Ok(()) }
        }

        async fn converse(&mut self, _: ()) -> ControlFlow<u32, Option<String>> {
            self.told.push("up");
            match self.attempts {
                3 => ControlFlow::Break(self.attempts),
                _ => ControlFlow::Continue(Some(CLOSED.into())),
            }
        }
    }

    /// Nobody answers it.
    struct Deaf {
        reconnect: Option<Reconnect>,
        attempts: u32,
        changed: Rc<Notify>,
    }

    impl Keep for Deaf {
        type Link = ();
        type Done = ();

        fn name(&self) -> String {
            "deaf".into()
        }

        fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
            self.reconnect.as_mut().map(f)
        }

        async fn connect(&mut self) -> Result<(), String> {
            self.attempts += 1;
            if self.attempts == 2 {
                // What it has while this attempt is made, the next one has no more.
                self.reconnect = None;
            }
            self.changed.notify_one();
            std::future::pending().await
        }

        async fn converse(&mut self, _: ()) -> ControlFlow<(), Option<String>> {
            ControlFlow::Break(())
        }

        fn changed(&self) -> impl Future<Output = ()> + use<> {
            let changed = self.changed.clone();
            async move { changed.notified().await }
        }
    }

    #[test]
    fn an_attempt_that_nobody_answers_is_begun_again_on_a_change_and_ends_with_the_wish_for_it() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut reconnect = Reconnect::new(Options::default(), clock::now());
            reconnect.enable(clock::now());
            let mut peer = Deaf { reconnect: Some(reconnect), attempts: 0, changed: Rc::default() };
            let kept = tokio::time::timeout(Duration::from_secs(5), keep_connected(&mut peer)).await;
            assert_eq!((kept.expect("it ends"), peer.attempts), (None, 2));
        });
    }

    #[test]
    fn a_connection_that_fails_or_ends_is_made_again_until_its_owner_has_enough() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let options = Options {
                backoff_min: Duration::from_millis(1),
                backoff_max: Duration::from_millis(2),
                ..Options::default()
            };
            let mut reconnect = Reconnect::new(options, clock::now());
            reconnect.enable(clock::now());
            let mut peer = Peer { reconnect, attempts: 0, told: Vec::new() };
            assert_eq!(keep_connected(&mut peer).await, Some(3));
            assert_eq!(peer.told, ["up", "up"]);
            assert_eq!(peer.reconnect.last_error(), Some(CLOSED));
        });
    }
}
