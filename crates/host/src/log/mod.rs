//! The log: one line an event, in Open vSwitch's form, `2026-01-31T12:00:00.123Z|00001|module|LEVEL|text`.
//!
//! Events come from `tracing`; the module is the event's target (`bridge`, `ofproto`, ...), one of
//! [`MODULES`]. Each module has a level per destination (the console, which is stderr, the system log, and
//! the log file) that `vlog/set` changes while the program runs, and each destination a pattern. An event
//! that repeats too fast is held back, call site by call site, and the next one that is let through says how
//! many were.
//!
//! Not by `tracing-subscriber` or `tracing-appender`: levels change by module and destination while the
//! program runs, patterns are Open vSwitch's, and files are rotated by `logrotate`, which then calls
//! `vlog/reopen`.
//!
//! Threads: any. Writing takes a lock; the packet path does not log.

mod level;
mod modules;
mod pattern;
mod rate;
mod spec;
mod syslog;
mod text;

pub use base::os_text;
pub use level::Level;
pub use modules::MODULES;
pub use pattern::strftime;
pub use spec::{Change, Destination, Setting};
pub use syslog::Method as SyslogMethod;

use crate::program;
use pattern::Line;
use rate::{Bucket, Verdict};
use rustix::fs::OFlags;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use tracing::callsite::Identifier;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber, span};
use unix_socket::file_id;

const DESTINATIONS: usize = Destination::ALL.len();
/// syslog's `daemon`, to which messages go.
const FACILITY: u8 = 3;
/// syslog's `local0`, which `%B` in a pattern of one's own stands for.
const PATTERN_FACILITY: u8 = 16;
/// No facility has been set: not a facility.
const UNSET: u8 = u8::MAX;

struct Log {
    started: Instant,
    /// Per module and destination.
    levels: Vec<[AtomicU8; DESTINATIONS]>,
    /// Per module: whether floods are held back.
    limited: Vec<AtomicBool>,
    facility: AtomicU8,
    count: AtomicU64,
    /// See [`follow_no_link`].
    follows_links: AtomicBool,
    rates: Mutex<HashMap<Identifier, Bucket>>,
    outputs: Mutex<Outputs>,
}

struct Outputs {
    patterns: [String; DESTINATIONS],
    file: Option<OpenFile>,
    /// `None` until an option gives one, or the first message asks for what the environment gives.
    syslog_method: Option<SyslogMethod>,
    /// Opened at the first message; `Some(None)` if that failed.
    syslog: syslog::Connection,
    /// `--syslog-target`.
    collector: Option<std::net::UdpSocket>,
}

struct OpenFile {
    path: PathBuf,
    /// `None` after `vlog/close`.
    file: Option<File>,
}

static LOG: OnceLock<Log> = OnceLock::new();

fn log() -> &'static Log {
    LOG.get_or_init(|| {
        let defaults = || Destination::ALL.map(|d| AtomicU8::new(d.default_level() as u8));
        Log {
            started: Instant::now(),
            levels: MODULES.iter().map(|_| defaults()).collect(),
            limited: MODULES.iter().map(|_| AtomicBool::new(true)).collect(),
            facility: AtomicU8::new(UNSET),
            count: AtomicU64::new(0),
            follows_links: AtomicBool::new(true),
            rates: Mutex::default(),
            outputs: Mutex::new(Outputs {
                patterns: Destination::ALL.map(|d| d.default_pattern().to_string()),
                file: None,
                syslog_method: None,
                syslog: syslog::Connection::default(),
                collector: None,
            }),
        }
    })
}

fn outputs() -> MutexGuard<'static, Outputs> {
    log().outputs.lock().unwrap_or_else(|e| e.into_inner())
}

/// Makes `tracing` events go to the log. A second call changes nothing.
pub fn start() {
    // The only error is that a subscriber is set already: this one.
    let _ = tracing::subscriber::set_global_default(ToLog);
}

/// Writes to a file too, appending. The directory must exist.
pub fn open_file(path: &Path) -> io::Result<()> {
    open_file_quietly(path)?;
    tracing::info!(target: "vlog", "opened log file {}", path.display());
    Ok(())
}

/// The same, without a line about it: for a further process of the same daemon.
pub fn open_file_quietly(path: &Path) -> io::Result<()> {
    let opened = open(path)?;
    outputs().file = Some(opened);
    Ok(())
}

/// From now on a log file that is a symbolic link is refused.
pub fn follow_no_link() {
    log().follows_links.store(false, Ordering::Relaxed);
}

fn open(path: &Path) -> io::Result<OpenFile> {
    let path = std::path::absolute(path)?;
    let flags = if log().follows_links.load(Ordering::Relaxed) { 0 } else { OFlags::NOFOLLOW.bits() as i32 };
    let file = OpenOptions::new().append(true).create(true).mode(0o640).custom_flags(flags).open(&path)?;
    Ok(OpenFile { path, file: Some(file) })
}

/// Leaves a log file that cannot be opened to [`reopen_file`].
pub fn open_file_later(path: &Path) {
    outputs().file = Some(OpenFile { path: path.to_owned(), file: None });
}

