use super::*;

const V10_AND_V13: VersionSet = VersionSet::only(Version::V10).with(Version::V13);

fn connection(side: Side, versions: VersionSet, now: Instant) -> Connection {
    Connection::new(ConnectionConfig { side, versions, probe_interval: Some(Duration::from_secs(5)) }, now)
}

/// Moves what each has to send until both are quiet.
fn exchange(now: Instant, a: &mut Connection, b: &mut Connection) {
    fn send(now: Instant, from: &mut Connection, to: &mut Connection) {
        let taken = to.handle_bytes(now, from.transmit());
        from.transmitted(taken);
    }
    while !a.transmit().is_empty() || !b.transmit().is_empty() {
        send(now, a, b);
        send(now, b, a);
    }
}

fn up(now: Instant) -> (Connection, Connection) {
    let mut switch = connection(Side::Switch, V10_AND_V13, now);
    let mut controller = connection(Side::Controller, V10_AND_V13, now);
    exchange(now, &mut switch, &mut controller);
    assert_eq!(switch.next_event(now), Some(Event::Up(Version::V13)));
    assert_eq!(controller.next_event(now), Some(Event::Up(Version::V13)));
    (switch, controller)
}

#[test]
fn the_greatest_common_version_is_spoken() {
    let now = Instant::now();
    up(now);
    let mut switch = connection(Side::Switch, V10_AND_V13, now);
    // OpenFlow 1.2 without a bitmap: all up to it.
    assert_eq!(switch.handle_bytes(now, &[3, 0, 0, 8, 0, 0, 0, 9]), 8);
    assert_eq!(switch.next_event(now), Some(Event::Up(Version::V10)));
}

#[test]
fn what_the_peer_must_be_told_waits_for_it_and_ends_the_connection_at_last() {
    let now = Instant::now();
    let (mut switch, _controller) = up(now);
    let hello = switch.transmit().len();
    switch.transmitted(hello);
    let data = vec![0; 60_000];
    let large = Message::EchoReply(data);
    let sent = |switch: &Connection| switch.transmit().len();
    while switch.send_unasked(&large) == Ok(true) {}
    let full = sent(&switch);
    assert!(full > UNASKED_MAX && full < UNASKED_MAX + 0x1_0000);
    while sent(&switch) <= OWED_MAX {
        assert_eq!(switch.send_owed(&large), Ok(()));
        assert!(!switch.is_closed());
    }
    assert_eq!(switch.send_owed(&large), Ok(()));
    assert_eq!(switch.next_event(now), Some(Event::Closed(CloseReason::Behind)));
    assert!(sent(&switch) < OWED_MAX + 0x1_0000);
}

#[test]
fn without_a_common_version_the_peer_is_told_so_and_the_connection_ends() {
    let now = Instant::now();
    let mut switch = connection(Side::Switch, VersionSet::only(Version::V13), now);
    let hello = switch.transmit().len();
    switch.transmitted(hello);
    switch.handle_bytes(now, &[1, 0, 0, 8, 0, 0, 0, 9]);
    let reason = CloseReason::NoCommonVersion(VersionSet::only(Version::V10));
    assert_eq!(switch.next_event(now), Some(Event::Closed(reason)));
    assert_eq!(switch.transmit()[..12], [1, 1, 0, 82, 0, 0, 0, 0, 0, 0, 0, 0]);
    let text = b"We support version 0x04, you support version 0x01, no common versions.";
    assert_eq!(&switch.transmit()[12..], text);
    assert_eq!(switch.next_event(now), None);
}

#[test]
fn a_message_may_arrive_byte_by_byte() {
    let now = Instant::now();
    let (mut switch, mut controller) = up(now);
    controller.send(77, &Message::BarrierRequest).unwrap();
    let bytes = controller.transmit().to_vec();
    for (i, byte) in bytes.iter().enumerate() {
        assert_eq!(switch.next_event(now), None, "{i}");
        switch.handle_bytes(now, &[*byte]);
    }
    let event = switch.next_event(now).unwrap();
    assert!(matches!(event, Event::Message { xid: 77, message: Message::BarrierRequest, .. }), "{event:?}");
}

