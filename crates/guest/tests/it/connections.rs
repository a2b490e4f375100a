//! How guests and ports of type `dpdkvhostuser` and `dpdkvhostuserclient` come together and part.

use crate::rig::{LAYOUTS, frame, rig, server, told};
use base::PortNo;
use guest::{Guest, GuestConfig};
use packet::{Batch, LinkState, Pool, PoolConfig, Port};
use ports::PortSpec;
use ports::vhost_user::VhostUserPort;
use ports::vhost_user::message::{encode, request};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;
use testkit::lab::wait_for;
#[test]
fn a_port_is_connected_when_the_guests_device_is_ready_and_no_sooner() {
    let dir = tempfile::tempdir().unwrap();
    let port = server(dir.path(), &[]);
    let status = || told(&port, "status").unwrap();
    let path = dir.path().join("vhost0");
    let silent = UnixStream::connect(&path).unwrap();
    // The port answers one that came later, so it has seen this one.
    let mut asking = UnixStream::connect(&path).unwrap();
    asking.write_all(&encode(request::GET_FEATURES, false, false, &[])).unwrap();
    asking.read_exact(&mut [0; 20]).unwrap();
    assert_eq!(status(), "disconnected", "a silent peer is not a device");
    assert_eq!(told(&port, "features"), None);
    drop((silent, asking));
    let mut guest = Guest::connect(&path, &GuestConfig::default()).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(status(), "connected");
    assert_ne!(told(&port, "features").unwrap(), "0x0000000000000000");
    guest.stop(2).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(status(), "disconnected", "its driver has stopped");
}

#[test]
fn who_has_no_device_keeps_no_guest_away() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vhost0");
    let port = server(dir.path(), &[]);
    let silent: Vec<_> = (0..100).map(|_| UnixStream::connect(&path).unwrap()).collect();
    // One asks for features and then says no more, another stops in the middle of a message.
    let get_features = encode(request::GET_FEATURES, false, false, &[]);
    let mut asking = UnixStream::connect(&path).unwrap();
    asking.write_all(&get_features).unwrap();
    let mut answer = [0; 20];
    asking.read_exact(&mut answer).unwrap();
    let mut halting = UnixStream::connect(&path).unwrap();
    halting.write_all(&get_features[..5]).unwrap();
    let mut guest = Guest::connect(&path, &GuestConfig::default()).unwrap();
    guest.synchronise().unwrap();
    assert_eq!(told(&port, "status").unwrap(), "connected");
    // A guest at work is not put out by anybody who comes.
    let mut late = UnixStream::connect(&path).unwrap();
    late.write_all(&get_features).unwrap();
    for _ in 0..3 {
        guest.synchronise().unwrap();
        assert_eq!(told(&port, "status").unwrap(), "connected");
    }
    drop(guest);
    // Its place is free, and the one that waited is heard.
    late.read_exact(&mut answer).unwrap();
    drop((silent, asking, halting));
}

#[test]
fn a_guest_that_comes_again_finds_its_port_at_work() {
    for layout in LAYOUTS {
        let config = GuestConfig { layout, ..GuestConfig::default() };
        let mut rig = rig(&config);
        for n in 0..5 {
            assert!(rig.pairs[0].send(&frame(n, 60)));
            assert_eq!(rig.receive(0), [frame(n, 60)]);
            // The old guest goes without a word, as one that was killed does.
            rig.pairs.clear();
            rig.guest = None;
            let mut guest = Guest::connect(&rig.path, &config).unwrap();
            guest.synchronise().unwrap();
            assert_eq!(rig.port.status().link, LinkState::Up);
            rig.pairs = guest.take_pairs();
            rig.guest = Some(guest);
        }
    }
}

#[test]
fn a_client_port_connects_whenever_a_guest_listens() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guest.sock");
    let spec = PortSpec::new("vhost0", "dpdkvhostuserclient", PortNo(7))
        .with("vhost-server-path", path.to_str().unwrap());
    let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    let mut port = VhostUserPort::open(&spec).unwrap();
    assert_eq!(port.status().link, LinkState::Down);
    let mut rx = port.take_rx_queues();
    for n in 0..3 {
        let mut guest = Guest::listen(&path, &GuestConfig::default(), Duration::from_secs(5)).unwrap();
        guest.synchronise().unwrap();
        let mut pair = guest.take_pairs().remove(0);
        assert!(pair.send(&frame(n, 60)));
        let mut batch = Batch::new();
        rx[0].rx_burst(&mut cache, &mut batch);
        assert_eq!(batch[0].data(), frame(n, 60));
        cache.free_all(&mut batch);
        drop((pair, guest));
        wait_for("the link goes down", || port.status().link == LinkState::Down);
    }
    assert_eq!(port.status().error, None);
}

