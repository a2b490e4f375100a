//! The requests of which parts are missing: how much memory they take, and whose take most.
//!
//! A client may send half of a request and leave it at that. Where all of these take too much, the client
//! with the most must go, not the one that happens to send next.

use ovsdb::server::{BySession, SessionId};
use std::cmp::Reverse;
use std::rc::Rc;
use tokio::sync::Notify;

/// Smaller ones are let be: 10,000 clients send half a request each at times.
pub(super) const SMALL_BYTES: usize = 64 << 10;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Incomplete {
    bytes: usize,
    of: BySession<Held>,
}

struct Held {
    bytes: usize,
    /// Tells the client's task that the client must go.
    must_go: Rc<Notify>,
}

impl Incomplete {
    /// Bytes of all clients.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A client's incomplete request takes so many bytes now.
    pub(super) fn set(&mut self, id: SessionId, bytes: usize, must_go: &Rc<Notify>) {
        self.remove(id);
        if bytes > 0 {
            self.bytes += bytes;
            self.of.insert(id, Held { bytes, must_go: must_go.clone() });
        }
    }

    /// A client is gone.
    pub(super) fn remove(&mut self, id: SessionId) {
        self.bytes -= self.of.remove(&id).map_or(0, |held| held.bytes);
    }

    /// Sends away the clients with most until the others have no more than this, or only small ones are left.
    pub(super) fn keep_to(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max {
            let largest = self.of.iter().max_by_key(|(id, held)| (held.bytes, Reverse(**id)));
            let Some((&id, held)) = largest.filter(|(_, held)| held.bytes > SMALL_BYTES) else { return };
            held.must_go.notify_one();
            self.remove(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ovsdb::server::{Now, Server};
    use std::time::Instant;

    /// Whether a client was told to go.
    fn is_told(must_go: &Notify) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let told = async { tokio::time::timeout(std::time::Duration::ZERO, must_go.notified()).await };
        runtime.block_on(told).is_ok()
    }

    #[test]
    fn the_client_with_most_goes_and_not_the_one_that_sends() {
        let ids = ovsdb::UuidGenerator::from_seed(1);
        let mut server = Server::new(Now { at: Instant::now(), date_ms: 0 }, ids);
        let clients = [(); 4].map(|()| (server.connect(false), Rc::new(Notify::new())));
        let mut incomplete = Incomplete::default();
        let mib = 1 << 20;
        for ((id, must_go), bytes) in clients.iter().zip([200 * mib, 5 * mib, 100 * mib, SMALL_BYTES]) {
            incomplete.set(*id, bytes, must_go);
        }
        let (sender, must_go) = &clients[1];
        incomplete.set(*sender, 10 * mib, must_go);
        assert_eq!(incomplete.bytes(), 310 * mib + SMALL_BYTES);
        let told = || clients.each_ref().map(|(_, must_go)| is_told(must_go));
        incomplete.keep_to(400 * mib);
        assert_eq!(told(), [false; 4]);
        incomplete.keep_to(300 * mib);
        assert_eq!(told(), [true, false, false, false], "it holds most");
        assert_eq!(incomplete.bytes(), 110 * mib + SMALL_BYTES, "what goes does not count any more");
        incomplete.keep_to(0);
        assert_eq!(told(), [false, true, true, false], "one with little is not to blame");
        incomplete.remove(clients[3].0);
        assert_eq!(incomplete.bytes(), 0);
    }
}
