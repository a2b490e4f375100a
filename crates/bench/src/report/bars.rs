//! A graph of bars: a row for each switch, and in it a bar for each load, or for each figure of a family. A
//! bar is hollow where another part than the switch was the limit. Its median has a dot, as in other graphs.

use super::plot::{Drawn, GRID, INK, LINES, PAPER, recolour, shows};
use crate::result::{Point, Run};
use crate::stats::short;
use crate::suite::Plot;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use std::collections::{BTreeMap, BTreeSet};

/// Width, in the SVG's own units; the page scales it.
const WIDTH: u32 = 720;
/// Height of a bar, and of the space between two switches.
const BAR: i32 = 13;
const GAP: i32 = 9;
/// Width of what is filled and what is not in a striped bar.
const STRIPE: (i32, i32) = (6, 4);
/// Below the bars: values and the figure's name.
const AXIS: i32 = 44;
/// Right of the bars: the value of the longest.
const RIGHT: i32 = 64;
/// Width of a letter, roughly, and the most that names may take.
const LETTER: i32 = 7;
const NAMES_MAX: i32 = 300;
const FONT: (&str, i32) = ("sans-serif", 13);

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    series: usize,
    value: f64,
    low: f64,
    high: f64,
    is_of_switch: bool,
}

/// See the module documentation.
#[derive(Default)]
pub struct Bars {
    /// What tells the bars of a switch apart; empty text if nothing does.
    pub series: Vec<String>,
    rows: Vec<(String, Vec<Bar>)>,
}

impl Bars {
    /// All bars of a graph, from all runs.
    pub fn of(plot: &Plot, suite: &str, runs: &[Run]) -> Bars {
        let mut found: BTreeMap<String, BTreeMap<String, Bar>> = BTreeMap::new();
        for run in runs {
            for point in run.points.iter().filter(|p| p.suite == suite && shows(plot, p)) {
                let mut switch = point.switch.clone();
                if runs.len() > 1 {
                    switch += &format!(" ({})", run.short_name(runs));
                }
                for (name, metric) in &point.metrics {
                    let Some(of_family) = family(plot, name) else { continue };
                    let value = metric.median();
                    if value.is_finite() {
                        let (low, high) = metric.interval();
                        let (low, high) = (low.min(value), high.max(value));
                        let bar = Bar { series: 0, value, low, high, is_of_switch: point.is_of_switch() };
                        found.entry(switch.clone()).or_default().insert(series(plot, point, of_family), bar);
                    }
                }
            }
        }
        let series: BTreeSet<String> = found.values().flat_map(|bars| bars.keys().cloned()).collect();
        let series: Vec<String> = series.into_iter().collect();
        let of_row = |bars: BTreeMap<String, Bar>| {
            let place = |name: &String| series.iter().position(|there| there == name).unwrap_or(0);
            bars.into_iter().map(|(name, bar)| Bar { series: place(&name), ..bar }).collect()
        };
        let rows = found.into_iter().map(|(switch, bars)| (switch, of_row(bars))).collect();
        Bars { series, rows }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.all().count()
    }

    /// Whether one shows what was no figure of the switch's.
    pub fn has_hollow(&self) -> bool {
        self.all().any(|bar| !bar.is_of_switch)
    }

    fn all(&self) -> impl Iterator<Item = &Bar> + Clone {
        self.rows.iter().flat_map(|(_, bars)| bars)
    }

