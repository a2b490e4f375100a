//! The bytes of an action, read and written.

use crate::codec::bytes::Reader;
use crate::error::ErrorKind::{self, *};
use crate::version::Version;
use base::OfPort;
use flow::{Action, FieldId, Match, Mf};
use std::ops::{Deref, DerefMut};

/// The bit of a tag's word that means "present".
const TAGGED: u128 = 0x1000;

/// The body of an action that is read.
pub(super) struct Body<'a> {
    pub reader: Reader<'a>,
    pub version: Version,
    /// Nesting depth of this action.
    pub depth: u8,
    pub read_nested: ReadNested,
}

/// Reads actions at a depth, which must be a list, or which an action that nests them looks at.
type ReadNested = fn(Version, Reader, depth: u8, is_list: bool) -> Result<Vec<Action>, ErrorKind>;

impl<'a> Deref for Body<'a> {
    type Target = Reader<'a>;

    fn deref(&self) -> &Reader<'a> {
        &self.reader
    }
}

impl DerefMut for Body<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.reader
    }
}

impl Body<'_> {
    /// The rest of the body as actions, of which an action that nests them may want others than a list does.
    pub fn actions(&mut self) -> Result<Vec<Action>, ErrorKind> {
        self.nested(false)
    }

    /// The rest of the body as a list of actions.
    pub fn list(&mut self) -> Result<Vec<Action>, ErrorKind> {
        self.nested(true)
    }

    fn nested(&mut self, is_list: bool) -> Result<Vec<Action>, ErrorKind> {
        let len = self.len();
        let nested = self.sub(len)?;
        (self.read_nested)(self.version, nested, self.depth + 1, is_list)
    }

    /// Skips all that is left.
    pub fn skip_rest(&mut self) -> Result<(), ErrorKind> {
        let len = self.len();
        self.skip(len)
    }

    /// Skips all that is left, which must be zero.
    pub fn zero_rest(&mut self) -> Result<(), ErrorKind> {
        let len = self.len();
        self.zeros(len, NXBRC_MUST_BE_ZERO)
    }

    /// Reads a 16-bit port to which an action may output.
    pub fn output_port(&mut self) -> Result<OfPort, ErrorKind> {
        output_port(OfPort(self.u16()?))
    }
}

/// Checks that an action may output to the port.
pub(super) fn output_port(port: OfPort) -> Result<OfPort, ErrorKind> {
    let valid = port < OfPort::MAX || (port >= OfPort::IN_PORT && port != OfPort::NONE);
    if valid { Ok(port) } else { Err(OFPBAC_BAD_OUT_PORT) }
}

/// The encoder for actions.
pub(super) struct Encoder<'a> {
    pub out: &'a mut Vec<u8>,
    pub version: Version,
    /// The match before the actions, if there is one: it determines which transport protocol `mod_tp_src`
    /// means, and whether there is a VLAN tag.
    pub matching: Option<&'a Match>,
    /// VLAN tags that the packet is known to have here.
    tags: usize,
    /// Writes an action in the form that its row has for the version.
    write: fn(&mut Encoder, &Action),
}

impl<'a> Encoder<'a> {
    pub fn new(
        out: &'a mut Vec<u8>,
        version: Version,
        matching: Option<&'a Match>,
        write: fn(&mut Encoder, &Action),
    ) -> Encoder<'a> {
        let is_tagged = matching.is_some_and(|m| m.key.get64(FieldId::VlanTci) & TAGGED as u64 != 0);
        Encoder { out, version, matching, tags: usize::from(is_tagged), write }
    }

    /// Encodes an action in the version's own form if it has one, else in Nicira's, else as other actions. A
    /// tag that OpenFlow 1.0's actions push implicitly is pushed by an explicit action in later versions.
    pub fn action(&mut self, action: &Action) {
        let pushes = matches!(
            action,
            Action::SetVlanVid { push_vlan_if_needed: true, .. }
                | Action::SetVlanPcp { push_vlan_if_needed: true, .. }
        );
        if pushes && self.tags == 0 && self.version >= Version::V11 {
            self.action(&Action::PushVlan(0x8100));
        }
        (self.write)(self, action);
        self.tags = match action {
            Action::PushVlan(_) => self.tags + 1,
            Action::PopVlan => self.tags.saturating_sub(1),
            Action::SetVlanVid { .. } | Action::SetVlanPcp { .. } => self.tags.max(1),
            Action::SetField { field: Mf::VlanTci, value, .. } => self.tags_of(*value),
            Action::Load { target, value, .. } if target.field == Mf::VlanTci => {
                self.tags_of(u128::from(*value) << target.offset)
            }
            _ => self.tags,
        };
    }

    /// Tags once the whole tag's word is set: there is a tag or not, as it says.
    fn tags_of(&self, tci: u128) -> usize {
        if tci & TAGGED != 0 { self.tags.max(1) } else { self.tags.saturating_sub(1) }
    }

    /// Goes on within an action, with what is known of the packet so far: what changes there changes nothing
    /// for the actions after.
    pub fn within(&mut self) -> Encoder<'_> {
        let Encoder { ref mut out, version, matching, tags, write } = *self;
        Encoder { out, version, matching, tags, write }
    }

    /// Appends the actions of an action.
    pub fn actions(&mut self, actions: &[Action]) {
        let mut encoder = self.within();
        actions.iter().for_each(|action| encoder.action(action));
    }
}
