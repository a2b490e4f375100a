//! What clients of the control socket send, and the frames that they describe.

use transport::unixctl::{BadRequest, REQUEST_BYTES_MAX, Request, RequestReader};
use vswitchd::odp;

/// Requests do not depend on how their bytes are cut, keep a bounded buffer, and never panic; nor does the
/// text of a frame.
pub fn unixctl_request(input: &[u8]) {
    let whole = read(input, input.len().max(1));
    // The pieces' lengths come from the input too.
    let piece = usize::from(input.first().copied().unwrap_or(0) % 13) + 1;
    assert_eq!(read(input, piece), whole);
    for request in &whole.0 {
        for text in request.params.iter().flatten() {
            if let Ok(frame) = odp::frame(text) {
                assert!(frame.len() >= 14);
            }
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = odp::frame(text);
    }
}

fn read(input: &[u8], piece: usize) -> (Vec<Request>, Option<BadRequest>) {
    let mut reader = RequestReader::default();
    let mut requests = Vec::new();
    for bytes in input.chunks(piece) {
        reader.feed(bytes);
        loop {
            match reader.next_request() {
                Ok(Some(request)) => requests.push(request),
                Ok(None) => break,
                Err(error) => return (requests, Some(error)),
            }
        }
        assert!(reader.buffered() <= REQUEST_BYTES_MAX + piece);
    }
    (requests, None)
}
