//! The table of actions and instructions: one [`Row`] for each.
//!
//! A row gives an action's name, its layout on the wire in each version, its text form, where it is allowed
//! and what it requires of the packet. The decoder, the encoder, the parser, the printer, the checks and the
//! table in docs/openflow.md are all derived from it. To add an action: a variant of [`Action`], a row in the
//! file of its subject, and a line each in [`ROWS`] and [`Row::of`].
//!
//! On the wire an action is a type, a length (a multiple of 8, including the header) and a body; type 0xffff
//! is an experimenter's, and most of those are Nicira's (NXAST_*). Sources: OpenFlow 1.0 section 5.2.4, 1.3
//! sections 7.2.4 and 7.2.5; ovs-actions(7).

mod check;
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
mod pipeline;
mod queue;
mod stack;
mod subfield;
mod text;
mod ttl;
mod vlan;
mod wire;

pub(crate) use check::sets_connection;
pub use check::{check_actions, check_actions_before};
pub(crate) use controller::{reason_from_wire, reason_name};
pub use document::actions_table;
pub use text::{ActionsIn, actions_text, parse_actions, parse_list, write_actions_text};
pub(crate) use text::{Context, parse_into};
pub use wire::left_out;
pub(crate) use wire::{
    read_actions, read_flow_actions, read_instructions, write_actions, write_instructions,
};

use crate::error::ErrorKind;
use crate::text::TextError;
use crate::version::Version;
use check::Checker;
use flow::Action;
use std::collections::HashMap;
use std::sync::LazyLock;
use text::{Parser, Printer};
use wire::{Body, Encoder};

/// One action or instruction: everything that this crate knows about it.
pub(crate) struct Row {
    /// Its name in ovs-actions(7).
    name: &'static str,
    /// Its text, with words in capitals for the arguments.
    syntax: &'static str,
    /// A summary for the documentation.
    summary: &'static str,
    place: Place,
    /// Its wire forms. The encoder uses the first one that exists in the version and can hold the action.
    forms: &'static [Form],
    /// Its names in text.
    words: &'static [Word],
    /// Writes equivalent actions in versions without a form for it. If there is no equivalent, the action is
    /// left out: a switch shows what the version can express, and a client warns ([`left_out`]).
    stand_in: fn(&Action, &mut Encoder) -> bool,
    print: fn(&Action, &mut Printer) -> bool,
    /// Checks compatibility with what is known about the packet, and records what it changes.
    check: fn(&Action, &mut Checker) -> Result<(), ErrorKind>,
}

/// Where an action is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    /// In lists and in action sets.
    Anywhere,
    /// Only in lists, because a set has no order other than that of its kinds.
    Lists,
    /// It is an instruction. OpenFlow 1.1 and later execute instructions in this order; actions are applied
    /// at rank [`APPLY_RANK`].
    Instruction(u8),
}

/// The rank of apply-actions among the instructions.
const APPLY_RANK: u8 = 1;

impl Place {
    fn rank(self) -> u8 {
        match self {
            Place::Instruction(rank) => rank,
            _ => APPLY_RANK,
        }
    }
}

type Read = fn(&mut Body) -> Result<Action, ErrorKind>;
type Write = fn(&Action, &mut Encoder) -> bool;

/// Whose number a form has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Space {
    /// The standard's (OFPAT_*).
    Standard,
    /// The standard's instructions (OFPIT_*).
    Instruction,
    /// Nicira's extensions (NXAST_*).
    Nicira,
    /// The Open Networking Foundation's extensions to 1.3.
    Onf,
}

/// A layout on the wire.
struct Form {
    space: Space,
    number: u16,
    /// The versions that have it, first and last.
    versions: (Version, Version),
    /// The versions in which we write it, first and last.
    written: (Version, Version),
    /// Another row reads the form, for all actions that have it.
    read_elsewhere: bool,
    /// Least and greatest length, header and padding included.
    lengths: (u16, u16),
    /// Reads the body. Of a form that has several lengths it reads all; of others the rest is padding.
    read: Read,
    /// Writes the body, up to the padding; `false` where this form cannot hold the action.
    write: Write,
}

