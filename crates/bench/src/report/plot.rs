//! A graph as SVG text. Colours come from classes that the page's style sheet defines for light and dark, so
//! a graph is drawn with stand-ins that [`recolour`] replaces.

use super::knee::{self, Knee, came_through};
use crate::lab::topology;
use crate::result::{Point, Run};
use crate::suite::{Limit, Plot};
use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use std::collections::BTreeMap;

/// Width and height in the SVG's own units; the page scales it.
const SIZE: (u32, u32) = (720, 360);
/// Stand-ins for the colours of lines; nothing else in a graph has them.
pub const LINES: [RGBColor; 8] = [
    RGBColor(1, 1, 1),
    RGBColor(1, 1, 2),
    RGBColor(1, 1, 3),
    RGBColor(1, 1, 4),
    RGBColor(1, 1, 5),
    RGBColor(1, 1, 6),
    RGBColor(1, 1, 7),
    RGBColor(1, 1, 8),
];
/// As many lines look different: each colour is drawn through, and dashed.
pub const STYLES: usize = 2 * LINES.len();
/// The position of zero on a logarithmic axis.
const LOG_MIN: f64 = 0.5;
/// Text and axes.
pub const INK: RGBColor = RGBColor(2, 2, 2);
/// Lines behind.
pub const GRID: RGBColor = RGBColor(2, 2, 3);
/// The background.
pub const PAPER: RGBColor = RGBColor(2, 2, 4);

/// One line: its name, and (x, median, low, high) by x.
pub struct Line {
    /// The switch, and what else distinguishes it from others.
    pub name: String,
    /// Sorted by x.
    pub points: Vec<(f64, f64, f64, f64)>,
    /// The places of those at which another part than the switch was the limit.
    pub foreign: Vec<f64>,
}

impl Line {
    /// Where a load curve breaks. A load that another part lost says nothing about the switch.
    pub fn knee(&self) -> Option<Knee> {
        let says = |point: &&(f64, f64, f64, f64)| came_through(point) || !self.foreign.contains(&point.0);
        knee::of(&self.points.iter().filter(says).copied().collect::<Vec<_>>())
    }
}

