//! Settings of the switch as a whole that need more than a line.

use super::row::Checked;
use crate::config::wanted::{AutoBalance, WorkerSettings};
use datapath::placement::Policy;
use host::rundir::RunDir;
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// `pmd-rxq-isolate`, which defaults to true.
fn isolates(c: &mut Checked<'_>, before: bool) -> bool {
    c.parsed("pmd-rxq-isolate", "true or false", Some(before), |v| v.parse().ok()).unwrap_or(true)
}

pub(super) fn worker_settings(c: &mut Checked<'_>, before: WorkerSettings) -> WorkerSettings {
    let policy = Some(before.rxq_policy);
    WorkerSettings {
        cpus: c.parsed("pmd-cpu-mask", "a mask of processors in hexadecimal", before.cpus, |v| {
            crate::config::cpu_mask(v).ok()
        }),
        flow_limit: c.number("flow-limit", 0..=usize::MAX, before.flow_limit),
        max_idle_ms: c.number("max-idle", 500..=u64::from(u32::MAX), before.max_idle_ms),
        sleep_max_us: c.number("pmd-maxsleep", 0..=u64::MAX, before.sleep_max_us),
        rxq_policy: c
            .parsed("pmd-rxq-assign", "cycles, roundrobin or group", policy, Policy::parse)
            .unwrap_or_default(),
        rxq_isolate: isolates(c, before.rxq_isolate),
        auto_balance: auto_balance(c, before.auto_balance),
    }
}

/// `pmd-auto-lb` and related settings. A number outside its range means the default.
fn auto_balance(c: &mut Checked<'_>, before: AutoBalance) -> AutoBalance {
    let default = AutoBalance::default();
    let mut number = |key: &str, range: RangeInclusive<i64>, before: u64, default: u64| {
        let given = c.number(key, i64::MIN..=i64::MAX, Some(before as i64));
        match given {
            Some(value) if range.contains(&value) => value as u64,
            Some(value) => {
                let (first, last) = (range.start(), range.end());
                c.wrong
                    .push(format!("other_config:{key}={value} is not {first} to {last}: {default} applies"));
                default
            }
            None => default,
        }
    };
    let minutes = number("pmd-auto-lb-rebal-interval", 1..=20_000, before.interval_ms / 60_000, 1);
    let percent = |n: u32| u64::from(n);
    let load = number(
        "pmd-auto-lb-load-threshold",
        0..=100,
        percent(before.load_percent),
        percent(default.load_percent),
    );
    let improvement = number(
        "pmd-auto-lb-improvement-threshold",
        0..=100,
        percent(before.improvement_percent),
        percent(default.improvement_percent),
    );
    AutoBalance {
        is_on: c.flag("pmd-auto-lb", before.is_on),
        interval_ms: minutes * 60_000,
        load_percent: load as u32,
        improvement_percent: improvement as u32,
    }
}

/// The directory of guests' sockets: the switch has it, and tells drivers as an option.
pub(super) const SOCK_DIR: &str = "vhost-sock-dir";

/// `vhost-sock-dir`, a directory below the run directory. As in Open vSwitch it is read only once; `in_force`
/// is its value at that time. A guest would not find a socket that had moved.
pub(super) fn vhost_sock_dir(c: &mut Checked<'_>, in_force: Option<PathBuf>) -> PathBuf {
    let run_dir = RunDir::from_env().path().to_path_buf();
    let asked = match c.row.value(c.column, "vhost-sock-dir") {
        Some(value) if value.contains("..") => {
            let what = format!("{}:vhost-sock-dir={value} is refused for its \"..\"", c.column);
            c.wrong
                .push(format!("{what}: sockets are in {}", in_force.as_ref().unwrap_or(&run_dir).display()));
            return in_force.unwrap_or(run_dir);
        }
        Some(value) => run_dir.join(value.trim_start_matches('/')),
        None => run_dir.clone(),
    };
    let Some(in_force) = in_force else {
        if asked != run_dir && !asked.is_dir() {
            c.wrong.push(format!("{}:vhost-sock-dir: there is no directory {}", c.column, asked.display()));
        }
        return asked;
    };
    if asked != in_force {
        let what = format!("{}:vhost-sock-dir takes effect at the next start", c.column);
        c.wrong.push(format!("{what}: until then sockets are in {}", in_force.display()));
    }
    in_force
}
