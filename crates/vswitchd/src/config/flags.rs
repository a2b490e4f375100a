//! `--bridge` and `--port`: a switch without a database file has a database in memory, and these flags define
//! its contents. From there on nothing differs: its rows are read and checked like those of any other
//! database.
//!
//! A flag is a name followed by `key=value` pairs, separated by commas. A key stands for a column, or for a
//! key in a column; any other key of a port is an option of its driver.

use super::rows::{self, EnableDummy, Rows};
use super::wanted::Wanted;
use base::OfPort;
use host::rundir::RunDir;
use ovsdb::{AtomType, Database, Datum, Row, Schema, TableIdx, Transaction, Uuid, UuidGenerator};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use transport::{OPENFLOW_PORT, Target};

/// Longest name of a bridge or port: that of a network device (IFNAMSIZ without the terminator).
const NAME_BYTES_MAX: usize = 15;

/// A `--bridge` or `--port`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Flag {
    name: String,
    pairs: Vec<(String, String)>,
}

/// All flags.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Flags {
    /// `--bridge`.
    pub bridges: Vec<Flag>,
    /// `--port`.
    pub ports: Vec<Flag>,
    /// `--pmd-cpu-mask`.
    pub pmd_cpu_mask: Option<String>,
}

/// Where the value of a key is stored: table, and column or `column:key`.
type Place = (&'static str, &'static str, &'static str);

/// Keys of a bridge. Those for Controller apply to all its controllers.
const BRIDGE: &[Place] = &[
    ("datapath-id", "Bridge", "other_config:datapath-id"),
    ("fail-mode", "Bridge", "fail_mode"),
    ("mac-aging-time", "Bridge", "other_config:mac-aging-time"),
    ("mac-table-size", "Bridge", "other_config:mac-table-size"),
    ("protocols", "Bridge", "protocols"),
    ("disable-in-band", "Bridge", "other_config:disable-in-band"),
    ("local", "Interface", "type"),
    ("controller", "Controller", "target"),
    ("connection-mode", "Controller", "connection_mode"),
    ("max-backoff", "Controller", "max_backoff"),
    ("inactivity-probe", "Controller", "inactivity_probe"),
    ("controller-rate-limit", "Controller", "controller_rate_limit"),
    ("controller-burst-limit", "Controller", "controller_burst_limit"),
    ("controller-queue-size", "Controller", "controller_queue_size"),
];

/// Keys of a port, besides its bridge.
const PORT: &[Place] = &[
    ("type", "Interface", "type"),
    ("ofport", "Interface", "ofport_request"),
    ("mtu", "Interface", "mtu_request"),
    ("mac", "Interface", "mac"),
    ("tag", "Port", "tag"),
];

impl Flag {
    /// Parses `NAME,key=value,...`. The error says what is wrong.
    pub fn parse(text: &str) -> Result<Flag, String> {
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        let ok = |c: char| c.is_ascii_graphic() && !"/\\\"".contains(c);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || name.starts_with('.') || !name.chars().all(ok) {
            return Err(format!(
                "\"{name}\" is not a valid name: 1 to {NAME_BYTES_MAX} characters without blanks, slashes and quotes"
            ));
        }
        let mut flag = Flag { name: name.into(), pairs: Vec::new() };
        for part in parts.filter(|p| !p.is_empty()) {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("\"{part}\": expected key=value"))?;
            let key = key.trim();
            if flag.value(key).is_some() {
                return Err(format!("{key} is given twice"));
            }
            flag.pairs.push((key.into(), value.trim().into()));
        }
        Ok(flag)
    }

    /// The bridge's or port's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn value(&self, key: &str) -> Option<&str> {
        self.pairs.iter().find(|(k, _)| k == key).map(|(_, value)| value.as_str())
    }
}

