//! Commands that read and change flows.

use super::bundles::report_bundled;
use super::client::{Client, Failure, fail};
use super::context::Options;
use super::input::{hex, read_file};
use super::sort::sort_flows;
use super::tables::{add_names, may_name_table};
use base::OfPort;
use flow::{FieldId, Match, Mf};
use openflow::message::{
    BundleAdd, BundleControl, BundleControlType, BundleFlags, FlowForm, FlowMod, FlowModCommand, FlowStats,
    FlowStatsRequest, PacketOut, StatsBody, StatsRequest,
};
use openflow::text::{
    FlowStyle, KeyValues, Parsed, PortNames, Protocol, Protocols, Remark, TextError, bytes_text, field_named,
    flows_in, match_text, parse_flow_mod, parse_flow_request, parse_list, parse_match, write_flow,
    write_hex_dump,
};
use openflow::{Message, Version, is_of_pipeline};
use std::io::Write;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

/// Up to this many flow-mods, each is waited for, as the stock tool does with all: nothing is sent after one
/// that is refused.
const FLOWS_ONE_BY_ONE: usize = 256;
/// Flow-mods between two barriers after those: what may be on its way when one of them is refused.
const FLOWS_PER_BARRIER: usize = 4096;
/// Flow-mods of a file that are sent as one bundle if the switch supports bundles, and so take effect
/// together or not at all. The switch keeps a bundle in memory until it is committed, some kilobytes per
/// flow.
const FLOWS_PER_BUNDLE: usize = 16_384;

/// Messages sent since the last barrier, each with its transaction id and its line, 0 if it is not from a
/// file.
type Sent = Vec<(u32, usize)>;

/// The names to take for ports, and the client that was asked for them, where they are wanted.
fn taken_names(options: &Options, text: &str) -> Result<(PortNames, Option<Client>), Failure> {
    if !options.takes_names() {
        return Ok((PortNames::default(), None));
    }
    let mut client = options.connect()?;
    let mut names = options.names_of(&mut client)?;
    // The stock tool asks on connections of their own, and always for names of tables too.
    if may_name_table(text) {
        add_names(&mut client, &mut names)?;
        (0..2).for_each(|_| client.skip_xid());
    } else {
        (0..3).for_each(|_| client.skip_xid());
    }
    Ok((names, Some(client)))
}

/// A client that speaks one of the encodings: the given one, or a fresh one.
fn client_for(options: &Options, client: Option<Client>, usable: Protocols) -> Result<Client, Failure> {
    let both = options.allowed_of(usable)?;
    let mut client = client.map_or_else(|| options.connect(), Ok)?;
    client.use_one_of(both)?;
    Ok(client)
}

pub fn add_flow(options: &Options) -> Result<ExitCode, Failure> {
    change_flows(options, FlowModCommand::Add, None)
}

pub fn mod_flows(options: &Options) -> Result<ExitCode, Failure> {
    let command = if options.args.strict { FlowModCommand::ModifyStrict } else { FlowModCommand::Modify };
    change_flows(options, command, Some(command))
}

pub fn del_flows(options: &Options) -> Result<ExitCode, Failure> {
    let command = if options.args.strict { FlowModCommand::DeleteStrict } else { FlowModCommand::Delete };
    change_flows(options, command, Some(command))
}

/// The flow in the argument, or those of standard input, which may each say their command where `of_file`
/// does not.
fn change_flows(
    options: &Options,
    command: FlowModCommand,
    of_file: Option<FlowModCommand>,
) -> Result<ExitCode, Failure> {
    match options.word(2) {
        Some("-") => flow_mod_file(options, of_file),
        _ => flow_mod(options, command),
    }
}

