//! Converts the rows of the database `Open_vSwitch` to [`Wanted`].
//!
//! Values are checked here, once. An invalid value is a complaint: it is logged when it is new, and for an
//! interface also shown in its column `error`. The setting keeps its previous value, which is why [`read`]
//! gets what was wanted before. An interface's settings are the exception: they get their defaults, as if the
//! value were missing, since an interface may come from another port or bridge. Each unknown key is a
//! complaint of its own. Neither affects the rest.
//!
//! Source of names, ranges and defaults: ovs-vswitchd.conf.db(5).

mod numbered;
mod row;
mod switch_wide;
mod values;

use self::numbered::{ct_timeouts_s, queue_dscp};
use self::row::Checked;
pub use self::row::{RowRef, Rows};
use self::switch_wide::{SOCK_DIR, vhost_sock_dir, worker_settings};
use self::values::*;
use super::keys;
use super::station_address;
use super::wanted::{
    Bridge, BridgeSettings, Controller, FailMode, FlowTable, Interface, OfPortsBefore, Port,
    STATS_INTERVAL_MS, SwitchWide, Wanted,
};
use base::OfPort;
use ovsdb::{Datum, Uuid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;
use transport::parse_datapath_id;

/// Which ports are replaced by dummies (`--enable-dummy`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum EnableDummy {
    /// None; there are no dummies.
    #[default]
    No,
    /// Those of type dummy.
    Yes,
    /// Those of type system as well (`--enable-dummy=system`).
    System,
    /// All (`--enable-dummy=override`).
    Override,
}

/// The result of reading the rows.
#[derive(Default, Debug)]
pub struct Reading {
    /// The wanted configuration.
    pub wanted: Rc<Wanted>,
    /// Numbers that interfaces had.
    pub before: Rc<OfPortsBefore>,
    /// Interfaces that cannot exist, by name, and why: those of invalid bridges, and names that are used
    /// twice. Empty if Open vSwitch gives no reason either.
    pub impossible: BTreeMap<String, String>,
    /// Columns whose features are not there, by table and name of the row.
    pub ignored: BTreeMap<(String, String), Vec<&'static str>>,
    /// Problems with the rows, each a sentence that names its place.
    pub complaints: BTreeSet<String>,
    /// Open vSwitch's warnings, in its words.
    pub warnings: BTreeSet<String>,
    /// What is refused for safety, in its words.
    pub errors: BTreeSet<String>,
    /// `next_cfg`.
    pub next_cfg: i64,
}

/// Reads all rows that can be reached from the one in table Open_vSwitch. `None` if that is missing.
pub fn read(rows: Rows, previous: &Rc<Wanted>, dummy: EnableDummy, run_dir: &Path) -> Option<Reading> {
    let mut reads = Reads::begin(rows, previous.clone(), dummy, run_dir)?;
    while !reads.is_done() {
        reads.step();
    }
    Some(reads.finish())
}

/// A reading in progress: of the rows as they were when it began.
pub struct Reads {
    rows: Rows,
    previous: Rc<Wanted>,
    dummy: EnableDummy,
    run_dir: PathBuf,
    /// What has been read so far.
    reading: Reading,
    seen: BTreeSet<String>,
    bridges: BTreeSet<String>,
    left: VecDeque<Part>,
}

/// What is read at once.
enum Part {
    /// A bridge without its ports, whose parts it puts in front of the others.
    Bridge(Uuid),
    /// A port of a bridge that is read, with its interfaces.
    Port { bridge: String, port: Uuid, on_dummies: bool },
    /// What a bridge has although no row says so.
    EndOfBridge { bridge: String, on_dummies: bool },
}

impl Reads {
    /// Reads what is not a bridge's. `None` if there is no row in table Open_vSwitch.
    pub fn begin(rows: Rows, previous: Rc<Wanted>, dummy: EnableDummy, run_dir: &Path) -> Option<Reads> {
        let root = rows.all("Open_vSwitch").next()?;
        let of_root = || rows.referenced(&root, "bridges", "Bridge");
        let left = of_root().map(|bridge| Part::Bridge(bridge.row.uuid())).collect();
        let bridges = of_root().filter_map(|bridge| bridge.text("name").map(str::to_string)).collect();
        let root = root.row.uuid();
        let (reading, seen, run_dir) = (Reading::default(), BTreeSet::new(), run_dir.to_path_buf());
        let mut reads = Reads { rows, previous, dummy, run_dir, reading, seen, bridges, left };
        let mut reader = reads.reader();
        if let Some(root) = reader.rows.get("Open_vSwitch", root) {
            reader.switch_wide(&root);
        }
        Some(reads)
    }

