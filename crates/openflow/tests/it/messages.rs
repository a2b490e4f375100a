//! Messages of every kind, to be encoded and decoded.

use base::OfPort;
use flow::action::{PacketInReason, SampleDirection, SubField};
use flow::{Action, FieldId, Match, Mf};
use flow::{CtTuple, CtTuples};
use openflow::message::*;
use openflow::{ErrorKind, Message, OfError};

pub fn matching() -> Match {
    Match::any()
        .with(FieldId::InPort, 3)
        .with(FieldId::EthType, 0x800)
        .with(FieldId::NwProto, 6)
        .with(FieldId::TpDst, 80)
        .with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000)
}

pub fn actions() -> Vec<Action> {
    let reg = SubField { field: Mf::Reg(1), offset: 4, count: 16 };
    vec![
        Action::Output { port: OfPort(2), max_len: 0 },
        Action::Output { port: OfPort::CONTROLLER, max_len: 128 },
        Action::Move { source: reg, target: SubField { field: Mf::EthDst, offset: 0, count: 16 } },
        Action::Resubmit { in_port: None, table: Some(7), ct: false },
        Action::Clone(vec![Action::PopVlan, Action::Exit]),
        Action::Sample {
            probability: 1,
            collector_set_id: 2,
            obs_domain_id: 3,
            obs_point_id: 4,
            sampling_port: OfPort(5),
            direction: SampleDirection::Ingress,
        },
    ]
}

pub fn flow_mods() -> Vec<Message> {
    let mut messages = Vec::new();
    for form in [FlowForm::Standard, FlowForm::Nxm] {
        let add =
            FlowMod { form, matching: matching(), actions: actions(), idle_timeout: 5, ..FlowMod::add() };
        let delete = FlowMod {
            form,
            command: FlowModCommand::DeleteStrict,
            new_cookie: None,
            out_port: Some(OfPort(4)),
            ..FlowMod::add()
        };
        messages.push(Message::FlowMod(Box::new(add)));
        messages.push(Message::FlowMod(Box::new(delete)));
    }
    messages
}

pub fn packets() -> Vec<Message> {
    let metadata = Match::any().with(FieldId::InPort, 9);
    let base = PacketIn {
        form: PacketInForm::Standard,
        buffer_id: None,
        total_len: 60,
        reason: PacketInReason::Action,
        table_id: 0,
        cookie: u64::MAX,
        metadata: metadata.clone(),
        data: vec![1, 2, 3],
        userdata: Vec::new(),
        continuation: Vec::new(),
    };
    let nxt = PacketIn {
        form: PacketInForm::Nxt,
        table_id: 3,
        cookie: 4,
        metadata: metadata.with(FieldId::Reg3, 7),
        ..base.clone()
    };
    let nxt2 = PacketIn {
        form: PacketInForm::Nxt2,
        buffer_id: Some(6),
        userdata: vec![1, 2, 3, 4, 5],
        continuation: vec![7; 9],
        ..nxt.clone()
    };
    let out = PacketOut {
        buffer_id: None,
        in_port: OfPort::CONTROLLER,
        metadata: Match::any(),
        actions: actions(),
        data: vec![5; 60],
    };
    let buffered = PacketOut { buffer_id: Some(7), data: Vec::new(), ..out.clone() };
    vec![
        Message::PacketIn(Box::new(base)),
        Message::PacketIn(Box::new(nxt)),
        Message::Resume(Box::new(nxt2.clone())),
        Message::PacketIn(Box::new(nxt2)),
        Message::PacketOut(Box::new(out)),
        Message::PacketOut(Box::new(buffered)),
    ]
}

pub fn port() -> PortDesc {
    PortDesc {
        port: OfPort::LOCAL,
        hw_addr: [2, 0, 0, 0, 0, 1],
        name: "br0".into(),
        config: PortConfig::PORT_DOWN,
        state: PortState::LINK_DOWN,
        current: PortFeatures::MB100_FULL,
        advertised: PortFeatures::AUTONEG,
        supported: PortFeatures::MB100_FULL | PortFeatures::PAUSE_ASYM,
        peer: PortFeatures::empty(),
        current_speed_kbps: 100_000,
        max_speed_kbps: 100_000,
    }
}

