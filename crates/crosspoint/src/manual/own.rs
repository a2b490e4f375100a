//! Manuals of `crosspoint` itself and of the subcommands that clap parses.

use crate::programs::PROGRAMS;
use clap::{Arg, ArgAction, Command};
use host::manual::{Entry, Flag, Group, Manual, examples};
use host::program;
use std::fmt::Write;

/// The subcommands by what they are for, as `crosspoint --help` lists them.
const GROUPS: &[(&str, &[&str])] = &[
    ("Daemons", &["switch", "ovsdb-server"]),
    ("Configure and inspect a running switch", &["vsctl", "ofctl", "appctl", "dpctl", "top"]),
    ("Databases", &["check", "ovsdb-client", "ovsdb-tool"]),
    ("Try and measure", &["demo", "guest", "bench", "doctor"]),
    ("Packaging", &["generate"]),
];

/// Examples of the subcommands that clap parses.
const EXAMPLES: &[(&str, &[(&str, &str)])] = &[
    (
        "switch",
        &[
            (
                "crosspoint switch --detach --pidfile",
                "Serve the database in conf.db and run the switch that it describes.",
            ),
            (
                "crosspoint switch --bridge br0 --port eth1,type=system --port eth2,type=system",
                "Run one bridge with two ports and no database.",
            ),
            (
                "crosspoint switch unix:/run/openvswitch/db.sock",
                "Follow a database that another server serves.",
            ),
        ],
    ),
    (
        "check",
        &[("crosspoint check /etc/openvswitch/conf.db", "List the settings that have no effect here.")],
    ),
    (
        "top",
        &[
            ("crosspoint top", "Watch workers, queues, ports and drops, once a second."),
            ("crosspoint top --once", "Print one sample and exit, for scripts."),
        ],
    ),
    (
        "bench",
        &[
            ("crosspoint bench list", "Name the suites, and the question that each answers."),
            ("crosspoint bench run --help", "Show the options of one command."),
        ],
    ),
    (
        "bench run",
        &[
            ("crosspoint bench run p2p pvp --out results", "Run two suites and draw results/report.html."),
            ("crosspoint bench run restart.guest", "Run one step of a suite."),
            ("crosspoint bench run all --quick --out check", "Show that everything runs, in seconds a step."),
            (
                "crosspoint bench run load-curve --switch crosspoint --switch ovs-dpdk --turns 7",
                "Measure two switches in turns.",
            ),
            (
                "crosspoint bench run traffic --traffic tcp-syn+l4+zipf --switch crosspoint@target/old",
                "Offer other traffic to another build.",
            ),
            ("crosspoint bench run p2p pvp --out results --resume", "Go on after an interruption."),
        ],
    ),
    (
        "bench report",
        &[
            ("crosspoint bench report results other-results", "Draw two runs in one report."),
            (
                "crosspoint bench report --markdown BENCHMARKS.md results",
                "Write where Crosspoint wins and loses, and every figure, as text.",
            ),
        ],
    ),
    (
        "bench compare",
        &[
            ("crosspoint bench compare results other-results", "Judge one run by another."),
            (
                "crosspoint bench compare target/old target/new",
                "Run two builds in turns, and judge the second.",
            ),
        ],
    ),
    (
        "bench goals",
        &[("crosspoint bench goals results", "Print each goal of the project beside its figure.")],
    ),
    (
        "bench p2p",
        &[
            (
                "crosspoint bench p2p --rules exact --flows 1,1k,100k",
                "Measure the cost of a packet by number of flows.",
            ),
            (
                "crosspoint bench p2p --peer ovs-dpdk --runs 7 --json p2p.json",
                "Measure Open vSwitch with DPDK in turns with this switch, and keep the rows.",
            ),
        ],
    ),
    (
        "bench pvp",
        &[
            (
                "crosspoint bench pvp --guest builtin --sizes 64,1518 --flows 10,1k",
                "Measure the way through a guest, without DPDK.",
            ),
            ("crosspoint bench pvp --loss 0", "Search the highest rate without loss."),
        ],
    ),
    (
        "doctor",
        &[
            ("crosspoint doctor", "List what slows a switch down here, the most costly first."),
            ("crosspoint doctor --json", "Print the same as JSON, for programs."),
        ],
    ),
    ("demo", &[("crosspoint demo", "Send real traffic through a switch between two namespaces, as root.")]),
    (
        "guest",
        &[(
            "crosspoint guest /var/run/openvswitch/vm0",
            "Attach to a port of type dpdkvhostuser, and loop its packets back.",
        )],
    ),
    (
        "generate",
        &[
            (
                "crosspoint generate completion bash ovs-vsctl > /etc/bash_completion.d/ovs-vsctl",
                "Install completion for one name.",
            ),
            (
                "crosspoint generate man crosspoint-top | man -l -",
                "Read a manual page that is not installed.",
            ),
        ],
    ),
];

