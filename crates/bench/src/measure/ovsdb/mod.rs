//! The database server compared with the stock `ovsdb-server`: transactions per second, how long a change
//! takes to reach all monitors, starting with a large file, memory, and the longest pause while the file is
//! compacted.
//!
//! Both servers get the same requests over a Unix socket, in turns, from a client that only counts replies;
//! time is wall time, since that is what clients wait for.

mod client;
mod large_file;
mod server;

use crate::goals;
use crate::machine::turns::turn as watched_turn;
use crate::measure::rows::Rows;
use crate::measure::trial::{Common, Goals};
use crate::stats::median;
use crate::units::up_to;
use client::Client;
use large_file::write_large_file;
use serde_json::{Value, json};
use server::{Kind, Server};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

/// Rows that the small transactions change.
const TARGETS: usize = 1000;
/// Transactions that the pipelining client has out at any time.
const WINDOW: usize = 64;
/// Changes that monitors wait for in a turn.
const CHANGES: usize = 100;

/// Arguments.
#[derive(clap::Args)]
pub struct Args {
    /// Measure the stock ovsdb-server as well.
    #[arg(long, value_name = "SERVER", value_parser = ["ovsdb-server"])]
    peer: Option<String>,
    /// Only these questions.
    #[arg(long, value_delimiter = ',', value_parser = ["transactions", "monitors", "start", "compaction"],
          default_value = "transactions,monitors,start,compaction")]
    what: Vec<String>,
    /// Clients that send one transaction after the other, beside the single one that pipelines.
    #[arg(long, value_parser = up_to::<500>, default_value = "8")]
    clients: usize,
    /// Numbers of monitors.
    #[arg(long, value_delimiter = ',', value_parser = up_to::<500>, default_value = "1,100,500")]
    monitors: Vec<usize>,
    /// Interface rows in the large file, each with a port.
    #[arg(long, value_parser = up_to::<1_000_000>, default_value = "100k")]
    rows: usize,
    /// The servers' niceness: -10 is what ovs-ctl gives each, so that their clients do not interrupt them at
    /// each reply.
    #[arg(long, value_name = "LEVEL", default_value = "0", allow_hyphen_values = true,
          value_parser = clap::value_parser!(i32).range(-20..=19))]
    nice: i32,
    #[command(flatten)]
    common: Common,
}

#[derive(serde::Serialize)]
struct Row {
    server: &'static str,
    /// The question.
    what: &'static str,
    /// Clients, monitors or rows, as the question has it.
    n: usize,
    unit: &'static str,
    value: f64,
    runs: u32,
    /// Each turn's value.
    raw: Vec<f64>,
}

struct Bench<'a> {
    args: &'a Args,
    kinds: Vec<Kind>,
    rows: Rows<Row>,
    goals: Goals,
}

/// Runs it.
pub fn run(args: &Args) -> Result<(), String> {
    let mut kinds = vec![Kind::Ours];
    kinds.extend(args.peer.is_some().then_some(Kind::Stock));
    let mut bench = Bench { args, kinds, rows: Rows::default(), goals: Goals::default() };
    for what in &args.what {
        match what.as_str() {
            "transactions" => bench.transactions()?,
            "monitors" => bench.monitors()?,
            "start" => bench.start()?,
            _ => bench.compaction()?,
        }
    }
    args.common.finish(bench.rows, bench.goals)
}

/// The results of a turn of one server, one per figure.
type Figures = Vec<f64>;

