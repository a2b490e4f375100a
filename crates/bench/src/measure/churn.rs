//! Change under traffic: rules come and go, all rules are replaced at once, idle flows expire.
//!
//! The traffic is a source in memory at full speed over 100,000 flows, one exact rule for each. Throughput is
//! packets per second of the worker's own CPU time, in ratio to the same rig's steady state just before.

use crate::machine::turns::{self, turn};
use crate::machine::watch::Watch;
use crate::measure::frames::{Order, add_exact_rules, exact_match, write_pcap};
use crate::measure::rig::{Rig, settle};
use crate::measure::trial::{self, Common, Goals, Meter, SINK, SOURCE, per_cpu_second};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::{Failure, count, up_to};
use datapath::{CacheConfig, Config};
use flow::{Action, Match};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use switch::control::{Command, FlowMod};

/// Length of the windows in which throughput is measured.
const WINDOW: Duration = Duration::from_millis(100);

/// Arguments of `churn`.
#[derive(clap::Args)]
pub struct ChurnArgs {
    /// Flows with traffic.
    #[arg(long, value_parser = count, default_value = "100k")]
    flows: usize,
    /// Flow-mods per second.
    #[arg(long, value_parser = up_to::<100_000_000>, default_value = "1k")]
    rate: usize,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `replace`.
#[derive(clap::Args)]
pub struct ReplaceArgs {
    /// Rules that are replaced at once.
    #[arg(long, value_parser = count, default_value = "1m")]
    rules: usize,
    /// Flows with traffic.
    #[arg(long, value_parser = count, default_value = "100k")]
    flows: usize,
    #[command(flatten)]
    common: Common,
}

/// Arguments of `expiry`.
#[derive(clap::Args)]
pub struct ExpiryArgs {
    /// Flows in the cache.
    #[arg(long, value_parser = count, default_value = "1m")]
    flows: usize,
    /// Flows with traffic; the others expire.
    #[arg(long, value_parser = count, default_value = "100k")]
    active: usize,
    /// When they expire, in milliseconds.
    #[arg(long, default_value_t = 5_000, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    max_idle_ms: u32,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    rules: usize,
    flows: usize,
    /// Flow-mods per second that were asked for, and those that were made.
    flow_mods_per_s: usize,
    flow_mods_made_per_s: f64,
    steady_cycles_per_packet: f64,
    cycles_per_packet: f64,
    /// Throughput under change in ratio to steady state.
    throughput_ratio: f64,
    /// The same in the worst window of 100 ms.
    worst_window_ratio: f64,
    /// The most CPU time that a pass of the worker's loop took.
    longest_pass_ms: f64,
    /// The same in steady state, watched for as long: what the machine itself adds (a hypervisor that takes
    /// the processor away is charged to the thread), and under which no pass can be measured.
    steady_longest_pass_ms: f64,
    /// Share of the packets that were translated (`churn` alone): flows that a change was taken to touch.
    miss_ratio: f64,
    runs: u32,
    /// Each turn's throughput ratio, and the same for other figures.
    raw: Vec<f64>,
    raw_cycles: Vec<f64>,
    raw_worst_window_ratio: Vec<f64>,
}

/// One turn of any of the three.
struct Turn {
    steady: f64,
    changing: f64,
    worst_window: f64,
    longest_pass_ms: f64,
    steady_longest_pass_ms: f64,
    mods_per_s: f64,
    miss_ratio: f64,
}

fn row(what: &'static str, rules: usize, flows: usize, rate: usize, turns: &[Turn]) -> Row {
    let each = |f: fn(&Turn) -> f64| turns.iter().map(f).collect::<Vec<_>>();
    let of = |f| median(&each(f));
    let raw = each(|t| t.steady / t.changing);
    let row = Row {
        switch: "crosspoint",
        what,
        rules,
        flows,
        flow_mods_per_s: rate,
        flow_mods_made_per_s: of(|t| t.mods_per_s),
        steady_cycles_per_packet: of(|t| t.steady),
        cycles_per_packet: of(|t| t.changing),
        throughput_ratio: median(&raw),
        worst_window_ratio: of(|t| t.steady / t.worst_window),
        miss_ratio: of(|t| t.miss_ratio),
        longest_pass_ms: turns.iter().map(|t| t.longest_pass_ms).fold(0.0, f64::max),
        steady_longest_pass_ms: turns.iter().map(|t| t.steady_longest_pass_ms).fold(0.0, f64::max),
        runs: turns.len() as u32,
        raw,
        raw_cycles: each(|t| t.changing),
        raw_worst_window_ratio: each(|t| t.steady / t.worst_window),
    };
    println!(
        "{what}: {:.1} cycles/packet, steady {:.1}: throughput {:.3}, in the worst window {:.3}; longest pass {:.3} ms, steady {:.3}; {:.0} flow-mods/s, {:.5} missed",
        row.cycles_per_packet,
        row.steady_cycles_per_packet,
        row.throughput_ratio,
        row.worst_window_ratio,
        row.longest_pass_ms,
        row.steady_longest_pass_ms,
        row.flow_mods_made_per_s,
        row.miss_ratio
    );
    row
}

/// A rig with an exact rule for each of `rules` flows.
fn rig(rules: usize, config: Config) -> Result<Rig, String> {
    let mut rig = Rig::new(config)?;
    rig.add_port(&trial::sink(SINK))?;
    add_exact_rules(&mut rig, rules)?;
    Ok(rig)
}

/// Measures in windows while `change` runs on this thread, and then until `done`. Returns the cost overall,
/// and that of the worst window.
fn watch(rig: &mut Rig, change: impl FnOnce(&mut Rig) + Send, until: impl Fn() -> bool + Sync) -> (f64, f64) {
    // The reading thread needs the worker's counters only, which live as long as the worker.
    let stats = rig.datapath.shared_worker_stats(0);
    let thread_id = rig.datapath.worker_thread_id(0);
    let changed = AtomicBool::new(false);
    let start = Meter::of(&stats, thread_id);
    let measure = || {
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let (mut worst, mut last) = (0.0f64, start);
                while !(changed.load(Ordering::Acquire) && until()) {
                    std::thread::sleep(WINDOW);
                    let now = Meter::of(&stats, thread_id);
                    worst = worst.max(now.since(&last).cycles_per_packet);
                    last = now;
                }
                (last.since(&start).cycles_per_packet, worst)
            });
            change(rig);
            changed.store(true, Ordering::Release);
            watcher.join().expect("the watcher does not panic")
        })
    };
    turn("crosspoint", measure)
}

