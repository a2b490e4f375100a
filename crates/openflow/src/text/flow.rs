//! Flows in text: the argument of `add-flow`, files of flows, and the lines of `dump-flows`.

use super::matching::{Requiring, item_names, match_text, normalized, parse_field, write_match};
use super::value::{u16_named, u32_of, u64_of};
use super::{KeyValues, PortNames, Protocol, Protocols, Remark, TextError, bad, put};
use crate::action::{ActionsIn, Context, parse_into, write_actions_text as write_actions};
use crate::message::{
    DEFAULT_PRIORITY, FlowFlags, FlowForm, FlowMod, FlowModCommand, FlowStatsRef, FlowStatsRequest,
    GROUP_ALL, GROUP_ANY, GROUP_MAX, TABLE_ALL,
};
use crate::version::Version;
use base::OfPort;
use flow::{FieldId, Match, Mf};
use std::fmt;

/// A flow-mod that was read, and the encodings that can say it.
#[derive(Clone, PartialEq, Debug)]
pub struct Parsed {
    /// The flow-mod.
    pub flow_mod: FlowMod,
    /// The encodings.
    pub protocols: Protocols,
    /// The original match, if parts of it lacked prerequisites and were left out.
    pub before: Option<String>,
}

impl Parsed {
    /// The flow-mod as that encoding says it.
    pub fn in_protocol(self, protocol: Protocol) -> FlowMod {
        let mut flow_mod = self.flow_mod;
        flow_mod.form = if protocol.is_nxm() { FlowForm::Nxm } else { FlowForm::Standard };
        // From OpenFlow 1.1 on, only a delete may apply to all tables: without a table, any other command
        // applies to the first one.
        let may_be_all = flow_mod.command.is_delete() && protocol != Protocol::Of11;
        if !may_be_all && flow_mod.table_id == TABLE_ALL && protocol >= Protocol::Of11 {
            flow_mod.table_id = 0;
        }
        flow_mod
    }
}

/// Words before the flow in files, where each line says its command.
const COMMANDS: [(&str, FlowModCommand); 5] = [
    ("add", FlowModCommand::Add),
    ("delete", FlowModCommand::Delete),
    ("delete_strict", FlowModCommand::DeleteStrict),
    ("modify", FlowModCommand::Modify),
    ("modify_strict", FlowModCommand::ModifyStrict),
];

/// Reads the argument of `add-flow`, `mod-flows` or `del-flows`.
pub fn parse_flow_mod(text: &str, command: FlowModCommand, ports: &PortNames) -> Result<Parsed, TextError> {
    let mut reader = Reader::new(Some(command), ports);
    let with_actions = !command.is_delete();
    let (selection, actions) = if with_actions { split_actions(text) } else { (text, None) };
    if with_actions && actions.is_none() {
        return bad!("must specify an action");
    }
    reader.selection(selection)?;
    let mut flow_mod = FlowMod { command, new_cookie: None, ..FlowMod::add() };
    // Equal matches are no change.
    reader.matching.imply_packet_type();
    // Left out without a word, as by the stock tools.
    if !reader.matching.has_prereq(Mf::TcpFlags) {
        reader.matching.set_mf(Mf::TcpFlags, 0, 0);
    }
    let matching = normalized(&reader.matching);
    let changed = matching != reader.matching;
    let before = changed.then(|| match_text(&reader.matching, ports));
    flow_mod.matching = matching;
    if let Some((start, actions)) = actions {
        let context = Context {
            ports,
            place: ActionsIn::Flow,
            matching: Some(&flow_mod.matching),
            table: (reader.table != TABLE_ALL).then_some(reader.table),
        };
        let (actions, protocols) = parse_into(actions, &context).map_err(|e| e.after(start))?;
        flow_mod.actions = actions;
        reader.protocols = reader.protocols.intersect(protocols);
        if reader.protocols.is_empty() {
            let why = "actions are invalid with specified match (OFPBAC_MATCH_INCONSISTENT)".to_string();
            return Err(TextError::new(why).after(reader.unsayable_at.unwrap_or(start)));
        }
    }
    flow_mod.table_id = reader.table;
    flow_mod.cookie = reader.cookie.0;
    flow_mod.cookie_mask = reader.cookie.1;
    flow_mod.new_cookie = match reader.new_cookie {
        // A modify that selects by cookie leaves cookies alone and adds nothing.
        None if reader.cookie.1 != 0 || command.is_delete() => None,
        cookie => Some(cookie.unwrap_or(0)),
    };
    flow_mod.idle_timeout = reader.idle_timeout;
    flow_mod.hard_timeout = reader.hard_timeout;
    flow_mod.priority = reader.priority;
    flow_mod.importance = reader.importance;
    flow_mod.flags = reader.flags;
    flow_mod.out_port = reader.out_port;
    flow_mod.out_group = reader.out_group;
    Ok(Parsed { flow_mod, protocols: reader.protocols, before })
}

