//! What a bridge in fail mode `standalone` does when its controllers cannot be reached: after three times the
//! longest probe interval without any of those to which it connects, it discards their rules and switches by
//! itself until one is back.
//!
//! A connection is not enough: a controller that crashes again and again, or that closes connections of
//! switches that it does not want, would leave the bridge without rules. It must have admitted the switch:
//! sent something that controllers do not send before ([`admits`]), or talked to it for 30 s. One that only
//! waits for packets gets one now and then, since the bridge's own rule takes all others.
//!
//! Source: ovs-vswitchd.conf.db(5), `fail_mode`; Open vSwitch's rconn.c and fail-open.c.

use super::link::{Kind, Link};
use super::own_rule::OwnRule;
use super::packets::PacketNews;
use base::OfPort;
use flow::action::PacketInReason;
use flow::{FieldId, Match};
use openflow::Message;
use openflow::message::{PacketIn, PacketInForm, StatsRequest};
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};
use wire::arp::{ArpRepr, operation};
use wire::{Compose, EthAddr};

/// Priority of the rule, above those for in-band control, as Open vSwitch has it.
const PRIORITY: i32 = 0xf0f0f0;
/// The interval that is assumed if every row switches its probes off.
const PROBE_INTERVAL: Duration = Duration::from_secs(5);

/// Time between two log lines while it lasts.
const TOLD_EVERY: Duration = Duration::from_secs(60);
/// Time between two packets to controllers that are connected meanwhile.
const PACKET_EVERY: Duration = Duration::from_secs(2);

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    None,
    /// It takes over: rules are removed, and its own is added.
    Entered,
    /// A controller is connected, but has not admitted the switch: [`packet`] goes to it.
    SendsPacket,
    /// A controller is back, or the mode changed: its rule goes.
    Left,
}

/// Whether it has taken over.
#[derive(Default)]
pub(crate) struct FailOpen {
    is_open: bool,
    /// How long controllers had been away at the last log line.
    told: Duration,
    /// When the next packet goes to controllers that are connected meanwhile.
    next_packet: Option<Instant>,
}

/// Whether a controller sends this only once it has admitted the switch, as Open vSwitch guesses. Before, it
/// may look at the switch's features.
pub(crate) fn admits(message: &Message) -> bool {
    use StatsRequest::{Group, GroupDesc, GroupFeatures, TableDesc, TableFeatures};
    !matches!(
        message,
        Message::Hello(_)
            | Message::Error(_)
            | Message::EchoRequest(_)
            | Message::EchoReply(_)
            | Message::FeaturesRequest
            | Message::GetConfigRequest
            | Message::SetConfig(_)
            | Message::QueueGetConfigRequest { .. }
            | Message::GetAsyncRequest
            | Message::StatsRequest(
                Group(_) | GroupDesc(_) | GroupFeatures | TableFeatures { .. } | TableDesc
            )
    )
}

/// What controllers get that are connected and have not admitted the switch: the announcement of the
/// bridge's own address by its local port, which teaches them nothing wrong.
pub(crate) fn packet(mac: [u8; 6]) -> (PacketNews, Vec<u8>) {
    let mac = EthAddr(mac);
    let rarp = ArpRepr {
        operation: operation::REVERSE_REQUEST,
        sha: mac,
        spa: Ipv4Addr::UNSPECIFIED,
        tha: mac,
        tpa: Ipv4Addr::UNSPECIFIED,
    };
    let frame = Compose::ethernet(mac, EthAddr::BROADCAST).rarp(rarp).build().expect("it is short");
    let mut metadata = Match::any();
    metadata.set_masked(FieldId::InPort, u128::from(OfPort::LOCAL.0), FieldId::InPort.ones());
    let message = PacketIn {
        form: PacketInForm::Standard,
        buffer_id: None,
        total_len: 0,
        reason: PacketInReason::NoMatch,
        table_id: 0,
        cookie: u64::MAX,
        metadata,
        data: Vec::new(),
        userdata: Vec::new(),
        continuation: Vec::new(),
    };
    (PacketNews { controller_id: 0, is_table_miss: false, is_without_rule: false, message }, frame)
}

/// The rule with which it switches.
pub(crate) fn rule() -> OwnRule {
    OwnRule { priority: PRIORITY, matching: Match::any(), queue_id: None }
}