fn take_longest_pass_ms(rig: &Rig) -> f64 {
    let longest = &rig.datapath.worker_stats(0).longest_pass_ns;
    let ms = longest.get() as f64 / 1e6;
    longest.set(0);
    ms
}

/// `churn`: rules of other flows are added and deleted all the time.
pub fn run_churn(args: &ChurnArgs) -> Result<(), String> {
    let dir = TempDir::new("churn")?;
    let pcap = dir.0.join("flows.pcap");
    write_pcap(&pcap, args.flows, Order::Shuffled)?;
    let mut rig = rig(args.flows, Config { measure_passes: true, ..Config::default() })?;
    rig.add_port(&trial::source(SOURCE, &pcap))?;
    rig.warm_up(settle(3_000, args.common.turn_ms));
    let mut turns = Vec::new();
    for _ in 0..args.common.runs {
        take_longest_pass_ms(&rig);
        let steady = rig.measure(args.common.turn()).cycles_per_packet;
        let steady_longest_pass_ms = take_longest_pass_ms(&rig);
        let watch = Watch::start(&[std::process::id()]);
        let before = Meter::read(&rig);
        let (mut made, start) = (0usize, Instant::now());
        let (mut window, mut worst) = ((start, before), 0.0f64);
        while start.elapsed() < args.common.turn() {
            let due = (start.elapsed().as_secs_f64() * args.rate as f64) as usize + 1;
            // A rate that cannot be had must not be made up for when the turn is over.
            while made < due && start.elapsed() < args.common.turn() {
                // Added, and deleted a hundred later: each a flow-mod on its own, a version on its own.
                let other = args.flows + 1_000_000 + (made / 2) % 100;
                let add = FlowMod::add(exact_match(other), trial::to_sink());
                let command =
                    if (made / 200).is_multiple_of(2) { Command::Add } else { Command::DeleteStrict };
                let now_ms = rig.datapath.now_ms();
                let flow_mod = FlowMod { command, ..add };
                rig.control.flow_mod(rig.bridge, &flow_mod, now_ms).map_err(|e| format!("{e:?}"))?;
                made += 1;
            }
            rig.pump();
            std::thread::sleep(Duration::from_micros(500));
            if window.0.elapsed() >= WINDOW {
                let now = Meter::read(&rig);
                worst = worst.max(now.since(&window.1).cycles_per_packet);
                window = (Instant::now(), now);
            }
        }
        let sample = Meter::read(&rig).since(&before);
        let changing = sample.cycles_per_packet;
        turns.push(Turn {
            steady,
            changing,
            worst_window: worst.max(changing),
            longest_pass_ms: take_longest_pass_ms(&rig),
            steady_longest_pass_ms,
            mods_per_s: made as f64 / start.elapsed().as_secs_f64(),
            miss_ratio: sample.miss_ratio,
        });
        turns::note("crosspoint", watch.end());
    }
    let row = row("churn", args.flows, args.flows, args.rate, &turns);
    let mut goals = Goals::default();
    goals.at_least("throughput under rule changes", &row.raw, crate::goals::CHURN_LEAST);
    goals.at_least("flow-mods made per second", &[row.flow_mods_made_per_s], args.rate as f64 * 0.95);
    args.common.finish([row].into_iter().collect(), goals)
}

