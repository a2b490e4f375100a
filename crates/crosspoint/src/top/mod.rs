//! `crosspoint top`: a live view of the running switch by worker, receive queue, port and drop reason.
//!
//! On a terminal each sample replaces the one before; with `--batch`, `--once`, or if standard output is no
//! terminal, they follow each other as plain text, for programs to read. Rates are averages between two
//! samples. It asks for one snapshot of the switch's figures each time, at no cost to the workers.
//!
//! Not by `ratatui`: the same tables of text go to terminals and to pipes, from top to bottom, and there is
//! nothing to choose on the screen.

mod sample;

use sample::Sample;
use std::fmt::Write as _;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use transport::unixctl::Client;
use vswitchd::figures::{Figures, Port, Worker};

/// How long it waits for the switch to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Watch the running switch live: workers, caches, queues, ports and drops.
#[derive(clap::Args)]
pub struct Args {
    /// The switch: the name of its daemon, or its control socket.
    #[arg(short, long, default_value = "ovs-vswitchd")]
    target: String,
    /// Seconds between two samples.
    #[arg(short = 'd', long, default_value = "1", value_parser = seconds)]
    interval: Duration,
    /// Exit after this many samples.
    #[arg(short = 'n', long, value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// Print plain text, one sample after the other, even on a terminal.
    #[arg(short, long)]
    batch: bool,
    /// Print one sample as plain text and exit.
    #[arg(long, conflicts_with = "count")]
    once: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|s| (0.05..=3600.0).contains(s));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| format!("{text}: expected 0.05 to 3600 seconds"))
}

/// Runs until it is interrupted, has looked often enough, or the switch goes.
pub fn run(args: &Args) -> ExitCode {
    match watch(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosspoint top: {error}");
            ExitCode::FAILURE
        }
    }
}

fn watch(args: &Args) -> Result<(), String> {
    let mut client = Client::connect(&args.target, Some(PATIENCE)).map_err(|e| e.to_string())?;
    let redraws = std::io::stdout().is_terminal() && !args.batch && !args.once;
    let mut before = Sample::take(&mut client)?;
    let mut left = if args.once { Some(1) } else { args.count };
    while left != Some(0) {
        std::thread::sleep(args.interval);
        let now = Sample::take(&mut client)?;
        let seconds = (now.at - before.at).as_secs_f64().max(1e-3);
        let text = render(&args.target, &before.figures, &now.figures, seconds);
        // From the top left corner, and the rest of the previous screen is erased.
        let text = if redraws { format!("\x1b[H\x1b[J{}", fit(&text, rows())) } else { format!("{text}\n") };
        print!("{text}");
        host::output::flush();
        before = now;
        left = left.map(|n| n - 1);
    }
    Ok(())
}

/// Rows of the terminal; one that does not say has as many as are wanted.
fn rows() -> usize {
    match rustix::termios::tcgetwinsize(std::io::stdout()) {
        Ok(size) if size.ws_row > 0 => size.ws_row.into(),
        _ => usize::MAX,
    }
}

/// The first lines, as many as fit above the cursor's own: a screen that scrolls loses the workers first.
fn fit(text: &str, rows: usize) -> String {
    let lines = text.lines().count();
    if lines < rows {
        return text.to_string();
    }
    let shown = rows.saturating_sub(2);
    let mut kept: String = text.split_inclusive('\n').take(shown).collect();
    let _ = writeln!(kept, "({} more lines; --once prints all)", lines - shown);
    kept
}

/// "1 worker", "2 workers".
fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// A count with a suffix, so that it takes little room.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{:.2}G", v / 1e9),
        v if v >= 1e6 => format!("{:.2}M", v / 1e6),
        v if v >= 1e4 => format!("{:.1}k", v / 1e3),
        v => format!("{v:.0}"),
    }
}

/// The differences, as text. Workers, ports and reasons that are new count from zero.
fn render(target: &str, before: &Figures, now: &Figures, seconds: f64) -> String {
    // A counter that went back belongs to another thing of the same name.
    let rate = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now) as f64 / seconds;
    let mut text = format!(
        "crosspoint top: {target}, {}, {}, over {seconds:.2} s\n",
        counted(now.workers.len(), "worker"),
        counted(now.ports.len(), "port")
    );
    let _ = writeln!(
        text,
        "\n{:<10} {:>6} {:>10} {:>8} {:>8} {:>8} {:>11}",
        "WORKER", "BUSY%", "RX PKT/S", "EXACT%", "MEGAF%", "MISS%", "CYCLES/PKT"
    );
    for worker in &now.workers {
        let was = before.workers.iter().find(|w| w.worker == worker.worker).cloned().unwrap_or_default();
        let _ = writeln!(text, "{}", worker_line(worker, &was, seconds));
    }
    let _ = writeln!(text, "\n{:<16} {:>5} {:<10} {:>12}", "PORT", "QUEUE", "WORKER", "LAST MINUTE%");
    for q in &now.queues {
        let core = now.workers.get(q.worker).map_or("-".into(), |w| format!("core {}", w.core));
        let _ = writeln!(text, "{:<16} {:>5} {core:<10} {:>12}", q.port, q.queue, q.usage_percent);
    }
    let _ = writeln!(
        text,
        "\n{:<16} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
        "PORT", "TYPE", "RX PKT/S", "RX BIT/S", "RX LOST/S", "TX PKT/S", "TX BIT/S", "TX LOST/S"
    );
    for port in &now.ports {
        let was = before.ports.iter().find(|p| p.name == port.name).cloned().unwrap_or_default();
        let of = |f: fn(&Port) -> u64, factor: f64| short(rate(f(port), f(&was)) * factor);
        let _ = writeln!(
            text,
            "{:<16} {:<20} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}",
            port.name,
            port.kind,
            of(|p| p.rx_packets, 1.0),
            of(|p| p.rx_bytes, 8.0),
            of(|p| p.rx_dropped + p.rx_errors, 1.0),
            of(|p| p.tx_packets, 1.0),
            of(|p| p.tx_bytes, 8.0),
            of(|p| p.tx_dropped + p.tx_errors, 1.0),
        );
    }
    let _ = writeln!(text, "\n{:<28} {:>9} {:>14}", "DROPPED FOR", "PKT/S", "IN ALL");
    for drop in &now.drops {
        let was = before.drops.iter().find(|was| was.reason == drop.reason).map_or(0, |was| was.packets);
        let _ =
            writeln!(text, "{:<28} {:>9} {:>14}", drop.reason, short(rate(drop.packets, was)), drop.packets);
    }
    if now.drops.is_empty() {
        text.push_str("(nothing)\n");
    }
    text
}

