//! Connections of controllers beside the stock switch: roles, what is told unasked, limits on packets, what a
//! bridge does by itself. Both switches are configured by the same commands, and each must say the same.

use crate::common::{Process, RunDir, Switch, UDP, wait_for};
use crate::controller::Controller;
use crate::e2e_controllers::configured_by_database;
use base::OfPort;
use openflow::message::{
    AsyncChange, AsyncConfig, FragHandling, Message, PortConfig, PortMod, Role, RoleRequest, StatsBody,
    StatsRequest, SwitchConfig,
};
use openflow::{Event, Version};
use std::fmt::Debug;
use std::io::Write;
use std::net::TcpListener;
use std::time::Duration;
use testkit::stock::Stock;

/// A bridge br0 with dummy ports p1 to p3 in each.
pub struct Both {
    _server: Process,
    ours: Switch,
    stock: Stock,
}

impl Both {
    pub fn start() -> Both {
        let stock = Stock::start();
        let (server, ours) = configured_by_database();
        let both = Both { _server: server, ours, stock };
        let ports: String = (1..=3)
            .map(|n| format!(" -- add-port br0 p{n} -- set interface p{n} type=dummy ofport_request={n}"))
            .collect();
        both.vsctl(&format!(
            "add-br br0 -- set bridge br0 datapath_type=dummy fail_mode=secure other_config:hwaddr=02:00:00:00:00:01 \
             protocols=OpenFlow10,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15{ports}"
        ));
        both
    }

    pub fn each(&self) -> [&RunDir; 2] {
        [&self.ours.dir, self.stock.run_dir()]
    }

    pub fn vsctl(&self, commands: &str) {
        self.each().into_iter().for_each(|dir| _ = dir.vsctl(commands));
    }

    /// Does something with each. Both must say the same.
    #[track_caller]
    pub fn same<T: PartialEq + Debug>(&self, what: &str, script: impl Fn(&RunDir) -> T) -> T {
        let [ours, stock] = self.each().map(script);
        assert_eq!(ours, stock, "ours and the stock switch's: {what}");
        ours
    }

    /// Looks at each until both say the same.
    #[track_caller]
    fn soon_the_same<T: PartialEq + Debug>(&self, what: &str, look: impl Fn(&RunDir) -> T) -> T {
        let mut seen = self.each().map(&look);
        for _ in 0..50 {
            if seen[0] == seen[1] {
                break;
            }
            std::thread::sleep(Duration::from_millis(100));
            seen = self.each().map(&look);
        }
        let [ours, stock] = seen;
        assert_eq!(ours, stock, "ours and the stock switch's: {what}");
        ours
    }
}

fn client(dir: &RunDir, version: Version) -> Controller {
    Controller::connect(&dir.file("br0.mgmt"), version)
}

/// A command for the control socket, which the stock switch has elsewhere.
#[track_caller]
pub fn appctl(dir: &RunDir, args: &[&str]) -> String {
    let elsewhere = dir.file("control");
    let target = format!("--target={}", elsewhere.display());
    let target = elsewhere.exists().then_some(&*target);
    dir.appctl(&[target.as_slice(), args].concat()).ok()
}

/// A request for a role in the form of a version.
fn role(version: Version, role: Role, generation_id: u64) -> Message {
    let nicira = version < Version::V12;
    Message::RoleRequest(RoleRequest { role, generation_id: Some(generation_id), nicira })
}

/// What a message says, without what differs by time.
fn gist(message: &Message) -> String {
    match message {
        Message::PacketIn(p) => format!("packet-in {:?} of {} bytes", p.reason, p.data.len()),
        Message::FlowRemoved(r) => format!("flow-removed {:?} cookie {}", r.reason, r.cookie),
        Message::PortStatus(p) => format!("port-status {:?} {}", p.reason, p.desc.port.0),
        other => format!("{other:?}"),
    }
}

fn gists(connection: &mut Controller) -> Vec<String> {
    connection.heard().iter().map(gist).collect()
}

