//! The commands of the control socket, in one table. Their texts are the same as Open vSwitch's, because
//! scripts read them.

mod actions;
mod by_hand;
pub(crate) mod conntrack;
pub(crate) mod coverage;
pub(crate) mod datapath;
mod drops;
pub(crate) mod dummy;
mod fdb;
mod features;
pub(crate) mod flow_log;
mod fragments;
mod implementations;
mod names;
mod operators;
mod qos;
mod switching;
pub(crate) mod time;
mod upcall;
pub(crate) mod waits;

use crate::state::{Shared, Vswitch};
use by_hand::{ADD, DELETE, MODIFY};
use conntrack as ct;
use transport::unixctl::{self, Command, Growing, Request};

const fn row(
    name: &'static str,
    usage: &'static str,
    args_min: usize,
    args_max: usize,
    run: fn(&mut Vswitch, &[String]) -> Result<String, String>,
) -> Command<Vswitch> {
    Command { name, usage, args_min, args_max, run }
}

/// Runs a command that asks of the forwarding plane alone, or changes it alone.
macro_rules! plane {
    ($run:path) => {
        |vswitch: &mut Vswitch, args: &[String]| $run(&mut vswitch.plane, args)
    };
}

const MANY: usize = usize::MAX;

const COMMANDS: &[Command<Vswitch>] = &[
    row("bridge/dump-flows", "[--offload-stats] bridge", 1, 2, switching::dump_flows),
    row("bridge/reconnect", "[bridge]", 0, 1, switching::reconnect),
    row("coverage/read-counter", "COUNTER", 1, 1, coverage::read_counter),
    row("coverage/show", "", 0, 0, coverage::show),
    row("crosspoint/drops", "", 0, 0, drops::drops),
    row("crosspoint/figures", "", 0, 0, drops::figures),
    row("dpctl/cache-get-size", "[dp]", 0, 1, plane!(operators::cache_get_size)),
    row("dpctl/cache-set-size", "dp cache <size>", 3, 3, plane!(operators::cache_set_size)),
    row("dpctl/ct-bkts", "[dp] [gt=N]", 0, 2, ct::buckets),
    row("dpctl/ct-del-limits", "[dp] zone=N1[,N2]...", 1, 2, plane!(ct::del_limits)),
    row("dpctl/ct-disable-tcp-seq-chk", "[dp]", 0, 1, plane!(ct::disable_tcp_seq_chk)),
    row("dpctl/ct-enable-tcp-seq-chk", "[dp]", 0, 1, plane!(ct::enable_tcp_seq_chk)),
    row("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0, 2, plane!(ct::get_limits)),
    row("dpctl/ct-get-maxconns", "[dp]", 0, 1, plane!(ct::get_maxconns)),
    row("dpctl/ct-get-nconns", "[dp]", 0, 1, plane!(ct::get_nconns)),
    row("dpctl/ct-get-sweep-interval", "[dp]", 0, 1, plane!(ct::get_sweep_interval)),
    row("dpctl/ct-get-tcp-seq-chk", "[dp]", 0, 1, plane!(ct::get_tcp_seq_chk)),
    row("dpctl/ct-set-limits", "[dp] [default=L] [zone=N,limit=L]...", 1, MANY, plane!(ct::set_limits)),
    row("dpctl/ct-set-maxconns", "[dp] maxconns", 1, 2, plane!(ct::set_maxconns)),
    row("dpctl/ct-set-sweep-interval", "[dp] ms", 1, 2, plane!(ct::set_sweep_interval)),
    row("dpctl/ct-stats-show", "[dp] [zone=N]", 0, 4, ct::stats_show),
    row("dpctl/del-flows", "[dp] [file]", 0, 2, datapath::del_flows),
    row("dpctl/del-if", "dp iface...", 2, MANY, operators::del_if),
    row("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0, 4, ct::dump),
    row("dpctl/dump-dps", "", 0, 0, datapath::dump_dps),
    row("dpctl/dump-flows", "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]", 0, 6, datapath::dump_flows),
    row("dpctl/flush-conntrack", "[dp] [zone=N] [ct-orig-tuple] [ct-reply-tuple]", 0, 6, ct::flush),
    row("dpctl/get-flow", "[dp] ufid", 1, 3, datapath::get_flow),
    row("dpctl/ipf-get-status", "[dp]", 0, 2, plane!(fragments::get_status)),
    row("dpctl/ipf-set-disabled", "[dp] v4|v6", 1, 2, |v, args| fragments::set(&v.plane, args, false)),
    row("dpctl/ipf-set-enabled", "[dp] v4|v6", 1, 2, |v, args| fragments::set(&v.plane, args, true)),
    row("dpctl/ipf-set-max-nfrags", "[dp] maxfrags", 1, 2, plane!(fragments::set_max_nfrags)),
    row("dpctl/ipf-set-min-frag", "[dp] v4|v6 minfragment", 2, 3, plane!(fragments::set_min_frag)),
    row("dpctl/list-commands", "", 0, 0, list_dpctl),
    row("dpctl/normalize-actions", "actions", 2, MANY, by_hand::normalize_actions),
    row("dpctl/offload-stats-show", "[dp]", 0, 1, plane!(operators::offload_stats_show)),
    row("dpctl/parse-actions", "actions", 1, MANY, by_hand::parse_actions),
    row("dpctl/show", "[-s] [dp...]", 0, MANY, datapath::show),
    row("dpif-netdev/bond-show", "[dp]", 0, 1, plane!(operators::bond_show)),
    row("dpif-netdev/dpif-impl-get", "", 0, 0, implementations::dpif_get),
    row("dpif-netdev/dpif-impl-set", "dpif_implementation_name", 1, 1, implementations::dpif_set),
    row("dpif-netdev/miniflow-parser-get", "", 0, 0, implementations::parser_get),
    row(
        "dpif-netdev/miniflow-parser-set",
        "[-pmd core] miniflow_implementation_name [study_pkt_cnt]",
        1,
        5,
        implementations::parser_set,
    ),
    row(
        "dpif-netdev/pmd-perf-log-set",
        "on|off [-b before] [-a after] [-e|-ne] [-us usec] [-q qlen]",
        0,
        10,
        operators::pmd_perf_log_set,
    ),
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
    row("dpif-netdev/subtable-lookup-info-get", "", 0, 0, implementations::lookup_get),
    row("dpif-netdev/subtable-lookup-prio-get", "", 0, 0, implementations::lookup_get),
    row("dpif-netdev/subtable-lookup-prio-set", "[lookup_func] [prio]", 2, 2, implementations::lookup_set),
    row("dpif/dump-dps", "", 0, 0, datapath::dpif_dump_dps),
    row("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1, MANY, datapath::dpif_dump_flows),
    row("dpif/get-flow", "[dp] ufid", 1, 3, datapath::get_flow),
    row("dpif/set-dp-features", "bridge", 1, 3, features::set),
    row("dpif/show", "", 0, 0, datapath::dpif_show),
    row("dpif/show-dp-features", "bridge", 1, 1, features::show),
    row("exit", "[--cleanup]", 0, 1, dummy::exit),
    row("fdb/add", "bridge port vlan mac", 4, 4, plane!(fdb::add)),
    row("fdb/del", "bridge vlan mac", 3, 3, plane!(fdb::del)),
    row("fdb/flush", "[bridge]", 0, 1, fdb::flush),
    row("fdb/show", "bridge", 1, 1, fdb::show),
    row("fdb/stats-clear", "[bridge]", 0, 1, plane!(fdb::stats_clear)),
    row("fdb/stats-show", "bridge", 1, 1, plane!(fdb::stats_show)),
    row("memory/show", "", 0, 0, coverage::memory),
    row("odp-execute/action-impl-set", "name", 1, 1, implementations::actions_set),
    row("odp-execute/action-impl-show", "", 0, 0, implementations::actions_get),
    row("ofproto/list", "", 0, 0, switching::list),
    row("ofproto/list-tunnels", "", 0, 0, switching::list_tunnels),
    row(
        "ofproto/trace",
        "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]",
        1,
        MANY,
        switching::trace,
    ),
    row(
        "ofproto/trace-packet-out",
        "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions",
        2,
        6,
        switching::trace_packet_out,
    ),
    row("qos/show", "interface", 1, 1, qos::show),
    row("qos/show-types", "interface", 1, 1, qos::show_types),
    row("revalidator/purge", "", 0, 0, datapath::purge),
    row("revalidator/wait", "", 0, 0, flow_log::wait),
    row("upcall/disable-megaflows", "", 0, 0, upcall::disable_megaflows),
    row("upcall/disable-ufid", "", 0, 0, upcall::disable_ufid),
    row("upcall/enable-megaflows", "", 0, 0, upcall::enable_megaflows),
    row("upcall/enable-ufid", "", 0, 0, upcall::enable_ufid),
    row("upcall/set-flow-limit", "flow-limit-number", 1, 1, upcall::set_flow_limit),
    row("upcall/show", "", 0, 0, upcall::show),
];

/// Commands for tests, which exist only with `--enable-dummy`.
const DUMMY: &[Command<Vswitch>] = &[
    row("crosspoint/block", "MILLISECONDS", 1, 1, dummy::block),
    row("dpctl/add-dp", "dp [iface...]", 1, MANY, by_hand::add_dp),
    row("dpctl/add-flow", "[dp] flow actions", 2, 5, |v, args| by_hand::change_one(v, args, ADD)),
    row("dpctl/add-flows", "[dp] file", 1, 4, |v, args| by_hand::change_file(v, args, ADD)),
    row("dpctl/add-if", "dp iface...", 2, MANY, by_hand::add_if),
    row("dpctl/del-dp", "dp", 1, 1, by_hand::del_dp),
    row("dpctl/del-flow", "[dp] flow", 1, 3, |v, args| by_hand::change_one(v, args, DELETE)),
    row("dpctl/mod-flow", "[dp] flow actions", 2, 5, |v, args| by_hand::change_one(v, args, MODIFY)),
    row("dpctl/mod-flows", "[dp] file", 1, 4, |v, args| by_hand::change_file(v, args, MODIFY)),
    row("dpctl/set-if", "dp iface...", 2, MANY, by_hand::set_if),
    row("dpif-dummy/change-port-number", "dp port new-number", 3, 3, dummy::change_port_number),
    row("netdev-dummy/conn-state", "[netdev]", 0, 1, dummy::conn_state),
    row("netdev-dummy/ip4addr", "[netdev] ipaddr/mask-prefix-len", 2, 2, dummy::ip4addr),
    row("netdev-dummy/ip6addr", "[netdev] ip6addr", 2, 2, dummy::ip6addr),
    row(
        "netdev-dummy/receive",
        "name [--qid queue_id] packet|flow [--len packet_len]",
        2,
        MANY,
        dummy::receive,
    ),
    row("netdev-dummy/sent", "name", 1, 1, dummy::sent),
    row("netdev-dummy/set-admin-state", "[netdev] up|down", 1, 2, dummy::set_admin_state),
    row("revalidator/pause", "", 0, 0, by_hand::pause),
    row("revalidator/resume", "", 0, 0, by_hand::resume),
    row("time/stop", "", 0, 0, time::stop),
    row("time/warp", "[large_msecs] msecs", 1, 2, time::warp),
];

const STANDARD: &[Command<Vswitch>] = &unixctl::standard::commands();

/// Commands that are there for tests or by an older name, and not shown.
const HIDDEN: &[&str] = &["crosspoint/block", "dpif-netdev/subtable-lookup-prio-get"];

/// Features that Open vSwitch has commands of, and this switch has not.
const MISSING: &[&str] =
    &["autoattach", "bfd", "bond", "cfm", "lacp", "mdb", "ovs/route", "rstp", "stp", "tnl"];

/// The error about a command of a feature that there is not.
fn missing(name: &str) -> Option<String> {
    let feature = MISSING
        .iter()
        .find(|feature| name.strip_prefix(**feature).is_some_and(|rest| rest.starts_with('/')))?;
    Some(format!("\"{name}\" is not a valid command: {feature} is not supported"))
}

/// Commands that show exact counters: workers fold theirs before the command runs.
const COUNTED: &[&str] = &[
    "bridge/dump-flows",
    "dpctl/dump-flows",
    "dpctl/get-flow",
    "dpctl/show",
    "dpif/dump-flows",
    "dpif/get-flow",
    "dpif/show",
    "revalidator/wait",
    "upcall/show",
];

/// The tables of what this switch has.
fn present(vswitch: &Vswitch) -> [&'static [Command<Vswitch>]; 3] {
    [COMMANDS, STANDARD, if vswitch.plane.is_dummy { DUMMY } else { &[] }]
}

/// `dpctl/list-commands`.
fn list_dpctl(vswitch: &mut Vswitch, _: &[String]) -> Result<String, String> {
    let mut text = "The available commands are:\n".to_string();
    for command in present(vswitch).iter().flat_map(|table| table.iter()) {
        if let Some(name) = command.name.strip_prefix("dpctl/") {
            text += &format!("  dpctl/{name:<23} {}\n", command.usage);
        }
    }
    Ok(text)
}

/// Runs a request, first waits for the workers' counters if it shows any, and then runs any long part of it.
pub(crate) async fn run(shared: &Shared, request: &Request, growing: Growing) -> Result<String, String> {
    if COUNTED.contains(&request.method.as_str()) {
        waits::counters(shared).await;
    }
    let (result, begun) = {
        let vswitch = &mut *shared.borrow_mut();
        vswitch.counts.unixctl_received += 1;
        let result = match missing(&request.method) {
            Some(error) => Err(error),
            None => unixctl::run(&present(vswitch), HIDDEN, vswitch, request),
        };
        vswitch.deliver();
        (result, vswitch.begun.take())
    };
    match begun {
        Some(begun) => begun(shared.clone(), growing).await,
        None => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::wanted::{Bridge, Interface, Wanted};
    use crate::config::{Config, Database, DatapathFlags, Flags};
    use host::rundir::RunDir;
    use std::cell::RefCell;
    use std::rc::Rc;
    use std::time::Duration;

    #[test]
    fn rows_are_sorted_and_hidden_ones_exist() {
        for pair in COMMANDS.windows(2).chain(DUMMY.windows(2)) {
            assert!(pair[0].name < pair[1].name, "{} must stand before {}", pair[1].name, pair[0].name);
        }
        for name in HIDDEN.iter().chain(COUNTED) {
            let is_there = COMMANDS.iter().chain(DUMMY).any(|c| c.name == *name);
            assert!(is_there, "HIDDEN or COUNTED names {name}, which has no row");
        }
        for command in COMMANDS.iter().chain(STANDARD).chain(DUMMY) {
            assert_eq!(missing(command.name), None, "{} exists", command.name);
        }
    }

    /// A switch with bridge br0 and port p1.
    fn shared() -> Shared {
        let mut bridge = Bridge::new("br0");
        for name in ["br0", "p1"] {
            bridge.add(Interface::new(name, "dummy"));
        }
        let wanted = Wanted { bridges: [("br0".to_string(), bridge)].into(), ..Wanted::default() };
        let datapath = DatapathFlags { pool_packets: 4096, ..DatapathFlags::default() };
        let config = Config::new(RunDir::new("/nowhere"), Database::Memory(Flags::default()));
        let mut vswitch = Vswitch::new(&Config { datapath, ..config }).unwrap();
        crate::reconcile::reconcile(&mut vswitch, &wanted, &Default::default());
        Rc::new(RefCell::new(vswitch))
    }

    #[test]
    fn commands_that_wait_for_workers_hold_up_nobody() {
        let shared = shared();
        // A worker that answers when it is told to.
        let mut worker = shared.borrow_mut().plane.dp.stepped_worker().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            for line in [
                "dpctl/show -s",
                "dpif/show",
                "bridge/dump-flows br0",
                "dpctl/dump-flows",
                "dpif/dump-flows br0",
                "upcall/show",
                "revalidator/wait",
            ] {
                let mut words = line.split(' ').map(String::from);
                let method = words.next().unwrap();
                let request = Request { id: 0.into(), method, params: Some(words.collect()) };
                let state = shared.clone();
                let command =
                    tokio::task::spawn_local(async move { run(&state, &request, Growing::default()).await });
                for _ in 0..20 {
                    // Somebody else's turn.
                    shared.borrow_mut().tick();
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
                assert!(!command.is_finished(), "{line} waits for the worker");
                while !command.is_finished() {
                    worker.turn();
                    tokio::task::yield_now().await;
                }
                let said = command.await.unwrap();
                assert!(said.is_ok(), "{line}: {said:?}");
                if line == "bridge/dump-flows br0" {
                    assert!(said.unwrap().contains("actions=NORMAL"));
                }
            }
        });
    }
}
