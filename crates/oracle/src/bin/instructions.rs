//! Instructions per packet on the packet path, which noise does not reach.
//!
//! The command runs itself once more, under callgrind: a switch in memory whose worker is stepped by hand, so
//! that every run executes the same instructions. Seeds are fixed and time stands still. Callgrind counts
//! within `Process::burst` alone, from the packets' bytes to their outputs; the source in memory and the
//! worker's loop are outside. One case after the other, each in a switch of its own and after bursts that are
//! not counted.
//!
//! What it prints is the table that bench/instructions.txt has, which a test compares. It is a program of its
//! own, so that the test has a release build of the packet path alone to wait for: `cargo run --release -p
//! oracle --bin instructions`.

use base::hash::HashKey;
use base::rcu::Domain;
use base::wide::Wide;
use base::{OfPort, PortNo};
use datapath::{Config, Datapath, ExactTier, SteppedWorker};
use flow::action::{Ct, CtZone, Nat, NatSide, SubField};
use flow::{Action, FieldId, Match, Mf};
use packet::{Pool, PoolConfig};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, ExitCode};
use switch::control::FlowMod;
use switch::{BridgeConfig, BridgeIdx, Control, PortSpec, Switch};
use wire::EthAddr;
use wire::compose::Compose;
use wire::tcp::{TcpFlags, TcpRepr};

/// Where packets come from, and where they go.
const SOURCE: PortNo = PortNo(1);
const SINK: PortNo = PortNo(2);
const BESIDE: PortNo = PortNo(3);
/// Packets that are counted in each case.
const PACKETS: usize = 2048;
/// Packets before them, by which the caches know every flow.
const WARM_UP_PACKETS: usize = 2048;
/// Flows of a case that has several.
const FLOWS: usize = 64;
/// What callgrind counts within.
const COUNTED: &str = "*datapath::process::Process*::burst";
/// Before which function it forgets what it has counted, and after which it writes that down.
const ZEROED_BEFORE: &str = "*instructions::counting_begins";
const DUMPED_AFTER: &str = "*instructions::counting_ends";

fn main() -> ExitCode {
    let is_counted = std::env::args().nth(1).as_deref() == Some(COUNTED_RUN);
    match if is_counted { cases().iter().try_for_each(Case::run) } else { print_table() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("instructions: {why}");
            ExitCode::FAILURE
        }
    }
}

/// The argument of the run that callgrind watches.
const COUNTED_RUN: &str = "--counted";

/// Runs this program under callgrind, and prints what it counted: a file for each case, in their order.
fn print_table() -> Result<(), String> {
    if Wide::here().is_none() {
        let what =
            "this processor lacks vector instructions (AVX2, AES, BMI and MOVBE) that most figures need";
        return Err(what.into());
    }
    let dir = tempfile::tempdir().map_err(|e| format!("a directory: {e}"))?;
    let program = std::env::current_exe().map_err(|e| format!("this program's path: {e}"))?;
    let out = dir.path().join("out");
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet", "--collect-atstart=no", "--combine-dumps=no"])
        .arg(format!("--toggle-collect={COUNTED}"))
        .arg(format!("--zero-before={ZEROED_BEFORE}"))
        .arg(format!("--dump-after={DUMPED_AFTER}"))
        .arg(format!("--callgrind-out-file={}", out.display()))
        .args([program.as_os_str(), COUNTED_RUN.as_ref()])
        .output()
        .map_err(|e| format!("valgrind: {e}"))?;
    if !run.status.success() {
        return Err(format!("valgrind: {}: {}", run.status, String::from_utf8_lossy(&run.stderr)));
    }
    println!(
        "# Instructions per packet in Process::burst. Made by: cargo run --release -p oracle --bin instructions"
    );
    for (n, case) in String::from_utf8_lossy(&run.stdout).lines().enumerate() {
        let total = total(&dir.path().join(format!("out.{}", n + 1)))?;
        if total == 0 {
            return Err(format!("callgrind counted nothing in {case}: is there a function {COUNTED}?"));
        }
        println!("{case:<14} {:>7.1}", total as f64 / PACKETS as f64);
    }
    Ok(())
}

/// The instructions that a file of callgrind's sums up to.
fn total(file: &Path) -> Result<u64, String> {
    let text = std::fs::read_to_string(file).map_err(|e| format!("{}: {e}", file.display()))?;
    let total = text.lines().find_map(|line| line.strip_prefix("totals: "));
    total.and_then(|n| n.trim().parse().ok()).ok_or_else(|| format!("{}: no totals", file.display()))
}

