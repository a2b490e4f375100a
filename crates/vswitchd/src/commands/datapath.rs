//! `dpctl/*`, `dpif/*`, `dpif-netdev/*`, `upcall/*`: the fast path, its flows, its workers, and where packets
//! were lost.

use super::actions;
use super::by_hand;
use super::names::{OF_DPCTL, options};
use super::waits::for_all_flows;
use crate::figures::WorkerCounters;
use crate::odp;
use crate::plane::ForwardingPlane;
use crate::state::{PortRecord, Shared, Vswitch};
use base::{DropReason, OfPort, PortNo};
use datapath::DumpedFlow;
use flow::{FieldId, Key, Mask, Match};
use openflow::text::{PortNames, parse_match};
use std::fmt::Write;
use std::time::SystemTime;
use transport::unixctl::Growing;

type Answer = Result<String, String>;

fn check_names(plane: &ForwardingPlane, names: &[&str]) -> Result<(), String> {
    let unknown = names.iter().filter(|n| !plane.is_named(n));
    let lines: String =
        unknown.map(|n| format!("ovs-vswitchd: opening datapath {n} failed (No such device)\n")).collect();
    if lines.is_empty() { Ok(()) } else { Err(lines) }
}

fn hits(plane: &ForwardingPlane) -> (u64, u64) {
    let workers = (0..plane.dp.workers()).map(|n| plane.dp.worker_stats(n));
    workers.fold((0, 0), |(hit, missed), w| {
        (hit + w.exact_hits.get() + w.megaflow_hits.get(), missed + w.misses.get())
    })
}

pub fn show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (options, names) = options(args, OF_DPCTL)?;
    let (made, names): (Vec<_>, Vec<_>) =
        names.into_iter().partition(|name| by_hand::named(vswitch, name).is_some());
    check_names(&vswitch.plane, &names)?;
    let made = made.iter().filter_map(|name| by_hand::named(vswitch, name));
    let mut shown: String = made.map(|(name, dp)| dp.show(name)).collect();
    if !shown.is_empty() && names.is_empty() {
        return Ok(shown);
    }
    shown += &show_bridges(vswitch, &options);
    Ok(shown)
}

fn show_bridges(vswitch: &Vswitch, options: &[&str]) -> String {
    let (plane, (hit, missed)) = (&vswitch.plane, hits(&vswitch.plane));
    let lost = plane.dp.drops(DropReason::TranslationError);
    let flows: u64 = (0..plane.dp.workers()).map(|n| plane.dp.worker_stats(n).megaflows.get()).sum();
    let mut text =
        format!("{}:\n  lookups: hit:{hit} missed:{missed} lost:{lost}\n  flows: {flows}\n", plane.name());
    if plane.is_dummy {
        // The stock datapath of dummies has a port of its own.
        text += "  port 0: ovs-dummy (dummy-internal)\n";
    }
    for port in vswitch.devices.ports.values().filter(|p| !p.is_patch()) {
        let _ = writeln!(text, "  port {}: {} ({})", port.port_no, port.name, type_text(port));
        if options.is_empty() {
            continue;
        }
        let s = plane.dp.port_stats(port.port_no);
        let _ = writeln!(
            text,
            "    RX packets:{} errors:{} dropped:{} overruns:{} frame:{}\n    \
             TX packets:{} errors:{} dropped:{} aborted:? carrier:?\n    \
             collisions:{}\n    RX bytes:{}  TX bytes:{}",
            s.rx_packets,
            s.rx_errors,
            s.rx_dropped,
            s.rx_over_errors,
            s.rx_frame_errors,
            s.tx_packets,
            s.tx_errors,
            s.tx_dropped,
            s.collisions,
            s.rx_bytes,
            s.tx_bytes
        );
    }
    text
}

/// What Open vSwitch's dummies with queues report: its tests look for it.
fn dummy_pmd_details(port: &PortRecord) -> Vec<String> {
    let queues = |option: &str| port.device_options.get(option).map_or("1", String::as_str);
    let states = ["configured", "requested"];
    let of = |state: &&str| {
        [("rx", "n_rxq"), ("tx", "n_txq")]
            .map(|(way, option)| format!("{state}_{way}_queues={}", queues(option)))
    };
    states.iter().flat_map(of).collect()
}

