//! Ports: what their rows ask of a driver, what it answers, and what there is without rows.

use super::Rig;
use crate::common::{accept, wait_for};

#[test]
fn devices_say_their_driver_and_take_the_options_of_their_types() {
    let rig = Rig::start();
    rig.try_vsctl(&["add-br", "br0"]).ok();
    rig.ip(&["link", "add", "v0", "type", "veth", "peer", "name", "v1"]).ok();
    rig.ip(&["link", "set", "v0", "up"]).ok();
    rig.ip(&["link", "set", "v1", "up"]).ok();
    rig.try_vsctl(&["add-port", "br0", "v0"]).ok();
    wait_for("the driver", || rig.get("interface", "v0", "status").contains("driver_name=veth"));
    let status = rig.get("interface", "v0", "status");
    assert!(status.contains("driver_version=") && status.contains("firmware_version="), "{status}");

    let options = ["options:xdp-mode=generic", "options:use-need-wakeup=false", "options:n_txq_desc=512"];
    let port = ["add-port", "br0", "v1", "--", "set", "interface", "v1", "type=afxdp"];
    rig.try_vsctl(&[&port[..], &options].concat()).ok();
    assert_eq!(rig.get("interface", "v1", "error"), "[]");
    wait_for("its status", || rig.get("interface", "v1", "status").contains("use-need-wakeup=\"false\""));
    rig.try_vsctl(&["set", "interface", "v1", "options:n_txq_desc=500"]);
    let error = rig.get("interface", "v1", "error");
    assert!(error.contains("n_txq_desc=500") && error.contains("power of two"), "{error}");

    let path = format!("options:vhost-server-path={}", rig.file("guest.sock").display());
    let port = ["add-port", "br0", "vh0", "--", "set", "interface", "vh0", "type=dpdkvhostuserclient"];
    rig.try_vsctl(&[&port[..], &[&path, "options:tx-retries-max=32"]].concat()).ok();
    assert_eq!(rig.get("interface", "vh0", "error"), "[]");
    rig.try_vsctl(&["set", "interface", "vh0", "options:tx-retries-max=33"]);
    let error = rig.get("interface", "vh0", "error");
    assert!(error.contains("tx-retries-max=33") && error.contains("0 to 32"), "{error}");
}

#[test]
fn what_a_driver_drops_has_a_reason_too() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    rig.ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]).ok();
    rig.try_vsctl(&["add-port", "br0", "veth0", "--", "set", "interface", "veth0", "type=afxdp"]).ok();
    rig.ip(&["link", "set", "veth0", "down"]).ok();
    wait_for("the link to be down", || rig.get("interface", "veth0", "link_state") == "down");
    rig.run("ovs-ofctl", &["add-flow", "br0", "in_port=p1,actions=output:veth0"]).ok();
    // Sent and dropped there.
    let counts = || {
        let text = rig.run("ovs-ofctl", &["dump-ports", "br0", "veth0"]).ok();
        let (_, tx) = text.split_once("tx pkts=").unwrap();
        let number = |text: &str| text.split(',').next().unwrap().parse::<u64>().unwrap();
        [number(tx), number(tx.split_once("drop=").unwrap().1)]
    };
    let mut given = 0;
    wait_for("a packet that the driver does not send", || {
        rig.receive("p1");
        given += 1;
        counts()[1] > 2
    });
    wait_for("all to be sent or dropped", || counts().iter().sum::<u64>() == given);
    let before = counts()[1];
    let said = || rig.appctl(&["crosspoint/drops"]).ok();
    wait_for("all of them under their reason", || {
        said().contains(&format!("tx_error: {before}\n  veth0: {before}\n"))
    });
    rig.try_vsctl(&["del-port", "veth0"]).ok();
    assert!(said().contains(&format!("tx_error: {before}\n")), "a count never falls: {}", said());
}