#[test]
fn roles_and_generation_ids_are_taken_and_refused_as_by_the_stock_switch() {
    let both = Both::start();
    const FAR: u64 = 11 + i64::MAX as u64;
    let steps = [
        (0, Role::Primary, 10),
        (1, Role::Primary, 10),
        (0, Role::Primary, 9),
        (0, Role::Secondary, 9),
        (0, Role::Secondary, 11),
        (1, Role::Equal, 3),
        (1, Role::Primary, 11),
        (1, Role::Primary, 11),
        // As far as may be, and back.
        (0, Role::Primary, FAR),
        (1, Role::Primary, 11),
        // Round the end of the numbers.
        (1, Role::Secondary, u64::MAX - 1),
        (0, Role::Primary, u64::MAX),
        (1, Role::Primary, 0),
        (0, Role::Primary, u64::MAX),
        (0, Role::Secondary, 0),
    ];
    for version in [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15] {
        let said = both.same(&format!("roles by {version:?}"), |dir| {
            let mut connections = [client(dir, version), client(dir, version)];
            let mut said = Vec::new();
            for (n, wanted, generation_id) in steps {
                connections[n].send(&role(version, wanted, generation_id));
                let step = format!("{n} {wanted:?} {generation_id}");
                // Who asks is answered before the other one is told.
                for other in [n, 1 - n] {
                    said.push(format!("{step}: {other} hears {:?}", gists(&mut connections[other])));
                }
                if version >= Version::V12 {
                    connections[1 - n].send(&role(version, Role::NoChange, 0));
                    said.push(format!("{step}: {:?}", gists(&mut connections[1 - n])));
                }
            }
            // No role of this number.
            let (kind, length) = if version < Version::V12 { (4, 20) } else { (24, 24) };
            let mut bad = vec![0; length];
            bad[..8].copy_from_slice(&[version as u8, kind, 0, length as u8, 0, 0, 0, 77]);
            match version {
                Version::V10 => bad[8..].copy_from_slice(&[0, 0, 0x23, 0x20, 0, 0, 0, 10, 0, 0, 0, 3]),
                _ => bad[11] = 4,
            }
            connections[0].connection.send_bytes(&bad);
            said.push(format!("no such role: {:?}", gists(&mut connections[0])));
            said
        });
        let refused = said.iter().filter(|said| said.contains("Error")).count();
        assert_eq!(refused, if version == Version::V10 { 1 } else { 5 }, "{version:?}: {said:#?}");
    }
}

