//! The schedule against synthetic queues, loads and outputs, replayed from a seed, on a clock of the test's
//! own.

use super::*;
use packet::BURST;
use std::collections::VecDeque;

/// Cycles per microsecond and per millisecond.
const US: u64 = 2_000;
const MS: u64 = 1_000 * US;
/// What polling a queue costs, and reading the clock.
const POLL: u64 = 40;
const CLOCK: u64 = 25;
/// How long a wake-up takes, unless a test says so.
const WAKE: u64 = 100 * US;
const RING: usize = 256;

/// A receive queue and what comes to it.
#[derive(Default)]
struct Load {
    is_guests: bool,
    /// Cycles between two packets; 0: none come.
    every: u64,
    next: u64,
    /// When those that wait came.
    waiting: VecDeque<u64>,
    /// Cycles of a packet, those of translation among them.
    cost: u64,
    translation: u64,
    output: usize,
    lost: u64,
    received: u64,
    bursts: u64,
    /// Cycles that the schedule was told of.
    charged: u64,
    longest_wait: u64,
}

/// An output that takes a packet every so many cycles; 0: all at once.
#[derive(Default)]
struct Output {
    every: u64,
    next: u64,
    filled: usize,
    refused: u64,
}

struct World {
    schedule: Schedule,
    now: u64,
    queues: Vec<Load>,
    outputs: Vec<Output>,
    random: u64,
    /// Cycles of polls of idle queues.
    idle_cycles: u64,
    slept: Vec<u64>,
    wake: u64,
    /// An output that did not take all in this pass.
    refusing: Option<PortNo>,
    /// A mistake to be found out: no cost is charged.
    charges_nothing: bool,
    /// Passes without packets, and those of them in which no queue was left alone for being ahead.
    fruitless: u64,
    free: u64,
}

impl World {
    fn new(seed: u64, queues: Vec<Load>, outputs: Vec<Output>) -> World {
        let now = 1_000 * MS;
        let mut schedule = Schedule::new(US, now);
        queues.iter().for_each(|q| schedule.add(q.is_guests));
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let (idle_cycles, slept, refusing, charges_nothing) = (0, Vec::new(), None, false);
        let (wake, fruitless, free) = (WAKE, 0, 0);
        World {
            schedule,
            now,
            queues,
            outputs,
            random,
            idle_cycles,
            slept,
            wake,
            refusing,
            charges_nothing,
            fruitless,
            free,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 33) % below
    }

    /// Packets that have come by now are there, and outputs have made room.
    fn advance(&mut self) {
        for q in self.queues.iter_mut().filter(|q| q.every > 0) {
            q.next = q.next.max(1_000 * MS);
            while q.next <= self.now {
                if q.waiting.len() < RING {
                    q.waiting.push_back(q.next)
                } else {
                    q.lost += 1
                }
                q.next += q.every;
            }
        }
        for o in &mut self.outputs {
            if o.every == 0 {
                o.filled = 0;
                continue;
            }
            o.next = o.next.max(1_000 * MS);
            while o.next <= self.now {
                o.filled = o.filled.saturating_sub(1);
                o.next += o.every;
            }
        }
    }

    /// What the worker does for one queue.
    fn poll(&mut self, n: usize, now: u64, pass: &mut Pass) -> bool {
        match self.schedule.admits(n, pass, now) {
            Admission::Yes => {}
            Admission::No => return false,
            Admission::IfRoom(PortNo(port)) => {
                self.advance();
                let has_room = self.outputs[port as usize].filled + BURST <= RING;
                if !self.schedule.asked(n, pass, has_room, self.now).0 {
                    return false;
                }
            }
        }
        self.now += POLL;
        self.idle_cycles += if now == 0 { POLL } else { 0 };
        self.advance();
        let q = &mut self.queues[n];
        let packets = q.waiting.len().min(BURST);
        if packets == 0 {
            self.schedule.came_empty(n, false);
            return false;
        }
        let first = q.waiting.drain(..packets).next().unwrap();
        q.longest_wait = q.longest_wait.max(self.now - first);
        let start = if now == 0 { self.now } else { now };
        self.now += packets as u64 * q.cost;
        let translation = packets as u64 * q.translation;
        q.received += packets as u64;
        q.bursts += 1;
        q.charged += self.now - start + translation;
        let is_sole = self.schedule.suspect(n) == Some(PortNo(q.output as u32));
        let output = &mut self.outputs[q.output];
        let taken = packets.min(RING - output.filled);
        output.filled += taken;
        output.refused += (packets - taken) as u64;
        if taken < packets {
            self.refusing = Some(PortNo(q.output as u32));
        }
        let burst = Burst { packets: packets as u64, start, end: self.now, translation, is_sole };
        self.schedule.received(n, pass, burst);
        if self.charges_nothing {
            self.schedule.queues[n].served = 0;
        }
        true
    }

