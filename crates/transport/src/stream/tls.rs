//! TLS as Open vSwitch uses it: both sides present a certificate, and each trusts whatever its configured
//! authority has signed.
//!
//! Which peers are trusted: the peer's certificate must chain to one of the certificates of `--ca-cert`, or
//! be one of them. As in Open vSwitch, host names are *not* compared: switches and controllers have addresses
//! that change, and the certificates that `ovs-pki` creates contain none. So anyone with a certificate from
//! that authority is trusted; use separate keys for the authority of switches and that of controllers, as
//! `ovs-pki` does.
//!
//! What rustls refuses and OpenSSL may accept: X.509 certificates of version 1, RSA keys under 2,048 bits,
//! TLS 1.0 and 1.1, cipher suites without forward secrecy. The errors say so.
//!
//! Files are checked before each connection and read again if they have changed, so that a renewed
//! certificate needs no restart.
//!
//! A client of the database may name the files, and the process may be root. So only regular files of a
//! bounded size are read (a FIFO would block the thread, a device might never end), and an authority's
//! certificate is saved only where [`Bootstrap`] allows it.

use super::certificate::{common_name, validity};
use super::kinds::{HANDSHAKE_TIMEOUT, Stream, StreamError};
use super::suites::{provider, versions};
use super::target::Host;
use std::fs::{File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;
use tokio::net::TcpStream;
use tokio_rustls::rustls;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use host::log::os_text as reason;
use rustix::fs::OFlags;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, SignatureScheme};
use rustls::{ClientConfig, ServerConfig};

/// The files and settings of TLS, as the options `--private-key`, `--certificate`, `--ca-cert`,
/// `--bootstrap-ca-cert`, `--peer-ca-cert`, `--ssl-protocols` and `--ssl-ciphers`, or the SSL table, give
/// them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsFiles {
    /// Our private key, PEM.
    pub private_key: Option<PathBuf>,
    /// Our certificate, PEM; further ones of its chain may follow in the file.
    pub certificate: Option<PathBuf>,
    /// Certificates of the authorities that verify peers, PEM. `none` disables verification.
    pub ca_cert: Option<PathBuf>,
    /// What to do if the file `ca_cert` does not exist.
    pub bootstrap: Bootstrap,
    /// Certificates to send along with ours, for peers that bootstrap.
    pub peer_ca_cert: Option<PathBuf>,
    /// Such as `TLSv1.2,TLSv1.3`. `None`: both.
    pub protocols: Option<String>,
    /// In OpenSSL's syntax, such as `HIGH:!aNULL`. `None`: everything that rustls has.
    pub ciphers: Option<String>,
}

impl TlsFiles {
    /// Whether any option is set.
    pub fn is_empty(&self) -> bool {
        *self == TlsFiles::default()
    }
}

/// Whether the first peer is accepted and its authority's certificate saved as `ca_cert`, if that file does
/// not exist.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub enum Bootstrap {
    /// A missing file is an error.
    #[default]
    No,
    /// The administrator named the file: it may be anywhere.
    Anywhere,
    /// A database named the file. Its clients are not root, so it must be below this directory.
    Below(PathBuf),
}

impl Bootstrap {
    /// For a file that a database named: below the directory of the configuration.
    pub fn of_database() -> Bootstrap {
        Bootstrap::Below(host::program::configuration_directory())
    }

    /// Whether `path`, which does not exist, is to be created. The error is a sentence.
    fn creates(&self, path: &Path) -> Result<bool, String> {
        let Bootstrap::Below(dir) = self else { return Ok(*self == Bootstrap::Anywhere) };
        let goes_up = path.components().any(|component| component == Component::ParentDir);
        if path.starts_with(dir) && !goes_up {
            return Ok(true);
        }
        Err(format!(
            "{}: does not exist, and a database may have it created only below {} (--bootstrap-ca-cert on the \
             command line may name any file)",
            path.display(),
            dir.display()
        ))
    }
}

/// Maximum size of a file: that of all public authorities' certificates is a quarter of it.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// TLS, ready for connections.
#[derive(Debug)]
pub struct Tls(Mutex<Contents>);

#[derive(Debug)]
struct Contents {
    files: TlsFiles,
    /// What was read from these files.
    loaded: Option<Loaded>,
}

/// The result of reading the files, with their modification times.
#[derive(Clone, Debug)]
struct Loaded {
    times: [Option<SystemTime>; 4],
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    /// The peer is not verified; its authority's certificate is saved in this file.
    bootstraps: Option<PathBuf>,
    /// Peers show certificates that authorities have signed.
    verifies: bool,
}

