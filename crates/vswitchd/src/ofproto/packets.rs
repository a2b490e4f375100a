//! Packets on their way to controllers, and the limits on them.
//!
//! There may be more packets than a controller can handle. So their rate may be limited, separately for
//! packets without a rule and for those that rules send, and the number that waits to be read always is.

use super::sched::{Limits, Sched};
use flow::action::PacketInReason;
use openflow::Version;
use openflow::message::PacketIn;
use std::collections::VecDeque;
use std::time::Instant;
use transport::clock;

/// A packet for controllers.
#[derive(Clone)]
pub(crate) struct PacketNews {
    pub controller_id: u16,
    /// It comes from a table-miss rule: a miss, in OpenFlow 1.3 and later.
    pub is_table_miss: bool,
    /// It comes from no rule at all.
    pub is_without_rule: bool,
    pub message: PacketIn,
}

impl PacketNews {
    /// The reason to give to a connection of this version.
    pub fn reason(&self, version: Version) -> PacketInReason {
        use PacketInReason::*;
        match self.message.reason {
            Action if self.is_table_miss && version >= Version::V13 => NoMatch,
            ActionSet | Group | PacketOut if version < Version::V14 => Action,
            reason => reason,
        }
    }

    /// Its size in memory.
    pub fn bytes(&self) -> usize {
        let PacketIn { data, userdata, continuation, .. } = &self.message;
        size_of::<PacketNews>() + data.len() + userdata.len() + continuation.len()
    }

    /// Whether connections of this version are told at all: from OpenFlow 1.3 on, a packet without a rule is
    /// dropped, whatever others want to be told.
    pub fn is_told_by(&self, version: Version) -> bool {
        !self.is_without_rule || version < Version::V13
    }
}

/// Default number of packets that may wait in a connection to be sent.
const QUEUE_SIZE: u32 = 100;

/// Limits on a connection's packets.
#[derive(Default)]
pub(crate) struct PacketLimits {
    /// For packets without a rule, and for those that rules send.
    pub scheds: Option<Box<[Sched<PacketNews>; 2]>>,
    pub queue_size: Option<u32>,
    /// Where in the connection's output the packets end that have not been sent yet.
    pub unsent: VecDeque<u64>,
}

impl PacketLimits {
    pub fn set(&mut self, limits: Option<Limits>, queue_size: Option<u32>) {
        self.queue_size = queue_size;
        match (&mut self.scheds, limits) {
            (Some(scheds), Some(limits)) => scheds.iter_mut().for_each(|s| s.set_limits(limits)),
            (None, Some(limits)) => {
                let now = clock::now();
                self.scheds = Some(Box::new([Sched::new(limits, now), Sched::new(limits, now)]));
            }
            (scheds, None) => *scheds = None,
        }
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.scheds.iter().flat_map(|s| s.iter()).filter_map(Sched::poll_timeout).min()
    }

    /// How many more may wait to be sent.
    pub fn room(&mut self, sent_bytes: u64) -> usize {
        while self.unsent.front().is_some_and(|end| *end <= sent_bytes) {
            self.unsent.pop_front();
        }
        (self.queue_size.unwrap_or(QUEUE_SIZE) as usize).saturating_sub(self.unsent.len())
    }
}
