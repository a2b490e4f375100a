//! What clients of the control socket send, and the frames that they describe.

use transport::unixctl::{BadRequest, REQUEST_BYTES_MAX, Request, RequestReader};
use vswitchd::odp;

/// Requests do not depend on how their bytes are cut, keep a bounded buffer, and never panic; nor does the
/// text of a frame, or of a flow of the datapath, which is shown as it is read.
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
            flow(text);
        }
    }
    if let Ok(text) = std::str::from_utf8(input) {
        let _ = odp::frame(text);
        flow(text);
        let _ = odp::read_actions(text, &|_| None);
    }
}

/// What is shown of a flow is read as the same.
fn flow(text: &str) {
    let shown = |text: &str| {
        let read = odp::read_flow(text, &|_| None);
        read.map(|(key, mask)| odp::hand_flow(&key, &mask, &odp::numbers, false))
    };
    if let Ok(first) = shown(text) {
        assert_eq!(shown(&first).as_ref(), Ok(&first));
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
