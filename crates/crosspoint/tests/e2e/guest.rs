//! `crosspoint guest` and the daemon, as a user starts them: a switch that is killed and comes again under
//! running guests, guests in a chain that is re-ordered, one that a single worker serves.

use crate::common::{Process, RunDir, Said, accept, binary, daemon, daemon_limited, kill, run_dir, wait_for};
use guest::{Guest, GuestConfig, QueuePair, RingLayout};
use std::time::{Duration, Instant};

fn switch(dir: &RunDir) -> Process {
    let port = |n: u32| {
        let socket = dir.file(format!("guest{n}"));
        format!("vhost{n},type=dpdkvhostuserclient,ofport={n},vhost-server-path={}", socket.display())
    };
    Process::start(&mut daemon(dir, &["--bridge", "br0", "--port", &port(1), "--port", &port(2)]))
}

fn guest(dir: &RunDir, n: u32, args: &[&str]) -> Process {
    let log = dir.file(format!("guest{n}.log"));
    let _ = std::fs::remove_file(&log);
    let mut command = dir.command(binary());
    Process::logged(command.args(["guest", "--listen"]).args(args).arg(dir.file(format!("guest{n}"))), log)
}

/// A guest that is expected to end by itself.
fn try_guest(dir: &RunDir, socket: &std::path::Path) -> Said {
    dir.run(binary(), &["guest", "--listen", socket.to_str().unwrap()])
}

#[test]
fn what_a_guest_says_of_its_socket_names_it_once() {
    let dir = run_dir();
    let socket = dir.file("none/guest");
    let named = |text: &str| text.matches(socket.to_str().unwrap()).count();
    let refused = try_guest(&dir, &socket);
    assert!(refused.err.contains("No such file") && named(&refused.err) == 1, "{}", refused.err);
    // One that connects waits for the switch.
    let log = dir.file("guest.log");
    let mut command = dir.command(binary());
    let _waiting = Process::logged(command.arg("guest").arg(&socket), log);
    wait_for("it to try again", || dir.read("guest.log").contains("trying again\n"));
    assert_eq!(named(&dir.read("guest.log")), 1, "{}", dir.read("guest.log"));
}

#[test]
fn numbered_frames_cross_from_guest_to_guest_and_again_after_the_switch_was_killed() {
    let dir = run_dir();
    let dir = &dir;
    // The payload of large frames goes from one guest's memory straight into the other's.
    for (layout, size) in [(&[][..], "64"), (&["--packed"], "64"), (&[], "1514"), (&["--packed"], "1514")] {
        let first = switch(dir);
        let checker = guest(dir, 2, &[&["--mode", "check"], layout].concat());
        let attached = |n: u32| dir.read(&format!("guest{n}.log")).matches("attached").count();
        wait_for("the checker attaches", || attached(2) == 1);
        let source = guest(dir, 1, &[&["--mode", "source", "--size", size], layout].concat());
        wait_for("the source attaches", || attached(1) == 1);
        // Whole rings of frames.
        let crossed = || {
            let text = dir.run("ovs-ofctl", &["dump-ports", "br0", "2"]).out;
            let sent = text.split("tx pkts=").nth(1).and_then(|tail| tail.split(',').next()?.parse().ok());
            sent.unwrap_or(0u64) > 10_000
        };
        wait_for("frames to cross", crossed);
        drop(first);
        let _second = switch(dir);
        wait_for("both attach again", || attached(1) == 2 && attached(2) == 2);
        wait_for("frames to cross again", crossed);
        for process in [source, checker] {
            assert!(process.end_by("TERM").success());
        }
        let number = |n: u32, name: &str| -> u64 {
            let text = dir.read(&format!("guest{n}.log"));
            let line = text.lines().last().unwrap_or_default();
            let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
            words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
        };
        // What the full receive ring did not take is missing; nothing comes twice or late.
        assert!(number(2, "received") > 0 && number(1, "sent") >= number(2, "received"));
        assert_eq!(number(2, "reordered"), 0, "{}", dir.read("guest2.log"));
    }
}

