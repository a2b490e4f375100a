//! The files of TLS, for controllers over `ssl:` and `pssl:`: those that the command line gave, unless the
//! database names others.

use std::sync::Arc;
use transport::{Tls, TlsFiles};

/// See the module documentation.
pub(crate) struct SwitchTls {
    given: Option<TlsFiles>,
    /// The same object for as long as the switch runs: listeners hold it, and take other files through it.
    shared: Arc<Tls>,
    is_configured: bool,
}

impl SwitchTls {
    /// With the files that the command line gave.
    pub fn new(given: Option<TlsFiles>) -> SwitchTls {
        let shared = Arc::new(Tls::new(given.clone().unwrap_or_default()));
        SwitchTls { is_configured: given.is_some(), given, shared }
    }

    /// From now on with those of the database; with those of the command line if it names none.
    pub fn set(&mut self, wanted: Option<&TlsFiles>) {
        let files = wanted.or(self.given.as_ref());
        self.is_configured = files.is_some();
        self.shared.set_files(files.cloned().unwrap_or_default());
    }

    /// `None` if no files were named.
    pub fn files(&self) -> Option<&Arc<Tls>> {
        self.is_configured.then_some(&self.shared)
    }
}