    /// Whether everything is read.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }

    /// Reads the next part: a bridge's settings, or a port.
    pub fn step(&mut self) {
        if let Some(part) = self.left.pop_front() {
            let parts = self.reader().part(part);
            parts.into_iter().rev().for_each(|part| self.left.push_front(part));
        }
    }

    /// What was read.
    pub fn finish(self) -> Reading {
        self.reading
    }

    fn reader(&mut self) -> Reader<'_> {
        let Reads { rows, previous, dummy, run_dir, reading, seen, bridges, .. } = self;
        Reader { rows, previous, dummy: *dummy, run_dir, reading, seen, bridges }
    }
}

struct Reader<'a> {
    rows: &'a Rows,
    previous: &'a Wanted,
    dummy: EnableDummy,
    /// Below which sockets may be.
    run_dir: &'a Path,
    reading: &'a mut Reading,
    /// Names of interfaces, to find those that are named twice.
    seen: &'a mut BTreeSet<String>,
    /// Names of bridges, each of which has a local port of that name, with or without a row.
    bridges: &'a BTreeSet<String>,
}

/// `QUEUE:PROCESSOR,...`, as `pmd-rxq-affinity` has it.
fn affinity(text: &str) -> Option<BTreeMap<usize, usize>> {
    let pair = |part: &str| {
        let (queue, cpu) = part.trim().split_once(':')?;
        Some((queue.trim().parse().ok()?, cpu.trim().parse().ok()?))
    };
    text.split(',').filter(|part| !part.trim().is_empty()).map(pair).collect()
}

impl<'a> Reader<'a> {
    fn complain(&mut self, place: &str, what: impl Display) {
        self.reading.complaints.insert(format!("{place}: {what}"));
    }

    fn complain_all(&mut self, place: &str, checked: Checked<'_>) {
        checked.wrong.into_iter().for_each(|what| self.complain(place, what));
    }

    /// Complains of keys that the manual page does not have.
    fn unknown_keys(&mut self, place: &str, table: &str, column: &str, row: &RowRef<'_>) {
        for (key, _) in row.pairs(column) {
            if !keys::is_known(table, column, key) {
                self.complain(place, format_args!("{column}:{key} is not known, and ignored"));
            }
        }
    }

    fn switch_wide(&mut self, row: &RowRef<'a>) {
        let old = self.previous.switch.clone();
        let place = "Open_vSwitch";
        self.unknown_keys(place, place, "other_config", row);
        let mut c = Checked::of(row, "other_config");
        let switch = SwitchWide {
            workers: worker_settings(&mut c, old.workers),
            flow_restore_wait: c.flag("flow-restore-wait", old.flow_restore_wait),
            // 0 is as many as the switch can.
            vlan_limit: c
                .number("vlan-limit", 0..=u32::MAX, old.vlan_limit.map(u32::from))
                .map(|limit| if limit == 1 { 1 } else { 2 }),
            tls: self.rows.referenced(row, "ssl", "SSL").next().map(|ssl| tls_files(&ssl)),
            in_band_managers: (self.rows.referenced(row, "manager_options", "Manager"))
                .filter_map(|manager| in_band_address(&manager))
                .collect(),
            bundle_idle_s: c.number("bundle-idle-timeout", 1..=u32::MAX, old.bundle_idle_s),
            vhost_sock_dir: Some(vhost_sock_dir(&mut c, old.vhost_sock_dir)),
            stats_interval_ms: c
                .number("stats-update-interval", 0..=u64::from(u32::MAX), Some(old.stats_interval_ms))
                .unwrap_or(STATS_INTERVAL_MS)
                .max(STATS_INTERVAL_MS),
            system_statistics: c.flag("enable-statistics", old.system_statistics),
            ct_timeouts_s: ct_timeouts_s(self.rows, row),
        };
        Rc::make_mut(&mut self.reading.wanted).switch = switch;
        for (key, why) in [
            ("hw-offload", "no hardware offload is available"),
            ("vhost-postcopy-support", "post-copy migration is not offered"),
            ("pmd-perf-metrics", "detailed metrics of workers are not implemented"),
        ] {
            if c.flag(key, false) {
                c.wrong.push(format!("other_config:{key}=true has no effect: {why}"));
            }
        }
        self.complain_all(place, c);
        for manager in self.rows.referenced(row, "manager_options", "Manager") {
            self.manager(&manager);
        }
        self.reading.next_cfg = row.integer("next_cfg").unwrap_or(0);
    }

