//! The table of actions and instructions: one [`Row`](row::Row) for each.
//!
//! A row gives an action's name, its layout on the wire in each version, its text form, where it is allowed
//! and what it requires of the packet. The decoder, the encoder, the parser, the printer, the checks and the
//! table in docs/openflow.md are all derived from it. To add an action: a variant of
//! [`Action`](flow::Action), a row in the file of its subject, and a line each in `ROWS` and `Row::of`, which
//! are in [`table`].
//!
//! Files import one way: what an action is read from, written to and checked by ([`body`], [`parser`],
//! [`checker`]), [`row`], the rows, [`table`], and what uses it ([`wire`], [`text`], [`check`]). Where an
//! action has actions within it, the first three reach the table by functions that they are given.
//!
//! On the wire an action is a type, a length (a multiple of 8, including the header) and a body; type 0xffff
//! is an experimenter's, and most of those are Nicira's (NXAST_*). Sources: OpenFlow 1.0 section 5.2.4, 1.3
//! sections 7.2.4 and 7.2.5; ovs-actions(7).

mod body;
mod check;
mod checker;
mod choice;
mod controller;
mod ct;
mod document;
mod field;
mod header;
mod instruction;
mod learn;
mod load;
mod mpls;
mod nsh;
mod other;
mod output;
mod parser;
mod pipeline;
mod queue;
mod row;
mod stack;
mod subfield;
mod table;
mod text;
mod ttl;
mod vlan;
mod wire;

pub use check::{check_actions, check_actions_before};
pub(crate) use checker::sets_connection;
pub(crate) use controller::{reason_from_wire, reason_name};
pub use document::actions_table;
pub use parser::ActionsIn;
pub(crate) use text::{Context, parse_into};
pub use text::{actions_text, parse_actions, parse_list, write_actions_text};
pub use wire::left_out;
pub(crate) use wire::{
    read_actions, read_flow_actions, read_instructions, write_actions, write_instructions,
};
