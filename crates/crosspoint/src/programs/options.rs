//! Options that several programs share.

use std::path::PathBuf;
use vswitchd::getopt::{Opt, value};
use vswitchd::stream::TlsFiles;

/// Keys and certificates of one who connects.
pub const CLIENT_TLS: &[Opt] = &[
    value("private-key").short('p'),
    value("certificate").short('c'),
    value("ca-cert").short('C'),
    value("ssl-protocols"),
    value("ssl-ciphers"),
];

/// Takes an option about keys and certificates; false where it is another's.
pub fn take_tls(files: &mut TlsFiles, name: &str, value: Option<&str>) -> bool {
    let text = value.unwrap_or_default().to_string();
    match name {
        "private-key" => files.private_key = Some(PathBuf::from(text)),
        "certificate" => files.certificate = Some(PathBuf::from(text)),
        "ca-cert" => files.ca_cert = Some(PathBuf::from(text)),
        "bootstrap-ca-cert" => {
            files.ca_cert = Some(PathBuf::from(text));
            files.bootstrap_ca_cert = true;
        }
        "peer-ca-cert" => files.peer_ca_cert = Some(PathBuf::from(text)),
        "ssl-protocols" => files.protocols = Some(text),
        "ssl-ciphers" => files.ciphers = Some(text),
        _ => return false,
    }
    true
}
