//! Datapaths and flows added manually, for tests: `dpctl/add-dp`, `add-if`, `add-flow` and related commands.
//!
//! In the datapath of the bridges the tables decide. There a manual flow is valid only between
//! `revalidator/pause` and `revalidator/resume`, as one that contradicts the tables is in Open vSwitch.

use super::names::{OF_DPCTL, options};
use super::upcall::set_by_hand;
use crate::hand_datapath::{self as dp, CountedFlow, DATAPATHS_MAX, HandDatapath};
use crate::odp::{self, ActionContext};
use crate::state::Vswitch;
use base::PortNo;
use flow::{FieldId, Key};
use openflow::text::normalize_datapath_actions;
use std::fmt::Write;
use switch::by_hand::HandFlow;

type Answer = Result<String, String>;

/// Longest file of flows.
const FILE_BYTES_MAX: u64 = 1 << 20;
const NO_SUCH_DATAPATH: &str = "ovs-vswitchd: opening datapath (No such device)\n";

/// The datapath to which a command applies.
pub(super) enum Which {
    Bridges,
    Hand(String),
}

/// The name that follows the datapath's type, which is that of dummies.
fn short(name: &str) -> Option<&str> {
    match name.split_once('@') {
        Some((kind, short)) => (kind == "dummy" && !short.is_empty()).then_some(short),
        None => Some(name),
    }
}

pub(super) fn which(vswitch: &Vswitch, name: &str) -> Option<Which> {
    if vswitch.plane.is_named(name) {
        return Some(Which::Bridges);
    }
    let short = short(name).filter(|short| vswitch.commands.hand_datapaths.contains_key(*short))?;
    Some(Which::Hand(short.to_string()))
}

/// A datapath made by hand, if it is one that the name means.
pub(super) fn named<'a>(vswitch: &'a Vswitch, name: &str) -> Option<(&'a str, &'a HandDatapath)> {
    let (name, found) = vswitch.commands.hand_datapaths.get_key_value(short(name)?)?;
    Some((name, found))
}

fn hand<'a>(vswitch: &'a mut Vswitch, name: &str) -> Result<&'a mut HandDatapath, String> {
    let found = short(name).and_then(|short| vswitch.commands.hand_datapaths.get_mut(short));
    found.ok_or_else(|| NO_SUCH_DATAPATH.to_string())
}

/// `dpctl/add-dp DP [IFACE...]`.
pub fn add_dp(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let refused = |why: &str| Err(format!("ovs-vswitchd: add_dp ({why})\n"));
    let Some(name) = short(&args[0]) else { return refused("Address family not supported by protocol") };
    if vswitch.commands.hand_datapaths.contains_key(name) || vswitch.plane.is_named(name) {
        return refused("File exists");
    }
    if vswitch.commands.hand_datapaths.len() == DATAPATHS_MAX {
        return refused(&format!("No space left on device: at most {DATAPATHS_MAX} beside the bridges'"));
    }
    vswitch.commands.hand_datapaths.insert(name.to_string(), HandDatapath::new(name));
    if args.len() > 1 { add_if(vswitch, args) } else { Ok(String::new()) }
}

/// `dpctl/del-dp DP`.
pub fn del_dp(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let removed = short(&args[0]).and_then(|name| vswitch.commands.hand_datapaths.remove(name));
    if removed.is_none() && vswitch.plane.is_named(&args[0]) {
        return Err("ovs-vswitchd: del_dp (Device or resource busy): bridges use it\n".into());
    }
    removed.map(|_| String::new()).ok_or_else(|| NO_SUCH_DATAPATH.to_string())
}

/// `NAME,type=TYPE,port_no=N`.
struct Interface<'a> {
    name: &'a str,
    kind: Option<&'a str>,
    number: Option<u32>,
}

fn interface(text: &str) -> Result<Interface<'_>, String> {
    let mut words = text.split(',');
    let mut parsed = Interface { name: words.next().unwrap_or_default(), kind: None, number: None };
    for word in words {
        match word.split_once('=') {
            Some(("type", kind)) => parsed.kind = Some(kind),
            Some(("port_no", number)) => {
                let number =
                    number.parse().map_err(|_| format!("ovs-vswitchd: {number}: bad port number\n"))?;
                parsed.number = Some(number);
            }
            _ => return Err(format!("ovs-vswitchd: {word}: expected type=TYPE or port_no=NUMBER\n")),
        }
    }
    Ok(parsed)
}

