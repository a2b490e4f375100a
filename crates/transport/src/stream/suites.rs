//! What is offered to a TLS peer: versions of the protocol, and cipher suites, in the words of OpenSSL.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use tokio_rustls::rustls;

/// Parses `--ssl-protocols`. Versions older than TLS 1.2 are not supported; a list with nothing else is
/// refused.
pub(super) fn versions(list: Option<&str>) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let Some(list) = list else { return Ok(vec![&rustls::version::TLS13, &rustls::version::TLS12]) };
    let mut versions = Vec::new();
    for word in list.split([',', ' ', '\t']).filter(|w| !w.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.3" => versions.push(&rustls::version::TLS13),
            "tlsv1.2" => versions.push(&rustls::version::TLS12),
            "tlsv1" | "tlsv1.1" => {}
            _ => return Err(format!("{word}: SSL protocol not recognized")),
        }
    }
    if versions.is_empty() {
        return Err(format!("{list}: TLSv1.2 and TLSv1.3 are spoken, older ones are broken and are not"));
    }
    Ok(versions)
}

/// Reads `--ssl-ciphers`: names of OpenSSL's suites, its groups, `+` between groups that must all apply, `-`
/// before what is taken away, `+` before what goes to the end, and `!` before what is never used, whatever
/// follows. Source: openssl-ciphers(1).
pub(super) fn provider(list: Option<&str>) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    let Some(list) = list else { return Ok(provider) };
    let (mut wanted, mut never, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for item in list.split([':', ',', ' ']) {
        let (word, command) = item.split_once('@').unwrap_or((item, "STRENGTH"));
        // What is supported meets level 2: no SHA-1, no RSA key below 2,048 bits.
        if !["STRENGTH", "SECLEVEL=0", "SECLEVEL=1", "SECLEVEL=2"].contains(&command) {
            return Err(format!("{list}: @{command} is not supported; @SECLEVEL=2 is always met"));
        }
        let name = word.trim_start_matches(['!', '-', '+']);
        let means = |suite: &SupportedCipherSuite, name: &str| {
            name.split('+').all(|group| suite_matches(suite, group))
        };
        let all = provider.cipher_suites.iter().copied();
        let matching: Vec<_> = all.clone().filter(|suite| means(suite, name)).collect();
        let is_known =
            |group: &str| UNSUPPORTED.split(' ').any(|u| u == group) || all.clone().any(|s| means(&s, group));
        if !name.split('+').all(is_known) && !word.is_empty() {
            unknown.push(name);
        }
        match word.chars().next() {
            None => {}
            Some('!') => never.extend(matching),
            Some('-') => wanted.retain(|suite| !matching.contains(suite)),
            Some('+') => wanted.sort_by_key(|suite| matching.contains(suite)),
            Some(_) => wanted.extend(matching),
        }
    }
    let mut seen = Vec::new();
    wanted.retain(|suite| {
        let is_new = !never.contains(suite) && !seen.contains(suite);
        seen.push(*suite);
        is_new
    });
    // As in OpenSSL, the list applies to TLS 1.2; the suites of 1.3 stay enabled unless the list names some.
    let of_13 = |suite: &SupportedCipherSuite| suite.tls13().is_some();
    if !wanted.iter().any(of_13) {
        wanted.extend(provider.cipher_suites.iter().copied().filter(of_13));
    }
    if !list.trim().is_empty() && wanted.iter().all(of_13) && !list.contains("TLS_") {
        return Err(format!(
            "{list}: no supported cipher (supported are ciphers with forward secrecy and AEAD)"
        ));
    }
    if !unknown.is_empty() {
        tracing::warn!(target: "stream_ssl", "{list}: unsupported ciphers: {}", unknown.join(", "));
    }
    provider.cipher_suites = wanted;
    Ok(provider)
}

