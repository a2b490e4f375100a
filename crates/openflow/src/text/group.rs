//! Groups in text, as ovs-ofctl(8) reads them:
//! `group_id=1,type=select,bucket=weight:5,actions=output:1,bucket=...`.

use super::field::parse_value;
use super::matching::field_named;
use super::value::{u16_named, u32_of, u64_of};
use super::{KeyValues, PortNames, Protocol, Protocols, TextError, bad, field_names};
use crate::action::parse_list;
use crate::message::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand,
    GroupDesc, GroupMod, GroupSelection, GroupType,
};
use crate::version::Version;
use std::collections::HashSet;

/// Bytes of the name of a selection method.
const METHOD_MAX: usize = 15;

/// Words before the group in files and bundles, where each line may say its command.
const COMMANDS: [(&str, GroupCommand); 6] = [
    ("add", GroupCommand::Add),
    ("add_or_mod", GroupCommand::AddOrModify),
    ("modify", GroupCommand::Modify),
    ("delete", GroupCommand::Delete),
    ("insert_bucket", GroupCommand::InsertBucket),
    ("insert_buckets", GroupCommand::InsertBucket),
];

/// Parses a line of a file: like [`parse_group_mod`], with an optional command before the group, by default
/// `add`.
pub fn parse_group_line(line: &str, ports: &PortNames) -> Result<(GroupMod, Protocols), TextError> {
    let text = line.trim();
    let word = text.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or("");
    if word == "remove_bucket" || word == "remove_buckets" {
        return parse_group_mod(&text[word.len()..], GroupCommand::RemoveBucket, ports);
    }
    match COMMANDS.iter().find(|(name, _)| *name == word) {
        Some(&(_, command)) => parse_group_mod(&text[word.len()..], command, ports),
        None => parse_group_mod(text, GroupCommand::Add, ports),
    }
}

/// Reads the argument of `add-group`, `mod-group`, `del-groups`, `insert-buckets` or `remove-buckets`, and
/// says which encodings have the actions of the buckets.
pub fn parse_group_mod(
    text: &str,
    command: GroupCommand,
    ports: &PortNames,
) -> Result<(GroupMod, Protocols), TextError> {
    let on_buckets = matches!(command, GroupCommand::InsertBucket | GroupCommand::RemoveBucket);
    let with_type = matches!(command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify);
    let mut group = GroupDesc { group_id: GROUP_ANY, ..GroupDesc::default() };
    let (mut has_id, mut has_type, mut command_bucket_id) = (false, false, None);
    // Buckets come last: the value of one extends to the next, including commas.
    let start = bucket_at(text).unwrap_or(text.len());
    let mut protocols = Protocols::ANY;
    for (key, value) in KeyValues::new(&text[..start]) {
        match key {
            "command_bucket_id" if on_buckets => command_bucket_id = Some(bucket_id(value, command)?),
            "group_id" => {
                has_id = true;
                group.group_id = match value {
                    "all" => GROUP_ALL,
                    value => {
                        let id = u32_of(value);
                        let id = id.map_err(|_| TextError::new(format!("invalid group id {value}")))?;
                        if id > GROUP_MAX && id != GROUP_ALL {
                            return bad!("invalid group id {id}");
                        }
                        id
                    }
                };
            }
            "type" if with_type => {
                has_type = true;
                group.kind = match GroupType::ALL.iter().find(|(_, name)| *name == value) {
                    Some((kind, _)) => *kind,
                    None if value == "fast_failover" => GroupType::FastFailover,
                    None => return bad!("invalid group type {value}"),
                };
            }
            "selection_method" if with_type => {
                if value.len() > METHOD_MAX {
                    return bad!("selection method is longer than {METHOD_MAX} bytes long");
                }
                group.selection.method = value.to_string();
            }
            "selection_method_param" if with_type => {
                group.selection.param = u64_of(value)?;
            }
            "fields" if with_type => group.selection.fields = fields(value, ports)?,
            "type" => return bad!("type is not needed"),
            "selection_method" => return bad!("selection method is not needed"),
            "selection_method_param" => return bad!("selection method param is not needed"),
            "fields" => return bad!("fields are not needed"),
            "command_bucket_id" => return bad!("command bucket id is not needed"),
            _ => return bad!("unknown keyword {key}"),
        }
    }
    if !has_id && command != GroupCommand::Delete {
        return bad!("must specify a group_id");
    }
    if !has_id {
        group.group_id = GROUP_ALL;
    }
    if with_type && !has_type {
        return bad!("must specify a type");
    }
    for bucket in buckets(&text[start..]) {
        if !with_type && command != GroupCommand::InsertBucket {
            return bad!("bucket is not needed");
        }
        let (bucket, weighted, usable) = parse_bucket(bucket, group.kind, BUCKET_ALL, ports)?;
        if with_type {
            check_bucket(&bucket, weighted, group.kind)?;
        }
        protocols = protocols.intersect(usable);
        group.buckets.push(bucket);
    }
    number_buckets(&mut group.buckets);
    check(&group, with_type)?;
    let command_bucket_id = match (command_bucket_id, on_buckets) {
        (Some(id), _) => id,
        (None, _) if command != GroupCommand::InsertBucket => BUCKET_ALL,
        (None, _) => return bad!("must specify a command bucket id"),
    };
    // Without buckets, what else is said needs OpenFlow 1.5, or a version that has no groups anyway.
    if group.buckets.is_empty() && (on_buckets || !group.selection.method.is_empty()) {
        let with_bucket_ids = Protocol::of_version(Version::V15);
        protocols = protocols.intersect(Protocols::OF10_ANY.union(Protocols::only(with_bucket_ids)));
    }
    Ok((GroupMod { command, command_bucket_id, group }, protocols))
}

