//! `coverage/*` and `memory/show`: how often things happened, and what they take.

use crate::state::Vswitch;
use base::DropReason;
use std::fmt::Write;

/// Every counter with its name. Those of drops carry the names that Open vSwitch gives its own.
fn counters(vswitch: &Vswitch) -> Vec<(String, u64)> {
    let c = &vswitch.counts;
    let workers = || (0..vswitch.dp.workers()).map(|n| vswitch.dp.worker_stats(n));
    let sum = |f: fn(&datapath::WorkerStats) -> u64| workers().map(f).sum();
    let mut all: Vec<(String, u64)> = [
        ("datapath_effects", c.effects),
        ("datapath_effects_refused", sum(|w| w.effects_refused.get())),
        ("datapath_flow_evicted", sum(|w| w.evictions.get())),
        ("datapath_flow_not_cached", sum(|w| w.not_cached.get())),
        ("datapath_flow_touched", sum(|w| w.touched.get())),
        ("ofproto_flow_mod", c.flow_mods),
        ("ofproto_flow_removed", c.flows_removed),
        ("ofproto_packet_in", c.packet_ins),
        ("ofproto_packet_in_lost", c.packet_ins_lost),
        ("ofproto_packet_out", c.packet_outs),
        ("ofproto_recv_openflow", c.openflow_received),
        ("ofproto_refused", c.openflow_errors),
        ("unixctl_received", c.unixctl_received),
        ("xlate_actions", sum(|w| w.misses.get())),
    ]
    .into_iter()
    .map(|(name, n)| (name.to_string(), n))
    .collect();
    let drops = DropReason::ALL.iter().map(|r| (format!("drop_{}", r.name()), vswitch.dp.drops(*r)));
    all.extend(drops);
    all
}

pub fn read_counter(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let found = counters(vswitch).into_iter().find(|(name, _)| *name == args[0]);
    found.map(|(_, count)| count.to_string()).ok_or_else(|| "No such counter".into())
}

pub fn show(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let (hit, never): (Vec<_>, Vec<_>) = counters(vswitch).into_iter().partition(|(_, n)| *n > 0);
    let mut text = "Event coverage:\n".to_string();
    for (name, count) in hit {
        let _ = writeln!(text, "{name:<24} total: {count}");
    }
    let _ = writeln!(text, "{} events never hit", never.len());
    Ok(text)
}

pub fn memory(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let ports = vswitch.ports.len();
    let bridges: Vec<_> = vswitch.bridges.keys().copied().collect();
    let tables = bridges.iter().flat_map(|b| vswitch.control.table_stats(*b));
    let rules: usize = tables.map(|t| t.active).sum();
    let ofconns: usize = vswitch.bridges.values().map(|b| b.conns.len()).sum();
    let workers = || (0..vswitch.dp.workers()).map(|n| vswitch.dp.worker_stats(n));
    let flows: u64 = workers().map(|w| w.megaflows.get()).sum();
    let cache_bytes: u64 = workers().map(|w| w.cache_bytes.get()).sum();
    let pool = vswitch.dp.pool();
    Ok(format!(
        "devices-leaving:{} flows:{flows} flow-cache-bytes:{cache_bytes} handlers:0 ofconns:{ofconns} packet-pool-bytes:{} \
         packet-pool-free:{} ports:{ports} revalidators:0 rules:{rules} rule-bytes:{}\n",
        vswitch.janitor.waiting(),
        pool.len_bytes(),
        pool.stats().free,
        vswitch.control.rules_memory_bytes()
    ))
}
