//! What a client of OpenFlow can make the switch keep in bundles.

use crate::common::{PATIENCE, Switch, wait_for};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// OFPT_BUNDLE_ADD_MESSAGE of OpenFlow 1.4 with a flow-mod whose one action is a note of nearly 60,000 bytes.
fn bundle_add() -> Vec<u8> {
    const ACTION: u16 = 60_000;
    let mut flow_mod = [[5, 14], (56 + 8 + ACTION).to_be_bytes()].concat();
    flow_mod.extend([0, 0, 0, 9]);
    flow_mod.extend([0; 8 + 8 + 1 + 1 + 2 + 2 + 2]); // Cookie to priority: an addition to table 0.
    flow_mod.extend([0xff; 12]); // No buffer, any port and group.
    flow_mod.extend([0; 4]);
    flow_mod.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    flow_mod.extend([[0, 4], (8 + ACTION).to_be_bytes()].concat());
    flow_mod.extend([0; 4]);
    flow_mod.extend([[0xff, 0xff], ACTION.to_be_bytes()].concat());
    flow_mod.extend([0, 0, 0x23, 0x20, 0, 8]);
    flow_mod.resize(56 + 8 + usize::from(ACTION), 0);
    let mut message = [[5, 34], (16 + flow_mod.len() as u16).to_be_bytes()].concat();
    message.extend([0, 0, 0, 9]); // The same transaction id as within.
    message.extend([0, 0, 0, 1, 0, 0, 0, 0]); // Bundle 1, no flags.
    message.extend(flow_mod);
    message
}

/// A connection of OpenFlow 1.4 to the bridge.
pub fn connect(switch: &Switch) -> UnixStream {
    connect_to(switch, "br0")
}

/// The same to another bridge.
pub fn connect_to(switch: &Switch, bridge: &str) -> UnixStream {
    let mut stream = UnixStream::connect(switch.dir.path().join(format!("{bridge}.mgmt"))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[5, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    let mut hello = [0; 8];
    stream.read_exact(&mut hello).unwrap();
    let mut rest = vec![0; usize::from(hello[3]) - 8];
    stream.read_exact(&mut rest).unwrap();
    stream
}

/// The next message: its type and its body.
pub fn hear(stream: &mut UnixStream) -> (u8, Vec<u8>) {
    let mut header = [0; 8];
    stream.read_exact(&mut header).unwrap();
    let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
    stream.read_exact(&mut body).unwrap();
    (header[1], body)
}

pub fn resident_mb(switch: &Switch) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", switch.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn a_client_that_fills_bundles_is_refused_at_its_budget_and_the_next_one_has_its_own() {
    let switch = Switch::dummy();
    let before = resident_mb(&switch);
    let add = bundle_add();
    let mut stream = connect(&switch);
    // The first that is refused is the first that is answered. An answer holds the whole message, so that
    // the switch stops reading from a client that does not take the answers to what it sent meanwhile.
    let mut reader = stream.try_clone().unwrap();
    let (tell, first) = std::sync::mpsc::channel();
    let answers = std::thread::spawn(move || {
        tell.send(hear(&mut reader)).unwrap();
        std::io::copy(&mut reader, &mut std::io::sink())
    });
    let mut sent = 0_usize;
    let (kind, body) = loop {
        if let Ok(refused) = first.try_recv() {
            break refused;
        }
        assert!(sent < 2 << 30, "nothing was refused of {} MB", sent >> 20);
        stream.write_all(&add).unwrap();
        sent += add.len();
    };
    // OFPET_BUNDLE_FAILED, OFPBFC_MSG_TOO_MANY.
    assert_eq!((kind, &body[..4]), (1, &[0, 17, 0, 12][..]));
    let taken = resident_mb(&switch) - before;
    assert!((250..450).contains(&taken), "{taken} MB after {} MB were sent", sent >> 20);

    stream.shutdown(std::net::Shutdown::Both).unwrap();
    let _reset_or_ended = answers.join().unwrap();
    let mut other = connect(&switch);
    wait_for("the first one's budget to be free", || {
        other.write_all(&add).unwrap();
        other.write_all(&[5, 20, 0, 8, 0, 0, 0, 2]).unwrap();
        let mut answer = hear(&mut other).0;
        let taken = answer == 21; // A reply to the barrier, and no error before it.
        while answer != 21 {
            answer = hear(&mut other).0;
        }
        taken
    });
}

#[test]
fn what_a_client_sent_before_it_read_the_answers_is_handled_as_soon_as_it_reads_them() {
    const ECHO: u16 = 60_000;
    let switch = Switch::dummy();
    let mut stream = connect(&switch);
    let mut reader = stream.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        // So many answers that the switch takes no more messages; then as many without answers as it reads
        // ahead.
        let mut echo = [[5, 2], ECHO.to_be_bytes(), [0, 0], [0, 3]].concat();
        echo.resize(usize::from(ECHO), 0);
        for _ in 0..22 {
            stream.write_all(&echo).unwrap();
        }
        for _ in 0..8 {
            stream.write_all(&bundle_add()).unwrap();
        }
        stream.write_all(&[5, 20, 0, 8, 0, 0, 0, 2]).unwrap();
    });
    // It has taken what it takes when no more answers come.
    let (mut before, mut looks) = (0, 0);
    wait_for("the switch to take no more", || {
        let unread = switch.unread(&reader);
        looks = if unread > 0 && unread == before { looks + 1 } else { 0 };
        before = unread;
        looks == 10
    });
    let start = Instant::now();
    while hear(&mut reader).0 != 21 {}
    writer.join().unwrap();
    // Left lying, the rest would be found when the connection's next timer is due, seconds later.
    assert!(start.elapsed() < Duration::from_secs(5), "the barrier was answered after {:?}", start.elapsed());
}