impl Loaded {
    /// A connection whose handshake was made with these.
    fn stream(&self, stream: tokio_rustls::TlsStream<TcpStream>) -> Stream {
        let certificate = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
        // An unverified certificate proves nothing.
        let certificate = certificate.filter(|_| self.verifies);
        let peer_name = certificate.and_then(|certificate| common_name(certificate));
        Stream::Tls(Box::new(stream), peer_name)
    }
}

impl Tls {
    /// With these files, which are read when first needed.
    pub fn new(files: TlsFiles) -> Tls {
        Tls(Mutex::new(Contents { files, loaded: None }))
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        // Each is replaced as a whole, so a panic elsewhere has left them usable.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error if `ssl:` or `pssl:` is used and nothing is set.
    pub(super) fn missing() -> &'static str {
        "Private key must be configured to use SSL"
    }

    /// Its files.
    pub fn files(&self) -> TlsFiles {
        self.contents().files.clone()
    }

    /// Other files from the next connection on.
    pub fn set_files(&self, files: TlsFiles) {
        let mut mine = self.contents();
        if mine.files != files {
            *mine = Contents { files, loaded: None };
        }
    }

    /// Whether a server could start with these files.
    pub fn check_server(&self) -> Result<(), StreamError> {
        self.load().map(|_| ()).map_err(StreamError::Tls)
    }

    pub(super) async fn connect(&self, tcp: TcpStream, host: &Host) -> Result<Stream, StreamError> {
        let loaded = self.load().map_err(StreamError::Tls)?;
        let server_name = match host {
            Host::Address(address, _) => ServerName::IpAddress((*address).into()),
            Host::Name(name) => ServerName::try_from(name.clone())
                .map_err(|_| StreamError::Tls(format!("{name}: not a name of a TLS server")))?,
        };
        let handshake = TlsConnector::from(loaded.client.clone()).connect(server_name, tcp);
        let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
            Ok(result) => result.map_err(|e| StreamError::Handshake(explain(&e)))?,
            Err(_) => {
                return Err(StreamError::Handshake("the peer does not finish the TLS handshake".into()));
            }
        };
        if let Some(path) = loaded.bootstraps {
            return Err(bootstrap(path, stream.get_ref().1.peer_certificates()));
        }
        Ok(loaded.stream(stream.into()))
    }

    pub(super) async fn accept(&self, tcp: TcpStream) -> Result<Stream, StreamError> {
        let loaded = self.load().map_err(StreamError::Tls)?;
        let accepted = TlsAcceptor::from(loaded.server.clone()).accept(tcp).await;
        let stream = accepted.map_err(|e| StreamError::Handshake(explain(&e)))?;
        if let Some(name) = stream.get_ref().1.server_name() {
            tracing::debug!(target: "stream_ssl", "connection indicated server name {name}");
        }
        if let Some(path) = loaded.bootstraps {
            return Err(bootstrap(path, stream.get_ref().1.peer_certificates()));
        }
        Ok(loaded.stream(stream.into()))
    }

    /// The configurations, read again where a file has changed. The error is a sentence.
    fn load(&self) -> Result<Loaded, String> {
        let Contents { files, loaded } = &mut *self.contents();
        let times = times(files);
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.times == times) {
            return Ok(loaded.clone());
        }
        match read(files, times) {
            Ok(new) => Ok(loaded.insert(new).clone()),
            // Most likely half-written files: the previous contents remain in use.
            Err(why) => match loaded.as_ref() {
                Some(old) => {
                    tracing::warn!(target: "stream_ssl", "keeping the old certificates: {why}");
                    Ok(old.clone())
                }
                None => Err(why),
            },
        }
    }
}

