//! The files and settings of TLS as a server is given them. Each may be a column of a database instead:
//! `db:DATABASE,TABLE,COLUMN` (ovsdb-server(1), "SSL Options").

use super::columns::ColumnName;
use ovsdb::server::Server;
use std::path::{Path, PathBuf};
use transport::{Bootstrap, Tls, TlsFiles};

/// What may name a column.
pub(super) fn sources(given: &TlsFiles) -> impl Iterator<Item = &str> {
    let TlsFiles { private_key, certificate, ca_cert, peer_ca_cert, protocols, ciphers, .. } = given;
    let files = [private_key, certificate, ca_cert, peer_ca_cert].into_iter().flatten();
    files
        .filter_map(|file| file.to_str())
        .chain([protocols, ciphers].into_iter().flatten().map(String::as_str))
}

/// Refuses invalid names of columns; for the start of a server that got them as options.
pub(super) fn check(given: &TlsFiles, server: &Server) -> Result<(), String> {
    for column in sources(given).filter_map(ColumnName::parse) {
        column?.find_text(server)?;
    }
    if let Err(why) = Tls::check_protocols(files(given, server).protocols.as_deref()) {
        tracing::error!(target: "stream_ssl", "{why}");
    }
    Ok(())
}

/// The TLS files, with columns resolved.
pub(super) fn files(given: &TlsFiles, server: &Server) -> TlsFiles {
    let named = |source: &str| match ColumnName::parse(source) {
        None => Some(source.to_owned()),
        Some(column) => column.ok()?.find(server).ok()?.string(),
    };
    let is_column = |path: &Path| path.to_str().and_then(ColumnName::parse).is_some();
    let text = |source: &Option<String>| named(source.as_deref()?);
    let file = |source: &Option<PathBuf>| named(source.as_deref().and_then(Path::to_str)?).map(PathBuf::from);
    TlsFiles {
        private_key: file(&given.private_key),
        certificate: file(&given.certificate),
        ca_cert: file(&given.ca_cert),
        bootstrap: match (&given.ca_cert, &given.bootstrap) {
            (Some(path), Bootstrap::Anywhere) if is_column(path) => Bootstrap::of_database(),
            (_, given) => given.clone(),
        },
        peer_ca_cert: file(&given.peer_ca_cert),
        protocols: text(&given.protocols),
        ciphers: text(&given.ciphers),
    }
}
