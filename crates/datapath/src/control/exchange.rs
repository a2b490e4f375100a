//! Exchanges workers under traffic, step by step, so that the control thread can serve everybody else
//! meanwhile.
//!
//! 1. Queues in transit arrive.
//! 2. Every worker gives up its queues. From here on packets wait in the devices.
//! 3. Counters are folded.
//! 4. Workers that are not kept end.
//! 5. New ones start, and the queues are given out again.
//!
//! Steps 1 and 2 take as long as a worker needs for a burst. If one does not answer within [`PATIENCE`], the
//! exchange is given up: queues return to the workers that they came from, and the stuck worker keeps what it
//! has. A worker without queues cannot be stuck, so step 4 has no time limit.
//!
//! Packets that the control thread sends meanwhile wait until the first worker has outputs again.

use super::*;
use std::task::Poll;

impl<P: Pipeline> Datapath<P> {
    /// Requests one worker per element, each on these processors, with caches of these limits;
    /// [`Self::poll_workers`] carries that out. Ports stay, and their packets wait in the devices while
    /// queues change hands. Workers that are kept keep their flows unless the limits change; the counts of
    /// workers that end are kept. There must be at least one worker. A change in progress is completed first.
    pub fn begin_workers(&mut self, places: &[CpuSet], cache: CacheConfig) -> Result<(), DatapathError> {
        if places.is_empty() {
            return Err(DatapathError::NoWorker);
        }
        self.workers_to_come = Some((places.to_vec(), cache));
        Ok(())
    }

    /// Continues what [`Self::begin_workers`] began, without ever waiting. `Ready` when it is done or there
    /// was nothing to do. `Err` if the workers are the same as before, or fewer than wanted because the
    /// system refused threads.
    pub fn poll_workers(&mut self, now: Instant) -> Poll<Result<(), DatapathError>> {
        self.collect();
        loop {
            let Some(exchange) = self.exchange.take() else {
                let Some((places, cache)) = self.workers_to_come.take() else { return Poll::Ready(Ok(())) };
                let stay = if cache == self.config.cache { self.workers.len().min(places.len()) } else { 0 };
                if stay < self.workers.len() || stay < places.len() {
                    let new = places.len().saturating_sub(stay);
                    let caches = (0..new).map(|_| self.make_cache(cache)).collect::<Result<_, _>>();
                    let caches = match caches {
                        Ok(caches) => caches,
                        Err(error) => return Poll::Ready(Err(error)),
                    };
                    let step = Step::Arriving;
                    self.exchange = Some(Exchange { places, cache, stay, caches, step, since: now });
                } else {
                    self.bind_workers(&places);
                }
                continue;
            };
            let advanced = self.advance(exchange, now);
            self.hand_over_kept();
            match advanced {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
            }
        }
    }

    /// Whether workers are being exchanged: ports may then have no queues.
    pub fn is_exchanging(&self) -> bool {
        self.exchange.is_some() || self.workers_to_come.is_some()
    }

    /// Steps 1 to 5, as far as possible at the moment.
    fn advance(&mut self, mut exchange: Exchange, now: Instant) -> Poll<Result<(), DatapathError>> {
        let is_late = now.saturating_duration_since(exchange.since) >= PATIENCE;
        match &exchange.step {
            Step::Arriving if self.moving.is_empty() => {
                exchange.step = Step::Releasing(self.ask_for_all_queues());
            }
            Step::Releasing(tickets) if self.awaited.have_answered(tickets) => {
                exchange.step = Step::Folding(self.request_fold());
            }
            Step::Arriving if is_late => {
                let tickets: Vec<u64> = self.moving.keys().copied().collect();
                return self.give_up(&tickets);
            }
            Step::Releasing(tickets) if is_late => {
                self.late = tickets.first().copied();
                return self.give_up(tickets);
            }
            Step::Folding(ticket) if self.fold_done(*ticket) || is_late => {
                for n in exchange.stay..self.workers.len() {
                    self.awaited.ask(n, "its end", now);
                    self.send(n, Command::Stop);
                }
                exchange.step = Step::Ending;
            }
            Step::Ending if self.workers[exchange.stay..].iter().all(WorkerHandle::has_ended) => {
                return Poll::Ready(self.replace_workers(exchange));
            }
            _ => {
                self.exchange = Some(exchange);
                return Poll::Pending;
            }
        }
        self.exchange = Some(exchange);
        Poll::Ready(Ok(()))
    }

    fn ask_for_all_queues(&mut self) -> Vec<u64> {
        let workers = 0..self.workers.len();
        let ask = |n| {
            let ports = self.ports.keys().copied().collect();
            self.ask(n, "its queues", |ticket| Command::Release { ports, ticket })
        };
        workers.map(ask).collect()
    }

    /// Workers are stuck: everything stays as before.
    fn give_up(&mut self, tickets: &[u64]) -> Poll<Result<(), DatapathError>> {
        for released in std::mem::take(&mut self.released) {
            self.give_back(released);
        }
        let newcomers = std::mem::take(&mut self.newcomers);
        self.give_unassigned(newcomers);
        Poll::Ready(Err(DatapathError::Timeout(self.awaited.who_is_to_answer(tickets))))
    }

