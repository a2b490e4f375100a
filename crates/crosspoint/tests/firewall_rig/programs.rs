//! Programs that talk through the firewall, each with what it takes to be content.

use super::rules::Talk;
use super::{Family, Kind, Rig, address, file};
use std::time::{Duration, Instant};

/// A program and how it is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program {
    /// curl and a web server.
    Web,
    /// iperf3 by TCP, from the client or back.
    Tcp { is_back: bool, megabytes: u32 },
    /// iperf3 by UDP, whose datagrams have so many bytes: above 1,472 they are fragmented.
    Udp { is_back: bool, bytes: u32, count: u32 },
    /// Echo requests of so many bytes.
    Ping { bytes: u32 },
    /// traceroute: each hop is known by an ICMP error of a router or the target.
    Route,
    /// curl and an FTP server.
    Ftp(Transfer),
}

/// Who opens the data connection of FTP, and how that is announced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transfer {
    /// The server, by PORT (IPv4 only).
    Port,
    /// The server, by EPRT.
    ExtendedPort,
    /// The client, by PASV (IPv4 only): curl goes where the answer says.
    Passive,
    /// The client, by EPSV.
    ExtendedPassive,
}

/// How long a program may try: [`Self::Short`] where it is to fail.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    Long,
    Short,
}

impl Patience {
    fn seconds(self) -> u64 {
        match self {
            Patience::Long => 50,
            Patience::Short => 2,
        }
    }
}

/// What was wrong.
type Outcome = Result<(), String>;

impl Program {
    /// All of them, short.
    pub fn all(family: Family) -> Vec<Program> {
        let mut all = Program::all_sizes(1, 40);
        all.extend(Transfer::all(family).into_iter().map(Program::Ftp));
        all
    }

    /// All but FTP.
    pub fn all_sizes(megabytes: u32, count: u32) -> Vec<Program> {
        let mut all = vec![Program::Web, Program::Route, Program::Ping { bytes: 56 }];
        all.push(Program::Ping { bytes: 6_000 });
        for is_back in [false, true] {
            all.push(Program::Tcp { is_back, megabytes });
            for bytes in [1_000, 8_000] {
                all.push(Program::Udp { is_back, bytes, count });
            }
        }
        all
    }

    pub fn run(&self, rig: &Rig, talk: Talk, patience: Patience) -> Outcome {
        match *self {
            Program::Web => web(rig, &talk, patience),
            Program::Tcp { is_back, megabytes } => {
                let bytes = format!("{megabytes}M");
                let args = ["--window", "64K", "--bytes", &bytes];
                let report = iperf3(rig, &talk, patience, is_back, &args)?;
                let received = &report["end"]["sum_received"]["bytes"];
                // What is still under way when the client has sent all, the server does not count: what two
                // such windows hold, which the kernel doubles.
                let wanted = (u64::from(megabytes) << 20) - (256 << 10);
                check(received.as_u64() >= Some(wanted), || format!("received {received} bytes"))
            }
            Program::Udp { is_back, bytes, count } => {
                let (length, all) = (bytes.to_string(), (bytes * count).to_string());
                // For 0.4 s at least, so that a receiver may be kept waiting for a while.
                let rate = (bytes * count * 8 / 2 * 5).min(8_000_000).to_string();
                let args = ["--udp", "--bitrate", &rate, "--length", &length, "--bytes", &all];
                let report = iperf3(rig, &talk, patience, is_back, &args)?;
                // Of datagrams that never came, the sender says nothing. A busy receiver loses some.
                let received = &report["end"]["sum_received"]["bytes"];
                let wanted = u64::from(bytes * count) / 4;
                check(received.as_u64() >= Some(wanted), || format!("received {received} bytes"))
            }
            Program::Ping { bytes } => ping(rig, &talk, patience, bytes),
            Program::Route => route(rig, &talk, patience),
            Program::Ftp(transfer) => ftp(rig, &talk, patience, transfer),
        }
    }
}

impl Transfer {
    /// Those that a family has.
    pub fn all(family: Family) -> Vec<Transfer> {
        let extended = [Transfer::ExtendedPort, Transfer::ExtendedPassive];
        let older: &[Transfer] = match family {
            Family::V4 => &[Transfer::Port, Transfer::Passive],
            Family::V6 => &[],
        };
        [&extended, older].concat()
    }