impl Bench<'_> {
    /// Measures each server in turns: for each figure the values of each server.
    fn in_turns<S>(
        &self,
        mut servers: Vec<S>,
        mut turn: impl FnMut(&mut S) -> Result<Figures, String>,
    ) -> Result<Vec<Vec<Vec<f64>>>, String> {
        let mut values: Vec<Vec<Figures>> = vec![Vec::new(); servers.len()];
        for _ in 0..self.args.common.runs {
            for ((server, kind), values) in servers.iter_mut().zip(&self.kinds).zip(&mut values) {
                values.push(watched_turn(kind.name(), || turn(server))?);
            }
        }
        let figures = values[0][0].len();
        let of =
            |figure: usize| values.iter().map(|runs| runs.iter().map(|run| run[figure]).collect()).collect();
        Ok((0..figures).map(of).collect())
    }

    /// Stores and prints the figures of all servers, and the ratio of ours to the stock's if there is one.
    fn keep(
        &mut self,
        what: &'static str,
        n: usize,
        unit: &'static str,
        values: &[Vec<f64>],
    ) -> Option<Vec<f64>> {
        for (kind, raw) in self.kinds.iter().zip(values) {
            let value = median(raw);
            println!("{:<13} {what}, {n}: {value:.3} {unit}", kind.name());
            let runs = raw.len() as u32;
            self.rows.push(Row { server: kind.name(), what, n, unit, value, runs, raw: raw.clone() });
        }
        let stock = values.get(1)?;
        Some(values[0].iter().zip(stock).map(|(ours, theirs)| ours / theirs).collect())
    }

    fn servers_with_targets(&self) -> Result<Vec<(Server, Vec<String>)>, String> {
        let nice = self.args.nice;
        let start = |kind: &Kind| {
            let server = Server::start(*kind, nice, None)?;
            let targets = insert_targets(&mut server.connect()?)?;
            Ok((server, targets))
        };
        self.kinds.iter().map(start).collect()
    }

    fn transactions(&mut self) -> Result<(), String> {
        let turn = self.args.common.turn();
        let servers = self.servers_with_targets()?;
        let values =
            self.in_turns(servers, |(server, targets)| Ok(vec![pipelined(server, targets, turn)?]))?;
        let ratio = self.keep("pipelined transactions", 1, "/s", &values[0]);
        self.goals.at_least("pipelined transactions per second", &values[0][0], goals::TRANSACTIONS_LEAST);
        if let Some(ratio) = ratio {
            self.goals.at_least("in ratio to ovsdb-server's", &ratio, goals::TRANSACTIONS_TIMES_LEAST);
        }
        let clients = self.args.clients;
        let servers = self.servers_with_targets()?;
        let values = self
            .in_turns(servers, |(server, targets)| Ok(vec![many_clients(server, targets, clients, turn)?]))?;
        if let Some(ratio) = self.keep("transactions of several clients", clients, "/s", &values[0]) {
            self.goals.at_least("in ratio to ovsdb-server's", &ratio, goals::TRANSACTIONS_TIMES_LEAST);
        }
        Ok(())
    }

    fn monitors(&mut self) -> Result<(), String> {
        for &n in &self.args.monitors {
            let servers = self.servers_with_targets()?;
            let values = self.in_turns(servers, |(server, targets)| fan_out(server, targets, n))?;
            let ratio = self.keep("until all monitors know a change", n, "ms, median", &values[0]);
            if let Some(ratio) = ratio {
                self.goals.at_most("in ratio to ovsdb-server's", &ratio, goals::DATABASE_MOST);
            }
            self.keep("until all monitors know a change", n, "ms, longest", &values[1]);
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        let (rows, nice) = (self.args.rows, self.args.nice);
        let values = self.in_turns(self.kinds.clone(), |kind| {
            let server = Server::start(*kind, nice, Some(&|path: &Path| write_large_file(path, rows)))?;
            let seconds = server.started_in.as_secs_f64();
            Ok(vec![seconds, server.rss_bytes()? as f64 / 1e6])
        })?;
        for (what, unit, values) in [("start", "s", &values[0]), ("memory after start", "MB", &values[1])] {
            if let Some(ratio) = self.keep(what, rows, unit, values) {
                self.goals.at_most(
                    &format!("{what} in ratio to ovsdb-server's"),
                    &ratio,
                    goals::DATABASE_MOST,
                );
            }
        }
        Ok(())
    }

    fn compaction(&mut self) -> Result<(), String> {
        let (rows, nice) = (self.args.rows, self.args.nice);
        let start = |kind: &Kind| {
            let server = Server::start(*kind, nice, Some(&|path: &Path| write_large_file(path, rows)))?;
            let targets = insert_targets(&mut server.connect()?)?;
            Ok((server, targets))
        };
        let servers: Result<Vec<_>, String> = self.kinds.iter().map(start).collect();
        let values = self.in_turns(servers?, |(server, targets)| compacting(server, targets))?;
        if let Some(ratio) = self.keep("longest transaction during compaction", rows, "ms", &values[0]) {
            self.goals.at_most("in ratio to ovsdb-server's", &ratio, goals::DATABASE_MOST);
        }
        self.goals.never_above(
            "longest transaction during compaction, ms",
            &values[0][0],
            goals::PAUSE_MOST_MS,
        );
        self.keep("longest transaction without", rows, "ms", &values[1]);
        self.keep("transactions during compaction", rows, "", &values[2]);
        Ok(())
    }
}

/// Rows for the small transactions; their UUIDs.
fn insert_targets(client: &mut Client) -> Result<Vec<String>, String> {
    let insert = json!({"op": "insert", "table": "QoS", "row": {"type": "bench"}});
    let mut params = vec![json!("Open_vSwitch")];
    params.extend(std::iter::repeat_n(insert, TARGETS));
    let reply = client.call("transact", &Value::Array(params))?;
    let uuids: Option<Vec<String>> = reply
        .as_array()
        .map(|results| results.iter().filter_map(|r| Some(r["uuid"][1].as_str()?.to_owned())).collect());
    uuids.filter(|uuids| uuids.len() == TARGETS).ok_or_else(|| format!("rows were not inserted: {reply}"))
}

/// The `n`th small transaction: one column of one row changes, to a value that it never had.
fn transaction(targets: &[String], n: usize) -> String {
    static VALUE: AtomicUsize = AtomicUsize::new(0);
    let value = VALUE.fetch_add(1, Ordering::Relaxed);
    let uuid = &targets[n % targets.len()];
    format!(
        r#"{{"id":{n},"method":"transact","params":["Open_vSwitch",{{"op":"update","table":"QoS","where":[["_uuid","==",["uuid","{uuid}"]]],"row":{{"external_ids":["map",[["n","{value}"]]]}}}}]}}"#
    )
}

