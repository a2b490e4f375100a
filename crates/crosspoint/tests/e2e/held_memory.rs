//! What clients of OpenFlow that do not read their answers can make the switch hold.

use crate::bundles::{connect, resident_mb};
use crate::common::{Switch, wait_for};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;

/// Connections at once; each would hold the answer to at least one request for the features of all tables.
const CLIENTS: usize = 250;
/// What all connections may make the switch hold, and what a debug build's allocator keeps beside that.
const BUDGET_MB: u64 = 256;
const BESIDE_MB: u64 = 150;

/// Sends as much of `bytes` as goes in.
fn push(client: &mut UnixStream, bytes: &[u8]) {
    client.set_nonblocking(true).unwrap();
    match client.write(bytes) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => {
            assert_eq!(error.kind(), ErrorKind::BrokenPipe)
        }
        _ => {}
    }
}

/// Whether the switch has closed it, which is seen behind what it had sent.
fn is_closed(client: &mut UnixStream) -> bool {
    let mut bytes = vec![0; 1 << 20];
    loop {
        match client.read(&mut bytes) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != ErrorKind::WouldBlock,
        }
    }
}

#[test]
fn clients_that_read_nothing_are_cut_before_all_hold_more_than_their_budget() {
    let switch = Switch::dummy();
    let before = resident_mb(&switch);
    let cut = || switch.appctl(&["coverage/read-counter", "vconn_cut"]).ok().trim().parse::<usize>().unwrap();
    // A multipart request for the features of all tables, many times.
    let mut request = [[5, 18], 16_u16.to_be_bytes(), [0, 0], [0, 7]].concat();
    request.extend([0, 12, 0, 0, 0, 0, 0, 0]);
    let requests = request.repeat(1_000);
    let mut deaf: Vec<UnixStream> = (0..CLIENTS).map(|_| connect(&switch)).collect();
    for client in &mut deaf {
        push(client, &requests);
    }
    wait_for("some to be cut", || cut() > 0);
    let mut reader = connect(&switch);
    reader.write_all(&request).unwrap();
    let mut header = [0; 8];
    reader.read_exact(&mut header).unwrap();
    assert_eq!((header[1], &header[4..]), (19, &[0, 0, 0, 7][..]), "who reads is answered");
    wait_for("the rest to wait", || {
        let taken = resident_mb(&switch).saturating_sub(before);
        assert!(taken < BUDGET_MB + BESIDE_MB, "{taken} MB");
        let before = cut();
        switch.appctl(&["version"]).ok();
        cut() == before
    });
    let cut = cut();
    let closed = deaf.iter_mut().map(is_closed).filter(|closed| *closed).count();
    assert!(closed >= cut && cut < CLIENTS, "{closed} closed, {cut} cut");
    println!("{cut} of {CLIENTS} were cut");
}
