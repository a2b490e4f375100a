//! White-box: where a switch's processes spend their time at a fixed rate, as shares of their CPU time.
//!
//! `perf` samples them by a clock. Samples are classified by symbol: copying, work on the queues of virtual
//! NICs, or neither. What the compiler has inlined into another function counts there, and a program without
//! symbols (most packages) has an unnamed share: both shares are lower bounds.
//!
//! Context switches are counted, not sampled: each is charged the CPU time that a bare sleep and wake takes
//! on this machine. A sampling clock restarts whenever the thread gets its processor, and so hits the
//! scheduler far too often. The rest of the CPU time is divided like the samples outside the scheduler.
//!
//! Sampling costs about 1 %. None of the figures of other trials comes from here.

use super::{Outcome, Times, Trial};
use crate::lab::bed::Bed;
use crate::lab::generator::Load;
use crate::lab::switch::missing;
use crate::machine::wake_cost::wake_cost_s;
use crate::process::{Process, TempDir, run};
use crate::result::Better;
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const PERF: &str = "/usr/bin/perf";
/// Samples a second of CPU time.
const SAMPLES_HZ: u32 = 2_000;
/// Maximum time until it has begun its file.
const FILE: Duration = Duration::from_secs(10);
/// From then until it samples.
const START: Duration = Duration::from_millis(300);
/// Until it has written its file.
const END: Duration = Duration::from_secs(10);

/// See the module documentation.
pub struct Profile;

impl Trial for Profile {
    fn name(&self) -> &'static str {
        "profile"
    }

    fn refuses(&self) -> Option<String> {
        missing(PERF, "linux-perf")
    }

    fn sets_rates(&self) -> bool {
        false
    }

    fn run(&self, bed: &mut Bed, load: &Load, times: Times) -> Result<Outcome, String> {
        let pid = bed.switch_pid().ok_or("the switch is part of the kernel: it has no process to sample")?;
        let wake_s = wake_cost_s()?;
        let mut outcome = Outcome::default();
        for _ in 0..times.turns {
            let perf = Perf::start(PERF, pid, FILE)?;
            let offered = bed.offer(&Load { seconds: times.seconds, ..load.clone() })?;
            let (start_ns, end_ns) = offered.sent.used.from_to_ns;
            let samples = perf.finish(start_ns as f64 / 1e9, end_ns as f64 / 1e9)?;
            outcome.turn(&offered);
            // Sampled, so its figures are not those of a black-box test.
            outcome.metrics.retain(|name, _| name.starts_with("share_"));
            let cpu_s = offered.switch_cpu_s.filter(|s| *s > 0.0).ok_or("the switch used no CPU time")?;
            let switches = offered.context_switches.ok_or("nobody counted its context switches")?;
            let switching = switches as f64 * wake_s / cpu_s;
            let sampled: u32 =
                samples.iter().filter(|(class, _)| **class != Class::Switching).map(|s| s.1).sum();
            let mut share = |name: &str, value| outcome.push(name, "ratio", Better::Neither, value);
            share("share_context_switches", switching);
            for (class, name) in [
                (Class::Copying, "share_copying"),
                (Class::VnicQueue, "share_vnic_queues"),
                (Class::Unnamed, "share_unnamed"),
            ] {
                let count = samples.get(&class).copied().unwrap_or(0);
                share(name, f64::from(count) / f64::from(sampled.max(1)) * (1.0 - switching).max(0.0));
            }
        }
        Ok(outcome)
    }
}

/// The activity of the switch in a sample.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Class {
    Copying,
    VnicQueue,
    Unnamed,
    /// In the scheduler: such samples are not used.
    Switching,
    Other,
}

/// By symbol names of Linux, the C library, DPDK, and Crosspoint.
fn class(symbol: &str) -> Class {
    let is = |names: &[&str]| names.iter().any(|name| symbol.contains(name));
    if is(&["finish_task_switch", "__schedule", "__switch_to"]) {
        return Class::Switching;
    }
    if is(&[
        "memcpy",
        "memmove",
        "copy_user",
        "copy_to_",
        "copy_from_",
        "_copy_",
        "rep_movs",
        "skb_copy_bits",
    ]) {
        Class::Copying
    } else if is(&["vhost", "virtio", "tun_", "tap_"]) {
        Class::VnicQueue
    } else if symbol == "[unknown]" {
        Class::Unnamed
    } else {
        Class::Other
    }
}

/// `perf`, as it samples a process.
struct Perf {
    process: Process,
    dir: TempDir,
}