/// A port's type and its driver's details.
fn type_text(port: &PortRecord) -> String {
    // If the device is gone, nothing else is valid.
    let details: Vec<String> = match port.complaint() {
        Some(error) => vec![format!("error={error}")],
        None if port.interface.is_dummy() && !port.interface.is_by_main() => dummy_pmd_details(port),
        None => port.status.details.iter().map(|(k, v)| format!("{k}={v}")).collect(),
    };
    let details = if details.is_empty() { String::new() } else { format!(": {}", details.join(", ")) };
    format!("{}{details}", port.interface.kind)
}

pub fn dump_dps(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    let made = vswitch.commands.hand_datapaths.keys().map(|name| format!("dummy@{name}\n"));
    Ok(made.chain([format!("{}\n", vswitch.plane.name())]).collect())
}

pub fn dpif_dump_dps(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    let kind = vswitch.plane.type_name();
    Ok(vswitch.bridges.values().map(|b| format!("{kind}@{}\n", b.name)).collect())
}

pub fn dpif_show(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    let (hit, missed) = hits(&vswitch.plane);
    let mut text = format!("{}: hit:{hit} missed:{missed}\n", vswitch.plane.name());
    for bridge in vswitch.bridges.values() {
        let _ = writeln!(text, "  {}:", bridge.name);
        let mut ports: Vec<_> = vswitch.ports_of(bridge.idx).collect();
        ports.sort_by_key(|p| &p.name);
        for p in ports {
            let _ = match p.interface.peer() {
                Some(peer) => writeln!(text, "    {} {}/none: (patch: peer={peer})", p.name, p.of_port.0),
                None => {
                    writeln!(text, "    {} {}/{}: ({})", p.name, p.of_port.0, p.port_no, type_text(p))
                }
            };
        }
    }
    Ok(text)
}

pub fn dump_flows(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (options, words) = options(args, OF_DPCTL)?;
    let mut wanted = Wanted { heads: true, ..Wanted::default() };
    let mut types = None;
    let mut made = None;
    for word in words {
        match word.split_once('=') {
            Some(("filter", text)) if wanted.filter.is_none() => {
                let filter = filter(vswitch, text);
                wanted.filter =
                    Some(filter.map_err(|e| format!("ovs-vswitchd: Failed to parse filter ({text}: {e})"))?);
            }
            Some(("type", text)) if types.is_none() => types = Some(text),
            Some(("pmd", core)) if wanted.core.is_none() => {
                let core = core.parse::<i64>().map_err(|_| format!("{word}: not a core"))?;
                (wanted.core, wanted.heads) = (Some(core), false);
            }
            _ if check_names(&vswitch.plane, &[word]).is_ok() => {}
            _ if by_hand::named(vswitch, word).is_some() => made = Some(word),
            _ => return Err("ovs-vswitchd: datapath not found (Invalid argument)".into()),
        }
    }
    if let Some(types) = types
        && !any_type(types)?
    {
        return Ok(String::new());
    }
    if let Some(name) = made {
        return Ok(by_hand::dump(vswitch, name, &options, wanted.core));
    }
    flows(vswitch, &options, wanted)
}

/// Which flows to show.
#[derive(Default)]
struct Wanted {
    /// Only flows from these ports, in the format of `dpif/dump-flows`. Without it, flows from all ports in
    /// that of `dpctl/dump-flows`.
    ports: Option<Vec<PortNo>>,
    /// Only flows that may have packets matching this.
    filter: Option<Match>,
    /// Only flows of the worker on this core.
    core: Option<i64>,
    /// Each worker's are introduced by a line.
    heads: bool,
    /// The one with this unique id.
    ufid: Option<String>,
}

impl Wanted {
    fn shows(&self, key: &Key, mask: &Mask) -> bool {
        let port = PortNo(key.get64(FieldId::DpPort) as u32);
        self.ports.as_ref().is_none_or(|ports| ports.contains(&port))
            && self.filter.as_ref().is_none_or(|filter| agrees(filter, key, mask))
            && self.ufid.as_ref().is_none_or(|ufid| *ufid == odp::ufid(key, mask))
    }
}