pub fn statistics() -> Vec<Message> {
    let mut messages = Vec::new();
    let mut request = |request| messages.push(Message::StatsRequest(request));
    for form in [FlowForm::Standard, FlowForm::Nxm] {
        let flows =
            FlowStatsRequest { form, matching: matching(), table_id: 3, ..FlowStatsRequest::default() };
        request(StatsRequest::Flow(Box::new(flows.clone())));
        request(StatsRequest::Aggregate(Box::new(flows)));
    }
    for r in [StatsRequest::Desc, StatsRequest::Table, StatsRequest::IpfixBridge, StatsRequest::IpfixFlow] {
        request(r);
    }
    for port in [None, Some(OfPort(3))] {
        request(StatsRequest::Port(port));
        request(StatsRequest::Queue { port, queue_id: port.map(|p| p.0.into()) });
    }
    for n in [None, Some(3)] {
        request(StatsRequest::Group(n));
        request(StatsRequest::QueueDesc { port: Some(OfPort(2)), queue_id: n });
        request(StatsRequest::Meter(n));
        request(StatsRequest::MeterConfig(n));
    }
    for r in [
        StatsRequest::GroupDesc(None),
        StatsRequest::TableDesc,
        StatsRequest::GroupFeatures,
        StatsRequest::MeterFeatures,
        StatsRequest::PortDesc(None),
    ] {
        request(r);
    }
    request(StatsRequest::TableFeatures { features: vec![table_features()], more: true });
    let flags = FlowMonitorFlags::INITIAL | FlowMonitorFlags::ADD | FlowMonitorFlags::ACTIONS;
    request(StatsRequest::FlowMonitor(vec![FlowMonitorRequest {
        id: 1,
        flags,
        out_port: None,
        out_group: None,
        table_id: 4,
        matching: matching(),
        command: FlowMonitorCommand::Add,
    }]));
    messages.extend(replies());
    messages
}

pub fn table_features() -> TableFeatures {
    let wire = Mf::EthDst.wire(3).unwrap();
    let header = flow::mf::NxmHeader::new(wire, true, 12).0;
    TableFeatures {
        command: 0,
        table_id: 4,
        name: "four".into(),
        metadata_match: 1,
        metadata_write: 2,
        config: 3,
        max_entries: 4,
        nonmiss: TableInstructionFeatures { instructions: 6, next_tables: vec![5, 6], ..Default::default() },
        miss: None,
        matchable: vec![header],
        wildcards: Vec::new(),
    }
}

/// A group that every version can say.
pub fn group() -> GroupDesc {
    let bucket = |id, weight| Bucket { id, weight, actions: actions(), ..Bucket::default() };
    let watched = Bucket { watch_port: Some(OfPort(4)), watch_group: Some(5), ..bucket(2, 1) };
    GroupDesc {
        group_id: 7,
        kind: GroupType::Select,
        buckets: vec![bucket(0, 1), bucket(1, 100), watched],
        selection: GroupSelection::default(),
    }
}

pub fn group_stats() -> GroupStats {
    GroupStats {
        group_id: 7,
        ref_count: 1,
        counts: (2, 3),
        buckets: vec![(4, 5), (6, 7)],
        ..Default::default()
    }
}

pub fn meter() -> MeterConfig {
    let band = Band { kind: BandType::Drop, rate: 100, burst_size: 20 };
    let remark = Band { kind: BandType::DscpRemark { prec_level: 2 }, ..band };
    MeterConfig { meter_id: 3, flags: MeterFlags::KBPS | MeterFlags::BURST, bands: vec![band, remark] }
}

pub fn table_mod() -> TableMod {
    TableMod {
        table_id: 3,
        config: TableMod::EVICTION | TableMod::VACANCY_EVENTS,
        eviction_flags: Some(1),
        vacancy: Some(Vacancy { down: 10, up: 20, now: 0 }),
    }
}

pub fn group_and_meter_mods() -> Vec<Message> {
    let group_mod = |command, group| GroupMod { command, command_bucket_id: BUCKET_ALL, group };
    let failover = GroupDesc {
        kind: GroupType::FastFailover,
        buckets: vec![Bucket { watch_port: Some(OfPort(1)), actions: actions(), ..Bucket::default() }],
        ..group()
    };
    let nothing = GroupDesc { group_id: GROUP_ALL, ..GroupDesc::default() };
    let groups = [
        group_mod(GroupCommand::Add, group()),
        group_mod(GroupCommand::AddOrModify, failover),
        group_mod(GroupCommand::Delete, nothing),
    ];
    let mut messages: Vec<Message> =
        groups.into_iter().map(|group_mod| Message::GroupMod(Box::new(group_mod))).collect();
    messages.push(Message::RequestForward(9, Box::new(messages[0].clone())));
    let deleted = MeterConfig { meter_id: METER_ALL, ..MeterConfig::default() };
    messages.push(Message::MeterMod(MeterMod { command: MeterCommand::Add, meter: meter() }));
    messages.push(Message::MeterMod(MeterMod { command: MeterCommand::Delete, meter: deleted }));
    messages
}

