//! The drivers on real devices, and with the drivers of others.

mod afxdp;
mod document;
mod kernel;
mod offload;
mod packet_sockets;
mod rig;
mod testpmd;
mod tunnel;
