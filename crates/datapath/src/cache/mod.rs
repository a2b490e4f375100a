//! Flow caches.
pub mod index;