impl FailOpen {
    pub fn run<'a>(
        &mut self,
        standalone: bool,
        links: impl Iterator<Item = &'a Link>,
        now: Instant,
    ) -> Change {
        // As in Open vSwitch, of those that connect to the switch nobody knows whether they fail.
        let active = links.filter(|l| l.is_primary() && !matches!(l.kind(), Kind::Passive(_)));
        let mut is_any_connected = false;
        let primaries: Vec<(Duration, Option<Duration>)> = active
            .inspect(|l| is_any_connected |= l.is_connected())
            .map(|l| (l.failing_for(now), l.named_interval()))
            .collect();
        let change = self.judge(standalone, &primaries);
        if !self.is_open || !is_any_connected {
            self.next_packet = None;
            return change;
        }
        let due = *self.next_packet.get_or_insert(now + PACKET_EVERY);
        if change != Change::None || now < due {
            return change;
        }
        self.next_packet = Some(now + PACKET_EVERY);
        Change::SendsPacket
    }

    /// `primaries`: for how long each has been away, and its probe interval.
    fn judge(&mut self, standalone: bool, primaries: &[(Duration, Option<Duration>)]) -> Change {
        let away = primaries.iter().map(|p| p.0).min();
        let patience = 3 * primaries.iter().filter_map(|p| p.1).max().unwrap_or(PROBE_INTERVAL);
        let wants = standalone
            && match away {
                None | Some(Duration::ZERO) => false,
                Some(away) => self.is_open || away >= patience,
            };
        match (self.is_open, wants) {
            (false, true) => {
                let seconds = away.unwrap_or_default().as_secs();
                tracing::warn!(
                    target: "fail_open",
                    "Could not connect to controller (or switch failed controller's post-connection admission \
                     control policy) for {seconds} seconds, failing open"
                );
                self.is_open = true;
                self.told = away.unwrap_or_default();
                Change::Entered
            }
            (true, false) => {
                tracing::warn!(target: "fail_open", "No longer in fail-open mode");
                self.is_open = false;
                Change::Left
            }
            (true, true) => {
                let away = away.unwrap_or_default();
                if away > self.told + TOLD_EVERY {
                    self.told = away;
                    tracing::info!(
                        target: "fail_open",
                        "Still in fail-open mode after {} seconds disconnected from controller", away.as_secs()
                    );
                }
                Change::None
            }
            (false, false) => Change::None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_takes_over_after_three_probe_intervals_and_until_one_is_back() {
        let s = Duration::from_secs;
        let mut f = FailOpen::default();
        let away = |n, m| [(s(n), Some(s(5))), (s(m), Some(s(7)))];
        assert_eq!(f.judge(true, &away(20, 30)), Change::None, "21 seconds are three times the longest");
        assert_eq!(f.judge(true, &away(21, 31)), Change::Entered);
        assert_eq!(f.judge(true, &away(22, 32)), Change::None);
        assert_eq!(f.judge(true, &away(0, 33)), Change::Left);
        assert_eq!(f.judge(true, &away(0, 99)), Change::None, "one is enough");
        assert_eq!(f.judge(true, &away(21, 99)), Change::Entered);
        assert_eq!(f.judge(false, &away(23, 99)), Change::Left, "secure");
        assert_eq!(f.judge(false, &away(99, 99)), Change::None);
        assert_eq!(f.judge(true, &[]), Change::None, "no controller: the visible rule does it");
        assert_eq!(f.judge(true, &[(s(15), None)]), Change::Entered, "without probes");
        assert_eq!(f.judge(true, &[]), Change::Left);
    }

    #[test]
    fn a_look_at_the_switch_admits_nothing_and_a_barrier_does() {
        let table_features = StatsRequest::TableFeatures { features: Vec::new(), more: false };
        for looks in [
            Message::FeaturesRequest,
            Message::GetConfigRequest,
            Message::EchoRequest(Vec::new()),
            Message::StatsRequest(table_features),
        ] {
            assert!(!admits(&looks), "{}", looks.name());
        }
        for works in [Message::BarrierRequest, Message::StatsRequest(StatsRequest::PortDesc(None))] {
            assert!(admits(&works), "{}", works.name());
        }
    }
}
