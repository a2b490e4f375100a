//! The commands of the control socket, in one table. Their texts are those of Open vSwitch's, which scripts read.

pub(crate) mod coverage;
pub(crate) mod datapath;
mod dummy;
mod fdb;
mod qos;
mod switching;
pub(crate) mod time;

use crate::service::Shared;
use crate::state::Vswitch;
use crate::unixctl::{self, Command, Request};

const fn row(
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&mut Vswitch, &[String]) -> Result<String, String>,
) -> Command<Vswitch> {
    Command { name, usage, args_min, args_max, run }
}

const MANY: usize = usize::MAX;

const COMMANDS: &[Command<Vswitch>] = &[
    row("bridge/dump-flows", "[--offload-stats] bridge", 1, 2, switching::dump_flows),
    row("bridge/reconnect", "[bridge]", 0, 1, switching::reconnect),
    row("coverage/read-counter", "COUNTER", 1, 1, coverage::read_counter),
    row("coverage/show", "", 0, 0, coverage::show),
    row("crosspoint/block", "MILLISECONDS", 1, 1, dummy::block),
    row("crosspoint/drops", "", 0, 0, datapath::drops),
    row("dpctl/del-flows", "[dp]", 0, 1, datapath::del_flows),
    row("dpctl/dump-dps", "", 0, 0, datapath::dump_dps),
    row("dpctl/dump-flows", "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]", 0, 6, datapath::dump_flows),
    row("dpctl/show", "[-s] [dp...]", 0, MANY, datapath::show),
    row(
        "dpif-netdev/pmd-perf-show",
        "[-nh] [-it iter-history-len] [-ms ms-history-len] [-pmd core] [dp]",
        0,
        8,
        datapath::pmd_perf_show,
    ),
    row("dpif-netdev/pmd-rxq-rebalance", "[dp]", 0, 1, datapath::pmd_rxq_rebalance),
    row("dpif-netdev/pmd-rxq-show", "[-pmd core] [-secs secs] [dp]", 0, 5, datapath::pmd_rxq_show),
    row("dpif-netdev/pmd-stats-clear", "[-pmd core] [dp]", 0, 3, datapath::pmd_stats_clear),
    row("dpif-netdev/pmd-stats-show", "[-pmd core] [dp]", 0, 3, datapath::pmd_stats_show),
    row("dpif/dump-dps", "", 0, 0, datapath::dpif_dump_dps),
    row("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1, MANY, datapath::dpif_dump_flows),
    row("dpif/show", "", 0, 0, datapath::dpif_show),
    row("exit", "[--cleanup]", 0, 1, dummy::exit),
    row("fdb/add", "bridge port vlan mac", 4, 4, fdb::add),
    row("fdb/del", "bridge vlan mac", 3, 3, fdb::del),
    row("fdb/flush", "[bridge]", 0, 1, fdb::flush),
    row("fdb/show", "bridge", 1, 1, fdb::show),
    row("fdb/stats-clear", "[bridge]", 0, 1, fdb::stats_clear),
    row("fdb/stats-show", "bridge", 1, 1, fdb::stats_show),
    row("memory/show", "", 0, 0, coverage::memory),
    row(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2,
        MANY,
        dummy::receive,
    ),
    row("netdev-dummy/sent", "name", 1, 1, dummy::sent),
    row("netdev-dummy/set-admin-state", "[netdev] up|down", 1, 2, dummy::set_admin_state),
    row("ofproto/list", "", 0, 0, switching::list),
    row("ofproto/list-tunnels", "", 0, 0, switching::list_tunnels),
    row(
        "ofproto/trace",
        "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        1,
        5,
        switching::trace,
    ),
    row("qos/show", "interface", 1, 1, qos::show),
    row("qos/show-types", "interface", 1, 1, qos::show_types),
    row("revalidator/purge", "", 0, 0, datapath::purge),
    row("revalidator/wait", "", 0, 0, datapath::wait),
    row("time/stop", "", 0, 0, time::stop),
    row("time/warp", "[large_msecs] msecs", 1, 2, time::warp),
    row("upcall/disable-megaflows", "", 0, 0, datapath::disable_megaflows),
    row("upcall/disable-ufid", "", 0, 0, datapath::disable_ufid),
    row("upcall/enable-megaflows", "", 0, 0, datapath::enable_megaflows),
    row("upcall/enable-ufid", "", 0, 0, datapath::enable_ufid),
    row("upcall/set-flow-limit", "flow-limit-number", 1, 1, datapath::set_flow_limit),
    row("upcall/show", "", 0, 0, datapath::upcall_show),
];

const STANDARD: &[Command<Vswitch>] = &unixctl::standard::commands();

/// Commands that are there for tests, and not shown.
const HIDDEN: &[&str] = &["crosspoint/block"];

/// Runs a request, and waits for what it has begun.
pub(crate) async fn run(shared: &Shared, request: &Request) -> Result<String, String> {
    let (result, warp) = {
        let vswitch = &mut *shared.borrow_mut();
        vswitch.counts.unixctl_received += 1;
        let result = unixctl::run(&[COMMANDS, STANDARD], HIDDEN, vswitch, request);
        vswitch.deliver();
        (result, vswitch.warp.take())
    };
    if let Some(warp) = warp {
        warp.run(shared).await;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_hidden_ones_exist() {
        assert!(COMMANDS.is_sorted_by_key(|c| c.name));
        assert!(HIDDEN.iter().all(|h| COMMANDS.iter().any(|c| c.name == *h)));
    }
}
