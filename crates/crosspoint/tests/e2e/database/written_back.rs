//! What the switch writes back into rows: states, statistics, errors, capabilities.

use super::*;

#[test]
fn what_happened_is_written_back_before_the_client_is_told_that_it_is_in_force() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&[
        "add-port",
        "br0",
        "p1",
        "--",
        "set",
        "interface",
        "p1",
        "type=dummy",
        "ofport_request=7",
        "mtu_request=1400",
    ])
    .ok();
    // No waiting here: ovs-vsctl has waited.
    for (column, value) in [
        ("ofport", "7"),
        ("error", "[]"),
        ("admin_state", "up"),
        ("link_state", "up"),
        ("mtu", "1400"),
        ("link_resets", "0"),
        ("duplex", "[]"),
        ("link_speed", "[]"),
        ("lacp_current", "[]"),
        ("ifindex", "0"),
    ] {
        assert_eq!(rig.get("interface", "p1", column), value, "{column}");
    }
    assert!(rig.get("interface", "p1", "mac_in_use").contains(':'));
    // The bridge's own port follows the smallest.
    assert_eq!(rig.get("interface", "br0", "mtu"), "1400");
    assert_eq!(rig.get("interface", "br0", "ofport"), "65534");
    let root = |column: &str| rig.get("open_vswitch", ".", column);
    assert_eq!(root("cur_cfg"), root("next_cfg"));
    assert_eq!((root("dpdk_initialized"), root("dpdk_version")), ("false".into(), "none".into()));
    assert_eq!(root("datapath_types"), "[dummy, netdev, system]");
    let types = root("iface_types");
    assert!(["afxdp", "internal", "patch", "system", "tap"].iter().all(|t| types.contains(t)), "{types}");
    assert_eq!(root("db_version"), "\"8.3.1\"");
    assert!(!root("ovs_version").is_empty());
    assert_eq!(root("system_type"), "[]");
    // The datapath's row is filled in where somebody made one.
    rig.try_vsctl(&[
        "--",
        "--id=@d",
        "create",
        "Datapath",
        "datapath_version=0",
        "--",
        "set",
        "open_vswitch",
        ".",
        "datapaths:netdev=@d",
    ])
    .ok();
    wait_for("capabilities", || {
        let listed = rig.try_vsctl(&["--columns=capabilities", "list", "Datapath"]).ok();
        listed.contains("recirc=\"true\"")
            && listed.contains("ct_state=\"true\"")
            && listed.contains("tnl_push_pop=\"false\"")
    });
    rig.appctl(&["netdev-dummy/set-admin-state", "p1", "down"]).ok();
    wait_for("the link to be down", || rig.get("interface", "p1", "link_state") == "down");
    assert_eq!(rig.get("interface", "p1", "admin_state"), "down");
    assert_eq!(rig.get("interface", "p1", "link_resets"), "1");
}

#[test]
fn statistics_have_the_names_that_exporters_read() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.add_dummy("p2");
    rig.try_vsctl(&["set", "open_vswitch", ".", "other_config:enable-statistics=true"]).ok();
    for _ in 0..3 {
        rig.receive("p1");
    }
    wait_for("the packets in the statistics", || {
        rig.get("interface", "p1", "statistics:rx_packets") == "3"
            && rig.get("interface", "p2", "statistics:tx_packets") == "3"
    });
    assert_eq!(rig.get("interface", "p1", "statistics:rx_bytes"), "318");
    let all = rig.get("interface", "p1", "statistics");
    for key in [
        "collisions",
        "rx_crc_err",
        "rx_dropped",
        "rx_errors",
        "rx_frame_err",
        "rx_missed_errors",
        "rx_over_err",
        "tx_bytes",
        "tx_dropped",
        "tx_errors",
        "ovs_tx_failure_drops",
        "ovs_rx_qos_drops",
        "ovs_tx_qos_drops",
        "ovs_tx_mtu_exceeded_drops",
    ] {
        assert!(all.contains(&format!("{key}=0")) || key == "tx_bytes", "{key}: {all}");
    }
    wait_for("statistics of the machine", || {
        rig.get("open_vswitch", ".", "statistics").contains("load_average")
    });
    let machine = rig.get("open_vswitch", ".", "statistics");
    for key in ["cpu=", "memory=", "process_ovs-vswitchd=", "file_systems="] {
        assert!(machine.contains(key), "{key}: {machine}");
    }
    rig.try_vsctl(&["set", "open_vswitch", ".", "other_config:enable-statistics=false"]).ok();
    wait_for("no statistics", || rig.get("open_vswitch", ".", "statistics") == "{}");
}

