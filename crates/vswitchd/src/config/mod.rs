//! What the switch is started with, and what it shall be as command-line flags say it. Both flags and the rows of a
//! database become [`Wanted`], which is all that the rest of the daemon knows.
//!
//! A `--bridge` or `--port` is a name followed by `key=value` pairs, separated by commas. Keys that are not the
//! switch's own are options of the port's driver, which checks them.

pub mod keys;
pub mod rows;
pub mod wanted;

use crate::rundir::RunDir;
use crate::stream::{ActiveTarget, OPENFLOW_PORT, Target, TlsFiles};
use base::OfPort;
use openflow::{Version, VersionSet};
use ports::files::FileDirs;
pub use rows::EnableDummy;
use std::collections::BTreeMap;
use std::path::PathBuf;
use switch::{VlanConfig, VlanMode};
use wanted::BridgeSettings;
pub use wanted::{FailMode, Wanted};

/// Everything the switch is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where pid file and sockets go.
    pub run_dir: RunDir,
    /// Bridges.
    pub bridges: Vec<BridgeFlags>,
    /// Ports.
    pub ports: Vec<PortFlags>,
    /// Where the configuration comes from beside flags.
    pub database: Database,
    /// Which ports of a database are replaced by dummies.
    pub dummy: EnableDummy,
    /// Keys and certificates.
    pub tls: TlsFiles,
    /// Keep memory from being paged out.
    pub mlockall: bool,
    /// Workers and their caches.
    pub datapath: DatapathFlags,
    /// Where the control socket is, if not in the run directory under its usual name.
    pub unixctl: Option<PathBuf>,
}

/// Where the configuration comes from.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Database {
    /// There is none: flags say all.
    #[default]
    None,
    /// A server in this process, with the database in this file, which is made where there is none.
    Embedded(PathBuf),
    /// A server elsewhere, waited for and connected to again where it goes away.
    Remote(ActiveTarget),
}

impl Config {
    /// Keys and certificates for controllers and a server elsewhere. What is the name of a column (`db:Open_vSwitch,SSL,private_key`)
    /// comes with the database's row, as for them all of table SSL does.
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
    /// The embedded server with the file that Open vSwitch's daemons share: `conf.db` in `$OVS_DBDIR`, by default
    /// `/etc/openvswitch`.
    pub fn embedded() -> Database {
        let dir = std::env::var_os("OVS_DBDIR").filter(|dir| !dir.is_empty());
        Database::Embedded(PathBuf::from(dir.unwrap_or_else(|| "/etc/openvswitch".into())).join("conf.db"))
    }
}

/// Limits and threads of the datapath.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DatapathFlags {
    /// Processors on which a worker runs, one each. Empty: `workers` workers, not pinned.
    pub cpus: Vec<usize>,
    /// Workers where no processors are given; `None`: one on each NUMA node.
    pub workers: Option<usize>,
    /// The NUMA node of each processor of a machine that is made up, for tests: the value of `--dummy-numa`.
    pub dummy_numa: Option<String>,
    /// Packet buffers.
    pub pool_packets: usize,
    /// Bytes of each.
    pub pool_packet_bytes: usize,
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
            cpus: Vec::new(),
            workers: None,
            dummy_numa: None,
            pool_packets: 65_536,
            pool_packet_bytes: 2_048,
            flow_limit: None,
            max_idle_ms: None,
            files: FileDirs::default(),
        }
    }
}

/// A `--bridge` flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeFlags {
    /// Its name, which its sockets carry.
    pub name: String,
    /// Datapath id; made from its name and this machine's id where none is given.
    pub datapath_id: Option<u64>,
    /// See there.
    pub fail_mode: FailMode,
    /// Type of its own port, LOCAL: `internal` is a device of the kernel's, `dummy` is none.
    pub local: String,
    /// Seconds after which an unused MAC address is forgotten.
    pub mac_aging_s: u32,
    /// MAC addresses at most.
    pub mac_table_size: usize,
    /// Versions of OpenFlow; all where none are named.
    pub protocols: Option<VersionSet>,
    /// No rules of its own for controllers that are reached through the bridge.
    pub disable_in_band: bool,
    /// Its controllers; the keys that say how to treat them are for all alike.
    pub controllers: Vec<wanted::Controller>,
}