#[test]
fn a_guest_that_cannot_listen_says_why_and_fails() {
    let dir = run_dir();
    let socket = dir.path().join("missing").join("socket");
    let said = try_guest(&dir, &socket).failed();
    assert!(said.contains("No such file"), "{said}");
    // Where somebody else listens, or what is there is no socket, nothing is taken away.
    let taken = dir.path().join("taken");
    let other = std::os::unix::net::UnixListener::bind(&taken).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    for (path, why) in [(&taken, "another process listens there"), (&file, "it exists and is not a socket")] {
        let said = try_guest(&dir, path).failed();
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "precious");
    // The probe is the only one that has called, and the socket is still the other's.
    accept(&other);
    std::os::unix::net::UnixStream::connect(&taken).unwrap();
}

#[test]
fn a_guest_that_waits_for_a_silent_switch_ends_when_asked_to() {
    let dir = run_dir();
    let socket = dir.path().join("silent");
    let switch = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let mut command = dir.command(binary());
    let guest = Process::logged(command.arg("guest").arg(&socket), dir.file("guest.log"));
    let mut stream = accept(&switch);
    // Its first question has come, and half of an answer keeps it waiting.
    let mut question = [0; 12];
    std::io::Read::read_exact(&mut stream, &mut question).unwrap();
    std::io::Write::write_all(&mut stream, &question[..6]).unwrap();
    assert!(guest.end_by("TERM").success(), "{}", dir.read("guest.log"));
    assert!(!dir.read("guest.log").contains("does not answer"), "{}", dir.read("guest.log"));
}

#[test]
fn a_guest_comes_back_after_it_was_killed_and_takes_no_running_one_s_place() {
    let dir = run_dir();
    let dir = &dir;
    let _switch = switch(dir);
    for _ in 0..2 {
        let guest = guest(dir, 1, &["--mode", "sink"]);
        wait_for("the guest attaches", || dir.read("guest1.log").contains("attached"));
        try_guest(dir, &dir.file("guest1")).failed();
        drop(guest);
        assert!(dir.file("guest1").exists(), "who is killed leaves its socket");
    }
}

#[test]
fn guests_with_many_queues_do_not_use_up_the_usual_limit_of_descriptors() {
    let dir = run_dir();
    let dir = &dir;
    let port = |n: u32| format!("vhost{n},type=dpdkvhostuser,ofport={n}");
    let args = ["--bridge", "br0", "--port", &port(1), "--port", &port(2)];
    let _switch = Process::start(&mut daemon_limited(dir, "-Sn 512", &args));
    wait_for("the switch", || dir.file("vhost2").exists());
    let guests = [1, 2].map(|n| {
        let mut command = dir.command(binary());
        command.args(["guest", "--queues", "64", "--ring-size", "64"]).arg(dir.file(format!("vhost{n}")));
        let guest = Process::logged(&mut command, dir.file(format!("guest{n}.log")));
        wait_for("the guest attaches", || dir.read(&format!("guest{n}.log")).contains("attached"));
        guest
    });
    dir.ofctl(&["dump-ports", "br0"]).ok();
    drop(guests);
}

#[test]
fn a_source_leaves_when_the_switch_has_taken_its_last_frame() {
    let served = Served::start(1, 2);
    served.set_rules("in_port=1,actions=output:2\n");
    let checker = served.guest(2, &["--mode", "check", "--count", "400"]);
    wait_for("the checker attaches", || served.read("guest2.log").contains("attached"));
    // A handful each time, so that all are in the ring when the source has sent them.
    for layout in [&[][..], &["--packed"]] {
        for n in 0..10 {
            let mut source = served.guest(1, &[&["--mode", "source", "--count", "20"], layout].concat());
            assert!(source.wait().unwrap().success());
            assert!(served.read("guest1.log").contains(" sent 20\n"), "{n}: {}", served.read("guest1.log"));
        }
    }
    wait_for("all have come", || {
        served.count(1, "rx", "pkts") == 400 && served.count(2, "tx", "pkts") >= 400
    });
    assert_eq!(served.end(2, checker)("missing"), 0);
}

