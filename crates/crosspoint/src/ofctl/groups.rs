//! Groups, as far as scripts need them that save and restore what a switch has: it has none.

use super::client::{Client, Failure, fail};
use super::flows::read_file;
use super::{Options, ports};
use openflow::Version;
use openflow::message::StatsRequest;
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

/// Takes files without groups: what was saved of a switch that has none.
pub fn add_groups(options: &Options) -> Result<ExitCode, Failure> {
    let (text, shown) = read_file(options.word(2).unwrap_or("-"))?;
    let content = |line: &&str| !line.split('#').next().unwrap_or("").trim().is_empty();
    match text.lines().position(|line| content(&line)) {
        None => connect(options).map(|_| ExitCode::SUCCESS),
        Some(at) => fail!("{shown}:{}: groups are not there yet", at + 1),
    }
}
