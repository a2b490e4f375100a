//! The switch as a client of its database: it follows the rows, applies them, and writes back the results.
//!
//! One task. It holds the connection, the copy of the rows ([`Replica`]) and the plan in progress. Each pass:
//! 1. data from the server goes into the replica;
//! 2. if configuring rows changed, or the kernel reported a device, the wanted configuration is read again
//!    and compared with what runs;
//! 3. some steps of the plan are executed, for no more than [`TURN`] at once;
//! 4. when the plan is done, or statistics are due, the rows are updated, some at a time.
//!
//! While the connection is lost, the switch keeps running: a plan in progress is carried out, and devices
//! that come back are added before each attempt to connect. The lock `ovs_vswitchd` prevents two switches
//! from using one database: one that has lost it to another removes its bridges until it has the lock
//! again.

use crate::config::Wanted;
use crate::config::rows::{EnableDummy, Reading, Reads, Rows};
use crate::config::wanted::SwitchWide;
use crate::devices::{self, DEVICE_WAIT};
use crate::janitor::Fate;
use crate::listeners::BridgeSockets;
use crate::ovsdb::Handle;
use crate::plane::TURN;
use crate::reconcile::{Progress, Reconciliation};
use crate::state::Shared;
use crate::writeback::{Round, configures};
use host::rundir::RunDir;
use host::sysstats::Sampler;
use ovsdb::TableIdx;
use ovsdb::jsonrpc::Message;
use ovsdb::replica::{Outcome, Replica, Selection, Ticket};
use std::collections::{BTreeSet, VecDeque};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, oneshot};
use transport::clock;
use transport::jsonrpc::{Framer, Limits};
use transport::reconnect::{Action, Options, Reconnect, SILENT};
use transport::{ActiveTarget, CLOSED, Keep, Outbox, Stream, StreamError, Tls, keep_connected, reason};

/// The lock that a switch holds on its database.
const LOCK: &str = "ovs_vswitchd";
/// How long a turn of writing back builds its transaction, which takes as long again to send.
const WRITING: Duration = Duration::from_millis(1);
/// How often ports' states are checked and changes written.
const STATUS_INTERVAL: Duration = Duration::from_millis(500);
/// Least time between two plans that news of devices make while an interface cannot be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// How long an attempt to connect waits for a plan in progress.
const ALONE_MAX: Duration = Duration::from_secs(5);
/// Wait after a transaction that was refused.
const REFUSED_WAIT: Duration = Duration::from_secs(1);

/// The server of the database.
pub enum Server {
    /// Another process, reached over a stream; TLS for `ssl:`.
    Elsewhere(ActiveTarget, Option<Box<Tls>>),
    /// A thread of this process, reached over a pair of sockets.
    Embedded {
        /// The thread.
        handle: Rc<Handle>,
        /// The database ends with the process.
        in_memory: bool,
    },
}

impl Server {
    /// Whether the other end may disappear without notice from the kernel: it is not on this machine.
    fn may_fall_silent(&self) -> bool {
        matches!(self, Server::Elsewhere(target, _) if !matches!(target, ActiveTarget::Unix(_)))
    }

    async fn connect(&self) -> Result<Stream, StreamError> {
        match self {
            Server::Elsewhere(target, tls) => Stream::connect(target, tls.as_deref()).await,
            Server::Embedded { handle, .. } => Ok(Stream::of_pair(handle.connect("ovs-vswitchd")?)?),
        }
    }
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Server::Elsewhere(target, _) => target.fmt(f),
            Server::Embedded { .. } => f.write_str("embedded database"),
        }
    }
}

/// How to reach the database, and how to read it.
pub struct DatabaseClient {
    /// The server.
    pub server: Server,
    /// Which ports are replaced by dummies.
    pub dummy: EnableDummy,
    /// Where the daemons' pid files are.
    pub run_dir: RunDir,
    /// Told when the configuration is in force for the first time.
    pub configured: oneshot::Sender<()>,
}

