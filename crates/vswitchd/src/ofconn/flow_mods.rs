//! Flow-mods: converts the protocol's form to the switch's, and the switch's refusals to the standard's
//! errors.

use super::request::{Handled, Request};
use crate::ofproto::{LongKind, OfConn};
use crate::plane::SHORT_STEPS_MAX;
use crate::state::Vswitch;
use openflow::message::{FlowFlags, FlowMod as OfFlowMod, FlowModCommand};
use openflow::{ErrorKind, Version};
use std::sync::Arc;
use switch::control::{Change, Command, FlowMod, FlowModError, TABLE_HIDDEN};
use switch::{BridgeIdx, RuleFlags};
use transport::clock;

impl Vswitch {
    pub(super) fn flow_mod(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        fm: &mut OfFlowMod,
    ) -> Handled {
        self.counts.flow_mods += 1;
        let now_ms = self.plane.now_ms();
        let version = conn.version();
        if fm.command != FlowModCommand::Add || fm.buffer_id.is_some() || fm.table_id == TABLE_HIDDEN {
            self.check_flow_mod(bridge, version, fm)?;
        }
        let mut change = convert(fm, version);
        // OpenFlow 1.0 and 1.1 have no flag for it: what is added begins at 0. Section 4.6.
        change.flags.reset_counts |= version <= Version::V11 && change.command == Command::Add;
        self.plane.note_use(bridge, 1);
        let steps = self.plane.control.steps_of(bridge, Change::Flow(&change));
        if steps > SHORT_STEPS_MAX {
            return self.change_table(bridge, conn, request, LongKind::FlowMod(Arc::new(change)), steps);
        }
        self.plane.control.flow_mod(bridge, &change, now_ms).map_err(|e| refusal(&e))?;
        self.plane.dp.reserve_slots(self.plane.control.slot_count());
        self.hasten_finals();
        conn.flow_mods.made(change.command.into(), clock::now());
        self.report_rules(Some((conn, request.xid)));
        self.tell_vacancy(bridge);
        Ok(())
    }

    /// Whether a flow-mod could be made in any state of the tables. An addition that is made at once need not
    /// be asked: its actions are looked at then.
    pub(super) fn check_flow_mod(&self, bridge: BridgeIdx, version: Version, fm: &OfFlowMod) -> Handled {
        let control = &self.plane.control;
        control
            .check_consistency(bridge, version, &fm.matching, &fm.actions, fm.table_id)
            .map_err(|e| refusal(&e))?;
        if fm.table_id == TABLE_HIDDEN {
            return Err(ErrorKind::OFPBRC_EPERM);
        }
        // No packet is ever buffered, and a rule for a packet that does not exist is not wanted.
        if fm.buffer_id.is_some() { Err(ErrorKind::OFPBRC_BUFFER_UNKNOWN) } else { Ok(()) }
    }
}

pub(super) fn command(wire: FlowModCommand) -> Command {
    match wire {
        FlowModCommand::Add => Command::Add,
        FlowModCommand::Modify => Command::Modify,
        FlowModCommand::ModifyStrict => Command::ModifyStrict,
        FlowModCommand::Delete => Command::Delete,
        FlowModCommand::DeleteStrict => Command::DeleteStrict,
    }
}

/// The same flow-mod for the switch, which takes its actions.
pub(super) fn convert(fm: &mut OfFlowMod, version: Version) -> FlowMod {
    FlowMod {
        command: command(fm.command),
        table_id: fm.table_id,
        priority: i32::from(fm.priority),
        matching: fm.matching.clone(),
        cookie: fm.cookie,
        cookie_mask: fm.cookie_mask,
        new_cookie: fm.new_cookie,
        idle_timeout_s: fm.idle_timeout,
        hard_timeout_s: fm.hard_timeout,
        importance: fm.importance,
        // Others than deletes may name one, which filters nothing.
        out_port: fm.out_port.filter(|_| fm.command.is_delete()),
        out_group: fm.out_group,
        flags: RuleFlags {
            send_flow_removed: fm.flags.contains(FlowFlags::SEND_FLOW_REM),
            check_overlap: fm.flags.contains(FlowFlags::CHECK_OVERLAP),
            reset_counts: fm.flags.contains(FlowFlags::RESET_COUNTS),
            no_packet_counts: fm.flags.contains(FlowFlags::NO_PACKET_COUNTS),
            no_byte_counts: fm.flags.contains(FlowFlags::NO_BYTE_COUNTS),
            hidden: false,
            learned: false,
        },
        actions: std::mem::take(&mut fm.actions),
        version,
    }
}

/// A rule's flags as the protocol says them.
pub(super) fn flags(flags: &RuleFlags) -> FlowFlags {
    let bits = [
        (flags.send_flow_removed, FlowFlags::SEND_FLOW_REM),
        (flags.check_overlap, FlowFlags::CHECK_OVERLAP),
        (flags.reset_counts, FlowFlags::RESET_COUNTS),
        (flags.no_packet_counts, FlowFlags::NO_PACKET_COUNTS),
        (flags.no_byte_counts, FlowFlags::NO_BYTE_COUNTS),
    ];
    bits.iter().filter(|(set, _)| *set).map(|(_, bit)| *bit).collect()
}

/// The standard's name for a refusal.
pub(super) fn refusal(error: &FlowModError) -> ErrorKind {
    match error {
        FlowModError::NoBridge(_) => ErrorKind::OFPFMFC_UNKNOWN,
        FlowModError::TableFull => ErrorKind::OFPFMFC_TABLE_FULL,
        FlowModError::BadTableId(TABLE_HIDDEN) | FlowModError::HiddenField => ErrorKind::OFPBRC_EPERM,
        FlowModError::BadTableId(_) => ErrorKind::OFPFMFC_BAD_TABLE_ID,
        FlowModError::Overlap => ErrorKind::OFPFMFC_OVERLAP,
        FlowModError::BadOutPort(_) => ErrorKind::OFPBAC_BAD_OUT_PORT,
        FlowModError::BadOutGroup(_) => ErrorKind::OFPBAC_BAD_OUT_GROUP,
        FlowModError::BadMeter(_) => ErrorKind::OFPMMFC_INVALID_METER,
        FlowModError::BadArgument(_) => ErrorKind::OFPBAC_BAD_ARGUMENT,
        FlowModError::BadSetType(_) => ErrorKind::OFPBAC_BAD_SET_TYPE,
        FlowModError::Actions(kind) | FlowModError::Refused(kind) => *kind,
        FlowModError::BadGoto(_) => ErrorKind::OFPBIC_BAD_TABLE_ID,
        FlowModError::UnmappedOption => ErrorKind::NXFMFC_INVALID_TLV_FIELD,
        FlowModError::LongMatch => ErrorKind::OFPBMC_BAD_LEN,
        FlowModError::LongSet => ErrorKind::OFPBAC_BAD_SET_LEN,
        FlowModError::Unsupported(_) => ErrorKind::OFPBAC_BAD_TYPE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_survive_the_way_to_the_switch_and_back() {
        let all = FlowFlags::all();
        let mut fm = OfFlowMod { flags: all, ..OfFlowMod::add() };
        assert_eq!(flags(&convert(&mut fm, Version::V13).flags), all);
        let mut one = OfFlowMod { flags: FlowFlags::NO_BYTE_COUNTS, ..OfFlowMod::add() };
        assert_eq!(flags(&convert(&mut one, Version::V13).flags), FlowFlags::NO_BYTE_COUNTS);
    }
}
