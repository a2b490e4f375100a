//! Random switches and packets, through the real worker.

mod bare;
mod cached_equals_uncached;
mod changing_actions;
mod charged;
mod chosen;
mod deep;
mod encapsulated;
mod handover;
mod heavy;
mod hostile;
mod learned;
mod limits;
mod long;
mod promotion;
mod recirculated;
mod shares_of_events;
mod stock_normal;
mod threads;
mod tracked;
mod whole_bursts;
