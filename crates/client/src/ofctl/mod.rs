//! `crosspoint ofctl`: `ovs-ofctl`'s job, with its commands, options, texts and exit codes.
//!
//! One file each for what every command needs (`context`), the connection (`client`), flows (`flows`,
//! `sort`), tunnel options (`options`), comparing sets of flows (`replace`), ports and the switch (`ports`),
//! captures (`capture`), and commands that run until interrupted (`watch`).

mod arguments;
mod bundles;
pub mod capture;
mod client;
mod color;
mod context;
mod control;
mod flows;
mod groups;
mod matches;
mod offline;
mod options;
mod ports;
mod remarks;
mod replace;
mod sort;
mod tables;
mod watch;

use client::{Failure, fail};
use context::Options;
use host::daemonize::{DAEMON, Daemon, Kept, LOGGING};
use host::manual::Manual;
use host::program;
use host::signals::end_well;
use host::usage::{list_commands, show, unknown_command};
use std::process::ExitCode;
use transport::CLIENT_TLS;

/// Runs the command. Exit codes as `ovs-ofctl`'s: 1 for failures, 2 for flows that differ.
pub fn run(args: &[String]) -> ExitCode {
    let args = match arguments::parse(args, manual().help(program::name())) {
        Ok(args) => args,
        Err(code) => return code,
    };
    if let Some(patience) = args.timeout {
        std::thread::spawn(move || {
            std::thread::sleep(patience);
            eprintln!("{}: no answer within {} s", program::name(), patience.as_secs());
            // A shell's exit code for SIGALRM, with which the stock tool ends.
            std::process::exit(142);
        });
    }
    let mut args = args;
    let is_endless = args.words.first().is_some_and(|w| w == "monitor" || w == "snoop");
    let daemon = match args.daemon.take().filter(|_| is_endless) {
        Some(mut options) => {
            // Messages from the switch are printed there.
            options.keep(Kept::Stderr);
            match options.begin() {
                Err(code) => return code,
                Ok(daemon) => Some(daemon),
            }
        }
        None => None,
    };
    if is_endless {
        end_well(daemon.as_ref().and_then(Daemon::pid_file));
    }
    match Options::new(args, daemon).and_then(|options| dispatch(&options)) {
        Ok(code) => code,
        Err(failure) => {
            // An error message from the switch is shown unchanged.
            if failure.0.starts_with("OFPT_ERROR") {
                eprintln!("{failure}");
            } else {
                eprintln!("{}: {failure}", program::name());
            }
            ExitCode::FAILURE
        }
    }
}

