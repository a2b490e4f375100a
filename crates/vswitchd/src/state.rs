//! All that the control thread knows: the forwarding plane, and per bridge and port what that does not keep
//! (names, addresses, connections).
//!
//! One structure, borrowed by one task at a time. Methods do their work and return: none waits for the
//! outside world.

use crate::command_state::CommandState;
use crate::config::wanted::SwitchWide;
use crate::config::{Config, EnableDummy};
use crate::connections::Connections;
use crate::ct_flushes::CtFlushes;
use crate::device_manager::DeviceManager;
use crate::finals::Schedule;
use crate::janitor::Fate;
use crate::keepalive::Keepalive;
use crate::machine::ThisMachine;
use crate::ofproto::{Asynchronous, NextHops, Ofproto, PortSet, Source};
use crate::own_changes::OwnChanges;
use crate::plane::ForwardingPlane;
use crate::tls::SwitchTls;
use crate::workers::{Given, Workers};
use base::{OfPort, PortNo};
use datapath::{CacheConfig, Event};
use host::numa::Topology;
use openflow::message::{PortConfig, PortReason, PortState, PortStatus as OfPortStatus};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::rc::Rc;
use switch::{BridgeIdx, Effect};
use tokio::sync::Notify;
use transport::unixctl::Growing;

pub(crate) use crate::port_record::PortRecord;

pub use crate::plane::SetupError;

/// The state that all tasks share.
pub type Shared = Rc<RefCell<Vswitch>>;

/// What a command goes on with after it has returned: its answer comes from this.
pub(crate) type Begun = Box<dyn FnOnce(Shared, Growing) -> LocalAnswer>;
type LocalAnswer = Pin<Box<dyn Future<Output = Result<String, String>>>>;

/// See the module's text.
pub struct Vswitch {
    pub(crate) plane: ForwardingPlane,
    pub(crate) bridges: BTreeMap<BridgeIdx, Ofproto>,
    /// Settings of the switch as a whole that are in force.
    pub(crate) settings: SwitchWide,
    /// The ways to controllers and managers that are reached through the bridges.
    pub(crate) next_hops: NextHops,
    /// The bridge whose in-band control was last brought up to date.
    pub(crate) last_in_band: Option<BridgeIdx>,
    /// Rules are to be restored first (`flow-restore-wait`): nothing is forwarded, and no controller is
    /// connected to. True until a configuration says otherwise, and never again.
    pub(crate) awaits_rules: bool,
    /// How many workers there are, where, and which queues each polls.
    pub(crate) workers: Workers,
    pub(crate) schedule: Schedule,
    /// What OpenFlow connections share.
    pub(crate) connections: Connections,
    pub(crate) counts: Counts,
    /// What was taken from workers and is still to be handled.
    pub(crate) events: VecDeque<Event<Effect>>,
    pub(crate) commands: CommandState,
    /// For controllers.
    pub(crate) tls: SwitchTls,
    /// Does what must happen in time while the control thread is busy.
    pub(crate) keepalive: Keepalive,
    /// Ports and their devices.
    pub(crate) devices: DeviceManager,
    /// What the command that runs goes on with.
    pub(crate) begun: Option<Begun>,
    /// What the switch changes by itself and has not changed yet.
    pub(crate) own_changes: OwnChanges,
    /// The removal of tracked connections.
    pub(crate) ct_flushes: CtFlushes,
    /// There is something that does not wait for the next tick.
    pub(crate) urgent: Rc<Notify>,
}

/// Events of the control thread, for `coverage/show`.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub openflow_received: u64,
    pub openflow_errors: u64,
    /// Connections of OpenFlow that were ended with output that their peers did not take.
    pub connections_cut: u64,
    pub flow_mods: u64,
    pub packet_ins: u64,
    /// Packets that the control thread translated, since something was learned from them.
    pub slow_path: u64,
    pub packet_ins_lost: u64,
    pub packet_outs: u64,
    pub effects: u64,
    pub flows_removed: u64,
    pub unixctl_received: u64,
    /// Plans that were carried out.
    pub reconfigures: u64,
    pub ports_added: u64,
    pub ports_removed: u64,
    /// What was told of a port: that it came, went or changed.
    pub port_updates: u64,
    /// Times that all cached flows were thrown away by a command.
    pub flow_flushes: u64,
    /// What became of transactions with the database.
    pub txn_error: u64,
    pub txn_not_locked: u64,
    pub txn_success: u64,
    pub txn_try_again: u64,
    pub txn_unchanged: u64,
}

impl Vswitch {
    /// Makes pool, datapath and workers. Bridges and ports come by [`crate::reconcile`].
    pub fn new(config: &Config) -> Result<Vswitch, SetupError> {
        let flags = &config.datapath;
        let defaults = CacheConfig::default();
        let cache = CacheConfig {
            flow_limit: flags.flow_limit.unwrap_or(defaults.flow_limit),
            max_idle_ms: flags
                .max_idle_ms
                .map_or(defaults.max_idle_ms, |ms| ms.min(u64::from(u32::MAX)) as u32),
        };
        let mut plane = ForwardingPlane::new(flags, cache)?;
        plane.is_dummy = config.dummy != EnableDummy::No;
        if plane.is_dummy {
            plane.control.accept_debug_actions();
        }
        plane.dp.set_never_sleeps(flags.never_sleep);
        let count = flags.workers.map(|count| count.max(1));
        let given = Given { count, cache, never_sleep: flags.never_sleep };
        let topology = match &flags.dummy_numa {
            Some(list) => Topology::simulated(list).map_err(SetupError::Numa)?,
            None => Topology::of_machine(),
        };
        topology.tell();
        let workers = Workers::new(given, topology);
        for place in workers.places() {
            plane.dp.start_worker_on(place.cpus.clone()).map_err(SetupError::Datapath)?;
        }
        let machine = ThisMachine::start().map_err(SetupError::Os)?;
        let vswitch = Vswitch {
            plane,
            bridges: BTreeMap::new(),
            settings: SwitchWide::default(),
            next_hops: NextHops::default(),
            last_in_band: None,
            awaits_rules: true,
            workers,
            schedule: Schedule::default(),
            connections: Connections::new(),
            counts: Counts::default(),
            events: VecDeque::new(),
            commands: CommandState::default(),
            tls: SwitchTls::new(config.tls_files()),
            keepalive: Keepalive::start().map_err(SetupError::Os)?,
            devices: DeviceManager::new(config, Box::new(machine)),
            begun: None,
            own_changes: OwnChanges::default(),
            ct_flushes: CtFlushes::default(),
            urgent: Rc::new(Notify::new()),
        };
        Ok(vswitch)
    }

