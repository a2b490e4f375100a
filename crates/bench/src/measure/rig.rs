//! A switch in memory: the real control half, the real datapath with one worker, and ports without a device.

use crate::machine::conditions;
use crate::machine::huge_pages::HugePages;
use crate::machine::turns::turn;
use base::hash::HashKey;
use base::rcu::Domain;
use base::{OfPort, PortNo};
use datapath::{Config, Datapath, Event};
use packet::thread::CpuSet;
use packet::wait::Waiter;
use packet::{Pool, PoolConfig};
use std::sync::Arc;
use std::time::{Duration, Instant};
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortSpec, Switch};

/// The processor that workers and peers' threads are pinned to; the other one drives them.
pub const WORKER_CPU: usize = 1;
/// The processor of the benchmark itself.
pub const DRIVER_CPU: usize = 0;

/// Events taken in one turn.
const EVENTS_MAX: usize = 1024;
/// How often a daemon's control thread looks after its tables.
const TICK: Duration = Duration::from_millis(100);
/// Maximum CPU time for a worker to warm its caches.
pub const WARM_UP_CPU_NS_MAX: u64 = 10_000_000_000;

/// Without a miss for so long, they are warm.
pub const WARM_UP_LOOK: Duration = Duration::from_millis(200);

/// By how much the share of hits in the exact tier rises at least from look to look while it learns: it
/// learns a sixteenth of the packets that it does not know, while these are most, and looks up as few.
const LEARNING: f64 = 0.001;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Packets received.
    pub packets: u64,
    /// TSC cycles of the thread's CPU time per packet.
    pub cycles_per_packet: f64,
    /// Packets received per second of time.
    pub packets_per_wall_second: f64,
    /// Share of lookups that the exact tier answered.
    pub exact_ratio: f64,
    /// Share that the megaflow tier answered.
    pub megaflow_ratio: f64,
    /// Share that missed.
    pub miss_ratio: f64,
}

/// See the module documentation.
pub struct Rig {
    /// Workers and ports.
    pub datapath: Datapath<Switch>,
    /// Rules, MAC addresses.
    pub control: Control,
    /// The only bridge.
    pub bridge: BridgeIdx,
    /// Waits for the worker's events.
    events: Waiter,
}

/// How long caches are given to settle: as long as it takes for turns of half a second and more, less where
/// turns are so short that they show no more than that all runs.
pub fn settle(ms: u64, turn_ms: u64) -> Duration {
    Duration::from_millis(if turn_ms >= 500 { ms } else { (ms * turn_ms / 1000).max(100) })
}

/// Huge pages of 2 MB: the pool of the default size takes 32 of them.
const POOL_PAGES: usize = 40;

/// The packet memory that all rigs of this process share: pools live as long as the process.
pub fn pool() -> Result<&'static Pool, String> {
    static POOL: std::sync::OnceLock<Result<&'static Pool, String>> = std::sync::OnceLock::new();
    let make = || {
        // The peer has huge pages too, if the machine has some; the pool keeps what it takes.
        let _pages = HugePages::at_least(POOL_PAGES);
        let pool = Pool::new(PoolConfig::default()).map_err(|e| format!("packet memory: {e}"))?;
        conditions::note("crosspoint", std::process::id(), pool.burst_max());
        Ok(pool)
    };
    POOL.get_or_init(make).clone()
}

/// Has all rigs of this process receive as many packets at once as the peer does. Before the first rig.
pub fn limit_bursts(packets: usize) -> Result<(), String> {
    pool()?.limit_bursts(packets);
    conditions::note("crosspoint", std::process::id(), packets);
    Ok(())
}

impl Rig {
    /// A bridge without ports, and a worker.
    pub fn new(config: Config) -> Result<Rig, String> {
        Rig::on(config, Some(WORKER_CPU))
    }

    /// The same with the worker on this processor, or on any.
    pub fn on(config: Config, cpu: Option<usize>) -> Result<Rig, String> {
        Rig::with_bridge(config, cpu, BridgeConfig::new("br0"))
    }

