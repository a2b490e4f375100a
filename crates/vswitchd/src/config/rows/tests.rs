//! From rows, written as transactions, to what is wanted.

mod peers;

use super::*;
use crate::config::wanted::{AutoBalance, WorkerSettings};
use datapath::conntrack::timeouts::Phase;
use datapath::placement::Policy;
use host::rundir::RunDir;
use openflow::{Version, VersionSet};
use ovsdb::{Context, Database, Execution, Schema, UuidGenerator};
use serde_json::{Value, json};
use switch::{PriorityTags, VlanConfig, VlanMode, VlanSet};

/// A database with one row of table Open_vSwitch, and what was wanted last.
struct Rig {
    database: Database,
    ids: UuidGenerator,
    wanted: Rc<Wanted>,
    dummy: EnableDummy,
}

impl Rig {
    fn new() -> Rig {
        let mut rig = Rig {
            database: Database::new(Schema::open_vswitch()),
            ids: UuidGenerator::from_seed(1),
            wanted: Rc::default(),
            dummy: EnableDummy::No,
        };
        rig.transact(&[json!({"op": "insert", "table": "Open_vSwitch", "row": {}})]);
        rig
    }

    fn transact(&mut self, operations: &[Value]) {
        let mut context = Context {
            ids: &mut self.ids,
            has_lock: &|_| true,
            elapsed_ms: 0,
            read_only: false,
            principal: ovsdb::Principal::ROOT,
            room: None,
        };
        match self.database.execute(operations, &mut context) {
            Execution::Done(outcome) => {
                let text = outcome.reply.to_json().to_string();
                assert!(!text.contains("\"error\""), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }

    /// Bridge br0 with a port p1 of one interface.
    fn with_port(bridge: Value, port: Value, interface: Value) -> Rig {
        let mut rig = Rig::new();
        let named = |name: &str, more: Value| {
            let mut row = json!({"name": name});
            row.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            row
        };
        let mut port = named("p1", port);
        port["interfaces"] = json!(["named-uuid", "i1"]);
        let mut bridge = named("br0", bridge);
        bridge["ports"] = json!(["set", [["named-uuid", "port1"]]]);
        rig.transact(&[
            json!({"op": "insert", "table": "Interface", "uuid-name": "i1", "row": named("p1", interface)}),
            json!({"op": "insert", "table": "Port", "uuid-name": "port1", "row": port}),
            json!({"op": "insert", "table": "Bridge", "uuid-name": "b", "row": bridge}),
            json!({"op": "update", "table": "Open_vSwitch", "where": [],
                   "row": {"bridges": ["set", [["named-uuid", "b"]]]}}),
        ]);
        rig
    }

    fn set(&mut self, table: &str, row: Value) {
        self.transact(&[json!({"op": "update", "table": table, "where": [], "row": row})]);
    }

    /// Reads, and remembers.
    fn read(&mut self) -> Reading {
        let rows = Rows::of(&self.database);
        let reading = read(rows, &self.wanted, self.dummy, Path::new("/run/ovs")).unwrap();
        self.wanted = reading.wanted.clone();
        reading
    }

    fn bridge(&mut self) -> Bridge {
        self.read().wanted.bridges["br0"].clone()
    }

    fn port(&mut self) -> Port {
        self.bridge().ports["p1"].clone()
    }

    fn interface(&mut self) -> Interface {
        self.port().interfaces["p1"].clone()
    }
}

fn pairs(pairs: &[(&str, &str)]) -> Value {
    json!(["map", pairs.iter().map(|(k, v)| json!([k, v])).collect::<Vec<_>>()])
}

fn other_config(keys: &[(&str, &str)]) -> Value {
    json!({"other_config": pairs(keys)})
}

/// What an empty row says.
fn defaults() -> SwitchWide {
    SwitchWide { vhost_sock_dir: Some(RunDir::from_env().path().into()), ..SwitchWide::default() }
}

#[test]
fn settings_of_the_switch_are_read_and_nonsense_leaves_them_as_they_were() {
    let mut rig = Rig::new();
    let reading = rig.read();
    assert_eq!(reading.wanted.switch, defaults());
    assert_eq!((defaults().stats_interval_ms, defaults().system_statistics), (5_000, false));
    rig.set(
        "Open_vSwitch",
        other_config(&[
            ("pmd-cpu-mask", "0x3c"),
            ("flow-limit", "1000"),
            ("max-idle", "500"),
            ("pmd-maxsleep", "0"),
            ("flow-restore-wait", "true"),
            ("stats-update-interval", "20000"),
            ("enable-statistics", "true"),
        ]),
    );
    let wanted = SwitchWide {
        workers: WorkerSettings {
            cpus: Some(vec![2, 3, 4, 5]),
            flow_limit: Some(1000),
            max_idle_ms: Some(500),
            sleep_max_us: Some(0),
            ..WorkerSettings::default()
        },
        flow_restore_wait: true,
        stats_interval_ms: 20_000,
        system_statistics: true,
        ..defaults()
    };
    let reading = rig.read();
    assert_eq!(reading.wanted.switch, wanted);
    assert!(reading.complaints.is_empty(), "{:?}", reading.complaints);
    rig.set(
        "Open_vSwitch",
        other_config(&[
            ("pmd-cpu-mask", "cores"),
            ("flow-limit", "-1"),
            ("max-idle", "499"),
            ("pmd-maxsleep", "never"),
            ("flow-restore-wait", "maybe"),
            ("stats-update-interval", "now and then"),
            ("enable-statistics", "perhaps"),
            ("hw-offload", "true"),
            ("vhost-postcopy-support", "true"),
            ("pmd-cpu-msk", "1"),
        ]),
    );
    let reading = rig.read();
    assert_eq!(reading.wanted.switch, wanted);
    let complaints: Vec<&str> = reading.complaints.iter().map(String::as_str).collect();
    assert_eq!(
        complaints,
        [
            "Open_vSwitch: other_config:enable-statistics=perhaps is not true or false",
            "Open_vSwitch: other_config:flow-limit=-1 is not a number from 0 to 18446744073709551615",
            "Open_vSwitch: other_config:flow-restore-wait=maybe is not true or false",
            "Open_vSwitch: other_config:hw-offload=true has no effect: no hardware offload is available",
            "Open_vSwitch: other_config:max-idle=499 is not a number from 500 to 4294967295",
            "Open_vSwitch: other_config:pmd-cpu-mask=cores is not a mask of processors in hexadecimal",
            "Open_vSwitch: other_config:pmd-cpu-msk is not known, and ignored",
            "Open_vSwitch: other_config:pmd-maxsleep=never is not a number from 0 to 18446744073709551615",
            "Open_vSwitch: other_config:stats-update-interval=now and then is not a number from 0 to 4294967295",
            "Open_vSwitch: other_config:vhost-postcopy-support=true has no effect: post-copy migration is not offered",
        ]
    );
    // Less than the least is the least.
    rig.set("Open_vSwitch", other_config(&[("stats-update-interval", "10")]));
    assert_eq!(rig.read().wanted.switch, defaults());
    rig.set("Open_vSwitch", other_config(&[]));
    assert_eq!(rig.read().wanted.switch, defaults());
}

#[test]
fn queues_mark_what_leaves_a_port_as_long_as_its_qos_has_a_type() {
    let mut rig = Rig::with_port(json!({}), json!({}), json!({}));
    assert_eq!(rig.port().queue_dscp, [].into());
    rig.transact(&[
        json!({"op": "insert", "table": "Queue", "uuid-name": "q1", "row": {"dscp": 1}}),
        json!({"op": "insert", "table": "Queue", "uuid-name": "q2", "row": {"dscp": 63}}),
        json!({"op": "insert", "table": "Queue", "uuid-name": "q3", "row": {}}),
        json!({"op": "insert", "table": "QoS", "uuid-name": "qos", "row": {"type": "linux-htb",
               "queues": ["map", [[1, ["named-uuid", "q1"]], [7, ["named-uuid", "q2"]],
                                  [8, ["named-uuid", "q3"]]]]}}),
        json!({"op": "update", "table": "Port", "where": [], "row": {"qos": ["named-uuid", "qos"]}}),
    ]);
    assert_eq!(rig.port().queue_dscp, [(1, 1), (7, 63)].into(), "the third has none");
    rig.set("QoS", json!({"type": ""}));
    assert_eq!(rig.port().queue_dscp, [].into(), "no type: nothing is configured");
}

#[test]
fn timeouts_of_zones_are_read() {
    let mut rig = Rig::new();
    rig.transact(&[
        json!({"op": "insert", "table": "CT_Timeout_Policy", "uuid-name": "policy",
               "row": {"timeouts": ["map", [
                   ["tcp_syn_sent", 1], ["tcp_syn_recv", 2], ["tcp_established", 3], ["tcp_fin_wait", 4],
                   ["tcp_time_wait", 5], ["tcp_close", 6], ["udp_first", 7], ["udp_single", 8],
                   ["udp_multiple", 9], ["icmp_first", 10], ["icmp_reply", 11], ["tcp_unack", 12]]]}}),
        json!({"op": "insert", "table": "CT_Zone", "uuid-name": "z",
               "row": {"timeout_policy": ["named-uuid", "policy"]}}),
        json!({"op": "insert", "table": "CT_Zone", "uuid-name": "none", "row": {}}),
        json!({"op": "insert", "table": "Datapath", "uuid-name": "dp", "row": {"datapath_version": "0",
               "ct_zones": ["map", [[65535, ["named-uuid", "z"]], [1, ["named-uuid", "none"]]]]}}),
        json!({"op": "update", "table": "Open_vSwitch", "where": [],
               "row": {"datapaths": ["map", [["netdev", ["named-uuid", "dp"]]]]}}),
    ]);
    let read = rig.read().wanted.switch.ct_timeouts_s.clone();
    let mut timeouts = read[&65535].clone();
    timeouts.sort_by_key(|(_, seconds)| *seconds);
    let expected: Vec<(Phase, u32)> = Phase::ALL.iter().copied().zip(1..).collect();
    assert_eq!((read.len(), timeouts), (1, expected), "one key has no meaning");
    rig.set("CT_Zone", json!({"timeout_policy": ["set", []]}));
    assert_eq!(rig.read().wanted.switch.ct_timeouts_s, [].into());
}

#[test]
fn how_queues_are_placed_is_read_and_an_interface_ignores_nonsense() {
    let affinity = other_config(&[("pmd-rxq-affinity", "0:3, 1:7")]);
    let mut rig = Rig::with_port(json!({}), json!({}), affinity);
    assert_eq!(rig.interface().rxq_affinity, [(0, 3), (1, 7)].into());
    rig.set("Interface", other_config(&[("pmd-rxq-affinity", "0-3")]));
    let reading = rig.read();
    assert_eq!(reading.wanted.bridges["br0"].ports["p1"].interfaces["p1"].rxq_affinity, [].into());
    let complaints: Vec<&str> = reading.complaints.iter().map(String::as_str).collect();
    let expected = "interface p1: other_config:pmd-rxq-affinity=0-3 is not QUEUE:PROCESSOR pairs, separated \
                    by commas";
    assert_eq!(complaints, [expected]);
    rig.set("Interface", other_config(&[("tx-steering", "hash")]));
    assert!(!rig.interface().spreads_flows, "its type cannot");
    rig.set("Interface", json!({"type": "tap"}));
    assert!(rig.interface().spreads_flows);
    rig.set("Interface", other_config(&[("tx-steering", "hsah")]));
    assert!(!rig.interface().spreads_flows);

    let balance = |interval_ms, load_percent, improvement_percent| AutoBalance {
        is_on: true,
        interval_ms,
        load_percent,
        improvement_percent,
    };
    let on = ("pmd-auto-lb", "true");
    rig.set("Open_vSwitch", other_config(&[on]));
    assert_eq!(rig.read().wanted.switch.workers.auto_balance, balance(60_000, 95, 25));
    let given = [
        on,
        ("pmd-auto-lb-rebal-interval", "3"),
        ("pmd-auto-lb-load-threshold", "70"),
        ("pmd-auto-lb-improvement-threshold", "10"),
        ("pmd-rxq-assign", "roundrobin"),
        ("pmd-rxq-isolate", "false"),
    ];
    rig.set("Open_vSwitch", other_config(&given));
    let reading = rig.read();
    let wanted = SwitchWide {
        workers: WorkerSettings {
            rxq_policy: Policy::RoundRobin,
            rxq_isolate: false,
            auto_balance: balance(180_000, 70, 10),
            ..WorkerSettings::default()
        },
        ..defaults()
    };
    assert_eq!(reading.wanted.switch, wanted);
    for (key, value) in [
        ("pmd-auto-lb-rebal-interval", "0"),
        ("pmd-auto-lb-load-threshold", "-1"),
        ("pmd-auto-lb-improvement-threshold", "101"),
    ] {
        rig.set("Open_vSwitch", other_config(&[on, (key, value)]));
        let reading = rig.read();
        assert_eq!(reading.wanted.switch.workers.auto_balance, balance(60_000, 95, 25), "{key}");
        assert!(reading.complaints.iter().any(|c| c.contains(&format!("{key}={value} is not"))));
    }
    rig.set("Open_vSwitch", other_config(&given));
    rig.read();
    let nonsense = given.map(|(key, _)| (key, "sideways"));
    rig.set("Open_vSwitch", other_config(&nonsense));
    let reading = rig.read();
    assert_eq!(reading.wanted.switch, wanted);
    for (key, _) in nonsense {
        let start = format!("Open_vSwitch: other_config:{key}=sideways is not ");
        let said = reading.complaints.iter().filter(|c| c.starts_with(&start)).count();
        assert_eq!(said, 1, "{key}: {:?}", reading.complaints);
    }
    rig.set("Open_vSwitch", other_config(&[("pmd-rxq-assign", "group")]));
    let policy = |rig: &mut Rig| rig.read().wanted.switch.workers.rxq_policy;
    assert_eq!(policy(&mut rig), Policy::Group);
    rig.set("Open_vSwitch", other_config(&[]));
    assert_eq!(rig.read().wanted.switch, defaults());
}

#[test]
fn columns_of_features_that_are_not_there_are_named_where_they_say_something() {
    let interface =
        json!({"type": "system", "ingress_policing_rate": 1000, "lldp": pairs(&[("enable", "true")])});
    let port = json!({"bond_mode": "balance-slb", "bond_fake_iface": true});
    let mut rig =
        Rig::with_port(json!({"stp_enable": true, "mcast_snooping_enable": false}), port, interface);
    let reading = rig.read();
    let ignored = |table: &str, name: &str| reading.ignored[&(table.to_string(), name.to_string())].clone();
    assert_eq!(ignored("Bridge", "br0"), ["stp_enable"]);
    assert_eq!(ignored("Port", "p1"), ["bond_fake_iface", "bond_mode"]);
    assert_eq!(ignored("Interface", "p1"), ["ingress_policing_rate", "lldp"]);
    let complaints = reading.complaints;
    let named: Vec<&str> = complaints
        .iter()
        .filter(|c| c.contains("has no effect"))
        .filter_map(|c| c.split(": ").nth(1))
        .collect();
    let columns: Vec<&str> = named.iter().filter_map(|text| text.split(' ').next()).collect();
    let mut expected =
        ["stp_enable", "bond_fake_iface", "bond_mode", "ingress_policing_rate", "lldp"].to_vec();
    expected.sort_unstable();
    let mut columns = columns;
    columns.sort_unstable();
    assert_eq!(columns, expected, "{complaints:?}");
}

#[test]
fn of_a_bond_one_interface_is_used_and_the_others_say_why_they_are_not() {
    for (primary, active) in [(json!({}), "p1"), (other_config(&[("bond-primary", "p2")]), "p2")] {
        let mut rig = Rig::with_port(json!({}), primary, json!({"type": "system"}));
        rig.transact(&[
            json!({"op": "insert", "table": "Interface", "uuid-name": "i2",
                   "row": {"name": "p2", "type": "system"}}),
            json!({"op": "mutate", "table": "Port", "where": [["name", "==", "p1"]],
                   "mutations": [["interfaces", "insert", ["set", [["named-uuid", "i2"]]]]]}),
        ]);
        let reading = rig.read();
        let port = &reading.wanted.bridges["br0"].ports["p1"];
        assert_eq!(port.interfaces.keys().collect::<Vec<_>>(), [active]);
        let other = if active == "p1" { "p2" } else { "p1" };
        assert!(reading.impossible[other].contains(&format!("only {active} is used")), "{reading:?}");
    }
}

#[test]
fn settings_of_a_bridge_are_read_held_within_bounds_and_kept_where_they_make_no_sense() {
    let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "system"}));
    assert_eq!(rig.bridge().settings, BridgeSettings::default());
    let mut row = other_config(&[
        ("datapath-id", "00000000000000aa"),
        ("hwaddr", "02:00:00:00:00:07"),
        ("mac-aging-time", "1"),
        ("mac-table-size", "2000000"),
        ("forward-bpdu", "true"),
        ("disable-in-band", "true"),
        ("in-band-queue", "3"),
        ("controller-queue-size", "40"),
        ("dp-desc", "a switch"),
        ("dp-sn", "7"),
    ]);
    row["fail_mode"] = json!("secure");
    row["flood_vlans"] = json!(["set", [1, 4095]]);
    row["protocols"] = json!(["set", ["OpenFlow13", "OpenFlow15"]]);
    rig.set("Bridge", row);
    let wanted = BridgeSettings {
        fail_mode: FailMode::Secure,
        datapath_id: Some(0xaa),
        hwaddr: Some([2, 0, 0, 0, 0, 7]),
        protocols: Some(VersionSet::only(Version::V13).with(Version::V15)),
        mac_aging_s: 15,
        mac_table_size: 1_000_000,
        forward_bpdu: true,
        flood_vlans: [1, 4095].into(),
        disable_in_band: true,
        in_band_queue: Some(3),
        controller_queue_size: Some(40),
        dp_desc: Some("a switch".into()),
        dp_sn: Some("7".into()),
        flow_tables: Default::default(),
    };
    let reading = rig.read();
    assert_eq!(reading.wanted.bridges["br0"].settings, wanted);
    assert_eq!(reading.complaints, BTreeSet::new());
    rig.set(
        "Bridge",
        other_config(&[
            ("datapath-id", "aa"),
            ("hwaddr", "02:00:00:00:00:+7"),
            ("mac-aging-time", "soon"),
            ("mac-table-size", "0"),
            ("forward-bpdu", "2"),
            ("disable-in-band", ""),
            ("in-band-queue", "low"),
            ("controller-queue-size", "513"),
            ("dp-desc", "a switch"),
            ("dp-sn", "7"),
        ]),
    );
    let reading = rig.read();
    assert_eq!(reading.wanted.bridges["br0"].settings, wanted);
    assert_eq!(reading.complaints.len(), 8, "{:?}", reading.complaints);
    // Zeros are no id, and say that there is to be none of one's own.
    rig.set("Bridge", other_config(&[("datapath-id", "0")]));
    let reading = rig.read();
    assert_eq!(reading.wanted.bridges["br0"].settings.datapath_id, None);
    assert_eq!(reading.complaints.len(), 1, "{:?}", reading.complaints);
    for (text, id) in
        [("0x1f", Some(0x1f)), ("0", None), ("0000000000000000", None), ("00000000000000zz", None)]
    {
        assert_eq!(transport::parse_datapath_id(text), id, "{text}");
    }
}

