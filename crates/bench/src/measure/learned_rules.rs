//! Rules that the action `learn` adds: how many per second?
//!
//! Frames from a fixed number of source addresses arrive in a loop, as fast as they are taken; one rule
//! learns a rule for each. Frames that arrive while the switch is behind are lost and come again. The time
//! runs from adding the rule until all rules are learned. Our daemon and Debian's with DPDK read the same
//! capture.

use crate::daemon::Daemon;
use crate::machine::conditions::{self, BURST};
use crate::machine::huge_pages::HugePages;
use crate::machine::turns::turn;
use crate::measure::ovs_dpdk::OvsDpdk;
use crate::measure::rows::Rows;
use crate::measure::trial::{self, Common, Goals};
use crate::process::TempDir;
use crate::stats::median;
use crate::units::count;
use std::path::Path;
use std::time::{Duration, Instant};
use wire::compose::Compose;
use wire::ethernet::EthAddr;

/// A rule for each source address.
const RULE: &str = "in_port=1,actions=learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),output:2";
/// Rules are counted this often.
const LOOK: Duration = Duration::from_millis(20);
/// Maximum time for all of them.
const TIME: Duration = Duration::from_secs(300);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Addresses, and so rules.
    #[arg(long, value_parser = count, default_value = "200k")]
    rules: usize,
    /// Let Debian's Open vSwitch learn them as well.
    #[arg(long, value_name = "SWITCH", value_parser = ["ovs-dpdk"])]
    peer: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    by: &'static str,
    rules: usize,
    learned_per_s: f64,
    runs: u32,
    /// Each run's.
    raw_learned_per_s: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let dir = TempDir::new("learn")?;
    let capture = dir.0.join("frames.pcap");
    trial::write_frames(&capture, (0..args.rules).map(frame))?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..args.common.runs {
        let daemon = crosspoint(&dir.0, &capture)?;
        ours.push(turn("crosspoint", || learn(|args| daemon.ofctl(args), args.rules))?);
        drop(daemon);
        if args.peer.is_some() {
            let peer = open_vswitch(&capture)?;
            theirs.push(turn("ovs-dpdk", || learn(|args| peer.ofctl(args), args.rules))?);
        }
    }
    let mut goals = Goals::default();
    if let Some(goal) = crate::goals::bound("mac-learning", &[("by", "learn")], "learned_per_s") {
        goals.at_least("rules learned per second", &ours, goal);
    }
    let mut rows = Rows::default();
    rows.push(row("crosspoint", args.rules, ours));
    if args.peer.is_some() {
        rows.push(row("ovs-dpdk", args.rules, theirs));
    }
    args.common.finish(rows, goals)
}

fn frame(n: usize) -> Vec<u8> {
    let [a, b, c, d] = (n as u32).to_be_bytes();
    let arp = Compose::ethernet(EthAddr([6, 1, a, b, c, d]), EthAddr([2, 0, 0, 0, 0, 2]));
    arp.frame_len(60).build().expect("a header of 14 bytes in a frame of 60")
}

fn crosspoint(dir: &Path, capture: &Path) -> Result<Daemon, String> {
    let source = format!("p1,type=pcap,ofport=1,rx_file={}", capture.display());
    let files = format!("--pcap-dir={}", dir.display());
    // The peer has huge pages and this batch too.
    let (_pages, burst) = (HugePages::provide(), BURST.to_string());
    let sink = "p2,type=null,ofport=2";
    let args = [&files, "--port", sink, "--port", &source, "--rx-burst", &burst];
    let daemon = Daemon::crosspoint(None, &args)?;
    conditions::note("crosspoint", daemon.process.id(), BURST);
    // It runs before all frames are in memory.
    let start = Instant::now();
    while daemon.ofctl(&["dump-ports", "br0", "p1"])?.contains("rx pkts=0,") {
        if start.elapsed() > TIME {
            return Err(format!("{} is not replayed", capture.display()));
        }
        std::thread::sleep(LOOK);
    }
    Ok(daemon)
}

fn open_vswitch(capture: &Path) -> Result<OvsDpdk, String> {
    let mut peer = OvsDpdk::start()?;
    peer.set_source(capture)?;
    Ok(peer)
}

/// Rules learned per second, until all were.
fn learn(ofctl: impl Fn(&[&str]) -> Result<String, String>, rules: usize) -> Result<f64, String> {
    let all = format!("flow_count={rules}");
    ofctl(&["del-flows", "br0"])?;
    let start = Instant::now();
    ofctl(&["add-flow", "br0", RULE])?;
    loop {
        let text = ofctl(&["dump-aggregate", "br0", "table=1"])?;
        let took = start.elapsed();
        if text.trim().ends_with(&all) {
            return Ok(rules as f64 / took.as_secs_f64());
        }
        if took > TIME {
            return Err(format!("expected {all} within {} s, got: {}", TIME.as_secs(), text.trim()));
        }
        std::thread::sleep(LOOK);
    }
}

fn row(switch: &'static str, rules: usize, raw: Vec<f64>) -> Row {
    let learned_per_s = median(&raw);
    println!("{switch:<12} {rules} rules: {learned_per_s:.0} learned/s");
    Row { switch, by: "learn", rules, learned_per_s, runs: raw.len() as u32, raw_learned_per_s: raw }
}
