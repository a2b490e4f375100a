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
use std::collections::BTreeMap;
use std::time::Instant;
use switch::control::{Command, FlowMod};
use switch::{BridgeIdx, RuleFlags};
use tokio::task::AbortHandle;
use transport::clock;

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
        self.change_by_itself(idx, OwnChange::Flush(self.standalone_rule(idx)));
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

    /// Looks after all bridges' controllers. To be called some times a second.
    pub(crate) fn tick_controllers(&mut self, now: Instant) {
        let bridges: Vec<BridgeIdx> = self.bridges.keys().copied().collect();
        bridges.into_iter().for_each(|idx| self.run_controllers(idx, now));
    }

    pub(crate) fn run_controllers(&mut self, idx: BridgeIdx, now: Instant) {
        // The kernel's routes do not lead through a dummy.
        let local = self.port_numbered(idx, base::OfPort::LOCAL);
        let is_routed = local.is_some_and(|port| !port.interface.is_dummy());
        let next_hop = |ip| is_routed.then(|| ports::netlink::next_hop(ip)).flatten();
        let Some(bridge) = self.bridges.get_mut(&idx) else { return };
        bridge.note_heard();
        let control = &mut bridge.control;
        let standalone = bridge.settings.fail_mode == FailMode::Standalone && !self.awaits_rules;
        let change = control.fail_open.run(standalone, control.links.values(), now);
        let managers = self.settings.in_band_managers.iter().copied();
        let remotes = control.links.values().filter_map(Link::in_band_remote).chain(managers);
        let remotes = remotes.filter(|_| !bridge.settings.disable_in_band).collect();
        let queue_id = bridge.settings.in_band_queue;
        let in_band = control.in_band.run(bridge.mac, remotes, queue_id, now, next_hop);
        match change {
            fail_open::Change::None => {}
            fail_open::Change::Entered => {
                self.flush_rules(idx);
                self.own_rule(idx, Command::Add, &fail_open::rule());
            }
            fail_open::Change::SendsPacket => {
                let (packet, frame) = fail_open::packet(bridge.mac);
                bridge.tell_packet(packet, 1, |_| vec![frame]);
            }
            fail_open::Change::Left => self.own_rule(idx, Command::DeleteStrict, &fail_open::rule()),
        }
        for rule in in_band.removed {
            self.own_rule(idx, Command::DeleteStrict, &rule);
        }
        for rule in in_band.added {
            self.own_rule(idx, Command::Add, &rule);
        }
    }

    /// The columns `is_connected`, `role` and `status` of a bridge's controllers, by target.
    pub fn controller_status(&self, bridge: &str) -> BTreeMap<String, ControllerStatus> {
        let now = clock::now();
        self.bridge_named(bridge).map(|ofproto| ofproto.controller_status(now)).unwrap_or_default()
    }

    /// Adds or removes a rule that is the switch's own affair.
    fn own_rule(&mut self, idx: BridgeIdx, command: Command, rule: &OwnRule) {
        let queue = rule.queue_id.map(Action::SetQueue);
        let normal = Action::Output { port: base::OfPort::NORMAL, max_len: 0 };
        let fm = FlowMod {
            command,
            priority: rule.priority,
            flags: RuleFlags { hidden: true, ..RuleFlags::default() },
            ..FlowMod::add(rule.matching.clone(), queue.into_iter().chain([normal]).collect())
        };
        self.change_by_itself(idx, OwnChange::Rule(fm));
    }
}
