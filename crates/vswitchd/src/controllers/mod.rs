//! Controllers of bridges: the connections that the rows of table Controller ask for, made over `tcp:`,
//! `ssl:` and `unix:`, and accepted over `ptcp:`, `pssl:` and `punix:`; and what a bridge does by itself
//! while it has none.
//!
//! A row is a [`Link`], a structure without sockets that knows when to retry and what to report. A task per
//! link moves the bytes ([`task`](self::task)). [`Controllers::follow`] keeps tasks and links in step.
//!
//! A controller of type `primary` (by default, those to which the switch connects) is in charge: it gets
//! unrequested messages about packets, rules and ports; rules are flushed when the first one is configured
//! and when the last one is removed; and while none of them can be reached, a bridge in fail mode
//! `standalone` takes over ([`fail_open`]). One of type `service` (by default, those that connect to the
//! switch) is a client like those of the management socket.
//!
//! Controllers that are reached through the bridge's own ports need rules that no controller provides:
//! [`in_band`].
//!
//! Files: `link` is an active row; `task` moves bytes; `sched` limits packets; `fail_open` and `in_band` are
//! described above.

mod task;

use crate::config::FailMode;
use crate::config::wanted;
use crate::ofproto::{ControllerStatus, Link, OwnRule, fail_open};
use crate::own_changes::OwnChange;
use crate::state::{Shared, Vswitch};
use flow::{Action, Match};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;
use switch::control::{Command, FlowMod};
use switch::{BridgeIdx, RuleFlags};
use tokio::task::AbortHandle;
use transport::clock;

/// In-band control of bridges with about so many controllers and managers is brought up to date in one turn.
const REMOTES_MAX: usize = 1_000;

/// The tasks of all links.
#[derive(Default)]
pub struct Controllers {
    tasks: BTreeMap<u64, AbortHandle>,
}

impl Controllers {
    /// Starts a task for each link without one, and ends those whose links are gone.
    pub fn follow(&mut self, shared: &Shared) {
        let vswitch = shared.borrow();
        let mut wanted = BTreeMap::new();
        for (bridge, record) in &vswitch.bridges {
            for (target, link) in &record.control.links {
                wanted.insert(link.id(), (*bridge, target.clone(), link.kind().clone()));
            }
        }
        self.tasks.retain(|id, task| {
            let stays = wanted.contains_key(id);
            if !stays {
                task.abort();
            }
            stays
        });
        for (id, (bridge, target, kind)) in wanted {
            self.tasks.entry(id).or_insert_with(|| {
                let task = task::Task::new(shared.clone(), bridge, target, id);
                tokio::task::spawn_local(task.run(kind)).abort_handle()
            });
        }
    }
}

impl Vswitch {
    /// The controllers of a bridge are these now. What stays is not disturbed, unless all begin `anew`.
    pub(crate) fn set_controllers(
        &mut self,
        idx: BridgeIdx,
        wanted: &BTreeMap<String, wanted::Controller>,
        anew: bool,
    ) {
        let now = clock::now();
        let Vswitch { connections, bridges, .. } = self;
        let Some(bridge) = bridges.get_mut(&idx) else { return };
        let had = bridge.control.has_primary();
        let gone = bridge.set_links(wanted, anew, now, || connections.next_id());
        let has = bridge.control.has_primary();
        for id in gone {
            if let Some(conn) = self.bridges.get(&idx).and_then(|b| b.conns.get(&id)) {
                // Its task finds it gone, and ends.
                conn.wake();
            }
            self.disconnected(idx, id);
        }
        if had != has {
            self.flush_rules(idx);
        }
        self.update_misses(idx);
        self.run_controllers(idx, now);
    }

    /// Removes all rules, groups and meters except the switch's own rules. Restores the rule of a bridge that
    /// switches by itself.
    pub(crate) fn flush_rules(&mut self, idx: BridgeIdx) {
        self.change_by_itself(idx, [OwnChange::Flush(self.standalone_rule(idx))]);
    }

    /// The only rule of a bridge without controllers in mode `standalone`. Clients can see and change it.
    pub(crate) fn standalone_rule(&self, idx: BridgeIdx) -> Option<FlowMod> {
        let normal = Action::Output { port: base::OfPort::NORMAL, max_len: 0 };
        let bridge = self.bridges.get(&idx)?;
        (bridge.settings.fail_mode != FailMode::Secure && !bridge.control.has_primary())
            .then(|| FlowMod { priority: 0, ..FlowMod::add(Match::any(), vec![normal]) })
    }

    /// Ends the connections that speak a version which the bridge no longer does.
    pub(crate) fn close_other_versions(&mut self, idx: BridgeIdx) {
        if let Some(ofproto) = self.bridges.get_mut(&idx) {
            ofproto.close_other_versions();
        }
    }

    /// Ends the connections of a bridge's controllers. Those to which the switch connects are tried again
    /// after their backoff.
    pub(crate) fn reconnect_controllers(&mut self, idx: BridgeIdx, now: Instant) {
        if let Some(ofproto) = self.bridges.get_mut(&idx) {
            ofproto.reconnect_controllers(now);
        }
    }

