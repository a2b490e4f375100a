//! What a row of the table of actions says.

use super::body::{Body, Encoder};
use super::checker::Checker;
use super::parser::{Parser, Printer};
use crate::error::ErrorKind;
use crate::text::TextError;
use crate::version::Version;
use flow::Action;

/// One action or instruction: everything that this crate knows about it.
pub(super) struct Row {
    /// Its name in ovs-actions(7).
    pub(super) name: &'static str,
    /// Its text, with words in capitals for the arguments.
    pub(super) syntax: &'static str,
    /// A summary for the documentation.
    pub(super) summary: &'static str,
    pub(super) place: Place,
    /// Its wire forms. The encoder uses the first one that exists in the version and can hold the action.
    pub(super) forms: &'static [Form],
    /// Its names in text.
    pub(super) words: &'static [Word],
    /// Writes equivalent actions in versions without a form for it. If there is no equivalent, the action is
    /// left out: a switch shows what the version can express, and a client warns
    /// ([`left_out`](super::left_out)).
    pub(super) stand_in: fn(&Action, &mut Encoder) -> bool,
    /// `false`, and nothing written, where the text is the row's name.
    pub(super) print: fn(&Action, &mut Printer) -> bool,
    /// Checks compatibility with what is known about the packet, and records what it changes.
    pub(super) check: fn(&Action, &mut Checker) -> Result<(), ErrorKind>,
}

/// Where an action is allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In lists and in action sets.
    Anywhere,
    /// Only in lists, because a set has no order other than that of its kinds.
    Lists,
    /// It is an instruction. OpenFlow 1.1 and later execute instructions in this order; actions are applied
    /// at rank [`APPLY_RANK`].
    Instruction(u8),
}

/// The rank of apply-actions among the instructions.
pub(super) const APPLY_RANK: u8 = 1;

impl Place {
    pub(super) fn rank(self) -> u8 {
        match self {
            Place::Instruction(rank) => rank,
            _ => APPLY_RANK,
        }
    }
}

pub(super) type Read = fn(&mut Body) -> Result<Action, ErrorKind>;
pub(super) type Write = fn(&Action, &mut Encoder) -> bool;

/// Whose number a form has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Space {
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
pub(super) struct Form {
    pub(super) space: Space,
    pub(super) number: u16,
    /// The versions that have it, first and last.
    pub(super) versions: (Version, Version),
    /// The versions in which we write it, first and last.
    pub(super) written: (Version, Version),
    /// Another row reads the form, for all actions that have it.
    pub(super) read_elsewhere: bool,
    /// Least and greatest length, header and padding included.
    pub(super) lengths: (u16, u16),
    /// Reads the body. Of a form that has several lengths it reads all; of others the rest is padding.
    pub(super) read: Read,
    /// Writes the body, up to the padding; `false` where this form cannot hold the action.
    pub(super) write: Write,
}

impl Form {
    pub(super) const fn new(
        space: Space,
        number: u16,
        versions: (Version, Version),
        read: Read,
        write: Write,
    ) -> Form {
        let length = match space {
            Space::Standard | Space::Instruction => 8,
            Space::Nicira | Space::Onf => 16,
        };
        let lengths = (length, length);
        Form { space, number, versions, written: versions, read_elsewhere: false, lengths, read, write }
    }

    /// Longer than most.
    pub(super) const fn of_length(mut self, bytes: u16) -> Form {
        self.lengths = (bytes, bytes);
        self
    }

    /// Of so many bytes, or of more.
    pub(super) const fn of_length_from(mut self, bytes: u16) -> Form {
        self.lengths = (bytes, u16::MAX);
        self
    }

    /// Deprecated in favour of set-field in versions after this one.
    pub(super) const fn deprecated_after(mut self, version: Version) -> Form {
        self.written.1 = version;
        self
    }

    /// Only from this version on. It is written in the earlier ones too, as in Open vSwitch, for want of any
    /// other form: the reader's error is better than a list that lacks an action.
    pub(super) const fn since(mut self, version: Version) -> Form {
        self.versions.0 = version;
        self
    }

    /// Only in these versions.
    pub(super) const fn only(mut self, first: Version, last: Version) -> Form {
        self.versions = (first, last);
        self.written = self.versions;
        self
    }

    /// The row of another action reads it.
    pub(super) const fn never_read(mut self) -> Form {
        self.read_elsewhere = true;
        self
    }

    pub(super) fn is_in(&self, version: Version) -> bool {
        (self.versions.0..=self.versions.1).contains(&version)
    }

    pub(super) fn is_written_in(&self, version: Version) -> bool {
        (self.written.0..=self.written.1).contains(&version)
    }

    pub(super) fn has_length(&self, bytes: u16) -> bool {
        (self.lengths.0..=self.lengths.1).contains(&bytes) && bytes.is_multiple_of(8)
    }
}

/// OpenFlow 1.0's form.
pub(super) const fn of10(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Standard, number, (Version::V10, Version::V10), read, write)
}

/// The form of OpenFlow 1.1 and later.
pub(super) const fn of11(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Standard, number, (Version::V11, Version::V15), read, write)
}

/// An instruction's form, which OpenFlow 1.1 and later have.
pub(super) const fn instruction(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Instruction, number, (Version::V11, Version::V15), read, write)
}

/// Nicira's form, in every version.
pub(super) const fn nicira(number: u16, read: Read, write: Write) -> Form {
    Form::new(Space::Nicira, number, (Version::V10, Version::V15), read, write)
}

pub(super) type ParseWord = fn(&mut Parser, name: &str, value: &str) -> Result<Action, TextError>;

/// A name of an action in text.
pub(super) struct Word {
    pub(super) name: &'static str,
    pub(super) parse: ParseWord,
    /// It is one of OpenFlow 1.0's own, which do nothing to packets without the header in question: without
    /// the prerequisite it can only be expressed in OpenFlow 1.0.
    pub(super) lenient: bool,
}

pub(super) const fn word(name: &'static str, parse: ParseWord) -> Word {
    Word { name, parse, lenient: false }
}

pub(super) const fn lenient(name: &'static str, parse: ParseWord) -> Word {
    Word { name, parse, lenient: true }
}

impl Row {
    /// Defaults for most rows.
    pub(super) const PLAIN: Row = Row {
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
}

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
pub(super) use with;
