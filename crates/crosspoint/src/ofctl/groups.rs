//! Groups and meters, as far as scripts need them that save, clear and restore what a switch has: it has
//! none.

use super::client::{Client, Failure, fail};
use super::flows::read_file;
use super::{Options, ports};
use openflow::message::{
    GroupCommand, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig,
    MeterMod, StatsRequest,
};
use openflow::text::{PortNames, parse_group_mod};
use openflow::{Message, Version};
use std::process::ExitCode;

/// Speaks a version that has groups, whatever else is allowed.
fn connect(options: &Options) -> Result<Client, Failure> {
    let target = options.word(1).unwrap_or("");
    let client = Client::connect(target, options.versions.with(Version::V13), &options.args.tls)?;
    match client.version() {
        Version::V10 => fail!("{target}: OpenFlow 1.0 has no groups; allow the bridge OpenFlow13"),
        _ => Ok(client),
    }
}

pub fn dump_groups(options: &Options) -> Result<ExitCode, Failure> {
    let group = match options.word(2) {
        None => None,
        Some(text) => match text.parse() {
            Ok(group) => Some(group),
            Err(_) => return fail!("invalid group number {text}"),
        },
    };
    ports::print_statistics(options, &mut connect(options)?, StatsRequest::GroupDesc(group))
}

/// Deletes groups; without GROUP, all. None that is to go need exist.
pub fn del_groups(options: &Options) -> Result<ExitCode, Failure> {
    let (text, names) = (options.word(2).unwrap_or(""), PortNames::none());
    let change = parse_group_mod(text, GroupCommand::Delete, names)?;
    connect(options)?.command(&Message::GroupMod(Box::new(change)))?;
    Ok(ExitCode::SUCCESS)
}

/// Deletes meters; without METER, all. None that is to go need exist.
pub fn del_meters(options: &Options) -> Result<ExitCode, Failure> {
    let meter_id = match options.word(2).map(|text| text.strip_prefix("meter=").unwrap_or(text)) {
        None | Some("all") => METER_ALL,
        Some("controller") => METER_CONTROLLER,
        Some("slowpath") => METER_SLOWPATH,
        Some(text) => match text.parse() {
            Ok(meter_id @ 1..=METER_MAX) => meter_id,
            _ => {
                return fail!(
                    "invalid meter id {text}: must be 1 to {METER_MAX}, controller, slowpath or all"
                );
            }
        },
    };
    let meter = MeterConfig { meter_id, ..MeterConfig::default() };
    let change = MeterMod { command: MeterCommand::Delete, meter };
    connect(options)?.command(&Message::MeterMod(change))?;
    Ok(ExitCode::SUCCESS)
}

/// Takes files without groups: what was saved of a switch that has none.
pub fn add_groups(options: &Options) -> Result<ExitCode, Failure> {
    let (text, shown) = read_file(options.word(2).unwrap_or("-"))?;
    let content = |line: &&str| !line.split('#').next().unwrap_or("").trim().is_empty();
    match text.lines().position(|line| content(&line)) {
        None => connect(options).map(|_| ExitCode::SUCCESS),
        Some(at) => fail!("{shown}:{}: groups are not there yet", at + 1),
    }
}