    /// Passes and sleeps for so long.
    fn run(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            let start = self.now;
            let mut pass = self.schedule.begin(start);
            while let Some(n) = self.schedule.next_busy(&mut pass) {
                let now = pass.now;
                self.poll(n, now, &mut pass);
            }
            while let Some(count) = self.schedule.idle_group(&mut pass) {
                let mut had_any = false;
                for _ in 0..count {
                    if let Some(n) = self.schedule.next_idle() {
                        had_any |= self.poll(n, 0, &mut pass);
                    }
                }
                self.now += CLOCK;
                self.schedule.idle_group_ended(&mut pass, had_any, self.now);
            }
            self.now += CLOCK;
            if let Some(output) = self.refusing.take() {
                self.schedule.refused_at(output);
            }
            self.fruitless += u64::from(!pass.moved);
            self.free += u64::from(!pass.moved && !self.schedule.is_ahead());
            if pass.moved {
                self.schedule.moved(start, self.now);
            } else if !self.schedule.take_left_alone() && self.schedule.may_sleep(self.now) {
                self.advance();
                let begin = self.now;
                if self.queues.iter().all(|q| q.waiting.is_empty()) {
                    let next = self.queues.iter().filter(|q| q.every > 0).map(|q| q.next).min();
                    self.now = next.unwrap_or(end).clamp(self.now, end) + self.wake;
                    self.slept.push(self.now - begin);
                }
                self.schedule.woke(self.now);
            }
        }
    }
}

/// Queues that always have packets, of random costs. How far apart the least and the most charged are.
fn spread_of_saturated(seed: u64, charges_nothing: bool) -> u64 {
    let mut world = World::new(seed, Vec::new(), vec![Output::default()]);
    world.charges_nothing = charges_nothing;
    for _ in 0..2 + world.random(6) {
        let translation = [0, world.random(2_000)][world.random(2) as usize];
        let (cost, is_guests) = (50 + translation + world.random(500), world.random(2) == 0);
        world.queues.push(Load { every: 20, cost, translation, is_guests, ..Load::default() });
        world.schedule.add(is_guests);
    }
    world.run(20 * MS);
    let charged = || world.queues.iter().map(|q| q.charged);
    charged().max().unwrap() - charged().min().unwrap()
}

#[test]
fn saturated_queues_share_the_worker_by_cycles_whatever_their_packets_cost() {
    let burst_max = BURST as u64 * 2 * 2_550;
    for seed in 1..=100 {
        let spread = spread_of_saturated(seed, false);
        assert!(spread <= AHEAD_CYCLES_MAX + 2 * burst_max, "seed {seed}: {spread} cycles apart");
    }
}

/// One queue always has packets, the other now and then: a pass that finds none of the other's while the
/// first is ahead says nothing of time to spare.
#[test]
fn a_pass_without_packets_is_not_free_while_a_queue_waits_for_others_to_catch_up() {
    for seed in 1..=20 {
        let mut world = World::new(seed, Vec::new(), vec![Output::default()]);
        for (every, cost) in [(20, 600), (5_000, 50)] {
            world.queues.push(Load { every, cost, ..Load::default() });
            world.schedule.add(false);
        }
        // At first there are none.
        world.run(MS);
        (world.fruitless, world.free) = (0, 0);
        world.run(20 * MS);
        assert!(world.fruitless > 10 && world.free == 0, "{} of {}", world.free, world.fruitless);
    }
}

#[test]
fn a_schedule_that_charges_nothing_is_found_to_be_unfair() {
    let unfair =
        |seed: &u64| spread_of_saturated(*seed, true) > AHEAD_CYCLES_MAX + 2 * BURST as u64 * 2 * 2_550;
    assert!((1..=100).filter(unfair).count() > 90);
}

#[test]
fn below_saturation_no_packet_waits_long_or_is_lost_whatever_the_load() {
    for seed in 1..=30 {
        let mut world = World::new(seed, Vec::new(), vec![Output::default()]);
        let count = 1 + world.random(8);
        for _ in 0..count {
            // Together at most six tenths of the worker, from a packet each 0.1 us to one each 2 ms.
            let every = [200, 5_000, 300_000, 4_000_000][world.random(4) as usize];
            let cost = (every * 6 / 10 / count).saturating_sub(2 * POLL).clamp(1, 20_000);
            let is_guests = world.random(2) == 0;
            world.queues.push(Load { every, cost, is_guests, ..Load::default() });
            world.schedule.add(is_guests);
        }
        world.run(50 * MS);
        for q in &world.queues {
            // A sleeper's wake-up, and bursts of the others; what filled a ring meanwhile would be lost.
            let wait_max = WAKE + 8 * BURST as u64 * 20_000;
            assert!(q.longest_wait <= wait_max, "seed {seed}: {} us", q.longest_wait / US);
            assert!(q.lost == 0 || q.every < WAKE / RING as u64 * 2, "seed {seed}: {} lost", q.lost);
        }
    }
}

#[test]
fn idle_queues_take_a_small_share_and_one_that_gets_packets_is_found() {
    let busy = || Load { every: 20, cost: 60, ..Load::default() };
    let mut queues: Vec<Load> = (0..500).map(|_| Load { cost: 60, ..Load::default() }).collect();
    queues.extend([busy(), busy()]);
    let mut world = World::new(1, queues, vec![Output::default()]);
    world.run(5 * MS);
    let before = world.idle_cycles;
    world.run(50 * MS);
    let share = (world.idle_cycles - before) as f64 / (50 * MS) as f64;
    assert!(share < 1.1 / IDLE_SHARE as f64, "{share}");
    world.queues[250].waiting.push_back(world.now);
    world.run(5 * MS);
    let q = &world.queues[250];
    assert!(q.received == 1 && q.longest_wait < 3 * MS, "{} us", q.longest_wait / US);
}

