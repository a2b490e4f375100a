//! Clients that are connected and ask for nothing: when there is no room for another, the one that has been
//! so longest gives way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a connection has to close before the next one is asked to.
const LEAVING: Duration = Duration::from_millis(10);

/// The idle connections of one socket.
#[derive(Default)]
pub struct Idlers {
    /// By rank, and then by the time at which they began to wait.
    waiting: RefCell<BTreeMap<Order, Rc<Notify>>>,
    next: Cell<u64>,
    came: Notify,
}

/// Its rank and its number.
type Order = (Rank, u64);

/// Who gives way first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    ShakesHands,
    AsksNothing,
    /// It has asked to be told of something.
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
    pub fn wait(self: &Rc<Self>) -> Waits {
        self.wait_on(Rc::default())
    }

    /// The same for one that waits for several things: `dismissed` is notified when it must give way.
    pub fn wait_on(self: &Rc<Self>, dismissed: Rc<Notify>) -> Waits {
        self.add(Rank::AsksNothing, dismissed)
    }

    /// A client shakes hands: anybody may begin that, so it gives way before those that have done so.
    pub fn shake(self: &Rc<Self>) -> Waits {
        self.add(Rank::ShakesHands, Rc::default())
    }

    /// A client waits for what it has asked to be told of: it gives way after those that ask for nothing.
    pub fn watch(self: &Rc<Self>) -> Waits {
        self.add(Rank::Watches, Rc::default())
    }

    fn add(self: &Rc<Self>, rank: Rank, dismissed: Rc<Notify>) -> Waits {
        let order = (rank, self.next.get());
        self.next.set(order.1 + 1);
        self.waiting.borrow_mut().insert(order, dismissed.clone());
        self.came.notify_one();
        Waits { idlers: self.clone(), order, dismissed }
    }

    /// Makes one after the other give way, until the caller drops this.
    pub async fn dismiss(&self) -> Infallible {
        loop {
            if self.dismiss_one() {
                tokio::time::sleep(LEAVING).await;
            } else {
                self.came.notified().await;
            }
        }
    }

    /// Makes the one that has waited longest give way. False: none is waiting.
    pub fn dismiss_one(&self) -> bool {
        let first = self.waiting.borrow_mut().pop_first();
        first.as_ref().map(|(_, dismissed)| dismissed.notify_one()).is_some()
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
    fn the_one_that_has_waited_longest_goes_and_who_asks_is_not_idle() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let idlers = Rc::new(Idlers::default());
            let (watching, first) = (idlers.watch(), idlers.wait());
            let (second, third) = (idlers.wait(), idlers.wait());
            drop(first);
            assert!(idlers.dismiss_one());
            second.dismissed().await;
            assert!(idlers.dismiss_one());
            third.dismissed().await;
            assert!(idlers.dismiss_one());
            watching.dismissed().await;
            assert!(!idlers.dismiss_one());
        });
    }
}
