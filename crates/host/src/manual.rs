//! One description of each program, from which `--help`, the manual page and the completion scripts are made.
//!
//! A [`Manual`] holds tables: commands, options, examples. Programs with a stock name build theirs from the
//! tables that their parsers read; `crosspoint`'s own subcommands get theirs from clap. [`Manual::help`] is
//! the text of `--help`; the binary writes roff and completion scripts from the same tables.

use crate::getopt::{Opt, Takes};
use crate::program;
use crate::rundir::RunDir;
use std::fmt::Write;

/// The column at which descriptions start in a help text.
const INDENT: usize = 30;
/// The widest line of a help text.
const WIDTH: usize = 100;

/// An option.
#[derive(Clone, Debug)]
pub struct Flag {
    /// Long name without dashes; empty for an operand.
    pub long: String,
    /// One letter, if there is one.
    pub short: Option<char>,
    /// Name of its argument, empty without one.
    pub arg: String,
    /// Whether the argument is optional.
    pub is_optional: bool,
    /// What it does.
    pub help: String,
}

impl Flag {
    /// The usage: `-t, --timeout=SECONDS`.
    pub fn usage(&self) -> String {
        if self.long.is_empty() {
            return self.arg.clone();
        }
        let short = self.short.map_or(String::new(), |letter| format!("-{letter}, "));
        let arg = match (self.arg.is_empty(), self.is_optional) {
            (true, _) => String::new(),
            (false, true) => format!("[={}]", self.arg),
            (false, false) => format!("={}", self.arg),
        };
        format!("{short}--{}{arg}", self.long)
    }
}

/// A command, or a term that needs a word of explanation.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The command with its arguments.
    pub usage: String,
    /// What it does.
    pub what: String,
}

/// A titled list.
#[derive(Clone, Debug)]
pub struct Group<T> {
    /// Heading.
    pub title: String,
    /// Rows.
    pub rows: Vec<T>,
}

/// A program, described.
#[derive(Clone, Debug, Default)]
pub struct Manual {
    /// Its purpose, in one phrase.
    pub brief: String,
    /// What follows its name on the command line.
    pub usage: Vec<String>,
    /// Introductory paragraphs before the lists.
    pub about: String,
    /// Its commands.
    pub commands: Vec<Group<Entry>>,
    /// Lists of other terms.
    pub terms: Vec<Group<Entry>>,
    /// Its options.
    pub options: Vec<Group<Flag>>,
    /// Command lines and what they do.
    pub examples: Vec<Entry>,
}

impl Manual {
    /// A program without commands, options and examples as yet.
    pub fn new(brief: &str, usage: &[&str]) -> Manual {
        let usage = usage.iter().map(|line| line.to_string()).collect();
        Manual { brief: brief.into(), usage, ..Manual::default() }
    }

    /// Adds paragraphs, one per line.
    pub fn about(mut self, text: &str) -> Manual {
        self.about = text.into();
        self
    }

    /// Adds a group of commands.
    pub fn commands(mut self, title: &str, rows: impl IntoIterator<Item = (String, String)>) -> Manual {
        self.commands.push(group(title, rows));
        self
    }

    /// Adds a list of terms.
    pub fn terms(mut self, title: &str, rows: &[(&str, &str)]) -> Manual {
        self.terms.push(group(title, rows.iter().map(|(a, b)| (a.to_string(), b.to_string()))));
        self
    }

    /// Adds options from tables.
    pub fn options(mut self, title: &str, tables: &[&[Opt]]) -> Manual {
        let rows = tables.iter().copied().flatten().map(|opt| Flag {
            long: opt.name.into(),
            short: opt.short,
            arg: if opt.takes == Takes::Nothing { String::new() } else { opt.arg.into() },
            is_optional: opt.takes == Takes::Optional,
            help: opt.help.into(),
        });
        self.options.push(Group { title: title.into(), rows: rows.collect() });
        self
    }

    /// Adds examples: command line, and what it does.
    pub fn examples(mut self, rows: &[(&str, &str)]) -> Manual {
        let entries = rows.iter().map(|(a, b)| Entry { usage: a.to_string(), what: b.to_string() });
        self.examples.extend(entries);
        self
    }