pub fn replies() -> Vec<Message> {
    let mut bodies = vec![
        StatsBody::Desc(SwitchDesc { manufacturer: "m".into(), datapath: "d".into(), ..Default::default() }),
        StatsBody::Port(vec![PortStats::unknown(OfPort(4))]),
        StatsBody::Queue(vec![QueueStats {
            port: OfPort(1),
            queue_id: 2,
            tx_bytes: 3,
            tx_packets: 4,
            tx_errors: 5,
            duration_s: u32::MAX,
            duration_ns: u32::MAX,
        }]),
        StatsBody::Group(vec![group_stats(), group_stats()]),
        StatsBody::GroupDesc(vec![group(), group()]),
        StatsBody::GroupFeatures(GroupFeatures {
            types: 1,
            capabilities: 2,
            max_groups: [3, 4, 5, 6],
            actions: [7, 8, 9, 10],
        }),
        StatsBody::Meter(vec![MeterStats { meter_id: 3, bands: vec![(1, 2), (3, 4)], ..Default::default() }]),
        StatsBody::MeterConfig(vec![meter(), meter()]),
        StatsBody::TableDesc(vec![TableDesc(table_mod()), TableDesc(TableMod::default())]),
        StatsBody::QueueDesc(vec![QueueConfig {
            port: OfPort(1),
            queue_id: 2,
            min_rate: Some(3),
            max_rate: Some(1000),
        }]),
        StatsBody::IpfixBridge(IpfixStats { packets: 3, ..Default::default() }),
        StatsBody::IpfixFlow(vec![IpfixStats { collector_set_id: 3, ..Default::default() }; 2]),
        StatsBody::MeterFeatures(MeterFeatures {
            max_meters: 1,
            band_types: 2,
            capabilities: 3,
            max_bands: 4,
            max_color: 5,
        }),
        StatsBody::TableFeatures(vec![
            table_features(),
            TableFeatures { miss: Some(Default::default()), ..table_features() },
        ]),
        StatsBody::PortDesc(vec![port(), port()]),
        StatsBody::FlowMonitor(vec![
            FlowUpdate::Abbreviated { xid: 5 },
            FlowUpdate::Full(Box::new(FlowUpdateFull {
                event: FlowEvent::Deleted,
                reason: FlowRemovedReason::HardTimeout,
                priority: 1,
                idle_timeout: 2,
                hard_timeout: 3,
                table_id: 4,
                cookie: 5,
                matching: matching(),
                actions: actions(),
            })),
        ]),
    ];
    for form in [FlowForm::Standard, FlowForm::Nxm] {
        let age = (form == FlowForm::Nxm).then_some(3);
        let info = FlowInfo {
            table_id: 1,
            priority: 2,
            cookie: 3,
            duration_s: 4,
            idle_age: age,
            packet_count: 5,
            ..Default::default()
        };
        let flow = FlowStats { info, matching: matching(), actions: actions() };
        bodies.push(StatsBody::Flow { form, flows: vec![flow.clone(), flow] });
        bodies.push(StatsBody::Aggregate {
            form,
            stats: AggregateStats { packet_count: 1, byte_count: 2, flow_count: 3 },
        });
    }
    bodies.into_iter().map(|body| Message::StatsReply(StatsReply { more: true, body })).collect()
}