#[test]
fn secondaries_may_change_what_the_stock_switch_lets_them_change() {
    let both = Both::start();
    // Of OpenFlow 1.3, each as short as may be: type, length, and what is not zero.
    type Bytes<'a> = &'a [(usize, &'a [u8])];
    let requests: [(u8, u8, Bytes<'_>); 9] = [
        (9, 12, &[(11, &[128])]),
        (13, 24, &[(8, &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfd])]),
        (14, 56, &[(32, &[0xff; 12]), (48, &[0, 1, 0, 4])]),
        (15, 16, &[(15, &[9])]),
        (16, 40, &[(11, &[1])]),
        (17, 16, &[]),
        (26, 8, &[]),
        (28, 32, &[(11, &[1])]),
        (29, 32, &[(11, &[1]), (15, &[1]), (16, &[0, 1, 0, 16])]),
    ];
    both.same("requests of a secondary", |dir| {
        let mut connection = client(dir, Version::V13);
        connection.send(&role(Version::V13, Role::Secondary, 1));
        let mut said = gists(&mut connection);
        for (kind, length, parts) in requests {
            let mut request = vec![0; usize::from(length)];
            request[..8].copy_from_slice(&[4, kind, 0, length, 0, 0, 0, 200]);
            for (at, bytes) in parts {
                request[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            connection.connection.send_bytes(&request);
            said.push(format!("{kind}: {:?}", gists(&mut connection)));
        }
        assert!(said.iter().any(|said| said.contains("SECONDARY")), "{said:?}");
        said
    });
}

#[test]
fn the_choice_of_what_is_told_is_the_stock_switchs_by_default_and_when_it_changes() {
    let both = Both::start();
    for version in [Version::V13, Version::V14, Version::V15] {
        both.same(&format!("asynchronous configuration by {version:?}"), |dir| {
            let mut client = client(dir, version);
            let mut said = vec![client.ask(&Message::GetAsyncRequest)];
            let some = AsyncConfig {
                packet_in: [1, 3],
                port_status: [1, 2],
                flow_removed: [4, 0x3f],
                role_status: [1, 1],
                table_status: [8, 16],
                request_forward: [3, 2],
            };
            let given: &[u16] =
                if version == Version::V13 { &[AsyncChange::ALL] } else { &[0b10, 0b1101_0000, 0, 0xfff] };
            for &given in given {
                client.send(&Message::SetAsync(AsyncChange { config: some, given }));
                said.extend(client.heard());
                said.push(client.ask(&Message::GetAsyncRequest));
            }
            said
        });
    }
}

/// What clients with each role are told of what happens to packets, flows and ports.
#[test]
fn clients_are_told_what_the_stock_switch_tells_them() {
    let both = Both::start();
    for version in [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15] {
        let said = both.same(&format!("events by {version:?}"), |dir| {
            let mut connections = [(); 4].map(|()| client(dir, version));
            let config = SwitchConfig {
                frag: FragHandling::Normal,
                invalid_ttl_to_controller: None,
                miss_send_len: 128,
            };
            // One more shows when what is to come has come.
            let mut other = client(dir, version);
            // The last one has not asked for anything, the third watches.
            for connection in connections[..3].iter_mut().chain([&mut other]) {
                connection.send(&Message::SetConfig(config));
            }
            connections[1].send(&role(version, Role::Primary, 1));
            connections[1].heard();
            connections[2].send(&role(version, Role::Secondary, 1));
            connections.iter_mut().chain([&mut other]).for_each(|connection| _ = connection.heard());
            let ofctl = |args: &[&str]| dir.ofctl(&[&["-O", "OpenFlow13"], args].concat()).ok();
            ofctl(&["add-flow", "br0", "in_port=1,cookie=7,send_flow_rem,actions=controller(max_len=64)"]);
            ofctl(&["add-flow", "br0", "priority=0,in_port=2,actions=controller"]);
            ofctl(&["add-group", "br0", "group_id=3,type=all,bucket=actions=controller"]);
            ofctl(&["add-flow", "br0", "in_port=3,cookie=8,send_flow_rem,actions=group:3"]);
            for port in ["p1", "p2", "p3"] {
                appctl(dir, &["netdev-dummy/receive", port, UDP]);
                // The order of several ports' packets is anybody's guess.
                other.events_until(|e| matches!(e, Event::Message { message: Message::PacketIn(_), .. }));
            }
            // The second says what stands.
            for change in ["no-forward", "no-forward", "forward"] {
                ofctl(&["mod-port", "br0", "2", change]);
            }
            dir.ofctl(&["-O", "OpenFlow10", "mod-port", "br0", "2", "no-flood"]).ok();
            dir.ofctl(&["-O", "OpenFlow10", "mod-port", "br0", "2", "flood"]).ok();
            ofctl(&["del-flows", "br0", "in_port=1"]);
            ofctl(&["del-groups", "br0"]);
            ofctl(&["del-flows", "br0"]);
            // Ours tells of removed flows when it has their last counts.
            let removed = |m: &Message| matches!(m, Message::FlowRemoved(_));
            // That the group took one along can be said since 1.3.
            let (mut told, all) = (0, if version < Version::V13 { 1 } else { 2 });
            wait_for("removed flows to be told", || {
                told += other.heard().iter().filter(|m| removed(m)).count();
                told == all
            });
            connections.map(|mut connection| gists(&mut connection))
        });
        assert!(said[0].len() >= 4 && said[2].len() >= 2 && said[3].is_empty(), "{said:#?}");
    }
}

/// From OpenFlow 1.3 on a packet without a rule is dropped, though others are told of it.
#[test]
fn of_a_packet_without_a_rule_older_clients_alone_are_told() {
    let both = Both::start();
    let said = both.same("a packet without a rule", |dir| {
        let mut connections = [Version::V10, Version::V12, Version::V13, Version::V15].map(|version| {
            let mut connection = client(dir, version);
            connection.send(&Message::SetConfig(SwitchConfig {
                frag: FragHandling::Normal,
                invalid_ttl_to_controller: None,
                miss_send_len: 128,
            }));
            connection.heard();
            connection
        });
        appctl(dir, &["netdev-dummy/receive", "p1", UDP]);
        for connection in &mut connections[..2] {
            connection.events_until(|e| matches!(e, Event::Message { message: Message::PacketIn(_), .. }));
        }
        let (_, newer) = connections.split_at_mut(2);
        [gists(&mut newer[0]), gists(&mut newer[1])]
    });
    assert_eq!(said, [vec![], Vec::<String>::new()]);
}

/// Who changes a port hears of it in OpenFlow 1.5 alone.
#[test]
fn who_changes_a_port_is_told_of_it_as_by_the_stock_switch() {
    let both = Both::start();
    for version in [Version::V10, Version::V13, Version::V15] {
        let said = both.same(&format!("changes of ports by {version:?}"), |dir| {
            let mut connections = [client(dir, version), client(dir, version)];
            let config = SwitchConfig {
                frag: FragHandling::Normal,
                invalid_ttl_to_controller: None,
                miss_send_len: 128,
            };
            connections.iter_mut().for_each(|connection| _ = connection.send(&Message::SetConfig(config)));
            connections.iter_mut().for_each(|connection| _ = connection.heard());
            let ports = connections[0].ask_for(StatsRequest::PortDesc(None));
            let [StatsBody::PortDesc(ports)] = &ports[..] else { panic!("{ports:?}") };
            let hw_addr = ports.iter().find(|port| port.port == OfPort(3)).expect("p3").hw_addr;
            let mut said = Vec::new();
            for config in [PortConfig::NO_FWD, PortConfig::NO_FWD, PortConfig::empty()] {
                let change = PortMod {
                    port: OfPort(3),
                    hw_addr,
                    config,
                    mask: PortConfig::NO_FWD,
                    advertise: Default::default(),
                    unknown: None,
                };
                connections[0].send(&Message::PortMod(change));
                said.push(connections.each_mut().map(gists));
            }
            said
        });
        let [asker, other] = &said[0];
        assert_eq!((asker.is_empty(), other.is_empty()), (version < Version::V15, false), "{said:#?}");
    }
}

/// A controller in the test's hands at each.
pub fn controllers(both: &Both, version: Version, settings: &str) -> [Controller; 2] {
    both.each().map(|dir| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        dir.vsctl(&format!(
            "set-controller br0 tcp:127.0.0.1:{port} -- set controller br0 max_backoff=1000 {settings}"
        ));
        let mut controller = Controller::accept(&listener, version);
        controller.heard();
        controller
    })
}

#[test]
fn fragments_are_handled_as_a_controller_says_unless_it_is_a_secondary() {
    let both = Both::start();
    let mut controllers = controllers(&both, Version::V13, "");
    let [ours, stock] = controllers.each_mut().map(|controller| {
        let mut said = Vec::new();
        for (step, role_of) in [Role::Secondary, Role::Equal].into_iter().enumerate() {
            controller.send(&role(Version::V13, role_of, 1 + step as u64));
            controller.send(&Message::SetConfig(SwitchConfig {
                frag: FragHandling::Drop,
                invalid_ttl_to_controller: None,
                miss_send_len: 77,
            }));
            controller.send(&Message::GetConfigRequest);
            said.extend(gists(controller));
        }
        said
    });
    assert_eq!(ours, stock);
    assert!(ours.iter().any(|said| said.contains("normal") || said.contains("Normal")), "{ours:?}");
    assert!(ours.iter().any(|said| said.contains("drop") || said.contains("Drop")), "{ours:?}");
}

#[test]
fn a_controller_hears_nothing_unasked_as_long_as_its_row_says_so() {
    let both = Both::start();
    let mut controllers = controllers(&both, Version::V14, "enable_async_messages=false");
    let mut both_say = |what: &str| {
        let [ours, stock] =
            controllers.each_mut().map(|controller| controller.ask(&Message::GetAsyncRequest));
        assert_eq!(ours, stock, "ours and the stock switch's: {what}");
        ours
    };
    let nothing = Message::GetAsyncReply(AsyncConfig::default());
    assert_eq!(both_say("told nothing"), nothing);
    // The row speaks for connections that are there.
    both.vsctl("set controller br0 enable_async_messages=true");
    assert_ne!(both_say("told by default"), nothing);
    both.vsctl("set controller br0 enable_async_messages=false");
    assert_eq!(both_say("told nothing again"), nothing);
    let features = controllers.each_mut().map(|controller| match controller.ask(&Message::FeaturesRequest) {
        Message::FeaturesReply(features) => (features.auxiliary_id, features.n_tables, features.n_buffers),
        other => panic!("{other:?}"),
    });
    assert_eq!(features[0], features[1], "ours and the stock switch's: auxiliary id, tables, buffers");
}

#[test]
fn packets_go_to_controllers_as_fast_as_the_stock_switch_sends_them() {
    let both = Both::start();
    let settings = "controller_rate_limit=100 controller_burst_limit=25";
    let mut controllers = controllers(&both, Version::V13, settings);
    let burst = vec![UDP; 60];
    for dir in both.each() {
        dir.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=1,actions=controller"]).ok();
        appctl(dir, &["time/stop"]);
        appctl(dir, &[&["netdev-dummy/receive", "p1"][..], &burst].concat());
    }
    let mut told = |what: &str, expected: usize| {
        let mut counts = [0; 2];
        for (controller, count) in controllers.iter_mut().zip(&mut counts) {
            let mut hear = |time| {
                let events = controller.events_for(Duration::from_millis(time));
                *count += crate::e2e_controllers::packet_ins(&events);
                *count >= expected
            };
            wait_for("packets", || hear(100));
            hear(700);
        }
        assert_eq!(counts, [expected; 2], "ours and the stock switch's: {what}");
    };
    told("saved up", 25);
    both.each().into_iter().for_each(|dir| _ = appctl(dir, &["time/warp", "1000", "100"]));
    told("queued, others being dropped", 25);
}

/// The rules that a bridge has of its own and those that controllers see, without what differs by time.
fn rules(dir: &RunDir) -> Vec<String> {
    let hidden = appctl(dir, &["bridge/dump-flows", "br0"]);
    let mut rules: Vec<String> = hidden
        .lines()
        .map(|line| {
            let kept = line.split(", ").map(str::trim);
            let kept = kept
                .filter(|part| !["duration=", "n_packets=", "n_bytes="].iter().any(|t| part.starts_with(t)));
            kept.collect::<Vec<_>>().join(", ")
        })
        .filter(|rule| !rule.starts_with("table_id=254"))
        .collect();
    rules.sort();
    let seen = dir.ofctl(&["-O", "OpenFlow13", "--no-stats", "dump-flows", "br0"]).ok();
    rules.extend(seen.lines().map(|line| format!("seen: {}", line.trim())));
    rules
}

#[test]
fn fail_modes_and_in_band_control_bring_the_stock_switchs_rules() {
    let both = Both::start();
    let seen_after = |what: &str, commands: &str| {
        both.vsctl(commands);
        both.soon_the_same(what, rules)
    };
    assert!(rules(&both.ours.dir).is_empty());
    let alone = seen_after("standalone", "set-fail-mode br0 standalone");
    assert_eq!(alone.len(), 2, "{alone:?}");
    // Beside them there may be that of a bridge that has waited for its controller for too long.
    let is_in_band = |rule: &&String| rule.starts_with("priority=18000");
    let in_band = seen_after("a controller", "set-controller br0 tcp:10.9.9.1:6653");
    assert_eq!(in_band.iter().filter(is_in_band).count(), 7, "{in_band:?}");
    for dir in both.each() {
        dir.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", "in_port=3,actions=1"]).ok();
    }
    let queued = seen_after("a queue", "set bridge br0 other_config:in-band-queue=3");
    assert_eq!(queued.iter().filter(|rule| rule.contains("set_queue:3")).count(), 7, "{queued:?}");
    seen_after("another queue", "set bridge br0 other_config:in-band-queue=4");
    seen_after("no queue", "remove bridge br0 other_config in-band-queue");
    let two = seen_after("two controllers", "set-controller br0 tcp:10.9.9.1:6653 tcp:10.9.9.2:6653");
    assert_eq!(two.iter().filter(is_in_band).count(), 11, "{two:?}");
    let beside = seen_after(
        "beside",
        "set-controller br0 tcp:10.9.9.1:6653 -- set controller br0 connection_mode=out-of-band",
    );
    assert!(beside.len() < 3, "{beside:?}");
    seen_after("again", "set-controller br0 tcp:10.9.9.1:6653");
    let disabled = seen_after("disabled", "set bridge br0 other_config:disable-in-band=true");
    assert!(disabled.len() < 3, "{disabled:?}");
    seen_after("enabled", "set bridge br0 other_config:disable-in-band=false");
    seen_after("a manager", "set-manager tcp:10.9.9.7:6640");
    seen_after("no manager", "del-manager");
    let left = seen_after("no controller", "del-controller br0");
    assert_eq!(left.len(), 2, "{left:?}");
    seen_after("secure", "set-fail-mode br0 secure");
    seen_after("a controller of a secure bridge", "set-controller br0 tcp:10.9.9.1:6653");
}

/// What os-ken reads of all that it can ask for, and of what it is told unasked.
#[test]
fn os_ken_reads_the_messages_of_each_version_as_it_reads_the_stock_switchs() {
    let both = Both::start();
    const RULES: [&str; 8] = [
        "priority=5,in_port=1,tcp,nw_src=1.2.3.0/24,tp_dst=80,idle_timeout=3000,hard_timeout=4000,importance=3,\
         send_flow_rem,cookie=0x55,actions=set_field:1.1.1.1->ip_src,push_vlan:0x8100,set_field:4100->vlan_vid,\
         output:2,goto_table:4",
        "priority=6,ipv6,ipv6_src=fe80::/16,actions=dec_ttl,output:2",
        "priority=7,arp,arp_op=1,actions=controller",
        "table=1,mpls,mpls_label=4,actions=pop_mpls:0x800,write_actions(group:1,set_field:2.2.2.2->ip_dst),\
         write_metadata:0x5/0xff,goto_table:5",
        "table=4,icmp6,icmp_type=135,nd_target=fe80::5,actions=2",
        "table=4,dl_vlan=5,dl_vlan_pcp=3,actions=pop_vlan,set_queue:4,output:3",
        "table=5,metadata=0x5/0xf,tun_id=9,actions=2",
        "table=6,sctp,tp_src=5,actions=group:2",
    ];
    for dir in both.each() {
        let switch = format!("unix:{}", dir.file("br0.mgmt").display());
        let ofctl = |command: &str, what: &str| {
            dir.run("ovs-ofctl", &["-O", "OpenFlow15", command, &switch, what]).ok();
        };
        ofctl("add-group", "group_id=1,type=all,bucket=output:2,bucket=set_field:1.1.1.1->ip_src,output:3");
        ofctl("add-group", "group_id=2,type=select,bucket=weight:3,output:2,bucket=weight:4,output:3");
        ofctl("add-group", "group_id=3,type=ff,bucket=watch_port:1,output:2,bucket=watch_group:1,output:3");
        ofctl("add-meter", "meter=1,kbps,burst,stats,band=type=drop,rate=50,burst_size=4");
        ofctl("add-meter", "meter=2,pktps,band=type=drop,rate=50");
        RULES.iter().for_each(|rule| ofctl("add-flow", rule));
    }
    // A table that can be full.
    both.vsctl("set bridge br0 flow_tables:9=@t -- --id=@t create flow_table flow_limit=4");
    let script = testkit::root().join("crates/crosspoint/tests/e2e/e2e_controllers/os_ken_reads.py");
    let read = |dir: &RunDir, version: Version| {
        let mut python = std::process::Command::new(testkit::python());
        python.arg(&script).arg(dir.file("br0.mgmt")).arg((version as u8).to_string());
        let output = python.output().expect("python runs");
        assert!(output.status.success(), "{version}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    };
    for (version, least) in
        [(Version::V10, 15), (Version::V12, 18), (Version::V13, 32), (Version::V14, 39), (Version::V15, 38)]
    {
        let [ours, stock] = both.each().map(|dir| read(dir, version));
        let sections = |text: &str| -> Vec<String> { text.split("== ").skip(1).map(str::to_owned).collect() };
        let (ours, stock) = (sections(&ours), sections(&stock));
        assert!(ours.len() >= least && ours.len() == stock.len(), "{version}: {}", ours.len());
        for (ours, stock) in ours.iter().zip(&stock) {
            assert!(ours.contains('{') && !ours.contains("unread"), "{version}: nothing in {ours}");
            assert_eq!(ours, stock, "{version}, ours and the stock switch's");
        }
    }
}

/// Requests in hexadecimal digits behind type and length, and answers as the stock switch gives them.
#[test]
fn small_codes_are_those_of_the_stock_switch() {
    let both = Both::start();
    let said = |dir: &RunDir, args: &[&str]| {
        let switch = format!("unix:{}", dir.file("br0.mgmt").display());
        let args: Vec<&str> =
            args.iter().map(|&arg| if arg == "br0" { switch.as_str() } else { arg }).collect();
        let output = dir.run("ovs-ofctl", &args);
        output.out.lines().map(|line| line.split(" (xid").next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    for version in ["OpenFlow10", "OpenFlow12", "OpenFlow13", "OpenFlow15"] {
        for args in [
            &["set-frags", "br0", "reassemble"][..],
            &["get-frags", "br0"],
            &["queue-get-config", "br0", "LOCAL"],
        ] {
            both.same(&format!("{version} {args:?}"), |dir| said(dir, &[&["-O", version], args].concat()));
        }
    }
    // Packets whose actions fail, alone and in a bundle.
    const PACKET: &str = "packet=0000000000020000000000010800450000140000000040110000";
    for actions in ["encap(ethernet)", "resubmit:1", "decap", "push_mpls:0x8847"] {
        let out = format!("in_port=1,{PACKET},actions={actions}");
        both.same(actions, |dir| {
            let file = dir.file("bundle");
            std::fs::write(&file, format!("flow add actions=resubmit:1\npacket-out {out}\n")).unwrap();
            let mut all = said(dir, &["-O", "OpenFlow13", "add-flow", "br0", "actions=resubmit:1"]);
            all.extend(said(dir, &["-O", "OpenFlow13", "packet-out", "br0", &out]));
            all.extend(said(dir, &["-O", "OpenFlow14", "bundle", "br0", file.to_str().unwrap()]));
            all.extend(said(dir, &["-O", "OpenFlow13", "del-flows", "br0"]));
            all
        });
    }
    for version in [Version::V10, Version::V12, Version::V13, Version::V14, Version::V15] {
        let later = version != Version::V10;
        let (stats, rest) = if later { (18, "0000 00000000") } else { (16, "0000") };
        let requests = [
            // NXT_SET_FLOW_FORMAT, NXT_FLOW_MONITOR_CANCEL, NXT_FLOW_MONITOR_PAUSED, NXT_SET_ASYNC_CONFIG2.
            (4, "00002320 0000000c 00000002".to_owned()),
            (4, "00002320 00000015 00000001".to_owned()),
            (4, "00002320 00000016".to_owned()),
            (4, "00002320 0000001b".to_owned()),
            // What only a switch says, with contents that are wrong: packet-in, role-status, NXT_PACKET_IN2.
            (10, "00".repeat(40)),
            (30, "ffffffff 00000000 00000000 00000000".to_owned()),
            (4, "00002320 0000001e 00630008 00000000".to_owned()),
            // Of wrong length: packet-in, flow-removed, port-status, NXT_ROLE_REPLY.
            (10, "00".repeat(4)),
            (11, "00".repeat(44)),
            (12, "00".repeat(60)),
            (4, "00002320 0000000b".to_owned()),
            // Statistics of ONF's.
            (stats, format!("ffff {rest} 4f4e4600 00000009")),
            // Replies: of no kind, of nobody's, of none of Nicira's; flows of a wrong length within, tables
            // of a wrong length.
            (stats + 1, format!("0063 {rest}")),
            (stats + 1, format!("ffff {rest} 00000005 00000000")),
            (stats + 1, format!("ffff {rest} 00002320 00000063 00000000")),
            (stats + 1, format!("0001 {rest} 0003")),
            (stats + 1, format!("0003 {rest} 0003")),
            // In OpenFlow 1.0 the queues of port 0xffff, which is not all ports.
            (20, "ffff0000".to_owned()),
        ];
        // Meters: without unit, bands, rate, with unknown flags, with more than one of these.
        let meter = |flags: &str, bands: &str| (29, format!("0000 {flags} 00000009 {bands}"));
        let (drop, no_rate) = ("00010010 00000005 00000000 00000000", "00010010 00000000 00000000 00000000");
        let meters = [
            meter("0000", drop),
            meter("0004", drop),
            meter("0001", ""),
            meter("0011", drop),
            meter("0008", no_rate),
            meter("0011", no_rate),
            meter("0010", ""),
            meter("0011", ""),
            meter("0003", no_rate),
            meter("0000", &[drop; 9].join(" ")),
        ];
        // Tables: 254, which is hidden, with a vacancy that is wrong; experimenters' properties; others.
        let tables = [
            "fe000000 00000008 00030008 50140000",
            "01000000 00000008 00030008 14500500",
            "01000000 00000008 00030008 14650000",
            "01000000 00000008 0003000c 50140000 00000000 00000000",
            "01000000 00000000 ffff0008 00000005",
            "01000000 00000000 ffff0010 00000000 00000005 00000000",
            "01000000 00000000 ffff0010 00002320 00000005 00000000",
            "01000000 00000000 00040008 00000005",
        ];
        let tables = tables.map(|digits| (17, digits.to_owned()));
        let meters = meters.into_iter().filter(|_| version >= Version::V13);
        let tables = tables.into_iter().filter(|_| version >= Version::V14);
        // Packets with fields that may not accompany them, or are unknown, or do not suit the actions.
        let packet = |fields: &str, actions: &str| {
            let fields = fields.replace(' ', "");
            let length = 12 + fields.len() / 2;
            let pad = "00".repeat(length.next_multiple_of(8) - length);
            let count = actions.replace(' ', "").len() / 2;
            let frame = "000000000002 000000000001 0800 45000014 00000000 40110000 0a000001 0a000002";
            format!(
                "ffffffff {count:04x}0000 0001{length:04x} 80000004 00000001 {fields} {pad} {actions} {frame}"
            )
        };
        let packets = [
            packet("0001d204 00000001", ""),
            packet("80005604 00000002", ""),
            packet("00014204 00000002", ""),
            packet("80000a02 0800", ""),
            packet("0001d004 00000007", "00000010 00000002 00000000 00000000"),
            packet("80005804 00010800", "00130008 88470000"),
            packet("80005804 00000000", "00130008 88470000"),
        ];
        let packets = packets.map(|digits| (13, digits));
        let packets = packets.into_iter().filter(|_| version == Version::V15);
        for (kind, digits) in requests.into_iter().chain(meters).chain(tables).chain(packets) {
            both.same(&format!("{version}: type {kind}, {digits}"), |dir| {
                let digits: String = digits.split(' ').collect();
                let byte = |i: usize| u8::from_str_radix(&digits[i..i + 2], 16).unwrap();
                let body: Vec<u8> = (0..digits.len()).step_by(2).map(byte).collect();
                let mut bytes = vec![version as u8, kind, 0, 8 + body.len() as u8, 0, 0, 0, 77];
                bytes.extend(body);
                let mut connection = client(dir, version);
                connection.stream.write_all(&bytes).unwrap();
                gists(&mut connection)
            });
        }
    }
}
