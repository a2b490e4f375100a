//! `crosspoint ofctl` beside the stock `ovs-ofctl`: the same command lines, against the same switch, give the
//! same output, the same errors and the same exit codes. The switches are Open vSwitch's, with its dummy
//! datapath, and ours.

mod matches;
mod rig;
mod samples;
mod snoop;

use crate::common::wait_for;
use rig::{Rig, Which};
use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Command lines, in the order in which they are run. `DIR` is the directory of the files below.
const COMMANDS: &str = include_str!("commands.txt");

const FILES: [(&str, &str); 7] = [
    (
        "a.txt",
        "in_port=1,actions=2\n\
         table=2,in_port=2,cookie=5,idle_timeout=700,importance=3,actions=3 # comment\n\
         \n\
         priority=5,ip,nw_src=1.2.3.4,actions=mod_dl_src:1:2:3:4:5:6,2\n",
    ),
    (
        "b.txt",
        "in_port=1,actions=3\n\
         table=2,in_port=2,cookie=5,idle_timeout=800,actions=3\n\
         priority=6,ip,nw_src=1.2.3.4,actions=mod_dl_src:1:2:3:4:5:6,2\n\
         priority=5,ip,nw_src=1.2.3.4,actions=mod_dl_src:1:2:3:4:5:6,2\n",
    ),
    ("c.txt", "in_port=1,actions=3\ntable=2,tcp,tp_dst=80,actions=2\npriority=7,arp,actions=NORMAL\n"),
    ("bad.txt", "in_port=1,actions=1\nin_port=2,actions=1\n\n  ip,foo=1,actions=2\nin_port=3,actions=1\n"),
    (
        "d.txt",
        "in_port=1,actions=write_actions(output:1)\n\
         in_port=2,actions=meter:1,output:1\n\
         in_port=3,actions=push_vlan:0x8100\n\
         in_port=4,actions=clear_actions\n\
         in_port=5,actions=output:1,clear_actions,write_actions(output:5)\n\
         in_port=6,actions=clone(push_vlan:0x8100,output:1)\n\
         in_port=7,actions=note:01\n",
    ),
    (
        "e.txt",
        "in_port=1,actions=write_actions(output:2)\n\
         in_port=2,actions=meter:2,output:1\n\
         in_port=3,actions=push_vlan:0x88a8\n\
         in_port=4,actions=drop\n\
         in_port=5,actions=output:1\n\
         in_port=6,actions=clone(push_vlan:0x88a8,output:1)\n\
         in_port=7,actions=note:01\n",
    ),
    ("f.txt", "send_flow_rem,ip,actions=output:1\n"),
];

/// Words of a command line; double quotes keep blanks.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quoted = false;
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            c => words.last_mut().expect("there is one from the start").push(c),
        }
    }
    words
}

/// Output with what is never the same twice masked, and with the name of the program left out.
fn masked(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let log = |line: &&str| !line.contains("|WARN|") && !line.contains("|INFO|");
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in stderr.lines().filter(log) {
        let line =
            line.strip_prefix("ovs-ofctl: ").or(line.strip_prefix("crosspoint ofctl: ")).unwrap_or(line);
        text += &format!("stderr: {line}\n");
    }
    let keys = ["duration=", "_age=", "time=", "pkts=", "bytes=", "n_packets=", "lookup=", "matched="];
    for key in keys {
        text = mask(&text, key);
    }
    text + &format!("exit code {:?}\n", output.status.code())
}

/// Replaces the number after each `key`.
fn mask(text: &str, key: &str) -> String {
    let mut parts = text.split(key);
    let mut out = parts.next().unwrap_or("").to_string();
    for part in parts {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        out += &format!("{key}N{rest}");
    }
    out
}

