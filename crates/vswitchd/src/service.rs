//! The tasks that move bytes between sockets and the OpenFlow connections of bridges: those of a bridge's own
//! sockets, and those that controllers have.
//!
//! One task per connection. It takes bytes only while its connection wants them, so that a client who sends
//! faster than it is served is held up by the socket, and a client who does not read its replies holds up
//! itself.
//!
//! A client that waits for each answer before it asks again (`ovs-ofctl add-flows` does so a million times)
//! spends its time in being woken up. So once it has answered a barrier, the task looks at the socket for
//! some microseconds more before it goes to sleep, and does so again as long as that finds something: what
//! comes next, and the barrier right behind it. Others have their turn in between.
//!
//! What takes long is done by one connection at a time, in turns, with a look at the sockets after each. So a
//! request that takes a moment waits for one such turn, however many connections have work that takes long.
//!
//! What is due by a connection's own clock (probes, packets held back) goes by [`clock`], which tests bend;
//! waits for workers and for sockets are in true time.

use crate::line::{self, Line};
use crate::ofconn::Served;
use crate::ofproto::{LinkOf, OfConn, Purpose};
use crate::plane::TURN;
use crate::state::Shared;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};
use switch::BridgeIdx;
use tokio::sync::Semaphore;
use transport::{
    Account, Closing, Idle, Idlers, Incoming, Listener, Place, Places, Stream, Waits, accept, clock,
};

/// Connections to one socket at once. For a further one the connection that has been idle longest gives way,
/// who watches flows last: it has nothing to say.
const CONNECTIONS_MAX: usize = 1_000;
/// Descriptors of each socket for when others have used up all.
const SPARES: usize = 2;
/// How long to look for the next request after a barrier was answered. Longer takes the processor from a
/// client that shares it; a barrier right behind its flow-mod comes within two or three.
const BRISK: Duration = Duration::from_micros(20);
/// How long a client that is answered so quickly may keep others from their turn.
const BRISK_TURN: Duration = Duration::from_micros(500);
/// How long to wait for workers by yielding before sleeping in between.
const YIELDING: Duration = Duration::from_micros(500);

/// How long a connection is served that does not wait for a long turn.
const MOMENT: Duration = Duration::from_micros(200);

/// Serves a socket of a bridge for ever.
pub async fn serve(listener: Listener, shared: Shared, bridge: BridgeIdx, name: String, purpose: Purpose) {
    let failed = |why: &str| tracing::warn!(target: "vconn", "accept failed: {why}");
    let serve = |incoming: Incoming, place: Place| {
        // The socket stays until a plan is carried out, and its bridge may be gone before.
        if !shared.borrow().plane.is_there(bridge, &name) {
            return;
        }
        let shared = shared.clone();
        tokio::task::spawn_local(async move {
            let Ok(stream) = place.establish(incoming).await else { return };
            if let Some(mut carrier) = Carrier::new(&shared, bridge, purpose, None, stream) {
                carrier.gives_way(place.idlers());
                if let Err(error) = carrier.run().await {
                    tracing::debug!(target: "vconn", "a connection broke: {error}");
                }
            }
            drop(place);
        });
    };
    accept(&listener, &Places::new(CONNECTIONS_MAX).with_spares(SPARES), failed, serve).await;
}

/// Carries the bytes of one connection. The connection leaves its bridge with it, also when its task is
/// cancelled.
pub(crate) struct Carrier {
    shared: Shared,
    bridge: BridgeIdx,
    id: u64,
    line: Arc<Line>,
    long_turns: Rc<Semaphore>,
    /// What it makes us hold.
    account: Account,
    /// Those that give way to others where there are too many, if this is one of them.
    idlers: Option<Rc<Idlers>>,
    /// Its place among them, and since when.
    idles: Option<(IdleSince, Waits)>,
}

/// How a connection is idle, when its peer was last heard, and how many bytes that had taken.
type IdleSince = (Idle, Instant, u64);

