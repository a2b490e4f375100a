//! Applications of os-ken and Faucet as controllers of hosts in network namespaces: a short run of each. The
//! long ones are those of `make interop`.

use crate::common::{Switch, run_dir, wait_for};
use crate::controllers_rig::rest::says_the_same_of_both;
use crate::controllers_rig::{Applications, Faucet, Hosts};
use serde_json::json;
use std::process::Command;

/// A switch whose bridge br0, which is datapath 1, has a host at each port.
fn switch_of(dir: crate::common::RunDir, hosts: &Hosts, protocol: &str, controller: u16) -> Switch {
    let bridge = format!(
        "br0,datapath-id=0000000000000001,fail-mode=secure,max-backoff=1000,protocols={protocol},controller=tcp:127.0.0.1:{controller}"
    );
    let ports: Vec<String> = (0..hosts.ends.len()).map(|n| hosts.port(n, "br0")).collect();
    let mut args = vec!["--bridge", &bridge];
    args.extend(ports.iter().flat_map(|port| ["--port", port]));
    Switch::start_in(dir, &args)
}

/// Two hosts reach each other, and one of os-ken's simple switches has set flows for them.
fn simple_switch_forwards(application: &str, protocol: &str) {
    let dir = run_dir();
    let hosts = Hosts::new(&["10.77.0.1/24", "10.77.0.2/24"]);
    let applications = Applications::start(dir.path(), &[application]);
    let switch = switch_of(dir, &hosts, protocol, applications.port);
    hosts.reaches(0, "10.77.0.2");
    wait_for("flows for both ways", || {
        hosts.pings(1, "10.77.0.1");
        let flows = switch.ofctl(&["-O", protocol, "dump-flows", "br0"]).ok();
        ["02:00:00:00:00:01", "02:00:00:00:00:02"].iter().all(|to| flows.contains(&format!("dl_dst={to}")))
    });
    applications.are_content();
}

#[test]
fn the_simple_switch_of_os_ken_forwards_by_openflow_1_0() {
    simple_switch_forwards("simple_switch", "OpenFlow10");
}

#[test]
fn the_simple_switch_of_os_ken_forwards_by_openflow_1_2() {
    simple_switch_forwards("simple_switch_12", "OpenFlow12");
}

#[test]
fn the_simple_switch_of_os_ken_forwards_by_openflow_1_3() {
    simple_switch_forwards("simple_switch_13", "OpenFlow13");
}

#[test]
fn the_simple_switch_of_os_ken_forwards_by_openflow_1_4() {
    simple_switch_forwards("simple_switch_14", "OpenFlow14");
}

#[test]
fn the_simple_switch_of_os_ken_forwards_by_openflow_1_5() {
    simple_switch_forwards("simple_switch_15", "OpenFlow15");
}

#[test]
fn ofctl_rest_of_os_ken_finds_no_difference_from_the_stock_switch() {
    says_the_same_of_both("OpenFlow13", &["tablefeatures"]);
}

#[test]
fn the_firewall_of_os_ken_lets_pass_what_its_rules_say() {
    let dir = run_dir();
    let hosts = Hosts::new(&["10.77.0.1/24", "10.77.0.2/24"]);
    let applications = Applications::start(dir.path(), &["rest_firewall"]);
    let _switch = switch_of(dir, &hosts, "OpenFlow13", applications.port);
    applications.until("/firewall/module/status", |said| said[0]["status"] == "disable");
    assert!(hosts.is_cut_off(0, "10.77.0.2"), "a disabled firewall lets nothing pass");
    applications.ask("PUT", "/firewall/module/enable/0000000000000001", &json!(null));
    let rules = "/firewall/rules/0000000000000001";
    for (from, to) in [("10.77.0.1", "10.77.0.2"), ("10.77.0.2", "10.77.0.1")] {
        let rule = json!({"nw_src": format!("{from}/32"), "nw_dst": format!("{to}/32"), "nw_proto": "ICMP"});
        let said = applications.ask("POST", rules, &rule);
        assert_eq!(said[0]["command_result"][0]["result"], "success", "{said}");
    }
    hosts.reaches(0, "10.77.0.2");
    let said = applications.get(rules);
    let listed = said[0]["access_control_list"][0]["rules"].as_array().unwrap();
    assert_eq!(listed.len(), 2, "{said}");
    applications.ask("DELETE", rules, &json!({"rule_id": "all"}));
    assert!(hosts.is_cut_off(0, "10.77.0.2"), "without its rules");
    applications.are_content();
}

