//! Shared by the benches in memory: their flags, their goals, and traffic to measure with.

use crate::measure::rig::Sample;
pub use crate::measure::rig::{Meter, cycles};
use crate::measure::rows::{Rows, json_file, write_json};
use crate::stats::{certainty, lower_bound, median, upper_bound_by_inverses};
use base::PortNo;
use flow::action::SubField;
use flow::{Action, FieldId, Match, Mf};
use ports::PortSpec;
use serde::Serialize;
use std::io::{self, BufWriter};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use switch::control::FlowMod;
use wire::compose::Compose;
use wire::ethernet::EthAddr;

/// The port that traffic comes from in every rig.
pub const SOURCE: PortNo = PortNo(1);
/// The port that it goes to.
pub const SINK: PortNo = PortNo(2);

/// Flags of every bench.
#[derive(clap::Args)]
pub struct Common {
    /// Turns of each.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: u32,
    /// Length of a turn in milliseconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    pub turn_ms: u64,
    /// Write the rows to this file.
    #[arg(long, value_parser = json_file)]
    pub json: Option<PathBuf>,
    /// Fail where a goal is missed, or where none is about what was measured.
    #[arg(long)]
    pub assert: bool,
}

impl Common {
    /// Length of a turn.
    pub fn turn(&self) -> Duration {
        Duration::from_millis(self.turn_ms)
    }

    /// Writes the rows; an error where `--assert` was given and a goal is missed, or there is none.
    pub fn finish<R: Serialize>(&self, rows: Rows<R>, goals: Goals) -> Result<(), String> {
        if let Some(file) = &self.json {
            write_json(file, rows).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        if !self.assert {
            return Ok(());
        }
        goals.verdict()
    }
}

/// A rate by either clock, as fields of a row: medians, and each turn's.
#[derive(Serialize, Clone, Debug, PartialEq)]
pub struct Rates {
    packets_per_wall_second: f64,
    packets_per_cpu_second: f64,
    raw_packets_per_wall_second: Vec<f64>,
    raw_packets_per_cpu_second: Vec<f64>,
}

impl Rates {
    /// Of turns, each with its packets per second of time and its cycles per packet.
    pub fn of(turns: impl Iterator<Item = (f64, f64)>) -> Rates {
        let (wall, cpu): (Vec<f64>, Vec<f64>) =
            turns.map(|(wall, cost)| (wall, per_cpu_second(cost))).unzip();
        Rates {
            packets_per_wall_second: median(&wall),
            packets_per_cpu_second: median(&cpu),
            raw_packets_per_wall_second: wall,
            raw_packets_per_cpu_second: cpu,
        }
    }

    /// The same of samples.
    pub fn of_samples(samples: &[Sample]) -> Rates {
        Rates::of(samples.iter().map(|s| (s.packets_per_wall_second, s.cycles_per_packet)))
    }

    /// The median per second of CPU time.
    pub fn per_cpu_second(&self) -> f64 {
        self.packets_per_cpu_second
    }
}

/// Goals, and which of them were missed.
#[derive(Default)]
pub struct Goals {
    judged: usize,
    missed: Vec<String>,
}

impl Goals {
    fn verdict(&self) -> Result<(), String> {
        match (self.judged, &self.missed[..]) {
            (0, _) => Err("no goal is about what was measured, so --assert has nothing to judge".into()),
            (_, []) => Ok(()),
            (_, missed) => Err(format!("goals missed: {}", missed.join("; "))),
        }
    }

    /// The values must be at least this, at the lower bound of the 95 % confidence interval.
    pub fn at_least(&mut self, what: &str, values: &[f64], goal: f64) {
        self.judged += 1;
        let low = lower_bound(values);
        println!("    {what}: at least {low:.3} {} (goal {goal})", certainty(values.len()));
        // An infinite one is a ratio to nothing.
        if !low.is_finite() || low < goal {
            self.missed.push(format!("{what}: {low:.3}, goal at least {goal}"));
        }
    }

