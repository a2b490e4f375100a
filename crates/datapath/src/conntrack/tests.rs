//! The tracker as its callers see it.

use super::seen::{Seen, Segment};
use super::track::{Moment, Preferred};
use super::tuple::UDP;
use super::*;

const SYN: u16 = 2;
const ACK: u16 = 16;

fn tracker() -> Tracker {
    Tracker::with_secret(HashKey::from_seed(3)).unwrap()
}

/// Places of the index that are in use.
fn occupancy(t: &Tracker) -> u64 {
    (0..dump::SHARES).map(|share| t.occupancy(share)).sum()
}

fn udp(n: u32) -> Tuple {
    Tuple { src: n.into(), dst: 0x0a00_0002, src_port: 1000, dst_port: 53, protocol: UDP, is_ipv6: false }
}

fn seen(tuple: Tuple) -> Seen {
    let tcp = Segment { flags: SYN, window: 1000, ..Segment::default() };
    Seen { tuple, is_error: false, is_plain: false, tcp }
}

/// Tracks a packet that may begin a connection, and returns its translation.
fn track(
    t: &Tracker,
    seen: &Seen,
    request: &Request,
    (tracking, original): (&mut Tracking, &mut Tuple),
    now_ms: u64,
) -> Option<Translation> {
    let mut may_begin = || true;
    t.track(Some(seen), request, tracking, original, &mut Moment::new(now_ms, 1, &mut may_begin)).unwrap()
}

/// The state that a fresh packet gets.
fn state_of(t: &Tracker, tuple: Tuple, request: &Request, now_ms: u64) -> u8 {
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    track(t, &seen(tuple), request, (&mut tracking, &mut original), now_ms);
    tracking.state & !state::TRACKED
}

const COMMIT: Request =
    Request { zone: 0, commit: true, force: false, mark: None, label: None, nat: None, helper: None };

/// Translation of the source to one address, and to these ports.
fn source(address: u128, ports: Option<(u16, u16)>) -> nat::Range {
    nat::Range {
        side: nat::Side::Src,
        addresses: Some((address, address)),
        is_ipv6: false,
        ports,
        is_persistent: false,
        is_hash: false,
        is_random: false,
    }
}

#[test]
fn a_connection_is_new_until_it_is_answered_and_forgotten_when_it_is_silent() {
    let t = tracker();
    let (there, back) = (udp(1), udp(1).reversed());
    let plain = Request::default();
    assert_eq!(state_of(&t, there, &plain, 0), state::NEW);
    assert_eq!(state_of(&t, there, &COMMIT, 0), state::NEW);
    assert_eq!(state_of(&t, there, &plain, 1), state::NEW);
    assert_eq!(state_of(&t, back, &plain, 2), state::ESTABLISHED | state::REPLY);
    assert_eq!(state_of(&t, there, &plain, 3), state::ESTABLISHED);
    assert_eq!(state_of(&t, there, &Request { zone: 1, ..plain }, 3), state::NEW, "another zone");
    assert_eq!(t.count(), 1);
    assert_eq!(state_of(&t, there, &plain, 30_104), state::NEW, "after 30 s");
    t.expire(40_000, 10_000);
    assert_eq!((t.count(), t.zone_count(0)), (0, 0));
}

