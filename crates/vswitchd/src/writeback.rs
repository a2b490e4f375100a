//! Writes back to the database: the results of its configuration, and the present status.
//!
//! A [`Round`] determines the status columns of every row that the switch uses, in turns: a transaction holds
//! what differs from the database in the rows of one turn, so an update without changes costs no message, and
//! neither a commit nor its echo is long. `cur_cfg` is updated last.
//!
//! Names and forms are Open vSwitch's, which exporters and scripts read (ovs-vswitchd.conf.db(5)).

use crate::config::rows::{EnableDummy, Reading, RowRef, Rows};
use crate::config::wanted::PATCH;
use crate::reconcile::Outcome;
use crate::state::{PortRecord, Vswitch};
use ovsdb::replica::{Replica, Transaction};
use ovsdb::{Atom, Datum, RowChange, TableIdx, Uuid};
use packet::LinkState;
use std::collections::{BTreeMap, VecDeque};
use std::time::Instant;
use switch::PortKind;
use switch::features::FEATURES;

/// What to write, and how far it is written.
#[derive(Debug)]
pub struct Round {
    /// Statistics too, which change all the time.
    pub statistics: bool,
    /// The configuration that is in force, if it must be reported.
    pub cur_cfg: Option<i64>,
    /// See there.
    pub dummy: EnableDummy,
    /// Statistics of the machine.
    pub machine: Vec<(String, String)>,
    /// The rows before the root; `None` before the first turn.
    pub left: Option<VecDeque<Part>>,
}

/// Rows that are written together.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// A bridge and its controllers.
    Bridge(Uuid),
    /// A port and its interfaces.
    Port(Uuid),
}

impl Round {
    /// Puts what differs into the transaction, in a turn that ends soon after `until`. Returns whether all is
    /// written.
    pub fn turn(
        &mut self,
        vswitch: &Vswitch,
        txn: &mut Transaction,
        reading: &Reading,
        until: Instant,
    ) -> bool {
        let rows = Rows {
            schema: txn.schema().clone(),
            tables: (0..txn.schema().tables().len()).map(|n| txn.table(TableIdx(n as u16)).clone()).collect(),
        };
        let Some(root) = rows.all("Open_vSwitch").next() else { return true };
        let ports: BTreeMap<&str, &PortRecord> =
            vswitch.devices.ports.values().map(|p| (p.name.as_str(), p)).collect();
        let (statistics, left) = (self.statistics, self.left.get_or_insert_with(|| parts(&rows, &root)));
        while let Some(part) = left.pop_front() {
            match part {
                Part::Bridge(uuid) => {
                    if let Some(bridge) = rows.get("Bridge", uuid) {
                        write_bridge(vswitch, txn, &bridge, reading);
                        write_controllers(vswitch, txn, &rows, &bridge, statistics);
                    }
                }
                Part::Port(uuid) => {
                    if let Some(port) = rows.get("Port", uuid) {
                        write_port(vswitch, txn, &rows, &port, reading, statistics, &ports);
                    }
                }
            }
            if Instant::now() >= until {
                return false;
            }
        }
        self.write_root(&rows, &root, txn);
        true
    }

    fn write_root(&self, rows: &Rows, root: &RowRef<'_>, txn: &mut Transaction) {
        write_datapaths(rows, root, txn);
        let mut cells = Cells::of(txn, "Open_vSwitch", root.row.uuid());
        write_root(&mut cells, self.dummy);
        cells.set("statistics", texts(&self.machine));
        if let Some(cur_cfg) = self.cur_cfg {
            cells.set("cur_cfg", Datum::scalar(cur_cfg));
        }
    }
}

/// The rows to write, in order.
fn parts(rows: &Rows, root: &RowRef<'_>) -> VecDeque<Part> {
    let mut parts = VecDeque::new();
    for bridge in rows.referenced(root, "bridges", "Bridge") {
        parts.push_back(Part::Bridge(bridge.row.uuid()));
        let ports = rows.referenced(&bridge, "ports", "Port");
        parts.extend(ports.map(|port| Part::Port(port.row.uuid())));
    }
    parts
}

