//! `ovs-vswitchd`: the switch, configured by a database that somebody else serves.

use super::{CLIENT_TLS, Usage, fail, take_tls};
use crate::switch;
use std::process::ExitCode;
use vswitchd::config::{Config, Database, DatapathFlags, EnableDummy};
use vswitchd::daemonize::{DAEMON, LOGGING, Options};
use vswitchd::getopt::{Opt, Order, flag, optional, value};
use vswitchd::program;
use vswitchd::rundir::RunDir;
use vswitchd::stream::{ActiveTarget, OVSDB_PORT, TlsFiles};

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("mlockall"),
    value("unixctl"),
    value("bootstrap-ca-cert"),
    value("peer-ca-cert"),
    optional("enable-dummy"),
    flag("disable-system"),
    flag("disable-system-route"),
    optional("dpdk"),
    value("dummy-numa"),
    flag("help").short('h'),
    flag("version").short('V'),
];

pub fn run(args: &[String]) -> ExitCode {
    vswitchd::log::start();
    program::set_daemon_name(vswitchd::NAME);
    let usage = Usage {
        tables: &[DAEMON, LOGGING, CLIENT_TLS, OPTIONS],
        order: Order::Anywhere,
        help: help(),
        version: &[],
    };
    let mut options = Options::with_datapath();
    let mut config = Config {
        run_dir: RunDir::from_env(),
        database: Database::None,
        tls: TlsFiles::default(),
        dummy: EnableDummy::No,
        mlockall: false,
        bridges: Vec::new(),
        ports: Vec::new(),
        datapath: DatapathFlags::default(),
        unixctl: None,
    };
    let parsed = match usage.parse_with(args, |name, value| take(&mut config, &mut options, name, value)) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let database = match &parsed.words[..] {
        [] => format!("unix:{}", config.run_dir.file("db.sock").display()),
        [database] => database.clone(),
        _ => return fail("at most one non-option argument accepted; use --help for usage"),
    };
    match ActiveTarget::parse(&database, OVSDB_PORT) {
        Ok(target) => config.database = Database::Remote(target),
        Err(error) => return fail(&error),
    }
    switch::start(config, options)
}

fn take(config: &mut Config, options: &mut Options, name: &str, value: Option<&str>) -> Result<(), String> {
    let given = value.unwrap_or_default();
    if options.take(name, value)? || take_tls(&mut config.tls, name, value) {
        return Ok(());
    }
    match name {
        "mlockall" => config.mlockall = true,
        "unixctl" => config.unixctl = Some(config.run_dir.path().join(given)),
        "enable-dummy" => {
            config.dummy = match given {
                "" => EnableDummy::Yes,
                "system" => EnableDummy::System,
                "override" => EnableDummy::Override,
                other => return Err(format!("{other}: unknown dummy level")),
            };
        }
        "dummy-numa" => config.datapath.dummy_numa = Some(given.into()),
        "dpdk" => return Err("Using --dpdk to configure DPDK is not supported.".into()),
        // There is neither a datapath in the kernel nor a copy of its routes to leave out.
        "disable-system" | "disable-system-route" => {}
        other => return Err(format!("{other}: an option that nobody takes")),
    }
    Ok(())
}

fn help() -> String {
    format!(
        "{name}: the switch
usage: {name} [OPTIONS] [DATABASE]
where DATABASE is a socket at which a database server listens
      (default: \"unix:{run}/db.sock\").

DATABASE is one of:
  unix:FILE, tcp:HOST:PORT, ssl:HOST:PORT
TLS:
  -p, --private-key=FILE    our private key
  -c, --certificate=FILE    our certificate
  -C, --ca-cert=FILE        certificates by which peers are verified
  --bootstrap-ca-cert=FILE  the same; taken from the first peer where there is none
  --peer-ca-cert=FILE       certificates to send along
  --ssl-protocols=PROTOS    versions, such as TLSv1.2,TLSv1.3
  --ssl-ciphers=CIPHERS     cipher suites
{daemon}
Other options:
  --mlockall                keep all memory from being paged out
  --unixctl=SOCKET          where the control socket is
  --enable-dummy[=override|system]  dummy datapaths and ports, for tests; instead of all
                            others, or of those that are devices of the kernel's
  --dummy-numa=LIST         the NUMA node of each processor of a machine that is made up,
                            as in 0,0,1,1, for tests
  --disable-system, --disable-system-route  taken: there is nothing to leave out
  -h, --help                this text
  -V, --version             the version
",
        name = program::name(),
        run = RunDir::from_env().path().display(),
        daemon = daemon_help(),
    )
}

/// The help on the options that all daemons have.
pub fn daemon_help() -> String {
    format!(
        "Daemon options:
  --detach                  run in the background; returns when it serves
  --monitor                 start it again where it crashes
  --user=USER[:GROUP]       give up root for another user
  --no-chdir                with --detach, stay in this directory
  --pidfile[=FILE]          write a pid file (default: {run}/{name}.pid)
  --overwrite-pidfile       take the pid file from one that runs
  --no-self-confinement     taken: it is not confined

Log options:
  -v, --verbose[=SPEC]      levels by module and destination; all at most without SPEC
  --log-file[=FILE]         log to a file too (default: {log}/{name}.log)
  --syslog-method=(libc|unix:FILE|udp:IP:PORT|null)  how messages reach the system log
  --syslog-target=HOST:PORT  send what goes to the system log to a collector too
",
        name = program::name(),
        run = RunDir::from_env().path().display(),
        log = program::log_directory().display(),
    )
}