/// A `--port` flag.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortFlags {
    /// Its name.
    pub name: String,
    /// Its bridge; `None`: the only one.
    pub bridge: Option<String>,
    /// Its type; `system` where none is given, as in the database.
    pub kind: String,
    /// OpenFlow port number; `None`: the lowest that is free.
    pub of_port: Option<OfPort>,
    /// MTU in bytes.
    pub mtu: Option<u32>,
    /// Ethernet address.
    pub mac: Option<[u8; 6]>,
    /// VLAN of an access port.
    pub tag: Option<u16>,
    /// The driver's options.
    pub options: BTreeMap<String, String>,
}

/// Longest name of a bridge or port: what a network device may have (IFNAMSIZ less its end).
const NAME_BYTES_MAX: usize = 15;

type Pairs<'a> = Vec<(&'a str, &'a str)>;

/// Splits `NAME,key=value,...`.
fn split(text: &str) -> Result<(&str, Pairs<'_>), String> {
    let mut parts = text.split(',');
    let name = parts.next().unwrap_or_default();
    let ok = |c: char| c.is_ascii_graphic() && !"/\\\"".contains(c);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(ok) {
        return Err(format!(
            "\"{name}\" is no name: 1 to {NAME_BYTES_MAX} characters without blanks, slashes and quotes"
        ));
    }
    let mut pairs: Pairs<'_> = Vec::new();
    for part in parts.filter(|p| !p.is_empty()) {
        let (key, value) = part.split_once('=').ok_or_else(|| format!("\"{part}\" is no key=value"))?;
        let key = key.trim();
        if pairs.iter().any(|(k, _)| *k == key) {
            return Err(format!("{key} is given twice"));
        }
        pairs.push((key, value.trim()));
    }
    Ok((name, pairs))
}

fn number<T: std::str::FromStr>(key: &str, value: &str, what: &str) -> Result<T, String> {
    value.parse().map_err(|_| format!("{key}={value}: expected {what}"))
}

/// A datapath id as `other_config:datapath-id` takes it: up to 16 hexadecimal digits, with `0x` or without.
fn datapath_id(value: &str) -> Result<u64, String> {
    let digits = value.strip_prefix("0x").unwrap_or(value);
    match u64::from_str_radix(digits, 16) {
        Ok(id) if id != 0 && digits.len() <= 16 => Ok(id),
        _ => Err(format!("datapath-id={value}: expected 1 to 16 hexadecimal digits, not all zero")),
    }
}

/// Versions as the column `protocols` names them, with `;` between.
fn protocols(value: &str) -> Result<VersionSet, String> {
    let version = |name: &str| {
        let known = Version::from_name(name).filter(|v| VersionSet::SUPPORTED.contains(*v));
        let names: Vec<&str> = VersionSet::SUPPORTED.iter().map(Version::name).collect();
        known.ok_or_else(|| format!("protocols={value}: {name} is none of {}", names.join(", ")))
    };
    value.split(';').map(version).collect()
}

fn boolean(key: &str, value: &str) -> Result<bool, String> {
    number(key, value, "true or false")
}

/// Six pairs of hexadecimal digits with colons between.
pub fn mac_address(text: &str) -> Option<[u8; 6]> {
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut mac {
        let part = parts.next().filter(|p| (1..=2).contains(&p.len()))?;
        *byte = u8::from_str_radix(part, 16).ok()?;
    }
    parts.next().is_none().then_some(mac)
}

impl BridgeFlags {
    /// A bridge with the defaults.
    pub fn new(name: &str) -> BridgeFlags {
        BridgeFlags {
            name: name.into(),
            datapath_id: None,
            fail_mode: FailMode::default(),
            local: "dummy".into(),
            mac_aging_s: 300,
            mac_table_size: 8192,
            protocols: None,
            disable_in_band: false,
            controllers: Vec::new(),
        }
    }