/// Who answers for the packets that are counted.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Exact,
    Megaflow,
    Translation,
}

/// One kind of packet on its way.
struct Case {
    name: &'static str,
    answer: Answer,
    /// Who answers when they have gone round, if they do.
    then: Option<Answer>,
    rules: Vec<FlowMod>,
    exact_tier: ExactTier,
    /// Without the instructions that not all processors have.
    is_baseline: bool,
    frames: Vec<Vec<u8>>,
    /// How many packets go before, which are not counted.
    warm_up: usize,
    /// Before each burst a rule changes that no packet meets.
    changes: bool,
    /// Another port has had a packet, so that the source has a share of new connections.
    beside: bool,
}

impl Default for Case {
    fn default() -> Case {
        Case {
            name: "",
            answer: Answer::Exact,
            then: None,
            rules: Vec::new(),
            exact_tier: ExactTier::On,
            is_baseline: false,
            frames: (0..FLOWS).map(frame).collect(),
            warm_up: WARM_UP_PACKETS,
            changes: false,
            beside: false,
        }
    }
}

/// Flow `n`'s addresses.
fn addresses(n: usize) -> (Ipv4Addr, Ipv4Addr) {
    let n = n as u32;
    (Ipv4Addr::from_bits(0x0a00_0000 + n), Ipv4Addr::from_bits(0x0b00_0000 + (n ^ 0x55)))
}

fn udp_frame(src: Ipv4Addr, dst: Ipv4Addr, src_port: u16, dst_port: u16) -> Vec<u8> {
    let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
    let udp = compose.ipv4(src, dst).udp(src_port, dst_port).udp_checksum_zero();
    udp.frame_len(60).build().expect("headers of 42 bytes in a frame of 60")
}

/// Flow `n`, which differs from others at every depth but the first.
fn frame(n: usize) -> Vec<u8> {
    let (src, dst) = addresses(n);
    let mut frame = udp_frame(src, dst, 1024 + n as u16, 1025);
    frame[10..12].copy_from_slice(&(n as u16).to_be_bytes());
    frame
}

/// Flow `n` behind a VLAN tag.
fn tagged(n: usize) -> Vec<u8> {
    let plain = frame(n);
    [&plain[..12], &[0x81, 0, 0, 7], &plain[12..]].concat()
}

/// Flow `n` over IPv6.
fn ipv6_frame(n: usize) -> Vec<u8> {
    let (src, dst) = addresses(n);
    let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
    let udp = compose.ipv6(src.to_ipv6_mapped(), dst.to_ipv6_mapped()).udp(1024 + n as u16, 1025);
    udp.frame_len(80).build().expect("headers of 62 bytes in a frame of 80")
}

/// Flow `n` behind an MPLS label.
fn labelled(n: usize) -> Vec<u8> {
    let plain = frame(n);
    let mut frame = plain[..12].to_vec();
    frame.extend([0x88, 0x47]);
    frame.extend((16u32 << 12 | 1 << 8 | 64).to_be_bytes());
    frame.extend(&plain[14..]);
    frame
}

/// The address that connections are translated to.
const OUTSIDE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// An acknowledgement from each end of connection `n`; the far end knows the near one as `seen_as`.
fn both_ends(n: usize, seen_as: Option<Ipv4Addr>) -> [Vec<u8>; 2] {
    segments(n, seen_as, 0)
}

/// Segments in order, each of which moves what its connection's ends may send: of six bytes, which fill a
/// frame.
fn in_order() -> Vec<Vec<u8>> {
    let round = |step: u32| (0..FLOWS).flat_map(move |n| segments(n, None, 6 * step));
    (0..(WARM_UP_PACKETS + PACKETS) as u32 / (2 * FLOWS as u32)).flat_map(round).collect()
}

/// The same after so many bytes from both ends.
fn segments(n: usize, seen_as: Option<Ipv4Addr>, sent: u32) -> [Vec<u8>; 2] {
    let (near, far) = addresses(n);
    let segment = |src, dst, src_port, dst_port, seq, ack| {
        let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
        let (seq, ack) = (seq + sent, ack + sent);
        let tcp = TcpRepr { flags: TcpFlags::ACK, seq, ack, ..TcpRepr::new(src_port, dst_port) };
        compose.ipv4(src, dst).tcp_repr(tcp).frame_len(60).build().expect("headers of 54 bytes")
    };
    let port = 1024 + n as u16;
    [segment(near, far, port, 80, 1001, 5001), segment(far, seen_as.unwrap_or(near), 80, port, 5001, 1001)]
}

