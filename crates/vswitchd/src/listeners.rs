//! The sockets `BRIDGE.mgmt` and `BRIDGE.snoop`, which come and go with their bridges.

use crate::controllers::Controllers;
use crate::ofproto::{Purpose, tell_of_new_versions};
use crate::service;
use crate::state::{Shared, Vswitch};
use host::rundir::RunDir;
use openflow::VersionSet;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use switch::BridgeIdx;
use tokio::task::AbortHandle;
use transport::Listener;
use unix_socket::Socket;

/// A bridge's socket cannot be created.
#[derive(Debug)]
pub struct SocketError(pub PathBuf, pub io::Error);

impl std::fmt::Display for SocketError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.0.display(), host::log::os_text(&self.1))
    }
}

impl std::error::Error for SocketError {}

/// All sockets. Dropping it removes them.
pub struct BridgeSockets {
    dir: RunDir,
    controllers: Controllers,
    bridges: BTreeMap<String, Pair>,
}

/// A bridge's two.
struct Pair {
    /// In the order of [`PURPOSES`].
    sockets: [Socket; 2],
    state: State,
    /// The versions that were told of last.
    protocols: Option<VersionSet>,
}

enum State {
    /// The bridge is not there yet.
    Waiting(Vec<Listener>),
    Serving(BridgeIdx, Vec<AbortHandle>),
}

const PURPOSES: [(&str, Purpose); 2] = [("mgmt", Purpose::Service), ("snoop", Purpose::Snoop)];

impl BridgeSockets {
    /// None yet.
    pub fn new(dir: RunDir) -> BridgeSockets {
        BridgeSockets { dir, controllers: Controllers::default(), bridges: BTreeMap::new() }
    }

    /// Listens for a bridge that is about to be created.
    pub fn listen(&mut self, bridge: &str) -> Result<(), SocketError> {
        let [mgmt, snoop] = PURPOSES.map(|(suffix, _)| {
            let path = self.dir.file(&format!("{bridge}.{suffix}"));
            Listener::at(&path).map_err(|e| SocketError(path, e))
        });
        let ((mgmt, mgmt_listener), (snoop, snoop_listener)) = (mgmt?, snoop?);
        let state = State::Waiting(vec![mgmt_listener, snoop_listener]);
        self.bridges.insert(bridge.into(), Pair { sockets: [mgmt, snoop], state, protocols: None });
        Ok(())
    }

    /// Serves exactly the existing bridges, and connects to their controllers. A socket that cannot be
    /// created is tried again the next time.
    pub fn follow(&mut self, shared: &Shared) {
        let bridges = |v: &Vswitch| -> BTreeMap<String, (BridgeIdx, Option<VersionSet>)> {
            v.bridges.values().map(|b| (b.name.clone(), (b.idx, b.settings.protocols))).collect()
        };
        let there = bridges(&shared.borrow());
        self.bridges.retain(|name, pair| {
            let stays = match (&pair.state, there.get(name)) {
                (State::Waiting(_), Some(_)) => true,
                (State::Serving(idx, _), Some((now, _))) => idx == now,
                (_, None) => false,
            };
            if let State::Serving(_, tasks) = &pair.state
                && !stays
            {
                tasks.iter().for_each(AbortHandle::abort);
            }
            stays
        });
        for (name, (idx, protocols)) in there {
            if !self.bridges.contains_key(&name)
                && let Err(error) = self.listen(&name)
            {
                tracing::error!(target: "connmgr", "bridge {name} cannot be reached by OpenFlow: {error}");
                continue;
            }
            let Some(pair) = self.bridges.get_mut(&name) else { continue };
            let is_served = matches!(pair.state, State::Serving(..));
            if is_served && pair.protocols == protocols {
                continue;
            }
            pair.protocols = protocols;
            let target = format!("punix:{}", pair.sockets[0].path().display());
            if is_served {
                tell_of_new_versions(&name, &target);
            }
            tracing::info!(target: "connmgr", "{name}: added service controller \"{target}\"");
            let State::Waiting(listeners) = &mut pair.state else { continue };
            let tasks = listeners.drain(..).zip(PURPOSES).map(|(listener, (_, purpose))| {
                let task = service::serve(listener, shared.clone(), idx, name.clone(), purpose);
                tokio::task::spawn_local(task).abort_handle()
            });
            pair.state = State::Serving(idx, tasks.collect());
        }
        self.controllers.follow(shared);
    }
}
