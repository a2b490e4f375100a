//! `crosspoint bench`: suites and their results, and one hidden subcommand for each measurement that suites
//! run.

use crate::lab::cable::Cable;
use crate::lab::guest::tap;
use crate::lab::switch::loops;
use crate::lab::topology::TOPOLOGIES;
use crate::lab::traffic::{pattern::Pattern, serve};
use crate::lab::{generator, guest, switch, trial};
use crate::machine::lease;
use crate::measure::{
    ablation, cache_misses, churn, conntrack, core_grid, counts, explosion, fairness, flow_mods, generate,
    kernel_datapath, learned_rules, load_rules, mac_learning, masks, memory, misses, ovsdb, p2p, pinning,
    port_count, ports_config, pvp, pvp_types, rule_to_effect, scale, wake,
};
use crate::process::MISSING;
use crate::run::Wish;
use crate::session::Session;
use crate::suite::Mode;
use crate::suite::list::suites;
use crate::trials::Wanted;
use crate::units::{Failure, now_utc};
use crate::{compare, goals, report, result, run as runner};
use clap::{Arg, Command, Subcommand};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::path::PathBuf;
use std::process::ExitCode;

/// Measure this switch, and others beside it.
///
/// Exit code: 0 for success, 1 for a regression, a missed goal or a failed step, 2 for wrong usage or where
/// nothing can be compared, 3 where this machine lacks what a suite needs. A run in which some of the
/// switches can be measured is a success: its warnings and its report name the others, with the reason.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// Name the suites and the question that each answers.
    List,
    /// Run suites, and draw the report.
    Run(RunArgs),
    /// Draw the report of runs: report.html and points.csv.
    Report(ReportArgs),
    /// Compare two runs (directories), or two builds (programs, run in turns). Exits with 1 where B is worse.
    Compare(CompareArgs),
    /// Print each goal of the project beside its figure. Exits with 1 where one is missed.
    Goals(GoalsArgs),
    /// From a source in memory to a sink in memory on one worker: what does a packet cost?
    P2p(p2p::Args),
    /// Through a guest: from a source in memory to a guest over vhost-user, back, and to a sink.
    Pvp(pvp_types::Args),
    /// Packets of ever new flows: how many can one worker translate and install per second?
    #[command(hide = true)]
    Misses(misses::Args),
    /// Many distinct masks: what does a packet cost, and which tier served it?
    #[command(hide = true)]
    Masks(masks::Args),
    /// Many idle ports beside two that carry traffic: does a packet cost more?
    #[command(hide = true)]
    Ports(port_count::Args),
    /// A configuration with many ports, and one more: how long until it is in force?
    #[command(hide = true)]
    PortsConfig(ports_config::Args),
    /// Rule changes under traffic that touch other flows: how much of the throughput stays?
    #[command(hide = true)]
    Churn(churn::ChurnArgs),
    /// All rules replaced at once under traffic: how much of the throughput stays, and does the worker stall?
    #[command(hide = true)]
    Replace(churn::ReplaceArgs),
    /// A full cache whose idle flows expire: how much does it disturb the others?
    #[command(hide = true)]
    Expiry(churn::ExpiryArgs),
    /// A port that opens new flows as fast as it can, or a guest that stops reading: what do others keep?
    #[command(hide = true)]
    Fairness(fairness::FairnessArgs),
    /// Flows that collide under a CRC: does anything degrade?
    #[command(hide = true)]
    Collide(fairness::CollideArgs),
    /// Rules and active flows: how many bytes each, and in all?
    #[command(hide = true)]
    Memory(memory::Args),
    /// Misses of the processor's caches per packet, by the number of flows.
    #[command(hide = true)]
    CacheMisses(cache_misses::Args),
    /// Rules' counters under traffic: how late are they?
    #[command(hide = true)]
    Counts(counts::Args),
    /// Rules loaded by the stock ovs-ofctl: how long, and how much memory?
    #[command(hide = true)]
    LoadRules(load_rules::Args),
    /// Rules that the action `learn` adds: how many per second?
    #[command(hide = true)]
    LearnedRules(learned_rules::Args),
    /// The database server: transactions, monitors, start with a large file, memory, compaction.
    #[command(hide = true)]
    Ovsdb(ovsdb::Args),
    /// Two workers: how much more do they do than one?
    #[command(hide = true)]
    Scale(scale::Args),
    /// 1 to n flows over 1 to n workers, in one megaflow and in one for each flow: what do they do together?
    #[command(hide = true)]
    CoreGrid(core_grid::Args),
    /// Sleep: what does waking cost, and an idle switch?
    #[command(hide = true)]
    Wake(wake::Args),
    /// Caches, exact-match tier and batches, one of them smaller at a time: what is each worth?
    #[command(hide = true)]
    Ablation(ablation::Args),
    /// A worker bound, free, contended, beside a busy sibling: what does a packet cost?
    #[command(hide = true)]
    Pinning(pinning::Args),
    /// Frames with new source addresses: how many are learned, and what does NORMAL still forward?
    #[command(hide = true)]
    MacLearning(mac_learning::Args),
    /// A rule changes under traffic: how long until a packet obeys, and until counters are told?
    #[command(hide = true)]
    RuleToEffect(rule_to_effect::Args),
    /// Flow-mods one by one, in a bundle, and replacing all rules: how many per second?
    #[command(hide = true)]
    FlowMods(flow_mods::Args),
    /// Open vSwitch's kernel datapath in user-mode-linux, beside bridge and IP forwarding there.
    #[command(hide = true)]
    KernelDatapath(kernel_datapath::Args),
    /// Few packets that each leave a mask: how much of the others' throughput is left?
    #[command(hide = true)]
    Explosion(explosion::Args),
    /// A stateful firewall, and one with source translation: what do established packets and new connections
    /// cost?
    #[command(hide = true)]
    Conntrack(conntrack::Args),
    /// A flood of new connections at one port: what do the others keep?
    #[command(hide = true)]
    Flood(conntrack::flood::Args),
    /// Send small UDP frames at a fixed rate (for tests, in a namespace).
    #[command(hide = true)]
    Generate(generate::Args),
    /// Send numbered frames and account for those that come back (what trials run in a namespace).
    #[command(hide = true)]
    Traffic(serve::Args),
    /// Send back what comes at a tap device (a guest of trials).
    #[command(hide = true)]
    TapGuest(tap::Args),
    /// Forward between interfaces with one of four I/O loops (a switch of trials).
    #[command(hide = true)]
    Loop(loops::Args),
}

