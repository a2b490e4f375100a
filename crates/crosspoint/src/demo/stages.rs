//! The measurements.

use super::command::{Child, Shell};
use super::error::DemoError;
use super::lab::{ADDRESSES, HOSTS};
use super::rules;
use super::sample::{self, Drops, Lookups};
use super::switch::Switch;
use super::traffic::{ProbeReport, SinkReport, StreamReport, TcpReport};
use super::view::View;
use bench::grouped;
use serde::de::DeserializeOwned;
use std::time::{Duration, Instant};

/// How many flows the streams have.
const FLOW_COUNTS: [u16; 3] = [10, 1_000, 10_000];
/// Sizes of their frames in bytes, frame check sequence included.
const SIZES: [u16; 2] = [64, 1518];
/// Packets that no rule matches.
const STRANGERS: u64 = 1_000;
/// How long a child may take beyond its time.
const GRACE: Duration = Duration::from_secs(20);
/// After this long, packets in flight at the end of a stream have arrived.
const SETTLE: Duration = Duration::from_millis(100);

/// How long measurements take.
pub struct Durations {
    pings: u32,
    tcp_s: f64,
    stream_s: f64,
    probe_s: f64,
}

impl Durations {
    /// The durations for `make demo`.
    pub const FULL: Durations = Durations { pings: 10, tcp_s: 5.0, stream_s: 4.0, probe_s: 2.0 };
    /// The durations for tests.
    pub const QUICK: Durations = Durations { pings: 3, tcp_s: 1.0, stream_s: 1.0, probe_s: 0.5 };
}

/// Pings: round trips in milliseconds, as `ping` prints them.
pub struct Ping {
    /// Sent.
    pub sent: u32,
    /// Came back.
    pub answered: u32,
    /// Least, mean and most.
    pub round_trip_ms: [f64; 3],
}

/// Pings the second host from the first.
pub fn ping(shell: &Shell, durations: &Durations) -> Result<Ping, DemoError> {
    let [host, _] = HOSTS;
    let text = shell
        .run(&format!("ip netns exec {host} ping -n -q -c {} -i 0.1 {}", durations.pings, ADDRESSES[1]))?;
    for line in text.lines().filter(|l| l.contains("received") || l.starts_with("rtt")) {
        shell.say(line);
    }
    parse_ping(&text).ok_or_else(|| DemoError::new(format!("ping printed something unexpected:\n{text}")))
}

fn parse_ping(text: &str) -> Option<Ping> {
    let summary = text.lines().find(|line| line.contains("packets transmitted"))?;
    let number = |part: &str| part.split_whitespace().next()?.parse().ok();
    let mut parts = summary.split(", ");
    let (sent, answered) = (number(parts.next()?)?, number(parts.next()?)?);
    let times = text.lines().find_map(|line| line.strip_prefix("rtt ")?.split(" = ").nth(1))?;
    let mut times = times.split('/').map(|t| t.parse().ok());
    Some(Ping { sent, answered, round_trip_ms: [times.next()??, times.next()??, times.next()??] })
}

/// A TCP stream.
pub struct Tcp {
    /// The program that sent it.
    pub by: &'static str,
    /// Bits per second that arrived.
    pub bits_per_s: f64,
}

/// Sends a TCP stream from the first host to the second.
pub fn tcp(shell: &Shell, switch: &Switch, view: &View, durations: &Durations) -> Result<Tcp, DemoError> {
    let ([a, b], [_, address]) = (HOSTS, ADDRESSES);
    let seconds = durations.tcp_s;
    let has_iperf = shell.run_quietly("iperf3 --version").is_ok();
    shell.check()?;
    let (by, server, client) = if has_iperf {
        let client = format!("iperf3 -c {address} -t {seconds} -J --connect-timeout 3000");
        ("iperf3", "iperf3 -s -1".to_string(), client)
    } else {
        let client =
            format!("crosspoint demo-traffic tcp-client --connect {address}:5201 --seconds {seconds}");
        ("built in", format!("crosspoint demo-traffic tcp-server --listen {address}:5201"), client)
    };
    let server = format!("ip netns exec {b} {server}");
    shell.show(&format!("{server} &"));
    let server = shell.spawn(&server)?;
    await_listener(shell, &server)?;
    let client = format!("ip netns exec {a} {client}");
    shell.show(&client);
    let mut client = shell.spawn(&client)?;
    watch(shell, switch, view, Duration::from_secs_f64(seconds), || Ok(!client.is_running()?))?;
    let text = shell.finish(client)?;
    let rate = if has_iperf { iperf_rate(&text) } else { built_in_rate(&text) };
    let bits_per_s = rate.ok_or_else(|| DemoError::new(format!("no rate in what {by} printed:\n{text}")))?;
    shell.say(&format!("{:.2} Gbit/s arrived", bits_per_s / 1e9));
    Ok(Tcp { by, bits_per_s })
}

