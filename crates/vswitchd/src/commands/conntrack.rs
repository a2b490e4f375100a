//! `dpctl/*` of connection tracking: its connections, their removal, and its limits.

use super::names::{OF_DPCTL, options};
use super::waits;
use crate::ct_flushes::ENTRIES_AT_ONCE;
use crate::ofconn::filter_of;
use crate::plane::{ForwardingPlane, TURN};
use crate::state::{Shared, Vswitch};
use datapath::conntrack::dump::{Connection, Filter, SHARES};
use datapath::conntrack::tcp::{Scale, State};
use datapath::conntrack::tuple::Tuple;
use openflow::message::CtFlush;
use openflow::text::{KeyValues, parse_ct_tuple};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Instant;

type Answer = Result<String, String>;

pub(super) fn refused(why: impl std::fmt::Display) -> String {
    format!("ovs-vswitchd: {why} (Invalid argument)")
}

/// The arguments without a datapath's name in front.
pub(super) fn after_name<'a>(plane: &ForwardingPlane, args: &'a [String]) -> &'a [String] {
    match args.split_first() {
        Some((first, rest)) if plane.is_named(first) => rest,
        _ => args,
    }
}

/// The same for a command that takes `own` arguments behind the name: one more is a datapath's name.
pub(super) fn own_arguments<'a>(
    plane: &ForwardingPlane,
    args: &'a [String],
    own: usize,
) -> Result<&'a [String], String> {
    options(args, OF_DPCTL)?;
    let rest = after_name(plane, args);
    if rest.len() > own { Err(refused("datapath not found")) } else { Ok(rest) }
}

/// Arguments that are not options, nor the datapath's name.
fn words<'a>(plane: &ForwardingPlane, args: &'a [String]) -> Result<Vec<&'a str>, String> {
    Ok(options(args, OF_DPCTL)?.1.into_iter().filter(|word| !plane.is_named(word)).collect())
}

fn has(args: &[String], names: [&str; 2]) -> bool {
    options(args, OF_DPCTL).is_ok_and(|(options, _)| options.iter().any(|option| names.contains(option)))
}

fn zone(word: &str) -> Option<u16> {
    word.strip_prefix("zone=")?.parse().ok()
}

/// A filter for a zone, which must be the only word, or for everything if there is none.
fn zone_filter(words: &[&str]) -> Result<Filter, String> {
    match words {
        [] => Ok(Filter::default()),
        [word] if let Some(zone) = zone(word) => Ok(Filter { zone: Some(zone), ..Filter::default() }),
        _ => Err("ovs-vswitchd: datapath not found (Invalid argument)".into()),
    }
}

fn protocol(number: u8) -> String {
    match number {
        1 => "icmp".into(),
        2 => "igmp".into(),
        6 => "tcp".into(),
        17 => "udp".into(),
        33 => "dccp".into(),
        58 => "icmpv6".into(),
        132 => "sctp".into(),
        136 => "udplite".into(),
        other => other.to_string(),
    }
}

fn tuple(t: &Tuple) -> String {
    let address = |address: u128| match t.is_ipv6 {
        true => Ipv6Addr::from_bits(address).to_string(),
        false => Ipv4Addr::from_bits(address as u32).to_string(),
    };
    let (src, dst, (a, b)) = (address(t.src), address(t.dst), t.of_ports());
    if t.is_icmp() {
        return format!("src={src},dst={dst},id={},type={a},code={b}", t.src_port);
    }
    format!("src={src},dst={dst},sport={a},dport={b}")
}

/// The one state that Open vSwitch shows of both ends.
fn state(c: &Connection) -> Option<State> {
    let [a, b] = c.peers?;
    Some(match a.state.max(b.state) {
        State::FinWait2 => State::TimeWait,
        State::SynRecv => State::Established,
        other => other,
    })
}

fn both_states(c: &Connection) -> Option<String> {
    let [a, b] = c.peers?;
    let mut text = format!("state_orig={},state_reply={}", a.state.name(), b.state.name());
    let bits = |scale| if let Scale::By(bits) = scale { bits } else { 0 };
    if (bits(a.scale), bits(b.scale)) != (0, 0) {
        let _ = write!(text, ",wscale_orig={},wscale_reply={}", bits(a.scale), bits(b.scale));
    }
    for (name, peer) in [("orig", a), ("reply", b)] {
        let flags = match peer.scale {
            Scale::By(_) => "WINDOW_SCALE",
            Scale::Unknown => "BE_LIBERAL",
            Scale::None => "0",
        };
        let _ = write!(text, ",flags_{name}={flags}");
    }
    Some(text)
}

