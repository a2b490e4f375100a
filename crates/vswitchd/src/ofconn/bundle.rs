//! Bundles: flow-mods that are collected and then take effect as one version, or not at all.
//!
//! One that nobody touches for `bundle-idle-timeout` seconds is forgotten, and who opened it is told.
//!
//! Source: OpenFlow 1.4 section 7.3.9, and its extension to 1.3 (EXT-230); ovs-vswitchd.conf.db(5).

use super::flow_mods::{convert, refusal};
use super::{Handled, OfConn, Request};
use crate::clock;
use crate::state::Vswitch;
use openflow::connection::RequestHead;
use openflow::message::{BundleAdd, BundleControl, BundleControlType, BundleFlags, Message};
use openflow::{ErrorKind, OfError};
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use switch::control::FlowMod;

/// Bundles of one connection.
const BUNDLES_MAX: usize = 16;
/// Seconds for which one may lie idle, unless `bundle-idle-timeout` says otherwise.
const IDLE_DEFAULT_S: u32 = 10;
/// Messages in one.
const MESSAGES_MAX: usize = 4_000_000;

pub(super) struct Bundle {
    flags: BundleFlags,
    closed: bool,
    changes: Vec<Change>,
    /// The request that opened it, for the error when it expires.
    opened_by: (u32, RequestHead),
    expires: Instant,
}

impl OfConn {
    /// When the first of its bundles is forgotten.
    pub(super) fn next_bundle_expiry(&self) -> Option<Instant> {
        self.bundles.values().map(|bundle| bundle.expires).min()
    }

    /// Forgets those that are idle for too long.
    pub(super) fn expire_bundles(&mut self, now: Instant) {
        let expired: Vec<u32> =
            self.bundles.iter().filter(|(_, bundle)| bundle.expires <= now).map(|(id, _)| *id).collect();
        for id in expired {
            let Some(Bundle { opened_by: (xid, head), .. }) = self.bundles.remove(&id) else { continue };
            self.connection.reply_error(xid, &head, ErrorKind::OFPBFC_TIMEOUT);
            self.notify.notify_one();
        }
    }
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
                let bundle = self.new_bundle(control.flags, request);
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
                bundle.expires = self.bundle_expires();
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
            let reply = BundleControl { kind, flags: BundleFlags::empty(), ..control };
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

    fn new_bundle(&self, flags: BundleFlags, request: &Request<'_>) -> Bundle {
        let opened_by = (request.xid, *request.head);
        Bundle { flags, closed: false, changes: Vec::new(), opened_by, expires: self.bundle_expires() }
    }

    /// When a bundle that is touched now is forgotten.
    fn bundle_expires(&self) -> Instant {
        let idle = self.settings.bundle_idle_s.unwrap_or(IDLE_DEFAULT_S);
        clock::now() + Duration::from_secs(idle.into())
    }

    pub(super) fn bundle_add(&mut self, conn: &mut OfConn, request: &Request<'_>, add: BundleAdd) -> Handled {
        let version = conn.version();
        // A message for a bundle that was not opened opens it.
        if !conn.bundles.contains_key(&add.bundle_id) && conn.bundles.len() >= BUNDLES_MAX {
            return Err(ErrorKind::OFPBFC_OUT_OF_BUNDLES);
        }
        let expires = self.bundle_expires();
        let bundle = conn.bundles.entry(add.bundle_id).or_insert_with(|| self.new_bundle(add.flags, request));
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
        let flow_mod = convert(fm, version);
        bundle.expires = expires;
        bundle.changes.push(Change { xid: add.xid, flow_mod, bytes: add.bytes.into_boxed_slice() });
        Ok(())
    }
}
