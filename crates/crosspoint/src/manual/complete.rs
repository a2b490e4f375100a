//! Completion scripts for bash, zsh and fish, by clap_complete.
//!
//! The stock names do not parse with clap; their tables are turned into a [`clap::Command`] that is only ever
//! completed.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use host::manual::{Flag, Manual};
use std::collections::BTreeSet;

/// The script for a program.
pub fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_string();
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut out);
    out
}

/// A program as clap would parse it.
pub fn command(name: &str, manual: &Manual) -> Command {
    let manual = manual.clone().resolved(name);
    let mut command = Command::new(name.to_string())
        .about(manual.brief.clone())
        .disable_help_flag(true)
        .disable_version_flag(true)
        .disable_help_subcommand(true);
    let mut seen = BTreeSet::new();
    for flag in manual.options.iter().flat_map(|group| &group.rows) {
        if seen.insert(flag.long.clone()) {
            command = command.arg(arg(flag));
        }
    }
    let mut seen = BTreeSet::new();
    for row in manual.commands.iter().flat_map(|group| &group.rows) {
        // `[-m]... show-log [DB]`: options may stand before the command.
        let Some(word) = row.usage.split_whitespace().find(|word| !word.starts_with(['[', '-'])) else {
            continue;
        };
        if seen.insert(word.to_string()) {
            let rest = Arg::new("rest").num_args(0..).value_hint(ValueHint::AnyPath);
            let sub = Command::new(word.to_string()).about(row.what.clone()).disable_help_flag(true);
            command = command.subcommand(sub.arg(rest));
        }
    }
    if seen.is_empty() {
        command = command.arg(Arg::new("rest").num_args(0..).value_hint(ValueHint::AnyPath));
    }
    command
}

fn arg(flag: &Flag) -> Arg {
    let mut arg = Arg::new(flag.long.clone()).long(flag.long.clone()).help(flag.help.clone());
    if let Some(letter) = flag.short {
        arg = arg.short(letter);
    }
    if flag.arg.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    let hint =
        if flag.arg.contains("FILE") || flag.arg == "SOCKET" { ValueHint::AnyPath } else { ValueHint::Other };
    arg = arg.value_name(flag.arg.clone()).value_hint(hint);
    if flag.is_optional { arg.num_args(0..=1).require_equals(true) } else { arg }
}
