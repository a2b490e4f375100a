//! The rows that measurements write (`crosspoint bench NAME --json FILE`), read as points: today's files and
//! those of committed runs, whose older rows have fewer fields.
//!
//! A field that [`FIGURES`] names is a figure; any other string, number or truth value is a label. `raw`
//! holds the turns of the measurement's first figure, `raw_FIGURE` those of another one.

use super::account::Account;
use super::judged::{Judged, Question};
use super::{BATCH, Better, HUGE_PAGES, Metric, Point};
use crate::machine::conditions::BURST;
use crate::machine::fingerprint::Fingerprint;
use crate::machine::watch::Watched;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use Better::{Higher, Lower, Neither};

/// Fields that are figures, with their unit and better direction.
pub(super) const FIGURES: &[(&str, &str, Better)] = &[
    ("added_us", "us", Lower),
    ("all_ms", "ms", Lower),
    ("alone_cycles_per_packet", "cycles", Lower),
    ("alone_packets_per_s", "1/s", Higher),
    ("background_share", "ratio", Neither),
    ("bare_wake_us", "us", Neither),
    ("beside_packets_per_s", "1/s", Higher),
    ("bytes_per_cached_flow", "bytes", Lower),
    ("bytes_per_rule", "bytes", Lower),
    ("cached_masks", "masks", Neither),
    ("cached_megaflows", "flows", Neither),
    ("cpu_guest", "processors", Neither),
    ("cpu_share", "processors", Lower),
    ("cpu_switch", "processors", Neither),
    ("cycles_per_packet", "cycles", Lower),
    ("dropped_per_s", "1/s", Neither),
    ("echo_max_ms", "ms", Lower),
    ("echo_p99_ms", "ms", Lower),
    ("effect_p99_us", "us", Lower),
    ("effect_us", "us", Lower),
    ("emc_hit_ratio", "ratio", Neither),
    ("exact_entries", "flows", Neither),
    ("first_level_misses_per_packet", "misses", Lower),
    ("flow_mods_made_per_s", "1/s", Higher),
    ("gone_ms", "ms", Lower),
    ("instructions_per_packet", "instructions", Lower),
    ("io_cycles_per_packet", "cycles", Neither),
    ("kept_ratio", "ratio", Higher),
    ("kernel_ms", "ms", Neither),
    ("last_level_misses_per_packet", "misses", Lower),
    ("learned_per_s", "1/s", Higher),
    ("learned_ratio", "ratio", Higher),
    ("longest_pass_ms", "ms", Lower),
    ("longest_wait_ms", "ms", Lower),
    ("loss", "ratio", Lower),
    ("loss_ratio", "ratio", Lower),
    ("machine_cycles_per_packet", "cycles", Lower),
    ("machine_cycles_per_packet_with_generator", "cycles", Lower),
    ("megaflow_hit_ratio", "ratio", Neither),
    ("miss_ratio", "ratio", Neither),
    ("mpps", "Mpps", Higher),
    ("new_flow_cycles", "cycles", Lower),
    ("new_flows_per_s", "1/s", Neither),
    ("one_ms", "ms", Lower),
    ("opened_ratio", "ratio", Higher),
    ("own_cycles_per_packet", "cycles", Lower),
    ("packets", "packets", Neither),
    ("packets_per_cpu_second", "1/s", Higher),
    ("packets_per_s", "1/s", Higher),
    ("packets_per_wall_second", "1/s", Higher),
    ("peak_rss_bytes", "bytes", Lower),
    ("pool_bytes", "bytes", Neither),
    ("ratio", "ratio", Lower),
    ("ratio_to_kernel", "ratio", Lower),
    ("ratio_to_one", "ratio", Higher),
    ("ratio_to_stateless", "ratio", Higher),
    ("ratio_to_two", "ratio", Lower),
    ("reading_packets_per_s", "1/s", Higher),
    ("received_per_s", "1/s", Higher),
    ("refused_ratio", "ratio", Neither),
    ("rss_after_bytes", "bytes", Lower),
    ("rss_at_start_bytes", "bytes", Neither),
    ("rss_before_bytes", "bytes", Neither),
    ("rss_of_switch_bytes", "bytes", Lower),
    ("rss_with_flows_bytes", "bytes", Lower),
    ("rss_with_rules_bytes", "bytes", Lower),
    ("rules_per_second", "1/s", Higher),
    ("scaling", "ratio", Higher),
    ("seconds", "s", Lower),
    ("source_cycles_per_packet", "cycles", Neither),
    ("steady_cycles_per_packet", "cycles", Lower),
    ("steady_longest_pass_ms", "ms", Neither),
    ("stopped_packets_per_s", "1/s", Higher),
    ("switch_cpu_seconds", "s", Lower),
    ("throughput_ratio", "ratio", Higher),
    ("time_ratio_to_bridge", "ratio", Lower),
    ("time_ratio_to_ip_forward", "ratio", Lower),
    ("time_ratio_to_veth", "ratio", Lower),
    ("wait_ms", "ms", Lower),
    ("wake_us", "us", Lower),
    ("wall_cycles_per_packet", "cycles", Lower),
    ("worst_window_ratio", "ratio", Higher),
];