/// Parses a line of a file: like [`parse_flow_mod`], with an optional command before the flow, by default
/// `add`.
pub fn parse_flow_line(line: &str, ports: &PortNames) -> Result<Parsed, TextError> {
    let start = line.len() - line.trim_start().len();
    let text = line.trim_start();
    let word = text.split(|c: char| c.is_ascii_whitespace()).next().unwrap_or("");
    match COMMANDS.iter().find(|(name, _)| *name == word) {
        Some(&(_, command)) => {
            let rest = &text[word.len()..];
            parse_flow_mod(rest, command, ports).map_err(|e| e.after(start + word.len()))
        }
        None => parse_flow_mod(text, FlowModCommand::Add, ports).map_err(|e| e.after(start)),
    }
}

/// Reads the argument of `dump-flows` and `dump-aggregate`.
pub fn parse_flow_request(text: &str, ports: &PortNames) -> Result<(FlowStatsRequest, Protocols), TextError> {
    let mut reader = Reader::new(None, ports);
    reader.selection(text)?;
    let request = FlowStatsRequest {
        form: Default::default(),
        matching: normalized(&reader.matching),
        table_id: reader.table,
        out_port: reader.out_port,
        out_group: reader.out_group,
        cookie: reader.cookie.0,
        cookie_mask: reader.cookie.1,
    };
    Ok((request, reader.protocols))
}

/// What a flow has beside its match.
const KEYWORDS: [&str; 14] = [
    "actions",
    "check_overlap",
    "cookie",
    "hard_timeout",
    "idle_timeout",
    "importance",
    "no_byte_counts",
    "no_packet_counts",
    "out_group",
    "out_port",
    "priority",
    "reset_counts",
    "send_flow_rem",
    "table",
];

/// What is wrong in a file of flows, and where: line and column count from 1.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FileError {
    /// Line.
    pub line: usize,
    /// Byte in the line.
    pub column: usize,
    /// What is wrong.
    pub message: String,
    /// What the stock tools log in addition.
    pub warning: Option<Remark>,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.line, self.column, self.message)
    }
}

/// The flows of a file, one per line, with comments from `#` on, and their line numbers from 1. `command`
/// applies to every line; `None`: each line may have its own. A parsed flow takes two kilobytes: for a long
/// file, check all first and then take them one by one.
pub fn flows_in<'a>(
    text: &'a str,
    command: Option<FlowModCommand>,
    ports: &'a PortNames,
) -> impl Iterator<Item = Result<(usize, Parsed), FileError>> + 'a {
    let lines = text.lines().enumerate().map(|(i, line)| (i + 1, line.split('#').next().unwrap_or("")));
    lines.filter(|(_, flow)| !flow.trim().is_empty()).map(move |(line, flow)| {
        let parsed = match command {
            Some(command) => parse_flow_mod(flow, command, ports),
            None => parse_flow_line(flow, ports),
        };
        let parsed = parsed.map(|parsed| (line, parsed));
        parsed.map_err(|e| FileError {
            line,
            column: e.offset + 1,
            message: e.to_string(),
            warning: e.warning,
        })
    })
}

/// All flows of a file, or the first error: a file with an error is not used at all.
pub fn parse_flow_file(
    text: &str,
    command: Option<FlowModCommand>,
    ports: &PortNames,
) -> Result<Vec<Parsed>, FileError> {
    flows_in(text, command, ports).map(|flow| Ok(flow?.1)).collect()
}

