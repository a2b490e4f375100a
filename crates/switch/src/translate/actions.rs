//! The interpreter of actions.

use super::bounds::COPY_STEPS;
use super::frozen::needs_reading;
use super::{BUCKETS_MAX, CLONES_NESTED_MAX, Cookie, TAGS_BELOW_MAX, Xlate};
use crate::effect::{Effect, FinTimeout};
use crate::rule::Rule;
use crate::table::Entry;
use crate::trace::Sink;
use base::{DropReason, OfPort};
use flow::action::SubField;
use flow::key::{B_COMMON, B_PIPELINE};
use flow::mf::{Prereq, Slice};
use flow::options::{OPTION_BYTES_MAX, Wide};
use flow::{Action, FieldId, Mf};
use openflow::text::subfield_value_text;

/// A mask of the low `count` bits.
fn ones(count: u16) -> u128 {
    if count >= 128 { u128::MAX } else { (1 << count) - 1 }
}

impl<'a, S: Sink> Xlate<'a, S> {
    /// Executes a list in order. False if one of its actions ended it early, as an expired TTL does.
    pub(super) fn actions(&mut self, list: &'a [Action]) -> bool {
        self.out.steps += list.len() as u32;
        for (i, action) in list.iter().enumerate() {
            if self.error.is_some() || self.exit {
                break;
            }
            if self.unread && needs_reading(action) {
                self.freeze();
            }
            if self.freezing.is_some() {
                self.leave_for_later(&list[i..]);
                break;
            }
            self.trace.begin_action(action);
            if let Action::CheckPktLarger { length, target } = action
                && self.switch.in_use.check_pkt_len()
            {
                // The rest of the list is executed there.
                self.check_pkt_larger(*length, target, &list[i + 1..]);
                break;
            }
            self.action(action);
            if let Some(steps) = &self.freezing {
                // An action that froze within a table is among the steps already. A lookup that wanted the
                // packet read first is repeated then.
                let done = !steps.is_empty()
                    || matches!(
                        action,
                        Action::PopMpls(_)
                            | Action::Decap { .. }
                            | Action::Controller { .. }
                            | Action::DebugRecirc
                    );
                let from = if done { i + 1 } else { i };
                self.leave_for_later(&list[from..]);
                break;
            }
            if std::mem::take(&mut self.list_ends) {
                return false;
            }
        }
        true
    }

