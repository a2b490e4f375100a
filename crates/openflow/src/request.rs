//! The part of a request that is kept for a possible error reply.

use crate::error::{ERROR_DATA_MAX, ErrorCode, ErrorKind, OfError};

/// The beginning of a request, which an error reply includes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHead {
    length: u8,
    bytes: [u8; ERROR_DATA_MAX],
}

impl RequestHead {
    /// From these bytes.
    pub fn new(request: &[u8]) -> RequestHead {
        let length = request.len().min(ERROR_DATA_MAX);
        let mut bytes = [0; ERROR_DATA_MAX];
        bytes[..length].copy_from_slice(&request[..length]);
        RequestHead { length: length as u8, bytes }
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    /// The error in answer to the request.
    pub fn error(&self, kind: ErrorKind) -> OfError {
        OfError::new(kind, self.as_bytes())
    }
}

/// The error reply to a request of which all bytes are available: it includes as many as fit into a message,
/// which the encoder sees to.
pub(crate) fn whole_error(kind: ErrorKind, request: &[u8]) -> OfError {
    OfError { code: ErrorCode::Known(kind), data: request.to_vec() }
}
