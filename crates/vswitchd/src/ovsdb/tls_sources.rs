//! The files and settings of TLS. Each may be a column of a database: `db:DATABASE,TABLE,COLUMN`
//! (ovsdb-server(1), "SSL Options").

use super::columns::ColumnName;
use ovsdb::server::Server;
use std::path::PathBuf;
use transport::{Tls, TlsFiles};

/// Private key and so on: each the name of a file, or of a column that contains one.
#[derive(Clone, Default, Debug)]
pub struct TlsSources {
    /// `--private-key`.
    pub private_key: Option<String>,
    /// `--certificate`.
    pub certificate: Option<String>,
    /// `--ca-cert` or `--bootstrap-ca-cert`.
    pub ca_cert: Option<String>,
    /// Whether it was given as `--bootstrap-ca-cert`.
    pub bootstrap_ca_cert: bool,
    /// `--peer-ca-cert`.
    pub peer_ca_cert: Option<String>,
    /// `--ssl-protocols`.
    pub protocols: Option<String>,
    /// `--ssl-ciphers`.
    pub ciphers: Option<String>,
}

impl TlsSources {
    /// The options that may name a column.
    pub(super) fn sources(&self) -> [&Option<String>; 6] {
        [
            &self.private_key,
            &self.certificate,
            &self.ca_cert,
            &self.peer_ca_cert,
            &self.protocols,
            &self.ciphers,
        ]
    }

    /// Refuses invalid names of columns; for the start of a server that got them as options.
    pub(super) fn check(&self, server: &Server) -> Result<(), String> {
        for column in self.sources().into_iter().flatten().filter_map(|source| ColumnName::parse(source)) {
            column?.find_text(server)?;
        }
        if let Err(why) = Tls::check_protocols(named(server, &self.protocols).as_deref()) {
            tracing::error!(target: "stream_ssl", "{why}");
        }
        Ok(())
    }

    /// The TLS files, with columns resolved.
    pub(super) fn files(&self, server: &Server) -> TlsFiles {
        let file = |source: &Option<String>| named(server, source).map(PathBuf::from);
        TlsFiles {
            private_key: file(&self.private_key),
            certificate: file(&self.certificate),
            ca_cert: file(&self.ca_cert),
            bootstrap_ca_cert: self.bootstrap_ca_cert,
            peer_ca_cert: file(&self.peer_ca_cert),
            protocols: named(server, &self.protocols),
            ciphers: named(server, &self.ciphers),
        }
    }
}

/// The value of an option, given directly or in a column.
fn named(server: &Server, source: &Option<String>) -> Option<String> {
    let source = source.as_ref()?;
    match ColumnName::parse(source) {
        None => Some(source.clone()),
        Some(column) => column.ok()?.find(server).ok()?.string(),
    }
}
