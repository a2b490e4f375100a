//! Who listens to a bridge's controllers, with either client, beside the stock switch.

use crate::common::{Process, RunDir, wait_for};
use crate::controller::Controller;
use crate::controllers_beside_stock::{Both, controllers};
use openflow::Version;
use openflow::message::{FlowMod, Message};
use openflow::text::{PortNames, Protocol, parse_flow_mod};
use std::path::PathBuf;

/// A `snoop` at work; it writes to a file.
struct Snooper {
    _child: Process,
    file: PathBuf,
}

impl Snooper {
    fn start(dir: &RunDir, name: &str, program: &[&str]) -> Snooper {
        let file = dir.file(name);
        let mut command = dir.command(program[0]);
        let child = Process::logged(command.args(&program[1..]).args(["snoop", "br0"]), &file);
        Snooper { _child: child, file }
    }

    fn heard(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.file).unwrap()).into_owned()
    }
}

fn flow(text: &str) -> Message {
    let parsed = parse_flow_mod(text, openflow::message::FlowModCommand::Add, PortNames::none());
    let flow_mod: FlowMod = parsed.unwrap().in_protocol(Protocol::Of13);
    Message::FlowMod(Box::new(flow_mod))
}

/// What a snooper hears of a controller's messages, after the first that it hears.
fn between(dir: &RunDir, controller: &mut Controller, program: &[&str], settings: &str) -> Vec<String> {
    let snooper = Snooper::start(dir, &format!("heard{}{settings}", program.len()), program);
    wait_for("the snooper", || {
        controller.send(&flow("table=75,actions=drop"));
        controller.heard();
        snooper.heard().contains("table:75")
    });
    controller.send(&flow("table=76,actions=drop"));
    dir.run("ovs-ofctl", &["add-flow", &format!("unix:{}", dir.file("br0.mgmt").display()), "tcp,actions=2"])
        .ok();
    controller.send(&flow("table=77,tcp,actions=group:5"));
    controller.heard();
    controller.send(&flow("table=78,actions=drop"));
    controller.heard();
    wait_for("the last rule", || snooper.heard().contains("table:78"));
    let heard = snooper.heard();
    let (_, after) = heard.split_once("table:76").expect("it was sent");
    let (heard, _) = after.split_once("table:78").expect("it was heard");
    let without_numbers = |line: &str| line.split("(xid").next().unwrap_or_default().to_owned();
    // A probe may come at any time.
    heard.lines().map(without_numbers).filter(|line| !line.contains("ECHO")).collect()
}

#[test]
fn who_snoops_hears_a_controller_to_which_the_switch_connects_as_in_the_stock_switch() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    let both = Both::start();
    // None is refused, and one that connects; one that may come up is waited for.
    let outcome = |timeout: &str| {
        let [ours, stock] = both.each().map(|dir| {
            let said = dir.run("ovs-ofctl", &[timeout, "snoop", "br0"]);
            (said.code, said.out)
        });
        assert_eq!(ours, stock);
        ours
    };
    let without = outcome("--timeout=20");
    both.vsctl("set-controller br0 ptcp:0:127.0.0.1");
    assert_eq!(outcome("--timeout=20"), without);
    both.vsctl("set-controller br0 tcp:127.0.0.1:1");
    assert_ne!(outcome("--timeout=2"), without);
    let programs = [&["ovs-ofctl"][..], &[ours, "ofctl"], &[ours, "ofctl", "-O", "OpenFlow13"]];
    for (settings, programs) in [("", &programs[..]), ("type=service", &programs[..1])] {
        let mut connected = controllers(&both, Version::V13, settings);
        for program in programs {
            same_is_heard(&both, &mut connected, program, settings);
        }
    }
}

fn same_is_heard(both: &Both, connected: &mut [Controller; 2], program: &[&str], settings: &str) {
    let of_each = both.each().into_iter().zip(connected);
    let mut heard = of_each.map(|(dir, controller)| between(dir, controller, program, settings));
    let (of_ours, of_stock) = (heard.next().unwrap(), heard.next().unwrap());
    assert_eq!(of_ours, of_stock, "{program:?} at ours and at the stock switch");
    for said in ["OFPT_ERROR (OF1.3)", "OFPT_BARRIER_REPLY (OF1.3)", "OFPT_FLOW_MOD (OF1.3)"] {
        assert!(of_ours.iter().any(|line| line.contains(said)), "no {said} in {of_ours:#?}");
    }
    assert!(!of_ours.iter().any(|line| line.contains("tcp actions=output:2")), "{of_ours:#?}");
}
