//! os-ken's `ofctl_rest` beside the stock switch, by each version of OpenFlow that it knows. The end-to-end
//! program has one of them.

use crate::controllers_rig::rest::says_the_same_of_both;

#[test]
fn ofctl_rest_finds_no_difference_by_any_version() {
    for protocol in ["OpenFlow10", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"] {
        says_the_same_of_both(protocol, &[]);
    }
}
