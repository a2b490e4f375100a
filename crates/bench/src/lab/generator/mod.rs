//! Who offers traffic.

pub mod builtin;
pub mod list;
pub mod testpmd;

use super::net::Net;
use super::traffic::Sent;

/// What is offered.
#[derive(Clone, Debug)]
pub struct Load {
    /// Bytes of a frame with its check sequence.
    pub size: u16,
    /// Flows.
    pub flows: u32,
    /// Frames per second; as many as go where there is none.
    pub rate: Option<u64>,
    /// For how long.
    pub seconds: f64,
    /// So many at once, instead.
    pub burst: Option<u64>,
}

/// A traffic generator outside the switch's namespace: it sends on `e0`, and receives on others.
pub trait Generator: Sync {
    /// As it is typed and stored.
    fn name(&self) -> &'static str;

    /// Why it cannot offer this load, if it cannot.
    fn refuses(&self, load: &Load) -> Option<String>;

    /// Offers the load, and says what became of it as far as it can tell. `outputs` are the interfaces at
    /// which it comes back.
    fn offer(&self, net: &Net, outputs: &[String], load: &Load) -> Result<Sent, String>;
}
