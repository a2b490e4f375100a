//! What limited a load, if not the switch: then its rate says nothing about the switch.

use super::generator::Load;
use super::topology::{End, Topology};
use super::traffic::Sent;
use super::traffic::pattern::Protocol;
use crate::result::account::{LOSS_MIN, UNPACED_LOSS_MIN};

/// A switch that waited longer for a processor, as a share of the time, had to share it with too many.
const WAITED_MAX: f64 = 0.1;
/// p99 is the latency of one packet in a hundred: it is not the switch's where the switch waited longer.
const LATENCY_WAITED_MAX: f64 = 0.01;
/// A paced generator that is further off its rate was the limit.
const RATE_ERROR_MAX: f64 = 0.001;

/// The generator that sent too little, and what is added where it has no processor of its own.
const SENDER: &str = "the generator";
const SHARES: &str = ", which shares the processors";

/// The generator, if it was the limit: it sent less than it should, or as much as it could with little loss.
/// Where it plays a guest, frames that found its ring full are the switch's, which had not taken those
/// before. It `is_alone` if it has a processor of its own.
pub fn of_generator(load: &Load, sent: &Sent, is_alone: bool) -> Option<String> {
    let account = &sent.account;
    let refused: u64 = sent.refused.iter().filter(|(end, _)| end.starts_with("vm")).map(|(_, n)| n).sum();
    let is_late = account.not_sent.saturating_sub(refused) > account.offered / 1000;
    let is_unpaced = load.rate.is_none() && load.burst.is_none();
    let has_numbers = !matches!(load.pattern.protocol, Protocol::Pcap(_));
    // A short trial has too few frames for its rate to be known so well.
    let is_off = load.rate.filter(|_| load.burst.is_none() && account.offered >= 2_000).is_some_and(|rate| {
        let went = account.offered.saturating_sub(account.not_sent);
        let tried_pps = sent.sent_pps * (1.0 + refused as f64 / went.max(1) as f64);
        tried_pps > 0.0 && (tried_pps / rate as f64 - 1.0).abs() > RATE_ERROR_MAX
    });
    let is_limit = is_late || is_off || (is_unpaced && has_numbers && account.loss() < UNPACED_LOSS_MIN);
    let shares = if is_alone { "" } else { SHARES };
    is_limit.then(|| format!("{SENDER}{shares}"))
}

/// Whether a limit is the one that [`of_generator`] names.
pub fn is_sender(limit: &str) -> bool {
    limit.strip_prefix(SENDER).is_some_and(|more| more.is_empty() || more == SHARES)
}

/// What limited the load, if not the switch: the generator; a guest, if most of the lost packets found its
/// ring full; the generator's receiving side, if they came back and found no room there; other processes on
/// the same processors, if the switch's busiest thread `waited` for one much of the time.
pub fn limit(load: &Load, sent: &Sent, topology: &Topology, waited: f64, is_alone: bool) -> Option<String> {
    if let Some(generator) = of_generator(load, sent, is_alone) {
        return Some(generator);
    }
    let account = &sent.account;
    let lost = account.lost_on_the_way();
    let at_guests: u64 =
        account.dropped.iter().filter(|(name, _)| is_at_guest(name, topology)).map(|(_, count)| count).sum();
    let is_guest = account.loss() >= LOSS_MIN && at_guests * 2 > lost;
    if is_guest {
        let who = if topology.ports.contains(&End::Guest) { "a guest" } else { "the generator as a guest" };
        return Some(format!("{who}, whose ring was full when most of the lost frames came"));
    }
    if let Some(receiver) = account.limit_of_receiver() {
        return Some(receiver.into());
    }
    (account.loss() >= LOSS_MIN && waited > WAITED_MAX).then(|| processor(waited))
}

/// What limited the latency, if not the switch: other processes on the same processors, also where nothing
/// was lost.
pub fn of_latency(waited: f64) -> Option<String> {
    (waited > LATENCY_WAITED_MAX).then(|| processor(waited))
}

fn processor(waited: f64) -> String {
    format!("a processor: the switch waited for one for {:.0} % of the time", waited * 100.0)
}