    fn action(&mut self, action: &'a Action) {
        match action {
            Action::Output { port, max_len } => self.output_action(*port, *max_len),
            Action::OutputReg { source, max_len } => self.output_reg(source, *max_len),
            Action::OutputTrunc { port, max_len } => self.output_trunc(*port, *max_len),
            Action::Controller { max_len, reason, id, userdata, pause: true, .. } => {
                self.pause(*max_len, *reason, *id, userdata);
            }
            Action::Controller { max_len, reason, id, userdata, meter_id, .. } => {
                self.packet_in_metered(*max_len, *reason, *id, userdata, *meter_id);
            }
            Action::Enqueue { port, queue } => self.enqueue(*port, *queue),
            Action::SetField { field, value, mask } => {
                self.need_protocol(*field);
                self.set_field(*field, *value, *mask);
            }
            Action::SetOption { idx, value, mask } => self.write_option(*idx, value, mask),
            Action::DeleteField(field) => self.delete_field(*field),
            Action::Load { target, value, .. } => {
                self.need_protocol(target.field);
                self.write_sub(target, u128::from(*value));
            }
            Action::Move { source, target } => self.move_bits(source, target),
            Action::StackPush(source) => self.stack_push(source),
            Action::StackPop(target) => self.stack_pop(target),
            Action::SetQueue(queue) => self.set_queue(*queue),
            Action::PopQueue => self.pop_queue(),
            Action::SetTunnel { id, .. } => self.write_field(FieldId::TunId, u128::from(*id)),
            Action::Resubmit { in_port, table, ct } => self.resubmit(*in_port, *table, *ct),
            Action::GotoTable(table) => self.table(*table, true),
            Action::WriteMetadata { value, mask } => self.write(B_PIPELINE, 0, *mask, *value),
            Action::WriteActions(list) => {
                self.write_actions(list);
                self.report_action_set("is");
            }
            Action::ClearActions => {
                self.report_action_set("was");
                self.action_set.clear();
                self.set_actset_output(OfPort::UNSET);
            }
            Action::Clone(list) => self.clone_action(list),
            Action::SetVlanVid { vid, push_vlan_if_needed } => {
                self.set_vlan(u64::from(*vid), 0x0fff, *push_vlan_if_needed);
            }
            Action::SetVlanPcp { pcp, push_vlan_if_needed } => {
                self.set_vlan(u64::from(*pcp) << 13, 0xe000, *push_vlan_if_needed);
            }
            Action::PushVlan(tpid) => self.push_vlan(*tpid),
            Action::PopVlan => self.pop_vlan(),
            Action::PushMpls(eth_type) => self.push_mpls(*eth_type),
            Action::PopMpls(eth_type) => self.pop_mpls(*eth_type),
            Action::SetMplsLabel(label) => self.set_label(u64::from(*label) << 12, 0xffff_f000),
            Action::SetMplsTc(tc) => self.set_label(u64::from(*tc) << 9, 0xe00),
            Action::SetMplsTtl(ttl) => self.set_label(u64::from(*ttl), 0xff),
            Action::DecMplsTtl => self.dec_mpls_ttl(),
            Action::DecTtl(ids) => self.dec_ttl(ids.as_deref().unwrap_or(&[0])),
            Action::DecNshTtl => self.dec_nsh_ttl(),
            Action::SetNwTtl(ttl) => self.set_ttl(*ttl),
            Action::SetTpSrc(port) => self.set_transport_port(FieldId::TpSrc, *port),
            Action::SetTpDst(port) => self.set_transport_port(FieldId::TpDst, *port),
            Action::Ct(ct) => self.track(ct),
            Action::CtClear => self.forget_connection(),
            Action::FinTimeout { idle_timeout_s, hard_timeout_s } => {
                self.fin_timeout(*idle_timeout_s, *hard_timeout_s);
            }
            // There is no collector to send samples to, so sampling has no effect.
            Action::Sample { .. } | Action::Note(_) => {}
            Action::DebugRecirc => self.freeze(),
            Action::DebugSlow => self.is_slow(),
            Action::Exit => self.exit = true,
            // No lookup finds such a rule, but a packet-out may contain the action.
            Action::Conjunction { .. } => {
                self.trace.error(|| "executing no-op conjunction action".to_string());
            }
            Action::Group(group_id) => self.group(*group_id),
            Action::Learn(learn) => self.learn_rule(learn),
            Action::Multipath(multipath) => self.multipath(multipath),
            Action::Bundle(bundle) => self.bundle_action(bundle),
            Action::Meter(meter_id) => self.meter(*meter_id),
            Action::Encap { packet_type, properties, .. } => self.encap(*packet_type, properties),
            Action::Decap { packet_type } => self.decap(*packet_type),
            Action::CheckPktLarger { length, target } => self.compare_length(*length, target),
            // Refused when the rule is added.
            Action::Nat(_) => self.error = Some(DropReason::TranslationError),
        }
    }

    /// Reads the bits of a subfield, which become part of the mask.
    pub(super) fn read_sub(&mut self, sub: &SubField) -> u128 {
        if let Mf::TunMetadata(idx) = sub.field {
            return self.read_option(idx, sub).low_u128();
        }
        let bits = ones(sub.count) << sub.offset;
        if !matches!(sub.field, Mf::InPortOxm | Mf::ActsetOutput)
            && let Some(Slice { block, word, shift, .. }) = sub.field.in_one_word()
        {
            let bits = (bits & sub.field.ones()) as u64;
            self.need(block, word, bits << shift);
            return u128::from((self.key.word(block, word) >> shift & bits) >> sub.offset);
        }
        // Fields that are wider in actions than in the key are 0 there.
        self.need_mf(sub.field, bits & sub.field.ones());
        let mut value = self.key.get_mf(sub.field);
        if matches!(sub.field, Mf::InPortOxm | Mf::ActsetOutput) && value >= u128::from(OfPort::MAX.0) {
            // Reserved ports are the last numbers in 32 bits, too. The port is part of every flow's mask
            // anyway.
            value |= 0xffff_0000;
        }
        (value & bits) >> sub.offset
    }

    pub(super) fn write_sub(&mut self, sub: &SubField, value: u128) {
        if let Mf::TunMetadata(idx) = sub.field {
            return self.write_option_bits(idx, sub, &Wide::from(value));
        }
        let bits = ones(sub.count) << sub.offset;
        self.set_field(sub.field, value << sub.offset, bits);
    }

