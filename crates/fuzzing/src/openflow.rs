//! The OpenFlow codec and connection.

use openflow::{Codec, Connection, ConnectionConfig, Event, Side, Version, VersionSet};
use std::time::Instant;

/// One message: what is read can be said again, and then reads the same.
pub fn openflow_message(input: &[u8]) {
    let Some(version) = input.first().and_then(|&number| Version::from_wire(number)) else { return };
    if !VersionSet::SUPPORTED.contains(version) {
        return;
    }
    // The transaction id's last bit says whether tables go with commands.
    let flow_mod_table_id = input.get(7).is_some_and(|byte| byte & 1 == 1);
    let codec = Codec { version, flow_mod_table_id };
    let Ok((xid, message)) = codec.decode(input) else { return };
    // Another form may be longer than any message.
    let Ok(said) = codec.encode(xid, &message) else { return };
    let (_, again) = codec.decode(&said).expect("what was said can be read");
    let twice = codec.encode(xid, &again).expect("it can be said once, so twice");
    assert_eq!(codec.decode(&twice).expect("as the first time").1, again);
}

/// A stream of bytes into a switch's connection, in pieces: events end, and output is bounded by input.
pub fn openflow_connection(input: &[u8]) {
    let now = Instant::now();
    let config =
        ConnectionConfig { side: Side::Switch, versions: VersionSet::SUPPORTED, probe_interval: None };
    let mut connection = Connection::new(config, now);
    let mut rest = input;
    while !rest.is_empty() && connection.wants_input() {
        let piece = rest.len().min(1 + usize::from(rest[0]));
        let taken = connection.handle_bytes(now, &rest[..piece]);
        rest = &rest[taken..];
        while let Some(event) = connection.next_event(now) {
            if let Event::Message { head, .. } | Event::Unreadable { head, .. } = event {
                assert!(head.as_bytes().len() >= 8);
            }
        }
    }
    // An error to each 8 bytes is the most that a peer can make it say.
    assert!(connection.transmit().len() <= 64 + input.len() * 12);
}

/// Flows in text: no text makes the reader panic, and what is written of a flow is read back and written as
/// the same.
pub fn openflow_text(input: &[u8]) {
    use openflow::text::{
        ActionsIn, PortNames, actions_text, match_text, parse_actions, parse_flow_file, parse_match,
    };
    let Ok(text) = std::str::from_utf8(input) else { return };
    let names = PortNames::none();
    let Ok(flows) = parse_flow_file(text, None, names) else { return };
    for flow in flows {
        let matching = match_text(&flow.flow_mod.matching, names);
        let back = parse_match(&matching, names).unwrap_or_else(|e| panic!("{e}: {matching}"));
        assert_eq!(match_text(&back, names), matching);
        for version in [openflow::Version::V10, openflow::Version::V13] {
            let actions = actions_text(&flow.flow_mod.actions, version, names);
            let back =
                parse_actions(&actions, ActionsIn::Flow, names).unwrap_or_else(|e| panic!("{e}: {actions}"));
            assert_eq!(actions_text(&back, version, names), actions);
        }
    }
}