    /// The command that runs goes on with this, and is answered by it.
    pub(crate) fn begin<F: Future<Output = Result<String, String>> + 'static>(
        &mut self,
        go_on: impl FnOnce(Shared) -> F + 'static,
    ) {
        self.begin_long(|shared, _| go_on(shared));
    }

    /// The same for an answer that may be long: what makes it tells how it grows.
    pub(crate) fn begin_long<F: Future<Output = Result<String, String>> + 'static>(
        &mut self,
        go_on: impl FnOnce(Shared, Growing) -> F + 'static,
    ) {
        self.begun = Some(Box::new(|shared, growing| Box::pin(go_on(shared, growing))));
    }

    pub(crate) fn bridge_named(&self, name: &str) -> Option<&Ofproto> {
        self.bridges.values().find(|b| b.name == name)
    }

    /// A port by its OpenFlow number.
    pub(crate) fn port_numbered(&self, bridge: BridgeIdx, of_port: OfPort) -> Option<&PortRecord> {
        let port = self.plane.control.topology().bridge(bridge)?.port(of_port)?;
        self.devices.ports.get(&port.spec.port_no)
    }

    /// The ports of a bridge, ascending by OpenFlow number, so LOCAL last.
    pub(crate) fn ports_of(&self, bridge: BridgeIdx) -> impl Iterator<Item = &PortRecord> {
        let ports = self.plane.control.topology().bridge(bridge).into_iter().flat_map(|b| b.ports());
        ports.filter_map(|p| self.devices.ports.get(&p.spec.port_no))
    }

    /// Tells connections about a port.
    pub(crate) fn tell_port(&mut self, port_no: PortNo, reason: PortReason) {
        self.counts.port_updates += 1;
        if let Some(record) = self.devices.ports.get(&port_no)
            && let Some(desc) = self.plane.port_desc(record)
        {
            let live = desc.state.contains(PortState::LIVE);
            if reason == PortReason::Add && live {
                // A port is there first, and then it is live.
                let added =
                    openflow::message::PortDesc { state: desc.state - PortState::LIVE, ..desc.clone() };
                self.connections
                    .news
                    .push((record.bridge, Asynchronous::Port(OfPortStatus { reason, desc: added })));
                let status = OfPortStatus { reason: PortReason::Modify, desc };
                self.connections.news.push((record.bridge, Asynchronous::PortLive(status)));
            } else {
                self.connections
                    .news
                    .push((record.bridge, Asynchronous::Port(OfPortStatus { reason, desc })));
            }
        }
    }

    /// Tells connections of a port's new settings, which a connection has asked for: first with the state
    /// that it had, then with what has come of them.
    pub(crate) fn tell_port_set(
        &mut self,
        port_no: PortNo,
        before: openflow::message::PortDesc,
        source: Option<Source>,
    ) {
        self.counts.port_updates += 1;
        let Some(record) = self.devices.ports.get(&port_no) else { return };
        let Some(after) = self.plane.port_desc(record) else { return };
        let mut state = before.state;
        if after.config.contains(PortConfig::PORT_DOWN) {
            state -= PortState::LIVE;
        }
        let set = openflow::message::PortDesc { state, ..after.clone() };
        let steps =
            [PortSet { before, after: set.clone(), source }, PortSet { before: set, after, source: None }];
        let bridge = record.bridge;
        self.connections.news.extend(steps.map(|step| (bridge, Asynchronous::PortSet(Box::new(step)))));
    }

    /// The end: ports go. Devices that the switch has made stay for the next one where there is a database by
    /// which that knows them, unless the command was to leave none.
    pub(crate) fn close(&mut self) {
        let fate = if self.commands.ending == Some(Fate::Removed) || !self.devices.outlive() {
            Fate::Removed
        } else {
            Fate::Left
        };
        self.devices.close(&mut self.plane, fate);
    }

    /// Tells connections what happened. Called after every piece of work, when no connection is borrowed.
    pub(crate) fn deliver(&mut self) {
        self.report_rules(None);
        for (bridge, news) in std::mem::take(&mut self.connections.news) {
            let Some(bridge) = self.bridges.get_mut(&bridge) else { continue };
            self.counts.packet_ins_lost += bridge.tell(&news);
        }
    }
}

/// An Ethernet address for a bridge that is the same at every start: made of the machine's id and the
/// bridge's name.
pub(crate) fn stable_mac(name: &str) -> [u8; 6] {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    // FNV-1a: spread, not secret.
    let hash = machine
        .bytes()
        .chain(name.bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let b = hash.to_be_bytes();
    [b[0] & 0xfc | 0x02, b[1], b[2], b[3], b[4], b[5]]
}