fn flow_mod(options: &Options, command: FlowModCommand) -> Result<ExitCode, Failure> {
    let text = options.word(2).unwrap_or("");
    let (names, client) = if text.is_empty() { Default::default() } else { taken_names(options, text)? };
    let parsed = parse_flow_mod(text, command, &names).inspect_err(warn_of)?;
    report_normalization(&parsed);
    let batch = Batch { file: "", count: 1, usable: parsed.protocols };
    send_flows(options, client, &batch, std::iter::once((0, parsed)))
}

pub fn flow_mod_file(options: &Options, command: Option<FlowModCommand>) -> Result<ExitCode, Failure> {
    let file = options.word(2).unwrap_or("-");
    let text = read_file(file)?;
    let (names, client) = taken_names(options, &text)?;
    // Read twice, first to know that all is well and how it can be said, so that a million flows need no
    // room.
    let batch = survey(&text, file, command, &names)?;
    let all = flows_in(&text, command, &names).filter_map(Result::ok);
    send_flows(options, client, &batch, all)
}

/// Logs which fields of a match were left out because their prerequisites are not matched, as the stock tool
/// does.
fn report_normalization(flow: &Parsed) {
    if let Some(before) = &flow.before {
        let after = match_text(&flow.flow_mod.matching, PortNames::none());
        log_normalization(before, &after);
    }
}

/// How many of them are explained: a file of a million flows may have the same fault in each.
const EXPLAINED_MAX: u32 = 5;

/// See [`report_normalization`].
pub(super) fn log_normalization(before: &str, after: &str) {
    static EXPLAINED: AtomicU32 = AtomicU32::new(0);
    if EXPLAINED.fetch_add(1, Ordering::Relaxed) >= EXPLAINED_MAX {
        return;
    }
    tracing::info!(target: "ofp_match", "normalization changed ofp_match, details:");
    tracing::info!(target: "ofp_match", " pre: {before}");
    tracing::info!(target: "ofp_match", "post: {after}");
}

/// The flow-mod as that encoding says it. It may leave out an instruction, as with the stock tool, but not
/// without a word.
fn in_protocol(flow: Parsed, protocol: Protocol) -> FlowMod {
    static EXPLAINED: AtomicU32 = AtomicU32::new(0);
    let flow_mod = flow.in_protocol(protocol);
    if let Some(name) = openflow::left_out(protocol.version(), &flow_mod.actions)
        && EXPLAINED.fetch_add(1, Ordering::Relaxed) < EXPLAINED_MAX
    {
        let version = protocol.version();
        tracing::warn!(target: "ofp_actions", "{name} is omitted: {version} does not support it (see -O)");
    }
    flow_mod
}

/// Properties of all flows, determined before they are sent one by one.
struct Batch<'a> {
    /// The file's name.
    file: &'a str,
    /// How many.
    count: usize,
    /// The encodings that can say them all.
    usable: Protocols,
}

/// Looks through a file; an error names file, line and column.
fn survey<'a>(
    text: &str,
    file: &'a str,
    command: Option<FlowModCommand>,
    names: &PortNames,
) -> Result<Batch<'a>, Failure> {
    let mut batch = Batch { file, count: 0, usable: Protocols::ANY };
    for flow in flows_in(text, command, names) {
        let flow = flow.inspect_err(|error| log_remark(error.warning.as_ref()));
        let (_, flow) = flow.map_err(|error| Failure(format!("{file}:{error}")))?;
        report_normalization(&flow);
        batch.usable = batch.usable.intersect(flow.protocols);
        batch.count += 1;
    }
    Ok(batch)
}

