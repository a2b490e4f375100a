//! `ovsdb-server`: databases for whoever connects, without a switch.

use super::ovs_vswitchd::daemon_help;
use super::{Usage, fail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::sync::{Arc, mpsc};
use std::time::Duration;
use vswitchd::daemonize::{DAEMON, LOGGING, Options as DaemonOptions, describe, fatal};
use vswitchd::getopt::{Opt, Order, flag, optional, value};
use vswitchd::ovsdb::{ConfigFile, Handle, Options, serve};
use vswitchd::program;
use vswitchd::rundir::RunDir;

/// The name by which the stock tools find it: that of its pid file and control socket.
const NAME: &str = "ovsdb-server";

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    value("remote"),
    value("run"),
    flag("no-dbs"),
    value("config-file"),
    value("unixctl"),
    value("sync-from"),
    value("sync-exclude-tables"),
    flag("active"),
    value("private-key").short('p'),
    value("certificate").short('c'),
    value("ca-cert").short('C'),
    value("bootstrap-ca-cert"),
    value("peer-ca-cert"),
    value("ssl-protocols"),
    value("ssl-ciphers"),
    flag("disable-file-column-diff"),
    optional("record"),
    optional("replay"),
    flag("help").short('h'),
    flag("version").short('V'),
];

pub fn run(args: &[String]) -> ExitCode {
    vswitchd::log::start();
    program::set_daemon_name(NAME);
    let usage =
        Usage { tables: &[DAEMON, LOGGING, OPTIONS], order: Order::Anywhere, help: help(), version: &[] };
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
    // With --run it is a command among others, which says nothing of itself.
    if child.is_none() {
        tracing::info!(target: "ovsdb_server", "{}", program::version_line(NAME));
    }
    let code = wait(&handle, signals, child);
    handle.stop();
    code
}

/// What the command line says.
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
        if self.daemon.take(name, value)? {
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
            "private-key" => options.tls.private_key = Some(given),
            "certificate" => options.tls.certificate = Some(given),
            "ca-cert" => options.tls.ca_cert = Some(given),
            "bootstrap-ca-cert" => {
                options.tls.ca_cert = Some(given);
                options.tls.bootstrap_ca_cert = true;
            }
            "peer-ca-cert" => options.tls.peer_ca_cert = Some(given),
            "ssl-protocols" => options.tls.protocols = Some(given),
            "ssl-ciphers" => options.tls.ciphers = Some(given),
            // Differences are never written to the file, so there is nothing to switch off.
            "disable-file-column-diff" => {}
            "record" | "replay" => return Err(format!("--{name} is not supported")),
            other => return Err(format!("{other}: an option that nobody takes")),
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
        if self.options.active && self.options.sync_from.is_none() {
            return Err("--active needs --sync-from".into());
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
            tracing::info!(target: "ovsdb_server", "ending on signal {signal}");
            // Nobody hears it who ends already.
            let _ = by_signal.send(ExitCode::SUCCESS);
        }
    });
    let (handle, by_command) = (handle.clone(), ended.clone());
    std::thread::spawn(move || {
        handle.wait_until_exited();
        // The client of `exit` reads its answer before the socket goes.
        std::thread::sleep(Duration::from_millis(10));
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

fn help() -> String {
    format!(
        "{name}: database server
usage: {name} [OPTIONS] [DATABASE...]
where each DATABASE is a file (default: {databases}/conf.db)

  --remote=REMOTE           listen or connect; may be given several times
  --run=COMMAND             run COMMAND in a shell, and end with it
  --no-dbs                  start without databases
  --config-file=FILE        remotes and databases from FILE, in JSON
  --unixctl=SOCKET          where the control socket is
REMOTE is one of:
  punix:FILE, ptcp:[PORT][:ADDRESS], pssl:[PORT][:ADDRESS], unix:FILE, tcp:HOST[:PORT], ssl:HOST[:PORT],
  db:DATABASE,TABLE,COLUMN
Backups:
  --sync-from=SERVER        be a backup of SERVER
  --sync-exclude-tables=DB:TABLE[,DB:TABLE]...
  --active                  with --sync-from: be active until told otherwise
TLS (each may be db:DATABASE,TABLE,COLUMN):
  -p, --private-key=FILE    our private key
  -c, --certificate=FILE    our certificate
  -C, --ca-cert=FILE        certificates by which peers are verified
  --bootstrap-ca-cert=FILE  the same; taken from the first peer where there is none
  --peer-ca-cert=FILE       certificates to send along
  --ssl-protocols=PROTOS    versions, such as TLSv1.2,TLSv1.3
  --ssl-ciphers=CIPHERS     cipher suites

{daemon}
Other options:
  -h, --help                show this text
  -V, --version             show the version
",
        name = program::name(),
        databases = program::database_directory().display(),
        daemon = daemon_help(),
    )
}