#[test]
fn zones_have_timeouts_of_their_own_while_they_are_given() {
    use super::timeouts::Phase;
    let t = tracker();
    let plain = Request { zone: u16::MAX, ..Request::default() };
    let commit = Request { zone: u16::MAX, ..COMMIT };
    t.set_zone_timeouts(u16::MAX, Some(&[(Phase::UdpFirst, 3), (Phase::UdpMultiple, 100)]));
    state_of(&t, udp(1), &commit, 0);
    state_of(&t, udp(2), &commit, 0);
    state_of(&t, udp(1), &COMMIT, 0);
    assert_eq!(state_of(&t, udp(1).reversed(), &plain, 1_000), state::ESTABLISHED | state::REPLY);
    assert_eq!(state_of(&t, udp(2), &plain, 3_001), state::NEW);
    assert_eq!(state_of(&t, udp(2).reversed(), &plain, 3_002), state::NEW, "not answered within 3 s");
    assert_eq!(
        state_of(&t, udp(1).reversed(), &Request::default(), 59_000),
        state::ESTABLISHED | state::REPLY
    );
    assert_eq!(state_of(&t, udp(1), &plain, 100_999), state::ESTABLISHED, "silent for 99.9 s");
    // Without a policy, connections that are there have the default timeouts from their next packet on.
    t.set_zone_timeouts(u16::MAX, None);
    assert_eq!(state_of(&t, udp(1), &plain, 101_000), state::ESTABLISHED);
    assert_eq!(state_of(&t, udp(1), &plain, 131_100), state::NEW, "30 s");
    state_of(&t, udp(3), &commit, 140_000);
    assert_eq!(state_of(&t, udp(3).reversed(), &plain, 190_000), state::ESTABLISHED | state::REPLY);
}

#[test]
fn at_a_ceiling_half_open_connections_give_way_and_answered_ones_stay() {
    let t = tracker();
    t.set_limit(100);
    t.set_zone_limit(7, Some(3));
    for n in 0..50 {
        state_of(&t, udp(n), &COMMIT, 0);
        state_of(&t, udp(n).reversed(), &COMMIT, 0);
    }
    for n in 1000..6000 {
        assert_eq!(state_of(&t, udp(n), &COMMIT, 1), state::NEW);
    }
    assert_eq!(t.count(), 100);
    for n in 0..50 {
        assert_eq!(state_of(&t, udp(n), &COMMIT, 2), state::ESTABLISHED, "{n}");
    }
    t.set_limit(200);
    let in_zone = Request { zone: 7, ..COMMIT };
    for n in 0..3 {
        state_of(&t, udp(n), &in_zone, 2);
    }
    state_of(&t, udp(0).reversed(), &in_zone, 2);
    for n in 3..20 {
        state_of(&t, udp(n), &in_zone, 2);
        assert_eq!(t.zone_count(7), 3);
    }
    assert_eq!(state_of(&t, udp(0), &in_zone, 2), state::ESTABLISHED);
    // All are answered: a new one is refused.
    t.flush(&dump::Filter { zone: Some(7), ..Default::default() }, 2);
    for n in 0..3 {
        state_of(&t, udp(n), &in_zone, 2);
        state_of(&t, udp(n).reversed(), &in_zone, 2);
    }
    state_of(&t, udp(9), &in_zone, 2);
    assert_eq!(state_of(&t, udp(9).reversed(), &in_zone, 2), state::NEW);
    assert_eq!(t.zone_count(7), 3);
}

#[test]
fn where_none_is_half_open_no_shard_is_locked_for_a_connection_that_is_refused() {
    let t = tracker();
    t.set_limit(100);
    for n in 0..100 {
        state_of(&t, udp(n), &COMMIT, 0);
        state_of(&t, udp(n).reversed(), &COMMIT, 0);
    }
    // They leave the lists when those are searched.
    for n in 100..200 {
        state_of(&t, udp(n), &COMMIT, 0);
    }
    assert_eq!((t.count(), t.half_open.load(Relaxed)), (100, 0));
    assert!(t.flush_named(&udp(0), 0, &dump::Filter::default(), 0));
    state_of(&t, udp(200), &COMMIT, 0);
    assert_eq!(t.half_open.load(Relaxed).count_ones(), 1);
    state_of(&t, udp(201), &COMMIT, 0);
    assert_eq!((t.count(), t.figures.evicted.load(Relaxed)), (100, 1), "it gives way");
}

/// A segment of TCP, and what the tracker says of it.
fn say_tcp(t: &Tracker, tuple: Tuple, (flags, seq, ack): (u16, u32, u32), request: &Request, ms: u64) -> u8 {
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let tcp = Segment { seq, ack, flags, window: 1000, len: 0, scale: None };
    let seen = Seen { tuple, is_error: false, is_plain: false, tcp };
    track(t, &seen, request, (&mut tracking, &mut original), ms);
    tracking.state & !state::TRACKED
}