    /// Reads bits of a tunnel option, which become part of the mask. An absent option reads as 0.
    #[inline(never)]
    pub(super) fn read_option(&mut self, idx: u8, sub: &SubField) -> Wide {
        let bits = Wide::low(sub.count).shl(sub.offset);
        let options = self.bridge.options();
        for (block, word, bits, _) in options.words(idx, &Wide::ZERO, &bits) {
            self.need(block, word, bits);
        }
        options.read(self.key, idx).and(&bits).shr(sub.offset)
    }

    /// Sets bits of a tunnel option, which is present from now on.
    #[inline(never)]
    fn write_option(&mut self, idx: u8, value: &Wide, mask: &Wide) {
        for (block, word, bits, value) in self.bridge.options().words(idx, value, mask) {
            self.write(block, word, bits, value);
        }
        self.set_option_presence(idx, true);
    }

    pub(super) fn write_option_bits(&mut self, idx: u8, sub: &SubField, value: &Wide) {
        let bits = Wide::low(sub.count);
        self.write_option(idx, &value.and(&bits).shl(sub.offset), &bits.shl(sub.offset));
    }

    fn set_option_presence(&mut self, idx: u8, is_there: bool) {
        let place = FieldId::TunMetadataPresent.place();
        let bit = 1 << idx;
        self.write(place.block.into(), place.word.into(), bit, if is_there { bit } else { 0 });
    }

    #[inline(never)]
    fn delete_field(&mut self, field: Mf) {
        let Mf::TunMetadata(idx) = field else { return };
        self.trace.detail(|| format!("delete {}", field.name()));
        // An absent option reads as 0.
        self.write_option(idx, &Wide::ZERO, &Wide::ONES);
        self.set_option_presence(idx, false);
    }

    /// As in Open vSwitch, flows that set the IP header match the protocol, since its checksum may have to be
    /// updated.
    fn need_protocol(&mut self, field: Mf) {
        use Mf::*;
        let is_of_ip =
            matches!(field, NwSrc | NwDst | Ipv6Src | Ipv6Dst | Ipv6Label | NwTos | IpDscp | NwEcn | NwTtl);
        if is_of_ip && self.is_ip() {
            self.read(FieldId::NwProto);
        }
    }

    #[inline(never)]
    fn set_field(&mut self, field: Mf, value: u128, mask: u128) {
        if !self.prerequisites_hold(field) {
            return self
                .trace
                .warn(|| format!("unmet prerequisites for {}, set_field ignored", field.name()));
        }
        self.note_set(field, mask);
        match field {
            Mf::VlanTci => self.set_tci(value as u64, mask as u64),
            // In OpenFlow 1.3 it changes an existing tag; the "present" bit stays.
            Mf::VlanVid => self.set_vlan(value as u64, mask as u64 & 0xfff, false),
            Mf::DlVlan => self.set_vlan(value as u64, mask as u64 & 0xfff, true),
            Mf::DlVlanPcp => self.set_vlan((value as u64) << 13, (mask as u64) << 13 & 0xe000, true),
            // For the type of service, the bits other than ECN.
            _ => self.write_mf(field, value & mask & field.ones(), mask & field.ones()),
        }
    }

    /// Whether the packet has the header that contains the field. What determines this becomes part of the
    /// mask.
    pub(super) fn prerequisites_hold(&mut self, field: Mf) -> bool {
        let prereq = field.row().prereq;
        if prereq == Prereq::None {
            return true;
        }
        let eth_type = self.read(FieldId::EthType);
        let is_ip = matches!(eth_type, 0x0800 | 0x86dd);
        match prereq {
            Prereq::None => true,
            Prereq::Ethernet => self.read(FieldId::PacketType) == 0,
            Prereq::Vlan => self.read(FieldId::PacketType) == 0 && self.read(FieldId::VlanTci) & 0x1000 != 0,
            Prereq::Arp => matches!(eth_type, 0x0806 | 0x8035),
            Prereq::Ipv4 => eth_type == 0x0800,
            Prereq::Ipv6 => eth_type == 0x86dd,
            Prereq::Ip => is_ip,
            Prereq::Mpls => matches!(eth_type, 0x8847 | 0x8848),
            Prereq::Nsh => eth_type == 0x894f,
            // New or established, related, reply or translated; not for an invalid packet.
            Prereq::Ct => is_ip && self.read(FieldId::CtState) & 0xcf != 0,
            Prereq::Tcp => is_ip && self.is_transport(6),
            Prereq::Udp => is_ip && self.is_transport(17),
            Prereq::Sctp => is_ip && self.is_transport(132),
            Prereq::Icmpv4 => eth_type == 0x0800 && self.is_transport(1),
            Prereq::Icmpv6 => eth_type == 0x86dd && self.is_transport(58),
            Prereq::Nd => self.is_nd(eth_type, &[135, 136]),
            Prereq::NdSolicit => self.is_nd(eth_type, &[135]),
            Prereq::NdAdvert => self.is_nd(eth_type, &[136]),
        }
    }

