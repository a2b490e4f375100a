//! `crosspoint ovsdb-tool`, also called `ovsdb-tool`: creates, converts, reads and changes database files
//! without a server.
//!
//! Commands, output, exit codes and messages are those of the stock program. Clustered databases are
//! recognised, and commands that would have to understand them are refused (docs/database.md).
//!
//! Source: ovsdb-tool(1).

mod commands;
mod outcome;
mod show_log;

use host::daemonize::{LOGGING, Options};
use host::getopt::{self, Opt, Order, flag, value};
use host::log::{self, Destination, Level, Setting};
use host::program;
use std::path::PathBuf;
use std::process::ExitCode;

use host::manual::Manual;
use host::usage::{list_commands, unknown_command};
use outcome::{Failure, Outcome, Settings, default_db, default_schema, line, show};
use ovsdb::log::Magic;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("more").short('m').help("for show-log: print more of each record; may be given several times"),
    value("rbac-role").arg("ROLE").help("role for query and transact"),
    value("cid").arg("UUID").help("for clusters, which are refused"),
    value("election-timer").arg("MS").help("for clusters, which are refused"),
    flag("help").short('h').help("show this help"),
    flag("option").short('o').help("list the options"),
    flag("version").short('V').help("show the version"),
];

struct Command {
    name: &'static str,
    /// Its arguments, as `list-commands` shows them.
    usage: &'static str,
    /// What it does.
    what: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&Settings, &[String]) -> Outcome,
}

const fn row(
    name: &'static str,
    usage: &'static str,
    what: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&Settings, &[String]) -> Outcome,
) -> Command {
    Command { name, usage, what, args_min, args_max, run }
}

const MANY: usize = usize::MAX;

/// In the stock program's order.
#[rustfmt::skip]
const COMMANDS: &[Command] = &[
    row("create", "[db [schema]]", "create an empty database with a schema", 0, 2, commands::create),
    row("create-cluster", "db contents local", "refused: clusters are not supported", 3, 3, commands::refuse_cluster),
    row("join-cluster", "db name local remote...", "refused: clusters are not supported", 4, MANY, commands::refuse_cluster),
    row("compact", "[db [dst]]", "drop the history, in place or into another file", 0, 2, commands::compact),
    row("convert", "[db [schema [dst]]]", "convert to another schema, in place or into another file", 0, 3, commands::convert),
    row("needs-conversion", "", "print yes if a database has another schema than the given one, else no", 0, 2, commands::needs_conversion),
    row("db-name", "[db]", "print the name of a database's schema", 0, 1, commands::db_name),
    row("db-version", "[db]", "print the version of a database's schema", 0, 1, |_, args| line(commands::db_schema(args)?.version)),
    row("db-cksum", "[db]", "print the checksum of a database's schema", 0, 1, |_, args| line(commands::db_schema(args)?.cksum.unwrap_or_default())),
    row("db-cid", "db", "print the cluster ID of a clustered database", 1, 1, commands::db_cid),
    row("db-sid", "db", "print the server ID of a clustered database", 1, 1, |_, args| line(commands::of_cluster(&args[0], "server_id")?.unwrap_or_default())),
    row("db-local-address", "db", "print the local address of a clustered database", 1, 1, |_, args| line(commands::of_cluster(&args[0], "local_address")?.unwrap_or_default())),
    row("db-is-clustered", "db", "exit with 0 if a database is clustered, else with 2", 1, 1, |_, args| commands::is(Magic::Clustered, args)),
    row("db-is-standalone", "db", "exit with 0 if a database is standalone, else with 2", 1, 1, |_, args| commands::is(Magic::Standalone, args)),
    row("schema-name", "[schema]", "print the name of a schema", 0, 1, |_, args| line(commands::read_schema(args, 0)?.name)),
    row("schema-version", "[schema]", "print the version of a schema", 0, 1, |_, args| line(commands::read_schema(args, 0)?.version)),
    row("schema-cksum", "[schema]", "print the checksum of a schema", 0, 1, |_, args| line(commands::read_schema(args, 0)?.cksum.unwrap_or_default())),
    row("query", "[db] trns", "run a read-only transaction", 1, 2, commands::query),
    row("transact", "[db] trns", "run a transaction", 1, 2, commands::transact),
    row("show-log", "[db]", "print the records of a database's log", 0, 1, show_log::run),
    row("check-cluster", "db...", "refused: clusters are not supported", 1, MANY, commands::check_cluster),
    row("compare-versions", "a op b", "exit with 0 if a comparison of versions holds, else with 2", 3, 3, commands::compare_versions),
    row("help", "", "show this help", 0, MANY, |_, _| show(&manual().help(program::name()))),
    row("list-commands", "", "list all commands with their arguments", 0, MANY, |_, _| show(&list_commands(COMMANDS.iter().map(|command| (command.name, command.usage))))),
    row("cluster-to-standalone", "db clusterdb", "refused: clusters are not supported", 2, 2, commands::refuse_cluster),
];