#[test]
fn queues_asked_for_make_sense_and_a_new_path_moves_the_port_that_is_there() {
    let served = Served::start(1, 1);
    let status = |key: &str| served.vsctl(&format!("--if-exists get interface g1 status:{key}"));
    let _guest = served.guest(1, &["--mode", "sink"]);
    let is_up = || served.vsctl("get interface g1 link_state").trim() == "up";
    wait_for("the link", is_up);
    for bad in ["abc", "0", "-1", "65", "1000"] {
        served.vsctl(&format!("set interface g1 options:n_rxq={bad}"));
        wait_for("an error", || {
            served.vsctl("get interface g1 error").contains(&format!("n_rxq={bad}: expected"))
        });
    }
    served.vsctl("set interface g1 options:n_rxq=4");
    wait_for("no error", || served.vsctl("get interface g1 error").trim() == "[]");
    assert_eq!(status("requested_rxq").trim(), "");
    // Another socket: the guest there is attached to the same port, and controllers see its link change, no
    // more.
    let number = || served.vsctl("get interface g1 ofport");
    let before = number();
    let mut monitor = served.command("ovs-ofctl");
    let mut monitor = Process::logged(monitor.args(["monitor", "br0", "65534"]), served.file("monitor.log"));
    let news = || served.read("monitor.log");
    let mut flood = ["no-flood", "flood"].into_iter().cycle();
    wait_for("the monitor", || {
        served.ofctl(&["mod-port", "br0", "g1", flood.next().unwrap()]).ok();
        news().contains("MOD")
    });
    let had = news().matches("MOD").count();
    let socket = served.file("guest9");
    served.vsctl(&format!("set interface g1 options:vhost-server-path={}", socket.display()));
    wait_for("the link to go", || !is_up());
    let _other = served.guest(9, &["--mode", "sink"]);
    wait_for("the link", is_up);
    assert!(status("socket").contains("guest9"));
    assert_eq!(number(), before);
    wait_for("news of the link", || news().matches("MOD").count() >= had + 2);
    assert!(!news().contains("DEL:") && !news().contains("ADD:"), "{}", news());
    assert!(monitor.try_wait().unwrap().is_none());
}

#[test]
fn what_is_too_long_and_what_nobody_takes_are_dropped_under_different_reasons() {
    const UDP: &str = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x0800),\
        ipv4(src=10.0.0.1,dst=10.0.0.2,proto=17,tos=0,ttl=64,frag=no),udp(src=1,dst=2)";
    let served = Served::start(1, 1);
    served.vsctl("add-port br0 d2 -- set interface d2 type=dummy ofport_request=2");
    served.vsctl("add-port br0 d3 -- set interface d3 type=dummy ofport_request=3 mtu_request=68");
    served.set_rules("in_port=2,actions=output:1,output:3\n");
    served.appctl(&["netdev-dummy/receive", "d2", UDP]).ok();
    let drops = || served.appctl(&["crosspoint/drops"]).ok();
    wait_for("both", || {
        ["tx_error: 1\n  g1: 1\n", "tx_mtu_exceeded: 1\n  d3: 1\n"].iter().all(|line| drops().contains(line))
    });
    served.vsctl("del-port d3 -- del-port g1");
    for line in ["tx_error: 1\n", "tx_mtu_exceeded: 1\n"] {
        assert!(drops().contains(line), "a count never falls: {}", drops());
    }
}

#[test]
fn a_source_of_several_queues_sends_as_many_as_it_was_told_and_a_checker_misses_what_did_not_come() {
    let served = Served::start(1, 2);
    served.set_rules("in_port=1,actions=output:2\n");
    let checker = served.guest(2, &["--mode", "check", "--count", "1000"]);
    let mut source =
        served.guest(1, &["--mode", "source", "--queues", "4", "--count", "700", "--rate", "20000"]);
    assert!(source.wait().unwrap().success());
    let sent = served.read("guest1.log");
    assert!(sent.contains(" sent 700\n"), "{sent}");
    wait_for("all have arrived", || served.count(2, "tx", "pkts") >= 700);
    let statistics = served.vsctl("get interface g2 statistics");
    assert!(statistics.contains("ovs_tx_invalid_hwol_drops=0"), "{statistics}");
    assert!(!statistics.contains("collisions"), "{statistics}");
    let ifindex =
        |n: u32| served.vsctl(&format!("get interface g{n} ifindex")).trim().parse::<u32>().unwrap();
    assert!(ifindex(1) > 0 && ifindex(2) > 0 && ifindex(1) != ifindex(2));
    let count = served.end(2, checker);
    assert_eq!((count("missing"), count("reordered")), (300, 0));
}