    /// Settings in a manager's row that the server ignores are reported here, wherever the server runs.
    fn manager(&mut self, row: &RowRef<'a>) {
        let place = format!("manager {}", row.text("target").unwrap_or_default());
        self.unknown_keys(&place, "Manager", "other_config", row);
        let mut c = Checked::of(row, "other_config");
        c.number("dscp", 0..=63, None);
        self.complain_all(&place, c);
    }

    /// Columns that say something of features that are not there.
    fn absent_features(&mut self, place: &str, table: &str, row: &RowRef<'_>) {
        for (_, column, feature) in keys::ABSENT.iter().filter(|(of, _, _)| *of == table) {
            let Some(idx) = row.schema.find(column) else { continue };
            if *row.row.get(idx) != row.schema.column(idx).default {
                self.complain(place, format_args!("{column} has no effect: {feature} not implemented"));
                let name = row.text("name").unwrap_or_default();
                self.reading.ignored.entry((table.into(), name.into())).or_default().push(column);
            }
        }
    }

    /// Reads a part, and returns those that it has in turn.
    fn part(&mut self, part: Part) -> Vec<Part> {
        match part {
            Part::Bridge(uuid) => {
                self.rows.get("Bridge", uuid).map_or_else(Vec::new, |row| self.bridge(&row))
            }
            Part::Port { bridge, port, on_dummies } => {
                if let Some(row) = self.rows.get("Port", port) {
                    let port = self.port(&row, &bridge, on_dummies);
                    let bridge = self.bridge_read(&bridge);
                    bridge.ports.insert(port.name.clone(), port);
                }
                Vec::new()
            }
            Part::EndOfBridge { bridge, on_dummies } => {
                let bridge = self.bridge_read(&bridge);
                if !bridge.interfaces().any(|(_, i)| i.name == bridge.name) {
                    let kind = if on_dummies { ports::INTERNAL.dummy } else { ports::INTERNAL.kind };
                    bridge.add(Interface::new(&bridge.name.clone(), kind));
                }
                Vec::new()
            }
        }
    }

    /// A bridge whose ports are being read.
    fn bridge_read(&mut self, name: &str) -> &mut Bridge {
        Rc::make_mut(&mut self.reading.wanted).bridges.get_mut(name).expect("it is read before its ports")
    }

