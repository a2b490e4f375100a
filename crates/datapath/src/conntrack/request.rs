//! What a `ct` action asks the tracker for: plain data.

/// A helper of a protocol whose connections announce others.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Helper {
    Ftp,
    Tftp,
}

impl Helper {
    /// As `alg=` and Open vSwitch's dumps name it.
    pub fn name(self) -> &'static str {
        match self {
            Helper::Ftp => "ftp",
            Helper::Tftp => "tftp",
        }
    }
}

/// What a `ct` action asks for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Request {
    pub zone: u16,
    /// A new connection is put down.
    pub commit: bool,
    /// One that was opened from the other end is forgotten.
    pub force: bool,
    /// Value and mask.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    pub nat: Option<Nat>,
    pub helper: Option<Helper>,
}

impl Request {
    /// Whether a packet of a connection that is established, and without a helper, leaves it as it is but
    /// for the moves of its protocol.
    pub(crate) fn changes_nothing(&self) -> bool {
        !self.force && self.mark.is_none() && self.label.is_none() && self.helper.is_none()
    }
}

/// Address translation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nat {
    /// As the connection has it, if it has any.
    Existing,
    /// And so for a new one.
    New(Range),
}

/// Which end of a connection is translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    Src,
    Dst,
}

/// What a new connection's translation may be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    pub side: Side,
    /// Lowest and highest address; both 0: the packet's own.
    pub addresses: Option<(u128, u128)>,
    pub is_ipv6: bool,
    /// Lowest and highest port.
    pub ports: Option<(u16, u16)>,
    pub is_persistent: bool,
    pub is_hash: bool,
    pub is_random: bool,
}
