//! Virtual machines of QEMU on vhost-user ports, with a driver that neither we nor DPDK wrote: the kernel's.

mod machine;
mod rig;

use crate::common::Process;
use machine::{Machine, documented_command};
use rig::{Rig, longest_gap, replies, wait_for};
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

/// Emulation takes a processor for each machine: the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn take_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Kbit/s of the receiver, as iperf3 says at its end.
#[track_caller]
fn received_kbits(text: &str) -> f64 {
    let line = text.lines().find(|line| line.ends_with("receiver")).unwrap_or_else(|| panic!("{text}"));
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "Kbits/sec").unwrap_or_else(|| panic!("{text}"));
    words[at - 1].parse().unwrap()
}

/// Whether a server of iperf3 waits for clients in the network beside a switch.
fn listens_in_the_network(rig: &Rig) -> bool {
    rig::ok(rig.network.command("ss").arg("-Hltn")).contains(":5201")
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

#[test]
fn two_machines_and_the_network_talk_and_go_on_by_themselves_after_kill_9_of_the_switch() {
    let _turn = take_turn();
    let mut rig = Rig::start("10.0.0.100/24");
    let dir = rig.dir.path().to_owned();
    let socket = |name: &str| dir.join(name).display().to_string();
    rig.vsctl("add-port br0 net");
    // vm1 listens, and we connect; we listen for vm2, which connects.
    rig.vsctl(&format!(
        "add-port br0 vm1 -- set interface vm1 type=dpdkvhostuserclient options:vhost-server-path={}",
        socket("vm1.sock")
    ));
    rig.vsctl("add-port br0 vm2 -- set interface vm2 type=dpdkvhostuser");
    for name in ["vm1", "vm2"] {
        assert_eq!(rig.interface(name, "link_state"), "down");
        assert_eq!(rig.interface(name, "status:status"), "disconnected");
    }
    let path = socket("vm1.sock");
    let listening = documented_command("docs/virtual-machines.md", 0);
    let mut vm1 = Machine::start(&dir, "vm1", &listening, &[("/tmp/crosspoint/vm1.sock", &path)], &[]);
    let path = socket("vm2");
    let connecting = documented_command("docs/ports.md", 0);
    // After the switch was killed, QEMU does not know where packed rings stand.
    let replaced = [("/tmp/crosspoint/vm2", path.as_str()), ("virtio-net-pci,", "virtio-net-pci,packed=on,")];
    let mut vm2 = Machine::start(&dir, "vm2", &connecting, &replaced, &[]);
    for (vm, n) in [(&mut vm1, 1), (&mut vm2, 2)] {
        vm.wait_until_it_is_up();
        vm.run(&format!("ip addr add 10.0.0.{n}/24 dev eth0; ip link set eth0 up"));
    }

    // What the rows say follows the driver.
    for (name, mode, at) in [("vm1", "client", socket("vm1.sock")), ("vm2", "server", socket("vm2"))] {
        wait_for("the link", || rig.interface(name, "link_state") == "up");
        let status = |key: &str| rig.interface(name, &format!("status:{key}"));
        assert_eq!((status("mode"), status("socket")), (mode.into(), at));
        assert_eq!((status("status"), status("num_of_vrings")), ("connected".into(), "2".into()));
        assert_eq!((status("vring_0_size"), status("vring_1_size")), ("256".into(), "256".into()));
        let features = u64::from_str_radix(status("features").trim_start_matches("0x"), 16).unwrap();
        // Version 1; mergeable buffers; checksums and TCP segments in both directions.
        let expected = 1 << 32 | 1 << 15 | 0b11 | 1 << 7 | 1 << 8 | 1 << 11 | 1 << 12;
        assert_eq!(features & expected, expected, "{features:#x}");
        assert_eq!(features >> 34 & 1 == 1, name == "vm2", "packed rings: {features:#x}");
    }
    vm2.run("ip link set eth0 down; rmmod virtio_net");
    wait_for("the link to go with the driver", || rig.interface("vm2", "link_state") == "down");
    vm2.run("insmod /modules/virtio_net.ko; ip addr add 10.0.0.2/24 dev eth0; ip link set eth0 up");
    wait_for("the link to come with the driver", || rig.interface("vm2", "link_state") == "up");

    // Guest to guest, guest to network and back.
    vm1.run("ping -c 3 -W 10 10.0.0.2");
    vm1.run("ping -c 3 -W 10 10.0.0.100");
    vm2.run("ping -c 3 -W 10 10.0.0.100");

    // TCP in both directions. From guest to guest segments cross whole; towards the network they are cut.
    let statistics = |name: &str, key: &str| -> u64 {
        let mut ports = rig.ofctl(&["dump-ports", "br0", name]).ok();
        ports.retain(|c| c != '\n');
        let direction = ports.split(&format!("{} pkts=", &key[..2])).nth(1).unwrap();
        let value = direction.split(&key[3..]).nth(if key.ends_with("pkts") { 0 } else { 1 }).unwrap();
        value.trim_start_matches('=').split(',').next().unwrap().parse().unwrap()
    };
    const LEN: &str = "1M";
    let iperf3 = |to: &str| format!("iperf3 -f k -n {LEN} -c {to}");
    vm2.run("iperf3 -s -D; until netstat -ltn | grep -q :5201; do sleep 0.1; done");
    let before = (statistics("vm2", "tx_pkts"), statistics("vm2", "tx_bytes"));
    let out = received_kbits(&vm1.run(&iperf3("10.0.0.2")));
    let after = (statistics("vm2", "tx_pkts"), statistics("vm2", "tx_bytes"));
    let mean = (after.1 - before.1) / (after.0 - before.0);
    assert!(mean > 1514, "frames of {mean} bytes: no segment was left whole");
    let back = received_kbits(&vm1.run(&(iperf3("10.0.0.2") + " -R")));
    let mut server = rig.network.command("iperf3");
    let _server = Process::silent(server.args(["-s"]));
    wait_for("iperf3 to listen", || listens_in_the_network(&rig));
    let to_network = received_kbits(&vm1.run(&iperf3("10.0.0.100")));
    let from_network = received_kbits(&vm1.run(&(iperf3("10.0.0.100") + " -R")));
    println!(
        "{LEN}B by TCP, Mbit/s, emulated guests: to guest {:.1} (frames of {mean} bytes), from guest {:.1}, \
         to network {:.1}, from network {:.1}",
        out / 1e3,
        back / 1e3,
        to_network / 1e3,
        from_network / 1e3
    );

    // kill -9.
    let files = [dir.join("ping1"), dir.join("ping2")];
    let pings = [rig.ping_on("10.0.0.1", &files[0]), rig.ping_on("10.0.0.2", &files[1])];
    wait_for("pings", || files.iter().all(|file| replies(file).len() > 20));
    rig.kill_switch();
    let killed = now();
    rig.start_switch();
    let running = now();
    for (file, vm) in files.iter().zip(["vm1", "vm2"]) {
        wait_for("replies after the switch was killed", || {
            replies(file).iter().filter(|reply| reply.0 > running).count() > 50
        });
        let after: Vec<(f64, u32)> = replies(file).into_iter().filter(|reply| reply.0 > killed).collect();
        let resumed = after.iter().find(|reply| reply.0 > killed + 0.05).unwrap().0;
        println!(
            "{vm}: traffic resumes {:.3} s after the kill, {:.3} s after the new switch runs; longest gap {:.3} s",
            resumed - killed,
            resumed - running,
            longest_gap(&replies(file))
        );
        assert!(resumed - running < 10.0, "an outage of {} s", resumed - running);
    }
    drop(pings);
    for name in ["vm1", "vm2"] {
        wait_for("the link", || rig.interface(name, "link_state") == "up");
    }
    vm1.run("ping -c 3 -W 10 10.0.0.2");
}

#[test]
fn a_machine_with_four_pairs_of_queues_uses_as_many_as_it_likes() {
    let _turn = take_turn();
    let mut rig = Rig::start("10.0.0.100/24");
    rig.vsctl("add-port br0 net");
    let path = rig.file("vm.sock").display().to_string();
    rig.vsctl(&format!(
        "add-port br0 vm -- set interface vm type=dpdkvhostuserclient options:vhost-server-path={path}"
    ));
    let replaced = [
        ("/tmp/crosspoint/vm1.sock", path.as_str()),
        ("1G", "192M"),
        ("chardev=vhost0", "chardev=vhost0,queues=4"),
        ("virtio-net-pci,", "virtio-net-pci,mq=on,"),
    ];
    let mut vm = Machine::start(
        rig.dir.path(),
        "vm",
        &documented_command("docs/virtual-machines.md", 0),
        &replaced,
        &[],
    );
    vm.wait_until_it_is_up();
    vm.run("ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up");
    let in_use = |rig: &Rig| {
        let shown = rig.appctl(&["dpif-netdev/pmd-rxq-show"]).ok();
        shown.lines().filter(|line| line.contains("port: vm ") && line.contains("(enabled)")).count()
    };
    // Flows of their own, which the guest's driver spreads over its queues.
    let all_arrive = |vm: &mut Machine, rig: &mut Rig| {
        let mut server = rig.network.command("iperf3");
        let _server = Process::silent(server.args(["-s", "-1"]));
        wait_for("iperf3 to listen", || listens_in_the_network(rig));
        let said = vm.run("iperf3 -f k -n 256K -P 4 -c 10.0.0.100");
        assert!(said.contains("SUM"), "{said}");
    };
    for pairs in [1, 4, 2] {
        // The driver begins with a pair for each of its processors, of which there is one.
        if pairs > 1 {
            vm.run(&format!("ethtool -L eth0 combined {pairs}"));
        }
        wait_for(&format!("{pairs} queues in use"), || in_use(&rig) == pairs);
        vm.run("ping -c 3 -W 10 10.0.0.100");
        all_arrive(&mut vm, &mut rig);
        assert_eq!(rig.interface("vm", "status:num_of_vrings"), "8");
    }
    // The driver leaves and comes back, and the switch is killed: QEMU says everything again, for each pair.
    vm.run("ip link set eth0 down; rmmod virtio_net");
    wait_for("the link to go with the driver", || rig.interface("vm", "link_state") == "down");
    vm.run("insmod /modules/virtio_net.ko; ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up");
    vm.run("ethtool -L eth0 combined 4; ping -c 3 -W 10 10.0.0.100");
    rig.kill_switch();
    rig.start_switch();
    wait_for("four queues after the switch was killed", || in_use(&rig) == 4);
    vm.run("ping -c 3 -W 10 10.0.0.100");
    all_arrive(&mut vm, &mut rig);
    assert!(!rig.interface("vm", "status").contains("error"), "{}", rig.log());
}

#[test]
fn machines_whose_buffers_are_of_many_pieces_take_bursts_and_segments() {
    let _turn = take_turn();
    let rig = Rig::start("10.0.0.100/24");
    rig.vsctl("add-port br0 net");
    for card in ["virtio-net-pci,mrg_rxbuf=off,", "virtio-net-pci,mrg_rxbuf=off,packed=on,"] {
        let path = rig.file("vm.sock").display().to_string();
        rig.vsctl(&format!(
            "--if-exists del-port vm -- add-port br0 vm -- set interface vm type=dpdkvhostuserclient options:vhost-server-path={path}"
        ));
        let replaced =
            [("/tmp/crosspoint/vm1.sock", path.as_str()), ("1G", "192M"), ("virtio-net-pci,", card)];
        let mut vm = Machine::start(
            rig.dir.path(),
            "vm",
            &documented_command("docs/virtual-machines.md", 0),
            &replaced,
            &[],
        );
        vm.wait_until_it_is_up();
        vm.run("ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up");
        vm.run("ping -c 3 -W 10 10.0.0.100");
        let features = rig.interface("vm", "status:features");
        let features = u64::from_str_radix(features.trim_start_matches("0x"), 16).unwrap();
        // Segments of TCP and indirect tables without mergeable buffers: 19 descriptors for each frame.
        assert_eq!(features & (1 << 7 | 1 << 15 | 1 << 28), 1 << 7 | 1 << 28, "{features:#x}");
        // A burst at once, more than its ring has buffers: the first 200 need no answers.
        let mut flood = rig.network.command("ping");
        let said = flood.args(["-q", "-f", "-l", "200", "-c", "1000", "10.0.0.1"]).output().unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains("1000 packets transmitted") && !said.contains(" 0 received"), "{said}");
        let mut server = rig.network.command("iperf3");
        let _server = Process::silent(server.args(["-s", "-1"]));
        wait_for("iperf3 to listen", || listens_in_the_network(&rig));
        received_kbits(&vm.run("iperf3 -f k -n 1M -R -c 10.0.0.100"));
        assert!(!rig.log().contains("was disconnected"), "{}", rig.log());
    }
}

