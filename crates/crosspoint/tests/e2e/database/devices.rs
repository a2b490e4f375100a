//! Devices that come, go and outlive the switch.

use super::*;

#[test]
fn devices_of_the_switch_outlive_it_with_their_addresses_and_are_taken_up_not_doubled() {
    let mut rig = Rig::start();
    let add = |rig: &Rig, name: &str, kind: &str| {
        let kind = format!("type={kind}");
        rig.try_vsctl(&["add-port", "br0", name, "--", "set", "interface", name, &kind]).ok();
    };
    rig.ip(&["tuntap", "add", "dev", "other", "mode", "tap"]).ok();
    rig.try_vsctl(&["add-br", "br0"]).ok();
    add(&rig, "int1", "internal");
    add(&rig, "tap1", "tap");
    rig.ip(&["addr", "add", "192.0.2.1/24", "dev", "br0"]).ok();
    assert!(rig.get("interface", "br0", "status").contains("driver_version="));
    let (speed, duplex) = (rig.get("interface", "br0", "link_speed"), rig.get("interface", "br0", "duplex"));
    assert_eq!(duplex, if speed == "[]" { "[]" } else { "full" });
    let index = |rig: &Rig, name: &str| rig.get("interface", name, "ifindex");
    let before = ["br0", "int1", "tap1"].map(|name| index(&rig, name));
    let devices = |rig: &Rig| {
        let text = rig.ip(&["-o", "link", "show"]).ok();
        let names = text.lines().filter_map(|line| line.split(": ").nth(1));
        names.map(String::from).filter(|name| name != "lo").collect::<Vec<_>>()
    };
    let address = |rig: &Rig| rig.ip(&["addr", "show", "br0"]).ok().contains("192.0.2.1/24");
    let all = devices(&rig);

    for signal in ["KILL", "TERM"] {
        rig.stop_switch(signal);
        assert_eq!(devices(&rig), all, "after {signal}");
        assert!(address(&rig));
        // What it knew of before is known anew before anything is told to be in force.
        rig.try_vsctl(&["--no-wait", "clear", "interface", "br0", "ifindex"]).ok();
        rig.start_switch();
        rig.try_vsctl(&["set", "bridge", "br0", "external_ids:again=1"]).ok();
        assert_eq!(["br0", "int1", "tap1"].map(|name| index(&rig, name)), before, "after {signal}");
        assert_eq!(rig.get("interface", "br0", "error"), "[]");
        assert_eq!(devices(&rig), all);
        assert!(address(&rig));
    }

    // What is no longer wanted when it starts goes, and nothing else.
    rig.appctl(&["exit"]).ok();
    assert!(rig.switch.take().unwrap().wait().unwrap().success());
    assert_eq!(devices(&rig), all);
    rig.try_vsctl(&["--no-wait", "del-port", "br0", "int1"]).ok();
    rig.start_switch();
    wait_for("the device to go", || !devices(&rig).contains(&"int1".into()));
    rig.try_vsctl(&["set", "bridge", "br0", "external_ids:again=2"]).ok();
    assert_eq!(index(&rig, "br0"), before[0]);
    assert!(address(&rig));

    // A port that goes takes its device with it, and one of the same name that comes at once is another one.
    rig.try_vsctl(&[
        "del-port",
        "br0",
        "tap1",
        "--",
        "add-port",
        "br0",
        "int2",
        "--",
        "set",
        "interface",
        "int2",
        "type=tap",
    ])
    .ok();
    wait_for("the device to go", || !devices(&rig).contains(&"tap1".into()));
    let old = index(&rig, "int2");
    rig.try_vsctl(&["set", "interface", "int2", "type=internal"]).ok();
    assert_ne!(index(&rig, "int2"), old);
    assert_eq!(rig.get("interface", "int2", "error"), "[]");

    rig.appctl(&["exit", "--cleanup"]).ok();
    assert!(rig.switch.take().unwrap().wait().unwrap().success());
    assert_eq!(devices(&rig), ["other"]);
}

#[test]
fn while_many_devices_go_the_switch_answers_and_one_of_their_names_comes_again() {
    const PORTS: usize = 100;
    let rig = Rig::start();
    let made = rig.add_ports(&["add-br", "br0"], "int", PORTS, "internal");
    assert_eq!(rig.get("interface", "int100", "ofport"), "100");
    let count =
        |rig: &Rig| rig.ip(&["-o", "link", "show"]).ok().lines().filter(|l| l.contains(": int")).count();
    assert_eq!(count(&rig), PORTS);
    let start = Instant::now();
    rig.try_vsctl(&["--no-wait", "del-br", "br0"]).ok();
    // The kernel is at it for a while; the control thread is not.
    let mut longest = Duration::ZERO;
    wait_for("the bridge to go", || {
        let start = Instant::now();
        let shown = rig.appctl(&["dpif/show"]).ok();
        longest = longest.max(start.elapsed());
        !shown.contains("br0")
    });
    let again = ["add-br", "br0", "--", "add-port", "br0", "int100", "--", "set", "interface", "int100"];
    rig.try_vsctl(&[&again[..], &["type=internal"]].concat()).ok();
    assert_eq!(rig.get("interface", "int100", "error"), "[]");
    // Who is told that it is in force finds it so.
    assert_eq!(count(&rig), 1);
    println!("{PORTS} internal ports in {made:?}, gone in {:?}, longest answer {longest:?}", start.elapsed());
    assert!(rig.appctl(&["memory/show"]).ok().contains("devices-leaving:0 "));
}

