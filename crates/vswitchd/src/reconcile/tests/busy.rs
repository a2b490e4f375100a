//! A device that another process has.

use super::*;
use crate::janitor::Fate;
use crate::machine::{Machine, ThisMachine};
use packet::Pool;
use ports::netlink::Link;
use ports::{Blocker, PortError, PortSpec};
use std::cell::Cell;
use std::rc::Rc;

const THEIRS: Blocker = Blocker { ifindex: 7, queue_id: Some(0) };

/// This machine, with a busy `p2`.
struct Busy {
    this: ThisMachine,
    is_busy: Rc<Cell<bool>>,
}

impl Machine for Busy {
    fn open(&self, spec: &PortSpec, pool: &'static Pool) -> Result<Box<dyn packet::Port>, PortError> {
        match spec.name == "p2" && self.is_busy.get() {
            true => Err(PortError::Busy { by: THEIRS, why: "theirs".into() }),
            false => self.this.open(spec, pool),
        }
    }

    fn is_gone(&self, blocker: Blocker) -> bool {
        assert_eq!(blocker, THEIRS);
        !self.is_busy.get()
    }

    fn links(&self) -> Result<Vec<Link>, PortError> {
        self.this.links()
    }

    fn take_port(&self, device: &str, port: Box<dyn packet::Port>, fate: Fate) {
        self.this.take_port(device, port, fate);
    }

    fn remove_device(&self, device: &str, ifindex: u32) {
        self.this.remove_device(device, ifindex);
    }

    fn is_leaving(&self, device: &str) -> bool {
        self.this.is_leaving(device)
    }

    fn leaving(&self) -> usize {
        self.this.leaving()
    }

    fn last(&self) -> u64 {
        self.this.last()
    }

    fn is_down(&self, last: u64) -> bool {
        self.this.is_down(last)
    }

    fn is_full(&self) -> bool {
        self.this.is_full()
    }

    fn finish(&self) {
        self.this.finish();
    }
}

#[test]
fn a_device_that_another_process_is_giving_up_is_opened_once_it_has() {
    let mut v = vswitch();
    let is_busy = Rc::new(Cell::new(true));
    v.devices.machine = Box::new(Busy { this: ThisMachine::start().unwrap(), is_busy: is_busy.clone() });
    let w = wanted(&["p1", "p2", "p3"]);
    let plan = |v: &Vswitch| Reconciliation::plan(&v.running(), w.clone().into(), Default::default());
    let mut first = plan(&v);
    while first.step(&mut v) != Progress::Waiting {}
    assert_eq!(v.outcome("p2"), Outcome { of_port: None, error: None });
    // A plan that replaces this one goes on to wait.
    let mut second = plan(&v);
    let awaited = v.devices.awaited.clone();
    while second.step(&mut v) != Progress::Waiting {}
    is_busy.set(false);
    while second.step(&mut v) != Progress::Done {}
    let outcomes = second.outcomes(&v);
    assert!(outcomes.values().all(|o| o.error.is_none() && o.of_port.is_some()), "{outcomes:?}");
    assert!(awaited.is_some() && v.devices.awaited.is_none());
}

#[test]
fn a_device_that_another_process_keeps_is_an_error_once_the_grace_is_over() {
    let mut v = vswitch();
    let is_busy = Rc::new(Cell::new(true));
    v.devices.machine = Box::new(Busy { this: ThisMachine::start().unwrap(), is_busy });
    let mut w = wanted(&["p1", "p2"]);
    // As if it had been so for long.
    let before = Instant::now().checked_sub(Duration::from_secs(10)).unwrap();
    v.devices.awaited = Some(("p2".into(), ports::Wait::begin(THEIRS, before)));
    let start = Instant::now();
    let outcomes = become_(&mut v, &w);
    assert!(start.elapsed() < Duration::from_secs(1), "it is waited for anew");
    assert!(outcomes["p2"].error.as_ref().is_some_and(|why| why.ends_with("(theirs)")), "{outcomes:?}");
    assert!(outcomes["p1"].error.is_none());
    // Other changes are not held up by it again.
    w.bridges.get_mut("br0").unwrap().add(dummy("p3"));
    let mut plan = Reconciliation::plan(&v.running(), w.clone().into(), Default::default());
    while plan.step(&mut v) != Progress::Done {
        assert!(v.devices.awaited.is_none());
    }
    assert!(plan.outcomes(&v)["p3"].of_port.is_some());
}