/// Follows the database for ever.
pub async fn run(client: DatabaseClient, shared: Shared, sockets: BridgeSockets) {
    let mut replica = Replica::new("Open_vSwitch", Selection::everything());
    replica.request_lock(LOCK);
    let port_may_come = shared.borrow().devices.may_come.clone();
    devices::follow(shared.clone());
    let DatabaseClient { server, dummy, run_dir, configured } = client;
    let follower = Follower {
        configured: Some(configured),
        shared,
        sockets,
        dummy,
        run_dir,
        is_lasting: !matches!(server, Server::Embedded { in_memory: true, .. }),
        replica,
        reading: Reading::default(),
        wanted: Rc::default(),
        reads: None,
        plan: None,
        is_waiting: false,
        replan: false,
        port_may_come: false,
        retried: None,
        said: BTreeSet::new(),
        is_contended: false,
        is_alone: false,
        in_flight: None,
        status_due: None,
        statistics_due: clock::now(),
        hold_until: None,
        in_force: VecDeque::new(),
        to_tell: None,
        round: None,
        machine: Sampler::default(),
        statistics_are_late: false,
    };
    let mut options = Options::default();
    if !server.may_fall_silent() {
        options.probe_interval = None;
    }
    let mut reconnect = Reconnect::new(options, clock::now());
    reconnect.enable(clock::now());
    keep_connected(&mut Connection { server, reconnect, follower, port_may_come }).await;
}

struct Connection {
    server: Server,
    reconnect: Reconnect,
    follower: Follower,
    /// Something happened to a device that may let a port come that could not before.
    port_may_come: Rc<Notify>,
}

impl Keep for Connection {
    type Link = Stream;
    type Done = std::convert::Infallible;

    fn name(&self) -> String {
        self.server.to_string()
    }

    fn with<T>(&mut self, f: impl FnOnce(&mut Reconnect) -> T) -> Option<T> {
        Some(f(&mut self.reconnect))
    }

    async fn connect(&mut self) -> Result<Stream, String> {
        self.follower.go_on_alone().await;
        self.server.connect().await.map_err(|error| error.to_string())
    }

    async fn converse(&mut self, stream: Stream) -> ControlFlow<Self::Done, Option<String>> {
        let why = self.follow(stream).await;
        self.follower.disconnected();
        self.follower.go_on_alone().await;
        ControlFlow::Continue(Some(why))
    }
}

impl Connection {
    /// Talks to the server until that is no longer possible; returns why.
    async fn follow(&mut self, stream: Stream) -> String {
        let (mut reader, mut writer): (ReadHalf<Stream>, WriteHalf<Stream>) = tokio::io::split(stream);
        let mut framer = Framer::new(Limits::OF_CONTENTS);
        let mut input = vec![0; 64 * 1024];
        let mut outbox = Outbox::default();
        self.follower.replica.connected();
        loop {
            let more = self.follower.pass();
            while let Some(message) = self.follower.replica.poll_transmit() {
                message.write(outbox.bytes());
            }
            let due = [self.follower.due(), self.reconnect.deadline()].into_iter().flatten().min();
            let due = if more {
                clock::now()
            } else {
                due.unwrap_or_else(|| clock::now() + Duration::from_secs(1))
            };
            tokio::select! {
                read = reader.read(&mut input) => match read {
                    Ok(0) => return CLOSED.into(),
                    Ok(n) => {
                        self.reconnect.heard(clock::now());
                        framer.feed(&input[..n]);
                        if let Err(why) = self.take(&mut framer) {
                            return why;
                        }
                    }
                    Err(e) => return reason(&e),
                },
                sent = outbox.send(&mut writer), if outbox.has_more() => match sent {
                    Ok(()) => {}
                    Err(e) => return reason(&e),
                },
                () = self.port_may_come.notified() => self.follower.port_may_come = true,
                () = clock::sleep_until(due) => {}
                // In real time: devices also come and go while our clock is stopped.
                () = tokio::time::sleep(DEVICE_WAIT), if self.follower.waits_for_devices() => {}
            }
            match self.reconnect.run(clock::now()) {
                Some(Action::Disconnect) => return SILENT.into(),
                Some(Action::Probe) => {
                    let empty: [u8; 0] = [];
                    Message::request("echo", &empty, "echo").write(outbox.bytes());
                }
                _ => {}
            }
        }
    }

