//! TTLs, and what happens to a packet whose TTL has expired.

use super::Xlate;
use crate::trace::Sink;
use base::DropReason;
use flow::action::PacketInReason;
use flow::{FieldId, Mf};

impl<S: Sink> Xlate<'_, S> {
    #[inline(never)]
    pub(super) fn set_ttl(&mut self, ttl: u8) {
        if self.is_ip() {
            self.read(FieldId::NwProto);
            self.write_field(FieldId::NwTtl, u128::from(ttl));
        }
    }

    #[inline(never)]
    pub(super) fn dec_ttl(&mut self, controllers: &[u16]) {
        if !self.is_ip() {
            return;
        }
        self.read(FieldId::NwProto);
        let ttl = self.read(FieldId::NwTtl);
        if ttl > 1 {
            return self.write_field(FieldId::NwTtl, u128::from(ttl - 1));
        }
        let of = if self.read(FieldId::EthType) == 0x0800 { "IPv4" } else { "IPv6" };
        self.ttl_expired(of, controllers);
    }

    fn ttl_expired(&mut self, of: &str, controllers: &[u16]) {
        self.drop_reason = DropReason::TtlExpired;
        self.trace.warn(|| format!("{of} decrement TTL exception"));
        for id in controllers {
            self.packet_in(u16::MAX, PacketInReason::InvalidTtl, *id, &[]);
        }
        self.list_ends = true;
    }

    /// A packet of another kind ends the list too, as in Open vSwitch.
    #[inline(never)]
    pub(super) fn dec_mpls_ttl(&mut self) {
        if !self.has_label() {
            self.list_ends = true;
            return self.trace.warn(|| "MPLS decrement TTL exception".to_string());
        }
        self.need_mf(Mf::MplsTtl, 0xff);
        let ttl = self.key.get_mf(Mf::MplsTtl);
        if ttl > 1 {
            return self.write_mf(Mf::MplsTtl, ttl - 1, 0xff);
        }
        self.ttl_expired("MPLS", &[0]);
    }

    /// A packet of another kind ends the list too, as in Open vSwitch.
    #[inline(never)]
    pub(super) fn dec_nsh_ttl(&mut self) {
        if self.read(FieldId::EthType) != 0x894f {
            self.list_ends = true;
            return self.trace.warn(|| "NSH decrement TTL exception".to_string());
        }
        let ttl = self.read(FieldId::NshTtl);
        if ttl > 1 {
            return self.write_field(FieldId::NshTtl, u128::from(ttl - 1));
        }
        self.ttl_expired("NSH", &[0]);
    }
}
