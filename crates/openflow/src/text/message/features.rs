//! Features of tables, and their statistics. Tables are mostly alike, so each is described by its differences
//! from the previous one.

use super::words::action_names;
use crate::message::{TableFeatures, TableInstructionFeatures, TableMod, TableStats};
use crate::text::put;
use crate::version::Version;
use flow::Mf;
use flow::mf::NxmHeader;

/// Instructions by wire number, in order of execution.
const INSTRUCTIONS: [(u32, &str); 6] = [
    (6, "meter"),
    (4, "apply_actions"),
    (5, "clear_actions"),
    (3, "write_actions"),
    (2, "write_metadata"),
    (1, "goto_table"),
];

/// Appends what tables can do, each after an empty line.
pub fn write_table_features(out: &mut String, tables: &[TableFeatures], version: Version) {
    write_tables(out, tables.iter().map(|table| (table, None)), version);
}

/// Appends the capabilities of tables and their statistics, if any, each after an empty line.
pub(super) fn write_tables<'a>(
    out: &mut String,
    tables: impl Iterator<Item = (&'a TableFeatures, Option<&'a TableStats>)>,
    version: Version,
) {
    let mut before: Option<(&TableFeatures, Option<&TableStats>)> = None;
    let mut like_before: Option<(u8, u8)> = None;
    for (table, stats) in tables {
        let has_same_features = before.is_some_and(|before| same_features(before.0, table));
        let is_same =
            has_same_features && before.and_then(|before| before.1).map(counts) == stats.map(counts);
        if is_same && table.name.is_empty() {
            like_before = Some((like_before.map_or(table.table_id, |run| run.0), table.table_id));
        } else {
            write_run(out, like_before.take());
            put!(out, "\n  table {}", table.table_id);
            if !table.name.is_empty() {
                put!(out, " (\"{}\")", table.name);
            }
            out.push(':');
            out.push_str(if is_same { " ditto" } else { "\n" });
            if !is_same && let Some(stats) = stats {
                let (active, lookup, matched) = counts(stats);
                put!(out, "    active={active}, lookup={lookup}, matched={matched}\n");
            }
            // Statistics of OpenFlow 1.4 and later say nothing of what a table can do.
            let is_counts_alone = version >= Version::V14 && stats.is_some() && is_unknown(table);
            if !has_same_features && !is_counts_alone {
                write_table(out, table, before.map(|before| before.0), version);
            } else if !is_same && !is_unknown(table) {
                out.push_str("    (same features)\n");
            }
        }
        before = Some((table, stats));
    }
    write_run(out, like_before);
}

fn counts(stats: &TableStats) -> (u32, u64, u64) {
    (stats.active_count, stats.lookup_count, stats.matched_count)
}

/// Whether the capabilities of a table are unknown.
fn is_unknown(t: &TableFeatures) -> bool {
    *t == TableFeatures { name: t.name.clone(), ..TableFeatures::of(t.table_id) }
}

fn write_run(out: &mut String, run: Option<(u8, u8)>) {
    match run {
        Some((first, last)) if first == last => put!(out, "\n  table {first}: ditto\n"),
        Some((first, last)) => put!(out, "\n  tables {first}...{last}: ditto\n"),
        None => {}
    }
}

fn miss(table: &TableFeatures) -> &TableInstructionFeatures {
    table.miss.as_ref().unwrap_or(&table.nonmiss)
}

fn same_features(a: &TableFeatures, b: &TableFeatures) -> bool {
    let rest = |t: &TableFeatures| (t.metadata_match, t.metadata_write, t.config, t.max_entries);
    rest(a) == rest(b)
        && a.matchable == b.matchable
        && same_instructions((&a.nonmiss, a.table_id), (&b.nonmiss, b.table_id))
        && same_instructions((miss(a), a.table_id), (miss(b), b.table_id))
}

/// Whether flows of two tables have the same capabilities. That flows of the later one cannot go to their own
/// table does not count.
fn same_instructions(a: (&TableInstructionFeatures, u8), b: (&TableInstructionFeatures, u8)) -> bool {
    let ((a, a_id), (b, b_id)) = if a.1 <= b.1 { (a, b) } else { (b, a) };
    let is_next = u16::from(a_id) + 1 == u16::from(b_id) && !b.next_tables.contains(&b_id);
    let nexts = a.next_tables.iter().filter(|table| !(is_next && **table == b_id));
    nexts.eq(&b.next_tables) && a.instructions == b.instructions && same_actions(a, b)
}

fn same_actions(a: &TableInstructionFeatures, b: &TableInstructionFeatures) -> bool {
    (a.write_actions, &a.write_set_fields) == (b.write_actions, &b.write_set_fields)
        && (a.apply_actions, &a.apply_set_fields) == (b.apply_actions, &b.apply_set_fields)
}

