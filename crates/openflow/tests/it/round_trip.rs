//! Every message decodes to what was encoded, in every version that has it.

use crate::messages::{actions, flow_mods, group, matching, port, samples};
use base::OfPort;
use flow::mf::NxmHeader;
use flow::{Action, FieldId, Match, Mf};
use openflow::message::*;
use openflow::reply::write_reply;
use openflow::{Codec, Message, ReplyWriter, Unencodable, Version, VersionSet};
use proptest::prelude::*;
use std::collections::BTreeSet;

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
    // From OpenFlow 1.2 on only what deletes may be of all tables, in 1.1 nothing.
    if let Message::FlowMod(flow_mod) = &mut message
        && version >= Version::V11
        && flow_mod.form == FlowForm::Standard
        && (version == Version::V11 || !flow_mod.command.is_delete())
    {
        flow_mod.table_id = 0;
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
const LACKING: [(std::ops::RangeInclusive<u8>, &str); 23] = [
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
    (1..=5, "NXT_SET_FLOW_FORMAT"),
    (4..=5, "NXT_FLOW_MONITOR_CANCEL"),
    (4..=5, "NXT_FLOW_MONITOR_PAUSED"),
    (4..=5, "NXT_FLOW_MONITOR_RESUMED"),
    (1..=5, "NXST_FLOW"),
    (1..=5, "NXST_AGGREGATE"),
    (0..=3, "OFPT_TABLE_STATUS"),
    (0..=3, "OFPST_TABLE_DESC"),
    (0..=3, "OFPST_QUEUE_DESC"),
    (4..=5, "OFPT_QUEUE_GET_CONFIG_REQUEST"),
    (4..=5, "OFPT_QUEUE_GET_CONFIG_REPLY"),
];

#[test]
fn no_option_of_a_tunnel_is_longer_than_any_can_be() {
    let header = |bytes: usize| NxmHeader::new(Mf::TunMetadata(40).wire(0).unwrap(), true, 2 * bytes).0 >> 32;
    for (bytes, is_right) in [(124, true), (125, false), (127, false)] {
        let part = [vec![0; bytes - 1], vec![1]].concat();
        let nxm = [&header(bytes).to_be_bytes()[4..], &part, &part].concat();
        let read = Codec::decode_nxm(&nxm, openflow::codec::Unknown::Refused);
        assert_eq!(read.is_ok(), is_right, "{bytes}: {read:?}");
    }
}

#[test]
fn a_packet_in_holds_as_much_of_a_long_packet_as_there_is_room() {
    let packet_ins = samples().into_iter().filter_map(|message| match message {
        Message::PacketIn(packet_in) => Some(packet_in),
        _ => None,
    });
    for packet_in in packet_ins {
        for version in [Version::V10, Version::V11, Version::V13] {
            let codec = Codec::new(version);
            let long = PacketIn { data: vec![7; 65_535], total_len: 65_535, ..(*packet_in).clone() };
            let bytes = codec.encode(1, &Message::PacketIn(Box::new(long))).unwrap();
            let (_, Message::PacketIn(read)) = codec.decode(&bytes).unwrap() else { panic!("{version}") };
            assert!(read.total_len == 65_535 && read.data.len() > 63_000, "{version} {}", read.data.len());
        }
    }
}

#[test]
fn groups_may_hash_by_the_options_of_tunnels() {
    for mask in [0, 1, 0xffff_ffff, u128::MAX] {
        let fields = vec![(Mf::TunMetadata(0), mask)];
        let selection = GroupSelection { method: "hash".into(), param: 0, fields };
        let group = GroupDesc { selection, ..group() };
        let group_mod = GroupMod { command: GroupCommand::Add, command_bucket_id: BUCKET_ALL, group };
        for version in [Version::V10, Version::V15] {
            assert!(round_trip(Codec::new(version), &Message::GroupMod(Box::new(group_mod.clone()))));
        }
    }
}

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
    let flow_mod = as_decoded(Version::V13, &flow_mods().swap_remove(0));
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
            let value = match mf {
                _ if port => 7,
                Mf::NshMdtype => 1 + value % 2,
                _ => value & mask,
            };
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

#[test]
fn counters_of_ports_come_back_by_size_and_by_name_however_many_they_are() {
    let mut port = PortStats::unknown(OfPort(1));
    port.frames = std::array::from_fn(|n| n as u64);
    port.custom = (0..40).map(|n| (format!("rx_q{n}_good_packets"), n)).collect();
    let ports: Vec<PortStats> = (1..400).map(|n| PortStats { port: OfPort(n), ..port.clone() }).collect();
    for version in [Version::V14, Version::V15] {
        let codec = Codec::new(version);
        let mut out = Vec::new();
        write_reply(codec, 5, StatsBody::Port(ports.clone()), &mut out).unwrap();
        let (mut read, mut rest, mut more) = (Vec::new(), &out[..], true);
        while !rest.is_empty() {
            assert!(more, "nothing comes after the last part");
            let length = usize::from(u16::from_be_bytes([rest[2], rest[3]]));
            let Ok((5, Message::StatsReply(reply))) = codec.decode(&rest[..length]) else { panic!() };
            let StatsBody::Port(part) = reply.body else { panic!() };
            (more, rest) = (reply.more, &rest[length..]);
            read.extend(part);
        }
        assert!(!more && read == ports);
        // Of a device with more counters than a message holds the first ones are told, in one message.
        let many =
            PortStats { custom: (0..9_000).map(|n| (format!("n{n:07}"), n)).collect(), ..port.clone() };
        let mut out = Vec::new();
        write_reply(codec, 5, StatsBody::Port(vec![many.clone()]), &mut out).unwrap();
        let Ok((5, Message::StatsReply(reply))) = codec.decode(&out) else { panic!() };
        let StatsBody::Port(read) = reply.body else { panic!() };
        assert!(out.len() > 65_500 && many.custom.starts_with(&read[0].custom));
        assert_eq!(read[0].custom.len() + many.custom_left_out(version), 9_000);
        assert_eq!(many.custom_left_out(Version::V13), 0);
    }
}

#[test]
fn ports_that_do_not_fit_into_the_features_are_left_out_and_that_shows() {
    for (version, fits) in [(Version::V10, 1_364), (Version::V11, 1_023), (Version::V12, 1_023)] {
        for count in [fits - 1, fits, fits + 1, 5_000] {
            let ports: Vec<PortDesc> = (1..=count).map(|n| PortDesc { port: OfPort(n), ..port() }).collect();
            let features = SwitchFeatures {
                datapath_id: 1,
                n_buffers: 0,
                n_tables: 254,
                auxiliary_id: 0,
                capabilities: Capabilities::FLOW_STATS,
                actions: 0,
                ports: ports.clone(),
            };
            let codec = Codec::new(version);
            let bytes = codec.encode(1, &Message::FeaturesReply(features)).unwrap();
            let Ok((_, Message::FeaturesReply(read))) = codec.decode(&bytes) else { panic!() };
            assert!(ports.starts_with(&read.ports), "{version} {count}");
            assert_eq!(read.ports.len(), count.min(fits) as usize);
            assert_eq!(read.has_all_ports(version), count < fits);
        }
    }
}
