//! The operator's guide, run as it is written: every block of commands of docs/operator.md, in a network
//! namespace of its own.

use crate::common::{binary, run_dir, shell_blocks};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// The commands, with rules of every kind before they are saved, lost before they are restored, and compared
/// then.
fn with_rules_lost(commands: &str) -> String {
    let (before, rest) = commands.split_once("ovs-ofctl -O OpenFlow15 --no-names").expect("rules are saved");
    let (save, rest) = rest.split_once('\n').unwrap();
    let (restore, after) = rest.split_once('\n').unwrap();
    // That counters were to be reset says how a rule was added.
    let dump =
        "ovs-ofctl -O OpenFlow15 --no-stats dump-flows br0 | sed 's/ reset_counts//' | sort > $OVS_DBDIR";
    // There is no port 9, so that nothing is learned meanwhile.
    format!(
        "{before}ovs-ofctl add-flow br0 'table=1,cookie=7,idle_timeout=600,ip,actions=drop'\n\
         ovs-ofctl add-flow br0 'in_port=9,actions=learn(table=2,priority=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'\n\
         ovs-ofctl -O OpenFlow13 add-flow br0 'send_flow_rem,arp,actions=write_actions(output:1)'\n\
         ovs-ofctl -O OpenFlow15 --no-names{save}\n{dump}/before\n\
         ovs-ofctl del-flows br0\novs-ofctl add-flow br0 'priority=3,actions=drop'\n\
         {restore}\n{dump}/after\n\
         test $(wc -l < $OVS_DBDIR/before) -ge 4\ncmp $OVS_DBDIR/before $OVS_DBDIR/after\n{after}"
    )
}

#[test]
fn every_command_of_the_operators_guide_works() {
    let guide = testkit::root().join("docs/operator.md");
    let commands = shell_blocks(&fs::read_to_string(guide).unwrap());
    assert!(commands.lines().count() > 30, "{commands}");
    let commands = with_rules_lost(&commands);
    let dir = run_dir();
    let path = |name: &str| dir.path().join(name);
    for part in ["bin", "stub", "run", "db", "log", "etc/openvswitch"] {
        fs::create_dir_all(path(part)).unwrap();
    }
    // The kernel's module is loaded with modprobe, which is not ours to try on this machine.
    fs::write(path("stub/modprobe"), "#!/bin/sh\nexit 0\n").unwrap();
    fs::set_permissions(path("stub/modprobe"), fs::Permissions::from_mode(0o755)).unwrap();
    let machine = "ip link set lo up\n\
        for n in 1 2; do ip link add eth$n type veth peer name host$n; ip link set eth$n up; ip link set host$n up; done\n";
    // Whatever happens, no daemon is left.
    let end = "for f in $OVS_RUNDIR/*.pid; do test -e $f && kill $(cat $f); done; true";
    let script = format!("set -e\ntrap '{end}' EXIT\n{machine}set -x\n{commands}");
    fs::write(path("script"), script).unwrap();
    let output = fs::File::create(path("output")).unwrap();
    let status = Command::new("unshare")
        .args(["--net", "sh"])
        .arg(path("script"))
        .env("PATH", format!("{}:{}", path("stub").display(), std::env::var("PATH").unwrap()))
        .env("CROSSPOINT", binary())
        .env("OVS_BINDIR", path("bin"))
        .env("OVS_SBINDIR", path("bin"))
        .env("OVS_RUNDIR", path("run"))
        .env("OVS_DBDIR", path("db"))
        .env("OVS_LOGDIR", path("log"))
        .env("OVS_SYSCONFDIR", path("etc"))
        .stdin(Stdio::null())
        .stdout(output.try_clone().unwrap())
        .stderr(output)
        .status()
        .unwrap();
    let said = fs::read_to_string(path("output")).unwrap();
    let log = fs::read_to_string(path("log/ovs-vswitchd.log")).unwrap_or_default();
    assert!(status.success(), "{said}\n{log}");
    for part in [
        "ovs-vswitchd (Open vSwitch) 3.1.0",
        "ovs-vswitchd is running with pid",
        "Port eth2",
        "Datapath actions: drop",
        "native-untagged",
        "tcp:127.0.0.1:6653",
        "Restoring saved flows",
    ] {
        assert!(said.contains(part), "{part} is missing:\n{said}\n{log}");
    }
    assert!(said.matches("nw_dst=10.0.0.0/8").count() >= 3, "the rule is there after the restart\n{said}");
}