impl Form {
    const fn new(space: Space, number: u16, versions: (Version, Version), read: Read, write: Write) -> Form {
        let length = match space {
            Space::Standard | Space::Instruction => 8,
            Space::Nicira | Space::Onf => 16,
        };
        let lengths = (length, length);
        Form { space, number, versions, written: versions, read_elsewhere: false, lengths, read, write }
    }

    /// Longer than most.
    const fn of_length(mut self, bytes: u16) -> Form {
        self.lengths = (bytes, bytes);
        self
    }

    /// Of so many bytes, or of more.
    const fn of_length_from(mut self, bytes: u16) -> Form {
        self.lengths = (bytes, u16::MAX);
        self
    }

    /// Deprecated in favour of set-field in versions after this one.
    const fn deprecated_after(mut self, version: Version) -> Form {
        self.written.1 = version;
        self
    }

    /// Only from this version on. It is written in the earlier ones too, as in Open vSwitch, for want of any
    /// other form: the reader's error is better than a list that lacks an action.
    const fn since(mut self, version: Version) -> Form {
        self.versions.0 = version;
        self
    }

    /// Only in these versions.
    const fn only(mut self, first: Version, last: Version) -> Form {
        self.versions = (first, last);
        self.written = self.versions;
        self
    }

    /// The row of another action reads it.
    const fn never_read(mut self) -> Form {
        self.read_elsewhere = true;
        self
    }

    fn is_in(&self, version: Version) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    fn is_written_in(&self, version: Version) -> bool {
        (self.written.0..=self.written.1).contains(&version)
    }

    fn has_length(&self, bytes: u16) -> bool {
        (self.lengths.0..=self.lengths.1).contains(&bytes) && bytes.is_multiple_of(8)
    }
}

/// OpenFlow 1.0's form.
const fn of10(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Standard, number, (Version::V10, Version::V10), read, write)
}

/// The form of OpenFlow 1.1 and later.
const fn of11(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Standard, number, (Version::V11, Version::V15), read, write)
}

/// An instruction's form, which OpenFlow 1.1 and later have.
const fn instruction(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Instruction, number, (Version::V11, Version::V15), read, write)
}

/// Nicira's form, in every version.
const fn nicira(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Nicira, number, (Version::V10, Version::V15), read, write)
}

type ParseWord = fn(&mut Parser, name: &str, value: &str) -> Result<Action, TextError>;

/// A name of an action in text.
struct Word {
    name: &'static str,
    parse: ParseWord,
    /// It is one of OpenFlow 1.0's own, which do nothing to packets without the header in question: without
    /// the prerequisite it can only be expressed in OpenFlow 1.0.
    lenient: bool,
}

const fn word(name: &'static str, parse: ParseWord) -> Word {
    Word { name, parse, lenient: false }
}

const fn lenient(name: &'static str, parse: ParseWord) -> Word {
    Word { name, parse, lenient: true }
}

impl Row {
    /// Defaults for most rows.
    const PLAIN: Row = Row {
        name: "",
        syntax: "",
        summary: "",
        place: Place::Anywhere,
        forms: &[],
        words: &[],
        stand_in: |_, _| false,
        print: |_, _| false,
        check: |_, _| Ok(()),
    };

