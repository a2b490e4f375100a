//! Command lines as Open vSwitch's programs take them: what GNU `getopt_long` accepts, with its error texts.
//!
//! A program's options are rows of tables; help, `--option` and the tests of completeness read the same rows.
//! Long names may be shortened as long as only one fits; `--name=value` and `--name value` are the same;
//! short ones may be joined; `--` ends them. Options may follow words, unless the program says that its first
//! word ends them.
//!
//! Not by a crate: `lexopt` splits arguments, and would leave to us what most of this file is, shortened
//! names, options with an optional argument, words before options, and the error texts, which scripts
//! compare.
//!
//! Source: POSIX.1-2017 base definitions, section 12.2, and the manual of the GNU C library on `getopt_long`.

/// Whether an option takes an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Takes {
    /// No.
    Nothing,
    /// Always one.
    Value,
    /// An optional one: after `=`, or directly after the letter.
    Optional,
}

/// A row: an option with its long name, and the letter that is short for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opt {
    /// Without the dashes.
    pub name: &'static str,
    /// One letter, if there is one.
    pub short: Option<char>,
    /// Its argument.
    pub takes: Takes,
    /// The argument's name in help, manual pages and completion.
    pub arg: &'static str,
    /// What the option does: a phrase without a full stop.
    pub help: &'static str,
}

/// An option without argument.
pub const fn flag(name: &'static str) -> Opt {
    Opt { name, short: None, takes: Takes::Nothing, arg: "", help: "" }
}

/// An option that always has an argument.
pub const fn value(name: &'static str) -> Opt {
    Opt { name, short: None, takes: Takes::Value, arg: "ARG", help: "" }
}

/// An option that may have an argument.
pub const fn optional(name: &'static str) -> Opt {
    Opt { name, short: None, takes: Takes::Optional, arg: "ARG", help: "" }
}

impl Opt {
    /// The same with a letter.
    pub const fn short(self, letter: char) -> Opt {
        Opt { short: Some(letter), ..self }
    }

    /// The same with a name for its argument.
    pub const fn arg(self, arg: &'static str) -> Opt {
        Opt { arg, ..self }
    }

    /// The same with a help text, in which `{run}`, `{log}`, `{db}` and `{name}` are replaced by the
    /// directories of sockets, logs and databases, and by the program's name.
    pub const fn help(self, help: &'static str) -> Opt {
        Opt { help, ..self }
    }
}

/// Where options end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// They may be anywhere among the words.
    Anywhere,
    /// The first word ends them: what follows belongs to a command.
    BeforeWords,
}

/// A parsed command line.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Parsed {
    /// Options by their long names, in the order given, with their arguments.
    pub options: Vec<(&'static str, Option<String>)>,
    /// All other words.
    pub words: Vec<String>,
}

/// Parses the arguments that follow the program's name, up to an error, which has no program name in front.
pub fn parse(parsed: &mut Parsed, tables: &[&[Opt]], args: &[String], order: Order) -> Result<(), String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            break;
        }
        if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (long, None),
            };
            let opt = by_name(tables, name, long)?;
            let value = match (opt.takes, value) {
                (Takes::Nothing, Some(_)) => {
                    return Err(format!("option '--{}' doesn't allow an argument", opt.name));
                }
                (Takes::Value, None) => {
                    let none = || format!("option '--{}' requires an argument", opt.name);
                    Some(args.next().ok_or_else(none)?.clone())
                }
                (_, value) => value,
            };
            parsed.options.push((opt.name, value));
        } else if arg.len() > 1 && arg.starts_with('-') {
            let mut letters = arg[1..].chars();
            while let Some(letter) = letters.next() {
                let opt = tables.iter().copied().flatten().find(|o| o.short == Some(letter));
                let opt = opt.ok_or_else(|| format!("invalid option -- '{letter}'"))?;
                let rest = letters.as_str();
                let value = match opt.takes {
                    Takes::Nothing => {
                        parsed.options.push((opt.name, None));
                        continue;
                    }
                    Takes::Value if rest.is_empty() => {
                        let none = || format!("option requires an argument -- '{letter}'");
                        Some(args.next().ok_or_else(none)?.clone())
                    }
                    Takes::Optional if rest.is_empty() => None,
                    _ => Some(rest.to_string()),
                };
                parsed.options.push((opt.name, value));
                break;
            }
        } else {
            parsed.words.push(arg.clone());
            if order == Order::BeforeWords {
                break;
            }
        }
    }
    parsed.words.extend(args.cloned());
    Ok(())
}