fn write_port(
    vswitch: &Vswitch,
    txn: &mut Transaction,
    rows: &Rows,
    port: &RowRef<'_>,
    reading: &Reading,
    statistics: bool,
    ports: &BTreeMap<&str, &PortRecord>,
) {
    Cells::of(txn, "Port", port.row.uuid()).set("status", ignored(reading, "Port", port));
    for interface in rows.referenced(port, "interfaces", "Interface") {
        let name = interface.text("name").unwrap_or_default();
        let mut outcome = vswitch.outcome_of(name, ports.get(name).copied());
        if let Some(why) = reading.impossible.get(name) {
            outcome = Outcome { of_port: None, error: Some(why.clone()).filter(|why| !why.is_empty()) };
        }
        let record = ports.get(name).copied().filter(|_| outcome.of_port.is_some());
        outcome.error = outcome.error.or_else(|| loose_cable(vswitch, record?));
        let mut cells = Cells::of(txn, "Interface", interface.row.uuid());
        let rx_queues = record.map_or(0, |r| vswitch.plane.dp.rx_workers(r.port_no).len());
        let without = reading.ignored.get(&("Interface".into(), name.into()));
        let without = without.map(|columns| columns.join(" "));
        write_interface(&mut cells, record, rx_queues, &outcome, without);
        let is_empty = interface.get("statistics").is_some_and(Datum::is_empty);
        match record {
            Some(record) if statistics || is_empty => {
                cells.set("statistics", numbers(&vswitch.plane.interface_statistics(record)));
            }
            Some(_) => {}
            None => cells.set("statistics", Datum::EMPTY),
        }
    }
}

/// A row's columns, to be set by name. Columns that an older schema lacks are left out.
struct Cells<'a> {
    txn: &'a mut Transaction,
    table: Option<TableIdx>,
    uuid: Uuid,
}

impl<'a> Cells<'a> {
    fn of(txn: &'a mut Transaction, table: &str, uuid: Uuid) -> Cells<'a> {
        let table = txn.schema().find(table);
        Cells { txn, table, uuid }
    }

    fn set(&mut self, column: &str, datum: Datum) {
        let Some(table) = self.table else { return };
        if let Some(column) = self.txn.schema().table(table).find(column) {
            self.txn.set(table, self.uuid, column, datum);
        }
    }
}

fn text(value: &str) -> Datum {
    Datum::scalar(value)
}

fn optional<T: Into<Atom>>(value: Option<T>) -> Datum {
    Datum::optional(value)
}

fn texts<K: AsRef<str>, V: AsRef<str>>(pairs: &[(K, V)]) -> Datum {
    let unique: BTreeMap<&str, &str> = pairs.iter().map(|(k, v)| (k.as_ref(), v.as_ref())).collect();
    Datum::map(unique)
}

fn numbers<K: AsRef<str>>(pairs: &[(K, u64)]) -> Datum {
    Datum::map(pairs.iter().map(|(k, v)| (k.as_ref(), i64::try_from(*v).unwrap_or(i64::MAX))))
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|b| format!("{b:02x}")).join(":")
}

fn write_root(cells: &mut Cells<'_>, dummy: EnableDummy) {
    let version = cells.txn.schema().version.clone();
    cells.set("ovs_version", text(host::program::OVS_VERSION));
    if !version.is_empty() {
        cells.set("db_version", text(&version));
    }
    let has_dummies = dummy != EnableDummy::No;
    let is_shown = |driver: &&&ports::Driver| has_dummies || driver.backing != ports::Backing::Pretended;
    let kinds = ports::DRIVERS.iter().filter(is_shown).map(|driver| driver.kind).chain([PATCH]);
    cells.set("iface_types", Datum::set(kinds));
    let types = ["netdev", "system"].into_iter().chain(has_dummies.then_some("dummy"));
    cells.set("datapath_types", Datum::set(types));
    cells.set("dpdk_initialized", Datum::scalar(false));
    cells.set("dpdk_version", text("none"));
}

/// `status`: what of the row has no effect.
fn ignored(reading: &Reading, table: &str, row: &RowRef<'_>) -> Datum {
    let name = row.text("name").unwrap_or_default();
    let columns = reading.ignored.get(&(table.into(), name.into()));
    columns.map_or(Datum::EMPTY, |columns| texts(&[("ignored", columns.join(" "))]))
}

fn write_bridge(vswitch: &Vswitch, txn: &mut Transaction, row: &RowRef<'_>, reading: &Reading) {
    let bridge = row.text("name").and_then(|name| vswitch.bridge_named(name));
    let mut cells = Cells::of(txn, "Bridge", row.row.uuid());
    cells.set("datapath_id", optional(bridge.map(|b| format!("{:016x}", b.datapath_id))));
    cells.set("status", ignored(reading, "Bridge", row));
    cells.set("datapath_version", text(if bridge.is_some() { "<built-in>" } else { "<unknown>" }));
}

