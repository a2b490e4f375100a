//! Levels, destinations, and the words of `vlog/set` and `-v` that choose among them.

use super::MODULES;

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

    /// As lines and lists show it.
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

    fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|l| name.eq_ignore_ascii_case(l.short_name()))
    }
}

/// Where lines go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// stderr.
    Console,
    /// The system log, which is not written yet: its level stays OFF.
    Syslog,
    /// The log file, if there is one.
    File,
}

impl Destination {
    /// All of them.
    pub const ALL: [Destination; 3] = [Destination::Console, Destination::Syslog, Destination::File];

    /// As `vlog/list` shows it.
    pub fn name(self) -> &'static str {
        ["console", "syslog", "file"][self as usize]
    }

    pub(super) fn default_level(self) -> Level {
        [Level::Info, Level::Off, Level::Info][self as usize]
    }
}

/// What `vlog/set` says: a level for one module or all, at one destination or all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Setting {
    module: Option<&'static str>,
    destination: Option<Destination>,
    pub(super) level: Level,
}

impl Setting {
    /// From words in any order, separated by colons, commas or spaces: a module, a destination, a level, `any`.
    /// Without a level it is `dbg`. The error is Open vSwitch's.
    pub fn parse(text: &str) -> Result<Setting, String> {
        let mut setting = Setting { module: None, destination: None, level: Level::Debug };
        let mut level_given = false;
        for word in text.split([':', ',', ' ', '\t']).filter(|w| !w.is_empty()) {
            let destination = Destination::ALL.into_iter().find(|d| word.eq_ignore_ascii_case(d.name()));
            let module = MODULES.iter().find(|m| m.eq_ignore_ascii_case(&word.replace('-', "_")));
            if let Some(destination) = destination {
                if setting.destination.replace(destination).is_some() {
                    return Err("cannot specify multiple destinations".into());
                }
            } else if word.eq_ignore_ascii_case("any") {
                // Module or destination, and both are any unless said otherwise.
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
        if setting.destination == Some(Destination::Syslog) && setting.level != Level::Off {
            return Err("logging to syslog is not supported".into());
        }
        Ok(setting)
    }

    pub(super) fn applies(&self, module: &str, destination: Destination) -> bool {
        let everywhere = self.destination.is_none() && destination != Destination::Syslog;
        self.module.is_none_or(|m| m == module) && (everywhere || self.destination == Some(destination))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
