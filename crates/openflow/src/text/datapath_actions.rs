//! `dpctl/normalize-actions`: brings datapath actions into a form in which equivalent lists are equal, for
//! scripts and tests. Actions are grouped by the VLAN tags that the packet has when they are executed, and
//! adjacent outputs are sorted. Text in, text out: it needs no switch.
//!
//! Source: ovs-dpctl(8), and the stock program's output; it drops the ends of lines, we do not.

use std::collections::{BTreeMap, HashMap};

/// The words that actions begin with. Those with a list behind them are followed by a parenthesis.
const ACTIONS: &[&str] = &[
    "add_mpls",
    "check_pkt_len",
    "clone",
    "ct",
    "ct_clear",
    "dec_ttl",
    "drop",
    "hash",
    "lb_output",
    "meter",
    "pop_eth",
    "pop_mpls",
    "pop_nsh",
    "pop_vlan",
    "push_eth",
    "push_mpls",
    "push_nsh",
    "push_vlan",
    "recirc",
    "sample",
    "set",
    "tnl_pop",
    "tnl_push",
    "trunc",
    "userspace",
];
/// Deepest stack of tags.
const TAGS_MAX: usize = 8;

/// A tag of the packet: protocol id, VLAN, priority.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Tag {
    vid: u16,
    pcp: u8,
    tpid: u16,
}

/// The output for `FLOW ACTIONS [NAME=NUMBER]...`.
pub fn normalize_datapath_actions(flow: &str, actions: &str, names: &[String]) -> Result<String, String> {
    let mut numbers = HashMap::new();
    for name in names {
        let pair = name.split_once('=').and_then(|(name, number)| Some((name, number.parse::<u32>().ok()?)));
        let (name, number) = pair.ok_or_else(|| format!("{name}: expected NAME=NUMBER"))?;
        numbers.insert(name, number);
    }
    let bad_flow = || format!("odp_flow_key_from_string (syntax error at {flow}) (Invalid argument)");
    let bad_actions = || "odp_actions_from_string (Invalid argument)".to_string();
    let Packet { mut tags, mpls } = packet(flow).ok_or_else(bad_flow)?;
    // Those with fewer tags come first.
    let mut groups: BTreeMap<(usize, Vec<Tag>), Vec<String>> = BTreeMap::new();
    for action in split(actions).ok_or_else(bad_actions)? {
        let (word, inner) =
            action.split_once('(').map_or((action, None), |(word, inner)| (word, Some(inner)));
        let port = action.parse::<u32>().ok().or_else(|| numbers.get(action).copied());
        match (word, inner) {
            ("pop_vlan", None) => drop((!tags.is_empty()).then(|| tags.remove(0))),
            ("push_vlan", Some(inner)) if tags.len() < TAGS_MAX => {
                tags.insert(0, tag(inner, 0x8100).ok_or_else(bad_actions)?);
            }
            _ => {
                let text = port.map(|port| port.to_string());
                let text = text.or_else(|| ACTIONS.contains(&word).then(|| action.to_string()));
                groups.entry((tags.len(), tags.clone())).or_default().push(text.ok_or_else(bad_actions)?);
            }
        }
    }
    let mut text = format!("input flow: {flow}\n");
    for ((_, tags), mut actions) in groups {
        let is_output = |action: &String| action.parse::<u32>().is_ok();
        for run in actions.chunk_by_mut(|a, b| is_output(a) && is_output(b)) {
            run.sort_by_key(|action| action.parse::<u32>().ok());
        }
        for tag in &tags {
            let tpid = if tag.tpid == 0x8100 { String::new() } else { format!("tpid={:#06x},", tag.tpid) };
            text += &format!("vlan({tpid}vid={},pcp={}): ", tag.vid, tag.pcp);
        }
        text += if tags.is_empty() { "no vlan: " } else { "" };
        match &mpls {
            Some(mpls) => text += &format!("mpls({mpls}): "),
            None => text += "no mpls: ",
        }
        text += &actions.join(",");
        text.push('\n');
    }
    Ok(text)
}

/// Splits at the commas outside parentheses. `None` if these are unbalanced, or there is nothing between two
/// commas.
fn split(text: &str) -> Option<Vec<&str>> {
    let (mut depth, mut start, mut parts) = (0usize, 0, Vec::new());
    for (at, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.checked_sub(1)?,
            ',' if depth == 0 => {
                parts.push(text[start..at].trim());
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(text[start..].trim());
    (depth == 0 && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

/// The part of a flow that affects the result.
struct Packet {
    tags: Vec<Tag>,
    /// The members of its first label that are shown.
    mpls: Option<String>,
}

fn packet(flow: &str) -> Option<Packet> {
    let mut found = Packet { tags: Vec::new(), mpls: None };
    let (mut rest, mut tpid) = (flow.to_string(), 0x8100);
    while !rest.is_empty() {
        let mut inside = String::new();
        for part in split(&rest)? {
            let (name, inner) = part.strip_suffix(')')?.split_once('(')?;
            match name {
                "eth_type" => tpid = number(inner)?,
                "vlan" if found.tags.len() < TAGS_MAX => found.tags.push(tag(inner, tpid)?),
                "encap" => inside = inner.to_string(),
                "mpls" => {
                    let shown = inner.split(',').filter(|member| !member.starts_with("bos"));
                    found.mpls = Some(shown.take(3).collect::<Vec<_>>().join(","));
                }
                "in_port" if inner.is_empty() => return None,
                name if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => return None,
                _ => {}
            }
        }
        rest = inside;
    }
    Some(found)
}

fn tag(members: &str, tpid: u16) -> Option<Tag> {
    let mut tag = Tag { vid: 0, pcp: 0, tpid };
    for member in members.trim_end_matches(')').split(',').filter(|member| !member.is_empty()) {
        match member.split_once('=')? {
            ("vid", value) => tag.vid = number(value).filter(|vid| *vid < 4096)?,
            ("pcp", value) => tag.pcp = number(value).filter(|pcp| *pcp < 8)? as u8,
            ("tpid", value) => tag.tpid = number(value)?,
            ("cfi", _) => {}
            _ => return None,
        }
    }
    Some(tag)
}

/// A number, in hexadecimal with `0x`, without its mask.
fn number(text: &str) -> Option<u16> {
    let text = text.split('/').next()?.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u16::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAGGED: &str = "in_port(1),eth(src=50:54:00:00:00:01,dst=ff:ff:ff:ff:ff:ff),eth_type(0x8100),\
                          vlan(vid=9,pcp=1),encap(eth_type(0xabcd))";

    #[test]
    fn no_text_is_too_odd_for_it() {
        for text in ["", ",", "(", ")", "encap(encap(", "vlan(vid=5000)", "eth_type(x)", "é(x)", "push_vlan("]
        {
            assert!(normalize_datapath_actions(text, "1", &[]).is_err() || text.is_empty(), "{text}");
            assert!(normalize_datapath_actions(TAGGED, text, &[]).is_err(), "{text}");
        }
        let deep = "push_vlan(vid=1,pcp=0),".repeat(10_000) + "1";
        assert!(normalize_datapath_actions(TAGGED, &deep, &[]).is_ok_and(|text| text.len() < 1 << 20));
    }
}