impl Carrier {
    /// A new connection of a bridge, perhaps a controller's. `None`: the bridge, or the controller's row, is
    /// gone.
    pub fn new(
        shared: &Shared,
        bridge: BridgeIdx,
        purpose: Purpose,
        link: Option<LinkOf>,
        stream: Stream,
    ) -> Option<Carrier> {
        let mut vswitch = shared.borrow_mut();
        let id = vswitch.connected(bridge, purpose, link, clock::now())?;
        let line = vswitch.conn(bridge, id)?.line.clone();
        line.set_stream(stream);
        line::keep(&line, &vswitch.keepalive);
        let (long_turns, account) = (vswitch.connections.long_turns.clone(), vswitch.connections.held.open());
        Some(Carrier {
            shared: shared.clone(),
            bridge,
            id,
            line,
            long_turns,
            account,
            idlers: None,
            idles: None,
        })
    }

    /// It gives way to others: of `idlers` whoever has been idle longest, who watches flows last.
    pub fn gives_way(&mut self, idlers: Rc<Idlers>) {
        self.idlers = Some(idlers);
    }

    /// Why our own side ended the connection, if it did.
    pub fn close_reason(&self) -> Option<String> {
        self.with(|c| c.close_reason.clone()).flatten()
    }

    /// When the peer was last heard.
    pub fn last_rx(&self) -> Option<Instant> {
        self.with(|c| c.connection().last_rx())
    }

