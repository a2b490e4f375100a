//! Open vSwitch's kernel datapath for machines whose kernel lacks it: in Debian's user-mode-linux, a kernel
//! that runs as a process. Generator, veth pairs and sink run inside it too, and so do the peers in the same
//! boot: a veth pair alone, the bridge, and IP forwarding. Such a kernel has one processor and slow system
//! calls, so its figures are ratios, and orders of magnitude only.
//!
//! Its root file system is this machine's, read only. Inside, this program runs the suite's other step, and
//! leaves its results in a directory that both see.

use crate::lab::guest::system::load_order;
use crate::machine::turns;
use crate::machine::watch::Watch;
use crate::measure::trial::{Common, Goals};
use crate::process::{Process, TempDir};
use crate::result::account::RECEIVING_SIDE;
use crate::result::store;
use crate::result::{Metric, Point};
use crate::stats::median;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = "/usr/bin/linux.uml";
const MODULES: &str = "/usr/lib/uml/modules";
/// The step that it runs inside.
const STEP: &str = "kernel-datapath.here";
/// Until it has halted, where loads are of seconds, and of a minute.
const PATIENCE: Duration = Duration::from_secs(900);
const PATIENCE_FULL: Duration = Duration::from_secs(7200);
/// Turns that are as long are the full form's.
const TURN_FULL: Duration = Duration::from_secs(60);
/// In the first ten seconds of a kernel's uptime Open vSwitch counts no processors, and then has no thread
/// for misses.
const UP_S: u32 = 11;
/// Turns of each load in the quick form, which takes a minute so. The loads are as long as ever: in less than
/// two seconds such a kernel forwards too few packets for a figure.
const TURNS_QUICK: &str = "--turns 2";
/// How often that is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// Lines of its log that an error quotes.
const LOG_LINES: usize = 5;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Two turns of each load inside, in place of five.
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: String,
    kernel: &'static str,
    packets_per_s: f64,
    /// Share that was lost.
    loss: f64,
    /// What limited the rate, if not the switch.
    limit: Option<String>,
    /// Null if the turns differ by more than the ratio itself, or if the sink was the limit of one of both.
    time_ratio_to_veth: Option<f64>,
    time_ratio_to_bridge: Option<f64>,
    time_ratio_to_ip_forward: Option<f64>,
    runs: usize,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    if !Path::new(PROGRAM).exists() {
        return Err(format!("{PROGRAM} is missing: install user-mode-linux"));
    }
    let dir = TempDir::new("uml")?;
    let watch = Watch::start(&[std::process::id()]);
    let is_full = args.common.turn() >= TURN_FULL;
    let (mode, patience) = match (args.quick, is_full) {
        (true, _) => (TURNS_QUICK, PATIENCE),
        (_, true) => ("--full", PATIENCE_FULL),
        _ => ("", PATIENCE),
    };
    boot(&dir.0, mode, patience)?;
    let watched = watch.end();
    let inside = store::read(&dir.0.join("run")).map_err(|why| explained(&dir.0, &why))?;
    if let Some((step, why)) = inside.info.failed.first_key_value() {
        return Err(format!("in user-mode-linux, {step}: {why}"));
    }
    let rows = rows(&inside.points).map_err(|why| explained(&dir.0, &why))?;
    // All in one boot.
    for row in &rows {
        turns::note(&row.switch, watched);
        let ratio = row.time_ratio_to_veth.map(|ratio| format!("{ratio:.1} times as long as a veth pair"));
        let ratio = ratio.unwrap_or("no ratio to a veth pair: the turns differ, or the sink was full".into());
        let loss = row.loss * 100.0;
        println!("{}: {:.0} packets/s, {loss:.1} % lost; {ratio}", row.switch, row.packets_per_s);
    }
    args.common.finish(rows.into_iter().collect(), Goals::default())
}

