//! Reading lists of actions and instructions.

use super::check::Checker;
use super::print::actions_text;
use crate::message::TABLE_ALL;
use crate::text::field::{self, parse_subfield, parse_value, split_subfield};
use crate::text::matching::field_named;
use crate::text::value::{self, u8_named, u16_named, u32_of, u64_masked, u64_of};
use crate::text::{KeyValues, PortNames, Protocols, TextError, bad};
use crate::version::Version;
use base::OfPort;
use flow::action::{PacketInReason, SampleDirection};
use flow::options::Wide;
use flow::{Action, Match, Mf};
use std::net::Ipv4Addr;

/// How deep actions may lie in actions.
const DEPTH_MAX: u8 = 16;

/// Where a list of actions stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionsIn {
    /// In a flow: instructions too.
    Flow,
    /// In a packet-out or nested: actions alone.
    List,
}

/// What the actions belong to.
pub(in crate::text) struct Context<'a> {
    pub ports: &'a PortNames,
    pub place: ActionsIn,
    /// What the flow matches, to check the actions against; `None`: no check.
    pub matching: Option<&'a Match>,
    /// The flow's table.
    pub table: Option<u8>,
}

/// Reads a list of actions, which may be empty.
pub fn parse_actions(text: &str, place: ActionsIn, ports: &PortNames) -> Result<Vec<Action>, TextError> {
    let context = Context { ports, place, matching: None, table: None };
    parse_into(text, &context).map(|(actions, _)| actions)
}

/// Reads a list of actions and says in which encodings they can be said.
pub(in crate::text) fn parse_into(
    text: &str,
    context: &Context,
) -> Result<(Vec<Action>, Protocols), TextError> {
    let any = Match::any();
    let mut parser = Parser {
        ports: context.ports,
        checker: Checker::new(context.matching.unwrap_or(&any), context.table),
        protocols: Protocols::ANY,
    };
    let actions = parser.list(text, context.place, 0)?;
    if actions.iter().any(|a| matches!(a, Action::Conjunction { .. })) {
        let other = actions.iter().find(|a| !matches!(a, Action::Conjunction { .. } | Action::Note(_)));
        if let Some(other) = other {
            let text = actions_text(std::slice::from_ref(other), Version::V13, PortNames::none());
            // Its name is what its text begins with; of `CONTROLLER` and other ports it is their action's.
            let name = text.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().unwrap_or("");
            let name = if name.is_empty() { "output" } else { name };
            return bad!(
                "\"conjunction\" actions may be used along with \"note\" but not any other kind of action (such as \
                 the \"{name}\" action used here)"
            );
        }
    }
    let mut protocols = parser.protocols;
    if context.matching.is_some() {
        if let Some(error) = parser.checker.error {
            return bad!("actions are invalid with specified match ({error})");
        }
        protocols = protocols.intersect(parser.checker.protocols);
    }
    Ok((actions, protocols))
}

struct Parser<'a> {
    ports: &'a PortNames,
    checker: Checker,
    protocols: Protocols,
}

/// The order in which OpenFlow 1.1 and later carry instructions out.
fn instruction_rank(action: &Action) -> (u8, &'static str) {
    match action {
        Action::Meter(_) => (0, "meter"),
        Action::ClearActions => (2, "clear_actions"),
        Action::WriteActions(_) => (3, "write_actions"),
        Action::WriteMetadata { .. } => (4, "write_metadata"),
        Action::GotoTable(_) => (5, "goto_table"),
        _ => (1, "apply_actions"),
    }
}