    /// The same with this bridge.
    pub fn with_bridge(config: Config, cpu: Option<usize>, bridge: BridgeConfig) -> Result<Rig, String> {
        // A worker that may run anywhere would inherit the only processor of this thread.
        packet::thread::bind(0, &CpuSet::all());
        let domain = Domain::new();
        let (switch, mut control) = Control::new(domain.clone(), HashKey::random());
        let bridge = control.add_bridge(bridge);
        let mut datapath =
            Datapath::new(pool()?, switch as Arc<Switch>, domain, config).map_err(|e| e.to_string())?;
        datapath.start_worker(cpu).map_err(|e| e.to_string())?;
        packet::thread::pin(DRIVER_CPU);
        let events = Waiter::new().map_err(|e| e.to_string())?;
        events.add(datapath.event_bell().fd()).map_err(|e| e.to_string())?;
        Ok(Rig { datapath, control, bridge, events })
    }

    /// Opens a port and adds it to the bridge under the same number in both numberings.
    pub fn add_port(&mut self, spec: &ports::PortSpec) -> Result<(), String> {
        let no = spec.port_no;
        let of_port = OfPort(no.0 as u16);
        if self.control.topology().port(no).is_none() {
            let port = PortSpec::new(no, of_port, &spec.name);
            self.control.add_port(self.bridge, port).map_err(|e| format!("{e:?}"))?;
        }
        let port = ports::open(spec, self.datapath.pool()).map_err(|e| e.to_string())?;
        self.datapath.add_port(no, port).map_err(|e| e.to_string())
    }

    /// Takes a port's queues away from the worker; the bridge keeps it.
    pub fn detach(&mut self, no: PortNo) -> Result<(), String> {
        self.datapath.remove_port(no).map(drop).map_err(|e| e.to_string())
    }

    /// Adds rules, all in one version.
    pub fn add_rules(&mut self, rules: &[FlowMod]) -> Result<(), String> {
        let now_ms = self.datapath.now_ms();
        let changes = rules.iter().map(|fm| (self.bridge, fm));
        self.datapath.reserve_slots(self.control.slot_count() + rules.len() as u32);
        self.control.flow_mods(changes, now_ms).map_err(|e| format!("{e:?}"))?;
        self.datapath.reserve_slots(self.control.slot_count());
        Ok(())
    }

    /// One turn of a daemon's control thread. True if more events wait.
    pub fn pump(&mut self) -> bool {
        let now_ms = self.datapath.now_ms();
        let events = self.datapath.events(EVENTS_MAX);
        let more = events.len() == EVENTS_MAX;
        for event in events {
            match event {
                Event::Effect(effect) => self.control.apply(&[effect], now_ms),
                Event::PacketIn(packet_in) => self.datapath.free(packet_in.packet),
                Event::PortGone(_) => {}
            }
        }
        self.control.tick(now_ms);
        self.datapath.reserve_slots(self.control.slot_count());
        more
    }

    /// Runs for a while. As in a daemon, the control thread has its turn when a worker rings, and each
    /// [`TICK`]: more often would take the processor from a thread that shares it, and the peers' control
    /// threads sleep as long.
    pub fn run_for(&mut self, time: Duration) {
        let end = Instant::now() + time;
        loop {
            let more = self.pump();
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            if !more {
                // A remaining fraction of a millisecond is rounded up.
                self.events.wait(left.min(TICK).as_millis().max(1) as u32);
            }
        }
    }

    /// Runs for a while, which is a turn, and measures the worker.
    pub fn measure(&mut self, time: Duration) -> Sample {
        turn("crosspoint", || {
            let before = Meter::read(self);
            self.run_for(time);
            Meter::read(self).since(&before)
        })
    }