/// Whether a counter counts frames that a guest had no room for, or dropped itself.
fn is_at_guest(name: &str, topology: &Topology) -> bool {
    let is_guest = |end: &End| matches!(end, End::Guest | End::Station);
    if let Some(of_port) = name.strip_prefix("switch port ") {
        // In OpenFlow's numbering.
        let port = of_port.split(':').next().and_then(|n| n.parse::<usize>().ok()?.checked_sub(1));
        let end = port.and_then(|port| topology.ports.get(port));
        return of_port.ends_with(": tx_dropped") && end.is_some_and(is_guest);
    }
    // testpmd tells the sum of its ports; those at interfaces keep what a device refuses.
    (name == "switch: tx_dropped" && topology.has_guests())
        || name.starts_with("guest vm")
        || (name.starts_with("kernel vm") && name.ends_with(": tx_dropped"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::traffic::pattern::Pattern;
    use crate::result::account::RECEIVING_SIDE;

    #[test]
    fn a_switch_that_does_not_empty_the_ring_of_a_guest_is_slow_and_not_the_generator() {
        let load = |rate| {
            let pattern = Pattern::default();
            Load { size: 64, flows: 1, rate, seconds: 1.0, burst: None, pattern }
        };
        let sent = |end: &str, refused: u64| {
            let mut sent = Sent { sent_pps: 60_000.0, ..Sent::default() };
            (sent.account.offered, sent.account.not_sent) = (100_000, 40_000);
            (sent.account.received, sent.account.copies) = (60_000, 1);
            sent.refused.insert(end.into(), refused);
            sent
        };
        for rate in [None, Some(100_000)] {
            assert_eq!(of_generator(&load(rate), &sent("vm0", 40_000), true), None);
            let late = of_generator(&load(rate), &sent("vm0", 30_000), true);
            assert_eq!(late.as_deref(), Some("the generator"));
            assert!(late.is_some_and(|late| is_sender(&late)) && !is_sender(RECEIVING_SIDE));
            // The device of an interface is the generator's.
            assert!(of_generator(&load(rate), &sent("e0", 40_000), true).is_some());
        }
    }

    #[test]
    fn a_guest_was_the_limit_where_most_of_the_lost_frames_found_its_ring_full() {
        let load =
            |rate| Load { size: 64, flows: 1, rate, seconds: 0.3, burst: None, pattern: Pattern::default() };
        let sent = |drops: &[(&str, u64)]| {
            let mut sent = Sent::default();
            sent.account.offered = 100_000;
            sent.account.received = 100_000 - drops.iter().map(|(_, n)| n).sum::<u64>();
            sent.account.dropped = drops.iter().map(|(name, n)| (name.to_string(), *n)).collect();
            sent
        };
        let of = |name: &str, drops: &[(&str, u64)]| {
            limit(&load(None), &sent(drops), crate::lab::topology::find(name).unwrap(), 0.0, false)
        };
        let interface = ("kernel p0: rx_dropped", 20_000);
        for ring in ["switch port 2: tx_dropped", "guest vm1: tx_dropped", "switch: tx_dropped"] {
            let why = of("PVP", &[interface, (ring, 30_000)]).unwrap_or_else(|| panic!("{ring}"));
            assert!(why.starts_with("a guest, whose ring was full"), "{why}");
            assert_eq!(of("PVP", &[interface, (ring, 10_000)]), None, "{ring}");
        }
        let why = of("PV", &[("switch port 2: tx_dropped", 9_000)]).unwrap();
        assert!(why.starts_with("the generator as a guest"), "{why}");
        // The port of an interface is the switch's own.
        assert_eq!(of("PVP", &[("switch port 3: tx_dropped", 30_000)]), None);
        assert_eq!(of("P2P", &[("switch: tx_dropped", 30_000)]), None);
        // What came back and found no room was forwarded.
        let back = ("generator e1: receive queue full", 30_000);
        assert_eq!(of("P2P", &[interface, back]).as_deref(), Some(RECEIVING_SIDE));
        assert_eq!(of("P2P", &[interface, (back.0, 19_000)]), None);
        // Others had the processor that it needed.
        let waited = |share| {
            let sent = sent(&[("kernel p0: rx_dropped", 30_000)]);
            limit(&load(None), &sent, crate::lab::topology::find("P2P").unwrap(), share, false)
        };
        let why = waited(0.43).unwrap();
        assert_eq!(why, "a processor: the switch waited for one for 43 % of the time");
        assert_eq!(waited(0.05), None);
        let why = "a processor: the switch waited for one for 5 % of the time";
        assert_eq!((of_latency(0.05).as_deref(), of_latency(0.005)), (Some(why), None));
        let topology = crate::lab::topology::find("P2P").unwrap();
        assert_eq!(limit(&load(None), &sent(&[]), topology, 0.0, true).as_deref(), Some("the generator"));
        // The generator comes first: without loss nothing else can be the limit.
        let sender = of("PVP", &[("guest vm1: tx_dropped", 50)]).unwrap();
        assert!(sender.starts_with("the generator, which") && is_sender(&sender), "{sender}");
    }
}