    /// Replaces `{run}`, `{log}`, `{db}` and `{name}` everywhere. In options, which name files by it,
    /// `{name}` is only the program's: the files of `crosspoint ovsdb-server` are called `ovsdb-server`.
    pub fn resolved(mut self, name: &str) -> Manual {
        let directories = [
            ("{run}", RunDir::from_env().path().display().to_string()),
            ("{log}", program::log_directory().display().to_string()),
            ("{db}", program::database_directory().display().to_string()),
            ("{name}", name.to_string()),
        ];
        let fill = |text: &mut String| {
            for (place, value) in &directories {
                *text = text.replace(place, value);
            }
        };
        let program = name.rsplit(' ').next().unwrap_or(name);
        fill(&mut self.about);
        self.usage.iter_mut().for_each(fill);
        for entry in self.commands.iter_mut().chain(&mut self.terms).flat_map(|group| &mut group.rows) {
            fill(&mut entry.usage);
            fill(&mut entry.what);
        }
        for flag in self.options.iter_mut().flat_map(|group| &mut group.rows) {
            flag.help = flag.help.replace("{name}", program);
            fill(&mut flag.help);
        }
        for example in &mut self.examples {
            fill(&mut example.usage);
        }
        self
    }

    /// The text of `--help`.
    pub fn help(&self, name: &str) -> String {
        let manual = self.clone().resolved(name);
        let mut out = format!("{name}: {}\n", manual.brief);
        for (idx, usage) in manual.usage.iter().enumerate() {
            let _ = writeln!(out, "{} {name} {usage}", if idx == 0 { "usage:" } else { "      " });
        }
        for paragraph in manual.about.lines() {
            let _ = write!(out, "\n{}", wrapped(paragraph, 0));
        }
        for group in manual.commands.iter().chain(&manual.terms) {
            let _ = writeln!(out, "\n{}:", group.title);
            for row in &group.rows {
                out += &line(&row.usage, &row.what);
            }
        }
        for group in &manual.options {
            let _ = writeln!(out, "\n{}:", group.title);
            for flag in &group.rows {
                out += &line(&flag.usage(), &flag.help);
            }
        }
        out + &examples(&manual.examples)
    }
}

/// The examples as they end a help text.
pub fn examples(rows: &[Entry]) -> String {
    let mut out = String::new();
    if !rows.is_empty() {
        out += "\nExamples:\n";
    }
    for row in rows {
        let _ = write!(out, "  {}\n{}", row.usage, wrapped(&row.what, 6));
    }
    out
}

fn group(title: &str, rows: impl IntoIterator<Item = (String, String)>) -> Group<Entry> {
    let rows = rows.into_iter().map(|(usage, what)| Entry { usage, what }).collect();
    Group { title: title.into(), rows }
}

/// A row; if the first part is long, the description follows below it.
fn line(usage: &str, what: &str) -> String {
    match (usage.len() + 4 <= INDENT, what.is_empty()) {
        (_, true) => format!("  {usage}\n"),
        (true, false) => {
            let text = wrapped(what, INDENT);
            format!("  {usage:<width$}{}", &text[INDENT..], width = INDENT - 2)
        }
        (false, false) => format!("  {usage}\n{}", wrapped(what, INDENT)),
    }
}

/// Wraps the text, and indents it by `indent` columns.
fn wrapped(text: &str, indent: usize) -> String {
    let mut out = String::new();
    let mut line = " ".repeat(indent);
    for word in text.split_whitespace() {
        if line.len() > indent && line.len() + 1 + word.len() > WIDTH {
            out += &(std::mem::replace(&mut line, " ".repeat(indent)) + "\n");
        }
        if line.len() > indent {
            line.push(' ');
        }
        line += word;
    }
    out + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_wraps_long_texts_and_puts_long_usages_on_lines_of_their_own() {
        let text = Manual::new("does it", &["[OPTIONS]", "FILE"])
            .about("Much to say. ".repeat(12).trim_end())
            .commands("Commands", [("go".to_string(), "goes".to_string())])
            .options(
                "Options",
                &[&[crate::getopt::value("a-rather-long-option-name").arg("X").help("{name}")]],
            )
            .help("prog");
        assert!(text.starts_with("prog: does it\nusage: prog [OPTIONS]\n       prog FILE\n"), "{text}");
        assert!(text.lines().all(|line| line.len() <= WIDTH), "{text}");
        assert!(text.contains("\n  go                          goes\n"), "{text}");
        let own_line = format!("  --a-rather-long-option-name=X\n{}prog\n", " ".repeat(INDENT));
        assert!(text.contains(&own_line), "{text}");
    }

    #[test]
    fn files_are_named_for_the_program_without_the_word_before_it() {
        let manual = Manual::new("does it", &["[OPTIONS]"])
            .options("Options", &[&[crate::getopt::flag("x").help("writes {name}.pid")]]);
        assert!(manual.help("crosspoint server").contains("writes server.pid\n"));
        assert!(manual.help("crosspoint server").starts_with("crosspoint server: does it\n"));
    }
}