    /// The ratios must be at most this. Judged by their inverses, so that "at most" is a lower bound too.
    pub fn at_most(&mut self, what: &str, ratios: &[f64], goal: f64) {
        self.judged += 1;
        let high = upper_bound_by_inverses(&ratios.iter().map(|r| 1.0 / r).collect::<Vec<f64>>());
        println!("    {what}: at most {high:.3} {} (goal {goal})", certainty(ratios.len()));
        if high > goal {
            self.missed.push(format!("{what}: {high:.3}, goal at most {goal}"));
        }
    }

    /// A quantity with a hard limit: its largest value counts.
    pub fn never_above(&mut self, what: &str, values: &[f64], limit: f64) {
        self.judged += 1;
        let most = values.iter().copied().fold(f64::NAN, f64::max);
        println!("    {what}: {most:.3} at most (limit {limit})");
        if most.is_nan() || most > limit {
            self.missed.push(format!("{what}: {most:.3}, limit {limit}"));
        }
    }
}

/// Packets per second of CPU time at this cost.
pub fn per_cpu_second(cycles_per_packet: f64) -> f64 {
    base::clock::tsc_hz() as f64 / cycles_per_packet
}

/// A UDP frame of 60 bytes.
pub fn frame(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> Vec<u8> {
    let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
    let udp = compose.ipv4(src, dst).udp(src_port, dst_port).udp_checksum_zero();
    udp.frame_len(60).build().expect("headers of 42 bytes in a frame of 60")
}

/// Writes frames into a capture file.
pub fn write_frames(path: &Path, frames: impl Iterator<Item = Vec<u8>>) -> Result<(), String> {
    write_timed_frames(path, frames.map(|frame| (0, frame)))
}

/// The same, each with its time in nanoseconds.
pub fn write_timed_frames(path: &Path, frames: impl Iterator<Item = (u64, Vec<u8>)>) -> Result<(), String> {
    let write = || -> io::Result<()> {
        let file = BufWriter::new(std::fs::File::create(path)?);
        let mut writer = ports::pcap::file::Writer::new(file)?;
        for (time_ns, frame) in frames {
            writer.write(time_ns, [frame.as_slice()].into_iter())?;
        }
        writer.flush()
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// A source that replays a capture from memory as fast as it is polled.
pub fn source(no: PortNo, pcap: &Path) -> PortSpec {
    PortSpec::new(&format!("source{no}"), "pcap", no)
        .with("rx_file", &pcap.to_string_lossy())
        .with_files_beside([pcap])
}

/// A sink that counts.
pub fn sink(no: PortNo) -> PortSpec {
    PortSpec::new(&format!("sink{no}"), "null", no)
}

/// `output:2`.
pub fn to_sink() -> Vec<Action> {
    vec![Action::Output { port: base::OfPort(SINK.0 as u16), max_len: 0 }]
}

/// Actions that read these fields of every packet, into registers, before they output: so each combination of
/// their values is a separate flow, however little the match examines.
pub fn reading(fields: &[(Mf, u16)]) -> Vec<Action> {
    let whole = |field, count| SubField { field, offset: 0, count };
    let moves = fields.iter().zip(0u8..).map(|(&(field, bits), n)| Action::Move {
        source: whole(field, bits),
        target: whole(Mf::Reg(n), bits),
    });
    moves.chain(to_sink()).collect()
}

/// A low-priority rule for all IPv4 from a port, by which every address pair is a separate flow.
pub fn every_pair_a_flow(in_port: PortNo) -> FlowMod {
    let ipv4 = Match::any().with(FieldId::InPort, in_port.0.into()).with(FieldId::EthType, 0x0800);
    let actions = reading(&[(Mf::NwSrc, 32), (Mf::NwDst, 32)]);
    FlowMod { priority: 1, ..FlowMod::add(ipv4, actions) }
}
