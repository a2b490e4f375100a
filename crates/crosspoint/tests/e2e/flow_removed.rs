//! How long after a rule is gone its controller hears of it, with counters that are final: at once, as with
//! the stock switch, and not when the periodic work comes round.

use crate::common::{Namespace, Process, RunDir, UDP, binary, daemon_in, namespace, run_dir, wait_for};
use crate::controller::Controller;
use openflow::message::{FlowMod, FlowModCommand, FlowRemoved, FragHandling, Message, SwitchConfig};
use openflow::{Event, Version};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Rules that are removed, one after the other.
const RULES: u64 = 15;
/// A message needs a millisecond or two in an idle switch of an unoptimized build; one that waited for the
/// periodic work, or for an interval of folds, would need 50 or 100 and more.
const IDLE_MOST: Duration = Duration::from_millis(40);
/// Flows of the busy worker: the round that is open and the one that is asked for visit them at 1,000 a
/// millisecond.
const FLOWS: u32 = 2_000;
const BUSY_MOST: Duration = Duration::from_millis(100);

/// A switch with a worker, in a network namespace: bridge br0 with a dummy `d1`, an interface `p0` of the
/// kernel's whose other end is `far`, and a port that takes everything.
struct Rig {
    dir: RunDir,
    namespace: Namespace,
    _switch: Process,
}

impl Rig {
    fn start() -> Rig {
        let (dir, namespace) = (run_dir(), namespace());
        namespace.run("sysctl -qw net.ipv6.conf.default.disable_ipv6=1");
        let args = ["--pool-size", "16384", "--workers", "1", "--enable-dummy"];
        let switch = Process::start(&mut daemon_in(&namespace, &dir, &args));
        let rig = Rig { dir, namespace, _switch: switch };
        rig.namespace.ip("link add p0 type veth peer name far");
        for device in ["p0", "far"] {
            rig.namespace.ip(&format!("link set {device} up"));
        }
        wait_for("the database", || testkit::listens(rig.dir.file("db.sock")));
        rig.dir.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
        for port in ["d1 type=dummy", "p0 type=system options:driver=af_packet", "sink type=null"] {
            let name = port.split(' ').next().unwrap();
            rig.dir.vsctl(&format!("add-port br0 {name} -- set interface {port}"));
        }
        rig
    }

    /// Sends UDP of so many flows into `p0`, faster than a debug build takes it, until it is ended.
    fn flood(&self, flows: u32) -> Process {
        let flows = flows.to_string();
        let args = ["--ifname", "far", "--rate", "300k", "--seconds", "60", "--flows", &flows];
        let mut command = self.namespace.command(binary());
        Process::start(command.args(["bench", "generate"]).args(args).stdout(Stdio::null()))
    }

    /// Adds and deletes a rule that has counted so many packets: what the controller is told, and how long
    /// after the switch said that the rule was gone.
    fn remove_one(&self, controller: &mut Controller, packets: u64) -> (FlowRemoved, Duration) {
        self.dir.ofctl(&["add-flow", "br0", "in_port=d1,send_flow_rem,actions=drop"]).ok();
        for _ in 0..packets {
            self.dir.appctl(&["netdev-dummy/receive", "d1", UDP]).ok();
        }
        let received = || self.dir.ofctl(&["dump-flows", "br0", "in_port=d1"]).ok();
        wait_for("the packets", || received().contains(&format!("n_packets={packets},")));
        // Counted after that: what is not folded yet.
        self.dir.appctl(&["netdev-dummy/receive", "d1", UDP]).ok();
        let matching = flow::Match::any().with(flow::FieldId::InPort, 1);
        let delete = FlowMod { command: FlowModCommand::Delete, matching, ..FlowMod::add() };
        controller.send(&Message::FlowMod(Box::new(delete)));
        let barrier = controller.send(&Message::BarrierRequest);
        let (mut gone_at, mut told) = (None, None);
        let began = Instant::now();
        while gone_at.is_none() || told.is_none() {
            assert!(began.elapsed() < Duration::from_secs(20), "gone: {gone_at:?}, told: {told:?}");
            for event in controller.events_until(|_| true) {
                match event {
                    Event::Message { xid, .. } if xid == barrier => gone_at = Some(Instant::now()),
                    Event::Message { message: Message::FlowRemoved(removed), .. } => {
                        told = Some((removed, Instant::now()));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let (removed, told_at) = told.unwrap();
        (*removed, told_at.saturating_duration_since(gone_at.unwrap()))
    }

    /// The median of how long the controller waits. All counters must be exact.
    fn median_wait(&self) -> Duration {
        let mut controller = Controller::connect(&self.dir.file("br0.mgmt"), Version::V13);
        // Without it a client of the bridge's own socket is told of nothing.
        let config =
            SwitchConfig { frag: FragHandling::Normal, invalid_ttl_to_controller: None, miss_send_len: 128 };
        controller.send(&Message::SetConfig(config));
        let mut waits: Vec<Duration> = (0..RULES)
            .map(|n| {
                let (removed, wait) = self.remove_one(&mut controller, n % 3);
                assert_eq!(removed.packet_count, n % 3 + 1, "{removed:?}");
                wait
            })
            .collect();
        waits.sort_unstable();
        println!("waits: {waits:?}");
        waits[waits.len() / 2]
    }
}

#[test]
fn a_removed_rule_is_told_of_at_once_with_final_counters() {
    let rig = Rig::start();
    let wait = rig.median_wait();
    assert!(wait < IDLE_MOST, "{wait:?} behind the rule's end");
}

#[test]
fn a_busy_worker_does_not_delay_the_news_of_removed_rules() {
    let rig = Rig::start();
    // Worth as much work as many packets, so that the worker is never idle.
    let sinks = ["3"; 50].join(",");
    rig.dir.ofctl(&["add-flow", "br0", &format!("in_port=p0,udp,tp_dst=0/0,actions={sinks}")]).ok();
    let mut flood = rig.flood(FLOWS);
    wait_for("the flows", || {
        let text = rig.dir.appctl(&["dpif-netdev/pmd-stats-show"]).ok();
        text.contains("packets received: ") && !text.contains("packets received: 0\n")
    });
    let wait = rig.median_wait();
    let is_sending = flood.try_wait().unwrap().is_none();
    drop(flood);
    assert!(is_sending, "the worker was not busy to the end");
    assert!(wait < BUSY_MOST, "{wait:?} behind the rule's end");
}
