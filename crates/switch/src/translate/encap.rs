//! `encap` and `decap`: headers in front of a packet, and with them its type (OpenFlow 1.5).
//!
//! Pushing a header, or removing an Ethernet header, is deferred to the next commit, so that fields set in
//! between go into the header as it is pushed. What follows a removed NSH or MPLS header is unknown: the
//! packet is read again before the list continues.

use super::{Dscp, Pending, Xlate};
use crate::trace::Sink;
use base::DropReason;
use datapath::DpAction;
use datapath::packet_type::{ETH_TYPE_TEB, ETHERNET, of_eth_type};
use flow::action::NshProperty;
use flow::key::{B_COMMON, B_IPV6, B_RARE};
use flow::mf::Prereq;
use flow::{Action, FieldId, Mf};
use wire::nsh::{HEADER_LEN_MAX, HEADER_LEN_MIN, NshRepr, md_type, next_protocol};

const IPV4: u32 = of_eth_type(0x0800);
const IPV6: u32 = of_eth_type(0x86dd);
const NSH: u32 = of_eth_type(0x894f);
const MPLS: u32 = of_eth_type(0x8847);
const MPLS_MC: u32 = of_eth_type(0x8848);

/// Words of the common block that contain header fields.
const HEADER_WORDS: std::ops::RangeInclusive<usize> = 1..=5;
/// Fields of tags.
const TAGS: [FieldId; 4] = [FieldId::VlanTci, FieldId::VlanTpid, FieldId::VlanTci2, FieldId::VlanTpid2];
/// TTL of a new network service header, and of a new label.
const NSH_TTL: u128 = 63;
const MPLS_TTL: u128 = 64;
/// Label that means that IPv6 follows (RFC 3032 section 2.1).
const LABEL_IPV6: u128 = 2;
const BOTTOM_OF_STACK: u128 = 0x100;