    /// The row of an action.
    fn of(action: &Action) -> &'static Row {
        match action {
            Action::Output { .. } => &output::OUTPUT,
            Action::OutputReg { .. } => &output::OUTPUT_REG,
            Action::OutputTrunc { .. } => &output::OUTPUT_TRUNC,
            Action::Controller { .. } => &controller::CONTROLLER,
            Action::Enqueue { .. } => &queue::ENQUEUE,
            Action::SetField { .. } => &field::SET_FIELD,
            Action::SetOption { .. } => &field::SET_OPTION,
            Action::SetTpSrc(_) => &header::SET_TP_SRC,
            Action::SetTpDst(_) => &header::SET_TP_DST,
            Action::SetNwTtl(_) => &ttl::SET_NW_TTL,
            Action::Load { .. } => &load::LOAD,
            Action::Move { .. } => &field::MOVE,
            Action::StackPush(_) => &stack::PUSH,
            Action::StackPop(_) => &stack::POP,
            Action::SetVlanVid { .. } => &vlan::SET_VLAN_VID,
            Action::SetVlanPcp { .. } => &vlan::SET_VLAN_PCP,
            Action::PushVlan(_) => &vlan::PUSH_VLAN,
            Action::PopVlan => &vlan::POP_VLAN,
            Action::PushMpls(_) => &mpls::PUSH_MPLS,
            Action::PopMpls(_) => &mpls::POP_MPLS,
            Action::SetMplsLabel(_) => &mpls::SET_MPLS_LABEL,
            Action::SetMplsTc(_) => &mpls::SET_MPLS_TC,
            Action::SetMplsTtl(_) => &mpls::SET_MPLS_TTL,
            Action::DecMplsTtl => &mpls::DEC_MPLS_TTL,
            Action::DecTtl(_) => &ttl::DEC_TTL,
            Action::DecNshTtl => &ttl::DEC_NSH_TTL,
            Action::DebugRecirc => &other::DEBUG_RECIRC,
            Action::DebugSlow => &other::DEBUG_SLOW,
            Action::SetTunnel { .. } => &field::SET_TUNNEL,
            Action::SetQueue(_) => &queue::SET_QUEUE,
            Action::PopQueue => &queue::POP_QUEUE,
            Action::Resubmit { .. } => &pipeline::RESUBMIT,
            Action::GotoTable(_) => &instruction::GOTO_TABLE,
            Action::WriteMetadata { .. } => &instruction::WRITE_METADATA,
            Action::WriteActions(_) => &instruction::WRITE_ACTIONS,
            Action::ClearActions => &instruction::CLEAR_ACTIONS,
            Action::Clone(_) => &pipeline::CLONE,
            Action::Sample { .. } => &other::SAMPLE,
            Action::FinTimeout { .. } => &other::FIN_TIMEOUT,
            Action::Ct(_) => &ct::CT,
            Action::Nat(_) => &ct::NAT,
            Action::CtClear => &ct::CT_CLEAR,
            Action::DeleteField(_) => &field::DELETE_FIELD,
            Action::CheckPktLarger { .. } => &field::CHECK_PKT_LARGER,
            Action::Note(_) => &other::NOTE,
            Action::Exit => &pipeline::EXIT,
            Action::Conjunction { .. } => &pipeline::CONJUNCTION,
            Action::Group(_) => &output::GROUP,
            Action::Meter(_) => &instruction::METER,
            Action::Learn(_) => &learn::LEARN,
            Action::Multipath(_) => &choice::MULTIPATH,
            Action::Bundle(_) => &choice::BUNDLE,
            Action::Encap { .. } => &nsh::ENCAP,
            Action::Decap { .. } => &nsh::DECAP,
        }
    }
}

/// All rows, in the order of ovs-actions(7): instructions come last.
static ROWS: [&Row; 54] = [
    &output::OUTPUT,
    &output::OUTPUT_REG,
    &output::OUTPUT_TRUNC,
    &controller::CONTROLLER,
    &queue::ENQUEUE,
    &choice::BUNDLE,
    &output::GROUP,
    &vlan::PUSH_VLAN,
    &vlan::POP_VLAN,
    &vlan::SET_VLAN_VID,
    &vlan::SET_VLAN_PCP,
    &mpls::PUSH_MPLS,
    &mpls::POP_MPLS,
    &mpls::SET_MPLS_LABEL,
    &mpls::SET_MPLS_TC,
    &mpls::SET_MPLS_TTL,
    &mpls::DEC_MPLS_TTL,
    &load::LOAD,
    &field::SET_FIELD,
    &field::SET_OPTION,
    &field::MOVE,
    &header::SET_TP_SRC,
    &header::SET_TP_DST,
    &ttl::SET_NW_TTL,
    &ttl::DEC_TTL,
    &nsh::ENCAP,
    &nsh::DECAP,
    &ttl::DEC_NSH_TTL,
    &field::CHECK_PKT_LARGER,
    &field::DELETE_FIELD,
    &choice::MULTIPATH,
    &field::SET_TUNNEL,
    &queue::SET_QUEUE,
    &queue::POP_QUEUE,
    &stack::PUSH,
    &stack::POP,
    &pipeline::RESUBMIT,
    &pipeline::CLONE,
    &ct::CT,
    &ct::NAT,
    &ct::CT_CLEAR,
    &learn::LEARN,
    &other::FIN_TIMEOUT,
    &other::SAMPLE,
    &pipeline::CONJUNCTION,
    &pipeline::EXIT,
    &other::NOTE,
    &other::DEBUG_RECIRC,
    &other::DEBUG_SLOW,
    &instruction::METER,
    &instruction::CLEAR_ACTIONS,
    &instruction::WRITE_ACTIONS,
    &instruction::WRITE_METADATA,
    &instruction::GOTO_TABLE,
];