/// Boots the kernel and waits until it has halted.
fn boot(dir: &Path, mode: &str, patience: Duration) -> Result<(), String> {
    let program =
        seen_inside(&std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?, dir)?;
    let init = dir.join("init");
    let text = script(&program, dir, &modules()?, mode);
    fs::write(&init, text).map_err(|e| format!("{}: {e}", init.display()))?;
    let mut command = Command::new(PROGRAM);
    command.args(["mem=1G", "root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", "quiet"]);
    command.args(["con=null", "con0=null,null", "ssl=null", "init=/bin/sh", "--"]).arg(&init);
    let mut process =
        Process::spawn(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()))?;
    let start = Instant::now();
    while process.0.try_wait().map_err(|e| e.to_string())?.is_none() {
        if start.elapsed() > patience {
            return Err(explained(dir, &format!("user-mode-linux has not halted in {patience:?}")));
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// This program's path inside: of `/tmp` and `/run`, which are the guest's own, it sees the shared directory
/// alone, so the program is copied there.
fn seen_inside(program: &Path, dir: &Path) -> Result<PathBuf, String> {
    if !["/tmp", "/run"].iter().any(|own| program.starts_with(own)) {
        return Ok(program.to_path_buf());
    }
    let copy = dir.join("crosspoint");
    fs::copy(program, &copy).map_err(|e| format!("{}: {e}", copy.display()))?;
    Ok(copy)
}

/// The modules that it needs, in loading order.
fn modules() -> Result<Vec<PathBuf>, String> {
    let mut order = Vec::new();
    for name in ["ipv6", "veth", "bridge", "openvswitch"] {
        load_order(Path::new(MODULES), name, &mut order)?;
    }
    Ok(order)
}

fn script(program: &Path, dir: &Path, modules: &[PathBuf], mode: &str) -> String {
    let mut text = String::from("export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/\n");
    for (kind, place) in [("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/tmp"), ("tmpfs", "/run")] {
        text += &format!("mount -t {kind} {kind} {place}\n");
    }
    let dir = dir.display();
    text += &format!("mkdir -p {dir}\nmount -t hostfs none {dir} -o {dir}\nexec >{dir}/log 2>&1\n");
    text.extend(modules.iter().map(|path| format!("insmod {}\n", path.display())));
    text += "ip link set lo up\n";
    text += &format!("while [ $(cut -d. -f1 /proc/uptime) -lt {UP_S} ]; do sleep 1; done\n");
    text + &format!("{} bench run {STEP} {mode} --out {dir}/run\nhalt -f\n", program.display())
}

/// An error with the last output inside.
fn explained(dir: &Path, why: &str) -> String {
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let lines: Vec<&str> = log.lines().collect();
    format!("{why}; inside: {}", lines[lines.len().saturating_sub(LOG_LINES)..].join(" / "))
}

fn rows(points: &[Point]) -> Result<Vec<Row>, String> {
    let turns = |point: &Point| point.metrics.get("rate_pps").map(|m| m.values.clone()).unwrap_or_default();
    let named = |point: &Point| match point.switch.as_str() {
        "none" => "veth".to_string(),
        switch => switch.to_string(),
    };
    let of = |name: &str| {
        let found = points.iter().find(|point| named(point) == name && !turns(point).is_empty());
        found.ok_or_else(|| format!("there is no figure for {name}"))
    };
    let (veth, bridge, ip_forward) = (of("veth")?, of("bridge")?, of("ip-forward")?);
    of("ovs-kernel")?;
    let is_of_sink = |point: &Point| point.limit.as_deref() == Some(RECEIVING_SIDE);
    let row = |point: &Point| {
        let raw = turns(point);
        let packets_per_s = median(&raw);
        let ratio = |other: &Point| {
            (!is_of_sink(point) && !is_of_sink(other)).then(|| ratio(&turns(other), &raw)).flatten()
        };
        Row {
            switch: named(point),
            kernel: "user-mode-linux, order of magnitude",
            packets_per_s,
            loss: point.metrics.get("loss").map_or(0.0, Metric::median),
            limit: point.limit.clone(),
            time_ratio_to_veth: ratio(veth),
            time_ratio_to_bridge: ratio(bridge),
            time_ratio_to_ip_forward: ratio(ip_forward),
            runs: raw.len(),
            raw,
        }
    };
    Ok(points.iter().map(row).collect())
}

/// The median of the turns' ratios; `None` if they differ by more than that, which makes it meaningless.
fn ratio(over: &[f64], under: &[f64]) -> Option<f64> {
    let all: Vec<f64> = over.iter().zip(under).map(|(over, under)| over / under).collect();
    let (least, most) = all.iter().fold((f64::MAX, f64::MIN), |(low, high), r| (low.min(*r), high.max(*r)));
    let middle = median(&all);
    (most - least <= middle).then_some(middle)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::Better;

    #[test]
    fn a_program_that_the_guest_could_not_see_is_copied_to_where_it_can() {
        let dir = TempDir::new("uml-test").unwrap();
        let hidden = dir.0.join("program");
        fs::write(&hidden, "program").unwrap();
        let shared = TempDir::new("uml-test-shared").unwrap();
        let seen = seen_inside(&hidden, &shared.0).unwrap();
        assert_eq!((seen.parent().unwrap(), fs::read(&seen).unwrap()), (&*shared.0, b"program".to_vec()));
        assert_eq!(seen_inside(Path::new("/bin/sh"), &shared.0).unwrap(), Path::new("/bin/sh"));
    }

    #[test]
    fn times_are_in_ratio_to_others_of_the_same_boot() {
        let point = |switch: &str, rates: &[f64]| {
            let mut point = Point { switch: switch.into(), ..Point::default() };
            point.metrics.insert("rate_pps".into(), Metric::new("1/s", Better::Higher, rates.to_vec()));
            point
        };
        let mut points = vec![
            point("none", &[90e3, 100e3, 110e3]),
            point("bridge", &[45e3, 50e3, 55e3]),
            point("ip-forward", &[36e3, 200e3, 66e3]),
            point("ovs-kernel", &[18e3, 20e3, 22e3]),
        ];
        let rows = rows(&points).unwrap();
        let ovs = rows.iter().find(|row| row.switch == "ovs-kernel").unwrap();
        let ratios = [ovs.time_ratio_to_veth, ovs.time_ratio_to_bridge, ovs.time_ratio_to_ip_forward];
        // From twice to ten times as long is no ratio.
        assert_eq!(ratios, [Some(5.0), Some(2.5), None]);
        // What the sink lost was forwarded: the rate is not the switch's, and the row says so.
        points[3].limit = Some(RECEIVING_SIDE.into());
        points[3].metrics.insert("loss".into(), Metric::new("ratio", Better::Lower, vec![0.7, 0.8, 0.75]));
        let rows = super::rows(&points).unwrap();
        assert_eq!((rows[3].time_ratio_to_bridge, rows[3].loss), (None, 0.75));
        assert_eq!(rows[3].limit.as_deref(), Some(RECEIVING_SIDE));
        assert!(rows[1].time_ratio_to_veth.is_some());
        points.pop();
        let why = super::rows(&points).map(|_| ()).unwrap_err();
        assert!(why.contains("ovs-kernel"), "{why}");
    }
}
