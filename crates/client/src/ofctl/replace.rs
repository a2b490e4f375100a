//! Commands that compare sets of flows, and sorting.

use super::client::{Client, Failure};
use super::context::Options;
use super::flows::{flows_of_file, flows_of_switch, send_all, send_bundle};
use flow::Match;
use openflow::Version;
use openflow::message::{FlowForm, FlowMod, FlowModCommand, FlowStatsRequest, TABLE_ALL};
use openflow::text::{PortNames, Protocols, write_actions, write_match};
use std::collections::HashMap;
use std::fmt::Write;
use std::io::Write as _;
use std::process::ExitCode;

/// The identity of a flow: no two flows in a table share both match and priority.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Identity {
    table_id: u8,
    priority: u16,
    matching: Match,
}

/// The parts in which two versions of a flow may differ.
#[derive(Clone, PartialEq)]
struct Content {
    cookie: u64,
    idle_timeout: u16,
    hard_timeout: u16,
    importance: u16,
    flags: openflow::message::FlowFlags,
    actions: Vec<flow::Action>,
}

type Flows = HashMap<Identity, Content>;

/// The source of flows, and the version to encode them in.
struct Source {
    flows: Flows,
    version: Version,
    usable: Protocols,
}

/// Whether a source is a file: begins like a path, or has no colon and exists.
fn is_file(source: &str) -> bool {
    source == "-"
        || source.starts_with(['/', '.'])
        || !source.contains(':') && std::fs::metadata(source).is_ok_and(|m| m.is_file())
}

fn of_file(name: &str, names: &PortNames) -> Result<Source, Failure> {
    let mut flows = Flows::new();
    let mut usable = Protocols::ANY;
    for parsed in flows_of_file(name, Some(FlowModCommand::Add), names)? {
        usable = usable.intersect(parsed.protocols);
        let m = parsed.flow_mod;
        // Flags that say how to add are no part of the flow.
        let flags = m.flags & openflow::message::FlowFlags::SEND_FLOW_REM;
        let table_id = if m.table_id == TABLE_ALL { 0 } else { m.table_id };
        let identity = Identity { table_id, priority: m.priority, matching: m.matching };
        let content = Content {
            cookie: m.new_cookie.unwrap_or(0),
            idle_timeout: m.idle_timeout,
            hard_timeout: m.hard_timeout,
            importance: m.importance,
            flags,
            actions: m.actions,
        };
        flows.insert(identity, content);
    }
    Ok(Source { flows, version: Version::V10, usable })
}

fn of_switch(options: &Options, client: &mut Client) -> Result<Source, Failure> {
    client.prepare_dump(options.allowed)?;
    let form = if client.protocol().is_nxm() { FlowForm::Nxm } else { FlowForm::Standard };
    let flows = flows_of_switch(client, FlowStatsRequest { form, ..FlowStatsRequest::default() })?;
    let pairs = flows.into_iter().map(|f| {
        let identity =
            Identity { table_id: f.info.table_id, priority: f.info.priority, matching: f.matching };
        let content = Content {
            cookie: f.info.cookie,
            idle_timeout: f.info.idle_timeout,
            hard_timeout: f.info.hard_timeout,
            importance: f.info.importance,
            flags: f.info.flags & openflow::message::FlowFlags::SEND_FLOW_REM,
            actions: f.actions,
        };
        (identity, content)
    });
    Ok(Source { flows: pairs.collect(), version: client.version(), usable: Protocols::ANY })
}

/// Actions as a switch returns them, so that those of a file compare equal: `mod_dl_src` and set-field of
/// `eth_src` are one.
fn canonical(actions: &[flow::Action], version: Version) -> Vec<flow::Action> {
    use openflow::{Codec, Message};
    let mut flow_mod = FlowMod::add();
    flow_mod.table_id = 0;
    flow_mod.actions = actions.to_vec();
    let codec = Codec::new(version);
    let bytes = codec.encode(0, &Message::FlowMod(Box::new(flow_mod)));
    match bytes.map(|bytes| codec.decode(&bytes)) {
        Ok(Ok((_, Message::FlowMod(back)))) => back.actions,
        _ => actions.to_vec(),
    }
}

/// Identities of both, in the order in which differences are shown.
fn identities<'a>(a: &'a Flows, b: &'a Flows) -> Vec<&'a Identity> {
    let mut all: Vec<&Identity> = a.keys().chain(b.keys().filter(|i| !a.contains_key(i))).collect();
    all.sort_by_cached_key(|i| {
        (
            i.table_id,
            std::cmp::Reverse(i.priority),
            openflow::text::match_text(&i.matching, PortNames::none()),
        )
    });
    all
}