/// The command line of `crosspoint`, with grouped help and examples. `cli` is as clap derives it, here and
/// below.
pub fn cli(mut cli: Command) -> Command {
    for (path, _) in EXAMPLES {
        let rows = examples(&examples_of(path)).trim_start().to_string();
        cli = with_help(cli, path, rows);
    }
    let help = main_help(&cli);
    cli.override_help(help)
}

/// A command whose subcommand, by the names on the way to it, has this below its help.
fn with_help(command: Command, path: &str, rows: String) -> Command {
    match path.split_once(' ') {
        Some((name, rest)) => command.mut_subcommand(name, |sub| with_help(sub, rest, rows)),
        None => command.mut_subcommand(path, |sub| sub.after_help(rows)),
    }
}

/// `crosspoint` and all subcommands as clap would parse them, for completion.
pub fn completed(cli: &Command) -> Command {
    let completed = |sub: &Command| match PROGRAMS.iter().find(|program| program.subcommand == sub.get_name())
    {
        Some(program) => super::complete::command(program.subcommand, &(program.manual)()),
        None if sub.get_name() == "bench" => crate::bench::completed(sub.clone()),
        None => sub.clone(),
    };
    let subcommands = visible(cli).map(completed).map(|sub| without_hidden(&sub));
    Command::new(cli.get_name().to_string()).version(program::VERSION).subcommands(subcommands)
}

/// A command without its hidden subcommands, which clap_complete would offer.
fn without_hidden(command: &Command) -> Command {
    if command.get_subcommands().all(|sub| !sub.is_hide_set()) {
        return command.clone();
    }
    let about = command.get_about().cloned().unwrap_or_default();
    let name = command.get_name().to_string();
    Command::new(name)
        .about(about)
        .args(command.get_arguments().cloned())
        .subcommands(visible(command).cloned())
}

/// The page of `crosspoint` itself.
pub fn main_manual(cli: &Command) -> Manual {
    let mut manual = Manual::new("a virtual switch that takes the place of Open vSwitch", &["COMMAND [ARG...]"])
        .about(
            "Crosspoint forwards packets between physical interfaces, virtual machines and the host, in user space. \
             It is configured and controlled as Open vSwitch is: by its database, its tools and OpenFlow.\n\
             Called through a symbolic link by a stock name, such as ovs-vsctl, it is that program.\n\
             OVS_RUNDIR, OVS_DBDIR, OVS_LOGDIR and OVS_SYSCONFDIR move the directories, as with Open vSwitch.",
        )
        .examples(&[
            ("crosspoint switch --detach", "Start a switch with a database of its own."),
            ("crosspoint vsctl add-br br0 -- add-port br0 eth1", "Add a bridge with a port."),
            ("crosspoint help vsctl", "Show the help of a command."),
        ]);
    for (title, rows) in grouped(cli) {
        manual = manual.commands(title, rows);
    }
    manual
}

/// The name and manual of every subcommand that clap parses.
pub fn subcommands(cli: &Command) -> Vec<(String, Manual)> {
    let is_stock = |sub: &&Command| PROGRAMS.iter().any(|program| program.subcommand == sub.get_name());
    visible(cli)
        .filter(|sub| !is_stock(sub))
        .map(|sub| (format!("crosspoint-{}", sub.get_name()), of(sub)))
        .collect()
}

fn of(command: &Command) -> Manual {
    let mut manual = Manual::new(&phrase(command), &["[OPTIONS]"]);
    if let Some(long) = command.get_long_about() {
        manual.about = long.to_string().replace("\n\n", "\n");
    }
    let subs: Vec<&Command> = visible(command).filter(|sub| sub.get_name() != "help").collect();
    if !subs.is_empty() {
        manual.usage = vec!["COMMAND [OPTIONS]".into()];
        let rows = subs.iter().map(|sub| (sub.get_name().to_string(), phrase(sub)));
        manual = manual.commands("Commands", rows);
    }
    let operands: Vec<String> = command.get_positionals().map(operand).collect();
    if !operands.is_empty() {
        manual.usage = vec![format!("[OPTIONS] {}", operands.join(" "))];
    }
    push_options(&mut manual, "Options", command);
    for sub in subs {
        push_options(&mut manual, &format!("Options of {}", sub.get_name()), sub);
    }
    manual.examples = examples_of(command.get_name());
    for sub in visible(command) {
        manual.examples.extend(examples_of(&format!("{} {}", command.get_name(), sub.get_name())));
    }
    manual
}

