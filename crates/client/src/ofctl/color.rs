//! `--color`: flows, packets and actions of messages in colors, by the words that a line consists of.
//!
//! The text without its colors is what is printed without the option. Source: ovs-ofctl(8), `--color` and
//! `OVS_COLORS`, and what the stock tool prints.

use openflow::text::is_protocol;
use std::borrow::Cow;
use std::io::IsTerminal;

/// The role of a part of a line.
#[derive(Clone, Copy)]
enum Part {
    Actions,
    Drop,
    Learn,
    Parameter,
    Parenthesis,
    Special,
    Value,
}

/// The capabilities of `OVS_COLORS`, in the order of [`Part`], with the SGR parameters of each by default.
const CAPABILITIES: [(&str, &str); 7] =
    [("ac", "1;31"), ("dr", "34"), ("le", "31"), ("pm", "36"), ("pr", "35"), ("sp", "33"), ("vl", "32")];

/// Words of a flow that have no color.
const PLAIN: &[&str] =
    &["send_flow_rem", "check_overlap", "reset_counts", "no_packet_counts", "no_byte_counts"];
/// Actions and arguments that are one word.
const VALUES: &[&str] = &[
    "clear_actions",
    "commit",
    "ct_clear",
    "dec_mpls_ttl",
    "delete_learned",
    "force",
    "hash",
    "pause",
    "persistent",
    "pop_queue",
    "pop_vlan",
    "random",
    "send_flow_rem",
    "strip_vlan",
];
/// Actions with what they do behind a colon.
const SPECIAL: &[&str] = &["group", "load", "move", "output", "resubmit", "set_field"];
/// Words `NAME=VALUE` of messages that do not belong to a match.
const MESSAGE_WORDS: &[&str] = &[
    "buffer",
    "bundle_id",
    "cookie",
    "data_len",
    "event",
    "flags",
    "group_id",
    "hard_timeout",
    "id",
    "idle_timeout",
    "importance",
    "out_group",
    "out_port",
    "reason",
    "table",
    "table_id",
    "total_len",
    "userdata",
    "xid",
];
/// Actions nested more deeply than this have no color.
const DEPTH_MAX: usize = 32;

/// A text to print, with colors if there are any.
pub fn painted<'a>(colors: Option<&Colors>, text: &'a str) -> Cow<'a, str> {
    match colors {
        Some(colors) => Cow::Owned(colors.paint(text)),
        None => Cow::Borrowed(text),
    }
}

/// Whether `--color=WHEN` asks for colors.
pub fn is_colored(when: &str) -> Result<bool, String> {
    let is_dumb = || std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    match when {
        "always" => Ok(true),
        "never" => Ok(false),
        "" | "auto" => Ok(std::io::stdout().is_terminal() && !is_dumb()),
        other => Err(format!("incorrect value `{other}' for --color")),
    }
}

/// The contents of a message, by the first words of its text.
#[derive(Clone, Copy)]
enum Kind {
    /// Flows, as a dump shows them.
    Flows,
    /// Groups with their buckets.
    Groups,
    /// Matches and actions among other words, or a packet.
    Words,
    /// Nothing that has a color.
    Plain,
}

/// The kind of message that begins with `line`, and the length of its head; `None` if none begins here.
fn head_of(line: &str) -> Option<(Kind, usize)> {
    let name = line.split(' ').next()?;
    let (prefix, what) = name.split_once('_')?;
    if !matches!(prefix, "OFPT" | "OFPST" | "NXT" | "NXST" | "ONFT" | "ONFST") {
        return None;
    }
    let is_reply = line[name.len()..].starts_with(" reply");
    let kind = match what {
        "FLOW" | "FLOW_DESC" if is_reply => Kind::Flows,
        "AGGREGATE" if is_reply => Kind::Plain,
        "GROUP_DESC" | "GROUP_MOD" | "REQUESTFORWARD" => Kind::Groups,
        "AGGREGATE" | "FLOW" | "FLOW_DESC" | "FLOW_MOD" | "FLOW_MONITOR" | "FLOW_REMOVED" | "PACKET_IN"
        | "PACKET_IN2" | "PACKET_OUT" | "RESUME" => Kind::Words,
        _ => Kind::Plain,
    };
    Some((kind, line.find("):").map_or(line.len(), |at| at + 2)))
}

/// The SGR parameters of each part.
pub struct Colors([String; 7]);