    /// Until either side ends it.
    pub async fn run(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; line::READ_BYTES];
        let mut waiting_since: Option<Instant> = None;
        let mut closing: Option<Closing> = None;
        let mut others_had_their_turn = Instant::now();
        let (long_turns, mut has_more) = (self.long_turns.clone(), false);
        loop {
            let is_long = has_more || self.with(|c| c.is_at_long_work()).unwrap_or_default();
            let long_turn = if is_long { long_turns.acquire().await.ok() } else { None };
            let start = Instant::now();
            self.line.give();
            let until = start + if is_long { TURN } else { MOMENT };
            let served = self.shared.borrow_mut().serve(self.bridge, self.id, clock::now(), until);
            has_more = served == Served::More;
            let was_congested = self.line.connection().is_congested();
            // Nobody is to be woken by this: what could not be sent is waited for below.
            let blocked = match self.line.poll_transmit(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(sent) => sent.map(|()| false)?,
                Poll::Pending => true,
            };
            self.line.settle(&self.account, blocked);
            if let Some(turn) = long_turn {
                if start.elapsed() >= MOMENT {
                    // Sockets are looked at before the next one has its turn.
                    tokio::task::yield_now().await;
                }
                drop(turn);
            }
            match served {
                Served::Closed if !blocked => return Ok(()),
                Served::Closed => {
                    let (now, sent) = (Instant::now(), self.line.connection().sent_bytes());
                    let end = closing.get_or_insert_with(|| Closing::new(now, sent)).deadline(now, sent);
                    // A peer that failed its probe took nothing for as long as one may go unanswered.
                    if self.with(|c| c.is_silent).unwrap_or(true) || now >= end {
                        self.cut();
                        return Ok(());
                    }
                    let sent = poll_fn(|cx| self.line.poll_transmit(cx));
                    if let Ok(sent) = tokio::time::timeout_at(end.into(), sent).await {
                        sent?;
                    }
                    continue;
                }
                Served::More => {
                    self.with(|c| c.handle_timeout(clock::now()));
                    tokio::task::yield_now().await;
                    continue;
                }
                Served::Waiting => {
                    self.with(|c| c.handle_timeout(clock::now()));
                    let since = *waiting_since.get_or_insert_with(Instant::now);
                    if since.elapsed() < YIELDING {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    }
                    continue;
                }
                Served::Quiet => waiting_since = None,
            }
            if self.with(|c| c.can_resume()).unwrap_or_default() {
                continue;
            }
            let (wants_input, brisk) = self.with(|c| (c.wants_input(), c.brisk)).unwrap_or_default();
            // What was read already, and had no room or none for its answers, and work that rested until
            // they were sent: no byte of the peer announces them.
            let rested = self.with(|c| c.is_at_long_work()).unwrap_or_default();
            if !blocked && (was_congested || rested || wants_input && !self.line.is_drained()) {
                tokio::task::yield_now().await;
                continue;
            }
            let wants_input = wants_input && self.line.is_drained();
            if wants_input && brisk {
                if others_had_their_turn.elapsed() >= BRISK_TURN {
                    tokio::task::yield_now().await;
                    others_had_their_turn = Instant::now();
                }
                if self.look(&mut buffer)? {
                    continue;
                }
                self.with(|c| c.brisk = false);
            }
            if self.wait(wants_input, blocked, &mut buffer).await? == Woken::End {
                return Ok(());
            }
        }
    }

    /// Gives up what waits to be sent.
    fn cut(&self) {
        let mut shared = self.shared.borrow_mut();
        shared.counts.connections_cut += 1;
        let Some(conn) = shared.conn(self.bridge, self.id) else { return };
        let bytes = conn.connection().transmit().len();
        tracing::debug!(target: "rconn", "a connection is cut with {bytes} bytes not sent");
    }

    fn with<T>(&self, f: impl FnOnce(&mut OfConn) -> T) -> Option<T> {
        self.shared.borrow_mut().conn(self.bridge, self.id).map(f)
    }

    /// Looks for bytes for a moment without sleeping. Whether there are any.
    fn look(&self, buffer: &mut [u8]) -> io::Result<bool> {
        let start = Instant::now();
        while start.elapsed() < BRISK {
            if self.line.look(buffer)? {
                return Ok(true);
            }
            std::hint::spin_loop();
        }
        Ok(false)
    }

    /// It waits. What wakes it for a moment, such as a packet for a peer that reads nothing, is no sign of
    /// life.
    fn note_idle(&mut self, blocked: bool) {
        let Some(idlers) = &self.idlers else { return };
        let since = self.with(|c| {
            let idle = match c.monitors.is_empty() {
                _ if blocked => Idle::Reads,
                true => Idle::AsksNothing,
                false => Idle::Watches,
            };
            let connection = c.connection();
            (idle, connection.last_rx(), connection.sent_bytes())
        });
        if let Some(since) = since.filter(|since| self.idles.as_ref().is_none_or(|idles| idles.0 != *since)) {
            self.idles = Some((since, idlers.wait(since.0)));
        }
    }

    /// Waits until something can be done, and does it.
    async fn wait(&mut self, wants_input: bool, blocked: bool, buffer: &mut [u8]) -> io::Result<Woken> {
        let due = self.with(|c| c.poll_timeout()).flatten();
        self.note_idle(blocked);
        let dismissed = async {
            match &self.idles {
                Some((_, waits)) => waits.dismissed().await,
                None => std::future::pending().await,
            }
        };
        let bytes = poll_fn(|cx| {
            if blocked && let Poll::Ready(sent) = self.line.poll_transmit(cx) {
                return Poll::Ready(sent.map(|()| Woken::Otherwise));
            }
            if !wants_input {
                return Poll::Pending;
            }
            let received = ready!(self.line.poll_receive(cx, buffer));
            Poll::Ready(received.map(|n| if n == 0 { Woken::End } else { Woken::Otherwise }))
        });
        let woken = tokio::select! {
            moved = bytes => return moved,
            () = self.line.notify.notified() => Woken::Otherwise,
            () = dismissed => return Ok(Woken::End),
            () = self.account.closed() => {
                self.cut();
                return Ok(Woken::End);
            }
            () = clock::sleep_until(due) => Woken::Due,
        };
        if woken == Woken::Due {
            self.with(|c| c.handle_timeout(clock::now()));
        }
        Ok(woken)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // Tasks are dropped between turns, when nobody borrows; at the end of the daemon nobody looks any
        // more.
        if let Ok(mut vswitch) = self.shared.try_borrow_mut() {
            vswitch.disconnected(self.bridge, self.id);
        }
        self.line.close();
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    /// The peer says no more.
    End,
    /// The connection's own clock asks for something.
    Due,
    Otherwise,
}