fn run_all(rig: &Rig, program: &[&str]) -> Vec<(String, String)> {
    let run = |line: &str| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(words(line)).env("OVS_RUNDIR", rig.path());
        command.stdin(std::process::Stdio::null());
        masked(&command.output().expect("the client runs"))
    };
    let mut all_rules_deleted = false;
    let lines = COMMANDS.lines().map(|line| line.replace("DIR", &rig.path().display().to_string()));
    lines
        .map(|line| {
            let mut text = run(&line);
            if line.contains("-flow") {
                all_rules_deleted = line == "del-flows br0" || all_rules_deleted && line.contains("dump");
            }
            // In the stock switch a deleted rule uses its options until all threads have looked up.
            if all_rules_deleted && line.starts_with("del-tlv-map") {
                wait_for("options that no rule uses", || {
                    let is_done = !text.contains("INVALID_TLV_DEL");
                    if !is_done {
                        text = run(&line);
                    }
                    is_done
                });
            }
            (line, text)
        })
        .collect()
}

/// Runs all commands by both clients against a switch of its own each, so that each finds the same state.
fn compare(which: Which) {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    let run = |program: &[&str]| {
        let rig = Rig::start(which);
        for (name, text) in FILES {
            std::fs::write(rig.file(name), text).unwrap();
        }
        let mut results = run_all(&rig, program);
        for (line, text) in &mut results {
            // The order of flows is the switch's own affair, and ours keys its hashes anew at each start.
            if which == Which::Ours && line.contains("dump-flows") {
                let mut lines: Vec<&str> = text.lines().collect();
                lines.sort_unstable();
                *text = lines.join("\n") + "\n";
            }
            *line = line.replace(&rig.path().display().to_string(), "DIR");
            *text = text.replace(&rig.path().display().to_string(), "DIR");
            *text = rig.without_addresses(text);
        }
        results
    };
    let (stock, ours) = (run(&["ovs-ofctl"]), run(&[ours, "ofctl"]));
    let mut differences = String::new();
    for ((line, stock), (_, ours)) in stock.iter().zip(&ours) {
        if stock != ours {
            differences += &format!(">> {line}\n--- stock\n{stock}--- ours\n{ours}");
        }
    }
    assert!(differences.is_empty(), "{differences}");
}

#[test]
fn every_command_does_and_says_what_the_stock_client_does_with_the_stock_switch() {
    compare(Which::Stock);
}

#[test]
fn every_command_does_and_says_what_the_stock_client_does_with_our_switch() {
    compare(Which::Ours);
}

#[test]
fn a_file_with_an_error_names_file_line_and_column_and_adds_nothing() {
    let rig = Rig::start(Which::Stock);
    let file = rig.file("bad.txt");
    std::fs::write(&file, FILES[3].1).unwrap();
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let run = |args: &[&str]| {
        let output =
            Command::new(&ours).arg("ofctl").args(args).env("OVS_RUNDIR", rig.path()).output().unwrap();
        masked(&output)
    };
    let nothing_is_added = |line: &str| {
        for version in ["OpenFlow10", "OpenFlow13"] {
            run(&["del-flows", "br0"]);
            let said = run(&["-O", version, "add-flows", "br0", file.to_str().unwrap()]);
            let error = format!("{}:{line}: unknown keyword foo", file.display());
            assert_eq!(said, format!("stderr: {error}\nexit code Some(1)\n"), "{version}");
            assert_eq!(run(&["--no-stats", "dump-flows", "br0"]), "exit code Some(0)\n", "{version}");
        }
    };
    nothing_is_added("4:6");
    // However many lines are right before it: more than are sent one by one, between two barriers, or in a
    // bundle.
    for lines in [1_000, 20_000] {
        let mut text: String = (1..lines).map(|n| format!("priority={n},in_port=1,actions=2\n")).collect();
        text += "ip,foo=5,actions=2\n";
        std::fs::write(&file, text).unwrap();
        nothing_is_added(&format!("{lines}:4"));
    }
}