impl Colors {
    /// The colors that `OVS_COLORS` names, and defaults for the others.
    pub fn new(named: &str) -> Colors {
        let mut colors = Colors(CAPABILITIES.map(|(_, default)| default.to_string()));
        for (name, sgr) in named.split(':').filter_map(|capability| capability.split_once('=')) {
            let place = CAPABILITIES.iter().position(|(known, _)| *known == name);
            let is_sgr = sgr.bytes().all(|byte| byte.is_ascii_digit() || byte == b';');
            if let Some(place) = place.filter(|_| is_sgr) {
                colors.0[place] = sgr.to_string();
            }
        }
        colors
    }

    /// Colors messages, or flows without a message. Text without a color is unchanged.
    pub fn paint(&self, lines: &str) -> String {
        let mut out = String::new();
        let mut kind = Kind::Flows;
        for line in lines.split_inclusive('\n') {
            let (mut line, end) = line.strip_suffix('\n').map_or((line, ""), |line| (line, "\n"));
            if let Some((begun, head_len)) = head_of(line) {
                kind = begun;
                out.push_str(&line[..head_len]);
                line = &line[head_len..];
            }
            match kind {
                _ if is_hex_dump(line) => out.push_str(line),
                Kind::Flows => self.dumped_flow(&mut out, line),
                Kind::Groups => self.group(&mut out, line),
                Kind::Words => self.words(&mut out, line),
                Kind::Plain => out.push_str(line),
            }
            out.push_str(end);
        }
        out
    }

    /// A flow of a dump, or a line that is none.
    fn dumped_flow(&self, out: &mut String, line: &str) {
        match line.split_once(" actions=") {
            Some((flow, actions)) => {
                self.flow(out, flow);
                out.push(' ');
                self.put(out, Part::Actions, "actions=");
                self.actions(out, actions, "", 0);
            }
            None => out.push_str(line),
        }
    }

    /// A group: the actions of its buckets alone have colors.
    fn group(&self, out: &mut String, line: &str) {
        let mut pieces = line.split("actions=");
        out.push_str(pieces.next().unwrap_or(""));
        for piece in pieces {
            let (actions, rest) = piece.split_at(piece.find(",bucket=").unwrap_or(piece.len()));
            out.push_str("actions=");
            self.actions(out, actions, "", 0);
            out.push_str(rest);
        }
    }

    /// Words of a message, some of which belong to a match, a packet's flow or actions.
    fn words(&self, out: &mut String, line: &str) {
        for word in words(line, &[' ']) {
            if let Some(actions) = word.strip_prefix("actions=") {
                out.push_str("actions=");
                self.actions(out, actions, "", 0);
            } else if is_match(word) {
                self.flow(out, word);
            } else {
                out.push_str(word);
            }
        }
    }

    fn put(&self, out: &mut String, part: Part, text: &str) {
        out.push_str("\x1b[");
        out.push_str(&self.0[part as usize]);
        out.push_str("m\x1b[K");
        out.push_str(text);
        out.push_str("\x1b[m\x1b[K");
    }

    /// Everything before the actions.
    fn flow(&self, out: &mut String, text: &str) {
        for word in words(text, &[',', ' ']) {
            match word.split_once('=') {
                Some(("packet_type", _)) => out.push_str(word),
                Some((name, value)) => {
                    let part = if is_special_field(name) { Part::Special } else { Part::Parameter };
                    self.put(out, part, &format!("{name}="));
                    out.push_str(value);
                }
                None if word == "," || word == " " || word.is_empty() || PLAIN.contains(&word) => {
                    out.push_str(word);
                }
                None => self.put(out, Part::Value, word),
            }
        }
    }

    /// Actions, or the arguments of one that is named `within`.
    fn actions(&self, out: &mut String, text: &str, within: &str, depth: usize) {
        if depth > DEPTH_MAX {
            return out.push_str(text);
        }
        for word in words(text, &[',']) {
            match word {
                "drop" => self.put(out, Part::Drop, word),
                "exit" => self.put(out, Part::Special, word),
                "dec_ttl" | "nat" => self.put(out, Part::Parenthesis, word),
                "egress" | "ingress" => self.put(out, Part::Parameter, word),
                _ if VALUES.contains(&word) => self.put(out, Part::Value, word),
                _ => match word.find(['(', ':', '=']) {
                    Some(at) if word[at..].starts_with('(') => self.call(out, word, at, depth),
                    Some(at) if word[at..].starts_with(':') => self.to(out, word, at),
                    Some(at) => self.assignment(out, word, at, within),
                    None if within == "learn" && word.contains('[') => self.put(out, Part::Parameter, word),
                    None => out.push_str(word),
                },
            }
        }
    }

