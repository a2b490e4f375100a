//! Targets for connection tracking: any packets, in any order, and any line of a helper's protocol.

use base::PortNo;
use base::hash::HashKey;
use datapath::conntrack::fragments::{Fate, PIECES_MAX, WHOLE_BYTES_MAX, Whole, read_whole};
use datapath::conntrack::helper::{Parsed, ftp, is_tftp_request};
use datapath::conntrack::nat::{Range, Side, translate};
use datapath::conntrack::{Helper, Moment, Nat, Request, Tracker, Tracking, seen, state, tuple::Tuple};
use packet::{Pool, PoolCache, PoolConfig};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, OnceLock, PoisonError};
use wire::Layers;

/// A segment of FTP's control connection, from either end. What was read is written the same.
pub fn conntrack_helper(input: &[u8]) {
    is_tftp_request(input);
    for from_client in [false, true] {
        let Parsed::Is(line) = ftp(input, from_client) else { continue };
        assert!(line.port != 0 && (!from_client || line.port >= 1024));
        let (before, after) = (&input[..line.text.start], &input[line.text.end..]);
        for (address, port) in [(line.address.unwrap_or(0), line.port), (u128::MAX, u16::MAX)] {
            let text = line.with(address, port);
            let changed = [before, &text[..], after].concat();
            let Parsed::Is(again) = ftp(&changed, from_client) else {
                // Only what is longer than a line may be is not read any more.
                assert!(text.len() > line.text.len(), "{line:?} becomes {text:?}");
                continue;
            };
            assert_eq!((again.port, again.form, again.is_ipv6), (port, line.form, line.is_ipv6));
            let is_whole = |a: u128| if line.is_ipv6 { a } else { a & u128::from(u32::MAX) };
            assert_eq!(again.address, line.address.map(|_| is_whole(address)));
        }
    }
}

fn memory() -> PoolCache {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    let config = PoolConfig { chunks: 4096, chunk_bytes: 2048, huge_pages: false };
    POOL.get_or_init(|| Pool::new(config).expect("memory")).cache()
}

/// Packets of several ports and zones at their times, each behind two bytes that say so and two with its
/// length.
pub fn conntrack_packets(input: &[u8]) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let tracker = Tracker::with_secret(HashKey::from_seed(3)).expect("memory");
    tracker.set_limit(20);
    // So that inputs may be short.
    tracker.fragments().settings.min_frag.iter().for_each(|min| min.store(0, Relaxed));
    let mut cache = memory();
    let (mut rest, mut now_ms) = (input, 1_000);
    while let [how, ms, high, low, bytes @ ..] = rest {
        let len = usize::from(u16::from_be_bytes([*high, *low])).min(bytes.len());
        let (frame, next) = bytes.split_at(len);
        rest = next;
        now_ms += u64::from(*ms) * 100;
        one(&tracker, &mut cache, frame, *how, now_ms);
        assert!(tracker.count() <= 20 && tracker.fragments().held() <= 512);
    }
    tracker.expire(u64::MAX / 2, 1 << 16);
    assert_eq!((tracker.count(), tracker.zone_count(0), tracker.zone_count(1)), (0, 0, 0));
    // Bound: each call takes some of those that are there.
    while tracker.fragments().held() > 0 {
        tracker.fragments().expire(u64::MAX / 2, |packet| cache.free(packet));
    }
}

/// Tracks a packet, or the datagram that it completes.
fn one(tracker: &Tracker, cache: &mut PoolCache, frame: &[u8], how: u8, now_ms: u64) {
    tracker.fragments().expire(now_ms, |packet| cache.free(packet));
    let Some(mut packet) = cache.alloc_frame(frame) else { return };
    packet.in_port = PortNo(1 + u32::from(how >> 6));
    let Some(layers) = Layers::of(packet.data(), packet.len(), 2) else { return cache.free(packet) };
    let zone = u16::from(how & 1);
    let mut whole = Whole::new();
    let mut waiting = Some(packet);
    let mut seen = None;
    if layers.is_fragment()
        && let Some(piece) =
            waiting.as_ref().and_then(|packet| tracker.fragments().examine(packet, &layers, zone, 0))
    {
        let purge = |packet| cache.free(packet);
        let take = || waiting.take().expect("one");
        let fate = tracker.fragments().hold(&piece, now_ms, take, purge, &mut whole);
        assert_eq!(waiting.is_some(), fate == Fate::Refused);
        assert_eq!(whole.is_empty(), fate != Fate::Completes);
        assert!(whole.len() <= PIECES_MAX);
        if fate == Fate::Waits {
            return;
        }
        if fate == Fate::Completes {
            seen = read_whole(&whole, &mut vec![0; WHOLE_BYTES_MAX]);
        }
    }
    if let Some(packet) = waiting {
        seen = seen::read(&packet, &layers, false);
        whole.push((packet, layers));
    }
    let addresses = if layers.is_ipv6() { (1 << 120, 1 << 120 | 7) } else { (0x0a09_0901, 0x0a09_0902) };
    let range = Range {
        side: if how & 2 == 0 { Side::Src } else { Side::Dst },
        addresses: Some(addresses),
        is_ipv6: layers.is_ipv6(),
        ports: (how & 4 != 0).then_some((4000, 4003)),
        is_persistent: false,
        is_hash: false,
        is_random: how & 8 != 0,
    };
    let nat = if how & 16 == 0 { None } else { Some(Nat::New(range)) };
    let request = Request {
        zone,
        commit: true,
        force: how & 32 != 0,
        helper: Some(Helper::Ftp),
        nat,
        ..Request::default()
    };
    let (mut tracking, mut original) = (Tracking::default(), Tuple::default());
    let mut moment_may = || true;
    let mut moment = Moment::new(now_ms, u64::from(how), &mut moment_may);
    let done = tracker.track(seen.as_ref(), &request, &mut tracking, &mut original, &mut moment);
    assert!(tracking.state & state::TRACKED != 0 || done.is_err());
    assert_eq!(seen.is_none(), done.is_ok() && original == Tuple::default(), "{seen:?} {original:?}");
    if let Ok(Some(t)) = done {
        for (packet, layers) in &mut whole {
            let len = packet.len();
            let _ = translate(packet, layers, &t.to, t.side, t.is_error);
            assert_eq!(packet.len(), len);
        }
    }
    whole.drain(..).for_each(|(packet, _)| cache.free(packet));
}
