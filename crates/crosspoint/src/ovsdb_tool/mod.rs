//! `crosspoint ovsdb-tool`, also called `ovsdb-tool`: makes, converts, reads and changes database files without a server.
//!
//! Commands, output, exit codes and messages are those of the stock program. Clustered databases are told apart, and what
//! would have to understand them is refused (docs/database.md).
//!
//! Source: ovsdb-tool(1).

mod commands;
mod show_log;

use std::path::PathBuf;
use std::process::ExitCode;
use vswitchd::daemonize::{LOGGING, Options};
use vswitchd::getopt::{self, Opt, Order, flag, value};
use vswitchd::log::{self, Destination, Level, Setting};
use vswitchd::program;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("more").short('m'),
    value("rbac-role"),
    value("cid"),
    value("election-timer"),
    flag("help").short('h'),
    flag("option").short('o'),
    flag("version").short('V'),
];

/// What the options say that commands read.
#[derive(Default)]
struct Settings {
    /// `-m`, so many times.
    verbosity: u32,
    /// `--rbac-role`.
    role: Option<String>,
}

/// Why a command fails.
enum Failure {
    /// A message, and exit code 1.
    Error(String),
    /// An answer by exit code.
    Code(u8),
}

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure::Error(text)
    }
}

type Outcome = Result<(), Failure>;

struct Command {
    name: &'static str,
    /// Its arguments, as `list-commands` shows them.
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&Settings, &[String]) -> Outcome,
}

const fn row(
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&Settings, &[String]) -> Outcome,
) -> Command {
    Command { name, usage, args_min, args_max, run }
}

const MANY: usize = usize::MAX;

/// In the stock program's order.
const COMMANDS: &[Command] = &[
    row("create", "[db [schema]]", 0, 2, commands::create),
    row("create-cluster", "db contents local", 3, 3, commands::refuse_cluster),
    row("join-cluster", "db name local remote...", 4, MANY, commands::refuse_cluster),
    row("compact", "[db [dst]]", 0, 2, commands::compact),
    row("convert", "[db [schema [dst]]]", 0, 3, commands::convert),
    row("needs-conversion", "", 0, 2, commands::needs_conversion),
    row("db-name", "[db]", 0, 1, commands::db_name),
    row("db-version", "[db]", 0, 1, commands::db_version),
    row("db-cksum", "[db]", 0, 1, commands::db_cksum),
    row("db-cid", "db", 1, 1, commands::db_cid),
    row("db-sid", "db", 1, 1, commands::db_sid),
    row("db-local-address", "db", 1, 1, commands::db_local_address),
    row("db-is-clustered", "db", 1, 1, commands::db_is_clustered),
    row("db-is-standalone", "db", 1, 1, commands::db_is_standalone),
    row("schema-name", "[schema]", 0, 1, commands::schema_name),
    row("schema-version", "[schema]", 0, 1, commands::schema_version),
    row("schema-cksum", "[schema]", 0, 1, commands::schema_cksum),
    row("query", "[db] trns", 1, 2, commands::query),
    row("transact", "[db] trns", 1, 2, commands::transact),
    row("show-log", "[db]", 0, 1, show_log::run),
    row("check-cluster", "db...", 1, MANY, commands::check_cluster),
    row("compare-versions", "a op b", 3, 3, commands::compare_versions),
    row("help", "", 0, MANY, |_, _| show(&help())),
    row("list-commands", "", 0, MANY, |_, _| show(&list())),
    row("cluster-to-standalone", "db clusterdb", 2, 2, commands::refuse_cluster),
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
    let parsed = getopt::parse(tables, args, Order::Anywhere)?;
    let mut settings = Settings::default();
    let mut logging = Options::default();
    for (name, value) in &parsed.options {
        match *name {
            "help" => return show(&help()),
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
        return Err(format!("unknown command '{name}'; use --help for help").into());
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

/// Prints a text; a reader that has gone is no error.
fn show(text: &str) -> Outcome {
    use std::io::Write;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
    Ok(())
}

fn list() -> String {
    let mut text = "The available commands are:\n".to_owned();
    for command in COMMANDS {
        text.push_str(&format!("  {:<23} {}\n", command.name, command.usage));
    }
    text
}

fn default_db() -> PathBuf {
    program::database_directory().join("conf.db")
}

fn default_schema() -> PathBuf {
    program::directory("OVS_PKGDATADIR", "/usr/share/openvswitch").join("vswitch.ovsschema")
}

fn help() -> String {
    format!(
        "{name}: make, convert, read and change OVSDB files
usage: {name} [OPTIONS] COMMAND [ARG...]
  create [DB [SCHEMA]]           a new, empty DB of SCHEMA
  compact [DB [DST]]             DB without its history, in place (or as DST)
  convert [DB [SCHEMA [DST]]]    DB with SCHEMA, in place (or as DST)
  needs-conversion [DB [SCHEMA]]  whether DB's schema is another (yes or no)
  db-name, db-version, db-cksum [DB]  name, version, checksum of DB's schema
  db-is-standalone, db-is-clustered DB  exit code 0 for yes, 2 for no
  schema-name, schema-version, schema-cksum [SCHEMA]  the same of a schema
  compare-versions A OP B        exit code 0 for true, 2 for false
  query [DB] TRANSACTION         run a transaction, leave DB as it is
  transact [DB] TRANSACTION      run a transaction
  [-m]... show-log [DB]          the records of DB's log
  list-commands                  all commands with their arguments
Clustered databases are not served and not converted:
  db-cid, db-sid, db-local-address DB  what a clustered DB says of itself
  create-cluster, join-cluster, check-cluster, cluster-to-standalone  refused
The default DB is {db}.
The default SCHEMA is {schema}.

Logging options:
  -v, --verbose[=SPEC], --log-file[=FILE], --syslog-method=METHOD,
  --syslog-target=HOST:PORT      what this program itself logs
Other options:
  -m, --more                     more of each record in show-log
  --rbac-role=ROLE               role for query and transact
  -h, --help                     this text
  -V, --version                  the version
",
        name = program::name(),
        db = default_db().display(),
        schema = default_schema().display()
    )
}