/// They need nobody's answer: one guest could otherwise take all places for half a minute.
#[test]
fn connections_that_their_own_end_resets_give_way_too() {
    const RST: u16 = 4;
    let t = tracker();
    t.set_limit(50);
    let tcp = |n| Tuple { protocol: tuple::TCP, ..udp(n) };
    for n in 0..50 {
        assert_eq!(say_tcp(&t, tcp(n), (SYN, 100, 0), &COMMIT, 0), state::NEW);
        say_tcp(&t, tcp(n), (RST, 101, 0), &Request::default(), 0);
    }
    for n in 50..60 {
        say_tcp(&t, tcp(n), (SYN, 100, 0), &COMMIT, 1);
        let back = say_tcp(&t, tcp(n).reversed(), (SYN | ACK, 500, 101), &Request::default(), 1);
        assert_eq!(back, state::ESTABLISHED | state::REPLY, "{n} was refused");
    }
    assert_eq!(t.count(), 50);
}

#[test]
fn half_open_connections_of_other_zones_neither_hide_nor_pay_for_those_of_a_full_one() {
    let t = tracker();
    let in_zone = |zone| Request { zone, ..COMMIT };
    for n in 0..20_000 {
        state_of(&t, udp(n), &in_zone(1 + n as u16 % 2), 0);
    }
    t.set_zone_limit(7, Some(3));
    for n in 0..500 {
        state_of(&t, udp(n), &in_zone(7), 1);
        assert_eq!(t.zone_count(7), (n + 1).min(3));
        let all = t.all_connections(&dump::Filter { zone: Some(7), ..Default::default() }, 1);
        assert!(all.iter().any(|c| c.original == udp(n)), "{n} was refused");
    }
    // At the ceiling of all, the zones that have the most give way.
    t.set_limit(10_000);
    for n in 0..30_000 {
        state_of(&t, udp(100_000 + n), &in_zone(1), 2);
    }
    assert_eq!((t.count() <= 10_000, t.zone_count(7)), (true, 3));
}

#[test]
fn who_may_not_begin_a_connection_is_dropped() {
    let t = tracker();
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let mut may_begin = || false;
    let mut moment = Moment::new(0, 1, &mut may_begin);
    let got = t.track(Some(&seen(udp(1))), &COMMIT, &mut tracking, &mut original, &mut moment);
    assert_eq!(got, Err(base::DropReason::CtPortShare));
    assert_eq!(t.count(), 0);
}

#[test]
fn a_translated_connection_is_found_from_both_ends_and_ports_that_are_taken_are_passed_over() {
    let t = tracker();
    let range = source(0xc0a8_0001, Some((5000, 5002)));
    let request = Request { nat: Some(Nat::New(range)), ..COMMIT };
    let mut outside = Vec::new();
    for n in 0..4 {
        let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
        let got = track(&t, &seen(udp(n)), &request, (&mut tracking, &mut original), 0);
        assert_eq!(got.is_some(), n < 3, "three ports");
        let Some(translation) = got else { continue };
        assert_eq!(translation.side, nat::Side::Src);
        assert_eq!((translation.to.src, translation.to.dst_port), (0xc0a8_0001, 53));
        assert_eq!(tracking.state, state::NEW | state::TRACKED | state::SRC_NAT);
        assert_eq!(original, udp(n));
        outside.push(translation.to);
    }
    assert_eq!(t.count(), 3);
    let mut ports: Vec<_> = outside.iter().map(|to| to.src_port).collect();
    ports.sort_unstable();
    assert_eq!(ports, [5000, 5001, 5002]);
    for (n, to) in outside.iter().enumerate() {
        let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
        let back = Request { nat: Some(Nat::Existing), ..Request::default() };
        let got = track(&t, &seen(to.reversed()), &back, (&mut tracking, &mut original), 0);
        assert_eq!(got.unwrap().to, udp(n as u32).reversed());
        assert_eq!(got.unwrap().side, nat::Side::Dst);
        assert_eq!(original, udp(n as u32));
    }
    // Gone from both ends.
    assert!(t.flush_named(&udp(0), 0, &dump::Filter::default(), 1));
    assert_eq!(state_of(&t, outside[0].reversed(), &Request::default(), 1), state::NEW);
    assert_eq!(occupancy(&t), 4);
    t.flush(&dump::Filter::default(), 1);
    assert_eq!((t.count(), occupancy(&t)), (0, 0));
}

