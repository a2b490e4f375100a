//! `crosspoint ovsdb-client`, also called `ovsdb-client`: the protocol of a database server from the command
//! line.
//!
//! [`COMMANDS`] has a row for each command; `schema`, `data`, `monitor` and `locks` implement them, `rpc`
//! talks to the server, `control` to `ovs-appctl`.
//!
//! Source: ovsdb-client(1).

mod call;
mod control;
mod data;
mod locks;
mod monitor;
mod rpc;
mod schema;

use std::process::ExitCode;
use std::sync::Arc;

use crate::ctl::table::{Format, Printer, Style};
use host::daemonize::{DAEMON, Daemon, Kept, LOGGING, Options as DaemonOptions};
use host::getopt::{Opt, Order, flag, optional, value};
use host::{log, program, rundir::RunDir};
use transport::{CLIENT_TLS, MORE_TLS, OVSDB_PORT, Target, Tls, TlsFiles, take_tls};

use crate::database::{METHODS, TABLES, block_on, take_style};
use call::{Call, Global, print};
use host::manual::Manual;
use host::signals::{Deadline, end_well};
use host::usage::{log_all_messages, timeout, unknown_command};
use rpc::Server;

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("help").short('h').help("show this help"),
    flag("version").short('V').help("show the version"),
    value("timeout")
        .short('t')
        .arg("SECONDS")
        .help("give up after this many seconds (default: $OVS_CTL_TIMEOUT)"),
    flag("timestamp").help("for monitor: print the time of each change"),
    flag("force").help("for restore: accept a file with another schema"),
    flag("db-change-aware").help("stay connected when the schema changes (default)"),
    flag("no-db-change-aware").help("be disconnected when the schema changes, as old clients are"),
    flag("no-leader-only").help("no effect: there are no clusters"),
    optional("record").arg("DIR").help("refused: recording is not implemented"),
    optional("replay").arg("DIR").help("refused: replaying is not implemented"),
];

/// The first argument of a command, besides the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing.
    Server,
    /// A database, which may be left out.
    Database,
}

/// A command.
struct Spec {
    name: &'static str,
    needs: Needs,
    /// Fewest and most arguments after the server and the database.
    arguments: (usize, usize),
    usage: &'static str,
    what: &'static str,
}

const MANY: usize = usize::MAX;

macro_rules! commands {
    ($($name:literal $needs:ident $min:literal..$max:expr, $usage:literal, $what:literal;)*) => {
        &[$(Spec {
            name: $name, needs: Needs::$needs, arguments: ($min, $max), usage: $usage, what: $what,
        }),*]
    };
}

/// Every command.
#[rustfmt::skip]
const COMMANDS: &[Spec] = commands! {
    "list-dbs" Server 0..0, "[SERVER]", "list the databases";
    "get-schema" Database 0..0, "[SERVER] [DATABASE]", "print the schema";
    "get-schema-version" Database 0..0, "[SERVER] [DATABASE]", "print the schema's version";
    "get-schema-cksum" Database 0..0, "[SERVER] [DATABASE]", "print the schema's checksum";
    "list-tables" Database 0..0, "[SERVER] [DATABASE]", "list the tables";
    "list-columns" Database 0..1, "[SERVER] [DATABASE] [TABLE]", "list the columns of a table, or of all";
    "transact" Server 1..1, "[SERVER] TRANSACTION", "run a transaction, given as a JSON array";
    "query" Server 1..1, "[SERVER] TRANSACTION", "run a read-only transaction";
    "dump" Database 0..MANY, "[SERVER] [DATABASE] [TABLE [COLUMN]...]", "print rows";
    "backup" Database 0..0, "[SERVER] [DATABASE]", "write a database file to standard output";
    "restore" Database 0..0, "[SERVER] [DATABASE]", "replace all rows with those of the file on standard input";
    "monitor" Database 1..MANY, "[SERVER] [DATABASE] TABLE [COLUMN,...]...", "print rows and every change to them; TABLE may be ALL";
    "monitor-cond" Database 2..MANY, "[SERVER] [DATABASE] CONDITIONS TABLE [COLUMN,...]...", "the same for rows that match conditions";
    "monitor-cond-since" Database 2..MANY, "[SERVER] [DATABASE] [LAST-ID] CONDITIONS TABLE [COLUMN,...]...", "the same, starting after a transaction";
    "convert" Server 1..1, "[SERVER] SCHEMA", "convert the database that the schema in this file names";
    "needs-conversion" Server 1..1, "[SERVER] SCHEMA", "print whether convert would change anything";
    "wait" Server 2..2, "[SERVER] DATABASE STATE", "wait until a database is added, connected or removed";
    "lock" Server 1..1, "[SERVER] LOCK", "wait for a lock and hold it";
    "steal" Server 1..1, "[SERVER] LOCK", "take a lock away from its owner";
    "unlock" Server 1..1, "[SERVER] LOCK", "release a lock";
};