/// A command: name, least and greatest number of arguments, what runs it, its arguments, what it does.
type Row =
    (&'static str, usize, usize, fn(&Options) -> Result<ExitCode, Failure>, &'static str, &'static str);

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("show", 1, 1, ports::show, "SWITCH", "print the switch and its ports"),
    ("dump-desc", 1, 1, ports::dump_desc, "SWITCH", "print manufacturer, hardware and software of the switch"),
    ("dump-tables", 1, 1, ports::dump_tables, "SWITCH", "print the statistics of tables"),
    ("dump-table-features", 1, 1, tables::dump_table_features, "SWITCH", "print what flows of tables can match and do"),
    ("dump-table-desc", 1, 1, tables::dump_table_desc, "SWITCH", "print eviction and vacancy of tables (OpenFlow 1.4 and later)"),
    ("mod-table", 3, 3, tables::mod_table, "SWITCH TABLE ACTION", "configure a table: what to do with packets that match no flow: controller, continue or drop (OpenFlow 1.1 and 1.2), name:NAME, evict, noevict, vacancy:LOW,HIGH, novacancy"),
    ("dump-ports", 1, 2, ports::dump_ports, "SWITCH [PORT]", "print the statistics of ports"),
    ("dump-ports-desc", 1, 2, ports::dump_ports_desc, "SWITCH [PORT]", "print names, states and speeds of ports"),
    ("queue-stats", 1, 3, ports::queue_stats, "SWITCH [PORT [QUEUE]]", "print the statistics of queues"),
    ("queue-get-config", 1, 3, ports::queue_get_config, "SWITCH [PORT [QUEUE]]", "print the configuration of queues"),
    ("mod-port", 3, 3, ports::mod_port, "SWITCH PORT ACTION", "configure a port: up, down, or stp, receive, receive-stp, forward, flood, packet-in, each also with no-"),
    ("dump-ipfix-bridge", 1, 1, ports::dump_ipfix_bridge, "SWITCH", "print the counters of a bridge's IPFIX exporter"),
    ("dump-ipfix-flow", 1, 1, ports::dump_ipfix_flow, "SWITCH", "print the counters of the IPFIX exporters of sample actions"),
    ("get-frags", 1, 1, ports::get_frags, "SWITCH", "print how IP fragments are handled"),
    ("set-frags", 2, 2, ports::set_frags, "SWITCH MODE", "set it: normal, drop, reassemble or nx-match"),
    ("dump-flows", 1, 2, flows::dump_flows, "SWITCH [FLOW]", "print flows, or those that match FLOW"),
    ("dump-aggregate", 1, 2, flows::dump_aggregate, "SWITCH [FLOW]", "print the sums of their counters"),
    ("add-flow", 2, 2, flows::add_flow, "SWITCH FLOW", "add a flow"),
    ("add-flows", 2, 2, flows::add_flows, "SWITCH FILE", "add the flows of a file (- for standard input)"),
    ("mod-flows", 2, 2, flows::mod_flows, "SWITCH FLOW|FILE", "change the actions of matching flows"),
    ("del-flows", 1, 2, flows::del_flows, "SWITCH [FLOW|FILE]", "delete all or matching flows"),
    ("replace-flows", 2, 2, replace::replace_flows, "SWITCH FILE", "replace all flows with those of a file"),
    ("diff-flows", 2, 2, replace::diff_flows, "SOURCE SOURCE", "compare the flows of two files or switches; exit with 2 if they differ"),
    ("dump-groups", 1, 2, groups::dump_groups, "SWITCH [GROUP]", "print groups"),
    ("dump-group-stats", 1, 2, groups::dump_group_stats, "SWITCH [GROUP]", "print the counters of groups and their buckets"),
    ("dump-group-features", 1, 1, groups::dump_group_features, "SWITCH", "print the group features of the switch"),
    ("add-group", 2, 2, groups::add_group, "SWITCH GROUP", "add a group"),
    ("add-groups", 2, 2, groups::add_groups, "SWITCH FILE", "add the groups of a file (- for standard input)"),
    ("mod-group", 2, 2, groups::mod_group, "SWITCH GROUP", "replace a group, or with --may-create add it"),
    ("del-groups", 1, 2, groups::del_groups, "SWITCH [GROUP]", "delete groups, or all of them"),
    ("insert-buckets", 2, 2, groups::insert_buckets, "SWITCH GROUP", "insert buckets into a group at command_bucket_id: first, last, or behind that bucket"),
    ("remove-buckets", 2, 2, groups::remove_buckets, "SWITCH GROUP", "remove the bucket command_bucket_id: first, last, all or an id"),
    ("bundle", 2, 2, groups::bundle, "SWITCH FILE", "make the changes of a file all at once: lines of flow, group or packet-out"),
    ("add-meter", 2, 2, groups::add_meter, "SWITCH METER", "add a meter"),
    ("mod-meter", 2, 2, groups::mod_meter, "SWITCH METER", "replace a meter"),
    ("del-meters", 1, 1, groups::del_meters, "SWITCH", "delete all meters"),
    ("del-meter", 2, 2, groups::del_meters, "SWITCH METER", "delete a meter"),
    ("dump-meters", 1, 1, groups::dump_meters, "SWITCH", "print meters"),
    ("dump-meter", 2, 2, groups::dump_meters, "SWITCH METER", "print a meter"),
    ("meter-stats", 1, 2, groups::meter_stats, "SWITCH [METER]", "print the counters of meters"),
    ("meter-features", 1, 1, groups::meter_features, "SWITCH", "print the meter features of the switch"),
    ("add-tlv-map", 2, 2, options::add_tlv_map, "SWITCH MAP[,MAP]...", "map tunnel options to fields: {class=CLASS,type=TYPE,len=LENGTH}->tun_metadataN"),
    ("del-tlv-map", 1, 2, options::del_tlv_map, "SWITCH [MAP[,MAP]...]", "remove mappings of tunnel options, or all of them"),
    ("dump-tlv-map", 1, 1, options::dump_tlv_map, "SWITCH", "print the mappings of tunnel options"),
    (
        "ct-flush",
        1,
        4,
        options::ct_flush,
        "SWITCH [zone=N] [ORIGINAL-TUPLE [REPLY-TUPLE]]",
        "end tracked connections that match",
    ),
    ("ct-flush-zone", 2, 2, options::ct_flush_zone, "SWITCH ZONE", "end the tracked connections of a zone"),
    ("packet-out", 2, usize::MAX, flows::packet_out, "SWITCH \"in_port=PORT packet=HEX actions=ACTIONS\"", "send a packet through actions"),
    ("parse-flow", 1, 1, flows::parse_flow_command, "FLOW", "check a flow and print it as it would be sent"),
    ("parse-flows", 1, 1, flows::parse_flows_command, "FILE", "check the flows of a file and print them as they would be sent"),
    ("parse-group", 1, 1, offline::parse_group, "GROUP", "check a group and print it as it would be sent"),
    ("parse-actions", 1, 1, offline::parse_actions, "VERSION", "read lists of actions in hexadecimal from standard input, and print and encode them"),
    ("parse-instructions", 1, 1, offline::parse_instructions, "VERSION", "the same for instructions"),
    ("parse-nx-match", 0, 0, matches::parse_nxm, "", "read lists of NXM entries by name from standard input, and print what is encoded again"),
    ("parse-nxm", 0, 0, matches::parse_nxm, "", "the same"),
    ("parse-oxm", 1, 1, matches::parse_oxm, "VERSION", "the same for OXM entries of OpenFlow 1.2 and later"),
    ("parse-ofp10-match", 0, 0, matches::parse_match10, "", "read matches of OpenFlow 1.0 in hexadecimal from standard input, and print and encode them"),
    ("parse-ofp11-match", 0, 0, matches::parse_match11, "", "the same for OpenFlow 1.1"),
    ("check-vlan", 2, 2, matches::check_vlan, "TCI MASK", "print a match of a VLAN tag, in hexadecimal, as each version encodes and reads it"),
    ("compose-packet", 1, 2, offline::compose_packet, "FLOW [PAYLOAD]", "print a packet of the flow, with the payload in hexadecimal or a usual one"),
    ("parse-packet", 0, 0, offline::parse_packet, "", "print the headers of the packet on standard input"),
    ("parse-pcap", 1, usize::MAX, offline::parse_pcap, "FILE...", "print the packets of capture files as flows"),
    ("parse-key-value", 1, usize::MAX, offline::parse_key_value, "TEXT...", "print the pairs that a text consists of"),
    ("ofp-print", 1, 2, offline::ofp_print, "HEX|- [VERBOSITY]", "print a message in hexadecimal"),
    ("ofp-parse", 1, 1, offline::ofp_parse, "FILE", "print the messages of a file (- for standard input)"),
    ("ofp-parse-pcap", 1, usize::MAX, capture::ofp_parse_pcap, "FILE [PORT...]", "print the messages of connections in a capture file, on TCP ports 6633 and 6653 or others"),
    ("print-error", 1, 1, offline::print_error, "ERROR", "print the numbers of an error in each version"),
    ("encode-error-reply", 2, 2, offline::encode_error_reply, "ERROR HEX", "print the error message in answer to a request"),
    ("encode-hello", 1, 1, offline::encode_hello, "BITMAP", "print the hello that offers the versions of a bitmap"),
    ("monitor", 1, usize::MAX, watch::monitor, "SWITCH [MISS-LEN] [invalid_ttl] [resume] [watch:[FLOW]]...", "print what the switch sends to controllers"),
    ("snoop", 1, 1, watch::snoop, "SWITCH", "print the messages between the switch and its controllers"),
    ("probe", 1, 1, watch::probe, "SWITCH", "check that the switch answers"),
    ("ping", 1, 2, watch::ping, "SWITCH [BYTES]", "measure the round trips of echo requests"),
    ("benchmark", 3, 3, watch::benchmark, "SWITCH BYTES COUNT", "measure the throughput of echo requests"),
];