/// `replace`: one batch deletes all rules and adds as many with other actions.
pub fn run_replace(args: &ReplaceArgs) -> Result<(), Failure> {
    if args.flows > args.rules {
        return Err(Failure::Usage("--flows: at most as many as --rules".into()));
    }
    let dir = TempDir::new("replace")?;
    let pcap = dir.0.join("flows.pcap");
    write_pcap(&pcap, args.flows, Order::Shuffled)?;
    let mut rig = rig(args.rules, Config { measure_passes: true, ..Config::default() })?;
    rig.add_port(&trial::source(SOURCE, &pcap))?;
    rig.warm_up(settle(3_000, args.common.turn_ms));
    let mut turns = Vec::new();
    // About what a replacement takes with the second after it: the passes of steady state are watched for as
    // long.
    let mut as_long = args.common.turn().max(settle(4_000, args.common.turn_ms));
    for turn in 0..args.common.runs {
        take_longest_pass_ms(&rig);
        let steady = rig.measure(as_long).cycles_per_packet;
        let steady_longest_pass_ms = take_longest_pass_ms(&rig);
        let mods = replacement(args.rules, turn);
        let mut result = Ok(());
        let settled_at = std::sync::Mutex::new(None::<Instant>);
        let start = Instant::now();
        let (changing, worst_window) = watch(
            &mut rig,
            |rig| {
                result = rig.add_rules(&mods);
                *settled_at.lock().expect("no panic while held") = Some(Instant::now());
            },
            // The cost after the change counts too: flows are translated again as their packets arrive.
            || {
                let at = *settled_at.lock().expect("no panic while held");
                at.is_some_and(|at| at.elapsed() > Duration::from_secs(1))
            },
        );
        result?;
        as_long = start.elapsed();
        println!(
            "    {} rules replaced, with a second after it, in {:.2} s",
            args.rules,
            as_long.as_secs_f64()
        );
        turns.push(Turn {
            steady,
            changing,
            worst_window,
            longest_pass_ms: take_longest_pass_ms(&rig),
            steady_longest_pass_ms,
            mods_per_s: mods.len() as f64 / start.elapsed().as_secs_f64(),
            miss_ratio: 0.0,
        });
        drop(mods);
        rig.warm_up(Duration::from_secs(1));
    }
    let row = row("replace", args.rules, args.flows, 0, &turns);
    let mut goals = Goals::default();
    goals.at_least("throughput while all rules are replaced", &row.raw, crate::goals::REPLACE_LEAST);
    let passes: Vec<f64> = turns.iter().map(|t| t.longest_pass_ms).collect();
    goals.never_above("longest pass in ms of CPU time", &passes, crate::goals::PASS_MOST_MS);
    Ok(args.common.finish([row].into_iter().collect(), goals)?)
}