/// A single client with many requests out: transactions per second.
fn pipelined(server: &Server, targets: &[String], turn: Duration) -> Result<f64, String> {
    let mut client = server.connect()?;
    let (mut sent, mut received) = (0, 0);
    let begin = Instant::now();
    while begin.elapsed() < turn {
        let mut batch = String::new();
        while sent < received + WINDOW {
            batch.push_str(&transaction(targets, sent));
            sent += 1;
        }
        client.send(&batch)?;
        received += client.receive_some(|reply| succeeded(reply, r#""count":1"#))?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let done = received;
    while received < sent {
        received += client.receive_some(|reply| succeeded(reply, r#""count":1"#))?;
    }
    Ok(done as f64 / seconds)
}

fn succeeded(reply: &[u8], part: &str) -> Result<(), String> {
    match reply.windows(part.len()).any(|w| w == part.as_bytes()) {
        true => Ok(()),
        false => Err(format!("expected {part} in {}", String::from_utf8_lossy(reply))),
    }
}

/// Several clients, each with one request out: transactions per second of all.
fn many_clients(server: &Server, targets: &[String], clients: usize, turn: Duration) -> Result<f64, String> {
    let stop = Arc::new(AtomicBool::new(false));
    let ready = Arc::new(Barrier::new(clients + 1));
    let mut threads = Vec::new();
    for first in 0..clients {
        let (stop, ready, targets) = (Arc::clone(&stop), Arc::clone(&ready), targets.to_vec());
        let mut client = server.connect()?;
        threads.push(std::thread::spawn(move || {
            ready.wait();
            let mut done = 0;
            while !stop.load(Ordering::Relaxed) {
                client.send(&transaction(&targets, first + done * clients))?;
                client.receive(|reply| succeeded(reply, r#""count":1"#))?;
                done += 1;
            }
            Ok::<usize, String>(done)
        }));
    }
    ready.wait();
    let begin = Instant::now();
    std::thread::sleep(turn);
    stop.store(true, Ordering::Relaxed);
    let mut done = 0;
    for thread in threads {
        done += thread.join().map_err(|_| "a client panicked")??;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// Milliseconds from a transaction until every monitor was notified: the median and the maximum.
fn fan_out(server: &Server, targets: &[String], monitors: usize) -> Result<Figures, String> {
    let mut writer = server.connect()?;
    let mut watchers = Vec::new();
    for _ in 0..monitors {
        let mut watcher = server.connect()?;
        let request = json!({"QoS": [{"columns": ["external_ids", "type"]}]});
        watcher.call("monitor", &json!(["Open_vSwitch", "bench", request]))?;
        watchers.push(watcher);
    }
    let mut times = Vec::new();
    for n in 0..CHANGES {
        let begin = Instant::now();
        writer.send(&transaction(targets, n))?;
        for watcher in &mut watchers {
            watcher.receive(|update| succeeded(update, r#""update""#))?;
        }
        times.push(begin.elapsed().as_secs_f64() * 1e3);
        writer.receive(|reply| succeeded(reply, r#""count":1"#))?;
    }
    let longest = times.iter().copied().fold(0.0, f64::max);
    Ok(vec![median(&times), longest])
}

/// A client that sends one transaction after the other while the file is compacted, and after: the longest
/// one in either, in milliseconds, and how many there were meanwhile.
fn compacting(server: &mut Server, targets: &[String]) -> Result<Figures, String> {
    let mut client = server.connect()?;
    let mut n = 0;
    let mut longest_until =
        |is_over: &mut dyn FnMut() -> Result<bool, String>| -> Result<(f64, usize), String> {
            let (mut longest, first) = (0.0, n);
            while !is_over()? {
                let begin = Instant::now();
                client.send(&transaction(targets, n))?;
                client.receive(|reply| succeeded(reply, r#""count":1"#))?;
                longest = f64::max(longest, begin.elapsed().as_secs_f64() * 1e3);
                n += 1;
            }
            Ok((longest, n - first))
        };
    let quiet = Instant::now();
    let (without, _) = longest_until(&mut || Ok(quiet.elapsed() > Duration::from_millis(500)))?;
    let before = server.file_id()?;
    let mut compaction = server.compact()?;
    // The command's answer may come before the file is replaced; its successor has another inode.
    let deadline = Instant::now() + Duration::from_secs(60);
    let (during, transactions) = longest_until(&mut || {
        if Instant::now() > deadline {
            return Err("the file was not compacted within a minute".to_owned());
        }
        let answered = compaction.0.try_wait().map_err(|e| e.to_string())?.is_some();
        Ok(answered && server.file_id()? != before)
    })?;
    Ok(vec![during, without, transactions as f64])
}