    /// From `br0,datapath-id=1,fail-mode=secure`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<BridgeFlags, String> {
        let (name, pairs) = split(text)?;
        let mut bridge = BridgeFlags::new(name);
        let mut targets = "";
        let mut row = wanted::Controller::new("");
        for (key, value) in pairs {
            match key {
                "controller" => targets = value,
                "protocols" => bridge.protocols = Some(protocols(value)?),
                "disable-in-band" => bridge.disable_in_band = boolean(key, value)?,
                "connection-mode" => {
                    row.out_of_band = match value {
                        "in-band" => false,
                        "out-of-band" => true,
                        _ => return Err(format!("connection-mode={value}: expected in-band or out-of-band")),
                    }
                }
                "max-backoff" => row.max_backoff_ms = Some(number(key, value, "milliseconds")?),
                "inactivity-probe" => row.inactivity_probe_ms = Some(number(key, value, "milliseconds")?),
                "controller-rate-limit" => row.rate_limit = Some(number(key, value, "packets a second")?),
                "controller-burst-limit" => row.burst_limit = Some(number(key, value, "packets")?),
                "controller-queue-size" => row.queue_size = Some(number(key, value, "packets")?),
                "datapath-id" => bridge.datapath_id = Some(datapath_id(value)?),
                "fail-mode" => {
                    bridge.fail_mode = match value {
                        "standalone" => FailMode::Standalone,
                        "secure" => FailMode::Secure,
                        _ => return Err(format!("fail-mode={value}: expected standalone or secure")),
                    }
                }
                "local" if ["internal", "dummy"].contains(&value) => bridge.local = value.into(),
                "local" => return Err(format!("local={value}: expected internal or dummy")),
                "mac-aging-time" => bridge.mac_aging_s = number(key, value, "seconds")?,
                "mac-table-size" => bridge.mac_table_size = number(key, value, "a number of addresses")?,
                _ => {
                    return Err(format!(
                        "{key}: a bridge has datapath-id, fail-mode, local, mac-aging-time, mac-table-size, protocols, \
                         controller, connection-mode, disable-in-band, max-backoff, inactivity-probe, \
                         controller-rate-limit, controller-burst-limit, controller-queue-size"
                    ));
                }
            }
        }
        for target in targets.split(';').filter(|t| !t.is_empty()) {
            let parsed = Target::parse(target, OPENFLOW_PORT)?;
            let is_service = matches!(parsed, Target::Passive(_));
            bridge.controllers.push(wanted::Controller { target: target.into(), is_service, ..row.clone() });
        }
        Ok(bridge)
    }
}

impl PortFlags {
    /// From `p1,type=afxdp,ofport=1,bridge=br0,...`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<PortFlags, String> {
        let (name, pairs) = split(text)?;
        let mut port = PortFlags {
            name: name.into(),
            bridge: None,
            kind: "system".into(),
            of_port: None,
            mtu: None,
            mac: None,
            tag: None,
            options: BTreeMap::new(),
        };
        for (key, value) in pairs {
            match key {
                "type" => port.kind = value.into(),
                "bridge" => port.bridge = Some(value.into()),
                "ofport" => {
                    let what = "a number from 1 to 65279";
                    let of_port = OfPort(number(key, value, what)?);
                    if of_port.0 == 0 || of_port >= OfPort::MAX {
                        return Err(format!("ofport={value}: expected {what}"));
                    }
                    port.of_port = Some(of_port);
                }
                "mtu" => port.mtu = Some(number(key, value, "bytes")?),
                "mac" => {
                    let mac =
                        mac_address(value).ok_or_else(|| format!("mac={value}: expected an address"))?;
                    port.mac = Some(mac);
                }
                "tag" => {
                    let tag = number(key, value, "a VLAN from 0 to 4095")?;
                    if tag > 4095 {
                        return Err(format!("tag={value}: expected a VLAN from 0 to 4095"));
                    }
                    port.tag = Some(tag);
                }
                _ => drop(port.options.insert(key.into(), value.into())),
            }
        }
        Ok(port)
    }
}