/// Opens the log file again under its name, after it was moved away (`vlog/reopen`). If that fails, the one
/// that is open is kept.
///
/// # Errors
/// The system's text.
pub fn reopen_file() -> Result<(), String> {
    let file = outputs().file.as_ref().map(|f| (f.path.clone(), f.file.is_some()));
    let (path, is_open) = file.ok_or("Logging to file not configured")?;
    if is_open && is_file_at(&path) {
        return Ok(());
    }
    let opened = open(&path).map_err(|error| {
        let why = os_text(&error);
        tracing::warn!(target: "vlog", "failed to open {} for logging: {why}", path.display());
        why
    })?;
    if is_open {
        tracing::info!(target: "vlog", "closing log file");
    }
    outputs().file = Some(opened);
    tracing::info!(target: "vlog", "opened log file {}", path.display());
    Ok(())
}

/// Whether the open file is the one with this name.
fn is_file_at(path: &Path) -> bool {
    let outputs = outputs();
    let open = outputs.file.as_ref().and_then(|f| f.file.as_ref()?.metadata().ok());
    let there = std::fs::metadata(path).ok();
    open.zip(there).is_some_and(|(open, there)| file_id(&open) == file_id(&there))
}

/// Stops writing to the file (`vlog/close`), until [`reopen_file`].
pub fn close_file() {
    if let Some(open) = &mut outputs().file {
        open.file = None;
    }
}

/// The method for syslog messages. The first one set applies, and takes precedence over `OVS_SYSLOG_METHOD`.
pub fn set_syslog_method(method: SyslogMethod) {
    outputs().syslog_method.get_or_insert(method);
}

/// Sends what goes to syslog to a collector over UDP too. A target that makes no sense is told of, no more,
/// as in Open vSwitch: what logs need not end.
pub fn set_syslog_target(target: &str) {
    let collector = syslog::udp(target);
    if let Err(error) = &collector {
        match target.contains(':') {
            true => tracing::error!(target: "socket_util", "{target}: {}", os_text(error)),
            false => tracing::error!(target: "socket_util", "{target}: port must be specified"),
        }
    }
    outputs().collector = collector.ok();
}