/// Those by which switches are judged.
pub const JUDGED: &[Judged] = &[
    Judged::new(Question::Cost, "switching_cycles_per_packet", "cost of switching a packet"),
    Judged::new(Question::Cost, "machine_cycles_per_packet", "cost of a packet to the machine"),
    Judged::new(Question::Cost, "cycles_per_packet", "cost of a packet to the switch"),
    Judged::new(
        Question::Cost,
        "machine_cycles_per_packet_with_generator",
        "cost of a packet to the machine, generator included",
    ),
    Judged::new(Question::Rate, "mpps", "packets per second"),
    Judged::new(Question::Rate, "packets_per_s", "packets per second"),
    Judged::new(Question::Rate, "learned_per_s", "addresses learned per second"),
    Judged::new(Question::Time, "effect_us", "time until a rule has effect"),
    Judged::new(Question::Time, "seconds", "time"),
    Judged::new(Question::Own, "bytes_per_rule", "memory of a rule"),
    Judged::new(Question::Own, "bytes_per_cached_flow", "memory of a cached flow"),
    Judged::new(Question::Own, "flow_mods_made_per_s", "flow-mods per second"),
    Judged::new(Question::Own, "echo_p99_ms", "p99 of the wait of others meanwhile"),
    Judged::new(Question::Own, "value", "transactions, delays and memory of the database"),
];

/// Each measurement's suite and the figure whose turns `raw` holds.
const MEASUREMENTS: &[(&str, &str, &str)] = &[
    ("p2p", "p2p", "cycles_per_packet"),
    ("pvp", "pvp", "cycles_per_packet"),
    ("misses", "misses", "packets_per_cpu_second"),
    ("masks", "masks", "cycles_per_packet"),
    ("ports", "ports-and-batches", "cycles_per_packet"),
    ("ports-config", "ports-config", ""),
    ("churn", "coupling", "throughput_ratio"),
    ("replace", "flow-mod", "throughput_ratio"),
    ("expiry", "expiry", "throughput_ratio"),
    ("fairness", "fairness", "kept_ratio"),
    ("collide", "collide", "cycles_per_packet"),
    ("memory", "memory", ""),
    ("cache-misses", "flows-and-caches", ""),
    ("counts", "counts", "wait_ms"),
    ("load-rules", "load-rules", "seconds"),
    ("ovsdb", "ovsdb", "value"),
    ("afxdp", "io-loop", "machine_cycles_per_packet_with_generator"),
    ("wake", "wake", "added_us"),
    ("scale", "cores", "scaling"),
    ("core-grid", "cores", "ratio_to_one"),
    ("ablation", "ablation", "cycles_per_packet"),
    ("pinning", "pinning", "cycles_per_packet"),
    ("mac-learning", "mac-learning", "cycles_per_packet"),
    ("learned-rules", "mac-learning", ""),
    ("rule-to-effect", "rule-to-effect", "effect_us"),
    ("flow-mods", "flow-mod", "flow_mods_made_per_s"),
    ("explosion", "masks", "kept_ratio"),
    ("conntrack", "conntrack", "packets_per_cpu_second"),
    ("flood", "conntrack", "kept_ratio"),
    ("kernel-datapath", "kernel-datapath", "packets_per_s"),
];

