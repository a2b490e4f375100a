//! A guest and a port of the switch, through the public interface of both.

mod limits;
mod vhost_user;
