//! The table at the end.

use super::sample::{Drops, Port};
use super::stages::{Ping, Stream, Tcp};
use super::view::percent;
use bench::grouped;
use comfy_table::{CellAlignment, Table, presets::ASCII_MARKDOWN};
use std::fmt::Write;

/// Everything that was measured.
pub struct Figures {
    /// Pings.
    pub ping: Ping,
    /// The TCP stream.
    pub tcp: Tcp,
    /// The streams of small packets.
    pub streams: Vec<Stream>,
    /// Packets that the switch dropped.
    pub drops: Drops,
    /// Its ports at the end.
    pub ports: Vec<Port>,
}

/// The figures as text.
pub fn text(figures: &Figures) -> String {
    let mut text = String::new();
    let Figures { ping, tcp, streams, drops, ports } = figures;
    let [least, mean, most] = ping.round_trip_ms;
    let _ = writeln!(
        text,
        "ping: {} of {} answered; round trip min/avg/max {least}/{mean}/{most} ms",
        ping.answered, ping.sent
    );
    let _ = writeln!(text, "TCP ({}): {:.2} Gbit/s\n", tcp.by, tcp.bits_per_s / 1e9);
    let _ = writeln!(
        text,
        "UDP from host to host through the guest, so twice through the worker (CPU: share of one processor):\n{}\n",
        stream_table(streams)
    );
    let _ = writeln!(text, "Dropped packets by reason:\n{}\n", drop_table(drops, ports, streams));
    let _ = writeln!(
        text,
        "Sender, switch, guest, receiver and the kernel's veth share {} cores here; make bench measures the switch alone.\n\
         Everything that the demo made has been removed.",
        std::thread::available_parallelism().map_or(1, |n| n.get())
    );
    text
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(ASCII_MARKDOWN).set_header(header);
    table
}

fn align_numbers(table: &mut Table) {
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn stream_table(streams: &[Stream]) -> Table {
    let mut table = table(&[
        "frame bytes",
        "flows",
        "Mpps",
        "loss",
        "CPU switch",
        "CPU guest",
        "switch ns/packet",
        "exact hits",
        "megaflow hits",
        "misses",
        "round trip p50 us",
        "p99 us",
        "p99.9 us",
    ]);
    for s in streams {
        let share = |part| percent(part, s.lookups.total());
        let us = |ns: u64| format!("{:.1}", ns as f64 / 1e3);
        table.add_row([
            s.size.to_string(),
            grouped(s.flows.into()),
            format!("{:.3}", s.packets_per_s / 1e6),
            percent(s.lost, s.sent),
            format!("{:.2}", s.switch_cpu),
            format!("{:.2}", s.guest_cpu),
            format!("{:.0}", s.cpu_ns_per_packet),
            share(s.lookups.exact),
            share(s.lookups.megaflow),
            share(s.lookups.missed),
            us(s.probes.p50_ns),
            us(s.probes.p99_ns),
            us(s.probes.p999_ns),
        ]);
    }
    align_numbers(&mut table);
    table
}

/// The switch's own reasons, what the ports' rings had no room for before the switch saw it, and what the
/// receiver had no room for behind it.
fn drop_table(drops: &Drops, ports: &[Port], streams: &[Stream]) -> Table {
    let mut table = table(&["reason", "packets", "received at"]);
    for (reason, packets, by_port) in drops {
        let from: Vec<String> = by_port.iter().map(|(port, n)| format!("{port}: {}", grouped(*n))).collect();
        table.add_row([reason.clone(), grouped(*packets), from.join(", ")]);
    }
    for port in ports.iter().filter(|port| port.rx_dropped > 0) {
        table.add_row(["receive ring full".into(), grouped(port.rx_dropped), port.name.clone()]);
    }
    let missed: u64 = streams.iter().map(|s| s.missed).sum();
    if missed > 0 {
        table.add_row(["receiver's socket full", &grouped(missed), "cp-demo-b"]);
    }
    if table.row_count() == 0 {
        table.add_row(["none", "0", ""]);
    }
    if let Some(column) = table.column_mut(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::sample::Lookups;
    use crate::demo::traffic::ProbeReport;

    #[test]
    fn every_figure_stands_in_the_table() {
        let stream = Stream {
            size: 64,
            flows: 1_000,
            packets_per_s: 123_456.7,
            sent: 10_000,
            lost: 8,
            missed: 6,
            switch_cpu: 0.987,
            guest_cpu: 0.654,
            cpu_ns_per_packet: 901.4,
            lookups: Lookups { exact: 99, megaflow: 0, missed: 1 },
            probes: ProbeReport {
                answered: 5,
                lost: 0,
                p50_ns: 70_100,
                p99_ns: 80_200,
                p999_ns: 90_300,
                max_ns: 1,
            },
        };
        let figures = Figures {
            ping: Ping { sent: 5, answered: 5, round_trip_ms: [0.1, 0.2, 0.3] },
            tcp: Tcp { by: "iperf3", bits_per_s: 2.5e9 },
            streams: vec![stream],
            drops: vec![("table_miss".into(), 1_000, vec![("p1".into(), 1_000)])],
            ports: vec![Port { name: "p2".into(), rx_dropped: 7, ..Port::default() }],
        };
        let text = text(&figures);
        let cells = |wanted: &str| {
            let row = text.lines().find(|l| l.split('|').nth(1).is_some_and(|c| c.trim() == wanted));
            row.unwrap_or_else(|| panic!("no row {wanted} in\n{text}"))
                .trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_string())
                .collect::<Vec<_>>()
        };
        let row = cells("64");
        let expected = [
            "64", "1,000", "0.123", "0.08 %", "0.99", "0.65", "901", "99.00 %", "0 %", "1.00 %", "70.1",
            "80.2", "90.3",
        ];
        assert_eq!(row, expected);
        assert_eq!(cells("table_miss"), ["table_miss", "1,000", "p1: 1,000"]);
        assert_eq!(cells("receive ring full"), ["receive ring full", "7", "p2"]);
        assert_eq!(cells("receiver's socket full"), ["receiver's socket full", "6", "cp-demo-b"]);
        assert!(text.contains("TCP (iperf3): 2.50 Gbit/s") && text.contains("5 of 5 answered"), "{text}");
    }
}
