//! Ports and their queues: added, moved from worker to worker, removed.

use super::figures::BY_DRIVERS;
use super::*;

impl<P: Pipeline> Datapath<P> {
    /// Adds a port under a number. Its receive queues go to the workers with the fewest; each worker gets a
    /// transmit queue, shared if the port has too few. Takes effect when each worker has started its next
    /// pass.
    pub fn add_port(&mut self, no: PortNo, mut port: Box<dyn Port>) -> Result<(), DatapathError> {
        if no.0 == 0 || no.0 > 0xffff || self.ports.contains_key(&no) {
            return Err(DatapathError::PortNumber(no));
        }
        if self.workers.is_empty() {
            return Err(DatapathError::NoWorker);
        }
        let (tx, rx) = (port.take_tx_queues(self.workers.len()), port.take_rx_queues());
        let entry = PortEntry {
            port,
            counters: Vec::new(),
            rx_queues: Vec::new(),
            loads: Vec::new(),
            spare_tx: Vec::new(),
        };
        self.ports.insert(no, entry);
        if self.exchange.is_some() {
            self.newcomers.push(Unassigned { port: no, rx, tx });
        } else {
            self.give_queues(vec![Unassigned { port: no, rx, tx }]);
        }
        Ok(())
    }

    /// Gives ports' queues to the workers: all outputs first, so that nothing is received before they exist.
    pub(super) fn give_queues(&mut self, ports: Vec<Unassigned>) {
        let given: Vec<_> = ports
            .into_iter()
            .map(|Unassigned { port, rx, tx }| {
                self.give_tx(port, tx);
                (port, rx)
            })
            .collect();
        given.into_iter().for_each(|(port, rx)| self.assign(port, rx));
    }

    fn give_tx(&mut self, no: PortNo, mut tx: Vec<Box<dyn TxQueue>>) {
        let workers = self.workers.len();
        let Some(entry) = self.ports.get_mut(&no) else { return };
        entry.counters.resize_with(entry.counters.len().max(workers), Arc::default);
        let counters = entry.counters.clone();
        entry.spare_tx = tx.split_off(tx.len().min(workers));
        // What waits there would be stale when there are as many workers again, and holds chunks meanwhile.
        entry.spare_tx.iter_mut().for_each(|queue| queue.set_aside(&mut self.cache));
        for (n, handle) in tx_handles(tx, workers).into_iter().enumerate() {
            self.send(n, Command::AddTx { port: no, handle, counters: counters[n].clone() });
        }
    }

    /// Makes a worker poll a port's queue.
    pub(super) fn add_rx(
        &mut self,
        worker: usize,
        port: PortNo,
        idx: usize,
        queue: Box<dyn RxQueue>,
        load: Arc<QueueLoad>,
    ) {
        let input = self.input(port, worker);
        self.send(worker, Command::AddRx { input, idx, queue, load });
    }

    /// The input port as a worker needs it.
    pub(super) fn input(&self, port: PortNo, worker: usize) -> Box<Input> {
        let counters = self.port_counters(port).get(worker).cloned();
        Input::new(port, self.pipeline.port_view(port), counters, self.config.exact_tier)
    }

    /// Gives each queue to the worker with the fewest.
    pub(super) fn assign(&mut self, no: PortNo, queues: Vec<Box<dyn RxQueue>>) {
        for queue in queues {
            let fewest = (0..self.workers.len()).min_by_key(|&n| self.workers[n].queues);
            let n = fewest.expect("ports are added where there are workers");
            self.workers[n].queues += 1;
            let entry = self.ports.get_mut(&no).expect("its queues are being added");
            let idx = entry.rx_queues.len();
            entry.rx_queues.push(n);
            // A queue that moves to another worker keeps its load counters.
            entry.loads.resize_with(entry.loads.len().max(idx + 1), Arc::default);
            let load = entry.loads[idx].clone();
            self.add_rx(n, no, idx, queue, load);
        }
    }

    /// Takes up receive queues that a port has gained since it was added, and gives up those that it has
    /// lost: a guest decides how many it uses. Returns their number. Does nothing while workers are
    /// exchanged.
    pub fn adopt_queues(&mut self, no: PortNo) -> usize {
        if self.exchange.is_some() {
            return self.rx_workers(no).len();
        }
        let Some(entry) = self.ports.get_mut(&no) else { return 0 };
        for _ in 0..entry.port.give_up_rx_queues() {
            self.drop_last_rx(no);
        }
        let Some(entry) = self.ports.get_mut(&no) else { return 0 };
        let queues = entry.port.take_rx_queues();
        self.assign(no, queues);
        self.rx_workers(no).len()
    }

    /// Stops polling the port's last receive queue.
    pub(super) fn drop_last_rx(&mut self, no: PortNo) {
        let Some(entry) = self.ports.get_mut(&no) else { return };
        let Some(worker) = entry.rx_queues.pop() else { return };
        let idx = entry.rx_queues.len();
        self.workers[worker].queues -= 1;
        self.end_moves(|moving| (moving.port, moving.idx) == (no, idx));
        self.release_rx(worker, Moving { port: no, idx, ends: true });
    }

    /// Closes queues in transit on arrival.
    fn end_moves(&mut self, which: impl Fn(&Moving) -> bool) {
        self.moving.values_mut().filter(|moving| which(moving)).for_each(|moving| moving.ends = true);
    }