    /// Whether the packet, which is IP, has a header of that transport protocol.
    fn is_transport(&mut self, proto: u64) -> bool {
        self.read(FieldId::NwProto) == proto && !self.is_later_fragment()
    }

    pub(super) fn is_later_fragment(&mut self) -> bool {
        self.read(FieldId::NwFrag) & 2 != 0
    }

    fn is_nd(&mut self, eth_type: u64, kinds: &[u64]) -> bool {
        eth_type == 0x86dd
            && self.is_transport(58)
            && self.read(FieldId::TpDst) == 0
            && kinds.contains(&self.read(FieldId::TpSrc))
    }

    #[inline(never)]
    fn output_reg(&mut self, source: &SubField, max_len: u16) {
        let port = self.read_sub(source);
        // Also a reserved port is named by its 16-bit number, whatever the version.
        match u16::try_from(port) {
            Ok(port) => {
                self.trace.detail(|| format!("output port is {port}"));
                self.output_action(OfPort(port), max_len);
            }
            Err(_) => self.trace.warn(|| format!("output port {port} is out of range")),
        }
    }

    /// A packet from a port has priority 0.
    fn set_queue(&mut self, queue: u32) {
        let is_fresh = self.key.get64(FieldId::RecircId) == 0 && self.written.get(FieldId::SkbPriority) == 0;
        if !is_fresh || self.key.get64(FieldId::SkbPriority) != u64::from(queue) {
            self.write_field(FieldId::SkbPriority, u128::from(queue));
        }
    }

    #[inline(never)]
    fn enqueue(&mut self, port: OfPort, queue: u32) {
        let place = FieldId::SkbPriority.place();
        let (b, w) = (place.block.into(), place.word.into());
        let before = (self.key.word(b, w), self.written.0.word(b, w));
        self.write_field(FieldId::SkbPriority, u128::from(queue));
        self.output_action(port, 0);
        self.restore_word(b, w, before);
    }

    #[inline(never)]
    fn move_bits(&mut self, source: &SubField, target: &SubField) {
        if self.prerequisites_hold(source.field) && self.prerequisites_hold(target.field) {
            if let (Mf::TunMetadata(from), Mf::TunMetadata(to)) = (source.field, target.field) {
                let value = self.read_option(from, source);
                self.write_option_bits(to, target, &value);
            } else {
                let value = self.read_sub(source);
                self.write_sub(target, value);
            }
        }
        // As in Open vSwitch, also if a header is missing and nothing changes.
        self.report_bits(target);
    }

    #[inline(never)]
    fn stack_pop(&mut self, target: &SubField) {
        match self.stack.pop() {
            Some(value) => {
                match target.field {
                    Mf::TunMetadata(idx) => self.write_option_bits(idx, target, &value),
                    _ => self.write_sub(target, value.low_u128()),
                }
                self.report_bits(target);
            }
            None => self.trace.error(|| "stack underflow".to_string()),
        }
    }

    #[inline(never)]
    fn stack_push(&mut self, source: &SubField) {
        let value = match source.field {
            Mf::TunMetadata(idx) => self.read_option(idx, source),
            _ => Wide::from(self.read_sub(source)),
        };
        let bytes = usize::from(source.count.div_ceil(8));
        if !self.stack.push(&value.to_be_bytes()[OPTION_BYTES_MAX - bytes..]) {
            self.trace.error(|| "resubmits yielded over 64 kB of stack".to_string());
            self.fail(DropReason::StackLimit, "Stack too deep");
        }
    }

