//! Where the stock switch sends nothing, or sends after all: outputs to ports that a field names, protected
//! ports, the end of a pipeline, tracking that leads nowhere.

use crate::actions_beside_stock::Both;
use crate::controllers_beside_stock;
use crate::traces_beside_stock::{UDP_FLOW, same_traces};

/// A field of 32 bits has the 16-bit number of a reserved port, in any version.
#[test]
fn ports_that_fields_name_are_those_of_the_stock_switch() {
    let mut both = Both::start();
    for port in ["2", "0xfffe", "0xfff8", "0xffff", "0xff00", "0x10002", "0xfffffffe", "0xfffffffb"] {
        let rule = format!("actions=load:{port}->NXM_NX_REG0[],output:NXM_NX_REG0[]");
        same_traces(&mut both, &[], &[&rule], &[UDP_FLOW]);
    }
}

#[test]
fn an_exit_ends_the_pipeline_as_in_the_stock_switch() {
    let mut both = Both::start();
    for actions in [
        "clone(output:2,exit),output:3",
        "clone(exit),output:3",
        "clone(resubmit(,1)),output:3",
        "resubmit(,1),output:3",
    ] {
        let rules = [&format!("ip,actions={actions}"), "table=1,actions=output:2,exit"];
        same_traces(&mut both, &[], &rules, &[UDP_FLOW]);
    }
}

#[test]
fn tracking_that_leads_nowhere_is_done_as_in_the_stock_switch() {
    let mut both = Both::start();
    for actions in ["ct(zone=1)", "ct(commit,zone=1)", "ct(zone=1),ct_clear", "ct(nat)"] {
        same_traces(&mut both, &[], &[&format!("udp,actions={actions}")], &[UDP_FLOW]);
    }
}

/// Whichever action sends the packet.
#[test]
fn protected_ports_are_kept_apart_as_in_the_stock_switch() {
    let both = controllers_beside_stock::Both::start();
    both.vsctl("set port p1 protected=true -- set port p2 protected=true");
    let group = "group_id=1,type=all,bucket=actions=output:2,bucket=actions=output:3";
    both.same("the group", |dir| dir.run("ovs-ofctl", &["-O", "OpenFlow13", "add-group", "br0", group]));
    let mut kept_apart = 0;
    for actions in [
        "output:2",
        "output:2,output:3",
        "group:1",
        "load:2->NXM_NX_REG0[],output:NXM_NX_REG0[]",
        "load:3->NXM_OF_IN_PORT[],output:2",
        "in_port",
        "all",
    ] {
        let rule = format!("actions={actions}");
        both.same(actions, |dir| dir.run("ovs-ofctl", &["-O", "OpenFlow13", "add-flow", "br0", &rule]));
        for flow in [UDP_FLOW, "in_port=3,ip"] {
            let trace = both.same(actions, |dir| {
                // Ports are flooded in any order.
                let text = controllers_beside_stock::appctl(dir, &["ofproto/trace", "br0", flow]);
                let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
                lines.retain(|line| actions != "all" || !line.starts_with("Datapath actions"));
                lines
            });
            kept_apart += usize::from(trace.iter().any(|line| line.contains("between protected ports")));
        }
    }
    assert_eq!(kept_apart, 6);
}