#[test]
fn what_a_connection_looks_for_in_vain_in_a_range_that_is_used_up_is_counted() {
    let t = tracker();
    let nat = Some(Nat::New(source(0xc0a8_0001, Some((5000, 5199)))));
    let tries_of = |n: u32| {
        let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
        let mut may_begin = || true;
        let mut moment = Moment::new(0, u64::from(n), &mut may_begin);
        let request = Request { nat, ..COMMIT };
        t.track(Some(&seen(udp(n))), &request, &mut tracking, &mut original, &mut moment).unwrap();
        moment.tries
    };
    assert_eq!(tries_of(0), 0, "the first that it tried was free");
    let mut n = 1;
    while t.count() < 200 {
        tries_of(n);
        n += 1;
    }
    for n in n..n + 64 {
        assert!((128..=512).contains(&tries_of(n)));
    }
    assert_eq!(t.count(), 200);
}

/// A reply was translated; by `force`, its new connection begins at the tuple that it came with.
#[test]
fn the_tuple_chosen_for_a_packet_is_no_other_tuples() {
    let t = tracker();
    let to = |address| source(address, None);
    let with = |range| Request { nat: Some(Nat::New(range)), ..COMMIT };
    assert_eq!(state_of(&t, udp(1), &with(to(0xc0a8_0001)), 0), state::NEW | state::SRC_NAT);
    let came = Tuple { src: 0xc0a8_0001, ..udp(1) }.reversed();
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let back = Request { nat: Some(Nat::Existing), ..Request::default() };
    track(&t, &seen(came), &back, (&mut tracking, &mut original), 1).unwrap();
    let now = udp(1).reversed();
    let force = Request { force: true, ..with(to(0xc0a8_0002)) };
    let reverse = Tuple { dst: 0xc0a8_0002, ..now.reversed() };
    let preferred = Preferred { reverse, hash: reverse.hash(0, &t.secret) };
    let mut may_begin = || true;
    let mut moment = Moment { preferred: Some(&preferred), ..Moment::new(1, 1, &mut may_begin) };
    t.track(Some(&seen(now)), &force, &mut tracking, &mut original, &mut moment).unwrap();
    let all = t.all_connections(&dump::Filter::default(), 2);
    let ends: Vec<_> = all.iter().map(|c| (c.original, c.reply.src, c.reply.dst)).collect();
    assert_eq!(ends, [(came, 0xc0a8_0001, 0xc0a8_0002)]);
}

/// Its helper would otherwise shift sequence numbers twice.
#[test]
fn a_packet_that_its_zone_has_translated_meets_the_connections_helper_once() {
    let t = tracker();
    let nat = Some(Nat::New(source(0xc0a8_0001, None)));
    let request = Request { nat, helper: Some(request::Helper::Ftp), ..COMMIT };
    let came = Tuple { protocol: tuple::TCP, dst_port: 21, ..udp(1) };
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let mut may_begin = || true;
    let mut pass = |tuple: Tuple| {
        let mut moment = Moment::new(0, 1, &mut may_begin);
        let done = t.track(Some(&seen(tuple)), &request, &mut tracking, &mut original, &mut moment);
        (done.unwrap().map(|translation| translation.to), moment.helped.is_some())
    };
    let (Some(translated), true) = pass(came) else { panic!("it was translated, and helped") };
    assert_eq!(pass(translated), (None, false));
}

