//! `ovs-dpctl`, which is `crosspoint dpctl`: the datapath of the running switch, through its commands
//! `dpctl/…`.
//!
//! The stock program talks to the kernel's datapath. Crosspoint has none: commands that would create, change
//! or remove a kernel datapath are refused, with an error that names the replacement.

use host::daemonize::LOGGING;
use host::getopt::{Opt, Order, flag, value};
use host::manual::Manual;
use host::program;
use host::signals::{Deadline, end_well};
use host::usage::{Usage, client_log, fail, list_commands, show, take_logging, timeout, unknown_command};
use openflow::text::normalize_datapath_actions;
use std::process::ExitCode;
use transport::unixctl::Client;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("statistics").short('s').help("for show: print the statistics of ports"),
    flag("clear").help("for commands that change flows: reset statistics"),
    flag("may-create").help("for commands that change flows: create missing ones"),
    flag("read-only").help("refuse commands that change flows"),
    flag("more").short('m').help("for dump-flows: print more of each flow"),
    flag("names").help("for dump-flows: print names of ports"),
    flag("no-names").help("for dump-flows: print numbers of ports"),
    value("timeout")
        .short('t')
        .arg("SECONDS")
        .help("give up after this many seconds (default: $OVS_CTL_TIMEOUT)"),
    flag("help").short('h').help("show this help"),
    flag("option").short('o').help("list the options"),
    flag("version").short('V').help("show the version"),
];

/// Commands that would change the kernel's datapath, and their replacements.
const KERNEL: &[(&str, &str)] = &[
    ("add-dp", "bridges are added with ovs-vsctl add-br"),
    ("del-dp", "bridges are removed with ovs-vsctl del-br"),
    ("add-if", "ports are added with ovs-vsctl add-port"),
    ("set-if", "ports are changed with ovs-vsctl set Interface"),
    ("del-if", "ports are removed with ovs-vsctl del-port"),
];

