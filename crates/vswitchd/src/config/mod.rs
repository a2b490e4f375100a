//! The start-up options of the switch, and the source of its configuration: the rows of a database, which
//! become [`Wanted`], the only form that the rest of the daemon knows. Command-line [flags] fill a database
//! in memory.

pub mod flags;
pub mod keys;
pub mod rows;
pub mod wanted;

pub use flags::{Flag, Flags};
use host::rundir::RunDir;
use openflow::text::parse_ethernet;
use ports::files::FileDirs;
pub use rows::EnableDummy;
use std::path::PathBuf;
use transport::{ActiveTarget, TlsFiles};
pub use wanted::{FailMode, Wanted};

/// Everything the switch is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Directory of the pid file and the sockets.
    pub run_dir: RunDir,
    /// The source of the configuration.
    pub database: Database,
    /// Which ports in the database are replaced by dummies.
    pub dummy: EnableDummy,
    /// Keys and certificates.
    pub tls: TlsFiles,
    /// Keep memory from being paged out.
    pub mlockall: bool,
    /// Workers and their caches.
    pub datapath: DatapathFlags,
    /// The control socket, if it is not in the run directory under its usual name.
    pub unixctl: Option<PathBuf>,
}

/// The source of the configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Database {
    /// A server in this process with a database in memory, which holds what these say.
    Memory(Flags),
    /// A server in this process, with the database in this file, which is created if it does not exist.
    Embedded(PathBuf),
    /// A server elsewhere. The switch waits for it, and reconnects when the connection is lost.
    Remote(ActiveTarget),
}

impl Config {
    /// With all defaults.
    pub fn new(run_dir: RunDir, database: Database) -> Config {
        Config {
            run_dir,
            database,
            dummy: EnableDummy::No,
            tls: TlsFiles::default(),
            mlockall: false,
            datapath: DatapathFlags::default(),
            unixctl: None,
        }
    }

    /// Keys and certificates for controllers and a remote server. A name of a column
    /// (`db:Open_vSwitch,SSL,private_key`) is resolved from the database's row, as all of table SSL is for
    /// controllers.
    pub fn tls_files(&self) -> Option<TlsFiles> {
        let file =
            |given: &Option<PathBuf>| given.clone().filter(|path| !path.to_string_lossy().starts_with("db:"));
        let files = TlsFiles {
            private_key: file(&self.tls.private_key),
            certificate: file(&self.tls.certificate),
            ca_cert: file(&self.tls.ca_cert),
            ..self.tls.clone()
        };
        (!files.is_empty()).then_some(files)
    }
}

impl Database {
    /// The embedded server with the file that Open vSwitch's daemons share: `conf.db` in `$OVS_DBDIR`, by
    /// default `/etc/openvswitch`.
    pub fn embedded() -> Database {
        Database::Embedded(host::program::database_directory().join("conf.db"))
    }
}

/// Limits and threads of the datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatapathFlags {
    /// Number of workers if no processors are given; `None`: one on each NUMA node.
    pub workers: Option<usize>,
    /// The NUMA node of each processor of a simulated machine, for tests: the value of `--dummy-numa`.
    pub dummy_numa: Option<String>,
    /// Packet buffers.
    pub pool_packets: usize,
    /// Bytes of each.
    pub pool_packet_bytes: usize,
    /// Maximum number of packets that a worker receives from a queue at once.
    pub rx_burst: usize,
    /// Workers poll for ever, and never sleep.
    pub never_sleep: bool,
    /// Megaflows per worker.
    pub flow_limit: Option<usize>,
    /// Milliseconds after which a cached flow that is not used goes.
    pub max_idle_ms: Option<u64>,
    /// Directories below which options of ports may name files.
    pub files: FileDirs,
}

impl Default for DatapathFlags {
    fn default() -> Self {
        DatapathFlags {
            workers: None,
            dummy_numa: None,
            pool_packets: 65_536,
            pool_packet_bytes: 2_048,
            rx_burst: packet::BURST,
            never_sleep: false,
            flow_limit: None,
            max_idle_ms: None,
            files: FileDirs::default(),
        }
    }
}

/// The Ethernet address of one station.
pub fn station_address(text: &str) -> Option<[u8; 6]> {
    let [_, _, mac @ ..] = parse_ethernet(text)?.to_be_bytes();
    Some(mac).filter(|mac| mac[0] & 1 == 0 && *mac != [0; 6])
}

/// One more than the highest processor that a mask may name. No kernel has more.
const CPUS_MAX: usize = 8_192;

/// The processors in a mask with the syntax of `pmd-cpu-mask`: hexadecimal, the lowest bit is processor 0.
pub fn cpu_mask(text: &str) -> Result<Vec<usize>, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let wrong = || format!("\"{text}\" is not a CPU mask: expected hexadecimal digits, not all zero");
    let digits = digits.trim_start_matches('0');
    if digits.len() > CPUS_MAX / 4 {
        return Err(format!("a mask of processors names those up to {} at most", CPUS_MAX - 1));
    }
    let mut cpus = Vec::new();
    for (position, digit) in digits.chars().rev().enumerate() {
        let bits = digit.to_digit(16).ok_or_else(wrong)?;
        cpus.extend((0..4).filter(|b| bits >> b & 1 != 0).map(|b| position * 4 + b));
    }
    if cpus.is_empty() { Err(wrong()) } else { Ok(cpus) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_of_processors_counts_from_the_right() {
        assert_eq!(cpu_mask("0x3c").unwrap(), [2, 3, 4, 5]);
        assert_eq!(cpu_mask("0X3").unwrap(), [0, 1]);
        assert_eq!(cpu_mask("100000001").unwrap(), [0, 32]);
        assert!(cpu_mask("0x0").is_err() && cpu_mask("").is_err() && cpu_mask("g").is_err());
        let longest = format!("0x000{}", "f".repeat(CPUS_MAX / 4));
        assert_eq!(cpu_mask(&longest).unwrap().len(), CPUS_MAX);
        assert!(cpu_mask(&(longest + "f")).unwrap_err().contains("up to 8191"));
    }
}