    /// Draws them; `None` if there are none.
    pub fn svg(&self, plot: &Plot) -> Option<String> {
        let scale = Scale::of(plot.log, self.all())?;
        let letters = self.rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0) as i32;
        let left = (letters * LETTER + 16).min(NAMES_MAX);
        let rows = self.rows.iter().map(|(_, bars)| bars.len() as i32 * BAR + GAP).sum::<i32>();
        let size = (WIDTH, (rows + GAP + AXIS) as u32);
        let mut text = String::new();
        let drawn = {
            let area = SVGBackend::with_string(&mut text, size).into_drawing_area();
            self.draw(&area, plot, &scale, left, rows + GAP)
        };
        // Nothing can fail in memory; a graph that did is not shown, and the page's test asks for each.
        drawn.is_ok().then(|| recolour(&text, size))
    }

    fn draw(
        &self,
        area: &DrawingArea<SVGBackend, Shift>,
        plot: &Plot,
        scale: &Scale,
        left: i32,
        bottom: i32,
    ) -> Drawn {
        let right = WIDTH as i32 - RIGHT;
        let place = |value: f64| left + (scale.at(value) * f64::from(right - left)).round() as i32;
        let words = |h, v| FONT.into_text_style(area).color(&INK).pos(Pos::new(h, v));
        area.fill(&PAPER)?;
        for value in scale.ticks() {
            let x = place(value);
            area.draw(&PathElement::new(vec![(x, 0), (x, bottom)], GRID.stroke_width(1)))?;
            area.draw(&Text::new(short(value), (x, bottom + 6), words(HPos::Center, VPos::Top)))?;
        }
        let name = plot.metric.replace('_', " ").replace('*', "…");
        area.draw(&Text::new(name, ((left + right) / 2, bottom + 26), words(HPos::Center, VPos::Top)))?;
        let mut top = GAP;
        for (switch, bars) in &self.rows {
            let middle = top + bars.len() as i32 * BAR / 2;
            area.draw(&Text::new(switch.as_str(), (left - 8, middle), words(HPos::Right, VPos::Center)))?;
            for bar in bars {
                let (colour, y) = (LINES[bar.series % LINES.len()], top + BAR / 2);
                let style = if bar.is_of_switch { colour.filled() } else { colour.stroke_width(1) };
                let ends = [place(scale.origin()), place(bar.value)];
                let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
                area.draw(&Rectangle::new([(from, top + 1), (to, top + BAR - 2)], style))?;
                // The colours that come round again are striped, as in the legend.
                if bar.series >= LINES.len() {
                    for x in (from + STRIPE.0..to).step_by((STRIPE.0 + STRIPE.1) as usize) {
                        let stripe = [(x, top + 1), ((x + STRIPE.1).min(to), top + BAR - 2)];
                        area.draw(&Rectangle::new(stripe, PAPER.filled()))?;
                    }
                }
                let (low, high) = (place(bar.low), place(bar.high));
                area.draw(&PathElement::new(vec![(low, y), (high, y)], INK.stroke_width(1)))?;
                area.draw(&Circle::new((place(bar.value), y), 2, INK.filled()))?;
                let beside = (to.max(high) + 6, y);
                area.draw(&Text::new(short(bar.value), beside, words(HPos::Left, VPos::Center)))?;
                top += BAR;
            }
            top += GAP;
        }
        area.present()
    }
}

/// What a figure's name has where the plot's has a star; `None` if it is another figure.
fn family<'a>(plot: &Plot, name: &'a str) -> Option<&'a str> {
    match plot.metric.split_once('*') {
        Some((before, after)) => name.strip_prefix(before)?.strip_suffix(after),
        None => (name == plot.metric).then_some(""),
    }
}

/// What tells a bar of a switch from its others: the figure in its family, and the labels.
fn series(plot: &Plot, point: &Point, of_family: &str) -> String {
    let of_label = |label: &&str| match point.labels.get(*label) {
        Some(value) => value.clone(),
        None => format!("usual {label}"),
    };
    let of_family = (!plot.x.is_empty()).then(|| plot.x.replace('*', &of_family.replace('_', " ")));
    of_family.into_iter().chain(plot.series.iter().map(of_label)).collect::<Vec<_>>().join(", ")
}

