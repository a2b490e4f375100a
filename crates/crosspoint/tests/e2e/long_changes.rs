//! Changes and dumps of many flows: others are served meanwhile, and see them whole or not at all.

use crate::bundles::{connect, connect_to, hear, resident_mb};
use crate::common::{Switch, free_port, wait_for};
use crate::e2e_controllers::configured_by_database;
use std::collections::HashSet;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What the p99 of an echo's time may be: ten times what it takes beside a bundle on a quiet machine, where
/// 10 ms are the aim. While the switch did all at once it was a second.
pub(crate) const ECHO_P99_MAX: Duration = Duration::from_millis(40);

const ERROR: u8 = 1;
const ECHO_REPLY: u8 = 3;
pub(crate) const MULTIPART_REPLY: u8 = 19;
pub(crate) const BARRIER_REPLY: u8 = 21;
pub(crate) const BUNDLE_CONTROL: u8 = 33;

pub(crate) const ADD: u8 = 0;
const DELETE: u8 = 3;
const DELETE_STRICT: u8 = 4;

/// Has the table of br1 hold 10 flows.
const LIMIT: &str =
    "--id=@t create Flow_Table flow_limit=10 overflow_policy=evict -- set bridge br1 flow_tables:0=@t";

/// A flow-mod of OpenFlow 1.4 without actions, for a destination's address; 0 for all.
pub(crate) fn flow_mod(command: u8, address: u32) -> Vec<u8> {
    let matching = match address {
        0 => [[0, 1, 0, 4].to_vec(), vec![0; 4]].concat(),
        n => [[0, 1, 0, 14, 0x80, 0, 6, 6, 2, 0].to_vec(), n.to_be_bytes().to_vec(), vec![0; 2]].concat(),
    };
    let mut message = [[5, 14], (48 + matching.len() as u16).to_be_bytes()].concat();
    message.extend(address.to_be_bytes());
    message.extend([0; 16]);
    message.extend([if command == DELETE { 0xff } else { 0 }, command]);
    message.extend([0; 4]);
    message.extend([0x80, 0]);
    message.extend([0xff; 12]); // No buffer, any port and group.
    message.extend([0; 4]);
    message.extend(matching);
    message
}

/// A bundle that adds flows for these addresses, and the request that commits it.
pub(crate) fn bundle(addresses: std::ops::Range<u32>) -> Vec<u8> {
    bundle_of(addresses, ADD)
}

fn bundle_of(addresses: std::ops::Range<u32>, command: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    for address in addresses {
        let flow_mod = flow_mod(command, address);
        bytes.extend([[5, 34], (16 + flow_mod.len() as u16).to_be_bytes()].concat());
        bytes.extend(address.to_be_bytes());
        bytes.extend([0, 0, 0, 1, 0, 0, 0, 0]);
        bytes.extend(flow_mod);
    }
    bytes.extend([5, 33, 0, 16, 0, 0, 0, 7, 0, 0, 0, 1, 0, 4, 0, 0]);
    bytes
}

pub(crate) fn barrier(stream: &mut UnixStream) {
    stream.write_all(&[5, 20, 0, 8, 0, 0, 0, 9]).unwrap();
    let (kind, body) = hear(stream);
    assert_eq!(kind, BARRIER_REPLY, "{body:?}");
}

/// Asks for a dump of all flows.
fn ask_for_dump(stream: &mut UnixStream) {
    let mut request = [5, 18, 0, 56, 0, 0, 0, 5, 0, 1, 0, 0, 0, 0, 0, 0].to_vec();
    request.extend([0xff, 0, 0, 0]);
    request.extend([0xff; 8]);
    request.extend([0; 4 + 16]);
    request.extend([0, 1, 0, 4, 0, 0, 0, 0]);
    request[3] = request.len() as u8;
    stream.write_all(&request).unwrap();
}

/// Reads a dump of all flows, as fast as it comes: its bytes.
fn dump(stream: &mut UnixStream) -> usize {
    ask_for_dump(stream);
    let mut bytes = 0;
    loop {
        let (kind, body) = hear(stream);
        assert_eq!(kind, MULTIPART_REPLY, "{body:?}");
        bytes += body.len();
        if body[3] & 1 == 0 {
            return bytes;
        }
    }
}

/// Tells other threads of a test that its work is done, also where that has failed: the test waits for them.
struct Done<'a>(&'a AtomicBool);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn flow_count(switch: &Switch) -> u32 {
    let said = switch.ofctl(&["dump-aggregate", "br0"]).ok();
    let (_, count) = said.trim().rsplit_once("flow_count=").unwrap();
    count.parse().unwrap()
}