/// Calls `apply` for each interface in the arguments and reports all errors.
fn each_interface(args: &[String], mut apply: impl FnMut(Interface<'_>) -> Result<(), String>) -> Answer {
    let said = args[1..].iter().map(|text| interface(text).and_then(&mut apply));
    let errors: String = said.filter_map(Result::err).collect();
    if errors.is_empty() { Ok(String::new()) } else { Err(errors) }
}

/// `dpctl/add-if DP IFACE...`.
pub fn add_if(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    if vswitch.plane.is_named(&args[0]) {
        return Err("ovs-vswitchd: ports of bridges are added with ovs-vsctl add-port\n".into());
    }
    let dp = hand(vswitch, &args[0])?;
    each_interface(args, |i| {
        let driver = dp::driver(i.kind.unwrap_or(ports::SYSTEM.dummy));
        let driver = driver.ok_or("Address family not supported by protocol");
        let added = driver.and_then(|driver| dp.add_port(i.name, driver, i.number));
        added.map_err(|why| format!("ovs-vswitchd: adding {} to {} failed ({why})\n", i.name, args[0]))
    })
}

/// `dpctl/set-if DP IFACE...`: options that cannot be changed may be repeated unchanged.
pub fn set_if(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    if vswitch.plane.is_named(&args[0]) {
        return Err("ovs-vswitchd: ports of bridges are changed with ovs-vsctl set Interface\n".into());
    }
    let dp = hand(vswitch, &args[0])?;
    each_interface(args, |i| {
        let Some(number) = dp.port_named(i.name) else {
            return Err(format!("ovs-vswitchd: no port named {}\n", i.name));
        };
        let kind = dp.ports[&number].driver.kind;
        match (i.kind, i.number) {
            (Some(other), _) if other != kind => {
                Err(format!("ovs-vswitchd: {}: can't change type from {kind} to {other}\n", i.name))
            }
            (_, Some(other)) if other != number => {
                Err(format!("ovs-vswitchd: {}: can't change port number from {number} to {other}\n", i.name))
            }
            _ => Ok(()),
        }
    })
}

/// `dpctl/del-if` for a manually added datapath.
pub(super) fn del_if(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let dp = hand(vswitch, &args[0])?;
    each_interface(args, |i| match dp.port_named(i.name) {
        None => Err(format!("ovs-vswitchd: no port named {}\n", i.name)),
        Some(0) => Err(format!(
            "ovs-vswitchd: deleting port {} from {} failed (Invalid argument)\n",
            i.name, args[0]
        )),
        Some(number) => {
            dp.remove_port(number);
            Ok(())
        }
    })
}

/// What to do with a flow.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Change {
    may_add: bool,
    may_modify: bool,
    deletes: bool,
}

pub(super) const ADD: Change = Change { may_add: true, may_modify: false, deletes: false };
pub(super) const MODIFY: Change = Change { may_add: false, may_modify: true, deletes: false };
pub(super) const DELETE: Change = Change { may_add: false, may_modify: false, deletes: true };

/// Splits options, the datapath and the rest.
pub(super) fn target<'a>(
    vswitch: &Vswitch,
    args: &'a [String],
    rest: usize,
) -> Result<(Vec<&'a str>, Which, Vec<&'a str>), String> {
    let (options, mut words) = options(args, OF_DPCTL)?;
    let which = match words.len() > rest {
        true => which(vswitch, words.remove(0)).ok_or_else(|| NO_SUCH_DATAPATH.to_string())?,
        false => Which::Bridges,
    };
    if words.len() != rest { Err("wrong number of arguments".into()) } else { Ok((options, which, words)) }
}

pub(super) fn change_one(vswitch: &mut Vswitch, args: &[String], change: Change) -> Answer {
    let (options, which, words) = target(vswitch, args, if change.deletes { 1 } else { 2 })?;
    let may_create = options.contains(&"--may-create");
    let change = Change { may_add: change.may_add || may_create, ..change };
    apply(vswitch, &which, change, words[0], words.get(1).copied().unwrap_or_default())?;
    Ok(String::new())
}

/// `dpctl/del-flows DP FILE`, and without a file all flows of a datapath made by hand.
pub(super) fn del_flows(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    if let [name] = args
        && let Some(Which::Hand(name)) = which(vswitch, name)
    {
        hand(vswitch, &name)?.flows.clear();
        return Ok(String::new());
    }
    change_file(vswitch, args, DELETE)
}