    fn options(self) -> &'static [&'static str] {
        match self {
            Transfer::Port => &["--ftp-port", "-", "--disable-eprt"],
            Transfer::ExtendedPort => &["--ftp-port", "-"],
            Transfer::Passive => &["--disable-epsv", "--no-ftp-skip-pasv-ip"],
            Transfer::ExtendedPassive => &[],
        }
    }
}

fn check(is_right: bool, why: impl FnOnce() -> String) -> Outcome {
    if is_right { Ok(()) } else { Err(why()) }
}

/// What curl fetched.
fn curl(rig: &Rig, talk: &Talk, patience: Patience, scheme: &str, options: &[&str]) -> Outcome {
    let target = match talk.family {
        Family::V4 => talk.target.clone(),
        Family::V6 => format!("[{}]", talk.target),
    };
    let (url, seconds) = (format!("{scheme}://{target}/file"), patience.seconds().to_string());
    let fixed = ["curl", "-sS", "--globoff", "--interface", &talk.source, "--max-time", &seconds];
    let said = rig.run(talk.from, patience.seconds() + 1, &[&fixed, options, &[&url]].concat());
    let (code, length) = (said.code, said.out.len());
    check(code == Some(0) && said.out == file(), || format!("{code:?}, {length} bytes, {}", said.err))
}

fn web(rig: &Rig, talk: &Talk, patience: Patience) -> Outcome {
    curl(rig, talk, patience, "http", &[])
}

fn ftp(rig: &Rig, talk: &Talk, patience: Patience, transfer: Transfer) -> Outcome {
    curl(rig, talk, patience, "ftp", transfer.options())
}

fn iperf3(
    rig: &Rig,
    talk: &Talk,
    patience: Patience,
    is_back: bool,
    args: &[&str],
) -> Result<serde_json::Value, String> {
    let fixed = ["iperf3", "--json", "--client", &talk.target, "--bind", &talk.source];
    let direction: &[&str] = if is_back { &["--reverse"] } else { &[] };
    let limit = (patience.seconds() * 1_000 - 500).to_string();
    let words = [&fixed, direction, &["--connect-timeout", &limit], args].concat();
    let end = Instant::now() + Duration::from_secs(patience.seconds());
    loop {
        let said = rig.run(talk.from, patience.seconds(), &words);
        let report: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        let error = &report["error"];
        // The server serves one client at a time, and may not be done with the last one. Such a client's code
        // is 0 at times.
        if error.as_str().is_some_and(|error| error.contains("busy")) && Instant::now() < end {
            continue;
        }
        return match said.code {
            Some(0) if error.is_null() => Ok(report),
            code => Err(format!("{code:?}, {error}, {}", said.err)),
        };
    }
}

fn ping(rig: &Rig, talk: &Talk, patience: Patience, bytes: u32) -> Outcome {
    let count = if patience == Patience::Long { "3" } else { "1" };
    let (size, seconds) = (bytes.to_string(), (patience.seconds() - 1).to_string());
    let words = ["ping", "-n", "-i", "0.2", "-c", count, "-s", &size, "-W", &seconds, "-I"];
    let said = rig.run(talk.from, patience.seconds(), &[&words[..], &[&talk.source, &talk.target]].concat());
    let whole = format!("{} bytes from {}", bytes + 8, talk.target);
    check(said.code == Some(0) && said.out.contains(&whole), || said.out + &said.err)
}

/// The hops are the own router, the one beyond the firewall, and the target.
fn route(rig: &Rig, talk: &Talk, patience: Patience) -> Outcome {
    let program = if talk.family == Family::V4 { "traceroute" } else { "traceroute6" };
    let wait = if patience == Patience::Long { "10" } else { "1" };
    let words =
        ["busybox", program, "-n", "-q", "1", "-m", "3", "-w", wait, "-s", &talk.source, &talk.target];
    let said = rig.run(talk.from, 3 * patience.seconds(), &words);
    let hops: Vec<&str> =
        said.out.lines().skip(1).filter_map(|line| line.split_whitespace().nth(1)).collect();
    let beyond = address(talk.family, talk.from.other(), Kind::Router);
    // An error about a packet to a translated address comes from that address, whoever sends it.
    let is_second = |hop: &str| hop == beyond || hop == talk.target;
    let is_right = said.code == Some(0)
        && hops.get(1).is_some_and(|hop| is_second(hop))
        && hops.last() == Some(&talk.target.as_str());
    check(is_right, || format!("hops {hops:?}: {said:?}"))
}