    /// Runs until the caches have settled: no misses for a while, and no more and more hits in the exact
    /// tier, which learns slowly where there are a million flows. It takes as long as that needs, up to
    /// some seconds of the worker's CPU time.
    pub fn warm_up(&mut self, least: Duration) {
        self.run_for(least);
        let start = Meter::read(self);
        let mut share = None;
        loop {
            let before = Meter::read(self);
            self.run_for(WARM_UP_LOOK);
            let now = Meter::read(self);
            let Sample { exact_ratio, .. } = now.since(&before);
            let is_part = 0.0 < exact_ratio && exact_ratio < 1.0;
            let is_learning = is_part && share.is_none_or(|share| exact_ratio > share + LEARNING);
            let is_warm = now.misses == before.misses && !is_learning;
            if is_warm || now.cpu_ns - start.cpu_ns > WARM_UP_CPU_NS_MAX {
                return;
            }
            if is_learning {
                // A look is too short to tell from the next one how fast that goes.
                self.run_for(4 * WARM_UP_LOOK);
            }
            share = Some(exact_ratio);
        }
    }
}

/// A worker's account at one moment.
#[derive(Clone, Copy)]
pub struct Meter {
    packets: u64,
    exact: u64,
    megaflow: u64,
    misses: u64,
    cpu_ns: u64,
    at: Instant,
}

impl Meter {
    /// Now.
    pub fn read(rig: &Rig) -> Meter {
        Meter::of(rig.datapath.worker_stats(0), rig.datapath.worker_thread_id(0))
    }

    /// Now, for a thread that has not got the rig.
    pub fn of(stats: &datapath::WorkerStats, thread_id: i32) -> Meter {
        Meter {
            packets: stats.rx.get(),
            exact: stats.exact_hits.get(),
            megaflow: stats.megaflow_hits.get(),
            misses: stats.misses.get(),
            cpu_ns: base::clock::cpu_time_ns(thread_id).unwrap_or(0),
            at: Instant::now(),
        }
    }

    /// Packets received, and those that no cache knew.
    pub fn lookups(&self) -> (u64, u64) {
        (self.packets, self.misses)
    }

    /// Packets whose hit or miss was counted since an earlier reading.
    pub fn looked_up_since(&self, before: &Meter) -> u64 {
        let looked_up = |meter: &Meter| meter.exact + meter.megaflow + meter.misses;
        looked_up(self) - looked_up(before)
    }

    /// The events since an earlier reading.
    pub fn since(&self, before: &Meter) -> Sample {
        let packets = self.packets - before.packets;
        let share = |a: u64, b: u64| (a - b) as f64 / packets.max(1) as f64;
        Sample {
            packets,
            cycles_per_packet: cycles(self.cpu_ns - before.cpu_ns) / packets.max(1) as f64,
            packets_per_wall_second: packets as f64 / (self.at - before.at).as_secs_f64(),
            exact_ratio: share(self.exact, before.exact),
            megaflow_ratio: share(self.megaflow, before.megaflow),
            miss_ratio: share(self.misses, before.misses),
        }
    }
}

/// Nanoseconds of CPU time as TSC cycles.
pub fn cycles(ns: u64) -> f64 {
    ns as f64 * base::clock::tsc_hz() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_a_processor_of_its_own_may_run_on_each() {
        // None of a worker that has not begun yet.
        let allowed = |thread: i32| {
            let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).ok()?;
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            Some(list.trim().to_string())
        };
        let everywhere = allowed(packet::thread::id()).unwrap();
        std::thread::spawn(move || {
            // The second finds this thread bound by the first.
            let rigs = [Rig::new(Config::default()).unwrap(), Rig::on(Config::default(), None).unwrap()];
            for (rig, expected) in rigs.iter().zip([WORKER_CPU.to_string(), everywhere]) {
                let start = Instant::now();
                while allowed(rig.datapath.worker_thread_id(0)).as_ref() != Some(&expected) {
                    assert!(
                        start.elapsed() < Duration::from_secs(10),
                        "the worker is not bound to {expected}"
                    );
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        })
        .join()
        .unwrap();
    }
}