/// A line of a file is a flow and its actions; a word before them says what to do with them.
pub(super) fn change_file(vswitch: &mut Vswitch, args: &[String], default: Change) -> Answer {
    let (options, which, words) = target(vswitch, args, 1)?;
    let failed =
        |e: std::io::Error| format!("ovs-vswitchd: {}: open failed ({})\n", words[0], host::log::os_text(&e));
    let metadata = std::fs::metadata(words[0]).map_err(failed)?;
    if !metadata.is_file() {
        // A FIFO without a writer, or a file without an end, would block the switch.
        return Err(format!("ovs-vswitchd: {}: not a regular file\n", words[0]));
    }
    if metadata.len() > FILE_BYTES_MAX {
        return Err(format!("ovs-vswitchd: {}: longer than {FILE_BYTES_MAX} bytes\n", words[0]));
    }
    let text = std::fs::read_to_string(words[0]).map_err(failed)?;
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let (first, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (change, line) = match first {
            "" => continue,
            "add" => (ADD, rest.trim()),
            "modify" => (MODIFY, rest.trim()),
            "delete" => (DELETE, rest.trim()),
            _ => (default, line),
        };
        let change = Change { may_add: change.may_add || options.contains(&"--may-create"), ..change };
        let (flow, actions) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        apply(vswitch, &which, change, flow, actions.trim())?;
    }
    Ok(String::new())
}

fn apply(
    vswitch: &mut Vswitch,
    which: &Which,
    change: Change,
    flow: &str,
    actions: &str,
) -> Result<(), String> {
    let by_name = |name: &str| match which {
        Which::Bridges => vswitch.devices.port_named(name).map(|port| port.port_no),
        Which::Hand(dp) => vswitch.commands.hand_datapaths.get(dp)?.port_named(name).map(PortNo),
    };
    let (key, mask) = odp::read_flow(flow, &by_name)
        .map_err(|e| format!("ovs-vswitchd: parsing flow key ({e}) (Invalid argument)\n"))?;
    let actions = odp::read_actions(actions, &by_name)
        .map_err(|e| format!("ovs-vswitchd: parsing actions ({e}) (Invalid argument)\n"))?;
    let doing = if change.deletes { "deleting flow" } else { "updating flow table" };
    if mask.get(FieldId::DpPort) != FieldId::DpPort.ones() {
        tracing::warn!(target: "dpif_netdev", "failed to put flow: in_port is not an exact match");
        return Err(format!("ovs-vswitchd: {doing} (Invalid argument)\n"));
    }
    let flow = HandFlow { key, mask, actions };
    let change_in = |dp: &mut HandDatapath| match change.deletes {
        true => dp.del(&flow),
        false => dp.put(flow, change.may_add, change.may_modify),
    };
    let done = match which {
        Which::Hand(name) => change_in(hand(vswitch, name)?),
        Which::Bridges if !vswitch.commands.is_revalidation_paused => {
            return Err(format!(
                "ovs-vswitchd: {doing} (Operation not permitted): the tables of the bridges decide; a flow put \
                 in by hand holds from revalidator/pause to revalidator/resume\n"
            ));
        }
        Which::Bridges => {
            let counted =
                |flow: &HandFlow| CountedFlow { flow: flow.clone(), packets: 0, bytes: 0, used_ms: 0 };
            let flows = vswitch.plane.control.by_hand().flows.iter().map(counted).collect();
            let mut dp = HandDatapath::default();
            dp.flows = flows;
            let done = change_in(&mut dp);
            set_by_hand(vswitch, |by_hand| by_hand.flows = dp.flows.into_iter().map(|f| f.flow).collect());
            done
        }
    };
    done.map_err(|why| format!("ovs-vswitchd: {doing} ({why})\n"))
}

/// `dpctl/parse-actions ACTIONS...`: each list in the format of `dpctl/dump-flows`; an error at the first
/// invalid one.
pub fn parse_actions(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (_, lists) = options(args, OF_DPCTL)?;
    let by_name = |name: &str| vswitch.devices.port_named(name).map(|port| port.port_no);
    let mut text = String::new();
    for list in lists {
        let actions = odp::read_actions(list, &by_name)
            .map_err(|e| format!("ovs-vswitchd: odp_actions_from_string ({e}) (Invalid argument)\n"))?;
        text += &odp::actions(&actions, ActionContext::of(&Key::default()), &odp::numbers);
        text.push('\n');
    }
    Ok(text)
}

/// `dpctl/normalize-actions FLOW ACTIONS [NAME=NUMBER...]`.
pub fn normalize_actions(_: &mut Vswitch, args: &[String]) -> Answer {
    normalize_datapath_actions(&args[0], &args[1], &args[2..]).map_err(|why| format!("ovs-vswitchd: {why}\n"))
}

/// From here to [`resume`], flows may be added manually to the bridges' datapath.
pub fn pause(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    vswitch.commands.is_revalidation_paused = true;
    Ok(String::new())
}