impl Parser<'_> {
    fn list(&mut self, text: &str, place: ActionsIn, depth: u8) -> Result<Vec<Action>, TextError> {
        if depth > DEPTH_MAX {
            return bad!("Action nested too deeply");
        }
        let mut actions: Vec<Action> = Vec::new();
        let mut drop = false;
        let mut items = KeyValues::new(text);
        while let Some((key, value)) = items.next() {
            let is_drop = key.eq_ignore_ascii_case("drop");
            if drop || is_drop && !actions.is_empty() {
                let error = "\"drop\" must not be accompanied by any other action or instruction";
                return Err(TextError::new(error.to_string()).after(items.offset()));
            }
            if is_drop {
                drop = true;
                continue;
            }
            let action = self.action(key, value, depth).and_then(|(action, lenient)| {
                in_order(actions.last(), &action, place)?;
                let action = self.checker.with_known_vlan(action);
                self.checker.check(&action, lenient);
                Ok(action)
            });
            match action {
                // Writing no actions is nothing to do, and no instruction on the wire.
                Ok(Action::WriteActions(none)) if none.is_empty() => {}
                Ok(action) => actions.push(action),
                Err(error) => return Err(TextError::new(error.message).after(items.offset())),
            }
        }
        Ok(actions)
    }

    /// One action, and whether OpenFlow 1.0 takes it without its prerequisites.
    fn action(&mut self, key: &str, value: &str, depth: u8) -> Result<(Action, bool), TextError> {
        let name = key.to_ascii_lowercase();
        if let Some(action) = self.of10_action(&name, value)? {
            return Ok((action, true));
        }
        let action = match name.as_str() {
            "output" => self.output(value)?,
            "controller" => controller(value)?,
            "enqueue" => self.enqueue(value)?,
            "set_field" => self.set_field(value)?,
            "load" => load(value)?,
            "move" => move_bits(value)?,
            "push" => Action::StackPush(parse_subfield(value)?),
            "pop" => Action::StackPop(parse_subfield(value)?),
            "push_mpls" => Action::PushMpls(u16_named(value, "push_mpls")?),
            "pop_mpls" => Action::PopMpls(u16_named(value, "pop_mpls")?),
            "set_mpls_label" => match value::number(value, 0xfffff) {
                _ if value.is_empty() => return bad!("set_mpls_label: expected label."),
                Some(label) => Action::SetMplsLabel(label as u32),
                None => return bad!("{value}: not a valid MPLS label"),
            },
            "set_mpls_tc" => match value::number(value, 7) {
                _ if value.is_empty() => return bad!("set_mpls_tc: expected tc."),
                Some(tc) => Action::SetMplsTc(tc as u8),
                None => return bad!("{value}: not a valid MPLS TC"),
            },
            "set_mpls_ttl" if value.is_empty() => return bad!("set_mpls_ttl: expected ttl."),
            "set_mpls_ttl" => Action::SetMplsTtl(u8_named(value, "TTL")?),
            "dec_mpls_ttl" => Action::DecMplsTtl,
            "dec_ttl" => dec_ttl(value)?,
            "dec_nsh_ttl" => Action::DecNshTtl,
            "set_tunnel" | "set_tunnel64" => {
                let id = u64_of(value)?;
                Action::SetTunnel { id, wide: name == "set_tunnel64" || id > u32::MAX.into() }
            }
            "set_queue" => Action::SetQueue(u32_of(value)?),
            "pop_queue" => Action::PopQueue,
            "resubmit" => self.resubmit(value)?,
            "goto_table" => match value::number(value, 255) {
                Some(table) => Action::GotoTable(table as u8),
                None => return bad!("unknown table \"{value}\""),
            },
            "write_metadata" => {
                let (value, mask) = u64_masked(value)?;
                Action::WriteMetadata { value, mask }
            }
            "write_actions" => {
                let outside = self.checker.enter_set();
                let set = self.list(value, ActionsIn::List, depth + 1)?;
                self.checker.leave_set(outside);
                Action::WriteActions(set)
            }
            "clear_actions" => Action::ClearActions,
            "apply_actions" => return bad!("apply_actions is the default instruction"),
            "clone" => Action::Clone(self.list(value, ActionsIn::List, depth + 1)?),
            "sample" => self.sample(value)?,
            "fin_timeout" => fin_timeout(value)?,
            "ct_clear" => Action::CtClear,
            "delete_field" => match Mf::from_name(value) {
                Some(field) => Action::DeleteField(field),
                None => return bad!("unknown field `{value}'"),
            },
            "check_pkt_larger" => check_pkt_larger(value)?,
            "note" => note(value)?,
            "exit" => Action::Exit,
            "conjunction" => conjunction(value)?,
            "group" => Action::Group(u32_of(value)?),
            "meter" => Action::Meter(u32_of(value)?),
            "ct" | "learn" | "multipath" | "bundle" | "bundle_load" | "encap" | "decap" | "nat" => {
                return bad!("{name}: action not supported yet");
            }
            // A port is an action by itself.
            _ => match self.ports.parse(key) {
                Some(port) => output_to(port, 0),
                None => return bad!("unknown action {key}"),
            },
        };
        Ok((action, false))
    }

    /// The actions of OpenFlow 1.0 that set header fields.
    fn of10_action(&mut self, name: &str, value: &str) -> Result<Option<Action>, TextError> {
        let set = |field: Mf, value: u128| Action::SetField { field, value, mask: field.ones() };
        let ethernet = || {
            let address = value::parse_ethernet(value);
            address.ok_or_else(|| TextError::new(format!("invalid mac address {value}"))).map(u128::from)
        };
        let ipv4 = || match value.parse::<Ipv4Addr>() {
            Ok(address) => Ok(u128::from(address.to_bits())),
            Err(_) => bad!("{value}: could not convert to IP address"),
        };
        Ok(Some(match name {
            "mod_dl_src" | "set_dl_src" => set(Mf::EthSrc, ethernet()?),
            "mod_dl_dst" | "set_dl_dst" => set(Mf::EthDst, ethernet()?),
            "mod_nw_src" | "set_nw_src" => set(Mf::NwSrc, ipv4()?),
            "mod_nw_dst" | "set_nw_dst" => set(Mf::NwDst, ipv4()?),
            "mod_nw_tos" | "set_nw_tos" => match u8_named(value, "TOS")? {
                tos if tos & 3 == 0 => set(Mf::NwTos, tos.into()),
                _ => return bad!("{value}: not a valid TOS"),
            },
            "mod_nw_ecn" | "set_nw_ecn" => match u8_named(value, "ECN")? {
                ecn @ 0..=3 => set(Mf::NwEcn, ecn.into()),
                _ => return bad!("{value}: not a valid ECN"),
            },
            "mod_nw_ttl" | "set_nw_ttl" => Action::SetNwTtl(u8_named(value, "TTL")?),
            "mod_tp_src" | "set_tp_src" => Action::SetTpSrc(u16_named(value, "source port")?),
            "mod_tp_dst" | "set_tp_dst" => Action::SetTpDst(u16_named(value, "destination port")?),
            "mod_vlan_vid" | "set_vlan_vid" => match u16_named(value, "VLAN VID")? {
                vid @ 0..=0xfff => Action::SetVlanVid { vid, push_vlan_if_needed: name.starts_with("mod") },
                _ => return bad!("{value}: not a valid VLAN VID"),
            },
            "mod_vlan_pcp" | "set_vlan_pcp" => match u8_named(value, "VLAN PCP")? {
                pcp @ 0..=7 => Action::SetVlanPcp { pcp, push_vlan_if_needed: name.starts_with("mod") },
                _ => return bad!("{value}: not a valid VLAN PCP"),
            },
            "strip_vlan" | "pop_vlan" => Action::PopVlan,
            "push_vlan" => match u16_named(value, "ethertype")? {
                tpid @ (0x8100 | 0x88a8) => Action::PushVlan(tpid),
                _ => return bad!("{value}: not a valid VLAN ethertype"),
            },
            _ => return Ok(None),
        }))
    }

    fn output(&mut self, value: &str) -> Result<Action, TextError> {
        if let Some(port) = self.ports.parse(value) {
            return Ok(output_to(port, 0));
        }
        if value.contains('=') {
            return self.output_truncated(value);
        }
        if let Ok(source) = parse_subfield(value) {
            return Ok(Action::OutputReg { source, max_len: u16::MAX });
        }
        if value.contains('[') {
            return Err(parse_subfield(value).err().unwrap_or(TextError::new(String::new())));
        }
        bad!("{value}: output to unknown port")
    }

    fn output_truncated(&self, text: &str) -> Result<Action, TextError> {
        let (mut port, mut max_len) = (None, None);
        for (key, value) in KeyValues::new(text) {
            match key {
                "port" => match self.ports.parse(value) {
                    Some(p) => port = Some(p),
                    None => return bad!("output to unknown truncate port: {value}"),
                },
                "max_len" => max_len = Some(u32_of(value)?),
                _ => return bad!("invalid key '{key}' in output_trunc argument"),
            }
        }
        match (port, max_len) {
            (_, Some(0..14)) => bad!("max_len {} is less than the minimum value 14", max_len.unwrap_or(0)),
            (Some(port), Some(max_len)) => Ok(Action::OutputTrunc { port, max_len }),
            _ => bad!("output: both port and max_len are needed"),
        }
    }

    fn enqueue(&self, text: &str) -> Result<Action, TextError> {
        let mut parts = text.split([':', ',', ' ']).filter(|p| !p.is_empty());
        let (Some(port), Some(queue), None) = (parts.next(), parts.next(), parts.next()) else {
            return bad!("\"enqueue\" syntax is \"enqueue:PORT:QUEUE\" or \"enqueue(PORT,QUEUE)\"");
        };
        match self.ports.parse(port) {
            Some(port) => Ok(Action::Enqueue { port, queue: u32_of(queue)? }),
            None => bad!("{port}: enqueue to unknown port"),
        }
    }

    fn set_field(&mut self, text: &str) -> Result<Action, TextError> {
        let Some((value, name)) = text.split_once("->") else { return bad!("{text}: missing `->'") };
        let Some(field) = field_named(name.trim()) else {
            return bad!("{} is not a valid OXM field name", name.trim());
        };
        if !field.row().writable {
            return bad!("{} is read-only", field::display_name(field));
        }
        let text = value.trim();
        if let Mf::TunMetadata(idx) = field {
            let (value, mask) = value::wide_masked(text, &field::display_name(field))?;
            self.protocols = self.protocols.intersect(Protocols::NXM_OXM);
            return Ok(Action::SetOption { idx, value: Box::new(value.and(&mask)), mask: Box::new(mask) });
        }
        let (value, mask) = parse_value(field, text, self.ports)?;
        if !field.is_valid(value) {
            return bad!("{text} is not a valid value for field {}", field::display_name(field));
        }
        self.protocols = self.protocols.intersect(Protocols::of_field(field, value, mask));
        Ok(Action::SetField { field, value: value & mask, mask })
    }

    fn resubmit(&self, text: &str) -> Result<Action, TextError> {
        let mut parts = text.split(',').map(str::trim);
        let port = parts.next().unwrap_or("");
        let in_port = match port {
            "" => None,
            port => match self.ports.parse(port) {
                Some(port) => Some(port),
                None => return bad!("{port}: resubmit to unknown port"),
            },
        };
        let table = match parts.next() {
            None | Some("") => None,
            Some(table) => match value::number(table, 255) {
                Some(table) => Some(table as u8),
                None => return bad!("{table}: resubmit to unknown table"),
            },
        };
        let ct = match parts.next() {
            None | Some("") => false,
            Some("ct") => true,
            Some(other) => return bad!("{other}: unknown parameter"),
        };
        let in_port = in_port.filter(|&p| p != OfPort::IN_PORT);
        let table = table.filter(|&t| t != TABLE_ALL);
        if in_port.is_none() && table.is_none() {
            return bad!("at least one \"in_port\" or \"table\" must be specified on resubmit");
        }
        Ok(Action::Resubmit { in_port, table, ct })
    }

    fn sample(&self, text: &str) -> Result<Action, TextError> {
        let (mut probability, mut set, mut domain, mut point) = (0, 0, 0, 0);
        let (mut sampling_port, mut direction) = (OfPort::NONE, SampleDirection::Default);
        for (key, value) in KeyValues::new(text) {
            match key {
                "probability" => match u16_named(value, "probability")? {
                    0 => return bad!("invalid probability value \"{value}\""),
                    p => probability = p,
                },
                "collector_set_id" => set = u32_of(value)?,
                "obs_domain_id" => domain = u32_of(value)?,
                "obs_point_id" => point = u32_of(value)?,
                "sampling_port" => match self.ports.parse(value) {
                    Some(port) => sampling_port = port,
                    None => return bad!("{value}: unknown port"),
                },
                "ingress" => direction = SampleDirection::Ingress,
                "egress" => direction = SampleDirection::Egress,
                _ => return bad!("invalid key \"{key}\" in \"sample\" argument"),
            }
        }
        if probability == 0 {
            return bad!("non-zero \"probability\" must be specified on sample");
        }
        Ok(Action::Sample {
            probability,
            collector_set_id: set,
            obs_domain_id: domain,
            obs_point_id: point,
            sampling_port,
            direction,
        })
    }
}