fn line(c: &Connection, is_verbose: bool, has_statistics: bool) -> String {
    let mut text = format!(
        "{},orig=({}),reply=({})",
        protocol(c.original.protocol),
        tuple(&c.original),
        tuple(&c.reply)
    );
    if is_verbose {
        text += ",id=0";
    }
    if c.zone != 0 {
        let _ = write!(text, ",zone={}", c.zone);
    }
    if is_verbose {
        text += ",status=0";
    }
    if has_statistics {
        let _ = write!(text, ",timeout={}", c.timeout_s);
    }
    if c.mark != 0 {
        let _ = write!(text, ",mark={}", c.mark);
    }
    if c.label != 0 {
        let _ = write!(text, ",labels={:#x}", c.label);
    }
    let states = if is_verbose { both_states(c) } else { state(c).map(|s| format!("state={}", s.name())) };
    if let Some(states) = states {
        let _ = write!(text, ",protoinfo=({states})");
    }
    if let Some(helper) = c.helper {
        let _ = write!(text, ",helper={}", helper.name());
    }
    if let Some(parent) = c.parent.filter(|_| is_verbose) {
        let _ = write!(text, ",parent=({})", tuple(&parent));
    }
    text + "\n"
}

/// Shows the connections that a filter selects to `each`, in turns.
async fn for_all_connections(shared: &Shared, filter: Filter, mut each: impl FnMut(&Connection)) {
    let mut at = Some(0);
    while at.is_some() {
        look_at_some(&shared.borrow().plane, &mut at, &filter, Instant::now() + TURN, &mut each);
        tokio::task::yield_now().await;
    }
}

/// A turn of that, which ends soon after `until`.
fn look_at_some(
    plane: &ForwardingPlane,
    at: &mut Option<u32>,
    filter: &Filter,
    until: Instant,
    each: &mut impl FnMut(&Connection),
) {
    let (tracker, now_ms) = (plane.dp.tracker(), plane.dp.now_ms());
    while at.is_some() {
        tracker.connections(at, ENTRIES_AT_ONCE, filter, now_ms).iter().for_each(&mut *each);
        if Instant::now() >= until {
            return;
        }
    }
}

pub fn dump(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let filter = zone_filter(&words(&vswitch.plane, args)?)?;
    let (more, statistics) = (has(args, ["-m", "--more"]), has(args, ["-s", "--statistics"]));
    vswitch.begin_long(async move |shared, growing| {
        let mut text = String::new();
        let write = |c: &Connection| {
            text += &line(c, more, statistics);
            growing.reaches(text.capacity());
        };
        for_all_connections(&shared, filter, write).await;
        Ok(text)
    });
    Ok(String::new())
}

pub fn flush(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let mut words = words(&vswitch.plane, args)?.into_iter().peekable();
    let (mut filter, mut flush) = (Filter::default(), CtFlush::default());
    if let Some(word) = words.next_if(|word| word.starts_with("zone=")) {
        flush.zone = Some(zone(word).ok_or_else(|| refused("failed to parse zone"))?);
    }
    if let Some(word) = words.next_if(|word| word.starts_with("mark=")) {
        let (value, mask) = masked(&word[5..]).ok_or_else(|| refused("failed to parse mark"))?;
        filter.mark = Some((value as u32, mask as u32));
    }
    if let Some(word) = words.next_if(|word| word.starts_with("labels=")) {
        filter.label = Some(masked(&word[7..]).ok_or_else(|| refused("failed to parse labels"))?);
    }
    for is_reply in [false, true] {
        let Some(word) = words.next() else { break };
        parse_ct_tuple(word, &mut flush.tuples, is_reply).map_err(refused)?;
    }
    if words.next().is_some() {
        return Err(refused("invalid arguments"));
    }
    filter = Filter { mark: filter.mark, label: filter.label, ..filter_of(&flush) };
    if filter.tuples.is_some_and(|tuples| tuples.of_one().is_some()) {
        let dp = &vswitch.plane.dp;
        return match dp.tracker().flush(&filter, dp.now_ms()) {
            0 => Err("ovs-vswitchd: failed to flush conntrack (No such file or directory)".into()),
            _ => Ok(String::new()),
        };
    }
    vswitch.begin(async move |shared| {
        waits::until(|| shared.borrow().ct_flushes.is_idle()).await;
        let number = shared.borrow_mut().flush_connections(filter);
        waits::until(|| shared.borrow().ct_flushes.is_done(number)).await;
        Ok(String::new())
    });
    Ok(String::new())
}