#[derive(clap::Args)]
struct RunArgs {
    /// Suites (`crosspoint bench list` names them), steps of them as SUITE.STEP, or `all`.
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Seconds for each step: shows that everything runs.
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Five minutes for each fixed load, and hours for a search.
    #[arg(long)]
    full: bool,
    /// Measure this switch; default: all that are installed.
    #[arg(long, value_name = "S")]
    switch: Vec<String>,
    /// Offer traffic by this generator, in suites of trials.
    #[arg(long, value_name = "G")]
    generator: Option<String>,
    /// Offer this traffic in suites of trials: udp, tcp-syn, imix or pcap=FILE; flows that differ in l2, l3
    /// or l4; in sequential, random or zipf order; vlan, ipv6. Joined by +.
    #[arg(long, value_name = "T")]
    traffic: Option<Pattern>,
    /// Workers of each switch, and queues of each port, in suites of trials. By default one, or four in
    /// pvp-matrix, if that leaves generator and guest processors of their own.
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Turns of each load, in suites of trials: five by default, and one with --quick.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    turns: Option<u32>,
    /// In suites of trials, use these network interfaces in place of a veth pair: the generator's and the
    /// switch's, cabled to each other. Repeat it for each pair that a topology needs. They must not be in
    /// use: a trial takes them away, and gives them back without addresses and routes, and with its offloads
    /// and queues.
    #[arg(long, value_name = "GENERATOR=SWITCH")]
    nic: Vec<Cable>,
    /// Where results go. By default bench-TIME in the current directory.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Continue the run in --out, skipping what it has measured.
    #[arg(long, requires = "out")]
    resume: bool,
}

