//! The table of tunnel options: NXT_TLV_TABLE_MOD and NXT_TLV_TABLE_REQUEST.

use super::request::Handled;
use crate::plane::ForwardingPlane;
use flow::options::{Mapping, MappingError, OPTION_SPACE_BYTES, OPTIONS_MAX};
use openflow::ErrorKind;
use openflow::message::{TlvMap, TlvTable, TlvTableCommand, TlvTableMod};
use switch::BridgeIdx;
use switch::control::OptionError;

impl ForwardingPlane {
    pub(super) fn tlv_table(&self, bridge: BridgeIdx) -> TlvTable {
        let mappings = self.control.options(bridge).into_iter().flat_map(|table| table.mappings());
        let maps = mappings.map(|m| TlvMap {
            option_class: m.class,
            option_type: m.kind,
            option_len: m.bytes,
            index: m.idx.into(),
        });
        TlvTable {
            max_option_space: OPTION_SPACE_BYTES as u32,
            max_fields: OPTIONS_MAX as u16,
            maps: maps.collect(),
        }
    }

    pub(super) fn tlv_table_mod(&mut self, bridge: BridgeIdx, change: &TlvTableMod) -> Handled {
        let rows: Vec<Mapping> = change.maps.iter().map(mapping).collect();
        let gone: Vec<u8> = rows.iter().map(|m| m.idx).collect();
        let result = match change.command {
            TlvTableCommand::Add => self.control.map_options(bridge, &rows),
            // Selected by field alone, as in Open vSwitch.
            TlvTableCommand::Delete => self.control.unmap_options(bridge, Some(&gone)),
            TlvTableCommand::Clear => self.control.unmap_options(bridge, None),
        };
        result.map_err(|error| match error {
            OptionError::NoBridge(_) => ErrorKind::OFPBRC_EPERM,
            OptionError::Row(MappingError::Length) => ErrorKind::NXTTMFC_BAD_OPT_LEN,
            OptionError::Row(MappingError::Field) => ErrorKind::NXTTMFC_BAD_FIELD_IDX,
            OptionError::Row(MappingError::Full) => ErrorKind::NXTTMFC_TABLE_FULL,
            OptionError::Row(MappingError::Mapped) => ErrorKind::NXTTMFC_ALREADY_MAPPED,
            OptionError::Row(MappingError::Duplicate) => ErrorKind::NXTTMFC_DUP_ENTRY,
            OptionError::InUse(_) => ErrorKind::NXTTMFC_INVALID_TLV_DEL,
        })
    }
}

fn mapping(map: &TlvMap) -> Mapping {
    Mapping {
        class: map.option_class,
        kind: map.option_type,
        bytes: map.option_len,
        // The codec has refused greater ones.
        idx: map.index.min(u8::MAX.into()) as u8,
    }
}