/// Commands that `--read-only` refuses.
const CHANGING: [&str; 24] = [
    "mod-table",
    "ct-flush",
    "ct-flush-zone",
    "add-group",
    "mod-group",
    "insert-buckets",
    "remove-buckets",
    "bundle",
    "add-meter",
    "mod-meter",
    "del-groups",
    "del-meter",
    "del-meters",
    "add-flow",
    "add-flows",
    "mod-flows",
    "del-flows",
    "replace-flows",
    "mod-port",
    "set-frags",
    "packet-out",
    "add-groups",
    "add-tlv-map",
    "del-tlv-map",
];

fn dispatch(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.word(0).unwrap_or("");
    if name.is_empty() {
        return fail!("missing command name; use --help for help");
    }
    if name == "list-commands" {
        show(&list_commands(TABLE.iter().map(|row| (row.0, row.4))));
        return Ok(ExitCode::SUCCESS);
    }
    if name == "help" {
        show(&manual().help(program::name()));
        return Ok(ExitCode::SUCCESS);
    }
    let Some((_, least, most, command, ..)) = TABLE.iter().find(|row| row.0 == name) else {
        return fail!("{}", unknown_command(name, TABLE.iter().map(|row| row.0)));
    };
    if options.args.read_only && CHANGING.contains(&name) {
        return fail!("'{name}' command does not work in read only mode");
    }
    let given = options.args.words.len() - 1;
    if given < *least {
        return fail!("'{name}' command requires at least {least} arguments");
    }
    if given > *most {
        return fail!("'{name}' command takes at most {most} arguments");
    }
    command(options)
}

/// The description of the program.
pub fn manual() -> Manual {
    let commands = TABLE.iter().map(|row| (format!("{} {}", row.0, row.4), row.5.to_string()));
    Manual::new(
        "shows and changes flows, ports and settings of a switch over OpenFlow",
        &["[OPTIONS] COMMAND [ARG...]"],
    )
    .commands("Commands", commands)
    .terms(
        "SWITCH is one of",
        &[
            ("BRIDGE", "a bridge of the switch on this machine"),
            (
                "unix:FILE, tcp:HOST[:PORT], ssl:HOST[:PORT]",
                "a switch that listens there (default port: 6653)",
            ),
        ],
    )
    .options("Options", &[arguments::OPTIONS])
    .options("TLS options", &[CLIENT_TLS])
    .options("Daemon options, for monitor and snoop", &[DAEMON])
    .options("Logging options", &[LOGGING])
    .examples(&[
        ("{name} add-flow br0 priority=10,ip,nw_dst=10.0.0.0/8,actions=drop", "Drop packets to a network."),
        ("{name} -O OpenFlow13 --bundle replace-flows br0 flows.txt", "Replace all flows at once, or none."),
        ("{name} monitor br0 watch:", "Print changes of flows as they happen."),
    ])
}