/// Runs the command that `args` name.
pub fn run(args: &[String]) -> ExitCode {
    log::start();
    for destination in [Destination::Console, Destination::Syslog] {
        log::set(&Setting::everything_at(destination, Level::Warning));
    }
    match run_command(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Code(code)) => ExitCode::from(code),
        Err(Failure::Error(text)) => {
            eprintln!("{}: {text}", program::name());
            ExitCode::FAILURE
        }
    }
}

fn run_command(args: &[String]) -> Outcome {
    let tables: &[&[Opt]] = &[OPTIONS, LOGGING];
    let parsed = host::usage::parse(tables, args, Order::Anywhere)?;
    let mut settings = Settings::default();
    let mut logging = Options::default();
    for (name, value) in &parsed.options {
        match *name {
            "help" => return show(&manual().help(program::name())),
            "version" => return show(&program::version_text(program::name(), &[])),
            "option" => return show(&getopt::list(tables)),
            "more" => settings.verbosity += 1,
            "rbac-role" => settings.role.clone_from(value),
            "cid" => check_uuid(value.as_deref().unwrap_or_default())?,
            "election-timer" => check_election_timer(value.as_deref().unwrap_or_default())?,
            "log-file" => open_log(value.as_deref())?,
            name => drop(logging.take(name, value.as_deref())?),
        }
    }
    let Some((name, args)) = parsed.words.split_first() else {
        return Err("missing command name; use --help for help".to_owned().into());
    };
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        return Err(unknown_command(name, COMMANDS.iter().map(|command| command.name)).into());
    };
    if args.len() < command.args_min {
        return Err(format!("'{name}' command requires at least {} arguments", command.args_min).into());
    }
    if args.len() > command.args_max {
        return Err(format!("'{name}' command takes at most {} arguments", command.args_max).into());
    }
    (command.run)(&settings, args)
}

fn open_log(path: Option<&str>) -> Outcome {
    let path = path.map_or_else(|| program::log_directory().join("ovsdb-tool.log"), PathBuf::from);
    log::open_file(&path).map_err(|error| format!("{}: {error}", path.display()).into())
}

fn check_uuid(text: &str) -> Outcome {
    match ovsdb::Uuid::parse(text) {
        Some(uuid) if uuid.is_zero() => Err(format!("{text}: all-zero UUID is not valid").into()),
        Some(_) => Ok(()),
        None => Err(format!("{text}: not a valid UUID").into()),
    }
}

fn check_election_timer(text: &str) -> Outcome {
    match text.parse::<u64>() {
        Ok(ms) if (100..=600_000).contains(&ms) => Ok(()),
        _ => Err("ovsdb error: election timer must be between 100 and 600000, in msec.".to_owned().into()),
    }
}

/// Its description.
pub fn manual() -> Manual {
    let commands = COMMANDS.iter().map(|row| {
        let usage = format!("{} {}", row.name, row.usage.to_uppercase());
        (usage.trim_end().to_string(), row.what.to_string())
    });
    Manual::new("creates, converts, reads and changes database files", &["[OPTIONS] COMMAND [ARG...]"])
        .about(&format!(
            "DB defaults to {}, SCHEMA to {}.\nTRNS is a transaction: a JSON array.",
            default_db().display(),
            default_schema().display()
        ))
        .commands("Commands", commands)
        .options("Options", &[OPTIONS])
        .options("Logging options", &[LOGGING])
        .examples(&[
            ("{name} create conf.db vswitch.ovsschema", "Create an empty database."),
            ("{name} -m show-log conf.db", "Print what each transaction changed."),
            ("{name} compact conf.db", "Drop the history of a database that no server has open."),
        ])
}