/// Times of one kind of request, sorted; and when each was asked and answered.
pub(crate) struct Times(Vec<Duration>, Vec<[Instant; 2]>);

impl Times {
    /// The longest time without an answer while the slowest of the others waited, and how long that waited.
    fn silence_during_the_slowest(&self, others: &Times) -> [Duration; 2] {
        let [asked, answered] = *others.1.iter().max_by_key(|[asked, answered]| *answered - *asked).unwrap();
        let within = self.1.iter().map(|[_, at]| *at).filter(|at| (asked..answered).contains(at));
        let mut silence = Duration::ZERO;
        let mut last = asked;
        for at in within.chain([answered]) {
            silence = silence.max(at - last);
            last = at;
        }
        [silence, answered - asked]
    }

    pub fn p99(&self) -> Duration {
        self.0[self.0.len() * 99 / 100]
    }
}

/// Asks again and again while something is done, on connections of their own: echoes, and flow-mods with a
/// barrier behind each.
pub(crate) fn asked_during(switch: &Switch, what: &str, work: impl FnOnce()) -> [Times; 2] {
    let (done, asking) = (AtomicBool::new(false), AtomicUsize::new(0));
    let [mut echoing, mut changing] = [connect(switch), connect(switch)];
    let ask = |done: &AtomicBool, mut once: Box<dyn FnMut() + Send + '_>| {
        let (mut times, mut when) = (Vec::new(), Vec::new());
        once();
        asking.fetch_add(1, Ordering::Relaxed);
        while !done.load(Ordering::Relaxed) || times.is_empty() {
            let start = Instant::now();
            once();
            let end = Instant::now();
            times.push(end - start);
            when.push([start, end]);
            std::thread::sleep(Duration::from_micros(200));
        }
        times.sort();
        Times(times, when)
    };
    let times = std::thread::scope(|scope| {
        let echo = || {
            echoing.write_all(&[5, 2, 0, 8, 0, 0, 0, 3]).unwrap();
            assert_eq!(hear(&mut echoing).0, ECHO_REPLY);
        };
        let change = || {
            changing.write_all(&flow_mod(ADD, 0x8000_0001)).unwrap();
            barrier(&mut changing);
        };
        let echo: Box<dyn FnMut() + Send> = Box::new(echo);
        let change: Box<dyn FnMut() + Send> = Box::new(change);
        let (done, ask) = (&done, &ask);
        let threads = [scope.spawn(move || ask(done, echo)), scope.spawn(move || ask(done, change))];
        let working = Done(done);
        wait_for("both to ask", || asking.load(Ordering::Relaxed) == 2);
        work();
        drop(working);
        threads.map(|thread| thread.join().unwrap())
    });
    for (name, times) in ["echo", "flow-mod and barrier"].iter().zip(&times) {
        let (count, p99, max) = (times.0.len(), times.p99(), times.0.last().unwrap());
        println!("{what}: {name} p50 {:?}, p99 {p99:?}, max {max:?} of {count}", times.0[count / 2]);
    }
    times
}