    fn pop_queue(&mut self) {
        let place = FieldId::SkbPriority.place();
        let (b, w) = (usize::from(place.block), usize::from(place.word));
        if self.key.get64(FieldId::SkbPriority) != 0 {
            self.trace.detail(|| "queue = 0".to_string());
        }
        let others = !((FieldId::SkbPriority.ones() as u64) << place.shift);
        let before = (self.key.word(b, w) & others, self.written.0.word(b, w) & others);
        self.restore_word(b, w, before);
    }

    /// Restores a word's value and which of its bits the flow has set. Bits that were the packet's own are so
    /// again.
    pub(super) fn restore_word(&mut self, b: usize, w: usize, (value, written): (u64, u64)) {
        self.key.set_word(b, w, value);
        self.written.0.set_word(b, w, written);
        self.noted = None;
    }

    #[inline(never)]
    fn resubmit(&mut self, in_port: Option<OfPort>, table: Option<u8>, ct: bool) {
        if ct && !self.has_connection() {
            return self.trace.error(|| "resubmit(ct) with non-tracked or non-IP packet!".to_string());
        }
        self.by_connection = ct;
        let table = table.unwrap_or(self.origin.table_id);
        self.table_from(table, false, in_port.filter(|port| *port != OfPort::IN_PORT));
        self.by_connection = false;
    }