/// The first segment of connection `n`.
fn opening(n: usize) -> Vec<u8> {
    let (near, far) = addresses(n);
    let compose = Compose::ethernet(EthAddr([2, 0, 0, 0, 0, 1]), EthAddr([2, 0, 0, 0, 0, 2]));
    let tcp = TcpRepr { flags: TcpFlags::SYN, seq: 1000, ..TcpRepr::new(1024 + n as u16, 80) };
    compose.ipv4(near, far).tcp_repr(tcp).frame_len(60).build().expect("headers of 54 bytes")
}

fn to_sink_actions() -> Vec<Action> {
    vec![Action::Output { port: OfPort(SINK.0 as u16), max_len: 0 }]
}

/// A rule that reads both addresses of every packet, so that each pair is a flow of its own.
fn every_pair_a_flow() -> FlowMod {
    let whole = |field, count| SubField { field, offset: 0, count };
    let read = |source, n| Action::Move { source: whole(source, 32), target: whole(Mf::Reg(n), 32) };
    let actions = [read(Mf::NwSrc, 0), read(Mf::NwDst, 1)].into_iter().chain(to_sink_actions());
    FlowMod { priority: 1, ..FlowMod::add(ipv4(), actions.collect()) }
}

fn to_sink(fields: Match) -> FlowMod {
    FlowMod { priority: 2, ..FlowMod::add(fields, to_sink_actions()) }
}

fn from_source() -> Match {
    Match::any().with(FieldId::InPort, SOURCE.0.into())
}

fn ipv4() -> Match {
    from_source().with(FieldId::EthType, 0x0800)
}

fn udp() -> Match {
    ipv4().with(FieldId::NwProto, 17)
}

fn cases() -> Vec<Case> {
    let by_address = |n: usize| to_sink(ipv4().with(FieldId::NwSrc, addresses(n).0.to_bits().into()));
    let by_addresses: Vec<FlowMod> = (0..FLOWS).map(by_address).collect();
    // A rule that looks deep makes every packet of its port be read so deep.
    let deep = || to_sink(from_source().with(FieldId::EthType, 0x0806).with(FieldId::ArpSha, 1));
    let by_port = |n: usize| to_sink(udp().with(FieldId::TpSrc, 1024 + n as u128));
    let by_mac = |n: usize| to_sink(from_source().with(FieldId::EthSrc, 0x0200_0000_0000 + n as u128));
    let exact = |name, rules| Case { name, rules, ..Case::default() };
    vec![
        exact("metadata", vec![to_sink(from_source())]),
        exact("ethernet", (0..FLOWS).map(by_mac).collect()),
        exact("network", by_addresses.clone()),
        exact("transport", (0..FLOWS).map(by_port).collect()),
        Case { is_baseline: true, ..exact("baseline", (0..FLOWS).map(by_port).collect()) },
        exact("everything", (0..FLOWS).map(by_port).chain([deep()]).collect()),
        Case { frames: vec![frame(0)], ..exact("run", by_addresses.clone()) },
        Case { changes: true, ..exact("changes", by_addresses.clone()) },
        Case {
            exact_tier: ExactTier::Off,
            answer: Answer::Megaflow,
            ..exact("megaflow", by_addresses.clone())
        },
        Case { frames: (0..FLOWS).map(tagged).collect(), ..exact("vlan", by_addresses.clone()) },
        Case { frames: (0..FLOWS).map(ipv6_frame).collect(), ..exact("ipv6", vec![by_ipv6_port()]) },
        Case { frames: (0..FLOWS).map(labelled).collect(), ..exact("label", without_label()) },
        Case {
            frames: (0..FLOWS).map(labelled).collect(),
            then: Some(Answer::Exact),
            ..exact("recirculated", behind_a_label())
        },
        Case {
            frames: (0..FLOWS).flat_map(|n| both_ends(n, None)).collect(),
            then: Some(Answer::Megaflow),
            ..exact("tracked", stateful(false))
        },
        Case { frames: in_order(), then: Some(Answer::Megaflow), ..exact("in_order", stateful(false)) },
        Case {
            frames: (0..FLOWS).flat_map(|n| both_ends(n, Some(OUTSIDE))).collect(),
            then: Some(Answer::Megaflow),
            ..exact("translated", stateful(true))
        },
        Case {
            frames: (0..WARM_UP_PACKETS + PACKETS).map(opening).collect(),
            answer: Answer::Megaflow,
            then: Some(Answer::Megaflow),
            ..exact("opened", stateful(false))
        },
        Case {
            frames: (0..WARM_UP_PACKETS + PACKETS).map(opening).collect(),
            answer: Answer::Megaflow,
            then: Some(Answer::Megaflow),
            ..exact("snat", stateful(true))
        },
        Case {
            frames: (0..WARM_UP_PACKETS + PACKETS).map(opening).collect(),
            answer: Answer::Megaflow,
            beside: true,
            ..exact("shed", stateful(false))
        },
        Case {
            frames: (0..WARM_UP_PACKETS + PACKETS).map(frame).collect(),
            answer: Answer::Megaflow,
            beside: true,
            ..exact("refused", stateful(false))
        },
        Case {
            frames: (FLOWS..FLOWS + PACKETS).map(frame).collect(),
            warm_up: 0,
            answer: Answer::Translation,
            ..exact("miss", by_addresses.into_iter().chain([every_pair_a_flow()]).collect())
        },
    ]
}

