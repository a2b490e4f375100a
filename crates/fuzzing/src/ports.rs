//! Targets for `ports`: files that a user replays.

use ::datapath::edit::{apply, layers_of};
use ::datapath::{DpAction, packet_type};
use packet::{Packet, Pool, PoolConfig};
use ports::offload::tunnel::cut_unfinished;
use ports::pcap::file::{Writer, parse};
use ports::{offload, virtio_net};
use std::sync::OnceLock;

/// A capture file: what is read lies in the file, and written again it is read the same.
pub fn ports_pcap(input: &[u8]) {
    let Ok(records) = parse(input) else { return };
    let bytes: usize = records.iter().map(|record| record.frame.len()).sum();
    assert!(bytes <= input.len());
    let mut copy = Vec::new();
    let mut writer = Writer::new(&mut copy).expect("memory takes a header");
    for record in &records {
        writer.write(record.time_ns, std::iter::once(record.frame)).expect("memory takes a frame");
    }
    let again = parse(&copy).expect("what was written can be read");
    assert!(again.iter().map(|record| record.frame).eq(records.iter().map(|record| record.frame)));
    // A fraction of more than a second can carry the seconds past the 32 bits that a file has for them.
    for (again, record) in again.iter().zip(&records) {
        assert!(record.time_ns >> 32 >= 1_000_000_000 || again.time_ns == record.time_ns);
    }
}

/// A virtio-net header and a frame, as a guest might give them: what is accepted can be written again, tagged
/// and labelled, finished and cut up into no more chunks than expected, and every chunk comes back, also of
/// what is cut up within a tunnel. The bytes of the header that a guest leaves to the device say what is
/// pushed.
pub fn ports_virtio_net(input: &[u8]) {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    let config = PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false };
    let pool = POOL.get_or_init(|| Pool::new(config).expect("memory for 256 chunks"));
    let Some((header, frame)) = input.split_first_chunk::<{ virtio_net::HEADER_LEN }>() else { return };
    let mut cache = pool.cache();
    let mut packet = cache.alloc_frame(&frame[..frame.len().min(65_000)]).expect("chunks came back");
    let noted = |p: &Packet| (p.flags, p.gso_size, p.csum_start, p.csum_offset);
    if virtio_net::apply(header, &mut packet).is_ok() {
        let mut again = cache.alloc_frame(&frame[..frame.len().min(65_000)]).expect("room for two");
        virtio_net::apply(&virtio_net::header_of(&packet), &mut again).expect("ours is accepted");
        assert_eq!(noted(&again), noted(&packet));
        cache.free(again);
    } else {
        let (mut inner, mut to_mtu) = (Vec::new(), Vec::new());
        let is_cut = virtio_net::cut_inner(header, &packet, &mut cache, &mut inner) == Ok(true);
        assert!(is_cut || inner.is_empty());
        inner.drain(..).for_each(|frame| cache.free(frame));
        let is_cut = cut_unfinished(&packet, 1514, &mut cache, &mut to_mtu);
        assert!(is_cut != to_mtu.is_empty() && to_mtu.iter().all(|frame| frame.len() <= 1514));
        to_mtu.drain(..).for_each(|frame| cache.free(frame));
    }
    push(&mut packet, header[10] % 8, header[11]);
    let mut frames = Vec::new();
    let chunks_max = offload::chunks_after_segmentation(&packet);
    if !offload::is_segmentation_pending(&packet) {
        frames.push(packet);
    } else if let Err(whole) = offload::segment(packet, &mut cache, &mut frames) {
        assert!(frames.is_empty());
        frames.push(whole);
    } else {
        let chunks: usize = frames.iter().map(|frame| frame.segments().count()).sum();
        assert!(chunks <= chunks_max, "{chunks} chunks of {chunks_max}");
    }
    for mut frame in frames {
        offload::complete_checksum(&mut frame);
        cache.free(frame);
    }
    drop(cache);
    assert_eq!(pool.stats().free, 256, "chunks are missing");
}

/// Pushes `count` tags and labels, one for each bit of `which`, as a pipeline does.
fn push(packet: &mut Packet, count: u8, which: u8) {
    const TAGS_MAX: u8 = 2;
    let mut layers = layers_of(packet, packet_type::ETHERNET);
    for n in 0..count {
        layers.know(packet.data(), packet.len(), TAGS_MAX);
        let action = if which >> n & 1 == 0 {
            DpAction::PushVlan { tpid: 0x8100, tci: 100 }
        } else {
            // The innermost one says that it is the last.
            DpAction::PushMpls { eth_type: 0x8847, lse: 1 << 12 | u32::from(n == 0) << 8 | 64 }
        };
        // What does not fit is refused.
        let _ = apply(packet, &mut layers, &action);
    }
}

/// A guest's memory with its rings in it: it may hold anything, and every chunk comes back.
pub fn ports_vhost_rings(input: &[u8]) {
    static POOL: OnceLock<&'static Pool> = OnceLock::new();
    let config = PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false };
    let pool = POOL.get_or_init(|| Pool::new(config).expect("memory for 256 chunks"));
    let mut cache = pool.cache();
    ports::vhost_user::fuzz::rings(input, &mut cache);
    drop(cache);
    assert_eq!(pool.stats().free, 256, "a chunk was lost");
}

/// A message of a guest's monitor.
pub fn ports_vhost_message(input: &[u8]) {
    ports::vhost_user::fuzz::message(input);
}