/// Gives buckets that have no number the least that no other has.
fn number_buckets(buckets: &mut [Bucket]) {
    let taken: HashSet<u32> = buckets.iter().map(|bucket| bucket.id).collect();
    let mut free = (0..).filter(|id| !taken.contains(id));
    for bucket in buckets.iter_mut().filter(|bucket| bucket.id == BUCKET_ALL) {
        bucket.id = free.next().unwrap_or(BUCKET_ALL);
    }
}

/// The position of the first bucket.
fn bucket_at(text: &str) -> Option<usize> {
    let is_start = |at: usize| at == 0 || matches!(text.as_bytes()[at - 1], b',' | b' ' | b'\t');
    text.match_indices("bucket").map(|(at, _)| at).find(|&at| {
        let rest = &text[at + "bucket".len()..];
        is_start(at) && rest.starts_with(['=', ':', '('])
    })
}

/// The texts of buckets, each without its key.
fn buckets(text: &str) -> Vec<&str> {
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = bucket_at(rest) {
        let after = &rest[at + "bucket=".len()..];
        let end = bucket_at(after).unwrap_or(after.len());
        all.push(after[..end].trim_end_matches([',', ' ', '\t']));
        rest = &after[end..];
    }
    all
}

fn bucket_id(text: &str, command: GroupCommand) -> Result<u32, TextError> {
    match text {
        "first" => Ok(BUCKET_FIRST),
        "last" => Ok(BUCKET_LAST),
        "all" if command == GroupCommand::RemoveBucket => Ok(BUCKET_ALL),
        text => match u32_of(text) {
            Ok(id) if id <= BUCKET_MAX => Ok(id),
            Ok(id) => bad!("invalid command bucket id {id}"),
            Err(_) => bad!("invalid command bucket id {text}"),
        },
    }
}

fn fields(text: &str, ports: &PortNames) -> Result<Vec<(flow::Mf, u128)>, TextError> {
    let mut all: Vec<(flow::Mf, u128)> = Vec::new();
    for (key, value) in KeyValues::new(text) {
        let unknown = || TextError::unknown(format!("unknown field {key}"), key, field_names());
        let field = field_named(key).ok_or_else(unknown)?;
        if all.iter().any(|(other, _)| *other == field) {
            return bad!("{key}: duplicate field");
        }
        let mask = if value.is_empty() { field.ones() } else { parse_value(field, value, ports)?.0 };
        if mask == 0 {
            return bad!("{key}: values are wildcards here and must not be all-zeros");
        }
        all.push((field, mask));
    }
    Ok(all)
}