    /// `name(arguments)`, whose name ends at `at`.
    fn call(&self, out: &mut String, word: &str, at: usize, depth: usize) {
        let (name, rest) = word.split_at(at);
        let Some(arguments) = rest.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')) else {
            // check_pkt_larger(5)->NXM_NX_REG0[0]
            self.put(out, Part::Parameter, &word[..=at]);
            return out.push_str(&word[at + 1..]);
        };
        let part = if name == "learn" { Part::Learn } else { Part::Parenthesis };
        match name {
            "output" => {
                self.put(out, Part::Special, name);
                return out.push_str(rest);
            }
            "dec_ttl" | "nat" => {
                self.put(out, part, name);
                self.put(out, part, "(");
            }
            _ => self.put(out, part, &word[..=at]),
        }
        match (name, arguments.split_once('(').zip(arguments.strip_suffix(')'))) {
            ("encap", Some(((header, _), whole))) => {
                out.push_str(header);
                self.put(out, part, "(");
                out.push_str(&whole[header.len() + 1..]);
                self.put(out, part, ")");
            }
            ("encap" | "decap", _) => out.push_str(arguments),
            _ => self.actions(out, arguments, name, depth + 1),
        }
        self.put(out, part, ")");
    }

    /// `name:argument` or `name:argument->field`.
    fn to(&self, out: &mut String, word: &str, at: usize) {
        let (name, argument) = (&word[..at], &word[at + 1..]);
        if name == "CONTROLLER" {
            return out.push_str(word);
        }
        let part = if SPECIAL.contains(&name) { Part::Special } else { Part::Parameter };
        self.put(out, part, &word[..=at]);
        match argument.split_once("->") {
            Some((value, field)) => {
                out.push_str(value);
                self.put(out, Part::Special, "->");
                out.push_str(field);
            }
            None => out.push_str(argument),
        }
    }

    /// `name=value`.
    fn assignment(&self, out: &mut String, word: &str, at: usize, within: &str) {
        let (name, value) = (&word[..at], &word[at + 1..]);
        if within == "nat" || name.contains('[') {
            self.put(out, Part::Parameter, name);
            self.put(out, Part::Parameter, "=");
        } else {
            let part = if is_special_field(name) { Part::Special } else { Part::Parameter };
            self.put(out, part, &word[..=at]);
        }
        out.push_str(value);
    }
}

/// Whether a word of a message is a match or a packet's flow.
fn is_match(word: &str) -> bool {
    let first = word.split(',').next().unwrap_or("");
    match first.split_once('=') {
        Some((name, _)) => !name.is_empty() && !MESSAGE_WORDS.contains(&name),
        None => is_protocol(first),
    }
}

/// Whether a line shows bytes: an offset of eight digits, and two blanks.
fn is_hex_dump(line: &str) -> bool {
    line.split_once("  ")
        .is_some_and(|(offset, _)| offset.len() == 8 && offset.bytes().all(|b| b.is_ascii_hexdigit()))
}

fn is_special_field(name: &str) -> bool {
    matches!(name, "table" | "priority")
}