    /// Looks after all bridges' controllers, and some of the bridges' in-band control, in turn. To be called
    /// some times a second.
    pub(crate) fn tick_controllers(&mut self, now: Instant) {
        let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
        bridges.iter().for_each(|idx| self.run_fail_open(*idx, now));
        self.next_hops.ask_some(now, ports::netlink::next_hop);
        let last = self.last_in_band;
        let mut remotes = 0;
        for idx in bridges.into_iter().filter(|idx| Some(*idx) > last) {
            remotes += self.run_in_band(idx, now);
            self.last_in_band = Some(idx);
            if remotes >= REMOTES_MAX {
                return;
            }
        }
        self.last_in_band = None;
        self.next_hops.end_round();
    }

    pub(crate) fn run_controllers(&mut self, idx: BridgeIdx, now: Instant) {
        self.run_fail_open(idx, now);
        self.run_in_band(idx, now);
    }

    fn run_fail_open(&mut self, idx: BridgeIdx, now: Instant) {
        let Some(bridge) = self.bridges.get_mut(&idx) else { return };
        bridge.note_heard();
        let control = &mut bridge.control;
        let standalone = bridge.settings.fail_mode == FailMode::Standalone && !self.awaits_rules;
        match control.fail_open.run(standalone, control.links.values(), now) {
            fail_open::Change::None => {}
            fail_open::Change::Entered => {
                self.flush_rules(idx);
                self.change_by_itself(idx, [own_rule(Command::Add, &fail_open::rule())]);
            }
            fail_open::Change::Left => {
                self.change_by_itself(idx, [own_rule(Command::DeleteStrict, &fail_open::rule())]);
            }
            fail_open::Change::SendsPacket => {
                let (packet, frame) = fail_open::packet(bridge.mac);
                bridge.tell_packet(packet, 1, |_| vec![frame]);
            }
        }
    }

    /// How many controllers and managers are reached through the bridge.
    fn run_in_band(&mut self, idx: BridgeIdx, now: Instant) -> usize {
        // The kernel's routes do not lead through a dummy.
        let local = self.port_numbered(idx, base::OfPort::LOCAL);
        let is_routed = local.is_some_and(|port| !port.interface.is_dummy());
        let Vswitch { bridges, next_hops, settings, .. } = self;
        let Some(bridge) = bridges.get_mut(&idx) else { return 0 };
        let control = &mut bridge.control;
        let managers = settings.in_band_managers.iter().copied();
        let remotes = control.links.values().filter_map(Link::in_band_remote).chain(managers);
        let remotes: BTreeSet<_> = remotes.filter(|_| !bridge.settings.disable_in_band).collect();
        let count = remotes.len();
        let next_hop = |ip| if is_routed { next_hops.first_to(ip, now) } else { None };
        let changes = control.in_band.run(bridge.mac, remotes, bridge.settings.in_band_queue, next_hop);
        let removed = changes.removed.iter().map(|rule| own_rule(Command::DeleteStrict, rule));
        let added = changes.added.iter().map(|rule| own_rule(Command::Add, rule));
        if !changes.removed.is_empty() || !changes.added.is_empty() {
            self.change_by_itself(idx, removed.chain(added));
        }
        count
    }

    /// The columns `is_connected`, `role` and `status` of a bridge's controllers, by target.
    pub fn controller_status(&self, bridge: &str) -> BTreeMap<String, ControllerStatus> {
        let now = clock::now();
        self.bridge_named(bridge).map(|ofproto| ofproto.controller_status(now)).unwrap_or_default()
    }
}

/// Adds or removes a rule that is the switch's own affair.
fn own_rule(command: Command, rule: &OwnRule) -> OwnChange {
    let queue = rule.queue_id.map(Action::SetQueue);
    let normal = Action::Output { port: base::OfPort::NORMAL, max_len: 0 };
    OwnChange::Rule(FlowMod {
        command,
        priority: rule.priority,
        flags: RuleFlags { hidden: true, ..RuleFlags::default() },
        ..FlowMod::add(rule.matching.clone(), queue.into_iter().chain([normal]).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::Bridge;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use crate::ofproto::Ofproto;
    use host::rundir::RunDir;
    use std::net::{Ipv4Addr, SocketAddrV4};
    use switch::BridgeConfig;

    #[test]
    fn in_band_control_of_many_bridges_and_managers_takes_several_turns() {
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let managers = (0..REMOTES_MAX as u32).map(|n| SocketAddrV4::new(Ipv4Addr::from(n), 6640));
        vswitch.settings.in_band_managers = managers.collect();
        let add = |name: &str, vswitch: &mut Vswitch| {
            let idx = vswitch.plane.control.add_bridge(BridgeConfig::new(name));
            vswitch.bridges.insert(idx, Ofproto::new(idx, [2, 0, 0, 0, 0, 1], &Bridge::new(name)));
            idx
        };
        let [first, second] = ["br0", "br1"].map(|name| add(name, &mut vswitch));
        for done in [Some(first), Some(second), None, Some(first)] {
            vswitch.tick_controllers(clock::now());
            assert_eq!(vswitch.last_in_band, done);
        }
        // Fewer are one turn's work.
        vswitch.settings.in_band_managers.retain(|manager| manager.ip().octets()[3] == 0);
        for _ in 0..3 {
            vswitch.tick_controllers(clock::now());
        }
        assert_eq!(vswitch.last_in_band, None);
    }
}
