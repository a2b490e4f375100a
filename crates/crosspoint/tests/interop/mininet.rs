//! Mininet builds networks of namespaces and switches by `ovs-vsctl`, with `ovs-testcontroller` in charge of
//! them.

use crate::namespaces::{Programs, in_namespaces};

#[test]
fn hosts_of_mininet_reach_each_other_through_one_switch_and_through_many() {
    let said = in_namespaces(Programs::Ours, "bash", "mininet.sh");
    for topology in ["single,4", "linear,4", "tree,2,3"] {
        assert!(said.contains(&format!("{topology}: all hosts answer, TCP passes")), "{said}");
    }
}