    /// Asks a worker to give up a receive queue; [`Self::collect`] handles the answer.
    fn release_rx(&mut self, worker: usize, moving: Moving) {
        let (port, idx) = (moving.port, moving.idx);
        let ticket = self.ask(worker, "a queue", |ticket| Command::ReleaseRx { port, idx, ticket });
        self.moving.insert(ticket, moving);
    }

    /// What each of the port's receive queues has cost, in their order.
    pub fn rx_loads(&self, no: PortNo) -> &[Arc<QueueLoad>] {
        self.ports.get(&no).map_or(&[], |e| &e.loads)
    }

    /// Moves a port's receive queue to another worker, as soon as the present one gives it up; does not wait
    /// for that. The present worker sends everything that it has received first, so no packet is lost and
    /// none overtakes another of its flow. New packets wait in the device.
    pub fn move_queue(&mut self, no: PortNo, idx: usize, worker: usize) -> Result<(), DatapathError> {
        if self.exchange.is_some() {
            return Err(DatapathError::Exchanging);
        }
        let entry = self.ports.get_mut(&no).ok_or(DatapathError::NoPort(no))?;
        let (Some(place), true) = (entry.rx_queues.get_mut(idx), worker < self.workers.len()) else {
            return Err(DatapathError::NoWorker);
        };
        let from = std::mem::replace(place, worker);
        if from != worker {
            self.workers[from].queues -= 1;
            self.workers[worker].queues += 1;
            self.release_rx(from, Moving { port: no, idx, ends: false });
        }
        Ok(())
    }

    /// Removes a port from all workers, see [`Self::remove_ports`].
    pub fn remove_port(&mut self, no: PortNo) -> Result<Box<dyn Port>, DatapathError> {
        let mut removed = self.remove_ports(&[no])?;
        removed.pop().ok_or(DatapathError::NoPort(no))
    }

    /// Removes ports from all workers and returns them in order; dropping one removes what it made in the
    /// kernel. Waits until every worker has given up their queues, which takes no longer for many ports than
    /// for one.
    pub fn remove_ports(&mut self, numbers: &[PortNo]) -> Result<Vec<Box<dyn Port>>, DatapathError> {
        let removal = self.begin_removal(numbers)?;
        self.wait_for(&removal.tickets)?;
        while self.exchange.is_some() && self.poll_workers(Instant::now()).is_pending() {
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(self.finish_removal(removal).unwrap_or_else(|_| unreachable!("all have answered")))
    }

    /// Makes all workers give up the queues of ports, which are then no longer in use. See
    /// [`Self::finish_removal`].
    pub fn begin_removal(&mut self, numbers: &[PortNo]) -> Result<Removal, DatapathError> {
        if let Some(&none) = numbers.iter().find(|no| !self.ports.contains_key(no)) {
            return Err(DatapathError::NoPort(none));
        }
        self.end_moves(|moving| numbers.contains(&moving.port));
        let entries: Vec<PortEntry> = numbers.iter().filter_map(|no| self.ports.remove(no)).collect();
        for n in entries.iter().flat_map(|entry| &entry.rx_queues) {
            self.workers[*n].queues -= 1;
        }
        let mut tickets = Vec::new();
        for n in 0..self.workers.len() {
            for &port in numbers {
                tickets.push(self.ask(n, "a port's queues", |ticket| Command::RemovePort { port, ticket }));
            }
        }
        Ok(Removal { tickets, numbers: numbers.to_vec(), entries })
    }

    /// The ports in order, once every worker has given up their queues; until then, the removal again.
    pub fn finish_removal(&mut self, removal: Removal) -> Result<Vec<Box<dyn Port>>, Removal> {
        self.collect();
        // An exchange of workers may hold their queues.
        if self.exchange.is_some() || !self.awaited.have_answered(&removal.tickets) {
            return Err(removal);
        }
        // Reports about a port from before its removal do not apply to the next port with its number.
        self.gone.retain(|no| self.ports.contains_key(no) || !removal.numbers.contains(no));
        for entry in &removal.entries {
            let stats = entry.port.stats();
            for (reason, of) in BY_DRIVERS {
                *self.dropped_by_gone.entry(reason.name()).or_default() += of(&stats);
            }
        }
        Ok(removal.entries.into_iter().map(|entry| entry.port).collect())
    }

    /// The port with this number.
    pub fn port(&self, no: PortNo) -> Option<&dyn Port> {
        self.ports.get(&no).map(|e| e.port.as_ref())
    }

    /// The port, to change its settings.
    pub fn port_mut(&mut self, no: PortNo) -> Option<&mut Box<dyn Port>> {
        self.ports.get_mut(&no).map(|e| &mut e.port)
    }

    /// Numbers of all ports.
    pub fn port_numbers(&self) -> impl Iterator<Item = PortNo> {
        self.ports.keys().copied()
    }
}

/// Makes one transmit handle per worker from the port's queues.
fn tx_handles(queues: Vec<Box<dyn packet::TxQueue>>, workers: usize) -> Vec<TxHandle> {
    if queues.len() >= workers {
        return queues.into_iter().take(workers).map(TxHandle::Own).collect();
    }
    let count = queues.len();
    if count == 0 {
        return Vec::new();
    }
    let users = |n: usize| (n..workers).step_by(count).len();
    let shared: Vec<_> =
        queues.into_iter().enumerate().map(|(n, q)| Arc::new(SharedTx::new(q, users(n)))).collect();
    (0..workers).map(|n| TxHandle::Shared(shared[n % shared.len()].clone())).collect()
}
