//! A switch that knows no packets: it answers requests, remembers flow-mods, and lists them as flows.

use base::OfPort;
use flow::{FieldId, Match};
use openflow::message::*;
use openflow::{
    Connection, ConnectionConfig, ErrorKind, Event, ReplyWriter, Side, Version, VersionSet, reply,
};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What clients did.
#[derive(Default)]
pub struct State {
    /// Flow-mods as they came.
    pub flow_mods: Vec<Vec<u8>>,
    /// Everything else of note.
    pub messages: Vec<Message>,
    flows: Vec<FlowMod>,
    frag: FragHandling,
}

pub struct Switch {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Switch {
    /// Listens on a socket, speaking one version.
    pub fn start(path: PathBuf, version: Version) -> Switch {
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let state = Arc::new(Mutex::new(State::default()));
        let stopping = Arc::new(AtomicBool::new(false));
        let (shared, stop) = (Arc::clone(&state), Arc::clone(&stopping));
        let thread = std::thread::spawn(move || {
            // `show` opens a second connection while the first is open: each has a thread.
            let mut clients = Vec::new();
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let shared = Arc::clone(&shared);
                clients.push(std::thread::spawn(move || serve(stream.unwrap(), version, &shared)));
            }
            for client in clients {
                client.join().unwrap();
            }
        });
        Switch { path, state, stopping, thread: Some(thread) }
    }

    pub fn target(&self) -> String {
        format!("unix:{}", self.path.display())
    }

    /// Ends it, and tells what clients did.
    pub fn stop(mut self) -> State {
        self.stopping.store(true, Ordering::SeqCst);
        drop(UnixStream::connect(&self.path));
        self.thread.take().unwrap().join().unwrap();
        std::mem::take(&mut *self.state.lock().unwrap())
    }
}

fn serve(mut stream: UnixStream, version: Version, state: &Mutex<State>) {
    let config =
        ConnectionConfig { side: Side::Switch, versions: VersionSet::only(version), probe_interval: None };
    let mut connection = Connection::new(config, Instant::now());
    connection.start_tap();
    stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut buffer = [0; 4096];
    loop {
        let pending = connection.transmit().to_vec();
        // The client may be gone with what it wanted.
        if stream.write_all(&pending).is_err() {
            return;
        }
        connection.transmitted(pending.len());
        let Ok(n @ 1..) = stream.read(&mut buffer) else { return };
        let mut rest = &buffer[..n];
        while !rest.is_empty() {
            let taken = connection.handle_bytes(Instant::now(), rest);
            rest = &rest[taken..];
            connection.take_tap();
            while let Some(event) = connection.next_event(Instant::now()) {
                let bytes = connection.take_tap();
                match event {
                    Event::Message { xid, message, head } => {
                        let mut state = state.lock().unwrap();
                        if let Err(kind) = answer(&mut connection, &mut state, xid, &message, &bytes) {
                            connection.reply_error(xid, &head, kind);
                        }
                        connection.take_tap();
                    }
                    Event::Closed(_) => return,
                    Event::Up(_) | Event::Unreadable { .. } => {}
                }
            }
        }
    }
}

/// The one port of the switch.
pub fn port() -> PortDesc {
    PortDesc {
        port: OfPort(1),
        hw_addr: [0, 1, 2, 3, 4, 5],
        name: "eth-one".into(),
        config: PortConfig::empty(),
        state: PortState::empty(),
        current: PortFeatures::GB10_FULL | PortFeatures::COPPER,
        advertised: PortFeatures::empty(),
        supported: PortFeatures::GB1_FULL | PortFeatures::AUTONEG,
        peer: PortFeatures::empty(),
        current_speed_kbps: 10_000_000,
        max_speed_kbps: 1_000_000,
    }
}

fn features() -> SwitchFeatures {
    SwitchFeatures {
        datapath_id: 0x1234_5678_9abc,
        n_buffers: 0,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS
            | Capabilities::TABLE_STATS
            | Capabilities::PORT_STATS
            | Capabilities::QUEUE_STATS
            | Capabilities::ARP_MATCH_IP,
        actions: 0xfff,
        ports: vec![port()],
    }
}

