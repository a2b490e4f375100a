//! os-ken's `ofctl_rest` beside the stock switch, by versions of OpenFlow. The end-to-end program has
//! one of them.

use crate::controllers_rig::rest::says_the_same_of_both;

#[test]
fn ofctl_rest_finds_no_difference_by_1_0_to_1_4() {
    // By 1.0 os-ken has no answer of the stock switch to a request for descriptions of ports.
    says_the_same_of_both("OpenFlow10", &["portdesc"]);
    says_the_same_of_both("OpenFlow12", &[]);
    // From 1.4 on the stock switch tells statistics of ports beyond the standard's, which ours does not, and
    // os-ken takes too long over the features of 254 tables twice. By 1.3 the end-to-end program asks.
    says_the_same_of_both("OpenFlow14", &["port", "tablefeatures"]);
}