/// Values to places, from 0 at the left to 1.
struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    fn of<'a>(log: bool, bars: impl Iterator<Item = &'a Bar> + Clone) -> Option<Scale> {
        // A wide bound of two turns must not flatten the graph.
        let high = bars.clone().map(|bar| bar.high.min(bar.value.abs() * 1.5)).reduce(f64::max)?;
        let low = bars.map(|bar| bar.value).filter(|v| !log || *v > 0.0).reduce(f64::min)?;
        let high = if high <= 0.0 { 1.0 } else { high };
        Some(match log {
            // From the power of ten below the least, which then still has a bar.
            true => Scale { low: 10f64.powf((low * 0.8).log10().floor()), high: high.max(low * 2.0), log },
            false => Scale { low: low.min(0.0), high, log },
        })
    }

    /// Where bars begin.
    fn origin(&self) -> f64 {
        if self.log { self.low } else { 0.0 }
    }

    fn at(&self, value: f64) -> f64 {
        let value = value.clamp(self.low, self.high);
        match self.log {
            true => (value / self.low).ln() / (self.high / self.low).ln(),
            false => (value - self.low) / (self.high - self.low),
        }
    }

    /// Round values: powers of ten, or about five steps of 1, 2 or 5.
    fn ticks(&self) -> Vec<f64> {
        if self.log {
            let first = self.low.log10().round() as i32;
            return (first..).map(|n| 10f64.powi(n)).take_while(|v| *v <= self.high * 1.001).collect();
        }
        let rough = (self.high - self.low) / 5.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].into_iter().find(|n| n * power >= rough).unwrap_or(10.0) * power;
        let first = (self.low / step).ceil() as i64;
        (first..).map(|n| n as f64 * step).take_while(|v| *v <= self.high + step * 1e-9).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Better, Metric};

    fn point(switch: &str, topology: &str, rate: f64) -> Point {
        let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
        point.labels.insert("topology".into(), topology.into());
        point.metrics.insert("rate".into(), Metric::new("1/s", Better::Higher, vec![rate]));
        for share in [1.0, 10.0] {
            let values = vec![share * rate];
            point.metrics.insert(format!("at_{share}_us"), Metric::new("us", Better::Lower, values));
        }
        point
    }

    fn run() -> Run {
        let mut limited = point("theirs", "PVP", 80.0);
        limited.limit = Some("a guest".into());
        Run {
            points: vec![point("theirs", "P2P", 40.0), limited, point("ours", "P2P", 50.0)],
            ..Run::default()
        }
    }

    #[test]
    fn each_switch_has_a_bar_for_each_load_as_long_as_its_value_and_hollow_if_that_is_not_its_own() {
        let plot = Plot::bars("t", "rate").by(&["topology"]);
        let bars = Bars::of(&plot, "p2p", &[run()]);
        assert_eq!(bars.series, ["P2P", "PVP"]);
        let rows: Vec<(&str, usize)> =
            bars.rows.iter().map(|(name, bars)| (name.as_str(), bars.len())).collect();
        assert_eq!((rows, bars.count(), bars.has_hollow()), (vec![("ours", 1), ("theirs", 2)], 3, true));
        let svg = bars.svg(&plot).unwrap();
        assert_eq!(svg.matches("<circle").count(), 3);
        let width = |rect: &str| -> f64 {
            rect.split("width=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        // The first is the paper.
        let rects: Vec<&str> = svg.split("<rect ").skip(2).collect();
        let [ours, theirs, limited] = rects[..] else { panic!("{svg}") };
        assert!((width(ours) / width(theirs) - 1.25).abs() < 0.02, "{svg}");
        assert!((width(limited) / width(theirs) - 2.0).abs() < 0.02, "{svg}");
        let hollow: Vec<bool> = [ours, theirs, limited]
            .map(|rect| rect.split("/>").next().unwrap().contains("fill=\"none\""))
            .into();
        assert_eq!(hollow, [false, false, true]);
        assert!(svg.contains("var(--line1)") && !svg.contains("#0101") && !svg.contains("#0202"), "{svg}");
        assert!(svg.contains(">\nours\n<") && svg.contains(">\n80"), "{svg}");
        assert!(Bars::of(&plot, "pvp", &[run()]).svg(&plot).is_none());
    }

    #[test]
    fn bars_whose_colour_comes_round_again_are_striped() {
        let plot = Plot::bars("t", "rate").by(&["topology"]);
        let stripes = |ways: usize| {
            let points = (0..ways).map(|n| point("ours", &format!("way {n}"), 50.0)).collect();
            let svg = Bars::of(&plot, "p2p", &[Run { points, ..Run::default() }]).svg(&plot).unwrap();
            // The first is the paper itself.
            svg.split("<rect ").skip(2).filter(|rect| rect.contains("var(--paper)")).count()
        };
        assert_eq!(stripes(8), 0);
        assert!(stripes(9) > 10);
    }

    #[test]
    fn figures_of_a_family_stand_beside_each_other_also_on_powers() {
        let plot = Plot::bars("t", "at_*_us").family("at * %").log();
        let bars =
            Bars::of(&plot, "p2p", &[Run { points: vec![point("ours", "P2P", 0.5)], ..Run::default() }]);
        assert_eq!(bars.series, ["at 1 %", "at 10 %"]);
        let scale = Scale::of(true, bars.all()).unwrap();
        assert_eq!((scale.low, scale.ticks()), (0.1, vec![0.1, 1.0]));
        assert!(scale.at(0.5) > 0.3 && scale.at(5.0) == 1.0 && scale.at(0.0) == 0.0);
        assert!(bars.svg(&plot).is_some());
    }

    #[test]
    fn no_point_of_a_suite_hides_another_behind_its_bar() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs/2026-11-27-night");
        let runs = [crate::result::store::read(&dir).unwrap()];
        let mut drawn = 0;
        for suite in crate::suite::list::suites() {
            for plot in suite.plots.iter().filter(|plot| plot.bars) {
                let points = runs[0].points.iter().filter(|p| p.suite == suite.name && shows(plot, p));
                let is_shown = |name: &&String| family(plot, name).is_some();
                let figures =
                    points.map(|point| point.metrics.keys().filter(is_shown).count()).sum::<usize>();
                let bars = Bars::of(plot, suite.name, &runs);
                assert_eq!(bars.count(), figures, "{}: {}", suite.name, plot.title);
                assert_eq!(bars.svg(plot).is_some(), figures > 0);
                drawn += figures;
            }
        }
        assert!(drawn > 200, "{drawn}");
    }

    #[test]
    fn what_falls_goes_to_the_left_of_nothing() {
        let bar = |value| Bar { series: 0, value, low: value, high: value, is_of_switch: true };
        let bars = [bar(-0.2), bar(0.3)];
        let scale = Scale::of(false, bars.iter()).unwrap();
        assert!(scale.at(-0.2) == 0.0 && scale.at(0.0) > 0.39 && scale.at(0.3) == 1.0);
        assert_eq!(
            scale.ticks().iter().map(|v| (v * 10.0).round()).collect::<Vec<_>>(),
            [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]
        );
    }
}