impl Flags {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bridges.is_empty() && self.ports.is_empty()
    }

    /// Which types of ports are dummies. Flags may use dummies without `--enable-dummy`.
    pub fn dummies(given: EnableDummy) -> EnableDummy {
        if given == EnableDummy::No { EnableDummy::Yes } else { given }
    }

    /// The database that they define, and what is read from it.
    ///
    /// # Errors
    /// A sentence: a contradiction, or something that the switch would reject. Values of a driver's options
    /// are not looked at.
    pub fn database(
        &self,
        ids: &mut UuidGenerator,
        dummy: EnableDummy,
    ) -> Result<(Database, Wanted), String> {
        self.check()?;
        let schema = Schema::open_vswitch();
        let mut database = Database::new(schema.clone());
        let mut transaction = database.begin();
        let mut maker = Maker { schema: &schema, transaction: &mut transaction, ids };
        let mut root = maker.row("Open_vSwitch");
        if let Some(mask) = &self.pmd_cpu_mask {
            maker.set(&mut root, "Open_vSwitch", "other_config:pmd-cpu-mask", mask)?;
        }
        let mut bridges = Vec::new();
        for bridge in &self.bridges {
            let ports = self.ports.iter().filter(|port| self.bridge_of(port) == Ok(bridge.name()));
            let made = maker.bridge(bridge, ports);
            bridges.push(made.map_err(|why| format!("bridge {}: {why}", bridge.name))?);
        }
        maker.refer(&mut root, "Open_vSwitch", "bridges", bridges);
        maker.insert("Open_vSwitch", root)?;
        transaction.commit(ids).map_err(|error| error.to_string())?;
        let run_dir = RunDir::from_env();
        let dummy = Flags::dummies(dummy);
        let read = rows::read(Rows::of(&database), &Default::default(), dummy, run_dir.path());
        let reading = read.unwrap_or_default();
        match reading.complaints.first() {
            Some(complaint) => Err(complaint.trim_end_matches(", and ignored").to_owned()),
            None => Ok((database, std::rc::Rc::unwrap_or_clone(reading.wanted))),
        }
    }

    /// Checks across flags: names and numbers are unique, and every port has a bridge.
    fn check(&self) -> Result<(), String> {
        let mut names = BTreeSet::new();
        if let Some(twice) = self.bridges.iter().chain(&self.ports).find(|flag| !names.insert(&flag.name)) {
            return Err(format!("{} is given twice", twice.name));
        }
        let mut numbers = BTreeSet::new();
        for port in &self.ports {
            let bridge = self.bridge_of(port)?;
            let Some(number) = port.value("ofport") else { continue };
            match number.parse::<u16>() {
                Ok(n) if n > 0 && n < OfPort::MAX.0 => {}
                _ => return Err(format!("ofport={number}: expected a number from 1 to 65279")),
            }
            if !numbers.insert((bridge, number)) {
                return Err(format!("port {}: bridge {bridge} has an ofport={number} already", port.name));
            }
        }
        Ok(())
    }

    /// The name of a port's bridge.
    fn bridge_of<'a>(&'a self, port: &'a Flag) -> Result<&'a str, String> {
        match (port.value("bridge"), &self.bridges[..]) {
            (Some(name), bridges) if bridges.iter().any(|b| b.name == *name) => Ok(name),
            (Some(name), _) => Err(format!("port {}: there is no bridge {name}", port.name)),
            (None, [only]) => Ok(&only.name),
            (None, []) => Err(format!("port {}: there is no bridge; add --bridge NAME", port.name)),
            (None, _) => Err(format!("port {}: say which bridge, with bridge=NAME", port.name)),
        }
    }
}

/// Makes rows.
struct Maker<'a, 'db> {
    schema: &'a Schema,
    transaction: &'a mut Transaction<'db>,
    ids: &'a mut UuidGenerator,
}

impl Maker<'_, '_> {
    fn table(&self, name: &str) -> TableIdx {
        self.schema.find(name).expect("a table of the built-in schema")
    }

    fn row(&mut self, table: &str) -> Row {
        self.transaction.new_row(self.table(table), self.ids.next_uuid())
    }

    fn insert(&mut self, table: &str, row: Row) -> Result<Uuid, String> {
        let uuid = row.uuid();
        self.transaction.insert(self.table(table), row).map_err(|error| error.to_string())?;
        Ok(uuid)
    }

    fn refer(&self, row: &mut Row, table: &str, column: &str, rows: Vec<Uuid>) {
        let column = self.schema.table(self.table(table)).find(column).expect("a column of the schema");
        row.set(column, Datum::set(rows));
    }

    /// Sets a column, or a key in one, as the schema allows. Elements of a set are separated by `;`.
    fn set(&self, row: &mut Row, table: &str, place: &str, value: &str) -> Result<(), String> {
        let schema = self.schema.table(self.table(table));
        let (name, key) = place.split_once(':').map_or((place, None), |(name, key)| (name, Some(key)));
        let column = schema.find(name).expect("a column of the schema");
        let kind = &schema.column(column).kind;
        if let Some(key) = key {
            let datum = row.get(column).union(&Datum::map([(key, value)]));
            row.set(column, datum);
            return Ok(());
        }
        let atom = |text: &str| match kind.key.kind {
            AtomType::Integer => {
                text.parse::<i64>().map(Value::from).map_err(|_| "expected a number".to_owned())
            }
            AtomType::Boolean => {
                text.parse::<bool>().map(Value::from).map_err(|_| "expected true or false".into())
            }
            _ => Ok(Value::from(text)),
        };
        let atoms = value.split(';').filter(|text| !text.is_empty()).map(atom);
        let json = json!(["set", atoms.collect::<Result<Vec<Value>, String>>()?]);
        let datum = Datum::from_json(&json, kind, None).map_err(|error| error.to_string())?;
        row.set(column, datum);
        Ok(())
    }