/// The lines of a graph, from all runs.
pub fn lines(plot: &Plot, suite: &str, runs: &[Run]) -> Vec<Line> {
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    for run in runs {
        for point in run.points.iter().filter(|p| p.suite == suite && shows(plot, p)) {
            let (Some(x), Some(metric)) = (position(plot, point), point.metrics.get(plot.metric)) else {
                continue;
            };
            let mut name = point.switch.clone();
            for label in plot.series {
                if let Some(value) = point.labels.get(*label) {
                    name += &format!(", {label} {value}");
                }
            }
            if runs.len() > 1 {
                name += &format!(" ({})", run.short_name(runs));
            }
            let (low, high) = metric.interval();
            let y = metric.median();
            if y.is_finite() {
                let empty = || Line { name: name.clone(), points: Vec::new(), foreign: Vec::new() };
                let line = lines.entry(name.clone()).or_insert_with(empty);
                line.points.push((x, y, low.max(0.0).min(y), high.max(y)));
                line.foreign.extend((!point.is_of_switch()).then_some(x));
            }
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.iter_mut().for_each(|line| line.points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    lines
}

/// Whether a point is one that the plot shows.
pub fn shows(plot: &Plot, point: &Point) -> bool {
    plot.only.iter().all(|(label, value)| point.labels.get(*label).map_or("", String::as_str) == *value)
}

/// A point's position on the horizontal axis: its label's number.
fn position(plot: &Plot, point: &Point) -> Option<f64> {
    let ports = || Some(topology::find(point.labels.get("topology")?)?.ports.len().to_string());
    let label = point.labels.get(plot.x).cloned().or_else(|| ports().filter(|_| plot.x == "ports"))?;
    let number: f64 = label.parse().ok()?;
    // A logarithmic axis has no zero: it is drawn left of one.
    Some(if plot.log { number.max(LOG_MIN) } else { number })
}

/// The limit's value at x, if it has one.
fn limit(limit: Limit, x: f64) -> f64 {
    match limit {
        // Preamble and gap take as long as 20 bytes; sizes are with the frame check sequence.
        Limit::TenGigabitPps => 1e10 / ((x + 20.0) * 8.0),
        Limit::Offered => x,
    }
}

/// Draws the plot; `None` if there is no line.
pub fn svg(plot: &Plot, lines: &[Line]) -> Option<String> {
    let all = || lines.iter().flat_map(|line| line.points.iter());
    all().next()?;
    let (mut left, mut right) = (f64::MAX, f64::MIN);
    let mut top: f64 = 0.0;
    for (x, y, _, high) in all() {
        (left, right) = (left.min(*x), right.max(*x));
        // A wide bound of two turns must not flatten the graph.
        top = top.max(high.min(y * 1.5));
    }
    if right <= left {
        (left, right) = (left * 0.5, right * 2.0 + 1e-9);
    }
    if let Some(kind) = plot.limit {
        // Above three times the figures the limit says nothing that is worth the room.
        top = top.max(limit(kind, right).min(top * 3.0));
    }
    if top <= 0.0 {
        // There is nothing but zeros on the axis.
        top = 1.0;
    }
    let mut text = String::new();
    let drawn = {
        let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
        area.fill(&PAPER).and_then(|()| {
            if plot.log {
                draw(&area, plot, lines, (left.max(LOG_MIN)..right).log_scale(), top)
            } else {
                draw(&area, plot, lines, left..right, top)
            }
        })
    };
    // Nothing can fail in memory; a graph that did is not shown, and the page's test asks for each.
    drawn.is_ok().then(|| recolour(&text, SIZE))
}

/// How drawing ends.
pub type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

fn draw<'a, X>(
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
    plot: &Plot,
    lines: &[Line],
    x: X,
    top: f64,
) -> Drawn
where
    X: AsRangedCoord<Value = f64>,
    X::CoordDescType: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    let font = ("sans-serif", 13).into_font().color(&INK);
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(38)
        .y_label_area_size(62)
        .build_cartesian_2d(x, 0.0..top * 1.08)?;
    chart
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(INK)
        .label_style(font.clone())
        .axis_desc_style(font.clone())
        .x_desc(plot.x.replace('_', " "))
        .y_desc(plot.metric.replace('_', " "))
        // Workers and ports are whole numbers.
        .x_labels(if plot.log { 10 } else { numbers(lines).clamp(2, 10) })
        .x_label_formatter(&|v| crate::stats::short(*v))
        .y_label_formatter(&|v| crate::stats::short(*v))
        .draw()?;
    if let Some(kind) = plot.limit {
        let (from, to) = (chart.x_range().start, chart.x_range().end);
        let at = |n: u32| from + (to - from) * f64::from(n) / 200.0;
        let points = (0..=200).map(at).map(|x| (x, limit(kind, x))).filter(|(_, y)| *y <= top * 1.08);
        chart.draw_series(DashedLineSeries::new(points, 6, 4, INK.stroke_width(1)))?;
    }
    for (n, line) in lines.iter().enumerate() {
        let colour = LINES[n % LINES.len()];
        let points = line.points.iter().map(|(x, y, ..)| (*x, *y));
        // The colours that come round again are dashed and hollow, as in the legend.
        let (style, is_second) = (colour.stroke_width(2), n >= LINES.len());
        if is_second {
            chart.draw_series(DashedLineSeries::new(points.clone(), 6, 4, style))?;
        } else {
            chart.draw_series(LineSeries::new(points.clone(), style))?;
        }
        let point = if is_second { style } else { colour.filled() };
        chart.draw_series(points.clone().map(|at| Circle::new(at, 4, point)))?;
        let foreign = points.filter(|(x, _)| line.foreign.contains(x));
        let frame = |at| EmptyElement::at(at) + Rectangle::new([(-6, -6), (6, 6)], colour.stroke_width(1));
        chart.draw_series(foreign.map(frame))?;
        if plot.limit == Some(Limit::Offered)
            && let Some(at) = line.knee().and_then(Knee::at)
        {
            let marked = line.points.iter().filter(|point| point.0 == at);
            chart.draw_series(marked.map(|(x, y, ..)| Cross::new((*x, *y), 9, INK.stroke_width(2))))?;
        }
        let bars = line.points.iter().filter(|(_, y, low, high)| low < y || high > y);
        chart.draw_series(bars.map(|(x, _, low, high)| {
            PathElement::new(vec![(*x, *low), (*x, high.min(top * 1.08))], colour.stroke_width(1))
        }))?;
    }
    area.present()
}

/// How many places on the horizontal axis have points.
fn numbers(lines: &[Line]) -> usize {
    let mut all: Vec<f64> = lines.iter().flat_map(|line| line.points.iter().map(|p| p.0)).collect();
    all.sort_by(f64::total_cmp);
    all.dedup();
    all.len()
}

/// Replaces placeholder colours by those of classes, and lets the page scale a graph of this size.
pub fn recolour(svg: &str, (width, height): (u32, u32)) -> String {
    let mut text = svg.to_string();
    for n in 0..LINES.len() {
        text = text.replace(&format!("#01010{}", n + 1), &format!("var(--line{n})"));
    }
    text = text
        .replace("#020202", "var(--ink)")
        .replace("#020203", "var(--grid)")
        .replace("#020204", "var(--paper)");
    let head = format!("<svg width=\"{width}\" height=\"{height}\"");
    text.replace(&head, "<svg role=\"img\" preserveAspectRatio=\"xMidYMid meet\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::{Better, Metric};

    fn run() -> Run {
        let point = |switch: &str, flows: u32, cost: f64| {
            let mut point = Point { suite: "p2p".into(), switch: switch.into(), ..Point::default() };
            point.labels.insert("flows".into(), flows.to_string());
            let values = vec![cost, cost * 1.02];
            point.metrics.insert("cost".into(), Metric::new("cycles", Better::Lower, values));
            point
        };
        let points = vec![point("ours", 1_000, 70.0), point("ours", 1, 30.0), point("theirs", 1, 90.0)];
        Run { points, ..Run::default() }
    }

    #[test]
    fn a_graph_has_every_point_of_every_switch_in_the_page_s_colours() {
        let plot = Plot::new("t", "cost", "flows").log();
        let lines = lines(&plot, "p2p", &[run()]);
        let shape: Vec<_> = lines.iter().map(|l| (l.name.as_str(), l.points.len())).collect();
        assert_eq!(shape, [("ours", 2), ("theirs", 1)]);
        assert!(lines[0].points[0].0 < lines[0].points[1].0);
        let text = svg(&plot, &lines).unwrap();
        assert_eq!(text.matches("<circle").count(), 3);
        assert!(
            text.contains("var(--line1)") && !text.contains("#0101") && !text.contains("#0202"),
            "{text}"
        );
    }

    #[test]
    fn among_powers_zero_stands_left_of_one() {
        let mut run = run();
        run.points[0].labels.insert("flows".into(), "0".into());
        let plot = Plot::new("t", "cost", "flows").log();
        let first = |plot: &Plot| lines(plot, "p2p", std::slice::from_ref(&run))[0].points[0].0;
        assert_eq!((first(&plot), first(&Plot::new("t", "cost", "flows"))), (0.5, 0.0));
    }

    #[test]
    fn zeros_stand_on_the_axis_and_a_ninth_line_is_hollow() {
        let zero =
            |n: usize| Line { name: format!("{n}"), points: vec![(1.0, 0.0, 0.0, 0.0)], foreign: Vec::new() };
        let lines: Vec<Line> = (0..9).map(zero).collect();
        let plot = Plot::new("loss", "loss", "size");
        let svg = svg(&plot, &lines).unwrap();
        let points: Vec<&str> = svg.split("<circle ").skip(1).collect();
        let place = |name: &str| -> f64 {
            points[0].split(&format!("{name}=\"")).nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
        };
        assert!(place("cy") > f64::from(SIZE.1) / 2.0, "at the bottom: {}", points[0]);
        assert!(!points[7].contains("fill=\"none\"") && points[8].contains("fill=\"none\""), "{points:?}");
    }

    #[test]
    fn a_load_curve_has_a_cross_where_it_breaks_and_no_other_graph_has() {
        let points = vec![(1e4, 1e4, 1e4, 1e4), (2e4, 2e4, 2e4, 2e4), (5e4, 3e4, 3e4, 3e4)];
        let mut lines = [Line { name: "ours".into(), points, foreign: Vec::new() }];
        let of = |plot: &Plot, lines: &[Line], part: &str| svg(plot, lines).unwrap().matches(part).count();
        let strokes = |plot: &Plot| of(plot, &lines, "stroke-width=\"2\"");
        let plot = Plot::new("t", "rate_pps", "offered_pps");
        let (with, without) =
            (strokes(&Plot::new("t", "rate_pps", "offered_pps").limit(Limit::Offered)), strokes(&plot));
        assert_eq!(with, without + 2, "two strokes are a cross");
        // What the generator did not bring is no limit of the switch's, and the point is framed.
        let frames = of(&plot, &lines, "<rect");
        lines[0].foreign = vec![5e4];
        assert_eq!(of(&plot, &lines, "<rect"), frames + 1);
        assert_eq!(lines[0].knee(), Some(Knee::Above(2e4)));
    }

    #[test]
    fn no_graph_of_a_suite_has_two_lines_that_look_alike() {
        let dir = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench/runs");
        let dirs = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
        let runs = dirs.filter(|path| path.is_dir()).map(|path| crate::result::store::read(&path).unwrap());
        // As if one run had measured all of it.
        let all = [Run { points: runs.flat_map(|run| run.points).collect(), ..Run::default() }];
        // No committed run has these loads yet.
        let is_unmeasured = |plot: &Plot| {
            plot.title.starts_with("Packets per second as fast as they come while rules change")
                && !plot.title.ends_with(", 10,000 rules")
        };
        let mut wrong = Vec::new();
        for suite in crate::suite::list::suites() {
            for plot in suite.plots {
                let count = match plot.bars {
                    true => crate::report::bars::Bars::of(plot, suite.name, &all).series.len(),
                    false => lines(plot, suite.name, &all).len(),
                };
                if count > STYLES || (count == 0 && !is_unmeasured(plot)) {
                    wrong.push(format!("{}: {} has {count}", suite.name, plot.title));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    #[test]
    fn no_points_no_graph() {
        let plot = Plot::new("t", "cost", "flows");
        assert!(svg(&plot, &lines(&plot, "pvp", &[run()])).is_none());
    }

    #[test]
    fn ten_gigabit_carry_14_88_million_of_the_smallest_frames() {
        assert!((limit(Limit::TenGigabitPps, 64.0) - 14.88e6).abs() < 1e4);
    }
}