/// A switch that serves its own database, with ports `g1`, `g2`… for as many guests, on sockets of these
/// names.
struct Served {
    dir: RunDir,
    _switch: Process,
}

impl std::ops::Deref for Served {
    type Target = RunDir;

    fn deref(&self) -> &RunDir {
        &self.dir
    }
}

impl Served {
    fn start(workers: usize, guests: usize) -> Served {
        let dir = run_dir();
        let args = ["--enable-dummy", "--workers", &workers.to_string(), "--pool-size", "8192"];
        let switch = Process::start(&mut daemon(&dir, &args));
        let served = Served { dir, _switch: switch };
        wait_for("the database", || testkit::listens(served.file("db.sock")));
        served.vsctl("add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure");
        for n in 1..=guests {
            let socket = served.file(format!("guest{n}")).display().to_string();
            served.vsctl(&format!(
                "add-port br0 g{n} -- set interface g{n} type=dpdkvhostuserclient ofport_request={n} \
                 options:vhost-server-path={socket}"
            ));
        }
        served
    }

    /// Makes these `(in, out)` pairs all the rules there are, in one step.
    fn connect(&self, pairs: &[(u32, u32)]) {
        let rules: Vec<String> =
            pairs.iter().map(|(from, to)| format!("in_port={from},actions={to}\n")).collect();
        self.set_rules(&rules.concat());
    }

    /// Makes these lines all the rules there are, in one step.
    fn set_rules(&self, rules: &str) {
        let file = self.file("rules");
        std::fs::write(&file, rules).unwrap();
        self.run(
            "ovs-ofctl",
            &["-O", "OpenFlow13", "--bundle", "replace-flows", "br0", file.to_str().unwrap()],
        );
    }

    /// A number of `dump-ports`: `rx` or `tx`, and `pkts`, `bytes` or `drop`.
    fn count(&self, guest: u32, direction: &str, what: &str) -> u64 {
        let text = self.ofctl(&["dump-ports", "br0", &format!("g{guest}")]).ok();
        let after = |text: &str, key: &str| text[text.find(key).unwrap() + key.len()..].to_owned();
        let value =
            after(&after(&text, &format!("{direction} pkts"))[..], if what == "pkts" { "=" } else { what });
        let digits =
            value.trim_start_matches('=').chars().take_while(char::is_ascii_digit).collect::<String>();
        digits.parse().unwrap_or_else(|_| panic!("no {direction} {what}: {text}"))
    }

    /// Guests that have rings long enough for a process that does not get a processor for a second.
    fn guest(&self, n: u32, args: &[&str]) -> Process {
        let process = guest(&self.dir, n, &[&["--ring-size", "4096"], args].concat());
        wait_for("a guest attaches", || self.read(&format!("guest{n}.log")).contains("attached"));
        process
    }

    /// Ends a guest in order; what it counted under a name.
    fn end(&self, n: u32, process: Process) -> impl Fn(&str) -> u64 {
        assert!(process.end_by("TERM").success());
        let text = self.read(&format!("guest{n}.log"));
        move |name| {
            let line = text.lines().last().unwrap_or_default();
            let mut words = line.split_whitespace().skip_while(|word| *word != name).skip(1);
            words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
        }
    }
}