/// The connections to a bridge's controllers. Their durations change all the time: those are written with the
/// statistics, and when something else changes.
fn write_controllers(
    vswitch: &Vswitch,
    txn: &mut Transaction,
    rows: &Rows,
    bridge: &RowRef<'_>,
    with_times: bool,
) {
    let all = bridge.text("name").map(|name| vswitch.controller_status(name)).unwrap_or_default();
    for row in rows.referenced(bridge, "controller", "Controller") {
        let Some(status) = row.text("target").and_then(|target| all.get(target)) else { continue };
        let state = status.state.map(|s| s.name());
        let told = (row.flag("is_connected"), row.text("role"), row.value("status", "state"));
        if !with_times && told == (status.is_connected, status.role, state) {
            continue;
        }
        let mut cells = Cells::of(txn, "Controller", row.row.uuid());
        cells.set("is_connected", Datum::scalar(status.is_connected));
        cells.set("role", optional(status.role));
        let mut pairs: Vec<(&str, String)> = Vec::new();
        pairs.extend(state.map(|s| ("state", s.to_string())));
        pairs.extend(status.sec_since_connect.map(|s| ("sec_since_connect", s.to_string())));
        pairs.extend(status.sec_since_disconnect.map(|s| ("sec_since_disconnect", s.to_string())));
        pairs.extend(status.last_error.as_ref().map(|e| ("last_error", e.clone())));
        pairs.extend(status.packet_ins.iter().map(|(key, n)| (key.as_str(), n.to_string())));
        cells.set("status", texts(&pairs));
    }
}

/// What is wrong with a patch port without a peer, in Open vSwitch's words.
fn loose_cable(vswitch: &Vswitch, record: &PortRecord) -> Option<String> {
    let is_loose = vswitch.plane.port_spec(record.port_no)?.kind == PortKind::Patch { peer: None };
    let peer = record.interface.peer().filter(|_| is_loose)?;
    Some(format!("No usable peer '{peer}' exists in 'netdev' datapath."))
}

fn write_interface(
    cells: &mut Cells<'_>,
    record: Option<&PortRecord>,
    rx_queues: usize,
    outcome: &Outcome,
    ignored: Option<String>,
) {
    let of_port = outcome.of_port.map_or(-1, |n| i64::from(n.0));
    cells.set("ofport", Datum::scalar(of_port));
    let broken = record.and_then(|r| Some(format!("{}: {}", r.name, r.complaint()?)));
    cells.set("error", optional(outcome.error.clone().or(broken)));
    let status = record.map(|r| &r.status);
    let of_device = record.filter(|r| !r.is_patch()).map(|r| &r.status);
    let up = |up: bool| if up { "up" } else { "down" };
    cells.set("admin_state", optional(status.map(|s| up(s.admin_up))));
    cells.set("link_state", optional(status.map(|s| up(s.link == LinkState::Up))));
    cells.set("mac_in_use", optional(status.map(|s| mac_text(s.mac))));
    let speed = of_device.and_then(|s| i64::try_from(s.speed_bps).ok()).filter(|s| *s > 0);
    cells.set("link_speed", optional(speed));
    cells.set("duplex", optional(speed.map(|_| "full")));
    cells.set("mtu", optional(of_device.map(|s| i64::from(s.mtu)).filter(|mtu| *mtu > 0)));
    // 0 if there is no device, as in Open vSwitch.
    let ifindex = record.map(|r| if r.is_broken() { 0 } else { i64::from(r.status.ifindex) });
    cells.set("ifindex", optional(ifindex));
    cells.set("link_resets", optional(record.map(|r| r.link_resets as i64)));
    cells.set("status", record.map_or(Datum::EMPTY, |r| status_map(r, rx_queues, ignored)));
    cells.set("lacp_current", Datum::EMPTY);
}

/// `status`: the driver's details, and what differs from the request.
fn status_map(record: &PortRecord, rx_queues: usize, ignored: Option<String>) -> Datum {
    let status = &record.status;
    let mut pairs = status.details.clone();
    pairs.extend(ignored.map(|columns| ("ignored".into(), columns)));
    if let Some(error) = &status.error {
        pairs.push(("error".into(), error.clone()));
    }
    if let (Some(asked), false) = (record.interface.mtu_request, record.is_patch())
        && status.mtu != asked
    {
        pairs.push(("mtu_request".into(), format!("{asked} was asked for, {} is in use", status.mtu)));
    }
    let asked = record.device_options.get("n_rxq").and_then(|n| n.parse::<usize>().ok());
    // How many queues a virtual machine's port has is the machine's affair.
    if let (Some(asked), false) = (asked, record.interface.is_guests())
        && asked > rx_queues
        && rx_queues > 0
    {
        pairs.push(("requested_rxq".into(), format!("{asked} were asked for, {rx_queues} are in use")));
    }
    texts(&pairs)
}

/// What the datapath supports. Clients create these rows; we only fill them in.
fn write_datapaths(rows: &Rows, root: &RowRef<'_>, txn: &mut Transaction) {
    let named = root.get("datapaths").into_iter().flat_map(|d| d.values());
    for uuid in named.filter_map(|a| a.as_uuid()) {
        if rows.get("Datapath", uuid).is_some() {
            let mut cells = Cells::of(txn, "Datapath", uuid);
            let mut all: Vec<(&str, String)> =
                FEATURES.iter().map(|row| (row.name, row.value.text("true", "false"))).collect();
            // Not shown by any command. OVN checks it before it removes connections by OpenFlow.
            all.push(("ct_flush", "true".into()));
            cells.set("capabilities", texts(&all));
        }
    }
}