fn push_options(manual: &mut Manual, title: &str, command: &Command) {
    let rows: Vec<Flag> = command.get_arguments().filter(|arg| !arg.is_hide_set()).map(flag).collect();
    if !rows.is_empty() {
        manual.options.push(Group { title: title.into(), rows });
    }
}

fn flag(arg: &Arg) -> Flag {
    let takes = arg.get_action().takes_values();
    let names = arg
        .get_value_names()
        .map(|names| names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" "));
    let arg_name = names.unwrap_or_else(|| arg.get_id().as_str().to_uppercase());
    let mut help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let possible: Vec<String> = match takes {
        true => arg.get_possible_values().iter().map(|value| value.get_name().to_string()).collect(),
        false => Vec::new(),
    };
    if !possible.is_empty() {
        let _ = write!(help, "; one of {}", possible.join(", "));
    }
    let default: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into()).collect();
    if takes && !default.is_empty() {
        let _ = write!(help, " (default: {})", default.join(","));
    }
    Flag {
        long: arg.get_long().unwrap_or_default().into(),
        short: arg.get_short(),
        arg: if takes { arg_name } else { String::new() },
        is_optional: arg.is_require_equals_set()
            && arg.get_num_args().is_some_and(|range| range.min_values() == 0),
        help,
    }
}

fn operand(arg: &Arg) -> String {
    let many = if matches!(arg.get_action(), ArgAction::Append) { "..." } else { "" };
    let name = flag(arg).arg + many;
    if arg.is_required_set() { name } else { format!("[{name}]") }
}

fn visible(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|sub| !sub.is_hide_set())
}

/// The purpose of a command, as a phrase: no capital, no full stop.
fn phrase(command: &Command) -> String {
    let text = command.get_about().map(ToString::to_string).unwrap_or_default();
    let text = text.trim_end_matches('.');
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn examples_of(name: &str) -> Vec<Entry> {
    let rows = EXAMPLES.iter().find(|(command, _)| *command == name).map_or(&[][..], |(_, rows)| rows);
    rows.iter().map(|(usage, what)| Entry { usage: usage.to_string(), what: what.to_string() }).collect()
}

fn grouped(cli: &Command) -> Vec<(&'static str, Vec<(String, String)>)> {
    let row = |name: &&str| cli.find_subcommand(name).map(|sub| (name.to_string(), phrase(sub)));
    GROUPS.iter().map(|(title, names)| (*title, names.iter().filter_map(row).collect())).collect()
}

fn main_help(cli: &Command) -> String {
    let about = cli.get_about().map(ToString::to_string).unwrap_or_default();
    let mut out = format!("{about}\n\nUsage: crosspoint COMMAND [ARG...]\n");
    for (title, rows) in grouped(cli) {
        let _ = writeln!(out, "\n{title}:");
        for (name, what) in rows {
            let _ = writeln!(out, "  {name:<14} {what}");
        }
    }
    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).collect();
    let (last, names) = names.split_last().expect("there are programs");
    let _ = write!(
        out,
        "\nOptions:\n  -h, --help     show this help\n  -V, --version  show the version\n\n\
         crosspoint help COMMAND shows the help of a command. Linked under one of these names, crosspoint acts as\n\
         that program: {}\nand {last}.\n",
        names.join(", ")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Cli;
    use clap::CommandFactory;

    #[test]
    fn the_main_help_names_every_program_that_a_link_may_be_called() {
        let help = main_help(&Cli::command());
        for program in PROGRAMS {
            assert!(help.contains(program.name), "{}", program.name);
        }
    }

    #[test]
    fn every_visible_subcommand_is_in_exactly_one_group() {
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        listed.sort_unstable();
        let cli = Cli::command();
        let mut names: Vec<&str> =
            visible(&cli).map(Command::get_name).filter(|name| *name != "help").collect();
        names.sort_unstable();
        assert_eq!(listed, names);
    }
}