/// A rule for IPv6 that requires packets to be parsed up to their ports.
fn by_ipv6_port() -> FlowMod {
    let udp = from_source().with(FieldId::EthType, 0x86dd).with(FieldId::NwProto, 17);
    to_sink(udp.with(FieldId::TpDst, 1025))
}

/// A rule by which packets leave without their label, after one round: what those of [`behind_a_label`] cost
/// more is a second lookup, at the depth of the case "everything".
fn without_label() -> Vec<FlowMod> {
    let mpls = from_source().with(FieldId::EthType, 0x8847);
    let actions = [vec![Action::PopMpls(0x0800)], to_sink_actions()].concat();
    vec![FlowMod::add(mpls, actions)]
}

/// Rules by which packets go round again, without their label.
fn behind_a_label() -> Vec<FlowMod> {
    let mpls = from_source().with(FieldId::EthType, 0x8847);
    let target = SubField { field: Mf::Reg(1), offset: 0, count: 8 };
    let remember = Action::Load { target, value: 1, as_set_field: false };
    let on = Action::Resubmit { in_port: None, table: Some(1), ct: false };
    let second = |n: usize| {
        let inner = Match::any().with(FieldId::EthType, 0x0800);
        let inner = inner.with(FieldId::NwSrc, addresses(n).0.to_bits().into());
        FlowMod { table_id: 1, ..to_sink(inner) }
    };
    let first = FlowMod::add(mpls, vec![remember, Action::PopMpls(0x0800), on]);
    (0..FLOWS).map(second).chain([first]).collect()
}

/// Rules that let packets of connections pass, and open connections, whose source address they translate or
/// not.
fn stateful(translates: bool) -> Vec<FlowMod> {
    const TRACKED: u128 = 1 << 5;
    const ESTABLISHED: u128 = 1 << 1;
    const NEW: u128 = 1;
    let ct = |commit, table| {
        let (zone, to) = (CtZone::Is(0), u128::from(OUTSIDE.to_bits()));
        let new = Nat { side: Some(NatSide::Src), addresses: Some((to, to)), ..Nat::default() };
        let nat = Action::Nat(if commit { new } else { Nat::default() });
        let actions = Vec::from_iter(translates.then_some(nat));
        Action::Ct(Box::new(Ct { commit, force: false, zone, table, alg: 0, actions }))
    };
    let is = |state| ipv4().with_masked(FieldId::CtState, TRACKED | state, TRACKED | NEW | ESTABLISHED);
    let opens = [vec![ct(true, None)], to_sink_actions()].concat();
    vec![
        FlowMod::add(ipv4(), vec![ct(false, Some(1))]),
        FlowMod { table_id: 1, ..FlowMod::add(is(NEW), opens) },
        FlowMod { table_id: 1, ..to_sink(is(ESTABLISHED)) },
    ]
}

/// A switch of one worker, whose turns are taken by hand.
struct Bench {
    worker: SteppedWorker<Switch>,
    datapath: Datapath<Switch>,
    control: Control,
    bridge: BridgeIdx,
}

