//! `crosspoint doctor`: what on this machine slows the switch down, and the commands that change it.

use host::doctor::{Finding, Machine};
use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

/// How long it watches for time that a hypervisor takes away.
const WATCH: Duration = Duration::from_secs(1);

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// Print the findings as JSON.
    #[arg(long)]
    json: bool,
}

/// Prints what it found, what costs most first. The exit code is 1 if that is anything.
pub fn run(args: &Args) -> ExitCode {
    let machine = Machine::here();
    let before = machine.ticks();
    std::thread::sleep(WATCH);
    let findings = machine.findings(before);
    if args.json {
        println!("{}", json(&findings));
    } else {
        print!("{}", text(&findings));
    }
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for (n, finding) in findings.iter().enumerate() {
        let Finding { name, measured, effect, fix } = finding;
        let _ = writeln!(out, "{}. {name}: {measured}\n   {effect}\n   Fix: {fix}", n + 1);
    }
    if findings.is_empty() {
        out += "Nothing found that would slow the switch down.\n";
    }
    out += "`crosspoint bench run calibration` measures what this machine can do. Its report begins with\n\
            what made the figures doubtful.\n";
    out
}

fn json(findings: &[Finding]) -> serde_json::Value {
    let all = findings.iter().map(
        |f| serde_json::json!({ "name": f.name, "measured": f.measured, "effect": f.effect, "fix": f.fix }),
    );
    serde_json::json!({ "version": 1, "findings": all.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_numbered_and_end_with_what_to_measure() {
        let finding = Finding {
            name: "watchdog",
            measured: "kernel.nmi_watchdog is 1".into(),
            effect: "It interrupts every processor.",
            fix: "sysctl -w kernel.nmi_watchdog=0".into(),
        };
        let text = text(std::slice::from_ref(&finding));
        assert!(text.starts_with("1. watchdog: kernel.nmi_watchdog is 1\n   It interrupts"), "{text}");
        assert!(text.contains("   Fix: sysctl -w kernel.nmi_watchdog=0\n`crosspoint bench run calibration`"));
        assert_eq!(json(&[finding])["findings"][0]["fix"], "sysctl -w kernel.nmi_watchdog=0");
    }
}
