//! Soak: a fixed rate in windows of minutes, and whether cost, latency or memory drift over them. Without a
//! rate, half of what comes through is offered.
//!
//! A figure drifts if the 95 % confidence interval of its rise from first to last window excludes 0 and the
//! rise is more than 1 %. It does not if the interval excludes a rise or fall of more than 5 %; windows that
//! vary more tell neither. The interval is that of the slope of a straight line through the windows, by
//! Student's t: what the windows scatter about the line is its noise. Of several turns, each from a start of
//! its own, the medians of rise and interval count. That nothing drifts is said of ten minutes at least.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::lab::trial::mlr::highest;
use crate::result::{Better, Metric};
use crate::stats::student_quantile;
use std::collections::BTreeMap;

/// Windows of a trial.
const WINDOWS: usize = 5;
/// Their lengths in seconds, and those of other trials' turns from which they are for a soak of ten minutes,
/// and for one of two hours. Shorter ones only show that all runs.
const WINDOW_S: [(f64, f64); 2] = [(10.0, 1440.0), (1.0, 120.0)];
/// A soak that is shorter says nothing about what does not drift.
const SOAK_MIN_S: f64 = 600.0;
/// The figure that says how long it was.
pub const LENGTH: &str = "soak_s";
/// A smaller rise is none, as a ratio to the mean.
const RISE_MIN: f64 = 0.01;
/// It does not drift if the interval excludes a greater rise or fall.
const RISE_MATTERS: f64 = 0.05;
/// What may drift.
const SERIES: [&str; 3] = ["cycles", "latency", "memory"];

/// See the module documentation.
pub struct Soak;

impl Trial for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn loads(&self) -> u32 {
        WINDOWS as u32
    }

    /// One turn: it has windows of its own.
    fn times(&self, usual: Times) -> Times {
        let window = WINDOW_S.into_iter().find(|(least, _)| usual.seconds >= *least);
        window.map_or(usual, |(_, seconds)| Times { turns: 1, seconds })
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let rate = match load.rate {
            Some(rate) => rate,
            None => (highest(bed, load, times.seconds.min(10.0))?.0 / 2.2) as u64,
        };
        let load = Load { rate: Some(rate.max(1)), seconds: times.seconds, ..load.clone() };
        let mut series = SERIES.map(|name| (name, Vec::new()));
        let mut windows = Outcome::default();
        for _ in 0..WINDOWS {
            let offered = bed.offer(&load)?;
            windows.turn(&offered);
            windows.latency("", &offered);
            let received = offered.sent.received_in_time.max(1) as f64;
            series[0].1.extend(offered.switch_cpu_s.map(|s| s / received));
            series[1].1.extend(offered.sent.latency_us.get("p50"));
            series[2].1.extend(offered.switch_rss_bytes.map(|bytes| bytes as f64));
        }
        // Windows of one start are no turns of their own.
        for metric in windows.metrics.values_mut() {
            metric.values = vec![metric.median()];
        }
        outcome.add(windows);
        outcome.push(LENGTH, "s", Better::Neither, WINDOWS as f64 * times.seconds);
        for (name, values) in &series {
            if let Some(drift) = drift(values) {
                outcome.push(&format!("drift_{name}_ratio"), "ratio", Better::Lower, drift.rise);
                outcome.push(&format!("drift_{name}_noise_ratio"), "ratio", Better::Neither, drift.noise);
            }
        }
        Ok(outcome)
    }

    fn verdicts(&self, metrics: &BTreeMap<String, Metric>) -> Vec<(bool, String)> {
        let seconds = metrics.get(LENGTH).map_or(0.0, Metric::median);
        let of = |name: &str| {
            let rise = metrics.get(&format!("drift_{name}_ratio"))?.median();
            let noise = metrics.get(&format!("drift_{name}_noise_ratio"))?.median();
            let drift = Drift { rise, noise };
            let says = match drift {
                _ if drift.is_shown() => "drifts",
                _ if drift.is_bounded() && seconds >= SOAK_MIN_S => "does not drift",
                _ if drift.is_bounded() => "shows no drift, but the time is too short to tell",
                _ => "may drift or not",
            };
            let (rise, noise) = (rise * 100.0, noise * 100.0);
            Some((
                drift.is_shown(),
                format!("{name} {says}: {rise:+.1} % ± {noise:.1} % over {}", length(seconds)),
            ))
        };
        SERIES.into_iter().filter_map(of).collect()
    }
}

/// How long the windows were together, for readers.
fn length(seconds: f64) -> String {
    match seconds {
        s if s >= 7200.0 => format!("{:.1} h", s / 3600.0),
        s if s >= 60.0 => format!("{:.0} min", s / 60.0),
        s => format!("{s:.1} s"),
    }
}

/// The rise of a straight line from the first value to the last, as a ratio to their mean, and half of its
/// 95 % confidence interval.
#[derive(Clone, Copy, Debug)]
struct Drift {
    rise: f64,
    noise: f64,
}

impl Drift {
    fn is_shown(self) -> bool {
        self.rise.abs() > self.noise.max(RISE_MIN)
    }

