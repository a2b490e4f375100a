//! Steps of the pipeline beside the stock switch: conjunctive matches.

use crate::actions_beside_stock::{Both, ethernet, ipv4, udp};

/// An IPv4 packet from 10.0.0.`src` to 10.0.0.`dst`.
fn packet(src: u8, dst: u8) -> Vec<u8> {
    let mut packet = ipv4(17, 0, 64, &udp());
    (packet[15], packet[19]) = (src, dst);
    packet[10..12].fill(0);
    let sum = wire::checksum::checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    ethernet(0x800, &packet)
}

#[test]
fn conjunctions_choose_as_the_stock_switch_does_and_take_effect_with_the_next_packet() {
    let mut both = Both::start("conjunctions");
    let pairs = |both: &mut Both, what: &str| {
        for src in 0..5 {
            for dst in 0..5 {
                both.same_fates(what, &[(&format!("from {src} to {dst}"), packet(src, dst))]);
            }
        }
    };
    both.rules(
        "OpenFlow10",
        &[
            "conj_id=1,priority=2,actions=2",
            "conj_id=3,in_port=1,actions=3",
            "priority=50,ip,nw_src=10.0.0.1,actions=conjunction(1,1/2),note:01.02",
            "priority=50,ip,nw_src=10.0.0.2/31,actions=conjunction(1,1/2),conjunction(3,2/2)",
            "priority=50,ip,nw_dst=10.0.0.1,actions=conjunction(1,2/2)",
            "priority=50,ip,nw_dst=10.0.0.3,actions=conjunction(3,1/2)",
            "priority=40,ip,nw_src=10.0.0.1,actions=conjunction(3,2/2)",
            "priority=40,ip,nw_dst=10.0.0.4,actions=conjunction(3,1/2)",
            "priority=45,ip,nw_src=10.0.0.1,nw_dst=10.0.0.3,actions=2,3",
            "priority=30,ip,nw_dst=10.0.0.1,actions=3",
            "priority=1,actions=drop",
        ],
    );
    pairs(&mut both, "two conjunctions");
    let change = |both: &Both, command: &str, flow: &str| {
        both.verdict(&["-O", "OpenFlow10", command, "br0", flow]).unwrap();
    };
    change(&both, "add-flow", "priority=50,ip,nw_dst=10.0.0.2,actions=conjunction(1,2/2)");
    pairs(&mut both, "a clause is met in one way more");
    change(&both, "add-flow", "priority=50,ip,nw_src=10.0.0.1,actions=3");
    pairs(&mut both, "a plain rule takes the place of a clause");
    change(&both, "del-flows", "conj_id=3,in_port=1");
    pairs(&mut both, "nobody asks for a conjunction any more");
    for version in ["OpenFlow10", "OpenFlow13", "OpenFlow14"] {
        for actions in ["conjunction(1,1/2),note:01", "conjunction(1,2/64)"] {
            let flow = format!("ip,nw_src=10.9.9.9,actions={actions}");
            both.verdict(&["-O", version, "add-flow", "br0", &flow]).unwrap();
        }
    }
}