/// Waits until port 5201 listens in the child's namespace.
fn await_listener(shell: &Shell, server: &Child) -> Result<(), DemoError> {
    let start = Instant::now();
    // In /proc/net/tcp the state 0A is listening; 1451 is 5201 in hexadecimal.
    let listens = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(":1451")) && words.nth(1) == Some("0A")
    };
    while start.elapsed() < GRACE {
        for family in ["tcp", "tcp6"] {
            let table = std::fs::read_to_string(format!("/proc/{}/net/{family}", server.pid()));
            if table.is_ok_and(|table| table.lines().any(listens)) {
                return Ok(());
            }
        }
        shell.nap()?;
    }
    Err(DemoError::new("the TCP server does not listen"))
}

fn iperf_rate(text: &str) -> Option<f64> {
    let report: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    report.pointer("/end/sum_received/bits_per_second")?.as_f64()
}

fn built_in_rate(text: &str) -> Option<f64> {
    let report: TcpReport = text.lines().find_map(|line| serde_json::from_str(line).ok())?;
    Some(report.bytes as f64 * 8.0 / report.seconds)
}

/// A stream of packets, and the probes after it.
pub struct Stream {
    /// Bytes of a frame, frame check sequence included.
    pub size: u16,
    /// Flows.
    pub flows: u16,
    /// Packets per second that arrived.
    pub packets_per_s: f64,
    /// Packets sent.
    pub sent: u64,
    /// Frames that did not arrive.
    pub lost: u64,
    /// Lost frames for which the receiving socket had no room.
    pub missed: u64,
    /// Share of a processor that the switch used.
    pub switch_cpu: f64,
    /// Share of a processor that the guest used.
    pub guest_cpu: f64,
    /// CPU time of the switch per packet that arrived, in nanoseconds.
    pub cpu_ns_per_packet: f64,
    /// Lookups by cache tier.
    pub lookups: Lookups,
    /// Round trips of single packets.
    pub probes: ProbeReport,
}

impl Stream {
    /// As shown in the report.
    pub fn shown(&self) -> bench::Shown {
        bench::Shown {
            size: self.size,
            flows: self.flows.into(),
            packets_per_s: self.packets_per_s,
            loss: self.lost as f64 / self.sent.max(1) as f64,
            cpu_switch: self.switch_cpu,
            cpu_guest: self.guest_cpu,
            cpu_ns_per_packet: self.cpu_ns_per_packet,
            round_trip_us: [self.probes.p50_ns, self.probes.p99_ns].map(|ns| ns as f64 / 1e3),
        }
    }
}

/// Streams with ever more flows, in frames of all sizes. In the order of the table: by size, then by flows.
pub fn streams(
    shell: &Shell,
    switch: &Switch,
    view: &View,
    durations: &Durations,
) -> Result<Vec<Stream>, DemoError> {
    let mut streams = Vec::new();
    for flows in FLOW_COUNTS {
        rules::add_streams(shell, flows)?;
        for size in SIZES {
            streams.push(stream(shell, switch, view, durations, size, flows)?);
        }
    }
    streams.sort_by_key(|stream| stream.size);
    Ok(streams)
}

fn stream(
    shell: &Shell,
    switch: &Switch,
    view: &View,
    durations: &Durations,
    size: u16,
    flows: u16,
) -> Result<Stream, DemoError> {
    let Durations { stream_s, probe_s, .. } = *durations;
    let sink = start_sink(shell, true)?;
    let [a, _] = HOSTS;
    let command = format!(
        "ip netns exec {a} crosspoint demo-traffic source --size {size} --flows {flows} --stream-s {stream_s} \
         --probe-s {probe_s}"
    );
    shell.show(&command);
    let before = switch.sample()?;
    let mut source = shell.spawn(&command)?;
    let mut sent: Option<StreamReport> = None;
    watch(shell, switch, view, Duration::from_secs_f64(stream_s), || {
        sent = source.line().and_then(|line| serde_json::from_str(&line).ok());
        Ok(sent.is_some() || !source.is_running()?)
    })?;
    let after = switch.sample()?;
    let text = shell.finish(source)?;
    let unexpected = || DemoError::new(format!("the source printed something unexpected:\n{text}"));
    let sent = sent.ok_or_else(unexpected)?;
    let probes: ProbeReport = parse(&text).ok_or_else(unexpected)?;
    let received = end_sink(shell, sink)?;
    let cpu_s = |before_ns: u64, after_ns: u64| after_ns.saturating_sub(before_ns) as f64 / 1e9;
    let switch_cpu_s = cpu_s(before.cpu_ns, after.cpu_ns);
    let stream = Stream {
        size,
        flows,
        packets_per_s: received.stream as f64 / sent.seconds,
        sent: sent.sent,
        lost: sent.sent.saturating_sub(received.stream),
        missed: received.missed,
        switch_cpu: switch_cpu_s / sent.seconds,
        guest_cpu: cpu_s(before.guest_cpu_ns, after.guest_cpu_ns) / sent.seconds,
        cpu_ns_per_packet: switch_cpu_s * 1e9 / received.stream.max(1) as f64,
        lookups: after.lookups.since(&before.lookups),
        probes,
    };
    shell.say(&format!(
        "{} packets/s arrived; a round trip takes {:.0} us (median of {})",
        grouped(stream.packets_per_s as u64),
        probes.p50_ns as f64 / 1e3,
        grouped(probes.answered)
    ));
    Ok(stream)
}

