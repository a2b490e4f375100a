//! Commands about tables: their names, what they can do and what is configured of them.

use super::client::{Client, Failure, fail};
use super::context::Options;
use super::ports;
use openflow::message::{
    StatsBody, StatsRequest, TABLE_ALL, TableFeatures, TableInstructionFeatures, TableMod, Vacancy,
};
use openflow::text::{PortNames, write_table_features};
use openflow::{Message, Version, VersionSet};
use std::process::ExitCode;

/// OFPTFC_MODIFY.
const FEATURES_MODIFY: u8 = 1;

/// The setting that `mod-table` changes.
enum Change<'a> {
    Name(&'a str),
    /// What happens to packets without a flow.
    Miss(u32),
    Evict(bool),
    Vacancy(Option<Vacancy>),
}

/// Adds the names of a switch's tables.
pub(super) fn add_names(client: &mut Client, names: &mut PortNames) -> Result<(), Failure> {
    if client.version() >= Version::V13 {
        features(client)?.iter().for_each(|table| names.insert_table(table.table_id, &table.name));
        return Ok(());
    }
    for part in client.collect(StatsRequest::Table)? {
        if let StatsBody::Table(tables) = part {
            tables.iter().for_each(|table| names.insert_table(table.features.table_id, &table.features.name));
        }
    }
    Ok(())
}

/// Whether a text may name a table: the word for one is followed by a letter or a quotation mark. Numbers
/// need no answer from the switch.
pub(super) fn may_name_table(text: &str) -> bool {
    let begins_name = |rest: &str| {
        let rest = rest.trim_start_matches([' ', '=', ':', '(']);
        rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '"' || c == '_')
    };
    let after_word = text.match_indices("table").any(|(at, word)| begins_name(&text[at + word.len()..]));
    let resubmits = text.match_indices("resubmit(").any(|(at, word)| {
        let inner = text[at + word.len()..].split(')').next().unwrap_or_default();
        inner.split_once(',').is_some_and(|(_, table)| begins_name(table))
    });
    after_word || resubmits
}

fn features(client: &mut Client) -> Result<Vec<TableFeatures>, Failure> {
    let request = StatsRequest::TableFeatures { features: Vec::new(), more: false };
    let parts = client.collect(request)?.into_iter();
    let tables = parts.flat_map(|part| match part {
        StatsBody::TableFeatures(tables) => tables,
        _ => Vec::new(),
    });
    Ok(tables.collect())
}

pub fn dump_table_features(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    if client.version() < Version::V13 {
        return fail!("dump-table-features needs OpenFlow 1.3 or later ('-O OpenFlow13')");
    }
    let mut text = String::new();
    write_table_features(&mut text, &features(&mut client)?, client.version());
    // Each table comes after an empty line, the first one after the prompt.
    println!("{}", text.trim_start_matches('\n'));
    Ok(ExitCode::SUCCESS)
}

pub fn dump_table_desc(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    if client.version() < Version::V14 {
        return fail!("dump-table-desc needs OpenFlow 1.4 or later ('-O OpenFlow14')");
    }
    ports::print_statistics(options, &mut client, StatsRequest::TableDesc)
}

fn percent(text: Option<&str>, what: &str) -> Result<u8, Failure> {
    let Some(text) = text else { return fail!("Vacancy {what} value missing") };
    match text.parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => fail!("Invalid vacancy {what} value \"{text}\""),
    }
}

fn vacancy(limits: &str) -> Result<Vacancy, Failure> {
    let mut limits = limits.split(',').filter(|text| !text.is_empty());
    let (down, up) = (percent(limits.next(), "down")?, percent(limits.next(), "up")?);
    if down > up {
        return fail!(
            "Invalid vacancy range, vacancy up should be greater than vacancy down (OFPBPC_BAD_VALUE)"
        );
    }
    Ok(Vacancy { down, up, now: 0 })
}