/// Changes a level, a pattern, or the facility.
pub fn apply(change: &Change) {
    match change {
        Change::Level(setting) => set(setting),
        Change::Pattern(destination, pattern) => {
            let mut outputs = outputs();
            for d in Destination::ALL.into_iter().filter(|d| destination.is_none_or(|only| only == *d)) {
                outputs.patterns[d as usize] = pattern.clone();
            }
        }
        Change::Facility(number) => log().facility.store(*number, Ordering::Relaxed),
    }
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

/// Turns rate limiting of a module's messages on or off; of all modules if none is named. The error is Open
/// vSwitch's.
pub fn limit_rate(module: Option<&str>, limited: bool) -> Result<(), String> {
    let named = |m: &str| module.is_none_or(|name| name.replace('-', "_").eq_ignore_ascii_case(m));
    if !MODULES.iter().any(|m| named(m)) {
        return Err("unknown module".into());
    }
    for (module, flag) in MODULES.iter().zip(&log().limited) {
        if named(module) {
            flag.store(limited, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// The level of every module at every destination, in the order of [`Destination::ALL`].
pub fn levels() -> impl Iterator<Item = (&'static str, [Level; DESTINATIONS])> {
    let read = |l: &AtomicU8| Level::from_number(l.load(Ordering::Relaxed));
    MODULES.iter().zip(&log().levels).map(move |(module, levels)| (*module, levels.each_ref().map(read)))
}

/// The text of `vlog/list`.
pub fn list() -> String {
    let mut text = "                 console    syslog    file\n".to_string();
    text.push_str("                 -------    ------    ------\n");
    for (module, levels) in levels() {
        let [console, syslog, file] = levels.map(|l| l.short_name());
        let limited = MODULES.binary_search(&module).is_ok_and(|i| log().limited[i].load(Ordering::Relaxed));
        let note = if limited { "" } else { "    (rate limiting disabled)" };
        let _ = writeln!(text, "{module:<16}  {console:>4}       {syslog:>4}       {file:>4}{note}");
    }
    text
}

/// The text of `vlog/list-pattern`.
pub fn list_patterns() -> String {
    let mut outputs = outputs();
    let method = outputs.syslog_method.get_or_insert_with(SyslogMethod::from_env).clone();
    let mut text = "         prefix                            format\n".to_string();
    text.push_str("         ------                            ------\n");
    for destination in [Destination::Syslog, Destination::Console, Destination::File] {
        let head = match (destination, &method) {
            (Destination::Syslog, SyslogMethod::Unix(_) | SyslogMethod::Udp(_)) => pattern::LOCAL_SYSLOG_HEAD,
            _ => "none",
        };
        let name = destination.name().to_uppercase();
        let _ = writeln!(text, "{name:<7}  {head:<32}  {}", outputs.patterns[destination as usize]);
    }
    text
}

/// A line at level EMER, for what ends the program: to syslog and file, for stderr has it in other words.
pub fn emergency(module: &'static str, text: &str) {
    log().write(module_named(module), Level::Emergency, text, false, false);
}

fn module_named(name: &str) -> usize {
    let find = |name: &str| MODULES.binary_search(&name);
    find(name).or_else(|_| find("vswitchd")).unwrap_or(0)
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
        Level::of(metadata.level()) as u8 <= most_verbose(module_named(metadata.target()))
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
        let module = module_named(metadata.target());
        let level = Level::of(metadata.level());
        // DBG is never limited: a gap in a trace of messages would be misleading.
        if level != Level::Debug && log.limited[module].load(Ordering::Relaxed) {
            let verdict = {
                let mut rates = log.rates.lock().unwrap_or_else(|e| e.into_inner());
                let now_ms = log.started.elapsed().as_millis() as u64;
                rates.entry(metadata.callsite()).or_default().event(now_ms)
            };
            match verdict {
                Verdict::Drop => return,
                Verdict::Pass => {}
                Verdict::PassAfter(held_back) => {
                    log.write(module, level, &held_back.to_string(), false, true)
                }
            }
        }
        let (text, has_lines) = text::of(event);
        log.write(module, level, &text, has_lines, true);
    }
}

impl Log {
    fn write(&self, module: usize, level: Level, text: &str, has_lines: bool, to_console: bool) {
        let wanted = |d: Destination| level as u8 <= self.levels[module][d as usize].load(Ordering::Relaxed);
        let console = to_console && wanted(Destination::Console);
        let (syslog, file) = (wanted(Destination::Syslog), wanted(Destination::File));
        let mut outputs = self.outputs.lock().unwrap_or_else(|e| e.into_inner());
        let file = file && outputs.file.as_ref().is_some_and(|open| open.file.is_some());
        if !console && !file && !syslog {
            return;
        }
        let thread = std::thread::current();
        let line = Line {
            since_epoch: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
            since_start: self.started.elapsed(),
            number: self.count.fetch_add(1, Ordering::Relaxed) + 1,
            module: MODULES[module],
            // In a separate process, the database server's thread is the one that others would call the main
            // one.
            thread: thread
                .name()
                .filter(|n| *n != "main" && (*n != "ovsdb" || program::name() != "ovsdb-server")),
            level,
            text,
            has_lines,
            facility: self.facility_or(PATTERN_FACILITY),
            program: program::name(),
        };
        // A log that cannot be written has nowhere to say so.
        if console {
            let text = pattern::format(&outputs.patterns[Destination::Console as usize], &line) + "\n";
            let _ = io::stderr().lock().write_all(text.as_bytes());
        }
        if file {
            let text = pattern::format(&outputs.patterns[Destination::File as usize], &line) + "\n";
            if let Some(open) = outputs.file.as_mut().and_then(|open| open.file.as_mut()) {
                let _ = open.write_all(text.as_bytes());
            }
        }
        if syslog {
            outputs.send_to_syslog(&Line { facility: self.facility_or(FACILITY), ..line });
        }
    }

    fn facility_or(&self, default: u8) -> u8 {
        match self.facility.load(Ordering::Relaxed) {
            UNSET => default,
            set => set,
        }
    }
}

impl Outputs {
    fn send_to_syslog(&mut self, line: &Line<'_>) {
        let method = self.syslog_method.get_or_insert_with(SyslogMethod::from_env);
        if *method != SyslogMethod::Null {
            let head = pattern::format(pattern::LOCAL_SYSLOG_HEAD, line);
            let text = pattern::format(&self.patterns[Destination::Syslog as usize], line);
            self.syslog.send(method, &format!("{head} {text}"));
        }
        if let Some(collector) = &self.collector {
            let _ = collector.send(pattern::format(pattern::REMOTE_SYSLOG, line).as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_changes_the_levels_of_its_module_alone() {
        set(&Setting::parse("netdev:file:dbg").unwrap());
        let of = |name| levels().find(|(module, _)| *module == name).unwrap().1;
        assert_eq!(of("netdev")[Destination::File as usize], Level::Debug);
        assert_ne!(of("netdev")[Destination::Console as usize], Level::Debug);
        assert_ne!(of("bridge")[Destination::File as usize], Level::Debug);
    }

    #[test]
    fn lists_have_the_columns_of_open_vswitch() {
        let levels = list();
        assert!(levels.starts_with(
            "                 console    syslog    file\n                 -------    ------    ------\n"
        ));
        assert!(levels.contains("\nbridge            INFO       INFO       INFO\n"), "{levels}");
        let patterns = list_patterns();
        assert!(
            patterns.contains("\nSYSLOG   <%B> %D{%h %e %T} %E %A:          ovs|%05N|%c%T|%p|%m\n"),
            "{patterns}"
        );
        assert!(patterns.contains(
            "\nFILE     none                              %D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m\n"
        ));
        assert_eq!(limit_rate(Some("nosuch"), true), Err("unknown module".into()));
    }
}
