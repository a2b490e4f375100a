//! The client beside a switch whose answers cannot be read.

use super::*;
use std::io::Read;
use std::os::unix::net::UnixListener;

/// A flow whose match has an IPv4 address and no Ethernet type.
const NO_MATCH: &str = "0040 00 00 00000000 00000000 0000 0000 0000 0000 00000000 \
                        0000000000000000 0000000000000000 0000000000000000 0001000c 80001604 0a000001 00000000";
/// Less than a flow.
const TOO_SHORT: &str = "0040 00";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|d| u8::from_str_radix(std::str::from_utf8(d).unwrap(), 16).unwrap()).collect()
}

fn message(kind: u8, xid: &[u8], body: &[u8]) -> Vec<u8> {
    [&[4, kind, 0, 8 + body.len() as u8], xid, body].concat()
}

/// A client of a switch of OpenFlow 1.3 that gives these answers, each a kind and a body, to the first
/// request other than hello, and then closes the connection.
fn client_of(name: &str, answers: &[(u8, String)]) -> Client {
    let dir = tempfile::Builder::new().prefix(name).tempdir().unwrap();
    let path = dir.path().join("switch");
    let listener = UnixListener::bind(&path).unwrap();
    let answers: Vec<(u8, Vec<u8>)> = answers.iter().map(|(kind, body)| (*kind, hex(body))).collect();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&message(0, &[0; 4], &[])).unwrap();
        loop {
            let mut header = [0; 8];
            stream.read_exact(&mut header).unwrap();
            let length = usize::from(u16::from_be_bytes([header[2], header[3]]));
            stream.read_exact(&mut vec![0; length - 8]).unwrap();
            if header[1] != 0 {
                let all: Vec<u8> =
                    answers.iter().flat_map(|(kind, body)| message(*kind, &header[4..], body)).collect();
                return stream.write_all(&all).unwrap();
            }
        }
    });
    let versions = VersionSet::only(Version::V13);
    Client::connect(&format!("unix:{}", path.display()), versions, &TlsFiles::default()).unwrap()
}

fn flows() -> StatsRequest {
    StatsRequest::Flow(Box::default())
}

/// A part of the reply to [`flows`], with its flags.
fn part(flags: u16, body: &str) -> (u8, String) {
    (19, format!("0001 {flags:04x} 00000000 {body}"))
}

fn shown(client: &mut Client) -> (Vec<String>, Result<(), Failure>) {
    let mut texts = Vec::new();
    let style = client.style(PortNames::none(), 1);
    let result = client.show_statistics(flows(), style, |text| {
        texts.push(text.to_string());
        Ok(())
    });
    (texts, result)
}

#[test]
fn a_part_that_cannot_be_read_is_shown_and_may_be_the_last() {
    for flags in [&[0][..], &[1, 0]] {
        let answers: Vec<_> = flags.iter().map(|&flags| part(flags, NO_MATCH)).collect();
        let (texts, result) = shown(&mut client_of("parts", &answers));
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(texts.len(), flags.len());
        let expected = "OFPST_FLOW reply (OF1.3) (xid=0x2): ***decode error: OFPBMC_BAD_PREREQ***\n";
        assert!(texts.iter().all(|text| text.starts_with(expected)), "{texts:?}");
    }
}

#[test]
fn a_part_of_which_nothing_can_be_read_is_shown_and_a_failure() {
    let (texts, result) = shown(&mut client_of("short", &[part(1, TOO_SHORT)]));
    assert!(texts[0].starts_with("***decode error: OFPBRC_BAD_LEN***\n"), "{texts:?}");
    assert!(result.unwrap_err().0.starts_with("received bad reply: ***decode error"));
}

#[test]
fn an_answer_that_cannot_be_read_is_a_failure_for_who_needs_it() {
    let is_bad = |failure: Failure| failure.0.starts_with("received bad reply: ");
    assert!(is_bad(client_of("collect", &[part(0, NO_MATCH)]).collect(flows()).unwrap_err()));
    let config = Message::GetConfigRequest;
    assert!(is_bad(client_of("config", &[(8, "0000".into())]).request(&config).unwrap_err()));
    assert!(is_bad(client_of("barrier", &[(21, "0000".into())]).barrier().unwrap_err()));
}