/// Whether filter and flow agree on the bits that both match. Bits that the flow does not match do not
/// exclude it: some of its packets may match the filter.
fn agrees(filter: &Match, key: &Key, mask: &Mask) -> bool {
    filter.mask.0.present_blocks().all(|b| {
        (0..8).all(|w| {
            let bits = filter.mask.0.word(b, w) & mask.0.word(b, w);
            (filter.key.word(b, w) ^ key.word(b, w)) & bits == 0
        })
    })
}

/// A match in OpenFlow's syntax, except that `in_port` is a datapath number or a name.
fn filter(vswitch: &Vswitch, text: &str) -> Result<Match, String> {
    let mut names = PortNames::default();
    for port in vswitch.devices.ports.values().filter(|p| !p.is_patch()) {
        names.insert(OfPort(port.port_no.0 as u16), &port.name);
    }
    let mut filter = parse_flow(text, &names)?;
    if filter.mask.get(FieldId::InPort) != 0 {
        filter.key.set(FieldId::DpPort, filter.key.get(FieldId::InPort));
        filter.mask.add_exact(FieldId::DpPort);
        filter.key.set(FieldId::InPort, 0);
        filter.mask.set(FieldId::InPort, 0);
    }
    Ok(filter)
}

/// Whether flows of these types include ours: all are in software, none is offloaded.
fn any_type(types: &str) -> Result<bool, String> {
    let mut any = false;
    for name in types.split(',').filter(|name| !name.is_empty()) {
        match name {
            "ovs" | "non-offloaded" => any = true,
            "tc" | "dpdk" | "offloaded" | "partially-offloaded" => {}
            _ => return Err(format!("ovs-vswitchd: Failed to parse type ({name}) (Invalid argument)")),
        }
    }
    Ok(any)
}

pub fn dpif_dump_flows(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (options, names) = options(args, &["-m", "--names", "--no-names"])?;
    let [name] = names[..] else { return Err("expected one bridge".into()) };
    let bridge = vswitch.bridge_named(name).ok_or("no such bridge")?.idx;
    let ports: Vec<PortNo> = vswitch.ports_of(bridge).map(|p| p.port_no).collect();
    flows(vswitch, &options, Wanted { ports: Some(ports), ..Wanted::default() })
}

fn flows(vswitch: &mut Vswitch, options: &[&str], wanted: Wanted) -> Answer {
    let dump = FlowDump::new(options, wanted);
    vswitch.begin_long(async move |shared, growing| dump.run(&shared, &growing).await);
    Ok(String::new())
}

/// `dpctl/get-flow [DP] ufid:UFID`.
pub fn get_flow(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (options, which, words) = by_hand::target(vswitch, args, 1)?;
    let ufid = words[0].to_string();
    if !ufid.starts_with("ufid:") {
        return Err("ovs-vswitchd: UFID is required (Invalid argument)\n".into());
    }
    let missing = || "ovs-vswitchd: getting flow (No such file or directory)\n".to_string();
    if let by_hand::Which::Hand(name) = which {
        return by_hand::get_flow(vswitch, &name, &ufid).ok_or_else(missing);
    }
    let dump = FlowDump::new(&options, Wanted { ufid: Some(ufid), ..Wanted::default() });
    vswitch.begin_long(async move |shared, growing| {
        // Workers with the same flow count it separately: one is shown.
        let text = dump.run(&shared, &growing).await?;
        text.lines().next().map(|line| format!("{line}\n")).ok_or_else(missing)
    });
    Ok(String::new())
}

/// A dump of all workers' flows.
pub(crate) struct FlowDump {
    verbose: bool,
    named: bool,
    wanted: Wanted,
}

impl FlowDump {
    fn new(options: &[&str], wanted: Wanted) -> FlowDump {
        let verbose = options.iter().any(|o| *o == "-m" || *o == "--more");
        let named = options.contains(&"--names") || verbose && !options.contains(&"--no-names");
        FlowDump { verbose, named, wanted }
    }