/// How often the thread of this name has gone to sleep.
fn times_slept(name: &str) -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let text = |thread: &std::fs::DirEntry, file: &str| {
        std::fs::read_to_string(thread.path().join(file)).unwrap_or_default()
    };
    let mut named = threads.filter(|thread| text(thread, "comm").trim() == name);
    let status = text(&named.next().expect("a thread of this name"), "status");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.unwrap().trim().parse().unwrap()
}

#[test]
fn a_guest_that_restarts_is_met_by_its_switch_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guest.sock");
    // Its thread has a name that no other test's has.
    let spec = PortSpec::new("restarts", "dpdkvhostuserclient", PortNo(7))
        .with("vhost-server-path", path.to_str().unwrap());
    let port = VhostUserPort::open(&spec).unwrap();
    // The quickest of some: other tests share the processors.
    let waited = (0..5).map(|_| {
        let mut guest = Guest::listen(&path, &GuestConfig::default(), Duration::from_secs(5)).unwrap();
        guest.synchronise().unwrap();
        drop(guest);
        wait_for("the link goes down", || port.status().link == LinkState::Down);
        let slept = times_slept("vhost restarts");
        wait_for("the switch has looked for the guest in vain", || times_slept("vhost restarts") > slept + 1);
        let start = std::time::Instant::now();
        let mut guest = Guest::listen(&path, &GuestConfig::default(), Duration::from_secs(5)).unwrap();
        guest.synchronise().unwrap();
        start.elapsed()
    });
    let least = waited.min().unwrap();
    assert!(least < Duration::from_millis(100), "{least:?}");
}

/// A socket whose owner accepts nobody, with one connection in its queue, which is as many as there is room
/// for: another one would wait.
fn full_socket(path: &Path) -> (OwnedFd, UnixStream) {
    let owner = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&owner, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&owner, 0).unwrap();
    (owner, UnixStream::connect(path).unwrap())
}

#[test]
fn a_guest_that_accepts_nobody_holds_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vhost0");
    let full = full_socket(&path);
    let spec = |kind, option, value: &Path| {
        PortSpec::new("vhost0", kind, PortNo(7)).with(option, value.to_str().unwrap())
    };
    let client = spec("dpdkvhostuserclient", "vhost-server-path", &path);
    let server = spec("dpdkvhostuser", "vhost-sock-dir", dir.path());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let port = VhostUserPort::open(&client).unwrap();
        // Time to try.
        std::thread::sleep(Duration::from_millis(100));
        drop(port);
        tell.send(VhostUserPort::open(&server).map(drop)).unwrap();
    });
    let opened = told.recv_timeout(Duration::from_secs(30)).expect("ports can be removed and opened");
    assert!(opened.is_err_and(|error| error.to_string().contains("another process listens")));
    drop(full);
}

#[test]
fn a_socket_that_somebody_serves_is_refused_and_a_stale_one_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let first = server(dir.path(), &[]);
    let spec = PortSpec::new("vhost0", "dpdkvhostuser", PortNo(8))
        .with("vhost-sock-dir", dir.path().to_str().unwrap());
    let Err(error) = VhostUserPort::open(&spec) else { panic!("two ports on one socket") };
    assert!(error.to_string().contains("another process listens"), "{error}");
    drop(first);
    assert!(!dir.path().join("vhost0").exists());
    drop(std::os::unix::net::UnixListener::bind(dir.path().join("vhost0")).unwrap());
    drop(VhostUserPort::open(&spec).unwrap());
    std::fs::write(dir.path().join("vhost0"), "a file").unwrap();
    assert!(VhostUserPort::open(&spec).is_err());
}