/// All rules are deleted and added again, with the same outputs but a mark.
fn replacement(rules: usize, turn: u32) -> Vec<FlowMod> {
    let mut mods = Vec::with_capacity(rules + 1);
    mods.push(FlowMod::delete(Match::any()));
    let mark =
        Action::SetField { field: flow::Mf::Reg(0), value: u128::from(turn) + 1, mask: u32::MAX.into() };
    for n in 0..rules {
        let actions = std::iter::once(mark.clone()).chain(trial::to_sink()).collect();
        mods.push(FlowMod::add(exact_match(n), actions));
    }
    mods
}

/// `expiry`: most flows of a full cache become idle, and expire.
pub fn run_expiry(args: &ExpiryArgs) -> Result<(), Failure> {
    if args.active >= args.flows {
        return Err(Failure::Usage("--active: fewer than --flows".into()));
    }
    let dir = TempDir::new("expiry")?;
    let (all, active) = (dir.0.join("all.pcap"), dir.0.join("active.pcap"));
    write_pcap(&all, args.flows, Order::Shuffled)?;
    write_pcap(&active, args.active, Order::Shuffled)?;
    let cache = CacheConfig { max_idle_ms: args.max_idle_ms, ..CacheConfig::default() };
    let mut rig = rig(args.flows, Config { cache, measure_passes: true, ..Config::default() })?;
    let mut turns = Vec::new();
    for _ in 0..args.common.runs {
        rig.add_port(&trial::source(SOURCE, &all))?;
        rig.warm_up(settle(2_000, args.common.turn_ms));
        rig.detach(SOURCE)?;
        rig.add_port(&trial::source(SOURCE, &active))?;
        turns.push(one_expiry(&mut rig, args)?);
        rig.detach(SOURCE)?;
    }
    let row = row("expiry", args.flows, args.active, 0, &turns);
    let mut goals = Goals::default();
    goals.at_least("throughput while flows expire", &row.raw, crate::goals::EXPIRY_LEAST);
    Ok(args.common.finish([row].into_iter().collect(), goals)?)
}

/// Compares the windows in which the caches shrink with those after it, when only active flows are left.
fn one_expiry(rig: &mut Rig, args: &ExpiryArgs) -> Result<Turn, String> {
    let flows = |rig: &Rig| {
        let stats = rig.datapath.worker_stats(0);
        stats.megaflows.get() + stats.exact_entries.get()
    };
    rig.warm_up(Duration::from_millis(u64::from(args.max_idle_ms / 2)));
    take_longest_pass_ms(rig);
    let full = flows(rig);
    let deadline = Instant::now() + Duration::from_millis(u64::from(args.max_idle_ms) + 60_000);
    let watch = Watch::start(&[std::process::id()]);
    let (mut last_flows, mut last) = (full, Meter::read(rig));
    let (mut began, mut ended, mut worst, mut quiet) = (None, last, 0.0f64, 0);
    // Over when nothing has gone for a second.
    while quiet < 10 {
        rig.run_for(WINDOW);
        let (now_flows, now) = (flows(rig), Meter::read(rig));
        if now_flows + 100 < last_flows {
            began.get_or_insert(last);
            worst = worst.max(now.since(&last).cycles_per_packet);
            (ended, quiet) = (now, 0);
        } else if began.is_some() {
            quiet += 1;
        }
        (last_flows, last) = (now_flows, now);
        if Instant::now() > deadline {
            return Err(format!("{full} flows were cached, and after their time {now_flows} are"));
        }
    }
    let Some(began) = began else { return Err("no flow expired".into()) };
    turns::note("crosspoint", watch.end());
    let longest_pass_ms = take_longest_pass_ms(rig);
    let steady = rig.measure(args.common.turn()).cycles_per_packet;
    let steady_longest_pass_ms = take_longest_pass_ms(rig);
    println!(
        "    {full} entries, then {last_flows}; {:.0} packets/s of CPU time after it",
        per_cpu_second(steady)
    );
    Ok(Turn {
        steady,
        changing: ended.since(&began).cycles_per_packet,
        worst_window: worst,
        longest_pass_ms,
        steady_longest_pass_ms,
        mods_per_s: 0.0,
        miss_ratio: 0.0,
    })
}
