//! A firewall by `ct` and real programs that talk through it: every kind of translation, each way, in both IP
//! versions; and each fault that must stop them.

use crate::firewall_rig::{Family, Fault, Nat, Policy, Program, Rig, Side, Transfer};

fn policies() -> impl Iterator<Item = Policy> {
    let families = [Family::V4, Family::V6].into_iter();
    families.flat_map(|family| {
        [Nat::None, Nat::Source, Nat::Destination].into_iter().flat_map(move |nat| {
            [Side::West, Side::East].into_iter().map(move |inside| Policy { family, nat, inside })
        })
    })
}

#[test]
fn programs_talk_through_a_stateful_firewall_with_and_without_translation() {
    let rig = Rig::start();
    for policy in policies() {
        let mut programs = Program::all_sizes(20, 1_000);
        programs.extend(Transfer::all(policy.family).into_iter().map(Program::Ftp));
        rig.passes(policy, &programs);
    }
}

#[test]
fn each_fault_of_the_firewall_stops_the_programs_that_need_what_is_missing() {
    let rig = Rig::start();
    let large = [
        Program::Ping { bytes: 6_000 },
        Program::Udp { is_back: false, bytes: 8_000, count: 10 },
        Program::Udp { is_back: true, bytes: 8_000, count: 10 },
    ];
    for policy in policies() {
        let all = Program::all(policy.family);
        let ftp: Vec<Program> = Transfer::all(policy.family).into_iter().map(Program::Ftp).collect();
        rig.fails(policy, Fault::Commit, &all);
        if policy.nat != Nat::None {
            rig.fails(policy, Fault::Translation, &all);
            rig.fails(policy, Fault::TranslationBack, &all);
        }
        rig.fails(policy, Fault::Helper, &ftp);
        rig.fails(policy, Fault::Related, &[&ftp[..], &[Program::Route]].concat());
        rig.fails(policy, Fault::Reassembly, &large);
    }
}
