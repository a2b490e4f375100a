//! Packets that wait for a controller, and go on where they were.

use crate::common::{Switch, UDP, wait_for};
use crate::e2e_openflow::Client;
use flow::{FieldId, Match};
use openflow::ErrorKind;
use openflow::message::Message;
use std::process::{Command, Stdio};

#[test]
fn a_packet_that_waits_for_a_controller_goes_on_when_it_comes_back() {
    let ours = crate::common::binary();
    for program in [&["ovs-ofctl"][..], &[ours.to_str().unwrap(), "ofctl"]] {
        let switch = Switch::dummy();
        let actions = "set_field:5->reg1,mod_dl_src:1:2:3:4:5:6,controller(pause,userdata=01.02),set_field:7->reg2,resubmit(,2)";
        switch.add_flow(&format!("in_port=1,actions=clone({actions}),3"));
        switch.add_flow("table=2,reg1=5,reg2=7,actions=2");
        let said = switch.dir.path().join("said");
        let file = std::fs::File::options().create(true).append(true).open(&said).unwrap();
        let mut monitor = Command::new(program[0]);
        monitor.args(&program[1..]).args(["monitor", "br0", "resume"]).env("OVS_RUNDIR", switch.dir.path());
        monitor.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        let mut monitor = monitor.spawn().unwrap();
        let read = || std::fs::read_to_string(&said).unwrap();
        // Only who hears of packets can resume them: sent again until it listens.
        let given = std::cell::Cell::new(0);
        wait_for("the packet to be told and sent back", || {
            switch.receive("p1", UDP);
            given.set(given.get() + 1);
            read().contains("send: NXT_RESUME")
        });
        // As many as were sent back: of those given before, some may be on their way yet.
        let mut frames = Vec::new();
        wait_for("the packets that go on", || {
            let text = switch.appctl(&["netdev-dummy/sent", "p2"]).ok();
            frames.extend(text.lines().map(str::to_string));
            !frames.is_empty() && frames.len() == read().matches("send: NXT_RESUME").count()
        });
        assert!(frames[0].starts_with("505400000007010203040506"), "what was done before stays: {frames:?}");
        let frames = switch.sent("p3", given.get());
        assert!(frames[0].starts_with("505400000007505400000005"), "the clone is one: {frames:?}");
        monitor.kill().unwrap();
        monitor.wait().unwrap();
        let text = read();
        assert!(
            text.contains("reg1=0x5,in_port=1 (via action)") && text.contains("userdata=01.02"),
            "{text}"
        );
        assert!(!text.contains("decode error"), "{text}");
    }
}

#[test]
fn what_is_no_continuation_is_refused() {
    let switch = Switch::dummy();
    let mut client = Client::connect(&switch);
    let packet = openflow::message::PacketIn {
        form: openflow::message::PacketInForm::Nxt2,
        buffer_id: None,
        total_len: 60,
        reason: flow::action::PacketInReason::Action,
        table_id: 0,
        cookie: 0,
        metadata: Match::any().with(FieldId::InPort, 1),
        data: vec![0; 60],
        userdata: Vec::new(),
        continuation: vec![1; 24],
    };
    client.send(5, &Message::Resume(Box::new(packet)));
    assert_eq!(client.error(), (5, Some(ErrorKind::NXR_STALE)));
    client.send(6, &Message::BarrierRequest);
    assert_eq!(client.receive(), (6, Message::BarrierReply));
}

/// The client gets packet-ins that it can send back.
fn hears_of_packets(client: &mut Client) {
    client.send(1, &Message::SetPacketInFormat(openflow::message::PacketInForm::Nxt2));
    let config = openflow::message::SwitchConfig {
        frag: Default::default(),
        invalid_ttl_to_controller: None,
        miss_send_len: u16::MAX,
    };
    client.send(2, &Message::SetConfig(config));
    client.send(3, &Message::BarrierRequest);
    assert_eq!(client.receive(), (3, Message::BarrierReply));
}

#[test]
fn a_packet_that_expires_after_its_pause_goes_no_further() {
    let switch = Switch::dummy();
    let mut client = Client::connect(&switch);
    hears_of_packets(&mut client);
    let rules =
        ["in_port=1,ip,actions=controller(pause),dec_ttl,write_metadata:5,goto_table:1", "table=1,actions=2"];
    for rule in rules {
        switch.ofctl(&["-O", "OpenFlow13", "add-flow", "br0", rule]).ok();
    }
    for (ttl, src) in [("ttl=1", "src=5,"), ("ttl=2", "src=6,")] {
        switch.receive("p1", &UDP.replace("ttl=64", ttl).replace("src=1,", src));
        let packet = loop {
            if let Message::PacketIn(packet) = client.receive().1
                && !packet.continuation.is_empty()
            {
                break packet;
            }
        };
        client.send(4, &Message::Resume(packet));
    }
    assert_eq!(switch.sent("p2", 1)[0][68..72], *"0006", "the source port of the second packet");
}

#[test]
fn a_continuation_resumes_in_a_switch_that_was_restarted() {
    let start = || {
        let switch = Switch::start(&[
            "--bridge",
            "br0,fail-mode=secure,datapath-id=00000000000000aa",
            "--port",
            "p1,type=dummy,ofport=1",
            "--port",
            "p2,type=dummy,ofport=2",
        ]);
        let client = Client::connect(&switch);
        (switch, client)
    };
    let (switch, mut client) = start();
    hears_of_packets(&mut client);
    switch.add_flow("in_port=1,actions=mod_dl_src:00:00:00:00:00:55,controller(pause),output:2");
    switch.receive("p1", UDP);
    let Message::PacketIn(packet) = client.receive().1 else { panic!("no packet-in") };
    assert!(!packet.continuation.is_empty());
    drop((switch, client));

    // It has no rule: all that is to be done is in the continuation.
    let (switch, mut client) = start();
    client.send(4, &Message::Resume(packet));
    client.send(5, &Message::BarrierRequest);
    assert_eq!(client.receive(), (5, Message::BarrierReply));
    let frames = switch.sent("p2", 1);
    assert!(frames[0].starts_with("505400000007000000000055"), "{frames:?}");
}
