//! What a client of the control socket says: JSON-RPC 1.0 requests, one JSON object after the other with
//! nothing between them but white space.
//!
//! Length and depth are bounded before anything is built ([`Framer`]).

use crate::jsonrpc::{BadFrame, Framer, Limits};
use ovsdb::jsonrpc::ID_BYTES_MAX;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

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
    /// Too long, too deeply nested, or no object.
    Frame(BadFrame),
    /// Not JSON, or no request.
    Malformed(String),
}

impl std::fmt::Display for BadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            BadRequest::Frame(bad) => bad.fmt(f),
            BadRequest::Malformed(why) => f.write_str(why),
        }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    id: &'a RawValue,
    method: String,
    #[serde(borrow)]
    params: Vec<&'a RawValue>,
}

/// Takes bytes, yields requests.
#[derive(Debug)]
pub struct RequestReader(Framer);

impl Default for RequestReader {
    fn default() -> RequestReader {
        RequestReader(Framer::new(Limits { bytes_max: REQUEST_BYTES_MAX, depth_max: DEPTH_MAX }))
    }
}

impl RequestReader {
    /// Takes what was received. [`Self::next_request`] is called until it yields no more before the next
    /// bytes come, so that what is kept stays bounded.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.0.feed(bytes);
    }

    /// The next complete request. After an error the connection is to be closed.
    pub fn next_request(&mut self) -> Result<Option<Request>, BadRequest> {
        let Some(text) = self.0.next_object().map_err(BadRequest::Frame)? else { return Ok(None) };
        let malformed = |e: serde_json::Error| BadRequest::Malformed(e.to_string());
        let envelope: Envelope<'_> = serde_json::from_str(text).map_err(malformed)?;
        // The reply needs it until it is read, and its tree may take a hundred times its text.
        if envelope.id.get().len() > ID_BYTES_MAX {
            return Err(BadRequest::Malformed(format!("an \"id\" longer than {ID_BYTES_MAX} bytes")));
        }
        let id = serde_json::from_str(envelope.id.get()).map_err(malformed)?;
        let params = envelope.params.iter().map(|p| serde_json::from_str::<String>(p.get()).ok());
        Ok(Some(Request { id, method: envelope.method, params: params.collect() }))
    }

    /// Bytes kept.
    pub fn buffered(&self) -> usize {
        self.0.buffered()
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
        for bad in [&b"hello"[..], b"]", b"\r\x0c", b"[]", b"{\"id\":[[[[[[[["] {
            let result = all(&mut RequestReader::default(), bad);
            assert!(matches!(result, Err(BadRequest::Frame(_))), "{bad:?}: {result:?}");
        }
        for bad in [&b"{}"[..], b"{\"id\":0,\"method\":1,\"params\":[]}", b"{\"id\" 0}"] {
            let result = all(&mut RequestReader::default(), bad);
            assert!(matches!(result, Err(BadRequest::Malformed(_))), "{bad:?}: {result:?}");
        }
    }

    #[test]
    fn an_id_that_would_take_much_memory_is_refused() {
        let with_id =
            |id: String| format!("{{\"id\":{id},\"method\":\"m\",\"params\":[\"a\",[]]}}").into_bytes();
        let request = all(&mut RequestReader::default(), &with_id("[{\"\":0}]".into())).unwrap();
        assert_eq!((&request[0].id, &request[0].params), (&serde_json::json!([{"": 0}]), &None));
        let long = format!("[{}0]", "{\"\":0},".repeat(ID_BYTES_MAX / 7));
        let result = all(&mut RequestReader::default(), &with_id(long));
        assert!(matches!(result, Err(BadRequest::Malformed(_))), "{result:?}");
    }

    #[test]
    fn a_request_without_end_is_refused_at_the_bound() {
        let mut reader = RequestReader::default();
        all(&mut reader, b"{\"id\":\"").unwrap();
        let result = (0..100).try_for_each(|_| all(&mut reader, &[b'x'; 65_536]).map(|_| ()));
        assert_eq!(result, Err(BadRequest::Frame(BadFrame::TooLong(REQUEST_BYTES_MAX))));
        assert!(reader.buffered() <= REQUEST_BYTES_MAX + 65_536);
    }
}
