//! Which actions a rule may have, given what it matches; and what is derived from them once.
//!
//! The arguments of each action are checked here. [`openflow::check_actions`] checks whether actions are
//! compatible with the match and with the controller's protocol version.

use super::numbered::NumberedControl;
use crate::flow_mod::{FlowModError, TABLE_ALL, TABLE_HIDDEN};
use crate::group::Group;
use crate::meter::Meter;
use crate::rule::{Actions, Named, counted_learns};
use crate::shape::depth_of;
use base::OfPort;
use flow::action::{CtZone, Learn, LearnSource, LearnTarget, SubField};
use flow::mf::Prereq;
use flow::options::{OptionTable, PlaceError};
use flow::{Action, Depth, Mask, Match, Mf};
use openflow::message::METER_MAX;
use openflow::{ErrorKind, Version};

/// What actions in a bridge may refer to.
#[derive(Clone, Copy)]
pub(super) struct Known<'a> {
    pub options: &'a OptionTable,
    /// `None`: references to missing groups and meters are allowed.
    pub numbered: Option<(&'a NumberedControl<Group>, &'a NumberedControl<Meter>)>,
    /// Whether actions for tests are accepted.
    pub debugs: bool,
}

/// Whether a rule in this table may have these actions, sent by a controller of this version.
pub(super) fn check(
    version: Version,
    matching: &Match,
    actions: &[Action],
    table_id: u8,
    known: Known<'_>,
) -> Result<(), FlowModError> {
    if actions.iter().all(is_plain) {
        return actions.iter().try_for_each(check_port);
    }
    let table = Some(table_id).filter(|table_id| *table_id != TABLE_ALL);
    // The first fault is reported, but those of which groups and meters there are come last: as in Open
    // vSwitch.
    let Err((at, error)) = check_each(actions, table_id, known) else {
        return openflow::check_actions(version, matching, actions, table).map_err(FlowModError::Actions);
    };
    if known.numbered.is_some() {
        check(version, matching, actions, table_id, Known { numbered: None, ..known })?;
    } else {
        openflow::check_actions_before(version, matching, &actions[..at], table)
            .map_err(FlowModError::Actions)?;
    }
    Err(error)
}

/// Outputs, which require nothing of the match: what nearly every rule has.
fn is_plain(action: &Action) -> bool {
    matches!(action, Action::Output { .. } | Action::Note(_))
}

