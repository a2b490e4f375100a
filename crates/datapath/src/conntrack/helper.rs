//! What FTP control connections and TFTP requests announce: the destination of another connection.
//!
//! FTP announces it in one line of text, in one of four forms (RFC 959 `PORT` and 227, RFC 2428 `EPRT` and
//! 229). A line counts only if it starts a segment and is complete: a number that the end of the segment may
//! have cut off is not accepted. A line that starts like one of these but is malformed is [`Parsed::Bad`].
//!
//! Pure; nothing here panics or allocates, whatever the bytes.

use arrayvec::ArrayVec;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// How many bytes of a segment are read: the longest relevant line has 60.
const LOOKED_AT: usize = 128;
/// The longest text of an address and a port: that of `EPRT`.
const TEXT_MAX: usize = 64;

/// Ports below this belong to services; no client offers them for a transfer.
const EPHEMERAL_MIN: u16 = 1024;

/// The form in which a line gives address and port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// `10,0,0,1,4,5`.
    Numbers,
    /// `|1|10.0.0.1|1029|`, with this delimiter.
    Extended(u8),
    /// `|||1029|`, with this delimiter.
    PortAlone(u8),
}

/// A line that announces a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    pub form: Form,
    /// The destination address, if the line gives one.
    pub address: Option<u128>,
    pub is_ipv6: bool,
    pub port: u16,
    /// Where in the segment address and port are.
    pub text: Range<usize>,
}

/// What a segment of an FTP control connection contains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Parsed {
    /// No relevant line.
    Other,
    /// Starts like a relevant line, but is malformed.
    Bad,
    Is(Announcement),
}

/// Reads a segment sent by the client (`from_client`) or the server.
pub fn ftp(payload: &[u8], from_client: bool) -> Parsed {
    let line = &payload[..payload.len().min(LOOKED_AT)];
    let begins = |word: &[u8]| line.get(..word.len()).is_some_and(|at| at.eq_ignore_ascii_case(word));
    let mut cursor = Cursor { line, at: 4 };
    let read = match from_client {
        true if begins(b"PORT ") => cursor.numbers(),
        true if begins(b"EPRT ") => cursor.extended(),
        false if begins(b"227 ") => cursor.numbers(),
        false if begins(b"229 ") => cursor.port_alone(),
        _ => return Parsed::Other,
    };
    // A server that is told to connect to a client's service would reach it past the firewall (RFC 2577).
    let least = if from_client { EPHEMERAL_MIN } else { 1 };
    read.filter(|line| line.port >= least).map_or(Parsed::Bad, Parsed::Is)
}

struct Cursor<'a> {
    line: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Skips bytes within the line until one is wanted.
    fn until(&mut self, wanted: impl Fn(u8) -> bool) -> Option<()> {
        while !wanted(self.peek().filter(|byte| !matches!(byte, b'\r' | b'\n'))?) {
            self.at += 1;
        }
        Some(())
    }

    /// A number of at most five digits that is followed by another byte.
    fn number(&mut self) -> Option<u32> {
        let start = self.at;
        let mut number = 0;
        while let Some(digit @ b'0'..=b'9') = self.peek() {
            number = number * 10 + u32::from(digit - b'0');
            self.at += 1;
            if self.at - start > 5 {
                return None;
            }
        }
        (self.at > start && self.peek().is_some()).then_some(number)
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.next()? == byte).then_some(())
    }

    fn numbers(&mut self) -> Option<Announcement> {
        self.until(|byte| byte.is_ascii_digit())?;
        let start = self.at;
        let mut bytes = [0; 6];
        for (n, byte) in bytes.iter_mut().enumerate() {
            if n > 0 {
                self.expect(b',')?;
            }
            *byte = u8::try_from(self.number()?).ok()?;
        }
        let [a, b, c, d, port @ ..] = bytes;
        Some(Announcement {
            form: Form::Numbers,
            address: Some(Ipv4Addr::new(a, b, c, d).to_bits().into()),
            is_ipv6: false,
            port: u16::from_be_bytes(port),
            text: start..self.at,
        })
    }

    fn extended(&mut self) -> Option<Announcement> {
        self.until(|byte| byte != b' ')?;
        let start = self.at;
        let delimiter = self.next().filter(|byte| (33..=126).contains(byte) && !byte.is_ascii_digit())?;
        let is_ipv6 = match self.number()? {
            1 => false,
            2 => true,
            _ => return None,
        };
        self.expect(delimiter)?;
        let from = self.at;
        self.until(|byte| byte == delimiter)?;
        let text = std::str::from_utf8(&self.line[from..self.at]).ok()?;
        let address = match is_ipv6 {
            false => text.parse::<Ipv4Addr>().ok()?.to_bits().into(),
            true => text.parse::<Ipv6Addr>().ok()?.to_bits(),
        };
        let port = self.last_port(delimiter)?;
        let (form, text) = (Form::Extended(delimiter), start..self.at);
        Some(Announcement { form, address: Some(address), is_ipv6, port, text })
    }

    fn port_alone(&mut self) -> Option<Announcement> {
        self.until(|byte| byte == b'(')?;
        self.at += 1;
        let start = self.at;
        let delimiter = self.next().filter(|byte| (33..=126).contains(byte) && !byte.is_ascii_digit())?;
        self.expect(delimiter)?;
        let port = self.last_port(delimiter)?;
        let text = start..self.at;
        Some(Announcement { form: Form::PortAlone(delimiter), address: None, is_ipv6: false, port, text })
    }

    /// `|1029|`.
    fn last_port(&mut self, delimiter: u8) -> Option<u16> {
        self.expect(delimiter)?;
        let port = u16::try_from(self.number()?).ok()?;
        self.expect(delimiter)?;
        Some(port)
    }
}

