//! bench/RESULTS.md, made from the committed runs in bench/runs: for every benchmark and its parameters the
//! newest figure, beside that of the peer measured in the same run.

use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::{fs, io};

/// Which way is better.
#[derive(Clone, Copy, PartialEq)]
enum Better {
    More,
    Less,
}
use Better::{Less, More};

/// A table: what is asked, the fields that tell its rows apart, and the figure.
struct Table {
    bench: &'static str,
    title: &'static str,
    /// Takes only rows with these values.
    only: &'static [(&'static str, Kind)],
    ids: &'static [&'static str],
    figure: &'static str,
    unit: &'static str,
    /// The figure is divided by this.
    divisor: f64,
    better: Better,
}

/// What a field must be.
enum Kind {
    Null,
    Number,
    Is(&'static str),
    /// Null, or not there at all, is not; anything else is.
    Present,
}

const MILLION: f64 = 1e6;

const fn table(
    bench: &'static str,
    title: &'static str,
    ids: &'static [&'static str],
    (figure, unit, divisor): (&'static str, &'static str, f64),
    better: Better,
) -> Table {
    Table { bench, title, only: &[], ids, figure, unit, divisor, better }
}

const TABLES: &[Table] = &[
    Table {
        only: &[("loss_allowed", Kind::Null), ("path", Kind::Present)],
        ..table(
            "pvp",
            "Through a guest",
            &["path", "guest", "size", "flows", "queues"],
            ("packets_per_cpu_second", "million packets per busy CPU second", MILLION),
            More,
        )
    },
    Table {
        only: &[("loss_allowed", Kind::Number)],
        ..table(
            "pvp",
            "Highest rate without loss, through a guest",
            &["path", "guest", "size", "flows"],
            ("mpps", "million packets per second", 1.0),
            More,
        )
    },
    table(
        "p2p",
        "Memory to memory",
        &["rules", "order", "flows"],
        ("cycles_per_packet", "cycles per packet, input and output included", 1.0),
        Less,
    ),
    table(
        "misses",
        "New flows",
        &["rules", "memory"],
        ("packets_per_cpu_second", "million flows per CPU second", MILLION),
        More,
    ),
    table(
        "conntrack",
        "Connection tracking",
        &["what", "rules", "connections"],
        ("packets_per_cpu_second", "million packets per CPU second", MILLION),
        More,
    ),
    Table {
        only: &[("exact_tier", Kind::Is("on"))],
        ..table(
            "masks",
            "Many masks",
            &["masks", "flows", "megaflows"],
            ("cycles_per_packet", "cycles per packet", 1.0),
            Less,
        )
    },
    table("churn", "Rules added and deleted under traffic", &["rules", "flows"], SHARE, More),
    table("replace", "All rules replaced under traffic", &["rules", "flows"], SHARE, More),
    table("expiry", "Idle flows expire under traffic", &["rules", "flows"], SHARE, More),
    table(
        "fairness",
        "Beside a port that misbehaves",
        &["what", "feeds"],
        ("kept_ratio", "share kept", 1.0),
        More,
    ),
    table("scale", "Two workers", &["load", "flows"], ("scaling", "times one worker", 1.0), More),
    Table {
        only: &[("added_us", Kind::Number)],
        ..table(
            "wake",
            "Waking a sleeping worker",
            &["what", "port_type"],
            ("added_us", "us above a bare wake", 1.0),
            Less,
        )
    },
    Table {
        only: &[("cpu_share", Kind::Number)],
        ..table("wake", "An idle switch", &["port_type"], ("cpu_share", "% of a processor", 0.01), Less)
    },
    table(
        "afxdp",
        "AF_XDP and its rivals",
        &["switch", "port_type", "offered_per_s"],
        ("own_cycles_per_packet", "cycles of the switch's threads per packet", 1.0),
        Less,
    ),
    table(
        "ports",
        "Idle ports",
        &["ports", "idle_type"],
        ("ratio_to_two", "cost relative to two ports", 1.0),
        Less,
    ),
    table("ports-config", "Ports configured", &["kind", "ports"], ("all_ms", "ms for all", 1.0), Less),
    table(
        "memory",
        "Memory",
        &["rules", "flows"],
        ("rss_of_switch_bytes", "million bytes resident", MILLION),
        Less,
    ),
    table("counts", "Counters of active flows", &["flows"], ("longest_wait_ms", "ms until exact", 1.0), Less),
    table("load-rules", "Rules loaded by ovs-ofctl", &["rules"], ("seconds", "s", 1.0), Less),
    Table {
        only: &[("unit", Kind::Is("/s"))],
        ..table("ovsdb", "Database: rates", &["what", "n"], ("value", "per second", 1.0), More)
    },
    Table {
        only: &[("unit", Kind::Is("ms"))],
        ..table("ovsdb", "Database: times", &["what", "n"], ("value", "ms", 1.0), Less)
    },
];

