//! Commands that read and change flows.

use super::client::{Client, Failure, fail, os_text};
use super::{Options, replace::sort_flows};
use base::OfPort;
use openflow::message::{
    BundleAdd, BundleControl, BundleControlType, BundleFlags, FlowForm, FlowMod, FlowModCommand, FlowStats,
    FlowStatsRequest, PacketOut, StatsBody, StatsRequest,
};
use openflow::text::{
    ActionsIn, FlowStyle, KeyValues, Parsed, PortNames, Protocol, Protocols, flows_in, message_text,
    parse_actions, parse_flow_file, parse_flow_mod, parse_flow_request, write_flow,
};
use openflow::{Message, Version};
use std::io::{Read, Write};
use std::process::ExitCode;

/// Flow-mods between two barriers: what may be on its way when one of them is refused.
const FLOWS_PER_BARRIER: usize = 4096;

/// The names to take for ports, and the client that was asked for them, where they are wanted.
fn taken_names(options: &Options, target: &str) -> Result<(PortNames, Option<Client>), Failure> {
    if !options.takes_names() {
        return Ok((PortNames::default(), None));
    }
    let mut client = options.connect(target)?;
    let names = options.names_of(&mut client)?;
    // The stock tool asks on connections of their own, for names of tables too.
    (0..3).for_each(|_| client.skip_xid());
    Ok((names, Some(client)))
}

fn target(options: &Options) -> &str {
    options.word(1).unwrap_or("")
}

/// A client that speaks one of the encodings: the given one, or a fresh one.
fn client_for(options: &Options, client: Option<Client>, usable: Protocols) -> Result<Client, Failure> {
    let both = usable.intersect(options.allowed);
    if both.is_empty() {
        return fail!(
            "none of the usable flow formats ({usable}) is among the allowed flow formats ({})",
            options.allowed
        );
    }
    let mut client = match client {
        Some(client) => client,
        None => options.connect(target(options))?,
    };
    client.use_one_of(both)?;
    Ok(client)
}

/// The text of a file; `-` is standard input. Gives the name for errors too.
pub fn read_file(name: &str) -> Result<(String, &str), Failure> {
    let mut bytes = Vec::new();
    let (result, shown) = match name {
        "-" => (std::io::stdin().read_to_end(&mut bytes), "-"),
        path => (std::fs::File::open(path).and_then(|mut file| file.read_to_end(&mut bytes)), path),
    };
    match result {
        Ok(_) => match String::from_utf8(bytes) {
            Ok(text) => Ok((text, shown)),
            Err(_) => fail!("{shown}: not text in UTF-8"),
        },
        Err(error) => fail!("{shown}: open failed ({})", os_text(&error)),
    }
}

/// Reads a file of flows. An error names file, line and column.
pub fn flows_of_file(
    name: &str,
    command: Option<FlowModCommand>,
    names: &PortNames,
) -> Result<Vec<Parsed>, Failure> {
    let (text, shown) = read_file(name)?;
    parse_flow_file(&text, command, names).map_err(|error| Failure(format!("{shown}:{error}")))
}

pub fn add_flow(options: &Options) -> Result<ExitCode, Failure> {
    if options.word(2) == Some("-") {
        return flow_mod_file(options, None);
    }
    flow_mod(options, FlowModCommand::Add)
}

pub fn add_flows(options: &Options) -> Result<ExitCode, Failure> {
    flow_mod_file(options, None)
}

pub fn mod_flows(options: &Options) -> Result<ExitCode, Failure> {
    let command = if options.args.strict { FlowModCommand::ModifyStrict } else { FlowModCommand::Modify };
    if options.word(2) == Some("-") {
        flow_mod_file(options, Some(command))
    } else {
        flow_mod(options, command)
    }
}

pub fn del_flows(options: &Options) -> Result<ExitCode, Failure> {
    let command = if options.args.strict { FlowModCommand::DeleteStrict } else { FlowModCommand::Delete };
    if options.word(2) == Some("-") {
        flow_mod_file(options, Some(command))
    } else {
        flow_mod(options, command)
    }
}

fn flow_mod(options: &Options, command: FlowModCommand) -> Result<ExitCode, Failure> {
    let text = options.word(2).unwrap_or("");
    let (names, client) =
        if text.is_empty() { Default::default() } else { taken_names(options, target(options))? };
    let parsed = parse_flow_mod(text, command, &names)?;
    send_flows(options, client, parsed.protocols, std::iter::once(parsed))
}