/// The tables decide again.
pub fn resume(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    vswitch.commands.is_revalidation_paused = false;
    set_by_hand(vswitch, |by_hand| by_hand.flows.clear());
    Ok(String::new())
}

/// `dpctl/get-flow` for a manually added datapath.
pub(super) fn get_flow(vswitch: &Vswitch, name: &str, ufid: &str) -> Option<String> {
    let (_, dp) = named(vswitch, name)?;
    let found = dp.flows.iter().find(|f| odp::ufid(&f.flow.key, &f.flow.mask) == ufid)?;
    Some(dp::line(found, &odp::numbers, false, vswitch.plane.now_ms()))
}

/// `dpctl/dump-flows` for a manually added datapath. In Open vSwitch a manual flow is in the main thread and
/// in each polling thread.
pub(super) fn dump(vswitch: &Vswitch, name: &str, options: &[&str], core: Option<i64>) -> String {
    let Some((_, dp)) = named(vswitch, name) else { return String::new() };
    let verbose = options.iter().any(|o| *o == "-m" || *o == "--more");
    let is_named = options.contains(&"--names") || verbose && !options.contains(&"--no-names");
    let names = |port: PortNo| dp.ports.get(&port.0).filter(|_| is_named).map(|port| port.name.clone());
    let lines: String =
        dp.flows.iter().map(|f| dp::line(f, &names, verbose, vswitch.plane.now_ms())).collect();
    if lines.is_empty() {
        return lines;
    }
    let first = vswitch.workers.place(0).0 as i64;
    match core {
        Some(-1) => lines,
        Some(core) if core == first && dp.has_worker() => lines,
        Some(_) => String::new(),
        None if dp.has_worker() => {
            format!(
                "flow-dump from pmd on cpu core: {first}\n{lines}flow-dump from the main thread:\n{lines}"
            )
        }
        None => format!("flow-dump from the main thread:\n{lines}"),
    }
}

/// The lines of `dpctl/dump-flows` for manual flows.
pub(super) fn dump_beside(vswitch: &Vswitch, verbose: bool, names: odp::PortNames<'_>) -> String {
    let mut text = String::new();
    for flow in &vswitch.plane.control.by_hand().flows {
        if text.is_empty() {
            text.push_str("flow-dump of flows put in by hand:\n");
        }
        let flow = CountedFlow { flow: flow.clone(), packets: 0, bytes: 0, used_ms: 0 };
        text.push_str(&dp::line(&flow, names, verbose, 0));
    }
    text
}

/// `dpif-netdev/pmd-rxq-show` for a manually added datapath.
pub(super) fn rxq_show(vswitch: &Vswitch, name: &str) -> Option<String> {
    let (_, dp) = named(vswitch, name)?;
    let (core, node) = vswitch.workers.place(0);
    let mut text = "Displaying last 60 seconds pmd usage %\n".to_string();
    let _ = writeln!(text, "pmd thread numa_id {node} core_id {core}:\n  isolated : false");
    for port in dp.ports.values().filter(|port| port.driver.is_pmd) {
        let _ = writeln!(text, "  port: {:<16}  queue-id:  0 (enabled)   pmd usage: NOT AVAIL", port.name);
    }
    text += "  overhead: NOT AVAIL\n";
    Some(text)
}

/// Whether a manually added datapath has a port with that name.
pub(super) fn has_port(vswitch: &Vswitch, port: &str) -> bool {
    vswitch.commands.hand_datapaths.values().any(|dp| dp.port_named(port).is_some())
}

/// `netdev-dummy/receive` at a port of a manually added datapath. `None`: no such datapath has the port.
pub(super) fn receive(vswitch: &mut Vswitch, port: &str, frames: &[Vec<u8>]) -> Option<()> {
    let now_ms = vswitch.plane.now_ms();
    let mut datapaths = vswitch.commands.hand_datapaths.values_mut();
    let (dp, number) = datapaths.find_map(|dp| dp.port_named(port).map(|number| (dp, number)))?;
    frames.iter().for_each(|frame| dp.receive(number, frame, now_ms));
    Some(())
}

/// `netdev-dummy/sent` of such a port.
pub(super) fn take_sent(vswitch: &mut Vswitch, port: &str) -> Option<Vec<Vec<u8>>> {
    let mut datapaths = vswitch.commands.hand_datapaths.values_mut();
    let (dp, number) = datapaths.find_map(|dp| dp.port_named(port).map(|number| (dp, number)))?;
    Some(dp.take_sent(number))
}
