//! Commands that compare sets of flows.
//!
//! A flow is kept in some 400 bytes: the words of its match, and its actions as a message has them. Flows
//! whose bytes are equal are equal, so that only those that differ are decoded and written.

use super::client::{Client, Failure};
use super::context::Options;
use super::flows::{send_all, send_bundle};
use super::input::read_file;
use flow::action::Action;
use flow::key::BLOCKS;
use flow::options::OptionMatches;
use flow::{Key, Mask, Match};
use openflow::message::{
    FlowFlags, FlowForm, FlowMod, FlowModCommand, FlowStatsRequest, StatsBody, StatsRequest, TABLE_ALL,
};
use openflow::text::{PortNames, Protocols, flows_in, match_text, write_actions, write_match};
use openflow::{Codec, Message, Version};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::io::Write as _;
use std::process::ExitCode;

/// The identity of a flow: no two flows in a table share both match and priority.
#[derive(PartialEq, Eq, Hash)]
struct Identity {
    table_id: u8,
    priority: u16,
    /// The words that are matched: where they are in the key, their mask and value.
    words: Box<[(u16, u64, u64)]>,
    options: OptionMatches,
}

impl Identity {
    fn new(table_id: u8, priority: u16, m: Match) -> Identity {
        let mut words = Vec::with_capacity(8);
        for block in m.mask.0.present_blocks() {
            for word in 0..8 {
                let mask = m.mask.0.word(block, word);
                if mask != 0 {
                    words.push(((block * 8 + word) as u16, mask, m.key.word(block, word) & mask));
                }
            }
        }
        Identity { table_id, priority, words: words.into_boxed_slice(), options: m.options }
    }

    fn matching(&self) -> Match {
        let (mut key, mut mask) = (Key::default(), Mask::wild());
        for &(place, bits, value) in &self.words {
            let (block, word) = (usize::from(place) / 8, usize::from(place) % 8);
            debug_assert!(block < BLOCKS);
            mask.add_word(block, word, bits);
            key.set_word(block, word, value);
        }
        Match { key, mask, options: self.options.clone() }
    }
}

/// The parts in which two versions of a flow may differ.
struct Content {
    cookie: u64,
    idle_timeout: u16,
    hard_timeout: u16,
    importance: u16,
    flags: FlowFlags,
    actions: Actions,
}

/// Actions of a flow.
#[derive(PartialEq)]
enum Actions {
    /// A message with them alone.
    Encoded(Box<[u8]>),
    /// As they are: no version is spoken, or it cannot say them, or not so that they are read back.
    Unencoded(Vec<Action>),
}

type Flows = HashMap<Identity, Content>;

/// Encodes flows, so that those of a file compare equal to those of a switch: `mod_dl_src` and set-field of
/// `eth_src` are one.
struct Packer {
    /// None where no switch takes part: flows of two files are compared as they are, since each version would
    /// leave out or alter something.
    codec: Option<Codec>,
    /// Whether all sources say which flags a flow has. Flow statistics do so since OpenFlow 1.3.
    has_flags: bool,
    /// A flow-mod whose actions are replaced each time.
    message: Message,
}

impl Packer {
    /// For flows of files and of switches of these versions.
    fn new(versions: &[Version]) -> Packer {
        let message = Message::FlowMod(Box::new(FlowMod { table_id: 0, ..FlowMod::add() }));
        let codec = versions.iter().max().map(|&version| Codec::new(version));
        Packer { codec, has_flags: versions.iter().all(|&version| version >= Version::V13), message }
    }

    /// The version that names the actions.
    fn version(&self) -> Version {
        self.codec.map_or(Version::V10, |codec| codec.version)
    }

