//! What the control thread asks of a worker, what the worker answers, and how it executes commands between
//! two bursts.

use super::{Rx, Worker};
use crate::cache::DumpedFlow;
use crate::conntrack::{Tracking, tuple::Tuple};
use crate::input::Input;
use crate::pipeline::Pipeline;
use crate::rounds::FLUSHED_AT_ONCE;
use crate::stats::{PortCounters, QueueLoad};
use crate::transmission::TxHandle;
use base::clock::tsc;
use base::{DropReason, PortNo};
use packet::{BURST, Packet, RxQueue};
use std::sync::Arc;

/// What the control thread asks of a worker.
pub enum Command {
    /// Poll this queue.
    AddRx {
        /// The port.
        input: Box<Input>,
        /// Its number within the port.
        idx: usize,
        /// The queue.
        queue: Box<dyn RxQueue>,
        /// Where to count what it costs.
        load: Arc<QueueLoad>,
    },
    /// Give up one receive queue so that another worker can poll it; the answer is [`Reply::ReleasedRx`].
    ReleaseRx {
        /// The port.
        port: PortNo,
        /// Its number within the port.
        idx: usize,
        /// The command's ticket, which the answer carries; likewise below.
        ticket: u64,
    },
    /// Use this to send to the port.
    AddTx {
        /// Which port.
        port: PortNo,
        /// The handle.
        handle: TxHandle,
        /// Where to count.
        counters: Arc<PortCounters>,
    },
    /// Give up all queues of the port; the answer is [`Reply::Removed`].
    RemovePort {
        /// Which port.
        port: PortNo,
        /// See above.
        ticket: u64,
    },
    /// Give up all queues unclosed, so that other workers can use them; the answer is [`Reply::Released`].
    Release {
        /// All existing ports.
        ports: Vec<PortNo>,
        /// See above.
        ticket: u64,
    },
    /// Execute actions on a packet from the control thread.
    Execute {
        /// The port at which it supposedly came in.
        input: Box<Input>,
        /// The packet, allocated by the control thread from the same pool.
        packet: Packet,
        /// How often it has been recirculated.
        recirc_depth: u8,
        /// The connection tracker's result for it.
        tracked: Option<(Tracking, Tuple)>,
        /// What to do.
        actions: Vec<crate::DpAction>,
    },
    /// Write megaflows into `out`, up to its capacity; the answer is [`Reply::Dump`].
    Dump {
        /// See above.
        ticket: u64,
        /// Where to continue.
        from: u32,
        /// With capacity reserved.
        out: Vec<DumpedFlow>,
    },
    /// Forget all flows that are cached now: those of a small cache at once, and more in steps beside
    /// packets.
    Flush,
    /// End the thread.
    Stop,
}

/// A worker's queues for a port.
pub struct PortQueues {
    /// Which port.
    pub port: PortNo,
    /// Receive queues with their numbers within the port.
    pub rx: Vec<(usize, Box<dyn RxQueue>)>,
    /// Transmit queue.
    pub tx: Option<TxHandle>,
}

/// What a worker answers.
pub enum Reply {
    /// The port's queues, closed, to be dropped by the control thread.
    Removed {
        /// The command's ticket; likewise below.
        ticket: u64,
        /// Receive queues.
        rx: Vec<Box<dyn RxQueue>>,
        /// Transmit queue.
        tx: Option<TxHandle>,
    },
    /// All queues, open.
    Released {
        /// See above.
        ticket: u64,
        /// Port by port.
        queues: Vec<PortQueues>,
    },
    /// One receive queue, open.
    ReleasedRx {
        /// See above.
        ticket: u64,
        /// `None` if this worker does not have it.
        queue: Option<Box<dyn RxQueue>>,
    },
    /// Flows, and where to continue.
    Dump {
        /// See above.
        ticket: u64,
        /// The flows.
        flows: Vec<DumpedFlow>,
        /// `None` at the end.
        next: Option<u32>,
    },
    /// The port's device is gone.
    Gone(PortNo),
    /// A used command's memory, to be freed off the packet path.
    Spent(Box<Input>, Vec<crate::DpAction>),
}

/// Places in the ring of replies for what workers tell without having been asked: that ports are gone.
pub const TOLD_UNASKED: usize = 256;
/// Most commands that wait for an answer which must not be lost.
pub const ANSWERS_AWAITED: usize = 1024;
/// Places that other answers leave to those.
const REPLIES_KEPT_FREE: usize = TOLD_UNASKED + ANSWERS_AWAITED;

/// Most packets of the control thread that a pass executes actions on.
const PACKETS_PER_PASS: usize = BURST;
/// No more are begun after this time: the actions of one may be as long as those of a burst.
const PACKETS_US: u64 = 50;

impl Command {
    /// Whether a [`Reply`] follows that must not be lost.
    pub fn is_answered(&self) -> bool {
        match self {
            Command::AddRx { .. }
            | Command::AddTx { .. }
            | Command::Execute { .. }
            | Command::Flush
            | Command::Stop => false,
            Command::ReleaseRx { .. }
            | Command::RemovePort { .. }
            | Command::Release { .. }
            | Command::Dump { .. } => true,
        }
    }
}