#[test]
fn a_client_without_a_path_waits_for_one_and_a_path_that_cannot_work_says_so() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&["add-port", "br0", "vh", "--", "set", "interface", "vh", "type=dpdkvhostuserclient"])
        .ok();
    assert_eq!(rig.get("interface", "vh", "error"), "[]");
    assert_eq!(
        (rig.get("interface", "vh", "ofport"), rig.get("interface", "vh", "link_state")),
        ("1".into(), "down".into())
    );
    let file = rig.file("file");
    std::fs::write(&file, "").unwrap();
    for (path, why) in [
        (file.display().to_string(), "is not a socket"),
        (format!("{}/nodir/guest", rig.dir.path().display()), "there is no directory"),
        (format!("/tmp/{}", "x".repeat(200)), "File name too long"),
    ] {
        rig.try_vsctl(&["set", "interface", "vh", &format!("options:vhost-server-path={path}")]).ok();
        assert_eq!(rig.get("interface", "vh", "ofport"), "1");
        wait_for(why, || rig.get("interface", "vh", "status").contains(why));
    }
    let path = rig.file("guest");
    let guest = std::os::unix::net::UnixListener::bind(&path).unwrap();
    rig.try_vsctl(&["set", "interface", "vh", &format!("options:vhost-server-path={}", path.display())]).ok();
    let _connection = accept(&guest);
    wait_for("the connection", || !rig.get("interface", "vh", "status").contains("error"));
}

#[test]
fn the_loopback_device_is_refused_and_left_alone() {
    let rig = Rig::start();
    rig.try_vsctl(&["add-br", "br0"]).ok();
    let mtu = rig.get("interface", "br0", "mtu");
    rig.ip(&["link", "set", "lo", "up"]).ok();
    for kind in ["system", "afxdp"] {
        let port = ["--may-exist", "add-port", "br0", "lo", "--", "set", "interface", "lo"];
        rig.try_vsctl(&[&port[..], &[&format!("type={kind}")]].concat());
        let refused = "\"could not add network device lo to ofproto (Invalid argument)\"";
        assert_eq!(rig.get("interface", "lo", "error"), refused);
        assert_eq!(rig.get("interface", "lo", "ofport"), "-1");
    }
    let lo = rig.ip(&["link", "show", "lo"]).ok();
    assert!(!lo.contains("xdp") && lo.contains("mtu 65536"), "{lo}");
    assert_eq!(rig.get("interface", "br0", "mtu"), mtu);
}

#[test]
fn a_tap_follows_the_smallest_mtu_of_the_others() {
    let rig = Rig::start();
    rig.try_vsctl(&["add-br", "br0"]).ok();
    rig.ip(&["link", "add", "e2", "mtu", "1300", "type", "veth", "peer", "name", "e3"]).ok();
    rig.try_vsctl(&[
        "add-port",
        "br0",
        "e2",
        "--",
        "add-port",
        "br0",
        "t1",
        "--",
        "set",
        "interface",
        "t1",
        "type=tap",
    ])
    .ok();
    wait_for("its MTU", || rig.get("interface", "t1", "mtu") == "1300");
    assert!(rig.ip(&["link", "show", "t1"]).ok().contains(" mtu 1300 "));
    rig.try_vsctl(&["set", "interface", "t1", "mtu_request=1400"]).ok();
    wait_for("what it asks for", || rig.get("interface", "t1", "mtu") == "1400");
}

#[test]
fn a_type_that_is_gone_names_its_successor_in_error() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.try_vsctl(&["add-port", "br0", "vh", "--", "set", "interface", "vh", "type=dpdkvhostcuse"]);
    let error = rig.get("interface", "vh", "error");
    assert!(error.contains("is gone: use dpdkvhostuser"), "{error}");
}

#[test]
fn without_its_first_row_the_database_describes_no_bridge() {
    let rig = Rig::start();
    rig.add_bridge();
    rig.add_dummy("p1");
    assert_eq!(rig.appctl(&["ofproto/list"]).ok(), "br0\n");
    let db = format!("unix:{}", rig.file("db.sock").display());
    let all = r#"["Open_vSwitch",{"op":"delete","table":"Open_vSwitch","where":[]}]"#;
    rig.run("ovsdb-client", &["transact", &db, all]).ok();
    wait_for("the bridge to go", || rig.appctl(&["ofproto/list"]).ok().is_empty());
    rig.try_vsctl(&["--no-wait", "init"]).ok();
    rig.add_bridge();
    assert_eq!(rig.appctl(&["ofproto/list"]).ok(), "br0\n");
}