#[test]
fn a_guests_packets_are_met_in_bursts_and_a_ping_is_not_kept_waiting() {
    // A packet every 0.5 us at 200 cycles: the worker has four fifths of its time to spare.
    let load = |is_guests, every| vec![Load { every, cost: 200, is_guests, ..Load::default() }];
    let per_burst = |is_guests| {
        let mut world = World::new(1, load(is_guests, 1_000), vec![Output::default()]);
        world.run(20 * MS);
        let q = &world.queues[0];
        assert_eq!(q.lost, 0);
        q.received / q.bursts
    };
    assert!(per_burst(true) >= GATHERED_MIN && per_burst(false) < 2, "{}", per_burst(true));
    // One packet, its answer, the next: hardly one in a thousand waits.
    let mut world = World::new(1, load(true, 30 * US), vec![Output::default()]);
    world.run(200 * MS);
    assert!(world.queues[0].longest_wait <= COALESCE_US * US + WAKE && world.slept.len() < 3);
}

#[test]
fn who_feeds_a_full_output_alone_is_held_back_and_others_lose_nothing() {
    // One guest takes a packet every 0.8 us, of which its source offers one every 0.2; another source feeds
    // another output.
    let slow = Output { every: 8 * US / 10, ..Output::default() };
    let of = |output, every| Load { every, cost: 200, output, ..Load::default() };
    let mut world = World::new(1, vec![of(0, 400), of(1, 1_000)], vec![slow, Output::default()]);
    world.run(50 * MS);
    let (fed, other) = (&world.queues[0], &world.queues[1]);
    assert_eq!((other.lost, world.outputs[1].refused), (0, 0));
    // 62,500 packets pass in that time; without being held back 250,000 were received, and three of four
    // refused.
    assert!(fed.received - world.outputs[0].refused > 60_000, "{}", fed.received);
    assert!(world.outputs[0].refused * 10 < fed.received, "{} refused", world.outputs[0].refused);
}

#[test]
fn it_sleeps_after_its_time_and_sooner_where_sleeps_are_long() {
    let mut world = World::new(1, vec![Load { cost: 100, ..Load::default() }], vec![Output::default()]);
    world.run(WAKE + 61 * US);
    assert_eq!(world.slept.len(), 1);
    let woke = world.schedule.idle_since;
    assert!(world.schedule.may_sleep(woke + SHORT_SPIN_US * US + 1), "the last sleep was a long one");
    world.schedule.woke(woke + LONG_IDLE_US * US);
    let woke = world.schedule.idle_since;
    assert!(
        !world.schedule.may_sleep(woke + SPIN_US * US) && world.schedule.may_sleep(woke + SPIN_US * US + 1)
    );
}

#[test]
fn packets_that_polling_does_not_meet_are_slept_for() {
    let load = Load { every: 100 * US, cost: 3_000, ..Load::default() };
    let mut world = World::new(1, vec![load], vec![Output::default()]);
    world.wake = 15 * US;
    world.run(100 * MS);
    let slept: u64 = world.slept.iter().sum();
    assert!(slept > 80 * MS && world.queues[0].longest_wait < 2 * world.wake, "{} us", slept / US);
}

#[test]
fn after_packets_of_guests_it_lingers_for_a_share_of_their_time_and_no_longer_than_the_most() {
    for (is_guests, work_ms, linger_us) in [(false, 20, 0), (true, 8, 1_000), (true, 200, LINGER_MAX_US)] {
        let mut load = Load { every: 400, cost: 400, is_guests, ..Load::default() };
        load.waiting.push_back(1_000 * MS);
        let mut world = World::new(1, vec![load], vec![Output::default()]);
        world.run(work_ms * MS);
        world.queues[0].every = 0;
        world.run(MS / 2);
        let Schedule { idle_since, linger, .. } = world.schedule;
        let wanted = linger_us * US;
        assert!(
            linger <= wanted * 101 / 100 && linger >= wanted * 9 / 10,
            "{work_ms} ms: {} us",
            linger / US
        );
        assert!(!world.schedule.may_sleep(idle_since + linger) || linger == 0);
    }
}

#[test]
fn a_full_ring_that_a_wake_up_finds_is_drained_at_once() {
    let load = Load { cost: 200, is_guests: true, ..Load::default() };
    let mut world = World::new(1, vec![load], vec![Output::default()]);
    for _ in 0..10 {
        world.run(MS);
        let began = world.now;
        world.queues[0].waiting = (0..RING).map(|_| began).collect();
        world.run(40 * US);
        let q = &world.queues[0];
        // Coalescing would take longer than all its bursts.
        assert!(q.waiting.is_empty() && q.longest_wait < RING as u64 * (200 + 10), "{}", q.longest_wait);
    }
}
