//! Ports by the thousand: how long does it take to apply a configuration with many, and to add one more?
//!
//! The switch is configured as by the daemon, by a plan of differences, in a separate network namespace, in
//! which this process runs itself. For AF_XDP the kernel's own time is measured in turns with ours: a program
//! loaded and attached and a socket bound for each device, and nothing else.

use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals};
use crate::stats::median;
use crate::units::up_to;
use host::rundir::RunDir;
use packet::{Pool, PoolConfig};
use ports::af_xdp::Bare;
use std::process::Command;
use std::time::Instant;
use vswitchd::Vswitch;
use vswitchd::config::wanted::OfPortsBefore;
use vswitchd::config::wanted::{Bridge, Interface, Wanted};
use vswitchd::config::{Config, Database, DatapathFlags, Flags};
use vswitchd::reconcile::reconcile;

/// Set in the namespace.
const INSIDE: &str = "CROSSPOINT_BENCH_INSIDE";
/// Slots of each AF_XDP ring.
const SLOTS: &str = "256";
const CHUNK_BYTES: usize = 2048;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Types, separated by commas: `dummy`, `tap`, `internal`, `afxdp`.
    #[arg(long, value_delimiter = ',', value_parser = ["dummy", "tap", "internal", "afxdp"],
          default_value = "dummy,tap,internal,afxdp")]
    kinds: Vec<String>,
    /// Ports of each type.
    #[arg(long, value_parser = up_to::<10_000>, default_value = "1k")]
    ports: usize,
    /// Ports of type `afxdp`, each on a veth pair of its own.
    #[arg(long, value_parser = up_to::<512>, default_value = "64")]
    afxdp_ports: usize,
    #[command(flatten)]
    common: Common,
}

#[derive(Default, serde::Serialize)]
struct Row {
    switch: &'static str,
    kind: String,
    ports: usize,
    /// Until all are in force.
    all_ms: f64,
    /// Until one more is.
    one_ms: f64,
    /// Until all are gone, their devices too.
    gone_ms: f64,
    /// AF_XDP: what the kernel takes for attaching as many.
    kernel_ms: Option<f64>,
    /// `all_ms` in ratio to that.
    ratio_to_kernel: Option<f64>,
    runs: u32,
    raw_all_ms: Vec<f64>,
    raw_one_ms: Vec<f64>,
    raw_gone_ms: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raw_kernel_ms: Vec<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    raw_ratio_to_kernel: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe().map_err(|e| format!("this program: {e}"))?;
        let mut command = Command::new("unshare");
        command.arg("--net").arg(own).args(std::env::args_os().skip(1)).env(INSIDE, "1");
        let status = command.status().map_err(|e| format!("unshare: {e}"))?;
        return if status.success() { Ok(()) } else { Err("it failed in its network namespace".into()) };
    }
    let (mut rows, mut goals) = (Rows::default(), Goals::default());
    for kind in &args.kinds {
        let ports = if kind == "afxdp" { args.afxdp_ports } else { args.ports };
        let row = measure(args, kind, ports)?;
        println!(
            "{:>8} ports of type {kind:<8} {:>8.1} ms, one more {:>6.2} ms, gone in {:>8.1} ms",
            row.ports, row.all_ms, row.one_ms, row.gone_ms
        );
        if let Some(kernel_ms) = row.kernel_ms {
            println!("{:>8} the kernel's part        {kernel_ms:>8.1} ms", "");
            let ratios = &row.raw_ratio_to_kernel;
            goals.at_most("afxdp, in ratio to the kernel's part", ratios, crate::goals::ATTACH_MOST);
        } else {
            goals.never_above(&format!("{kind}, all, in ms"), &row.raw_all_ms, crate::goals::PORTS_MOST_MS);
            goals.never_above(
                &format!("{kind}, one more, in ms"),
                &row.raw_one_ms,
                crate::goals::ONE_PORT_MOST_MS,
            );
        }
        rows.push(row);
    }
    args.common.finish(rows, goals)
}