    fn bridge(&mut self, row: &RowRef<'a>) -> Vec<Part> {
        let name = row.text("name").unwrap_or_default().to_string();
        let place = format!("bridge {name}");
        let why_not = if !is_bridge_name(&name) {
            self.reading.warnings.insert(format!("ignoring bridge with invalid name \"{name}\""));
            Some(format!(
                "\"{name}\" is not a bridge name: 1 to {BRIDGE_NAME_BYTES_MAX} characters, no blank or slash"
            ))
        } else if self.reading.wanted.bridges.contains_key(&name) {
            Some("another bridge has the same name".into())
        } else {
            let refused = self.refused_datapath_type(row.text("datapath_type").unwrap_or_default());
            if refused.is_some() {
                // In the words that scripts know; the reason is in the row.
                let said =
                    format!("failed to create bridge {name}: Address family not supported by protocol");
                self.reading.errors.insert(said);
            }
            refused
        };
        if let Some(why) = why_not {
            self.complain(&place, &why);
            for port in self.rows.referenced(row, "ports", "Port") {
                for interface in self.rows.referenced(&port, "interfaces", "Interface") {
                    let name = interface.text("name").unwrap_or_default();
                    self.reading.impossible.insert(name.into(), why.clone());
                }
            }
            return Vec::new();
        }
        let old = self.previous.bridges.get(&name).map(|b| b.settings.clone()).unwrap_or_default();
        let mut bridge = Bridge::new(&name);
        bridge.settings = self.bridge_settings(row, &place, &old);
        self.absent_features(&place, "Bridge", row);
        for set in self.rows.all("Flow_Sample_Collector_Set") {
            if self.rows.referenced(&set, "bridge", "Bridge").any(|of| of.row.uuid() == row.row.uuid()) {
                let id = set.integer("id").unwrap_or_default();
                self.absent_features(
                    &format!("Flow_Sample_Collector_Set {id}"),
                    "Flow_Sample_Collector_Set",
                    &set,
                );
            }
        }
        for controller in self.rows.referenced(row, "controller", "Controller") {
            let target = controller.text("target").unwrap_or_default();
            if let Some(why) = self.refused_target(&bridge.name, target) {
                self.reading.errors.insert(why);
                continue;
            }
            let controller = self.controller(&controller, &bridge);
            bridge.controllers.insert(controller.target.clone(), controller);
        }
        let on_dummies = row.text("datapath_type") == Some("dummy") || self.dummy == EnableDummy::Override;
        Rc::make_mut(&mut self.reading.wanted).bridges.insert(name.clone(), bridge);
        let of_port =
            |port: RowRef<'_>| Part::Port { bridge: name.clone(), port: port.row.uuid(), on_dummies };
        let mut parts: Vec<Part> = self.rows.referenced(row, "ports", "Port").map(of_port).collect();
        parts.push(Part::EndOfBridge { bridge: name, on_dummies });
        parts
    }

    fn refused_datapath_type(&self, kind: &str) -> Option<String> {
        match kind {
            "" | "netdev" | "system" => None,
            "dummy" if self.dummy != EnableDummy::No => None,
            "dummy" => Some("datapath_type=dummy is for tests and needs --enable-dummy".into()),
            _ => {
                Some(format!("datapath_type={kind} is not known: use netdev or system, which mean the same"))
            }
        }
    }

    fn bridge_settings(&mut self, row: &RowRef<'a>, place: &str, old: &BridgeSettings) -> BridgeSettings {
        self.unknown_keys(place, "Bridge", "other_config", row);
        let defaults = BridgeSettings::default();
        let mut c = Checked::of(row, "other_config");
        let text = |key: &str| row.value("other_config", key).map(str::to_string);
        let settings = BridgeSettings {
            fail_mode: match row.text("fail_mode") {
                Some("secure") => FailMode::Secure,
                _ => FailMode::Standalone,
            },
            datapath_id: c.parsed(
                "datapath-id",
                "exactly 16 hexadecimal digits, not all zero, or fewer after 0x",
                // Zero means that there is no datapath id.
                old.datapath_id.filter(|_| !text("datapath-id").is_some_and(|id| is_zero(&id))),
                parse_datapath_id,
            ),
            hwaddr: c.parsed("hwaddr", "an Ethernet address of one station", old.hwaddr, station_address),
            protocols: protocols(row, &mut c.wrong),
            mac_aging_s: c
                .number("mac-aging-time", 1..=u32::MAX, Some(old.mac_aging_s))
                .map_or(defaults.mac_aging_s, |s| s.clamp(15, 3600)),
            mac_table_size: c
                .number("mac-table-size", 1..=usize::MAX, Some(old.mac_table_size))
                .map_or(defaults.mac_table_size, |n| n.clamp(10, 1_000_000)),
            forward_bpdu: c.flag("forward-bpdu", old.forward_bpdu),
            flood_vlans: row.integers("flood_vlans").filter_map(|v| u16::try_from(v).ok()).collect(),
            disable_in_band: c.flag("disable-in-band", old.disable_in_band),
            in_band_queue: c.number("in-band-queue", 0..=u32::MAX, old.in_band_queue),
            controller_queue_size: c.number("controller-queue-size", 1..=512, old.controller_queue_size),
            dp_desc: text("dp-desc"),
            dp_sn: text("dp-sn"),
            flow_tables: BTreeMap::new(),
        };
        self.complain_all(place, c);
        BridgeSettings { flow_tables: self.flow_tables(row, place), ..settings }
    }

