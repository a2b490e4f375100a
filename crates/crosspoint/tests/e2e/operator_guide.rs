//! The operator's guide, run as it is written: every block of commands of docs/operator.md, in a network
//! namespace of its own.

use crate::common::{binary, run_dir, shell_blocks};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// The commands, with rules of every kind and what they refer to before all that is saved, lost before it is
/// restored, and compared then.
fn with_rules_lost(commands: &str) -> String {
    const SAVE: &str = "ovs-ofctl -O OpenFlow15 dump-tlv-map br0 | awk";
    const RESTORE: &str = "while read -r option";
    let (before, rest) = commands.split_once(SAVE).expect("options are saved");
    let (save, rest) = rest.split_once(RESTORE).expect("options are restored");
    let (restore, after) = rest.split_once("br0.flows\n").expect("rules are restored");
    // That counters were to be reset says how a rule was added, xid how often a program has asked.
    let dump = |file: &str| {
        ["dump-tlv-map", "dump-meters", "dump-groups", "--no-stats dump-flows"]
            .map(|what| format!("ovs-ofctl -O OpenFlow15 {what} br0 | sed 's/ reset_counts//' | sort\n"))
            .map(|line| line.replace('\n', &format!(" >> $OVS_DBDIR/{file}\n")))
            .concat()
    };
    // More than one message lists. There is no port 9, so that nothing is learned meanwhile.
    format!(
        "{before}ovs-ofctl add-flow br0 'table=1,cookie=7,idle_timeout=600,ip,actions=drop'\n\
         ovs-ofctl add-flow br0 'in_port=9,actions=learn(table=2,priority=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])'\n\
         ovs-ofctl -O OpenFlow13 add-flow br0 'send_flow_rem,arp,actions=write_actions(output:1)'\n\
         ovs-ofctl add-tlv-map br0 '{{class=0xffff,type=1,len=4}}->tun_metadata0,{{class=2,type=3,len=8}}->tun_metadata1'\n\
         ovs-ofctl -O OpenFlow15 add-meter br0 'meter=1 kbps stats bands=type=drop rate=1000'\n\
         for n in $(seq 2 140); do\n\
         ovs-ofctl -O OpenFlow15 add-meter br0 \"meter=$n pktps burst bands=type=drop rate=9 burst_size=3\"\n\
         ovs-ofctl -O OpenFlow15 add-group br0 group_id=1$n,type=all,bucket=output:1\ndone\n\
         ovs-ofctl -O OpenFlow15 add-group br0 'group_id=1,type=select,bucket=weight:3,output:1,bucket=output:2'\n\
         ovs-ofctl -O OpenFlow15 add-group br0 'group_id=2,type=indirect,bucket=group:1'\n\
         ovs-ofctl -O OpenFlow15 add-flow br0 'in_port=8,tun_metadata0=5,actions=meter:2,group:2'\n\
         {SAVE}{save}{}\
         ovs-ofctl del-flows br0\novs-ofctl -O OpenFlow15 del-groups br0\novs-ofctl -O OpenFlow15 del-meters br0\n\
         ovs-ofctl del-tlv-map br0\novs-ofctl add-flow br0 'priority=3,actions=drop'\n\
         {RESTORE}{restore}br0.flows\n{}\
         test $(wc -l < $OVS_DBDIR/before) -ge 290\ncmp $OVS_DBDIR/before $OVS_DBDIR/after\n{after}",
        dump("before"),
        dump("after"),
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
