//! Options that several programs share.

use crate::{Bootstrap, TlsFiles};
use host::getopt::{Opt, value};
use std::path::PathBuf;

/// Keys and certificates of a program that connects.
pub const CLIENT_TLS: &[Opt] = &[
    value("private-key").short('p').arg("FILE").help("private key of this program"),
    value("certificate").short('c').arg("FILE").help("certificate for the private key"),
    value("ca-cert").short('C').arg("FILE").help("certificates that peers are verified with, or none"),
    value("ssl-protocols").arg("PROTOS").help("TLS versions, such as TLSv1.2,TLSv1.3"),
    value("ssl-ciphers").arg("CIPHERS").help("cipher suites, such as HIGH:!aNULL"),
];

/// Options about keys and certificates that only some programs have.
pub const MORE_TLS: &[Opt] = &[
    value("bootstrap-ca-cert")
        .arg("FILE")
        .help("as --ca-cert; if FILE is missing, trust the first peer and save its authority there"),
    value("peer-ca-cert").arg("FILE").help("certificate of the authority to send to the peer"),
];

/// Handles an option about keys and certificates; false if it is another option.
pub fn take_tls(files: &mut TlsFiles, name: &str, value: Option<&str>) -> bool {
    let text = value.unwrap_or_default().to_string();
    match name {
        "private-key" => files.private_key = Some(path_of(&text)),
        "certificate" => files.certificate = Some(path_of(&text)),
        "ca-cert" => files.ca_cert = Some(path_of(&text)),
        "bootstrap-ca-cert" => {
            files.ca_cert = Some(path_of(&text));
            files.bootstrap = Bootstrap::Anywhere;
        }
        "peer-ca-cert" => files.peer_ca_cert = Some(path_of(&text)),
        "ssl-protocols" => files.protocols = Some(text),
        "ssl-ciphers" => files.ciphers = Some(text),
        _ => return false,
    }
    true
}

/// The file that an option names: a daemon reads it once it has left the directory in which it was started.
/// Words that name no file (`none`, `db:DATABASE,TABLE,COLUMN`) stay as they are.
fn path_of(text: &str) -> PathBuf {
    match text {
        "" | "none" => PathBuf::from(text),
        text if text.starts_with("db:") => PathBuf::from(text),
        text => std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_so_that_they_are_found_from_any_directory() {
        let mut files = TlsFiles::default();
        assert!(take_tls(&mut files, "private-key", Some("tls/key.pem")));
        assert!(take_tls(&mut files, "certificate", Some("db:Open_vSwitch,SSL,certificate")));
        assert!(take_tls(&mut files, "ca-cert", Some("none")));
        let here = std::env::current_dir().unwrap();
        assert_eq!(files.private_key, Some(here.join("tls/key.pem")));
        assert_eq!(files.certificate, Some(PathBuf::from("db:Open_vSwitch,SSL,certificate")));
        assert_eq!(files.ca_cert, Some(PathBuf::from("none")));
    }
}
