//! Commands about groups and meters, and bundles of changes of all kinds.

use super::bundles::report_bundled;
use super::client::{Client, Failure, fail};
use super::context::{Options, no_common_format};
use super::flows::{BUNDLE_FLAGS, bundle_control, open_bundle, parse_packet_out};
use super::input::read_file;
use super::ports;
use openflow::message::{
    BundleAdd, BundleControlType, GROUP_ALL, GroupCommand, GroupMod, METER_ALL, MeterCommand, MeterConfig,
    MeterMod, StatsRequest,
};
use openflow::text::{
    Parsed, PortNames, Protocol, Protocols, parse_flow_line, parse_group_line, parse_group_mod,
    parse_meter_id, parse_meter_mod,
};
use openflow::{Message, Version, VersionSet};
use std::process::ExitCode;

/// The names of the switch's ports, asked for on a connection of their own.
fn taken_names(options: &Options) -> Result<PortNames, Failure> {
    if options.takes_names() { options.names_of(&mut options.connect()?) } else { Ok(PortNames::default()) }
}

/// The group that a command names as `ID`, `all`, `any` or `group_id=ID`; none for all.
pub fn argument(options: &Options) -> Result<Option<u32>, Failure> {
    let all = |text: &&str| text.eq_ignore_ascii_case("all") || text.eq_ignore_ascii_case("any");
    let Some(text) = options.word(2).filter(|text| !all(text)) else { return Ok(None) };
    if let Ok(group) = text.parse() {
        return Ok(Some(group));
    }
    let named = parse_group_mod(text, GroupCommand::Delete, PortNames::none())?.0.group.group_id;
    Ok((named != GROUP_ALL).then_some(named))
}

pub fn mod_group(options: &Options) -> Result<ExitCode, Failure> {
    let may_create = options.args.may_create;
    change(options, if may_create { GroupCommand::AddOrModify } else { GroupCommand::Modify })
}

/// Adds the groups of a file; each line may start with another command.
pub fn add_groups(options: &Options) -> Result<ExitCode, Failure> {
    let file = options.word(2).unwrap_or("-");
    let changes = groups_of_file(options, file, GroupCommand::Add)?;
    send_groups(options, changes)
}

/// The change in the argument, or those of standard input. Without an argument it is about all groups; none
/// that is to be deleted need exist.
pub fn change(options: &Options, command: GroupCommand) -> Result<ExitCode, Failure> {
    let changes = match options.word(2) {
        Some("-") => groups_of_file(options, "-", command)?,
        None | Some("") => vec![parse_group_mod("", command, PortNames::none())?],
        Some(text) => vec![parse_group_mod(text, command, &taken_names(options)?)?],
    };
    send_groups(options, changes)
}

fn groups_of_file(
    options: &Options,
    file: &str,
    command: GroupCommand,
) -> Result<Vec<(GroupMod, Protocols)>, Failure> {
    let names = taken_names(options)?;
    let text = read_file(file)?;
    let parse = |line: &str| match command {
        GroupCommand::Add => parse_group_line(line, &names),
        command => parse_group_mod(line, command, &names),
    };
    lines(&text).map(|(n, line)| parse(line).map_err(|e| Failure(format!("{file}:{n}: {e}")))).collect()
}

/// Lines that say something, with their numbers and without comments.
fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let without_comments = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    without_comments.enumerate().map(|(i, line)| (i + 1, line)).filter(|(_, line)| !line.is_empty())
}