#[test]
fn a_machine_moves_to_another_switch_under_traffic_with_its_memory_whole() {
    let _turn = take_turn();
    // The network is behind the first switch, and a trunk joins the two.
    let (from, to) = (Rig::start("10.0.0.100/24"), Rig::start("10.0.0.101/24"));
    from.join(&to, "trunk");
    from.vsctl("add-port br0 net");
    let mut machines = [(&from, "origin"), (&to, "target")].map(|(rig, name)| {
        let socket = rig.file("vm.sock").display().to_string();
        rig.vsctl("add-port br0 trunk");
        rig.vsctl(&format!(
            "add-port br0 vm -- set interface vm type=dpdkvhostuserclient options:vhost-server-path={socket}"
        ));
        let command = documented_command("docs/virtual-machines.md", 0);
        let replaced = [("/tmp/crosspoint/vm1.sock", socket.as_str()), ("1G", "192M")];
        let incoming = format!("unix:{}", from.file("migration").display());
        let more: &[&str] = if name == "target" { &["-incoming", &incoming] } else { &[] };
        Machine::start(rig.dir.path(), name, &command, &replaced, more)
    });
    let [origin, target] = &mut machines;
    origin.wait_until_it_is_up();
    origin.run("ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up; ping -c 1 -W 20 10.0.0.100");

    // Two sorts of traffic: pings, of which each that is lost is counted, and TCP, whose contents must arrive
    // whole, though the switches write them into memory that is being copied.
    let file = from.file("pings");
    let ping = from.ping_on("10.0.0.1", &file);
    origin.run("(sleep 1000 | nc -l -p 5000 | md5sum > /tmp/sum) &");
    origin.run("until netstat -ltn | grep -q :5000; do sleep 0.1; done");
    let mut sender = from.network.command("busybox");
    let mut sender = Process::start(sender.args(["nc", "10.0.0.1", "5000"]).stdin(Stdio::piped()));
    let mut stream = sender.stdin.take().unwrap();
    let ending = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_ending = ending.clone();
    let copy = from.file("sent");
    let mut written = std::fs::File::create(&copy).unwrap();
    let traffic = std::thread::spawn(move || {
        let mut count = 0u64;
        while !is_ending.load(std::sync::atomic::Ordering::Relaxed) {
            // Numbers that never repeat.
            let block: Vec<u8> = (0..1024u64).flat_map(|n| ((count << 10) + n).to_le_bytes()).collect();
            written.write_all(&block).unwrap();
            stream.write_all(&block).expect("the connection lasts");
            count += 1;
            std::thread::sleep(Duration::from_millis(5));
        }
        count * 8
    });
    wait_for("pings", || replies(&file).len() > 20);

    let began = now();
    let mut monitor = origin.monitor();
    monitor.ask("migrate", &format!(r#"{{"uri":"unix:{}"}}"#, from.file("migration").display()));
    let mut said = String::new();
    wait_for("the migration", || {
        said = monitor.ask("query-migrate", "{}");
        assert!(!said.contains("\"failed\""), "{said}");
        said.contains("\"completed\"")
    });
    let moved = now();
    let number = |key: &str| {
        let at = said.find(&format!("\"{key}\": ")).unwrap_or_else(|| panic!("no {key}: {said}"));
        let digits = said[at + key.len() + 4..].split(|c: char| !c.is_ascii_digit()).next().unwrap();
        digits.parse::<u64>().unwrap()
    };
    wait_for("replies after the migration", || {
        replies(&file).iter().filter(|reply| reply.0 > moved).count() > 50
    });
    ending.store(true, std::sync::atomic::Ordering::Relaxed);
    let kilobytes = traffic.join().unwrap();
    wait_for("the sender to end", || sender.try_wait().unwrap().is_some());

    // What arrived is what was sent.
    let sum = target.run("while ! [ -s /tmp/sum ]; do sleep 1; done; cat /tmp/sum");
    let sent = rig::ok(Command::new("md5sum").arg(&copy));
    assert_eq!(sum.split_whitespace().next(), sent.split_whitespace().next(), "{kilobytes} KB");

    drop(ping);
    let came = replies(&file);
    let (first, last) = (came[0].1, came[came.len() - 1].1);
    let lost = (last - first + 1) as usize - came.len();
    println!(
        "migration in {:.1} s, of which the guest stood still {} ms; {kilobytes} KB arrived whole meanwhile; \
         {lost} of {} pings lost, one each 20 ms; longest gap {:.3} s",
        moved - began,
        number("downtime"),
        last - first + 1,
        longest_gap(&came)
    );
    assert!(came.iter().all(|reply| came.iter().filter(|other| other.1 == reply.1).count() == 1));

    // The first switch knows where the guest is now, by its announcement, and the second has its link.
    let trunk = from.interface("trunk", "ofport");
    let table = from.appctl(&["fdb/show", "br0"]).ok();
    let entry =
        table.lines().find(|line| line.contains("52:54:00:00:00:01")).unwrap_or_else(|| panic!("{table}"));
    assert_eq!(entry.split_whitespace().next(), Some(&*trunk), "{table}");
    wait_for("the link", || to.interface("vm", "link_state") == "up");
}

#[test]
fn the_description_for_libvirt_is_one_that_its_schema_allows() {
    let text = std::fs::read_to_string(testkit::root().join("docs/virtual-machines.md")).unwrap();
    let start = text.find("    <domain").expect("docs/virtual-machines.md describes a machine");
    let end = start + text[start..].find("</domain>").unwrap() + "</domain>".len();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("domain.xml");
    let schema = "/usr/share/libvirt/schemas/domain.rng";
    let is_valid = |xml: &str| {
        std::fs::write(&path, xml).unwrap();
        let mut check = Command::new("xmllint");
        let said = check.args(["--noout", "--relaxng", schema]).arg(&path).output();
        let said = said.expect("xmllint, of libxml2-utils; the schema is libvirt0's");
        (said.status.success(), String::from_utf8_lossy(&said.stderr).into_owned())
    };
    let (valid, why) = is_valid(&text[start..end]);
    assert!(valid, "{why}");
    assert!(!is_valid(&text[start..end].replace("mode='server'", "mode='listens'")).0, "it finds a mistake");
}
