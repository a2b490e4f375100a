//! Bundles: changes of rules and groups that are collected and then take effect as one version, or not at
//! all. Packets among them pass through the tables as the changes before them leave these, and are sent at
//! the end. Changes of ports, allowed only in bundles that need not be atomic, are also made at the end. As
//! in Open vSwitch.
//!
//! A bundle that is not used for `bundle-idle-timeout` seconds is discarded, and its owner is notified.
//!
//! Source: OpenFlow 1.4 section 7.3.9, and its extension to 1.3 (EXT-230); ovs-vswitchd.conf.db(5).

use super::flow_mods::{command, convert, refusal};
use super::request::{Handled, Request};
use crate::ofproto::{
    Bundle, BundleChange as Change, BundleKind as Kind, Charge, Commit, FlowModCounts, LongKind, OfConn,
};
use crate::state::Vswitch;
use flow::Match;
use openflow::message::{
    BundleAdd, BundleControl, BundleControlType, BundleFlags, FlowFlags, FlowModCommand, GroupCommand,
    Message, PacketOut,
};
use openflow::{Codec, ErrorKind, OfError, Version};
use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use switch::control::{self, AsChange, Due};
use transport::clock;

/// How many loose changes of a bundle are examined to estimate the steps of all: to examine all of a million
/// would take longer than a turn.
const LOOSE_LOOKED_AT: usize = 100;
/// Bundles of one connection.
const BUNDLES_MAX: usize = 256;
/// Idle timeout in seconds, unless `bundle-idle-timeout` is set.
const IDLE_DEFAULT_S: u32 = 10;
/// Messages in one.
const MESSAGES_MAX: usize = 4_000_000;
/// Changes of ports in one: all are looked at in one turn.
const PORTS_MAX: usize = 10_000;
/// Bytes that the bundles of one connection may take: two million flow-mods of the usual length.
const CONNECTION_BYTES_MAX: usize = 320 << 20;
impl Change {
    /// The same for the switch's tables.
    fn due(&self, version: Version) -> Due<'_> {
        match &self.kind {
            Kind::Flow => {
                let Ok((_, Message::FlowMod(mut fm))) = Codec::new(version).decode(&self.bytes) else {
                    unreachable!("it was read as a flow-mod of this version before")
                };
                let change = convert(&mut fm, version);
                fm.recycle();
                Due::Made(change)
            }
            Kind::Group(gm) => Due::Kept(control::Change::Group(gm)),
            Kind::Packet(packet, _) => {
                let (PacketOut { actions, .. }, key) = &**packet;
                Due::Kept(control::Change::Packet(control::PacketOut { key, actions, version }))
            }
            Kind::Port(_) => Due::Kept(control::Change::Nothing),
        }
    }

    /// The maximum number of steps that it takes whatever the tables hold.
    fn steps(&self, version: Version) -> usize {
        match &self.kind {
            // A flow-mod need not be read again for that.
            Kind::Flow => 1,
            Kind::Group(_) | Kind::Packet(..) | Kind::Port(_) => self.due(version).as_change().steps(),
        }
    }
}

/// A bundle's changes for a transaction of the switch.
struct Changes {
    bridge: BridgeIdx,
    version: Version,
    bundle: Arc<Bundle>,
}

impl control::Changes for Changes {
    fn change(&self, at: usize) -> Option<(BridgeIdx, Due<'_>)> {
        let change = self.bundle.changes.get(at)?;
        Some((self.bridge, change.due(self.version)))
    }
}

/// Says that a request about a bundle was done.
fn reply(conn: &mut OfConn, xid: u32, control: BundleControl) {
    if let Some(kind) = control.kind.reply() {
        let reply = BundleControl { kind, flags: BundleFlags::empty(), ..control };
        conn.send(xid, &Message::BundleControl(reply));
    }
}

/// Reports which message of a bundle was refused, with that message's own error.
pub(super) fn fail(conn: &mut OfConn, change: &Change, kind: ErrorKind) -> Handled {
    let code = openflow::error::ErrorCode::Known(kind);
    let error = OfError { code, data: change.bytes.to_vec() };
    conn.send(change.xid, &Message::Error(error));
    Err(ErrorKind::OFPBFC_MSG_FAILED)
}