/// Saves the authority's certificate of the chain that the peer has sent.
fn bootstrap(path: PathBuf, chain: Option<&[CertificateDer<'_>]>) -> StreamError {
    match save_authority(&path, chain) {
        Ok(()) => StreamError::Bootstrapped(path),
        Err(why) => StreamError::Handshake(format!("bootstrapping the CA certificate failed: {why}")),
    }
}

fn save_authority(path: &Path, chain: Option<&[CertificateDer<'_>]>) -> Result<(), String> {
    let last = chain.and_then(<[_]>::last).ok_or("the peer sent no certificate")?;
    let parsed = webpki::EndEntityCert::try_from(last).map_err(|e| e.to_string())?;
    if parsed.issuer() != parsed.subject() {
        return Err("the peer did not send the certificate of its authority along \
             (its --peer-ca-cert does that)"
            .into());
    }
    let pem = pem_rfc7468::encode_string("CERTIFICATE", pem_rfc7468::LineEnding::LF, last)
        .map_err(|e| e.to_string())?;
    // Never over a file that has appeared meanwhile: that one is trusted already.
    let created = File::options().write(true).create_new(true).open(path);
    let mut file = created.map_err(|e| not_usable(path, &e))?;
    file.write_all(pem.as_bytes()).map_err(|e| {
        // Half a certificate would be taken for one that is trusted already.
        let _ = std::fs::remove_file(path);
        not_usable(path, &e)
    })
}

/// When the files were written.
fn times(files: &TlsFiles) -> [Option<SystemTime>; 4] {
    let TlsFiles { private_key, certificate, ca_cert, peer_ca_cert, .. } = files;
    [private_key, certificate, ca_cert, peer_ca_cert].map(|path| {
        let path = path.as_ref()?;
        std::fs::metadata(path).and_then(|m| m.modified()).ok()
    })
}

fn read(files: &TlsFiles, times: [Option<SystemTime>; 4]) -> Result<Loaded, String> {
    let path = files.private_key.as_ref().ok_or("Private key must be configured to use SSL")?;
    let key = contents(path).map_err(|e| not_usable(path, &e))?;
    let key = PrivateKeyDer::from_pem_slice(&key).map_err(|e| unreadable(path, "private key", &e))?;
    let path = files.certificate.as_ref().ok_or("Certificate must be configured to use SSL")?;
    let mut chain = certificates(path)?;
    if let Some(path) = &files.peer_ca_cert {
        chain.extend(certificates(path)?);
    }
    let ca_cert = files.ca_cert.as_ref().ok_or("CA certificate must be configured to use SSL")?;
    let provider = Arc::new(provider(files.ciphers.as_deref())?);
    let trust = trust(ca_cert, &files.bootstrap)?;
    let bootstraps = matches!(trust, Trust::FirstPeer).then(|| ca_cert.clone());
    let verifies = matches!(trust, Trust::Authorities(_));
    let verifier = Arc::new(Verifier::new(trust, &provider).map_err(|e| {
        format!("{}: not a certificate that can be trusted: {}", ca_cert.display(), certificate_error(&e))
    })?);
    if files.peer_ca_cert.is_none() {
        add_authorities(&mut chain, &verifier.trust);
    }
    let versions = versions(files.protocols.as_deref())?;
    let of_ours = |e: rustls::Error| format!("{}: {}", path.display(), own_certificate_error(&e));
    let client = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&versions)
        .map_err(|e| e.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(verifier.clone())
        .with_client_auth_cert(chain.clone(), key.clone_key())
        .map_err(of_ours)?;
    let server = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions)
        .map_err(|e| e.to_string())?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(of_ours)?;
    Ok(Loaded { times, client: Arc::new(client), server: Arc::new(server), bootstraps, verifies })
}

/// Completes a chain with the authorities that we know, as OpenSSL does: a peer that bootstraps needs the
/// last one.
fn add_authorities(chain: &mut Vec<CertificateDer<'static>>, trust: &Trust) {
    /// Longer chains are not verified.
    const DEPTH_MAX: usize = 8;
    let Trust::Authorities(authorities) = trust else { return };
    while chain.len() < DEPTH_MAX {
        let next = {
            let Some(Ok(last)) = chain.last().map(webpki::EndEntityCert::try_from) else { return };
            if last.issuer() == last.subject() {
                return;
            }
            let has_signed = |authority: &&CertificateDer<'static>| {
                webpki::EndEntityCert::try_from(*authority).is_ok_and(|a| a.subject() == last.issuer())
            };
            authorities.iter().find(has_signed).cloned()
        };
        match next {
            Some(authority) => chain.push(authority),
            None => return,
        }
    }
}

fn trust(ca_cert: &Path, bootstrap: &Bootstrap) -> Result<Trust, String> {
    if ca_cert.as_os_str() == "none" {
        return Ok(Trust::Anyone);
    }
    match contents(ca_cert) {
        Err(e) if e.kind() == io::ErrorKind::NotFound && bootstrap.creates(ca_cert)? => Ok(Trust::FirstPeer),
        read => certificates_in(ca_cert, read).map(Trust::Authorities),
    }
}

/// The contents of a file. Nothing here blocks, whatever the path leads to.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    // Before it is opened: opening a device may do something already.
    check(&path.metadata()?)?;
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    // And after: it may have been exchanged.
    let bytes = check(&file.metadata()?)?;
    let mut contents = Vec::new();
    // Only that much, even if it grows meanwhile, and nothing of files that the kernel makes up as they are
    // read: they have no size.
    file.take(bytes).read_to_end(&mut contents)?;
    Ok(contents)
}

