//! `crosspoint switch`: the daemon, with bridges and ports from a database or from flags.

use crate::daemon_args::DaemonArgs;
use host::daemonize::{self, Options};
use host::program;
use host::rundir::RunDir;
use ports::files::FileDirs;
use std::path::PathBuf;
use std::process::ExitCode;
use transport::{ActiveTarget, Bootstrap, OVSDB_PORT, TlsFiles};
use vswitchd::config::{Config, Database, DatapathFlags, EnableDummy, Flag, Flags, cpu_mask};

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// The server of the database that configures the switch: unix:FILE, tcp:HOST[:PORT] or ssl:HOST[:PORT].
    /// Without it, and without --bridge and --port, the switch serves the database itself: from conf.db in
    /// $OVS_DBDIR (/etc/openvswitch), on db.sock in $OVS_RUNDIR (/var/run/openvswitch).
    #[arg(value_name = "DATABASE", value_parser = database, conflicts_with_all = ["bridges", "ports"])]
    database: Option<ActiveTarget>,
    /// For tests: allow ports of type dummy; with "system", use them in place of type system too; with
    /// "override", in place of all types.
    #[arg(long, value_name = "WHICH", num_args = 0..=1, require_equals = true, default_missing_value = "", value_parser = dummy)]
    enable_dummy: Option<EnableDummy>,
    /// A bridge:
    /// NAME[,datapath-id=HEX][,fail-mode=standalone|secure][,local=dummy|internal][,mac-aging-time=SECS]
    /// [,mac-table-size=N][,protocols=OpenFlow10;OpenFlow13][,controller=TARGET;...][,connection-mode=in-band|out-of-band]
    /// [,disable-in-band=true][,max-backoff=MS][,inactivity-probe=MS][,controller-rate-limit=N]
    /// [,controller-burst-limit=N][,controller-queue-size=N].
    #[arg(long = "bridge", value_name = "NAME[,KEY=VALUE]...", value_parser = Flag::parse)]
    bridges: Vec<Flag>,
    /// A port:
    /// NAME[,type=TYPE][,ofport=N][,bridge=NAME][,mtu=BYTES][,mac=ADDRESS][,tag=VLAN][,OPTION=VALUE]...
    /// Further options are those of the type's driver.
    #[arg(long = "port", value_name = "NAME[,KEY=VALUE]...", value_parser = Flag::parse)]
    ports: Vec<Flag>,
    /// Number of workers, not bound to processors [default: one per NUMA node].
    #[arg(long, value_name = "N", value_parser = workers)]
    workers: Option<usize>,
    /// Run one worker on each processor of this hexadecimal mask.
    #[arg(long, value_name = "MASK", conflicts_with = "workers")]
    pmd_cpu_mask: Option<String>,
    /// For tests: the NUMA node of each processor of an imaginary machine, as in 0,0,1,1. Workers are not
    /// bound.
    #[arg(long, value_name = "LIST")]
    dummy_numa: Option<String>,
    /// Number of packet buffers, which limits the memory that packets use.
    #[arg(long, value_name = "PACKETS", default_value_t = DatapathFlags::default().pool_packets)]
    pool_size: usize,
    /// Size of a packet buffer in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = DatapathFlags::default().pool_packet_bytes)]
    pool_packet_bytes: usize,
    /// Most packets that a worker receives from a queue at once: 1 to 64. For comparisons with switches that
    /// use other batches.
    #[arg(long, value_name = "PACKETS", default_value_t = packet::BURST, value_parser = rx_burst)]
    rx_burst: usize,
    /// Workers poll for ever instead of sleeping while idle: the lowest latency, at the cost of a whole
    /// processor for each worker. In a database, other_config:pmd-maxsleep=0 does the same.
    #[arg(long)]
    never_sleep: bool,
    /// Limit of cached flows per worker, 64 at least. With 0 nothing is cached.
    #[arg(long, value_name = "FLOWS")]
    flow_limit: Option<usize>,
    /// Milliseconds after which an unused cached flow is removed.
    #[arg(long, value_name = "MS")]
    max_idle: Option<u64>,
    /// A directory below which ports of type pcap may read and write files. May be repeated [default: none].
    #[arg(long = "pcap-dir", value_name = "DIR")]
    pcap_dirs: Vec<PathBuf>,
    /// Private key for TLS to controllers and managers. For managers the default is
    /// db:Open_vSwitch,SSL,private_key.
    #[arg(long, value_name = "FILE")]
    private_key: Option<PathBuf>,
    /// Certificate for the private key; for managers also a column, as with --private-key.
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// Certificates that controllers and managers are verified with, or a column.
    #[arg(long, value_name = "FILE")]
    ca_cert: Option<PathBuf>,
    /// As --ca-cert; if FILE is missing, trust the first controller and save its authority there.
    #[arg(long, value_name = "FILE", conflicts_with = "ca_cert")]
    bootstrap_ca_cert: Option<PathBuf>,
    /// Path of the control socket.
    #[arg(long, value_name = "SOCKET")]
    unixctl: Option<PathBuf>,
    #[command(flatten)]
    daemon: DaemonArgs,
}

