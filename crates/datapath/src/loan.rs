//! The outputs of a burst whose packets' tails are lent.
//!
//! No packet of the burst may be seen before the sender has its buffers back. So outputs are noted here: for
//! at most [`LENT_PORTS_MAX`] ports that copy tails straight from the sender's memory, and as whole packets
//! for a few others. Meanwhile actions that change headers are executed on the packets' private heads. Then
//! all ports copy, the sender gets its buffers back, and what was noted here is sent.
//!
//! Packets of one flow keep their order. Whether a list's packets come here depends on the ports, which are
//! bound for the whole burst, and on room, which is not requested again once a list has been refused.

use crate::action::DpAction;
use crate::context::Context;
use crate::run::Ends;
use crate::transmission::{Bound, LENT_PORTS_MAX, Transmission};
use arrayvec::ArrayVec;
use base::{DropReason, PortNo};
use packet::batch::Runs;
use packet::{BURST, Batch, Lent, Packet};

/// Maximum number of whole packets for other ports.
const WHOLE_MAX: usize = 2 * BURST;
/// Maximum number of actions examined in a list.
const ACTIONS_MAX: usize = 32;

/// What waits for the sender to get its buffers back; empty between bursts.
pub struct Loan {
    /// Bound: [`Loan::bind`] refuses when it is full. A batch in it gets each packet of the burst at most
    /// once, since [`Loan::may_take`] refuses lists that send to a port twice.
    bound: ArrayVec<Bound, LENT_PORTS_MAX>,
    /// Bound: [`Loan::may_take`] counts what a list would add before any of its packets is executed.
    whole: ArrayVec<(PortNo, Packet), WHOLE_MAX>,
    is_closed: bool,
}

impl Loan {
    pub fn new() -> Loan {
        Loan { bound: ArrayVec::new(), whole: ArrayVec::new(), is_closed: false }
    }

    /// The slot for packets to a port, if the port copies lent tails directly.
    pub fn bind(&mut self, port: PortNo, tx: &Transmission) -> Option<&mut Batch> {
        let place = self.bound.iter().position(|bound| bound.port == port);
        if place.is_none() {
            if self.bound.is_full() || !tx.takes_lent(port) {
                return None;
            }
            self.bound.push(Bound { port, batch: Batch::new() });
        }
        let n = place.unwrap_or(self.bound.len() - 1);
        Some(&mut self.bound[n].batch)
    }

    /// Whether `count` packets can take this list while their tails are lent: it only changes headers and
    /// sends, to no port twice, and to at least one port that copies directly.
    pub fn may_take(&mut self, actions: &[DpAction], count: usize, tx: &Transmission) -> bool {
        if self.is_closed || actions.len() > ACTIONS_MAX {
            return false;
        }
        let (mut straight, mut whole) = (0, 0);
        for (n, action) in actions.iter().enumerate() {
            match action {
                DpAction::Output(_) if actions[..n].contains(action) => return false,
                DpAction::Output(port) if self.bind(*port, tx).is_some() => straight += 1,
                DpAction::Output(_) => whole += count,
                DpAction::Drop(_) => {}
                other if other.is_edit() => {}
                _ => return false,
            }
        }
        self.is_closed |= straight > 0 && whole > self.whole.remaining_capacity();
        straight > 0 && !self.is_closed
    }

    /// Sends everything, and settles `lent`.
    pub fn leave(&mut self, context: &mut Context, tx: &mut Transmission, lent: &mut Lent<'_>) {
        self.bound.retain(|bound| !bound.batch.is_empty());
        tx.send_lent(context, &mut self.bound, lent);
        self.bound.clear();
        for (port, packet) in self.whole.drain(..) {
            tx.send(context, port, packet);
        }
        self.is_closed = false;
    }
}

/// The ends for packets of a list that may be taken.
pub struct Lending<'a, 'b> {
    pub context: &'a mut Context,
    pub tx: &'a mut Transmission,
    pub lent: &'a mut Lent<'b>,
    pub loan: &'a mut Loan,
}

impl Ends for Lending<'_, '_> {
    fn context(&mut self) -> &mut Context {
        self.context
    }

    fn send(&mut self, port: PortNo, packets: &mut Batch) {
        if let Some(batch) = self.loan.bind(port, self.tx) {
            let count = packets.len();
            return Runs::new(packets).move_to(count, batch);
        }
        for mut packet in packets.drain(..) {
            if self.make_whole(&mut packet) {
                self.loan.whole.push((port, packet));
            } else {
                self.context.drop(packet, DropReason::PoolExhausted);
            }
        }
    }

    fn make_whole(&mut self, packet: &mut Packet) -> bool {
        self.lent.fetch(packet, &mut self.context.cache)
    }
}
