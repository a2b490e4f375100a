//! What forwarding one packet between two AF_XDP ports costs the thread that does it: small UDP frames from
//! one namespace over two veth pairs to another, as fast as a sender on the other core makes them.
//!
//! `cargo run --release -p ports --example afxdp_cost [seconds] [key=value port options]`, as root.
#![allow(unsafe_code)]

#[allow(dead_code)] // It uses a part.
#[path = "../tests/it/rig/mod.rs"]
mod rig;

use base::PortNo;
use packet::{Pool, PoolConfig};
use ports::PortSpec;
use ports::af_xdp::AfXdpPort;
use rig::{Forwarder, Net};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::{Compose, EthAddr};

fn pin(core: usize) {
    // SAFETY: a CPU set is plain bits, for which zero is valid.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the core number is below the set's size.
    unsafe { libc::CPU_SET(core, &mut set) };
    // SAFETY: the set is initialised and of the size given.
    unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) };
}

/// Sends `frame` on `eth0` of the calling thread's namespace until told to stop.
fn flood(frame: &[u8], stop: &AtomicBool, sent: &AtomicU64) {
    // SAFETY: the call touches no memory of ours.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    assert!(fd >= 0);
    // SAFETY: the call just returned this descriptor.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    let bypass = 1i32;
    let len = size_of_val(&bypass) as u32;
    let value = (&raw const bypass).cast();
    // SAFETY: the value is of the length given.
    unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, value, len) };
    // SAFETY: the name ends in zero.
    let ifindex = unsafe { libc::if_nametoindex(c"eth0".as_ptr()) };
    // SAFETY: an address is plain bytes and integers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    (address.sll_family, address.sll_ifindex, address.sll_halen) =
        (libc::AF_PACKET as u16, ifindex as i32, 6);
    let mut iov = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: frame.len() };
    // SAFETY: a message header is pointers and integers, for which zero is valid.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = (&raw mut address).cast();
    message.msg_hdr.msg_namelen = size_of_val(&address) as u32;
    message.msg_hdr.msg_iov = &raw mut iov;
    message.msg_hdr.msg_iovlen = 1;
    let mut messages = [message; 64];
    while !stop.load(Ordering::Relaxed) {
        // SAFETY: the messages, their address and frame outlive the call.
        let done = unsafe { libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), 64, 0) };
        sent.fetch_add(done.max(0) as u64, Ordering::Relaxed);
    }
}

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let seconds = if arguments.is_empty() { 3 } else { arguments.remove(0).parse().expect("seconds") };
    let net = Net::new("");
    net.enter("s");
    pin(0);
    let pool = Pool::new(PoolConfig::default()).expect("a pool");
    let open = |name, number| {
        let mut spec = PortSpec::new(name, "afxdp", PortNo(number));
        for option in &arguments {
            let (key, value) = option.split_once('=').expect("key=value");
            spec = spec.with(key, value);
        }
        AfXdpPort::open(&spec, pool).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let (mut p0, mut p1) = (open("p0", 1), open("p1", 2));
    let frame = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]))
        .ipv4("10.9.0.1".parse().expect("an address"), "10.9.0.2".parse().expect("an address"))
        .udp(1000, 2000)
        .frame_len(60)
        .build()
        .expect("a frame");
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let forwarder = Forwarder::start(pool, [&mut p0, &mut p1]);
    let sender = {
        let (stop, sent, host) = (stop.clone(), sent.clone(), net.name("a").to_owned());
        std::thread::spawn(move || {
            pin(1);
            let file = std::fs::File::open(format!("/run/netns/{host}")).expect("the namespace");
            // SAFETY: the descriptor is open; the call touches no memory of ours.
            assert_eq!(unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) }, 0);
            flood(&frame, &stop, &sent);
        })
    };
    let start = Instant::now();
    std::thread::sleep(Duration::from_secs(seconds));
    stop.store(true, Ordering::Relaxed);
    sender.join().expect("the sender does not panic");
    let elapsed = start.elapsed().as_secs_f64();
    let report = forwarder.stop();
    let packets = report.packets.load(Ordering::Relaxed);
    let cpu = report.cpu_ns.load(Ordering::Relaxed);
    println!("sent {} forwarded {packets} in {elapsed:.1} s", sent.load(Ordering::Relaxed));
    println!(
        "{:.0} ns of thread CPU per packet, {:.1} packets per burst, {:.2} Mpps",
        cpu as f64 / packets as f64,
        packets as f64 / report.bursts.load(Ordering::Relaxed) as f64,
        packets as f64 / elapsed / 1e6
    );
    println!("{report:?}\n{:?}\n{:?}", packet::Port::stats(&p0), packet::Port::stats(&p1));
}