#[test]
fn echoes_are_answered_in_time_while_many_flows_are_added_dumped_and_deleted() {
    let flows = testkit::cases("e2e::long_changes_flows", 100_000).min(1_000_000);
    let switch = Switch::dummy();
    let [idle, _] = asked_during(&switch, "idle", || std::thread::sleep(Duration::from_secs(1)));
    // What the machine's other work costs is not the switch's.
    let max = ECHO_P99_MAX + 2 * idle.p99();
    let mut stream = connect(&switch);
    let bytes = bundle(1..flows + 1);
    let in_time = |what: &str, [echo, _]: [Times; 2]| {
        assert!(echo.p99() <= max, "{what}: the p99 of echoes is {:?}, allowed are {max:?}", echo.p99());
    };
    let commit = |stream: &mut UnixStream| {
        let start = Instant::now();
        stream.write_all(&bytes).unwrap();
        let sent = start.elapsed();
        let (kind, body) = hear(stream);
        assert_eq!((kind, body[5]), (BUNDLE_CONTROL, 5), "{body:?}");
        println!("a bundle of {flows}: sent in {sent:?}, done after {:?}", start.elapsed());
    };
    in_time("a bundle is committed", asked_during(&switch, "bundle", || commit(&mut stream)));
    assert_eq!(flow_count(&switch), flows + 1);
    in_time("the same again", asked_during(&switch, "same bundle", || commit(&mut stream)));
    in_time(
        "flows are dumped",
        asked_during(&switch, "dump", || assert!(dump(&mut stream) > flows as usize * 60)),
    );
    // More than a dump holds before it begins to write.
    let shown: HashSet<String> = switch.flows(&[]).into_iter().collect();
    assert_eq!(shown.len(), flows as usize + 1, "each is shown, once");
    let rule_bytes = || -> u64 {
        let shown = switch.appctl(&["memory/show"]).ok();
        let bytes = shown.split_whitespace().find_map(|figure| figure.strip_prefix("rule-bytes:"));
        bytes.unwrap_or_else(|| panic!("{shown}")).parse().unwrap()
    };
    let full = rule_bytes();
    let delete = |stream: &mut UnixStream| {
        let start = Instant::now();
        stream.write_all(&flow_mod(DELETE, 0)).unwrap();
        barrier(stream);
        println!("a deletion of {flows}: done after {:?}", start.elapsed());
        // What comes after is part of it: their memory is freed in turns. Their mask, which a flow keeps in
        // use, keeps its places: 36 % of it where two bundles of flows had places at once.
        wait_for("the memory of the flows to be free", || rule_bytes() < full / 2);
        println!("their memory is free after {:?}: {} of {full} bytes", start.elapsed(), rule_bytes());
    };
    in_time("flows are deleted", asked_during(&switch, "deletion", || delete(&mut stream)));
    assert!(flow_count(&switch) <= 1);
}

/// A turn of each would take 400 ms, and what each finds and does not send some megabytes.
#[test]
fn two_hundred_clients_that_ask_for_dumps_and_read_little_cost_little_time_and_memory() {
    const FLOWS: u32 = 20_000;
    const MEGABYTES_MAX: u64 = 120;
    let switch = Switch::dummy();
    let mut stream = connect(&switch);
    stream.write_all(&bundle(1..FLOWS + 1)).unwrap();
    assert_eq!(hear(&mut stream).0, BUNDLE_CONTROL);
    let [idle, _] = asked_during(&switch, "idle", || std::thread::sleep(Duration::from_secs(1)));
    let before = resident_mb(&switch);
    let mut after = 0;
    let [echo, _] = asked_during(&switch, "200 dumps", || {
        let mut clients: Vec<UnixStream> = (0..200).map(|_| connect(&switch)).collect();
        clients.iter_mut().for_each(ask_for_dump);
        // All flows are found by then. The rest of the answer waits for a client that does not read it.
        for client in &mut clients {
            assert_eq!(hear(client).0, MULTIPART_REPLY);
        }
        after = resident_mb(&switch);
    });
    let taken = after.saturating_sub(before);
    assert!(taken <= MEGABYTES_MAX, "{taken} MB wait for clients that do not read");
    let max = ECHO_P99_MAX + 2 * idle.p99();
    assert!(echo.p99() <= max, "the p99 of echoes is {:?}, allowed are {max:?}", echo.p99());
}

#[test]
fn the_control_socket_shows_tables_before_a_bundle_or_after_it() {
    const FLOWS: usize = 30_000;
    let switch = Switch::dummy();
    let (stream, looks) = (connect(&switch), AtomicUsize::new(0));
    let counts = std::thread::scope(|scope| {
        let commits = scope.spawn(|| {
            let mut stream = stream;
            for _ in 0..5 {
                stream.write_all(&bundle(1..FLOWS as u32 + 1)).unwrap();
                assert_eq!(hear(&mut stream).0, BUNDLE_CONTROL);
                wait_for_another_look(&[&looks]);
                stream.write_all(&flow_mod(DELETE, 0)).unwrap();
                barrier(&mut stream);
            }
        });
        let mut counts = Vec::new();
        while !commits.is_finished() {
            let shown = switch.appctl(&["bridge/dump-flows", "br0"]).ok();
            counts.push(shown.lines().filter(|line| line.contains("dl_dst=")).count());
            looks.fetch_add(1, Ordering::Relaxed);
        }
        counts
    });
    assert!(counts.iter().all(|count| [0, FLOWS].contains(count)), "{counts:?}");
    assert!(counts.contains(&FLOWS), "{counts:?}");
}

/// Waits until each has looked from beginning to end since now.
fn wait_for_another_look(looks: &[&AtomicUsize]) {
    let before = looks.iter().map(|looks| looks.load(Ordering::Relaxed)).collect::<Vec<_>>();
    wait_for("another look at the tables", || {
        // The one that is under way may have seen what was before.
        looks.iter().zip(&before).all(|(looks, before)| looks.load(Ordering::Relaxed) >= before + 2)
    });
}

