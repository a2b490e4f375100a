//! The live view: packets per second and port, hits per tier, CPU. Redrawn in place on a terminal, a line a
//! second elsewhere.

use super::sample::Sample;
use bench::grouped;
use indicatif::{ProgressBar, ProgressStyle};
use std::cell::RefCell;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Shows samples.
pub struct View {
    on_terminal: bool,
    state: RefCell<Option<Shown>>,
}

/// One measurement in progress.
struct Shown {
    start: Instant,
    last: Sample,
    bar: Option<ProgressBar>,
}

impl View {
    /// As suits standard output.
    pub fn new() -> View {
        View { on_terminal: std::io::stdout().is_terminal(), state: RefCell::new(None) }
    }

    /// How long to wait between samples.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(if self.on_terminal { 250 } else { 1_000 })
    }

    /// A measurement begins that takes about this long.
    pub fn begin(&self, first: Sample, takes: Duration) {
        let bar = self.on_terminal.then(|| {
            let bar = ProgressBar::new(takes.as_millis() as u64);
            let style = ProgressStyle::with_template("   {prefix}\n   [{bar:30}] {msg}")
                .expect("the template is well formed");
            bar.set_style(style.progress_chars("=> "));
            bar
        });
        *self.state.borrow_mut() = Some(Shown { start: first.at, last: first, bar });
    }

    /// Shows what has happened since the last sample.
    pub fn update(&self, now: Sample) {
        let mut state = self.state.borrow_mut();
        let Some(shown) = state.as_mut() else { return };
        let (rates, tiers) = (rates(&shown.last, &now), tiers(&shown.last, &now));
        match &shown.bar {
            Some(bar) => {
                bar.set_position(shown.start.elapsed().as_millis() as u64);
                bar.set_prefix(rates);
                bar.set_message(tiers);
            }
            None => println!("   {:4.1} s  {rates}; {tiers}", shown.start.elapsed().as_secs_f64()),
        }
        shown.last = now;
    }

    /// The measurement is over: the live line goes.
    pub fn end(&self) {
        if let Some(Shown { bar: Some(bar), .. }) = self.state.borrow_mut().take() {
            bar.finish_and_clear();
        }
    }
}

/// Between two samples.
fn seconds(before: &Sample, now: &Sample) -> f64 {
    (now.at - before.at).as_secs_f64().max(1e-3)
}

fn rates(before: &Sample, now: &Sample) -> String {
    let seconds = seconds(before, now);
    let rate = |old: u64, new: u64| grouped((new.saturating_sub(old) as f64 / seconds) as u64);
    let ports = before.ports.iter().zip(&now.ports).map(|(old, new)| {
        format!("{} rx {}/s tx {}/s", new.name, rate(old.rx, new.rx), rate(old.tx, new.tx))
    });
    ports.collect::<Vec<_>>().join(", ")
}

fn tiers(before: &Sample, now: &Sample) -> String {
    let lookups = now.lookups.since(&before.lookups);
    let share = |part| percent(part, lookups.total());
    let cpu =
        |before_ns: u64, now_ns: u64| now_ns.saturating_sub(before_ns) as f64 / seconds(before, now) / 1e7;
    let (switch, guest) = (cpu(before.cpu_ns, now.cpu_ns), cpu(before.guest_cpu_ns, now.guest_cpu_ns));
    format!(
        "exact {}, megaflow {}, miss {}; CPU switch {switch:.0} %, guest {guest:.0} %",
        share(lookups.exact),
        share(lookups.megaflow),
        share(lookups.missed)
    )
}

/// A share in per cent; a dash if the whole is zero. Only nothing is shown as 0, and only everything as 100.
pub fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (_, 0) => "-".into(),
        (0, _) => "0 %".into(),
        _ if part == whole => "100 %".into(),
        _ => format!("{:.2} %", (part as f64 / whole as f64 * 100.0).clamp(0.01, 99.99)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sample::{Lookups, Port};

    #[test]
    fn shares_never_round_to_all_or_nothing() {
        for (part, text) in [(0, "0 %"), (1, "0.01 %"), (500_000, "50.00 %"), (999_999, "99.99 %")] {
            assert_eq!(percent(part, 1_000_000), text);
        }
        assert_eq!((percent(3, 3).as_str(), percent(0, 0).as_str()), ("100 %", "-"));
    }

    #[test]
    fn lines_show_rates_and_shares_between_two_samples() {
        let at = Instant::now();
        let port = |rx, tx| Port { name: "p1".into(), rx, tx, rx_dropped: 0 };
        let before =
            Sample { at, cpu_ns: 0, guest_cpu_ns: 0, lookups: Lookups::default(), ports: vec![port(0, 0)] };
        let lookups = Lookups { exact: 3, megaflow: 1, missed: 0 };
        let now = Sample {
            at: at + Duration::from_secs(2),
            cpu_ns: 1_000_000_000,
            guest_cpu_ns: 500_000_000,
            lookups,
            ports: vec![port(2_000, 10)],
        };
        assert_eq!(rates(&before, &now), "p1 rx 1,000/s tx 5/s");
        assert_eq!(
            tiers(&before, &now),
            "exact 75.00 %, megaflow 25.00 %, miss 0 %; CPU switch 50 %, guest 25 %"
        );
    }
}
