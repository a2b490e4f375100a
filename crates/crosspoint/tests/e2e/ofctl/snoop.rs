//! Several who listen to one switch, with either client.

use super::rig::{Rig, Which};
use crate::common::Process;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A `snoop` at work; it writes to a file.
struct Snooper {
    _child: Process,
    file: PathBuf,
}

impl Snooper {
    fn start(rig: &Rig, idx: usize, program: &[&str]) -> Snooper {
        let file = rig.file(format!("heard{idx}"));
        let mut command = rig.command(program[0]);
        let child = Process::logged(command.args(&program[1..]).args(["snoop", "br0"]), &file);
        Snooper { _child: child, file }
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.file).unwrap()).into_owned()
    }
}

#[test]
fn snoopers_of_either_client_hear_the_same_and_nothing_of_one_another() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    let rig = Rig::start(Which::Ours);
    let programs: [&[&str]; 4] =
        [&["ovs-ofctl"], &["ovs-ofctl"], &[ours, "ofctl"], &[ours, "ofctl", "-O", "OpenFlow13"]];
    let snoopers: Vec<Snooper> =
        programs.iter().enumerate().map(|(idx, program)| Snooper::start(&rig, idx, program)).collect();
    let mut connections = 0;
    let mut ofctl = |args: &[&str]| {
        // Without names, since our client says little of the tables' features, which the stock one asks for
        // to know them.
        rig.ofctl(&[&["--no-names"], args].concat()).ok();
        connections += 1;
    };
    let mut say_until_all_hear = |args: &[&str], what: &str| {
        let start = Instant::now();
        while !snoopers.iter().all(|s| s.heard().contains(what)) {
            let heard: Vec<String> = snoopers.iter().map(Snooper::heard).collect();
            assert!(start.elapsed() < Duration::from_secs(60), "no {what}: {heard:?}");
            ofctl(args);
        }
    };
    say_until_all_hear(&["-O", "OpenFlow13", "add-flow", "br0", "table=75,actions=drop"], "table:75");
    say_until_all_hear(&["-O", "OpenFlow13", "add-flow", "br0", "table=76,actions=drop"], "table:76");
    say_until_all_hear(&["add-flow", "br0", "tcp,reg1=5,actions=2"], "reg1=0x5");
    say_until_all_hear(&["-O", "OpenFlow13", "add-flow", "br0", "table=77,actions=drop"], "table:77");
    let between = |text: &str| {
        let (_, after) = text.split_once("table:76").expect("all heard it");
        after.split_once("table:77").expect("all heard it").0.to_string()
    };
    let stock = between(&snoopers[0].heard());
    for said in ["OFPT_HELLO (OF1.3)", "OFPT_HELLO (xid", "OFPT_BARRIER_REPLY (OF1.3)", "NXT_FLOW_MOD (xid"] {
        assert!(stock.contains(said), "no {said} in {stock}");
    }
    for (snooper, program) in snoopers.iter().zip(&programs) {
        let heard = snooper.heard();
        assert_eq!(between(&heard), stock, "{program:?}");
        // Each connection has two, and each snooper its switch's.
        let hellos = heard.matches("OFPT_HELLO").count();
        assert!(hellos <= 2 * connections + 4, "{hellos} hellos of {connections} connections: {program:?}");
    }
}