#[test]
fn a_port_that_a_silent_connection_had_is_anothers() {
    let t = tracker();
    let range = source(0xc0a8_0001, Some((5000, 5000)));
    let request = Request { nat: Some(Nat::New(range)), ..COMMIT };
    assert_eq!(state_of(&t, udp(1), &request, 0), state::NEW | state::SRC_NAT);
    assert_eq!(state_of(&t, udp(2), &request, 1), state::NEW, "there is one port");
    assert_eq!(state_of(&t, udp(2), &request, 70_000), state::NEW | state::SRC_NAT);
    assert_eq!((t.count(), occupancy(&t)), (1, 2));
}

#[test]
fn marks_and_labels_are_the_connections() {
    let t = tracker();
    let with = Request { mark: Some((0x12, 0xff)), label: Some((1 << 100, u128::MAX)), ..COMMIT };
    state_of(&t, udp(1), &with, 0);
    state_of(&t, udp(1), &Request { mark: Some((0x3400, 0xff00)), ..COMMIT }, 0);
    let all = t.all_connections(&dump::Filter { mark: Some((0x3412, u32::MAX)), ..Default::default() }, 0);
    assert_eq!((all.len(), all[0].label), (1, 1 << 100));
    assert_eq!(t.flush(&dump::Filter { label: Some((2, 3)), ..Default::default() }, 0), 0);
    assert_eq!(t.flush(&dump::Filter { mark: Some((2, 3)), ..Default::default() }, 0), 1);
}

/// Two workers that set bits of their own in a connection's mark, one of which sets its label, too.
#[test]
fn bits_that_workers_set_at_once_in_a_mark_are_all_there_and_no_label_is_half_another() {
    let t = &tracker();
    state_of(t, udp(1), &COMMIT, 0);
    let entry = t.entry(t.find(&udp(1), 0, 0).unwrap().entry);
    let mark_after = |request: &Request| {
        let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
        track(t, &seen(udp(1)), request, (&mut tracking, &mut original), 0);
        tracking.mark
    };
    let rounds = testkit::cases("datapath::conntrack_marks", 600_000);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            scope.spawn(move || {
                for n in 1..=rounds {
                    let (shift, mine) = (worker * 16, n & 0xffff);
                    let mark = Some((mine << shift, 0xffff << shift));
                    let label = (worker == 0).then_some((u128::from(n) << 64 | u128::from(n), u128::MAX));
                    let has_mine = |mark: u32| mark >> shift & 0xffff == mine;
                    // A worker that loses its processor while it changes the connection keeps others from it.
                    while !has_mine(mark_after(&Request { mark, label, ..COMMIT })) {}
                    assert!(has_mine(mark_after(&Request::default())), "worker {worker}, round {n}");
                    let halves = entry.label_at_rest().map(|label| (label as u64, (label >> 64) as u64));
                    assert!(halves.is_none_or(|(low, high)| low == high), "{halves:x?}");
                }
            });
        }
    });
}

#[test]
fn a_handshake_establishes_and_a_segment_outside_of_the_window_is_invalid() {
    let t = tracker();
    let there = Tuple { protocol: tuple::TCP, ..udp(1) };
    let go = |tuple, flags, seq, ack, request: &Request| say_tcp(&t, tuple, (flags, seq, ack), request, 5);
    let (plain, back) = (Request::default(), there.reversed());
    // Without ACK, also beside SYN, FIN, PSH and URG are invalid.
    for with in [1, 8, 0x20] {
        assert_eq!(go(there, SYN | with, 100, 0, &COMMIT), state::INVALID, "{with:#x}");
    }
    assert_eq!(go(back, SYN | ACK, 1, 1, &COMMIT), state::INVALID, "an answer opens nothing");
    assert_eq!(go(there, SYN, 100, 0, &COMMIT), state::NEW);
    assert_eq!(go(there, SYN, 100, 0, &plain), state::NEW, "again");
    assert_eq!(go(back, SYN | ACK, 500, 101, &plain), state::ESTABLISHED | state::REPLY);
    assert_eq!(go(there, ACK, 101, 501, &plain), state::ESTABLISHED);
    let far = |t: &Tracker| {
        t.set_checks_sequence(false);
    };
    assert_eq!(go(there, ACK, 101, 900_000, &plain), state::INVALID);
    far(&t);
    assert_eq!(go(there, ACK, 101, 900_000, &plain), state::ESTABLISHED, "liberal");
}