/// Runs the program with the arguments that follow its name.
pub fn run(args: &[String]) -> ExitCode {
    use log::{Destination, Level, Setting};
    log::start();
    log::set(&Setting::everything_at(Destination::Console, Level::Warning));
    log_all_messages();
    match try_run(args) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {error}", program::name());
            ExitCode::FAILURE
        }
    }
}

fn try_run(args: &[String]) -> Result<ExitCode, String> {
    let tables: &[&[Opt]] = &[OPTIONS, LOGGING, DAEMON, TABLES, CLIENT_TLS, MORE_TLS];
    let parsed = host::usage::parse(tables, args, Order::Anywhere)?;
    let mut global = Global {
        style: Style::new(Format::Table),
        timestamp: false,
        force: false,
        change_aware: None,
        tls: None,
    };
    let mut tls = TlsFiles::default();
    let (mut daemon, mut patience) = (DaemonOptions::default(), None);
    for (name, value) in &parsed.options {
        let given = value.as_deref().unwrap_or_default();
        match *name {
            "help" => return Ok(show(&manual().help(program::name()))),
            "version" => return Ok(show(&program::version_text(program::name(), &[]))),
            "timeout" => patience = Some(timeout("-t", given)?),
            "timestamp" => global.timestamp = true,
            "force" => global.force = true,
            "db-change-aware" => global.change_aware = Some(true),
            "no-db-change-aware" => global.change_aware = Some(false),
            "no-leader-only" => {}
            "record" | "replay" => return Err(format!("--{name} is not supported")),
            name => {
                let taken = take_style(&mut global.style, name, value.as_deref())?
                    || take_tls(&mut tls, name, value.as_deref());
                if !taken {
                    daemon.take(name, value.as_deref())?;
                }
            }
        }
    }
    let deadline = Deadline::new(patience);
    global.tls = (!tls.is_empty()).then(|| Arc::new(Tls::new(tls)));
    let Some((name, rest)) = parsed.words.split_first() else {
        return Err("missing command name; use --help for help".into());
    };
    if name == "help" {
        return Ok(show(&manual().help(program::name())));
    }
    let spec = COMMANDS.iter().find(|spec| spec.name == name);
    let spec = spec.ok_or_else(|| unknown_command(name, COMMANDS.iter().map(|spec| spec.name)))?;
    // Commands that run for ever can go to the background, and so can a transaction that may wait.
    let stays =
        name.starts_with("monitor") || matches!(name.as_str(), "lock" | "steal" | "transact" | "unlock");
    let detached = stays && daemon.detaches();
    let daemon = if stays {
        // The reader of a monitor's or transaction's output must learn why it ended.
        let is_reading = name.starts_with("monitor") || name == "transact";
        daemon.keep(if is_reading { Kept::Both } else { Kept::Stdout });
        match daemon.begin() {
            Ok(daemon) => daemon,
            Err(code) => return Ok(code),
        }
    } else {
        daemon.open_log()?;
        Daemon::plain()
    };
    end_well(deadline);
    block_on(call(&global, spec, rest, daemon, detached)).map(|()| ExitCode::SUCCESS)
}