fn answer(
    c: &mut Connection,
    state: &mut State,
    xid: u32,
    message: &Message,
    bytes: &[u8],
) -> Result<(), ErrorKind> {
    let reply = match message {
        Message::FeaturesRequest => Message::FeaturesReply(features()),
        Message::GetConfigRequest => Message::GetConfigReply(SwitchConfig {
            frag: state.frag,
            invalid_ttl_to_controller: Some(false),
            miss_send_len: DEFAULT_MISS_SEND_LEN,
        }),
        Message::BarrierRequest => Message::BarrierReply,
        Message::FlowMod(flow_mod) => {
            state.flow_mods.push(bytes.to_vec());
            if flow_mod.table_id == 77 {
                return Err(ErrorKind::OFPFMFC_TABLE_FULL);
            }
            if flow_mod.command == FlowModCommand::Add {
                state.flows.push((**flow_mod).clone());
            }
            return Ok(());
        }
        Message::StatsRequest(request) => return answer_stats(c, state, xid, request),
        Message::RoleRequest(role) => Message::RoleReply(*role),
        Message::TlvTableRequest => {
            Message::TlvTableReply(TlvTable { max_option_space: 256, max_fields: 64, maps: Vec::new() })
        }
        Message::BundleControl(control) => match control.kind.reply() {
            Some(kind) => Message::BundleControl(BundleControl { kind, ..*control }),
            None => return Err(ErrorKind::OFPBFC_BAD_TYPE),
        },
        Message::BundleAdd(add) => {
            state.flow_mods.push(add.bytes.clone());
            return Ok(());
        }
        Message::QueueGetConfigRequest { port } => Message::QueueGetConfigReply {
            port: *port,
            queues: vec![QueueConfig { port: OfPort(1), queue_id: 3, min_rate: Some(100), max_rate: None }],
        },
        other => {
            if let Message::SetConfig(config) = other {
                state.frag = config.frag;
            }
            state.messages.push(other.clone());
            return Ok(());
        }
    };
    c.send(xid, &reply).map_err(|_| ErrorKind::OFPBRC_BAD_TYPE)
}