#[test]
fn what_cannot_be_read_is_answered_and_the_connection_lives() {
    let now = Instant::now();
    let (mut switch, mut controller) = up(now);
    let statistics = |body: &[u8]| [&[4, 19, 0, 24, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 0, 0, 0], body].concat();
    let cases = [
        (vec![4, 99, 0, 8, 0, 0, 0, 1], ErrorKind::OFPBRC_BAD_TYPE),
        (vec![4, 5, 0, 9, 0, 0, 0, 1, 0], ErrorKind::OFPBRC_BAD_LEN),
        (vec![4, 6, 0, 8, 0, 0, 0, 1], ErrorKind::OFPBRC_BAD_LEN),
        (vec![4, 21, 0, 8, 0, 0, 0, 1], ErrorKind::OFPBRC_BAD_TYPE),
        (vec![4, 18, 0, 16, 0, 0, 0, 1, 0, 99, 0, 0, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_STAT),
        // What only a switch says is refused for its type if that is known, then for its length alone.
        (vec![4, 19, 0, 16, 0, 0, 0, 1, 0, 99, 0, 0, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_STAT),
        (statistics(&[0, 0, 0, 5, 0, 0, 0, 0]), ErrorKind::OFPBRC_BAD_VENDOR),
        (statistics(&[0, 0, 0x23, 0x20, 0, 0, 0, 99]), ErrorKind::OFPBRC_BAD_SUBTYPE),
        (vec![4, 19, 0, 18, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 3], ErrorKind::OFPBRC_BAD_TYPE),
        (vec![4, 19, 0, 18, 0, 0, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3], ErrorKind::OFPBRC_BAD_LEN),
        (vec![4, 10, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0], ErrorKind::OFPBRC_BAD_LEN),
    ];
    for (bytes, kind) in cases {
        switch.handle_bytes(now, &bytes);
        let event = switch.next_event(now).unwrap();
        assert!(matches!(event, Event::Unreadable { xid: 1, error, .. } if error == kind), "{event:?}");
        exchange(now, &mut switch, &mut controller);
        let Some(Event::Message { message: Message::Error(error), .. }) = controller.next_event(now) else {
            panic!("no error for {kind}");
        };
        assert_eq!((error.kind(), &error.data), (Some(kind), &bytes));
    }
    assert!(switch.version().is_some());
}

#[test]
fn a_message_of_another_version_is_refused_in_that_version() {
    let now = Instant::now();
    let (mut switch, _) = up(now);
    let sent = switch.transmit().len();
    switch.transmitted(sent);
    switch.handle_bytes(now, &[2, 5, 0, 8, 0, 0, 0, 1]);
    let event = switch.next_event(now).unwrap();
    assert!(
        matches!(event, Event::Unreadable { xid: 1, error: ErrorKind::OFPBRC_BAD_VERSION, .. }),
        "{event:?}"
    );
    // OFPET_BAD_REQUEST, OFPBRC_BAD_VERSION, and the request.
    let error = [2, 1, 0, 20, 0, 0, 0, 1, 0, 1, 0, 0, 2, 5, 0, 8, 0, 0, 0, 1];
    assert_eq!(switch.transmit(), error);
}

#[test]
fn an_error_carries_the_whole_request() {
    let now = Instant::now();
    let (mut switch, mut controller) = up(now);
    for length in [8u16, 64, 65, 300, 65_523, 65_524, 65_535] {
        let mut request = vec![4, 99];
        request.extend(length.to_be_bytes());
        request.extend([0, 0, 0, 7]);
        request.resize(usize::from(length), 0xaa);
        let mut given = 0;
        while given < request.len() {
            given += switch.handle_bytes(now, &request[given..]);
        }
        assert!(matches!(switch.next_event(now), Some(Event::Unreadable { .. })));
        exchange(now, &mut switch, &mut controller);
        let Some(Event::Message { message: Message::Error(error), .. }) = controller.next_event(now) else {
            panic!("no error for {length} bytes");
        };
        assert_eq!(error.data, request[..request.len().min(65_523)]);
    }
    // One that is read and then refused.
    let echo = Message::QueueGetConfigRequest { port: None };
    controller.send(9, &echo).unwrap();
    exchange(now, &mut switch, &mut controller);
    let Some(Event::Message { xid, head, .. }) = switch.next_event(now) else { panic!() };
    switch.reply_error(xid, &head, ErrorKind::OFPBRC_EPERM);
    exchange(now, &mut switch, &mut controller);
    let Some(Event::Message { message: Message::Error(error), .. }) = controller.next_event(now) else {
        panic!()
    };
    assert_eq!(error.data.len(), 16);
}

/// Hands over all of a message, however long.
fn feed(now: Instant, to: &mut Connection, message: &[u8]) {
    let mut given = 0;
    while given < message.len() {
        given += to.handle_bytes(now, &message[given..]);
    }
}

/// A message of this type and length, of zeros.
fn zeros(version: Version, kind: u8, length: u16) -> Vec<u8> {
    let mut message = vec![version as u8, kind];
    message.extend(length.to_be_bytes());
    message.resize(usize::from(length), 0);
    message
}

#[test]
fn an_error_of_any_form_is_cut_to_the_longest_message() {
    let now = Instant::now();
    let kinds = [ErrorKind::OFPBRC_EPERM, ErrorKind::NXBRC_BAD_REASON, ErrorKind::OFPBFC_MSG_BAD_XID];
    for version in Version::ALL {
        let mut switch = connection(Side::Switch, VersionSet::only(version), now);
        feed(now, &mut switch, &zeros(version, 0, 8));
        assert_eq!(switch.next_event(now), Some(Event::Up(version)));
        for (length, kind) in (65_515..=u16::MAX).flat_map(|length| kinds.map(|kind| (length, kind))) {
            let request = zeros(version, 99, length);
            feed(now, &mut switch, &request);
            let Some(Event::Unreadable { head, .. }) = switch.next_event(now) else { panic!() };
            switch.transmitted(usize::MAX);
            switch.reply_error(0, &head, kind);
            let sent = switch.transmit().to_vec();
            let Ok((_, Message::Error(error))) = Codec::new(version).decode(&sent) else {
                panic!("{version} {kind} {length}: unreadable");
            };
            let is_cut = error.data.len() < request.len();
            assert!(request.starts_with(&error.data) && (!is_cut || sent.len() == 0xffff), "{length}");
            switch.transmitted(usize::MAX);
        }
    }
}

#[test]
fn the_longest_packet_out_with_a_bad_port_is_refused() {
    let now = Instant::now();
    let mut switch = connection(Side::Switch, VersionSet::only(Version::V10), now);
    feed(now, &mut switch, &zeros(Version::V10, 0, 8));
    assert_eq!(switch.next_event(now), Some(Event::Up(Version::V10)));
    let mut packet_out = zeros(Version::V10, 13, u16::MAX);
    // No buffer; a port of none of the ranges.
    packet_out[8..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0x10]);
    feed(now, &mut switch, &packet_out);
    let event = switch.next_event(now);
    assert!(matches!(event, Some(Event::Unreadable { error: ErrorKind::OFPBRC_BAD_PORT, .. })), "{event:?}");
}

#[test]
fn an_impossible_length_ends_the_connection() {
    let now = Instant::now();
    let (mut switch, _) = up(now);
    switch.handle_bytes(now, &[4, 2, 0, 7, 0, 0, 0, 1]);
    assert_eq!(switch.next_event(now), Some(Event::Closed(CloseReason::BadLength(7))));
    assert!(!switch.wants_input() && !switch.transmit().is_empty());
}

#[test]
fn a_silent_peer_is_probed_and_then_given_up() {
    let start = Instant::now();
    let (mut switch, mut controller) = up(start);
    let seconds = |n| start + Duration::from_secs(n);
    switch.handle_timeout(seconds(4));
    assert!(switch.transmit().is_empty());
    switch.handle_timeout(seconds(5));
    exchange(seconds(6), &mut switch, &mut controller);
    assert_eq!(controller.next_event(seconds(6)), None);
    exchange(seconds(6), &mut switch, &mut controller);
    assert_eq!(switch.next_event(seconds(6)), None);
    assert_eq!(switch.poll_timeout(), Some(seconds(11)));
    switch.handle_timeout(seconds(11));
    switch.handle_timeout(seconds(15));
    assert_eq!(switch.next_event(seconds(15)), None);
    switch.handle_timeout(seconds(16));
    assert_eq!(switch.next_event(seconds(16)), Some(Event::Closed(CloseReason::Silent)));
}

#[test]
fn a_peer_that_is_not_listened_to_is_not_silent() {
    let start = Instant::now();
    let (mut switch, _) = up(start);
    let seconds = |n| start + Duration::from_secs(n);
    let request = Codec::new(Version::V13).encode(9, &Message::BarrierRequest).unwrap();
    let flood = request.repeat(INPUT_MAX / request.len() + 1);
    assert!(switch.handle_bytes(start, &flood) < flood.len() && !switch.wants_input());
    for n in 1..20 {
        switch.handle_timeout(seconds(n));
    }
    assert!(!switch.is_closed());
    // Its requests are handled, and now it says nothing more.
    while switch.next_event(seconds(20)).is_some() {}
    assert!(switch.wants_input());
    for n in 20..40 {
        switch.handle_timeout(seconds(n));
    }
    assert!(switch.is_closed());
    // A peer that takes none of its answers either is as good as dead.
    let (mut switch, _) = up(start);
    while !switch.is_congested() {
        switch.send(1, &Message::EchoReply(vec![0; 60_000])).unwrap();
    }
    switch.handle_bytes(start, &flood);
    for n in 1..20 {
        switch.handle_timeout(seconds(n));
    }
    assert!(switch.is_closed());
}

#[test]
fn a_probe_is_shown_to_who_asks_for_it_and_answered() {
    let start = Instant::now();
    let (mut switch, mut controller) = up(start);
    controller.show_echoes();
    let seconds = |n| start + Duration::from_secs(n);
    switch.handle_timeout(seconds(5));
    exchange(seconds(6), &mut switch, &mut controller);
    let event = controller.next_event(seconds(6));
    let is_probe = |message: &Message| *message == Message::EchoRequest(Vec::new());
    assert!(matches!(&event, Some(Event::Message { xid: 0, message, .. }) if is_probe(message)), "{event:?}");
    exchange(seconds(6), &mut switch, &mut controller);
    assert_eq!(switch.next_event(seconds(6)), None, "the answer to its probe is its own");
    switch.handle_timeout(seconds(11));
    switch.handle_timeout(seconds(15));
    assert_eq!(switch.next_event(seconds(15)), None, "the first probe was answered");
}

#[test]
fn a_listener_reads_each_message_in_its_own_version_and_answers_nothing() {
    let now = Instant::now();
    let mut listener = connection(Side::Listener, VersionSet::only(Version::V10), now);
    let sent = listener.transmit().len();
    listener.transmitted(sent);
    listener.handle_bytes(now, &[4, 0, 0, 8, 0, 0, 0, 1]);
    assert_eq!(listener.next_event(now), Some(Event::Up(Version::V10)));
    let heard: [(&[u8], &str); 4] = [
        (&[4, 0, 0, 8, 0, 0, 0, 7], "OFPT_HELLO"),
        (&[4, 2, 0, 8, 0, 0, 0, 7], "OFPT_ECHO_REQUEST"),
        (&[4, 20, 0, 8, 0, 0, 0, 7], "OFPT_BARRIER_REQUEST"),
        (&[1, 18, 0, 8, 0, 0, 0, 7], "OFPT_BARRIER_REQUEST"),
    ];
    for (bytes, name) in heard {
        listener.handle_bytes(now, bytes);
        let Some(Event::Message { xid: 7, message, head }) = listener.next_event(now) else {
            panic!("{name} is not heard");
        };
        assert_eq!((message.name(), head.as_bytes()), (name, bytes));
    }
    // What cannot be read is no reason to say anything either.
    listener.handle_bytes(now, &[5, 99, 0, 8, 0, 0, 0, 7]);
    assert!(matches!(listener.next_event(now), Some(Event::Unreadable { xid: 7, .. })));
    assert!(listener.transmit().is_empty());
}

#[test]
fn a_tap_has_both_hellos() {
    let now = Instant::now();
    let v10 = VersionSet::only(Version::V10);
    let (mut s, mut c) = (connection(Side::Switch, v10, now), connection(Side::Controller, v10, now));
    s.start_tap();
    exchange(now, &mut s, &mut c);
    assert!(s.next_event(now).is_some());
    assert_eq!(s.take_tap(), [[1, 0, 0, 8, 0, 0, 0, 1]; 2].concat());
}

#[test]
fn no_hello_in_time_ends_it() {
    let now = Instant::now();
    let mut switch = connection(Side::Switch, V10_AND_V13, now);
    let due = switch.poll_timeout().unwrap();
    switch.handle_timeout(due);
    assert_eq!(switch.next_event(due), Some(Event::Closed(CloseReason::Silent)));
}

#[test]
fn input_and_output_are_bounded() {
    let now = Instant::now();
    let (mut switch, _) = up(now);
    let mut echo = vec![4, 2, 0xff, 0xff, 0, 0, 0, 1];
    echo.resize(0xffff, 0);
    let mut fed = 0;
    for _ in 0..1000 {
        while switch.next_event(now).is_some() {}
        fed += switch.handle_bytes(now, &echo[fed % 0xffff..]);
    }
    assert!(!switch.wants_input());
    assert!(switch.transmit().len() <= OUTPUT_MAX + 2 * 0xffff, "{}", switch.transmit().len());
    // When the peer reads, all of it is answered.
    let mut answered = 0;
    while !switch.transmit().is_empty() {
        answered += switch.transmit().len();
        let n = switch.transmit().len();
        switch.transmitted(n);
        while switch.next_event(now).is_some() {}
    }
    assert_eq!(answered, fed / 0xffff * 0xffff);
}

#[test]
fn flow_mods_of_openflow_10_take_a_table_once_agreed() {
    let now = Instant::now();
    let v10 = VersionSet::only(Version::V10);
    let (mut s, mut c) = (connection(Side::Switch, v10, now), connection(Side::Controller, v10, now));
    exchange(now, &mut s, &mut c);
    assert!(s.next_event(now).is_some() && c.next_event(now).is_some());
    let mut flow_mod = crate::message::FlowMod::add();
    flow_mod.table_id = 3;
    for (agree, expected) in [(false, 0xff), (true, 3)] {
        if agree {
            c.send(1, &Message::FlowModTableId(true)).unwrap();
        }
        c.send(2, &Message::FlowMod(Box::new(flow_mod.clone()))).unwrap();
        exchange(now, &mut s, &mut c);
        if agree {
            assert!(s.next_event(now).is_some());
        }
        let Some(Event::Message { message: Message::FlowMod(got), .. }) = s.next_event(now) else { panic!() };
        assert_eq!(got.table_id, expected);
    }
}

#[test]
fn echo_requests_are_answered_ahead_of_what_waits_but_not_of_a_barrier() {
    let now = Instant::now();
    for (first, answered) in [(Message::FeaturesRequest, 1), (Message::BarrierRequest, 0)] {
        let (mut switch, mut controller) = up(now);
        switch.start_tap();
        controller.send(1, &first).unwrap();
        controller.send(2, &Message::EchoRequest(vec![7; 3])).unwrap();
        let bytes = controller.transmit();
        // Part of the second message is still to come.
        switch.handle_bytes(now, &bytes[..bytes.len() - 1]);
        switch.answer_echoes();
        assert!(switch.transmit().is_empty());
        switch.handle_bytes(now, &bytes[bytes.len() - 1..]);
        switch.answer_echoes();
        let mut peer = |switch: &mut Connection| {
            let taken = controller.handle_bytes(now, switch.transmit());
            switch.transmitted(taken);
            std::iter::from_fn(|| controller.next_event(now)).count()
        };
        assert_eq!(peer(&mut switch), answered);
        assert_eq!(switch.take_tap().len(), answered * 2 * 11);
        // The other message is there as ever, and the echo is answered once.
        let event = switch.next_event(now).unwrap();
        assert!(matches!(&event, Event::Message { xid: 1, message, .. } if *message == first), "{event:?}");
        switch.answer_echoes();
        assert_eq!(peer(&mut switch), 0, "the barrier is not answered yet");
        if answered == 0 {
            switch.send(1, &Message::BarrierReply).unwrap();
            switch.answer_echoes();
            assert_eq!(peer(&mut switch), 2);
        }
        assert_eq!(switch.next_event(now), None);
        assert!(switch.transmit().is_empty());
    }
}

#[test]
fn a_flood_of_echo_requests_is_answered_at_the_cost_of_each_alone() {
    let now = Instant::now();
    let count = INPUT_MAX / 8 - 3;
    let features = |xid: u8| [4, 5, 0, 8, 0, 0, 0, xid];
    let echoes = zeros(Version::V13, ECHO_REQUEST, 8).repeat(count);
    let (before, after) = echoes.split_at(count / 2 * 8);
    let input = [&features(1)[..], before, &features(2), after, &features(3)].concat();
    assert_eq!(input.len(), INPUT_MAX);
    let run = |is_ahead: bool| {
        let (mut switch, _) = up(now);
        switch.transmitted(usize::MAX);
        feed(now, &mut switch, &input);
        let start = Instant::now();
        if is_ahead {
            switch.answer_echoes();
            assert_eq!(switch.transmit().len(), 8 * count);
        }
        let xids: Vec<u32> = std::iter::from_fn(|| switch.next_event(now))
            .map(|event| match event {
                Event::Message { xid, message: Message::FeaturesRequest, .. } => xid,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(xids, [1, 2, 3]);
        assert_eq!(switch.transmit().len(), 8 * count);
        start.elapsed()
    };
    let least = |is_ahead| (0..5).map(|_| run(is_ahead)).min().unwrap();
    let (ahead, in_turn) = (least(true), least(false));
    assert!(ahead < in_turn * 10, "{ahead:?} instead of {in_turn:?}");
}
