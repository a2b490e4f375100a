//! Completion scripts for bash, zsh and fish, by clap_complete.
//!
//! The stock names do not parse with clap; their tables are turned into a [`clap::Command`] that is only ever
//! completed.

use clap::{Arg, ArgAction, Command, ValueHint};
use clap_complete::Shell;
use host::manual::{Flag, Manual};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::iter;

/// The script for a program.
pub fn script(shell: Shell, mut command: Command) -> Vec<u8> {
    let name = command.get_name().to_string();
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut command, name.clone(), &mut out);
    if shell == Shell::Fish {
        out.extend(fish_operands(&name, &command).into_bytes());
    }
    out
}

/// What clap_complete leaves out for fish: the values of operands, of a subcommand and of one of its own.
fn fish_operands(name: &str, command: &Command) -> String {
    let word = name.replace('-', "_");
    let mut lines = String::new();
    for sub in command.get_subcommands() {
        let at = format!("__fish_{word}_using_subcommand {}", sub.get_name());
        let below = sub
            .get_subcommands()
            .map(|one| (format!("{at}; and __fish_seen_subcommand_from {}", one.get_name()), one));
        for (condition, command) in iter::once((at.clone(), sub)).chain(below) {
            let values = command.get_positionals().flat_map(|operand| operand.get_possible_values());
            let values: Vec<String> = values.map(|value| value.get_name().to_string()).collect();
            if !values.is_empty() {
                let _ =
                    writeln!(lines, "complete -c {name} -n \"{condition}\" -f -a \"{}\"", values.join(" "));
            }
        }
    }
    lines
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