    /// Asks each worker for its flows, a piece at a time, and writes them between other work.
    pub async fn run(self, shared: &Shared, growing: &Growing) -> Answer {
        let mut texts = Texts::default();
        let write = |vswitch: &Vswitch, worker, flows: &[DumpedFlow]| {
            self.write(vswitch, worker, flows, &mut texts);
            growing.reaches(texts.of_main.capacity() + texts.of_workers.capacity());
        };
        for_all_flows(shared, write).await?;
        let mut text = texts.whole();
        if self.wanted.heads {
            let vswitch = shared.borrow();
            let name = |port: PortNo| self.name_of(&vswitch, port);
            text += &by_hand::dump_beside(&vswitch, self.verbose, &name);
        }
        Ok(text)
    }

    fn name_of(&self, vswitch: &Vswitch, port: PortNo) -> Option<String> {
        vswitch.devices.ports.get(&port).filter(|_| self.named).map(|p| p.name.clone())
    }

    fn write(&self, vswitch: &Vswitch, worker: usize, flows: &[DumpedFlow], texts: &mut Texts) {
        let now_ms = vswitch.plane.now_ms();
        let name = |port: PortNo| self.name_of(vswitch, port);
        let (core, _) = vswitch.workers.place(worker);
        for flow in flows {
            let is_elsewhere = self.wanted.core.is_some_and(|only| only != core as i64);
            if is_elsewhere || !self.wanted.shows(&flow.key, &flow.mask) {
                continue;
            }
            let is_by_main = vswitch.is_polled_by_main(&flow.key);
            let (is_first, text) = match is_by_main {
                true => (texts.of_main.is_empty(), &mut texts.of_main),
                false => (texts.begun.replace(worker) != Some(worker), &mut texts.of_workers),
            };
            if self.wanted.heads && is_first {
                let _ = match is_by_main {
                    true => writeln!(text, "flow-dump from the main thread:"),
                    false => writeln!(text, "flow-dump from pmd on cpu core: {core}"),
                };
            }
            let shown = odp::flow(&flow.key, &flow.mask, &name, self.verbose);
            let (packets, bytes) = flow.since_made();
            if self.verbose {
                let comma = if self.wanted.ports.is_some() { "" } else { "," };
                let _ = write!(text, "{}{comma} ", odp::ufid(&flow.key, &flow.mask));
            }
            let _ = write!(text, "{shown}, packets:{packets}, bytes:{bytes}, ");
            if packets == 0 {
                text.push_str("used:never, ");
            } else {
                let ago = now_ms.saturating_sub(flow.used_ms);
                let _ = write!(text, "used:{}.{:03}s, ", ago / 1000, ago % 1000);
            }
            let actions = actions::text(&vswitch.plane, &flow.actions, &flow.key, &name);
            let dp = if self.verbose && self.wanted.ports.is_none() { "dp:ovs, " } else { "" };
            let _ = writeln!(text, "{dp}actions:{actions}");
        }
    }
}

/// What a dump has written. Worker follows worker in one text, since joining those of a million flows takes
/// long.
#[derive(Default)]
struct Texts {
    /// Flows of simple dummies, which the main thread polls in Open vSwitch. They come first.
    of_main: String,
    of_workers: String,
    /// The worker whose flows have begun.
    begun: Option<usize>,
}

impl Texts {
    fn whole(self) -> String {
        if self.of_main.is_empty() { self.of_workers } else { self.of_main + &self.of_workers }
    }
}

pub fn del_flows(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let (_, names) = options(args, OF_DPCTL)?;
    let is_by_hand = names.iter().any(|n| by_hand::named(vswitch, n).is_some());
    if vswitch.plane.is_dummy && (is_by_hand || args.len() == 2) {
        return by_hand::del_flows(vswitch, args);
    }
    check_names(&vswitch.plane, &names)?;
    purge(vswitch, args)
}

pub fn purge(vswitch: &mut Vswitch, _: &[String]) -> Answer {
    vswitch.counts.flow_flushes += 1;
    vswitch.plane.dp.flush_flows();
    Ok(String::new())
}