    /// Looks into a table as if the packet had come from another port, for this lookup only.
    #[inline(never)]
    pub(super) fn lookup_from(&mut self, port: OfPort, table_id: u8) -> Option<&'a Entry> {
        let place = FieldId::InPort.place();
        let (b, w) = (B_COMMON, usize::from(place.word));
        let (before, any_written) = ((self.key.word(b, w), self.written.0.word(b, w)), self.any_written);
        self.write_field(FieldId::InPort, u128::from(port.0));
        let found = self.lookup(table_id);
        self.restore_word(b, w, before);
        self.any_written = any_written;
        found
    }

    #[inline(never)]
    fn clone_action(&mut self, list: &'a [Action]) {
        if self.clones >= CLONES_NESTED_MAX {
            self.trace.error(|| format!("over {CLONES_NESTED_MAX} nested clones"));
            self.fail(DropReason::ResubmitDepth, "Recursion too deep");
            return;
        }
        // Each copies keys and stack.
        self.buckets += 1;
        self.out.steps += COPY_STEPS;
        if self.buckets > BUCKETS_MAX {
            self.trace.error(|| format!("over {BUCKETS_MAX} buckets and clones"));
            self.fail(DropReason::ResubmitLimit, "Too many resubmits");
            return;
        }
        self.clones += 1;
        // As in Open vSwitch, the copy has an action set of its own, which is executed at its end.
        let (set, stack) = (self.copied_action_set(), self.stack.clone());
        // An `exit` in the copy ends the pipeline of both.
        self.with_packet_restored(|x| {
            x.actions(list);
            x.finish_pipeline();
        });
        self.clones -= 1;
        self.stack = stack;
        self.action_set = set;
    }

    /// Reports the new value of some bits of the packet.
    pub(super) fn report_bits(&mut self, sub: &SubField) {
        let (key, options) = (&self.key, self.bridge.options());
        self.trace.detail(|| {
            let (value, bits) = match sub.field {
                Mf::TunMetadata(idx) => (options.read(key, idx), options.bits(idx)),
                field => (Wide::from(key.get_mf(field)), None),
            };
            subfield_value_text(*sub, &value, bits.unwrap_or(sub.field.row().bits.into()))
        });
    }

    pub(super) fn is_ip(&mut self) -> bool {
        matches!(self.read(FieldId::EthType), 0x0800 | 0x86dd)
    }

    /// `mod_tp_src` and `mod_tp_dst`: ports, or ICMP type and code, which OpenFlow 1.0 stores in the same
    /// fields. A packet with neither stays as it is.
    #[inline(never)]
    fn set_transport_port(&mut self, field: FieldId, port: u16) {
        let has_field = match self.read(FieldId::EthType) {
            0x0800 => matches!(self.read(FieldId::NwProto), 1 | 6 | 17 | 132),
            0x86dd => matches!(self.read(FieldId::NwProto), 6 | 17 | 58 | 132),
            _ => false,
        };
        if has_field && !self.is_later_fragment() {
            self.write_field(field, u128::from(port));
        }
    }

    /// Lowers the rule's timeouts if the packet ends a TCP connection. Such packets form separate flows,
    /// because the flags are in the mask; further packets of such a flow would only repeat the request.
    #[inline(never)]
    fn fin_timeout(&mut self, idle_s: u16, hard_s: u16) {
        const FIN_RST: u128 = 1 | 1 << 2;
        let is_tcp = matches!(self.read(FieldId::EthType), 0x0800 | 0x86dd)
            && self.read(FieldId::NwProto) == 6
            && !self.is_later_fragment();
        if !is_tcp {
            return;
        }
        self.need_mf(Mf::TcpFlags, FIN_RST);
        // Actions without a rule, as in a packet-out, have no timeouts.
        if self.key.get(FieldId::TcpFlags) & FIN_RST != 0
            && let Cookie::Of(rule) = self.origin.cookie
        {
            let Rule { bridge, table_id, idx, serial, .. } = *rule;
            let fin = FinTimeout { bridge, table_id, idx, serial, idle_s, hard_s };
            self.out.effects.push(Effect::FinTimeout(fin));
        }
    }

    pub(super) fn has_label(&mut self) -> bool {
        self.read(FieldId::EthType);
        matches!(self.key.get64(FieldId::EthType), 0x8847 | 0x8848)
    }

    #[inline(never)]
    fn set_label(&mut self, value: u64, bits: u64) {
        if self.has_label() {
            let p = FieldId::Mpls0.place();
            self.write(p.block.into(), p.word.into(), bits << p.shift, value << p.shift);
        }
    }

    /// `mod_vlan_vid` and `mod_vlan_pcp`: bits of the tag, which is added if there is none.
    #[inline(never)]
    fn set_vlan(&mut self, value: u64, bits: u64, push: bool) {
        let tci = self.read(FieldId::VlanTci);
        if tci & 0x1000 != 0 {
            self.write(B_COMMON, 2, bits, value & bits);
        } else if push {
            self.set_tci(0x1000 | value & bits, 0x1000 | bits);
        }
    }

    /// Sets bits of the whole tag word. With bit 0x1000 set, the tag becomes present; with it cleared, the
    /// tag is removed.
    fn set_tci(&mut self, value: u64, bits: u64) {
        let before = self.read(FieldId::VlanTci);
        let after = before & !bits | value & bits;
        match (before & 0x1000 != 0, after & 0x1000 != 0) {
            // Bits without a tag are those of a tag that may come.
            (true, true) | (false, false) => self.write(B_COMMON, 2, bits, value & bits),
            (false, true) => {
                self.vlan_moved = true;
                self.write_field(FieldId::VlanTci, u128::from(after));
                self.write_field(FieldId::VlanTpid, 0x8100);
            }
            (true, false) => self.pop_vlan(),
        }
    }

    #[inline(never)]
    pub(super) fn push_vlan(&mut self, tpid: u16) {
        let (outer, outer_tpid) = (self.read(FieldId::VlanTci), self.read(FieldId::VlanTpid));
        if outer & 0x1000 != 0 {
            let (inner, inner_tpid) = (self.read(FieldId::VlanTci2), self.read(FieldId::VlanTpid2));
            if inner & 0x1000 != 0 {
                if self.below.len() >= TAGS_BELOW_MAX {
                    self.trace.error(|| format!("over {} VLAN tags", TAGS_BELOW_MAX + 2));
                    self.fail(DropReason::TranslationError, "Too many VLAN tags");
                    return;
                }
                self.below.push((inner_tpid as u16, inner as u16));
            }
            self.write_field(FieldId::VlanTci2, u128::from(outer));
            self.write_field(FieldId::VlanTpid2, u128::from(outer_tpid));
        }
        self.write_field(FieldId::VlanTci, 0x1000);
        self.write_field(FieldId::VlanTpid, u128::from(tpid));
        self.vlan_moved = true;
    }

    #[inline(never)]
    pub(super) fn pop_vlan(&mut self) {
        if self.read(FieldId::VlanTci) & 0x1000 == 0 {
            return;
        }
        self.read(FieldId::VlanTpid);
        let (inner, inner_tpid) = (self.read(FieldId::VlanTci2), self.read(FieldId::VlanTpid2));
        self.write_field(FieldId::VlanTci, u128::from(inner));
        self.write_field(FieldId::VlanTpid, u128::from(inner_tpid));
        let (third_tpid, third) = self.below.pop().unwrap_or_default();
        self.write_field(FieldId::VlanTci2, u128::from(third));
        self.write_field(FieldId::VlanTpid2, u128::from(third_tpid));
        self.vlan_moved = true;
    }
}
