//! `ovs-dpctl`, which is `crosspoint dpctl`: the datapath of the switch that is running, by its commands `dpctl/…`.
//!
//! The stock program speaks to the kernel's datapath. There is none here: what makes, changes or removes one
//! there is refused, and says what does it instead.

use super::{Usage, client_log, fail, show, take_logging, timeout};
use std::process::ExitCode;
use vswitchd::daemonize::LOGGING;
use vswitchd::getopt::{Opt, Order, flag, value};
use vswitchd::program;
use vswitchd::unixctl::Client;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("statistics").short('s'),
    flag("clear"),
    flag("may-create"),
    flag("read-only"),
    flag("more").short('m'),
    flag("names"),
    flag("no-names"),
    value("timeout").short('t'),
    flag("help").short('h'),
    flag("option").short('o'),
    flag("version").short('V'),
];

/// Commands that would change the kernel's datapath, and what is done instead.
const KERNEL: &[(&str, &str)] = &[
    ("add-dp", "bridges are added with ovs-vsctl add-br"),
    ("del-dp", "bridges are removed with ovs-vsctl del-br"),
    ("add-if", "ports are added with ovs-vsctl add-port"),
    ("set-if", "ports are changed with ovs-vsctl set Interface"),
    ("del-if", "ports are removed with ovs-vsctl del-port"),
];

pub fn run(args: &[String]) -> ExitCode {
    client_log();
    let usage = Usage { tables: &[OPTIONS, LOGGING], order: Order::Anywhere, help: help(), version: &[] };
    let parsed = match usage.parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let (mut options, mut patience) = (Vec::new(), None);
    for (name, value) in &parsed.options {
        let taken = match *name {
            "timeout" => timeout(value.as_deref().unwrap_or_default()).map(|t| patience = Some(t)),
            "statistics" => {
                options.push("-s".to_string());
                Ok(())
            }
            "more" => {
                options.push("-m".to_string());
                Ok(())
            }
            name @ ("clear" | "may-create" | "read-only" | "names" | "no-names") => {
                options.push(format!("--{name}"));
                Ok(())
            }
            name => take_logging(name, value.as_deref()).map(drop),
        };
        if let Err(error) = taken {
            return fail(&error);
        }
    }
    let Some((command, rest)) = parsed.words.split_first() else {
        return fail("missing command name; use --help for help");
    };
    if let Some((_, instead)) = KERNEL.iter().find(|(name, _)| *name == command.as_str()) {
        return fail(&format!("{command}: there is no datapath in the kernel to change; {instead}"));
    }
    ask(command, &[&options[..], rest].concat(), patience)
}

fn ask(command: &str, args: &[String], patience: Option<std::time::Duration>) -> ExitCode {
    let method = format!("dpctl/{command}");
    match Client::connect("ovs-vswitchd", patience).and_then(|mut client| client.run(&method, args)) {
        Ok(Ok(text)) => {
            show(&text);
            ExitCode::SUCCESS
        }
        Ok(Err(text)) if text.contains("is not a valid command") => {
            fail(&format!("unknown command '{command}'; use --help for help"))
        }
        Ok(Err(text)) => {
            let text = text.strip_prefix("ovs-vswitchd: ").unwrap_or(&text);
            eprint!("{}: {text}", program::name());
            ExitCode::FAILURE
        }
        Err(error) => fail(&error.to_string()),
    }
}

fn help() -> String {
    format!(
        "{name}: look into the datapath of the switch that is running
usage: {name} [OPTIONS] COMMAND [ARG...]
  dump-dps                 names of all datapaths
  show [DP...]             their ports and counters
  dump-flows [DP]          the flows that are cached
    filter=FLOW            those with packets that this match of OpenFlow's fits
    type=TYPE[,TYPE]...    ovs, non-offloaded: all; tc, dpdk, offloaded, partially-offloaded: none
    pmd=CORE               those of the worker on this core
  del-flows [DP]           remove them
Options:
  -s, --statistics         for show: counters of ports
  -m, --more               for dump-flows: more of each flow
  --names, --no-names      for dump-flows: names of ports instead of numbers
  --clear, --may-create, --read-only  for commands that change flows
  -t, --timeout=SECS       give up after SECS seconds
  -v, --verbose[=SPEC], --log-file[=FILE], --syslog-method=METHOD,
  --syslog-target=HOST:PORT  what this program itself logs
  -o, --option             list the options
  -h, --help               this text
  -V, --version            the version
",
        name = program::name()
    )
}
