//! The ends that the built-in generator sends and receives at: a kernel interface by packet sockets or
//! AF_XDP, a tap device's own side, a guest's side of vhost-user, or the switch's side of it.

use guest::{Guest, GuestConfig, QueuePair};
use packet::{Batch, Pool, PoolCache, Port, RxQueue, TxQueue};
use ports::PortSpec;
use std::path::Path;
use std::time::Duration;

/// How long a switch has to connect to a guest.
const CONNECT: Duration = Duration::from_secs(30);
/// The MTU at a guest, so that every size of a frame passes.
const MTU_MAX: u32 = 9000;
/// Frames that are taken from a guest's ring at once.
const GUEST_BURST: usize = 64;

/// See the module documentation.
pub enum Wire {
    /// Through one of the drivers.
    Port(Box<dyn Port>, Box<dyn RxQueue>, Box<dyn TxQueue>, Box<Batch>),
    /// As a guest.
    Guest(Guest, Box<QueuePair>),
}

/// One end.
pub struct End {
    /// The interface or the socket's file name.
    pub name: String,
    wire: Wire,
    /// Frames for which a guest's ring had no room: the switch had not taken those before.
    refused: u64,
}

impl End {
    /// Opens `packet:NAME`, `xdp:NAME`, `tap:NAME`, `vhost:PATH` or `backend:PATH`. A guest waits until a
    /// switch has connected.
    pub fn open(text: &str, pool: &'static Pool, number: u32, descriptors: u16) -> Result<End, String> {
        let (kind, name) = text.split_once(':').ok_or_else(|| format!("{text}: expected DRIVER:NAME"))?;
        let spec = |kind: &str| PortSpec::new(name, kind, base::PortNo(number));
        let spec = match kind {
            "packet" => spec("system").with("driver", "af_packet"),
            "xdp" => spec("afxdp"),
            "tap" => spec("tap"),
            // The switch's side of a guest's socket: then there is no switch between.
            "backend" => {
                PortSpec { mtu: Some(MTU_MAX), ..spec("dpdkvhostuserclient").with("vhost-server-path", name) }
            }
            "vhost" => {
                let config = GuestConfig { ring_size: descriptors, ..GuestConfig::default() };
                let mut guest =
                    Guest::listen(Path::new(name), &config, CONNECT).map_err(|e| e.to_string())?;
                let pair = guest.take_pairs().pop().ok_or("a guest without queues")?;
                let name = name.rsplit('/').next().unwrap_or(name).to_string();
                return Ok(End { name, wire: Wire::Guest(guest, Box::new(pair)), refused: 0 });
            }
            _ => return Err(format!("{kind}: expected packet, xdp, tap, vhost or backend")),
        };
        let mut port = ports::open(&spec, pool).map_err(|e| e.to_string())?;
        let tx = port.take_tx_queues(1).into_iter().next().ok_or("no transmit queue")?;
        let rx = port.take_rx_queues().into_iter().next().ok_or("no receive queue")?;
        Ok(End { name: name.to_string(), wire: Wire::Port(port, rx, tx, Box::default()), refused: 0 })
    }

    /// Frames that went out since the end was opened.
    pub fn sent(&self) -> u64 {
        match &self.wire {
            Wire::Port(port, ..) => port.stats().tx_packets,
            Wire::Guest(_, pair) => pair.stats().tx_packets,
        }
    }

    /// Frames that its device refused, or the guest's ring.
    pub fn refused(&self) -> u64 {
        match &self.wire {
            Wire::Port(port, ..) => {
                let stats = port.stats();
                stats.tx_dropped + stats.tx_errors
            }
            Wire::Guest(..) => self.refused,
        }
    }

    /// Frames that came and found its queue full. `rx_dropped` holds those that were missed.
    pub fn missed(&self) -> u64 {
        match &self.wire {
            Wire::Port(port, ..) => {
                let stats = port.stats();
                stats.rx_dropped + stats.rx_over_errors
            }
            Wire::Guest(..) => 0,
        }
    }

    /// Sends these frames; those that do not go are lost here, and neither [`Self::sent`] counts them.
    pub fn send<'a>(&mut self, cache: &mut PoolCache, frames: impl ExactSizeIterator<Item = &'a [u8]>) {
        match &mut self.wire {
            Wire::Port(_, _, tx, batch) => {
                for frame in frames {
                    let Some(packet) = cache.alloc_frame(frame) else { break };
                    batch.push(packet);
                    if batch.is_full() {
                        tx.tx_burst(cache, batch);
                        cache.free_all(batch);
                    }
                }
                tx.tx_burst(cache, batch);
                cache.free_all(batch);
                tx.flush(cache);
            }
            Wire::Guest(_, pair) => {
                let all = frames.len();
                self.refused += (all - pair.send_all(frames)) as u64;
            }
        }
    }

    /// Calls `see` with each frame that has arrived. True if any had.
    pub fn receive(&mut self, cache: &mut PoolCache, mut see: impl FnMut(&[u8])) -> bool {
        match &mut self.wire {
            Wire::Port(_, rx, tx, batch) => {
                rx.rx_burst(cache, batch);
                let some = !batch.is_empty();
                for packet in batch.iter() {
                    if packet.is_chained() {
                        see(&packet.segments().collect::<Vec<_>>().concat());
                    } else {
                        see(packet.data());
                    }
                }
                cache.free_all(batch);
                if tx.has_pending() {
                    tx.flush(cache);
                }
                some
            }
            Wire::Guest(_, pair) => pair.receive(GUEST_BURST, see) > 0,
        }
    }

    /// Whether the switch is connected. A kernel interface has no connection to lose.
    pub fn is_connected(&self) -> bool {
        match &self.wire {
            Wire::Port(..) => true,
            Wire::Guest(guest, _) => guest.is_connected(),
        }
    }
}