#[test]
fn os_ken_sees_the_link_between_two_bridges_and_the_hosts_behind_them() {
    let dir = run_dir();
    let hosts = Hosts::new(&["10.77.0.1/24", "10.77.0.2/24"]);
    let applications = Applications::start(dir.path(), &["simple_switch_13", "rest_topology"]);
    let link = ["a", "b"].map(|end| format!("{}{end}", hosts.ends[0]));
    let made = Command::new("ip")
        .args(["link", "add", &link[0], "up", "type", "veth", "peer", "name", &link[1]])
        .status();
    assert!(made.unwrap().success());
    let _link = Link(link[0].clone());
    assert!(Command::new("ip").args(["link", "set", &link[1], "up"]).status().unwrap().success());
    let bridge = |n: usize| {
        let controller = applications.port;
        format!(
            "br{n},datapath-id={:016x},fail-mode=secure,max-backoff=1000,controller=tcp:127.0.0.1:{controller}",
            n + 1
        )
    };
    let ports = [
        format!("{},type=system,ofport=1,bridge=br0", hosts.ends[0]),
        format!("{},type=system,ofport=1,bridge=br1", hosts.ends[1]),
        format!("{},type=system,ofport=7,bridge=br0", link[0]),
        format!("{},type=system,ofport=8,bridge=br1", link[1]),
    ];
    let mut args: Vec<String> = (0..2).flat_map(|n| ["--bridge".to_owned(), bridge(n)]).collect();
    args.extend(ports.into_iter().flat_map(|port| ["--port".to_owned(), port]));
    let _switch = Switch::start_in(dir, &args.iter().map(String::as_str).collect::<Vec<_>>());
    let links = applications
        .until("/v1.0/topology/links", |said| said.as_array().is_some_and(|links| links.len() == 2));
    let ends = |n: usize| {
        let end = |end: &str| {
            format!(
                "{}:{}",
                links[n][end]["dpid"].as_str().unwrap(),
                links[n][end]["port_no"].as_str().unwrap()
            )
        };
        (end("src"), end("dst"))
    };
    let [one, other] = ["0000000000000001:00000007", "0000000000000002:00000008"].map(str::to_owned);
    let mut seen = [ends(0), ends(1)];
    seen.sort();
    assert_eq!(seen, [(one.clone(), other.clone()), (other, one)], "{links}");
    hosts.reaches(0, "10.77.0.2");
    applications.until("/v1.0/topology/hosts", |said| {
        let is_there = |mac: &str, dpid: &str| {
            said.as_array().is_some_and(|hosts| {
                hosts.iter().any(|host| host["mac"] == mac && host["port"]["dpid"] == dpid)
            })
        };
        is_there("02:00:00:00:00:01", "0000000000000001") && is_there("02:00:00:00:00:02", "0000000000000002")
    });
    applications.are_content();
}

/// A pair of devices, removed with the test.
struct Link(String);

impl Drop for Link {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

#[test]
fn faucet_forwards_within_a_vlan_alone_and_filters_by_its_lists() {
    let dir = run_dir();
    let hosts = Hosts::new(&["10.77.0.1/24", "10.77.0.2/24", "10.77.0.3/24"]);
    let faucet = Faucet::start(
        dir.path(),
        r#"
vlans:
  office: {vid: 100}
  guest: {vid: 200}
acls:
  no-web:
    - rule: {dl_type: 0x800, nw_proto: 6, tcp_dst: 8080, actions: {allow: False}}
    - rule: {actions: {allow: True}}
dps:
  sw1:
    dp_id: 0x1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office, acls_in: [no-web]}
      2: {native_vlan: office}
      3: {native_vlan: guest}
"#,
    );
    let _switch = switch_of(dir, &hosts, "OpenFlow13", faucet.port);
    faucet.configures("sw1");
    hosts.reaches(0, "10.77.0.2");
    assert!(hosts.is_cut_off(0, "10.77.0.3"), "that is another VLAN");
    let _web: Vec<_> =
        [8080, 8081].map(|port| hosts.spawn(1, &format!("python3 -m http.server {port}"))).into();
    let get = |port: u16| {
        let curl =
            format!("curl --noproxy * --silent --output /dev/null --max-time 2 http://10.77.0.2:{port}/");
        hosts.run(0, &curl).status.success()
    };
    wait_for("a page", || get(8081));
    assert!(!get(8080), "the list forbids it");
    faucet.is_content();
}
