//! `coverage/*` and `memory/show`: how often events occurred, and how much memory is used.

use crate::state::Vswitch;
use base::DropReason;
use std::fmt::Write;

/// Every counter with its name. Drops are counted by our reasons, and by the names that Open vSwitch has.
fn counters(vswitch: &Vswitch) -> Vec<(String, u64)> {
    let c = &vswitch.counts;
    let workers = || (0..vswitch.plane.dp.workers()).map(|n| vswitch.plane.dp.worker_stats(n));
    let sum = |f: fn(&datapath::WorkerStats) -> u64| workers().map(f).sum();
    let fdb = |f: fn(&switch::control::FdbStats) -> u64| -> u64 {
        vswitch.bridges.keys().map(|bridge| f(&vswitch.plane.control.fdb_stats(*bridge))).sum()
    };
    let mut all: Vec<(String, u64)> = [
        ("bridge_reconfigure", c.reconfigures),
        ("datapath_effects", c.effects),
        ("datapath_effects_refused", sum(|w| w.effects_refused.get())),
        ("datapath_flow_evicted", sum(|w| w.evictions.get())),
        ("datapath_flow_not_cached", sum(|w| w.not_cached.get())),
        ("datapath_flow_touched", sum(|w| w.touched.get())),
        ("datapath_followed", sum(|w| w.followed.get())),
        ("datapath_origins_full", sum(|w| w.origins_full.get())),
        ("datapath_rx_held_back", sum(|w| w.held_back.get())),
        ("dpif_execute", c.packet_outs),
        ("dpif_flow_flush", c.flow_flushes),
        ("dpif_port_add", c.ports_added),
        ("dpif_port_del", c.ports_removed),
        ("flow_extract", sum(|w| w.rx.get() + w.recirculations.get())),
        ("mac_learning_evicted", fdb(|f| f.evicted)),
        ("mac_learning_expired", fdb(|f| f.expired)),
        ("mac_learning_learned", fdb(|f| f.learned)),
        ("mac_learning_moved", fdb(|f| f.moved)),
        ("mac_learning_static_none_move", fdb(|f| f.moves_refused)),
        ("netdev_received", sum(|w| w.rx.get())),
        ("netdev_sent", sum(|w| w.tx.get())),
        ("ofproto_flow_mod", c.flow_mods),
        ("ofproto_flow_removed", c.flows_removed),
        ("ofproto_learn_refused", vswitch.plane.control.learn_refused()),
        ("ofproto_packet_in", c.packet_ins),
        ("ofproto_slow_path", c.slow_path),
        ("ofproto_packet_in_lost", c.packet_ins_lost),
        ("ofproto_packet_out", c.packet_outs),
        ("ofproto_recv_openflow", c.openflow_received),
        ("ofproto_refused", c.openflow_errors),
        ("ofproto_update_port", c.port_updates),
        ("txn_error", c.txn_error),
        ("txn_not_locked", c.txn_not_locked),
        ("txn_success", c.txn_success),
        ("txn_try_again", c.txn_try_again),
        ("txn_unchanged", c.txn_unchanged),
        ("unixctl_cut", transport::unixctl::cut()),
        ("unixctl_received", c.unixctl_received),
        // One at a time, this one included.
        ("unixctl_replied", c.unixctl_received),
        ("vconn_cut", c.connections_cut),
        ("vconn_received", c.openflow_received),
        ("xlate_actions", sum(|w| w.misses.get())),
    ]
    .into_iter()
    .map(|(name, n)| (name.to_string(), n))
    .collect();
    all.extend(vswitch.plane.dp.tracker().refused().map(|(name, n)| (name.to_string(), n)));
    let drops = vswitch.plane.dp.all_drops();
    let of = |reasons: &[DropReason]| drops.iter().filter(|(r, _)| reasons.contains(r)).map(|(_, n)| n).sum();
    all.extend(STOCK_DROPS.iter().map(|(name, reasons)| (name.to_string(), of(reasons))));
    all.extend(drops.iter().map(|(r, count)| (format!("drop_{}", r.name()), *count)));
    all
}