/// A number with an optional mask, by default all ones.
fn masked(text: &str) -> Option<(u128, u128)> {
    let number = |text: &str| match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(hex) => u128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    };
    match text.split_once('/') {
        Some((value, mask)) => Some((number(value)?, number(mask)?)),
        None => Some((number(text)?, u128::MAX)),
    }
}

pub fn stats_show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let words = words(&vswitch.plane, args)?;
    let is_verbose = has(args, ["-m", "--more"]) || words.contains(&"verbose");
    let rest: Vec<&str> = words.into_iter().filter(|word| *word != "verbose").collect();
    let filter = zone_filter(&rest)?;
    vswitch.begin(async move |shared| {
        let mut counts = Counts::default();
        for_all_connections(&shared, filter, |c| counts.add(c)).await;
        Ok(counts.text(is_verbose))
    });
    Ok(String::new())
}

/// How many connections there are, by protocol and state of TCP.
#[derive(Default)]
struct Counts {
    protocols: BTreeMap<u8, u64>,
    states: BTreeMap<State, u64>,
}

impl Counts {
    fn add(&mut self, c: &Connection) {
        *self.protocols.entry(c.original.protocol).or_default() += 1;
        state(c).into_iter().for_each(|state| *self.states.entry(state).or_default() += 1);
    }

    fn text(mut self, is_verbose: bool) -> String {
        let total: u64 = self.protocols.values().sum();
        let mut text = format!("Connections Stats:\n    Total: {total}\n");
        // Open vSwitch counts ICMPv6 and does not print it.
        self.protocols.remove(&58);
        for (number, name) in SHOWN {
            let Some(count) = self.protocols.remove(&number) else { continue };
            let _ = writeln!(text, "  {name}: {count}");
            if number == 6 && is_verbose {
                text += "    Conn per TCP states:\n";
                for (state, count) in &self.states {
                    let _ = writeln!(text, "\t  [{}]={count}", state.name());
                }
            }
        }
        let others: u64 = self.protocols.values().sum();
        if others > 0 {
            let _ = writeln!(text, "  Other: {others}");
        }
        text
    }
}

/// Protocols whose connections are counted by name, in this order.
const SHOWN: [(u8, &str); 7] =
    [(6, "TCP"), (17, "UDP"), (136, "UDPLITE"), (132, "SCTP"), (1, "ICMP"), (33, "DCCP"), (2, "IGMP")];

/// Shares of the index in a line.
const PER_LINE: usize = 8;

pub fn buckets(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let above = match words(&vswitch.plane, args)?[..] {
        [] => 0,
        [word] => match word.strip_prefix("gt=").and_then(|n| n.parse().ok()) {
            Some(above) => above,
            None => return Err("ovs-vswitchd: datapath not found (Invalid argument)".into()),
        },
        _ => return Err(refused("datapath not found")),
    };
    vswitch.begin(async move |shared| {
        let connections = shared.borrow().plane.dp.tracker().count();
        let mut counts = Vec::new();
        // A share in a turn: it has thousands of buckets.
        while connections > 0 && counts.len() < SHARES {
            counts.push(shared.borrow().plane.dp.tracker().occupancy(counts.len()));
            tokio::task::yield_now().await;
        }
        Ok(table_of(&counts, connections, above))
    });
    Ok(String::new())
}

/// What `ct-bkts` shows. Of shares with no more than `above` places in use, it shows a dot.
fn table_of(counts: &[u64], connections: u32, above: u64) -> String {
    let mut text = format!("Total Buckets: {SHARES}\nCurrent Connections: {connections}\n\n");
    if connections == 0 {
        return text;
    }
    let rule = "+-----------+-----------------------------------------+\n";
    let _ =
        write!(text, "{rule}|  Buckets  |         Connections per Buckets         |\n{}", rule.trim_end());
    for (n, line) in counts.chunks(PER_LINE).enumerate() {
        let first = n * PER_LINE;
        let _ = write!(text, "\n {first:3}..{:3}   | ", first + PER_LINE - 1);
        for &count in line {
            let shown = if count > above { count.to_string() } else { ".".into() };
            let _ = write!(text, "{shown:>5}");
        }
    }
    text + "\n\n"
}

pub fn set_maxconns(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let number = own_arguments(plane, args, 1)?.last().and_then(|text| text.parse().ok());
    plane.dp.tracker().set_limit(number.ok_or_else(|| refused("maxconns missing or malformed"))?);
    Ok("setting maxconns successful".into())
}

