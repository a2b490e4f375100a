//! `ovs-vswitchd`: the switch, configured by a database that another process serves.

use crate::switch;
use host::daemonize::{DAEMON, LOGGING, Options};
use host::getopt::{Opt, Order, flag, optional, value};
use host::manual::Manual;
use host::program;
use host::rundir::RunDir;
use host::usage::{Usage, fail};
use ports::files::FileDirs;
use std::process::ExitCode;
use transport::{ActiveTarget, CLIENT_TLS, OVSDB_PORT, take_tls};
use vswitchd::config::{Config, Database, EnableDummy};

/// Its own options.
pub const OPTIONS: &[Opt] = &[
    flag("mlockall").help("keep all memory from being paged out"),
    value("pcap-dir").arg("DIR").help(
        "directory below which ports of type pcap may read and write files; may be repeated (default: none)",
    ),
    value("unixctl").arg("SOCKET").help("path of the control socket"),
    value("bootstrap-ca-cert")
        .arg("FILE")
        .help("as --ca-cert; if FILE is missing, trust the first peer and save its authority there"),
    value("peer-ca-cert").arg("FILE").help("certificate of the authority to send to the peer"),
    optional("enable-dummy").arg("override|system").help(
        "for tests: dummy datapaths and ports, in place of all others, or of those that are kernel devices",
    ),
    flag("disable-system").help("accepted for compatibility: there is no kernel datapath"),
    flag("disable-system-route").help("accepted for compatibility: routes are not copied"),
    optional("dpdk").help("refused: DPDK is not used"),
    value("dummy-numa").arg("LIST").help("for tests: the NUMA node of each processor, as in 0,0,1,1"),
    flag("help").short('h').help("show this help"),
    flag("version").short('V').help("show the version"),
];

pub fn run(args: &[String]) -> ExitCode {
    host::log::start();
    program::set_daemon_name(vswitchd::NAME);
    let usage = Usage {
        tables: &[DAEMON, LOGGING, CLIENT_TLS, OPTIONS],
        order: Order::Anywhere,
        help: manual().help(program::name()),
        version: &[],
    };
    let mut options = Options::with_datapath();
    let mut config = Config::new(RunDir::from_env(), Database::embedded());
    let mut pcap_dirs = Vec::new();
    let taken = |name: &str, value: Option<&str>| match name {
        "pcap-dir" => {
            pcap_dirs.push(value.unwrap_or_default().into());
            Ok(())
        }
        _ => take(&mut config, &mut options, name, value),
    };
    let parsed = match usage.parse_with(args, taken) {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    match FileDirs::new(pcap_dirs) {
        Ok(files) => config.datapath.files = files,
        Err(why) => return fail(&format!("--pcap-dir={why}")),
    }
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
        other => return Err(format!("{other}: unknown option")),
    }
    Ok(())
}

/// Its description.
pub fn manual() -> Manual {
    Manual::new("the switch, configured by a database that another process serves", &["[OPTIONS] [DATABASE]"])
        .about(
            "DATABASE is where a database server listens: unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT \
             (default: unix:{run}/db.sock).",
        )
        .options("Options", &[OPTIONS])
        .options("Daemon options", &[DAEMON])
        .options("Logging options", &[LOGGING])
        .options("TLS options", &[CLIENT_TLS])
        .examples(&[
            ("{name} --detach --pidfile --log-file", "Run in the background on the default database."),
            ("{name} unix:/tmp/db.sock -vconsole:dbg", "Run in the foreground and log everything."),
        ])
}