/// Bundles of so many flows come and go without a pause, beside others that stay: no dump shows part of any.
fn check_dumps_during_bundles(others: u32, flows: u32) {
    let switch = Switch::dummy();
    let [mut stream, mut dumping] = [connect(&switch), connect(&switch)];
    let commit = |stream: &mut UnixStream, bytes: &[u8]| {
        stream.write_all(bytes).unwrap();
        let (kind, body) = hear(stream);
        assert_eq!((kind, body[5]), (BUNDLE_CONTROL, 5), "{body:?}");
    };
    let addresses = others + 1..others + flows + 1;
    let delete = bundle_of(addresses.clone(), DELETE_STRICT);
    commit(&mut stream, &bundle(1..others + 1));
    let without = dump(&mut dumping);
    commit(&mut stream, &bundle(addresses.clone()));
    let with = dump(&mut dumping);
    assert!(without < with);
    let done = AtomicBool::new(false);
    let (mut sizes, mut commits) = (Vec::new(), 0);
    std::thread::scope(|scope| {
        let changing = scope.spawn(|| {
            let add = bundle(addresses);
            while !done.load(Ordering::Relaxed) {
                commit(&mut stream, &delete);
                commit(&mut stream, &add);
                commits += 2;
            }
        });
        let _dumping = Done(&done);
        while !changing.is_finished() && sizes.len() < 20 {
            sizes.push(dump(&mut dumping));
        }
    });
    assert_eq!(sizes.len(), 20, "all are answered");
    assert!(commits > 2, "{commits} bundles were committed meanwhile");
    assert!(sizes.iter().all(|size| [without, with].contains(size)), "{without} or {with}: {sizes:?}");
}

#[test]
fn openflow_dumps_show_tables_before_a_bundle_or_after_it() {
    check_dumps_during_bundles(30_000, 5_000);
    check_dumps_during_bundles(30_000, 500);
}

#[test]
fn a_bundle_is_committed_whole_though_its_connection_or_the_switch_ends() {
    const FLOWS: u32 = 20_000;
    let mut switch = Switch::dummy();
    let mut ends = connect(&switch);
    ends.write_all(&bundle(1..FLOWS + 1)).unwrap();
    drop(ends);
    wait_for("the bundle of a connection that has ended", || match flow_count(&switch) {
        0 => false,
        count => {
            assert_eq!(count, FLOWS, "all at once");
            true
        }
    });

    // A deletion comes before the bundle or after it.
    for wait_ms in [0, 1, 2, 5, 10, 20, 40] {
        let [mut one, mut other] = [connect(&switch), connect(&switch)];
        one.write_all(&bundle(FLOWS..2 * FLOWS)).unwrap();
        std::thread::sleep(Duration::from_millis(wait_ms));
        other.write_all(&flow_mod(DELETE, 0)).unwrap();
        barrier(&mut other);
        let (kind, body) = hear(&mut one);
        assert_eq!((kind, body[5]), (BUNDLE_CONTROL, 5), "{body:?}");
        let count = flow_count(&switch);
        assert!([0, FLOWS].contains(&count), "{count} flows, {wait_ms} ms after the bundle was sent");
        other.write_all(&flow_mod(DELETE, 0)).unwrap();
        barrier(&mut other);
    }

    // Its last message is refused, which is of all packets and must not overlap with others (flag 2 of the
    // flow-mod): nothing of the bundle is left, and the connection goes on.
    let mut one = connect(&switch);
    let mut bytes = bundle(1..FLOWS);
    bytes.truncate(bytes.len() - 16);
    let flags = bytes.len() + 16 + 45;
    bytes.extend(bundle(0..1));
    bytes[flags] = 2;
    one.write_all(&bytes).unwrap();
    assert_eq!([hear(&mut one).0, hear(&mut one).0], [ERROR, ERROR], "of the message, and of the bundle");
    assert_eq!(flow_count(&switch), 0);
    barrier(&mut one);

    one.write_all(&bundle(1..FLOWS + 1)).unwrap();
    switch.appctl(&["exit"]).ok();
    assert!(switch.wait().success());
}

/// A bundle that adds flows which end some hours later: those that stay for ever are never evicted.
fn bundle_of_ending(flows: u32) -> Vec<u8> {
    let mut bytes = bundle(1..flows + 1);
    bytes.chunks_exact_mut(80).for_each(|message| message[44] = 100);
    bytes
}