/// What only the switch refuses: as a bundle nothing of the file is added, one by one nothing after the
/// refused line.
#[test]
fn a_line_that_the_switch_refuses_is_named_and_nothing_after_it_is_added() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    for which in [Which::Stock, Which::Ours] {
        let rig = Rig::start(which);
        let run = |program: &[&str], args: &[&str]| {
            let mut command = Command::new(program[0]);
            masked(&command.args(&program[1..]).args(args).env("OVS_RUNDIR", rig.path()).output().unwrap())
        };
        let file = rig.file("refused.txt");
        std::fs::write(&file, "in_port=1,actions=2\nin_port=2,actions=group:7\nin_port=3,actions=2\n")
            .unwrap();
        let name = file.to_str().unwrap();
        for (version, added) in [("OpenFlow10", " in_port=1 actions=output:2\n"), ("OpenFlow13", "")] {
            run(&["ovs-ofctl"], &["del-flows", "br0"]);
            let said = run(&[ours, "ofctl"], &["-O", version, "add-flows", "br0", name]);
            let start = format!("stderr: {name}:2: the switch refuses this flow\nstderr: OFPT_ERROR ");
            assert!(said.starts_with(&start), "{which:?} {version}: {said}");
            assert!(said.contains("OFPBAC_BAD_OUT_GROUP") && said.contains("exit code Some(1)"), "{said}");
            let flows = run(&["ovs-ofctl"], &["--no-stats", "dump-flows", "br0"]);
            assert_eq!(flows, format!("{added}exit code Some(0)\n"), "{which:?} {version}");
        }
        // Without the refused line all of it is added, whichever way it goes.
        std::fs::write(&file, b"in_port=1,actions=2 # caf\xe9\n# \xff\xfe\nin_port=3,actions=2\n").unwrap();
        for version in ["OpenFlow10", "OpenFlow13"] {
            run(&["ovs-ofctl"], &["del-flows", "br0"]);
            assert_eq!(
                run(&[ours, "ofctl"], &["-O", version, "add-flows", "br0", name]),
                "exit code Some(0)\n"
            );
            let flows = run(&["ovs-ofctl"], &["--no-stats", "--sort=in_port", "dump-flows", "br0"]);
            let expected = " in_port=1 actions=output:2\n in_port=3 actions=output:2\nexit code Some(0)\n";
            assert_eq!(flows, expected, "{which:?} {version}");
        }
    }
}

/// What the stock client says to commands on tunnel options, one switch after the other.
#[test]
fn our_switch_takes_and_refuses_tunnel_options_as_the_stock_switch_does() {
    let said: Vec<Vec<(String, String)>> = [Which::Stock, Which::Ours]
        .map(|which| {
            let rig = Rig::start(which);
            let options = run_all(&rig, &["ovs-ofctl"]);
            let first = options.iter().position(|(line, _)| line.contains("dump-tlv-map")).unwrap();
            let sorted = |(line, text): &(String, String)| {
                let mut lines: Vec<&str> = text.lines().collect();
                if line.contains("dump-flows") {
                    lines.sort_unstable();
                }
                (line.clone(), lines.join("\n"))
            };
            options[first..].iter().map(sorted).collect()
        })
        .into();
    let differences: Vec<String> = (said[0].iter().zip(&said[1]))
        .filter(|(stock, ours)| stock != ours)
        .map(|(stock, ours)| format!(">> {}\n--- stock\n{}\n--- ours\n{}", stock.0, stock.1, ours.1))
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

#[test]
fn flow_monitors_of_our_switch_say_what_the_stock_switch_says() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    let watches: [&[&str]; 3] = [
        &["watch:"],
        &["watch:!initial,!actions,!add"],
        &["watch:in_port=2,table=0", "watch:out_port=2,!own"],
    ];
    for watch in watches {
        let stock = rig::watch(Which::Stock, &["ovs-ofctl"], watch);
        assert!(stock.contains("event=DELETED reason=delete table=9"), "{stock}");
        assert_eq!(stock, rig::watch(Which::Ours, &["ovs-ofctl"], watch), "our switch, {watch:?}");
        assert_eq!(
            stock,
            rig::watch(Which::Ours, &[ours, "ofctl"], watch),
            "our switch and client, {watch:?}"
        );
    }
    // With the request before the replies.
    let watch = |program: &[&str]| rig::watch(Which::Stock, &[program, &["-m"]].concat(), &["watch:"]);
    let stock = watch(&["ovs-ofctl"]);
    assert!(stock.starts_with("NXST_FLOW_MONITOR request"), "{stock}");
    assert_eq!(stock, watch(&[ours, "ofctl"]));
}

