//! Controllers and keys that the database configures.

use super::{Controller, OF13, Pki, configured_by_database, learns_and_forwards, testcontroller};
use crate::common::{free_port, run, wait_for};
use openflow::Version;
use openflow::message::{Message, Role};
use std::net::{TcpListener, TcpStream};
use std::process::Command;

#[test]
fn rows_of_the_database_say_what_became_of_controllers() {
    let (_server, switch) = configured_by_database();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, nobody) = (listener.local_addr().unwrap().port(), free_port());
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy");
    assert_eq!(switch.flows(&[]).len(), 1, "a bridge without controllers switches by its one rule");
    switch.vsctl(&format!("set-controller br0 tcp:127.0.0.1:{port} tcp:127.0.0.1:{nobody}"));
    let mut controller = Controller::accept(&listener, Version::V13);
    assert_eq!(switch.flows(&[]), Vec::<String>::new(), "with controllers it does what they say");
    let get = |target: u16, column: &str| {
        let find = format!("--bare --columns={column} find controller target=\"tcp:127.0.0.1:{target}\"");
        switch.vsctl(&find)
    };
    wait_for("the connection to be told", || get(port, "is_connected") == "true");
    let role = openflow::message::RoleRequest { role: Role::Primary, generation_id: Some(1), nicira: false };
    controller.ask(&Message::RoleRequest(role));
    wait_for("the role", || get(port, "role") == "master");
    wait_for("the state", || {
        // Heard of this moment: a connection that says nothing for some seconds is idle.
        controller.ask(&Message::BarrierRequest);
        get(port, "status").contains("state=ACTIVE")
    });
    assert!(get(port, "status").contains("sec_since_connect="), "{}", get(port, "status"));
    let uuid = get(port, "_uuid");
    switch.vsctl(&format!("set controller {uuid} controller_rate_limit=100"));
    for count in [
        "packet-in-miss-bypassed=0",
        "packet-in-miss-queued=0",
        "packet-in-miss-dropped=0",
        "packet-in-action-backlog=0",
    ] {
        wait_for("what limits did", || get(port, "status").contains(count));
    }
    assert_eq!(get(nobody, "is_connected"), "false");
    wait_for("the failure to be told", || {
        let lost = get(nobody, "status");
        lost.contains("last_error=Connection refused") && lost.contains("state=BACKOFF")
    });
    drop(controller);
    drop(listener);
    wait_for("the loss to be told", || get(port, "is_connected") == "false");
    assert!(get(port, "status").contains("sec_since_disconnect="), "{}", get(port, "status"));
    switch.vsctl("del-controller br0");
    assert_eq!(switch.flows(&[]).len(), 1, "and without them as before");
}

#[test]
fn keys_and_certificates_come_from_the_database() {
    let (_server, switch) = configured_by_database();
    let pki = Pki::new(switch.dir.path());
    let port = free_port();
    let _controller = testcontroller(
        &switch.dir,
        &[
            "-p",
            &pki.file("ctl-privkey.pem"),
            "-c",
            &pki.file("ctl-cert.pem"),
            "-C",
            &pki.file("pki/switchca/cacert.pem"),
            &format!("pssl:{port}:127.0.0.1"),
        ],
    );
    let (key, certificate) = (pki.file("sc-privkey.pem"), pki.file("sc-cert.pem"));
    let ca = pki.file("pki/controllerca/cacert.pem");
    switch.vsctl(&format!("set-ssl {key} {certificate} {ca}"));
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    for n in 1..=3 {
        switch.vsctl(&format!("add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}"));
    }
    switch.vsctl(&format!("set-controller br0 ssl:127.0.0.1:{port}"));
    learns_and_forwards(&switch, OF13);
}

#[test]
fn a_listener_goes_by_the_keys_that_the_database_has_at_the_moment() {
    let (_server, switch) = configured_by_database();
    let pki = Pki::new(switch.dir.path());
    let port = free_port();
    let (key, certificate) = (pki.file("sc-privkey.pem"), pki.file("sc-cert.pem"));
    let set = |authority: &str| {
        let ca = pki.file(&format!("pki/{authority}/cacert.pem"));
        switch.vsctl(&format!("set-ssl {key} {certificate} {ca}"));
    };
    set("controllerca");
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    switch.vsctl(&format!("set-controller br0 pssl:{port}:127.0.0.1"));
    let target = format!("ssl:127.0.0.1:{port}");
    let (key, certificate) = (pki.file("ctl-privkey.pem"), pki.file("ctl-cert.pem"));
    let ca = pki.file("pki/switchca/cacert.pem");
    let show = ["-p", &key, "-c", &certificate, "-C", &ca, "show", &target];
    let is_let_in = || switch.ofctl(&show).code == Some(0);
    wait_for("the switch to listen", is_let_in);
    set("switchca");
    assert!(!is_let_in(), "another authority has signed its certificate");
    set("controllerca");
    assert!(is_let_in());
    switch.vsctl("del-ssl");
    assert!(!is_let_in(), "the switch has no key any more");
}

#[test]
fn connections_have_the_service_class_of_their_row_also_once_it_changes() {
    let (_server, switch) = configured_by_database();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, from) = (listener.local_addr().unwrap().port(), free_port());
    switch.vsctl("add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure");
    switch.vsctl(&format!("set-controller br0 tcp:127.0.0.1:{to} ptcp:{from}:127.0.0.1"));
    let mut called = Controller::accept(&listener, Version::V13);
    wait_for("the switch to listen", || TcpStream::connect(("127.0.0.1", from)).is_ok());
    let mut calling = Controller::call(from, Version::V13);
    // Of the switch's ends.
    let classes = || {
        let ends = format!("dport = :{to} or sport = :{from}");
        let shown = run(Command::new("ss").args(["-Htn", "--tos"]).arg(ends)).ok();
        let of_line = |line: &str| Some(line.split_once("tos:")?.1.split_whitespace().next()?.to_owned());
        shown.lines().filter_map(of_line).collect::<Vec<_>>()
    };
    calling.ask(&Message::BarrierRequest);
    wait_for("the default", || classes() == ["0xc0", "0xc0"]);
    let find = "--bare --columns=_uuid find controller";
    for controller in switch.vsctl(find).split_whitespace() {
        switch.vsctl(&format!("set controller {controller} other_config:dscp=20"));
    }
    wait_for("the new class", || classes() == ["0x50", "0x50"]);
    // Nobody had to connect anew for it.
    called.ask(&Message::BarrierRequest);
    calling.ask(&Message::BarrierRequest);
}