fn check_port(action: &Action) -> Result<(), FlowModError> {
    match action {
        Action::Output { port, .. } | Action::OutputTrunc { port, .. } | Action::Enqueue { port, .. } => {
            let reserved = port.0 >= OfPort::MAX.0;
            let known = port.0 >= OfPort::IN_PORT.0;
            if reserved && !known { Err(FlowModError::BadOutPort(*port)) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Whether a bucket of a group may have these actions. They may refer to missing groups.
pub(super) fn check_bucket(actions: &[Action], known: Known<'_>) -> Result<(), FlowModError> {
    check_list(actions, 0, Known { numbered: None, ..known })
}

fn check_list(actions: &[Action], table_id: u8, known: Known<'_>) -> Result<(), FlowModError> {
    check_each(actions, table_id, known).map_err(|(_, error)| error)
}

/// The same, with the place of the action at fault.
fn check_each(actions: &[Action], table_id: u8, known: Known<'_>) -> Result<(), (usize, FlowModError)> {
    let check = |(at, action)| check_one(action, table_id, known).map_err(|error| (at, error));
    actions.iter().enumerate().try_for_each(check)
}

/// Lists every action, so that none is accepted that translation does not know.
fn check_one(action: &Action, table_id: u8, known: Known<'_>) -> Result<(), FlowModError> {
    let options = known.options;
    let bad = |what| Err(FlowModError::BadArgument(what));
    match action {
        Action::Output { .. } => check_port(action),
        Action::Enqueue { port, .. } => {
            if port.0 >= OfPort::MAX.0 && !matches!(*port, OfPort::IN_PORT | OfPort::LOCAL) {
                return Err(FlowModError::BadOutPort(*port));
            }
            check_port(action)
        }
        Action::OutputTrunc { port, max_len } => check_truncated(*port, *max_len),
        Action::OutputReg { source, .. } | Action::StackPush(source) => check_range(source, options),
        Action::StackPop(target) | Action::Load { target, .. } => check_write(target, options),
        Action::SetOption { idx, value, mask } => {
            options.check_write(*idx, value, mask).map_err(FlowModError::in_action)
        }
        Action::DeleteField(Mf::TunMetadata(idx)) => match options.bits(*idx) {
            Some(_) => Ok(()),
            None => Err(FlowModError::UnmappedOption),
        },
        Action::DeleteField(_) => bad("a field that cannot be deleted"),
        Action::Move { source, target } => {
            if source.count != target.count {
                return bad("move between different widths");
            }
            check_range(source, options)?;
            check_write(target, options)
        }
        Action::SetField { field, value, mask } => {
            let width = field.bits().max(field.row().subfield_bits);
            let beyond = u128::MAX.checked_shl(width.into()).unwrap_or(0);
            if (value | mask) & beyond != 0 {
                return bad("value wider than the field");
            }
            check_writable(*field)
        }
        Action::GotoTable(to) if *to <= table_id && table_id != TABLE_ALL || *to == TABLE_ALL => {
            Err(FlowModError::BadGoto(*to))
        }
        Action::Ct(ct) => {
            if let CtZone::In(sub) = &ct.zone {
                check_range(sub, known.options)?;
            }
            check_list(&ct.actions, table_id, known)
        }
        Action::WriteActions(list) | Action::Clone(list) => check_list(list, table_id, known),
        Action::Sample { probability: 0, .. } => bad("probability 0"),
        Action::SetVlanVid { vid, .. } if *vid > 0xfff => bad("VLAN above 4095"),
        Action::SetVlanPcp { pcp, .. } if *pcp > 7 => bad("priority above 7"),
        Action::PushVlan(tpid) if !matches!(tpid, 0x8100 | 0x88a8) => {
            bad("push_vlan of an unknown Ethernet type")
        }
        Action::PushMpls(eth_type) if !matches!(eth_type, 0x8847 | 0x8848) => {
            bad("push_mpls of an unknown Ethernet type")
        }
        Action::SetMplsLabel(label) if *label > 0xf_ffff => bad("label above 20 bits"),
        Action::SetMplsTc(tc) if *tc > 7 => bad("traffic class above 7"),
        Action::CheckPktLarger { target, .. } => check_write(target, options),
        Action::Group(group) => match known.numbered {
            Some((groups, _)) if !groups.by_id.contains_key(group) => Err(FlowModError::BadOutGroup(*group)),
            _ => Ok(()),
        },
        Action::Learn(learn) => check_learn(learn, options),
        Action::DebugRecirc | Action::DebugSlow if !known.debugs => {
            Err(FlowModError::Refused(ErrorKind::OFPBAC_BAD_VENDOR_TYPE))
        }
        Action::Multipath(m) => check_write(&m.target, options),
        Action::Bundle(bundle) => bundle.target.iter().try_for_each(|target| check_write(target, options)),
        Action::Meter(meter) => check_meter(*meter, known),
        Action::Controller { .. }
        | Action::SetTpSrc(_)
        | Action::SetTpDst(_)
        | Action::SetNwTtl(_)
        | Action::SetVlanVid { .. }
        | Action::SetVlanPcp { .. }
        | Action::PushVlan(_)
        | Action::PopVlan
        | Action::PushMpls(_)
        | Action::PopMpls(_)
        | Action::SetMplsLabel(_)
        | Action::SetMplsTc(_)
        | Action::SetMplsTtl(_)
        | Action::DecMplsTtl
        | Action::DecNshTtl
        | Action::Encap { .. }
        | Action::Decap { .. }
        | Action::DecTtl(_)
        | Action::SetTunnel { .. }
        | Action::SetQueue(_)
        | Action::PopQueue
        | Action::Resubmit { .. }
        | Action::GotoTable(_)
        | Action::WriteMetadata { .. }
        | Action::ClearActions
        | Action::Sample { .. }
        | Action::Nat(_)
        | Action::CtClear
        | Action::FinTimeout { .. }
        | Action::Conjunction { .. }
        | Action::Note(_)
        | Action::DebugRecirc
        | Action::DebugSlow
        | Action::Exit => Ok(()),
    }
}

fn check_learn(learn: &Learn, options: &OptionTable) -> Result<(), FlowModError> {
    if learn.table_id >= TABLE_HIDDEN {
        return Err(FlowModError::BadArgument("learn into a table that cannot be changed"));
    }
    learn.result.iter().try_for_each(|result| check_write(result, options))?;
    for part in &learn.specs {
        if let LearnSource::Field(source) = &part.source {
            check_range(source, options)?;
        }
        match &part.target {
            LearnTarget::Match(target) => check_range(target, options)?,
            LearnTarget::Load(target) => check_write(target, options)?,
            LearnTarget::Output => {}
        }
    }
    Ok(())
}

fn check_meter(meter: u32, known: Known<'_>) -> Result<(), FlowModError> {
    match known.numbered {
        _ if meter == 0 || meter > METER_MAX => Err(FlowModError::BadMeter(meter)),
        Some((_, meters)) if !meters.by_id.contains_key(&meter) => Err(FlowModError::BadMeter(meter)),
        _ => Ok(()),
    }
}

fn check_truncated(port: OfPort, max_len: u32) -> Result<(), FlowModError> {
    if max_len < 14 {
        return Err(FlowModError::BadArgument("max_len below 14"));
    }
    check_port(&Action::OutputTrunc { port, max_len })
}

fn check_range(sub: &SubField, options: &OptionTable) -> Result<(), FlowModError> {
    let bits = match sub.field {
        Mf::TunMetadata(idx) => options.bits(idx).ok_or(FlowModError::UnmappedOption)?,
        field => field.row().subfield_bits,
    };
    match sub.field {
        _ if sub.count > 0 && sub.offset + sub.count <= bits => Ok(()),
        Mf::TunMetadata(_) => Err(FlowModError::in_action(PlaceError::TooLong)),
        _ => Err(FlowModError::BadArgument("bits outside the field")),
    }
}

fn check_write(sub: &SubField, options: &OptionTable) -> Result<(), FlowModError> {
    check_range(sub, options)?;
    if let Mf::TunMetadata(_) = sub.field { Ok(()) } else { check_writable(sub.field) }
}

fn check_writable(field: Mf) -> Result<(), FlowModError> {
    if field.row().writable && !matches!(field, Mf::TunMetadata(_)) {
        Ok(())
    } else {
        Err(FlowModError::BadSetType(field))
    }
}

/// Computes what is derived from a list once.
pub(super) fn compile(list: &[Action]) -> Actions {
    let (mut tables, mut named) = (Vec::new(), Named { learns: counted_learns(list), ..Named::default() });
    let depth = walk(list, &mut tables, &mut named);
    Actions::new(list, depth, tables, named)
}

/// How deep a packet must have been read for the actions; collects the tables that they may go to, and what
/// else they refer to.
fn walk(list: &[Action], tables: &mut Vec<u8>, named: &mut Named) -> Depth {
    let of_field = |field: Mf| {
        let mut mask = Mask::wild();
        mask.add_mf(field, field.ones());
        // Fields that tell whether the field is present are read too.
        let prerequisite = match field.row().prereq {
            Prereq::None => Depth::Metadata,
            Prereq::Ethernet | Prereq::Vlan => Depth::Ethernet,
            _ => Depth::Transport,
        };
        depth_of(&mask).max(prerequisite)
    };
    let mut depth = Depth::Metadata;
    for action in list {
        depth = depth.max(match action {
            Action::Output { port: OfPort::NORMAL, .. } => Depth::Ethernet,
            // Its meter may be missing, which means none, as in Open vSwitch.
            Action::Controller { .. } | Action::Output { port: OfPort::CONTROLLER, .. } => Depth::Everything,
            Action::Output { .. } | Action::OutputTrunc { .. } | Action::Enqueue { .. } => Depth::Metadata,
            // The register may name any port, NORMAL and CONTROLLER included.
            Action::OutputReg { .. } => Depth::Everything,
            Action::SetField { field, .. } => of_field(*field),
            Action::Load { target, .. } | Action::StackPop(target) => of_field(target.field),
            Action::StackPush(source) => of_field(source.field),
            Action::Move { source, target } => of_field(source.field).max(of_field(target.field)),
            Action::SetVlanVid { .. } | Action::SetVlanPcp { .. } | Action::PushVlan(_) | Action::PopVlan => {
                Depth::Ethernet
            }
            Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl
            | Action::SetNwTtl(_) => Depth::Network,
            Action::SetTpSrc(_) | Action::SetTpDst(_) | Action::FinTimeout { .. } => Depth::Transport,
            Action::CheckPktLarger { target, .. } => of_field(target.field),
            // It notifies the controllers if the TTL has expired.
            Action::DecTtl(_) | Action::DecNshTtl => Depth::Everything,
            Action::Resubmit { table, ct, .. } => {
                tables.extend(table);
                if *ct { Depth::Transport } else { Depth::Metadata }
            }
            Action::GotoTable(table) => {
                tables.push(*table);
                Depth::Metadata
            }
            Action::WriteActions(inner) | Action::Clone(inner) => walk(inner, tables, named),
            // The tracker reads packets itself. But caches can follow a connection's packets if ports
            // distinguish them from others.
            Action::Ct(ct) => {
                tables.extend(ct.table);
                let zone = match ct.zone {
                    CtZone::In(sub) => of_field(sub.field),
                    CtZone::Is(_) => Depth::Metadata,
                };
                walk(&ct.actions, tables, named).max(zone).max(Depth::Transport)
            }
            Action::Sample { .. } => Depth::Everything,
            // Affects only the pipeline.
            Action::SetOption { .. }
            | Action::DeleteField(_)
            | Action::SetTunnel { .. }
            | Action::SetQueue(_)
            | Action::PopQueue
            | Action::WriteMetadata { .. }
            | Action::ClearActions
            | Action::Nat(_)
            | Action::CtClear
            // Used only by the lookup.
            | Action::Conjunction { .. }
            | Action::Note(_)
            | Action::DebugRecirc
            | Action::DebugSlow
            | Action::Exit => Depth::Metadata,
            // Its buckets may do anything, and may change without the rule.
            Action::Group(group) => {
                named.groups.push(*group);
                Depth::Everything
            }
            // VLAN tags and labels, and an NSH header's next protocol.
            Action::Encap { .. } | Action::Decap { .. } => Depth::Network,
            // The hash covers all headers; the control thread reads the packet from which to learn.
            Action::Multipath(_) | Action::Bundle(_) | Action::Learn(_) => Depth::Everything,
            // The datapath itself raises the drop precedence.
            Action::Meter(meter) => {
                named.meters.push(*meter);
                Depth::Metadata
            }
        });
    }
    depth
}