const SHARE: (&str, &str, f64) = ("throughput_ratio", "share of steady throughput", 1.0);

/// A benchmark's file, read.
struct Run {
    directory: String,
    /// When it was measured, as its machine.txt says.
    date: String,
    /// Its place among the commands of that run.
    place: usize,
    bench: String,
    rows: Vec<Value>,
}

/// The text of bench/RESULTS.md.
pub fn markdown(root: &Path) -> io::Result<String> {
    let mut runs = read(&root.join("bench/runs"))?;
    runs.sort_by(|a, b| (&a.date, &a.directory, a.place).cmp(&(&b.date, &b.directory, b.place)));
    let mut out = String::from(
        "# Results\n\nMade by `cargo run -p tidy --bin bench-results` from the committed runs: do not edit. Each row is \
         the\nnewest measurement with these parameters, the median of its turns. *Peer* was measured in the same \
         run, in\nturns; *ratio* is above 1 where Crosspoint is better. [README.md](README.md) says how to measure \
         and what the\nparameters mean; `machine.txt` of each run has processor, kernel and versions.\n",
    );
    for table in TABLES {
        write_table(&mut out, table, &runs);
    }
    Ok(out)
}

fn write_table(out: &mut String, table: &Table, runs: &[Run]) {
    // By parameters; what is read later is newer and replaces.
    let mut newest: BTreeMap<Vec<Id>, String> = BTreeMap::new();
    for run in runs.iter().filter(|run| run.bench == table.bench) {
        let rows: Vec<&Value> = run.rows.iter().filter(|row| is_wanted(table, row)).collect();
        for row in rows.iter().filter(|row| table.ids.contains(&"switch") || is_ours(row)) {
            let Some(figure) = figure(table, row) else { continue };
            let ids: Vec<Id> = table.ids.iter().map(|field| Id::of(&row[*field])).collect();
            let peer = rows.iter().find(|other| {
                !table.ids.contains(&"switch")
                    && is_peer(other)
                    && table.ids.iter().all(|field| other[*field] == row[*field])
            });
            newest.insert(ids, line(table, run, row, figure, peer.copied()));
        }
    }
    if newest.is_empty() {
        return;
    }
    let ids: Vec<String> = table.ids.iter().map(|id| id.replace('_', " ")).collect();
    let _ = write!(out, "\n## {}\n\nIn {} (`bench {}`).\n\n", table.title, table.unit, table.bench);
    let _ = writeln!(out, "| {} | Crosspoint | peer | ratio | turns | run |", ids.join(" | "));
    let _ = writeln!(out, "|{}---:|---:|---:|---:|---|", "---|".repeat(table.ids.len()));
    for (ids, line) in newest {
        let ids: Vec<&str> = ids.iter().map(|id| id.text.as_str()).collect();
        let _ = writeln!(out, "| {} | {line} |", ids.join(" | "));
    }
}

fn line(table: &Table, run: &Run, row: &Value, figure: f64, peer: Option<&Value>) -> String {
    let theirs = peer.and_then(|peer| Some((name(peer), self::figure(table, peer)?)));
    let (peer, ratio) = match theirs {
        Some((name, value)) => {
            let ratio = if table.better == More { figure / value } else { value / figure };
            (format!("{} ({name})", short(value)), format!("{ratio:.2}"))
        }
        None => (String::new(), String::new()),
    };
    let runs = row["runs"].as_u64().unwrap_or(1);
    format!(
        "{} | {peer} | {ratio} | {runs} | [{dir}](runs/{dir}/machine.txt)",
        short(figure),
        dir = run.directory
    )
}

fn is_wanted(table: &Table, row: &Value) -> bool {
    table.only.iter().all(|(field, kind)| {
        let value = &row[*field];
        match kind {
            Kind::Null => value.is_null(),
            Kind::Number => value.is_number(),
            Kind::Present => !value.is_null(),
            Kind::Is(text) => value.as_str() == Some(text),
        }
    })
}