/// Splits a flow at its actions; returns what follows `actions=`, and its position.
fn split_actions(text: &str) -> (&str, Option<(usize, &str)>) {
    let Some(at) = text.find("action") else { return (text, None) };
    // `action(s)` may be followed by `=` or, as fields may be, by an opening parenthesis' worth of blanks.
    let actions = text[at..].find('=').map(|equals| (at + equals + 1, &text[at + equals + 1..]));
    (&text[..at], actions)
}

/// The part of a flow's text before its actions.
struct Reader<'a> {
    /// `None`: a request for statistics.
    command: Option<FlowModCommand>,
    ports: &'a PortNames,
    matching: Match,
    protocols: Protocols,
    /// Bytes before the item after which no encoding was left.
    unsayable_at: Option<usize>,
    table: u8,
    priority: u16,
    cookie: (u64, u64),
    new_cookie: Option<u64>,
    idle_timeout: u16,
    hard_timeout: u16,
    importance: u16,
    flags: FlowFlags,
    out_port: Option<OfPort>,
    out_group: Option<u32>,
}

impl<'a> Reader<'a> {
    fn new(command: Option<FlowModCommand>, ports: &'a PortNames) -> Reader<'a> {
        Reader {
            command,
            ports,
            matching: Match::any(),
            protocols: Protocols::ANY,
            unsayable_at: None,
            table: TABLE_ALL,
            priority: DEFAULT_PRIORITY,
            cookie: (0, 0),
            new_cookie: None,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            flags: FlowFlags::empty(),
            out_port: None,
            out_group: None,
        }
    }

    fn selection(&mut self, text: &str) -> Result<(), TextError> {
        let (mut items, mut requiring) = (KeyValues::new(text), Requiring::default());
        while let Some((key, value)) = items.next() {
            self.item(key, value).map_err(|e| e.after(items.offset()))?;
            requiring.note(key, items.offset());
            if self.protocols.is_empty() {
                self.unsayable_at.get_or_insert(items.offset());
            }
        }
        // OpenFlow 1.0 and 1.1 match nothing behind IPv6.
        let behind_ip = [FieldId::NwProto, FieldId::NwTos, FieldId::TpSrc, FieldId::TpDst];
        let is_ipv6 = self.matching.eth_type() == 0x86dd;
        if is_ipv6 && behind_ip.iter().any(|field| self.matching.mask.get(*field) != 0) {
            self.restrict(Protocols::NXM_OXM);
        }
        // Without the bit of a tag, OpenFlow 1.2 and later cannot say a priority, and would match more.
        let (tag, mask) = self.matching.get_mf(Mf::VlanTci);
        let has_none = mask & 0x1000 != 0 && tag & 0xe000 == 0;
        if mask & 0xe000 != 0 && tag & 0x1000 == 0 && !has_none {
            self.restrict(Protocols::NXM);
        }
        requiring.check(&self.matching)
    }

    fn restrict(&mut self, protocols: Protocols) {
        self.protocols = self.protocols.intersect(protocols);
    }

    fn item(&mut self, key: &str, value: &str) -> Result<(), TextError> {
        if let Some(protocols) = parse_field(&mut self.matching, key, value, self.ports)? {
            self.restrict(protocols);
            return Ok(());
        }
        let adds_or_modifies = self.command.is_some_and(|c| !c.is_delete());
        if adds_or_modifies && self.flag(key) {
            return Ok(());
        }
        let deletes_or_asks = !adds_or_modifies;
        let has_priority = adds_or_modifies || self.command == Some(FlowModCommand::DeleteStrict);
        let known = match key {
            // Lines of `dump-flows` are taken back: what the switch counts is passed over.
            "duration" | "n_packets" | "n_bytes" | "idle_age" | "hard_age" | "allow_hidden_fields" => {
                return Ok(());
            }
            "table" | "cookie" => true,
            "priority" => has_priority,
            "idle_timeout" | "hard_timeout" => adds_or_modifies,
            "importance" => self.command == Some(FlowModCommand::Add),
            "out_port" | "out_group" => deletes_or_asks,
            _ => false,
        };
        if value.is_empty() {
            return bad!("field {key} missing value");
        }
        if !known {
            let known = item_names().chain(KEYWORDS.map(String::from));
            return Err(TextError::unknown(format!("unknown keyword {key}"), key, known));
        }
        match key {
            "table" => match self.ports.parse_table(value) {
                Some(table) => self.set_table(table),
                None => return bad!("unknown table \"{value}\""),
            },
            "cookie" => self.cookie(value)?,
            "priority" => self.priority = u16_named(value, key)?,
            "idle_timeout" => self.idle_timeout = u16_named(value, key)?,
            "hard_timeout" => self.hard_timeout = u16_named(value, key)?,
            "importance" => self.importance = u16_named(value, key)?,
            "out_group" => {
                self.out_group = group_of(value)?;
                // OpenFlow 1.0 would leave it out, and mean all flows.
                self.restrict(Protocols::OF11_UP);
            }
            _ => match self.ports.parse(value) {
                Some(port) => self.out_port = (port != OfPort::NONE).then_some(port),
                None => return bad!("{value} is not a valid OpenFlow port"),
            },
        }
        Ok(())
    }

    fn set_table(&mut self, table: u8) {
        self.table = table;
        // A request for statistics says its table in every encoding.
        if table != TABLE_ALL && self.command.is_some() {
            self.restrict(Protocols::WITH_TABLE);
        }
    }

    fn flag(&mut self, key: &str) -> bool {
        let (flag, protocols) = match key {
            "send_flow_rem" => (FlowFlags::SEND_FLOW_REM, Protocols::ANY),
            "check_overlap" => (FlowFlags::CHECK_OVERLAP, Protocols::ANY),
            "reset_counts" => (FlowFlags::RESET_COUNTS, Protocols::OXM),
            "no_packet_counts" => (FlowFlags::NO_PACKET_COUNTS, Protocols::OF13_UP),
            "no_byte_counts" => (FlowFlags::NO_BYTE_COUNTS, Protocols::OF13_UP),
            _ => return false,
        };
        self.flags |= flag;
        self.restrict(protocols);
        true
    }

    fn cookie(&mut self, text: &str) -> Result<(), TextError> {
        match (text.split_once('/'), self.command) {
            (Some(_), Some(FlowModCommand::Add)) => return bad!("flow additions cannot use a cookie mask"),
            (Some((cookie, mask)), _) => {
                self.cookie = (u64_of(cookie)?, u64_of(mask)?);
                if self.cookie.1 != 0 {
                    self.restrict(Protocols::WITH_COOKIE_MASK);
                }
            }
            (None, Some(command)) if !command.is_delete() => self.new_cookie = Some(u64_of(text)?),
            (None, _) => {
                return bad!(
                    "cannot set cookie (to match on a cookie, specify a mask, e.g. cookie={text}/-1)"
                );
            }
        }
        Ok(())
    }
}

/// The group that a flow must name to be meant; none for any, or no group.
fn group_of(text: &str) -> Result<Option<u32>, TextError> {
    let group = match text.to_ascii_lowercase().as_str() {
        "any" => GROUP_ANY,
        "all" => GROUP_ALL,
        _ => u32_of(text)?,
    };
    if group > GROUP_MAX && ![GROUP_ALL, GROUP_ANY].contains(&group) {
        return bad!("{text} is not a valid OpenFlow group");
    }
    Ok((group != GROUP_ANY).then_some(group))
}

/// How a flow is written.
#[derive(Clone, Copy, Debug)]
pub struct FlowStyle<'a> {
    /// Version of the message that it came in.
    pub version: Version,
    /// Names of ports.
    pub ports: &'a PortNames,
    /// Show counters and ages.
    pub stats: bool,
}