/// Runs it with the arguments that follow its name.
pub fn run(args: &[String]) -> ExitCode {
    client_log();
    let usage = Usage {
        tables: &[OPTIONS, LOGGING],
        order: Order::Anywhere,
        help: manual().help(program::name()),
        version: &[],
    };
    let parsed = match usage.parse(args) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let (mut options, mut patience) = (Vec::new(), None);
    for (name, value) in &parsed.options {
        let taken = match *name {
            "timeout" => timeout("-t", value.as_deref().unwrap_or_default()).map(|t| patience = Some(t)),
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
    if command == "list-commands" {
        show(&list_commands(COMMANDS.iter().map(|(usage, _)| usage.split_once(' ').unwrap_or((usage, "")))));
        return ExitCode::SUCCESS;
    }
    if let ("normalize-actions", [flow, actions, names @ ..]) = (command.as_str(), rest) {
        return match normalize_datapath_actions(flow, actions, names) {
            Ok(text) => {
                show(&text);
                ExitCode::SUCCESS
            }
            Err(error) => fail(&error),
        };
    }
    end_well(Deadline::new(patience));
    ask(command, &[&options[..], rest].concat())
}

fn ask(command: &str, args: &[String]) -> ExitCode {
    let method = format!("dpctl/{command}");
    match Client::connect("ovs-vswitchd", None).and_then(|mut client| client.run(&method, args)) {
        Ok(Ok(text)) => {
            show(&text);
            ExitCode::SUCCESS
        }
        // A switch with dummies has them.
        Ok(Err(text)) if text.contains("is not a valid command") => {
            if let Some((_, instead)) = KERNEL.iter().find(|(name, _)| *name == command) {
                return fail(&format!("{command}: there is no datapath in the kernel to change; {instead}"));
            }
            fail(&unknown_command(command, COMMANDS.iter().filter_map(|(usage, _)| usage.split(' ').next())))
        }
        Ok(Err(text)) => {
            let text = text.strip_prefix("ovs-vswitchd: ").unwrap_or(&text);
            eprint!("{}: {text}", program::name());
            ExitCode::FAILURE
        }
        Err(error) => fail(&error.to_string()),
    }
}

/// Its commands.
const COMMANDS: &[(&str, &str)] = &[
    ("dump-dps", "print the names of all datapaths"),
    ("show [DP...]", "print ports and counters of datapaths"),
    (
        "dump-flows [DP] [filter=FLOW] [type=TYPE,...] [pmd=CORE]",
        "print cached flows: all, or those that an OpenFlow match overlaps, that have a type (ovs and \
      non-offloaded mean all), or that belong to one worker",
    ),
    ("get-flow [DP] ufid:UFID", "print the cached flow with the id that dump-flows -m shows"),
    ("del-flows [DP] [FILE]", "remove the cached flows; with FILE, the manually added flows that it lists"),
    ("add-dp DP [IFACE...]", "add a datapath for tests (this and the commands below need --enable-dummy)"),
    ("del-dp DP", "remove such a datapath"),
    ("add-if DP NAME[,type=TYPE][,port_no=N]...", "add ports to such a datapath"),
    ("set-if DP NAME[,type=TYPE][,port_no=N]...", "check types and numbers of its ports"),
    ("del-if DP NAME...", "remove ports from such a datapath"),
    (
        "add-flow [--may-create] [DP] FLOW ACTIONS",
        "add a flow by hand; on the bridges' datapath it stays from revalidator/pause to revalidator/resume",
    ),
    ("mod-flow [--may-create] [DP] FLOW ACTIONS", "change the actions of a flow added by hand"),
    ("del-flow [DP] FLOW", "delete a flow added by hand"),
    ("add-flows [DP] FILE", "add the flows of a file; a line may begin with add, modify or delete"),
    ("mod-flows [DP] FILE", "as add-flows; a line without such a word modifies"),
    (
        "normalize-actions FLOW ACTIONS [NAME=NUMBER...]",
        "print datapath actions grouped by the VLAN tags that a packet of FLOW has then, outputs sorted; \
      needs no switch",
    ),
];

/// Its description.
pub fn manual() -> Manual {
    Manual::new("inspects the datapath of the running switch", &["[OPTIONS] COMMAND [ARG...]"])
        .about("There is no kernel datapath: bridges and ports are changed with ovs-vsctl.")
        .commands("Commands", COMMANDS.iter().map(|(a, b)| (a.to_string(), b.to_string())))
        .options("Options", &[OPTIONS])
        .options("Logging options", &[LOGGING])
        .examples(&[
            ("{name} -s show", "Print all ports with their statistics."),
            ("{name} --names dump-flows filter=tcp", "Print the cached flows that TCP packets may hit."),
        ])
}

#[cfg(test)]
mod tests {
    use super::normalize_datapath_actions;
    use std::process::Command;

    const TAGGED: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x8100),\
                          vlan(vid=9,pcp=1),encap(eth_type(0xabcd))";

    /// Without the ends of lines, which the stock program leaves out.
    fn both(flow: &str, actions: &str, names: &[&str]) -> (Result<String, String>, Result<String, String>) {
        let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
        let ours = normalize_datapath_actions(flow, actions, &names);
        let ours = ours.map(|text| text.lines().skip(1).collect()).map_err(|e| format!("ovs-dpctl: {e}"));
        let output = Command::new("/usr/bin/ovs-dpctl")
            .args(["normalize-actions", flow, actions])
            .args(&names)
            .output()
            .unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let stock = match output.status.success() {
            true => Ok(text(&output.stdout).lines().skip(1).collect::<String>()),
            false => Err(text(&output.stderr).trim_end().to_string()),
        };
        (ours, stock)
    }

    #[test]
    fn lists_that_do_the_same_look_as_with_the_stock_program() {
        let untagged = "in_port(1),eth(),eth_type(0x1234)";
        let labelled = "in_port(1),eth(),eth_type(0x8847),mpls(label=5,tc=1,ttl=64,bos=1)";
        let twice = "in_port(1),eth(),eth_type(0x8100),vlan(vid=9,pcp=1),encap(eth_type(0x8100),\
                     vlan(vid=10,pcp=0),encap(eth_type(0xabcd)))";
        for (flow, actions, names) in [
            (
                TAGGED,
                "5,3,pop_vlan,2,7,1,push_vlan(vid=20,pcp=3),4,set(eth(src=00:00:00:00:00:01)),6",
                &[][..],
            ),
            (twice, "5,3,pop_vlan,1,pop_vlan,2,1,1,pop_vlan,5", &[]),
            (labelled, "drop", &[]),
            (labelled, "p1,3", &["p1=4"]),
            (untagged, "trunc(100),4,2", &[]),
            (untagged, "p1", &["p1"]),
            (untagged, "p1,3", &[]),
        ] {
            let (ours, stock) = both(flow, actions, names);
            assert_eq!(ours, stock, "{flow} {actions}: ours is on the left");
        }
    }
}
