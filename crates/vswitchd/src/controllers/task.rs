//! The task of a link: connects or listens, and has the resulting connections served ([`Carrier`]).

use crate::ofproto::{Link, LinkKind as Kind, LinkOf, Purpose};
use crate::service::Carrier;
use crate::state::Shared;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;
use switch::BridgeIdx;
use transport::reconnect::Reconnect;
use transport::{
    ActiveTarget, CLOSED, Idlers, Keep, Listener, PassiveTarget, Places, Stream, accept, clock,
    keep_connected, reason,
};

/// Connections to one listening socket at once. A further one gets the place of the service connection that
/// has said nothing for longest, or waits for one.
const CONNECTIONS_MAX: usize = 200;
/// Wait before listening is tried again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
/// How often to look whether rules are still being restored.
const RESTORE_WAIT: Duration = Duration::from_millis(200);

/// See the module documentation.
pub(super) struct Task {
    shared: Shared,
    bridge: BridgeIdx,
    target: String,
    id: u64,
}

impl Task {
    pub fn new(shared: Shared, bridge: BridgeIdx, target: String, id: u64) -> Task {
        Task { shared, bridge, target, id }
    }

    /// Runs until the link is gone.
    pub async fn run(self, kind: Kind) {
        match kind {
            Kind::Active(target) => {
                while self.shared.borrow().awaits_rules {
                    // A controller would only disturb those who restore them.
                    tokio::time::sleep(RESTORE_WAIT).await;
                }
                keep_connected(&mut Outgoing { task: self, target }).await;
            }
            Kind::Passive(target) => self.listen(&target).await,
            Kind::Bad(_) => {}
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Link) -> T) -> Option<T> {
        let mut vswitch = self.shared.borrow_mut();
        let link = vswitch.bridges.get_mut(&self.bridge)?.control.links.get_mut(&self.target)?;
        (link.id() == self.id).then(|| f(link))
    }

    async fn listen(self, target: &PassiveTarget) {
        let this = Rc::new(self);
        let places = Places::new(CONNECTIONS_MAX);
        loop {
            let tls = this.shared.borrow().tls.files().cloned();
            let listener = match Listener::bind(target, tls.as_ref()).await {
                Ok(listener) => listener,
                Err(error) => {
                    let why = error.to_string();
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
            let failed = |why: &str| tracing::warn!(target: "vconn", "accept failed: {why}");
            accept(&listener, &places, failed, |incoming, place| {
                let this = this.clone();
                tasks.spawn_local(async move {
                    let name = incoming.name.clone();
                    let why = match place.establish(incoming).await {
                        Ok(stream) => this.serve(stream, Some(place.idlers())).await,
                        Err(error) => error.to_string(),
                    };
                    tracing::debug!(target: "rconn", "{name}: connection closed ({why})");
                    drop(place);
                });
                while tasks.try_join_next().is_some() {}
            })
            .await;
        }
    }

    /// Serves one connection to its end, which comes early for one of `idlers` if others want its place.
    /// Returns why it ended.
    async fn serve(&self, stream: Stream, idlers: Option<Rc<Idlers>>) -> String {
        let purpose = match self.with(|link| link.is_primary()) {
            Some(true) => Purpose::Primary,
            Some(false) => Purpose::Service,
            None => return "not wanted any more".into(),
        };
        if let Some(dscp) = self.with(|link| link.row().dscp) {
            stream.set_dscp(dscp);
        }
        let link = LinkOf { target: self.target.clone(), id: self.id };
        let Some(mut carrier) = Carrier::new(&self.shared, self.bridge, purpose, Some(link), stream) else {
            return "the bridge is gone".into();
        };
        if let Some(idlers) = idlers.filter(|_| purpose == Purpose::Service) {
            carrier.gives_way(idlers);
        }
        let ended = carrier.run().await;
        if let Some(at) = carrier.last_rx() {
            self.with(|link| link.heard(at));
        }
        match (carrier.close_reason(), ended) {
            (Some(why), _) => why,
            (None, Ok(())) => CLOSED.into(),
            (None, Err(error)) => reason(&error),
        }
    }
}

/// A link that connects.
struct Outgoing {
    task: Task,
    target: ActiveTarget,
}

impl Keep for Outgoing {
    type Link = Stream;
    type Done = std::convert::Infallible;

    fn name(&self) -> String {
        self.target.to_string()
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
        self.task.with(|link| f(&mut link.reconnect))
    }

    async fn connect(&mut self) -> Result<Stream, String> {
        let tls = self.task.shared.borrow().tls.files().cloned();
        let stream =
            Stream::connect(&self.target, tls.as_deref()).await.map_err(|error| error.to_string())?;
        if let Stream::Tcp(tcp) = &stream
            && let Ok(std::net::SocketAddr::V4(address)) = tcp.peer_addr()
        {
            self.task.with(|link| link.resolved = Some(address));
        }
        Ok(stream)
    }

    async fn converse(&mut self, stream: Stream) -> ControlFlow<Self::Done, Option<String>> {
        ControlFlow::Continue(Some(self.task.serve(stream, None).await))
    }

    fn changed(&self) -> impl Future<Output = ()> + use<> {
        let notify = self.task.with(|link| link.notify.clone());
        async move {
            if let Some(notify) = notify {
                notify.notified().await;
            }
        }
    }

    fn connecting(&mut self) {
        self.task.with(|link| link.connecting());
    }

    /// It counts as connected once a version has been negotiated.
    fn connected(&mut self) {}

    fn failed(&mut self, why: &str) {
        self.task.with(|link| link.down(clock::now(), why));
        self.task.shared.borrow_mut().update_misses(self.task.bridge);
    }

    fn disconnected(&mut self, why: Option<&str>) {
        self.failed(why.unwrap_or_default());
    }
}
