//! Bundles: flow-mods that are collected and then take effect as one version, or not at all.
//!
//! Source: OpenFlow 1.4 section 7.3.9, and its extension to 1.3 (EXT-230).

use super::flow_mods::{convert, refusal};
use super::{Handled, OfConn, Request};
use crate::state::Vswitch;
use openflow::message::{BundleAdd, BundleControl, BundleControlType, BundleFlags, Message};
use openflow::{ErrorKind, OfError};
use switch::BridgeIdx;
use switch::control::FlowMod;

/// Bundles of one connection.
const BUNDLES_MAX: usize = 16;
/// Messages in one.
const MESSAGES_MAX: usize = 4_000_000;

pub(super) struct Bundle {
    flags: BundleFlags,
    closed: bool,
    changes: Vec<Change>,
}

struct Change {
    xid: u32,
    flow_mod: FlowMod,
    /// All of the message, for the error in answer to it.
    bytes: Box<[u8]>,
}

impl Vswitch {
    pub(super) fn bundle_control(
        &mut self,
        bridge: BridgeIdx,
        conn: &mut OfConn,
        request: &Request<'_>,
        control: BundleControl,
    ) -> Handled {
        let id = control.bundle_id;
        match control.kind {
            BundleControlType::OpenRequest => {
                if conn.bundles.contains_key(&id) {
                    conn.bundles.remove(&id);
                    return Err(ErrorKind::OFPBFC_BUNDLE_EXIST);
                }
                if conn.bundles.len() >= BUNDLES_MAX {
                    return Err(ErrorKind::OFPBFC_OUT_OF_BUNDLES);
                }
                let bundle = Bundle { flags: control.flags, closed: false, changes: Vec::new() };
                conn.bundles.insert(id, bundle);
            }
            BundleControlType::CloseRequest => {
                let bundle = conn.bundles.get_mut(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
                if bundle.closed {
                    conn.bundles.remove(&id);
                    return Err(ErrorKind::OFPBFC_BUNDLE_CLOSED);
                }
                if bundle.flags != control.flags {
                    conn.bundles.remove(&id);
                    return Err(ErrorKind::OFPBFC_BAD_FLAGS);
                }
                bundle.closed = true;
            }
            BundleControlType::CommitRequest => {
                let bundle = conn.bundles.remove(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
                if bundle.flags != control.flags {
                    return Err(ErrorKind::OFPBFC_BAD_FLAGS);
                }
                self.commit(bridge, conn, &bundle)?;
            }
            BundleControlType::DiscardRequest => {
                conn.bundles.remove(&id).ok_or(ErrorKind::OFPBFC_BAD_ID)?;
            }
            _ => return Err(ErrorKind::OFPBFC_BAD_TYPE),
        }
        if let Some(kind) = control.kind.reply() {
            let reply = BundleControl { kind, ..control };
            conn.send(request.xid, &Message::BundleControl(reply));
        }
        Ok(())
    }

    fn commit(&mut self, bridge: BridgeIdx, conn: &mut OfConn, bundle: &Bundle) -> Handled {
        let now_ms = self.now_ms();
        self.counts.flow_mods += bundle.changes.len() as u64;
        // Before: the workers see all of them at once.
        self.dp.reserve_slots(self.control.slot_count() + bundle.changes.len() as u32);
        let all = bundle.changes.iter().map(|c| (bridge, &c.flow_mod));
        let result = self.control.flow_mods(all, now_ms);
        self.dp.reserve_slots(self.control.slot_count());
        if let Some(first) = bundle.changes.first() {
            self.report_rules(Some((conn, first.xid)));
        }
        result.map_err(|(at, error)| {
            let change = &bundle.changes[at];
            let code = openflow::error::ErrorCode::Known(refusal(&error));
            let error = OfError { code, data: change.bytes.to_vec() };
            conn.send(change.xid, &Message::Error(error));
            ErrorKind::OFPBFC_MSG_FAILED
        })
    }

    pub(super) fn bundle_add(&mut self, conn: &mut OfConn, add: BundleAdd) -> Handled {
        // A message for a bundle that was not opened opens it.
        if !conn.bundles.contains_key(&add.bundle_id) && conn.bundles.len() >= BUNDLES_MAX {
            return Err(ErrorKind::OFPBFC_OUT_OF_BUNDLES);
        }
        let fresh = Bundle { flags: add.flags, closed: false, changes: Vec::new() };
        let bundle = conn.bundles.entry(add.bundle_id).or_insert(fresh);
        if bundle.closed {
            return Err(ErrorKind::OFPBFC_BUNDLE_CLOSED);
        }
        if bundle.flags != add.flags {
            return Err(ErrorKind::OFPBFC_BAD_FLAGS);
        }
        if bundle.changes.len() >= MESSAGES_MAX {
            return Err(ErrorKind::OFPBFC_MSG_TOO_MANY);
        }
        let Message::FlowMod(fm) = &*add.message else { return Err(ErrorKind::OFPBFC_MSG_UNSUP) };
        let flow_mod = convert(fm);
        bundle.changes.push(Change { xid: add.xid, flow_mod, bytes: add.bytes.into_boxed_slice() });
        Ok(())
    }
}