/// Suites of measurements in which packets cross Crosspoint and Open vSwitch.
const PACKETS_OF_BOTH: &[&str] = &["p2p", "pvp", "conntrack", "prefix-vs-exact", "mac-learning"];
/// Packets that Crosspoint received at once in measurements of before 2026-11-29, which do not tell: Open
/// vSwitch never received more than [`BURST`].
const OWN_BATCH_BEFORE: usize = 64;

/// A file as a measurement writes it.
#[derive(Deserialize)]
pub struct RowFile {
    /// As typed.
    pub command: String,
    /// The machine.
    #[serde(default)]
    pub machine: Fingerprint,
    /// By switch. Older files lack it.
    #[serde(default)]
    huge_pages: BTreeMap<String, String>,
    /// By switch. Files of before 2026-11-29 lack it.
    #[serde(default)]
    batch: BTreeMap<String, usize>,
    rows: Vec<Map<String, Value>>,
}

impl RowFile {
    /// Reads a file's text.
    pub fn parse(text: &str) -> Result<RowFile, String> {
        serde_json::from_str(text).map_err(|e| format!("no rows of a benchmark: {e}"))
    }

    /// Its rows as points of the suite that the measurement belongs to.
    pub fn points(&self) -> Result<Vec<Point>, String> {
        let mut words = self.command.split_whitespace().skip_while(|word| *word != "bench").skip(1);
        let name = words.next().unwrap_or_default();
        let Some((_, suite, first)) = MEASUREMENTS.iter().find(|(measurement, ..)| *measurement == name)
        else {
            return Err(format!("the command of its rows is not a known benchmark: {}", self.command));
        };
        Ok(self.rows.iter().map(|row| self.point(suite, first, row)).collect())
    }