/// Which drop reasons correspond to Open vSwitch's drop counters.
const STOCK_DROPS: &[(&str, &[DropReason])] = {
    use DropReason::*;
    &[
        ("datapath_drop_invalid_port", &[OutputPortGone]),
        ("datapath_drop_meter", &[MeterDrop]),
        ("datapath_drop_recirc_error", &[RecircDepth, RecircQueueFull]),
        ("datapath_drop_rx_invalid_packet", &[RxTruncated]),
        ("datapath_drop_userspace_action_error", &[PacketInRingFull]),
        ("drop_action_bridge_not_found", &[RxNoBridge]),
        ("drop_action_forwarding_disabled", &[TxPortDown]),
        ("drop_action_no_recirculation_context", &[RecircUnknown]),
        (
            "drop_action_of_pipeline",
            &[
                ActionDrop,
                Fragment,
                TableMiss,
                NoOutput,
                NoLiveBucket,
                VlanViolation,
                ReservedMulticast,
                TtlExpired,
            ],
        ),
        ("drop_action_recursion_too_deep", &[ResubmitDepth]),
        ("drop_action_stack_too_deep", &[StackLimit]),
        ("drop_action_too_many_mpls_labels", &[MplsLabelLimit]),
        ("drop_action_too_many_resubmit", &[ResubmitLimit]),
        ("drop_action_unsupported_packet_type", &[UnsupportedPacketType]),
    ]
};

/// The names of Open vSwitch's counters, sorted.
#[rustfmt::skip]
const STOCK: &[&str] = &[
    "afxdp_cq_empty", "afxdp_cq_skip", "afxdp_fq_full", "afxdp_tx_full", "bridge_reconfigure",
    "ccmap_expand", "ccmap_shrink", "cmap_expand", "cmap_shrink", "conntrack_full",
    "conntrack_invalid_tcp_flags", "conntrack_l3csum_err", "conntrack_l4csum_err",
    "conntrack_lookup_natted_miss", "conntrack_tcp_seq_chk_bypass", "conntrack_tcp_seq_chk_failed",
    "datapath_drop_invalid_bond", "datapath_drop_invalid_port", "datapath_drop_invalid_tnl_port",
    "datapath_drop_lock_error", "datapath_drop_meter", "datapath_drop_nsh_decap_error",
    "datapath_drop_recirc_error", "datapath_drop_rx_invalid_packet", "datapath_drop_sample_error",
    "datapath_drop_tunnel_pop_error", "datapath_drop_tunnel_push_error", "datapath_drop_upcall_error",
    "datapath_drop_userspace_action_error", "dpif_destroy", "dpif_execute", "dpif_execute_with_help",
    "dpif_flow_del", "dpif_flow_flush", "dpif_flow_get", "dpif_flow_put", "dpif_meter_del",
    "dpif_meter_get", "dpif_meter_set", "dpif_port_add", "dpif_port_del", "dpif_purge",
    "drop_action_bridge_not_found", "drop_action_congestion", "drop_action_forwarding_disabled",
    "drop_action_invalid_tunnel_metadata", "drop_action_no_recirculation_context",
    "drop_action_of_pipeline", "drop_action_recirculation_conflict", "drop_action_recursion_too_deep",
    "drop_action_stack_too_deep", "drop_action_too_many_mpls_labels", "drop_action_too_many_resubmit",
    "drop_action_unsupported_packet_type", "dumped_duplicate_flow", "dumped_new_flow", "flow_extract",
    "handler_duplicate_upcall", "hindex_expand", "hindex_pathological", "hindex_reserve",
    "hindex_shrink", "hmap_expand", "hmap_pathological", "hmap_reserve", "hmap_shrink", "ipf_l3csum_err",
    "ipf_stuck_frag_list_purged", "lockfile_error", "lockfile_lock", "lockfile_unlock",
    "mac_learning_evicted", "mac_learning_expired", "mac_learning_learned", "mac_learning_moved",
    "mcast_snooping_expired", "mcast_snooping_learned",
    "miniflow_extract_ipv4_pkt_len_error", "miniflow_extract_ipv4_pkt_too_short",
    "miniflow_extract_ipv6_pkt_len_error", "miniflow_extract_ipv6_pkt_too_short", "miniflow_malloc",
    "netdev_add_router", "netdev_arp_lookup", "netdev_get_ethtool", "netdev_get_hwaddr",
    "netdev_get_ifindex", "netdev_get_stats", "netdev_push_header_drops", "netdev_received",
    "netdev_send_prepare_drops", "netdev_sent", "netdev_set_ethtool", "netdev_set_hwaddr",
    "netdev_set_policing", "netlink_overflow", "netlink_received", "netlink_recv_jumbo", "netlink_sent",
    "nln_changed", "ofmonitor_pause", "ofmonitor_resume", "ofproto_dpif_expired", "ofproto_flush",
    "ofproto_packet_out", "ofproto_queue_req", "ofproto_recv_openflow", "ofproto_reinit_ports",
    "ofproto_update_port", "packet_in_overflow", "poll_create_node", "poll_zero_timeout",
    "process_start", "pstream_open", "rconn_discarded", "rconn_overflow", "rconn_queued", "rconn_sent",
    "rev_bond", "rev_flow_table", "rev_mac_learning", "rev_mcast_snooping", "rev_port_toggled",
    "rev_reconfigure", "rev_rstp", "rev_stp", "revalidate_missed_dp_flow", "seq_change", "txn_aborted",
    "txn_error", "txn_incomplete", "txn_not_locked", "txn_success", "txn_try_again", "txn_unchanged",
    "txn_uncommitted", "unixctl_received", "unixctl_replied", "upcall_flow_limit_hit",
    "upcall_flow_limit_kill", "upcall_ukey_contention", "upcall_ukey_replace", "util_xalloc",
    "vconn_open", "vconn_received", "vconn_sent", "xlate_actions", "xlate_actions_oversize",
    "xlate_actions_too_many_output",
];

