//! A firewall by `ct` and real programs that talk through it, short: `make interop` has the same for every
//! kind of translation, each way, in both IP versions.

use crate::firewall_rig::{Family, Fault, Nat, Policy, Program, Rig, Side};

#[test]
fn programs_talk_through_a_stateful_firewall_and_its_faults_stop_them() {
    let rig = Rig::start();
    for (family, nat, inside) in [
        (Family::V4, Nat::None, Side::West),
        (Family::V4, Nat::Destination, Side::East),
        (Family::V6, Nat::Source, Side::West),
    ] {
        let policy = Policy { family, nat, inside };
        let programs = Program::all(family);
        rig.passes(policy, &programs);
        rig.fails(policy, Fault::Commit, &programs);
    }
}