/// What passes through three guests in turn, and the rules that say in which order.
#[test]
fn a_chain_of_three_guests_is_re_ordered_under_traffic_and_nobody_loses_a_packet() {
    let served = Served::start(1, 7);
    let chain = |order: [u32; 3]| {
        let mut rules = vec![(1, order[0]), (order[2], 5), (6, 7)];
        rules.extend(order.windows(2).map(|pair| (pair[0], pair[1])));
        served.connect(&rules);
    };
    chain([2, 3, 4]);
    let _functions: Vec<Process> = (2..=4).map(|n| served.guest(n, &[])).collect();
    let checkers = [5, 7].map(|n| (n, served.guest(n, &["--mode", "check"])));
    // One's packets are so large that their payloads are copied once from each guest to the next.
    let sources = [(1, "1514"), (6, "64")]
        .map(|(n, size)| (n, served.guest(n, &["--mode", "source", "--rate", "2000", "--size", size])));
    let orders = [[3, 4, 2], [4, 2, 3], [4, 3, 2], [2, 4, 3], [3, 2, 4], [2, 3, 4]];
    for order in orders.iter().chain(&orders) {
        let before = served.count(5, "tx", "pkts");
        chain(*order);
        wait_for("packets through the chain", || served.count(5, "tx", "pkts") > before + 100);
    }
    for (n, process) in sources {
        assert!(served.end(n, process)("sent") > 0);
    }
    for (n, is_large) in [(1, true), (2, true), (6, false)] {
        let lent = || served.vsctl(&format!("get interface g{n} statistics:rx_lent_packets"));
        // Statistics are written every few seconds.
        wait_for("statistics", || (lent().trim().parse::<u64>().unwrap() > 0) == is_large);
    }
    // The functions still hand on what they have.
    wait_for("the chain to be empty", || served.count(5, "tx", "pkts") == served.count(1, "rx", "pkts"));
    let [chained, beside] = checkers.map(|(n, process)| served.end(n, process));
    assert!(chained("received") > 1000 && beside("received") > 1000);
    // A packet may overtake others where its chain became shorter; each that was missed then has come late.
    assert_eq!(chained("missing"), chained("reordered"), "lost in the chain");
    assert_eq!((beside("missing"), beside("reordered")), (0, 0), "the chain is not its affair");
    println!("of {} packets through the chain {} came late", chained("received"), chained("reordered"));
}

/// What changes headers and what goes to several guests is copied once all the same: each receiver's copy
/// comes from the sender's memory.
#[test]
fn large_packets_that_are_changed_or_go_to_two_guests_are_copied_from_their_sender() {
    use std::net::Ipv4Addr;
    use wire::compose::Compose;
    use wire::ethernet::EthAddr;
    let mac = |n: u8| EthAddr([2, 0, 0, 0, 0, n]);
    let address = |n: u8| Ipv4Addr::new(10, 0, 0, n);
    let served = Served::start(1, 3);
    served.vsctl("set interface g1 mtu_request=9000 -- set interface g2 mtu_request=9000");
    served.vsctl("set interface g3 mtu_request=9000");
    served.set_rules(
        "in_port=1,dl_dst=02:00:00:00:00:02,udp,actions=dec_ttl,set_field:02:00:00:00:00:09->eth_src,\
         set_field:10.0.0.9->ip_dst,set_field:53->udp_dst,push_vlan:0x8100,set_field:4103->vlan_vid,output:2\n\
         in_port=1,dl_dst=02:00:00:00:00:03,ip,actions=output:2,set_field:02:00:00:00:00:08->eth_src,output:3\n\
         in_port=1,dl_dst=02:00:00:00:00:04,actions=output:3,output:LOCAL,output:2\n",
    );
    for layout in [RingLayout::Split, RingLayout::Packed] {
        let lent = || -> u64 {
            let text = served.vsctl("get interface g1 statistics:rx_lent_packets");
            text.trim().parse().unwrap()
        };
        let before = if layout == RingLayout::Split { 0 } else { lent() };
        let config = GuestConfig { layout, ..GuestConfig::default() };
        let mut guests: Vec<Guest> = (1..=3)
            .map(|n| {
                let socket = served.file(format!("guest{n}"));
                Guest::listen(&socket, &config, Duration::from_secs(10)).unwrap()
            })
            .collect();
        let mut pairs: Vec<QueuePair> = guests.iter_mut().map(|guest| guest.take_pairs().remove(0)).collect();
        let mut sent = 0;
        for n in 0..200u16 {
            let len = [600, 1514, 2000, 9014][usize::from(n) % 4];
            let frame = |from: u8, to: u8, ttl: u8, ip: u8, port: u16| {
                let ip = Compose::ethernet(mac(from), mac(to)).ipv4(address(1), address(ip)).ttl(ttl);
                ip.udp(1000 + n, port).frame_len(len).build().unwrap()
            };
            let (changed, two, three) = (frame(1, 2, 64, 2, 9), frame(1, 3, 64, 2, 9), frame(1, 4, 64, 2, 9));
            let mut tagged = frame(9, 2, 63, 9, 53);
            tagged.splice(12..12, [0x81, 0, 0, 7]);
            let wanted = [
                vec![],
                vec![tagged, two.clone(), three.clone()],
                vec![frame(8, 3, 64, 2, 9), three.clone()],
            ];
            let mut got = [vec![], vec![], vec![]];
            assert_eq!(pairs[0].send_all([&changed[..], &two, &three].into_iter()), 3);
            sent += 3;
            let start = Instant::now();
            while got.iter().zip(&wanted).any(|(got, wanted)| got.len() < wanted.len()) {
                for (pair, got) in pairs.iter_mut().zip(&mut got) {
                    pair.receive(8, |frame| got.push(frame.to_vec()));
                }
                assert!(start.elapsed() < Duration::from_secs(10), "{layout:?}, {n}: {got:?}");
            }
            for (got, wanted) in got.iter_mut().zip(wanted) {
                // Of different flows; in any order.
                got.sort();
                let mut wanted = wanted;
                wanted.sort();
                assert!(*got == wanted, "{layout:?}, {n}");
            }
        }
        // All but the first of each flow; statistics are written every few seconds.
        wait_for("statistics", || lent() >= before + sent - 50);
        drop(guests);
    }
}