/// Parses a match in the text form of a flow; errors are worded like Open vSwitch's.
fn parse_flow(text: &str, names: &PortNames) -> Result<Match, String> {
    parse_match(text, names).map_err(|e| {
        if let Some(field) = e.message.strip_prefix("unknown keyword ") {
            return format!("unknown field {field}{}", e.hint);
        }
        let item = text.get(e.offset..).unwrap_or_default().split(',').next().unwrap_or_default();
        match item.split_once('=') {
            Some((key, value)) if e.message.starts_with(value) => {
                format!("bad value for {key} ({})", e.message)
            }
            _ => e.message,
        }
    })
}

/// The arguments of commands about workers, in any order.
#[derive(Default)]
struct PmdArgs {
    /// `-pmd CORE`.
    core: Option<usize>,
    /// `-secs SECONDS`.
    seconds: Option<u64>,
    /// `-it` or `-ms`, and not 0.
    wants_history: bool,
}

impl PmdArgs {
    /// `known` are the command's options besides `-pmd`.
    fn parse(vswitch: &Vswitch, args: &[String], known: &[&str]) -> Result<PmdArgs, String> {
        let (mut parsed, mut has_name) = (PmdArgs::default(), false);
        let mut rest = args.iter().map(String::as_str);
        while let Some(word) = rest.next() {
            let mut number = |what: &str| {
                let value = rest.next().ok_or_else(|| format!("{word}: {what} is missing"))?;
                value.parse::<u64>().map_err(|_| format!("{value}: not {what}"))
            };
            match word {
                "-pmd" => parsed.core = Some(number("a core")? as usize),
                "-secs" if known.contains(&word) => {
                    let value =
                        rest.next().ok_or_else(|| format!("{word}: a number of seconds is missing"))?;
                    let seconds: i64 =
                        value.parse().map_err(|_| format!("{value}: not a number of seconds"))?;
                    // Anything below 1 is all that is kept.
                    parsed.seconds = u64::try_from(seconds).ok().filter(|seconds| *seconds > 0);
                }
                // There are no histograms to leave out.
                "-nh" if known.contains(&word) => {}
                "-it" | "-ms" if known.contains(&word) => {
                    parsed.wants_history |= number("a length of history")? > 0;
                }
                option if option.starts_with('-') => return Err(format!("unknown option {option}")),
                name if !has_name => {
                    check_names(&vswitch.plane, &[name])?;
                    has_name = true;
                }
                extra => return Err(format!("{extra}: one datapath is enough")),
            }
        }
        Ok(parsed)
    }

    /// The selected workers; all if none is selected.
    fn workers(&self, vswitch: &Vswitch) -> Vec<usize> {
        let core_of = |n: usize| vswitch.workers.place(n).0;
        (0..vswitch.plane.dp.workers()).filter(|n| self.core.is_none_or(|core| core_of(*n) == core)).collect()
    }
}

/// A worker's counts since they were last cleared, or since its start.
fn since_cleared(vswitch: &Vswitch, n: usize) -> WorkerCounters {
    let stats = vswitch.plane.dp.worker_stats(n);
    let began = || WorkerCounters { tsc: stats.began.get(), ..WorkerCounters::default() };
    let before = vswitch.workers.cleared.get(&n).copied().unwrap_or_else(began);
    WorkerCounters::of(stats).since(&before)
}

/// Workers' counters are their own to write, so what they were is kept, to be taken off.
pub fn pmd_stats_clear(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    for n in PmdArgs::parse(vswitch, args, &[])?.workers(vswitch) {
        let now = WorkerCounters::of(vswitch.plane.dp.worker_stats(n));
        vswitch.workers.cleared.insert(n, now);
    }
    Ok(String::new())
}

