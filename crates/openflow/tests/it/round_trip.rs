//! Every message decodes to what was encoded, in every version that has it.

use base::OfPort;
use flow::action::{PacketInReason, SampleDirection, SubField};
use flow::mf::NxmHeader;
use flow::{Action, FieldId, Match, Mf};
use flow::{CtTuple, CtTuples};
use openflow::message::*;
use openflow::{Codec, ErrorKind, Message, OfError, ReplyWriter, Unencodable, Version, VersionSet};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn matching() -> Match {
    Match::any()
        .with(FieldId::InPort, 3)
        .with(FieldId::EthType, 0x800)
        .with(FieldId::NwProto, 6)
        .with(FieldId::TpDst, 80)
        .with_masked(FieldId::NwSrc, 0x0a00_0000, 0xff00_0000)
}

fn actions() -> Vec<Action> {
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

fn flow_mods() -> Vec<Message> {
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

fn packets() -> Vec<Message> {
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

fn port() -> PortDesc {
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

fn statistics() -> Vec<Message> {
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
    let flags = FlowMonitorFlags::INITIAL | FlowMonitorFlags::ACTIONS;
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

fn table_features() -> TableFeatures {
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
fn group() -> GroupDesc {
    let bucket = |id, weight| Bucket { id, weight, actions: actions(), ..Bucket::default() };
    let watched = Bucket { watch_port: Some(OfPort(4)), watch_group: Some(5), ..bucket(2, 1) };
    GroupDesc {
        group_id: 7,
        kind: GroupType::Select,
        buckets: vec![bucket(0, 1), bucket(1, 100), watched],
        selection: GroupSelection::default(),
    }
}

fn group_stats() -> GroupStats {
    GroupStats {
        group_id: 7,
        ref_count: 1,
        counts: (2, 3),
        buckets: vec![(4, 5), (6, 7)],
        ..Default::default()
    }
}

fn meter() -> MeterConfig {
    let band = Band { kind: BandType::Drop, rate: 100, burst_size: 20 };
    let remark = Band { kind: BandType::DscpRemark { prec_level: 2 }, ..band };
    MeterConfig { meter_id: 3, flags: MeterFlags::KBPS | MeterFlags::BURST, bands: vec![band, remark] }
}

fn table_mod() -> TableMod {
    TableMod {
        table_id: 3,
        config: TableMod::EVICTION | TableMod::VACANCY_EVENTS,
        eviction_flags: Some(1),
        vacancy: Some(Vacancy { down: 10, up: 20, now: 0 }),
    }
}

fn group_and_meter_mods() -> Vec<Message> {
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

fn replies() -> Vec<Message> {
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
fn samples() -> Vec<Message> {
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
        Message::SetAsync(async_config),
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

/// Encodes, decodes and compares. `false` where the version has no such message.
fn round_trip(codec: Codec, message: &Message) -> bool {
    let bytes = match codec.encode(0x1234_5678, message) {
        Ok(bytes) => bytes,
        Err(Unencodable::Version(..)) => return false,
        Err(error) => panic!("{error}"),
    };
    assert_eq!(codec.decode(&bytes), Ok((0x1234_5678, message.clone())), "{} {bytes:02x?}", codec.version);
    for length in 8..bytes.len() {
        // Cut off with a length that fits: an error or another message, never a panic.
        let mut cut = bytes[..length].to_vec();
        cut[2..4].copy_from_slice(&(length as u16).to_be_bytes());
        let _ = codec.decode(&cut);
    }
    true
}

/// What a message decodes to in a version: adding sets a flag in OpenFlow 1.0, which also lacks some numbers.
fn as_decoded(version: Version, message: &Message) -> Message {
    let mut message = message.clone();
    if version <= Version::V11
        && let Message::FlowMod(flow_mod) = &mut message
        && flow_mod.command == FlowModCommand::Add
    {
        flow_mod.flags |= FlowFlags::RESET_COUNTS;
    }
    if let Message::FlowMod(flow_mod) = &mut message
        && (version == Version::V10 || flow_mod.form == FlowForm::Nxm)
        && flow_mod.command.is_delete()
    {
        flow_mod.new_cookie = Some(0);
    }
    if matches!(version, Version::V11 | Version::V12)
        && let Message::StatsReply(StatsReply { body: StatsBody::Group(groups), .. }) = &mut message
    {
        // Without a duration.
        groups.iter_mut().for_each(|group| (group.duration_s, group.duration_ns) = (u32::MAX, u32::MAX));
    }
    message
}

#[test]
fn every_message_decodes_to_what_was_encoded() {
    for version in Version::ALL {
        let codec = Codec::new(version);
        let mut without = BTreeSet::new();
        for message in samples() {
            if !round_trip(codec, &as_decoded(version, &message)) {
                without.insert(message.name());
            }
        }
        let lacking = LACKING.iter().filter(|(versions, _)| versions.contains(&version.minor()));
        assert_eq!(without, lacking.map(|(_, name)| *name).collect(), "{version}");
    }
}

/// Messages that versions lack, by N of OpenFlow 1.N.
const LACKING: [(std::ops::RangeInclusive<u8>, &str); 18] = [
    (0..=0, "OFPT_TABLE_MOD"),
    (0..=1, "OFPT_ROLE_REQUEST"),
    (0..=1, "OFPT_ROLE_REPLY"),
    (0..=2, "OFPT_ROLE_STATUS"),
    (0..=2, "OFPT_GET_ASYNC_REQUEST"),
    (0..=2, "OFPT_GET_ASYNC_REPLY"),
    (0..=2, "OFPT_BUNDLE_CONTROL"),
    (0..=2, "OFPT_METER_MOD"),
    (0..=2, "OFPST_METER"),
    (0..=2, "OFPST_METER_CONFIG"),
    (0..=2, "OFPST_METER_FEATURES"),
    (0..=2, "OFPST_TABLE_FEATURES"),
    (1..=1, "OFPST_GROUP_FEATURES"),
    (0..=3, "OFPT_TABLE_STATUS"),
    (0..=3, "OFPST_TABLE_DESC"),
    (0..=3, "OFPST_QUEUE_DESC"),
    (4..=5, "OFPT_QUEUE_GET_CONFIG_REQUEST"),
    (4..=5, "OFPT_QUEUE_GET_CONFIG_REPLY"),
];

#[test]
fn what_versions_show_differently_round_trips_in_its_version() {
    let features = SwitchFeatures {
        datapath_id: 1,
        n_buffers: 256,
        n_tables: 254,
        auxiliary_id: 0,
        capabilities: Capabilities::FLOW_STATS | Capabilities::STP,
        actions: 0xfff,
        ports: vec![port()],
    };
    let config =
        SwitchConfig { frag: FragHandling::NxMatch, invalid_ttl_to_controller: Some(true), miss_send_len: 5 };
    let headers = |fields: &[Mf]| -> Vec<u64> {
        let header = |mf: &Mf| NxmHeader::new(mf.wire(2).unwrap(), false, mf.row().bytes.into()).0;
        fields.iter().map(header).collect()
    };
    let counted = |features| TableStats { features, active_count: 3, lookup_count: 4, matched_count: 5 };
    let bare = TableFeatures { name: "three".into(), max_entries: 2, ..TableFeatures::of(3) };
    let v10 = Codec::new(Version::V10);
    assert!(round_trip(v10, &Message::FeaturesReply(features.clone())));
    assert!(round_trip(v10, &Message::SetConfig(config)));
    let reply = |table| Message::StatsReply(StatsReply { more: false, body: StatsBody::Table(vec![table]) });
    let fields10 = [
        Mf::InPort,
        Mf::VlanVid,
        Mf::EthSrc,
        Mf::EthDst,
        Mf::EthType,
        Mf::NwProto,
        Mf::TcpSrc,
        Mf::TcpDst,
        Mf::NwSrc,
        Mf::NwDst,
        Mf::VlanPcp,
        Mf::NwTos,
    ];
    let features10 =
        TableFeatures { matchable: headers(&fields10), wildcards: headers(&[Mf::NwSrc]), ..bare.clone() };
    assert!(round_trip(v10, &reply(counted(features10))));
    let can = TableInstructionFeatures {
        instructions: 0b11_1110,
        write_actions: 0x0040_0001,
        apply_actions: 1,
        ..TableInstructionFeatures::default()
    };
    let features11 = TableFeatures {
        config: 2,
        nonmiss: can.clone(),
        matchable: headers(&[Mf::InPort, Mf::MplsTc, Mf::Metadata]),
        wildcards: headers(&[Mf::MplsTc]),
        ..bare.clone()
    };
    assert!(round_trip(Codec::new(Version::V11), &reply(counted(features11))));
    let features12 = TableFeatures {
        config: 1,
        metadata_match: 0xff,
        metadata_write: 0xf0,
        nonmiss: TableInstructionFeatures {
            write_set_fields: headers(&[Mf::EthDst]),
            apply_set_fields: headers(&[Mf::Metadata, Mf::EthDst]),
            ..can
        },
        matchable: headers(&[Mf::Metadata, Mf::InPortOxm, Mf::NdTll]),
        wildcards: headers(&[Mf::NdTll]),
        ..bare
    };
    assert!(round_trip(Codec::new(Version::V12), &reply(counted(features12))));
    let v13 = Codec::new(Version::V13);
    let capabilities = Capabilities::FLOW_STATS | Capabilities::PORT_BLOCKED;
    let features =
        SwitchFeatures { capabilities, actions: 0, ports: Vec::new(), auxiliary_id: 2, ..features };
    assert!(round_trip(v13, &Message::FeaturesReply(features)));
    assert!(round_trip(
        v13,
        &Message::GetConfigReply(SwitchConfig { invalid_ttl_to_controller: None, ..config })
    ));
    assert!(round_trip(v13, &reply(counted(TableFeatures::of(3)))));
    let flow_mod = flow_mods().swap_remove(0);
    let bytes = v13.encode(9, &flow_mod).unwrap();
    let flags = BundleFlags::ATOMIC;
    let add = BundleAdd { bundle_id: 3, flags, xid: 9, message: Box::new(flow_mod), bytes };
    let sent = v13.encode(9, &Message::BundleAdd(add.clone())).unwrap();
    assert_eq!(v13.decode(&sent), Ok((9, Message::BundleAdd(add))));
}

#[test]
fn hellos_offer_what_they_say() {
    let v13 = VersionSet::only(Version::V13);
    for set in [VersionSet::SUPPORTED, v13, v13.with(Version::V15), VersionSet(1 << 1 | 1 << 30)] {
        let bytes = Codec::hello(set, 3);
        assert_eq!(Codec::new(Version::V10).decode(&bytes), Ok((3, Message::Hello(set))));
    }
}

/// A match of random fields with their prerequisites.
fn any_match() -> impl Strategy<Value = Match> {
    let fields: Vec<Mf> = Mf::all().filter(|mf| mf.wire(0).is_some() && mf.bits() <= 128).collect();
    let pick = (proptest::sample::select(fields), any::<u128>(), any::<u128>(), any::<bool>());
    (proptest::collection::vec(pick, 0..12), 0usize..9).prop_map(|(picks, protocol)| {
        let protocols: [&[(FieldId, u128)]; 9] = [
            &[],
            &[(FieldId::EthType, 0x800), (FieldId::NwProto, 6)],
            &[(FieldId::EthType, 0x800), (FieldId::NwProto, 1)],
            &[(FieldId::EthType, 0x86dd), (FieldId::NwProto, 17)],
            &[(FieldId::EthType, 0x86dd), (FieldId::NwProto, 58), (FieldId::TpSrc, 135)],
            &[(FieldId::EthType, 0x806)],
            &[(FieldId::EthType, 0x8847)],
            &[(FieldId::EthType, 0x894f)],
            &[(FieldId::EthType, 0x800), (FieldId::CtState, 0x21)],
        ];
        let mut m = Match::any();
        for &(field, value) in protocols[protocol] {
            match field {
                FieldId::TpSrc | FieldId::CtState => m.set_masked(field, value, 0xff),
                _ => m = m.with(field, value),
            }
        }
        for (mf, value, mask, exact) in picks {
            let decides = matches!(
                mf,
                Mf::EthType
                    | Mf::NwProto
                    | Mf::ArpOp
                    | Mf::CtState
                    | Mf::PacketType
                    | Mf::Icmpv6Type
                    | Mf::IcmpType
            );
            let port = matches!(mf, Mf::InPortOxm | Mf::ActsetOutput);
            if decides || !m.has_prereq(mf) || m.get_mf(mf).1 != 0 || mf == Mf::VlanVid || mf == Mf::VlanPcp {
                continue;
            }
            let mask = if exact || mf.row().maskable == flow::mf::Maskable::No {
                mf.ones()
            } else {
                mask & mf.ones()
            };
            let value = if port { 7 } else { value & mask };
            let mut next = m.clone();
            next.set_mf(mf, value, mask);
            // A code of ICMPv6 other than 0 takes away what neighbour discovery requires.
            if mf != Mf::IpFrag && mf != Mf::Icmpv6Code {
                m = next;
            }
        }
        m
    })
}

proptest! {
    #[test]
    fn any_match_goes_through_nxm_and_oxm(m in any_match()) {
        let v10 = Codec::new(Version::V10);
        let v13 = Codec::new(Version::V13);
        let request = |form| {
            let flows = FlowStatsRequest { form, matching: m.clone(), ..FlowStatsRequest::default() };
            Message::StatsRequest(StatsRequest::Flow(Box::new(flows)))
        };
        prop_assert_eq!(v10.decode(&v10.encode(1, &request(FlowForm::Nxm)).unwrap()), Ok((1, request(FlowForm::Nxm))));
        // OXM says of VLAN tags the identifier under any mask, and the priority exactly.
        let tci = m.mask.get(FieldId::VlanTci);
        if tci == 0 || tci & 0xf000 == 0x1000 {
            let sent = v13.encode(1, &request(FlowForm::Standard)).unwrap();
            prop_assert_eq!(v13.decode(&sent), Ok((1, request(FlowForm::Standard))));
        }
        // The match of OpenFlow 1.0 says what fits it, and no more than that of the rest.
        let sent = v10.encode(1, &request(FlowForm::Standard)).unwrap();
        let Ok((_, Message::StatsRequest(StatsRequest::Flow(back)))) = v10.decode(&sent) else { panic!() };
        prop_assert_eq!(back.matching == m, openflow::codec::fits_match10(&m));
        prop_assert!(m.is_within(&back.matching) || !openflow::codec::fits_match10(&m));
    }

    #[test]
    fn bytes_at_random_are_refused_or_read_but_never_panic(
        version in 0usize..6, kind in 0u8..40, body in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let version = Version::ALL[version];
        let mut bytes = vec![version as u8, kind, 0, 0, 0, 0, 0, 1];
        bytes.extend(body);
        let length = bytes.len() as u16;
        bytes[2..4].copy_from_slice(&length.to_be_bytes());
        let _ = Codec { version, flow_mod_table_id: true }.decode(&bytes);
    }

    #[test]
    fn a_message_with_flipped_bits_never_panics(i in any::<prop::sample::Index>(), flips in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let messages = samples();
        for version in Version::ALL {
            let codec = Codec::new(version);
            if let Ok(mut bytes) = codec.encode(1, i.get(&messages)) {
                if bytes.len() == 8 {
                    continue;
                }
                for (at, bits) in &flips {
                    let at = 8 + at.index(bytes.len() - 8);
                    bytes[at] ^= bits;
                }
                if let Ok((xid, message)) = codec.decode(&bytes) {
                    // What was read can be said again, and then stays.
                    let said = codec.encode(xid, &message).unwrap();
                    let (_, again) = codec.decode(&said).unwrap_or_else(|e| panic!("{e} {message:?} {bytes:02x?} {said:02x?}"));
                    let twice = codec.encode(xid, &again).unwrap();
                    prop_assert_eq!(&codec.decode(&twice).unwrap().1, &again);
                }
            }
        }
    }
}

#[test]
fn a_long_reply_is_split_at_entries_and_only_its_last_part_ends_it() {
    for (version, form) in [
        (Version::V10, FlowForm::Nxm),
        (Version::V10, FlowForm::Standard),
        (Version::V13, FlowForm::Standard),
    ] {
        let codec = Codec::new(version);
        let mut writer = ReplyWriter::new(codec, 5, form);
        let mut out = Vec::new();
        let (m, mut big) = (matching(), Vec::new());
        big.resize(3_000, Action::Exit);
        for i in 0..3_000 {
            let actions = if i % 500 == 0 { &big } else { &actions() };
            let info = FlowInfo { cookie: i, ..FlowInfo::default() };
            writer.push(&FlowStatsRef { info, matching: &m, actions }, &mut out);
        }
        let huge = vec![Action::Exit; 5_000];
        writer.push(&FlowStatsRef { info: FlowInfo::default(), matching: &m, actions: &huge }, &mut out);
        assert_eq!(writer.too_long(), 1);
        writer.finish(&mut out);
        let (mut cookies, mut parts) = (Vec::new(), Vec::new());
        let mut rest = &out[..];
        while !rest.is_empty() {
            let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            let Ok((5, Message::StatsReply(reply))) = codec.decode(&rest[..length]) else { panic!() };
            let StatsBody::Flow { flows, .. } = reply.body else { panic!() };
            cookies.extend(flows.iter().map(|flow| flow.info.cookie));
            parts.push(reply.more);
            rest = &rest[length..];
        }
        assert!(cookies.iter().copied().eq(0..3_000));
        assert!(
            parts.len() > 10 && !parts[parts.len() - 1] && parts[..parts.len() - 1].iter().all(|more| *more)
        );
    }
}