fn flow_mod_file(options: &Options, command: Option<FlowModCommand>) -> Result<ExitCode, Failure> {
    let (names, client) = taken_names(options, target(options))?;
    let (text, shown) = read_file(options.word(2).unwrap_or("-"))?;
    // Read twice, first to know that all is well and how it can be said, so that a million flows need no room.
    let usable = usable_of(&text, shown, command, &names)?;
    let all = flows_in(&text, command, &names).filter_map(Result::ok);
    send_flows(options, client, usable, all)
}

/// The encodings that can say all flows of a file; an error names file, line and column.
fn usable_of(
    text: &str,
    shown: &str,
    command: Option<FlowModCommand>,
    names: &PortNames,
) -> Result<Protocols, Failure> {
    let mut usable = Protocols::ANY;
    for flow in flows_in(text, command, names) {
        let flow = flow.map_err(|error| Failure(format!("{shown}:{error}")))?;
        usable = usable.intersect(flow.protocols);
    }
    Ok(usable)
}

/// Sends flow-mods, all in one encoding that can say them all.
fn send_flows(
    options: &Options,
    client: Option<Client>,
    usable: Protocols,
    flows: impl Iterator<Item = Parsed>,
) -> Result<ExitCode, Failure> {
    let mut client = client_for(options, client, usable)?;
    let protocol = client.protocol();
    let messages = flows.map(|flow| flow.in_protocol(protocol));
    if options.args.bundle {
        send_bundle(&mut client, messages)?;
    } else {
        send_all(&mut client, messages)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Sends flow-mods, and stops soon after one is refused.
pub fn send_all(client: &mut Client, flows: impl Iterator<Item = FlowMod>) -> Result<(), Failure> {
    let mut since_barrier = 0;
    for flow in flows {
        client.send(&Message::FlowMod(Box::new(flow)))?;
        since_barrier += 1;
        if since_barrier == FLOWS_PER_BARRIER {
            client.barrier()?;
            since_barrier = 0;
        }
    }
    client.barrier()
}

/// Sends flow-mods as a bundle, which takes effect as a whole.
pub fn send_bundle(client: &mut Client, flows: impl Iterator<Item = FlowMod>) -> Result<(), Failure> {
    let (bundle_id, flags) = (0, BundleFlags::ATOMIC | BundleFlags::ORDERED);
    let control = |kind| Message::BundleControl(BundleControl { bundle_id, kind, flags });
    client.request(&control(BundleControlType::OpenRequest))?;
    for flow in flows {
        let message = Message::FlowMod(Box::new(flow));
        let xid = 0;
        let bytes = client.codec().encode(xid, &message)?;
        let add = BundleAdd { bundle_id, flags, xid, message: Box::new(message), bytes };
        client.send_bundled(add)?;
    }
    client.barrier()?;
    client.request(&control(BundleControlType::CommitRequest))?;
    Ok(())
}

/// The request that a command's second argument makes, and the client to send it.
fn flow_request(options: &Options) -> Result<(Client, FlowStatsRequest, PortNames), Failure> {
    let text = options.word(2).unwrap_or("");
    let (names, client) =
        if text.is_empty() { Default::default() } else { taken_names(options, target(options))? };
    let (mut request, usable) = parse_flow_request(text, &names)?;
    let allowed = usable.intersect(options.allowed);
    if allowed.is_empty() {
        return fail!(
            "none of the usable flow formats ({usable}) is among the allowed flow formats ({})",
            options.allowed
        );
    }
    let mut client = match client {
        Some(client) => client,
        None => options.connect(target(options))?,
    };
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
        let mut client = options.connect(target(options))?;
        options.names_of(&mut client)?
    } else {
        PortNames::default()
    };
    let (mut client, request, _) = flow_request(options)?;
    let mut out = std::io::stdout().lock();
    if !sorted && !shows_names && !options.args.no_stats {
        let style = client.style(PortNames::none(), options.more());
        client.statistics(StatsRequest::Flow(Box::new(request)), |xid, message| {
            out.write_all(message_text(xid, &message, style).as_bytes())?;
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
    out.write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}

/// All flows within a request.
pub fn flows_of_switch(client: &mut Client, request: FlowStatsRequest) -> Result<Vec<FlowStats>, Failure> {
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
    client.statistics(StatsRequest::Aggregate(Box::new(request)), |xid, message| {
        print!("{}", message_text(xid, &message, style));
        Ok(())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `in_port=PORT packet=HEX actions=ACTIONS`, or of old `IN_PORT ACTIONS PACKET...`.
pub fn packet_out(options: &Options) -> Result<ExitCode, Failure> {
    let (names, client) = taken_names(options, target(options))?;
    let packets = match &options.args.words[2..] {
        [one] => vec![parse_packet_out(one, &names)?],
        [_, _] => return fail!("packet-out: expected in_port, actions and packets, or all in one argument"),
        [in_port, actions, packets @ ..] => {
            let Some(in_port) = names.parse(in_port) else {
                return fail!("{in_port} is not a valid OpenFlow port");
            };
            let actions = parse_actions(actions, ActionsIn::List, &names)?;
            let packets: Result<Vec<PacketOut>, Failure> = packets
                .iter()
                .map(|hex| {
                    Ok(PacketOut {
                        buffer_id: None,
                        in_port,
                        actions: actions.clone(),
                        data: parse_packet(hex)?,
                    })
                })
                .collect();
            packets?
        }
        [] => return fail!("packet-out: no packet"),
    };
    let mut client = client_for(options, client, Protocols::ANY)?;
    for packet in packets {
        client.send(&Message::PacketOut(packet))?;
    }
    client.barrier()?;
    Ok(ExitCode::SUCCESS)
}

fn parse_packet(text: &str) -> Result<Vec<u8>, Failure> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let bytes: Option<Vec<u8>> = digits
        .as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok().filter(|_| pair.len() == 2))
        .collect();
    match bytes {
        Some(bytes) if bytes.len() >= 14 => Ok(bytes),
        Some(_) => fail!("packet: Packet data too short for Ethernet"),
        None => fail!("packet: Trailing garbage in packet data"),
    }
}

fn parse_packet_out(text: &str, names: &PortNames) -> Result<PacketOut, Failure> {
    let Some(at) = text.find("action") else { return fail!("must specify an action") };
    let Some(equals) = text[at..].find('=') else { return fail!("must specify an action") };
    let actions = parse_actions(&text[at + equals + 1..], ActionsIn::List, names)?;
    let mut packet = PacketOut { buffer_id: None, in_port: OfPort::NONE, actions, data: Vec::new() };
    for (key, value) in KeyValues::new(&text[..at]) {
        match key {
            "in_port" => match names.parse(value) {
                Some(port) => packet.in_port = port,
                None => return fail!("{value} is not a valid OpenFlow port"),
            },
            "packet" => packet.data = parse_packet(value)?,
            _ => return fail!("unknown keyword {key}"),
        }
    }
    match packet.in_port {
        _ if packet.data.is_empty() => fail!("must specify packet data"),
        port if port < OfPort::MAX || matches!(port, OfPort::LOCAL | OfPort::NONE | OfPort::CONTROLLER) => {
            Ok(packet)
        }
        port => fail!("{} is not a valid OpenFlow port for PACKET_OUT", names.text(port)),
    }
}

pub fn parse_flow_command(options: &Options) -> Result<ExitCode, Failure> {
    let parsed = parse_flow_mod(options.word(1).unwrap_or(""), FlowModCommand::Add, PortNames::none())?;
    show_parsed(options, parsed.protocols, std::iter::once(parsed))
}

pub fn parse_flows_command(options: &Options) -> Result<ExitCode, Failure> {
    let (text, shown) = read_file(options.word(1).unwrap_or("-"))?;
    let usable = usable_of(&text, shown, None, PortNames::none())?;
    show_parsed(options, usable, flows_in(&text, None, PortNames::none()).filter_map(Result::ok))
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
    let style = openflow::text::MessageStyle {
        version: protocol.version(),
        ports: PortNames::none(),
        verbosity: options.more(),
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for (i, flow) in flows.enumerate() {
        let message = as_received(flow, protocol)?;
        out.write_all(message_text(i as u32 + 1, &message, style).as_bytes())?;
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// The flow-mod as the switch will read it.
fn as_received(flow: Parsed, protocol: Protocol) -> Result<Message, Failure> {
    let codec = openflow::Codec {
        version: protocol.version(),
        flow_mod_table_id: protocol.version() == Version::V10,
    };
    let mut flow_mod = flow.in_protocol(protocol);
    if flow_mod.table_id == openflow::message::TABLE_ALL && flow_mod.command == FlowModCommand::Add {
        flow_mod.table_id = 0;
    }
    let bytes = codec.encode(1, &Message::FlowMod(Box::new(flow_mod)))?;
    match codec.decode(&bytes) {
        Ok((_, message)) => Ok(message),
        Err(error) => fail!("the flow cannot be read back ({error})"),
    }
}