/// The size of a file that may be read.
fn check(metadata: &Metadata) -> io::Result<u64> {
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if metadata.len() > FILE_BYTES_MAX {
        let why = format!("longer than {} MiB, too long for keys and certificates", FILE_BYTES_MAX >> 20);
        return Err(io::Error::other(why));
    }
    Ok(metadata.len())
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    certificates_in(path, contents(path))
}

fn certificates_in(path: &Path, read: io::Result<Vec<u8>>) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read.map_err(|e| not_usable(path, &e))?;
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let certificates = certificates.map_err(|e| unreadable(path, "certificate", &e))?;
    if certificates.is_empty() {
        return Err(format!("{}: no certificate in it", path.display()));
    }
    Ok(certificates)
}

fn not_usable(path: &Path, error: &io::Error) -> String {
    format!("{}: {}", path.display(), reason(error))
}

fn unreadable(path: &Path, what: &str, error: &rustls::pki_types::pem::Error) -> String {
    use rustls::pki_types::pem::Error;
    match error {
        Error::NoItemsFound => format!("{}: no {what} in it", path.display()),
        other => format!("{}: not a {what} in PEM: {other}", path.display()),
    }
}

impl Tls {
    /// Whether a list is valid for `--ssl-protocols`. The error is a sentence.
    pub fn check_protocols(list: Option<&str>) -> Result<(), String> {
        versions(list).map(drop)
    }
}

/// Which peers are trusted.
#[derive(Debug)]
enum Trust {
    /// `none`: no certificate is requested.
    Anyone,
    /// Whose authority's certificate is about to be saved; the connection ends then.
    FirstPeer,
    /// Whom these have signed.
    Authorities(Vec<CertificateDer<'static>>),
}

/// Verifies the chain, and nothing about names.
#[derive(Debug)]
struct Verifier {
    trust: Trust,
    anchors: Vec<TrustAnchor<'static>>,
    subjects: Vec<DistinguishedName>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Verifier {
    fn new(trust: Trust, provider: &CryptoProvider) -> Result<Verifier, webpki::Error> {
        let anchors = match &trust {
            Trust::Anyone | Trust::FirstPeer => Vec::new(),
            Trust::Authorities(certificates) => certificates
                .iter()
                .map(|c| webpki::anchor_from_trusted_cert(c).map(|anchor| anchor.to_owned()))
                .collect::<Result<_, _>>()?,
        };
        let subjects = anchors.iter().map(|anchor| DistinguishedName::in_sequence(&anchor.subject)).collect();
        Ok(Verifier { trust, anchors, subjects, algorithms: provider.signature_verification_algorithms })
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
        usage: webpki::KeyUsage,
    ) -> Result<(), rustls::Error> {
        let Trust::Authorities(authorities) = &self.trust else { return Ok(()) };
        // A self-signed certificate is its own authority: trusted if it is the configured one.
        let untrusted = |why: String| {
            rustls::Error::InvalidCertificate(CertificateError::Other(rustls::OtherError(Arc::new(
                Untrusted(why),
            ))))
        };
        if authorities.iter().any(|authority| authority.as_ref() == certificate.as_ref()) {
            let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
            return match validity(certificate) {
                Some(valid) if valid.contains(&now) => Ok(()),
                Some(valid) if now < *valid.start() => Err(untrusted("it is not valid yet".into())),
                Some(_) => Err(untrusted("it has expired".into())),
                None => Err(untrusted("its validity cannot be read".into())),
            };
        }
        let of_peer = |e: webpki::Error| untrusted(certificate_error(&e));
        let parsed = webpki::EndEntityCert::try_from(certificate).map_err(of_peer)?;
        parsed
            .verify_for_usage(self.algorithms.all, &self.anchors, intermediates, now, usage, None, None)
            .map_err(of_peer)?;
        Ok(())
    }
}

/// Why a certificate is not trusted, in words.
#[derive(Debug)]
struct Untrusted(String);

impl std::fmt::Display for Untrusted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Untrusted {}

/// What both kinds of verifiers do with signatures.
macro_rules! signatures {
    () => {
        fn verify_tls12_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
        }

        fn verify_tls13_signature(
            &self,
            message: &[u8],
            cert: &CertificateDer<'_>,
            dss: &DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
        }

        fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
            self.algorithms.supported_schemes()
        }
    };
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now, webpki::KeyUsage::server_auth())?;
        Ok(ServerCertVerified::assertion())
    }

    signatures!();
}

