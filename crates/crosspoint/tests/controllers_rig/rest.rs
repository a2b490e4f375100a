//! os-ken's `ofctl_rest` in charge of two switches at once, ours and Open vSwitch's: it is asked to do the
//! same at both, and then says the same of both.

use super::Applications;
use crate::common::{Switch, run_dir};
use serde_json::{Value, json};
use testkit::stock::Stock;

/// Datapath identifiers.
const OURS: u64 = 1;
const STOCK: u64 = 2;

/// What is done, in this order: a resource and what it is told, without the datapath.
fn orders(protocol: &str) -> Vec<(&'static str, Value)> {
    let has_groups = protocol != "OpenFlow10";
    let has_meters = !["OpenFlow10", "OpenFlow12"].contains(&protocol);
    let mut orders = Vec::new();
    if has_meters {
        let bands = json!([{"type": "DROP", "rate": 1000, "burst_size": 10}]);
        orders.push(("/meterentry/add", json!({"meter_id": 1, "flags": ["KBPS", "STATS"], "bands": bands})));
        let bands = json!([{"type": "DROP", "rate": 5, "burst_size": 1}]);
        orders.push(("/meterentry/add", json!({"meter_id": 2, "flags": "PKTPS", "bands": bands})));
        let bands = json!([{"type": "DROP", "rate": 7, "burst_size": 2}]);
        orders.push(("/meterentry/modify", json!({"meter_id": 2, "flags": "PKTPS", "bands": bands})));
    }
    if has_groups {
        let buckets = json!([
            {"weight": 1, "actions": [{"type": "OUTPUT", "port": 1}]},
            {"weight": 3, "actions": [{"type": "POP_VLAN"}, {"type": "OUTPUT", "port": 2}]},
        ]);
        orders.push(("/groupentry/add", json!({"type": "SELECT", "group_id": 1, "buckets": buckets})));
        let bucket = json!([{"watch_port": 1, "actions": [{"type": "OUTPUT", "port": 1}]}]);
        orders.push(("/groupentry/add", json!({"type": "FF", "group_id": 2, "buckets": bucket})));
        let bucket = json!([{"actions": [{"type": "OUTPUT", "port": 3}]}]);
        orders.push(("/groupentry/add", json!({"type": "INDIRECT", "group_id": 3, "buckets": bucket})));
        orders.push(("/groupentry/modify", json!({"type": "ALL", "group_id": 3, "buckets": bucket})));
        orders.push(("/groupentry/add", json!({"type": "ALL", "group_id": 4, "buckets": []})));
        orders.push(("/groupentry/delete", json!({"group_id": 4})));
    }
    let flows = [
        json!({"cookie": 1, "priority": 10, "match": {"in_port": 1}, "actions": [{"type": "OUTPUT", "port": 2}]}),
        json!({"cookie": 2, "cookie_mask": 3, "priority": 11, "idle_timeout": 300, "hard_timeout": 600, "flags": 1,
            "match": {"dl_type": 0x800, "nw_src": "10.1.0.0/16", "nw_proto": 6, "tp_dst": 80},
            "actions": [{"type": "SET_DL_DST", "dl_dst": "02:00:00:00:00:09"}, {"type": "OUTPUT", "port": 3}]}),
        json!({"priority": 12, "match": {"dl_vlan": 5, "dl_src": "02:00:00:00:00:01"},
            "actions": [{"type": "STRIP_VLAN"}, {"type": "OUTPUT", "port": 0xffff_fffc_u32}]}),
        json!({"priority": 13, "match": {"dl_type": 0x806, "arp_op": 1}, "actions": []}),
        json!({"priority": 14, "match": {"dl_type": 0x86dd, "ipv6_dst": "fd00::/8", "nw_proto": 58},
            "actions": [{"type": "OUTPUT", "port": 1}]}),
    ];
    orders.extend(flows.map(|flow| ("/flowentry/add", flow)));
    let richer = [
        json!({"table_id": 0, "priority": 20, "match": {"in_port": 2, "eth_type": 0x800, "ip_proto": 17, "udp_src": 53},
            "actions": [{"type": "SET_FIELD", "field": "udp_dst", "value": 5353}, {"type": "GOTO_TABLE", "table_id": 7},
                {"type": "WRITE_METADATA", "metadata": 5, "metadata_mask": 15}]}),
        json!({"table_id": 7, "priority": 21, "match": {"vlan_vid": "0x1000/0x1000"},
            "actions": [{"type": "POP_VLAN"}, {"type": "GROUP", "group_id": 1}]}),
        json!({"table_id": 7, "priority": 22, "match": {"eth_type": 0x8847, "mpls_label": 16},
            "actions": [{"type": "DEC_MPLS_TTL"}, {"type": "PUSH_MPLS", "ethertype": 0x8847},
                {"type": "SET_QUEUE", "queue_id": 3}, {"type": "OUTPUT", "port": 1}]}),
        json!({"table_id": 9, "priority": 23, "match": {"metadata": "5/15"},
            "actions": [{"type": "WRITE_ACTIONS", "actions": [{"type": "OUTPUT", "port": 2}]}]}),
    ];
    if has_groups {
        orders.extend(richer.map(|flow| ("/flowentry/add", flow)));
    }
    if ["OpenFlow13", "OpenFlow14"].contains(&protocol) {
        let metered = json!({"table_id": 9, "priority": 24, "match": {"in_port": 3},
            "actions": [{"type": "METER", "meter_id": 1}, {"type": "OUTPUT", "port": 2}]});
        orders.push(("/flowentry/add", metered));
    }
    let changed =
        json!({"priority": 10, "match": {"in_port": 1}, "actions": [{"type": "OUTPUT", "port": 3}]});
    orders.push(("/flowentry/modify_strict", changed));
    orders.push((
        "/flowentry/modify",
        json!({"match": {"dl_type": 0x806}, "actions": [{"type": "OUTPUT", "port": 1}]}),
    ));
    orders.push((
        "/flowentry/delete_strict",
        json!({"priority": 12, "match": {"dl_vlan": 5, "dl_src": "02:00:00:00:00:01"}}),
    ));
    // Refused.
    orders.push((
        "/flowentry/add",
        json!({"priority": 30, "match": {"in_port": 1},
        "actions": [{"type": "OUTPUT", "port": 0xffff_ff00_u32}]}),
    ));
    orders.push((
        "/portdesc/modify",
        json!({"port_no": 2, "port_config": {"config": 0x10, "mask": 0x10},
        "config": 0x10, "mask": 0x10}),
    ));
    orders
}