#[derive(clap::Args)]
struct ReportArgs {
    /// Directories that `run` wrote, or of bench/runs.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Where the report goes; into the first directory by default.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write the results as text in Markdown to this file, in place of the report.
    #[arg(long, value_name = "FILE", conflicts_with = "out")]
    markdown: Option<PathBuf>,
}

#[derive(clap::Args)]
struct CompareArgs {
    /// The baseline: a run or a program.
    a: PathBuf,
    /// The run or the program that is compared with it.
    b: PathBuf,
}

#[derive(clap::Args)]
struct GoalsArgs {
    /// A run.
    dir: PathBuf,
}

/// Runs a benchmark. Fails with a sentence on stderr that says what to do.
pub fn run(args: Args) -> ExitCode {
    if args.bench.is_measurement() {
        if lease::current().is_none() {
            return alone();
        }
        // Nobody would end it if its session is killed.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
    let result = match args.bench {
        Bench::List => {
            list();
            Ok(())
        }
        Bench::Run(args) => run_suites(args),
        Bench::Report(ReportArgs { dirs, markdown: Some(file), .. }) => report::markdown(&dirs, &file),
        Bench::Report(args) => {
            report::run(&args.dirs, args.out.as_deref()).map(|page| println!("{}", page.display()))
        }
        Bench::Compare(args) => compare::run(&args.a, &args.b),
        Bench::Goals(args) => print_goals(&args),
        measurement => measure(measurement).map_err(|failure| match failure {
            Failure::Check(why) if why.contains(MISSING) => Failure::Machine(why),
            failure => failure,
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("crosspoint bench: {failure}");
            ExitCode::from(failure.code())
        }
    }
}

/// Runs the measurement of this command line in another process, and a session of its own around it: so what
/// it has started ends with it, however that comes.
fn alone() -> ExitCode {
    let result = Session::open().and_then(|session| {
        let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
        session.run_shown(std::process::Command::new(program).args(std::env::args_os().skip(1)))
    });
    match result {
        Ok(status) => ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)),
        Err(why) => {
            eprintln!("crosspoint bench: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The command for completion: suites, switches and generators are values of the arguments that take them.
/// The parser leaves these to [`run`], since they may also be steps, paths and addresses.
pub fn completed(bench: Command) -> Command {
    let suites = suites().map(|suite| suite.name).chain(["all"]);
    let of = |names: Vec<&'static str>| move |arg: Arg| arg.value_parser(names.clone());
    let (suites, switches) = (of(suites.collect()), of(runner::known_switches()));
    let generators = of(generator::list::NAMES.to_vec());
    bench.mut_subcommand("run", |run| {
        run.mut_arg("names", suites).mut_arg("switch", switches).mut_arg("generator", generators)
    })
}

impl Bench {
    /// Whether it measures, which is neither work on runs nor a part of a trial.
    fn is_measurement(&self) -> bool {
        !matches!(
            self,
            Bench::List
                | Bench::Run(_)
                | Bench::Report(_)
                | Bench::Compare(_)
                | Bench::Goals(_)
                | Bench::Generate(_)
                | Bench::Traffic(_)
                | Bench::TapGuest(_)
                | Bench::Loop(_)
        )
    }
}

fn measure(bench: Bench) -> Result<(), Failure> {
    let measured = match bench {
        Bench::P2p(args) => return p2p::run(&args),
        Bench::Pvp(args) => pvp::run(&args),
        Bench::Misses(args) => misses::run(&args),
        Bench::Masks(args) => return masks::run(&args),
        Bench::Ports(args) => port_count::run(&args),
        Bench::PortsConfig(args) => ports_config::run(&args),
        Bench::Churn(args) => churn::run_churn(&args),
        Bench::Replace(args) => return churn::run_replace(&args),
        Bench::Expiry(args) => return churn::run_expiry(&args),
        Bench::Fairness(args) => fairness::run_fairness(&args),
        Bench::Collide(args) => fairness::run_collide(&args),
        Bench::Memory(args) => return memory::run(&args),
        Bench::CacheMisses(args) => cache_misses::run(&args),
        Bench::Counts(args) => counts::run(&args),
        Bench::LoadRules(args) => load_rules::run(&args),
        Bench::LearnedRules(args) => learned_rules::run(&args),
        Bench::Ovsdb(args) => ovsdb::run(&args),
        Bench::Scale(args) => scale::run(&args),
        Bench::CoreGrid(args) => core_grid::run(&args),
        Bench::Wake(args) => wake::run(&args),
        Bench::Ablation(args) => ablation::run(&args),
        Bench::Pinning(args) => pinning::run(&args),
        Bench::MacLearning(args) => mac_learning::run(&args),
        Bench::RuleToEffect(args) => rule_to_effect::run(&args),
        Bench::FlowMods(args) => flow_mods::run(&args),
        Bench::KernelDatapath(args) => kernel_datapath::run(&args),
        Bench::Explosion(args) => explosion::run(&args),
        Bench::Conntrack(args) => conntrack::run(&args),
        Bench::Flood(args) => conntrack::flood::run(&args),
        Bench::Generate(args) => generate::run(&args),
        Bench::Traffic(args) => return serve::run(&args),
        Bench::TapGuest(args) => tap::run(&args),
        Bench::Loop(args) => loops::run(&args),
        Bench::List | Bench::Run(_) | Bench::Report(_) | Bench::Compare(_) | Bench::Goals(_) => Ok(()),
    };
    measured.map_err(Failure::Check)
}

fn list() {
    let mut groups: Vec<&str> = Vec::new();
    for suite in suites() {
        if !groups.contains(&suite.group) {
            groups.push(suite.group);
        }
    }
    for group in groups {
        println!("{group}");
        for suite in suites().filter(|suite| suite.group == group) {
            println!("  {:<20} {}", suite.name, suite.question);
        }
    }
    println!("Topologies");
    for topology in TOPOLOGIES {
        println!("  {:<20} {} ({})", topology.name, topology.what, topology.direction());
    }
    println!("Switches: {}, crosspoint@PATH", switch::list::NAMES.join(", "));
    println!("Generators: {}, trex@HOST:PORT", generator::list::NAMES.join(", "));
    println!("Guests: {}", names(guest::list::GUESTS, |g| g.name()));
    println!("Trials: {}", names(trial::list::TRIALS, |t| t.name()));
}

fn names<T: ?Sized>(all: &[&T], name: impl Fn(&T) -> &'static str) -> String {
    all.iter().map(|one| name(one)).collect::<Vec<_>>().join(", ")
}

/// A number of workers for which this process has processors.
fn workers(text: &str) -> Result<usize, String> {
    let most = std::thread::available_parallelism().map_or(1, usize::from);
    let number = text.parse().ok().filter(|n| (1..=most).contains(n));
    number.ok_or_else(|| {
        format!("must be 1 to {most}, the processors that this may use (isolated ones with taskset alone)")
    })
}

fn run_suites(args: RunArgs) -> Result<(), Failure> {
    let mode = match (args.quick, args.full) {
        (true, _) => Mode::Quick,
        (_, true) => Mode::Full,
        _ => Mode::Normal,
    };
    let out = args.out.unwrap_or_else(|| PathBuf::from(format!("bench-{}", now_utc().replace(':', ""))));
    let (switches, generator, traffic) = (args.switch, args.generator, args.traffic);
    if let Some(why) = Cable::refused(&args.nic) {
        return Err(Failure::Usage(why));
    }
    let (workers, turns, cables) = (args.workers, args.turns, args.nic);
    let wanted = Wanted { switches, generator, traffic, workers, turns, cables };
    let wish = Wish { names: args.names, mode, wanted, out, resume: args.resume };
    let result = runner::run(&wish);
    // What was measured is drawn also where a step failed.
    let is_measured = !matches!(result, Err(Failure::Usage(_) | Failure::Machine(_)));
    if wish.out.join("run.json").exists() && is_measured {
        match report::run(std::slice::from_ref(&wish.out), None) {
            Ok(page) => println!("report: {}", page.display()),
            // A step that failed comes first.
            Err(why) if result.is_ok() => return Err(Failure::Check(format!("no report: {why}"))),
            Err(why) => eprintln!("no report: {why}"),
        }
    }
    result
}

fn print_goals(args: &GoalsArgs) -> Result<(), Failure> {
    let run = result::store::read(&args.dir).map_err(Failure::Usage)?;
    let held = goals::of_run(&run);
    if held.is_empty() {
        return Err(Failure::Usage(format!("{} has no point that a goal is about", args.dir.display())));
    }
    for one in &held {
        let short = crate::stats::short;
        println!("{}: {}", one.verdict, one.what);
        println!("    {} {}, bound {}, goal {}", one.figure, short(one.value), short(one.bound), one.goal);
    }
    let missing = goals::not_measured(&run).inspect(|goal| println!("not measured: {goal}")).count();
    let counts = goals::summary(&held);
    let mut text: Vec<String> = counts.iter().map(|(verdict, n)| format!("{n} {verdict}")).collect();
    text.push(format!("{missing} goals not measured"));
    println!("{}", text.join(", "));
    match counts.iter().filter(|(verdict, _)| verdict.starts_with("missed")).map(|(_, n)| n).sum() {
        0usize => Ok(()),
        missed => Err(Failure::Check(format!("{missed} goals are missed"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::suite::{Step, list::suites};
    use clap::Args as _;
    use clap::builder::ValueParser;

    /// Whether an option takes a number.
    fn is_number(parser: &ValueParser) -> bool {
        let kinds: [ValueParser; 7] = [
            clap::value_parser!(u8).into(),
            clap::value_parser!(u16).into(),
            clap::value_parser!(u32).into(),
            clap::value_parser!(u64).into(),
            clap::value_parser!(i32).into(),
            ValueParser::new(|text: &str| text.parse::<usize>().map_err(|e| e.to_string())),
            ValueParser::new(|text: &str| text.parse::<f64>().map_err(|e| e.to_string())),
        ];
        kinds.iter().any(|kind| kind.type_id() == parser.type_id())
    }

    #[test]
    fn no_option_takes_an_absurd_number() {
        let bench = Args::augment_args(Command::new("bench").no_binary_name(true));
        let mut count = 0;
        for command in bench.get_subcommands() {
            for option in command.get_arguments().filter(|arg| is_number(arg.get_value_parser())) {
                // What the runner itself passes is checked against the places that it names.
                let Some(long) = option.get_long().filter(|long| *long != "rx") else { continue };
                for value in ["-21", "1e400", "nan", "", "4294967295", "99999999999999999999", "99999999999m"]
                {
                    let words = [command.get_name(), &format!("--{long}={value}")];
                    let why = bench.clone().try_get_matches_from(words).unwrap_err();
                    assert_eq!(why.exit_code(), 2, "{words:?}");
                    let why = why.to_string();
                    let is_told = why.contains(&format!("'--{long}")) && why.contains("value");
                    assert!(is_told, "bench {words:?}: {why}");
                }
                count += 1;
            }
        }
        assert!(count > 80, "{count}");
    }

    #[test]
    fn every_suite_gives_its_measurements_arguments_that_they_take() {
        let bench = Args::augment_args(Command::new("bench").no_binary_name(true));
        let mut count = 0;
        for suite in suites() {
            for step in suite.steps {
                let Step::Measure(measure) = step else { continue };
                for mode in [Mode::Quick, Mode::Normal, Mode::Full] {
                    let words = measure.arguments(mode, true);
                    let parsed = bench.clone().try_get_matches_from(&words);
                    assert!(parsed.is_ok(), "{}: bench {words:?}: {}", suite.name, parsed.unwrap_err());
                    count += 1;
                }
            }
        }
        assert!(count > 60, "{count}");
    }
}
