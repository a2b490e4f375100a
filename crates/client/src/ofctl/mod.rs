//! `crosspoint ofctl`: `ovs-ofctl`'s job, with its commands, options, texts and exit codes.
//!
//! One file each for what every command needs (`context`), the connection (`client`), what it leads to
//! (`target`), flows (`flows`, `sort`), tunnel options (`options`), comparing sets of flows (`replace`),
//! ports and the switch (`ports`), captures (`capture`), and commands that run until interrupted (`watch`).

mod arguments;
mod bundles;
pub mod capture;
mod client;
mod color;
mod context;
mod control;
mod failure;
mod flows;
mod gate;
mod groups;
mod input;
mod matches;
mod offline;
mod options;
mod ports;
mod remarks;
mod replace;
mod sort;
mod tables;
mod target;
mod watch;

use client::{Failure, fail};
use context::Options;
use host::daemonize::{DAEMON, Kept, LOGGING};
use host::manual::Manual;
use host::program;
use host::signals::end_well;
use host::usage::{list_commands, show, unknown_command};
use openflow::Codec;
use openflow::message::{GroupCommand, MeterCommand, StatsRequest};
use std::process::ExitCode;
use transport::CLIENT_TLS;

/// Runs the command. Exit codes as `ovs-ofctl`'s: 1 for failures, 2 for flows that differ.
pub fn run(args: &[String]) -> ExitCode {
    let mut args = match arguments::parse(args, manual().help(program::name())) {
        Ok(args) => args,
        Err(code) => return code,
    };
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
    end_well(args.deadline);
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

/// Runs a command.
type Run = fn(&Options) -> Result<ExitCode, Failure>;
/// A command: name, whether it changes the switch, least and greatest number of arguments, what runs it, its
/// arguments, what it does.
type Row = (&'static str, bool, usize, usize, Run, &'static str, &'static str);
const R: bool = false;
/// What `--read-only` refuses. As with the stock client, `ct-flush` and tunnel options are none of it.
const W: bool = true;

#[rustfmt::skip]
const TABLE: &[Row] = &[
    ("show", R, 1, 1, ports::show, "SWITCH", "print the switch and its ports"),
    ("dump-desc", R, 1, 1, |o| ports::ask(o, StatsRequest::Desc), "SWITCH", "print manufacturer, hardware and software of the switch"),
    ("dump-tables", R, 1, 1, |o| ports::ask(o, StatsRequest::Table), "SWITCH", "print the statistics of tables"),
    ("dump-table-features", R, 1, 1, tables::dump_table_features, "SWITCH", "print what flows of tables can match and do"),
    ("dump-table-desc", R, 1, 1, tables::dump_table_desc, "SWITCH", "print eviction and vacancy of tables (OpenFlow 1.4 and later)"),
    ("mod-table", W, 3, 3, tables::mod_table, "SWITCH TABLE ACTION", "configure a table: what to do with packets that match no flow: controller, continue or drop (OpenFlow 1.1 and 1.2), name:NAME, evict, noevict, vacancy:LOW,HIGH, novacancy"),
    ("dump-ports", R, 1, 2, |o| ports::ask_of_port(o, StatsRequest::Port), "SWITCH [PORT]", "print the statistics of ports"),
    ("dump-ports-desc", R, 1, 2, |o| ports::ask_of_port(o, StatsRequest::PortDesc), "SWITCH [PORT]", "print names, states and speeds of ports"),
    ("queue-stats", R, 1, 3, ports::queue_stats, "SWITCH [PORT [QUEUE]]", "print the statistics of queues"),
    ("queue-get-config", R, 1, 3, ports::queue_get_config, "SWITCH [PORT [QUEUE]]", "print the configuration of queues"),
    ("mod-port", W, 3, 3, ports::mod_port, "SWITCH PORT ACTION", "configure a port: up, down, or stp, receive, receive-stp, forward, flood, packet-in, each also with no-"),
    ("dump-ipfix-bridge", R, 1, 1, |o| ports::ask(o, StatsRequest::IpfixBridge), "SWITCH", "print the counters of a bridge's IPFIX exporter"),
    ("dump-ipfix-flow", R, 1, 1, |o| ports::ask(o, StatsRequest::IpfixFlow), "SWITCH", "print the counters of the IPFIX exporters of sample actions"),
    ("get-frags", R, 1, 1, ports::get_frags, "SWITCH", "print how IP fragments are handled"),
    ("set-frags", W, 2, 2, ports::set_frags, "SWITCH MODE", "set how IP fragments are handled: normal, drop, reassemble or nx-match"),
    ("dump-flows", R, 1, 2, flows::dump_flows, "SWITCH [FLOW]", "print flows, or those that match FLOW"),
    ("dump-aggregate", R, 1, 2, flows::dump_aggregate, "SWITCH [FLOW]", "print the sums of their counters"),
    ("add-flow", W, 2, 2, flows::add_flow, "SWITCH FLOW", "add a flow"),
    ("add-flows", W, 2, 2, |o| flows::flow_mod_file(o, None), "SWITCH FILE", "add the flows of a file (- for standard input)"),
    ("mod-flows", W, 2, 2, flows::mod_flows, "SWITCH FLOW|FILE", "change the actions of matching flows"),
    ("del-flows", W, 1, 2, flows::del_flows, "SWITCH [FLOW|FILE]", "delete all or matching flows"),
    ("replace-flows", W, 2, 2, replace::replace_flows, "SWITCH FILE", "replace all flows with those of a file"),
    ("diff-flows", R, 2, 2, replace::diff_flows, "SOURCE SOURCE", "compare the flows of two files or switches; exit with 2 if they differ"),
    ("dump-groups", R, 1, 2, |o| ports::ask(o, StatsRequest::GroupDesc(groups::argument(o)?)), "SWITCH [GROUP]", "print groups"),
    ("dump-group-stats", R, 1, 2, |o| ports::ask(o, StatsRequest::Group(groups::argument(o)?)), "SWITCH [GROUP]", "print the counters of groups and their buckets"),
    ("dump-group-features", R, 1, 1, |o| ports::ask(o, StatsRequest::GroupFeatures), "SWITCH", "print the group features of the switch"),
    ("add-group", W, 1, 2, |o| groups::change(o, GroupCommand::Add), "SWITCH GROUP", "add a group"),
    ("add-groups", W, 2, 2, groups::add_groups, "SWITCH FILE", "add the groups of a file (- for standard input)"),
    ("mod-group", W, 1, 2, groups::mod_group, "SWITCH GROUP", "replace a group, or with --may-create add it"),
    ("del-groups", W, 1, 2, |o| groups::change(o, GroupCommand::Delete), "SWITCH [GROUP]", "delete groups, or all of them"),
    ("insert-buckets", W, 1, 2, |o| groups::change(o, GroupCommand::InsertBucket), "SWITCH GROUP", "insert buckets into a group at command_bucket_id: first, last, or behind that bucket"),
    ("remove-buckets", W, 1, 2, |o| groups::change(o, GroupCommand::RemoveBucket), "SWITCH GROUP", "remove the bucket command_bucket_id: first, last, all or an id"),
    ("bundle", W, 2, 2, groups::bundle, "SWITCH FILE", "apply the changes in a file all at once: lines that begin with flow, group or packet-out"),
    ("add-meter", W, 2, 2, |o| groups::set_meter(o, MeterCommand::Add), "SWITCH METER", "add a meter"),
    ("mod-meter", W, 2, 2, |o| groups::set_meter(o, MeterCommand::Modify), "SWITCH METER", "replace a meter"),
    ("del-meters", W, 1, 2, groups::del_meters, "SWITCH [METER]", "delete a meter, or all of them"),
    ("del-meter", W, 1, 2, groups::del_meters, "SWITCH [METER]", "the same as del-meters"),
    ("dump-meters", R, 1, 2, |o| groups::show_meters(o, |meter| StatsRequest::MeterConfig(Some(meter))), "SWITCH [METER]", "print a meter, or all of them"),
    ("dump-meter", R, 1, 2, |o| groups::show_meters(o, |meter| StatsRequest::MeterConfig(Some(meter))), "SWITCH [METER]", "the same as dump-meters"),
    ("meter-stats", R, 1, 2, |o| groups::show_meters(o, |meter| StatsRequest::Meter(Some(meter))), "SWITCH [METER]", "print the counters of meters"),
    ("meter-features", R, 1, 1, |o| groups::show_meters(o, |_| StatsRequest::MeterFeatures), "SWITCH", "print the meter features of the switch"),
    ("add-tlv-map", R, 2, 2, options::add_tlv_map, "SWITCH MAP[,MAP]...", "map tunnel options to fields: {class=CLASS,type=TYPE,len=LENGTH}->tun_metadataN"),
    ("del-tlv-map", R, 1, 2, options::del_tlv_map, "SWITCH [MAP[,MAP]...]", "remove mappings of tunnel options, or all of them"),
    ("dump-tlv-map", R, 1, 1, options::dump_tlv_map, "SWITCH", "print the mappings of tunnel options"),
    ("ct-flush", R, 1, 4, options::ct_flush, "SWITCH [zone=N] [ORIGINAL-TUPLE [REPLY-TUPLE]]", "end tracked connections that match"),
    ("ct-flush-zone", R, 2, 2, options::ct_flush_zone, "SWITCH ZONE", "end the tracked connections of a zone"),
    ("packet-out", W, 2, usize::MAX, flows::packet_out, "SWITCH \"in_port=PORT packet=HEX actions=ACTIONS\"", "send a packet through actions"),
    ("parse-flow", R, 1, 1, flows::parse_flow_command, "FLOW", "check a flow and print it as it would be sent"),
    ("parse-flows", R, 1, 1, flows::parse_flows_command, "FILE", "check the flows of a file and print them as they would be sent"),
    ("parse-group", R, 1, 1, offline::parse_group, "GROUP", "check a group and print it as it would be sent"),
    ("parse-actions", R, 1, 1, |o| offline::lists(o, "actions", Codec::decode_actions, Codec::encode_actions), "VERSION", "read lists of actions in hexadecimal from standard input, and print and encode them"),
    ("parse-instructions", R, 1, 1, |o| offline::lists(o, "instructions", Codec::decode_instructions, Codec::encode_instructions), "VERSION", "like parse-actions, for instructions"),
    ("parse-nx-match", R, 0, 0, matches::parse_nxm, "", "read lists of NXM entries by name from standard input, and print them as encoded again"),
    ("parse-nxm", R, 0, 0, matches::parse_nxm, "", "the same as parse-nx-match"),
    ("parse-oxm", R, 1, 1, matches::parse_oxm, "VERSION", "like parse-nx-match, for OXM entries of OpenFlow 1.2 and later"),
    ("parse-ofp10-match", R, 0, 0, matches::parse_match10, "", "read matches of OpenFlow 1.0 in hexadecimal from standard input, and print and encode them"),
    ("parse-ofp11-match", R, 0, 0, matches::parse_match11, "", "like parse-ofp10-match, for OpenFlow 1.1"),
    ("check-vlan", R, 2, 2, matches::check_vlan, "TCI MASK", "print a match of a VLAN tag, in hexadecimal, as each version encodes and reads it"),
    ("compose-packet", R, 1, 2, offline::compose_packet, "FLOW [PAYLOAD]", "print a packet of the flow, with this payload in hexadecimal or a default one"),
    ("parse-packet", R, 0, 0, offline::parse_packet, "", "print the headers of the packet on standard input"),
    ("parse-pcap", R, 1, usize::MAX, offline::parse_pcap, "FILE...", "print the packets of capture files as flows"),
    ("parse-key-value", R, 1, usize::MAX, offline::parse_key_value, "TEXT...", "print the key-value pairs in a text"),
    ("ofp-print", R, 1, 2, offline::ofp_print, "HEX|- [VERBOSITY]", "print a message in hexadecimal"),
    ("ofp-parse", R, 1, 1, offline::ofp_parse, "FILE", "print the messages of a file (- for standard input)"),
    ("ofp-parse-pcap", R, 1, usize::MAX, capture::ofp_parse_pcap, "FILE [PORT...]", "print the messages of connections in a capture file, on TCP ports 6633 and 6653 or others"),
    ("print-error", R, 1, 1, offline::print_error, "ERROR", "print the numbers of an error in each version"),
    ("encode-error-reply", R, 2, 2, offline::encode_error_reply, "ERROR HEX", "print the error message in answer to a request"),
    ("encode-hello", R, 1, 1, offline::encode_hello, "BITMAP", "print the hello that offers the versions of a bitmap"),
    ("monitor", R, 1, usize::MAX, watch::monitor, "SWITCH [MISS-LEN] [invalid_ttl] [resume] [watch:[FLOW]]...", "print what the switch sends to controllers"),
    ("snoop", R, 1, 1, watch::snoop, "SWITCH", "print the messages between the switch and a controller"),
    ("probe", R, 1, 1, watch::probe, "SWITCH", "check that the switch answers"),
    ("ping", R, 1, 2, watch::ping, "SWITCH [BYTES]", "measure the round trips of echo requests"),
    ("benchmark", R, 3, 3, watch::benchmark, "SWITCH BYTES COUNT", "measure the throughput of echo requests"),
];

fn dispatch(options: &Options) -> Result<ExitCode, Failure> {
    let name = options.word(0).unwrap_or("");
    if name.is_empty() {
        return fail!("missing command name; use --help for help");
    }
    if name == "list-commands" {
        show(&list_commands(TABLE.iter().map(|row| (row.0, row.5))));
        return Ok(ExitCode::SUCCESS);
    }
    if name == "help" {
        show(&manual().help(program::name()));
        return Ok(ExitCode::SUCCESS);
    }
    let Some((_, changes, least, most, command, ..)) = TABLE.iter().find(|row| row.0 == name) else {
        return fail!("{}", unknown_command(name, TABLE.iter().map(|row| row.0)));
    };
    if options.args.read_only && *changes {
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
    let commands = TABLE.iter().map(|row| (format!("{} {}", row.0, row.5), row.6.to_string()));
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