#[test]
fn one_queue_keeps_one_worker_busy_and_the_counters_show_it() {
    let served = Served::start(2, 2);
    served.connect(&[(1, 2)]);
    let sink = served.guest(2, &["--mode", "sink"]);
    // All that there is in one flow of one queue, as fast as it goes.
    let source = served.guest(1, &["--mode", "source"]);
    wait_for("traffic", || served.count(2, "tx", "pkts") > 20_000);
    let shown = served.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
    assert_eq!(shown.matches("port: g1 ").count(), 1, "one queue, one worker: {shown}");
    let stats = served.appctl(&["dpif-netdev/pmd-stats-show"]).ok();
    let number = |text: &str, key: &str| -> f64 {
        let value = &text[text.find(key).unwrap() + key.len()..];
        value.split([' ', '\n', '%']).next().unwrap().parse().unwrap()
    };
    let workers: Vec<&str> =
        stats.split("pmd thread ").skip(1).filter(|w| w.contains("packets received")).collect();
    let mut received: Vec<f64> = workers.iter().map(|w| number(w, "packets received: ")).collect();
    received.sort_by(f64::total_cmp);
    assert_eq!(received.len(), 2, "{stats}");
    assert!(received[0] < 100.0 && received[1] > 20_000.0, "{stats}");
    // What the worker cannot take waits with the sender: nothing is lost between.
    let sent = served.end(1, source)("sent");
    let taken = served.count(1, "rx", "pkts");
    assert!(sent >= taken && sent - taken <= 4096, "{sent} sent, {taken} taken");
    assert_eq!(served.count(1, "rx", "drop"), 0);
    drop(sink);
}

/// A guest that is held (its process is stopped) while one port sends to it as fast as it can, and another
/// one to it and to a guest that reads.
#[test]
fn queues_that_a_guest_disables_are_shown_so_and_one_remains_when_it_is_gone() {
    let served = Served::start(2, 1);
    let config = GuestConfig { pairs: 4, ..GuestConfig::default() };
    let socket = served.file("guest1");
    let mut guest = Guest::listen(&socket, &config, Duration::from_secs(60)).unwrap();
    // Of the guest's port alone.
    let shown = || {
        let shown = served.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
        let lines = shown.lines().filter(|line| line.contains("port: g1 "));
        let mut states: Vec<(String, bool)> = lines
            .map(|line| {
                let mut words = line.split_whitespace().skip_while(|word| *word != "queue-id:").skip(1);
                (words.next().unwrap().to_owned(), words.next().unwrap() == "(enabled)")
            })
            .collect();
        states.sort();
        states.into_iter().map(|(_, is_enabled)| is_enabled).collect::<Vec<_>>()
    };
    wait_for("four queues are polled", || shown() == [true; 4]);
    guest.enable_pair(2, false).unwrap();
    guest.enable_pair(3, false).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(shown(), [true, true, false, false]);
    drop(guest);
    wait_for("one queue remains", || shown() == [false]);
    let mut guest = Guest::listen(&socket, &config, Duration::from_secs(60)).unwrap();
    wait_for("four queues are polled again", || shown() == [true; 4]);
    let mut pairs = guest.take_pairs();
    served.set_rules("in_port=1,actions=in_port\n");
    assert!(pairs[3].send(&[0x11; 60]));
    wait_for("the last queue is served", || served.count(1, "rx", "pkts") > 0);
}

