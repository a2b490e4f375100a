//! `crosspoint generate`: manual pages and completion scripts, as `make install` writes them.

use crate::manual::{complete, own, page};
use crate::programs::PROGRAMS;
use clap::{Command, ValueEnum};
use clap_complete::Shell;
use host::manual::Manual;
use host::usage::{fail, show};
use std::process::ExitCode;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// What to write to standard output.
    #[arg(value_enum)]
    what: What,
    /// For completion: bash, zsh or fish, then a name. For man: the name of a page.
    #[arg(value_name = "ARG")]
    args: Vec<String>,
}

/// What can be made.
#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// A manual page.
    Man,
    /// The names and sections of all manual pages.
    Pages,
    /// A completion script.
    Completion,
    /// The names that the binary can be called by.
    Names,
}

/// Writes it to standard output. `cli` is the command line of `crosspoint`.
pub fn run(args: &Args, cli: Command) -> ExitCode {
    let words: Vec<&str> = args.args.iter().map(String::as_str).collect();
    let text = match (args.what, &words[..]) {
        (What::Names, []) => PROGRAMS.iter().map(|program| format!("{}\n", program.name)).collect(),
        (What::Pages, []) => {
            pages(&cli).iter().map(|(name, _)| format!("{name} {}\n", page::section(name))).collect()
        }
        (What::Man, [wanted]) => match pages(&cli).iter().find(|(name, _)| name == wanted) {
            Some((name, manual)) => page::roff(manual, name, &called(name)),
            None => return fail(&format!("{wanted}: no such page; `crosspoint generate pages` lists them")),
        },
        (What::Completion, [shell, name]) => match completion(shell, name, &cli) {
            Ok(text) => text,
            Err(error) => return fail(&error),
        },
        (What::Completion, _) => return fail("completion needs a shell (bash, zsh, fish) and a name"),
        (What::Man, _) => return fail("man needs the name of one page"),
        (What::Names | What::Pages, _) => return fail("names and pages have no arguments"),
    };
    show(&text);
    ExitCode::SUCCESS
}

/// Every page with what it says: `crosspoint`, each subcommand, each stock name.
fn pages(cli: &Command) -> Vec<(String, Manual)> {
    let mut pages = vec![("crosspoint".to_string(), own::main_manual(cli))];
    pages.extend(own::subcommands(cli));
    for program in PROGRAMS {
        pages.push((program.name.into(), (program.manual)()));
        if !program.subcommand.is_empty() {
            pages.push((format!("crosspoint-{}", program.subcommand), (program.manual)()));
        }
    }
    pages
}

/// The name of the program of a page.
fn called(page: &str) -> String {
    page.strip_prefix("crosspoint-").map_or(page.to_string(), |sub| format!("crosspoint {sub}"))
}

fn completion(shell: &str, name: &str, cli: &Command) -> Result<String, String> {
    let shell = match shell {
        "bash" => Shell::Bash,
        "zsh" => Shell::Zsh,
        "fish" => Shell::Fish,
        other => return Err(format!("{other}: unknown shell; expected bash, zsh or fish")),
    };
    let command = match PROGRAMS.iter().find(|program| program.name == name) {
        Some(program) => complete::command(name, &(program.manual)()),
        None if name == "crosspoint" => own::completed(cli),
        None => return Err(format!("{name}: unknown program; `crosspoint generate names` lists them")),
    };
    String::from_utf8(complete::script(shell, command)).map_err(|error| error.to_string())
}
