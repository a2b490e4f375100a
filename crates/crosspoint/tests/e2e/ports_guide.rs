//! docs/ports.md, run as it is written: its examples that start a switch by flags, in a network namespace of
//! their own.

use crate::common::{Process, daemon_in, namespace, run_dir, wait_for};

/// The commands that are indented in a text, those over several lines as one.
fn commands(text: &str) -> Vec<String> {
    let joined = text.replace(" \\\n", " ");
    let indented = joined.lines().filter_map(|line| line.strip_prefix("    "));
    indented.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn every_switch_of_the_guide_to_ports_starts() {
    let guide = testkit::root().join("docs/ports.md");
    let commands = commands(&std::fs::read_to_string(guide).unwrap());
    let switches: Vec<&str> = commands.iter().filter_map(|c| c.strip_prefix("crosspoint switch ")).collect();
    assert!(switches.len() >= 6, "{commands:?}");
    let namespace = namespace();
    for n in 1..=2 {
        namespace.ip(&format!("link add eth{n} type veth peer name host{n}"));
        namespace.ip(&format!("link set eth{n} up"));
    }
    for switch in switches {
        let dir = run_dir();
        // A capture without packets: its header alone, in little-endian order, of Ethernet.
        let mut header = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
        header.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 1, 0, 0, 0]);
        std::fs::write(dir.file("in.pcap"), header).unwrap();
        let args = [&switch.split(' ').collect::<Vec<_>>()[..], &["--pool-size", "8192"]].concat();
        let mut child = Process::start(&mut daemon_in(&namespace, &dir, &args));
        wait_for("the switch to run", || {
            assert!(child.try_wait().unwrap().is_none(), "{switch}: {}", dir.read("log"));
            dir.read("log").contains("(Open vSwitch)")
        });
        // What comes behind it is about the same ports.
        let at = commands.iter().position(|c| c.ends_with(switch)).unwrap();
        for next in commands[at + 1..].iter().map_while(|c| c.strip_prefix("ip ")) {
            namespace.ip(next);
        }
        assert!(child.end_by("TERM").success(), "{switch}: {}", dir.read("log"));
    }
}