#[test]
fn a_ports_part_in_vlans_follows_its_columns() {
    let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "system"}));
    assert_eq!(rig.port().vlan, VlanConfig::default());
    let trunks = |vlans: &[u16]| Some(vlans.iter().copied().collect::<VlanSet>());
    let tagged = |mode, tag| VlanConfig { mode, tag, ..VlanConfig::default() };
    for (row, wanted) in [
        (json!({"tag": 5}), tagged(VlanMode::Access, 5)),
        (json!({"tag": 5, "vlan_mode": "access"}), tagged(VlanMode::Access, 5)),
        (
            json!({"tag": ["set", []], "vlan_mode": "trunk", "trunks": ["set", [1, 2]]}),
            VlanConfig { trunks: trunks(&[1, 2]), ..VlanConfig::default() },
        ),
        (
            json!({"tag": 3, "vlan_mode": "native-tagged"}),
            VlanConfig { trunks: trunks(&[1, 2]), ..tagged(VlanMode::NativeTagged, 3) },
        ),
        (json!({"vlan_mode": "native-untagged", "trunks": ["set", []]}), tagged(VlanMode::NativeUntagged, 3)),
        (
            json!({"vlan_mode": "dot1q-tunnel", "cvlans": ["set", [9]],
                   "other_config": pairs(&[("qinq-ethtype", "802.1q"), ("priority-tags", "if-nonzero")])}),
            VlanConfig {
                cvlans: trunks(&[9]),
                qinq_tpid: 0x8100,
                priority_tags: PriorityTags::IfNonzero,
                ..tagged(VlanMode::Dot1qTunnel, 3)
            },
        ),
        // Nonsense leaves the two as they were.
        (
            json!({"other_config": pairs(&[("qinq-ethtype", "x"), ("priority-tags", "sometimes")])}),
            VlanConfig {
                cvlans: trunks(&[9]),
                qinq_tpid: 0x8100,
                priority_tags: PriorityTags::IfNonzero,
                ..tagged(VlanMode::Dot1qTunnel, 3)
            },
        ),
    ] {
        rig.set("Port", row.clone());
        assert_eq!(rig.port().vlan, wanted, "{row}");
    }
    rig.set("Port", json!({"protected": true}));
    assert!(rig.port().protected);
}