    /// The rows of Flow_Table that a bridge's `flow_tables` names.
    fn flow_tables(&mut self, row: &RowRef<'a>, place: &str) -> BTreeMap<u8, FlowTable> {
        let mut tables = BTreeMap::new();
        for (number, uuid) in row.get("flow_tables").into_iter().flat_map(|d| d.as_map()) {
            let number = number.as_integer().and_then(|n| u8::try_from(n).ok()).filter(|n| *n < 254);
            let found = uuid.as_uuid().and_then(|uuid| self.rows.get("Flow_Table", uuid));
            let (Some(number), Some(table)) = (number, found) else {
                self.complain(place, "flow_tables: there are tables 0 to 253");
                continue;
            };
            let mut groups = Vec::new();
            for text in table.get("groups").into_iter().flat_map(|d| d.as_set()).filter_map(|a| a.as_str()) {
                match openflow::text::parse_subfield(text) {
                    Ok(field) => groups.push(field),
                    Err(error) => {
                        self.complain(place, format!("flow table {number}: groups={text}: {error}"))
                    }
                }
            }
            let settings = FlowTable {
                name: table.text("name").map(str::to_string),
                flow_limit: table.integer("flow_limit").map(|n| u32::try_from(n).unwrap_or(u32::MAX)),
                evicts: table.text("overflow_policy") == Some("evict"),
                groups,
            };
            tables.insert(number, settings);
        }
        tables
    }

    /// Why a client of the database may not use that target. To listen on a socket creates a file, and
    /// removes one that is in the way; and to connect would let the client talk, through the switch, to
    /// whatever daemon, possibly root's, listens on any other socket of the machine.
    fn refused_target(&self, bridge: &str, target: &str) -> Option<String> {
        let (path, listens) = match target.strip_prefix("punix:") {
            Some(path) => (Path::new(path), true),
            None => (Path::new(target.strip_prefix("unix:")?), false),
        };
        let is_plain = path.components().all(|c| !matches!(c, Component::ParentDir));
        let below = path.is_relative() || path.starts_with(self.run_dir);
        let run_dir = self.run_dir.display();
        let instead = format!(
            "or connect to \"unix:{run_dir}/{bridge}.mgmt\" (which is always available without special \
             configuration)."
        );
        (!is_plain || !below).then(|| match listens {
            true => format!(
                "bridge {bridge}: Not adding Unix domain socket controller \"{target}\" due to possibility of \
                 overwriting local files. Instead, specify path in permitted format \"punix:{run_dir}/*\" \
                 {instead}"
            ),
            false => format!(
                "bridge {bridge}: Not connecting to socket controller \"{target}\" due to possibility for \
                 remote exploit.  Instead, specify socket in permitted directory \"unix:{run_dir}/\" {instead}"
            ),
        })
    }

    fn controller(&mut self, row: &RowRef<'a>, bridge: &Bridge) -> Controller {
        let target = row.text("target").unwrap_or_default();
        let place = format!("bridge {}: controller {target}", bridge.name);
        let old = self.previous.bridges.get(&bridge.name).and_then(|b| b.controllers.get(target));
        let old = old.cloned().unwrap_or_else(|| Controller::new(target));
        self.unknown_keys(&place, "Controller", "other_config", row);
        self.absent_features(&place, "Controller", row);
        let mut c = Checked::of(row, "other_config");
        let number = |column: &str| row.integer(column).and_then(|n| u64::try_from(n).ok());
        let limit = |column: &str| row.integer(column).and_then(|n| u32::try_from(n).ok());
        let defaults = Controller::new(target);
        let controller = Controller {
            out_of_band: row.text("connection_mode") == Some("out-of-band"),
            max_backoff_ms: number("max_backoff"),
            inactivity_probe_ms: number("inactivity_probe"),
            rate_limit: limit("controller_rate_limit"),
            burst_limit: limit("controller_burst_limit"),
            queue_size: limit("controller_queue_size").or(bridge.settings.controller_queue_size),
            async_messages: row.get("enable_async_messages").and_then(Datum::as_bool).unwrap_or(true),
            is_service: match row.text("type") {
                Some(kind) => kind == "service",
                None => ["ptcp:", "pssl:", "punix:"].iter().any(|p| target.starts_with(p)),
            },
            dscp: c.number("dscp", 0..=63, Some(old.dscp)).unwrap_or(defaults.dscp),
            target: target.into(),
        };
        self.complain_all(&place, c);
        controller
    }