#[test]
fn monitor_prints_packets_as_the_stock_client_does() {
    let ours = testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint"));
    let ours = ours.to_str().expect("a path in UTF-8");
    for version in ["OpenFlow10", "OpenFlow13"] {
        let seen: Vec<String> =
            [&["ovs-ofctl"][..], &[ours, "ofctl"]].iter().map(|p| rig::monitor(p, version)).collect();
        assert!(seen[0].contains("NXT_PACKET_IN2") && seen[0].contains("FLOW_REMOVED"), "{}", seen[0]);
        assert_eq!(seen[0], seen[1], "{version}");
    }
}

/// The program under test as `ovs-ofctl`.
fn ours() -> Command {
    let mut command = Command::new(testkit::crosspoint(env!("CARGO_BIN_EXE_crosspoint")));
    command.arg("ofctl");
    command
}

#[test]
fn a_reader_that_is_gone_and_a_full_device_end_a_command_without_a_panic() {
    let file = std::env::temp_dir().join(format!("crosspoint-ofctl-full-{}", std::process::id()));
    let flows: String = (0..20_000).map(|i| format!("table=1,reg0={i},actions=drop\n")).collect();
    std::fs::write(&file, flows).unwrap();
    let run = |stdout: Stdio| {
        let child =
            ours().arg("parse-flows").arg(&file).stdout(stdout).stderr(Stdio::piped()).spawn().unwrap();
        child.wait_with_output().unwrap()
    };
    let full = run(std::fs::File::options().write(true).open("/dev/full").unwrap().into());
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let gone = run(writer.into());
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&full.stderr);
    assert!(text.contains("stdout: No space left on device") && !text.contains("panicked"), "{text}");
    assert_eq!((full.status.code(), gone.status.code()), (Some(1), Some(0)));
    assert_eq!(String::from_utf8_lossy(&gone.stderr), "");
}

#[test]
fn what_a_match_leaves_out_for_want_of_what_it_requires_is_said_as_the_stock_client_says_it() {
    // What a line says after the time and the number.
    let said = |output: Output| {
        let text = String::from_utf8(output.stderr).unwrap();
        let lines = text.lines().map(|line| line.splitn(3, '|').nth(2).unwrap_or(line).to_string());
        lines.collect::<Vec<String>>()
    };
    for flow in ["ip_dst=1.2.3.4,actions=drop", "ip,tp_dst=80,actions=1", "ip,nw_dst=1.2.3.4,actions=1"] {
        let stock = said(Command::new("ovs-ofctl").args(["parse-flow", flow]).output().unwrap());
        let ours = said(ours().args(["parse-flow", flow]).output().unwrap());
        // The stock client says it twice, of what it reads and of what it sends.
        assert_eq!(ours, stock[..stock.len() / 2], "{flow}");
    }
}