    /// Returns queues that a worker gave up in vain: outputs first.
    pub(super) fn give_back(&mut self, released: Released) {
        let Released { worker, mut queues } = released;
        for PortQueues { port, tx, .. } in &mut queues {
            if let Some(entry) = self.ports.get(port)
                && let Some(handle) = tx.take()
            {
                if let TxHandle::Shared(queue) = &handle {
                    queue.join();
                }
                let counters = entry.counters[worker].clone();
                self.send(worker, Command::AddTx { port: *port, handle, counters });
            }
        }
        for PortQueues { port, rx, tx } in queues {
            self.close_queues([], tx);
            rx.into_iter().for_each(|(idx, queue)| self.arrived(port, idx, queue));
        }
    }

    /// A receive queue has arrived from a worker. Passes it to the worker recorded for it.
    pub(super) fn arrived(&mut self, port: PortNo, idx: usize, queue: Box<dyn RxQueue>) {
        let entry = self.ports.get(&port);
        match entry.and_then(|e| Some((*e.rx_queues.get(idx)?, e.loads[idx].clone()))) {
            Some((worker, load)) => self.add_rx(worker, port, idx, queue, load),
            None => self.close_queues([queue], None),
        }
    }

    /// Step 5. If the system refuses the thread of the only worker, the step is repeated at the next poll.
    fn replace_workers(&mut self, mut exchange: Exchange) -> Result<(), DatapathError> {
        let (cache, stay) = (exchange.cache, exchange.stay);
        self.config.cache = cache;
        while self.workers.len() > stay {
            self.take_off_last_worker();
        }
        self.workers.iter_mut().for_each(|w| w.queues = 0);
        let started = exchange.places[stay..].iter().try_for_each(|place| {
            let cache = exchange.caches.pop().map_or_else(|| self.make_cache(cache), Ok)?;
            self.start_worker_with(place.clone(), cache).map(drop)
        });
        if self.workers.is_empty() {
            self.exchange = Some(exchange);
            return started;
        }
        let places = exchange.places;
        let mut by_port: BTreeMap<PortNo, Vec<PortQueues>> = BTreeMap::new();
        for queues in self.released.drain(..).flat_map(|released| released.queues) {
            by_port.entry(queues.port).or_default().push(queues);
        }
        let mut unassigned = std::mem::take(&mut self.newcomers);
        for (port, by_worker) in by_port {
            unassigned.push(self.gathered(port, by_worker));
        }
        self.give_unassigned(unassigned);
        self.bind_workers(&places);
        started
    }

    /// Collects a port's queues in order, whichever workers had them.
    fn gathered(&mut self, port: PortNo, by_worker: Vec<PortQueues>) -> Unassigned {
        let (mut rx, mut tx) = (Vec::new(), Vec::new());
        for queues in by_worker {
            rx.extend(queues.rx);
            tx.extend(queues.tx.and_then(TxHandle::into_queue));
        }
        if let Some(entry) = self.ports.get_mut(&port) {
            entry.rx_queues.clear();
            tx.append(&mut entry.spare_tx);
        }
        rx.sort_by_key(|(idx, _)| *idx);
        Unassigned { port, rx: rx.into_iter().map(|(_, queue)| queue).collect(), tx }
    }

    /// Gives workers the queues of ports that still exist.
    fn give_unassigned(&mut self, unassigned: Vec<Unassigned>) {
        let is_there = |q: &Unassigned| self.ports.contains_key(&q.port);
        let (there, gone): (Vec<_>, Vec<_>) = unassigned.into_iter().partition(is_there);
        for Unassigned { rx, tx, .. } in gone {
            self.close_queues(rx, None);
            tx.into_iter().for_each(|queue| self.close_queues([], Some(TxHandle::Own(queue))));
        }
        self.give_queues(there);
    }

    fn bind_workers(&mut self, places: &[CpuSet]) {
        for (worker, place) in self.workers.iter_mut().zip(places) {
            if worker.cpus == *place {
                continue;
            }
            worker.cpus = place.clone();
            if worker.thread.is_some() {
                packet::thread::bind(worker.started(), place);
            }
        }
    }

    fn take_off_last_worker(&mut self) {
        let Some(mut w) = self.workers.pop() else { return };
        let n = self.workers.len();
        // A worker that panicked has already said so on stderr.
        let _ = w.thread.take().map(std::thread::JoinHandle::join);
        self.awaited.ended(n);
        while let Ok(effect) = w.effects.pop() {
            self.left.push_back(Event::Effect(effect));
        }
        while let Ok(packet_in) = w.packet_ins.pop() {
            self.left.push_back(Event::PacketIn(packet_in));
        }
        self.drop_unsent(w.backlog);
        self.retired.push(Retired { stats: w.stats, slots: w.slots });
    }

    /// Closes queues that no worker has.
    pub(super) fn close_queues(
        &mut self,
        rx: impl IntoIterator<Item = Box<dyn RxQueue>>,
        tx: Option<TxHandle>,
    ) {
        for mut queue in rx {
            queue.close(&mut self.cache);
        }
        if let Some(mut queue) = tx.and_then(TxHandle::into_queue) {
            queue.close(&mut self.cache);
        }
    }
}
