//! The fate of every packet of a trial: offered = received + lost, with the loss broken down. A trial whose
//! account does not add up is marked as such.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// If a smaller share is lost, it says nothing about what was the limit.
pub const LOSS_MIN: f64 = 0.001;
/// If of all that a generator can send a smaller share is lost, the generator was the limit: it cannot send
/// many more than passed.
pub const UNPACED_LOSS_MIN: f64 = 0.05;
/// The counter of frames that came back and found no room.
const QUEUE_FULL: &str = "receive queue full";
/// The limit, if most of the lost frames did.
pub const RECEIVING_SIDE: &str =
    "the generator's receiving side, whose queue was full when most of the lost frames came back";

/// The counter of what nobody counted since whoever would have was restarted. It takes the whole rest.
pub const UNCOUNTED: &str = "while nobody forwarded, counted nowhere";

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// Packets of the intended load.
    pub offered: u64,
    /// Lost frames that the generator could not send.
    pub not_sent: u64,
    /// Packets that came back, each counted once.
    pub received: u64,
    /// Counted drops, by counter and reason: `switch: rx_miss`, `veth p1: rx_dropped`.
    pub dropped: BTreeMap<String, u64>,
    /// Packets that came more than once.
    pub duplicated: u64,
    /// Packets that came after a later one of their flow.
    pub reordered: u64,
    /// Packets that were not of this trial.
    pub foreign: u64,
    /// How many times each packet should come (a switch that copies to n outputs: n).
    pub copies: u64,
}

impl Account {
    /// Packets that should have come and did not.
    pub fn lost(&self) -> u64 {
        (self.offered * self.copies.max(1)).saturating_sub(self.received)
    }

    /// Share of the offered packets that did not come.
    pub fn loss(&self) -> f64 {
        self.lost() as f64 / (self.offered * self.copies.max(1)).max(1) as f64
    }

    /// Lost packets that no counter explains. Below 0, more came or were counted than were offered.
    pub fn unexplained(&self) -> i64 {
        let counted = self.dropped.values().sum::<u64>() + self.not_sent * self.copies.max(1);
        let owed = self.offered * self.copies.max(1);
        owed as i64 - self.received as i64 - counted as i64
    }

    /// Whether every loss was counted by somebody. One with [`UNCOUNTED`] losses adds up whatever was lost.
    pub fn is_checked(&self) -> bool {
        !self.dropped.contains_key(UNCOUNTED)
    }

    /// Notes frames that came back to the generator at this interface and found no room.
    pub fn missed(&mut self, interface: &str, count: u64) {
        self.dropped.insert(format!("generator {interface}: {QUEUE_FULL}"), count);
    }

    /// Lost frames that the generator has sent.
    pub fn lost_on_the_way(&self) -> u64 {
        self.lost().saturating_sub(self.not_sent * self.copies.max(1))
    }

    /// [`RECEIVING_SIDE`], if that was the limit: the switch had forwarded most of what was lost.
    pub fn limit_of_receiver(&self) -> Option<&'static str> {
        let is_missed = |name: &str| name.starts_with("generator ") && name.ends_with(QUEUE_FULL);
        let missed: u64 = self.dropped.iter().filter(|(name, _)| is_missed(name)).map(|(_, n)| n).sum();
        (self.loss() >= LOSS_MIN && missed * 2 > self.lost_on_the_way()).then_some(RECEIVING_SIDE)
    }

    /// Whether all packets are accounted for, and none was received that was not sent. Counters of the kernel
    /// and of a switch are read one after the other, so one packet in ten thousand may be missing.
    pub fn adds_up(&self) -> bool {
        let allowed = 1 + self.offered * self.copies.max(1) / 10_000;
        self.unexplained().unsigned_abs() <= allowed && self.duplicated == 0
    }

    /// In one line.
    pub fn text(&self) -> String {
        let mut text =
            format!("offered {} = received {} + lost {}", self.offered, self.received, self.lost());
        if self.lost() > 0 {
            let mut parts = Vec::new();
            if self.not_sent > 0 {
                parts.push(format!("not sent {}", self.not_sent));
            }
            parts.extend(self.dropped.iter().map(|(who, n)| format!("{who} {n}")));
            text += &format!(" ({})", parts.join(", "));
        }
        if !self.adds_up() {
            text += &format!("; DOES NOT ADD UP by {}", self.unexplained());
        } else if !self.is_checked() {
            text += "; not checked";
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_received_or_counted_by_whoever_lost_it() {
        let mut account =
            Account { offered: 1000, not_sent: 100, received: 850, copies: 1, ..Account::default() };
        assert!(!account.adds_up() && account.unexplained() == 50, "{}", account.text());
        account.dropped.insert("switch: tx_full".into(), 50);
        assert!(account.adds_up() && (account.loss() - 0.15).abs() < 1e-9, "{}", account.text());
        account.duplicated = 1;
        assert!(!account.adds_up());
    }

    #[test]
    fn what_came_beyond_the_offered_packets_does_not_add_up() {
        let account = Account { offered: 1_000, received: 1_200, copies: 1, ..Account::default() };
        assert_eq!((account.unexplained(), account.lost(), account.adds_up()), (-200, 0, false));
        assert!(account.text().ends_with("DOES NOT ADD UP by -200"), "{}", account.text());
        // Nor where losses are counted that nobody had.
        let mut account = Account { received: 1_000, ..account };
        assert!(account.adds_up() && account.is_checked());
        account.dropped.insert("switch: tx_full".into(), 50);
        assert_eq!((account.unexplained(), account.adds_up()), (-50, false));
    }

    #[test]
    fn a_rest_that_nobody_could_count_is_not_checked() {
        let mut account = Account { offered: 1_000, received: 900, copies: 1, ..Account::default() };
        account.dropped.insert(UNCOUNTED.into(), 100);
        assert!(account.adds_up() && !account.is_checked() && account.text().ends_with("; not checked"));
    }

    #[test]
    fn a_switch_that_copies_is_owed_every_copy() {
        let account = Account { offered: 100, received: 300, copies: 3, ..Account::default() };
        assert!(account.adds_up() && account.lost() == 0);
        assert_eq!(Account { received: 299, ..account }.lost(), 1);
    }
}