    fn point(&self, suite: &str, first: &str, row: &Map<String, Value>) -> Point {
        let mut point = Point { suite: suite.to_string(), command: self.command.clone(), ..Point::default() };
        let unit = row.get("unit").and_then(Value::as_str);
        for (field, value) in row {
            let figure = FIGURES.iter().find(|(name, ..)| name == field);
            match (figure, value) {
                (Some((_, unit, better)), Value::Number(n)) => {
                    let values = vec![n.as_f64().unwrap_or(f64::NAN)];
                    point.metrics.insert(field.clone(), Metric::new(unit, *better, values));
                }
                (None, Value::Number(n)) if field == "value" => {
                    let unit = unit.unwrap_or_default();
                    let values = vec![n.as_f64().unwrap_or(f64::NAN)];
                    point.metrics.insert(field.clone(), Metric::new(unit, better_of_unit(unit), values));
                }
                (None, Value::String(text)) if field == "switch" || field == "server" => {
                    point.switch = text.clone();
                }
                (None, Value::String(limit)) if field == "limit" => {
                    point.limit = Some(limit.clone());
                }
                (None, Value::Bool(true)) if field == "void" => {
                    point.limit = Some("the guest or the generator".into());
                }
                (None, Value::Bool(true)) if field == "shares_processor" => {
                    point.limit = Some("a processor that two workers share".into());
                }
                (None, Value::Object(_)) if field == "account" => {
                    point.account = Account::deserialize(value).ok();
                }
                (None, Value::Object(_)) if field == "watched" => {
                    point.watched = Watched::deserialize(value).ok();
                    point.warnings.extend(point.watched.and_then(|watched| watched.warning()));
                }
                (None, Value::String(text)) => {
                    point.labels.insert(field.clone(), text.clone());
                }
                (None, Value::Number(n)) if field != "runs" && field != "value" => {
                    point.labels.insert(field.clone(), n.to_string());
                }
                _ => {}
            }
        }
        self.turns(first, row, &mut point);
        // Rows of before 2026-11-28 also have what a dump or a deletion took, divided by the rules.
        let changes =
            point.labels.get("what").is_some_and(|what| !["add", "bundle"].contains(&what.as_str()));
        if suite == "load-rules" && changes {
            point.metrics.remove("bytes_per_rule");
        }
        switching_cost(row, &mut point);
        // Equal in every switch, which the measurement ensures.
        point.conditions = conditions(suite);
        if self.batch.is_empty() || !self.is_of_control() {
            let (pages, batch) = (self.huge_pages.get(&point.switch), self.batch.get(&point.switch));
            point.conditions.extend(pages.map(|taken| (HUGE_PAGES.into(), taken.clone())));
            point.conditions.extend(batch.map(|packets| (BATCH.into(), packets.to_string())));
            // As it was read before batches were noted.
            if pages.is_none() && !self.huge_pages.is_empty() && self.batch.is_empty() {
                point.inherent.insert(HUGE_PAGES.into(), "takes none".into());
            }
        }
        if self.batch.is_empty() && PACKETS_OF_BOTH.contains(&suite) {
            // It was not noted, and differed.
            let batch = if point.switch.starts_with("crosspoint") { OWN_BATCH_BEFORE } else { BURST };
            point.inherent.insert(BATCH.into(), batch.to_string());
        }
        if suite == "pvp" {
            // Rows from before the path could be chosen.
            point.labels.entry("path".into()).or_insert("loopback".into());
            point.conditions.insert("guest".into(), point.labels.get("guest").cloned().unwrap_or_default());
        }
        point
    }

    /// Whether no packet crosses the switches: what they have for packets is then no condition.
    fn is_of_control(&self) -> bool {
        self.rows.iter().any(|row| row.get("switch").and_then(Value::as_str) == Some("ovs-vswitchd"))
    }

    /// Replaces the median by the turns.
    fn turns(&self, first: &str, row: &Map<String, Value>, point: &mut Point) {
        let first = if point.metrics.contains_key(first) { first } else { "cpu_share" };
        for (field, turns) in row {
            let (Some(of), Value::Array(turns)) = (field.strip_prefix("raw"), turns) else { continue };
            let figure = match of.strip_prefix('_').unwrap_or(of) {
                "" => first,
                "io" => "io_cycles_per_packet",
                "cycles" => "cycles_per_packet",
                "stateless" => "ratio_to_stateless",
                figure => figure,
            };
            let turns: Option<Vec<f64>> = turns.iter().map(Value::as_f64).collect();
            // A turn without packets has no cost; then the median alone is kept.
            if let (Some(turns), Some(metric)) = (turns, point.metrics.get_mut(figure)) {
                metric.values = turns;
            }
        }
    }
}

/// What the same source and sink cost with no switch between is subtracted turn by turn.
fn switching_cost(row: &Map<String, Value>, point: &mut Point) {
    let of = |name: &str| point.metrics.get(name).map(|m| m.values.clone());
    let (Some(all), Some(io)) = (of("cycles_per_packet"), of("io_cycles_per_packet")) else { return };
    // The row of the ports alone has no switch in it.
    if row.get("switch").and_then(Value::as_str) == Some("testpmd") {
        return;
    }
    let values = if all.len() == io.len() {
        all.iter().zip(&io).map(|(all, io)| all - io).collect()
    } else {
        let io = crate::stats::median(&io);
        all.iter().map(|all| all - io).collect()
    };
    point.metrics.insert("switching_cycles_per_packet".into(), Metric::new("cycles", Lower, values));
}

