//! What a `ct` action asks of the tracker: plain data.

/// A helper for a protocol whose connections announce others.
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
    /// Commit a new connection.
    pub commit: bool,
    /// Forget a connection that was opened from the other end.
    pub force: bool,
    /// Value and mask.
    pub mark: Option<(u32, u32)>,
    pub label: Option<(u128, u128)>,
    pub nat: Option<Nat>,
    pub helper: Option<Helper>,
}

impl Request {
    /// Whether a packet of an established connection without a helper changes nothing except the protocol's
    /// state.
    pub(crate) fn changes_nothing(&self) -> bool {
        !self.force && self.mark.is_none() && self.label.is_none() && self.helper.is_none()
    }
}

/// Address translation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Nat {
    /// The existing translation of the connection, if it has one.
    Existing,
    /// The same; a new connection is translated to this range.
    New(Range),
}

/// Which end of a connection is translated.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    Src,
    Dst,
}

/// The range of translations for a new connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Range {
    pub side: Side,
    /// Lowest and highest address; both 0 means the packet's own.
    pub addresses: Option<(u128, u128)>,
    pub is_ipv6: bool,
    /// Lowest and highest port.
    pub ports: Option<(u16, u16)>,
    pub is_persistent: bool,
    pub is_hash: bool,
    pub is_random: bool,
}
