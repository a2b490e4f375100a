//! `crosspoint bench traffic`: the built-in generator's process, its requests and its answers.
//!
//! It reads [loads](Load) as lines of JSON and answers each with a line of results, so that its ends stay
//! open across all turns of a trial: a guest that it plays need not reconnect.

pub mod ends;
pub mod frames;
pub mod pattern;
pub mod receive;
pub mod schedule;
pub mod serve;

use crate::lab::meter::Used;
use crate::result::account::Account;
use pattern::Pattern;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// A load to offer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of a frame with its check sequence; patterns that mix sizes have their own.
    pub size: u16,
    /// Flows.
    pub flows: u32,
    /// Frames per second over all sources; at full speed if not given.
    pub rate: Option<u64>,
    /// For how long.
    pub seconds: f64,
    /// So many at once, instead.
    pub burst: Option<u64>,
    /// The contents of the frames.
    pub pattern: Pattern,
}

/// Requests to the process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Request {
    /// Offer a load, and meter these processes meanwhile.
    Offer(Load, Vec<u32>),
    /// Wait for late frames of the last load, and report its result again.
    Again,
}

/// The result of a load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sent {
    /// The fate of every packet, if the generator knows it.
    pub account: Account,
    /// From the first frame's time to the last one's.
    pub seconds: f64,
    /// Packets that came within these seconds.
    pub received_in_time: u64,
    /// CPU time of the generator, from the meter's start to its end.
    pub cpu_s: f64,
    /// Of that, its time in making and sending frames, if it knows.
    #[serde(default)]
    pub sending: Option<Sending>,
    /// What others used between the first frame and the last one.
    pub used: Used,
    /// Latency in microseconds by percentile; empty if nothing arrived.
    pub latency_us: BTreeMap<String, f64>,
    /// Frames per second between the first and the last one that was sent.
    pub sent_pps: f64,
    /// The longest time without a packet, from the start to the last one.
    pub gap_max_ms: f64,
    /// Frames that the device of a source refused, or the full ring of a guest that is played, by its name.
    /// They are among those not sent.
    pub refused: BTreeMap<String, u64>,
    /// When frames began to come at a place where none had come for [`SILENCE`], by its name, in nanoseconds
    /// of [`now_ns`](crate::lab::meter::now_ns).
    #[serde(default)]
    pub begun_ns: BTreeMap<String, Vec<u64>>,
}

/// Making and sending frames, in bursts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sending {
    /// CPU time.
    pub seconds: f64,
    /// Bursts that were sent.
    pub bursts: f64,
    /// Frames of these.
    pub frames: f64,
}

/// See [`Sent::begun_ns`].
pub const SILENCE: Duration = Duration::from_millis(2);
