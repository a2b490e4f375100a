//! Destinations, and the words of `vlog/set` and `-v` that choose among them and levels.

use super::level::Level;
use super::{MODULES, pattern, syslog};

/// Where lines go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// stderr.
    Console,
    /// The system log.
    Syslog,
    /// The log file, if there is one.
    File,
}

impl Destination {
    /// All of them.
    pub const ALL: [Destination; 3] = [Destination::Console, Destination::Syslog, Destination::File];

    /// The name in `vlog/list`.
    pub fn name(self) -> &'static str {
        ["console", "syslog", "file"][self as usize]
    }

    pub(super) fn default_level(self) -> Level {
        Level::Info
    }

    pub(super) fn default_pattern(self) -> &'static str {
        [pattern::CONSOLE, pattern::SYSLOG, pattern::FILE][self as usize]
    }

    fn from_name(name: &str) -> Option<Destination> {
        Destination::ALL.into_iter().find(|d| name.eq_ignore_ascii_case(d.name()))
    }
}

/// The changes made by one argument of `vlog/set` or `-v`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    /// Levels.
    Level(Setting),
    /// The pattern of one destination, or of all.
    Pattern(Option<Destination>, String),
    /// The facility of syslog messages.
    Facility(u8),
}

impl Change {
    /// `PATTERN:DESTINATION:PATTERN`, `FACILITY:NAME`, or levels as [`Setting::parse`] takes them. The error
    /// is Open vSwitch's.
    pub fn parse(text: &str) -> Result<Change, String> {
        let (word, rest) = text.split_once(':').unwrap_or((text, ""));
        if word.eq_ignore_ascii_case("PATTERN") {
            let (name, pattern) = rest.split_once(':').ok_or("missing pattern")?;
            let destination = match Destination::from_name(name) {
                None if name.eq_ignore_ascii_case("any") => None,
                None => return Err(format!("unknown destination \"{name}\"")),
                found => found,
            };
            return Ok(Change::Pattern(destination, pattern.to_string()));
        }
        if word.eq_ignore_ascii_case("FACILITY") {
            return syslog::facility(rest).map(Change::Facility).ok_or_else(|| "invalid facility".into());
        }
        Setting::parse(text).map(Change::Level)
    }
}

/// Levels: a level for one module or all, at one destination or all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    module: Option<&'static str>,
    destination: Option<Destination>,
    pub(super) level: Level,
}

impl Setting {
    /// Parses words in any order, separated by colons, commas or spaces: a module, a destination, a level,
    /// `any`. The default level is `dbg`. The error is Open vSwitch's.
    pub fn parse(text: &str) -> Result<Setting, String> {
        let mut setting = Setting { module: None, destination: None, level: Level::Debug };
        let mut level_given = false;
        for word in text.split([':', ',', ' ', '\t']).filter(|w| !w.is_empty()) {
            let destination = Destination::from_name(word);
            let module = MODULES.iter().find(|m| m.eq_ignore_ascii_case(&word.replace('-', "_")));
            if let Some(destination) = destination {
                if setting.destination.replace(destination).is_some() {
                    return Err("cannot specify multiple destinations".into());
                }
            } else if word.eq_ignore_ascii_case("any") {
                // Module or destination; the default for both is any.
            } else if let Some(level) = Level::from_name(word) {
                if level_given {
                    return Err("cannot specify multiple levels".into());
                }
                (setting.level, level_given) = (level, true);
            } else if let Some(module) = module {
                if setting.module.replace(module).is_some() {
                    return Err("cannot specify multiple modules".into());
                }
            } else {
                return Err(format!("no destination, level, or module \"{word}\""));
            }
        }
        Ok(setting)
    }

    /// All modules at one destination.
    pub fn everything_at(destination: Destination, level: Level) -> Setting {
        Setting { module: None, destination: Some(destination), level }
    }

    pub(super) fn applies(&self, module: &str, destination: Destination) -> bool {
        self.module.is_none_or(|m| m == module) && self.destination.is_none_or(|d| d == destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_facilities_are_changes_too() {
        let parse = |text: &str| Change::parse(text);
        assert_eq!(parse("PATTERN:file:%p|%m"), Ok(Change::Pattern(Some(Destination::File), "%p|%m".into())));
        assert_eq!(parse("pattern:ANY:x:y"), Ok(Change::Pattern(None, "x:y".into())));
        assert_eq!(parse("FACILITY:local7"), Ok(Change::Facility(23)));
        assert_eq!(parse("PATTERN:x:y").unwrap_err(), "unknown destination \"x\"");
        assert_eq!(parse("PATTERN:file").unwrap_err(), "missing pattern");
        assert_eq!(parse("FACILITY:x").unwrap_err(), "invalid facility");
        assert!(matches!(parse("syslog:off"), Ok(Change::Level(_))));
    }

    #[test]
    fn words_come_in_any_order_and_wrong_ones_are_named() {
        let setting = Setting::parse("bridge:console:warn").unwrap();
        assert_eq!(setting, Setting::parse("warn,console bridge").unwrap());
        assert_eq!(Setting::parse("any:dbg").unwrap().level, Level::Debug);
        assert_eq!(Setting::parse("bridge").unwrap().level, Level::Debug);
        for (text, error) in [
            ("nosuch:dbg", "no destination, level, or module \"nosuch\""),
            ("file:console:dbg", "cannot specify multiple destinations"),
            ("info:dbg", "cannot specify multiple levels"),
            ("bridge:ofproto:dbg", "cannot specify multiple modules"),
        ] {
            assert_eq!(Setting::parse(text).unwrap_err(), error);
        }
    }
}
