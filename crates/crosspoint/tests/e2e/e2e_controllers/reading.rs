//! Controllers that read slowly, or not at all.

use super::{connected, switch_with};
use crate::common::{PATIENCE, RunDir, Switch, accept, run_dir, wait_for};
use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::os::unix::net::{UnixListener, UnixStream};

/// A controller on a Unix socket, which holds little, that asks for a dump of more rules than fit into it.
fn asks_for_a_long_dump(switch: &Switch, listener: &UnixListener) -> UnixStream {
    let mut stream = accept(listener);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[4, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    connected(switch);
    // OFPMP_FLOW: all tables, any port and group, any match.
    let mut request = vec![4, 18, 0, 56, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0xff, 0, 0, 0];
    request.extend([0xff; 8]);
    request.extend([0; 4 + 16]);
    request.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    stream.write_all(&request).unwrap();
    stream
}

fn with_many_rules(dir: RunDir, fail_mode: &str) -> (Switch, UnixListener) {
    let socket = dir.path().join("controller");
    let listener = UnixListener::bind(&socket).unwrap();
    let flags = format!("fail-mode={fail_mode},controller=unix:{}", socket.display());
    let switch = switch_with(dir, &flags, &[]);
    let rules = switch.dir.path().join("rules");
    let lines: String =
        (0..40_000).map(|n| format!("ip,nw_dst={},actions=2\n", Ipv4Addr::from(n as u32))).collect();
    std::fs::write(&rules, lines).unwrap();
    switch.ofctl(&["add-flows", "br0", rules.to_str().unwrap()]).ok();
    (switch, listener)
}

#[test]
fn a_controller_that_stops_reading_is_given_up_and_the_bridge_fails_open() {
    let (switch, listener) = with_many_rules(run_dir(), "standalone");
    let stuck = asks_for_a_long_dump(&switch, &listener);
    // It has taken what its socket holds, and then nothing.
    wait_for("the dump to fill the socket", || switch.unread(&stuck) > 100_000);
    switch.appctl(&["time/stop"]).ok();
    listener.set_nonblocking(true).unwrap();
    let mut seconds = 0;
    while switch.appctl(&["coverage/read-counter", "vconn_cut"]).ok() != "1\n" {
        assert!(seconds < 20, "the connection stands after 20 s");
        switch.appctl(&["time/warp", "1000", "500"]).ok();
        seconds += 1;
    }
    assert!(seconds >= 9, "given up after {seconds} s: it had 10 s");
    assert!(switch.log().contains("no response to inactivity probe after 5 seconds, disconnecting"));
    // Nobody says hello on the next connection.
    switch.appctl(&["time/warp", "30000", "500"]).ok();
    wait_for("the bridge to switch by itself", || {
        switch.appctl(&["bridge/dump-flows", "br0"]).ok().contains("priority=15790320,actions=NORMAL")
    });
    drop(stuck);
}

#[test]
fn a_controller_that_reads_slowly_and_says_nothing_meanwhile_is_kept() {
    let (switch, listener) = with_many_rules(run_dir(), "secure");
    let mut slow = asks_for_a_long_dump(&switch, &listener);
    wait_for("the dump to fill the socket", || switch.unread(&slow) > 100_000);
    switch.appctl(&["time/stop"]).ok();
    let (mut read, mut seconds, mut buffer) = (0, 0, vec![0; 100_000]);
    while read < 3_000_000 {
        // It waits for bytes as long as they may take to come, in true time.
        let n = slow.read(&mut buffer).unwrap_or_else(|e| panic!("no more came after {seconds} s: {e}"));
        assert!(n > 0, "cut off after {seconds} s, with {read} bytes read");
        read += n;
        seconds += 1;
        switch.appctl(&["time/warp", "1000"]).ok();
    }
    assert!(seconds >= 20, "read within {seconds} s");
    assert_eq!(switch.appctl(&["coverage/read-counter", "vconn_cut"]).ok(), "0\n");
}