#[test]
fn an_interface_has_its_type_requests_and_those_options_that_its_driver_has() {
    let mut rig = Rig::with_port(
        json!({}),
        json!({}),
        json!({
            "type": "afxdp-nonpmd", "ofport_request": 7, "mtu_request": 9000, "mac": "02:00:00:00:00:01",
            "options": pairs(&[("xdp-mode", "generic"), ("peer", "x"), ("colour", "red"), ("n_rxq", "2")]),
            "ofport": 5,
        }),
    );
    let reading = rig.read();
    let i = reading.wanted.bridges["br0"].ports["p1"].interfaces["p1"].clone();
    assert_eq!((i.kind.as_str(), i.of_port_request, i.mtu_request), ("afxdp", Some(OfPort(7)), Some(9000)));
    assert_eq!(i.mac, Some([2, 0, 0, 0, 0, 1]));
    assert_eq!(i.options, [("n_rxq".into(), "2".into()), ("xdp-mode".into(), "generic".into())].into());
    assert_eq!(*reading.before, [("p1".to_string(), OfPort(5))].into());
    let complaints: Vec<String> = reading.complaints.into_iter().collect();
    assert_eq!(complaints.len(), 2, "{complaints:?}");
    for (complaint, option) in complaints.iter().zip(["colour", "peer"]) {
        let expected = format!("unknown option {option}: ports of type afxdp take ifname, n_rxq,");
        assert!(complaint.contains(&expected), "{complaint}");
    }
    let shown = i.complaint.unwrap();
    assert!(shown.contains("unknown option colour") && !shown.contains("peer"), "{shown}");
    // An invalid address counts as none, and is shown.
    rig.set("Interface", json!({"mac": "ff:ff:ff:ff:ff:ff"}));
    let i = rig.interface();
    assert_eq!(i.mac, None);
    let shown = i.complaint.unwrap();
    assert!(shown.contains("mac=ff:ff:ff:ff:ff:ff is not an Ethernet address of one station"), "{shown}");
    // The bridge's own interface is there though no row has it.
    assert_eq!(rig.bridge().ports["br0"].interfaces["br0"].kind, "internal");
}

