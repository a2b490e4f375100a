//! The generators of traffic.

pub mod builtin;
#[cfg(test)]
mod example;
pub mod list;
pub mod testpmd;
pub mod trex;
pub mod zmtp;

use super::net::Net;
use super::topology::Topology;
pub use super::traffic::Load;
use super::traffic::Sent;
use std::path::PathBuf;

/// Where a generator sends or receives.
#[derive(Clone, Debug)]
pub enum Place {
    /// An interface in its namespace.
    Interface(String),
    /// A tap device that it makes in its namespace; then it is moved to the switch's.
    Tap(String),
    /// A socket on which it listens, as the guest.
    Socket(PathBuf),
    /// A guest's socket, to which it connects instead of a switch.
    Backend(PathBuf),
}

/// What a generator needs to start.
pub struct Stage<'a> {
    /// Its namespace.
    pub net: &'a Net,
    /// All its places.
    pub places: Vec<Place>,
    /// Indices of the sending places, and whether source and destination are swapped there.
    pub sources: Vec<(usize, bool)>,
    /// Indices of the places where frames return.
    pub outputs: Vec<usize>,
    /// How often each frame comes back.
    pub copies: u64,
    /// Descriptors of a guest's rings.
    pub descriptors: u32,
    /// The processor that the generator has for itself.
    pub cpu: Option<usize>,
}

impl Stage<'_> {
    /// Interfaces alone: from `e0` to others.
    pub fn interfaces(&self) -> Option<Vec<&str>> {
        let name = |place: &Place| match place {
            Place::Interface(_) => true,
            Place::Tap(_) | Place::Socket(_) | Place::Backend(_) => false,
        };
        self.places.iter().all(name).then(|| {
            let names = self.places.iter().map(|place| match place {
                Place::Interface(name) | Place::Tap(name) => name.as_str(),
                Place::Socket(_) | Place::Backend(_) => "",
            });
            names.collect()
        })
    }
}

/// A traffic generator outside the switch's namespace.
pub trait Generator {
    /// Its name on the command line and in stored results.
    fn name(&self) -> &str;

    /// Why it can offer nothing in this topology, or nothing at a rate, before anything is started.
    fn refuses_topology(&self, _topology: &Topology, _is_paced: bool) -> Option<String> {
        None
    }

    /// Why it cannot send these flows in this topology, before anything is started.
    fn refuses_flows(&self, _load: &Load, _topology: &Topology) -> Option<String> {
        None
    }

    /// What to know about its figures.
    fn caution(&self) -> Option<&'static str> {
        None
    }

    /// Why it cannot offer this load on this stage, if it cannot.
    fn refuses(&self, load: &Load, stage: &Stage) -> Option<String>;

    /// Whether its frames are those of the load's pattern. For others a switch has a rule for each port.
    fn sends_pattern(&self) -> bool {
        true
    }

    /// Opens its places. Tap devices and sockets are there when it returns.
    fn start(&self, stage: &Stage) -> Result<Box<dyn Offering>, String>;
}

/// A generator that has its places open, until it is dropped.
pub trait Offering {
    /// Its process, if it has one for all loads.
    fn pid(&self) -> Option<u32> {
        None
    }

    /// Begins to offer a load. A [`Meter`](super::meter::Meter) of these processes runs from its first frame
    /// to its last one.
    fn begin(&mut self, load: &Load, pids: &[u32]) -> Result<(), String>;

    /// Waits until it has finished, and returns the part of the result that the generator knows.
    fn finish(&mut self) -> Result<Sent, String>;

    /// The same again, including late packets; `None` if it cannot.
    fn again(&mut self) -> Result<Option<Sent>, String>;
}