/// The change that a text asks for, and the versions that can make it.
fn parse_change(text: &str, table_id: u8) -> Result<(Change<'_>, &'static [Version]), Failure> {
    use Version::*;
    Ok(match text {
        "controller" => (Change::Miss(0), &[V11, V12]),
        "continue" => (Change::Miss(1), &[V11, V12]),
        "drop" => (Change::Miss(2), &[V11, V12]),
        "evict" => (Change::Evict(true), &[V14, V15]),
        "noevict" => (Change::Evict(false), &[V14, V15]),
        "novacancy" => (Change::Vacancy(None), &[V14, V15]),
        _ => match text.split_once(':') {
            Some(("vacancy", limits)) => (Change::Vacancy(Some(vacancy(limits)?)), &[V14, V15]),
            Some(("name", name)) if table_id != TABLE_ALL => (Change::Name(name), &[V13, V14, V15]),
            _ => return fail!("invalid table_mod setting {text}"),
        },
    })
}

pub fn mod_table(options: &Options) -> Result<ExitCode, Failure> {
    let (table, setting) = (options.word(2).unwrap_or(""), options.word(3).unwrap_or(""));
    let mut names = PortNames::default();
    let is_number = table.bytes().all(|b| b.is_ascii_digit());
    if !is_number && !table.eq_ignore_ascii_case("all") && options.takes_names() {
        add_names(&mut options.connect()?, &mut names)?;
    }
    let table_id = match names.parse_table(table) {
        _ if table.eq_ignore_ascii_case("all") => TABLE_ALL,
        Some(id) => id,
        None => return fail!("unknown table \"{table}\""),
    };
    let (change, able) = parse_change(setting, table_id)?;
    let able_set = able.iter().fold(VersionSet::default(), |set, version| set.with(*version));
    let both = options.versions.intersect(able_set);
    if both.0 == 0 {
        let able: Vec<&str> = able.iter().map(|version| version.name()).collect();
        return fail!("table_mod '{setting}' requires one of the OpenFlow versions {}", able.join(", "));
    }
    let mut client = Client::connect(options.target(), both, &options.args.tls)?;
    if options.takes_names() {
        // The stock tool always requests names first, on a separate connection.
        (0..2).for_each(|_| client.skip_xid());
    }
    match change {
        Change::Name(name) => rename(&mut client, table_id, name)?,
        Change::Miss(config) => {
            client.command(&Message::TableMod(TableMod { table_id, config, ..TableMod::default() }))?;
        }
        Change::Evict(_) | Change::Vacancy(_) => configure(&mut client, table_id, &change)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Settings that were not requested are unchanged.
fn configure(client: &mut Client, table_id: u8, change: &Change) -> Result<(), Failure> {
    for part in client.collect(StatsRequest::TableDesc)? {
        let StatsBody::TableDesc(tables) = part else { continue };
        for desc in tables.iter().filter(|desc| table_id == TABLE_ALL || desc.0.table_id == table_id) {
            let mut table = desc.0;
            let (bit, on) = match change {
                Change::Evict(on) => (TableMod::EVICTION, *on),
                Change::Vacancy(vacancy) => {
                    table.vacancy = *vacancy;
                    (TableMod::VACANCY_EVENTS, vacancy.is_some())
                }
                _ => continue,
            };
            table.config = if on { table.config | bit } else { table.config & !bit };
            client.command(&Message::TableMod(table))?;
        }
    }
    Ok(())
}

fn rename(client: &mut Client, table_id: u8, name: &str) -> Result<(), Failure> {
    let mut tables = features(client)?;
    let Some(table) = tables.iter_mut().find(|table| table.table_id == table_id) else {
        return fail!("switch does not have table {table_id}");
    };
    // The length of a name on the wire, whose last byte is zero.
    let end = (0..=name.len().min(31)).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    table.name = name[..end].into();
    if client.version() >= Version::V15 {
        // One table alone, without properties.
        let bare = TableFeatures {
            command: FEATURES_MODIFY,
            nonmiss: TableInstructionFeatures::default(),
            miss: None,
            matchable: Vec::new(),
            wildcards: Vec::new(),
            ..table.clone()
        };
        tables = vec![bare];
    }
    client.set_table_features(&tables)
}
