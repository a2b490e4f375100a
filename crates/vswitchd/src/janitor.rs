//! Takes down, on a thread of its own, what the kernel or a guest may take long to take down.
//!
//! A network device goes away when no processor uses it any more, and the kernel makes the remover wait for
//! that: tens of milliseconds on a busy machine, a thousand times over for a bridge with a thousand internal
//! ports. So the control thread passes released ports to this thread, which removes the devices of many with
//! one request and then drops the ports, which closes their files and sockets and detaches their programs.
//! Guests' ports come here, too: their threads may still be busy with what the guests ask for.
//!
//! Until that is done, a device's name is *leaving*: a port that needs a device with that name waits, see
//! [`Janitor::is_leaving`]. At most [`WAITING_MAX`] ports wait; no more are released before there is room.
//!
//! Order: first come, first served. Dropping the janitor waits until everything is done.

use packet::Port;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// Number of devices removed together. For part of the time the kernel's lock on all devices is held, which
/// delays anyone who creates one; but most of the time is a wait without the lock, which takes no longer for
/// many devices than for one.
const BATCH_MAX: usize = 128;
/// Ports that wait; a thousand files and rings are some megabytes.
const WAITING_MAX: usize = 4096;

/// What happens to the device that a port has created in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It is removed.
    Removed,
    /// It stays if it was created to outlive the process.
    Left,
}

/// See the module documentation.
pub struct Janitor {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// There is something to do, or the thread must end.
    work: Condvar,
    /// Something has been done.
    done: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// Names of devices that are leaving, each with how many jobs are about it.
    leaving: BTreeMap<String, usize>,
    /// Jobs taken and done so far, in order.
    taken: u64,
    done: u64,
    is_ending: bool,
}

struct Job {
    device: String,
    what: What,
}

enum What {
    Port(Box<dyn Port>, Fate),
    /// A device by its index.
    Device(u32),
}

impl Janitor {
    /// Starts the thread.
    pub fn start() -> std::io::Result<Janitor> {
        let shared = Arc::new(Shared::default());
        let its = shared.clone();
        let thread = std::thread::Builder::new().name("janitor".into()).spawn(move || its.run())?;
        Ok(Janitor { shared, thread: Some(thread) })
    }

    /// Takes a port that no worker has a queue of any more. `device` is the name of its device.
    pub fn take_port(&self, device: &str, port: Box<dyn Port>, fate: Fate) {
        self.take(Job { device: device.into(), what: What::Port(port, fate) });
    }

    /// Removes a device of the kernel's.
    pub fn remove_device(&self, device: &str, ifindex: u32) {
        self.take(Job { device: device.into(), what: What::Device(ifindex) });
    }

    fn take(&self, job: Job) {
        let mut state = self.shared.lock();
        *state.leaving.entry(job.device.clone()).or_default() += 1;
        state.taken += 1;
        state.jobs.push_back(job);
        self.shared.work.notify_one();
    }

    /// Whether a device with that name has yet to be taken down.
    pub fn is_leaving(&self, device: &str) -> bool {
        self.shared.lock().leaving.contains_key(device)
    }

    /// How many devices are leaving.
    pub fn waiting(&self) -> usize {
        self.shared.lock().leaving.values().sum()
    }

    /// The number of the last device that was taken.
    pub fn last(&self) -> u64 {
        self.shared.lock().taken
    }

    /// Whether it and all before it are taken down.
    pub fn is_down(&self, last: u64) -> bool {
        self.shared.lock().done >= last
    }

    /// Whether the queue is so long that nothing should be added.
    pub fn is_full(&self) -> bool {
        self.waiting() >= WAITING_MAX
    }

    /// Waits until everything is done.
    pub fn finish(&self) {
        let waits = |state: &mut State| !state.leaving.is_empty();
        drop(self.shared.done.wait_while(self.shared.lock(), waits).expect("no panic while held"));
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.shared.lock().is_ending = true;
        self.shared.work.notify_one();
        // If it panicked, it has already said so on stderr.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }

    fn run(&self) {
        loop {
            let idle = |state: &mut State| state.jobs.is_empty() && !state.is_ending;
            let mut state = self.work.wait_while(self.lock(), idle).expect("no panic while held");
            if state.jobs.is_empty() {
                return;
            }
            let count = state.jobs.len().min(BATCH_MAX);
            let batch: Vec<Job> = state.jobs.drain(..count).collect();
            drop(state);
            let names = take_down(batch);
            let mut state = self.lock();
            state.done += names.len() as u64;
            for name in names {
                if let Some(jobs) = state.leaving.get_mut(&name) {
                    *jobs -= 1;
                    if *jobs == 0 {
                        state.leaving.remove(&name);
                    }
                }
            }
            self.done.notify_all();
        }
    }
}

/// Does the work; returns the names.
fn take_down(batch: Vec<Job>) -> Vec<String> {
    let device = |job: &Job| match &job.what {
        What::Port(port, Fate::Removed) => port.own_device(),
        What::Port(_, Fate::Left) => None,
        What::Device(ifindex) => Some(*ifindex),
    };
    let indexes: Vec<u32> = batch.iter().filter_map(device).collect();
    if let Err(error) = ports::netlink::delete_links(&indexes) {
        tracing::warn!(target: "netdev", "devices could not be removed: {error}");
    }
    // Here the ports are dropped.
    batch.into_iter().map(|job| job.device).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::{PortStats, PortStatus, RxQueue, TxQueue};
    use std::sync::mpsc;

    /// A port that goes when it is told to.
    struct Slow(mpsc::Receiver<()>);

    impl Port for Slow {
        fn kind(&self) -> &'static str {
            "slow"
        }
        fn take_rx_queues(&mut self) -> Vec<Box<dyn RxQueue>> {
            Vec::new()
        }
        fn take_tx_queues(&mut self, _: usize) -> Vec<Box<dyn TxQueue>> {
            Vec::new()
        }
        fn stats(&self) -> PortStats {
            PortStats::default()
        }
        fn status(&self) -> PortStatus {
            unreachable!("nobody asks")
        }
        fn set_admin_up(&mut self, _: bool) -> Result<(), String> {
            unreachable!("nobody asks")
        }
        fn set_mtu(&mut self, _: u32) -> Result<(), String> {
            unreachable!("nobody asks")
        }
    }

    impl Drop for Slow {
        fn drop(&mut self) {
            let _ = self.0.recv();
        }
    }

    #[test]
    fn a_name_is_leaving_until_its_last_port_is_gone_and_nobody_waits_meanwhile() {
        let janitor = Janitor::start().unwrap();
        let slow = || {
            let (go, wait) = mpsc::channel();
            (go, Box::new(Slow(wait)))
        };
        let ((go_first, first), (go_second, second)) = (slow(), slow());
        janitor.take_port("p1", first, Fate::Removed);
        janitor.take_port("p1", second, Fate::Left);
        assert!(janitor.is_leaving("p1") && !janitor.is_leaving("p2"));
        assert_eq!((janitor.waiting(), janitor.is_full()), (2, false));
        go_first.send(()).unwrap();
        assert!(janitor.is_leaving("p1"));
        go_second.send(()).unwrap();
        while janitor.is_leaving("p1") {
            std::thread::yield_now();
        }
        assert_eq!(janitor.waiting(), 0);
        let (go, last) = slow();
        janitor.take_port("p3", last, Fate::Removed);
        go.send(()).unwrap();
        janitor.finish();
        assert!(!janitor.is_leaving("p3"));
    }
}