impl Vswitch {
    pub(super) fn bundle_control(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        control: BundleControl,
    ) -> Handled {
        let id = control.bundle_id;
        match control.kind {
            BundleControlType::OpenRequest => {
                if conn.bundles.contains_key(&id) {
                    conn.bundles.remove(&id);
                    // Not OFPBFC_BUNDLE_EXIST: as in Open vSwitch.
                    return Err(ErrorKind::OFPBFC_BAD_ID);
                }
                if conn.bundles.len() >= BUNDLES_MAX {
                    return Err(ErrorKind::OFPBFC_OUT_OF_BUNDLES);
                }
                let bundle = self.new_bundle(control.flags, request);
                conn.bundles.insert(id, bundle);
            }
            BundleControlType::CloseRequest => {
                let bundle = conn.bundles.get_mut(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
                if bundle.closed {
                    conn.bundles.remove(&id);
                    return Err(ErrorKind::OFPBFC_BUNDLE_CLOSED);
                }
                if bundle.flags != control.flags {
                    conn.bundles.remove(&id);
                    return Err(ErrorKind::OFPBFC_BAD_FLAGS);
                }
                bundle.closed = true;
                bundle.expires = self.bundle_expires();
            }
            BundleControlType::CommitRequest => {
                let bundle = conn.bundles.remove(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
                if bundle.flags != control.flags {
                    return Err(ErrorKind::OFPBFC_BAD_FLAGS);
                }
                return self.commit(bridge, conn, request, control, bundle);
            }
            BundleControlType::DiscardRequest => {
                conn.bundles.remove(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
            }
            _ => return Err(ErrorKind::OFPBFC_BAD_TYPE),
        }
        reply(conn, request.xid, control);
        Ok(())
    }

    /// Makes the changes of a bundle, at once if there are few.
    fn commit(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        control: BundleControl,
        bundle: Bundle,
    ) -> Handled {
        for at in &bundle.ports {
            let change = &bundle.changes[*at as usize];
            let Kind::Port(pm) = &change.kind else { continue };
            if bundle.flags.contains(BundleFlags::ATOMIC) {
                return fail(conn, change, ErrorKind::OFPBFC_MSG_FAILED);
            }
            if let Err(kind) = self.port_of_mod(bridge, pm) {
                return fail(conn, change, kind);
            }
        }
        self.plane.note_use(bridge, bundle.changes.len());
        let version = conn.version();
        let looked_at = &bundle.loose[..bundle.loose.len().min(LOOSE_LOOKED_AT)];
        let loose = looked_at.iter().map(|at| bundle.changes[*at as usize].due(version));
        // They may look at what the bundle itself adds, too.
        let (tables, own) = (&self.plane.control, bundle.changes.len());
        let loose = loose.map(|due| tables.steps_at_most(bridge, due.as_change()) + own).sum::<usize>();
        let as_many_more = bundle.loose.len().div_ceil(LOOSE_LOOKED_AT);
        let steps = bundle.steps + loose * as_many_more;
        let changes = Arc::new(Changes { bridge, version, bundle: Arc::new(bundle) });
        let bundle = changes.bundle.clone();
        let credits: Arc<dyn Any + Send + Sync> = bundle.clone();
        self.plane.crediting = Some(Arc::downgrade(&credits));
        let added_groups = Vec::new().into_iter().peekable();
        let commit = Commit { control, bundle, added_groups, packets: None, told: 0 };
        self.change_tables(bridge, conn, request, LongKind::Bundle(Box::new(commit)), changes, steps)
    }

    /// Handles the consequences of a bundle whose changes were made or refused. `None`: more is left to do.
    pub(super) fn follow_bundle(
        &mut self,
        bridge: BridgeIdx,
        conn: Option<&mut OfConn>,
        xid: u32,
        commit: &mut Commit,
        until: Instant,
    ) -> Option<()> {
        let bundle = commit.bundle.clone();
        let packets = commit.packets.as_mut()?;
        while let Some(at) = bundle.others.get(commit.told) {
            commit.told += 1;
            let change = &bundle.changes[*at as usize];
            match &change.kind {
                Kind::Flow => {}
                Kind::Group(gm) => {
                    let existed = commit.added_groups.next_if_eq(at).is_none();
                    self.forward_group_mod(bridge, change.xid, gm, existed);
                }
                // Others have seen to it that it can be made; what the device says is no error of the
                // bundle's.
                Kind::Port(pm) => {
                    let source = conn.as_ref().map(|conn| conn.line.clone());
                    _ = self.port_mod(bridge, pm, source);
                }
                Kind::Packet(packet, dp_port) => {
                    if let Some(translated) = packets.next() {
                        self.plane.carry_out(bridge, &packet.0.data, *dp_port, translated.into());
                    }
                }
            }
            if Instant::now() >= until {
                return None;
            }
        }
        self.counts.flow_mods += (bundle.changes.len() - bundle.others.len()) as u64;
        if let Some(conn) = conn {
            conn.flow_mods.made(bundle.flow_mods, clock::now());
            reply(conn, xid, commit.control);
        }
        Some(())
    }

    fn new_bundle(&self, flags: BundleFlags, request: &Request<'_>) -> Bundle {
        let opened_by = (request.xid, *request.head);
        Bundle {
            flags,
            closed: false,
            changes: Vec::new(),
            others: Vec::new(),
            ports: Vec::new(),
            loose: Vec::new(),
            flow_mods: FlowModCounts::default(),
            steps: 0,
            bytes: Charge::default(),
            opened_by,
            expires: self.bundle_expires(),
        }
    }

    /// When a bundle that is touched now is forgotten.
    fn bundle_expires(&self) -> Instant {
        let idle = self.settings.bundle_idle_s.unwrap_or(IDLE_DEFAULT_S);
        clock::now() + Duration::from_secs(idle.into())
    }

    pub(super) fn bundle_add(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        add: BundleAdd,
    ) -> Handled {
        let (mut is_loose, mut flow_mod) = (false, FlowModCounts::default());
        let kind = match *add.message {
            // A message that would be wrong in any state of the tables is refused at once.
            Message::FlowMod(fm) => {
                self.check_flow_mod(bridge, conn.version(), &fm)?;
                is_loose = matches!(fm.command, FlowModCommand::Modify | FlowModCommand::Delete)
                    || fm.flags.contains(FlowFlags::CHECK_OVERLAP);
                flow_mod = command(fm.command).into();
                fm.recycle();
                Kind::Flow
            }
            Message::GroupMod(gm) => {
                is_loose = gm.command == GroupCommand::Delete;
                Kind::Group(gm)
            }
            Message::PortMod(pm) => {
                pm.unknown.map_or(Ok(()), Err)?;
                Kind::Port(pm)
            }
            Message::PacketOut(out) => {
                let (key, dp_port) = self.packet_of(bridge, &out)?;
                let packet = Match { key: key.clone(), ..Match::any() };
                self.plane
                    .control
                    .check_consistency(bridge, conn.version(), &packet, &out.actions, 0)
                    .map_err(|e| refusal(&e))?;
                Kind::Packet(Box::new((*out, key)), dp_port)
            }
            _ => return Err(ErrorKind::OFPBFC_MSG_UNSUP),
        };
        // A message for a bundle that was not opened opens it.
        if !conn.bundles.contains_key(&add.bundle_id) && conn.bundles.len() >= BUNDLES_MAX {
            return Err(ErrorKind::OFPBFC_OUT_OF_BUNDLES);
        }
        let change = Change { xid: add.xid, kind, bytes: add.bytes.into_boxed_slice() };
        let held: usize = conn.bundles.values().map(|bundle| bundle.bytes.0).sum();
        let (expires, version) = (self.bundle_expires(), conn.version());
        let bundle = conn.bundles.entry(add.bundle_id).or_insert_with(|| self.new_bundle(add.flags, request));
        // As in Open vSwitch, such an error ends the bundle: a commit must not make half of what was meant.
        if bundle.closed {
            conn.bundles.remove(&add.bundle_id);
            return Err(ErrorKind::OFPBFC_BUNDLE_CLOSED);
        }
        if bundle.flags != add.flags {
            conn.bundles.remove(&add.bundle_id);
            return Err(ErrorKind::OFPBFC_BAD_FLAGS);
        }
        let size = change.size();
        let is_port = matches!(change.kind, Kind::Port(_));
        let has_too_many =
            bundle.changes.len() >= MESSAGES_MAX || (is_port && bundle.ports.len() >= PORTS_MAX);
        if has_too_many || held + size > CONNECTION_BYTES_MAX || !bundle.bytes.add(size) {
            conn.bundles.remove(&add.bundle_id);
            return Err(ErrorKind::OFPBFC_MSG_TOO_MANY);
        }
        bundle.expires = expires;
        let at = bundle.changes.len() as u32;
        bundle.others.extend((!matches!(change.kind, Kind::Flow)).then_some(at));
        bundle.ports.extend(is_port.then_some(at));
        bundle.loose.extend(is_loose.then_some(at));
        bundle.flow_mods += flow_mod;
        bundle.steps += change.steps(version);
        bundle.changes.push(change);
        Ok(())
    }
}
