//! Levels of lines.

/// How bad it is. The order is that of verbosity: a destination logs what is at or below its level.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs)]
pub enum Level {
    Off,
    Emergency,
    Error,
    Warning,
    Info,
    Debug,
}

impl Level {
    const ALL: [Level; 6] =
        [Level::Off, Level::Emergency, Level::Error, Level::Warning, Level::Info, Level::Debug];

    /// The name in lines and lists.
    pub fn short_name(self) -> &'static str {
        ["OFF", "EMER", "ERR", "WARN", "INFO", "DBG"][self as usize]
    }

    pub(super) fn from_number(number: u8) -> Level {
        Level::ALL.get(usize::from(number)).copied().unwrap_or(Level::Debug)
    }

    pub(super) fn of(level: &tracing::Level) -> Level {
        match *level {
            tracing::Level::ERROR => Level::Error,
            tracing::Level::WARN => Level::Warning,
            tracing::Level::INFO => Level::Info,
            _ => Level::Debug,
        }
    }

    /// Severity of syslog (RFC 5424 section 6.2.1).
    pub(super) fn syslog_severity(self) -> u32 {
        [1, 1, 3, 4, 5, 7][self as usize]
    }

    pub(super) fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| name.eq_ignore_ascii_case(l.short_name()))
    }
}