fn measure(args: &Args, kind: &str, ports: usize) -> Result<Row, String> {
    let is_afxdp = kind == "afxdp";
    let chunks = if is_afxdp { 1024 * (ports + 4) } else { 8192 };
    let mut vswitch = switch(chunks)?;
    let bare_pool = Pool::new(PoolConfig { chunks, chunk_bytes: CHUNK_BYTES, huge_pages: false })
        .map_err(|e| format!("no memory for packets: {e}"))?;
    if is_afxdp {
        for n in 0..=ports {
            ports::netlink::create_veth(&name(kind, n), &format!("peer{n}")).map_err(|e| e.to_string())?;
        }
    }
    let mut row =
        Row { switch: "crosspoint", kind: kind.into(), ports, runs: args.common.runs, ..Row::default() };
    for _ in 0..args.common.runs {
        // Before and after: the machine's load changes, and the kernel keeps things warm.
        let kernel = || if is_afxdp { bare(ports, bare_pool) } else { Ok(f64::NAN) };
        let watch = Watch::start(&[std::process::id()]);
        let before = kernel()?;
        let empty = wanted(kind, 0..0);
        become_(&mut vswitch, &empty)?;
        let all_ms = timed(|| become_(&mut vswitch, &wanted(kind, 0..ports)))?;
        let one_ms = timed(|| become_(&mut vswitch, &wanted(kind, 0..ports + 1)))?;
        let gone_ms = timed(|| become_(&mut vswitch, &empty))?;
        row.raw_all_ms.push(all_ms);
        row.raw_one_ms.push(one_ms);
        row.raw_gone_ms.push(gone_ms);
        if is_afxdp {
            let kernel_ms = (before + kernel()?) / 2.0;
            row.raw_kernel_ms.push(kernel_ms);
            row.raw_ratio_to_kernel.push(all_ms / kernel_ms);
        }
        turns::note("crosspoint", watch.end());
    }
    row.all_ms = median(&row.raw_all_ms);
    row.one_ms = median(&row.raw_one_ms);
    row.gone_ms = median(&row.raw_gone_ms);
    row.kernel_ms = is_afxdp.then(|| median(&row.raw_kernel_ms));
    row.ratio_to_kernel = is_afxdp.then(|| median(&row.raw_ratio_to_kernel));
    Ok(row)
}

fn switch(pool_packets: usize) -> Result<Vswitch, String> {
    let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
    let datapath = DatapathFlags { pool_packets, pool_packet_bytes: CHUNK_BYTES, ..DatapathFlags::default() };
    Vswitch::new(&Config { datapath, ..config }).map_err(|e| e.to_string())
}

fn name(kind: &str, n: usize) -> String {
    format!("{kind}{n}")
}

fn wanted(kind: &str, ports: std::ops::Range<usize>) -> Wanted {
    let mut bridge = Bridge::new("bench");
    for n in ports {
        let mut interface = Interface::new(&name(kind, n), kind);
        if kind == "afxdp" {
            interface.options.insert("n_rxq_desc".into(), SLOTS.into());
            interface.options.insert("n_txq_desc".into(), SLOTS.into());
            interface.options.insert("xdp-mode".into(), "native".into());
        }
        bridge.add(interface);
    }
    Wanted { bridges: [("bench".to_string(), bridge)].into(), ..Wanted::default() }
}

fn become_(vswitch: &mut Vswitch, wanted: &Wanted) -> Result<(), String> {
    let outcomes = reconcile(vswitch, wanted, &OfPortsBefore::new());
    match outcomes.into_iter().find_map(|(name, outcome)| Some(format!("{name}: {}", outcome.error?))) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// The kernel's time for the same number of AF_XDP ports.
fn bare(ports: usize, pool: &'static Pool) -> Result<f64, String> {
    let slots = SLOTS.parse().expect("a number");
    let start = Instant::now();
    let attached = (0..ports).map(|n| Bare::attach(&name("afxdp", n), pool, slots));
    let attached = attached.collect::<Result<Vec<Bare>, _>>().map_err(|e| e.to_string())?;
    let took = ms_since(start);
    drop(attached);
    Ok(took)
}

fn timed(f: impl FnOnce() -> Result<(), String>) -> Result<f64, String> {
    let start = Instant::now();
    f()?;
    Ok(ms_since(start))
}

fn ms_since(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}