/// The processors of a mask as `pmd-cpu-mask` takes it: hexadecimal, the lowest bit processor 0.
pub fn cpu_mask(text: &str) -> Result<Vec<usize>, String> {
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")).unwrap_or(text);
    let wrong = || format!("\"{text}\" is no mask of processors: expected hexadecimal digits, not all zero");
    let mut cpus = Vec::new();
    for (position, digit) in digits.chars().rev().enumerate() {
        let bits = digit.to_digit(16).ok_or_else(wrong)?;
        cpus.extend((0..4).filter(|b| bits >> b & 1 != 0).map(|b| position * 4 + b));
    }
    if cpus.is_empty() { Err(wrong()) } else { Ok(cpus) }
}

impl Config {
    /// Checks what no flag can know alone: that names and numbers are unique and every port has a bridge.
    pub fn check(&self) -> Result<(), String> {
        if self.database != Database::None && !(self.bridges.is_empty() && self.ports.is_empty()) {
            return Err("bridges and ports come from flags or from a database, not from both".into());
        }
        let mut names = std::collections::BTreeSet::new();
        let bridges = self.bridges.iter().map(|b| &b.name);
        for name in bridges.chain(self.ports.iter().map(|p| &p.name)) {
            if !names.insert(name) {
                return Err(format!("{name} is given twice"));
            }
        }
        let mut numbers = std::collections::BTreeSet::new();
        for port in &self.ports {
            let bridge = self.bridge_of(port)?;
            if let Some(of_port) = port.of_port
                && !numbers.insert((bridge, of_port))
            {
                return Err(format!(
                    "port {}: bridge {bridge} has an ofport={} already",
                    port.name, of_port.0
                ));
            }
        }
        Ok(())
    }

    /// The name of a port's bridge.
    pub fn bridge_of<'a>(&'a self, port: &'a PortFlags) -> Result<&'a str, String> {
        match (&port.bridge, &self.bridges[..]) {
            (Some(name), bridges) if bridges.iter().any(|b| b.name == *name) => Ok(name),
            (Some(name), _) => Err(format!("port {}: there is no bridge {name}", port.name)),
            (None, [only]) => Ok(&only.name),
            (None, []) => Err(format!("port {}: there is no bridge; add --bridge NAME", port.name)),
            (None, _) => Err(format!("port {}: say which bridge, with bridge=NAME", port.name)),
        }
    }
}