fn start_sink(shell: &Shell, shown: bool) -> Result<Child, DemoError> {
    let command = format!("ip netns exec {} crosspoint demo-traffic sink", HOSTS[1]);
    if shown {
        shell.show(&format!("{command} &"));
    }
    let mut sink = shell.spawn(&command)?;
    while sink.line().is_none() {
        if !sink.is_running()? {
            return Err(DemoError::new(format!("{command} ended: {}", shell.finish(sink)?)));
        }
        shell.nap()?;
    }
    Ok(sink)
}

fn end_sink(shell: &Shell, sink: Child) -> Result<SinkReport, DemoError> {
    std::thread::sleep(SETTLE);
    let text = shell.finish(sink)?;
    parse(&text).ok_or_else(|| DemoError::new(format!("the sink printed something unexpected:\n{text}")))
}

fn parse<T: DeserializeOwned>(text: &str) -> Option<T> {
    text.lines().find_map(|line| serde_json::from_str(line).ok())
}

/// Shows the switch's counters until `done`.
fn watch(
    shell: &Shell,
    switch: &Switch,
    view: &View,
    takes: Duration,
    mut done: impl FnMut() -> Result<bool, DemoError>,
) -> Result<(), DemoError> {
    let (start, mut shown) = (Instant::now(), Instant::now());
    view.begin(switch.sample()?, takes);
    let result = loop {
        match done() {
            Ok(false) => {}
            Ok(true) => break Ok(()),
            Err(e) => break Err(e),
        }
        if start.elapsed() > takes + GRACE {
            break Err(DemoError::new("the traffic does not end; is the machine overloaded?"));
        }
        if shown.elapsed() >= view.interval() {
            shown = Instant::now();
            match switch.sample() {
                Ok(sample) => view.update(sample),
                Err(e) => break Err(e),
            }
        }
        if let Err(e) = shell.nap() {
            break Err(e);
        }
    };
    view.end();
    result
}

/// Sends packets of a flow without a rule. Returns all drops of the switch since it started.
pub fn strangers(shell: &Shell, switch: &Switch) -> Result<Drops, DemoError> {
    let sink = start_sink(shell, false)?;
    let source = "crosspoint demo-traffic source --first 60000 --flows 1 --blind";
    let text = shell.run(&format!("ip netns exec {} {source} {STRANGERS}", HOSTS[0]))?;
    let sent: StreamReport = parse(&text)
        .ok_or_else(|| DemoError::new(format!("the source printed something unexpected:\n{text}")))?;
    let received = end_sink(shell, sink)?;
    shell.say(&format!("{} sent, {} arrived", grouped(sent.sent), grouped(received.stream)));
    shell.show("crosspoint appctl crosspoint/drops");
    let text = switch.ask("crosspoint/drops", &[])?;
    for line in text.lines() {
        shell.say(line);
    }
    Ok(sample::drops(switch.figures()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_of_ping_is_read() {
        let text = "PING 10.213.0.2 (10.213.0.2) 56(84) bytes of data.\n\n--- 10.213.0.2 ping statistics ---\n\
                    5 packets transmitted, 4 received, 20% packet loss, time 803ms\n\
                    rtt min/avg/max/mdev = 0.045/0.101/0.250/0.076 ms\n";
        let ping = parse_ping(text).unwrap();
        assert_eq!((ping.sent, ping.answered, ping.round_trip_ms), (5, 4, [0.045, 0.101, 0.25]));
        assert!(parse_ping("").is_none());
    }

    #[test]
    fn rates_are_read_from_both_programs() {
        let text = "warning\n{\"end\": {\"sum_received\": {\"bits_per_second\": 2.5e9}}}\n";
        assert_eq!(iperf_rate(text), Some(2.5e9));
        assert_eq!(iperf_rate("{\"error\": \"no route\"}"), None);
        assert_eq!(built_in_rate("{\"bytes\": 1000, \"seconds\": 2.0}\n"), Some(4000.0));
    }
}