/// A flow as a line of `dump-flows`.
pub fn flow_text(flow: FlowStatsRef, style: FlowStyle) -> String {
    let mut out = String::new();
    write_flow(&mut out, flow, style);
    out
}

/// Appends a flow as a line of `dump-flows`, without the blank before and the newline after.
pub fn write_flow(out: &mut String, flow: FlowStatsRef, style: FlowStyle) {
    let info = &flow.info;
    if style.stats || info.cookie != 0 {
        put!(out, "cookie=0x{:x}, ", info.cookie);
    }
    if style.stats {
        out.push_str("duration=");
        write_duration(out, info.duration_s, info.duration_ns);
        out.push_str(", ");
    }
    if style.stats || info.table_id != 0 || style.ports.has_table(info.table_id) {
        out.push_str("table=");
        style.ports.write_table(out, info.table_id);
        out.push_str(", ");
    }
    if style.stats {
        put!(out, "n_packets={}, n_bytes={}, ", info.packet_count, info.byte_count);
    }
    if info.idle_timeout != 0 {
        put!(out, "idle_timeout={}, ", info.idle_timeout);
    }
    if info.hard_timeout != 0 {
        put!(out, "hard_timeout={}, ", info.hard_timeout);
    }
    write_flags(out, info.flags);
    if info.importance != 0 {
        put!(out, "importance={}, ", info.importance);
    }
    if style.stats {
        if let Some(age) = info.idle_age {
            put!(out, "idle_age={age}, ");
        }
        if let Some(age) = info.hard_age.filter(|&age| u32::from(age) != info.duration_s) {
            put!(out, "hard_age={age}, ");
        }
    }
    let before = out.len();
    write_match(out, flow.matching, info.priority, style.ports);
    if out.len() > before {
        out.push(' ');
    }
    out.push_str("actions=");
    write_actions(out, flow.actions, style.version, style.ports);
}