/// Resources that are read then, behind each datapath.
const RESOURCES: [(&str, &str); 27] = [
    ("desc", ""),
    ("flow", ""),
    ("flowdesc", ""),
    ("aggregateflow", ""),
    ("table", ""),
    ("tablefeatures", ""),
    ("port", ""),
    ("port", "/2"),
    ("queue", ""),
    ("queue", "/1"),
    ("queue", "/ALL/1"),
    ("queueconfig", ""),
    ("queueconfig", "/1"),
    ("queuedesc", ""),
    ("queuedesc", "/1/1"),
    ("meterfeatures", ""),
    ("meterconfig", ""),
    ("meterconfig", "/2"),
    ("meterdesc", ""),
    ("meter", ""),
    ("groupfeatures", ""),
    ("groupdesc", ""),
    ("groupdesc", "/1"),
    ("group", ""),
    ("portdesc", ""),
    ("portdesc", "/2"),
    ("role", ""),
];

/// What differs, members of what a resource says, and why.
const STATED: [(&str, &[&str]); 2] = [
    // Each says its own name.
    ("desc", &["mfr_desc", "hw_desc", "sw_desc"]),
    // Ours also remarks, and has more meters than the dummy datapath.
    ("meterfeatures", &["band_types", "max_meter"]),
];