pub fn get_maxconns(plane: &ForwardingPlane, args: &[String]) -> Answer {
    own_arguments(plane, args, 0)?;
    Ok(format!("{}\n", plane.dp.tracker().limit()))
}

pub fn get_nconns(plane: &ForwardingPlane, args: &[String]) -> Answer {
    own_arguments(plane, args, 0)?;
    Ok(format!("{}\n", plane.dp.tracker().count()))
}

pub fn set_sweep_interval(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let number = own_arguments(plane, args, 1)?.last().and_then(|text| text.parse().ok());
    let ms = number.ok_or_else(|| refused("sweep interval missing or malformed"))?;
    plane.dp.tracker().set_sweep_interval_ms(ms);
    Ok("setting sweep interval successful".into())
}

pub fn get_sweep_interval(plane: &ForwardingPlane, args: &[String]) -> Answer {
    own_arguments(plane, args, 0)?;
    Ok(format!("{}\n", plane.dp.tracker().sweep_interval_ms()))
}

pub fn enable_tcp_seq_chk(plane: &ForwardingPlane, _: &[String]) -> Answer {
    plane.dp.tracker().set_checks_sequence(true);
    Ok("enabling TCP sequence checking successful".into())
}

pub fn disable_tcp_seq_chk(plane: &ForwardingPlane, _: &[String]) -> Answer {
    plane.dp.tracker().set_checks_sequence(false);
    Ok("disabling TCP sequence checking successful".into())
}

pub fn get_tcp_seq_chk(plane: &ForwardingPlane, args: &[String]) -> Answer {
    own_arguments(plane, args, 0)?;
    let is_on = if plane.dp.tracker().checks_sequence() { "enabled" } else { "disabled" };
    Ok(format!("TCP sequence checking: {is_on}\n"))
}

fn zone_limit(text: &str) -> Result<(u16, u32), String> {
    let (mut zone, mut limit) = (None, None);
    for (key, value) in KeyValues::new(text) {
        let failed = |_| format!("failed to parse field {key}");
        match key {
            _ if value.is_empty() => return Err(format!("field {key} missing value")),
            "zone" => zone = Some(value.parse().map_err(failed)?),
            "limit" => limit = Some(value.parse().map_err(failed)?),
            _ => return Err(format!("invalid zone limit field: {key}")),
        }
    }
    zone.zip(limit).ok_or_else(|| "failed to parse zone limit".into())
}

pub fn set_limits(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let mut args = after_name(plane, args);
    let mut default = None;
    if let Some(value) = args.first().and_then(|arg| arg.strip_prefix("default=")) {
        default = Some(value.parse().map_err(|_| refused("invalid default limit"))?);
        args = &args[1..];
    }
    let zones = args.iter().map(|arg| zone_limit(arg).map_err(refused)).collect::<Result<Vec<_>, _>>()?;
    let tracker = plane.dp.tracker();
    if default.is_some() {
        tracker.set_default_zone_limit(default);
    }
    zones.into_iter().for_each(|(zone, limit)| tracker.set_zone_limit(zone, Some(limit)));
    Ok(String::new())
}

/// `zone=1,2,3`.
fn zones(text: &str) -> Result<Vec<u16>, String> {
    let list = text.strip_prefix("zone=").ok_or_else(|| refused(format!("invalid argument {text}")))?;
    let each = list.split(',').map(|zone| zone.parse().map_err(|_| refused("invalid zone")));
    each.collect()
}

pub fn del_limits(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let args = own_arguments(plane, args, 1)?;
    let zones = zones(args.first().map_or("", String::as_str))?;
    zones.into_iter().for_each(|zone| plane.dp.tracker().set_zone_limit(zone, None));
    Ok(String::new())
}

pub fn get_limits(plane: &ForwardingPlane, args: &[String]) -> Answer {
    let args = own_arguments(plane, args, 1)?;
    let tracker = plane.dp.tracker();
    let shown: Vec<(u16, u32)> = match args.first() {
        Some(list) => zones(list)?.into_iter().map(|z| (z, tracker.zone_limit(z).unwrap_or(0))).collect(),
        None => tracker.limited_zones().collect(),
    };
    let mut text = format!("default limit={}\n", tracker.default_zone_limit().unwrap_or(0));
    for (zone, limit) in shown {
        let _ = writeln!(text, "zone={zone},limit={limit},count={}", tracker.zone_count(zone));
    }
    Ok(text)
}
