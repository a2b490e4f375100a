//! The rules: ARP and one per host and direction by `add-flow`, those of the streams from files by `add-flows`.

use super::command::Shell;
use super::error::DemoError;
use super::lab::{ADDRESSES, RUN_DIR};
use super::traffic::addresses;
use std::fmt::Write;

/// `ovs-ofctl` where it is installed: the switch speaks its protocol. Else this binary's own.
fn client() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_there = std::env::split_paths(&path).any(|dir| dir.join("ovs-ofctl").is_file());
    if is_there { "ovs-ofctl" } else { "crosspoint ofctl" }
}

/// Lets the hosts find and reach each other.
pub fn add_hosts(shell: &Shell) -> Result<(), DemoError> {
    let [a, b] = ADDRESSES;
    for rule in [
        "arp,in_port=1,actions=output:2",
        "arp,in_port=2,actions=output:1",
        &format!("ip,in_port=1,nw_src={a},nw_dst={b},actions=output:2"),
        &format!("ip,in_port=2,nw_src={b},nw_dst={a},actions=output:1"),
    ] {
        shell.run(&format!("{} add-flow br0 {rule}", client()))?;
    }
    Ok(())
}

/// Adds the rules of the first `flows` flows of the traffic's source, and of their replies.
pub fn add_streams(shell: &Shell, flows: u16) -> Result<(), DemoError> {
    let path = format!("{RUN_DIR}/{flows}-flows.txt");
    std::fs::write(&path, streams(flows)).map_err(|e| DemoError::new(format!("{path}: {e}")))?;
    shell.show(&format!("head -n 2 {path}"));
    for line in streams(1).lines() {
        shell.say(line);
    }
    shell.run(&format!("{} add-flows br0 {path}", client())).map(drop)
}

fn streams(flows: u16) -> String {
    let mut text = String::new();
    for n in 0..flows {
        let (src, dst) = addresses(n);
        let _ = writeln!(text, "ip,in_port=1,nw_src={src},nw_dst={dst},actions=output:2");
        let _ = writeln!(text, "ip,in_port=2,nw_src={dst},nw_dst={src},actions=output:1");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_flow_has_one_rule_per_direction() {
        let text = streams(258);
        assert_eq!(text.lines().count(), 516);
        let last: Vec<&str> = text.lines().skip(514).collect();
        assert_eq!(last[0], "ip,in_port=1,nw_src=10.214.1.1,nw_dst=10.215.1.1,actions=output:2");
        assert_eq!(last[1], "ip,in_port=2,nw_src=10.215.1.1,nw_dst=10.214.1.1,actions=output:1");
    }
}
