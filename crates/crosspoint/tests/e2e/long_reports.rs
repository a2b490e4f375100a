//! Many changes are told to many connections that watch flows: others are served meanwhile, and each is
//! told of each change once.

use crate::bundles::{connect, hear};
use crate::common::Switch;
use crate::long_changes::{
    ADD, BARRIER_REPLY, BUNDLE_CONTROL, ECHO_P99_MAX, MULTIPART_REPLY, asked_during, barrier, bundle,
    flow_mod,
};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// OFPFME_ADDED.
const ADDED: u16 = 1;
/// Where an update of OpenFlow 1.4 has the address of a destination.
const ADDRESS: usize = 24 + 4 + 4 + 2;

/// Has a connection told of all flows that come (OFPMP_FLOW_MONITOR with OFPFMF_ADD).
fn watch(stream: &mut UnixStream) {
    let mut request = [5, 18, 0, 40, 0, 0, 0, 6, 0, 16, 0, 0, 0, 0, 0, 0].to_vec();
    request.extend([0, 0, 0, 1]);
    request.extend([0xff; 8]); // Any port and group.
    request.extend([0, 2, 0xff, 0]);
    request.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    stream.write_all(&request).unwrap();
    assert_eq!(hear(stream).0, MULTIPART_REPLY);
}

/// The addresses of the flows that a connection is told of until it has heard of so many, and those that are
/// told of behind them if any are.
fn told(mut stream: UnixStream, count: usize) -> Vec<u32> {
    let mut addresses = Vec::new();
    let mut is_last = false;
    loop {
        let (kind, body) = hear(&mut stream);
        if kind == BARRIER_REPLY {
            return addresses;
        }
        let mut updates = &body[8..];
        while updates.len() >= 4 {
            let [len, event] = [0, 2].map(|at| u16::from_be_bytes([updates[at], updates[at + 1]]));
            if event == ADDED {
                let address = u32::from_be_bytes(updates[ADDRESS..ADDRESS + 4].try_into().unwrap());
                // Others are of the flow-mods that are timed.
                addresses.extend((address < 0x8000_0000).then_some(address));
            }
            updates = &updates[usize::from(len)..];
        }
        if addresses.len() >= count && !is_last {
            is_last = true;
            stream.write_all(&[5, 20, 0, 8, 0, 0, 0, 9]).unwrap();
        }
    }
}

/// As many as have a bridge's log of changes, all on connections of their own.
#[test]
fn echoes_are_answered_in_time_while_changes_are_told_to_500() {
    const CHANGES: u32 = 100;
    let switch = Switch::dummy();
    let [idle, _] = asked_during(&switch, "idle", || std::thread::sleep(Duration::from_secs(1)));
    let max = ECHO_P99_MAX + 2 * idle.p99();
    let streams: Vec<UnixStream> = (0..500)
        .map(|_| {
            let mut stream = connect(&switch);
            watch(&mut stream);
            stream
        })
        .collect();
    let mut changing = connect(&switch);
    let [echo, _] = asked_during(&switch, "changes are told to 500", || {
        changing.write_all(&bundle(1..CHANGES + 1)).unwrap();
        assert_eq!(hear(&mut changing).0, BUNDLE_CONTROL);
        let flow_mods: Vec<u8> = (CHANGES + 1..2 * CHANGES + 1).flat_map(|n| flow_mod(ADD, n)).collect();
        changing.write_all(&flow_mods).unwrap();
        barrier(&mut changing);
        for (n, stream) in streams.into_iter().enumerate() {
            let mut addresses = told(stream, 2 * CHANGES as usize);
            addresses.sort();
            assert!(addresses.into_iter().eq(1..2 * CHANGES + 1), "watcher {n} is told of each once");
        }
    });
    assert!(echo.p99() <= max, "the p99 of echoes is {:?}, allowed are {max:?}", echo.p99());
}

#[test]
fn echoes_are_answered_in_time_while_many_changes_are_told_to_many() {
    let flows = testkit::cases("e2e::long_reports_flows", 25_000).min(1_000_000);
    let switch = Switch::dummy();
    let [idle, _] = asked_during(&switch, "idle", || std::thread::sleep(Duration::from_secs(1)));
    // What the machine's other work costs is not the switch's.
    let max = ECHO_P99_MAX + 2 * idle.p99();
    let mut changing = connect(&switch);
    let first_of_all = bundle(1..flows + 1);
    let pipelined: Vec<u8> = (flows + 1..flows + 1_001).flat_map(|address| flow_mod(ADD, address)).collect();
    for (what, watchers, range, bytes, is_bundle) in [
        ("a bundle is told to 4", 4, 1..flows + 1, first_of_all, true),
        ("flow-mods are told to 10", 10, flows + 1..flows + 1_001, pipelined, false),
    ] {
        let streams: Vec<UnixStream> = (0..watchers)
            .map(|_| {
                let mut stream = connect(&switch);
                watch(&mut stream);
                stream
            })
            .collect();
        let count = range.len();
        let [echo, _] = asked_during(&switch, what, || {
            std::thread::scope(|scope| {
                let readers: Vec<_> = streams
                    .into_iter()
                    .enumerate()
                    .map(|(n, stream)| {
                        scope.spawn(move || {
                            // The last one reads late, so that it is paused, and resumed.
                            let is_late = is_bundle && n == 3;
                            std::thread::sleep(Duration::from_millis(if is_late { 1_000 } else { 0 }));
                            told(stream, count)
                        })
                    })
                    .collect();
                changing.write_all(&bytes).unwrap();
                if is_bundle {
                    assert_eq!(hear(&mut changing).0, BUNDLE_CONTROL);
                }
                barrier(&mut changing);
                for reader in readers {
                    let mut addresses = reader.join().unwrap();
                    addresses.sort();
                    assert!(addresses.iter().copied().eq(range.clone()), "{what}: each is told once");
                }
            });
        });
        assert!(echo.p99() <= max, "{what}: the p99 of echoes is {:?}, allowed are {max:?}", echo.p99());
    }
}