/// Appends each flag with a blank after it.
pub(super) fn write_flags(out: &mut String, flags: FlowFlags) {
    const NAMES: [(FlowFlags, &str); 5] = [
        (FlowFlags::SEND_FLOW_REM, "send_flow_rem "),
        (FlowFlags::CHECK_OVERLAP, "check_overlap "),
        (FlowFlags::RESET_COUNTS, "reset_counts "),
        (FlowFlags::NO_PACKET_COUNTS, "no_packet_counts "),
        (FlowFlags::NO_BYTE_COUNTS, "no_byte_counts "),
    ];
    for (_, name) in NAMES.iter().filter(|(flag, _)| flags.contains(*flag)) {
        out.push_str(name);
    }
}

/// Appends seconds, with as many decimals as they need: none, three, or up to nine.
pub(super) fn write_duration(out: &mut String, seconds: u32, nanoseconds: u32) {
    if seconds == u32::MAX {
        out.push('?');
        return;
    }
    put!(out, "{seconds}");
    if !nanoseconds.is_multiple_of(1_000_000) {
        put!(out, "{}", format!(".{nanoseconds:09}").trim_end_matches('0'));
    } else if nanoseconds != 0 {
        put!(out, ".{:03}", nanoseconds / 1_000_000);
    }
    out.push('s');
}

/// Appends a flow-mod as messages that hold one are printed, from the command on.
pub fn write_flow_mod(out: &mut String, m: &FlowMod, version: Version, ports: &PortNames) {
    write_flow_mod_with(out, m, None, version, ports);
}

/// The same with the match in words of its own, which leave out the priority.
pub(super) fn write_flow_mod_of(
    out: &mut String,
    m: &FlowMod,
    matching: &str,
    version: Version,
    ports: &PortNames,
) {
    write_flow_mod_with(out, m, Some(matching), version, ports);
}