/// Command lines that need no switch: they print what the stock client prints.
const OFFLINE: &[&[&str]] = &[
    &["parse-flow", "ip,actions=ct(commit,exec(load:0x1->NXM_NX_CT_LABEL[]))"],
    &["parse-flow", "ip,actions=ct(commit,exec(load:0x1234567890abcdef->NXM_NX_CT_LABEL[32..95]))"],
    &["parse-flow", "actions=load:0x7->NXM_NX_XXREG1[]"],
    &["ct-flush-zone", "unix:/nonexistent/switch", "70000"],
    &["ofp-print", ""],
    &["ofp-print", "aabb"],
    &["ofp-print", "0110ccddeeff0011"],
    &["ofp-print", "01100009eeff00112233"],
    &["ofp-print", "0102000d00000001 25 53 54 1a 9d"],
    &["ofp-print", "01 00 00 10 00 00 00 00 00 01 00 08 00 00 00 f0"],
    &["ofp-print", "0101001400000000000100060105ccddeeff0011"],
    &["ofp-print", "020f0010 11223344 00020000 fffffffc"],
    &["ofp-print", "041d0020 00000002 0000000d 00000005 00010010 00000400 00000080 00000000"],
    &["ofp-print", "051e0018 0000000a 00000002 01000000 0000000000000010"],
    &["ofp-print", "05200018 00000002 051d001002000000 0000000000000001"],
    &[
        "ofp-print",
        "051c0038 00000002 0000000800000005 0001000800000002 0002000800000002 0003000800000005 \
        000400080000001c 0005000800000005",
    ],
    &["print-error", "OFPBIC_BAD_EXP_TYPE"],
    &["print-error", "OFPGMFC_UNKNOWN_BUCKET"],
    &["encode-error-reply", "OFPRRFC_BAD_ROLE", "0100000812345678"],
    &["encode-error-reply", "OFPBIC_DUP_INST", "0300000812345678"],
    &["encode-hello", "0x1e"],
    &["encode-hello", "0x24"],
    &["parse-key-value", "a:b", "a=b c", "a(b),c(d(e))"],
    &["-O", "OpenFlow11", "parse-group", "group_id=1,type=select,bucket=weight:0,output:1,bucket=weight=5,2"],
    &["-O", "OpenFlow15", "parse-group", "group_id=1,type=ff,bucket=watch_port:1,output:1"],
    &["parse-group", "group_id=7,type=select,selection_method=hash,fields(ip_src,tcp_src),bucket=1"],
    &["-O", "OpenFlow15", "parse-group", "group_id=5,type=all,bucket=bucket_id=3,drop"],
    &["parse-group", "group_id=5,type=all,bucket=clone(1,2),group:4,resubmit(,1)"],
    &["parse-group", "group_id=1,type=all,bucket=weight:3,output:1"],
    &["parse-group", "group_id=1,type=fast_failover,bucket=output:1"],
    &["parse-group", "group_id=1,type=indirect,bucket=output:1,bucket=2"],
    &["parse-group", "group_id=1"],
    &["parse-group", "type=all"],
    &["parse-group", "group_id=1,type=foo"],
    // A bucket that drops says so.
    &["parse-group", "group_id=1,type=all,bucket=watch_group=7"],
    &["parse-group", "group_id=1,type=ff,bucket=output:1,bucket="],
    &["parse-group", "group_id=1,type=all,bucket=weight=5"],
    &["-O", "OpenFlow15", "parse-group", "group_id=1,type=all,bucket=actions=,bucket=drop"],
    &["parse-group", "group_id=4294967295,type=all"],
    &["-O", "OpenFlow15", "parse-group", "group_id=1,type=indirect,selection_method=foo,bucket=1"],
    &["-O", "OpenFlow15", "parse-group", "group_id=1,type=all,selection_method=hash,fields(ip_src)"],
    // Nicira's actions name fields by NXM's headers in all versions.
    &[
        "-O",
        "OpenFlow13",
        "-mmmmmm",
        "parse-flow",
        "tcp,actions=push:eth_src,pop:eth_dst,move:eth_src->eth_dst,output:in_port[],load:3->eth_src[0..3],\
         check_pkt_larger(3)->eth_src[0],load:5->tcp_src[0..3],ct(zone=eth_src[0..15]),\
         multipath(eth_src,0,modulo_n,2,0,eth_dst[0..11]),bundle_load(eth_src,0,hrw,ofport,eth_dst[0..15],members:1),\
         learn(table=1,eth_dst=eth_src,load:eth_src->eth_dst,result_dst=eth_src[0])",
    ],
    &[
        "-O",
        "OpenFlow15",
        "-mmmmmm",
        "parse-flow",
        "actions=push:eth_src,move:eth_src->eth_dst,load:3->eth_src[0..3]",
    ],
    // A group is printed as one of the versions says it that are allowed.
    &["-O", "OpenFlow11", "parse-group", "group_id=1,type=select,selection_method=dp_hash,bucket=1"],
    &["-O", "OpenFlow12", "parse-group", "group_id=1,type=all,bucket=encap(mpls)"],
    &["-O", "OpenFlow10,OpenFlow14", "parse-group", "group_id=1,type=all,bucket=encap(mpls)"],
    &["parse-group", "group_id=1,type=all,bucket=push_vlan:0x8100"],
    // A tag is a part of an Ethernet header.
    &[
        "ofp-print",
        "060e0060 00000006 0000000000000000 0000000000000000 0700000000008000 ffffffffffffffffffffffff 00000000 \
         0001000c80005804 0001080000000000 0004002000000000 0011000881000000 0019001080000e01 0200000000000000",
    ],
    &["ct-flush-zone", "unix:/nonexistent/switch", "0x10000"],
    &["check-vlan", "0x1000", "0x1000"],
];

