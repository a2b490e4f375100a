//! Several changes as one version: of rules, of groups, and packets that go through the tables between them.
//!
//! Each is put in place invisibly for the coming version. If one fails, all before it are taken back, which
//! nobody has seen.

use super::flow_mod::{Batch, FlowMod, FlowModError};
use super::{Control, Inner, validate};
use crate::switch::Effect;
use crate::topology::BridgeIdx;
use base::rcu::Reader;
use datapath::Translation;
use flow::{Action, Key, Match};
use openflow::Version;
use openflow::message::GroupMod;

/// One change of a bridge's tables.
#[derive(Clone, Copy, Debug)]
pub enum Change<'m> {
    /// Of rules.
    Flow(&'m FlowMod),
    /// Of groups.
    Group(&'m GroupMod),
    /// None: a packet that goes through the tables as the changes before it have left them.
    Packet(PacketOut<'m>),
}

/// What holds a change, or makes one from less memory when its turn comes.
pub trait AsChange {
    /// The change.
    fn as_change(&self) -> Change<'_>;
}

impl AsChange for Change<'_> {
    fn as_change(&self) -> Change<'_> {
        *self
    }
}

/// A packet that a controller sends, with its actions.
#[derive(Clone, Copy, Debug)]
pub struct PacketOut<'m> {
    /// The packet, and the input port's numbers.
    pub key: &'m Key,
    /// What to do with it.
    pub actions: &'m [Action],
    /// As which version of the protocol has them.
    pub version: Version,
}

impl Control {
    /// Whether a controller might send a packet with these actions.
    pub fn check_packet_out(&self, bridge: BridgeIdx, out: PacketOut<'_>) -> Result<(), FlowModError> {
        self.inner.check_packet_out(bridge, out)
    }

    /// Several changes of any kind, likewise. What is to become of the packets among them, in order.
    pub fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
    ) -> Result<Vec<Translation<Effect>>, (usize, FlowModError)> {
        self.reader.quiescent();
        self.inner.change_all(all, now_ms, &self.reader)
    }
}

impl Inner {
    pub(super) fn change_all(
        &mut self,
        all: impl IntoIterator<Item = (BridgeIdx, impl AsChange)>,
        now_ms: u64,
        reader: &Reader,
    ) -> Result<Vec<Translation<Effect>>, (usize, FlowModError)> {
        let mut batch = Batch::default();
        let mut packets = Vec::new();
        for (i, (bridge, change)) in all.into_iter().enumerate() {
            let changed = match change.as_change() {
                Change::Flow(fm) => self.change(bridge, fm, now_ms, &mut batch, reader),
                Change::Group(gm) => self.change_group(bridge, gm, now_ms, &mut batch, reader),
                Change::Packet(out) => self.translate_between(bridge, out, reader).map(|t| packets.push(t)),
            };
            if let Err(error) = changed {
                self.take_back(batch, reader);
                return Err((i, error));
            }
        }
        self.remove_orphans(&mut batch, reader);
        self.put_in_force(batch, now_ms);
        Ok(packets)
    }

    /// Translates a packet as of the coming version, which has the changes of the batch so far.
    fn check_packet_out(&self, bridge: BridgeIdx, out: PacketOut<'_>) -> Result<(), FlowModError> {
        let PacketOut { key, actions, version } = out;
        let packet = Match { key: key.clone(), ..Match::any() };
        validate::check(version, &packet, actions, 0, self.known(bridge))
    }

    fn translate_between(
        &self,
        bridge: BridgeIdx,
        out: PacketOut<'_>,
        reader: &Reader,
    ) -> Result<Translation<Effect>, FlowModError> {
        if self.bridges.get(bridge.0 as usize).is_none_or(Option::is_none) {
            return Err(FlowModError::NoBridge(bridge));
        }
        self.check_packet_out(bridge, out)?;
        let PacketOut { key, actions, .. } = out;
        let mut translation = Translation::default();
        self.switch.translate_packet_out(self.coming(), key, bridge, actions, reader, &mut translation);
        Ok(translation)
    }
}
