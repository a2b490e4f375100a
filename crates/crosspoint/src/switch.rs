//! `crosspoint switch`: the daemon, with bridges and ports from flags.

use std::path::PathBuf;
use std::process::ExitCode;
use vswitchd::config::{BridgeFlags, Config, DatapathFlags, PortFlags, cpu_mask};
use vswitchd::rundir::RunDir;

/// Options of the subcommand.
#[derive(clap::Args)]
pub struct Args {
    /// A bridge: NAME[,datapath-id=HEX][,fail-mode=standalone|secure][,local=dummy|internal][,mac-aging-time=SECS]
    /// [,mac-table-size=N].
    #[arg(long = "bridge", value_name = "NAME[,KEY=VALUE]...", value_parser = BridgeFlags::parse)]
    bridges: Vec<BridgeFlags>,
    /// A port: NAME[,type=TYPE][,ofport=N][,bridge=NAME][,mtu=BYTES][,mac=ADDRESS][,tag=VLAN][,OPTION=VALUE]...
    /// Further options are those of the type's driver.
    #[arg(long = "port", value_name = "NAME[,KEY=VALUE]...", value_parser = PortFlags::parse)]
    ports: Vec<PortFlags>,
    /// Workers, not bound to processors.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = workers)]
    workers: usize,
    /// One worker on each processor of this mask (hexadecimal).
    #[arg(long, value_name = "MASK", conflicts_with = "workers")]
    pmd_cpu_mask: Option<String>,
    /// Packet buffers. This is all the memory that packets ever take.
    #[arg(long, value_name = "PACKETS", default_value_t = DatapathFlags::default().pool_packets)]
    pool_size: usize,
    /// Bytes of a packet buffer.
    #[arg(long, value_name = "BYTES", default_value_t = DatapathFlags::default().pool_packet_bytes)]
    pool_packet_bytes: usize,
    /// Cached flows per worker.
    #[arg(long, value_name = "FLOWS")]
    flow_limit: Option<usize>,
    /// Milliseconds after which an unused cached flow goes.
    #[arg(long, value_name = "MS")]
    max_idle: Option<u64>,
    /// Also log to a file.
    #[arg(long, value_name = "FILE")]
    log_file: Option<PathBuf>,
    /// Log levels: MODULE[:DESTINATION[:LEVEL]].
    #[arg(short, long, value_name = "SPEC")]
    verbose: Vec<String>,
}

fn workers(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if (1..=256).contains(&n) => Ok(n),
        _ => Err("expected a number from 1 to 256".into()),
    }
}

/// Runs until it is told to end.
pub fn run(args: Args) -> ExitCode {
    let result = config(args).and_then(|config| vswitchd::run(config).map_err(|e| e.to_string()));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crosspoint switch: {error}");
            ExitCode::FAILURE
        }
    }
}

fn config(args: Args) -> Result<Config, String> {
    let cpus = args.pmd_cpu_mask.as_deref().map(cpu_mask).transpose()?.unwrap_or_default();
    let config = Config {
        run_dir: RunDir::from_env(),
        bridges: args.bridges,
        ports: args.ports,
        datapath: DatapathFlags {
            cpus,
            workers: args.workers,
            pool_packets: args.pool_size,
            pool_packet_bytes: args.pool_packet_bytes,
            flow_limit: args.flow_limit,
            max_idle_ms: args.max_idle,
        },
        log_file: args.log_file,
        verbosity: args.verbose,
    };
    config.check()?;
    Ok(config)
}
