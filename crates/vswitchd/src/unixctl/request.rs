//! What a client of the control socket says: JSON-RPC 1.0 requests, one JSON object after the other with nothing
//! between them but white space.
//!
//! Bytes come in pieces of any size. A scanner that looks at each byte once finds where an object ends; only then
//! is it parsed. Length and depth are bounded before anything is built.

use serde::Deserialize;
use serde_json::Value;

/// Longest request in bytes: a jumbo packet in hexadecimal with room to spare.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Deepest nesting. A request is an object with an array of strings.
const DEPTH_MAX: u32 = 8;

/// A request.
#[derive(Clone, PartialEq, Debug)]
pub struct Request {
    /// What the reply carries.
    pub id: Value,
    /// The command.
    pub method: String,
    /// Its arguments; `None` where one of them is no string, which the reply must say.
    pub params: Option<Vec<String>>,
}

/// Why a connection cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadRequest {
    /// Longer than [`REQUEST_BYTES_MAX`].
    TooLong,
    /// Nested deeper than any request is.
    TooDeep,
    /// Not JSON, or no request.
    Malformed(String),
}

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadRequest::TooLong => write!(f, "a request longer than {REQUEST_BYTES_MAX} bytes"),
            BadRequest::TooDeep => write!(f, "a request nested deeper than {DEPTH_MAX} levels"),
            BadRequest::Malformed(why) => f.write_str(why),
        }
    }
}

#[derive(Deserialize)]
struct Envelope {
    id: Value,
    method: String,
    params: Vec<Value>,
}

/// White space as JSON has it (RFC 8259 section 2): no form feed.
fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Takes bytes, yields requests.
#[derive(Default, Debug)]
pub struct RequestReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that the scanner has seen.
    scanned: usize,
    depth: u32,
    in_string: bool,
    escaped: bool,
}

impl RequestReader {
    /// Takes what was received. [`Self::next_request`] is called until it yields no more before the next bytes come, so that
    /// what is kept stays bounded.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete request. After an error the connection is to be closed.
    pub fn next_request(&mut self) -> Result<Option<Request>, BadRequest> {
        while let Some(&byte) = self.buffer.get(self.scanned) {
            self.scanned += 1;
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > DEPTH_MAX {
                        return Err(BadRequest::TooDeep);
                    }
                }
                b'}' | b']' if self.depth > 0 => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        return self.take().map(Some);
                    }
                }
                _ if is_blank(byte) && self.depth == 0 => {
                    // Between requests. Dropped now, or a client that sends nothing else would fill the buffer.
                    let blank = self.buffer.iter().take_while(|b| is_blank(**b)).count();
                    self.buffer.drain(..blank.max(1));
                    self.scanned = 0;
                }
                _ if self.depth == 0 => {
                    return Err(BadRequest::Malformed("expected a JSON object".into()));
                }
                b'"' => self.in_string = true,
                _ => {}
            }
        }
        if self.buffer.len() > REQUEST_BYTES_MAX { Err(BadRequest::TooLong) } else { Ok(None) }
    }

    fn take(&mut self) -> Result<Request, BadRequest> {
        if self.scanned > REQUEST_BYTES_MAX {
            return Err(BadRequest::TooLong);
        }
        let parsed: Result<Envelope, _> = serde_json::from_slice(&self.buffer[..self.scanned]);
        self.buffer.drain(..self.scanned);
        self.scanned = 0;
        let envelope = parsed.map_err(|e| BadRequest::Malformed(e.to_string()))?;
        let params = envelope.params.into_iter().map(|p| match p {
            Value::String(text) => Some(text),
            _ => None,
        });
        Ok(Request { id: envelope.id, method: envelope.method, params: params.collect() })
    }

    /// Bytes kept.
    pub fn buffered(&self) -> usize {
        self.buffer.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(reader: &mut RequestReader, bytes: &[u8]) -> Result<Vec<Request>, BadRequest> {
        reader.feed(bytes);
        let mut requests = Vec::new();
        while let Some(request) = reader.next_request()? {
            requests.push(request);
        }
        Ok(requests)
    }

    #[test]
    fn requests_are_found_however_the_bytes_are_cut() {
        let text = br#" {"id":0,"method":"version","params":[]}
            {"method":"vlog/set","params":["a}\"]{","\\"],"id":"x"}{"id":null,"method":"m","params":[1]} "#;
        let whole = all(&mut RequestReader::default(), text).unwrap();
        assert_eq!(whole.len(), 3);
        assert_eq!(whole[0].method, "version");
        assert_eq!(whole[1].params.as_deref(), Some(&["a}\"]{".to_string(), "\\".to_string()][..]));
        assert_eq!(whole[2].params, None);
        let mut reader = RequestReader::default();
        let pieces: Vec<_> = text.iter().flat_map(|b| all(&mut reader, &[*b]).unwrap()).collect();
        assert_eq!(pieces, whole);
        assert_eq!(reader.buffered(), 0);
    }

    #[test]
    fn what_is_no_request_ends_the_connection() {
        for bad in [
            &b"hello"[..],
            b"]",
            b"\r\x0c",
            b"{}",
            b"[]",
            b"{\"id\":0,\"method\":1,\"params\":[]}",
            b"{\"id\" 0}",
        ] {
            let result = all(&mut RequestReader::default(), bad);
            assert!(matches!(result, Err(BadRequest::Malformed(_))), "{bad:?}: {result:?}");
        }
        assert_eq!(all(&mut RequestReader::default(), &[b'['; 9]), Err(BadRequest::TooDeep));
    }

    #[test]
    fn a_request_without_end_is_refused_at_the_bound() {
        let mut reader = RequestReader::default();
        all(&mut reader, b"{\"id\":\"").unwrap();
        let result = (0..100).try_for_each(|_| all(&mut reader, &[b'x'; 65_536]).map(|_| ()));
        assert_eq!(result, Err(BadRequest::TooLong));
        assert!(reader.buffered() <= REQUEST_BYTES_MAX + 65_536);
        let mut spaces = RequestReader::default();
        (0..100).for_each(|_| assert!(all(&mut spaces, &[b' '; 65_536]).unwrap().is_empty()));
        assert_eq!(spaces.buffered(), 0);
    }
}