fn write_table(out: &mut String, t: &TableFeatures, before: Option<&TableFeatures>, version: Version) {
    if t.metadata_match != 0 || t.metadata_write != 0 {
        put!(out, "    metadata: match={:#x} write={:#x}\n", t.metadata_match, t.metadata_write);
    }
    if matches!(version, Version::V11 | Version::V12) {
        let miss = match t.config {
            1 => "continue",
            2 => "drop",
            _ => "controller",
        };
        put!(out, "    config={miss}\n");
    }
    if version >= Version::V14 {
        for (name, bit) in [("eviction", TableMod::EVICTION), ("vacancy events", TableMod::VACANCY_EVENTS)] {
            put!(out, "    {name}: {}supported\n", if t.config & bit == 0 { "not " } else { "" });
        }
    }
    if t.max_entries != 0 {
        put!(out, "    max_entries={}\n", t.max_entries);
    }
    let is_empty = t.nonmiss == TableInstructionFeatures::default();
    let same_as = |b: &TableFeatures| {
        same_instructions((&t.nonmiss, t.table_id), (&b.nonmiss, b.table_id))
            && same_instructions((miss(t), t.table_id), (miss(b), b.table_id))
    };
    if before.is_some_and(same_as) {
        out.push_str(if is_empty { "" } else { "    (same instructions)\n" });
    } else if !same_instructions((&t.nonmiss, t.table_id), (miss(t), t.table_id)) {
        out.push_str("    instructions (other than table miss):\n");
        write_instructions(out, &t.nonmiss, before.map(|b| &b.nonmiss), version);
        out.push_str("    instructions (table miss):\n");
        write_instructions(out, miss(t), before.map(miss), version);
    } else if !is_empty {
        out.push_str("    instructions (table miss and others):\n");
        write_instructions(out, &t.nonmiss, before.map(|b| &b.nonmiss), version);
    }
    if t.matchable.is_empty() {
    } else if before.is_some_and(|before| before.matchable == t.matchable) {
        out.push_str("    (same matching)\n");
    } else {
        out.push_str("    matching:\n");
        write_matching(out, t);
    }
}

fn write_instructions(
    out: &mut String,
    f: &TableInstructionFeatures,
    before: Option<&TableInstructionFeatures>,
    version: Version,
) {
    if !f.next_tables.is_empty() {
        let runs = f.next_tables.chunk_by(|a, b| u16::from(*a) + 1 == u16::from(*b));
        let text = |run: &[u8]| match run {
            [one] => one.to_string(),
            run => format!("{}-{}", run[0], run[run.len() - 1]),
        };
        put!(out, "      next tables: {}\n", runs.map(text).collect::<Vec<_>>().join(","));
    }
    if f.instructions != 0 {
        if before.is_some_and(|before| before.instructions == f.instructions) {
            out.push_str("      (same instructions)\n");
        } else {
            let known = INSTRUCTIONS.iter().filter(|(bit, _)| f.instructions >> bit & 1 != 0);
            put!(out, "      instructions: {}\n", known.map(|row| row.1).collect::<Vec<_>>().join(" "));
        }
    }
    let apply = (f.apply_actions, &f.apply_set_fields[..]);
    let write = (f.write_actions, &f.write_set_fields[..]);
    if before.is_some_and(|before| same_actions(before, f)) && !f.write_set_fields.is_empty() {
        out.push_str("      (same actions)\n");
    } else if write != apply {
        for (title, part) in [("Write-Actions", write), ("Apply-Actions", apply)] {
            put!(out, "      {title} features:\n");
            write_actions(out, part, version);
        }
    } else if write != (0, &[][..]) {
        out.push_str("      Write-Actions and Apply-Actions features:\n");
        write_actions(out, write, version);
    }
}

fn write_actions(out: &mut String, (actions, set_fields): (u32, &[u64]), version: Version) {
    if actions != 0 {
        put!(out, "        actions: {}\n", action_names(version, actions));
    }
    if !set_fields.is_empty() {
        put!(out, "        supported on Set-Field: {}\n", field_names(set_fields.iter().copied()));
    }
}

fn write_matching(out: &mut String, t: &TableFeatures) {
    let field = |header: u64| Mf::from_nxm(NxmHeader(header));
    let wildcards: Vec<Option<Mf>> = t.wildcards.iter().map(|header| field(*header)).collect();
    let of_kind = |has_mask: bool, is_wildcard: bool| {
        t.matchable.iter().copied().filter(move |&header| NxmHeader(header).has_mask() == has_mask).filter({
            let wildcards = &wildcards;
            // What can be matched in part can be left out.
            move |&header| (has_mask || wildcards.contains(&field(header))) == is_wildcard
        })
    };
    for (title, has_mask, is_wildcard) in [
        ("arbitrary mask", true, true),
        ("exact match or wildcard", false, true),
        ("must exact match", false, false),
    ] {
        let names = field_names(of_kind(has_mask, is_wildcard));
        if !names.is_empty() {
            put!(out, "      {title}: {names}\n");
        }
    }
}

