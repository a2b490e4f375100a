//! How many flow-mods per second the control half takes: each in a version of its own, many in one bundle,
//! and one bundle that replaces all rules; and how many a whole switch takes over one OpenFlow connection,
//! whose client sends them all without waiting and then asks for a barrier. Traffic does not run; what
//! changes cost it is what `coupling` and `replace` ask.

use crate::daemon::Daemon;
use crate::measure::p2p::exact_match;
use crate::measure::rig::Rig;
use crate::measure::trial::{self, Common, Goals, SINK, SOURCE};
use crate::stats::median;
use crate::units::count;
use datapath::Config;
use flow::Match;
use openflow::message::{FlowMod as OfFlowMod, Message};
use openflow::{Codec, Header, Version, VersionSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use switch::control::FlowMod;

/// Longer than this no message of a switch takes.
const TIME: Duration = Duration::from_secs(300);

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Send as many to Debian's ovs-vswitchd, in turns with ours.
    #[arg(long, value_name = "SWITCH", value_parser = ["ovs-vswitchd"])]
    peer: Option<String>,
    /// Rules that are added, one flow-mod each.
    #[arg(long, value_delimiter = ',', value_parser = count, default_value = "1k,100k")]
    rules: Vec<usize>,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    switch: &'static str,
    what: &'static str,
    rules: usize,
    flow_mods_made_per_s: f64,
    runs: u32,
    raw: Vec<f64>,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut rows = Vec::new();
    for &rules in &args.rules {
        let mut rates: [(&str, Vec<f64>); 3] =
            [("single", Vec::new()), ("bundle", Vec::new()), ("replace", Vec::new())];
        for _ in 0..args.common.runs {
            let adds: Vec<FlowMod> =
                (0..rules).map(|n| FlowMod::add(exact_match(n), trial::to_sink())).collect();
            let mut rig = rig()?;
            let start = Instant::now();
            for (n, add) in adds.iter().enumerate() {
                let now_ms = rig.datapath.now_ms();
                rig.control.flow_mod(rig.bridge, add, now_ms).map_err(|e| format!("{e:?}"))?;
                // A daemon has its other turns between messages too.
                if n % 256 == 0 {
                    rig.pump();
                }
            }
            rates[0].1.push(rules as f64 / start.elapsed().as_secs_f64());
            let mut rig = self::rig()?;
            let start = Instant::now();
            rig.add_rules(&adds)?;
            rates[1].1.push(rules as f64 / start.elapsed().as_secs_f64());
            let mut all = vec![FlowMod::delete(Match::any())];
            all.extend(adds);
            let start = Instant::now();
            rig.add_rules(&all)?;
            rates[2].1.push((2 * rules) as f64 / start.elapsed().as_secs_f64());
        }
        for (what, raw) in rates {
            rows.push(row("crosspoint", what, rules, raw));
        }
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        let messages = pipelined(rules)?;
        for _ in 0..args.common.runs {
            ours.push(rules as f64 / send(&Daemon::crosspoint_with_ports()?, &messages, rules)?);
            if args.peer.is_some() {
                theirs.push(rules as f64 / send(&Daemon::open_vswitch_with_ports()?, &messages, rules)?);
            }
        }
        rows.push(row("crosspoint", "pipelined", rules, ours));
        if args.peer.is_some() {
            rows.push(row("ovs-vswitchd", "pipelined", rules, theirs));
        }
    }
    args.common.finish(rows, Goals::default())
}

fn row(switch: &'static str, what: &'static str, rules: usize, raw: Vec<f64>) -> Row {
    let rate = median(&raw);
    println!("{switch:<12} {what}, {rules} rules: {rate:.0} flow-mods/s");
    Row { switch, what, rules, flow_mods_made_per_s: rate, runs: raw.len() as u32, raw }
}

/// Additions of so many rules and the barrier behind them, as bytes of OpenFlow 1.3.
fn pipelined(rules: usize) -> Result<Vec<u8>, String> {
    let codec = Codec::new(Version::V13);
    let mut bytes = Vec::new();
    for n in 0..rules {
        let (matching, actions) = (exact_match(n), trial::to_sink());
        let add = OfFlowMod { table_id: 0, matching, actions, ..OfFlowMod::add() };
        let encoded = codec.encode_into(n as u32, &Message::FlowMod(add.boxed()), &mut bytes);
        encoded.map_err(|e| format!("{e:?}"))?;
    }
    codec.encode_into(0, &Message::BarrierRequest, &mut bytes).map_err(|e| format!("{e:?}"))?;
    Ok(bytes)
}

/// Sends these to a switch. Seconds from the first byte to the answer of the barrier.
fn send(daemon: &Daemon, messages: &[u8], rules: usize) -> Result<f64, String> {
    let failed = |e: std::io::Error| format!("the OpenFlow connection: {e}");
    let mut stream = daemon.openflow()?;
    stream.set_read_timeout(Some(TIME)).map_err(failed)?;
    stream.write_all(&Codec::hello(VersionSet::only(Version::V13), 0)).map_err(failed)?;
    if !matches!(receive(&mut stream)?, Message::Hello(_)) {
        return Err("the switch does not begin with a hello".into());
    }
    let mut writer = stream.try_clone().map_err(failed)?;
    let start = Instant::now();
    let seconds = std::thread::scope(|scope| {
        // A switch that does not read while its answers are not read would wait for ever otherwise.
        let sent = scope.spawn(move || writer.write_all(messages));
        let answer = receive(&mut stream);
        let seconds = start.elapsed().as_secs_f64();
        if !matches!(answer, Ok(Message::BarrierReply)) {
            // So that the writer ends too.
            drop(stream.shutdown(std::net::Shutdown::Both));
            return Err(format!("instead of the barrier's reply came {answer:?}"));
        }
        sent.join().expect("writing does not panic").map_err(failed)?;
        Ok(seconds)
    })?;
    daemon.has_rules(rules)?;
    Ok(seconds)
}

/// The next message of the switch.
fn receive(stream: &mut UnixStream) -> Result<Message, String> {
    let mut bytes = vec![0; 8];
    stream.read_exact(&mut bytes).map_err(|e| format!("the switch does not answer: {e}"))?;
    let header = Header::parse(&bytes).ok_or("a header is too short")?;
    bytes.resize(usize::from(header.length).max(8), 0);
    stream.read_exact(&mut bytes[8..]).map_err(|e| format!("the switch does not answer: {e}"))?;
    let message = Codec::new(Version::V13).decode(&bytes).map_err(|e| format!("{e}"))?.1;
    Ok(message)
}

fn rig() -> Result<Rig, String> {
    let mut rig = Rig::new(Config::default())?;
    // The rules name both.
    rig.add_port(&trial::sink(SINK))?;
    rig.add_port(&trial::sink(SOURCE))?;
    Ok(rig)
}