/// One or more of every kind. What is in them goes in every version that has the message.
pub fn samples() -> Vec<Message> {
    let role = RoleRequest { role: Role::Primary, generation_id: None, nicira: true };
    let map = TlvMap { option_class: 1, option_type: 2, option_len: 4, index: 3 };
    let async_config =
        AsyncConfig { packet_in: [1, 2], port_status: [3, 4], flow_removed: [5, 6], ..Default::default() };
    let barrier_error = OfError::new(ErrorKind::OFPBRC_BAD_TYPE, &[1, 2, 3]);
    let nicira_error = OfError::new(ErrorKind::NXBRC_NXM_INVALID, &[0; 100]);
    let removed = FlowRemoved {
        form: FlowForm::Standard,
        reason: FlowRemovedReason::Delete,
        table_id: 0,
        cookie: 1,
        priority: 2,
        duration_s: 3,
        duration_ns: 4,
        idle_timeout: 5,
        hard_timeout: 0,
        packet_count: 6,
        byte_count: 7,
        matching: matching(),
    };
    let mut messages = vec![
        Message::Error(barrier_error),
        Message::Error(nicira_error),
        Message::EchoRequest(vec![1, 2, 3]),
        Message::EchoReply(Vec::new()),
        Message::FeaturesRequest,
        Message::GetConfigRequest,
        Message::FlowRemoved(Box::new(removed.clone())),
        Message::FlowRemoved(Box::new(FlowRemoved { form: FlowForm::Nxm, table_id: 9, ..removed })),
        Message::PortStatus(PortStatus { reason: PortReason::Modify, desc: port() }),
        Message::PortMod(PortMod {
            port: OfPort(1),
            hw_addr: [1; 6],
            config: PortConfig::NO_FWD,
            mask: PortConfig::NO_FWD | PortConfig::PORT_DOWN,
            advertise: PortFeatures::COPPER,
            unknown: None,
        }),
        Message::TableMod(TableMod { table_id: TABLE_ALL, config: 3, ..Default::default() }),
        Message::RoleStatus(RoleStatus {
            role: Role::Primary,
            reason: RoleReason::Config,
            generation_id: Some(4),
        }),
        Message::TableStatus(TableStatus { reason: TableStatus::VACANCY_UP, desc: TableDesc(table_mod()) }),
        Message::BarrierRequest,
        Message::BarrierReply,
        Message::QueueGetConfigRequest { port: Some(OfPort(1)) },
        Message::QueueGetConfigReply {
            port: Some(OfPort(1)),
            queues: vec![QueueConfig { port: OfPort(1), queue_id: 2, min_rate: Some(3), max_rate: None }],
        },
        Message::RoleRequest(role),
        Message::RoleReply(role),
        Message::RoleRequest(RoleRequest { nicira: false, generation_id: Some(7), ..role }),
        Message::RoleReply(RoleRequest { nicira: false, role: Role::Equal, generation_id: None }),
        Message::RoleStatus(RoleStatus {
            role: Role::Secondary,
            reason: RoleReason::PrimaryRequest,
            generation_id: Some(41),
        }),
        Message::RoleStatus(RoleStatus {
            role: Role::Equal,
            reason: RoleReason::Experimenter,
            generation_id: None,
        }),
        Message::GetAsyncRequest,
        Message::GetAsyncReply(async_config),
        Message::SetAsync(AsyncChange { config: async_config, given: AsyncChange::ALL }),
        Message::FlowModTableId(true),
        Message::SetFlowFormat(FlowForm::Nxm),
        Message::SetPacketInFormat(PacketInForm::Nxt2),
        Message::SetControllerId(5),
        Message::FlowAge,
        Message::FlowMonitorCancel(6),
        Message::FlowMonitorPaused,
        Message::FlowMonitorResumed,
        Message::TlvTableRequest,
        Message::TlvTableReply(TlvTable { max_option_space: 256, max_fields: 64, maps: vec![map] }),
        Message::TlvTableMod(TlvTableMod { command: TlvTableCommand::Add, maps: vec![map, map] }),
        Message::CtFlushZone(3),
        Message::CtFlush(Box::default()),
        Message::CtFlush(Box::new(CtFlush {
            zone: Some(9),
            tuples: CtTuples {
                protocol: Some(6),
                is_ipv6: Some(false),
                original: CtTuple { src: Some(0x0a00_0001), dst_port: Some(80), ..CtTuple::default() },
                reply: CtTuple { dst: Some(0x0a00_0001), src_port: Some(80), ..CtTuple::default() },
            },
        })),
        Message::CtFlush(Box::new(CtFlush {
            zone: None,
            tuples: CtTuples {
                protocol: Some(58),
                is_ipv6: Some(true),
                original: CtTuple {
                    src: Some(0xfd00 << 112 | 1),
                    dst: Some(0xfd00 << 112 | 2),
                    icmp_id: Some(7),
                    icmp_type: Some(128),
                    icmp_code: Some(0),
                    ..CtTuple::default()
                },
                reply: CtTuple::default(),
            },
        })),
        Message::BundleControl(BundleControl {
            bundle_id: 1,
            kind: BundleControlType::CommitRequest,
            flags: BundleFlags::ATOMIC | BundleFlags::ORDERED,
        }),
    ];
    messages.extend(flow_mods());
    messages.extend(group_and_meter_mods());
    messages.extend(packets());
    messages.extend(statistics());
    messages
}
