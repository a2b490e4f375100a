//! `crosspoint bench`: one subcommand per question.

use crate::{churn, masks, misses, p2p, port_count};
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
    /// Packets of ever new flows: how many can one worker translate and install per second?
    Misses(misses::Args),
    /// Many distinct masks: what does a packet cost, and which tier served it?
    Masks(masks::Args),
    /// Many idle ports beside two that carry traffic: does a packet cost more?
    Ports(port_count::Args),
    /// Rule changes under traffic: how much of the throughput stays?
    Churn(churn::Args),
}

/// Runs a benchmark. Fails with a sentence on stderr when a rig or a peer cannot be set up, or a goal that was asked for
/// by `--assert` is missed.
pub fn run(args: Args) -> ExitCode {
    let result = match args.bench {
        Bench::P2p(args) => p2p::run(&args),
        Bench::Misses(args) => misses::run(&args),
        Bench::Masks(args) => masks::run(&args),
        Bench::Ports(args) => port_count::run(&args),
        Bench::Churn(args) => churn::run(&args),
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