pub fn pmd_stats_show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let mut text = String::new();
    for n in PmdArgs::parse(vswitch, args, &[])?.workers(vswitch) {
        let stats = since_cleared(vswitch, n);
        let WorkerCounters { rx, tx, recirculations, busy_loops, busy_cycles: busy, .. } = stats;
        let WorkerCounters { exact_hits: exact, megaflow_hits: mega, misses: missed, .. } = stats;
        let (searched, idle) = (stats.masks_searched, stats.idle());
        let ratio = |a: u64, b: u64| if b == 0 { 0.0 } else { a as f64 / b as f64 };
        let share = |part: u64| ratio(part, busy + idle) * 100.0;
        let _ = writeln!(
            text,
            "{}:\n  packets received: {rx}\n  packet recirculations: {recirculations}\n  \
             avg. datapath passes per packet: {:.2}\n  phwol hits: 0\n  mfex opt hits: 0\n  simple match hits: 0\n  \
             emc hits: {exact}\n  smc hits: 0\n  megaflow hits: {mega}\n  \
             avg. subtable lookups per megaflow hit: {:.2}\n  miss with success upcall: {missed}\n  \
             miss with failed upcall: 0\n  avg. packets per output batch: {:.2}",
            vswitch.workers.thread_name(n),
            ratio(rx + recirculations, rx),
            ratio(searched, mega.max(1)),
            ratio(tx, busy_loops),
        );
        let _ = writeln!(
            text,
            "  idle cycles: {idle} ({:.2}%)\n  processing cycles: {busy} ({:.2}%)",
            share(idle),
            share(busy)
        );
        if rx > 0 {
            let _ = writeln!(
                text,
                "  avg cycles per packet: {:.2} ({}/{rx})\n  avg processing cycles per packet: {:.2} ({busy}/{rx})",
                ratio(busy + idle, rx),
                busy + idle,
                ratio(busy, rx)
            );
        }
    }
    Ok(text)
}

/// What a worker did with its time, in Open vSwitch's format. As in `pmd-stats-show`, lines about things that
/// do not exist here contain zeros. The time of a translation and the size of output batches are not
/// measured, and are left out. Histories are not kept; the command says so if asked for one.
pub fn pmd_perf_show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let args = PmdArgs::parse(vswitch, args, &["-nh", "-it", "-ms"])?;
    let chosen = args.workers(vswitch);
    let hz = base::clock::tsc_hz() as f64;
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let day_s = since_epoch.as_secs() % 86_400;
    let time = format!(
        "{:02}:{:02}:{:02}.{:03}",
        day_s / 3_600,
        day_s / 60 % 60,
        day_s % 60,
        since_epoch.subsec_millis()
    );
    let (mut answer, mut text) = (String::new(), String::new());
    for n in chosen {
        let WorkerCounters {
            rx,
            tx,
            recirculations,
            exact_hits: exact,
            megaflow_hits: mega,
            misses: missed,
            lost,
            masks_searched: searched,
            busy_loops,
            busy_cycles: busy,
            idle_loops,
            idle_cycles: idle,
            sleeps,
            sleep_cycles,
            tsc: elapsed,
        } = since_cleared(vswitch, n);
        let ratio = |a: f64, b: f64| if b == 0.0 { 0.0 } else { a / b };
        let share = |part: u64, whole: u64| 100.0 * ratio(part as f64, whole as f64);
        let (seconds, used, loops) = (elapsed as f64 / hz, busy + idle, busy_loops + idle_loops);
        let us = |cycles: u64| cycles as f64 * 1e6 / hz;
        let kpps = |packets: u64| ratio(packets as f64, seconds) / 1e3;
        let passes = rx + recirculations;
        let mut line = |label: &str, value: u64, more: String| {
            let _ = writeln!(text, "  {label:<20}{value:>12}{more}");
        };
        line("Iterations:", loops, format!("  ({:.2} us/it)", ratio(us(used), loops as f64)));
        line("- Used TSC cycles:", used, format!("  ({:5.1} % of total cycles)", share(used, elapsed)));
        line("- idle iterations:", idle_loops, format!("  ({:5.1} % of used cycles)", share(idle, used)));
        line("- busy iterations:", busy_loops, format!("  ({:5.1} % of used cycles)", share(busy, used)));
        line("- sleep iterations:", sleeps, format!("  ({:5.1} % of iterations)", share(sleeps, loops)));
        let per_sleep = ratio(us(sleep_cycles), sleeps as f64);
        line("Sleep time (us):", us(sleep_cycles) as u64, format!("  ({per_sleep:3.0} us/iteration avg.)"));
        if rx == 0 {
            line("Rx packets:", 0, String::new());
            line("Tx packets:", tx, String::new());
        } else {
            let cycles = ratio(busy as f64, rx as f64);
            line("Rx packets:", rx, format!("  ({:.0} Kpps, {cycles:.0} cycles/pkt)", kpps(rx)));
            let per_packet = ratio(passes as f64, rx as f64);
            line("Datapath passes:", passes, format!("  ({per_packet:.2} passes/pkt)"));
            for (label, hits) in [
                ("- PHWOL hits:", 0),
                ("- MFEX Opt hits:", 0),
                ("- Simple Match hits:", 0),
                ("- EMC hits:", exact),
                ("- SMC hits:", 0),
            ] {
                line(label, hits, format!("  ({:5.1} %)", share(hits, passes)));
            }
            let lookups = ratio(searched as f64, mega as f64);
            line(
                "- Megaflow hits:",
                mega,
                format!("  ({:5.1} %, {lookups:.2} subtbl lookups/hit)", share(mega, passes)),
            );
            line("- Upcalls:", missed, format!("  ({:5.1} %)", share(missed, passes)));
            line("- Lost upcalls:", lost, format!("  ({:5.1} %)", share(lost, passes)));
            line("Tx packets:", tx, format!("  ({:.0} Kpps)", kpps(tx)));
        }
        let head = format!(
            "\nTime: {time}\nMeasurement duration: {seconds:.3} s\n\n{}:\n\n",
            vswitch.workers.thread_name(n)
        );
        answer.push_str(&head);
        answer.push_str(&std::mem::take(&mut text));
        if rx == 0 {
            answer.push('\n');
        }
        if args.wants_history {
            answer.push_str("  History: none is kept\n\n");
        }
    }
    Ok(answer)
}