#[test]
fn workers_that_begin_and_end_connections_at_once_leave_none_behind() {
    let t = tracker();
    let cases = testkit::cases("datapath::conntrack_threads", 20_000);
    std::thread::scope(|scope| {
        for worker in 0..4u32 {
            let t = &t;
            scope.spawn(move || {
                let mut x = worker + 1;
                for step in 0..cases {
                    x ^= x << 13;
                    x ^= x >> 17;
                    x ^= x << 5;
                    let (tuple, now) = (udp(x % 64), u64::from(step));
                    match x >> 8 & 7 {
                        0 => drop(t.flush_named(&tuple, 0, &dump::Filter::default(), now)),
                        1 => _ = t.expire(now, 64),
                        2..5 => drop(state_of(t, tuple.reversed(), &COMMIT, now)),
                        _ => drop(state_of(t, tuple, &COMMIT, now)),
                    }
                }
            });
        }
    });
    t.flush(&dump::Filter::default(), 0);
    t.expire(u64::from(cases) + 100_000, u32::MAX / 2);
    let left = occupancy(&t);
    assert_eq!((t.count(), t.zone_count(0), left), (0, 0, 0));
}

/// Threads that walk over entries, not tuples, meet a connection as soon as it has begun: an operator who
/// flushes all, and a worker that makes room in a full zone.
#[test]
fn connections_that_are_ended_by_their_number_as_they_begin_leave_no_place_behind() {
    let t = tracker();
    t.set_zone_limit(0, Some(2));
    let cases = testkit::cases("datapath::conntrack_begins", 20_000);
    let workers_left = std::sync::atomic::AtomicU32::new(4);
    std::thread::scope(|scope| {
        for worker in 0..4u32 {
            let (t, workers_left) = (&t, &workers_left);
            scope.spawn(move || {
                for n in 0..cases {
                    state_of(t, udp(n % 64 + worker * 64), &COMMIT, 0);
                }
                workers_left.fetch_sub(1, Relaxed);
            });
        }
        while workers_left.load(Relaxed) > 0 {
            t.flush(&dump::Filter::default(), 0);
        }
    });
    t.flush(&dump::Filter::default(), 0);
    assert_eq!((t.count(), t.zone_count(0), occupancy(&t)), (0, 0, 0));
}

/// Four workers commit connections at once, translated to one address with fewer ports than there are
/// connections, and untranslated ones from the outside that have the very tuples of the translated ones.
#[test]
fn workers_that_translate_to_one_range_at_once_give_no_tuple_twice() {
    const PORTS: u16 = 64;
    const WORKERS: u32 = 4;
    let t = tracker();
    let shown = 0xc0a8_0001;
    let range = nat::Range { is_random: true, ..source(shown, Some((5000, 5000 + PORTS - 1))) };
    let translated = Request { nat: Some(Nat::New(range)), ..COMMIT };
    let mut most = 0;
    for round in 0..testkit::cases("datapath::conntrack_collisions", 300) {
        let barrier = std::sync::Barrier::new(WORKERS as usize);
        std::thread::scope(|scope| {
            for worker in 0..WORKERS {
                let (t, barrier) = (&t, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    for n in 0..u32::from(PORTS) / 2 {
                        let outside = Tuple { dst: shown, dst_port: 5000 + n as u16, ..udp(0).reversed() };
                        let outside = Tuple { src_port: 53, ..outside };
                        match (worker, n % 4) {
                            (0, 0) => drop(state_of(t, outside, &COMMIT, 0)),
                            _ => drop(state_of(t, udp(1 + worker * 1000 + n), &translated, 0)),
                        }
                    }
                });
            }
        });
        let all = t.all_connections(&dump::Filter::default(), 0);
        let mut seen = std::collections::HashSet::new();
        for c in &all {
            let ends: &[Tuple] =
                if c.original.reversed() == c.reply { &[c.reply] } else { &[c.original, c.reply] };
            for tuple in ends {
                // Either direction of it is the same place.
                let (one, other) = (tuple.packed(0), tuple.reversed().packed(0));
                assert!(seen.insert(one.min(other)), "round {round}: {tuple:?} is two connections'");
            }
        }
        // More connections want a port than there are ports: each port is in use.
        let ports = all.iter().filter(|c| c.reply.dst == shown || c.original.dst == shown).count();
        assert_eq!((ports, t.count() as usize), (PORTS.into(), all.len()), "round {round}");
        most = most.max(all.len());
        t.flush(&dump::Filter::default(), 0);
        assert_eq!((t.count(), occupancy(&t)), (0, 0), "round {round}");
    }
    assert_eq!(most, PORTS.into());
}

