//! Counters that `dpdk-testpmd` prints at its prompt about received and dropped frames, as a guest or as a
//! switch.

use super::processors::allowed;
use crate::process::Process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::io::{Error, Result as IoResult, Write};
use std::time::{Duration, Instant};

/// The program.
pub const PROGRAM: &str = "/usr/bin/dpdk-testpmd";
/// Arguments of `stdbuf`, which runs it: it would keep its answers until there are 4,096 bytes of them. Its
/// own arguments follow, with `--interactive` among them.
pub const ANSWERS_AT_ONCE: [&str; 2] = ["-oL", PROGRAM];
/// The start of the answer about all ports. The answers about each port come before.
const ALL_PORTS: &str = "Accumulated forward statistics for all ports";
/// The end of that answer.
const END: &str = "++++\n";
/// Maximum time for an answer, on a machine that its forwarding thread keeps busy.
const ANSWER: Duration = Duration::from_secs(10);

/// Its counters since it was started.
#[derive(Debug, PartialEq, Eq)]
pub struct Counted {
    /// Frames received and not taken, and frames not sent for lack of room.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames received, by the port's number.
    pub received: BTreeMap<usize, u64>,
    /// Frames that the port's driver took to send them, by the same.
    pub sent: BTreeMap<usize, u64>,
}

/// Asks one whose standard input and output are pipes. One that hangs is an error after some seconds.
pub fn counted(started: &Process) -> Result<Counted, String> {
    let said = ask(started, ANSWER).map_err(|e| format!("dpdk-testpmd does not tell its counters: {e}"))?;
    parse(&said).ok_or_else(|| format!("dpdk-testpmd does not tell its counters: {said}"))
}

fn ask(started: &Process, within: Duration) -> IoResult<String> {
    let ended = || Error::other("it has ended");
    let mut stdin = started.0.stdin.as_ref().ok_or_else(ended)?;
    stdin.write_all(b"show fwd stats all\n")?;
    let stdout = started.0.stdout.as_ref().ok_or_else(ended)?;
    let (mut said, mut bytes) = (String::new(), [0; 4096]);
    let start = Instant::now();
    loop {
        let left = within.saturating_sub(start.elapsed());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(stdout, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => return Err(Error::other(format!("no answer within {} s", within.as_secs_f32()))),
            Err(rustix::io::Errno::INTR) => continue,
            polled => polled?,
        };
        let n = rustix::io::read(stdout, &mut bytes)?;
        if n == 0 {
            return Err(ended());
        }
        said += &String::from_utf8_lossy(&bytes[..n]);
        if totals(&said).is_some() {
            return Ok(said);
        }
    }
}

/// Where its threads run: on the given processor, which is its own, or else wherever this thread may. Of
/// itself it would bind them to the first two, where a switch's worker may be bound too.
pub fn threads(cpu: Option<usize>) -> String {
    let cpus = cpu.map_or_else(allowed, |cpu| vec![cpu]);
    lcores(&cpus, &cpus)
}

/// The processors of the prompt's thread, and of the one that forwards.
pub fn lcores(prompt: &[usize], forwards: &[usize]) -> String {
    let list = |cpus: &[usize]| match cpus {
        // The kernel did not tell.
        [] => "0".to_string(),
        cpus => cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(","),
    };
    format!("--lcores=0@({}),1@({})", list(prompt), list(forwards))
}

/// The lines about all ports together, once they are whole.
fn totals(said: &str) -> Option<&str> {
    let (_, lines) = said.split_once(ALL_PORTS)?.1.split_once('\n')?;
    Some(lines.split_once(END)?.0)
}

fn parse(said: &str) -> Option<Counted> {
    let totals = totals(said)?;
    let dropped =
        [("rx_dropped", total(totals, "RX-dropped:")?), ("tx_dropped", total(totals, "TX-dropped:")?)];
    let of_ports = |name: &str| -> Option<BTreeMap<usize, u64>> {
        let ports = said.split("Forward statistics for port ").skip(1);
        let one = |port: &str| Some((port.split_whitespace().next()?.parse().ok()?, total(port, name)?));
        ports.map(one).collect()
    };
    let (received, sent) = (of_ports("RX-packets:")?, of_ports("TX-packets:")?);
    Some(Counted { dropped: dropped.into(), received, sent })
}

/// The count behind a name.
fn total(text: &str, name: &str) -> Option<u64> {
    text.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn one_that_hangs_or_ends_is_an_error_and_does_not_hold_the_run_up() {
        let stand_in = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
            Process::spawn(&mut command).unwrap()
        };
        let within = Duration::from_millis(300);
        let start = Instant::now();
        // It says something, over and over, and never what it is asked for.
        let hangs = stand_in("while :; do echo testpmd\\>; sleep 0.05; done");
        let error = ask(&hangs, within).unwrap_err();
        assert_eq!(error.to_string(), "no answer within 0.3 s");
        assert!(start.elapsed() >= within && start.elapsed() < Duration::from_secs(10));
        let ends = stand_in("read line; echo testpmd");
        assert_eq!(ask(&ends, Duration::from_secs(60)).unwrap_err().to_string(), "it has ended");
    }

    #[test]
    fn its_threads_are_bound_to_no_processor_but_their_own() {
        let all = allowed().iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        assert_eq!(threads(None), format!("--lcores=0@({all}),1@({all})"));
        assert_eq!(threads(Some(7)), "--lcores=0@(7),1@(7)");
        assert_eq!(lcores(&[2], &[3]), "--lcores=0@(2),1@(3)");
        assert_eq!(lcores(&[], &[]), "--lcores=0@(0),1@(0)");
    }

    #[test]
    fn drops_are_those_of_all_ports_and_are_read_when_the_answer_is_whole() {
        let port = "  --- Forward statistics for port 0  ---\n  RX-packets: 9  RX-dropped: 1  RX-total: 10\n  \
                    TX-packets: 7  TX-dropped: 0  TX-total: 7\n";
        let head = "  +++ Accumulated forward statistics for all ports+++++\n";
        let lines = "  RX-packets: 90     RX-dropped: 3      RX-total: 93\n  \
                     TX-packets: 85     TX-dropped: 5      TX-total: 90\n";
        let said =
            format!("{port}{}{head}{lines}  ++++++++", port.replace("port 0", "port 1").replace('9', "81"));
        assert_eq!(parse(&said), None);
        let dropped = [("rx_dropped", 3), ("tx_dropped", 5)].into();
        assert_eq!(
            parse(&format!("{said}\n")),
            Some(Counted { dropped, received: [(0, 9), (1, 81)].into(), sent: [(0, 7), (1, 7)].into() })
        );
    }
}
