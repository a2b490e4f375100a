//! Time that a test stops and moves.

use crate::common::{Switch, UDP, wait_for};

#[test]
fn stopped_time_moves_by_hand_and_all_that_times_out_follows() {
    let switch = Switch::dummy();
    let appctl = |args: &[&str]| switch.appctl(args).ok();
    assert_eq!(appctl(&["time/stop"]), "");
    switch.add_flow("table=0,priority=5,in_port=1,idle_timeout=10,actions=NORMAL");
    switch.add_flow("table=0,priority=4,in_port=2,hard_timeout=30,actions=output:3");
    let flows = || switch.flows(&[]).len();
    let duration = || {
        let text = switch.ofctl(&["dump-flows", "br0", "in_port=2"]).ok();
        text.split("duration=").nth(1).unwrap().split('s').next().unwrap().to_string()
    };
    let before = duration();
    // To ask takes some milliseconds, which it is told in.
    assert!((0..10).all(|_| duration() == before), "time stands still");
    switch.receive("p1", UDP);
    wait_for("the address", || appctl(&["fdb/show", "br0"]).lines().count() == 2);
    for _ in 0..3 {
        // Used every 5 s, so never idle for 10.
        assert_eq!(appctl(&["time/warp", "5000"]), "warped\n");
        switch.receive("p1", UDP);
        wait_for("the packet to be counted", || {
            appctl(&["revalidator/wait"]);
            appctl(&["fdb/show", "br0"]).contains("50:54:00:00:00:05    0")
        });
    }
    assert_eq!(flows(), 2);
    assert_eq!(duration(), "15");
    assert_eq!(appctl(&["time/warp", "12000", "1000"]), "warped\n");
    wait_for("the idle rule to go", || flows() == 1);
    assert!(
        appctl(&["fdb/show", "br0"]).contains("50:54:00:00:00:05   12"),
        "{}",
        appctl(&["fdb/show", "br0"])
    );
    assert_eq!(appctl(&["time/warp", "2000"]), "warped\n");
    assert_eq!(flows(), 1);
    assert_eq!(appctl(&["time/warp", "2000"]), "warped\n");
    wait_for("the other rule to go", || flows() == 0);
    assert_eq!(appctl(&["time/warp", "300000", "10000"]), "warped\n");
    wait_for("the address to age", || appctl(&["fdb/show", "br0"]).lines().count() == 1);
    assert_eq!(appctl(&["dpctl/dump-flows"]).lines().filter(|l| l.contains("in_port")).count(), 0);
}