fn write_flow_mod_with(
    out: &mut String,
    m: &FlowMod,
    raw: Option<&str>,
    version: Version,
    ports: &PortNames,
) {
    out.push_str(match m.command {
        FlowModCommand::Add => "ADD",
        FlowModCommand::Modify => "MOD",
        FlowModCommand::ModifyStrict => "MOD_STRICT",
        FlowModCommand::Delete => "DEL",
        FlowModCommand::DeleteStrict => "DEL_STRICT",
    });
    if m.table_id != 0 {
        put!(out, " table:{}", m.table_id);
    }
    out.push(' ');
    let before = out.len();
    match raw {
        Some(matching) => out.push_str(matching),
        None => write_match(out, &m.matching, m.priority, ports),
    }
    if out.len() > before {
        out.push(' ');
    }
    if let Some(cookie) = m.new_cookie.filter(|&cookie| cookie != 0) {
        put!(out, "cookie:{cookie:#x} ");
    }
    if m.cookie_mask != 0 {
        put!(out, "cookie:{:#x}/{:#x} ", m.cookie, m.cookie_mask);
    }
    if m.idle_timeout != 0 {
        put!(out, "idle:{} ", m.idle_timeout);
    }
    if m.hard_timeout != 0 {
        put!(out, "hard:{} ", m.hard_timeout);
    }
    if m.importance != 0 {
        put!(out, "importance:{} ", m.importance);
    }
    if raw.is_some() && m.priority != DEFAULT_PRIORITY {
        put!(out, "pri:{} ", m.priority);
    }
    if let Some(id) = m.buffer_id {
        put!(out, "buf:{id:#x} ");
    }
    if let Some(port) = m.out_port {
        put!(out, "out_port:{} ", ports.text(port));
    }
    // In OpenFlow 1.0 every add resets the counters, without a flag.
    let implied = if version < Version::V12 { FlowFlags::RESET_COUNTS } else { FlowFlags::empty() };
    write_flags(out, m.flags - implied);
    out.push_str("actions=");
    write_actions(out, &m.actions, version, ports);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_alone_in_a_line_is_one_of_all_flows() {
        for (line, command) in [("delete", FlowModCommand::Delete), (" delete ", FlowModCommand::Delete)] {
            let parsed = parse_flow_line(line, PortNames::none()).unwrap();
            assert_eq!((parsed.flow_mod.command, parsed.flow_mod.matching), (command, Match::any()));
        }
        let error = parse_flow_line("modify", PortNames::none()).unwrap_err();
        assert_eq!(error.message, "must specify an action");
    }

    #[test]
    fn openflow_1_0_cannot_select_flows_by_group() {
        let none = PortNames::none();
        for (text, group) in [("5", Some(5)), ("ANY", None), ("any", None), ("all", Some(GROUP_ALL))] {
            let text = format!("out_group={text}");
            for command in [FlowModCommand::Delete, FlowModCommand::DeleteStrict] {
                let parsed = parse_flow_mod(&text, command, none).unwrap();
                assert_eq!((parsed.flow_mod.out_group, parsed.protocols), (group, Protocols::OF11_UP));
            }
            let (request, protocols) = parse_flow_request(&text, none).unwrap();
            assert_eq!((request.out_group, protocols), (group, Protocols::OF11_UP));
        }
        assert!(parse_flow_request("out_group=0xffffff01", none).is_err());
    }

    #[test]
    fn nxm_alone_says_the_priority_of_what_may_be_no_tag() {
        let usable = |vlan: &str| {
            let none = PortNames::none();
            let parsed = parse_flow_mod(vlan, FlowModCommand::Delete, none).unwrap();
            assert_eq!(parse_flow_request(vlan, none).unwrap().1, parsed.protocols, "{vlan}");
            parsed.protocols
        };
        for part in ["0x2005/0xefff", "0x2000/0xe00f", "0x2005/0x2fff", "0/0xe000", "0x2000/0xf000", "0x2000"]
        {
            assert_eq!(usable(&format!("vlan_tci={part}")), Protocols::NXM, "{part}");
        }
        assert_eq!(usable("vlan_tci[13..15]=1"), Protocols::NXM);
        for all in
            ["vlan_tci=0", "vlan_tci=0x3005", "dl_vlan=5,dl_vlan_pcp=1", "dl_vlan=0xffff", "dl_vlan_pcp=0"]
        {
            assert!(usable(all).contains(Protocol::Of13), "{all}");
        }
        assert!(usable("vlan_tci=0/0xf000").contains(Protocol::Of13));
        assert!(usable("vlan_tci=5/0xfff").contains(Protocol::Of13));
    }

    #[test]
    fn an_action_set_asks_nothing_of_the_match_that_names_no_field() {
        let usable = |actions: &str| {
            let flow = format!("table=3,actions={actions}");
            parse_flow_mod(&flow, FlowModCommand::Add, PortNames::none()).map(|parsed| parsed.protocols)
        };
        let of13 = |actions: &str| usable(actions).unwrap().contains(Protocol::Of13);
        assert!(of13("write_actions(pop_vlan,output:1)") && of13("write_actions(dec_ttl)"));
        assert!(!of13("pop_vlan,output:1"));
        assert!(usable("write_actions(set_field:1.2.3.4->ip_src)").is_err());
    }
}