#[test]
fn a_port_takes_no_socket_of_another_type_and_none_that_its_successor_has_made() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vhost0");
    let spec = PortSpec::new("vhost0", "dpdkvhostuser", PortNo(8))
        .with("vhost-sock-dir", dir.path().to_str().unwrap());
    let datagrams = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
    let Err(error) = VhostUserPort::open(&spec) else { panic!("a socket was taken from its owner") };
    assert!(error.to_string().contains("another process listens"), "{error}");
    assert!(path.exists());
    drop(datagrams);
    let port = VhostUserPort::open(&spec).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _successor = std::os::unix::net::UnixListener::bind(&path).unwrap();
    drop(port);
    UnixStream::connect(&path).expect("the successor's socket");
}

#[test]
fn a_guest_listens_where_one_was_killed_and_not_where_somebody_does() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("guest.sock");
    let listen = || Guest::listen(&path, &GuestConfig::default(), Duration::from_secs(5));
    // Who is killed leaves its socket.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let spec = PortSpec::new("vhost0", "dpdkvhostuserclient", PortNo(7))
        .with("vhost-server-path", path.to_str().unwrap());
    let port = VhostUserPort::open(&spec).unwrap();
    let mut guest = listen().unwrap();
    guest.synchronise().unwrap();
    assert_eq!(port.status().link, LinkState::Up);
    for _ in 0..2 {
        let Err(error) = listen() else { panic!("two guests on one socket") };
        assert!(error.to_string().ends_with("another process listens there"), "{error}");
    }
    guest.synchronise().unwrap();
    assert_eq!(port.status().link, LinkState::Up);
    drop((guest, port));
    assert!(!path.exists());
    std::fs::write(&path, "a file").unwrap();
    assert!(listen().is_err() && std::fs::read_to_string(&path).unwrap() == "a file");
}

#[test]
fn a_client_port_goes_to_another_socket_and_stays_the_port_that_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    let options = |path: &Path| [("vhost-server-path".to_string(), path.to_str().unwrap().into())].into();
    let spec = PortSpec::new("vhost0", "dpdkvhostuserclient", PortNo(7));
    let pool = Pool::new(PoolConfig { chunks: 256, chunk_bytes: 2048, huge_pages: false }).unwrap();
    let mut cache = pool.cache();
    let mut port = VhostUserPort::open(&spec).unwrap();
    let mut rx = port.take_rx_queues();
    // The first path comes to a port that has none.
    for n in 0..4 {
        let path = &paths[n as usize % 2];
        assert_eq!(port.set_options(&options(path)), Ok(true));
        wait_for("the link goes down", || port.status().link == LinkState::Down);
        assert_eq!(told(&port, "socket").as_deref(), path.to_str());
        let mut guest = Guest::listen(path, &GuestConfig::default(), Duration::from_secs(5)).unwrap();
        guest.synchronise().unwrap();
        assert_eq!(port.status().link, LinkState::Up);
        let mut pair = guest.take_pairs().remove(0);
        assert!(pair.send(&frame(n, 60)));
        let mut batch = Batch::new();
        rx[0].rx_burst(&mut cache, &mut batch);
        assert_eq!(batch[0].data(), frame(n, 60));
        cache.free_all(&mut batch);
        // The same path again, and one that comes with nonsense, change nothing.
        assert_eq!(port.set_options(&options(path)), Ok(true));
        let mut bad: std::collections::BTreeMap<String, String> = options(&paths[(n as usize + 1) % 2]);
        bad.insert("tx-retries-max".into(), "99".into());
        assert!(port.set_options(&bad).is_err());
        guest.synchronise().unwrap();
        assert!(guest.is_connected() && port.status().link == LinkState::Up);
        // It hears that it is left when there is another.
        assert_eq!(port.set_options(&options(&paths[(n as usize + 1) % 2])), Ok(true));
        wait_for("the guest is left", || !guest.is_connected());
    }
    assert_eq!(port.set_options(&std::collections::BTreeMap::new()), Ok(true));
    wait_for("it is nowhere", || told(&port, "socket").is_none());
    // One that listens is made anew elsewhere.
    let mut server = server(dir.path(), &[]);
    let elsewhere = [("vhost-sock-dir".to_string(), "/elsewhere".to_string())].into();
    assert_eq!(server.set_options(&elsewhere), Ok(false));
}