    /// The bridge with its own port and the others.
    fn bridge<'f>(&mut self, flag: &Flag, ports: impl Iterator<Item = &'f Flag>) -> Result<Uuid, String> {
        let known: Vec<&str> = BRIDGE.iter().map(|(key, _, _)| *key).collect();
        if let Some((key, _)) = flag.pairs.iter().find(|(key, _)| !known.contains(&key.as_str())) {
            let hint = base::suggest::hint(key, &known);
            return Err(format!("unknown key {key}: a bridge has {}{hint}", known.join(", ")));
        }
        let mut bridge = self.named("Bridge", flag)?;
        let local = match flag.value("local").unwrap_or("dummy") {
            "internal" => ports::INTERNAL.kind,
            "dummy" => ports::INTERNAL.dummy,
            other => return Err(format!("local={other}: expected internal or dummy")),
        };
        self.fill(&mut bridge, "Bridge", BRIDGE, flag)?;
        let mut controllers = Vec::new();
        // Errors are found without a controller, too.
        let mut checked = self.row("Controller");
        self.fill(&mut checked, "Controller", BRIDGE, flag)?;
        for target in flag.value("controller").into_iter().flat_map(|all| all.split(';')) {
            Target::parse(target, OPENFLOW_PORT)?;
            let mut row = self.row("Controller");
            self.fill(&mut row, "Controller", BRIDGE, flag)?;
            self.set(&mut row, "Controller", "target", target)?;
            controllers.push(self.insert("Controller", row)?);
        }
        self.refer(&mut bridge, "Bridge", "controller", controllers);
        let own = Flag { name: flag.name.clone(), pairs: vec![("type".into(), local.into())] };
        let mut made = vec![self.port(&own)?];
        for port in ports {
            made.push(self.port(port).map_err(|why| format!("port {}: {why}", port.name))?);
        }
        self.refer(&mut bridge, "Bridge", "ports", made);
        self.insert("Bridge", bridge)
    }

    fn port(&mut self, flag: &Flag) -> Result<Uuid, String> {
        let mut interface = self.named("Interface", flag)?;
        self.fill(&mut interface, "Interface", PORT, flag)?;
        let is_own = |key: &str| key == "bridge" || PORT.iter().any(|(own, _, _)| *own == key);
        let driver = ports::driver(flag.value("type").unwrap_or(ports::SYSTEM.kind));
        for (key, value) in flag.pairs.iter().filter(|(key, _)| !is_own(key)) {
            let hint = base::suggest::hint(key, PORT.iter().map(|(own, _, _)| *own).chain(["bridge"]));
            if !hint.is_empty() && driver.is_some_and(|driver| driver.option(key).is_none()) {
                return Err(format!("unknown key {key}{hint}"));
            }
            self.set(&mut interface, "Interface", &format!("options:{key}"), value)?;
        }
        let interface = self.insert("Interface", interface)?;
        let mut port = self.named("Port", flag)?;
        self.fill(&mut port, "Port", PORT, flag)?;
        self.refer(&mut port, "Port", "interfaces", vec![interface]);
        self.insert("Port", port)
    }

    fn named(&mut self, table: &str, flag: &Flag) -> Result<Row, String> {
        let mut row = self.row(table);
        self.set(&mut row, table, "name", &flag.name)?;
        Ok(row)
    }

    /// Sets what the flag says of the table.
    fn fill(&self, row: &mut Row, table: &str, places: &[Place], flag: &Flag) -> Result<(), String> {
        for (key, of, place) in places {
            let Some(value) = flag.value(key).filter(|_| *of == table) else { continue };
            // A set of targets is a row each, and up to 16 digits are a datapath id without `0x` too.
            let value = match *key {
                "controller" => continue,
                "datapath-id" if !value.starts_with("0x") => format!("0x{value}"),
                _ => value.to_owned(),
            };
            self.set(row, table, place, &value).map_err(|why| format!("{key}={value}: {why}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bridges: &[&str], ports: &[&str]) -> Result<Wanted, String> {
        let parse = |flags: &[&str]| flags.iter().map(|text| Flag::parse(text)).collect::<Result<_, _>>();
        let flags = Flags { bridges: parse(bridges)?, ports: parse(ports)?, pmd_cpu_mask: Some("3".into()) };
        flags.database(&mut UuidGenerator::from_seed(1), EnableDummy::No).map(|(_, wanted)| wanted)
    }

    #[test]
    fn a_port_has_its_own_keys_and_leaves_the_rest_to_the_driver() {
        let port = "p2,type=afxdp,ifname=veth0,ofport=2,tag=5,mac=02:00:00:00:00:1";
        let wanted = read(&["br0"], &[port, "eth0"]).unwrap();
        let ports = &wanted.bridges["br0"].ports;
        let (port, interface) = (&ports["p2"], &ports["p2"].interfaces["p2"]);
        assert_eq!((interface.kind.as_str(), port.vlan.tag), ("afxdp", 5));
        assert_eq!((interface.of_port_request, interface.mac), (Some(OfPort(2)), Some([2, 0, 0, 0, 0, 1])));
        assert_eq!(interface.options["ifname"], "veth0");
        assert_eq!(ports["eth0"].interfaces["eth0"].kind, "system");
        assert_eq!(ports["br0"].interfaces["br0"].kind, "dummy-internal");
        assert_eq!(wanted.switch.workers.cpus, Some(vec![0, 1]));
    }

    #[test]
    fn wrong_flags_are_refused_with_what_was_expected() {
        let names = ports::driver("null").unwrap().option_names().join(", ");
        let unknown = format!("unknown option sise: ports of type null take {names}");
        for (bridge, port, part) in [
            ("br0", "", "is not a valid name"),
            ("br0", "a name", "is not a valid name"),
            ("br0", "../etc", "is not a valid name"),
            ("br0", "p1,ofport=65280", "1 to 65279"),
            ("br0", "p1,ofport=x", "1 to 65279"),
            ("br0", "p1,type", "key=value"),
            ("br0", "p1,tag=4096", "0 to 4"),
            ("br0", "p1,mac=1:2:3", "Ethernet address"),
            ("br0", "p1,a=1,a=2", "twice"),
            ("br0", "p1,type=null,sise=60", &unknown),
            ("br0,datapath-id=0", "p1", "hexadecimal"),
            ("br0,fail-mode=no", "p1", "secure"),
            ("br0,type=x", "p1", "a bridge has"),
            ("br0,fial-mode=secure", "p1", "(did you mean 'fail-mode'?)"),
            ("br0", "p1,tpye=null", "unknown key tpye (did you mean 'type'?)"),
            ("br0,local=x", "p1", "internal or dummy"),
            ("br0,controller=6653", "p1", "connection method"),
            ("br0,protocols=OpenFlow13;OpenFlow19", "p1", "OpenFlow19"),
            ("br0,connection-mode=x", "p1", "in-band"),
            ("br0,disable-in-band=x", "p1", "true or false"),
        ] {
            let error = read(&[bridge], &[port]).unwrap_err();
            assert!(error.contains(part), "{bridge} {port}: {error}");
        }
    }

    #[test]
    fn a_bridge_may_name_controllers() {
        let text = "br0,controller=tcp:10.0.0.1;ptcp:6640,controller-rate-limit=100,protocols=OpenFlow13";
        let wanted = read(&[text], &[]).unwrap();
        let bridge = &wanted.bridges["br0"];
        let seen: Vec<_> = bridge.controllers.values().map(|c| (c.target.as_str(), c.is_service)).collect();
        assert_eq!(seen, [("ptcp:6640", true), ("tcp:10.0.0.1", false)]);
        assert!(bridge.controllers.values().all(|c| c.rate_limit == Some(100)));
        assert_eq!(bridge.settings.protocols, Some(openflow::VersionSet::only(openflow::Version::V13)));
    }

    #[test]
    fn names_and_numbers_are_unique_and_every_port_has_a_bridge() {
        read(&["br0"], &["p1,ofport=1", "p2,ofport=2"]).unwrap();
        read(&["br0", "br1"], &["p1,ofport=1,bridge=br0", "p2,ofport=1,bridge=br1"]).unwrap();
        for (bridges, ports, part) in [
            (&["br0", "br0"][..], &[][..], "br0 is given twice"),
            (&["br0"], &["br0"], "br0 is given twice"),
            (&["br0"], &["p1,ofport=1", "p2,ofport=1"], "ofport=1 already"),
            (&[], &["p1"], "add --bridge"),
            (&["br0", "br1"], &["p1"], "say which bridge"),
            (&["br0"], &["p1,bridge=br9"], "no bridge br9"),
        ] {
            let error = read(bridges, ports).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