#[test]
fn a_port_comes_when_its_device_appears() {
    let rig = Rig::start();
    rig.add_bridge();
    let (one, other) = ("veth0", "veth1");
    let ip = |args: &[&str]| drop(rig.ip(args).ok());
    rig.try_vsctl(&["add-port", "br0", one]);
    assert_eq!(rig.get("interface", one, "ofport"), "-1");
    ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
    ip(&["link", "set", one, "up"]);
    wait_for("the port", || rig.get("interface", one, "ofport") == "1");
    assert_eq!(rig.get("interface", one, "error"), "[]");
    assert_ne!(rig.get("interface", one, "ifindex"), "0");
    ip(&["link", "del", one]);
    wait_for("the error", || rig.get("interface", one, "error").contains(one));
    ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
    wait_for("the port again", || rig.get("interface", one, "error") == "[]");
    assert_eq!(rig.get("interface", one, "ofport"), "1");
    // Rules name the number: it stays, whatever else is configured while the device is gone.
    ip(&["link", "del", one]);
    wait_for("the error", || rig.get("interface", one, "error").contains(one));
    for port in ["other1", "other2"] {
        rig.try_vsctl(&["add-port", "br0", port, "--", "set", "interface", port, "type=internal"]).ok();
    }
    ip(&["link", "add", one, "type", "veth", "peer", "name", other]);
    wait_for("the port once more", || rig.get("interface", one, "error") == "[]");
    assert_eq!(rig.get("interface", one, "ofport"), "1");
}

#[test]
fn while_descriptors_are_out_a_configuration_is_in_force_with_errors_and_complete_once_there_are_more() {
    let rig = Rig::start();
    rig.add_bridge();
    let pid = rig.switch.as_ref().unwrap().id();
    let limit = |descriptors: usize| {
        crate::common::run(
            std::process::Command::new("prlimit")
                .args([&format!("--pid={pid}"), &format!("--nofile={descriptors}:")]),
        )
        .ok()
    };
    limit(100);
    // An attempt that fails after the kernel has made the device is not repeated for ever.
    rig.add_ports(&["set", "bridge", "br0", "external_ids:many=yes"], "in", 120, "internal");
    let failed = || rig.vsctl("--bare --columns=name find interface ofport=-1").split_whitespace().count();
    let before = failed();
    assert!(before > 20, "{before} failed");
    assert!(rig.get("interface", "in120", "error").contains("Too many open files"));
    limit(1000);
    rig.add_ports(&["set", "bridge", "br0", "external_ids:many=more"], "more", 1, "internal");
    wait_for("all ports", || failed() == 0);
}

#[test]
fn a_device_that_is_replaced_at_once_is_taken_up_by_its_name() {
    let rig = Rig::start();
    rig.add_bridge();
    let replace = "link del veth0\nlink add veth0 type veth peer name veth1\nlink set veth0 up\n";
    let batch = rig.file("batch");
    std::fs::write(&batch, replace).unwrap();
    rig.ip(&["link", "add", "veth0", "type", "veth", "peer", "name", "veth1"]).ok();
    rig.try_vsctl(&["add-port", "br0", "veth0"]).ok();
    // While it is gone the row has no index.
    let mut indexes = vec!["0".to_owned(), "[]".to_owned(), rig.get("interface", "veth0", "ifindex")];
    for _ in 0..3 {
        rig.ip(&["-batch", batch.to_str().unwrap()]).ok();
        wait_for("the new device", || !indexes.contains(&rig.get("interface", "veth0", "ifindex")));
        assert_eq!(rig.get("interface", "veth0", "error"), "[]");
        assert_eq!(rig.get("interface", "veth0", "ofport"), "1");
        indexes.push(rig.get("interface", "veth0", "ifindex"));
    }
}

/// The same without a database: what flags asked for comes again.
#[test]
fn a_port_of_the_command_line_comes_again_with_its_device() {
    let (dir, namespace) = (run_dir(), namespace());
    let ip = |words: &str| namespace.ip(words);
    ip("link add veth0 type veth peer name veth1");
    ip("link set veth0 up");
    let args = ["--bridge", "br0", "--port", "p1,type=afxdp,ifname=veth0,ofport=5", "--pool-size", "4096"];
    let switch = Process::start(&mut daemon_in(&namespace, &dir, &args));
    let target = dir.file(format!("ovs-vswitchd.{}.ctl", switch.id()));
    let port = || {
        let text = dir.appctl(&["-t", target.to_str().unwrap(), "dpctl/show"]).out;
        text.lines().find(|l| l.contains(": p1 (")).unwrap_or_default().to_string()
    };
    wait_for("the port", || port().contains("xdp-mode="));
    ip("link del veth0");
    wait_for("the error", || port().contains("error=") && !port().contains("xdp-mode="));
    ip("link add veth0 type veth peer name veth1");
    wait_for("the port again", || port().contains("xdp-mode="));
    assert!(dir.ofctl(&["show", "br0"]).ok().contains(" 5(p1): "));
}

#[test]
fn a_thousand_ports_come_in_one_transaction() {
    let rig = Rig::start();
    rig.add_bridge();
    let took = rig.add_ports(&[], "p", 1000, "dummy");
    assert_eq!(rig.get("interface", "p1000", "ofport"), "1000");
    // How long it takes the switch is tested where nothing else takes time (reconcile's tests).
    println!("a thousand ports in {took:?}");
    let all: Vec<&str> = ["--", "del-br", "br0"].to_vec();
    rig.try_vsctl(&all).ok();
    assert_eq!(rig.appctl(&["dpif/show"]).ok().lines().count(), 1);
}