    fn pack(&mut self, actions: Vec<Action>) -> Actions {
        let Some(codec) = self.codec else { return Actions::Unencoded(actions) };
        // What is left out would be taken for nothing.
        if openflow::left_out(codec.version, &actions).is_some() {
            return Actions::Unencoded(actions);
        }
        let Message::FlowMod(flow_mod) = &mut self.message else { unreachable!("it is made as one") };
        flow_mod.actions = actions;
        match codec.encode(0, &self.message) {
            // What does not come back as actions would be taken for none.
            Ok(bytes) if codec.decode(&bytes).is_ok() => Actions::Encoded(bytes.into_boxed_slice()),
            _ => match &mut self.message {
                Message::FlowMod(flow_mod) => Actions::Unencoded(std::mem::take(&mut flow_mod.actions)),
                _ => unreachable!("it is made as one"),
            },
        }
    }

    fn unpack(&self, actions: &Actions) -> Vec<Action> {
        match actions {
            Actions::Unencoded(actions) => actions.clone(),
            Actions::Encoded(bytes) => match self.codec.map(|codec| codec.decode(bytes)) {
                Some(Ok((_, Message::FlowMod(flow_mod)))) => flow_mod.actions,
                _ => unreachable!("pack has decoded them"),
            },
        }
    }

    fn are_same(&self, a: &Content, b: &Content) -> bool {
        let numbers = |c: &Content| {
            let flags = if self.has_flags { c.flags.bits() } else { 0 };
            (c.cookie, c.idle_timeout, c.hard_timeout, c.importance, flags)
        };
        numbers(a) == numbers(b)
            && (a.actions == b.actions || self.unpack(&a.actions) == self.unpack(&b.actions))
    }

    /// The flows of a file, and which encodings can say them.
    fn file(&mut self, name: &str, names: &PortNames) -> Result<(Flows, Protocols), Failure> {
        let text = read_file(name)?;
        let (mut flows, mut usable) = (Flows::new(), Protocols::ANY);
        for flow in flows_in(&text, Some(FlowModCommand::Add), names) {
            let (_, parsed) = flow.map_err(|error| Failure(format!("{name}:{error}")))?;
            usable = usable.intersect(parsed.protocols);
            let m = parsed.flow_mod;
            let table_id = if m.table_id == TABLE_ALL { 0 } else { m.table_id };
            let content = Content {
                cookie: m.new_cookie.unwrap_or(0),
                idle_timeout: m.idle_timeout,
                hard_timeout: m.hard_timeout,
                importance: m.importance,
                // Flags that say how to add are no part of the flow.
                flags: m.flags & FlowFlags::SEND_FLOW_REM,
                actions: self.pack(m.actions),
            };
            flows.insert(Identity::new(table_id, m.priority, m.matching), content);
        }
        Ok((flows, usable))
    }

    /// The flows of a switch, on a connection that is prepared for dumps.
    fn switch(&mut self, client: &mut Client) -> Result<Flows, Failure> {
        let mut all = Flows::new();
        let request = FlowStatsRequest { form: form(client), ..FlowStatsRequest::default() };
        client.each_part(StatsRequest::Flow(Box::new(request)), |part| {
            let StatsBody::Flow { flows, .. } = part else { return };
            for f in flows {
                let content = Content {
                    cookie: f.info.cookie,
                    idle_timeout: f.info.idle_timeout,
                    hard_timeout: f.info.hard_timeout,
                    importance: f.info.importance,
                    flags: f.info.flags & FlowFlags::SEND_FLOW_REM,
                    actions: self.pack(f.actions),
                };
                all.insert(Identity::new(f.info.table_id, f.info.priority, f.matching), content);
            }
        })?;
        Ok(all)
    }
}

fn form(client: &Client) -> FlowForm {
    if client.protocol().is_nxm() { FlowForm::Nxm } else { FlowForm::Standard }
}

/// Whether a source is a file: begins like a path, or has no colon and exists.
fn is_file(source: &str) -> bool {
    source == "-"
        || source.starts_with(['/', '.'])
        || !source.contains(':') && std::fs::metadata(source).is_ok_and(|m| m.is_file())
}

