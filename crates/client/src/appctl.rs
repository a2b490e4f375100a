//! `ovs-appctl`, which is `crosspoint appctl`: runs a command in a daemon, with the options, texts and exit
//! codes of the stock program.

use host::daemonize::LOGGING;
use host::getopt::{Opt, Order, flag, value};
use host::manual::Manual;
use host::program;
use host::signals::{Deadline, end_well};
use host::usage::{Usage, client_log, fail, show, take_logging, timeout};
use std::process::ExitCode;
use transport::unixctl::Client;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("target")
        .short('t')
        .arg("TARGET")
        .help("the daemon: its name, its pid file or its control socket (default: ovs-vswitchd)"),
    flag("execute").short('e').help("accepted for compatibility"),
    flag("help").short('h').help("show this help"),
    flag("option").short('o').help("list the options"),
    flag("version").short('V').help("show the version"),
    value("timeout")
        .short('T')
        .arg("SECONDS")
        .help("give up after this many seconds (default: $OVS_CTL_TIMEOUT)"),
];

/// Exit codes: 1 if the daemon could not be reached, 2 if it refused.
pub fn run(args: &[String]) -> ExitCode {
    client_log();
    let usage = Usage {
        tables: &[OPTIONS, LOGGING],
        order: Order::BeforeWords,
        help: manual().help(program::name()),
        version: &[],
    };
    let parsed = match usage.parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let (mut target, mut patience, mut executes) = ("ovs-vswitchd".to_string(), None, false);
    for (name, value) in &parsed.options {
        let given = value.as_deref().unwrap_or_default();
        let taken = match *name {
            "target" => {
                target = given.to_string();
                Ok(true)
            }
            "timeout" => timeout("-T", given).map(|t| patience = Some(t)).map(|()| true),
            // It was required once, and has no effect any more.
            "execute" if !std::mem::replace(&mut executes, true) => Ok(true),
            "execute" => Err("-e or --execute may be speciifed only once".to_string()),
            name => take_logging(name, value.as_deref()),
        };
        if let Err(error) = taken {
            return fail(&error);
        }
    }
    let Some((command, rest)) = parsed.words.split_first() else {
        return fail("at least one non-option argument is required (use --help for help)");
    };
    end_well(Deadline::new(patience));
    let reply = Client::connect(&target, None).and_then(|mut client| client.run(command, rest));
    match reply {
        Ok(Ok(text)) => {
            show(&text);
            ExitCode::SUCCESS
        }
        Ok(Err(text)) => {
            eprint!("{text}");
            eprintln!("{}: {target}: server returned an error", program::name());
            ExitCode::from(2)
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Commands that every daemon has.
const COMMON: &[(&str, &str)] = &[
    ("list-commands", "list all commands of the daemon"),
    ("version", "print the daemon's version"),
    ("vlog/list", "print log levels by module and destination"),
    ("vlog/list-pattern", "print log patterns by destination"),
    ("vlog/set SPEC...", "set log levels: [MODULE][:syslog|console|file][:off|emer|err|warn|info|dbg]"),
    ("vlog/close", "close the log file"),
    ("vlog/reopen", "open the log file again, after logrotate has moved it"),
    ("exit", "end the daemon"),
];

/// Commands of the switch that people ask for most; `list-commands` has all.
const SWITCH: &[(&str, &str)] = &[
    ("ofproto/trace BRIDGE FLOW", "say what happens to a packet, table by table"),
    ("fdb/show BRIDGE", "print the MAC addresses that a bridge has learned"),
    ("dpctl/show [-s]", "print ports, with -s also their statistics"),
    ("dpctl/dump-flows [-m]", "print the cached flows"),
    ("crosspoint/drops", "print dropped packets by reason and port"),
    ("dpif-netdev/pmd-rxq-show", "print which worker polls which queue, and its load"),
    ("dpif-netdev/pmd-stats-show", "print packets, cache hits and cycles of each worker"),
    ("crosspoint/figures", "print all counters of the switch as JSON"),
    ("dpif-netdev/pmd-perf-show", "print iterations, sleeps and cost per packet of each worker"),
    ("coverage/show", "print internal event counters"),
];

/// Its description.
pub fn manual() -> Manual {
    let rows = |table: &[(&str, &str)]| {
        table.iter().map(|(a, b)| (a.to_string(), b.to_string())).collect::<Vec<_>>()
    };
    Manual::new("runs a command in a running daemon", &["[OPTIONS] COMMAND [ARG...]"])
        .about("Exits with 1 if the daemon cannot be reached, and with 2 if it refuses the command.")
        .commands("Commands of every daemon", rows(COMMON))
        .commands("Commands of the switch", rows(SWITCH))
        .options("Options", &[OPTIONS])
        .options("Logging options", &[LOGGING])
        .examples(&[
            (
                "{name} ofproto/trace br0 in_port=1,ip,nw_dst=10.0.0.1",
                "Show which rules a packet matches and where it goes.",
            ),
            ("{name} -t ovsdb-server list-commands", "List the commands of the database server."),
            ("{name} vlog/set bridge:file:dbg", "Log more of one module to the file."),
        ])
}
