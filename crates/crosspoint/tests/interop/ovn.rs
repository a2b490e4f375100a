//! OVN's own daemons, unmodified, make a switch of ours their chassis.

use crate::namespaces::{Programs, in_namespaces};

#[test]
fn ovn_does_on_our_switch_and_database_what_it_does_on_the_stock_ones() {
    // The same probes, so that what they expect is what Open vSwitch does.
    for programs in [Programs::Stock, Programs::Ours] {
        in_namespaces(programs, "python3", "ovn_chassis.py");
    }
}

#[test]
fn ovn_installs_the_same_rules_for_many_ports_as_on_the_stock_switch() {
    let [stock, ours] =
        [Programs::Stock, Programs::Ours].map(|programs| in_namespaces(programs, "python3", "ovn_ports.py"));
    assert!(stock.contains("ports: 1") && stock.contains("refused: []"), "{stock}");
    assert_eq!(ours, stock);
}
