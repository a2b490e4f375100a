//! Patterns: how a line looks at a destination, as `vlog/set PATTERN:` and `-vPATTERN:` take them.
//!
//! A `%` begins what is filled in: `A` program, `B` severity number for syslog (RFC 5424 section 6.2.1), `c`
//! module, `d` and `D{}` the time in UTC or local by strftime with `###` for milliseconds, `E` host, `m`
//! message, `N` number, `n` line end, `p` level, `P` process, `r` milliseconds since the start, `t` and `T`
//! thread (the latter in parentheses), `%` itself. Between the two stand an optional `-` (left), `0` (zeros)
//! and a width.

use super::level::Level;
use std::fmt::Write;
use std::time::Duration;

/// The contents of a line.
pub struct Line<'a> {
    pub since_epoch: Duration,
    pub since_start: Duration,
    pub number: u64,
    pub module: &'a str,
    /// Name of the thread, if it is not the main one.
    pub thread: Option<&'a str>,
    pub level: Level,
    pub text: &'a str,
    /// The text has several lines, and contains no names that others could choose.
    pub has_lines: bool,
    /// Facility of syslog, 0 to 23.
    pub facility: u8,
    pub program: &'a str,
}

/// The default of the console.
pub const CONSOLE: &str = "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m";
/// The default of the file.
pub const FILE: &str = "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m";
/// The default of syslog; the transport puts its own head before it.
pub const SYSLOG: &str = "ovs|%05N|%c%T|%p|%m";
/// The head that the system's own log wants (RFC 3164).
pub const LOCAL_SYSLOG_HEAD: &str = "<%B> %D{%h %e %T} %E %A:";
/// A whole message of RFC 5424, for a collector over UDP. The three bytes before the text say that it is
/// UTF-8.
pub const REMOTE_SYSLOG: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

/// The line without its newline. Control characters in the text are escaped, so that it stays one line
/// whatever names it contains.
pub fn format(pattern: &str, line: &Line<'_>) -> String {
    let mut out = String::new();
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let left = chars.next_if_eq(&'-').is_some();
        let zeros = chars.next_if_eq(&'0').is_some();
        let mut width = 0usize;
        while let Some(digit) = chars.peek().and_then(|c| c.to_digit(10)) {
            width = (width * 10 + digit as usize).min(256);
            chars.next();
        }
        let Some(what) = chars.next() else { break };
        let mut inner = String::new();
        if chars.next_if_eq(&'{').is_some() {
            inner.extend(chars.by_ref().take_while(|c| *c != '}'));
        }
        let text = field(what, &inner, line);
        let padding = width.saturating_sub(text.chars().count());
        let pad = if zeros { "0" } else { " " }.repeat(padding);
        if left {
            out.push_str(&text);
            out.push_str(&pad);
        } else {
            out.push_str(&pad);
            out.push_str(&text);
        }
    }
    out
}

fn field(what: char, inner: &str, line: &Line<'_>) -> String {
    let or = |default: &'static str| if inner.is_empty() { default } else { inner }.to_string();
    match what {
        'A' => line.program.to_string(),
        'B' => (u32::from(line.facility) * 8 + line.level.syslog_severity()).to_string(),
        'c' => line.module.to_string(),
        // There is no local time here: a daemon's log is in UTC, as Open vSwitch's is by default.
        'd' | 'D' => strftime(&or("%Y-%m-%d %H:%M:%S"), line.since_epoch),
        'E' => hostname(),
        'm' if line.has_lines => line.text.to_string(),
        'm' => escaped(line.text),
        'N' => line.number.to_string(),
        'n' => "\n".into(),
        'p' => line.level.short_name().into(),
        'P' => std::process::id().to_string(),
        'r' => line.since_start.as_millis().to_string(),
        't' => line.thread.map_or_else(|| or(""), str::to_string),
        'T' => line.thread.map_or_else(|| or(""), |name| format!("({name})")),
        other => other.to_string(),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The conversions of strftime(3) that logs use, and `#` for the digits of a second's fraction.
pub fn strftime(format: &str, since_epoch: Duration) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let fraction = format!("{:09}", since_epoch.subsec_nanos());
    let mut digits = fraction.chars();
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        match c {
            '#' => out.push(digits.next().unwrap_or('0')),
            '%' => {
                let _ = match chars.next() {
                    Some('Y') => write!(out, "{year:04}"),
                    Some('y') => write!(out, "{:02}", year % 100),
                    Some('m') => write!(out, "{month:02}"),
                    Some('b' | 'h') => write!(out, "{}", MONTHS[(month - 1) as usize]),
                    Some('d') => write!(out, "{day:02}"),
                    Some('e') => write!(out, "{day:2}"),
                    Some('F') => write!(out, "{year:04}-{month:02}-{day:02}"),
                    Some('H') => write!(out, "{hour:02}"),
                    Some('M') => write!(out, "{minute:02}"),
                    Some('S') => write!(out, "{second:02}"),
                    Some('T') => write!(out, "{hour:02}:{minute:02}:{second:02}"),
                    Some('s') => write!(out, "{seconds}"),
                    Some('z') => write!(out, "+0000"),
                    Some('Z') => write!(out, "UTC"),
                    Some('%') => write!(out, "%"),
                    Some(other) => write!(out, "%{other}"),
                    None => Ok(()),
                };
            }
            c => out.push(c),
        }
    }
    out
}

/// Year, month and day of the day `days` after 1970-01-01. Years begin in March here, so that the leap day is
/// the last.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468; // From 0000-03-01.
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line() -> Line<'static> {
        Line {
            has_lines: false,
            since_epoch: Duration::from_millis(1_769_860_800_123),
            since_start: Duration::from_millis(42),
            number: 1,
            module: "bridge",
            thread: None,
            level: Level::Info,
            text: "added port p1\nnot a line",
            facility: 3,
            program: "ovs-vswitchd",
        }
    }

    #[test]
    fn line_ends_stay_only_where_the_switch_chose_all_of_the_text() {
        let two = Line { text: "one\ntwo", ..line() };
        assert_eq!(format("%m", &two), "one\\ntwo");
        assert_eq!(format("%m", &Line { has_lines: true, ..two }), "one\ntwo");
    }

    #[test]
    fn a_line_has_time_number_module_level_and_text() {
        let text = format(FILE, &line());
        assert_eq!(text, "2026-01-31T12:00:00.123Z|00001|bridge|INFO|added port p1\\nnot a line");
        let line = Line { thread: Some("worker0"), ..line() };
        assert!(format(FILE, &line).contains("|bridge(worker0)|"));
    }

    #[test]
    fn patterns_pad_and_fill_in_what_they_name() {
        let text = format("%-8c|%8p|%03N|%r|%A[%B]%%|%D{%h %e %T}|%T{main}|%t", &line());
        assert_eq!(text, "bridge  |    INFO|001|42|ovs-vswitchd[29]%|Jan 31 12:00:00|main|");
        // What makes no sense is shown, and ends nothing.
        assert_eq!(
            format("%q%99999999999x|%D{%Q}|%", &line()).trim_start(),
            "q".to_string() + &" ".repeat(255) + "x|%Q|"
        );
    }

    #[test]
    fn days_become_dates_also_around_leap_days() {
        assert_eq!(civil(0), (1970, 1, 1));
        assert_eq!(civil(11_016), (2000, 2, 29));
        assert_eq!(civil(11_017), (2000, 3, 1));
        assert_eq!(civil(19_782), (2024, 2, 29));
        assert_eq!(civil(20_453), (2025, 12, 31));
        assert_eq!(civil(20_454), (2026, 1, 1));
    }
}