impl<S: Sink> Xlate<'_, S> {
    pub(super) fn is_ethernet(&self) -> bool {
        self.key.get(FieldId::PacketType) == u128::from(ETHERNET)
    }

    fn packet_type(&mut self) -> u32 {
        self.read(FieldId::PacketType) as u32
    }

    /// Pushes a header in front of the packet.
    #[inline(never)]
    pub(super) fn encap(&mut self, packet_type: u32, properties: &[NshProperty]) {
        self.commit();
        match packet_type {
            ETHERNET => self.encap_ethernet(),
            NSH => self.encap_nsh(properties),
            MPLS | MPLS_MC => self.encap_mpls(packet_type),
            _ => self.unsupported(|| "Dropping packet, unsupported encap".to_string()),
        }
    }

    /// A header of this kind cannot be added or removed.
    fn unsupported(&mut self, why: impl FnOnce() -> String) {
        self.trace.fate(why);
        self.fail(DropReason::UnsupportedPacketType, "Unsupported packet type");
    }

    fn encap_ethernet(&mut self) {
        let packet_type = self.packet_type();
        if packet_type >> 16 != 1 {
            return self.unsupported(|| {
                "Dropping packet as encap(ethernet) is not supported for packet type ethernet.".to_string()
            });
        }
        self.write_field(FieldId::PacketType, ETHERNET.into());
        self.write_field(FieldId::EthType, u128::from(packet_type & 0xffff));
        self.write_empty_link();
        self.pending = Pending::Ethernet;
    }

    /// No addresses and no tags.
    fn write_empty_link(&mut self) {
        for field in [FieldId::EthSrc, FieldId::EthDst].iter().chain(&TAGS) {
            self.write_field(*field, 0);
        }
    }

    /// Notes that a field is set. As in Open vSwitch, a flow then matches the packet's original value, if the
    /// field belongs to a network service header, or is an address of an Ethernet header that will be pushed.
    pub(super) fn note_set(&mut self, field: Mf, mask: u128) {
        match field {
            Mf::EthSrc if self.renews_link() => self.out.mask.add(FieldId::EthSrc, mask),
            Mf::EthDst if self.renews_link() => self.out.mask.add(FieldId::EthDst, mask),
            _ if field.row().prereq == Prereq::Nsh => self.need_mf(field, mask & field.ones()),
            _ => {}
        }
    }

    fn renews_link(&self) -> bool {
        self.pending == Pending::Ethernet && self.came_with_ethernet
    }

    fn encap_nsh(&mut self, properties: &[NshProperty]) {
        let packet_type = self.packet_type();
        let next_protocol = match packet_type {
            ETHERNET => next_protocol::ETHERNET,
            IPV4 => next_protocol::IPV4,
            IPV6 => next_protocol::IPV6,
            NSH => next_protocol::NSH,
            _ => {
                return self.unsupported(|| {
                    format!(
                        "Dropping packet as encap(nsh) is not supported for packet type ({},{:#x})",
                        packet_type >> 16,
                        packet_type & 0xffff
                    )
                });
            }
        };
        let kind = properties.iter().rev().find_map(|property| match property {
            NshProperty::MdType(kind) => Some(*kind),
            NshProperty::Tlv { .. } => None,
        });
        // As in Open vSwitch, which refuses no type either: a header of another type has no metadata, and
        // says type 0. The field has 8 bits, the header 4.
        let kind = match kind.unwrap_or(md_type::FIXED) {
            kind @ (md_type::FIXED | md_type::VARIABLE) => kind,
            _ => 0,
        };
        self.begin_with_other_header(NSH);
        for (field, value) in [
            (FieldId::NshTtl, NSH_TTL),
            (FieldId::NshMdtype, kind.into()),
            (FieldId::NshNp, next_protocol.into()),
            (FieldId::NshSi, 255),
        ] {
            self.write_field(field, value);
        }
        self.pending =
            Pending::Nsh(if kind == md_type::VARIABLE { context_headers(properties) } else { vec![] });
    }

    /// A label in front of the whole packet. Known labels after an Ethernet header no longer matter.
    fn encap_mpls(&mut self, packet_type: u32) {
        let before = self.packet_type();
        let lse = if matches!(before, MPLS | MPLS_MC) {
            let labels = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2].map(|field| self.read(field));
            if labels[2] != 0 {
                self.fail(DropReason::MplsLabelLimit, "Too many MPLS labels");
                return self.trace.error(|| {
                    "dropping packet on which an encap MPLS action can't be performed as it would have more \
                     MPLS LSEs than the 3 supported."
                        .to_string()
                });
            }
            self.begin_with_other_header(packet_type);
            self.write_field(FieldId::Mpls1, labels[0].into());
            self.write_field(FieldId::Mpls2, labels[1].into());
            u128::from(labels[0]) & !BOTTOM_OF_STACK
        } else {
            let is_ipv6 = self.read(FieldId::EthType) == 0x86dd;
            self.begin_with_other_header(packet_type);
            let label = if is_ipv6 { LABEL_IPV6 } else { 0 };
            label << 12 | BOTTOM_OF_STACK | MPLS_TTL
        };
        self.write_field(FieldId::Mpls0, lse);
        self.pending = Pending::Mpls;
    }

    /// No field of the packet's previous headers can be reached any more.
    fn begin_with_other_header(&mut self, packet_type: u32) {
        for word in HEADER_WORDS {
            self.write(B_COMMON, word, u64::MAX, 0);
        }
        for block in [B_IPV6, B_RARE] {
            for word in 0..8 {
                self.write(block, word, u64::MAX, 0);
            }
        }
        self.below.clear();
        self.write_field(FieldId::PacketType, packet_type.into());
        self.write_field(FieldId::EthType, u128::from(packet_type & 0xffff));
        // What is hidden was not set, and is read again once it is uncovered.
        self.dscp = Dscp::Known;
    }

    /// Removes the packet's first header. The action gives the type of what follows labels.
    #[inline(never)]
    pub(super) fn decap(&mut self, next: u32) {
        self.commit();
        let packet_type = self.packet_type();
        match packet_type {
            // Every tag has a TPID.
            ETHERNET if self.read(FieldId::VlanTpid) != 0 => {
                self.unsupported(|| "Dropping packet, cannot decap Ethernet if VLAN is present.".to_string())
            }
            ETHERNET => {
                let eth_type = self.read(FieldId::EthType) as u16;
                self.write_empty_link();
                self.write_field(FieldId::PacketType, of_eth_type(eth_type).into());
            }
            NSH => self.decap_nsh(),
            MPLS | MPLS_MC => self.decap_mpls(next),
            _ => self.unsupported(|| {
                format!(
                    "Dropping packet as the decap() does not support packet type ({},{:#x})",
                    packet_type >> 16,
                    packet_type & 0xffff
                )
            }),
        }
    }

    fn decap_nsh(&mut self) {
        let protocol = self.read(FieldId::NshNp) as u8;
        let behind = match protocol {
            next_protocol::ETHERNET => ETHERNET,
            next_protocol::IPV4 => IPV4,
            next_protocol::IPV6 => IPV6,
            next_protocol::NSH => NSH,
            _ => {
                return self.unsupported(|| {
                    format!("Dropping packet as NSH next protocol {protocol} is not supported")
                });
            }
        };
        self.uncover(behind, 0);
    }

    fn decap_mpls(&mut self, next: u32) {
        let labels = [FieldId::Mpls0, FieldId::Mpls1, FieldId::Mpls2];
        let bottom = labels.into_iter().position(|field| {
            let place = field.place();
            let bit = (BOTTOM_OF_STACK as u64) << place.shift;
            self.need(place.block.into(), place.word.into(), bit);
            self.key.get(field) & BOTTOM_OF_STACK != 0
        });
        let Some(bottom) = bottom else {
            self.fail(DropReason::MplsLabelLimit, "Too many MPLS labels");
            return self.trace.error(|| {
                "dropping packet on which an MPLS decap can't be performed as it has more MPLS LSEs than \
                 the 3 supported."
                    .to_string()
            });
        };
        match next {
            ETHERNET => self.uncover(ETHERNET, ETH_TYPE_TEB),
            // More labels follow, whatever comes after them.
            Action::USE_NEXT_PROTO if bottom > 0 => self.uncover(MPLS, 0x8847),
            next if next >> 16 == 1 => self.uncover(next, next as u16),
            _ => self.unsupported(|| {
                "Dropping packet, its labels do not say what packet type they are in front of".to_string()
            }),
        }
    }

    /// What follows the first header is read before the list continues.
    fn uncover(&mut self, packet_type: u32, eth_type: u16) {
        self.write_field(FieldId::PacketType, packet_type.into());
        self.pending = Pending::Decap(eth_type);
        self.freezing = Some(Vec::new());
    }

    /// Emits actions that change the packet's type. False if nothing is known about the packet afterwards.
    pub(super) fn commit_packet_type(&mut self) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let has = self.base.get(FieldId::PacketType) as u32;
        let shall_have = self.key.get(FieldId::PacketType) as u32;
        let eth_type = self.key.get64(FieldId::EthType) as u16;
        let is_known = !matches!(pending, Pending::Decap(_));
        let action = match pending {
            Pending::No if has == shall_have => return true,
            Pending::No => DpAction::PopEth { eth_type: shall_have as u16 },
            Pending::Ethernet => DpAction::PushEth {
                src: self.key.get64(FieldId::EthSrc),
                dst: self.key.get64(FieldId::EthDst),
                eth_type,
            },
            Pending::Nsh(context) => DpAction::PushNsh(self.nsh_header(context).into()),
            Pending::Mpls => DpAction::AddMpls { eth_type, lse: self.key.get64(FieldId::Mpls0) as u32 },
            Pending::Decap(_) if has == NSH => DpAction::PopNsh { packet_type: shall_have },
            Pending::Decap(eth_type) => DpAction::PopMpls { eth_type },
        };
        match action {
            DpAction::PushEth { .. } | DpAction::PopEth { .. } => self.base_has_new_link(),
            DpAction::PushNsh(_) | DpAction::AddMpls { .. } => self.base_is_new_header(),
            _ => {}
        }
        self.base.set(FieldId::PacketType, shall_have.into());
        self.irreversible = true;
        self.out.actions.push(action);
        is_known
    }

    /// The packet has the pipeline's addresses, and no tag.
    fn base_has_new_link(&mut self) {
        for field in [FieldId::EthSrc, FieldId::EthDst, FieldId::EthType] {
            self.note_base(field, field.ones());
        }
        for field in TAGS {
            self.base.set(field, 0);
            self.base_known.add_exact(field);
        }
        self.base_below.clear();
    }

    /// The packet has no other header than the pipeline's, as far as is known.
    fn base_is_new_header(&mut self) {
        let common = HEADER_WORDS.map(|word| (B_COMMON, word));
        let others = [B_IPV6, B_RARE].into_iter().flat_map(|block| (0..8).map(move |word| (block, word)));
        for (block, word) in common.chain(others) {
            self.base.set_word(block, word, self.key.word(block, word));
            self.base_known.add_word(block, word, u64::MAX);
        }
        self.base_below.clear();
    }

    fn nsh_header(&self, variable: Vec<u8>) -> Vec<u8> {
        let get = |field| self.key.get64(field);
        let fixed = [FieldId::NshC1, FieldId::NshC2, FieldId::NshC3, FieldId::NshC4];
        let fixed = fixed.map(|field| (get(field) as u32).to_be_bytes()).concat();
        let kind = get(FieldId::NshMdtype) as u8;
        let repr = NshRepr {
            oam: get(FieldId::NshFlags) & 2 != 0,
            ttl: get(FieldId::NshTtl) as u8,
            md_type: kind,
            next_protocol: get(FieldId::NshNp) as u8,
            path_id: get(FieldId::NshSpi) as u32,
            service_index: get(FieldId::NshSi) as u8,
            context: if kind == md_type::FIXED { &fixed } else { &variable },
        };
        let mut header = vec![0; repr.header_len()];
        repr.emit(&mut header).expect("context headers and the type were bounded as they were made");
        // The second flag has no name.
        header[0] |= (get(FieldId::NshFlags) as u8 & 1) << 4;
        header
    }
}

/// Variable-length context headers, padded to whole words. As in Open vSwitch, none if they do not fit.
fn context_headers(properties: &[NshProperty]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for property in properties {
        let NshProperty::Tlv { class, kind, value } = property else { continue };
        // In 7 bits.
        let Some(len) = u8::try_from(value.len()).ok().filter(|len| *len < 0x80) else { return vec![] };
        bytes.extend(class.to_be_bytes());
        bytes.extend([*kind, len]);
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    if bytes.len() > HEADER_LEN_MAX - HEADER_LEN_MIN { vec![] } else { bytes }
}
