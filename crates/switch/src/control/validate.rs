//! What a rule's actions may be, given what it matches; and what is worked out of them once.
//!
//! Actions are checked in order against the match as they change it: a pushed tag is a tag for those that follow.

use super::FlowModError;
use crate::rule::Actions;
use crate::shape::depth_of;
use base::OfPort;
use flow::action::SubField;
use flow::options::{OptionTable, PlaceError};
use flow::{Action, Depth, FieldId, Mask, Match, Mf};

/// Whether a rule in this table may have these actions.
pub(super) fn check(
    matching: &Match,
    actions: &[Action],
    table_id: u8,
    options: &OptionTable,
) -> Result<(), FlowModError> {
    if actions.iter().all(is_plain) {
        return actions.iter().try_for_each(check_port);
    }
    let mut state = Match::clone(matching);
    actions.iter().try_for_each(|a| check_one(a, &mut state, table_id, options))
}

/// Outputs, which need nothing of the match: what nearly every rule has.
fn is_plain(action: &Action) -> bool {
    matches!(action, Action::Output { .. } | Action::Note(_))
}

fn check_port(action: &Action) -> Result<(), FlowModError> {
    match action {
        Action::Output { port, .. } | Action::OutputTrunc { port, .. } | Action::Enqueue { port, .. } => {
            let reserved = port.0 >= OfPort::MAX.0;
            let known = port.0 >= OfPort::IN_PORT.0;
            if *port == OfPort(0) || reserved && !known {
                Err(FlowModError::BadOutPort(*port))
            } else {
                Ok(())
            }
        }
        _ => Ok(()),
    }
}

fn check_one(
    action: &Action,
    state: &mut Match,
    table_id: u8,
    options: &OptionTable,
) -> Result<(), FlowModError> {
    match action {
        Action::Output { .. } => check_port(action),
        Action::Enqueue { port, .. } => {
            if port.0 >= OfPort::MAX.0 && !matches!(*port, OfPort::IN_PORT | OfPort::LOCAL) {
                return Err(FlowModError::BadOutPort(*port));
            }
            check_port(action)
        }
        Action::OutputTrunc { port, max_len } => {
            if *max_len < 14 {
                return Err(FlowModError::BadArgument("max_len below 14"));
            }
            let floods = matches!(
                *port,
                OfPort::NORMAL
                    | OfPort::FLOOD
                    | OfPort::ALL
                    | OfPort::CONTROLLER
                    | OfPort::TABLE
                    | OfPort::NONE
            );
            if floods { Err(FlowModError::BadOutPort(*port)) } else { check_port(action) }
        }
        Action::StackPush(sub) | Action::StackPop(sub) if sub.count > 128 => {
            check_range(sub, options)?;
            Err(FlowModError::Unsupported("more than 128 bits on the stack"))
        }
        Action::OutputReg { source, .. } | Action::StackPush(source) => check_read(source, state, options),
        Action::StackPop(target) | Action::Load { target, .. } => check_write(target, state, options),
        Action::SetOption { idx, value, mask } => {
            options.check_write(*idx, value, mask).map_err(FlowModError::in_action)
        }
        Action::DeleteField(Mf::TunMetadata(idx)) => match options.bits(*idx) {
            Some(_) => Ok(()),
            None => Err(FlowModError::UnmappedOption),
        },
        Action::DeleteField(_) => Err(FlowModError::BadArgument("a field that cannot be deleted")),
        Action::Move { source, target } => {
            if source.count != target.count {
                return Err(FlowModError::BadArgument("move between different widths"));
            }
            check_read(source, state, options)?;
            check_write(target, state, options)
        }
        Action::SetField { field, value, mask } => {
            if value & !field.ones() != 0 || mask & !field.ones() != 0 {
                return Err(FlowModError::BadArgument("value wider than the field"));
            }
            check_field_write(*field, state)?;
            if *field == Mf::VlanTci {
                state.set_mf(Mf::VlanTci, *value, *mask);
            }
            Ok(())
        }
        Action::Controller { meter_id: Some(m), .. } => Err(FlowModError::BadMeter(*m)),
        Action::Resubmit { ct: true, .. } => Err(FlowModError::Unsupported("resubmit(ct)")),
        Action::GotoTable(to) if *to <= table_id || *to >= super::TABLE_HIDDEN => {
            Err(FlowModError::BadGoto(*to))
        }
        Action::WriteActions(list) | Action::Clone(list) => {
            let mut inner = state.clone();
            list.iter().try_for_each(|a| check_one(a, &mut inner, table_id, options))
        }
        Action::Sample { probability: 0, .. } => Err(FlowModError::BadArgument("probability 0")),
        Action::Conjunction { .. } => Err(FlowModError::Unsupported("conjunction")),
        Action::DecNshTtl => Err(FlowModError::Unsupported("dec_nsh_ttl")),
        Action::Group(group) => Err(FlowModError::BadOutGroup(*group)),
        Action::Meter(meter) => Err(FlowModError::BadMeter(*meter)),
        header => check_header(header, state),
    }
}