fn name(row: &Value) -> &str {
    row["switch"].as_str().or(row["server"].as_str()).unwrap_or_default()
}

fn is_ours(row: &Value) -> bool {
    name(row) == "crosspoint"
}

fn is_peer(row: &Value) -> bool {
    matches!(name(row), "ovs-dpdk" | "ovs-vswitchd" | "ovsdb-server")
}

fn figure(table: &Table, row: &Value) -> Option<f64> {
    row[table.figure].as_f64().map(|value| value / table.divisor)
}

/// Three digits, which is more than the turns bound.
fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => thousands(value.round() as i64),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: i64) -> String {
    let digits = value.abs().to_string();
    let mut out = String::new();
    for (idx, digit) in digits.chars().enumerate() {
        if idx > 0 && (digits.len() - idx).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    if value < 0 { format!("-{out}") } else { out }
}

/// A parameter, ordered by number where it is one.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Id {
    number: u64,
    text: String,
}

impl Id {
    fn of(value: &Value) -> Id {
        match value {
            Value::Number(number) => {
                let number = number.as_u64().unwrap_or_default();
                Id { number, text: thousands(number as i64) }
            }
            Value::String(text) => Id { number: 0, text: text.clone() },
            _ => Id { number: 0, text: String::new() },
        }
    }
}

fn read(runs: &Path) -> io::Result<Vec<Run>> {
    let mut found = Vec::new();
    for directory in fs::read_dir(runs)? {
        let directory = directory?;
        let name = directory.file_name().to_string_lossy().into_owned();
        if !directory.file_type()?.is_dir() {
            continue;
        }
        let machine = fs::read_to_string(directory.path().join("machine.txt")).unwrap_or_default();
        let date = machine.lines().find_map(|line| line.strip_prefix("date: "));
        let date = date.and_then(|date| date.split_whitespace().next()).unwrap_or(&name).to_owned();
        let commands = fs::read_to_string(directory.path().join("commands.txt")).unwrap_or_default();
        for file in fs::read_dir(directory.path())? {
            let path = file?.path();
            if path.extension().is_none_or(|end| end != "json") {
                continue;
            }
            let json: Value = serde_json::from_str(&fs::read_to_string(&path)?).map_err(io::Error::other)?;
            // With another priority it is another measurement.
            if json["command"].as_str().is_some_and(|command| command.contains("--nice")) {
                continue;
            }
            let file = format!("/{}", path.file_name().unwrap_or_default().to_string_lossy());
            let place = commands.find(&file).unwrap_or_default();
            let words = json["command"].as_str().unwrap_or_default().split(' ');
            let bench = words.skip_while(|word| *word != "bench").nth(1).unwrap_or_default().to_owned();
            let rows = json["rows"].as_array().cloned().unwrap_or_default();
            found.push(Run { directory: name.clone(), date: date.clone(), place, bench, rows });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_newest_row_is_shown_with_its_peer_and_the_ratio() {
        let row = |switch: &str, cost: f64| json!({"switch": switch, "rules": "exact", "order": "shuffled", "flows": 10_000, "cycles_per_packet": cost, "runs": 5});
        let run = |directory: &str, rows| Run {
            directory: directory.into(),
            date: directory.into(),
            place: 0,
            bench: "p2p".into(),
            rows,
        };
        let runs = [
            run("old", vec![row("crosspoint", 90.0)]),
            run("new", vec![row("crosspoint", 68.0), row("ovs-dpdk", 427.0)]),
        ];
        let mut out = String::new();
        let p2p = TABLES.iter().find(|table| table.bench == "p2p").unwrap();
        write_table(&mut out, p2p, &runs);
        let expected = "| exact | shuffled | 10,000 | 68.0 | 427 (ovs-dpdk) | 6.28 | 5 | [new](runs/new/machine.txt) |\n";
        assert!(out.ends_with(expected), "{out}");
        assert!(!out.contains("[old]"), "{out}");
    }

    #[test]
    fn figures_have_three_digits() {
        let texts = [0.1234, 1.234, 12.34, 123.4, 1_234_567.0].map(short);
        assert_eq!(texts, ["0.123", "1.23", "12.3", "123", "1,234,567"]);
    }
}