impl<P: Pipeline> Worker<P> {
    /// Executes waiting commands; packets of the control thread only as long as this pass has time for them.
    /// False if one says to stop.
    pub(super) fn obey(&mut self) -> bool {
        if self.commands.is_empty() {
            return true;
        }
        let start = tsc();
        let is_too_early = self.was_busy && start < self.next_execution && !self.owes_answer();
        let mut packets_left = if is_too_early { 0 } else { PACKETS_PER_PASS };
        // What was sent behind a packet that has to wait waits too, so that commands keep their order.
        while self.commands.peek().is_ok_and(|c| packets_left > 0 || !matches!(c, Command::Execute { .. }))
            && let Ok(command) = self.commands.pop()
        {
            match command {
                Command::AddRx { input, idx, queue, load } => self.add_rx(input, idx, queue, load),
                Command::ReleaseRx { port, idx, ticket } => self.release_rx(port, idx, ticket),
                Command::AddTx { port, handle, counters } => {
                    self.process.context.counters.insert(port, counters.clone());
                    self.process.tx.add_port(port, handle, counters);
                }
                Command::RemovePort { port, ticket } => self.remove_port(port, ticket),
                Command::Release { ports, ticket } => self.release(&ports, ticket),
                Command::Execute { mut input, packet, recirc_depth, tracked, actions } => {
                    input.idx = self.process.cache.input_of(input.port);
                    let chunks = packet.segments().count() as u64;
                    self.process.execute_now(&mut input, (packet, recirc_depth), tracked, &actions);
                    self.shared.executed.add(chunks);
                    self.answer(Reply::Spent(input, actions));
                    let (end, most) = (tsc(), self.clock.ticks_per_ms * PACKETS_US / 1000);
                    packets_left = if end - start < most { packets_left - 1 } else { 0 };
                    self.next_execution = end + (end - start);
                }
                Command::Dump { ticket, from, mut out } => {
                    let next = self.process.cache.dump(from, out.capacity(), &mut out);
                    self.answer(Reply::Dump { ticket, flows: out, next });
                }
                Command::Flush => {
                    self.process.cache.begin_flush();
                    self.process.cache.flush_some(FLUSHED_AT_ONCE);
                }
                Command::Stop => return false,
            }
        }
        true
    }

    /// Whether the control thread waits for the answer to a command behind packets.
    fn owes_answer(&mut self) -> bool {
        let sent = self.commands.slots();
        self.commands.read_chunk(sent).is_ok_and(|sent| {
            let (first, second) = sent.as_slices();
            first.iter().chain(second).any(Command::is_answered)
        })
    }

    /// Drops the packets of commands that are left when the worker ends.
    pub(super) fn drop_commands(&mut self) {
        while let Ok(command) = self.commands.pop() {
            if let Command::Execute { packet, .. } = command {
                self.stats().rx.add(1);
                self.process.context.drop_late(packet, DropReason::WorkerStopped);
            }
        }
    }

    /// A command is sent when there is a place for its answer, so none is lost. What is only spent does not
    /// take those places: if the control thread does not keep up, its memory is freed here.
    pub(super) fn answer(&mut self, reply: Reply) {
        let is_spent = matches!(reply, Reply::Spent(..));
        if !is_spent || self.replies.slots() > REPLIES_KEPT_FREE {
            let _ = self.replies.push(reply);
        }
        if !is_spent {
            self.process.event_bell.ring();
        }
    }

    fn add_rx(&mut self, mut input: Box<Input>, idx: usize, queue: Box<dyn RxQueue>, load: Arc<QueueLoad>) {
        input.idx = self.process.cache.input_of(input.port);
        if let Some(fd) = queue.wait_fd() {
            // A descriptor that epoll refuses is polled as if there were none.
            let _ = self.waiter.add(fd);
        }
        self.schedule.add(queue.lends());
        self.rx.push(Rx { input, idx, queue, load, in_pass: 0 });
        // A pass allocates nothing.
        self.brought.reserve(self.rx.len());
    }

    fn remove_port(&mut self, port: PortNo, ticket: u64) {
        let mut rx: Vec<_> = self.take_rx(port).into_iter().map(|(_, queue)| queue).collect();
        rx.iter_mut().for_each(|q| q.close(&mut self.process.context.cache));
        let tx = self.process.tx.remove_port(&mut self.process.context, port);
        self.process.context.counters.remove(port);
        self.answer(Reply::Removed { ticket, rx, tx });
    }

    fn release(&mut self, ports: &[PortNo], ticket: u64) {
        // What was received has been sent before any output is given up, and nothing more comes in.
        let queues = ports.iter().map(|&port| {
            let mut rx = self.take_rx(port);
            rx.iter_mut().for_each(|(_, q)| q.disarm());
            PortQueues { port, rx, tx: None }
        });
        let mut queues: Vec<PortQueues> = queues.collect();
        for PortQueues { port, tx, .. } in &mut queues {
            *tx = self.process.tx.release_port(&mut self.process.context, *port);
            self.process.context.counters.remove(*port);
        }
        self.answer(Reply::Released { ticket, queues });
    }

    fn release_rx(&mut self, port: PortNo, idx: usize, ticket: u64) {
        let at = self.rx.iter().position(|q| q.input.port == port && q.idx == idx);
        let queue = at.map(|n| {
            let mut q = self.take_out(n);
            q.queue.disarm();
            q.queue
        });
        self.answer(Reply::ReleasedRx { ticket, queue });
    }

    /// Removes and returns a port's receive queues.
    fn take_rx(&mut self, port: PortNo) -> Vec<(usize, Box<dyn RxQueue>)> {
        let mut taken = Vec::new();
        while let Some(n) = self.rx.iter().position(|q| q.input.port == port) {
            let Rx { idx, queue, .. } = self.take_out(n);
            taken.push((idx, queue));
        }
        taken
    }

    fn take_out(&mut self, n: usize) -> Rx {
        let q = self.rx.remove(n);
        self.schedule.remove(n);
        if let Some(fd) = q.queue.wait_fd() {
            self.waiter.remove(fd);
        }
        q
    }
}