#[test]
fn what_is_a_dummy_depends_on_the_command_line() {
    use EnableDummy::{No, Override, System, Yes};
    for (kind, datapath, dummy, wanted) in [
        ("", "", No, "system"),
        ("system", "", Yes, "system"),
        ("system", "", System, "dummy"),
        ("afxdp", "", System, "afxdp"),
        ("afxdp", "", Override, "dummy"),
        ("internal", "", Yes, "internal"),
        ("internal", "dummy", Yes, "dummy-internal"),
        ("internal", "", Override, "dummy-internal"),
        ("patch", "", Override, "patch"),
        ("dummy-pmd", "", Yes, "dummy-pmd"),
        ("dummy-pmd", "", Override, "dummy-pmd"),
        ("vxlan", "", Override, "vxlan"),
    ] {
        let options = pairs(&[("peer", "x")]);
        let mut rig = Rig::with_port(
            json!({"datapath_type": datapath}),
            json!({}),
            json!({"type": kind, "options": options}),
        );
        rig.dummy = dummy;
        assert_eq!(rig.interface().kind, wanted, "{kind} on {datapath} with {dummy:?}");
    }
    let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "dummy"}));
    let reading = rig.read();
    assert!(reading.impossible["p1"].contains("needs --enable-dummy"), "{reading:?}");
    assert!(reading.wanted.bridges["br0"].ports["p1"].interfaces.is_empty());
}