/// What does not differ by time or by chance. A list that says nothing of order is sorted.
fn comparable(value: &mut Value, stated: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|key, _| {
                !["duration_sec", "duration_nsec", "hw_addr"].contains(&key.as_str())
                    && !stated.contains(&key.as_str())
            });
            members.values_mut().for_each(|value| comparable(value, stated));
        }
        Value::Array(items) => {
            items.iter_mut().for_each(|item| comparable(item, stated));
            items.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}

/// One of the two, asked for all there is but some resources, each answer with what was asked for.
fn answers(
    applications: &Applications,
    datapath: u64,
    protocol: &str,
    left_out: &[&str],
) -> Vec<(String, Option<Value>)> {
    let mut answers = Vec::new();
    for (resource, mut order) in orders(protocol) {
        let what = format!("{resource} {order}");
        order["dpid"] = datapath.into();
        answers.push((what, applications.try_ask("POST", &format!("/stats{resource}"), &order)));
    }
    for (resource, rest) in RESOURCES.into_iter().filter(|row| !left_out.contains(&row.0)) {
        let path = format!("/stats/{resource}/{datapath}{rest}");
        let mut said = applications.try_ask("GET", &path, &Value::Null);
        // The answer's one member is the datapath.
        if let Some(inner) = said.as_ref().and_then(|said| said.get(datapath.to_string())) {
            said = Some(inner.clone());
        }
        let stated = STATED.iter().find(|row| row.0 == resource).map_or(&[][..], |row| row.1);
        said.iter_mut().for_each(|said| comparable(said, stated));
        answers.push((format!("{resource}{rest}"), said));
    }
    answers
}

/// Does the same at both by a version of OpenFlow, and panics with all that differs. Some resources may be
/// left out: os-ken takes many seconds for the features of tables.
pub fn says_the_same_of_both(protocol: &str, left_out: &[&str]) {
    let dir = run_dir();
    let applications = Applications::start(dir.path(), &["ofctl_rest"]);
    let controller = format!("tcp:127.0.0.1:{}", applications.port);
    let stock = Stock::start();
    let ports: String = (1..=3)
        .map(|n| format!(" -- add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}"))
        .collect();
    stock.vsctl(&format!(
        "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure protocols={protocol} \
         other_config:datapath-id={STOCK:016x}{ports} -- set-controller br0 {controller} \
         -- set controller br0 max_backoff=1000"
    ));
    let bridge = format!(
        "br0,datapath-id={OURS:016x},fail-mode=secure,max-backoff=1000,local=dummy,protocols={protocol},\
         controller={controller}"
    );
    let ports: Vec<String> = (1..=3).map(|n| format!("p{n},type=dummy,ofport={n}")).collect();
    let mut args = vec!["--bridge", &bridge];
    args.extend(ports.iter().flat_map(|port| ["--port", port]));
    let _switch = Switch::start_in(dir, &args);
    applications.until("/stats/switches", |said| said.as_array().is_some_and(|all| all.len() == 2));
    let applications = &applications;
    let [ours, stock] = std::thread::scope(|scope| {
        let asked = |datapath| scope.spawn(move || answers(applications, datapath, protocol, left_out));
        [OURS, STOCK].map(asked).map(|thread| thread.join().unwrap())
    });
    let mut differences = Vec::new();
    for ((what, ours), (_, stock)) in ours.iter().zip(&stock) {
        if ours != stock {
            let text = |said: &Option<Value>| said.as_ref().map_or("an error".into(), Value::to_string);
            differences.push(format!("{what}:\n  ours  {}\n  stock {}", text(ours), text(stock)));
        }
    }
    assert!(differences.is_empty(), "{protocol}:\n{}", differences.join("\n"));
    let flows = ours.iter().find(|(what, _)| what == "flow").and_then(|(_, said)| said.clone());
    let count = flows.as_ref().and_then(Value::as_array).map_or(0, Vec::len);
    assert!(count >= 4, "too few flows to compare: {flows:?}");
}