fn send_groups(options: &Options, changes: Vec<(GroupMod, Protocols)>) -> Result<ExitCode, Failure> {
    let usable = changes.iter().fold(Protocols::ANY, |all, (_, usable)| all.intersect(*usable));
    let changes: Vec<GroupMod> = changes.into_iter().map(|(change, _)| change).collect();
    let usable = if options.args.bundle { usable.intersect(with_bundles()) } else { usable };
    let mut client = options.client_for(usable)?;
    let version = client.version();
    if !matches!(version, Version::V10 | Version::V15)
        && changes.iter().any(|m| m.command == GroupCommand::InsertBucket)
    {
        return fail!("insert-bucket needs OpenFlow 1.5 or later ('-O OpenFlow15')");
    }
    let messages = changes.into_iter().map(|change| Message::GroupMod(Box::new(change)));
    if options.args.bundle {
        send_bundle(&mut client, options.target(), messages.collect())?;
    } else {
        messages.into_iter().try_for_each(|message| client.command(&message))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The encodings of versions that have bundles.
fn with_bundles() -> Protocols {
    let versions = [Version::V13, Version::V14, Version::V15];
    let protocols = versions.map(|version| Protocols::only(Protocol::of_version(version)));
    protocols.into_iter().fold(Protocols::NONE, Protocols::union)
}

/// Makes the changes of a file all at once, or none.
pub fn bundle(options: &Options) -> Result<ExitCode, Failure> {
    let names = taken_names(options)?;
    let file = options.word(2).unwrap_or("-");
    let text = read_file(file)?;
    let with_bundles = VersionSet(VersionSet::SUPPORTED.0 & !VersionSet::up_to(Version::V12 as u8).0);
    // Without a version, OpenFlow 1.4 is used.
    let versions = match options.versions.intersect(with_bundles) {
        VersionSet(0) => VersionSet::default().with(Version::V14),
        some => some,
    };
    let mut usable = Protocols::ANY;
    let mut changes = Vec::new();
    for (n, line) in lines(&text) {
        let (change, its) = bundled(line, &names).map_err(|e| Failure(format!("{file}:{n}: {e}")))?;
        usable = usable.intersect(its);
        changes.push(change);
    }
    let allowed = Protocols::of_versions(versions);
    if usable.intersect(allowed).is_empty() {
        return no_common_format(usable, allowed);
    }
    let versions = versions.iter().filter(|&version| usable.contains(Protocol::of_version(version)));
    let versions = versions.fold(VersionSet::default(), VersionSet::with);
    let mut client = Client::connect(options.target(), versions, &options.args.tls)?;
    let protocol = client.protocol();
    let messages = changes.into_iter().map(|change| match change {
        Change::Flow(flow) => Message::FlowMod(Box::new(flow.in_protocol(protocol))),
        Change::Other(message) => message,
    });
    let messages = messages.collect();
    send_bundle(&mut client, options.target(), messages)?;
    Ok(ExitCode::SUCCESS)
}

/// The change that a line of such a file describes.
enum Change {
    Flow(Box<Parsed>),
    Other(Message),
}

/// A line of such a file: `flow`, `group` or `packet-out`, and the arguments of the command of that name.
/// Also returns the encodings that can express it.
fn bundled(line: &str, names: &PortNames) -> Result<(Change, Protocols), Failure> {
    let (word, rest) = line.split_at(line.find([',', ' ', '\t']).unwrap_or(line.len()));
    match word {
        "flow" => {
            let flow = parse_flow_line(rest, names)?;
            let usable = flow.protocols;
            Ok((Change::Flow(Box::new(flow)), usable))
        }
        "group" => {
            let (group, usable) = parse_group_line(rest, names)?;
            Ok((Change::Other(Message::GroupMod(Box::new(group))), usable))
        }
        "packet-out" => {
            let (packet, usable) = parse_packet_out(rest, names)?;
            Ok((Change::Other(Message::PacketOut(Box::new(packet))), usable))
        }
        _ => fail!("Unsupported bundle message type: {word}"),
    }
}

/// Sends messages as a bundle. What the switch says of one of them is printed with the message.
fn send_bundle(client: &mut Client, target: &str, messages: Vec<Message>) -> Result<(), Failure> {
    let mut sent: Vec<(u32, Vec<u8>)> = Vec::new();
    let mut errors: Vec<(u32, Message)> = Vec::new();
    if let Some(refused) = open_bundle(client)? {
        return Err(refused);
    }
    for message in messages {
        let bytes = client.codec().encode(0, &message)?;
        let add = BundleAdd {
            bundle_id: 0,
            flags: BUNDLE_FLAGS,
            xid: 0,
            message: Box::new(message),
            bytes: bytes.clone(),
        };
        sent.push((client.send_bundled(add)?, bytes));
    }
    errors.extend(client.barrier_error()?);
    if errors.is_empty() {
        let commit = bundle_control(BundleControlType::CommitRequest);
        let bytes = client.codec().encode(0, &commit)?;
        let (xid, reply) = client.transact_hearing(&commit, |xid, error| errors.push((xid, error)))?;
        if matches!(reply, Message::Error(_)) {
            sent.push((xid, bytes));
            errors.push((xid, reply));
        }
    }
    for (xid, error) in &errors {
        let Message::Error(said) = error else { continue };
        // An error carries only the first bytes of the message it refers to; here is the whole message.
        let of = sent.iter().find(|(of, _)| of == xid).map_or(&said.data, |(_, bytes)| bytes);
        report_bundled(*xid, said, of);
    }
    if errors.is_empty() { Ok(()) } else { fail!("talking to {target} (Protocol error)") }
}

pub fn set_meter(options: &Options, command: MeterCommand) -> Result<ExitCode, Failure> {
    change_meter(options, parse_meter_mod(options.word(2).unwrap_or(""), command)?)
}

/// Deletes a meter; without METER, all. They need not exist.
pub fn del_meters(options: &Options) -> Result<ExitCode, Failure> {
    let meter = MeterConfig { meter_id: meter_argument(options)?, ..MeterConfig::default() };
    change_meter(options, MeterMod { command: MeterCommand::Delete, meter })
}

fn meter_argument(options: &Options) -> Result<u32, Failure> {
    Ok(options.word(2).map_or(Ok(METER_ALL), parse_meter_id)?)
}

fn change_meter(options: &Options, change: MeterMod) -> Result<ExitCode, Failure> {
    options.client_for(Protocols::OF13_UP)?.command(&Message::MeterMod(change))?;
    Ok(ExitCode::SUCCESS)
}

/// Prints statistics, of one meter or all where the request is about some.
pub fn show_meters(
    options: &Options,
    request: impl FnOnce(u32) -> StatsRequest,
) -> Result<ExitCode, Failure> {
    let request = request(meter_argument(options)?);
    ports::print_statistics(options, &mut options.client_for(Protocols::OF13_UP)?, request)
}