fn worker_line(now: &Worker, was: &Worker, seconds: f64) -> String {
    let since = now.counters.since(&was.counters);
    let share =
        |part: f64, whole: f64| if whole > 0.0 { format!("{:.1}", 100.0 * part / whole) } else { "-".into() };
    let (busy, idle, received) = (since.busy_cycles as f64, since.idle() as f64, since.rx as f64);
    let looked_up = since.lookups() as f64;
    let cost = if received > 0.0 { format!("{:.1}", busy / received) } else { "-".into() };
    format!(
        "{:<10} {:>6} {:>10} {:>8} {:>8} {:>8} {:>11}",
        format!("core {}", now.core),
        share(busy, busy + idle),
        short(received / seconds),
        share(since.exact_hits as f64, looked_up),
        share(since.megaflow_hits as f64, looked_up),
        share(since.misses as f64, looked_up),
        cost
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use vswitchd::figures::{Drop, Queue};

    fn figures() -> Figures {
        let worker = |worker, core| Worker { worker, core, ..Worker::default() };
        let port = |name: &str, kind: &str| Port { name: name.into(), kind: kind.into(), ..Port::default() };
        let mut figures = Figures {
            workers: vec![worker(0, 1), worker(1, 3)],
            queues: vec![Queue { port: "vm1".into(), queue: 1, worker: 0, usage_percent: 12 }],
            ports: vec![port("p1", "tap"), port("vm1", "dpdkvhostuserclient")],
            drops: vec![Drop { reason: "tx_queue_full".into(), packets: 7, ports: Vec::new() }],
            ..Figures::default()
        };
        figures.workers[0].counters.rx = 2_000;
        figures
    }

    #[test]
    fn rates_are_what_changed_between_two_looks() {
        let (before, mut now) = (figures(), figures());
        let worker = &mut now.workers[0].counters;
        worker.rx += 40_000;
        worker.exact_hits += 30_000;
        worker.megaflow_hits += 9_000;
        worker.misses += 1_000;
        worker.busy_cycles += 4_000_000;
        worker.idle_cycles += 1_000_000;
        worker.sleep_cycles += 3_000_000;
        now.ports[0].rx_packets += 40_000;
        now.ports[0].rx_bytes += 4_000_000;
        now.ports[1].tx_dropped += 10;
        now.drops[0].packets += 10;
        now.drops.push(Drop { reason: "no_such_rule".into(), packets: 4, ports: Vec::new() });
        let text = render("ovs-vswitchd", &before, &now, 2.0);
        let line = |start: &str| {
            let line =
                text.lines().find(|l| l.starts_with(start)).unwrap_or_else(|| panic!("{start}: {text}"));
            line.split_whitespace().collect::<Vec<_>>()
        };
        assert_eq!(line("core 1"), ["core", "1", "50.0", "20.0k", "75.0", "22.5", "2.5", "100.0"]);
        assert_eq!(line("core 3"), ["core", "3", "-", "0", "-", "-", "-", "-"]);
        assert_eq!(line("p1               tap"), ["p1", "tap", "20.0k", "16.00M", "0", "0", "0", "0"]);
        assert_eq!(line("vm1              dpdk").last(), Some(&"5"));
        assert_eq!(line("vm1                  1"), ["vm1", "1", "core", "1", "12"]);
        assert_eq!(line("tx_queue_full"), ["tx_queue_full", "5", "17"]);
        assert_eq!(line("no_such_rule"), ["no_such_rule", "2", "4"]);
    }

    #[test]
    fn the_first_lines_stay_on_a_terminal_that_is_too_low() {
        assert_eq!(fit("a\nb\nc\n", 4), "a\nb\nc\n");
        assert_eq!(fit("a\nb\nc\n", 3), "a\n(2 more lines; --once prints all)\n");
        assert_eq!(fit("a\nb\nc\n", 1), "(3 more lines; --once prints all)\n");
    }

    #[test]
    fn a_worker_that_was_replaced_counts_from_nothing() {
        let (before, mut now) = (figures(), figures());
        now.workers[0].counters.rx = 500;
        let text = render("ovs-vswitchd", &before, &now, 1.0);
        assert!(text.contains(" 500 "), "{text}");
    }
}