fn line(sign: char, identity: &Identity, content: &Content, version: Version, names: &PortNames) -> String {
    let mut out = String::from(sign);
    if identity.table_id != 0 {
        let _ = write!(out, "table={} ", identity.table_id);
    }
    write_match(&mut out, &identity.matching, identity.priority, names);
    if content.cookie != 0 {
        let _ = write!(out, " cookie={:#x}", content.cookie);
    }
    let numbers = [
        ("idle_timeout", content.idle_timeout),
        ("hard_timeout", content.hard_timeout),
        ("importance", content.importance),
    ];
    for (name, number) in numbers.into_iter().filter(|(_, n)| *n != 0) {
        let _ = write!(out, " {name}={number}");
    }
    out.push_str(" actions=");
    write_actions(&mut out, &content.actions, version, names);
    out.push('\n');
    out
}

pub fn diff_flows(options: &Options) -> Result<ExitCode, Failure> {
    let mut sources = Vec::new();
    for idx in [1, 2] {
        let name = options.word(idx).unwrap_or("");
        sources.push(if is_file(name) {
            of_file(name, PortNames::none())?
        } else {
            of_switch(options, &mut options.connect_to(name)?)?
        });
    }
    // Flows from a file are compared in the other side's version.
    let version = sources.iter().map(|s| s.version).max().unwrap_or(Version::V10);
    for source in &mut sources {
        for content in source.flows.values_mut() {
            content.actions = canonical(&content.actions, version);
        }
    }
    let (a, b) = (&sources[0].flows, &sources[1].flows);
    let mut text = String::new();
    for identity in identities(a, b) {
        let (before, after) = (a.get(identity), b.get(identity));
        if before == after {
            continue;
        }
        for (sign, content) in [('-', before), ('+', after)] {
            if let Some(content) = content {
                text += &line(sign, identity, content, version, PortNames::none());
            }
        }
    }
    host::output::stdout().write_all(text.as_bytes())?;
    Ok(if text.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

pub fn replace_flows(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    let names = if options.takes_names() { options.names_of(&mut client)? } else { PortNames::default() };
    let mut wanted = of_file(options.word(2).unwrap_or("-"), &names)?;
    let present = of_switch(options, &mut client)?;
    for content in wanted.flows.values_mut() {
        content.actions = canonical(&content.actions, client.version());
    }
    let tables = wanted.flows.keys().chain(present.flows.keys()).any(|i| i.table_id != 0);
    let usable = if tables { wanted.usable.intersect(Protocols::WITH_TABLE) } else { wanted.usable };
    let protocol = client.use_one_of(options.allowed_of(usable)?)?;
    let form = if protocol.is_nxm() { FlowForm::Nxm } else { FlowForm::Standard };
    let flow_mod = |(command, identity, content): (FlowModCommand, &Identity, &Content)| FlowMod {
        form,
        command,
        table_id: identity.table_id,
        priority: identity.priority,
        matching: identity.matching.clone(),
        new_cookie: (command == FlowModCommand::Add).then_some(content.cookie),
        idle_timeout: content.idle_timeout,
        hard_timeout: content.hard_timeout,
        importance: if command == FlowModCommand::Add { content.importance } else { 0 },
        flags: content.flags,
        actions: if command == FlowModCommand::Add { content.actions.clone() } else { Vec::new() },
        ..FlowMod::add()
    };
    let gone = present.flows.iter().filter(|(i, _)| !wanted.flows.contains_key(i));
    let new = wanted.flows.iter().filter(|(i, c)| options.args.readd || present.flows.get(i) != Some(c));
    let gone = gone.map(|(i, c)| (FlowModCommand::DeleteStrict, i, c));
    let mut changes: Vec<_> = gone.chain(new.map(|(i, c)| (FlowModCommand::Add, i, c))).collect();
    // Sorted by table, and within a table by priority; then deletions come before additions.
    changes.sort_by_key(|(command, i, _)| {
        (i.table_id, std::cmp::Reverse(i.priority), *command == FlowModCommand::Add)
    });
    let messages = changes.into_iter().map(|change| (0, flow_mod(change)));
    if options.args.bundle {
        send_bundle(&mut client, "", messages)?
    } else {
        send_all(&mut client, "", messages)?
    }
    Ok(ExitCode::SUCCESS)
}
