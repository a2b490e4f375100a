//! The text of an action, read and written.

use super::checker::Checker;
use crate::text::{PortNames, Protocols, TextError};
use crate::version::Version;
use base::OfPort;
use flow::Action;
use flow::action::SubField;

/// The kind of an action list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ActionsIn {
    /// In a flow: instructions are allowed as well.
    Flow,
    /// In a packet-out, a bucket or nested: only actions.
    List,
}

/// The parser for a list of actions.
pub(super) struct Parser<'a> {
    pub ports: &'a PortNames,
    pub checker: Checker<'a>,
    /// The encodings that can express everything parsed so far.
    pub protocols: Protocols,
    /// Name of the error of the first action that no version takes.
    pub error: Option<&'static str>,
    /// The nesting depth of the list, and the name of the innermost enclosing action.
    pub depth: u8,
    pub within: &'static str,
    /// Reads a list by the table of actions.
    pub read_list: fn(&mut Parser, &str, ActionsIn) -> Result<Vec<Action>, TextError>,
    /// An action's name, by the same table.
    pub name_of: fn(&Action) -> &'static str,
}

impl Parser<'_> {
    /// The actions within an action.
    pub fn nested(&mut self, text: &str, in_set: bool) -> Result<Vec<Action>, TextError> {
        let outside = self.checker.enter(in_set);
        let within = std::mem::replace(&mut self.within, if in_set { "write_actions" } else { "clone" });
        self.depth += 1;
        let actions = (self.read_list)(self, text, ActionsIn::List);
        self.depth -= 1;
        self.within = within;
        self.checker.leave(outside);
        actions
    }

    /// The actions within `ct`.
    pub fn nested_in_ct(&mut self, text: &str) -> Result<Vec<Action>, TextError> {
        self.checker.in_ct = true;
        let actions = self.nested(text, false);
        self.checker.in_ct = false;
        actions
    }

    /// Whether the parser is within `ct`.
    pub fn is_in_ct(&self) -> bool {
        self.checker.in_ct
    }

    /// Only these encodings have what was read.
    pub fn only_in(&mut self, protocols: Protocols) {
        self.protocols = self.protocols.intersect(protocols);
    }
}

/// The printer for actions.
pub(super) struct Printer<'a> {
    pub out: &'a mut String,
    pub version: Version,
    pub ports: &'a PortNames,
    /// Writes an action as its row says.
    pub print: fn(&Action, &mut Printer),
}

impl Printer<'_> {
    /// Appends a list of actions.
    pub fn actions(&mut self, actions: &[Action]) {
        if actions.is_empty() {
            self.word("drop");
        }
        for (i, action) in actions.iter().enumerate() {
            if i > 0 {
                self.word(",");
            }
            (self.print)(action, self);
        }
    }

    pub fn word(&mut self, text: &str) {
        self.out.push_str(text);
    }

    pub fn port(&mut self, port: OfPort) {
        self.ports.write(self.out, port);
    }

    /// Appends a table.
    pub fn table(&mut self, table: u8) {
        self.ports.write_table(self.out, table);
    }

    pub fn subfield(&mut self, sub: SubField) {
        crate::text::write_subfield(self.out, sub);
    }

    /// Actions in parentheses.
    pub fn nested(&mut self, name: &str, actions: &[Action]) {
        self.word(name);
        self.word("(");
        self.actions(actions);
        self.word(")");
    }
}