impl ClientCertVerifier for Verifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &self.subjects
    }

    fn offer_client_auth(&self) -> bool {
        !matches!(self.trust, Trust::Anyone)
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verify(end_entity, intermediates, now, webpki::KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    signatures!();
}

/// The reason for a failed handshake.
fn explain(error: &io::Error) -> String {
    let inner = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>());
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(why))) => {
            format!("the peer's certificate is not trusted: {why}")
        }
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!("the peer's certificate is not trusted: {}", words(why))
        }
        Some(rustls::Error::NoCertificatesPresented) => "the peer shows no certificate".into(),
        Some(rustls::Error::AlertReceived(alert)) => {
            format!("the peer refuses TLS with us: {}", words(alert))
        }
        Some(rustls::Error::InvalidMessage(_)) => "the peer does not speak TLS".into(),
        Some(rustls::Error::PeerIncompatible(why)) => {
            format!("the peer speaks no TLS that is supported (1.2 and 1.3 are): {}", words(why))
        }
        Some(rustls::Error::PeerMisbehaved(why)) => {
            format!("the peer breaks the rules of TLS: {}", words(why))
        }
        Some(other) => format!("TLS handshake failed: {other}"),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            "the peer closed the connection during the TLS handshake".into()
        }
        None => reason(error),
    }
}

/// The name of a variant in words: `BadCertificate` is "bad certificate", `UnknownCA` "unknown CA". The
/// variant's contents are left out: the log at DBG has them.
fn words(variant: &impl std::fmt::Debug) -> String {
    let name = format!("{variant:?}");
    let letters: Vec<char> = name.chars().take_while(|c| c.is_alphanumeric()).collect();
    let mut words: Vec<String> = Vec::new();
    for (at, &c) in letters.iter().enumerate() {
        let is_upper =
            |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(|c| c.is_uppercase());
        let ends_acronym = letters.get(at + 1).is_some_and(|c| c.is_lowercase());
        match words.last_mut() {
            Some(word) if !c.is_uppercase() || (is_upper(at.checked_sub(1)) && !ends_acronym) => word.push(c),
            _ => words.push(c.into()),
        }
    }
    let is_acronym = |word: &String| word.len() > 1 && word.chars().all(char::is_uppercase);
    let words = words.into_iter().map(|word| if is_acronym(&word) { word } else { word.to_lowercase() });
    words.collect::<Vec<_>>().join(" ")
}

fn certificate_error(error: &webpki::Error) -> String {
    match error {
        webpki::Error::UnsupportedCertVersion => {
            "it is an X.509 certificate of version 1; make one of version 3, as `ovs-pki` does".into()
        }
        webpki::Error::UnknownIssuer => "it is not signed by an authority in --ca-cert".into(),
        webpki::Error::CertExpired { .. } => "it has expired".into(),
        webpki::Error::CertNotValidYet { .. } => "it is not valid yet; is the clock right?".into(),
        other => other.to_string(),
    }
}

fn own_certificate_error(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(CertificateError::Other(why))
            if why.0.downcast_ref::<webpki::Error>() == Some(&webpki::Error::UnsupportedCertVersion) =>
        {
            certificate_error(&webpki::Error::UnsupportedCertVersion)
        }
        rustls::Error::InconsistentKeys(_) => "the private key does not belong to this certificate".into(),
        other => other.to_string(),
    }
}

/// Whether a certificate that is trusted because it is configured is still valid in this many days.
#[cfg(test)]
pub(super) fn verify_pinned(pem: &[u8], days: i64) -> Result<(), String> {
    use rustls::pki_types::pem::PemObject;
    let certificate = CertificateDer::from_pem_slice(pem).expect("a certificate");
    let provider = rustls::crypto::ring::default_provider();
    let trust = Trust::Authorities(vec![certificate.clone()]);
    let verifier = Verifier::new(trust, &provider).expect("an anchor");
    let now = UnixTime::now().as_secs().saturating_add_signed(days * 86_400);
    let now = UnixTime::since_unix_epoch(std::time::Duration::from_secs(now));
    let verified = verifier.verify(&certificate, &[], now, webpki::KeyUsage::client_auth());
    verified.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_variants_are_told_in_words() {
        use rustls::AlertDescription;
        for (variant, said) in [
            (AlertDescription::UnknownCA, "unknown CA"),
            (AlertDescription::BadCertificate, "bad certificate"),
            (AlertDescription::HandshakeFailure, "handshake failure"),
            (AlertDescription::NoApplicationProtocol, "no application protocol"),
            (AlertDescription::UnknownPSKIdentity, "unknown PSK identity"),
        ] {
            assert_eq!(words(&variant), said);
        }
        assert_eq!(words(&CertificateError::BadEncoding), "bad encoding");
    }
}
