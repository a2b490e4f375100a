//! The first hosts on the way to controllers and managers, for all bridges: what the kernel says, remembered.
//!
//! An answer is asked for again every ten seconds, and every second while the kernel does not know it, as in
//! Open vSwitch; if there are many addresses, less often. A few are asked for at a time, since the database's
//! clients name the addresses and the control thread asks.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

/// How long an answer is believed: with a host, and without one.
const KNOWN: Duration = Duration::from_secs(10);
const UNKNOWN: Duration = Duration::from_secs(1);
/// How many addresses to ask for at a time.
const ASKED_MAX: usize = 8;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct NextHops(BTreeMap<Ipv4Addr, Answer>);

struct Answer {
    /// The host's Ethernet address.
    host: Option<[u8; 6]>,
    ask_at: Instant,
    /// A bridge has wanted it in this round.
    is_wanted: bool,
}

impl NextHops {
    /// The Ethernet address of the first host on the way to an address, as far as known. A new address is
    /// asked for next time.
    pub fn first_to(&mut self, address: Ipv4Addr, now: Instant) -> Option<[u8; 6]> {
        let new = Answer { host: None, ask_at: now, is_wanted: true };
        let answer = self.0.entry(address).or_insert(new);
        answer.is_wanted = true;
        answer.host
    }

    /// Asks `next_hop` for some of the addresses whose time has come, the most overdue first.
    pub fn ask_some(&mut self, now: Instant, next_hop: impl Fn(Ipv4Addr) -> Option<[u8; 6]>) {
        let mut due: Vec<(&Ipv4Addr, &mut Answer)> =
            self.0.iter_mut().filter(|(_, answer)| answer.ask_at <= now).collect();
        due.sort_by_key(|(_, answer)| answer.ask_at);
        for (address, answer) in due.into_iter().take(ASKED_MAX) {
            answer.host = next_hop(*address);
            answer.ask_at = now + if answer.host.is_some() { KNOWN } else { UNKNOWN };
        }
    }

    /// All bridges had a turn: what none of them has wanted since the last round is forgotten.
    pub fn end_round(&mut self) {
        self.0.retain(|_, answer| std::mem::take(&mut answer.is_wanted));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    const ROUTER: [u8; 6] = [2, 0, 0, 0, 1, 1];

    fn address(n: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 0, 0, n)
    }

    #[test]
    fn the_kernel_is_asked_again_in_a_second_or_in_ten() {
        let (mut hops, now) = (NextHops::default(), Instant::now());
        let at = |seconds| now + Duration::from_secs(seconds);
        let router = |n: u8| move |_| Some([2, 0, 0, 0, 1, n]);
        assert_eq!(hops.first_to(address(1), now), None, "it was not asked for yet");
        let mut told_at = |seconds, answer: &dyn Fn(Ipv4Addr) -> Option<[u8; 6]>| {
            hops.ask_some(at(seconds), answer);
            hops.first_to(address(1), at(seconds)).map(|host| host[5])
        };
        assert_eq!(told_at(0, &|_| None), None);
        assert_eq!(told_at(0, &router(1)), None, "asked in a second");
        assert_eq!(told_at(1, &router(1)), Some(1));
        assert_eq!(told_at(10, &router(2)), Some(1), "known for ten seconds");
        assert_eq!(told_at(11, &router(2)), Some(2));
        assert_eq!(told_at(21, &|_| None), None);
    }

    #[test]
    fn however_many_addresses_there_are_a_few_are_asked_for_at_a_time_and_all_get_their_turn() {
        let (mut hops, now) = (NextHops::default(), Instant::now());
        let asked = RefCell::new(BTreeMap::new());
        let answer = |address| {
            *asked.borrow_mut().entry(address).or_insert(0) += 1;
            None
        };
        (0..100).for_each(|n| assert_eq!(hops.first_to(address(n), now), None));
        for tenth in 1..=130 {
            let (before, now) = (asked.borrow().values().sum::<usize>(), now + tenth * UNKNOWN / 10);
            hops.ask_some(now, answer);
            assert!(asked.borrow().values().sum::<usize>() - before <= ASKED_MAX);
        }
        let asked = asked.into_inner();
        assert_eq!(asked.len(), 100);
        assert!(asked.values().all(|times| (10..=11).contains(times)), "{asked:?}");
    }

    #[test]
    fn what_no_bridge_wants_any_more_is_forgotten() {
        let (mut hops, now) = (NextHops::default(), Instant::now());
        hops.first_to(address(1), now);
        hops.first_to(address(2), now);
        hops.ask_some(now, |_| Some(ROUTER));
        hops.end_round();
        assert_eq!(hops.first_to(address(1), now), Some(ROUTER));
        hops.end_round();
        assert_eq!(hops.0.len(), 1);
        hops.end_round();
        assert!(hops.0.is_empty());
    }
}
