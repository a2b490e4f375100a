//! Rules that `learn` makes of packets: through the caches the same packets teach something, and all others
//! go where the learned rules lead, as without caches. Learned rules are deleted meanwhile, and what they
//! were made of moves to other ports.
//!
//! The test plays the control thread, which translates the packets that teach.

use base::rcu::Domain;
use base::{OfPort, PortNo};
use datapath::{Config, DpAction, ExactTier, Pipeline, Translation};
use flow::{Depth, FieldId, Ingress, Match, extract_keeping_metadata};
use openflow::text::{ActionsIn, PortNames, parse_actions};
use oracle::common::chance::Chance;
use oracle::home::{bridge_of, udp_frame};
use oracle::pipelines::Mistake;
use oracle::rig::{Pair, Told, pool_is_whole};
use std::sync::Arc;
use switch::control::FlowMod;
use switch::{Control, Switch};

const HOSTS: u64 = 8;

/// What the first table may teach the second one.
const LESSONS: [&str; 3] = [
    "learn(table=1,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
    "learn(table=1,priority=7,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],output:NXM_OF_IN_PORT[]),\
     resubmit(,1)",
    "learn(table=1,eth_type=0x800,NXM_OF_IP_DST[]=NXM_OF_IP_SRC[],load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15],\
     output:NXM_NX_REG0[0..15]),resubmit(,1)",
];

/// What a run covered.
#[derive(Default, Debug)]
struct Coverage {
    taught: u64,
    hits: u64,
    touched: u64,
}

fn frame(source: u64, destination: u64, number: u64) -> Vec<u8> {
    let mut frame = udp_frame();
    (frame[5], frame[11]) = (destination as u8, source as u8);
    (frame[29], frame[33]) = (source as u8, destination as u8);
    let end = frame.len() - 8;
    frame[end..].copy_from_slice(&number.to_be_bytes());
    frame
}

/// What the control thread has done with a packet that teaches, whose lesson is in force afterwards.
fn teach(
    switch: &Switch,
    control: &mut Control,
    domain: &Arc<Domain>,
    told: &Told,
) -> (PortNo, Vec<DpAction>) {
    let mut key = told.spec.metadata.clone();
    let port = key.get64(FieldId::InPort) as u16;
    let dp_port = PortNo(port.into());
    let ingress = Ingress::new(OfPort(port), dp_port, Depth::Everything);
    extract_keeping_metadata(&told.frame, told.frame.len(), &ingress, &mut key).expect("a whole frame");
    let (mut out, reader) = (Translation::default(), domain.register());
    let learned = |bridge, table_id, cookie| control.learned_count(bridge, table_id, cookie);
    switch.translate_for_control(switch.version(), &key, &reader, &learned, &mut out);
    drop(reader);
    control.apply(&out.effects, 0);
    (dp_port, out.actions)
}

fn run(seed: u64, mistake: Mistake) -> Result<Coverage, String> {
    let chance = &mut Chance::new(seed);
    let ports = [1, 2, 3, 4].map(PortNo);
    let (domain, switch, mut control, bridge) = bridge_of(&[1, 2, 3, 4]);
    let exact_tier = *chance.pick(&[ExactTier::On, ExactTier::Off]);
    let config = Config { hash_seed: Some(seed), exact_tier, ..Config::default() };
    let mut pair = Pair::new(&switch, mistake, &domain, config, &ports);
    let rule = |table_id, priority, actions: &str| {
        let actions = parse_actions(actions, ActionsIn::Flow, PortNames::none()).expect("actions");
        let ip = Match::any().with(FieldId::EthType, 0x800);
        FlowMod { table_id, priority, ..FlowMod::add(ip, actions) }
    };
    let add = |control: &mut Control, flow_mod| control.flow_mod(bridge, &flow_mod, 0).expect("a rule");
    add(&mut control, rule(0, 1, LESSONS[0]));
    add(&mut control, rule(1, 0, "flood"));
    let mut homes = [0; HOSTS as usize].map(|_| chance.below(4) as usize);
    let (mut number, mut covered) = (0, Coverage::default());
    for round in 0..40 {
        match chance.below(8) {
            0 => add(&mut control, rule(0, 1, chance.pick::<&str>(&LESSONS))),
            1 | 2 => {
                let host = 0x0200_0000_0000 + u128::from(chance.below(HOSTS));
                let of_host = Match::any().with(FieldId::EthDst, host);
                add(&mut control, FlowMod { table_id: 1, ..FlowMod::delete(of_host) });
            }
            3 => homes[chance.below(HOSTS) as usize] = chance.below(4) as usize,
            _ => {}
        }
        let home = chance.below(4) as usize;
        let here: Vec<u64> = (0..HOSTS).filter(|host| homes[*host as usize] == home).collect();
        if here.is_empty() {
            continue;
        }
        for _ in 0..3 {
            let mut burst = vec![];
            for _ in 0..chance.below(packet::BURST as u64) + 1 {
                number += 1;
                burst.push(frame(*chance.pick(&here), chance.below(HOSTS), number));
            }
            pair.receive(ports[home], burst);
            let [mut told, mut wanted_told] = [pair.cached.events().1, pair.plain.events().1];
            told.sort_by(|a, b| a.frame.cmp(&b.frame));
            wanted_told.sort_by(|a, b| a.frame.cmp(&b.frame));
            if told != wanted_told {
                return Err(format!(
                    "seed {seed}, round {round}: taught by {told:02x?}\n and uncached by {wanted_told:02x?}"
                ));
            }
            covered.taught += told.len() as u64;
            for told in told.iter().filter(|told| told.spec.slow_path) {
                let (port, actions) = teach(&switch, &mut control, &domain, told);
                pair.cached.dp.execute(&told.frame, port, actions.clone());
                pair.plain.dp.execute(&told.frame, port, actions);
            }
            pair.cached.settle();
            pair.plain.settle();
            pair.same_fates().map_err(|e| format!("seed {seed}, round {round}: {e}"))?;
        }
        control.tick(0);
    }
    pair.same_counts(control.slot_count()).map_err(|e| format!("seed {seed}: {e}"))?;
    let stats = pair.cached.dp.worker_stats(0);
    covered.hits = stats.exact_hits.get() + stats.megaflow_hits.get();
    covered.touched = stats.touched.get();
    pair.end()?;
    Ok(covered)
}

#[test]
fn what_is_learned_through_caches_is_what_translation_learns() {
    let mut all = Coverage::default();
    for seed in 0..u64::from(testkit::cases("oracle::learned", 40)) {
        let covered = run(seed, Mistake::None).unwrap_or_else(|e| panic!("{e}"));
        all.taught += covered.taught;
        all.hits += covered.hits;
        all.touched += covered.touched;
    }
    pool_is_whole().unwrap();
    assert!(all.taught > 1_000 && all.hits > 10_000 && all.touched > 100, "{all:?}");
}

fn must_be_found(mistake: Mistake) {
    let is_found = (0..40).any(|seed| run(seed, mistake).is_err());
    assert!(is_found, "{mistake:?} was not found in 40 runs");
}

#[test]
fn a_lesson_that_is_cached_is_found() {
    must_be_found(Mistake::LessonCached);
}

/// The match of the learned rule is what such a flow rewrites.
#[test]
fn a_learned_rule_that_a_flow_forgot_is_found() {
    must_be_found(Mistake::RewritesForgotten);
}

#[test]
fn a_stale_version_of_what_was_learned_is_found() {
    must_be_found(Mistake::StaleVersion);
}