/// Whether an action may follow another one.
fn in_order(before: Option<&Action>, action: &Action, place: ActionsIn) -> Result<(), TextError> {
    let (rank, name) = instruction_rank(action);
    if place == ActionsIn::List {
        // In a list of actions, `meter` is an action of OpenFlow 1.5 and so without a form here.
        return if rank == 1 { Ok(()) } else { bad!("{name}: instruction not allowed here") };
    }
    let Some((before_rank, before_name)) = before.map(instruction_rank) else { return Ok(()) };
    if rank == before_rank && rank != 1 {
        return bad!("duplicate {name} instruction not allowed, for OpenFlow 1.1+ compatibility");
    }
    if rank < before_rank {
        return bad!(
            "invalid instruction ordering: {name} must appear before {before_name}, for OpenFlow 1.1+ compatibility"
        );
    }
    Ok(())
}

fn output_to(port: OfPort, max_len: u16) -> Action {
    Action::Output { port, max_len: if port == OfPort::CONTROLLER { u16::MAX } else { max_len } }
}

fn controller(text: &str) -> Result<Action, TextError> {
    if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len: u16_named(text, "max_len")? });
    }
    let (mut max_len, mut reason, mut id) = (u16::MAX, PacketInReason::Action, 0);
    let (mut userdata, mut meter_id, mut pause) = (Vec::new(), None, false);
    for (key, value) in KeyValues::new(text) {
        match key {
            "reason" => {
                reason = match value {
                    "no_match" => PacketInReason::NoMatch,
                    "action" => PacketInReason::Action,
                    "invalid_ttl" => PacketInReason::InvalidTtl,
                    _ => return bad!("unknown reason \"{value}\""),
                }
            }
            "max_len" => max_len = u16_named(value, "max_len")?,
            "id" => id = u16_named(value, "id")?,
            "userdata" => match value::dotted_hex(value) {
                Some(bytes) => userdata = bytes,
                None => return bad!("bad hex digit in `controller' action `userdata'"),
            },
            "pause" => pause = true,
            "meter_id" => meter_id = Some(u32_of(value)?),
            _ => return bad!("unknown key \"{key}\" parsing controller action"),
        }
    }
    let plain =
        reason == PacketInReason::Action && id == 0 && userdata.is_empty() && !pause && meter_id.is_none();
    if plain {
        return Ok(Action::Output { port: OfPort::CONTROLLER, max_len });
    }
    Ok(Action::Controller { max_len, reason, id, userdata, meter_id, pause })
}

