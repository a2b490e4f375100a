//! A database file with many interfaces, as a server leaves it when it has compacted it.

use ovsdb::log::transaction::{Note, encode_schema, encode_snapshot};
use ovsdb::log::{Magic, frame};
use ovsdb::{Database, Datum, Schema, TableIdx, UuidGenerator};
use std::io::Write;
use std::path::Path;

/// Writes a database of the schema Open_vSwitch with `interfaces` interfaces, each in a port of its own on
/// one bridge, with the columns that such rows have in the field.
pub fn write_large_file(path: &Path, interfaces: usize) -> Result<(), String> {
    let text = std::fs::read("/usr/share/openvswitch/vswitch.ovsschema").map_err(|e| e.to_string())?;
    let json = serde_json::from_slice(&text).map_err(|e| e.to_string())?;
    let schema = Schema::from_json(&json).map_err(|e| e.to_string())?;
    let mut ids = UuidGenerator::from_seed(1);
    let mut database = Database::new(schema);
    fill(&mut database, &mut ids, interfaces).map_err(|e| e.to_string())?;
    let note = Note { date_ms: 1_700_000_000_000, comment: Some("made for a benchmark") };
    let write = || -> std::io::Result<()> {
        let mut file = std::io::BufWriter::new(std::fs::File::create(path)?);
        for body in [encode_schema(database.schema()), encode_snapshot(&database.snapshot(), note)] {
            file.write_all(frame::Header::of(Magic::Standalone, &body).as_bytes())?;
            file.write_all(&body)?;
        }
        file.flush()
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

fn fill(database: &mut Database, ids: &mut UuidGenerator, interfaces: usize) -> Result<(), ovsdb::Error> {
    let schema = database.schema().clone();
    let table = |name: &str| schema.find(name).expect("a table of the schema");
    let column =
        |table: TableIdx, name: &str| schema.table(table).find(name).expect("a column of the schema");
    let (switch, bridge) = (table("Open_vSwitch"), table("Bridge"));
    let (port, interface) = (table("Port"), table("Interface"));
    let mut transaction = database.begin();
    let mut ports = Vec::with_capacity(interfaces);
    for n in 0..interfaces {
        let name = format!("tap{n:08x}");
        let mac = format!("fa:16:3e:{:02x}:{:02x}:{:02x}", n >> 16 & 255, n >> 8 & 255, n & 255);
        let mut row = transaction.new_row(interface, ids.next_uuid());
        let id = ids.next_uuid().to_string();
        row.set(column(interface, "name"), Datum::scalar(name.as_str()));
        row.set(column(interface, "type"), Datum::scalar("internal"));
        let ids_of_it =
            [("attached-mac", mac.as_str()), ("iface-id", &id), ("iface-status", "active"), ("vm-uuid", &id)];
        row.set(column(interface, "external_ids"), Datum::map(ids_of_it));
        let interface_uuid = row.uuid();
        transaction.insert(interface, row)?;
        let mut row = transaction.new_row(port, ids.next_uuid());
        row.set(column(port, "name"), Datum::scalar(name.as_str()));
        row.set(column(port, "tag"), Datum::scalar((n % 4095) as i64));
        row.set(column(port, "interfaces"), Datum::scalar(interface_uuid));
        ports.push(row.uuid());
        transaction.insert(port, row)?;
    }
    let mut row = transaction.new_row(bridge, ids.next_uuid());
    row.set(column(bridge, "name"), Datum::scalar("br-int"));
    row.set(column(bridge, "ports"), Datum::set(ports));
    let bridge_uuid = row.uuid();
    transaction.insert(bridge, row)?;
    let mut row = transaction.new_row(switch, ids.next_uuid());
    row.set(column(switch, "bridges"), Datum::scalar(bridge_uuid));
    transaction.insert(switch, row)?;
    transaction.commit(ids).map(drop)
}