fn show(text: &str) -> ExitCode {
    print(text);
    ExitCode::SUCCESS
}

async fn call(
    global: &Global,
    spec: &Spec,
    words: &[String],
    daemon: Daemon,
    detached: bool,
) -> Result<(), String> {
    let invalid = || format!("invalid syntax for '{}' (use --help for help)", spec.name);
    let default = format!("unix:{}", RunDir::from_env().file("db.sock").display());
    // A server is a connection method; no other argument is one.
    let is_method = |word: &str| word.split(',').all(|method| Target::parse(method, OVSDB_PORT).is_ok());
    let (method, mut args) = match words.split_first() {
        Some((first, rest)) if is_method(first) => (first.as_str(), rest),
        _ => (default.as_str(), words),
    };
    if args.len() < spec.arguments.0 {
        return Err(invalid());
    }
    let mut server = Server::connect(method, global.tls.as_ref()).await?;
    let mut database = String::new();
    if spec.needs == Needs::Database {
        let names = server.list_dbs().await?;
        if let Some((first, rest)) = args.split_first().filter(|(first, _)| names.contains(first)) {
            database.clone_from(first);
            args = rest;
        } else if names.iter().any(|name| name == "Open_vSwitch") {
            database = "Open_vSwitch".into();
        } else {
            let own: Vec<&String> = names.iter().filter(|name| !name.starts_with('_')).collect();
            let [only] = own[..] else {
                return Err("could not find a default database, please specify a database name".into());
            };
            database.clone_from(only);
        }
    }
    if args.len() < spec.arguments.0 || args.len() > spec.arguments.1 {
        return Err(invalid());
    }
    let mut call = Call { global, server, database, args, printer: Printer::new(), daemon, detached };
    match spec.name {
        "list-dbs" => schema::list_dbs(&mut call).await,
        "get-schema" => schema::get_schema(&mut call).await,
        "get-schema-version" => schema::get_schema_version(&mut call).await,
        "get-schema-cksum" => schema::get_schema_cksum(&mut call).await,
        "list-tables" => schema::list_tables(&mut call).await,
        "list-columns" => schema::list_columns(&mut call).await,
        "convert" => schema::convert(&mut call).await,
        "needs-conversion" => schema::needs_conversion(&mut call).await,
        "wait" => schema::wait(&mut call).await,
        "transact" => data::transact(&mut call).await,
        "query" => data::query(&mut call).await,
        "dump" => data::dump(&mut call).await,
        "backup" => data::backup(&mut call).await,
        "restore" => data::restore(&mut call).await,
        "lock" | "steal" | "unlock" => locks::run(&mut call, spec.name).await,
        _ => monitor::run(&mut call, spec.name).await,
    }
}

/// Its description.
pub fn manual() -> Manual {
    Manual::new("talks to a database server", &["[OPTIONS] COMMAND [ARG...]"])
        .about(
            "SERVER defaults to unix:{run}/db.sock, DATABASE to Open_vSwitch.\n\
             In a list of columns, !initial, !insert, !delete and !modify leave out changes of that kind.\n\
             With --detach, monitor, lock and steal go to the background once the first answer is printed, and \
             transact once it is connected.\n\
             ovs-appctl -t ovsdb-client list-commands lists the commands that a background monitor or lock holder accepts.",
        )
        .commands("Commands", COMMANDS.iter().map(|spec| (format!("{} {}", spec.name, spec.usage), spec.what.to_string())))
        .terms(METHODS.0, METHODS.1)
        .options("Options", &[OPTIONS])
        .options("Output options", &[TABLES])
        .options("TLS options", &[CLIENT_TLS, MORE_TLS])
        .options("Daemon options", &[DAEMON])
        .options("Logging options", &[LOGGING])
        .examples(&[
            ("{name} dump Open_vSwitch Port name tag", "Print two columns of a table."),
            ("{name} monitor Open_vSwitch Interface name,ofport,error", "Print rows and every change to them."),
            ("{name} backup > backup.db", "Save a consistent copy of the database."),
        ])
}