#[test]
fn tables_are_shown_before_their_limit_is_lowered_or_after_it() {
    const FLOWS: u32 = 30_000;
    let (_server, switch) = configured_by_database();
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure");
    let mut stream = connect_to(&switch, "br1");
    let bytes = bundle_of_ending(FLOWS);
    let (done, looks) = (AtomicBool::new(false), [(); 2].map(|()| AtomicUsize::new(0)));
    let by_openflow = || {
        let said = switch.ofctl(&["dump-aggregate", "br1"]).ok();
        said.trim().rsplit_once("flow_count=").unwrap().1.parse::<usize>().unwrap()
    };
    let by_command = || {
        let said = switch.appctl(&["bridge/dump-flows", "br1"]).ok();
        said.lines().filter(|line| line.contains("dl_dst=")).count()
    };
    let shown = std::thread::scope(|scope| {
        let by = [(&by_openflow as &(dyn Fn() -> usize + Sync), &looks[0]), (&by_command, &looks[1])];
        let lookers = by.map(|(look, looks)| {
            let done = &done;
            scope.spawn(move || {
                let mut shown = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    shown.push(look());
                    looks.fetch_add(1, Ordering::Relaxed);
                }
                shown
            })
        });
        let changing = Done(&done);
        for _ in 0..5 {
            stream.write_all(&bytes).unwrap();
            assert_eq!(hear(&mut stream).0, BUNDLE_CONTROL);
            wait_for_another_look(&looks.each_ref());
            switch.vsctl(LIMIT);
            wait_for_another_look(&looks.each_ref());
            switch.vsctl("clear bridge br1 flow_tables");
        }
        drop(changing);
        lookers.map(|looker| looker.join().unwrap())
    });
    for shown in shown {
        assert!(shown.iter().all(|n| [0, 10, FLOWS as usize].contains(n)), "{shown:?}");
        assert!(shown.contains(&10) && shown.contains(&(FLOWS as usize)), "{shown:?}");
    }
}

/// The other bridge keeps serving while one with many flows gets a controller, fails open, has its table
/// limited and goes.
#[test]
fn echoes_are_answered_while_the_switch_itself_empties_a_bridge() {
    const FLOWS: u32 = 300_000;
    let (_server, switch) = configured_by_database();
    for bridge in ["br0", "br1"] {
        switch.vsctl(&format!("add-br {bridge} -- set bridge {bridge} datapath_type=dummy"));
    }
    let bytes = bundle_of_ending(FLOWS);
    let count = || switch.ofctl(&["dump-aggregate", "br1"]).ok();
    let fill = || {
        let mut stream = connect_to(&switch, "br1");
        stream.write_all(&bytes).unwrap();
        let (kind, body) = hear(&mut stream);
        assert_eq!((kind, body[5]), (BUNDLE_CONTROL, 5), "{body:?}");
    };
    // A request that changes tables waits until all is done, and others are answered meanwhile: there are a
    // hundred turns and more, and none is a third of the whole, however slow the machine is.
    let in_time = |what: &str, work: &dyn Fn()| {
        fill();
        let [echo, change] = asked_during(&switch, what, work);
        let [silence, change] = echo.silence_during_the_slowest(&change);
        println!("{what}: no echo was answered for {silence:?} of a change's {change:?}");
        assert!(
            3 * silence <= change,
            "{what}: no echo was answered for {silence:?} of a change's {change:?}"
        );
    };
    let nobody = format!("set-controller br1 tcp:127.0.0.1:{}", free_port());
    in_time("a bridge gets a controller", &|| drop(switch.vsctl(&nobody)));
    assert!(count().contains("flow_count=0"), "{}", count());
    in_time("it fails open", &|| {
        wait_for("the bridge to fail open", || switch.log().contains("failing open"));
        wait_for("its rules to go", || count().contains("flow_count=0"));
    });
    assert!(count().contains("flow_count=0"), "{}", count());
    in_time("its table is limited", &|| drop(switch.vsctl(LIMIT)));
    assert!(count().contains("flow_count=10"), "{}", count());
    switch.vsctl("clear bridge br1 flow_tables");
    in_time("it goes", &|| drop(switch.vsctl("del-br br1")));
    assert_eq!(switch.vsctl("list-br"), "br0");
    // Another of its name begins with nothing.
    switch.vsctl("add-br br1 -- set bridge br1 datapath_type=dummy fail_mode=secure");
    assert!(count().contains("flow_count=0"), "{}", count());
}
