//! Lists of actions and instructions in text, parsed and printed with the rows.

use super::checker::{Checker, sets_connection};
use super::output::output_to;
use super::parser::{ActionsIn, Parser, Printer};
use super::row::{APPLY_RANK, Place, Row};
use super::table::{BY_WORD, ROWS, check};
use crate::text::{KeyValues, PortNames, Protocol, Protocols, TextError, bad};
use crate::version::Version;
use flow::{Action, Match};

/// Maximum number of actions in a list: as many of the smallest ones as Open vSwitch stores.
const ACTIONS_MAX: usize = 4095;
/// Maximum nesting of actions in actions, that of Open vSwitch.
const DEPTH_MAX: u8 = 99;

/// The context of the actions.
pub(crate) struct Context<'a> {
    pub ports: &'a PortNames,
    pub place: ActionsIn,
    /// The flow's match, against which to check the actions; `None`: no check.
    pub matching: Option<&'a Match>,
    /// The flow's table.
    pub table: Option<u8>,
}

/// Reads a list of actions, which may be empty.
pub fn parse_actions(text: &str, place: ActionsIn, ports: &PortNames) -> Result<Vec<Action>, TextError> {
    let context = Context { ports, place, matching: None, table: None };
    parse_into(text, &context).map(|(actions, _)| actions)
}

/// Parses the actions of a packet-out or a bucket, and returns the encodings that can express them.
pub fn parse_list(text: &str, ports: &PortNames) -> Result<(Vec<Action>, Protocols), TextError> {
    parse_into(text, &Context { ports, place: ActionsIn::List, matching: None, table: None })
}

/// Parses a list of actions and returns the encodings that can express them.
pub(crate) fn parse_into(text: &str, context: &Context) -> Result<(Vec<Action>, Protocols), TextError> {
    let any = Match::any();
    let mut parser = Parser {
        ports: context.ports,
        checker: Checker::new(context.matching.unwrap_or(&any), context.table, check),
        protocols: Protocols::ANY,
        error: None,
        depth: 0,
        within: "",
        read_list: |parser, text, place| parser.list(text, place),
        name_of: |action| Row::of(action).name,
    };
    let actions = parser.list(text, context.place)?;
    if actions.iter().any(|a| matches!(a, Action::Conjunction { .. })) {
        let other = actions.iter().find(|a| !matches!(a, Action::Conjunction { .. } | Action::Note(_)));
        if let Some(other) = other {
            return bad!(
                "\"conjunction\" actions may be used along with \"note\" but not any other kind of action (such as \
                 the \"{}\" action used here)",
                Row::of(other).name
            );
        }
    }
    let mut protocols = parser.protocols;
    if context.matching.is_some() {
        if let Some(error) = parser.error {
            let error = TextError::new(format!("actions are invalid with specified match ({error})"));
            return Err(TextError { warning: parser.checker.remark, ..error });
        }
        protocols = protocols.intersect(parser.checker.protocols);
    }
    Ok((actions, protocols))
}