impl Config {
    /// What the flags ask for, as the database would. Call [`Self::check`] first.
    pub fn wanted(&self) -> Wanted {
        let mut wanted = Wanted::default();
        if !self.datapath.cpus.is_empty() {
            wanted.switch.cpus = Some(self.datapath.cpus.clone());
        }
        for flags in &self.bridges {
            let mut bridge = wanted::Bridge::new(&flags.name);
            bridge.settings = BridgeSettings {
                fail_mode: flags.fail_mode,
                datapath_id: flags.datapath_id,
                mac_aging_s: flags.mac_aging_s,
                mac_table_size: flags.mac_table_size,
                protocols: flags.protocols,
                disable_in_band: flags.disable_in_band,
                ..BridgeSettings::default()
            };
            bridge.controllers = flags.controllers.iter().map(|c| (c.target.clone(), c.clone())).collect();
            bridge.add(wanted::Interface::new(&flags.name, &flags.local));
            wanted.bridges.insert(flags.name.clone(), bridge);
        }
        for flags in &self.ports {
            let bridge = self.bridge_of(flags).ok().and_then(|name| wanted.bridges.get_mut(name));
            let Some(bridge) = bridge else { continue };
            let port = bridge.add(wanted::Interface {
                of_port_request: flags.of_port,
                mtu_request: flags.mtu,
                mac: flags.mac,
                options: flags.options.clone(),
                ..wanted::Interface::new(&flags.name, &flags.kind)
            });
            if let Some(tag) = flags.tag {
                port.vlan = VlanConfig { mode: VlanMode::Access, tag, ..VlanConfig::default() };
            }
        }
        wanted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_flag_has_its_own_keys_and_leaves_the_rest_to_the_driver() {
        let port =
            PortFlags::parse("p2,type=afxdp,ifname=veth0,ofport=2,tag=5,mac=02:00:00:00:00:1").unwrap();
        assert_eq!((port.name.as_str(), port.kind.as_str()), ("p2", "afxdp"));
        assert_eq!((port.of_port, port.tag, port.mac), (Some(OfPort(2)), Some(5), Some([2, 0, 0, 0, 0, 1])));
        assert_eq!(port.options["ifname"], "veth0");
        assert_eq!(PortFlags::parse("eth0").unwrap().kind, "system");
    }

    #[test]
    fn wrong_flags_are_refused_with_what_was_expected() {
        for (text, part) in [
            ("", "is no name"),
            ("a name", "is no name"),
            ("../etc", "is no name"),
            ("p1,ofport=65280", "1 to 65279"),
            ("p1,ofport=x", "1 to 65279"),
            ("p1,type", "key=value"),
            ("p1,tag=4096", "0 to 4095"),
            ("p1,mac=1:2:3", "an address"),
            ("p1,a=1,a=2", "twice"),
        ] {
            let error = PortFlags::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
        for (text, part) in [
            ("br0,datapath-id=0", "hexadecimal"),
            ("br0,fail-mode=no", "standalone"),
            ("br0,type=x", "a bridge has"),
            ("br0,local=x", "internal or dummy"),
            ("br0,controller=6653", "connection method"),
            ("br0,protocols=OpenFlow13;OpenFlow19", "OpenFlow19 is none of OpenFlow10, OpenFlow11"),
            ("br0,connection-mode=x", "in-band or out-of-band"),
            ("br0,disable-in-band=x", "true or false"),
        ] {
            let error = BridgeFlags::parse(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn a_bridge_flag_may_name_controllers() {
        let text = "br0,controller=tcp:10.0.0.1;ptcp:6640,controller-rate-limit=100,protocols=OpenFlow13";
        let bridge = BridgeFlags::parse(text).unwrap();
        let seen: Vec<_> = bridge.controllers.iter().map(|c| (c.target.as_str(), c.is_service)).collect();
        assert_eq!(seen, [("tcp:10.0.0.1", false), ("ptcp:6640", true)]);
        assert!(bridge.controllers.iter().all(|c| c.rate_limit == Some(100)));
        assert_eq!(bridge.protocols, Some(VersionSet::only(Version::V13)));
    }

    #[test]
    fn a_mask_of_processors_counts_from_the_right() {
        assert_eq!(cpu_mask("0x3c").unwrap(), [2, 3, 4, 5]);
        assert_eq!(cpu_mask("0X3").unwrap(), [0, 1]);
        assert_eq!(cpu_mask("100000001").unwrap(), [0, 32]);
        assert!(cpu_mask("0x0").is_err() && cpu_mask("").is_err() && cpu_mask("g").is_err());
    }

    #[test]
    fn names_and_numbers_are_unique_and_every_port_has_a_bridge() {
        let config = |bridges: &[&str], ports: &[&str]| Config {
            run_dir: RunDir::new("/nowhere"),
            bridges: bridges.iter().map(|b| BridgeFlags::parse(b).unwrap()).collect(),
            ports: ports.iter().map(|p| PortFlags::parse(p).unwrap()).collect(),
            database: Database::None,
            dummy: EnableDummy::No,
            tls: TlsFiles::default(),
            mlockall: false,
            datapath: DatapathFlags::default(),
            unixctl: None,
        };
        config(&["br0"], &["p1,ofport=1", "p2,ofport=2"]).check().unwrap();
        config(&["br0", "br1"], &["p1,ofport=1,bridge=br0", "p2,ofport=1,bridge=br1"]).check().unwrap();
        for (bridges, ports, part) in [
            (&["br0", "br0"][..], &[][..], "br0 is given twice"),
            (&["br0"], &["br0"], "br0 is given twice"),
            (&["br0"], &["p1,ofport=1", "p2,ofport=1"], "ofport=1 already"),
            (&[], &["p1"], "add --bridge"),
            (&["br0", "br1"], &["p1"], "say which bridge"),
            (&["br0"], &["p1,bridge=br9"], "no bridge br9"),
        ] {
            let error = config(bridges, ports).check().unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