/// The text of an address and a port.
pub type Text = ArrayVec<u8, TEXT_MAX>;

impl Announcement {
    /// The text that replaces [`Self::text`] for another address and port.
    pub fn with(&self, address: u128, port: u16) -> Text {
        let mut text = Text::new();
        let [high, low] = port.to_be_bytes();
        // Each form fits: the longest is IPv6's.
        let _ = match self.form {
            Form::Numbers => {
                let [a, b, c, d] = (address as u32).to_be_bytes();
                write!(text, "{a},{b},{c},{d},{high},{low}")
            }
            Form::Extended(delimiter) => {
                let (d, family) = (char::from(delimiter), if self.is_ipv6 { 2 } else { 1 });
                match self.is_ipv6 {
                    true => write!(text, "{d}{family}{d}{}{d}{port}{d}", Ipv6Addr::from_bits(address)),
                    false => {
                        write!(text, "{d}{family}{d}{}{d}{port}{d}", Ipv4Addr::from_bits(address as u32))
                    }
                }
            }
            Form::PortAlone(delimiter) => {
                let d = char::from(delimiter);
                write!(text, "{d}{d}{d}{port}{d}")
            }
        };
        text
    }
}

/// Whether a datagram is a TFTP request for a transfer (RFC 1350), which the server answers from another
/// port.
pub fn is_tftp_request(payload: &[u8]) -> bool {
    matches!(payload, [0, 1 | 2, ..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is(line: &str, from_client: bool) -> Announcement {
        match ftp(line.as_bytes(), from_client) {
            Parsed::Is(found) => found,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn each_form_is_read_and_written() {
        let v4 = u128::from(Ipv4Addr::new(10, 1, 1, 240).to_bits());
        let v6 = "fc00::240".parse::<Ipv6Addr>().unwrap().to_bits();
        for (line, from_client, address, port, other) in [
            ("PORT 10,1,1,240,4,5\r\n", true, Some(v4), 1029, "1,2,3,4,0,80"),
            ("port  10,1,1,240,255,255\n", true, Some(v4), 65535, "1,2,3,4,0,80"),
            ("227 Entering Passive Mode (10,1,1,240,0,21).\r\n", false, Some(v4), 21, "1,2,3,4,0,80"),
            ("EPRT |1|10.1.1.240|1029|\r\n", true, Some(v4), 1029, "|1|1.2.3.4|80|"),
            ("EPRT !2!fc00::240!1029!\r\n", true, Some(v6), 1029, "!2!::102:304!80!"),
            ("229 Entering Extended Passive Mode (|||1029|)\r\n", false, None, 1029, "|||80|"),
        ] {
            let found = is(line, from_client);
            assert_eq!((found.address, found.port), (address, port), "{line}");
            assert_eq!(ftp(line.as_bytes(), !from_client), Parsed::Other, "{line}: from the wrong end");
            // With what it says itself, the line stays, but for how addresses are spelled.
            let same = found.with(address.unwrap_or(0), port);
            assert_eq!(same.as_slice(), &line.as_bytes()[found.text.clone()], "{line}");
            let changed = found.with(0x0102_0304, 80);
            assert_eq!(std::str::from_utf8(&changed).unwrap(), other);
        }
    }

    #[test]
    fn what_is_cut_or_wrong_is_bad() {
        for line in [
            "PORT 10,1,1,240,4",
            "PORT 10,1,1,240,4,5",
            "PORT 10,1,1,256,4,5\r\n",
            "PORT 10,1,1,240,0,22\r\n",
            "EPRT |1|10.1.1.240|1023|\r\n",
            "PORT 10,1,1\r\n,240,4,5\r\n",
            "PORT x\r\n",
            "EPRT |3|10.1.1.240|1029|\r\n",
            "EPRT |1|10.1.1.240|65536|\r\n",
            "EPRT |2|10.1.1.240|1029|\r\n",
            "EPRT |1|10.1.1.240|1029\r\n",
        ] {
            assert_eq!(ftp(line.as_bytes(), true), Parsed::Bad, "{line}");
        }
        for line in ["227 no\r\n", "227 (10,1,1,240,0,0).\r\n", "229 (|||99999|)\r\n", "229 (|||1029"] {
            assert_eq!(ftp(line.as_bytes(), false), Parsed::Bad, "{line}");
        }
        for line in ["", "USER x\r\n", "XPORT 1", "PORT"] {
            assert_eq!(ftp(line.as_bytes(), true), Parsed::Other, "{line}");
        }
    }

    #[test]
    fn requests_of_tftp_are_told_from_what_follows() {
        assert!(is_tftp_request(b"\0\x01file\0octet\0") && is_tftp_request(b"\0\x02x"));
        assert!(!is_tftp_request(b"\0\x03") && !is_tftp_request(b"\0") && !is_tftp_request(b""));
    }
}