    fn port(&mut self, row: &RowRef<'a>, bridge: &str, on_dummies: bool) -> Port {
        let name = row.text("name").unwrap_or_default().to_string();
        let place = format!("port {name}");
        self.unknown_keys(&place, "Port", "other_config", row);
        self.absent_features(&place, "Port", row);
        let old_port = self.previous.bridges.get(bridge).and_then(|b| b.ports.get(&name));
        let old_vlan = old_port.map(|p| p.vlan.clone()).unwrap_or_default();
        let mut c = Checked::of(row, "other_config");
        let vlan = vlans(row, &mut c, &old_vlan);
        self.complain_all(&place, c);
        let mut port = Port::new(&name, []);
        port.vlan = vlan;
        port.protected = row.flag("protected");
        port.queue_dscp = queue_dscp(self.rows, row);
        let members: Vec<RowRef<'a>> = self.rows.referenced(row, "interfaces", "Interface").collect();
        let active = active_member(row, &members);
        for interface in members {
            if let (Some(active), Some(member)) = (&active, interface.text("name"))
                && active != member
            {
                let why = format!(
                    "bonds are not implemented: of the interfaces of port {name}, only {active} is used"
                );
                self.complain(&format!("interface {member}"), &why);
                self.reading.impossible.insert(member.into(), why);
                continue;
            }
            if let Some(interface) = self.interface(&interface, bridge, on_dummies) {
                port.interfaces.insert(interface.name.clone(), interface);
            }
        }
        port
    }

    fn interface(&mut self, row: &RowRef<'a>, bridge: &str, on_dummies: bool) -> Option<Interface> {
        let name = row.text("name").unwrap_or_default().to_string();
        let place = format!("interface {name}");
        if name != bridge && self.bridges.contains(&name) && !self.seen.contains(&name) {
            let why =
                format!("could not add interface {name} to bridge {bridge}: bridge {name} has its name");
            self.complain(&place, &why);
            self.reading.impossible.insert(name, why);
            return None;
        }
        if name == bridge {
            self.reading.impossible.remove(&name);
        }
        if !self.seen.insert(name.clone()) {
            self.complain(&place, "it belongs to two ports, and only one of them uses it");
            return None;
        }
        if is_reserved(&name) {
            self.reading.warnings.insert(format!("could not create interface {name}, name is reserved"));
            self.reading.impossible.insert(name, String::new());
            return None;
        }
        let is_local = name == bridge;
        let kind = match self.kind_of(row.text("type").unwrap_or_default(), is_local, on_dummies) {
            Ok(kind) => kind,
            Err(why) => {
                let why = format!("could not open network device {name} ({why})");
                self.complain(&place, &why);
                self.reading.impossible.insert(name, why);
                return None;
            }
        };
        if let Some(number) = row.integer("ofport").and_then(|n| u16::try_from(n).ok()).filter(|n| *n > 0)
            && number < OfPort::MAX.0
        {
            Rc::make_mut(&mut self.reading.before).insert(name.clone(), OfPort(number));
        }
        self.unknown_keys(&place, "Interface", "other_config", row);
        self.absent_features(&place, "Interface", row);
        let mut wrong = Vec::new();
        let mac = match row.text("mac") {
            Some(_) if is_local => {
                wrong.push(
                    "mac is ignored for a bridge's own interface: set the bridge's other_config:hwaddr"
                        .into(),
                );
                None
            }
            Some(text) => {
                let mac = station_address(text);
                if mac.is_none() {
                    wrong.push(format!("mac={text} is not an Ethernet address of one station"));
                }
                mac
            }
            None => None,
        };
        let mut c = Checked::of(row, "other_config");
        let rxq_affinity = c
            .parsed("pmd-rxq-affinity", "QUEUE:PROCESSOR pairs, separated by commas", None, affinity)
            .unwrap_or_default();
        let steers = |text: &str| match text {
            "hash" => Some(true),
            "thread" => Some(false),
            _ => None,
        };
        let spreads_flows = c.parsed("tx-steering", "hash or thread", None, steers).unwrap_or_default();
        self.complain_all(&place, c);
        let request = row.integer("ofport_request").and_then(|n| u16::try_from(n).ok()).map(OfPort);
        let options = self.options(row, &place, &kind, &mut wrong);
        let interface = Interface {
            of_port_request: request.filter(|n| n.0 > 0 && *n < OfPort::MAX && !is_local),
            mtu_request: row.integer("mtu_request").and_then(|n| u32::try_from(n).ok()),
            mac,
            rxq_affinity,
            spreads_flows: spreads_flows && ports::driver(&kind).is_some_and(|driver| driver.spreads_flows),
            options,
            complaint: None,
            name,
            kind,
        };
        wrong.iter().for_each(|what| self.complain(&place, what));
        let complaint = (!wrong.is_empty()).then(|| wrong.join("; "));
        Some(Interface { complaint, ..interface })
    }