#[test]
fn a_guest_that_stops_reading_loses_its_own_packets_alone_and_all_are_counted() {
    for layout in [&[][..], &["--packed"]] {
        let served = Served::start(1, 4);
        let stopped = served.guest(2, &[&["--mode", "sink"], layout].concat());
        let reader = served.guest(4, &["--mode", "check"]);
        served.set_rules("in_port=1,actions=2\nin_port=3,actions=2,4\n");
        kill("STOP", stopped.id());
        let paced = served.guest(3, &["--mode", "source", "--rate", "2000"]);
        let flood = served.guest(1, &["--mode", "source"]);
        wait_for("drops at the guest that has stopped", || served.count(2, "tx", "drop") > 50_000);
        let before = served.count(4, "tx", "pkts");
        wait_for("packets to the guest that reads", || served.count(4, "tx", "pkts") > before + 4_000);
        for (n, source) in [(1, flood), (3, paced)] {
            let sent = served.end(n, source)("sent");
            assert!(sent >= served.count(n, "rx", "pkts"), "port {n} received what was not sent");
        }
        let mut last = [0; 2];
        wait_for("nothing to be under way", || {
            let now = [1, 3].map(|n| served.count(n, "rx", "pkts"));
            // What leaves is counted after what came.
            let left = served.count(2, "tx", "pkts") + served.count(2, "tx", "drop");
            let is_all = left == now[0] + now[1] && served.count(4, "tx", "pkts") == now[1];
            std::mem::replace(&mut last, now) == now && is_all
        });
        // What went into its rings before they were full is there; the rest is lost at its port, and nowhere
        // else.
        let [from_flood, from_paced] = last;
        let taken = served.count(2, "tx", "pkts");
        assert!(taken <= 4_096, "{taken} packets in a ring of 4096");
        let lost = from_flood + from_paced - taken;
        assert_eq!(served.count(2, "tx", "drop"), lost);
        assert_eq!(served.count(4, "tx", "pkts"), from_paced, "the other port has lost some");
        for n in 1..=4 {
            assert_eq!(served.count(n, "rx", "drop"), 0, "at g{n}");
            assert!(n == 2 || served.count(n, "tx", "drop") == 0, "at g{n}");
        }
        let drops = served.appctl(&["crosspoint/drops"]).ok();
        assert!(drops.contains(&format!("tx_queue_full: {lost}\n")), "{lost} lost: {drops}");
        // The bridge's own port drops what the kernel says there by itself.
        let of_guests = drops.lines().filter(|line| line.starts_with("  g")).count();
        assert_eq!(of_guests, 2, "those who sent to it, for one reason: {drops}");
        // The database has the same within an interval of its statistics.
        let statistic =
            |name: &str| served.vsctl(&format!("get interface g2 statistics:{name}")).trim().to_owned();
        wait_for("statistics", || statistic("tx_dropped") == lost.to_string());
        assert_eq!(statistic("ovs_tx_failure_drops"), lost.to_string());
        // None, if it was a whole burst that found the ring full first.
        assert!(statistic("ovs_tx_retries").parse::<u64>().is_ok());
        for key in ["tx_q0_good_packets", "tx_1_to_64_packets"] {
            assert_eq!(statistic(key), taken.to_string(), "{key}");
        }
        // It goes on with what it had been given, and only that.
        kill("CONT", stopped.id());
        let of_stopped = served.end(2, stopped);
        assert_eq!(of_stopped("received"), taken);
        let of_reader = served.end(4, reader);
        assert_eq!(of_reader("received"), from_paced);
        assert_eq!((of_reader("missing"), of_reader("reordered")), (0, 0));
    }
}