pub fn read_counter(vswitch: &mut Vswitch, args: &[String]) -> Result<String, String> {
    let found = counters(vswitch).into_iter().find(|(name, _)| *name == args[0]);
    match found {
        Some((_, count)) => Ok(count.to_string()),
        // An event that Open vSwitch counts, but that does not exist here, has never occurred.
        None if STOCK.binary_search(&args[0].as_str()).is_ok() => Ok("0".into()),
        None => Err("No such counter".into()),
    }
}

impl Vswitch {
    /// Called with the periodic work.
    pub(crate) fn sample_coverage(&mut self, now_ms: u64) {
        if self.commands.coverage.is_due(now_ms) {
            let counts = counters(self).into_iter().map(|(_, count)| count).collect();
            self.commands.coverage.sample(now_ms, counts);
        }
    }
}

pub fn show(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let all = counters(vswitch);
    // Tells at a glance whether two switches did the same things: FNV-1a of the names of what happened at
    // all.
    let hit_names = all.iter().filter(|(_, count)| *count > 0).flat_map(|(name, _)| name.bytes());
    let hash =
        hit_names.fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let mut text =
        format!("Event coverage, avg rate over last: 5 seconds, last minute, last hour,  hash={hash:08x}:\n");
    let mut never = 0;
    for (i, (name, count)) in all.iter().enumerate() {
        if *count == 0 {
            never += 1;
            continue;
        }
        let [step, minute, hour] = vswitch.commands.coverage.rates(i);
        let _ =
            writeln!(text, "{name:<24} {step:>5.1}/sec {minute:>9.3}/sec {hour:>13.4}/sec   total: {count}");
    }
    let _ = writeln!(text, "{never} events never hit");
    Ok(text)
}

pub fn memory(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    Ok(memory_usage(vswitch))
}

/// What memory is used for.
pub fn memory_usage(vswitch: &Vswitch) -> String {
    let ports = vswitch.devices.ports.len();
    let bridges: Vec<_> = vswitch.bridges.keys().copied().collect();
    let tables = bridges.iter().flat_map(|b| vswitch.plane.control.table_stats(*b));
    let rules: usize = tables.map(|t| t.active).sum();
    let ofconns: usize = vswitch.bridges.values().map(|b| b.conns.len()).sum();
    let workers = || (0..vswitch.plane.dp.workers()).map(|n| vswitch.plane.dp.worker_stats(n));
    let flows: u64 = workers().map(|w| w.megaflows.get()).sum();
    let cache_bytes: u64 = workers().map(|w| w.cache_bytes.get()).sum();
    let pool = vswitch.plane.dp.pool();
    format!(
        "devices-leaving:{} flows:{flows} flow-cache-bytes:{cache_bytes} handlers:0 ofconns:{ofconns} packet-pool-bytes:{} \
         packet-pool-free:{} ports:{ports} revalidators:0 rules:{rules} rule-bytes:{}\n",
        vswitch.devices.leaving(),
        pool.len_bytes(),
        pool.stats().free,
        vswitch.plane.control.rules_memory_bytes()
    )
}
