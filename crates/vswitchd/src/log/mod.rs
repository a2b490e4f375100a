//! The log: one line an event, in Open vSwitch's form, `2026-01-31T12:00:00.123Z|00001|module|LEVEL|text`.
//!
//! Events come from `tracing`; the module is the event's target (`bridge`, `ofproto`, ...), one of [`MODULES`]. Each
//! module has a level per destination (the console, which is stderr, and the log file) that `vlog/set` changes
//! while the switch runs. An event that repeats too fast is held back, call site by call site, and the
//! next one that is let through says how many were.
//!
//! Threads: any. Writing takes a lock; the packet path does not log.

mod line;
mod rate;
mod spec;

pub use spec::{Destination, Level, Setting};

use rate::{Bucket, Verdict};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::callsite::Identifier;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};

/// Every module that logs, sorted. A target that is not here logs as `vswitchd`.
pub const MODULES: &[&str] =
    &["bridge", "connmgr", "daemon", "datapath", "netdev", "ofproto", "unixctl", "vconn", "vlog", "vswitchd"];

const DESTINATIONS: usize = Destination::ALL.len();

struct Log {
    started: Instant,
    /// Per module and destination.
    levels: Vec<[AtomicU8; DESTINATIONS]>,
    count: AtomicU64,
    rates: Mutex<HashMap<Identifier, Bucket>>,
    file: Mutex<Option<OpenFile>>,
}

struct OpenFile {
    path: PathBuf,
    file: File,
}

static LOG: OnceLock<Log> = OnceLock::new();

fn log() -> &'static Log {
    LOG.get_or_init(|| {
        let defaults = || Destination::ALL.map(|d| AtomicU8::new(d.default_level() as u8));
        Log {
            started: Instant::now(),
            levels: MODULES.iter().map(|_| defaults()).collect(),
            count: AtomicU64::new(0),
            rates: Mutex::default(),
            file: Mutex::new(None),
        }
    })
}

/// Makes `tracing` events go to the log. A second call changes nothing.
pub fn start() {
    // The only error is that a subscriber is set already: this one.
    let _ = tracing::subscriber::set_global_default(ToLog);
}

/// Writes to a file too, appending. The directory must exist.
pub fn open_file(path: &Path) -> io::Result<()> {
    let file = OpenOptions::new().append(true).create(true).open(path)?;
    *log().file.lock().unwrap_or_else(|e| e.into_inner()) = Some(OpenFile { path: path.to_owned(), file });
    tracing::info!(target: "vlog", "opened log file {}", path.display());
    Ok(())
}

/// Opens the log file again under its name, after it was moved away (`vlog/reopen`).
pub fn reopen_file() -> Result<(), String> {
    let path = log().file.lock().unwrap_or_else(|e| e.into_inner()).as_ref().map(|f| f.path.clone());
    let path = path.ok_or("Logging to file not configured")?;
    open_file(&path).map_err(|e| format!("failed to open {} for logging ({e})", path.display()))
}

/// Stops writing to the file (`vlog/close`).
pub fn close_file() {
    *log().file.lock().unwrap_or_else(|e| e.into_inner()) = None;
}

/// Changes levels.
pub fn set(setting: &Setting) {
    for (module, levels) in MODULES.iter().zip(&log().levels) {
        for (destination, level) in Destination::ALL.iter().zip(levels) {
            if setting.applies(module, *destination) {
                level.store(setting.level as u8, Ordering::Relaxed);
            }
        }
    }
    tracing::callsite::rebuild_interest_cache();
}

/// The level of every module at every destination, in the order of [`Destination::ALL`].
pub fn levels() -> impl Iterator<Item = (&'static str, [Level; DESTINATIONS])> {
    let read = |l: &AtomicU8| Level::from_number(l.load(Ordering::Relaxed));
    MODULES.iter().zip(&log().levels).map(move |(module, levels)| (*module, levels.each_ref().map(read)))
}

fn module_of(metadata: &Metadata<'_>) -> usize {
    let fallback = MODULES.len() - 1;
    MODULES.binary_search(&metadata.target()).unwrap_or(fallback)
}

/// The most that any destination wants of the module.
fn most_verbose(module: usize) -> u8 {
    log().levels[module].iter().map(|l| l.load(Ordering::Relaxed)).max().unwrap_or(0)
}

struct ToLog;

impl Subscriber for ToLog {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if metadata.is_event() && self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        Level::of(metadata.level()) as u8 <= most_verbose(module_of(metadata))
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1) // Nobody makes spans; they would all be the same.
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let log = log();
        let metadata = event.metadata();
        let module = module_of(metadata);
        let level = Level::of(metadata.level());
        let verdict = {
            let mut rates = log.rates.lock().unwrap_or_else(|e| e.into_inner());
            let now_ms = log.started.elapsed().as_millis() as u64;
            rates.entry(metadata.callsite()).or_default().event(now_ms)
        };
        match verdict {
            Verdict::Drop => return,
            Verdict::Pass => {}
            Verdict::PassAfter(held_back) => log.write(module, level, &held_back.to_string()),
        }
        log.write(module, level, &line::text(event));
    }
}

impl Log {
    fn write(&self, module: usize, level: Level, text: &str) {
        let wanted = |d: Destination| {
            let limit = self.levels[module][d as usize].load(Ordering::Relaxed);
            level as u8 <= limit
        };
        let (console, file) = (wanted(Destination::Console), wanted(Destination::File));
        let mut open = self.file.lock().unwrap_or_else(|e| e.into_inner());
        if !console && (!file || open.is_none()) {
            return;
        }
        let line = line::format(&line::Line {
            since_epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            number: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            module: MODULES[module],
            thread: std::thread::current().name().filter(|n| *n != "main"),
            level,
            text,
        });
        // A log that cannot be written has nowhere to say so.
        if console {
            let _ = io::stderr().lock().write_all(line.as_bytes());
        }
        if file && let Some(open) = open.as_mut() {
            let _ = open.file.write_all(line.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_sorted_for_the_search_and_end_with_the_fallback() {
        assert!(MODULES.is_sorted());
        assert_eq!(MODULES.last(), Some(&"vswitchd"));
    }

    #[test]
    fn a_setting_changes_the_levels_of_its_module_alone() {
        set(&Setting::parse("netdev:file:dbg").unwrap());
        let of = |name| levels().find(|(module, _)| *module == name).unwrap().1;
        assert_eq!(of("netdev")[Destination::File as usize], Level::Debug);
        assert_ne!(of("netdev")[Destination::Console as usize], Level::Debug);
        assert_ne!(of("bridge")[Destination::File as usize], Level::Debug);
    }
}