/// A worker that sleeps takes some 100 us to wake, in which a guest may fill its ring.
#[test]
fn a_sleeping_worker_that_is_woken_by_a_full_ring_loses_none_of_it() {
    let served = Served::start(1, 2);
    served.set_rules("in_port=1,actions=2\n");
    let ((_guest1, mut from), (_guest2, mut to)) = (attach(&served, 1), attach(&served, 2));
    let frame = |n: u32| [&[0x22; 60][..], &n.to_be_bytes()].concat();
    let (mut sent, mut received) = (0u32, 0u32);
    // A kick says that the worker had gone to sleep.
    wait_for("ten sleeps", || {
        let frames: Vec<Vec<u8>> = (sent..sent + 256).map(frame).collect();
        assert_eq!(from.send_all(frames.iter().map(Vec::as_slice)), 256, "a full ring");
        sent += 256;
        // Nobody reads before all have been taken, so that they must all fit the receiver's ring.
        wait_for("the worker to take all", || !from.is_sending());
        wait_for("what was sent", || {
            to.receive(256, |came| {
                assert!(came == frame(received), "frame {received}");
                received += 1;
            });
            received == sent
        });
        from.stats().kicks >= 10
    });
    assert_eq!((served.count(1, "rx", "drop"), served.count(2, "tx", "drop")), (0, 0));
}

/// A guest in this process, with its queues.
fn attach(served: &Served, n: u32) -> (Guest, QueuePair) {
    let socket = served.file(format!("guest{n}"));
    let mut guest = Guest::listen(&socket, &GuestConfig::default(), Duration::from_secs(60)).unwrap();
    let pair = guest.take_pairs().pop().unwrap();
    wait_for("the link", || served.vsctl(&format!("get interface g{n} link_state")).trim() == "up");
    (guest, pair)
}

/// The next frame of type `ethertype` that comes for a guest.
fn next_frame(pair: &mut QueuePair, ethertype: [u8; 2]) -> Vec<u8> {
    let mut frames = Vec::new();
    wait_for("a frame", || {
        // The kernel says something at the bridge's own port now and then.
        pair.receive(1, |frame| frames.push(frame.to_vec()));
        frames.retain(|frame: &Vec<u8>| frame[12..14] == ethertype);
        !frames.is_empty()
    });
    frames.remove(0)
}

/// What a switch does for a machine that has moved to it and whose driver cannot announce itself.
#[test]
fn a_machine_that_has_arrived_is_announced_to_the_network_and_reached_where_it_is_now() {
    let served = Served::start(1, 2);
    served.vsctl("set-fail-mode br0 standalone -- set port g2 vlan_mode=trunk");
    let (mut guest, mut vm) = attach(&served, 1);
    let (_network, mut network) = attach(&served, 2);
    let mac = [0x02, 0, 0, 0, 0, 0x99];
    let learned = |vlan: u16, port: u32| {
        wait_for("the address to be learned", || {
            let table = served.appctl(&["fdb/show", "br0"]).ok();
            table.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words[..3] == [&port.to_string(), &vlan.to_string(), "02:00:00:00:00:99"]
            })
        });
    };
    for vlan in [0u16, 10] {
        if vlan > 0 {
            served.vsctl(&format!("set port g1 tag={vlan}"));
        }
        let tagged = |frame: &[u8]| {
            let tag = [&[0x81, 0][..], &vlan.to_be_bytes()].concat();
            if vlan == 0 { frame.to_vec() } else { [&frame[..12], &tag, &frame[12..]].concat() }
        };
        // Where it was until now: behind the network.
        let mut from_afar = [0u8; 60];
        from_afar[..6].fill(0xff);
        from_afar[6..12].copy_from_slice(&mac);
        from_afar[12..14].copy_from_slice(&[0x88, 0xb5]);
        assert!(network.send(&tagged(&from_afar)));
        learned(vlan, 2);
        guest.announce(mac).unwrap();
        // RFC 903: a request, for the address that belongs to its own.
        let mut announcement = [0u8; 60];
        announcement[..6].fill(0xff);
        announcement[6..12].copy_from_slice(&mac);
        announcement[12..22].copy_from_slice(&[0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3]);
        announcement[22..28].copy_from_slice(&mac);
        announcement[32..38].copy_from_slice(&mac);
        let ethertype = if vlan == 0 { [0x80, 0x35] } else { [0x81, 0] };
        assert_eq!(next_frame(&mut network, ethertype), tagged(&announcement));
        learned(vlan, 1);
        // What the network sends there now finds it.
        let mut to_it = from_afar;
        to_it[..6].copy_from_slice(&mac);
        to_it[6..12].copy_from_slice(&[2, 0, 0, 0, 0, 0x77]);
        to_it[12..14].copy_from_slice(&[0x88, 0xb6]);
        assert!(network.send(&tagged(&to_it)));
        assert_eq!(next_frame(&mut vm, [0x88, 0xb6]), to_it);
    }
}
