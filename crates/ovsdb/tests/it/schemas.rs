//! The built-in schemas against those of the stock Open vSwitch on this machine.

use ovsdb::Schema;
use serde_json::Value;

const STOCK: &str = "/usr/share/openvswitch/vswitch.ovsschema";

fn stock() -> Value {
    serde_json::from_str(&std::fs::read_to_string(STOCK).expect("openvswitch-common is installed")).unwrap()
}

#[test]
fn open_vswitch_has_the_tables_and_columns_of_the_stock_schema() {
    let (ours, stock) = (Schema::open_vswitch(), Schema::from_json(&stock()).unwrap());
    let names = |schema: &Schema| schema.tables().iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&ours), names(&stock));
    for (ours, stock) in ours.tables().iter().zip(stock.tables()) {
        for (ours, stock) in ours.columns().iter().zip(stock.columns()) {
            assert_eq!(ours, stock, "in table");
        }
        assert_eq!(ours, stock);
    }
    assert_eq!(*ours, stock, "name, version or checksum");
}

#[test]
fn the_stock_server_prints_both_schemas_as_we_do() {
    let server = crate::common::StockServer::start(STOCK);
    for ours in [Schema::open_vswitch(), Schema::server()] {
        let stock = server.client(&["get-schema", server.remote(), &ours.name]);
        assert_eq!(ours.to_json().to_string(), stock.trim());
    }
}

#[test]
fn bounds_are_read_as_by_the_stock_programs() {
    let read = |max: &str, rows: &str| {
        let text = format!(
            r#"{{"name":"D","version":"1.0.0","tables":{{"T":{{"maxRows":{rows},"columns":{{
                "c":{{"type":{{"key":"integer","max":{max}}}}}}}}}}}}}"#
        );
        let schema = Schema::from_json(&serde_json::from_str(&text).unwrap());
        schema.map(|schema| {
            (schema.tables()[0].named_columns().next().unwrap().1.kind.max, schema.tables()[0].max_rows)
        })
    };
    assert_eq!(read("1.0", "4294967296").unwrap(), (1, u32::MAX));
    assert_eq!(read("2", "1").unwrap(), (2, 1));
    for (max, rows) in [("1.5", "1"), ("0", "1"), ("4294967296", "1"), ("1", "0"), ("1", "-1")] {
        assert!(read(max, rows).is_err(), "{max} {rows}");
    }
}

#[test]
fn a_schema_is_read_as_it_is_written() {
    for schema in [Schema::open_vswitch(), Schema::server()] {
        assert_eq!(Schema::from_json(&schema.to_json()).unwrap(), *schema);
    }
}