/// Groups of OpenSSL's to which no suite belongs that is supported.
const UNSUPPORTED: &str = "\
    3DES ADH AECDH AESCCM AESCCM8 ARIA CAMELLIA CAMELLIA128 CAMELLIA256 COMPLEMENTOFALL \
    COMPLEMENTOFDEFAULT DES DH DHE DSS EDH EXP EXPORT IDEA LOW MD5 MEDIUM NULL PSK RC2 RC4 RSA SEED SHA \
    SHA1 SHA256 SHA384 SRP SSLv2 SSLv3 TLSv1 TLSv1.0 aDSS aNULL aPSK eNULL kDHE kDHEPSK kECDHEPSK kEDH \
    kPSK kRSA kRSAPSK kSRP";

/// Whether a word in OpenSSL's cipher lists means this suite.
fn suite_matches(suite: &SupportedCipherSuite, word: &str) -> bool {
    let name = format!("{:?}", suite.suite());
    // TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 here is ECDHE-RSA-AES256-GCM-SHA384 there.
    let stock = name
        .trim_start_matches("TLS_")
        .replace("_WITH_", "-")
        .replace("AES_", "AES")
        .replace("_SHA256", if name.contains("CHACHA20") { "" } else { "-SHA256" })
        .replace('_', "-");
    let has = |part: &str| name.contains(part);
    if suite.tls13().is_some() && !word.starts_with("TLS_") {
        return false;
    }
    match word {
        "ALL" | "DEFAULT" | "HIGH" | "kEECDH" | "kECDHE" | "ECDH" | "ECDHE" | "EECDH" | "TLSv1.2" => true,
        "AES" | "AESGCM" => has("AES"),
        "AES128" => has("AES_128"),
        "AES256" => has("AES_256"),
        "CHACHA20" => has("CHACHA20"),
        "aRSA" => has("_RSA_"),
        "ECDSA" | "aECDSA" => has("_ECDSA_"),
        word => word == stock || word == name.replace("TLS13_", "TLS_"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_protocols_are_passed_over_and_a_list_of_them_alone_is_refused() {
        assert_eq!(versions(None).unwrap().len(), 2);
        assert_eq!(versions(Some("TLSv1,TLSv1.1,TLSv1.2")).unwrap(), [&rustls::version::TLS12]);
        assert!(versions(Some("TLSv1")).unwrap_err().contains("broken"));
        assert!(versions(Some("SSLv3")).unwrap_err().contains("not recognized"));
    }

    #[test]
    fn cipher_lists_are_read_in_the_words_of_openssl() {
        let suites = |list| provider(Some(list)).map(|p| p.cipher_suites.len());
        let all = ring::default_provider().cipher_suites.len();
        assert_eq!(suites("HIGH:!aNULL:!MD5"), Ok(all));
        assert_eq!(suites("ECDHE-RSA-AES256-GCM-SHA384"), Ok(3 + 1));
        assert_eq!(suites("ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"), Ok(3 + 2));
        assert_eq!(suites("HIGH:!AES128"), Ok(all - 2));
        assert_eq!(suites("!AES128:HIGH"), Ok(all - 2), "what is never used is not listed again");
        assert_eq!(suites("-AES128:HIGH"), Ok(all));
        assert_eq!(suites("ECDHE+AESGCM:HIGH"), Ok(all));
        assert_eq!(suites("ECDSA+AES256"), Ok(3 + 1));
        assert_eq!(suites("DEFAULT@SECLEVEL=2"), Ok(all));
        assert_eq!(suites("HIGH:@STRENGTH"), Ok(all));
        assert!(suites("RC4-MD5").unwrap_err().contains("no supported cipher"));
        // As `openssl ciphers` shows: these mean the MAC, and the exchange of keys by RSA.
        assert_eq!(suites("HIGH:!SHA256:!SHA384:!RSA:!COMPLEMENTOFDEFAULT"), Ok(all));
        assert_eq!(suites("AES256:+AES128"), Ok(3 + 2), "what goes to the end is not listed by that");
        assert!(suites("DEFAULT@SECLEVEL=3").unwrap_err().contains("@SECLEVEL=3 is not supported"));
    }
}