/// Highest number of a form in the tables by number; higher ones are looked up in the list.
const NUMBER_MAX: u16 = 63;

/// The forms of a space and version, by number.
type ByNumber = [Option<&'static Form>; NUMBER_MAX as usize + 1];

static BY_NUMBER: LazyLock<Vec<ByNumber>> = LazyLock::new(|| {
    let mut tables = vec![[None; NUMBER_MAX as usize + 1]; 4 * Version::ALL.len()];
    for form in ROWS.iter().flat_map(|row| row.forms).filter(|f| f.number <= NUMBER_MAX && !f.read_elsewhere)
    {
        for version in Version::ALL.into_iter().filter(|&v| form.is_in(v)) {
            tables[table_of(form.space, version)][usize::from(form.number)] = Some(form);
        }
    }
    tables
});

fn table_of(space: Space, version: Version) -> usize {
    usize::from(version.minor()) * 4 + space as usize
}

/// The form with a number.
fn form(space: Space, version: Version, number: u16) -> Option<&'static Form> {
    if number <= NUMBER_MAX {
        return BY_NUMBER[table_of(space, version)][usize::from(number)];
    }
    let forms = ROWS.iter().flat_map(|row| row.forms);
    forms.into_iter().find(|f| f.space == space && f.number == number && f.is_in(version))
}

/// The form of an instruction, and when it is carried out.
fn instruction_form(version: Version, number: u16) -> Option<(&'static Form, u8)> {
    let instructions = ROWS.iter().rev().take_while(|row| matches!(row.place, Place::Instruction(_)));
    let is_it = |f: &&Form| f.space == Space::Instruction && f.number == number && f.is_in(version);
    instructions.into_iter().find_map(|row| Some((row.forms.iter().find(is_it)?, row.place.rank())))
}

static BY_WORD: LazyLock<HashMap<&'static str, &'static Word>> =
    LazyLock::new(|| ROWS.iter().flat_map(|row| row.words).map(|word| (word.name, word)).collect());

/// Runs the body for the action that the row is of; `false` for any other.
macro_rules! with {
    ($action:expr, $pattern:pat $(if $guard:expr)? => $body:expr) => {
        match $action {
            $pattern $(if $guard)? => {
                $body;
                true
            }
            _ => false,
        }
    };
}
use with;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_forms_have_the_same_number_in_a_version() {
        let forms: Vec<&Form> = ROWS.iter().flat_map(|row| row.forms).filter(|f| !f.read_elsewhere).collect();
        for (i, a) in forms.iter().enumerate() {
            for b in &forms[i + 1..] {
                let both = Version::ALL.into_iter().any(|v| a.is_in(v) && b.is_in(v));
                assert!(!both || a.space != b.space || a.number != b.number, "{:?} {}", a.space, a.number);
            }
        }
    }

    #[test]
    fn every_row_has_a_name_a_summary_a_form_and_a_word_of_its_own() {
        let words: usize = ROWS.iter().map(|row| row.words.len()).sum();
        assert_eq!(BY_WORD.len(), words);
        for row in ROWS {
            assert!(!row.name.is_empty() && !row.syntax.is_empty() && !row.forms.is_empty(), "{}", row.name);
            assert!(row.summary.ends_with('.'), "{}", row.name);
        }
    }
}
