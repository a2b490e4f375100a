//! `ovs-tcpdump`, which needs mirrors: says that it cannot capture, and how else to see packets. Without it
//! Open vSwitch's own would make a mirror that stays empty, and show nothing for ever.

use host::getopt::{Opt, Order, flag};
use host::manual::Manual;
use host::program;
use host::usage::{Usage, fail};
use std::process::ExitCode;

const OPTIONS: &[Opt] =
    &[flag("help").short('h').help("show this help"), flag("version").short('V').help("show the version")];

/// The ways that there are.
const INSTEAD: &[(&str, &str)] = &[
    (
        "tcpdump -i IFACE",
        "an interface of the kernel's, if the switch drives it by packet sockets (options:driver=af_packet)",
    ),
    ("tcpdump -i BRIDGE", "what a bridge's own port sends and receives"),
    ("ovs-appctl ofproto/trace BRIDGE FLOW", "what the switch does with a packet"),
    ("ovs-appctl crosspoint/drops", "what it drops, by reason and port"),
];

/// Runs it with the arguments that follow its name. Those of the stock program, and tcpdump's, do not matter.
pub fn run(args: &[String]) -> ExitCode {
    let asks = |arg: &&String| matches!(arg.as_str(), "-h" | "--help" | "-V" | "--version");
    let asked: Vec<String> = args.iter().filter(asks).cloned().collect();
    let help = manual().help(program::name());
    let usage = Usage { tables: &[OPTIONS], order: Order::Anywhere, help, version: &[] };
    if let Err(code) = usage.parse(&asked) {
        return code;
    }
    let ways = INSTEAD.iter().map(|(command, what)| format!("\n  {command}: {what}"));
    fail(&format!(
        "captures need mirrors, which are not implemented. Use instead{}",
        ways.collect::<String>()
    ))
}

/// Its description.
pub fn manual() -> Manual {
    Manual::new("captures packets of a port; not supported: mirrors are not implemented", &["[ARG...]"])
        .terms("Use instead", INSTEAD)
        .options("Options", &[OPTIONS])
        .examples(&[("tcpdump -i br0", "Capture what the bridge's own port sends and receives.")])
}
