//! Soak: a fixed rate in windows, each as long as a turn of other trials, and whether cost, latency or memory
//! drift over them. Without a rate, half of what comes through is offered.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::lab::trial::mlr::highest;
use crate::result::Better;

/// Windows of a trial.
const WINDOWS: usize = 5;

/// See the module documentation.
pub struct Soak;

impl Trial for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let mut outcome = Outcome::default();
        let rate = match load.rate {
            Some(rate) => rate,
            None => (highest(bed, load, times.seconds)?.0 / 2.2) as u64,
        };
        let load = Load { rate: Some(rate.max(1)), seconds: times.seconds, ..load.clone() };
        let mut series: [(&str, Vec<f64>); 3] =
            [("cycles", Vec::new()), ("latency", Vec::new()), ("memory", Vec::new())];
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
        for (name, values) in &series {
            if let Some(drift) = drift(values) {
                outcome.push(&format!("drift_{name}_ratio"), "ratio", Better::Lower, drift);
            }
        }
        Ok(outcome)
    }
}

/// The rise of a straight line through the values from first to last, as a ratio to their mean.
fn drift(values: &[f64]) -> Option<f64> {
    let n = values.len() as f64;
    if values.len() < 3 {
        return None;
    }
    let (mean_x, mean_y) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let pairs = || values.iter().enumerate().map(|(x, y)| (x as f64 - mean_x, y - mean_y));
    let slope = pairs().map(|(x, y)| x * y).sum::<f64>() / pairs().map(|(x, _)| x * x).sum::<f64>();
    (mean_y != 0.0).then(|| slope * (n - 1.0) / mean_y)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_is_the_rise_of_the_line_through_the_windows() {
        assert!((drift(&[100.0, 101.0, 102.0, 103.0, 104.0]).unwrap() - 4.0 / 102.0).abs() < 1e-9);
        assert_eq!((drift(&[5.0, 5.0, 5.0]), drift(&[1.0, 2.0])), (Some(0.0), None));
        // Noise without a trend has none.
        assert!(drift(&[1.0, 2.0, 1.0, 2.0, 1.0]).unwrap().abs() < 1e-9);
    }
}
