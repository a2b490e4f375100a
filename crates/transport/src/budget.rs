//! What the clients of a server make it hold for them: replies that they do not take, requests that are not
//! whole. Where all of it together is too much, the client that holds most is to go, and first of all one
//! that takes nothing.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A client that has taken nothing for so long, though something waits for it, counts as deaf.
const DEAF: Duration = Duration::from_secs(1);

/// A client that holds no more than this fraction of what all may hold is not to blame where that is scarce.
const SMALL_PARTS: usize = 256;

/// What all clients may make a server hold.
pub struct Budget {
    bytes_max: usize,
    accounts: RefCell<Accounts>,
}

#[derive(Default)]
struct Accounts {
    bytes: usize,
    next: u64,
    open: BTreeMap<u64, Entry>,
}

struct Entry {
    bytes: usize,
    /// What the client has taken so far.
    taken: u64,
    /// Since when it takes nothing of what waits.
    blocked_since: Option<Instant>,
    closed: Rc<Notify>,
}

/// What one client makes the server hold; nothing any more once this is dropped.
pub struct Account {
    budget: Rc<Budget>,
    number: u64,
    closed: Rc<Notify>,
}

impl Budget {
    /// Of so many bytes.
    pub fn new(bytes_max: usize) -> Rc<Budget> {
        Rc::new(Budget { bytes_max, accounts: RefCell::default() })
    }

    /// An account for a further client.
    pub fn open(self: &Rc<Self>) -> Account {
        let accounts = &mut *self.accounts.borrow_mut();
        let (number, closed) = (accounts.next, Rc::new(Notify::new()));
        accounts.next += 1;
        let entry = Entry { bytes: 0, taken: 0, blocked_since: None, closed: closed.clone() };
        accounts.open.insert(number, entry);
        Account { budget: self.clone(), number, closed }
    }
}

impl Account {
    /// The client makes us hold so many bytes now, and has taken so many so far. `is_blocked`: some wait that
    /// it does not take.
    pub fn set(&self, bytes: usize, taken: u64, is_blocked: bool) {
        self.set_at(Instant::now(), bytes, taken, is_blocked);
    }

    fn set_at(&self, now: Instant, bytes: usize, taken: u64, is_blocked: bool) {
        let accounts = &mut *self.budget.accounts.borrow_mut();
        let Some(entry) = accounts.open.get_mut(&self.number) else { return };
        accounts.bytes = accounts.bytes - entry.bytes + bytes;
        let goes_on = is_blocked && entry.taken == taken;
        entry.blocked_since = entry.blocked_since.filter(|_| goes_on).or(is_blocked.then_some(now));
        (entry.bytes, entry.taken) = (bytes, taken);
        accounts.close_largest(now, self.budget.bytes_max);
    }

    /// Whether half of what there is for all is taken, and this client has more than a small part of it.
    pub fn is_scarce(&self) -> bool {
        let accounts = self.budget.accounts.borrow();
        let has_much = |entry: &Entry| entry.bytes > self.budget.bytes_max / SMALL_PARTS;
        accounts.bytes > self.budget.bytes_max / 2 && accounts.open.get(&self.number).is_some_and(has_much)
    }

    /// Until the client is to go.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }
}

impl Accounts {
    /// Closes accounts until the others have no more than they may, or one is left that holds anything.
    fn close_largest(&mut self, now: Instant, bytes_max: usize) {
        let is_deaf = |entry: &Entry| entry.blocked_since.is_some_and(|since| now - since >= DEAF);
        while self.bytes > bytes_max {
            let largest = self.open.iter().max_by_key(|(_, entry)| (is_deaf(entry), entry.bytes));
            let Some((&number, entry)) = largest.filter(|(_, entry)| entry.bytes < self.bytes) else {
                return;
            };
            self.bytes -= entry.bytes;
            entry.closed.notify_one();
            self.open.remove(&number);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let accounts = &mut *self.budget.accounts.borrow_mut();
        if let Some(entry) = accounts.open.remove(&self.number) {
            accounts.bytes -= entry.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of the accounts are still open.
    fn open(accounts: &[Account]) -> Vec<bool> {
        let is_open = |account: &Account| account.budget.accounts.borrow().open.contains_key(&account.number);
        accounts.iter().map(is_open).collect()
    }

    #[test]
    fn the_largest_deaf_client_goes_and_where_none_is_deaf_the_largest() {
        let (budget, start) = (Budget::new(100), Instant::now());
        let accounts: Vec<Account> = (0..5).map(|_| budget.open()).collect();
        for (account, bytes) in accounts.iter().zip([40, 10, 20, 5, 5]) {
            account.set_at(start, bytes, 0, bytes == 10 || bytes == 20);
        }
        let idle = budget.open();
        assert!(accounts[3].is_scarce() && !idle.is_scarce(), "who holds next to nothing is not to blame");
        // One of those that wait takes something after all.
        let late = start + DEAF;
        accounts[2].set_at(late - DEAF / 2, 20, 1, true);
        accounts[3].set_at(late, 30, 0, false);
        assert_eq!(open(&accounts), [true, false, true, true, true]);
        accounts[3].set_at(late, 60, 0, false);
        assert_eq!(open(&accounts), [true, false, true, false, true], "nobody is deaf");
        accounts[4].set_at(late + DEAF, 90, 0, false);
        assert_eq!(open(&accounts), [true, false, false, false, false], "first the deaf, then the largest");
        // What was closed, and what is dropped, holds nothing.
        accounts[3].set_at(late + DEAF, 1_000, 0, false);
        assert_eq!(open(&accounts), [true, false, false, false, false]);
        drop(accounts);
        assert_eq!(budget.accounts.borrow().bytes, 0);
    }

    #[test]
    fn what_is_too_much_by_itself_is_not_closed_for_it() {
        let budget = Budget::new(100);
        let (alone, idle) = (budget.open(), budget.open());
        alone.set(1_000, 0, true);
        idle.set(0, 0, false);
        assert_eq!(budget.accounts.borrow().open.len(), 2);
        idle.set(1, 0, false);
        assert_eq!(budget.accounts.borrow().open.len(), 1);
    }

    #[test]
    fn a_client_hears_that_it_is_to_go() {
        let budget = Budget::new(1);
        let (deaf, other) = (budget.open(), budget.open());
        deaf.set(10, 0, true);
        other.set(1, 0, false);
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(deaf.closed());
    }
}