impl Perf {
    fn start(program: &str, pid: u32, patience: Duration) -> Result<Perf, String> {
        let dir = TempDir::new("perf")?;
        let data = dir.0.join("data");
        let mut command = Command::new(program);
        command.args(["record", "-e", "cpu-clock", "-k", "CLOCK_MONOTONIC", "-F", &SAMPLES_HZ.to_string()]);
        command.args(["-p", &pid.to_string(), "-o"]).arg(&data);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::spawn(&mut command)?;
        let mut is_alive = || match process.0.try_wait().map_err(|e| e.to_string())? {
            None => Ok(()),
            Some(status) => Err(format!("{command:?}: {status}: perf cannot sample here")),
        };
        let since = Instant::now();
        // An interrupt before it has begun its file would end it without one.
        while !std::fs::metadata(&data).is_ok_and(|file| file.len() > 0) {
            is_alive()?;
            if since.elapsed() > patience {
                return Err(format!("{command:?}: perf began no file within {patience:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(START);
        is_alive()?;
        Ok(Perf { process, dir })
    }

    /// Samples by class from one time to another, in seconds of the monotonic clock.
    fn finish(mut self, start: f64, end: f64) -> Result<BTreeMap<Class, u32>, String> {
        self.process.interrupt();
        let since = Instant::now();
        while self.process.0.try_wait().map_err(|e| e.to_string())?.is_none() {
            if since.elapsed() > END {
                return Err(format!("perf does not end within {} s", END.as_secs()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let mut script = Command::new(PERF);
        script.args(["script", "-F", "time,ip,sym", "-i"]).arg(self.dir.0.join("data"));
        Ok(classes(&run(&mut script)?, start, end))
    }
}

/// Lines of `TIME: ADDRESS SYMBOL`.
fn classes(text: &str, start: f64, end: f64) -> BTreeMap<Class, u32> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        let Some((time, place)) = line.trim().split_once(": ") else { continue };
        let Some((_, symbol)) = place.trim().split_once(' ') else { continue };
        if time.parse::<f64>().is_ok_and(|time| (start..=end).contains(&time)) {
            *counts.entry(class(symbol.trim())).or_default() += 1;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    /// A program in place of perf: a shell script, in which `$data` is the file.
    fn script(dir: &TempDir, body: &str) -> String {
        let path = dir.0.join("perf");
        std::fs::write(&path, format!("#!/bin/sh\nfor data; do :; done\n{body}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path.to_string_lossy().into_owned()
    }

    #[test]
    fn perf_that_is_slow_to_begin_its_file_is_waited_for_but_not_without_end() {
        let dir = TempDir::new("perf-test").unwrap();
        let start = |body: &str, patience| {
            Perf::start(&script(&dir, body), std::process::id(), Duration::from_millis(patience))
        };
        let perf = start("sleep 0.8; echo x > \"$data\"; exec sleep 60", 30_000).unwrap();
        assert_eq!(std::fs::read_to_string(perf.dir.0.join("data")).unwrap(), "x\n");
        let why = start("exec sleep 60", 50).err().unwrap();
        assert!(why.contains("began no file within 50ms"), "{why}");
        let why = start("exit 3", 30_000).err().unwrap();
        assert!(why.contains("exit status: 3") && why.contains("cannot sample"), "{why}");
    }

    #[test]
    fn samples_are_told_by_symbol_and_only_those_of_the_load_count() {
        let text = "  9.999999:  ffffffff81 __memmove_avx_unaligned_erms\n \
                    10.000001:      7f4410 ports::vhost_user::ring::transmit::Ring::write\n \
                    10.500000:      7f4410 __memmove_avx_unaligned_erms\n \
                    10.600000:  ffffffff82 copy_user_generic\n \
                    10.700000:  ffffffff82 tun_do_read\n \
                    10.750000:  ffffffff82 finish_task_switch.isra.0\n \
                    10.800000:      7f4411 [unknown]\n \
                    10.900000:      7f4412 <datapath::worker::Worker<P> as core::ops::Fn>::call\n \
                    11.000001:      7f4411 [unknown]\n";
        let counts = classes(text, 10.0, 11.0);
        let wanted = [
            (Class::Copying, 2),
            (Class::VnicQueue, 2),
            (Class::Unnamed, 1),
            (Class::Switching, 1),
            (Class::Other, 1),
        ];
        let wanted = wanted.into();
        assert_eq!(counts, wanted);
    }
}