#[test]
fn errors_are_shown_where_they_belong_and_previous_settings_stay() {
    let rig = Rig::start();
    rig.add_bridge();
    // With receive queues that workers poll.
    rig.try_vsctl(&["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=dummy-pmd"]).ok();
    let said = rig.try_vsctl(&["add-port", "br0", "nosuchdevice"]);
    let expected = "could not open network device nosuchdevice (No such device)";
    assert!(said.err.contains(expected), "{said:?}");
    assert!(rig.get("interface", "nosuchdevice", "error").contains(expected));
    assert_eq!(rig.get("interface", "nosuchdevice", "ofport"), "-1");
    assert!(rig.try_vsctl(&["show"]).ok().contains(expected));
    // The others forward as before.
    rig.add_dummy("p2");
    rig.receive("p1");
    wait_for("a packet", || rig.sent("p2") == 1);

    rig.try_vsctl(&["set", "interface", "p1", "options:n_rxq=2"]).ok();
    let queues = || rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok().matches("port: p1 ").count();
    assert_eq!(queues(), 2);
    rig.try_vsctl(&["set", "interface", "p1", "options:n_rxq=plenty"]).ok();
    assert!(rig.get("interface", "p1", "error").contains("n_rxq=plenty"));
    assert_eq!((queues(), rig.get("interface", "p1", "ofport").as_str()), (2, "1"));
    rig.try_vsctl(&["set", "interface", "p1", "options:n_rxq=1"]).ok();
    assert_eq!((rig.get("interface", "p1", "error").as_str(), queues()), ("[]", 1));

    // What is ignored is our own to say.
    rig.appctl(&["vlog/set", "bridge:dbg"]).ok();
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:mac-table-size=20"]).ok();
    rig.try_vsctl(&[
        "set",
        "bridge",
        "br0",
        "other_config:mac-table-size=many",
        "other_config:no-such-key=1",
    ])
    .ok();
    let fdb = rig.appctl(&["fdb/stats-show", "br0"]).ok();
    assert!(fdb.contains("/20\n"), "{fdb}");
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:dp-desc=x"]).ok();
    let log = rig.log();
    assert_eq!(log.matches("other_config:no-such-key is not known").count(), 1, "{log}");
    assert_eq!(log.matches("mac-table-size=many is not a number").count(), 1, "{log}");

    // What a device refuses does not cost the port, neither now nor when it is opened with it.
    let mtu = ["set", "interface", "mtu1", "type=internal", "mtu_request=65536"];
    rig.try_vsctl(&[&["add-port", "br0", "mtu1", "--"][..], &mtu].concat());
    assert!(rig.get("interface", "mtu1", "error").contains("could not set mtu_request"));
    assert_ne!(rig.get("interface", "mtu1", "ofport"), "-1");
    assert_eq!(rig.get("interface", "mtu1", "mtu"), "1500");
    rig.try_vsctl(&["del-port", "mtu1"]).ok();

    rig.try_vsctl(&[
        "add-port",
        "br0",
        "loose",
        "--",
        "set",
        "interface",
        "loose",
        "type=patch",
        "options:peer=end",
    ]);
    let error = rig.get("interface", "loose", "error");
    assert_eq!(error, "\"No usable peer 'end' exists in 'netdev' datapath.\"");
    assert_eq!(rig.get("interface", "loose", "ifindex"), "0");
    rig.try_vsctl(&[
        "add-port",
        "br0",
        "end",
        "--",
        "set",
        "interface",
        "end",
        "type=patch",
        "options:peer=loose",
    ])
    .ok();
    wait_for("the cable", || rig.get("interface", "loose", "error") == "[]");

    let said = rig.try_vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=quantum"]);
    assert!(said.err.contains("datapath_type=quantum is not known"), "{said:?}");
    assert!(rig.appctl(&["ofproto/list"]).ok() == "br0\n");
}

#[test]
fn packets_through_a_cable_count_at_both_of_its_ends() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.try_vsctl(&["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy"]).ok();
    for (bridge, end, other) in [("br0", "pa", "pb"), ("br1", "pb", "pa")] {
        let peer = format!("options:peer={other}");
        rig.try_vsctl(&["add-port", bridge, end, "--", "set", "interface", end, "type=patch", &peer]).ok();
    }
    (0..5).for_each(|_| rig.receive("p1"));
    for (bridge, end, counted) in [("br0", "pa", "tx"), ("br1", "pb", "rx")] {
        let line = |direction: &str| {
            let text = rig.run("ovs-ofctl", &["dump-ports", bridge, end]).ok();
            text.lines().find(|l| l.contains(&format!("{direction} pkts="))).unwrap().trim().to_string()
        };
        wait_for("what passed the cable", || line(counted).contains(&format!("{counted} pkts=5, bytes=")));
        let none = if counted == "tx" { "rx" } else { "tx" };
        assert!(line(none).contains(&format!("{none} pkts=0, bytes=0, drop=?, errs=?")), "{}", line(none));
    }
}

