//! What a connection knows about its remote.

use super::remote_options::RemoteOptions;
use super::state::State;
use ovsdb::server::SessionId;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::time::Instant;
use tokio::sync::Notify;
use transport::Idlers;
use transport::reconnect::{Options, Reconnect};

/// What all connections of a remote share.
pub(super) struct Shared {
    pub(super) options: RefCell<RemoteOptions>,
    /// The options have changed, or the remote was stopped.
    pub(super) changed: Notify,
    pub(super) connections: RefCell<BTreeMap<SessionId, Rc<RefCell<Reconnect>>>>,
    pub(super) state: Weak<State>,
}

/// A connection's own view of itself.
pub(super) struct Connection {
    /// For logs.
    pub(super) name: String,
    pub(super) remote: Option<Rc<Shared>>,
    pub(super) reconnect: Rc<RefCell<Reconnect>>,
    /// The clients that give way to others when descriptors are short, if this is one of them.
    pub(super) idlers: Option<Rc<Idlers>>,
}

impl Shared {
    pub(super) fn status_changed(&self) {
        if let Some(state) = self.state.upgrade() {
            state.status_changed();
        }
    }
}

impl Connection {
    /// A connection of the switch itself, over a socket pair.
    pub(super) fn internal(name: &str) -> Connection {
        let options = Options { probe_interval: None, passive: true, ..Options::default() };
        let reconnect = Rc::new(RefCell::new(Reconnect::new(options, Instant::now())));
        Connection { name: name.into(), remote: None, reconnect, idlers: None }
    }

    pub(super) fn options(&self) -> RemoteOptions {
        match &self.remote {
            Some(remote) => remote.options.borrow().clone(),
            None => RemoteOptions::internal(),
        }
    }

    pub(super) fn connected(&self, id: SessionId) {
        if let Some(remote) = &self.remote {
            remote.connections.borrow_mut().insert(id, self.reconnect.clone());
            remote.status_changed();
        }
    }

    pub(super) fn disconnected(&self, id: SessionId) {
        if let Some(remote) = &self.remote {
            remote.connections.borrow_mut().remove(&id);
            remote.status_changed();
        }
    }

    /// Its options have changed.
    pub(super) async fn changed(&self) {
        match &self.remote {
            Some(remote) => remote.changed.notified().await,
            None => std::future::pending().await,
        }
    }
}
