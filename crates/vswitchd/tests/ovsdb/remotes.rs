//! Where it listens and connects, with and without TLS, by options and by columns; and backups.