/// Columns that the switch writes, or that are others' business.
const STATUS_COLUMNS: &[(&str, &[&str])] = &[
    (
        "Open_vSwitch",
        &[
            "cur_cfg",
            "statistics",
            "ovs_version",
            "db_version",
            "iface_types",
            "datapath_types",
            "dpdk_initialized",
            "dpdk_version",
            "external_ids",
            "system_type",
            "system_version",
        ],
    ),
    ("Bridge", &["datapath_id", "datapath_version", "status", "rstp_status", "external_ids"]),
    (
        "Port",
        &["statistics", "status", "rstp_status", "rstp_statistics", "bond_active_slave", "external_ids"],
    ),
    (
        "Interface",
        &[
            "ofport",
            "error",
            "admin_state",
            "link_state",
            "link_speed",
            "duplex",
            "mac_in_use",
            "mtu",
            "ifindex",
            "link_resets",
            "statistics",
            "status",
            "lacp_current",
            "bfd_status",
            "cfm_fault",
            "cfm_fault_status",
            "cfm_health",
            "cfm_flap_count",
            "cfm_remote_mpids",
            "cfm_remote_opstate",
            "external_ids",
        ],
    ),
    ("Controller", &["is_connected", "role", "status", "external_ids"]),
    ("Manager", &["is_connected", "status", "max_backoff", "inactivity_probe", "external_ids"]),
    ("Datapath", &["capabilities", "datapath_version", "external_ids"]),
];

/// Whether a change of a row may change the configuration.
pub fn configures(replica: &Replica, change: &RowChange) -> bool {
    let Some(schema) = replica.schema() else { return true };
    let table = schema.table(change.table);
    let (Some(old), Some(new)) = (&change.old, &change.new) else { return true };
    let told =
        STATUS_COLUMNS.iter().find(|(name, _)| *name == table.name).map_or(&[][..], |(_, columns)| columns);
    old.changed_columns(new).any(|column| {
        let column = table.column(column);
        !column.name.starts_with('_') && !told.contains(&column.name.as_str())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use host::rundir::RunDir;
    use ovsdb::replica::Replica;
    use ovsdb::{Row, Schema, UuidGenerator};

    #[test]
    fn rows_are_written_some_at_a_time_and_the_configuration_in_force_after_all_others() {
        const PORTS: usize = 50;
        let schema = Schema::open_vswitch();
        let mut ids = UuidGenerator::from_seed(1);
        let column = |table: TableIdx, name: &str| schema.table(table).find(name).unwrap();
        let table = |name: &str| schema.find(name).unwrap();
        let mut row = |name: &str, references: Option<(&str, Vec<Uuid>)>| {
            let mut row = Row::new(schema.table(table(name)), ids.next_uuid());
            if let Some((to, uuids)) = references {
                row.set(column(table(name), to), Datum::set(uuids));
            }
            (table(name), row)
        };
        let interfaces: Vec<_> = (0..PORTS).map(|_| row("Interface", None)).collect();
        let of = |(_, row): &(TableIdx, Row)| vec![row.uuid()];
        let ports: Vec<_> = interfaces.iter().map(|i| row("Port", Some(("interfaces", of(i))))).collect();
        let bridge = row("Bridge", Some(("ports", ports.iter().flat_map(of).collect())));
        let root = row("Open_vSwitch", Some(("bridges", of(&bridge))));
        let rows = [interfaces, ports, vec![bridge, root]].concat();
        let replica = Replica::with_rows(schema.clone(), rows);

        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        let machine = Vec::new();
        let mut round =
            Round { statistics: false, cur_cfg: Some(7), dummy: EnableDummy::No, machine, left: None };
        let (root, interface) = (table("Open_vSwitch"), table("Interface"));
        let (cur_cfg, ofport) = (column(root, "cur_cfg"), column(interface, "ofport"));
        let (mut turns, mut written) = (0, 0);
        let is_whole =
            |txn: &Transaction| txn.table(root).iter().all(|r| *r.get(cur_cfg) == Datum::scalar(7));
        let txn = loop {
            let mut txn = replica.begin();
            turns += 1;
            let is_over = round.turn(&vswitch, &mut txn, &Reading::default(), Instant::now());
            let of_turn = txn.table(interface).iter().filter(|row| !row.get(ofport).is_empty()).count();
            assert!(of_turn <= 1, "{of_turn} interfaces in a turn that is over at once");
            written += of_turn;
            if is_over {
                break txn;
            }
            assert!(!is_whole(&txn));
        };
        assert!(is_whole(&txn));
        assert_eq!((turns, written), (1 + PORTS + 1, PORTS));
    }
}
