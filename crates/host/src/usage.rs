//! The command line of a program, around the [option parser](crate::getopt): the options that all have,
//! errors with a suggestion, and the log of programs that run a command and end.

use crate::daemonize::{LOGGING, Options};
use crate::getopt::{self, Opt, Order, Parsed};
use crate::log::{self, Destination, Level, Setting};
use crate::program;
use base::suggest;
use std::process::ExitCode;
use std::time::Duration;

/// The part that is the same in every program's command line.
pub struct Usage<'a> {
    /// Its options, in tables.
    pub tables: &'a [&'a [Opt]],
    /// Where options end.
    pub order: Order,
    /// The text of `--help`.
    pub help: String,
    /// Lines that the stock program's `--version` has after its first.
    pub version: &'a [&'a str],
}

impl Usage<'_> {
    /// Parses the arguments. An exit code: they asked for help, for the version or for the options, which
    /// were shown, or are wrong.
    pub fn parse(&self, args: &[String]) -> Result<Parsed, ExitCode> {
        self.parse_with(args, |_, _| Ok(()))
    }

    /// The same, with options taken in their order, the first that is wrong or asks for a text being the end.
    pub fn parse_with(
        &self,
        args: &[String],
        mut take: impl FnMut(&str, Option<&str>) -> Result<(), String>,
    ) -> Result<Parsed, ExitCode> {
        let parsed = parse(self.tables, args, self.order).map_err(|error| fail(&error))?;
        for (name, value) in &parsed.options {
            let text = match *name {
                "help" => self.help.clone(),
                "version" => program::version_text(program::name(), self.version),
                "option" => getopt::list(self.tables),
                _ => {
                    take(name, value.as_deref()).map_err(|error| fail(&error))?;
                    continue;
                }
            };
            show(&text);
            return Err(ExitCode::SUCCESS);
        }
        Ok(parsed)
    }
}

/// Options that show a text and end the program, whatever is wrong behind them.
const SHOWS: [&str; 3] = ["help", "version", "option"];

/// Parses options. The error has a second line with the nearest option for one that is unknown.
pub fn parse(tables: &[&[Opt]], args: &[String], order: Order) -> Result<Parsed, String> {
    let mut parsed = Parsed::default();
    match getopt::parse(&mut parsed, tables, args, order) {
        Err(error) if !parsed.options.iter().any(|(name, _)| SHOWS.contains(name)) => {
            let unknown = error.strip_prefix("unrecognized option '--");
            let unknown = unknown.and_then(|rest| rest.split(['=', '\'']).next());
            let names = tables.iter().copied().flatten().map(|opt| opt.name);
            let line = unknown.map(|name| suggest::line(name, names).replacen("'", "'--", 1));
            Err(error + line.as_deref().unwrap_or_default())
        }
        _ => Ok(parsed),
    }
}

/// The message about an unknown command.
pub fn unknown_command<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    format!("unknown command '{name}'; use --help for help{}", suggest::line(name, known))
}

/// The output of `list-commands` about commands and their arguments: the text that completion scripts read.
pub fn list_commands<'a>(commands: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let rows = commands.into_iter().map(|(name, arguments)| format!("  {name:<23} {arguments}\n"));
    "The available commands are:\n".to_string() + &rows.collect::<String>()
}

/// Prints a text; a reader that has gone is no error.
pub fn show(text: &str) {
    print!("{text}");
}

/// Says what is wrong with the command line, or why a program fails.
pub fn fail(error: &str) -> ExitCode {
    eprintln!("{}: {error}", program::name());
    ExitCode::FAILURE
}

/// The log of a program that runs a command and ends: warnings on stderr, unless options change that.
pub fn client_log() {
    log::start();
    for destination in [Destination::Console, Destination::Syslog] {
        log::set(&Setting::everything_at(destination, Level::Warning));
    }
    log_all_messages();
}

/// Handles a logging option; false if it is another option. Opens the log file at once.
pub fn take_logging(name: &str, value: Option<&str>) -> Result<bool, String> {
    if !LOGGING.iter().any(|o| o.name == name) {
        return Ok(false);
    }
    let mut options = Options::default();
    options.take(name, value)?;
    options.open_log()?;
    Ok(true)
}

/// A number of seconds as `--timeout` takes it, or the option's `short` form. The error is Open vSwitch's.
pub fn timeout(short: &str, value: &str) -> Result<Duration, String> {
    match value.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => Err(format!("value {value} on {short} or --timeout is invalid")),
    }
}

/// Makes the log include every message on a database connection, if enabled.
pub fn log_all_messages() {
    log::limit_rate(Some("jsonrpc"), false).expect("the log's module");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::getopt::{flag, value};

    #[test]
    fn options_count_in_their_order_and_an_unknown_one_is_told_with_the_nearest() {
        let table = [flag("help"), value("timeout")];
        let parse = |args: &[&str]| {
            parse(&[&table], &args.iter().map(ToString::to_string).collect::<Vec<_>>(), Order::Anywhere)
        };
        assert_eq!(parse(&["--help", "--nonesuch"]).unwrap().options, [("help", None)]);
        assert_eq!(parse(&["--nonesuch", "--help"]).unwrap_err(), "unrecognized option '--nonesuch'");
        let nearest = "unrecognized option '--timeuot=3'\n(did you mean '--timeout'?)";
        assert_eq!(parse(&["--timeuot=3"]).unwrap_err(), nearest);
    }
}