impl Parser<'_> {
    fn list(&mut self, text: &str, place: ActionsIn) -> Result<Vec<Action>, TextError> {
        if self.depth > DEPTH_MAX {
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
            let action = self.action(key, value).and_then(|(action, lenient)| {
                if self.is_in_ct() && matches!(Row::of(&action).place, Place::Instruction(_)) {
                    return bad!("ct action doesn't support nested action {}", Row::of(&action).name);
                }
                if place == ActionsIn::List {
                    self.in_list(actions.last(), &action)?;
                } else {
                    in_order(actions.last(), &action)?;
                }
                if sets_connection(&action) && !self.is_in_ct() {
                    return bad!("cannot set CT fields outside of ct action");
                }
                let action = self.with_known_vlan(action);
                // The first error is reported, with its remark.
                if self.error.is_none() {
                    self.checker.remark = None;
                }
                if let Err(error) = self.checker.action(&action, lenient) {
                    self.error.get_or_insert(error.name());
                }
                Ok(action)
            });
            match action {
                // Writing no actions is nothing to do, and no instruction on the wire.
                Ok(Action::WriteActions(none)) if none.is_empty() => {}
                Ok(_) if actions.len() == ACTIONS_MAX => return bad!("input too big"),
                Ok(action) => actions.push(action),
                Err(error) => {
                    let offset = items.offset();
                    return Err(TextError { offset, ..error });
                }
            }
        }
        Ok(actions)
    }

    /// Whether an action may follow another one in a list. One `meter` may come first in a list that is not
    /// nested, in OpenFlow 1.5 only.
    fn in_list(&mut self, before: Option<&Action>, action: &Action) -> Result<(), TextError> {
        let row = Row::of(action);
        match row.place.rank() {
            APPLY_RANK => Ok(()),
            _ if !matches!(action, Action::Meter(_)) => bad!("{} instruction not allowed here", row.name),
            _ if self.depth > 0 => bad!("{} action doesn't support nested action meter", self.within),
            _ => {
                self.only_in(Protocols::only(Protocol::Of15));
                in_order(before, action)
            }
        }
    }

    /// One action, and whether OpenFlow 1.0 takes it without its prerequisites.
    fn action(&mut self, key: &str, value: &str) -> Result<(Action, bool), TextError> {
        let name = key.to_ascii_lowercase();
        if let Some(word) = BY_WORD.get(name.as_str()) {
            return Ok(((word.parse)(self, &name, value)?, word.lenient));
        }
        if name == "unroll_xlate" {
            return bad!("UNROLL is an internal action that shouldn't be used via OpenFlow");
        }
        if name == "apply_actions" {
            return bad!("apply_actions is the default instruction");
        }
        // A port is an action by itself.
        match self.ports.parse(key) {
            Some(port) => Ok((output_to(port), false)),
            None => {
                let known = ROWS.iter().flat_map(|row| row.words).map(|word| word.name);
                Err(TextError::unknown(format!("unknown action {key}"), &name, known))
            }
        }
    }

    /// `mod_vlan_vid` need not push a tag if there is one already.
    fn with_known_vlan(&self, action: Action) -> Action {
        match action {
            Action::SetVlanVid { vid, .. } if self.checker.has_vlan() => {
                Action::SetVlanVid { vid, push_vlan_if_needed: false }
            }
            Action::SetVlanPcp { pcp, .. } if self.checker.has_vlan() => {
                Action::SetVlanPcp { pcp, push_vlan_if_needed: false }
            }
            action => action,
        }
    }
}

/// Whether an action may follow another one.
fn in_order(before: Option<&Action>, action: &Action) -> Result<(), TextError> {
    let named = |action: &Action| {
        let row = Row::of(action);
        let is_instruction = matches!(row.place, Place::Instruction(_));
        (row.place.rank(), if is_instruction { row.name } else { "apply_actions" })
    };
    let (rank, name) = named(action);
    let Some((before_rank, before_name)) = before.map(named) else { return Ok(()) };
    if rank == before_rank && rank != APPLY_RANK {
        return bad!("duplicate {name} instruction not allowed, for OpenFlow 1.1+ compatibility");
    }
    if rank < before_rank {
        return bad!(
            "invalid instruction ordering: {name} must appear before {before_name}, for OpenFlow 1.1+ compatibility"
        );
    }
    Ok(())
}

/// A list of actions in text: `drop` if it is empty.
pub fn actions_text(actions: &[Action], version: Version, ports: &PortNames) -> String {
    let mut out = String::new();
    write_actions_text(&mut out, actions, version, ports);
    out
}

/// Appends a list of actions. The version is that of the message that they came in: OpenFlow 1.0 writes
/// `mod_dl_src:..` what later versions write as `set_field:..->eth_src`.
pub fn write_actions_text(out: &mut String, actions: &[Action], version: Version, ports: &PortNames) {
    let print = |action: &Action, printer: &mut Printer| {
        let row = Row::of(action);
        if !(row.print)(action, printer) {
            printer.word(row.name);
        }
    };
    Printer { out, version, ports, print }.actions(actions);
}
