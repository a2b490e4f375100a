use crate::common::{Switch, UDP, wait_for};

#[test]
fn a_dropped_packet_is_counted_under_its_reason() {
    // A bridge `br0` with dummy ports `p1` to `p3`.
    let switch = Switch::dummy();
    switch.add_flow("in_port=1,actions=drop");
    switch.receive("p1", UDP);
    wait_for("the drop", || switch.appctl(&["crosspoint/drops"]).ok().contains("action_drop: 1"));
    assert!(switch.sent("p2", 0).is_empty());
}