fn load(text: &str) -> Result<Action, TextError> {
    let Some((value_text, target)) = text.split_once("->") else { return bad!("{text}: missing `->'") };
    let target = parse_subfield(target)?;
    if let Mf::TunMetadata(idx) = target.field {
        let value = match value::wide(value_text.trim()) {
            None => return bad!("{text}: cannot parse integer value"),
            Some(Some(value)) if value.is_within(&Wide::low(target.count)) => value,
            Some(Some(value)) => {
                return bad!("{text}: value {value} does not fit into {} bits", target.count);
            }
            Some(None) => return bad!("{text}: cannot parse integer value"),
        };
        let mask = Wide::low(target.count).shl(target.offset);
        return Ok(Action::SetOption {
            idx,
            value: Box::new(value.shl(target.offset)),
            mask: Box::new(mask),
        });
    }
    let bits = u32::from(target.field.row().bytes) * 8;
    let value = match value::number(value_text.trim(), u128::MAX) {
        Some(value) if bits >= 128 || value >> bits == 0 => value,
        _ => return bad!("{text}: cannot parse integer value"),
    };
    match u64::try_from(value) {
        Ok(value) if target.count >= 64 || value >> target.count == 0 => Ok(Action::Load { target, value }),
        // One such action carries 64 bits.
        _ => bad!("{text}: value {value:#x} does not fit into {} bits", target.count.min(64)),
    }
}