fn better_of_unit(unit: &str) -> Better {
    match unit {
        // A count describes the load.
        "" => Neither,
        unit if unit.ends_with("/s") => Higher,
        _ => Lower,
    }
}

fn conditions(suite: &str) -> BTreeMap<String, String> {
    let pairs: &[(&str, &str)] = match suite {
        "p2p" | "conntrack" => &[("workers", "1"), ("queues", "1"), ("mtu", "1500"), ("offloads", "off")],
        "pvp" => {
            &[("workers", "1"), ("queues", "1"), ("descriptors", "256"), ("mtu", "1500"), ("offloads", "off")]
        }
        _ => &[],
    };
    pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// Fractions that describe what was measured.
    const FRACTIONS_AS_LABELS: &[&str] = &["loss_allowed"];

    /// The fields of the rows in a measurement's source that are fractions.
    fn fractions(source: &str) -> Vec<String> {
        let rows = source.split("Serialize").skip(1).filter_map(|rest| rest.split_once("struct "));
        let bodies = rows.filter_map(|(_, rest)| rest.split_once('{')?.1.split_once("\n}"));
        let fields =
            bodies.flat_map(|(body, _)| body.lines()).filter_map(|line| line.trim().split_once(": "));
        let fractions = fields.filter(|(_, kind)| matches!(*kind, "f64," | "Option<f64>,"));
        fractions.map(|(name, _)| name.trim_start_matches("pub ").to_string()).collect()
    }

    #[test]
    fn every_fraction_of_a_row_is_a_figure_and_splits_no_points() {
        let (mut seen, mut rest) = (0, vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/measure")]);
        while let Some(path) = rest.pop() {
            if path.is_dir() {
                rest.extend(path.read_dir().unwrap().map(|entry| entry.unwrap().path()));
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for field in fractions(&source) {
                let is_known = FIGURES.iter().any(|(name, ..)| *name == field) || field == "value";
                let is_label = FRACTIONS_AS_LABELS.contains(&&*field);
                assert!(is_known || is_label, "{}: {field} is a label unless FIGURES has it", path.display());
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen}");
    }

    #[test]
    fn rows_become_points_with_their_turns() {
        let file = RowFile::parse(
            r#"{"command": "crosspoint bench p2p --runs 2", "machine": {"cpus": 2}, "rows": [
                {"switch": "crosspoint", "rules": "exact", "flows": 10, "cycles_per_packet": 70, "io_cycles_per_packet": 9,
                 "miss_ratio": 0.2, "runs": 2, "raw": [69, 71], "raw_io": [8, 10], "raw_miss_ratio": [0.1, 0.3]},
                {"switch": "testpmd", "cycles_per_packet": 9, "io_cycles_per_packet": 9}]}"#,
        )
        .unwrap();
        let points = file.points().unwrap();
        let point = &points[0];
        assert_eq!((point.suite.as_str(), point.load().as_str()), ("p2p", "flows=10 rules=exact"));
        assert_eq!(point.metrics["cycles_per_packet"].values, [69.0, 71.0]);
        assert_eq!(point.metrics["switching_cycles_per_packet"].values, [61.0, 61.0]);
        assert_eq!(point.metrics["miss_ratio"].values, [0.1, 0.3]);
        assert!(!points[1].metrics.contains_key("switching_cycles_per_packet"));
        assert!(RowFile::parse("{}").is_err());
    }

    #[test]
    fn a_row_whose_turns_were_disturbed_says_so_and_the_others_do_not() {
        let watched = |steal| format!(r#"{{"seconds": 2, "steal": {steal}, "busy": 0.5, "preemptions": 9}}"#);
        let row = |steal| format!(r#"{{"switch": "crosspoint", "watched": {}}}"#, watched(steal));
        let rows = [row(0.2), row(0.0), r#"{"switch": "crosspoint"}"#.into()].join(",");
        let text = format!(r#"{{"command": "x bench p2p", "rows": [{rows}]}}"#);
        let points = RowFile::parse(&text).unwrap().points().unwrap();
        assert!(points[0].warnings[0].contains("20.0 %") && points[0].watched.unwrap().preemptions == 9);
        assert!(points[1].warnings.is_empty() && points[1].watched.unwrap().seconds == 2.0);
        assert!(points[2].watched.is_none() && points.iter().all(|point| point.labels.is_empty()));
    }

    #[test]
    fn huge_pages_and_batches_are_conditions_where_they_were_noted() {
        let text =
            r#"{"command": "x bench p2p", NOTED "rows": [{"switch": "crosspoint"}, {"switch": "ovs"}]}"#;
        let points = |noted: &str| RowFile::parse(&text.replace("NOTED", noted)).unwrap().points().unwrap();
        let new = points(r#""huge_pages": {"crosspoint": "2 MB"},"#);
        assert_eq!(new[0].conditions["huge pages"], "2 MB");
        assert_eq!(new[1].inherent["huge pages"], "takes none");
        let newest = points(r#""huge_pages": {"crosspoint": "2 MB"}, "batch": {"crosspoint": 32},"#);
        assert_eq!((&*newest[0].conditions["batch"], &*newest[0].conditions["huge pages"]), ("32", "2 MB"));
        assert!(newest[1].inherent.is_empty() && !newest[1].conditions.contains_key("huge pages"));
        // Where it was not noted, Open vSwitch had its own, and Crosspoint twice that.
        let old = points("");
        assert!(old.iter().all(|p| !p.conditions.contains_key("huge pages")));
        assert_eq!((&*old[0].inherent["batch"], &*old[1].inherent["batch"]), ("64", "32"));
    }

    #[test]
    fn a_measurement_that_the_guest_limited_says_so() {
        let text = r#"{"command": "x bench pvp", "rows": [{"switch": "crosspoint", "void": true, "mpps": 4, "raw": [null]}]}"#;
        let point = RowFile::parse(text).unwrap().points().unwrap().remove(0);
        assert!(!point.is_of_switch());
        assert_eq!(point.labels["path"], "loopback");
        assert!(point.account.is_none());
        let text = r#"{"command": "x bench pvp", "rows": [
            {"account": {"offered": 9, "received": 5, "dropped": {"guest: not sent back": 3}, "copies": 1}}]}"#;
        let point = RowFile::parse(text).unwrap().points().unwrap().remove(0);
        assert_eq!(point.account.unwrap().unexplained(), 1);
        let text = r#"{"command": "x bench kernel-datapath", "rows": [{"switch": "bridge", "limit": "a sink", "loss": 0.7}]}"#;
        let point = RowFile::parse(text).unwrap().points().unwrap().remove(0);
        assert_eq!((point.limit.as_deref(), point.metrics["loss"].values[0]), (Some("a sink"), 0.7));
        assert!(point.labels.is_empty());
    }

    #[test]
    fn what_a_switch_takes_for_a_dump_is_no_memory_of_a_rule() {
        let rows = ["add", "dump"].map(|what| {
            format!(r#"{{"switch": "crosspoint", "what": "{what}", "seconds": 1, "bytes_per_rule": 300}}"#)
        });
        let text = format!(r#"{{"command": "x bench load-rules", "rows": [{}]}}"#, rows.join(","));
        let points = RowFile::parse(&text).unwrap().points().unwrap();
        let told: Vec<bool> = points.iter().map(|p| p.metrics.contains_key("bytes_per_rule")).collect();
        assert_eq!(told, [true, false]);
    }

    #[test]
    fn rows_of_an_unknown_command_are_refused() {
        let file = RowFile::parse(r#"{"command": "crosspoint bench juggle", "rows": []}"#).unwrap();
        assert!(file.points().unwrap_err().contains("juggle"));
    }
}
