//! The rules: ARP and one per host and direction by `add-flow`, those of the streams from files by
//! `add-flows`.
//!
//! Whatever comes from a host goes to the guest (port 3), and what the guest sends back goes to the other
//! host.

use super::command::{RUN_DIR, Shell};
use super::error::DemoError;
use super::lab::{ADDRESSES, BRIDGE};
use super::traffic::addresses;
use std::fmt::{Display, Write};

fn client(shell: &Shell) -> &'static str {
    shell.stock_or_own("ovs-ofctl", "crosspoint ofctl")
}

/// Lets the hosts find and reach each other.
pub fn add_hosts(shell: &Shell) -> Result<(), DemoError> {
    let [a, b] = ADDRESSES;
    let arp = [
        "arp,in_port=1,actions=output:3".to_string(),
        format!("arp,in_port=3,arp_spa={a},actions=output:2"),
        "arp,in_port=2,actions=output:3".to_string(),
        format!("arp,in_port=3,arp_spa={b},actions=output:1"),
    ];
    for rule in arp.into_iter().chain(flow(a, b)) {
        shell.run(&format!("{} add-flow {BRIDGE} {rule}", client(shell)))?;
    }
    Ok(())
}

/// Adds the rules of the first `flows` flows of the traffic's source, and of their replies.
pub fn add_streams(shell: &Shell, flows: u16) -> Result<(), DemoError> {
    let path = format!("{RUN_DIR}/{flows}-flows.txt");
    std::fs::write(&path, streams(flows)).map_err(|e| DemoError::new(format!("{path}: {e}")))?;
    let first = streams(1);
    shell.show(&format!("head -n {} {path}", first.lines().count()));
    for line in first.lines() {
        shell.say(line);
    }
    shell.run(&format!("{} add-flows {BRIDGE} {path}", client(shell))).map(drop)
}

fn streams(flows: u16) -> String {
    let mut text = String::new();
    for n in 0..flows {
        let (src, dst) = addresses(n);
        for rule in flow(src, dst) {
            let _ = writeln!(text, "{rule}");
        }
    }
    text
}

/// The rules of a flow from the first host to the second, and of its replies: each to the guest, and back
/// from it.
fn flow<A: Display>(src: A, dst: A) -> [String; 4] {
    [
        format!("ip,in_port=1,nw_src={src},nw_dst={dst},actions=output:3"),
        format!("ip,in_port=3,nw_src={src},nw_dst={dst},actions=output:2"),
        format!("ip,in_port=2,nw_src={dst},nw_dst={src},actions=output:3"),
        format!("ip,in_port=3,nw_src={dst},nw_dst={src},actions=output:1"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_one_rule_per_direction_and_side_of_the_guest() {
        let text = streams(258);
        assert_eq!(text.lines().count(), 4 * 258);
        let last: Vec<&str> = text.lines().skip(4 * 257).collect();
        assert_eq!(last[0], "ip,in_port=1,nw_src=10.214.1.1,nw_dst=10.215.1.1,actions=output:3");
        assert_eq!(last[1], "ip,in_port=3,nw_src=10.214.1.1,nw_dst=10.215.1.1,actions=output:2");
        assert_eq!(last[2], "ip,in_port=2,nw_src=10.215.1.1,nw_dst=10.214.1.1,actions=output:3");
        assert_eq!(last[3], "ip,in_port=3,nw_src=10.215.1.1,nw_dst=10.214.1.1,actions=output:1");
    }
}