/// What the stock client prints of standard input, and as a capture.
#[test]
fn bytes_and_captures_are_read_and_written_as_by_the_stock_client() {
    let both = |args: &[&str], input: &[u8]| {
        [Command::new("ovs-ofctl"), ours()].map(|mut command| {
            let mut child = command
                .args(args)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            child.stdin.take().unwrap().write_all(input).unwrap();
            child.wait_with_output().unwrap()
        })
    };
    let hello = [1, 0, 0, 8, 0, 0, 0, 1];
    let lines = b"0400 0008 0000 0001\n0400 0008 0000 0002\n";
    for (args, input) in [
        (&["--raw", "ofp-print", "-"][..], &hello[..]),
        (&["--raw", "ofp-print", "-", "3"], &hello),
        (&["--raw", "ofp-print", "0100000800000001"], b""),
        (&["ofp-print", "-"], lines),
    ] {
        let [stock, ours] = both(args, input);
        assert_eq!((stock.stdout, stock.status.code()), (ours.stdout, ours.status.code()), "{args:?}");
    }
    let frame = |output: &Output| {
        let records = ports::pcap::file::parse(&output.stdout).unwrap();
        records.iter().map(|record| record.frame.to_vec()).collect::<Vec<_>>()
    };
    let [stock, ours] = both(&["--pcap", "compose-packet", "ip,nw_src=1.2.3.4"], b"");
    assert_eq!(frame(&stock), frame(&ours));
    assert_eq!(frame(&ours).len(), 1);
}

/// Why a flow's actions are not taken is logged of a file's flows, too.
#[test]
fn fields_without_what_they_require_are_said_of_files_as_by_the_stock_client() {
    for flow in ["actions=set_field:4100->vlan_vid", "udp,actions=set_field:80->tcp_dst", "arp,actions=1"] {
        let file = std::env::temp_dir().join(format!("crosspoint-remarks-{}", std::process::id()));
        std::fs::write(&file, format!("{flow}\n")).unwrap();
        let said = |mut command: Command| {
            let output = command.args(["-O", "OpenFlow13", "parse-flows"]).arg(&file).output().unwrap();
            let text = String::from_utf8(output.stderr).unwrap();
            let warned = text.lines().filter_map(|line| Some(line.split_once("|WARN|")?.1.to_owned()));
            warned.collect::<Vec<String>>()
        };
        assert_eq!(said(ours()), said(Command::new("ovs-ofctl")), "{flow}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn commands_that_need_no_switch_print_what_the_stock_client_prints() {
    let mut different = Vec::new();
    for &words in OFFLINE {
        let stock = masked(&Command::new("ovs-ofctl").args(words).output().unwrap());
        let ours = masked(&ours().args(words).output().unwrap());
        if ours != stock {
            different.push(format!("{words:?}\n--- stock\n{stock}--- ours\n{ours}"));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}
