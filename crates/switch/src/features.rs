//! What translation and the datapath can do, by the names that Open vSwitch has for it: those of the commands
//! `dpif/show-dp-features` and of the database's column `capabilities` (ovs-vswitchd.conf.db(5), Datapath).

/// What there is of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// It has it, or has not.
    Is(bool),
    /// It has so many, or goes so deep.
    UpTo(usize),
}
use Value::{Is, UpTo};

/// Name, title and value of each feature, in the order in which they are shown.
pub const FEATURES: &[(&str, &str, Value)] = &[
    ("masked_set_action", "Masked set action", Is(true)),
    ("tnl_push_pop", "Tunnel push pop", Is(false)),
    ("ufid", "Ufid", Is(true)),
    ("trunc", "Truncate action", Is(true)),
    ("clone", "Clone action", Is(true)),
    ("sample_nesting", "Sample nesting", UpTo(10)),
    ("ct_eventmask", "Conntrack eventmask", Is(true)),
    ("ct_clear", "Conntrack clear", Is(true)),
    ("max_hash_alg", "Max dp_hash algorithm", UpTo(0)),
    ("check_pkt_len", "Check pkt length action", Is(true)),
    ("ct_timeout", "Conntrack timeout policy", Is(true)),
    ("explicit_drop_action", "Explicit Drop action", Is(true)),
    ("lb_output_action", "Optimized Balance TCP mode", Is(false)),
    ("ct_zero_snat", "Conntrack all-zero IP SNAT", Is(true)),
    ("add_mpls", "MPLS Label add", Is(true)),
    ("max_vlan_headers", "Max VLAN headers", UpTo(2)),
    ("max_mpls_depth", "Max MPLS depth", UpTo(3)),
    ("recirc", "Recirc", Is(true)),
    ("ct_state", "CT state", Is(true)),
    ("ct_zone", "CT zone", Is(true)),
    ("ct_mark", "CT mark", Is(true)),
    ("ct_label", "CT label", Is(true)),
    ("ct_state_nat", "CT state NAT", Is(true)),
    ("ct_orig_tuple", "CT orig tuple", Is(true)),
    ("ct_orig_tuple6", "CT orig tuple for IPv6", Is(true)),
    ("nd_ext", "IPv6 ND Extension", Is(true)),
];

impl Value {
    /// In words, with these for true and false.
    pub fn text(self, yes: &str, no: &str) -> String {
        match self {
            Is(is) => if is { yes } else { no }.to_string(),
            UpTo(most) => most.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_titles_are_unique() {
        let names: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.0).collect();
        let titles: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.1).collect();
        assert_eq!((names.len(), titles.len()), (FEATURES.len(), FEATURES.len()));
    }
}
