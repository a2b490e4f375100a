//! The accept loop of every listening socket: how many connections may exist at once, which one gives way to
//! another, and what happens when the process is out of descriptors.

use crate::{Idle, Idlers, Incoming, Listener, Stream, StreamError, reason};
use rustix::io::Errno;
use std::cell::RefCell;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long to wait after accepting failed: existing connections continue, and end.
const FAILED_WAIT: Duration = Duration::from_millis(100);
/// The same after an idle connection was told to give up its descriptor, which takes it no longer.
const DISMISSED_WAIT: Duration = Duration::from_millis(1);
/// Descriptors that connections over the network leave to Unix sockets (the operator's), files and ports;
/// where the process may have few, an eighth of them.
const RESERVED_MAX: u64 = 64;

/// The places for connections of one socket.
#[derive(Clone)]
pub struct Places {
    free: Arc<Semaphore>,
    idle: Rc<Idlers>,
    spares: Rc<Spares>,
}

/// A connection's place; free again when this is dropped.
pub struct Place {
    _permit: OwnedSemaphorePermit,
    idle: Rc<Idlers>,
    spares: Rc<Spares>,
}

/// Descriptors that are kept back, and given up for a connection when the process has no others left.
#[derive(Default)]
struct Spares {
    kept: RefCell<Vec<File>>,
    most: usize,
}

impl Spares {
    fn refill(&self) {
        let kept = &mut *self.kept.borrow_mut();
        kept.extend((kept.len()..self.most).map_while(|_| File::open("/dev/null").ok()));
    }

    fn give_up_one(&self) -> bool {
        self.kept.borrow_mut().pop().is_some()
    }
}

impl Places {
    /// Room for `connections_max`. For another one, the connection that has been idle longest gives way; if
    /// none is idle, the next one that becomes idle.
    pub fn new(connections_max: usize) -> Places {
        Places { free: Arc::new(Semaphore::new(connections_max)), idle: Rc::default(), spares: Rc::default() }
    }

    /// Keeps so many descriptors back for connections that come when the process has no others left.
    pub fn with_spares(self, most: usize) -> Places {
        let spares = Spares { most, ..Spares::default() };
        spares.refill();
        Places { spares: Rc::new(spares), ..self }
    }

    /// Room for all that come.
    pub fn unlimited() -> Places {
        Places::new(Semaphore::MAX_PERMITS)
    }

    async fn take(&self) -> Place {
        let permit = tokio::select! {
            biased;
            permit = self.free.clone().acquire_owned() => permit.expect("never closed"),
            never = self.idle.dismiss() => match never {},
        };
        Place { _permit: permit, idle: self.idle.clone(), spares: self.spares.clone() }
    }
}

impl Place {
    /// The stream of a connection that came to this place, as [`Incoming::establish`] makes it. Its handshake
    /// ends where others need the place.
    pub async fn establish(&self, incoming: Incoming) -> Result<Stream, StreamError> {
        let wait = self.idle.wait(Idle::ShakesHands);
        tokio::select! {
            biased;
            made = incoming.establish() => made,
            () = wait.dismissed() => Err(StreamError::Handshake("too slow while other clients wait".into())),
        }
    }

    /// Notified when its connection becomes idle, if it may be dismissed.
    pub fn idlers(&self) -> Rc<Idlers> {
        self.idle.clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.spares.refill();
    }
}

/// Takes connections until it is dropped. `take` has a task serve each, since its handshake may take long;
/// `failed` logs why one could not be accepted.
pub async fn accept(
    listener: &Listener,
    places: &Places,
    failed: impl Fn(&str),
    mut take: impl FnMut(Incoming, Place),
) -> Infallible {
    loop {
        let mut accepted = listener.accept().await;
        while accepted.as_ref().is_err_and(is_out_of_descriptors) && places.spares.give_up_one() {
            accepted = listener.accept().await;
        }
        match accepted {
            Ok(incoming) if incoming.is_remote() && is_reserved(incoming.descriptor(), limit()) => {
                // A connection that is idle gives up its descriptor for the next one.
                places.idle.dismiss_one();
                failed("the file descriptors that are left are reserved for the operator");
                drop(incoming);
                tokio::time::sleep(FAILED_WAIT).await;
            }
            Ok(incoming) => take(incoming, places.take().await),
            Err(error) => {
                // Most likely out of descriptors: an idle connection gives up its own.
                let wait = if places.idle.dismiss_one() { DISMISSED_WAIT } else { FAILED_WAIT };
                failed(&reason(&error));
                tokio::time::sleep(wait).await;
            }
        }
    }
}

fn is_out_of_descriptors(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE))
}

/// Descriptors that the process may have.
fn limit() -> u64 {
    rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Whether a descriptor is one of the reserved ones. The system assigns the lowest free number, so a number
/// close to the limit means that few are left.
fn is_reserved(descriptor: RawFd, limit: u64) -> bool {
    let reserved = RESERVED_MAX.min(limit / 8);
    u64::try_from(descriptor).is_ok_and(|number| number >= limit - reserved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PassiveTarget;
    use tokio::io::AsyncReadExt;

    #[test]
    fn the_last_descriptors_are_reserved() {
        for (limit, first) in [(64, 56), (1_024, 960), (65_536, 65_472)] {
            assert!(!is_reserved(first - 1, limit), "{limit}");
            assert!(is_reserved(first, limit), "{limit}");
        }
        assert!(!is_reserved(i32::MAX, u64::MAX), "without a limit there is no end");
    }

    #[test]
    fn an_idle_connection_gives_way_to_a_further_one() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("socket");
            let listener = Listener::bind(&PassiveTarget::Unix(path.clone()), None).await.unwrap();
            tokio::task::spawn_local(async move {
                accept(
                    &listener,
                    &Places::new(1),
                    |why| panic!("{why}"),
                    |incoming, place| {
                        tokio::task::spawn_local(async move {
                            let _stream = place.establish(incoming).await.unwrap();
                            place.idlers().wait(Idle::AsksNothing).dismissed().await;
                        });
                    },
                )
                .await
            });
            let connect = || async {
                let target = crate::ActiveTarget::Unix(path.clone());
                Stream::connect(&target, None).await.unwrap()
            };
            let mut first = connect().await;
            let mut byte = [0];
            let is_open = tokio::time::timeout(Duration::from_millis(20), first.read(&mut byte)).await;
            assert!(is_open.is_err(), "nobody else wants its place");
            let _second = connect().await;
            assert_eq!(first.read(&mut byte).await.unwrap(), 0);
        });
    }

    #[test]
    fn who_is_idle_only_later_gives_way_then() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let places = Places::new(1);
            let first = places.take().await;
            let idlers = first.idlers();
            let works_first = async {
                tokio::time::sleep(Duration::from_millis(20)).await;
                idlers.wait(Idle::AsksNothing).dismissed().await;
                drop(first);
            };
            let (_second, ()) = tokio::join!(places.take(), works_first);
        });
    }
}
