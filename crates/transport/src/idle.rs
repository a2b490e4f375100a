//! Clients that are connected and idle: when there is no room for another, one of them gives way. Progress is
//! a sign of life: a client that takes what it is sent, however slowly, is not idle.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// How long a connection has to close before the next one is asked to.
const LEAVING: Duration = Duration::from_millis(10);

/// A client that has taken nothing of what it is sent for so long counts as idle.
const DEAF: Duration = Duration::from_secs(1);

/// The idle connections of one socket.
#[derive(Default)]
pub struct Idlers {
    waiting: RefCell<BTreeMap<Order, Waiting>>,
    next: Cell<u64>,
    came: Notify,
}

/// How it is idle, and its number: of two that are idle in the same way, the first gives way first.
type Order = (Idle, u64);

struct Waiting {
    /// It does not give way before.
    from: Instant,
    dismissed: Rc<Notify>,
}

/// How a client is idle. Those that come first give way first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Idle {
    /// It shakes hands: anybody may begin that.
    ShakesHands,
    /// It asks for nothing.
    AsksNothing,
    /// It has yet to take what it was sent: idle only if it takes nothing for a second.
    Reads,
    /// It waits for what it has asked for: news, or a lock.
    Watches,
}

/// A client waits for as long as this lives.
pub struct Waits {
    idlers: Rc<Idlers>,
    order: Order,
    dismissed: Rc<Notify>,
}

impl Idlers {
    /// A client has nothing to do from now on.
    pub fn wait(self: &Rc<Self>, idle: Idle) -> Waits {
        self.wait_on(idle, Rc::default())
    }

    /// The same for one that waits for several things: `dismissed` is notified when it must give way.
    pub fn wait_on(self: &Rc<Self>, idle: Idle, dismissed: Rc<Notify>) -> Waits {
        let order = (idle, self.next.get());
        self.next.set(order.1 + 1);
        let grace = if idle == Idle::Reads { DEAF } else { Duration::ZERO };
        let waiting = Waiting { from: Instant::now() + grace, dismissed: dismissed.clone() };
        self.waiting.borrow_mut().insert(order, waiting);
        self.came.notify_one();
        Waits { idlers: self.clone(), order, dismissed }
    }

    /// Makes one after the other give way, until the caller drops this.
    pub async fn dismiss(&self) -> Infallible {
        loop {
            if self.dismiss_one() {
                tokio::time::sleep(LEAVING).await;
            } else {
                // One that reads may have become idle without saying so.
                let _ = tokio::time::timeout(DEAF, self.came.notified()).await;
            }
        }
    }

    /// Makes the one give way whose turn it is. False: none may.
    pub fn dismiss_one(&self) -> bool {
        let (now, waiting) = (Instant::now(), &mut *self.waiting.borrow_mut());
        let first = waiting.iter().find(|(_, waiting)| waiting.from <= now).map(|(order, _)| *order);
        let first = first.and_then(|order| waiting.remove(&order));
        first.map(|waiting| waiting.dismissed.notify_one()).is_some()
    }
}

impl Waits {
    /// Waits until it must give way.
    pub async fn dismissed(&self) {
        self.dismissed.notified().await;
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.idlers.waiting.borrow_mut().remove(&self.order);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_one_that_has_waited_longest_goes_and_who_asks_or_reads_is_not_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let idlers = Rc::new(Idlers::default());
            let (watching, reading) = (idlers.wait(Idle::Watches), idlers.wait(Idle::Reads));
            let first = idlers.wait(Idle::AsksNothing);
            let (second, third) = (idlers.wait(Idle::AsksNothing), idlers.wait(Idle::AsksNothing));
            let shaking = idlers.wait(Idle::ShakesHands);
            drop(first);
            for next in [shaking, second, third, watching] {
                assert!(idlers.dismiss_one());
                next.dismissed().await;
            }
            assert!(!idlers.dismiss_one(), "it may have taken something in this second");
            let since = Instant::now();
            tokio::select! {
                never = idlers.dismiss() => match never {},
                () = reading.dismissed() => assert!(since.elapsed() >= DEAF / 2),
            }
        });
    }
}
