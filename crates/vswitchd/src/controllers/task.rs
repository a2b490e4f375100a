//! The task of a link: connects or listens, and has what comes of it carried ([`Carrier`]).

use super::link::{Kind, Link};
use crate::clock;
use crate::ofconn::{LinkOf, Purpose};
use crate::service::{Carrier, Shared};
use crate::stream::{ActiveTarget, Listener, PassiveTarget, Stream, StreamError, reason};
use ovsdb::reconnect::Action;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use tokio::sync::{Notify, Semaphore};

/// Connections to one listening socket at once; further ones wait.
const CONNECTIONS_MAX: usize = 200;
/// Wait before listening is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// How often to look whether rules are still being restored.
const RESTORE_WAIT: Duration = Duration::from_millis(200);

/// See the module's text.
pub(super) struct Task {
    shared: Shared,
    bridge: BridgeIdx,
    target: String,
    id: u64,
}

/// What to do next.
enum Next {
    Gone,
    Wait(Option<Instant>, Rc<Notify>),
    Connect,
}

impl Task {
    pub fn new(shared: Shared, bridge: BridgeIdx, target: String, id: u64) -> Task {
        Task { shared, bridge, target, id }
    }

    /// Runs until the link is gone.
    pub async fn run(self, kind: Kind) {
        match kind {
            Kind::Active(target) => self.keep_connected(&target).await,
            Kind::Passive(target) => self.listen(&target).await,
            Kind::Bad(_) => {}
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Link) -> T) -> Option<T> {
        let mut vswitch = self.shared.borrow_mut();
        let link = vswitch.bridges.get_mut(&self.bridge)?.control.links.get_mut(&self.target)?;
        (link.id() == self.id).then(|| f(link))
    }

    async fn keep_connected(&self, target: &ActiveTarget) {
        loop {
            if self.shared.borrow().settings.flow_restore_wait {
                // Rules are being restored, which a controller would only disturb.
                tokio::time::sleep(RESTORE_WAIT).await;
                continue;
            }
            let next = self.with(|link| match link.reconnect.run(clock::now()) {
                Some(Action::Connect) => Next::Connect,
                // It probes nobody, and it is told of every end.
                Some(Action::Probe | Action::Disconnect) | None => {
                    Next::Wait(link.reconnect.deadline(), link.notify.clone())
                }
            });
            match next.unwrap_or(Next::Gone) {
                Next::Gone => return,
                Next::Wait(due, notify) => {
                    let due = due.unwrap_or_else(|| clock::now() + Duration::from_secs(3_600));
                    tokio::select! {
                        () = notify.notified() => {}
                        () = clock::sleep_until(due) => {}
                    }
                }
                Next::Connect => {
                    let why = self.connect(target).await;
                    self.with(|link| link.down(clock::now(), &why));
                    self.shared.borrow_mut().update_misses(self.bridge);
                }
            }
        }
    }

    /// One connection, from the attempt to its end. Why it ended.
    async fn connect(&self, target: &ActiveTarget) -> String {
        let tls = self.shared.borrow().tls.clone();
        self.with(|link| tracing::debug!(target: "rconn", "{}: connecting...", link.name()));
        match Stream::connect(target, tls.as_deref()).await {
            Ok(stream) => {
                if let Stream::Tcp(tcp) = &stream
                    && let Ok(std::net::SocketAddr::V4(address)) = tcp.peer_addr()
                {
                    self.with(|link| link.resolved = Some(address));
                }
                self.set_dscp(&stream);
                self.serve(stream).await
            }
            Err(error) => said(&error),
        }
    }

    fn set_dscp(&self, stream: &Stream) {
        if let Some(dscp) = self.with(|link| link.row().dscp) {
            stream.set_dscp(dscp);
        }
    }

    async fn listen(self, target: &PassiveTarget) {
        let this = Rc::new(self);
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        loop {
            let tls = this.shared.borrow().tls.clone();
            let listener = match Listener::bind(target, tls.as_ref()).await {
                Ok(listener) => listener,
                Err(error) => {
                    let why = said(&error);
                    let told = this.with(|link| {
                        if link.reconnect.last_error() != Some(&why) {
                            tracing::error!(target: "connmgr", "{}: cannot listen: {why}", link.name());
                        }
                        link.reconnect.failed(clock::now(), &why);
                        link.reconnect.disable(clock::now());
                    });
                    if told.is_none() {
                        return;
                    }
                    clock::sleep_until(clock::now() + LISTEN_AGAIN).await;
                    continue;
                }
            };
            let mut tasks = tokio::task::JoinSet::new();
            loop {
                let place = places.clone().acquire_owned().await.expect("never closed");
                match listener.accept().await {
                    Ok(incoming) => {
                        let this = this.clone();
                        tasks.spawn_local(async move {
                            let name = incoming.name.clone();
                            let why = match incoming.establish().await {
                                Ok(stream) => this.serve(stream).await,
                                Err(error) => said(&error),
                            };
                            tracing::debug!(target: "rconn", "{name}: connection closed ({why})");
                            drop(place);
                        });
                        while tasks.try_join_next().is_some() {}
                    }
                    Err(error) => {
                        tracing::warn!(target: "vconn", "accept failed: {}", reason(&error));
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                }
            }
        }
    }

    /// Serves one connection to its end. Why it ended.
    async fn serve(&self, stream: Stream) -> String {
        let purpose = match self.with(|link| link.is_primary()) {
            Some(true) => Purpose::Primary,
            Some(false) => Purpose::Service,
            None => return "not wanted any more".into(),
        };
        let link = LinkOf { target: self.target.clone(), id: self.id };
        let Some(mut carrier) = Carrier::new(&self.shared, self.bridge, purpose, Some(link), stream) else {
            return "the bridge is gone".into();
        };
        let ended = carrier.run().await;
        match (carrier.close_reason(), ended) {
            (Some(why), _) => why,
            (None, Ok(())) => "End of file".into(),
            (None, Err(error)) => reason(&error),
        }
    }
}

/// A sentence, as `status:last_error` has it.
fn said(error: &StreamError) -> String {
    error.to_string()
}
