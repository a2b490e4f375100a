//! What translation and the datapath support, by Open vSwitch's names: those of the commands
//! `dpif/show-dp-features` and of the database's column `capabilities` (ovs-vswitchd.conf.db(5), Datapath).

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The extent of a feature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value {
    /// Supported or not.
    Is(bool),
    /// Supported up to this number or depth.
    UpTo(usize),
}
use Value::{Is, UpTo};

/// A row of [`FEATURES`].
#[derive(Clone, Copy, Debug)]
pub struct Feature {
    /// Its name in commands.
    pub name: &'static str,
    /// Its name in output.
    pub title: &'static str,
    /// Its extent.
    pub value: Value,
    /// Its name in the log at start-up. Empty: not logged.
    in_log: &'static str,
}

const fn feature(name: &'static str, title: &'static str, value: Value, in_log: &'static str) -> Feature {
    Feature { name, title, value, in_log }
}

/// All features, in order of output.
pub const FEATURES: &[Feature] = &[
    feature("masked_set_action", "Masked set action", Is(true), ""),
    feature("tnl_push_pop", "Tunnel push pop", Is(false), ""),
    feature("ufid", "Ufid", Is(true), "unique flow ids"),
    feature("trunc", "Truncate action", Is(true), "truncate action"),
    feature("clone", "Clone action", Is(true), "clone action"),
    feature("sample_nesting", "Sample nesting", UpTo(10), "Max sample nesting level probed as"),
    feature("ct_eventmask", "Conntrack eventmask", Is(true), "eventmask in conntrack action"),
    feature("ct_clear", "Conntrack clear", Is(true), "ct_clear action"),
    feature("max_hash_alg", "Max dp_hash algorithm", UpTo(1), "Max dp_hash algorithm probed to be"),
    feature("check_pkt_len", "Check pkt length action", Is(true), "check_pkt_len action"),
    feature("ct_timeout", "Conntrack timeout policy", Is(true), "timeout policy in conntrack action"),
    feature("explicit_drop_action", "Explicit Drop action", Is(true), ""),
    feature("lb_output_action", "Optimized Balance TCP mode", Is(false), ""),
    feature("ct_zero_snat", "Conntrack all-zero IP SNAT", Is(true), "ct_zero_snat"),
    feature("add_mpls", "MPLS Label add", Is(true), "add_mpls action"),
    feature("max_vlan_headers", "Max VLAN headers", UpTo(2), "VLAN header stack length probed as"),
    feature("max_mpls_depth", "Max MPLS depth", UpTo(3), "MPLS label stack length probed as"),
    feature("recirc", "Recirc", Is(true), "recirculation"),
    feature("ct_state", "CT state", Is(true), "ct_state"),
    feature("ct_zone", "CT zone", Is(true), "ct_zone"),
    feature("ct_mark", "CT mark", Is(true), "ct_mark"),
    feature("ct_label", "CT label", Is(true), "ct_label"),
    feature("ct_state_nat", "CT state NAT", Is(true), "ct_state_nat"),
    feature("ct_orig_tuple", "CT orig tuple", Is(true), "ct_orig_tuple"),
    feature("ct_orig_tuple6", "CT orig tuple for IPv6", Is(true), "ct_orig_tuple6"),
    feature("nd_ext", "IPv6 ND Extension", Is(true), "IPv6 ND Extensions"),
];

/// The nesting depth of samples that is needed to replace a clone, as in Open vSwitch.
const NESTING_FOR_CLONE: usize = 4;

/// Which optional features translation uses.
pub struct InUse {
    clone: AtomicBool,
    sample_nesting: AtomicUsize,
    check_pkt_len: AtomicBool,
}

impl InUse {
    pub(crate) const fn all() -> InUse {
        InUse {
            clone: AtomicBool::new(true),
            sample_nesting: AtomicUsize::new(10),
            check_pkt_len: AtomicBool::new(true),
        }
    }

    pub(crate) fn clone_action(&self) -> bool {
        self.clone.load(Relaxed)
    }

    /// Whether a sample with probability 1 can do a clone's work.
    pub(crate) fn samples_clone(&self) -> bool {
        self.sample_nesting.load(Relaxed) >= NESTING_FOR_CLONE
    }

    pub(crate) fn check_pkt_len(&self) -> bool {
        self.check_pkt_len.load(Relaxed)
    }

    /// To what extent translation uses a feature.
    pub fn measure(&self, feature: &Feature) -> Value {
        match feature.name {
            "clone" => Is(self.clone_action()),
            "sample_nesting" => UpTo(self.sample_nesting.load(Relaxed)),
            "check_pkt_len" => Is(self.check_pkt_len()),
            _ => feature.value,
        }
    }

    /// Makes translation use a feature to this extent; false if only another extent is supported. Cached
    /// flows stay as they are.
    pub fn set(&self, feature: &Feature, value: Value) -> bool {
        match (feature.name, value) {
            ("clone", Is(is)) => self.clone.store(is, Relaxed),
            ("sample_nesting", UpTo(most)) => self.sample_nesting.store(most, Relaxed),
            ("check_pkt_len", Is(is)) => self.check_pkt_len.store(is, Relaxed),
            _ => return value == feature.value,
        }
        true
    }
}

impl Feature {
    /// The line in the log at start-up, if any.
    pub fn told(&self) -> Option<String> {
        let what = Some(self.in_log).filter(|what| !what.is_empty())?;
        Some(match self.value {
            Is(true) => format!("Datapath supports {what}"),
            Is(false) => format!("Datapath does not support {what}"),
            UpTo(most) => format!("{what} {most}"),
        })
    }
}

impl Value {
    /// Whether this is more than the other.
    pub fn exceeds(self, other: Value) -> bool {
        match (self, other) {
            (Is(this), Is(that)) => this && !that,
            (UpTo(this), UpTo(that)) => this > that,
            _ => false,
        }
    }

    /// As text, with these words for true and false.
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
        let names: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.name).collect();
        let titles: std::collections::BTreeSet<_> = FEATURES.iter().map(|row| row.title).collect();
        assert_eq!((names.len(), titles.len()), (FEATURES.len(), FEATURES.len()));
    }
}
