//! openflow