fn move_bits(text: &str) -> Result<Action, TextError> {
    let (source, rest) = split_subfield(text)?;
    let Some(rest) = rest.strip_prefix("->") else { return bad!("{text}: missing `->' following source") };
    let target = match split_subfield(rest)? {
        (target, "") => target,
        _ => return bad!("{text}: trailing garbage following destination"),
    };
    if source.count != target.count {
        return bad!(
            "{text}: source field is {} bits wide but destination is {} bits wide",
            source.count,
            target.count
        );
    }
    Ok(Action::Move { source, target })
}

fn dec_ttl(text: &str) -> Result<Action, TextError> {
    let ids: Result<Vec<u16>, TextError> =
        text.split([',', ' ']).filter(|id| !id.is_empty()).map(|id| u16_named(id, "controller id")).collect();
    Ok(Action::DecTtl(ids?))
}

fn fin_timeout(text: &str) -> Result<Action, TextError> {
    let (mut idle_timeout_s, mut hard_timeout_s) = (0, 0);
    for (key, value) in KeyValues::new(text) {
        match key {
            "idle_timeout" => idle_timeout_s = u16_named(value, key)?,
            "hard_timeout" => hard_timeout_s = u16_named(value, key)?,
            _ => return bad!("invalid key '{key}' in 'fin_timeout' argument"),
        }
    }
    Ok(Action::FinTimeout { idle_timeout_s, hard_timeout_s })
}