    /// Whether the interval leaves no room for a drift that matters.
    fn is_bounded(self) -> bool {
        self.rise.abs() + self.noise <= RISE_MATTERS
    }
}

fn drift(values: &[f64]) -> Option<Drift> {
    let n = values.len() as f64;
    if values.len() < 3 {
        return None;
    }
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let pairs = || values.iter().enumerate().map(|(x, y)| (x as f64 - mean_x, y - mean_y));
    let squares = pairs().map(|(x, _)| x * x).sum::<f64>();
    let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / squares;
    let scatter = pairs().map(|(x, y)| (y - slope * x).powi(2)).sum::<f64>();
    let half = student_quantile(n - 2.0, 0.05) * (scatter / (n - 2.0) / squares).sqrt();
    let as_rise = |slope: f64| slope * (n - 1.0) / mean_y;
    (mean_y != 0.0).then(|| Drift { rise: as_rise(slope), noise: as_rise(half) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_the_rise_of_the_line_through_the_windows_if_it_exceeds_their_noise() {
        let clear = drift(&[100.0, 101.0, 102.0, 103.0, 104.0]).unwrap();
        assert!((clear.rise - 4.0 / 102.0).abs() < 1e-9 && clear.noise < 1e-9 && clear.is_shown());
        assert!(drift(&[104.0, 103.0, 102.0, 101.0, 100.0]).unwrap().is_shown());
        // Noise without a trend, a trend within the noise, and a trend that is sure and small.
        assert!(drift(&[1.0, 2.0, 1.0, 2.0, 1.0]).unwrap().rise.abs() < 1e-9);
        let noisy = drift(&[100.0, 110.0, 95.0, 112.0, 104.0]).unwrap();
        assert!(noisy.rise > RISE_MIN && noisy.noise > noisy.rise && !noisy.is_shown(), "{noisy:?}");
        assert!(!drift(&[1000.0, 1000.5, 1001.0, 1001.5, 1002.0]).unwrap().is_shown());
        // By hand: the slope of (1, 2, 4) is 1.5 with a standard error of 0.2887; t(1) is 12.706.
        let three = drift(&[1.0, 2.0, 4.0]).unwrap();
        assert!((three.noise - 12.706 * 0.28868 * 2.0 / (7.0 / 3.0)).abs() < 1e-2, "{three:?}");
        assert!(drift(&[1.0, 2.0]).is_none() && drift(&[0.0; 5]).is_none());
    }

    #[test]
    fn a_verdict_is_said_of_each_figure_that_has_one() {
        let metric = |values: &[f64]| Metric::new("ratio", Better::Neither, values.to_vec());
        let metrics = [
            ("drift_latency_ratio", metric(&[0.12, 0.1, 0.3])),
            ("drift_latency_noise_ratio", metric(&[0.03, 0.02, 0.5])),
            ("drift_memory_ratio", metric(&[0.004])),
            ("drift_memory_noise_ratio", metric(&[0.0])),
            ("soak_s", metric(&[600.0])),
            // A run of before there was a bound.
            ("drift_cycles_ratio", metric(&[0.4])),
        ];
        let metrics = metrics.map(|(name, metric)| (name.to_string(), metric)).into();
        let said = Soak.verdicts(&metrics);
        let latency = "latency drifts: +12.0 % ± 3.0 % over 10 min";
        let memory = "memory does not drift: +0.4 % ± 0.0 % over 10 min";
        assert_eq!(said, [(true, latency.to_string()), (false, memory.to_string())]);
        // Noise hides any drift, and is none of its absence.
        let metrics =
            [("drift_cycles_ratio", metric(&[-0.599])), ("drift_cycles_noise_ratio", metric(&[1.885]))];
        let metrics = metrics.into_iter().chain([("soak_s", metric(&[7200.0]))]);
        let said = Soak.verdicts(&metrics.map(|(name, metric)| (name.to_string(), metric)).collect());
        let cycles = "cycles may drift or not: -59.9 % ± 188.5 % over 2.0 h";
        assert_eq!(said, [(false, cycles.to_string())]);
    }

    #[test]
    fn a_soak_takes_ten_minutes_or_hours_and_a_shorter_one_does_not_say_that_nothing_drifts() {
        let of = |turns, seconds| {
            let Times { turns, seconds } = Soak.times(Times { turns, seconds });
            (turns, seconds * WINDOWS as f64)
        };
        assert_eq!([of(1, 0.3), of(5, 2.0), of(5, 60.0)], [(1, 1.5), (1, 600.0), (1, 7200.0)]);
        let said = |seconds: f64| {
            let metric = |value| Metric::new("", Better::Neither, vec![value]);
            let metrics =
                [("drift_memory_ratio", 0.005), ("drift_memory_noise_ratio", 0.0), ("soak_s", seconds)];
            Soak.verdicts(&metrics.map(|(name, value)| (name.to_string(), metric(value))).into()).remove(0).1
        };
        assert!(said(600.0).starts_with("memory does not drift: +0.5 %"), "{}", said(600.0));
        let short = "memory shows no drift, but the time is too short to tell: +0.5 % ± 0.0 % over 10.0 s";
        assert_eq!(said(10.0), short);
    }
}