/// A share that may not be known yet.
fn share(percent: Option<u64>) -> String {
    percent.map_or("NOT AVAIL".into(), |percent| format!("{percent:>2} %"))
}

pub fn pmd_rxq_show(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    if let [name] = args
        && let Some(text) = by_hand::rxq_show(vswitch, name)
    {
        return Ok(text);
    }
    let args = PmdArgs::parse(vswitch, args, &["-secs"])?;
    // Whole steps of what is kept.
    let seconds = args.seconds.map_or(60, |seconds| seconds.clamp(1, 60).next_multiple_of(5));
    let mut text = String::new();
    if let Some(note) = &vswitch.workers.mask_note {
        let _ = writeln!(text, "{note}");
    }
    let _ = writeln!(text, "Displaying last {seconds} seconds pmd usage %");
    let seen = vswitch.workers.seen(&vswitch.plane, &vswitch.devices.ports);
    for n in args.workers(vswitch) {
        let is_kept = vswitch.workers.is_kept(&seen, n);
        let _ = writeln!(text, "{}:\n  isolated : {is_kept}", vswitch.workers.thread_name(n));
        let is_theirs = |p: &&PortRecord| !p.interface.is_by_main();
        let mut ports: Vec<_> = vswitch.devices.ports.values().filter(is_theirs).collect();
        ports.sort_by_key(|p| &p.name);
        let mut has_queues = false;
        for port in ports {
            for seen_queue in seen.queues.iter().filter(|q| q.worker == n && q.port == port.port_no) {
                let queue = seen_queue.queue;
                let device = vswitch.plane.dp.port(port.port_no).filter(|_| !port.gone);
                let is_enabled = device.is_some_and(|device| device.is_rx_enabled(queue));
                let state = if is_enabled { "(enabled)" } else { "(disabled)" };
                let usage = vswitch.workers.scheduler.queue_usage(seen_queue, &seen, seconds);
                has_queues = true;
                let _ = writeln!(
                    text,
                    "  port: {:<16}  queue-id: {queue:>2} {state:<10}  pmd usage: {}",
                    port.name,
                    share(usage)
                );
            }
        }
        if has_queues {
            let _ = writeln!(
                text,
                "  overhead: {}",
                share(vswitch.workers.scheduler.overhead(n, &seen, seconds))
            );
        }
    }
    Ok(text)
}

/// Distributes all queues again.
pub fn pmd_rxq_rebalance(vswitch: &mut Vswitch, args: &[String]) -> Answer {
    let names: Vec<&str> = args.iter().map(String::as_str).collect();
    check_names(&vswitch.plane, &names)?;
    vswitch.workers.place_all_queues(&mut vswitch.plane, &vswitch.devices.ports);
    Ok("pmd rxq rebalance requested.\n".into())
}