fn database(text: &str) -> Result<ActiveTarget, String> {
    ActiveTarget::parse(text, OVSDB_PORT)
}

fn dummy(text: &str) -> Result<EnableDummy, String> {
    match text {
        "" => Ok(EnableDummy::Yes),
        "system" => Ok(EnableDummy::System),
        "override" => Ok(EnableDummy::Override),
        _ => Err("expected system or override, or nothing".into()),
    }
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=256).contains(&n) => Ok(n),
        _ => Err("expected a number from 1 to 256".into()),
    }
}

fn rx_burst(text: &str) -> Result<usize, String> {
    let packets = text.parse().ok().filter(|n| (1..=packet::BURST).contains(n));
    packets.ok_or_else(|| format!("expected a number from 1 to {}", packet::BURST))
}

/// Runs until it is told to exit.
pub fn run(args: Args) -> ExitCode {
    program::set_name("crosspoint switch");
    program::set_daemon_name(vswitchd::NAME);
    let mut options = Options::with_datapath();
    let config = match args.daemon.apply(&mut options).and_then(|()| config(args)) {
        Ok(config) => config,
        Err(error) => return daemonize::fatal("vswitchd", &error),
    };
    start(config, options)
}

/// Becomes a daemon as the options say, and runs the switch.
pub fn start(config: Config, mut options: Options) -> ExitCode {
    if let Err(e) = config.run_dir.create() {
        let path = config.run_dir.path().display();
        return daemonize::fatal("vswitchd", &format!("{path}: {e}; OVS_RUNDIR names another"));
    }
    options.always_with_pid_file(config.run_dir.file(&format!("{}.pid", vswitchd::NAME)));
    let mut daemon = match options.begin() {
        Ok(daemon) => daemon,
        Err(code) => return code,
    };
    match vswitchd::run(config, &mut daemon) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => daemonize::fatal("vswitchd", &error.to_string()),
    }
}

fn config(args: Args) -> Result<Config, String> {
    args.pmd_cpu_mask.as_deref().map(cpu_mask).transpose()?;
    let dummy = args.enable_dummy.unwrap_or_default();
    let flags = Flags { bridges: args.bridges, ports: args.ports, pmd_cpu_mask: args.pmd_cpu_mask };
    let database = match args.database {
        Some(target) => Database::Remote(target),
        None if flags.is_empty() => Database::embedded(),
        None => Database::Memory(flags),
    };
    Ok(Config {
        run_dir: RunDir::from_env(),
        database,
        dummy,
        mlockall: false,
        datapath: DatapathFlags {
            workers: args.workers,
            dummy_numa: args.dummy_numa,
            pool_packets: args.pool_size,
            pool_packet_bytes: args.pool_packet_bytes,
            rx_burst: args.rx_burst,
            never_sleep: args.never_sleep,
            flow_limit: args.flow_limit,
            max_idle_ms: args.max_idle,
            // Here, since a daemon leaves the working directory.
            files: FileDirs::new(args.pcap_dirs).map_err(|why| format!("--pcap-dir={why}"))?,
        },
        tls: TlsFiles {
            private_key: args.private_key,
            certificate: args.certificate,
            bootstrap: args.bootstrap_ca_cert.as_ref().map_or(Bootstrap::No, |_| Bootstrap::Anywhere),
            ca_cert: args.ca_cert.or(args.bootstrap_ca_cert),
            ..TlsFiles::default()
        },
        unixctl: args.unixctl,
    })
}
