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