/// The names of fields in the order of ovs-fields(7), with what neighbours have in common written once.
fn field_names(headers: impl Iterator<Item = u64>) -> String {
    let wanted: Vec<Mf> = headers.filter_map(|header| Mf::from_nxm(NxmHeader(header))).collect();
    let names: Vec<String> = in_order().filter(|mf| wanted.contains(mf)).map(field_name).collect();
    let mut out = String::new();
    write_names(&mut out, &names, 0);
    out
}

/// Its name, as the stock tools have it here.
fn field_name(mf: Mf) -> String {
    match mf {
        Mf::NwSrc => "ip_src".into(),
        Mf::NwDst => "ip_dst".into(),
        mf => mf.name(),
    }
}

/// Fields in the order of ovs-fields(7).
pub(super) fn in_order() -> impl Iterator<Item = Mf> {
    Mf::simple().flat_map(|mf| {
        let registers = (0..16).map(Mf::Reg).chain((0..8).map(Mf::XReg)).chain((0..4).map(Mf::XxReg));
        let before: Vec<Mf> = match mf {
            Mf::Metadata => (0..64).map(Mf::TunMetadata).collect(),
            Mf::EthSrc => registers.collect(),
            _ => Vec::new(),
        };
        let own = if mf == Mf::NshTtl { None } else { Some(mf) };
        let after = if mf == Mf::NshC4 { Some(Mf::NshTtl) } else { None };
        before.into_iter().chain(own).chain(after)
    })
}

/// Writes names without a common prefix: similar ones as `eth_{src,dst}`, numbered ones as `reg0...reg3`.
fn write_names(out: &mut String, mut names: &[String], common: usize) {
    let mut is_first = true;
    while let Some(first) = names.first() {
        if !std::mem::take(&mut is_first) {
            out.push(if common > 0 { ',' } else { ' ' });
        }
        let (prefix_run, prefix) = prefix_run(names, common);
        let counting = counting_run(names);
        let run = prefix_run.max(counting);
        if counting >= prefix_run {
            out.push_str(&first[common..]);
            if run > 1 {
                put!(out, "...{}", &names[run - 1][common..]);
            }
        } else {
            put!(out, "{}{{", &first[common..prefix]);
            write_names(out, &names[..run], prefix);
            out.push('}');
        }
        names = &names[run..];
    }
}

/// How many names share a prefix with the first, up to and including an underscore; and where that prefix
/// ends.
fn prefix_run(names: &[String], common: usize) -> (usize, usize) {
    let shared = |a: &str, b: &str| {
        let same = a.bytes().zip(b.bytes()).take_while(|(a, b)| a == b).count();
        a[..same].rfind('_').map_or(0, |at| at + 1)
    };
    let mut end = 0;
    let mut run = 1;
    while let Some(next) = names.get(run) {
        let with_next = shared(&names[0], next);
        if with_next <= common || (end != 0 && with_next < end) {
            break;
        }
        end = if end == 0 { with_next } else { end.min(with_next) };
        run += 1;
    }
    (run, end)
}

/// How many names count up from the first.
fn counting_run(names: &[String]) -> usize {
    let split = |name: &str| {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (stem, number) = name.split_at(name.len() - digits);
        Some((stem.to_string(), number.parse::<u32>().ok()?))
    };
    let Some((stem, start)) = split(&names[0]) else { return 1 };
    let counts = |(i, name): &(usize, &String)| split(name) == Some((stem.clone(), start + *i as u32));
    // Two are as short when written one by one.
    match names.iter().enumerate().take_while(counts).count() {
        2 => 1,
        run => run,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_with_a_mask_is_a_wildcard_even_if_it_is_not_listed_there() {
        let headers = |mf: Mf, length| vec![NxmHeader::new(mf.wire(3).unwrap(), length > 6, length).0];
        let text = |matchable| {
            let mut out = String::new();
            write_matching(&mut out, &TableFeatures { matchable, ..TableFeatures::of(0) });
            out
        };
        assert_eq!(text(headers(Mf::EthDst, 12)), "      arbitrary mask: eth_dst\n");
        assert_eq!(text(headers(Mf::EthDst, 6)), "      must exact match: eth_dst\n");
    }

    #[test]
    fn names_of_fields_share_prefixes_and_count() {
        let text = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| name.to_string()).collect();
            let mut out = String::new();
            write_names(&mut out, &names, 0);
            out
        };
        assert_eq!(text(&["eth_src", "eth_dst", "vlan_tci"]), "eth_{src,dst} vlan_tci");
        assert_eq!(text(&["reg0", "reg1", "reg2", "xreg0"]), "reg0...reg2 xreg0");
        assert_eq!(
            text(&[
                "tun_id",
                "tun_ipv6_src",
                "tun_ipv6_dst",
                "tun_metadata0",
                "tun_metadata1",
                "tun_metadata2"
            ]),
            "tun_{id,ipv6_{src,dst},metadata0...metadata2}"
        );
        assert_eq!(text(&["nw_tos", "ip_dscp", "nw_ecn", "nw_ttl"]), "nw_tos ip_dscp nw_{ecn,ttl}");
    }
}
