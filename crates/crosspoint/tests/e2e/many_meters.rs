//! Many meters, and many groups: all are shown, whatever fits in a message, and others are served meanwhile.

use crate::bundles::{connect, hear, resident_mb};
use crate::common::Switch;
use crate::long_changes::{ECHO_P99_MAX, MULTIPART_REPLY, asked_during, barrier};
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const METER_MOD: u8 = 29;
const GROUP_MOD: u8 = 15;
const DELETE: u8 = 2;
/// OFPM_ALL and OFPG_ALL.
const ALL_METERS: u32 = 0xffff_ffff;
const ALL_GROUPS: u32 = 0xffff_fffc;

/// A meter of OpenFlow 1.4 with one band, to be added.
fn meter_mod(id: u32) -> Vec<u8> {
    let mut message = vec![5, METER_MOD, 0, 32, 0, 0, 0, 9, 0, 0, 0, 1];
    message.extend(id.to_be_bytes());
    message.extend([0, 1, 0, 16, 0, 0, 0, 100, 0, 0, 0, 0, 0, 0, 0, 0]);
    message
}

/// A group without buckets, to be added.
fn group_mod(id: u32) -> Vec<u8> {
    [&[5, GROUP_MOD, 0, 16, 0, 0, 0, 9, 0, 0, 0, 0][..], &id.to_be_bytes()].concat()
}

/// Sends these, and reads the answer to a barrier behind them.
fn send(stream: &mut UnixStream, messages: impl Iterator<Item = Vec<u8>>) {
    let bytes: Vec<u8> = messages.flatten().collect();
    stream.write_all(&bytes).unwrap();
    barrier(stream);
}

/// The numbers of what a multipart request of this kind lists. `of` reads the first entry of a part: its
/// number, and its length.
fn listed(
    stream: &mut UnixStream,
    kind: u8,
    id: Option<u32>,
    of: impl Fn(&[u8]) -> (u32, usize),
) -> Vec<u32> {
    let mut request = vec![5, 18, 0, 16, 0, 0, 0, 5, 0, kind, 0, 0, 0, 0, 0, 0];
    request.extend(id.into_iter().flat_map(|id| [id.to_be_bytes(), [0; 4]].concat()));
    request[3] = request.len() as u8;
    stream.write_all(&request).unwrap();
    let mut ids = Vec::new();
    loop {
        let (said, body) = hear(stream);
        assert_eq!(said, MULTIPART_REPLY, "kind {kind}: {body:?}");
        let mut rest = &body[8..];
        while !rest.is_empty() {
            let (id, len) = of(rest);
            ids.push(id);
            rest = &rest[len..];
        }
        if body[3] & 1 == 0 {
            return ids;
        }
    }
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn length(bytes: &[u8], at: usize) -> usize {
    u16::from_be_bytes(bytes[at..at + 2].try_into().unwrap()).into()
}

/// Statistics (OFPMP_METER, OFPMP_GROUP) and descriptions (OFPMP_METER_CONFIG, OFPMP_GROUP_DESC).
fn list_meters(stream: &mut UnixStream, id: u32) -> [Vec<u32>; 2] {
    let stats = listed(stream, 9, Some(id), |entry| (number(entry, 0), length(entry, 4)));
    [stats, listed(stream, 10, Some(id), |entry| (number(entry, 4), length(entry, 0)))]
}

fn list_groups(stream: &mut UnixStream, id: u32) -> [Vec<u32>; 2] {
    let stats = listed(stream, 6, Some(id), |entry| (number(entry, 4), length(entry, 0)));
    [stats, listed(stream, 7, None, |entry| (number(entry, 4), length(entry, 0)))]
}

#[test]
fn many_meters_and_groups_are_added_listed_and_deleted_while_others_are_served() {
    let count = testkit::cases("e2e::many_meters", 50_000).min(1_000_000);
    let switch = Switch::dummy();
    let [idle, _] = asked_during(&switch, "idle", || std::thread::sleep(Duration::from_secs(1)));
    let max = ECHO_P99_MAX + 2 * idle.p99();
    let mut stream = connect(&switch);
    let mut in_time = |what: &str, work: &mut dyn FnMut(&mut UnixStream)| {
        let start = Instant::now();
        let [echo, _] = asked_during(&switch, what, || work(&mut stream));
        println!("{what} of {count}: {:?}", start.elapsed());
        assert!(echo.p99() <= max, "{what}: the p99 of echoes is {:?}, allowed are {max:?}", echo.p99());
    };
    let all: Vec<u32> = (1..=count).collect();
    let before = resident_mb(&switch);
    in_time("meters are added", &mut |stream| send(stream, all.iter().map(|id| meter_mod(*id))));
    println!("{} MB more", resident_mb(&switch) - before);
    in_time("meters are listed", &mut |stream| {
        let [stats, configs] = list_meters(stream, ALL_METERS);
        assert!(stats == all && configs == all, "{} and {} were listed", stats.len(), configs.len());
        assert_eq!(list_meters(stream, count / 2), [[count / 2], [count / 2]]);
    });
    in_time("meters are deleted", &mut |stream| {
        let mut delete = meter_mod(ALL_METERS);
        (delete[9], delete[3]) = (DELETE, 16);
        delete.truncate(16);
        send(stream, [delete].into_iter());
        assert_eq!(list_meters(stream, ALL_METERS), [[0; 0]; 2]);
    });
    in_time("groups are added", &mut |stream| send(stream, all.iter().map(|id| group_mod(*id))));
    in_time("groups are listed", &mut |stream| {
        let [stats, descs] = list_groups(stream, ALL_GROUPS);
        assert!(stats == all && descs == all, "{} and {} were listed", stats.len(), descs.len());
    });
    in_time("groups are deleted", &mut |stream| {
        let mut delete = group_mod(ALL_GROUPS);
        delete[9] = DELETE;
        send(stream, [delete].into_iter());
        assert_eq!(list_groups(stream, ALL_GROUPS), [[0; 0]; 2]);
    });
}