    /// The type as [`ports::open`] takes it.
    fn kind_of(&self, kind: &str, is_local: bool, on_dummies: bool) -> Result<String, String> {
        let Some(driver) = ports::driver(kind) else { return Ok(kind.into()) };
        let is_dummy = driver.backing == ports::Backing::Pretended;
        if is_dummy && self.dummy == EnableDummy::No {
            return Err(format!("type {kind} is for tests and needs --enable-dummy"));
        }
        let is = |other: &ports::Driver| driver.kind == other.kind;
        let is_replaced = self.dummy == EnableDummy::Override
            || self.dummy == EnableDummy::System && is(ports::SYSTEM)
            || on_dummies && is(ports::INTERNAL);
        Ok(match driver {
            _ if is_local && is_dummy => ports::INTERNAL.dummy,
            _ if is_replaced => driver.dummy,
            _ => driver.kind,
        }
        .into())
    }

    /// The driver's options. Those of other drivers are ignored; unknown ones are `wrong`.
    fn options(
        &mut self,
        row: &RowRef<'a>,
        place: &str,
        kind: &str,
        wrong: &mut Vec<String>,
    ) -> BTreeMap<String, String> {
        let driver = ports::driver(kind);
        let mut options = BTreeMap::new();
        for (key, value) in row.pairs("options") {
            let Some(driver) = driver else {
                // Another option on a patch port is refused, and so is an unknown type.
                options.insert(key.to_string(), value.to_string());
                continue;
            };
            if key == SOCK_DIR {
                let why = "the directory is the switch's: other_config:vhost-sock-dir of Open_vSwitch";
                self.complain(place, format_args!("options:{key} is ignored, {why}"));
            } else if driver.option(key).is_some() {
                options.insert(key.to_string(), value.to_string());
            } else if !keys::is_known("Interface", "options", key) {
                wrong.push(unknown_option(driver, key));
            } else if driver.backing != ports::Backing::Pretended {
                self.complain(place, format_args!("{}", unknown_option(driver, key)));
            }
        }
        // A client of the database must not choose where the switch makes and removes sockets.
        if driver.is_some_and(|driver| driver.option(SOCK_DIR).is_some())
            && let Some(dir) = &self.reading.wanted.switch.vhost_sock_dir
        {
            options.insert(SOCK_DIR.to_string(), dir.to_string_lossy().into_owned());
        }
        options
    }
}

#[cfg(test)]
mod tests;

/// The message about an option that ports of a type do not have.
fn unknown_option(driver: &ports::Driver, key: &str) -> String {
    let names = driver.option_names();
    let hint = base::suggest::hint(key, &names);
    format!("unknown option {key}: ports of type {} take {}{hint}", driver.kind, names.join(", "))
}

/// Whether Open vSwitch reserves the name for something other than an interface: a datapath, or what its
/// tunnels share.
fn is_reserved(name: &str) -> bool {
    const SHARED: [&str; 9] = [
        "erspan_sys",
        "genev_sys",
        "gre_sys",
        "gtpu_sys",
        "ip6erspan_sys",
        "ip6gre_sys",
        "lisp_sys",
        "udp_sys",
        "vxlan_sys",
    ];
    matches!(name, "ovs-dummy" | "ovs-netdev" | "ovs-system")
        || SHARED.iter().any(|prefix| name.starts_with(prefix))
}