#[test]
fn datapath_types_of_open_vswitch_mean_ours_and_others_make_no_bridge() {
    for kind in ["", "netdev", "system"] {
        let mut rig = Rig::with_port(json!({"datapath_type": kind}), json!({}), json!({"type": "system"}));
        assert!(rig.read().complaints.is_empty());
        assert!(rig.wanted.bridges.contains_key("br0"));
    }
    for kind in ["dummy", "other"] {
        let mut rig = Rig::with_port(json!({"datapath_type": kind}), json!({}), json!({"type": "system"}));
        let reading = rig.read();
        assert!(reading.wanted.bridges.is_empty());
        assert!(reading.impossible["p1"].contains(&format!("datapath_type={kind}")), "{reading:?}");
    }
}

#[test]
fn the_directory_of_guests_sockets_is_below_the_run_directory_and_read_once() {
    let run_dir = RunDir::from_env().path().to_path_buf();
    let with = |value: &str| json!({"other_config": ["map", [["vhost-sock-dir", value]]]});
    let port = || Rig::with_port(json!({}), json!({}), json!({"type": "dpdkvhostuser"}));
    let dir = |reading: &Reading| {
        let dir =
            reading.wanted.bridges["br0"].ports["p1"].interfaces["p1"].options["vhost-sock-dir"].clone();
        PathBuf::from(dir)
    };
    for (value, expected, complaint) in [
        ("../x", run_dir.clone(), "vhost-sock-dir=../x is refused"),
        ("/no/such", run_dir.join("no/such"), "there is no directory"),
        ("none", run_dir.join("none"), "there is no directory"),
    ] {
        let mut rig = port();
        rig.set("Open_vSwitch", with(value));
        let reading = rig.read();
        assert_eq!(dir(&reading), expected);
        assert!(reading.complaints.iter().any(|c| c.contains(complaint)), "{:?}", reading.complaints);
        for later in ["elsewhere", "../y"] {
            rig.set("Open_vSwitch", with(later));
            let reading = rig.read();
            assert_eq!(dir(&reading), expected, "{later}");
            let said = |part: &str| reading.complaints.iter().any(|c| c.contains(part));
            assert!(said("takes effect at the next start") || said("vhost-sock-dir=../y is refused"));
        }
    }
    let mut rig = port();
    assert!(dir(&rig.read()) == run_dir && rig.read().complaints.is_empty());
    // A port cannot have a directory of its own, as in Open vSwitch.
    let options = json!(["map", [["vhost-sock-dir", "/etc"]]]);
    let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "dpdkvhostuser", "options": options}));
    let reading = rig.read();
    assert_eq!(dir(&reading), run_dir);
    assert!(reading.complaints.iter().any(|c| c.contains("is ignored")), "{:?}", reading.complaints);
}

