//! Faucet routes between hosts of two VLANs, in network namespaces.

use crate::common::{Switch, run_dir};
use crate::controllers_rig::{Faucet, Hosts};

#[test]
fn faucet_routes_between_two_vlans_for_hosts_that_know_its_addresses() {
    let dir = run_dir();
    let hosts = Hosts::new(&["10.0.1.1/24", "10.0.1.2/24", "10.0.2.3/24", "10.0.2.4/24"]);
    for (n, router) in [(0, "10.0.1.254"), (1, "10.0.1.254"), (2, "10.0.2.254"), (3, "10.0.2.254")] {
        assert!(hosts.run(n, &format!("ip route add default via {router}")).status.success());
    }
    let faucet = Faucet::start(
        dir.path(),
        r#"
vlans:
  office: {vid: 100, faucet_mac: "0e:00:00:00:10:01", faucet_vips: ["10.0.1.254/24"]}
  guest: {vid: 200, faucet_mac: "0e:00:00:00:20:01", faucet_vips: ["10.0.2.254/24"]}
routers:
  between: {vlans: [office, guest]}
dps:
  sw1:
    dp_id: 0x1
    hardware: Open vSwitch
    interfaces:
      1: {native_vlan: office}
      2: {native_vlan: office}
      3: {native_vlan: guest}
      4: {native_vlan: guest}
"#,
    );
    let bridge = format!(
        "br0,datapath-id=0000000000000001,fail-mode=secure,max-backoff=1000,controller=tcp:127.0.0.1:{}",
        faucet.port
    );
    let ports: Vec<String> = (0..4).map(|n| hosts.port(n, "br0")).collect();
    let mut args = vec!["--bridge", &bridge];
    args.extend(ports.iter().flat_map(|port| ["--port", port]));
    let _switch = Switch::start_in(dir, &args);
    faucet.configures("sw1");
    hosts.reaches(0, "10.0.1.2");
    hosts.reaches(0, "10.0.1.254");
    for (from, to) in [(0, "10.0.2.3"), (1, "10.0.2.4"), (2, "10.0.1.2"), (3, "10.0.1.1")] {
        hosts.reaches(from, to);
    }
    assert!(hosts.is_cut_off(0, "10.0.2.99"), "nobody has that address");
    faucet.is_content();
}