fn answer_stats(
    c: &mut Connection,
    state: &State,
    xid: u32,
    request: &StatsRequest,
) -> Result<(), ErrorKind> {
    let codec = c.codec().expect("a request came");
    let mut out = Vec::new();
    let body = match request {
        StatsRequest::Flow(request) => {
            let mut writer = ReplyWriter::new(codec, xid, request.form);
            for flow in &state.flows {
                let info = FlowInfo {
                    table_id: if flow.table_id == TABLE_ALL { 0 } else { flow.table_id },
                    priority: flow.priority,
                    cookie: flow.new_cookie.unwrap_or(0),
                    duration_s: 3,
                    duration_ns: 500_000_000,
                    idle_timeout: flow.idle_timeout,
                    hard_timeout: flow.hard_timeout,
                    idle_age: Some(2),
                    hard_age: None,
                    packet_count: 7,
                    byte_count: 420,
                    flags: flow.flags - FlowFlags::RESET_COUNTS,
                    importance: 0,
                };
                let flow = FlowStatsRef { info, matching: &flow.matching, actions: &flow.actions };
                writer.push(&flow, &mut out);
            }
            writer.finish(&mut out);
            c.send_bytes(&out);
            return Ok(());
        }
        StatsRequest::Aggregate(request) => StatsBody::Aggregate {
            form: request.form,
            stats: AggregateStats { packet_count: 5, byte_count: 300, flow_count: state.flows.len() as u32 },
        },
        StatsRequest::Desc => StatsBody::Desc(SwitchDesc {
            manufacturer: "Crosspoint".into(),
            hardware: "none".into(),
            software: "0.1".into(),
            serial_number: "None".into(),
            datapath: "br0".into(),
        }),
        StatsRequest::Table => StatsBody::Table(
            (0..2)
                .map(|table_id| TableStats {
                    features: table_features(table_id),
                    active_count: 3,
                    lookup_count: 10,
                    matched_count: 9,
                })
                .collect(),
        ),
        StatsRequest::TableFeatures { features, .. } if features.is_empty() => {
            StatsBody::TableFeatures((0..2).map(table_features).collect())
        }
        StatsRequest::Port(_) => StatsBody::Port(vec![
            PortStats {
                rx_packets: 11,
                tx_bytes: 22,
                duration_s: 4,
                duration_ns: 0,
                ..PortStats::unknown(OfPort(1))
            },
            PortStats::unknown(OfPort::LOCAL),
        ]),
        StatsRequest::PortDesc(_) => StatsBody::PortDesc(vec![port()]),
        StatsRequest::Queue { .. } => StatsBody::Queue(vec![QueueStats {
            port: OfPort(1),
            queue_id: 2,
            tx_bytes: 3,
            tx_packets: 4,
            tx_errors: 5,
            duration_s: 6,
            duration_ns: 0,
        }]),
        StatsRequest::Group(_) => StatsBody::Group(Vec::new()),
        StatsRequest::GroupDesc(_) => StatsBody::GroupDesc(Vec::new()),
        StatsRequest::TableDesc => StatsBody::TableDesc(Vec::new()),
        StatsRequest::QueueDesc { .. } => StatsBody::QueueDesc(Vec::new()),
        StatsRequest::GroupFeatures => StatsBody::GroupFeatures(GroupFeatures::default()),
        StatsRequest::Meter(_) => StatsBody::Meter(Vec::new()),
        StatsRequest::MeterConfig(_) => StatsBody::MeterConfig(Vec::new()),
        StatsRequest::MeterFeatures => StatsBody::MeterFeatures(MeterFeatures::default()),
        StatsRequest::FlowMonitor(_) => {
            let full = FlowUpdateFull {
                event: FlowEvent::Added,
                reason: FlowRemovedReason::IdleTimeout,
                priority: 5,
                idle_timeout: 0,
                hard_timeout: 0,
                table_id: 2,
                cookie: 3,
                matching: Match::any().with(FieldId::InPort, 4),
                actions: vec![flow::Action::Output { port: OfPort(6), max_len: 0 }],
            };
            StatsBody::FlowMonitor(vec![
                FlowUpdate::Full(Box::new(full)),
                FlowUpdate::Abbreviated { xid: 0x77 },
            ])
        }
        _ => return Err(ErrorKind::OFPBRC_BAD_STAT),
    };
    reply::write_reply(codec, xid, body, &mut out).map_err(|_| ErrorKind::OFPBRC_BAD_STAT)?;
    c.send_bytes(&out);
    Ok(())
}

fn table_features(table_id: u8) -> TableFeatures {
    let header = |mf: flow::Mf, mask: bool| {
        let wire = mf.wire(3).unwrap();
        flow::mf::NxmHeader::new(wire, mask, usize::from(mf.row().bytes) * if mask { 2 } else { 1 }).0
    };
    let nonmiss = TableInstructionFeatures {
        instructions: 0x3e,
        next_tables: vec![1, 2, 3],
        write_actions: 1 << 0 | 1 << 25,
        apply_actions: 1 << 0 | 1 << 22,
        write_set_fields: vec![header(flow::Mf::EthSrc, false)],
        apply_set_fields: vec![header(flow::Mf::TunErspanVer, false)],
    };
    TableFeatures {
        command: 0,
        table_id,
        name: format!("table{table_id}"),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: 1_000_000,
        nonmiss: nonmiss.clone(),
        miss: Some(nonmiss),
        matchable: vec![header(flow::Mf::EthDst, true), header(flow::Mf::TcpFlags, true)],
        wildcards: vec![header(flow::Mf::EthDst, false)],
    }
}
