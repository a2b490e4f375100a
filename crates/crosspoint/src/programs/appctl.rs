//! `ovs-appctl`, which is `crosspoint appctl`: runs a command in a daemon, with the options, texts and exit codes of the stock program.

use super::{Usage, client_log, fail, show, take_logging, timeout};
use std::process::ExitCode;
use vswitchd::daemonize::LOGGING;
use vswitchd::getopt::{Opt, Order, flag, value};
use vswitchd::program;
use vswitchd::unixctl::Client;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("target").short('t'),
    flag("execute").short('e'),
    flag("help").short('h'),
    flag("option").short('o'),
    flag("version").short('V'),
    value("timeout").short('T'),
];

/// Exit codes: 1 where the daemon could not be asked, 2 where it refused.
pub fn run(args: &[String]) -> ExitCode {
    client_log();
    let usage = Usage { tables: &[OPTIONS, LOGGING], order: Order::BeforeWords, help: help(), version: &[] };
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
            "timeout" => timeout(given).map(|t| patience = Some(t)).map(|()| true),
            // It was needed once, and says nothing any more.
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
    let reply = Client::connect(&target, patience).and_then(|mut client| client.run(command, rest));
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

fn help() -> String {
    format!(
        "{name}: run a command in a daemon that is running
usage: {name} [TARGET] COMMAND [ARG...]
Target:
  -t, --target=TARGET  a daemon's name, its pid file or its control socket
                       (default: ovs-vswitchd)
Commands that every daemon has:
  list-commands        all of its commands
  version              its version
  vlog/list            levels by module and destination
  vlog/list-pattern    patterns by destination
  vlog/set SPEC        change levels: [MODULE][:syslog|console|file][:LEVEL],
                       LEVEL one of off, emer, err, warn, info, dbg
  vlog/reopen          open the log file again
Other options:
  -T, --timeout=SECS   give up after SECS seconds
  -v, --verbose[=SPEC], --log-file[=FILE], --syslog-method=METHOD,
  --syslog-target=HOST:PORT  what this program itself logs
  -o, --option         list the options
  -h, --help           this text
  -V, --version        the version
",
        name = program::name()
    )
}