#[test]
fn a_tuple_that_a_connection_has_reserved_and_not_yet_begun_is_nobody_elses() {
    let t = tracker();
    let (inside, shown) = (udp(1), Tuple { src: 0xc0a8_0001, ..udp(1) });
    // As another worker is between the two.
    let idx = t.shard(0).take(&t.entries, |number| t.block(0, number)).unwrap();
    let entry = &t.entries[idx as usize];
    entry.set_forward(&inside.packed(0));
    let hash = shown.hash(0, &t.secret);
    assert_eq!(t.take_reverse(idx, &inside, &shown.reversed(), (0, hash), 0), Some(true));
    let outside = shown.reversed();
    state_of(&t, outside, &COMMIT, 0);
    assert_eq!(t.count(), 0);
    let place = Place { entry: idx, of: Which::Reverse };
    t.index.remove(outside.hash(0, &t.secret), place, &t.entries);
    state_of(&t, outside, &COMMIT, 0);
    assert_eq!(t.count(), 1, "it is free again");
}

/// The client of a virtual address also talks to the server itself, from the same port.
#[test]
fn a_connection_translated_to_its_own_address_gets_another_port_where_its_tuple_is_taken() {
    let t = tracker();
    let range = |side, address| nat::Range { side, ..source(address, None) };
    let (server, virtual_address) = (udp(1).dst, 0x0a01_0101);
    let to_server = Request { nat: Some(Nat::New(range(nat::Side::Dst, server))), ..COMMIT };
    let as_itself = Request { nat: Some(Nat::New(range(nat::Side::Src, 0))), ..COMMIT };
    state_of(&t, Tuple { dst: virtual_address, ..udp(1) }, &to_server, 0);
    // Without any translation it cannot have another port: the server's answers would be both connections'.
    assert_eq!(state_of(&t, udp(1), &COMMIT, 0), state::NEW);
    assert_eq!((t.count(), t.figures.exhausted.load(Relaxed)), (1, 1));
    state_of(&t, udp(1), &as_itself, 0);
    // Of another client nobody has the tuple.
    state_of(&t, udp(2), &as_itself, 0);
    let all = t.all_connections(&dump::Filter::default(), 0);
    let reply = |n: u32, dst: u128| {
        all.iter().find(|c| (c.original.src, c.original.dst) == (n.into(), dst)).unwrap().reply
    };
    assert_eq!(reply(1, virtual_address), udp(1).reversed());
    let other = reply(1, server);
    assert!(other.dst_port != 1000 && Tuple { dst_port: 1000, ..other } == udp(1).reversed(), "{other:?}");
    assert_eq!(reply(2, server), udp(2).reversed());
}

#[test]
fn what_one_look_does_not_get_to_is_said_to_be_left() {
    let t = tracker();
    for n in 0..3_000 {
        state_of(&t, udp(n), &COMMIT, 0);
    }
    assert!(!t.expire(1_000, 1_024), "nothing is over");
    assert!(t.expire(100_000, 1_024));
    for _ in 0..10 {
        t.expire(100_000, 1_024);
    }
    assert!(!t.expire(100_000, 1_024));
    assert_eq!(t.count(), 0);
}

#[test]
fn a_million_connections_take_at_most_250_bytes_each() {
    // An entry, and its share of an index that a million entries fill.
    let bytes = size_of::<Entry>() + BUCKETS * 64 / 1_000_000;
    assert!(bytes <= 250, "{bytes}");
}