impl Case {
    fn run(&self) -> Result<(), String> {
        let dir = tempfile::tempdir().map_err(|e| format!("a directory: {e}"))?;
        let pcap = dir.path().join("frames.pcap");
        write_frames(&pcap, &self.frames)?;
        let mut bench = Bench::new((self.exact_tier, self.is_baseline), &self.rules)?;
        bench.add_port(&ports::PortSpec::new("sink", "null", SINK))?;
        let source = ports::PortSpec::new("source", "pcap", SOURCE).with("rx_file", &pcap.to_string_lossy());
        bench.add_port(&source.with("loop", "true").with_files_beside([&*pcap]))?;
        if self.beside {
            let pcap = dir.path().join("beside.pcap");
            write_frames(&pcap, &[frame(0)])?;
            let beside = ports::PortSpec::new("beside", "pcap", BESIDE).with("loop", "false");
            bench.add_port(&beside.with("rx_file", &pcap.to_string_lossy()).with_files_beside([&*pcap]))?;
        }
        bench.receive(self.warm_up, false)?;
        let before = bench.answered();
        counting_begins();
        bench.receive(PACKETS, self.changes)?;
        counting_ends();
        let answered = bench.answered().map(|(answer, packets)| {
            let earlier = before.iter().find(|b| b.0 == answer).map_or(0, |b| b.1);
            (answer, packets - earlier)
        });
        let answers = || [self.answer].into_iter().chain(self.then);
        let right = |&(answer, packets): &(Answer, u64)| {
            packets == answers().filter(|a| *a == answer).count() as u64 * PACKETS as u64
        };
        if !answered.iter().all(right) {
            let wanted: Vec<Answer> = answers().collect();
            return Err(format!("{}: {wanted:?} were to answer all packets: {answered:?}", self.name));
        }
        println!("{}", self.name);
        Ok(())
    }
}

impl Bench {
    fn new((exact_tier, is_baseline): (ExactTier, bool), rules: &[FlowMod]) -> Result<Bench, String> {
        base::clock::stop();
        let pool = Pool::new(PoolConfig { chunks: 2048, chunk_bytes: 2048, huge_pages: false })
            .map_err(|e| format!("packet memory: {e}"))?;
        let domain = Domain::new();
        let (switch, mut control) = Control::new(domain.clone(), HashKey::from_seed(1));
        let bridge = control.add_bridge(BridgeConfig::new("br0"));
        let config = Config { hash_seed: Some(1), exact_tier, is_baseline, ..Config::default() };
        let mut datapath = Datapath::new(pool, switch, domain, config).map_err(|e| e.to_string())?;
        let worker = datapath.stepped_worker().map_err(|e| e.to_string())?;
        control.flow_mods(rules.iter().map(|fm| (bridge, fm)), 0).map_err(|e| format!("{e:?}"))?;
        datapath.reserve_slots(control.slot_count() + PACKETS as u32);
        Ok(Bench { worker, datapath, control, bridge })
    }

    fn add_port(&mut self, spec: &ports::PortSpec) -> Result<(), String> {
        let no = spec.port_no;
        let port = PortSpec::new(no, OfPort(no.0 as u16), &spec.name);
        self.control.add_port(self.bridge, port).map_err(|e| format!("{e:?}"))?;
        let port = ports::open(spec, self.datapath.pool()).map_err(|e| e.to_string())?;
        self.datapath.add_port(no, port).map_err(|e| e.to_string())
    }

    /// Takes turns until `packets` more packets have arrived; if `changes`, a rule changes before each turn.
    fn receive(&mut self, packets: usize, changes: bool) -> Result<(), String> {
        let received = |bench: &Bench| bench.datapath.worker_stats(0).rx.get();
        let end = received(self) + packets as u64;
        while received(self) < end {
            if changes {
                // Alternates between two addresses that no packet has.
                let other =
                    to_sink(ipv4().with(FieldId::NwSrc, 0x0c00_0000 + u128::from(received(self) / 32 % 2)));
                self.control.flow_mod(self.bridge, &other, 0).map_err(|e| format!("{e:?}"))?;
            }
            self.worker.turn();
        }
        Ok(())
    }

    fn answered(&self) -> [(Answer, u64); 3] {
        let stats = self.datapath.worker_stats(0);
        [
            (Answer::Exact, stats.exact_hits.get()),
            (Answer::Megaflow, stats.megaflow_hits.get()),
            (Answer::Translation, stats.misses.get()),
        ]
    }
}

/// See [`ZEROED_BEFORE`].
#[inline(never)]
fn counting_begins() {
    std::hint::black_box(());
}

/// See [`DUMPED_AFTER`].
#[inline(never)]
fn counting_ends() {
    std::hint::black_box(1);
}

/// Writes frames into a capture file.
fn write_frames(path: &Path, frames: &[Vec<u8>]) -> Result<(), String> {
    let write = || -> std::io::Result<()> {
        let mut writer = ports::pcap::file::Writer::new(std::fs::File::create(path)?)?;
        frames.iter().try_for_each(|frame| writer.write(0, [frame.as_slice()].into_iter()))?;
        writer.flush()
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}
