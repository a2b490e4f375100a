//! The text forms of ovs-ofctl(8), ovs-fields(7) and ovs-actions(7): matches, actions, flows and messages,
//! parsed and printed exactly as the stock tools do, since scripts and people rely on it.
//!
//! Parsing accepts every spelling that the manuals allow (`nw_src`, `ip_src`, `ipv4`, `eth_type(0x800)`,
//! `action=`); printing uses Open vSwitch 3.1's. Parsers never panic and answer bad text with a sentence
//! ([`TextError`]) in the stock tools' words, so that scripts find what they look for.
//!
//! - [`match_text`] and [`parse_match`]; [`actions_text`] and [`parse_actions`].
//! - [`parse_flow_mod`], [`parse_flow_file`]: the lines of `add-flow` and `add-flows`; [`flow_text`] those of
//!   `dump-flows`.
//! - [`message_text`]: whole messages, as `ovs-ofctl` prints what it receives.
//! - [`Protocols`]: which encodings can express a flow.

mod ct_flush;
mod datapath_actions;
mod entries;
mod field;
mod flow;
mod group;
mod lex;
mod matching;
mod message;
mod meter;
mod packet;
mod ports;
mod protocols;
pub(crate) mod value;

pub use crate::action::{
    ActionsIn, actions_text, parse_actions, parse_list, write_actions_text as write_actions,
};
pub use ct_flush::{ct_flush_text, parse_ct_tuple};
pub use datapath_actions::normalize_datapath_actions;
pub use entries::{RawEntry, entries_text, parse_entries, raw_entries};
pub use field::{connection_state, field_names, parse_subfield, subfield_value_text};
pub(crate) use field::{display_name, parse_value, split_subfield, write_subfield, write_value};
pub use flow::{
    FileError, FlowStyle, Parsed, flow_text, flows_in, parse_flow_file, parse_flow_line, parse_flow_mod,
    parse_flow_request, write_flow, write_flow_mod,
};
pub use group::{parse_group_line, parse_group_mod};
pub use lex::KeyValues;
pub use matching::{field_named, is_protocol, match_text, normalized, parse_match, write_match};
pub use message::{
    MessageStyle, bytes_text, frag_name, message_text, packet_differences, packet_flow_text, packet_text,
    unreadable_text, write_hex_dump, write_port_desc, write_table_features,
};
pub use meter::{parse_meter_id, parse_meter_mod};
pub use packet::parse_packet;
pub use ports::PortNames;
pub use protocols::{Protocol, Protocols};
pub use value::{parse_ethernet, write_ethernet};

use std::fmt;

/// Why a text cannot be read, as a sentence, and where.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TextError {
    /// The sentence.
    pub message: String,
    /// Position of the item (match field or action) that contains it.
    pub offset: usize,
    /// What the stock tools log in addition.
    pub warning: Option<Remark>,
    /// A line behind the sentence with the name that may be meant, or nothing.
    pub hint: String,
}

/// What the stock tools log while they parse, besides their result.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Remark {
    /// The module that logs it, as `ovs-appctl vlog/list` has it.
    pub module: &'static str,
    /// The line.
    pub text: String,
}

impl TextError {
    /// At the beginning.
    pub fn new(message: String) -> TextError {
        TextError { message, offset: 0, warning: None, hint: String::new() }
    }

    /// A name is not one of those that there are.
    pub fn unknown<T: AsRef<str>>(
        message: String,
        name: &str,
        known: impl IntoIterator<Item = T>,
    ) -> TextError {
        TextError { hint: base::suggest::line(name, known), ..TextError::new(message) }
    }

    /// So many bytes further on.
    pub fn after(mut self, bytes: usize) -> TextError {
        self.offset += bytes;
        self
    }
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.message, self.hint)
    }
}

impl std::error::Error for TextError {}

/// Shorthand: `Err` of a formatted [`TextError`].
macro_rules! bad {
    ($($arg:tt)*) => { Err($crate::text::TextError::new(format!($($arg)*))) };
}
pub(crate) use bad;

/// Appends formatted text to a `String`.
macro_rules! put {
    ($out:expr, $($arg:tt)*) => {{
        use std::fmt::Write;
        // Writing to a String cannot fail.
        let _ = write!($out, $($arg)*);
    }};
}
pub(crate) use put;