/// One bucket, whether it gives a weight, and which encodings have its actions.
fn parse_bucket(
    text: &str,
    kind: GroupType,
    id: u32,
    ports: &PortNames,
) -> Result<(Bucket, bool, Protocols), TextError> {
    let mut bucket = Bucket { id, weight: u16::from(kind == GroupType::Select), ..Bucket::default() };
    let (mut weighted, mut has_actions) = (false, false);
    let mut actions = String::new();
    for (key, value) in KeyValues::new(text) {
        match key {
            "weight" => {
                weighted = true;
                bucket.weight = u16_named(value, key)?;
            }
            "watch_port" => match ports.parse(value) {
                Some(port) => bucket.watch_port = (port != base::OfPort::NONE).then_some(port),
                None => return bad!("{value}: invalid watch_port"),
            },
            "watch_group" => bucket.watch_group = Some(u32_of(value)?).filter(|&id| id != GROUP_ANY),
            "bucket_id" => {
                bucket.id = u32_of(value)?;
                if bucket.id > BUCKET_MAX {
                    return bad!("invalid bucket_id id={}", bucket.id);
                }
            }
            "action" | "actions" => {
                has_actions = true;
                actions += &format!("{value},");
            }
            _ if value.is_empty() => actions += &format!("{key},"),
            _ if closes_itself(value) => actions += &format!("{key}({value},"),
            _ => actions += &format!("{key}({value}),"),
        }
    }
    // A bucket that drops says so; one without actions is a slip of the pen.
    if !has_actions && actions.is_empty() {
        return bad!("bucket must specify actions");
    }
    let (actions, protocols) = parse_list(&actions, ports)?;
    bucket.actions = actions;
    Ok((bucket, weighted, protocols))
}

/// Whether the parenthesis before a value ends within it, as that of `check_pkt_larger(100)->reg0[0]` does.
fn closes_itself(value: &str) -> bool {
    let mut depth = 0u32;
    for (at, c) in value.char_indices() {
        match c {
            '(' => depth += 1,
            ')' if depth == 0 => return value[at..].starts_with(")->"),
            ')' => depth -= 1,
            _ => {}
        }
    }
    false
}

fn check(group: &GroupDesc, with_type: bool) -> Result<(), TextError> {
    let GroupSelection { method, fields, param } = &group.selection;
    if method.is_empty() && *param != 0 {
        return bad!("selection_method_param is only allowed with \"selection_method\"");
    }
    if !fields.is_empty() && method != "hash" {
        return bad!("fields may only be specified with \"selection_method=hash\"");
    }
    if with_type && group.kind == GroupType::Indirect && group.buckets.len() > 1 {
        return bad!("Indirect groups can have at most one bucket.");
    }
    Ok(())
}

fn check_bucket(bucket: &Bucket, is_weighted: bool, kind: GroupType) -> Result<(), TextError> {
    if kind != GroupType::Select && is_weighted {
        return bad!("Only select groups can have bucket weights.");
    }
    let is_unwatched = bucket.watch_port.is_none() && bucket.watch_group.is_none();
    if kind == GroupType::FastFailover && is_unwatched {
        return bad!("fast failover bucket requires watch_port or watch_group");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::Action;

    #[test]
    fn a_bucket_of_nothing_is_none() {
        for slip in ["buckets=1", "bucket", "bucket,bucket=1"] {
            let text = format!("group_id=1,type=all,{slip}");
            let error = parse_group_mod(&text, GroupCommand::Add, PortNames::none()).unwrap_err();
            let word = slip.split([',', '=']).next().unwrap();
            assert_eq!(error.message, format!("unknown keyword {word}"));
        }
    }

    #[test]
    fn what_stands_behind_a_list_of_a_bucket_stays_outside() {
        let text = "group_id=1,type=all,bucket=check_pkt_larger(9)->reg0[1],\
                    clone(check_pkt_larger(100)->NXM_NX_REG0[0],output:3),output:1";
        let (group_mod, _) = parse_group_mod(text, GroupCommand::Add, PortNames::none()).unwrap();
        let actions = &group_mod.group.buckets[0].actions[..];
        let [Action::CheckPktLarger { .. }, Action::Clone(inner), Action::Output { .. }] = actions else {
            panic!("{actions:?}")
        };
        assert_eq!(inner.len(), 2);
    }
}
