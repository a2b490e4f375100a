//! `ovsdb-server`: serves databases, without a switch.

use host::daemonize::{DAEMON, LOGGING, Options as DaemonOptions, describe, fatal, signal_name};
use host::getopt::{Opt, Order, flag, optional, value};
use host::manual::Manual;
use host::program;
use host::rundir::RunDir;
use host::usage::{Usage, fail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, mpsc};
use transport::{CLIENT_TLS, MORE_TLS, take_tls};
use vswitchd::ovsdb::{ConfigFile, Handle, Options, serve};

/// The name by which the stock tools find it: that of its pid file and control socket.
const NAME: &str = "ovsdb-server";

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("remote").arg("REMOTE").help("listen or connect there; may be given several times"),
    value("run").arg("COMMAND").help("run COMMAND in a shell and exit when it does"),
    flag("no-dbs").help("start without databases"),
    value("config-file").arg("FILE").help("read remotes and databases from FILE, in JSON"),
    value("unixctl").arg("SOCKET").help("path of the control socket"),
    value("sync-from").arg("SERVER").help("be a backup of SERVER"),
    value("sync-exclude-tables").arg("DB:TABLE,...").help("tables that are not copied from SERVER"),
    flag("active").help("be active until told otherwise, also with --sync-from"),
    flag("disable-file-column-diff").help("write whole values to files, for Open vSwitch before 2.16"),
    optional("record").arg("DIR").help("refused: recording is not implemented"),
    optional("replay").arg("DIR").help("refused: replaying is not implemented"),
    flag("help").short('h').help("show this help"),
    flag("version").short('V').help("show the version"),
];

pub fn run(args: &[String]) -> ExitCode {
    host::log::start();
    program::set_daemon_name(NAME);
    let usage = Usage {
        tables: &[DAEMON, LOGGING, CLIENT_TLS, MORE_TLS, OPTIONS],
        order: Order::Anywhere,
        help: manual().help(program::name()),
        version: &[],
    };
    let mut server = CommandLine::default();
    let parsed = match usage.parse_with(args, |name, value| server.take(name, value)) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    // Relative names are of the directory that it was started in, which a daemon leaves.
    let start_dir = std::env::current_dir().unwrap_or_default();
    let words = parsed.words.iter().map(|word| match word.starts_with("relay:") {
        true => Err(format!("{word}: relaying is not supported; --sync-from makes a backup")),
        false => Ok(PathBuf::from(word)),
    });
    match words.collect::<Result<Vec<PathBuf>, String>>() {
        Ok(databases) => server.options.databases = databases,
        Err(error) => return fail(&error),
    }
    server.options.directory.clone_from(&start_dir);
    if let Err(error) = server.settle(&start_dir) {
        return fail(&error);
    }
    let mut daemon = match server.daemon.begin() {
        Ok(daemon) => daemon,
        Err(code) => return code,
    };
    server.options.memory = daemon.memory().map(Arc::new);
    let run_dir = RunDir::from_env();
    if let Err(error) = run_dir.create() {
        return fatal("ovsdb_server", &format!("{}: {error}", run_dir.path().display()));
    }
    let control = run_dir.file(&format!("{NAME}.{}.ctl", std::process::id()));
    server.options.control.get_or_insert(control);
    // Clients by the thousand are common; the usual limit of descriptors is 1,024.
    vswitchd::ovsdb::raise_descriptor_limit();
    let signals = match Signals::new([SIGTERM, SIGINT, SIGHUP]) {
        Ok(signals) => signals,
        Err(error) => return fatal("ovsdb_server", &error.to_string()),
    };
    server.options.connects_later = true;
    let handle = match serve(server.options) {
        Ok(handle) => Arc::new(handle),
        Err(error) => return fatal("ovsdb_server", &error),
    };
    let mut child = None;
    if let Some(command) = server.run {
        match Command::new("/bin/sh").arg("-c").arg(&command).spawn() {
            Ok(spawned) => child = Some((command, spawned)),
            Err(error) => return fatal("ovsdb_server", &format!("--run: {error}")),
        }
    }
    daemon.complete();
    // With --run it serves a command, and does not announce itself.
    if child.is_none() {
        tracing::info!(target: "ovsdb_server", "{}", program::version_line(NAME));
    }
    handle.connect_out();
    let code = wait(&handle, signals, child);
    handle.stop();
    code
}