/// Sends flow-mods, all in one encoding that can say them all.
fn send_flows(
    options: &Options,
    client: Option<Client>,
    batch: &Batch,
    flows: impl Iterator<Item = (usize, Parsed)>,
) -> Result<ExitCode, Failure> {
    let mut client = client_for(options, client, batch.usable)?;
    let protocol = client.protocol();
    let messages = flows.map(|(line, flow)| (line, in_protocol(flow, protocol)));
    let has_bundles = client.version() >= Version::V13;
    if options.args.bundle {
        send_bundle(&mut client, batch.file, messages)?;
    } else if has_bundles
        && (2..=FLOWS_PER_BUNDLE).contains(&batch.count)
        && open_bundle(&mut client)?.is_none()
    {
        // The error is reported for the flow, and for the bundle that it failed.
        fill_and_commit(&mut client, batch.file, messages, |client, sent, errors| {
            let (xid, error) = &errors[0];
            refusal(client, batch.file, sent, *xid, error)
        })?;
    } else {
        // With five -m, sent messages are printed in hexadecimal, with six without offsets.
        let codec = client.codec();
        let verbosity = options.args.more;
        let shown = messages.inspect(|(_, flow)| {
            if verbosity >= 5
                && let Ok(bytes) = codec.encode(0, &Message::FlowMod(Box::new(flow.clone())))
            {
                print_hex(&bytes, verbosity == 5);
            }
        });
        send_all(&mut client, batch.file, shown)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_hex(bytes: &[u8], with_offsets: bool) {
    if with_offsets {
        let mut text = String::new();
        write_hex_dump(&mut text, bytes);
        print!("{text}");
    } else {
        // As one number: without leading zeros.
        let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        println!("0x{}", digits.trim_start_matches('0'));
    }
}

/// Sends flow-mods, and stops when one is refused, or soon after.
pub fn send_all(
    client: &mut Client,
    file: &str,
    flows: impl Iterator<Item = (usize, FlowMod)>,
) -> Result<(), Failure> {
    let mut sent = Sent::new();
    for (count, (line, flow)) in flows.enumerate() {
        let xid =
            client.send(&Message::FlowMod(Box::new(flow))).map_err(|error| at_line(file, line, error))?;
        sent.push((xid, line));
        if count < FLOWS_ONE_BY_ONE || sent.len() == FLOWS_PER_BARRIER {
            settle(client, file, &mut sent)?;
        }
    }
    if sent.is_empty() { Ok(()) } else { settle(client, file, &mut sent) }
}

/// Waits until the switch has processed everything sent; an error names the line that was refused.
fn settle(client: &mut Client, file: &str, sent: &mut Sent) -> Result<(), Failure> {
    if let Some((xid, error)) = client.barrier_error()? {
        return Err(refusal(client, file, sent, xid, &error));
    }
    sent.clear();
    Ok(())
}

fn refusal(client: &Client, file: &str, sent: &Sent, xid: u32, error: &Message) -> Failure {
    let Failure(said) = client.refused(xid, error);
    match sent.iter().find(|(of_flow, line)| *of_flow == xid && *line > 0) {
        Some((_, line)) => Failure(format!("{file}:{line}: the switch refuses this flow\n{said}")),
        None => Failure(said),
    }
}

fn at_line(file: &str, line: usize, error: Failure) -> Failure {
    if line == 0 { error } else { Failure(format!("{file}:{line}: {error}")) }
}

/// The one bundle of a connection, and how it is carried out.
pub fn bundle_control(kind: BundleControlType) -> Message {
    Message::BundleControl(BundleControl { bundle_id: 0, kind, flags: BUNDLE_FLAGS })
}

pub const BUNDLE_FLAGS: BundleFlags = BundleFlags::ATOMIC.union(BundleFlags::ORDERED);

/// Opens a bundle. What the switch says if it refuses.
pub fn open_bundle(client: &mut Client) -> Result<Option<Failure>, Failure> {
    match client.transact(&bundle_control(BundleControlType::OpenRequest))? {
        (xid, error @ Message::Error(_)) => Ok(Some(client.refused(xid, &error))),
        _ => Ok(None),
    }
}

/// Sends flow-mods as a bundle, which takes effect as a whole. What the switch refuses is printed
/// as the stock tool does.
pub fn send_bundle(
    client: &mut Client,
    file: &str,
    flows: impl Iterator<Item = (usize, FlowMod)>,
) -> Result<(), Failure> {
    match open_bundle(client)? {
        Some(refused) => Err(refused),
        None => fill_and_commit(client, file, flows, |client, _, errors| {
            for (xid, error) in &errors {
                if let Message::Error(said) = error {
                    report_bundled(*xid, said, &said.data);
                }
            }
            Failure(format!("talking to {} (Protocol error)", client.name()))
        }),
    }
}

/// `refused` turns the switch's errors, at least one, into the message to print.
fn fill_and_commit(
    client: &mut Client,
    file: &str,
    flows: impl Iterator<Item = (usize, FlowMod)>,
    refused: impl Fn(&Client, &Sent, Vec<(u32, Message)>) -> Failure,
) -> Result<(), Failure> {
    let mut sent = Sent::new();
    for (line, flow) in flows {
        let message = Message::FlowMod(Box::new(flow));
        let bytes = client.codec().encode(0, &message).map_err(|error| at_line(file, line, error.into()))?;
        let add = BundleAdd { bundle_id: 0, flags: BUNDLE_FLAGS, xid: 0, message: Box::new(message), bytes };
        sent.push((client.send_bundled(add)?, line));
    }
    if let Some(error) = client.barrier_error()? {
        return Err(refused(client, &sent, vec![error]));
    }
    let mut errors = Vec::new();
    let commit = bundle_control(BundleControlType::CommitRequest);
    let (xid, reply) = client.transact_hearing(&commit, |xid, error| errors.push((xid, error)))?;
    if let Message::Error(_) = reply {
        errors.push((xid, reply));
        return Err(refused(client, &sent, errors));
    }
    Ok(())
}

/// The request that a command's second argument makes, and the client to send it.
fn flow_request(options: &Options) -> Result<(Client, FlowStatsRequest, PortNames), Failure> {
    let text = options.word(2).unwrap_or("");
    let (names, client) = if text.is_empty() { Default::default() } else { taken_names(options, text)? };
    let (mut request, usable) = parse_flow_request(text, &names)?;
    let allowed = options.allowed_of(usable)?;
    let mut client = client.map_or_else(|| options.connect(), Ok)?;
    client.prepare_dump(allowed)?;
    if client.protocol().is_nxm() {
        request.form = FlowForm::Nxm;
    }
    Ok((client, request, names))
}

pub fn dump_flows(options: &Options) -> Result<ExitCode, Failure> {
    let shows_names = options.shows_names();
    let sorted = !options.args.sort.is_empty() || !options.args.rsort.is_empty();
    let shown = if shows_names {
        let mut client = options.connect()?;
        let mut names = options.names_of(&mut client)?;
        add_names(&mut client, &mut names)?;
        names
    } else {
        PortNames::default()
    };
    let (mut client, request, _) = flow_request(options)?;
    let mut out = host::output::stdout();
    if !sorted && !shows_names && !options.args.no_stats {
        let style = client.style(PortNames::none(), options.more());
        client.show_statistics(StatsRequest::Flow(Box::new(request)), style, |text| {
            out.write_all(options.painted(text).as_bytes())?;
            Ok(())
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let style = FlowStyle { version: client.version(), ports: &shown, stats: !options.args.no_stats };
    let mut flows = flows_of_switch(&mut client, request)?;
    sort_flows(&mut flows, &options.args.sort, &options.args.rsort)?;
    let mut text = String::new();
    for flow in &mut flows {
        // Without ages, which the stock tool shows only in what it passes on as it came.
        (flow.info.idle_age, flow.info.hard_age) = (None, None);
        text.push(' ');
        write_flow(&mut text, flow.as_ref(), style);
        text.push('\n');
    }
    out.write_all(options.painted(&text).as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// All flows that match a request.
fn flows_of_switch(client: &mut Client, request: FlowStatsRequest) -> Result<Vec<FlowStats>, Failure> {
    let parts = client.collect(StatsRequest::Flow(Box::new(request)))?;
    let flows = parts.into_iter().flat_map(|part| match part {
        StatsBody::Flow { flows, .. } => flows,
        _ => Vec::new(),
    });
    Ok(flows.collect())
}

pub fn dump_aggregate(options: &Options) -> Result<ExitCode, Failure> {
    let (mut client, request, _) = flow_request(options)?;
    let style = client.style(PortNames::none(), options.more());
    client.show_statistics(StatsRequest::Aggregate(Box::new(request)), style, |text| {
        print!("{}", options.painted(text));
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `in_port=PORT packet=HEX actions=ACTIONS`, or of old `IN_PORT ACTIONS PACKET...`.
pub fn packet_out(options: &Options) -> Result<ExitCode, Failure> {
    let (names, client) = taken_names(options, &options.args.words[2..].join(" "))?;
    let (packets, usable) = match &options.args.words[2..] {
        [one] => {
            let (packet, usable) = parse_packet_out(one, &names)?;
            (vec![packet], usable)
        }
        [_, _] => return fail!("packet-out: expected in_port, actions and packets, or all in one argument"),
        [in_port, actions, packets @ ..] => {
            let Some(in_port) = names.parse(in_port) else {
                return fail!("{in_port} is not a valid OpenFlow port");
            };
            let (actions, usable) = parse_list(actions, &names)?;
            let packets: Result<Vec<PacketOut>, Failure> = packets
                .iter()
                .map(|hex| {
                    Ok(PacketOut {
                        buffer_id: None,
                        in_port,
                        metadata: Match::any(),
                        actions: actions.clone(),
                        data: parse_packet(hex)?,
                    })
                })
                .collect();
            (packets?, usable)
        }
        [] => return fail!("packet-out: no packet"),
    };
    let mut client = client_for(options, client, usable)?;
    for packet in packets {
        client.send(&Message::PacketOut(Box::new(packet)))?;
    }
    client.barrier()?;
    Ok(ExitCode::SUCCESS)
}

fn parse_packet(text: &str) -> Result<Vec<u8>, Failure> {
    hex(text).map_err(|why| Failure(format!("packet: {why}")))
}

/// Ports with a name that a packet may seem to come from.
const INPUTS: [OfPort; 3] = [OfPort::LOCAL, OfPort::NONE, OfPort::CONTROLLER];

/// A packet-out, and which encodings have it. Without actions the packet is dropped.
pub fn parse_packet_out(text: &str, names: &PortNames) -> Result<(PacketOut, Protocols), Failure> {
    let (fields, actions) = text.split_at(text.find("action").unwrap_or(text.len()));
    let mut packet = PacketOut {
        buffer_id: None,
        in_port: OfPort::CONTROLLER,
        metadata: Match::any(),
        actions: Vec::new(),
        data: Vec::new(),
    };
    let mut metadata = String::new();
    for (key, value) in KeyValues::new(fields) {
        match key {
            _ if value.is_empty() => return fail!("field {key} missing value"),
            "in_port" => match names.parse(value) {
                None => return fail!("{value} is not a valid OpenFlow port"),
                Some(port) if port < OfPort::MAX || INPUTS.contains(&port) => packet.in_port = port,
                Some(_) => return fail!("{value} is not a valid OpenFlow port for PACKET_OUT"),
            },
            "packet" => packet.data = parse_packet(value)?,
            _ => {
                match field_named(key) {
                    None => return fail!("unknown keyword {key}"),
                    Some(field) if !is_of_pipeline(field) => {
                        return fail!("{key} is not a valid pipeline field for PACKET_OUT");
                    }
                    // The parentheses belong to the type, or replace `=`.
                    Some(Mf::PacketType) => {
                        metadata += &format!("packet_type=({}),", value.trim_matches(['(', ')']));
                    }
                    Some(_) => metadata += &format!("{key}={value},"),
                }
                packet.metadata = parse_match(&metadata, names)?;
            }
        }
    }
    let is_ethernet = packet.metadata.key.get(FieldId::PacketType) == 0;
    if packet.data.is_empty() {
        return fail!("must specify packet");
    }
    if is_ethernet && packet.data.len() < 14 {
        return fail!("packet: Packet data too short for Ethernet");
    }
    let (actions, mut usable) = parse_list(actions.split_once('=').map_or("", |(_, list)| list), names)?;
    packet.actions = actions;
    // Versions before 1.5 carry only the input port of a packet's metadata.
    if packet.metadata != Match::any() {
        usable = usable.intersect(Protocols::only(Protocol::Of15));
    }
    Ok((packet, usable))
}

/// Logs the stock tool's remark that accompanies an error.
fn warn_of(error: &TextError) {
    log_remark(error.warning.as_ref());
}

fn log_remark(remark: Option<&Remark>) {
    let Some(Remark { module, text }) = remark else { return };
    match *module {
        "meta_flow" => tracing::warn!(target: "meta_flow", "{text}"),
        "ofp_port" => tracing::warn!(target: "ofp_port", "{text}"),
        _ => tracing::warn!(target: "ofp_actions", "{text}"),
    }
}

pub fn parse_flow_command(options: &Options) -> Result<ExitCode, Failure> {
    let text = options.word(1).unwrap_or("");
    let parsed = parse_flow_mod(text, FlowModCommand::Add, PortNames::none()).inspect_err(warn_of)?;
    report_normalization(&parsed);
    show_parsed(options, parsed.protocols, std::iter::once(parsed))
}

pub fn parse_flows_command(options: &Options) -> Result<ExitCode, Failure> {
    let file = options.word(1).unwrap_or("-");
    let text = read_file(file)?;
    let (command, names) = (Some(FlowModCommand::Add), PortNames::none());
    let usable = survey(&text, file, command, names)?.usable;
    let flows = flows_in(&text, command, names).filter_map(Result::ok);
    show_parsed(options, usable, flows.map(|(_, flow)| flow))
}

fn show_parsed(
    options: &Options,
    usable: Protocols,
    flows: impl Iterator<Item = Parsed>,
) -> Result<ExitCode, Failure> {
    println!("usable protocols: {usable}");
    let Some(protocol) = usable.intersect(options.allowed).iter().next() else {
        return fail!("no usable protocol");
    };
    println!("chosen protocol: {}", protocol.name());
    let mut out = std::io::BufWriter::new(host::output::stdout());
    for (i, flow) in flows.enumerate() {
        let bytes = as_sent(flow, protocol, i as u32 + 1)?;
        let text = bytes_text(&bytes, PortNames::none(), options.args.more.saturating_sub(1));
        out.write_all(options.painted(&text).as_bytes())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The flow-mod as the switch will get it.
fn as_sent(flow: Parsed, protocol: Protocol, xid: u32) -> Result<Vec<u8>, Failure> {
    let codec = openflow::Codec {
        version: protocol.version(),
        flow_mod_table_id: protocol.version() == Version::V10,
    };
    let mut flow_mod = in_protocol(flow, protocol);
    // The extension says a table that the flow does not, as Open vSwitch's client has it.
    let any_table = flow_mod.table_id == openflow::message::TABLE_ALL && !protocol.has_table_id_extension();
    if any_table && (flow_mod.command == FlowModCommand::Add || protocol.version() == Version::V10) {
        flow_mod.table_id = 0;
    }
    Ok(codec.encode(xid, &Message::FlowMod(Box::new(flow_mod)))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_from_the_controller_unless_it_says_otherwise() {
        let in_port = |text: &str| parse_packet_out(text, PortNames::none()).unwrap().0.in_port;
        let packet = "packet=505400000007505400000005080045000028";
        assert_eq!(in_port(&format!("{packet} actions=2")), OfPort::CONTROLLER);
        assert_eq!(in_port(&format!("in_port=NONE {packet} actions=2")), OfPort::NONE);
    }
}
