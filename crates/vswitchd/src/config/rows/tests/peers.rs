//! Rows of managers and controllers: where the switch connects, and whom it lets connect.

use super::*;
use transport::Bootstrap;

#[test]
fn managers_that_are_connected_to_are_reached_through_the_bridges_unless_their_rows_say_otherwise() {
    let mut rig = Rig::new();
    let manager = |n: usize, target: &str, mode: Value| {
        let row = json!({"target": target, "connection_mode": mode});
        json!({"op": "insert", "table": "Manager", "uuid-name": format!("m{n}"), "row": row})
    };
    let none = || json!(["set", []]);
    let targets =
        ["tcp:10.0.0.1", "ssl:10.0.0.2:7000", "tcp:10.0.0.3", "tcp:[fe80::1]", "ptcp:6640", "unix:x"];
    let modes = [none(), json!("in-band"), json!("out-of-band"), none(), none(), none()];
    let mut operations: Vec<Value> =
        targets.iter().zip(modes).enumerate().map(|(n, (target, mode))| manager(n, target, mode)).collect();
    let all: Vec<Value> = (0..targets.len()).map(|n| json!(["named-uuid", format!("m{n}")])).collect();
    let row = json!({"manager_options": ["set", all]});
    operations.push(json!({"op": "update", "table": "Open_vSwitch", "where": [], "row": row}));
    rig.transact(&operations);
    let expected = ["10.0.0.1:6640", "10.0.0.2:7000"].map(|a| a.parse().unwrap());
    assert_eq!(rig.read().wanted.switch.in_band_managers, expected.into());
}

#[test]
fn an_authority_is_saved_for_the_database_below_the_directory_of_the_configuration() {
    let mut rig = Rig::new();
    let row = json!({"private_key": "key", "certificate": "", "ca_cert": "/new", "bootstrap_ca_cert": true});
    rig.transact(&[
        json!({"op": "insert", "table": "SSL", "uuid-name": "s", "row": row}),
        json!({"op": "update", "table": "Open_vSwitch", "where": [], "row": {"ssl": ["named-uuid", "s"]}}),
    ]);
    let files = rig.read().wanted.switch.tls.clone().unwrap();
    assert_eq!((files.private_key, files.certificate), (Some("key".into()), None));
    assert_eq!(files.bootstrap, Bootstrap::Below(host::program::configuration_directory()));
    rig.transact(&[
        json!({"op": "update", "table": "SSL", "where": [], "row": {"bootstrap_ca_cert": false}}),
    ]);
    assert_eq!(rig.read().wanted.switch.tls.clone().unwrap().bootstrap, Bootstrap::No);
}

#[test]
fn what_makes_no_sense_in_a_managers_row_is_told() {
    let mut rig = Rig::new();
    let row = json!({"target": "ptcp:6640", "other_config": pairs(&[("dscp", "99"), ("colour", "red")])});
    rig.transact(&[
        json!({"op": "insert", "table": "Manager", "uuid-name": "m", "row": row}),
        json!({"op": "update", "table": "Open_vSwitch", "where": [], "row": {"manager_options": ["named-uuid", "m"]}}),
    ]);
    let expected = [
        "manager ptcp:6640: other_config:colour is not known, and ignored",
        "manager ptcp:6640: other_config:dscp=99 is not a number from 0 to 63",
    ];
    let complaints = rig.read().complaints;
    assert!(expected.iter().all(|c| complaints.contains(*c)), "{complaints:?}");
}

#[test]
fn controllers_are_read_with_their_limits() {
    let mut rig = Rig::with_port(
        json!({"other_config": pairs(&[("controller-queue-size", "50")])}),
        json!({}),
        json!({"type": "system"}),
    );
    let row = json!({
        "target": "tcp:127.0.0.1:6653", "max_backoff": 2000, "inactivity_probe": 7000, "connection_mode": "out-of-band",
        "controller_rate_limit": 500, "controller_burst_limit": 100, "enable_async_messages": false,
        "other_config": pairs(&[("dscp", "99")]), "local_ip": "10.0.0.1",
    });
    rig.transact(&[
        json!({"op": "insert", "table": "Controller", "uuid-name": "c", "row": row}),
        json!({"op": "update", "table": "Bridge", "where": [], "row": {"controller": ["set", [["named-uuid", "c"]]]}}),
    ]);
    let reading = rig.read();
    let controller = &reading.wanted.bridges["br0"].controllers["tcp:127.0.0.1:6653"];
    let wanted = Controller {
        out_of_band: true,
        max_backoff_ms: Some(2000),
        inactivity_probe_ms: Some(7000),
        rate_limit: Some(500),
        burst_limit: Some(100),
        queue_size: Some(50),
        async_messages: false,
        ..Controller::new("tcp:127.0.0.1:6653")
    };
    assert_eq!(*controller, wanted);
    assert_eq!(reading.complaints.len(), 2, "{:?}", reading.complaints);

    // Values that make no sense leave what was there.
    let sense = json!({"other_config": pairs(&[("dscp", "10")])});
    let nonsense = json!({"other_config": pairs(&[("dscp", "steep")])});
    let wanted = Controller { dscp: 10, ..wanted };
    for (row, complaints) in [(sense, 1), (nonsense, 2)] {
        rig.set("Controller", row);
        let reading = rig.read();
        assert_eq!(reading.wanted.bridges["br0"].controllers["tcp:127.0.0.1:6653"], wanted);
        assert_eq!(reading.complaints.len(), complaints, "{:?}", reading.complaints);
    }
}

#[test]
fn sockets_that_controllers_connect_to_are_below_the_run_directory() {
    for (path, is_allowed) in [
        ("/run/ovs/br0.controller", true),
        ("br0.controller", true),
        ("/run/ovs/../x", false),
        ("../x", false),
        ("/etc/cron.d/x", false),
        ("/run/ovsx/c", false),
    ] {
        let mut rig = Rig::with_port(json!({}), json!({}), json!({"type": "system"}));
        let row = json!({"target": format!("punix:{path}")});
        rig.transact(&[
            json!({"op": "insert", "table": "Controller", "uuid-name": "c", "row": row}),
            json!({"op": "update", "table": "Bridge", "where": [], "row": {"controller": ["set", [["named-uuid", "c"]]]}}),
        ]);
        let reading = rig.read();
        assert_eq!(reading.wanted.bridges["br0"].controllers.len(), usize::from(is_allowed), "{path}");
        assert_eq!(reading.errors.len(), usize::from(!is_allowed), "{:?}", reading.errors);
    }
}
