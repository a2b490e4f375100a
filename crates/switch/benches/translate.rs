//! What does a miss cost in the pipeline, with few and with many exact rules and under NORMAL; what does
//! asking whether a flow was touched cost; how fast do rules load, and what memory do they take?
//!
//! `cargo bench -p switch --bench translate [NAME]`: nanoseconds of the thread's CPU time, the median of 15
//! runs.

use base::clock::thread_cpu_ns;
use base::hash::HashKey;
use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo, Version};
use datapath::pipeline::FlowView;
use datapath::{Pipeline, Translation};
use flow::{Action, FieldId, Key, Match};
use std::hint::black_box;
use std::sync::Arc;
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, Effect, PortSpec, Switch};

const RUNS: u64 = 15;

fn mix(i: u64) -> u64 {
    let z = (i ^ (i >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

struct Rig {
    control: Control,
    switch: Arc<Switch>,
    reader: Reader,
    br: BridgeIdx,
}

fn rig() -> Rig {
    let domain = Domain::new();
    let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(1));
    let br = control.add_bridge(BridgeConfig::new("br0"));
    for n in 1..=2 {
        control.add_port(br, PortSpec::new(PortNo(n), OfPort(n as u16), "p")).expect("a free number");
    }
    Rig { control, switch, reader: domain.register(), br }
}

fn exact(i: u64) -> Match {
    Match::any()
        .with(FieldId::InPort, 1)
        .with(FieldId::EthType, 0x800)
        .with(FieldId::NwSrc, u128::from(0x0a00_0000 + i))
        .with(FieldId::NwDst, u128::from(0x0b00_0000 + i))
}

fn output(port: OfPort) -> Action {
    Action::Output { port, max_len: 0 }
}

fn packet(i: u64) -> Key {
    let mut key = Key::default();
    let fields = [
        (FieldId::DpPort, 1),
        (FieldId::InPort, 1),
        (FieldId::EthType, 0x800),
        (FieldId::EthSrc, 0x0200_0000_0001),
        (FieldId::EthDst, 0x0200_0000_0002),
        (FieldId::NwSrc, u128::from(0x0a00_0000 + i)),
        (FieldId::NwDst, u128::from(0x0b00_0000 + i)),
        (FieldId::NwProto, 17),
        (FieldId::NwTtl, 64),
        (FieldId::TpSrc, 1000),
        (FieldId::TpDst, 2000),
    ];
    for (f, v) in fields {
        key.set(f, v);
    }
    key
}

/// Nanoseconds per call, the median of the runs.
fn measure(name: &str, filter: Option<&str>, calls: u64, mut call: impl FnMut(u64)) {
    if filter.is_some_and(|f| !name.contains(f)) {
        return;
    }
    let mut runs: Vec<f64> = (0..RUNS)
        .map(|run| {
            let started = thread_cpu_ns();
            for i in 0..calls {
                call(run * calls + i);
            }
            (thread_cpu_ns() - started) as f64 / calls as f64
        })
        .collect();
    runs.sort_by(f64::total_cmp);
    println!("{name:<40} {:>8.1} ns   (fastest {:.1})", runs[runs.len() / 2], runs[0]);
}

fn main() {
    let filter = std::env::args().skip(1).find(|a| !a.starts_with('-'));
    let filter = filter.as_deref();
    for rules in [10u64, 100_000] {
        let mut r = rig();
        for i in 0..rules {
            let fm = FlowMod::add(exact(i), vec![output(OfPort(2))]);
            r.control.flow_mod(r.br, &fm, 0).expect("a good rule");
        }
        translate(&format!("translate/exact/{rules}_rules"), &r, filter, rules);
        touched(&r, filter, rules);
    }
    let mut r = rig();
    let fm = FlowMod::add(Match::any(), vec![output(OfPort::NORMAL)]);
    r.control.flow_mod(r.br, &fm, 0).expect("a good rule");
    translate("translate/normal/learning", &r, filter, 10);
    loading(filter);
}

fn translate(name: &str, r: &Rig, filter: Option<&str>, flows: u64) {
    let mut out = Translation::<Effect>::default();
    let mut key = packet(0);
    let version = r.switch.version();
    measure(name, filter, 50_000, |i| {
        let flow = mix(i) % flows;
        key.set(FieldId::NwSrc, u128::from(0x0a00_0000 + flow));
        key.set(FieldId::NwDst, u128::from(0x0b00_0000 + flow));
        out.clear();
        r.switch.translate(version, black_box(&key), &r.reader, &mut out);
        black_box(&out);
    });
}

/// The common case: one table, one mask of changes, nothing rewritten, and the flow's version is behind.
fn touched(r: &Rig, filter: Option<&str>, flows: u64) {
    let key = packet(flows / 2);
    let mut t = Translation::<Effect>::default();
    r.switch.translate(r.switch.version(), &key, &r.reader, &mut t);
    let view = FlowView { key: &key, mask: &t.mask, visits: &t.visits, rewrites: &t.rewrites };
    let now = r.switch.version();
    let since = Version(now.0 - 1);
    measure(&format!("touched/one_mask/{flows}_rules"), filter, 1_000_000, |_| {
        black_box(r.switch.touched(black_box(view), black_box(since), now, &r.reader));
    });
}

fn loading(filter: Option<&str>) {
    if filter.is_some_and(|f| !"load".contains(f)) {
        return;
    }
    const RULES: u64 = 1_000_000;
    let mut r = rig();
    let mods: Vec<FlowMod> = (0..1000).map(|i| FlowMod::add(exact(i), vec![output(OfPort(2))])).collect();
    let mut mods = mods;
    let mut spent = 0;
    for chunk in 0..RULES / 1000 {
        for (i, fm) in mods.iter_mut().enumerate() {
            fm.matching = exact(chunk * 1000 + i as u64);
        }
        let started = thread_cpu_ns();
        for fm in &mods {
            r.control.flow_mod(r.br, fm, 0).expect("a good rule");
        }
        spent += thread_cpu_ns() - started;
        r.reader.quiescent();
        r.control.tick(chunk);
    }
    println!("{:<40} {:>8.1} ns", "load/1m_rules/per_rule", spent as f64 / RULES as f64);
    println!(
        "{:<40} {:>8} bytes",
        "load/1m_rules/memory_per_rule",
        r.control.rules_memory_bytes() as u64 / RULES
    );
    let started = thread_cpu_ns();
    r.control.flow_mod(r.br, &FlowMod::delete(Match::any()), 0).expect("a good deletion");
    let spent = thread_cpu_ns() - started;
    println!("{:<40} {:>8.1} ns", "load/delete_all/per_rule", spent as f64 / RULES as f64);
}
