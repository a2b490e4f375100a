//! Bundles of a connection: changes that are collected until they are committed, and limits on their memory.

use super::flow_mod_log::FlowModCounts;
use base::PortNo;
use flow::Key;
use openflow::connection::RequestHead;
use openflow::message::{BundleFlags, GroupMod, PacketOut, PortMod};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Bytes that all bundles together may take.
const ALL_BYTES_MAX: usize = 1 << 30;

/// Memory that the bundles of this process use.
static ALL_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Changes of bundles that are gone, to be freed some at a time.
static DISCARDED: Mutex<Vec<Vec<Change>>> = Mutex::new(Vec::new());
/// Changes that are freed at once: some hundred microseconds' worth.
const FREED_AT_ONCE: usize = 4_096;

/// Frees some of what bundles that are gone have left. Whether there is more.
pub(crate) fn free_some() -> bool {
    let mut discarded = DISCARDED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(last) = discarded.last_mut() {
        last.truncate(last.len().saturating_sub(FREED_AT_ONCE));
    }
    discarded.pop_if(|last| last.is_empty());
    !discarded.is_empty()
}

pub(crate) struct Bundle {
    pub flags: BundleFlags,
    pub closed: bool,
    pub changes: Vec<Change>,
    /// The indices of changes that do not concern rules.
    pub others: Vec<u32>,
    /// The indices of changes of ports.
    pub ports: Vec<u32>,
    /// The indices of changes whose cost depends on the rules that there are.
    pub loose: Vec<u32>,
    /// How many of them are of rules, by what they do.
    pub flow_mods: FlowModCounts,
    /// The maximum number of steps that the changes take whatever the tables hold.
    pub steps: usize,
    /// The memory that the changes use.
    pub bytes: Charge,
    /// The request that opened it, for the error when it expires.
    pub opened_by: (u32, RequestHead),
    pub expires: Instant,
}

impl Drop for Bundle {
    fn drop(&mut self) {
        if self.changes.len() > FREED_AT_ONCE {
            let changes = std::mem::take(&mut self.changes);
            DISCARDED.lock().unwrap_or_else(PoisonError::into_inner).push(changes);
        }
    }
}

/// Bytes that count against [`ALL_BYTES_MAX`] until this goes.
#[derive(Default)]
pub(crate) struct Charge(pub usize);

impl Charge {
    /// Charges more, if all bundles together may take that.
    pub fn add(&mut self, bytes: usize) -> bool {
        if ALL_BYTES.fetch_add(bytes, Ordering::Relaxed) + bytes > ALL_BYTES_MAX {
            ALL_BYTES.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.0 += bytes;
        true
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        ALL_BYTES.fetch_sub(self.0, Ordering::Relaxed);
    }
}

pub(crate) struct Change {
    pub xid: u32,
    pub kind: Kind,
    /// The whole message, for an error reply.
    pub bytes: Box<[u8]>,
}

pub(crate) enum Kind {
    /// Read again from its message when the bundle is committed: ready to use, it takes ten times as much
    /// memory.
    Flow,
    Group(Box<GroupMod>),
    Port(PortMod),
    /// A packet with its key, and the datapath number of its input port.
    Packet(Box<(PacketOut, Key)>, PortNo),
}

impl Change {
    /// The size of the change in memory, in bytes.
    pub fn size(&self) -> usize {
        let beside = match &self.kind {
            Kind::Flow | Kind::Port(_) => 0,
            // Read, a message takes some times its length.
            Kind::Group(_) => 8 * self.bytes.len(),
            Kind::Packet(..) => size_of::<(PacketOut, Key)>() + 8 * self.bytes.len(),
        };
        size_of::<Change>() + self.bytes.len() + beside
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bundles_together_have_a_budget_which_those_that_go_give_back() {
        let (mut first, mut second) = (Charge::default(), Charge::default());
        assert!(first.add(ALL_BYTES_MAX - 100));
        assert!(second.add(100), "just as much as there is");
        assert!(!second.add(1), "the budget is used up");
        assert_eq!(second.0, 100, "what was refused is not charged");
        drop(first);
        assert!(second.add(ALL_BYTES_MAX - 100), "all that the other had");
        drop(second);
        assert_eq!(ALL_BYTES.load(Ordering::Relaxed), 0);
    }
}