fn line(sign: char, identity: &Identity, content: &Content, packer: &Packer) -> String {
    let names = PortNames::none();
    let mut out = String::from(sign);
    if identity.table_id != 0 {
        let _ = write!(out, "table={} ", identity.table_id);
    }
    write_match(&mut out, &identity.matching(), identity.priority, names);
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
    if packer.has_flags && content.flags.contains(FlowFlags::SEND_FLOW_REM) {
        out.push_str(" send_flow_rem");
    }
    out.push_str(" actions=");
    write_actions(&mut out, &packer.unpack(&content.actions), packer.version(), names);
    out.push('\n');
    out
}

pub fn diff_flows(options: &Options) -> Result<ExitCode, Failure> {
    let mut clients = Vec::new();
    for idx in [1, 2] {
        let name = options.word(idx).unwrap_or("");
        clients.push(if is_file(name) {
            None
        } else {
            let mut client = options.connect_to(name)?;
            client.prepare_dump(options.allowed)?;
            Some(client)
        });
    }
    // Flows from a file are compared in the other side's version.
    let versions: Vec<Version> = clients.iter().flatten().map(Client::version).collect();
    let mut packer = Packer::new(&versions);
    let mut sources = Vec::new();
    for (idx, client) in [1, 2].into_iter().zip(&mut clients) {
        let name = options.word(idx).unwrap_or("");
        sources.push(match client {
            Some(client) => packer.switch(client)?,
            None => packer.file(name, PortNames::none())?.0,
        });
    }
    let (a, b) = (&sources[0], &sources[1]);
    let differs = |(identity, content): &(&Identity, &Content)| {
        !b.get(*identity).is_some_and(|other| packer.are_same(content, other))
    };
    let changed = a.iter().filter(differs).map(|(identity, _)| identity);
    let mut all: Vec<&Identity> =
        changed.chain(b.keys().filter(|identity| !a.contains_key(identity))).collect();
    all.sort_by_cached_key(|i| {
        (i.table_id, Reverse(i.priority), match_text(&i.matching(), PortNames::none()))
    });
    let mut out = host::output::stdout();
    for identity in &all {
        for (sign, content) in [('-', a.get(identity)), ('+', b.get(identity))] {
            if let Some(content) = content {
                out.write_all(line(sign, identity, content, &packer).as_bytes())?;
            }
        }
    }
    Ok(if all.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

pub fn replace_flows(options: &Options) -> Result<ExitCode, Failure> {
    let mut client = options.connect()?;
    let names = if options.takes_names() { options.names_of(&mut client)? } else { PortNames::default() };
    let mut packer = Packer::new(&[client.version()]);
    let (wanted, usable) = packer.file(options.word(2).unwrap_or("-"), &names)?;
    client.prepare_dump(options.allowed)?;
    let present = packer.switch(&mut client)?;
    let tables = wanted.keys().chain(present.keys()).any(|i| i.table_id != 0);
    let usable = if tables { usable.intersect(Protocols::WITH_TABLE) } else { usable };
    client.use_one_of(options.allowed_of(usable)?)?;
    let form = form(&client);
    let flow_mod = |(command, identity, content): (FlowModCommand, &Identity, &Content)| {
        let is_new = command == FlowModCommand::Add;
        FlowMod {
            form,
            command,
            table_id: identity.table_id,
            priority: identity.priority,
            matching: identity.matching(),
            new_cookie: is_new.then_some(content.cookie),
            idle_timeout: content.idle_timeout,
            hard_timeout: content.hard_timeout,
            importance: if is_new { content.importance } else { 0 },
            flags: content.flags,
            actions: if is_new { packer.unpack(&content.actions) } else { Vec::new() },
            ..FlowMod::add()
        }
    };
    let is_there = |i: &Identity, c: &Content| present.get(i).is_some_and(|other| packer.are_same(c, other));
    let gone = present.iter().filter(|(i, _)| !wanted.contains_key(i));
    let new = wanted.iter().filter(|(i, c)| options.args.readd || !is_there(i, c));
    let gone = gone.map(|(i, c)| (FlowModCommand::DeleteStrict, i, c));
    let mut changes: Vec<_> = gone.chain(new.map(|(i, c)| (FlowModCommand::Add, i, c))).collect();
    // Sorted by table, and within a table by priority; then deletions come before additions.
    changes.sort_by_key(|(command, i, _)| (i.table_id, Reverse(i.priority), *command == FlowModCommand::Add));
    let messages = changes.into_iter().map(|change| (0, flow_mod(change)));
    if options.args.bundle {
        send_bundle(&mut client, "", messages)?
    } else {
        send_all(&mut client, "", messages)?
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::text::{parse_flow_mod, parse_match};

    #[test]
    fn what_is_kept_of_a_flow_is_all_of_it() {
        for text in [
            "",
            "tcp,nw_src=10.0.0.0/8,tp_dst=80",
            "ipv6,ipv6_dst=::5,reg15=0x7/0xf,ct_state=+trk,in_port=3",
            "packet_type=(1,0x800),nw_dst=1.2.3.4",
            "tun_metadata3=0x5/0xff,metadata=9",
        ] {
            let m = parse_match(text, PortNames::none()).unwrap();
            assert_eq!(Identity::new(3, 5, m.clone()).matching(), m, "{text}");
        }
        let mut packer = Packer::new(&[Version::V13]);
        let mut packed = |actions: &str| {
            let flow = format!("actions={actions}");
            let parsed = parse_flow_mod(&flow, FlowModCommand::Add, PortNames::none()).unwrap();
            packer.pack(parsed.flow_mod.actions)
        };
        let [set, as_field, other] =
            ["mod_dl_src:00:00:00:00:00:01,2", "set_field:00:00:00:00:00:01->eth_src,2", "2"]
                .map(&mut packed);
        assert!(set == as_field && set != other);
        assert_eq!(packer.unpack(&set), packer.unpack(&as_field));
        assert_eq!(packer.unpack(&other).len(), 1);
    }

    /// Whether flows of two files differ, where switches of these versions take part.
    fn differ(versions: &[Version], a: &str, b: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("flow");
        let mut packer = Packer::new(versions);
        let [a, b] = [a, b].map(|text| {
            std::fs::write(&path, text).unwrap();
            let (flows, _) = packer.file(path.to_str().unwrap(), PortNames::none()).ok().unwrap();
            flows.into_values().next().unwrap()
        });
        !packer.are_same(&a, &b)
    }

    #[test]
    fn what_a_version_cannot_say_makes_a_difference() {
        for (a, b) in [
            ("write_actions(output:1)", "write_actions(output:2)"),
            ("write_actions(output:1)", "drop"),
            ("meter:1,1", "meter:2,1"),
            ("push_vlan:0x8100", "push_vlan:0x88a8"),
            ("clone(push_vlan:0x8100,1)", "clone(push_vlan:0x88a8,1)"),
            ("clear_actions", "drop"),
            ("1,clear_actions,write_actions(5)", "1"),
        ] {
            for versions in [&[][..], &[Version::V10], &[Version::V13]] {
                let [a, b] = [a, b].map(|actions| format!("in_port=1,actions={actions}"));
                assert!(differ(versions, &a, &b), "{versions:?} {a} {b}");
                assert!(!differ(versions, &a, &a));
            }
        }
        let [pushed, set] = ["mod", "set"].map(|word| format!("in_port=1,actions={word}_vlan_vid:5"));
        assert!(differ(&[], &pushed, &set));
        assert!(!differ(&[Version::V10], &pushed, &set), "the switch takes and shows them as one");
    }

    #[test]
    fn flags_count_where_switches_tell_them() {
        let differ = |versions: &[Version]| differ(versions, "send_flow_rem,actions=1", "actions=1");
        assert!(differ(&[]) && differ(&[Version::V13]));
        assert!(!differ(&[Version::V10]) && !differ(&[Version::V12, Version::V14]));
    }
}
