//! `crosspoint bench`: one subcommand per question.

use crate::{
    afxdp_bridge, churn, counts, fairness, generate, load_rules, masks, memory, misses, ovsdb, p2p,
    port_count, ports_config, pvp, scale, wake,
};
use clap::Subcommand;
use std::process::ExitCode;

/// Measure this switch, and others beside it.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    bench: Bench,
}

#[derive(Subcommand)]
enum Bench {
    /// From a source in memory to a sink in memory on one worker: what does a packet cost?
    P2p(p2p::Args),
    /// Through a guest: from a source in memory to a guest over vhost-user, back, and to a sink.
    Pvp(pvp::Args),
    /// Packets of ever new flows: how many can one worker translate and install per second?
    Misses(misses::Args),
    /// Many distinct masks: what does a packet cost, and which tier served it?
    Masks(masks::Args),
    /// Many idle ports beside two that carry traffic: does a packet cost more?
    Ports(port_count::Args),
    /// A configuration with many ports, and one more: how long until it is in force?
    PortsConfig(ports_config::Args),
    /// Rule changes under traffic that touch other flows: how much of the throughput stays?
    Churn(churn::ChurnArgs),
    /// All rules replaced at once under traffic: how much of the throughput stays, and does the worker stall?
    Replace(churn::ReplaceArgs),
    /// A full cache whose idle flows expire: how much does it disturb the others?
    Expiry(churn::ExpiryArgs),
    /// A port that opens new flows as fast as it can, or a guest that stops reading: what do others keep?
    Fairness(fairness::FairnessArgs),
    /// Flows that collide under a CRC: does anything degrade?
    Collide(fairness::CollideArgs),
    /// Rules and active flows: how many bytes each, and in all?
    Memory(memory::Args),
    /// Rules' counters under traffic: how late are they?
    Counts(counts::Args),
    /// Rules loaded by the stock ovs-ofctl: how long, and how much memory?
    LoadRules(load_rules::Args),
    /// The database server: transactions, monitors, start with a large file, memory, compaction.
    Ovsdb(ovsdb::Args),
    /// Between two veth pairs, against Open vSwitch and the Linux bridge: what does a packet cost the machine?
    Afxdp(afxdp_bridge::Args),
    /// Two workers: how much more do they do than one?
    Scale(scale::Args),
    /// Sleep: what does waking cost, and an idle switch?
    Wake(wake::Args),
    /// Send small UDP frames at a fixed rate (what `afxdp` runs in a namespace).
    #[command(hide = true)]
    Generate(generate::Args),
}

/// Runs a benchmark. Fails with a sentence on stderr when a rig or a peer cannot be set up, or a goal that was asked for
/// by `--assert` is missed.
pub fn run(args: Args) -> ExitCode {
    let result = match args.bench {
        Bench::P2p(args) => p2p::run(&args),
        Bench::Pvp(args) => pvp::run(&args),
        Bench::Misses(args) => misses::run(&args),
        Bench::Masks(args) => masks::run(&args),
        Bench::Ports(args) => port_count::run(&args),
        Bench::PortsConfig(args) => ports_config::run(&args),
        Bench::Churn(args) => churn::run_churn(&args),
        Bench::Replace(args) => churn::run_replace(&args),
        Bench::Expiry(args) => churn::run_expiry(&args),
        Bench::Fairness(args) => fairness::run_fairness(&args),
        Bench::Collide(args) => fairness::run_collide(&args),
        Bench::Memory(args) => memory::run(&args),
        Bench::Counts(args) => counts::run(&args),
        Bench::LoadRules(args) => load_rules::run(&args),
        Bench::Ovsdb(args) => ovsdb::run(&args),
        Bench::Afxdp(args) => afxdp_bridge::run_bench(&args),
        Bench::Scale(args) => scale::run(&args),
        Bench::Wake(args) => wake::run(&args),
        Bench::Generate(args) => generate::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosspoint bench: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A count with a suffix: `10`, `1k`, `250k`, `1m`.
pub fn count(text: &str) -> Result<usize, String> {
    let (digits, factor) = match text.to_ascii_lowercase() {
        t if t.ends_with('k') => (t[..t.len() - 1].to_string(), 1_000),
        t if t.ends_with('m') => (t[..t.len() - 1].to_string(), 1_000_000),
        t => (t, 1),
    };
    match digits.parse::<usize>() {
        Ok(n) if n > 0 => Ok(n * factor),
        _ => Err(format!("{text}: expected a number above 0, with k or m for thousands or millions")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_take_suffixes_and_refuse_nonsense() {
        assert_eq!((count("7"), count("250k"), count("1M")), (Ok(7), Ok(250_000), Ok(1_000_000)));
        assert!(count("0").is_err() && count("k").is_err() && count("-1").is_err());
    }
}