#[test]
fn ports_are_read_one_at_a_time_from_the_rows_as_they_were_at_the_beginning() {
    let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "tap"}));
    let begin = |rig: &Rig| {
        let rows = Rows::of(&rig.database);
        Reads::begin(rows, Rc::default(), EnableDummy::No, Path::new("/run/ovs")).unwrap()
    };
    let mut reads = begin(&rig);
    reads.step();
    let interfaces = |reads: &Reads| reads.reading.wanted.bridges["br0"].interfaces().count();
    assert_eq!((interfaces(&reads), reads.is_done()), (0, false));
    rig.set("Interface", json!({"type": "null"}));
    reads.step();
    assert_eq!((interfaces(&reads), reads.is_done()), (1, false));
    reads.step();
    assert_eq!((interfaces(&reads), reads.is_done()), (2, true), "a bridge has an interface of its own");
    let reading = reads.finish();
    let kind = |reading: &Reading| reading.wanted.bridges["br0"].ports["p1"].interfaces["p1"].kind.clone();
    assert_eq!((kind(&reading), kind(&rig.read())), ("tap".into(), "null".into()));
}

#[test]
fn an_interface_of_another_bridges_name_is_refused() {
    // The bridges in either order, and the port in the one or the other.
    for (bridges, holder) in [(["a", "b"], "b"), (["b", "a"], "b"), (["a", "b"], "a"), (["b", "a"], "a")] {
        let mut rig = Rig::new();
        let ports = |name: &str| match name == holder {
            true => json!(["set", [["named-uuid", "p"]]]),
            false => json!(["set", []]),
        };
        let interface = json!({"name": "a", "type": "internal"});
        let mut operations = vec![
            json!({"op": "insert", "table": "Interface", "uuid-name": "i", "row": interface}),
            json!({"op": "insert", "table": "Port", "uuid-name": "p",
                   "row": {"name": "a", "interfaces": ["named-uuid", "i"]}}),
        ];
        operations.extend(bridges.map(|name| {
            json!({"op": "insert", "table": "Bridge", "uuid-name": name,
                   "row": {"name": name, "ports": ports(name)}})
        }));
        let of_root = bridges.map(|name| json!(["named-uuid", name]));
        operations.push(json!({"op": "update", "table": "Open_vSwitch", "where": [],
                               "row": {"bridges": ["set", of_root]}}));
        rig.transact(&operations);
        let reading = rig.read();
        let of_bridges = reading.wanted.bridges.values();
        let names: Vec<&str> =
            of_bridges.flat_map(|bridge| bridge.interfaces()).map(|(_, i)| i.name.as_str()).collect();
        assert_eq!(names, ["a", "b"], "{bridges:?} {holder}");
        assert_eq!(reading.impossible.contains_key("a"), holder == "b", "{reading:?}");
    }
}