fn check_pkt_larger(text: &str) -> Result<Action, TextError> {
    let Some((length, target)) = text.split_once(")->").or_else(|| text.split_once("->")) else {
        return bad!("{text}: missing `->'");
    };
    let length = u16_named(length, "length")?;
    let target = parse_subfield(target)?;
    if target.count != 1 {
        return bad!("Only 1-bit destination field is allowed");
    }
    Ok(Action::CheckPktLarger { length, target })
}

/// The note's bytes; on the wire they end at a multiple of 8 with the header of 10.
fn note(text: &str) -> Result<Action, TextError> {
    match value::dotted_hex(text) {
        Some(mut bytes) => {
            bytes.resize((bytes.len() + 10).next_multiple_of(8) - 10, 0);
            Ok(Action::Note(bytes))
        }
        None => bad!("bad hex digit in `note' argument"),
    }
}

fn conjunction(text: &str) -> Result<Action, TextError> {
    let parts = text.split_once(',').and_then(|(id, rest)| {
        let (clause, n_clauses) = rest.split_once('/')?;
        Some((
            value::number(id.trim(), u32::MAX.into())? as u32,
            value::number(clause.trim(), 255)? as u8,
            value::number(n_clauses.trim(), 255)? as u8,
        ))
    });
    match parts {
        None => bad!("\"conjunction\" syntax is \"conjunction(id,i/n)\""),
        Some((_, _, 0..=1)) => bad!("conjunction must have at least 2 clauses"),
        Some((_, _, 65..)) => bad!("conjunction must have at most 64 clauses"),
        Some((_, 0, _)) => bad!("clause index must be positive"),
        Some((_, clause, n)) if clause > n => {
            bad!("clause index must be less than or equal to number of clauses")
        }
        Some((id, clause, n_clauses)) => Ok(Action::Conjunction { id, clause: clause - 1, n_clauses }),
    }
}