#[test]
fn keys_that_others_read_are_kept_as_they_are_and_nobody_complains_of_them() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    for (table, row, column, value) in [
        ("open_vswitch", ".", "external_ids:hostname", "h1"),
        ("open_vswitch", ".", "external_ids:rundir", "r1"),
        ("bridge", "br0", "external_ids:bridge-id", "b7"),
        ("port", "p1", "external_ids:fake-bridge-xs-network", "n1"),
        ("port", "p1", "other_config:transient", "true"),
        ("interface", "p1", "external_ids:attached-mac", "m1"),
        ("interface", "p1", "external_ids:iface-id", "i1"),
        ("interface", "p1", "external_ids:iface-status", "active"),
        ("interface", "p1", "external_ids:vm-id", "v1"),
    ] {
        rig.try_vsctl(&["set", table, row, &format!("{column}={value}")]).ok();
        assert_eq!(rig.get(table, row, column).trim_matches('"'), value, "{column}");
    }
    let log = rig.log();
    assert!(!log.contains("is not known") && !log.contains("|WARN|"), "{log}");
}

#[test]
fn a_datapaths_row_says_what_it_can_do() {
    let rig = Rig::start();
    rig.add_bridge();
    let row = ["--id=@d", "create", "datapath", "datapath_version=x"];
    rig.try_vsctl(&[&["--"], &row[..], &["--", "set", "open_vswitch", ".", "datapaths:netdev=@d"]].concat())
        .ok();
    let has = |pair: &str| {
        rig.try_vsctl(&["--bare", "--columns=capabilities", "list", "datapath"]).ok().contains(pair)
    };
    for pair in [
        "check_pkt_len=true",
        "clone=true",
        "ct_clear=true",
        "ct_eventmask=true",
        "ct_flush=true",
        "ct_label=true",
        "ct_mark=true",
        "ct_orig_tuple=true",
        "ct_orig_tuple6=true",
        "ct_state=true",
        "ct_state_nat=true",
        "ct_timeout=true",
        "ct_zero_snat=true",
        "ct_zone=true",
        "explicit_drop_action=true",
        "lb_output_action=false",
        "masked_set_action=true",
        "max_hash_alg=1",
        "max_vlan_headers=2",
        "nd_ext=true",
        "recirc=true",
        "sample_nesting=10",
        "tnl_push_pop=false",
        "trunc=true",
        "ufid=true",
    ] {
        wait_for(pair, || has(pair));
    }
}

#[test]
fn description_and_serial_number_of_a_bridge_are_what_its_row_says() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:dp-desc=the first", "other_config:dp-sn=S7"]).ok();
    let said = rig.run("ovs-ofctl", &["dump-desc", "br0"]).ok();
    assert!(said.contains("Serial Num: S7") && said.contains("DP Description: the first"), "{said}");
    // By the others controllers choose what they ask of a switch.
    for line in ["Manufacturer: Nicira, Inc.", "Hardware: Open vSwitch", "Software: 3.1.0"] {
        assert!(said.contains(line), "{line} not in {said}");
    }
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:hwaddr=\"02:00:00:00:00:aa\""]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), "\"00000200000000aa\"");
    assert_eq!(rig.get("interface", "br0", "mac_in_use"), "\"02:00:00:00:00:aa\"");
    rig.try_vsctl(&["set", "bridge", "br0", "other_config:datapath-id=0x77"]).ok();
    assert_eq!(rig.get("bridge", "br0", "datapath_id"), "\"0000000000000077\"");
    let said = rig.run("ovs-ofctl", &["show", "br0"]).ok();
    assert!(said.contains("dpid:0000000000000077"), "{said}");
}

#[test]
fn what_becomes_of_a_controller_is_in_its_row() {
    let rig = Rig::start();
    rig.add_bridge();
    let socket = rig.file("controller.sock");
    let target = format!("unix:{}", socket.display());
    rig.try_vsctl(&["set-controller", "br0", &target]).ok();
    let get = |column: &str| rig.try_vsctl(&["get", "controller", "br0", column]).ok().trim().to_string();
    wait_for("the failure in the row", || get("status").contains("last_error=\"No such file or directory\""));
    assert_eq!((get("is_connected").as_str(), get("role").as_str()), ("false", "[]"));
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    wait_for("an attempt", || !get("status:state").contains("BACKOFF"));
    rig.try_vsctl(&["del-controller", "br0"]).ok();
    assert!(rig.run("ovs-ofctl", &["dump-flows", "br0"]).ok().contains("actions=NORMAL"));

    // Who may write to the database must not reach any socket of the machine by it.
    let elsewhere = crate::common::run_dir();
    let socket = elsewhere.file("socket");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    listener.set_nonblocking(true).unwrap();
    let target = format!("unix:{}", socket.display());
    rig.try_vsctl(&["set-controller", "br0", &target]).ok();
    let refused = format!("|bridge|ERR|bridge br0: Not connecting to socket controller \"{target}\" due to");
    wait_for("the refusal", || rig.log().contains(&refused));
    assert!(listener.accept().is_err());
    rig.try_vsctl(&["del-controller", "br0"]).ok();
}