/// The words of a text and the separators between them, in order. Parentheses and quotes keep their contents
/// together.
fn words<'a>(text: &'a str, separators: &[char]) -> Vec<&'a str> {
    let (mut list, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0usize, false);
    for (at, character) in text.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ if depth == 0 && separators.contains(&character) => {
                list.extend([&text[start..at], &text[at..at + character.len_utf8()]]);
                start = at + character.len_utf8();
            }
            _ => {}
        }
    }
    list.push(&text[start..]);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn without_colors(text: &str) -> String {
        let mut parts = text.split('\x1b');
        let first = parts.next().unwrap_or_default().to_string();
        parts.fold(first, |text, part| text + part.split_once(['m', 'K']).map_or(part, |(_, rest)| rest))
    }

    /// What the stock tool prints of a flow that it is about to send, from the match on.
    fn stock(version: &str, flow: &str) -> String {
        let args = ["--color=always", "-O", version, "parse-flow", flow];
        let output = Command::new("/usr/bin/ovs-ofctl").args(args).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let shown =
            text.lines().find_map(|line| line.split_once(": ADD ")).unwrap_or_else(|| panic!("{flow}"));
        shown.1.to_string()
    }

    #[test]
    fn flows_have_the_colors_that_the_stock_tool_gives_them() {
        let colors = Colors::new("");
        for (version, flow) in [
            (
                "OpenFlow13",
                "priority=5,tcp,in_port=1,nw_src=10.0.0.0/8,tcp_flags=+syn-ack,actions=output:2,\
              set_field:5->reg0,load:1->NXM_NX_REG1[],move:NXM_NX_REG0[]->NXM_NX_REG1[0..31],resubmit(,2),\
              group:3,CONTROLLER:65535,NORMAL",
            ),
            (
                "OpenFlow13",
                "ct_state=+trk+new,ip,actions=ct(commit,zone=5,nat(src=10.0.0.1-10.0.0.9:1-2)),ct(nat)",
            ),
            (
                "OpenFlow13",
                "tcp,actions=ct(commit,force,table=3,zone=NXM_NX_REG0[0..15],nat(dst=10.0.0.1,hash)),\
              ct(alg=ftp,commit),ct_clear",
            ),
            (
                "OpenFlow13",
                "in_port=1,actions=learn(table=1,hard_timeout=60,cookie=0x4,limit=3,delete_learned,\
              send_flow_rem,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],\
              load:1->NXM_NX_REG1[],output:NXM_OF_IN_PORT[]),flood",
            ),
            (
                "OpenFlow13",
                "ip,dl_vlan=3,actions=meter:3,dec_ttl,dec_ttl(1,2),pop_vlan,push_vlan:0x8100,\
              clear_actions,write_actions(output:3),write_metadata:0x5/0xff,goto_table:9",
            ),
            (
                "OpenFlow13",
                "ipv6,ipv6_src=fe80::1/64,nw_frag=later,actions=clone(output:3,exit),note:00.01,\
              multipath(symmetric_l4,1024,modulo_n,5,0,NXM_NX_REG0[]),\
              bundle(eth_src,0,active_backup,ofport,members:1,2),\
              controller(reason=no_match,max_len=5,id=6,userdata=01.02,pause,meter_id=4)",
            ),
            ("OpenFlow13", "in_port=LOCAL,actions=conjunction(1,2/3),conjunction(2,1/2)"),
            (
                "OpenFlow13",
                "tcp,actions=sample(probability=1,collector_set_id=2,sampling_port=2,egress),\
              output(port=1,max_len=100),output:NXM_NX_REG0[],check_pkt_larger(5)->NXM_NX_REG0[0],\
              fin_timeout(idle_timeout=1,hard_timeout=3),set_queue:3,pop_queue",
            ),
            ("OpenFlow13", "mpls,actions=dec_mpls_ttl,push_mpls:0x8847,push:NXM_NX_REG0[],pop:NXM_NX_REG1[]"),
            ("OpenFlow13", "packet_type=(1,0x800),actions=drop"),
            (
                "OpenFlow13",
                "ip,actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12))),encap(ethernet),encap(mpls),\
              clone(decap(),decap(packet_type(ns=0,type=0)),decap(packet_type(ns=1,type=0x8847)))",
            ),
            (
                "OpenFlow10",
                "ip,actions=mod_nw_src:1.2.3.4,mod_dl_dst:00:00:00:00:00:01,strip_vlan,enqueue:1:2",
            ),
        ] {
            let theirs = stock(version, flow);
            // Of flows that it sends it leaves this word out.
            let theirs = theirs.replace(" actions=", " \x1b[1;31m\x1b[Kactions=\x1b[m\x1b[K");
            assert_eq!(colors.paint(&without_colors(&theirs)), theirs, "{flow}");
        }
    }

    #[test]
    fn what_is_no_flow_stays_as_it_is_and_colors_come_off_again() {
        let colors = Colors::new("ac=1:pm=2:zz=3:sp:dr=\x07");
        assert_eq!(colors.0, ["1", "34", "31", "2", "35", "33", "32"]);
        for text in ["NXST_FLOW reply (xid=0x4):\n", "", "\n\n", "actions"] {
            assert_eq!(colors.paint(text), text);
        }
        let deep = format!(" cookie=0x0 actions={}", "clone(".repeat(10_000));
        let odd = " a=\"b, c\",é=é, table=0 send_flow_rem x actions=learn(,)a:b->,c=((),)\n cookie=1 actions=é(é)\n";
        for text in [&deep, odd] {
            assert_eq!(without_colors(&colors.paint(text)), text);
        }
        assert!(is_colored("always") == Ok(true) && is_colored("never") == Ok(false));
        assert!(is_colored("sometimes").unwrap_err().starts_with("incorrect value `sometimes' for --color"));
    }
}