/// Tags, labels, times to live.
fn check_header(action: &Action, state: &mut Match) -> Result<(), FlowModError> {
    let has_tag = state.key.get64(FieldId::VlanTci) & 0x1000 != 0;
    match action {
        Action::SetVlanVid { vid, .. } if *vid > 0xfff => Err(FlowModError::BadArgument("VLAN above 4095")),
        Action::SetVlanPcp { pcp, .. } if *pcp > 7 => Err(FlowModError::BadArgument("priority above 7")),
        Action::SetVlanVid { push_vlan_if_needed: push, .. }
        | Action::SetVlanPcp { push_vlan_if_needed: push, .. } => {
            if !push && !has_tag {
                return Err(FlowModError::MatchInconsistent("set_vlan"));
            }
            state.set_mf(Mf::VlanTci, 0x1000, 0x1000);
            Ok(())
        }
        Action::PushVlan(tpid) => {
            if !matches!(tpid, 0x8100 | 0x88a8) {
                return Err(FlowModError::BadArgument("push_vlan of an unknown Ethernet type"));
            }
            state.set_mf(Mf::VlanTci, 0x1000, 0x1000);
            Ok(())
        }
        Action::PopVlan => {
            state.set_mf(Mf::VlanTci, 0, 0);
            Ok(())
        }
        Action::PushMpls(eth_type) => {
            if !matches!(eth_type, 0x8847 | 0x8848) {
                return Err(FlowModError::BadArgument("push_mpls of an unknown Ethernet type"));
            }
            state.set_mf(Mf::EthType, u128::from(*eth_type), 0xffff);
            Ok(())
        }
        Action::PopMpls(eth_type) => {
            if !state.has_prereq(Mf::MplsLabel) {
                return Err(FlowModError::MatchInconsistent("pop_mpls"));
            }
            state.set_mf(Mf::EthType, u128::from(*eth_type), 0xffff);
            Ok(())
        }
        Action::SetMplsLabel(label) if *label > 0xf_ffff => {
            Err(FlowModError::BadArgument("label above 20 bits"))
        }
        Action::SetMplsTc(tc) if *tc > 7 => Err(FlowModError::BadArgument("traffic class above 7")),
        Action::SetMplsLabel(_) | Action::SetMplsTc(_) | Action::SetMplsTtl(_) | Action::DecMplsTtl => {
            let found = state.has_prereq(Mf::MplsLabel);
            if found { Ok(()) } else { Err(FlowModError::MatchInconsistent("an MPLS action")) }
        }
        Action::DecTtl(_) => {
            let found = state.has_prereq(Mf::NwTtl);
            if found { Ok(()) } else { Err(FlowModError::MatchInconsistent("dec_ttl")) }
        }
        _ => Ok(()),
    }
}

fn check_range(sub: &SubField, options: &OptionTable) -> Result<(), FlowModError> {
    let bits = match sub.field {
        Mf::TunMetadata(idx) => options.bits(idx).ok_or(FlowModError::UnmappedOption)?,
        field => field.bits(),
    };
    match sub.field {
        _ if sub.count > 0 && sub.offset + sub.count <= bits => Ok(()),
        Mf::TunMetadata(_) => Err(FlowModError::in_action(PlaceError::TooLong)),
        _ => Err(FlowModError::BadArgument("bits outside the field")),
    }
}

fn check_read(sub: &SubField, state: &Match, options: &OptionTable) -> Result<(), FlowModError> {
    check_range(sub, options)?;
    if state.has_prereq(sub.field) {
        Ok(())
    } else {
        Err(FlowModError::MatchInconsistent("the source field"))
    }
}

fn check_write(sub: &SubField, state: &Match, options: &OptionTable) -> Result<(), FlowModError> {
    check_range(sub, options)?;
    if let Mf::TunMetadata(_) = sub.field { Ok(()) } else { check_field_write(sub.field, state) }
}

fn check_field_write(field: Mf, state: &Match) -> Result<(), FlowModError> {
    if !field.row().writable || matches!(field, Mf::TunMetadata(_)) {
        return Err(FlowModError::BadSetType(field));
    }
    // To match it, a packet needs no tag; to set it, it does.
    let prerequisite = if field == Mf::VlanVid { Mf::VlanPcp } else { field };
    if state.has_prereq(prerequisite) { Ok(()) } else { Err(FlowModError::MatchInconsistent("set_field")) }
}

/// What is worked out of a list once.
pub(super) fn compile(list: &[Action]) -> Actions {
    let mut tables = Vec::new();
    let depth = walk(list, &mut tables);
    tables.sort_unstable();
    tables.dedup();
    Actions { list: list.into(), depth, tables: tables.into() }
}

/// How deep a packet must have been read for the actions; collects the tables that they lead to.
fn walk(list: &[Action], tables: &mut Vec<u8>) -> Depth {
    let of_field = |field: Mf| {
        let mut mask = Mask::wild();
        mask.add_mf(field, field.ones());
        // What says whether the field is there is read too.
        let prerequisite = match field.row().prereq {
            flow::mf::Prereq::None => Depth::Metadata,
            flow::mf::Prereq::Ethernet | flow::mf::Prereq::Vlan => Depth::Ethernet,
            _ => Depth::Transport,
        };
        depth_of(&mask).max(prerequisite)
    };
    let mut depth = Depth::Metadata;
    for action in list {
        depth = depth.max(match action {
            Action::Output { port: OfPort::NORMAL, .. } => Depth::Ethernet,
            Action::Output { port: OfPort::CONTROLLER, .. } | Action::Controller { .. } => Depth::Everything,
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
            | Action::DecMplsTtl => Depth::Network,
            // It tells the controllers where it cannot.
            Action::DecTtl(_) => Depth::Everything,
            Action::Resubmit { table, .. } => {
                tables.extend(table);
                Depth::Metadata
            }
            Action::GotoTable(table) => {
                tables.push(*table);
                Depth::Metadata
            }
            Action::WriteActions(inner) | Action::Clone(inner) => walk(inner, tables),
            Action::Sample { .. } => Depth::Everything,
            _ => Depth::Metadata,
        });
    }
    depth
}