/// The option of this name, or the only one that begins with it; `given` is the name and its argument.
fn by_name(tables: &[&[Opt]], name: &str, given: &str) -> Result<Opt, String> {
    let all = || tables.iter().copied().flatten();
    if let Some(exact) = all().find(|o| o.name == name) {
        return Ok(*exact);
    }
    let fitting: Vec<&Opt> = all().filter(|o| !name.is_empty() && o.name.starts_with(name)).collect();
    match fitting[..] {
        [] => Err(format!("unrecognized option '--{given}'")),
        [only] => Ok(*only),
        _ => {
            let names: String = fitting.iter().map(|o| format!(" '--{}'", o.name)).collect();
            Err(format!("option '--{given}' is ambiguous; possibilities:{names}"))
        }
    }
}

/// The text of `--option`, which command-line completion reads: every option, one a line.
pub fn list(tables: &[&[Opt]]) -> String {
    let mut text = String::new();
    for opt in tables.iter().copied().flatten() {
        let (long, short) = match opt.takes {
            Takes::Nothing => ("", ""),
            Takes::Value => ("=ARG", "ARG"),
            Takes::Optional => ("=[ARG]", "[ARG]"),
        };
        text.push_str(&format!("--{}{long}\n", opt.name));
        if let Some(letter) = opt.short {
            text.push_str(&format!("-{letter} {short}\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] = &[
        value("target").short('t'),
        optional("pidfile"),
        flag("pretty"),
        optional("verbose").short('v'),
        flag("help").short('h'),
    ];

    fn run(args: &[&str], order: Order) -> Result<(Vec<String>, Vec<String>), String> {
        let args: Vec<String> = args.iter().map(|a| a.to_string()).collect();
        let mut parsed = Parsed::default();
        parse(&mut parsed, &[TABLE], &args, order)?;
        let show = |(name, value): (&str, Option<String>)| match value {
            Some(value) => format!("{name}={value}"),
            None => name.to_string(),
        };
        Ok((parsed.options.into_iter().map(show).collect(), parsed.words))
    }

    #[test]
    fn options_come_long_short_joined_shortened_and_between_words() {
        let (options, words) = run(
            &["a", "--target=x", "-ty", "-t", "z", "-hvany:dbg", "--pid", "b", "--verb=q", "--", "-h"],
            Order::Anywhere,
        )
        .unwrap();
        assert_eq!(
            options,
            ["target=x", "target=y", "target=z", "help", "verbose=any:dbg", "pidfile", "verbose=q"]
        );
        assert_eq!(words, ["a", "b", "-h"]);
        let (options, words) = run(&["-h", "vlog/set", "-h", "--x"], Order::BeforeWords).unwrap();
        assert_eq!(
            (options, words),
            (vec!["help".to_string()], ["vlog/set", "-h", "--x"].map(String::from).to_vec())
        );
    }

    #[test]
    fn wrong_ones_are_refused_in_the_usual_words() {
        for (args, error) in [
            (&["--nonesuch=3"][..], "unrecognized option '--nonesuch=3'"),
            (&["-hZ"], "invalid option -- 'Z'"),
            (&["--help=3"], "option '--help' doesn't allow an argument"),
            (&["--target"], "option '--target' requires an argument"),
            (&["-t"], "option requires an argument -- 't'"),
            (&["--p=3"], "option '--p=3' is ambiguous; possibilities: '--pidfile' '--pretty'"),
            (&["--p"], "option '--p' is ambiguous; possibilities: '--pidfile' '--pretty'"),
        ] {
            assert_eq!(run(args, Order::Anywhere).unwrap_err(), error);
        }
    }

    #[test]
    fn the_list_has_a_line_for_every_name_and_letter() {
        assert!(list(&[TABLE]).starts_with(
            "--target=ARG\n-t ARG\n--pidfile=[ARG]\n--pretty\n--verbose=[ARG]\n-v [ARG]\n--help\n-h \n"
        ));
    }
}
