//! The form of a line.

use super::Level;
use std::fmt::{self, Write};
use std::time::Duration;
use tracing::Event;
use tracing::field::{Field, Visit};

/// What a line says.
pub struct Line<'a> {
    pub since_epoch: Duration,
    pub number: u64,
    pub module: &'a str,
    /// Name of the thread, where it is not the main one.
    pub thread: Option<&'a str>,
    pub level: Level,
    pub text: &'a str,
}

/// The line with its end. Control characters of the text are escaped, so that a line stays one whoever chose the names in it.
pub fn format(line: &Line<'_>) -> String {
    let mut out = utc(line.since_epoch);
    let _ = write!(out, "|{:05}|{}", line.number, line.module);
    if let Some(thread) = line.thread {
        let _ = write!(out, "({thread})");
    }
    let _ = write!(out, "|{}|", line.level.short_name());
    for c in line.text.chars() {
        if c.is_control() {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out.push('\n');
    out
}

/// `2026-01-31T12:00:00.123Z`.
fn utc(since_epoch: Duration) -> String {
    let seconds = since_epoch.as_secs();
    let (year, month, day) = civil((seconds / 86_400) as i64);
    let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    let ms = since_epoch.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

/// Year, month and day of the day `days` after 1970-01-01. Years begin in March here, so that the leap day is the last.
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

/// The message of an event, and its other fields behind it.
pub fn text(event: &Event<'_>) -> String {
    #[derive(Default)]
    struct Text {
        message: String,
        fields: String,
    }
    impl Visit for Text {
        fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
            let _ = match field.name() {
                "message" => write!(self.message, "{value:?}"),
                name => write!(self.fields, " {name}={value:?}"),
            };
        }
    }
    let mut text = Text::default();
    event.record(&mut text);
    text.message + &text.fields
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_time_number_module_level_and_text() {
        let mut line = Line {
            since_epoch: Duration::from_millis(1_769_860_800_123),
            number: 1,
            module: "bridge",
            thread: None,
            level: Level::Info,
            text: "added port p1\nnot a line",
        };
        let text = format(&line);
        assert_eq!(text, "2026-01-31T12:00:00.123Z|00001|bridge|INFO|added port p1\\nnot a line\n");
        line.thread = Some("worker0");
        assert!(format(&line).contains("|bridge(worker0)|"));
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