    fn take(&mut self, framer: &mut Framer) -> Result<(), String> {
        while let Some(text) = framer.next_object().map_err(|e| e.to_string())? {
            let message = Message::parse(text).map_err(|e| e.to_string())?;
            self.follower.replica.handle(message).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

/// See the module documentation.
struct Follower {
    shared: Shared,
    configured: Option<oneshot::Sender<()>>,
    sockets: BridgeSockets,
    dummy: EnableDummy,
    run_dir: RunDir,
    /// Whether the next process will find the same database.
    is_lasting: bool,
    replica: Replica,
    /// What was read from the rows last.
    reading: Reading,
    /// What was wanted at that time: invalid values leave these settings as they were.
    wanted: Rc<Wanted>,
    /// The rows are being read.
    reads: Option<Reads>,
    plan: Option<Reconciliation>,
    /// The plan waits for a device to go.
    is_waiting: bool,
    replan: bool,
    /// Something happened to a device that may let a port come that could not before.
    port_may_come: bool,
    /// When that made a plan last.
    retried: Option<tokio::time::Instant>,
    /// Complaints that were logged.
    said: BTreeSet<String>,
    is_contended: bool,
    /// It had the lock when the connection was lost.
    is_alone: bool,
    /// The transaction that was sent but not answered yet, with the configuration that it reports.
    in_flight: Option<(Ticket, Option<i64>)>,
    status_due: Option<Instant>,
    statistics_due: Instant,
    /// Nothing is written before.
    hold_until: Option<Instant>,
    /// Configurations that are in force, each with the last device that must have gone before it is
    /// reported: a client that removed a port must not find its device after the reply that the removal has
    /// taken effect.
    in_force: VecDeque<(u64, i64)>,
    /// A configuration that is in force but not reported yet.
    to_tell: Option<i64>,
    /// An update of the rows that is not complete.
    round: Option<Round>,
    /// Statistics of the machine.
    machine: Sampler,
    statistics_are_late: bool,
}

/// Logs once that statistics of the machine are not read in time, or not at all.
fn warn_of_late_statistics(said: &mut bool, started: std::io::Result<bool>) {
    let why = match started {
        Ok(true) => return *said = false,
        Ok(false) => "a file system may not answer".to_string(),
        Err(error) => error.to_string(),
    };
    if !std::mem::replace(said, true) {
        tracing::warn!(target: "system_stats", "the statistics of this machine are not updated: {why}");
    }
}

impl Follower {
    fn disconnected(&mut self) {
        // An attempt that did not get so far says nothing about who has the lock.
        if self.replica.is_synced() {
            self.is_alone = self.replica.has_lock();
        }
        self.replica.disconnected();
        if self.in_flight.take().is_some() || self.round.is_some() {
            self.write_anew();
        }
    }

    /// What the server is not needed for: the rest of the plan, and devices that came back. Most of it takes
    /// no longer than this, and what does is left to the next attempt to connect.
    async fn go_on_alone(&mut self) {
        let end = Instant::now() + ALONE_MAX;
        let may_come = self.shared.borrow().devices.may_come.clone();
        let may_come = tokio::select! {
            biased;
            () = may_come.notified() => true,
            () = std::future::ready(()) => false,
        };
        // If no plan is made for it here, it is left to the next attempt, or to the server's time.
        self.port_may_come |= self.shared.borrow_mut().devices.has_come_back() || may_come;
        if self.is_alone && self.port_may_come && self.plan.is_none() && self.reads.is_none() {
            self.port_may_come = false;
            let before = self.reading.before.clone();
            self.plan =
                Some(Reconciliation::plan(&self.shared.borrow().running(), self.wanted.clone(), before));
        }
        while Instant::now() < end {
            let progress = match self.read_some() {
                false => Progress::More,
                true if self.is_contended => self.steps(),
                true => self.go_on(),
            };
            match progress {
                Progress::More => tokio::task::yield_now().await,
                Progress::Waiting => tokio::time::sleep(DEVICE_WAIT).await,
                Progress::Done => return,
            }
        }
    }

    /// When there is something to do though nothing comes.
    fn due(&self) -> Option<Instant> {
        if !(self.replica.is_synced() && self.replica.has_lock()) {
            return None;
        }
        let writes = [self.status_due, Some(self.statistics_due)].into_iter().flatten().min();
        writes.map(|at| self.hold_until.map_or(at, |hold| at.max(hold)))
    }

    /// A pass, as numbered in the module documentation. Returns whether there is more to do right away.
    fn pass(&mut self) -> bool {
        self.take_outcome();
        if !self.may_act() {
            return self.is_contended && self.go_on_standing_down();
        }
        let changes = self.replica.take_changes();
        self.replan |= self.shared.borrow_mut().devices.has_come_back();
        // A failed attempt may itself make a device and remove it. That news neither restarts the plan under
        // way nor begins the next one at once.
        let has_failed = self.shared.borrow().devices.failures.names().next().is_some();
        if self.port_may_come
            && self.plan.is_none()
            && (!has_failed || self.retried.is_none_or(|at| at.elapsed() >= RETRY_INTERVAL))
        {
            self.port_may_come = false;
            self.retried = Some(tokio::time::Instant::now());
            self.replan = true;
        }
        self.replan |= changes.iter().any(|c| configures(&self.replica, c));
        if self.replan && self.reads.is_none() {
            self.replan = false;
            self.begin_reading();
        }
        if !self.read_some() {
            return true;
        }
        if root_row(&self.replica).is_none() {
            // The configuration does not exist yet, and the process that creates it may be waiting for this
            // one.
            self.is_configured();
        }
        self.is_waiting = false;
        let has_more = match self.go_on() {
            Progress::More => true,
            Progress::Waiting => {
                self.is_waiting = true;
                false
            }
            Progress::Done => self.write_back(),
        };
        // Rows that have changed while they were read are read anew.
        has_more || self.replan
    }

    /// Whether it must look again soon, though nothing tells it when.
    fn waits_for_devices(&self) -> bool {
        let waits = self.port_may_come || !self.in_force.is_empty();
        self.is_waiting || waits && self.replica.is_synced() && self.replica.has_lock()
    }

    /// Whether we have the rows and the lock.
    fn may_act(&mut self) -> bool {
        if !self.replica.is_synced() {
            return false;
        }
        let contended = !self.replica.has_lock() && self.replica.is_lock_contended();
        if contended != self.is_contended {
            self.is_contended = contended;
            if contended {
                tracing::error!(
                    target: "bridge",
                    "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
                    std::process::id()
                );
                self.stand_down();
            } else {
                self.shared.borrow_mut().devices.removed = Fate::Removed;
                self.replan = true;
            }
        }
        self.replica.has_lock()
    }

    /// Another process has the lock, and serves the same bridges: ours go. It has devices by the names of
    /// those that we made, or will have: these stay.
    fn stand_down(&mut self) {
        self.wanted = Rc::new(Wanted { switch: self.wanted.switch.clone(), ..Wanted::default() });
        self.reads = None;
        self.in_force.clear();
        self.to_tell = None;
        let mut vswitch = self.shared.borrow_mut();
        vswitch.devices.removed = Fate::Left;
        self.plan = Some(Reconciliation::of_all_bridges(&vswitch));
    }

    /// Some steps of that. Returns whether there is more to do right away. Rows are read anew with the lock:
    /// until then nobody asks what the other process changes in them.
    fn go_on_standing_down(&mut self) -> bool {
        self.replica.take_changes();
        let progress = self.steps();
        self.is_waiting = progress == Progress::Waiting;
        progress == Progress::More
    }

    /// 2. What is wanted: begins to read it from the rows as they are now.
    fn begin_reading(&mut self) {
        let Some(schema) = self.replica.schema().cloned() else { return };
        let tables =
            (0..schema.tables().len()).map(|n| self.replica.table(TableIdx(n as u16)).clone()).collect();
        let rows = Rows { schema, tables };
        self.reads = Reads::begin(rows, self.wanted.clone(), self.dummy, self.run_dir.path());
        if self.reads.is_none() {
            let vhost_sock_dir = self.wanted.switch.vhost_sock_dir.clone();
            let switch = SwitchWide { vhost_sock_dir, ..SwitchWide::default() };
            let nothing = Wanted { switch, ..Wanted::default() };
            // There is nothing to do before the configuration exists.
            if *self.wanted != nothing {
                tracing::debug!(target: "bridge", "the row of table Open_vSwitch is gone, and with it all bridges");
                self.make_plan(Reading { wanted: nothing.into(), ..Reading::default() });
            }
        }
    }

    /// A turn of reading, and the plan once everything is read. Returns whether nothing is left to read.
    fn read_some(&mut self) -> bool {
        let end = Instant::now() + TURN;
        let Some(reads) = &mut self.reads else { return true };
        while !reads.is_done() {
            reads.step();
            if Instant::now() >= end {
                return false;
            }
        }
        if let Some(reads) = self.reads.take() {
            self.make_plan(reads.finish());
        }
        true
    }

    /// How to get to what was read.
    fn make_plan(&mut self, reading: Reading) {
        for complaint in reading.complaints.difference(&self.said) {
            tracing::debug!(target: "bridge", "{complaint}");
        }
        for warning in reading.warnings.difference(&self.said) {
            tracing::warn!(target: "bridge", "{warning}");
        }
        for error in reading.errors.difference(&self.said) {
            tracing::error!(target: "bridge", "{error}");
        }
        let Reading { complaints, warnings, errors, .. } = &reading;
        self.said = complaints.iter().chain(warnings).chain(errors).cloned().collect();
        // From now on, devices that we make outlive this process: the next one finds them by the database's
        // first row.
        if let Some(root) = root_row(&self.replica).filter(|_| self.is_lasting) {
            self.shared.borrow_mut().devices.set_owner(format!("crosspoint {root}"));
        }
        let (wanted, before) = (reading.wanted.clone(), reading.before.clone());
        self.plan = Some(Reconciliation::plan(&self.shared.borrow().running(), wanted, before));
        self.wanted = reading.wanted.clone();
        // A shorter interval holds at once.
        let soon = clock::now() + Duration::from_millis(self.wanted.switch.stats_interval_ms);
        self.statistics_due = self.statistics_due.min(soon);
        self.reading = reading;
    }

    /// 3. Some steps, and what follows the last one.
    fn go_on(&mut self) -> Progress {
        let had_plan = self.plan.is_some();
        let progress = self.steps();
        if had_plan && progress == Progress::Done {
            let last = self.shared.borrow().devices.machine.last();
            self.in_force.push_back((last, self.reading.next_cfg));
            self.write_anew();
            self.is_configured();
        }
        self.report_those_in_force();
        progress
    }

    fn report_those_in_force(&mut self) {
        while let Some(&(last, next_cfg)) = self.in_force.front()
            && self.shared.borrow().devices.machine.is_down(last)
        {
            self.in_force.pop_front();
            self.to_tell = Some(next_cfg);
            self.write_anew();
        }
    }

    /// Some steps of the plan.
    fn steps(&mut self) -> Progress {
        let Some(plan) = &mut self.plan else { return Progress::Done };
        let end = Instant::now() + TURN;
        let mut vswitch = self.shared.borrow_mut();
        loop {
            match plan.step(&mut vswitch) {
                Progress::More if Instant::now() >= end => return Progress::More,
                Progress::More => {}
                Progress::Waiting => return Progress::Waiting,
                Progress::Done => break,
            }
        }
        // Queues must be in place when `ovs-vsctl` returns.
        let state = &mut *vswitch;
        state.workers.place_due_queues(&mut state.plane, &state.devices.ports);
        drop(vswitch);
        self.plan = None;
        self.sockets.follow(&self.shared);
        Progress::Done
    }

    /// Notifies the waiter for the first configuration, once.
    fn is_configured(&mut self) {
        if let Some(configured) = self.configured.take() {
            // There is no listener any more if the daemon is about to end.
            let _ = configured.send(());
        }
    }

    /// 4. Updates some rows, if that is due and no update is in flight. True if more can be done right away.
    fn write_back(&mut self) -> bool {
        let now = clock::now();
        if self.in_flight.is_some() || self.hold_until.is_some_and(|at| now < at) {
            return false;
        }
        let statistics = now >= self.statistics_due;
        if self.round.is_none() && !statistics && self.status_due.is_none_or(|at| now < at) {
            return false;
        }
        let mut round = self.round.take().unwrap_or_else(|| {
            self.status_due = Some(now + STATUS_INTERVAL);
            let of_machine = self.wanted.switch.system_statistics;
            if statistics {
                self.statistics_due = now + Duration::from_millis(self.wanted.switch.stats_interval_ms);
            }
            if statistics && of_machine {
                let (said, run_dir) = (&mut self.statistics_are_late, self.run_dir.path().into());
                warn_of_late_statistics(said, self.machine.start(run_dir));
            }
            let machine = if of_machine { self.machine.latest() } else { Vec::new() };
            Round { statistics, cur_cfg: self.to_tell, dummy: self.dummy, machine, left: None }
        });
        let mut txn = self.replica.begin();
        let until = Instant::now() + WRITING;
        let is_whole = round.turn(&self.shared.borrow(), &mut txn, &self.reading, until);
        self.in_flight = Some((self.replica.commit(&txn), round.cur_cfg.filter(|_| is_whole)));
        self.round = Some(round).filter(|_| !is_whole);
        self.take_outcome();
        self.round.is_some() && self.in_flight.is_none()
    }

    /// Writes all rows anew, and at once.
    fn write_anew(&mut self) {
        self.status_due = Some(clock::now());
        if self.round.take().is_some_and(|round| round.statistics) {
            self.statistics_due = clock::now();
        }
    }

    fn take_outcome(&mut self) {
        let Some((ticket, told)) = self.in_flight else { return };
        let Some(outcome) = self.replica.take_outcome(ticket) else { return };
        self.in_flight = None;
        let mut vswitch = self.shared.borrow_mut();
        let counts = &mut vswitch.counts;
        *match &outcome {
            Outcome::Unchanged => &mut counts.txn_unchanged,
            Outcome::Success(_) => &mut counts.txn_success,
            Outcome::TryAgain => &mut counts.txn_try_again,
            Outcome::NotLocked => &mut counts.txn_not_locked,
            Outcome::Error(_) => &mut counts.txn_error,
        } += 1;
        drop(vswitch);
        match outcome {
            // A configuration that took effect in the meantime has yet to be reported.
            Outcome::Unchanged | Outcome::Success(_) if self.to_tell == told => self.to_tell = None,
            Outcome::Unchanged | Outcome::Success(_) => {}
            Outcome::TryAgain | Outcome::NotLocked => self.write_anew(),
            Outcome::Error(why) => {
                tracing::error!(target: "bridge", "the database refused a status update: {why}");
                self.hold_until = Some(clock::now() + REFUSED_WAIT);
                self.write_anew();
            }
        }
    }
}

/// The only row of the table Open_vSwitch.
fn root_row(replica: &Replica) -> Option<ovsdb::Uuid> {
    let table = replica.schema()?.find("Open_vSwitch")?;
    replica.table(table).iter().next().map(|row| row.uuid())
}
