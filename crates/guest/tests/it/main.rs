//! A guest and a port of the switch, through the public interface of both.

mod connections;
mod limits;
mod rig;
mod vhost_user;