/// Values of the options.
#[derive(Default)]
struct CommandLine {
    options: Options,
    daemon: DaemonOptions,
    config_file: Option<PathBuf>,
    no_databases: bool,
    run: Option<String>,
}

impl CommandLine {
    fn take(&mut self, name: &str, value: Option<&str>) -> Result<(), String> {
        if self.daemon.take(name, value)? || take_tls(&mut self.options.tls, name, value) {
            return Ok(());
        }
        let given = value.unwrap_or_default().to_owned();
        let options = &mut self.options;
        match name {
            "remote" => options.remotes.push(given),
            "run" => self.run = Some(given),
            "no-dbs" => self.no_databases = true,
            "config-file" => self.config_file = Some(given.into()),
            "unixctl" => options.control = Some(RunDir::from_env().path().join(given)),
            "sync-from" => options.sync_from = Some(given),
            "sync-exclude-tables" => options.sync_exclude_tables = Some(given),
            "active" => options.active = true,
            "disable-file-column-diff" => options.whole_values = true,
            "record" | "replay" => return Err(format!("--{name} is not supported")),
            other => return Err(format!("{other}: unknown option")),
        }
        Ok(())
    }

    /// Fills in what was left out, and reads the configuration file.
    fn settle(&mut self, start_dir: &std::path::Path) -> Result<(), String> {
        if let Some(path) = &self.config_file {
            let others = !self.options.databases.is_empty()
                || !self.options.remotes.is_empty()
                || self.options.sync_from.is_some();
            if others {
                return Err(
                    "--config-file says it all: no databases, --remote or --sync-from beside it".into()
                );
            }
            self.options.config_file = Some(ConfigFile::at(path, start_dir)?);
            return Ok(());
        }
        if self.options.databases.is_empty() && !self.no_databases {
            self.options.databases.push(program::database_directory().join("conf.db"));
        }
        Ok(())
    }
}

/// Waits for a signal, `exit` on the control socket, or the end of the command of `--run`.
fn wait(handle: &Arc<Handle>, mut signals: Signals, child: Option<(String, Child)>) -> ExitCode {
    let (ended, end) = mpsc::channel();
    let by_signal = ended.clone();
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if signal == SIGHUP {
                continue;
            }
            let name = signal_name(signal);
            tracing::warn!(target: "fatal_signal", "terminating with signal {signal} ({name})");
            // The receiver may be gone if the process is already ending.
            let _ = by_signal.send(ExitCode::SUCCESS);
        }
    });
    let (handle, by_command) = (handle.clone(), ended.clone());
    std::thread::spawn(move || {
        handle.wait_until_exited();
        let _ = by_command.send(ExitCode::SUCCESS);
    });
    if let Some((command, mut child)) = child {
        std::thread::spawn(move || {
            let code = match child.wait() {
                Ok(status) if status.success() => ExitCode::SUCCESS,
                Ok(status) => {
                    fatal("ovsdb_server", &format!("{command}: child exited, {}", describe(status)))
                }
                Err(error) => fatal("ovsdb_server", &format!("{command}: {error}")),
            };
            let _ = ended.send(code);
        });
    }
    end.recv().unwrap_or(ExitCode::FAILURE)
}

/// Its description.
pub fn manual() -> Manual {
    Manual::new("the database server", &["[OPTIONS] [DATABASE...]"])
        .about("Each DATABASE is a file (default: {db}/conf.db).")
        .terms(
            "REMOTE is one of",
            &[
                ("punix:FILE, ptcp:[PORT][:IP], pssl:[PORT][:IP]", "listen for clients (default port: 6640)"),
                ("unix:FILE, tcp:HOST[:PORT], ssl:HOST[:PORT]", "connect to a client that listens"),
                ("db:DATABASE,TABLE,COLUMN", "the remotes that a column of a database lists"),
            ],
        )
        .options("Options", &[OPTIONS])
        .options("Daemon options", &[DAEMON])
        .options("Logging options", &[LOGGING])
        .options("TLS options", &[CLIENT_TLS, MORE_TLS])
        .examples(&[
            (
                "{name} --detach --pidfile --remote=punix:{run}/db.sock {db}/conf.db",
                "Serve a database on a Unix socket, in the background.",
            ),
            (
                "{name} --remote=ptcp:6640 --remote=db:Open_vSwitch,Open_vSwitch,manager_options",
                "Also listen on TCP, and on the remotes that the database lists.",
            ),
        ])
}
