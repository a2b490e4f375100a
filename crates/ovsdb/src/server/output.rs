//! The output that waits to be sent to one client.

use std::collections::VecDeque;
use std::sync::Arc;

/// Bytes in order. Long texts that several clients get are shared.
#[derive(Debug, Default)]
pub struct Output {
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that are sent.
    sent: usize,
    bytes: usize,
}

#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<[u8]>),
}

/// Texts up to this are copied: sharing costs a system call more.
const COPIED_BYTES_MAX: usize = 16 << 10;
/// A chunk of one's own has room for this from the start.
const SMALL_BYTES: usize = 128;
/// A chunk of one's own does not grow beyond this.
const CHUNK_BYTES: usize = 64 << 10;

impl Output {
    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there is no output.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The memory that it takes, in bytes; of what is shared its part.
    pub fn cost(&self) -> usize {
        let cost = |chunk: &Chunk| match chunk {
            Chunk::Own(bytes) => bytes.capacity(),
            Chunk::Shared(bytes) => bytes.len() / Arc::strong_count(bytes),
        };
        self.chunks.iter().map(cost).sum()
    }

    /// The next bytes to send.
    pub fn front(&self) -> Option<&[u8]> {
        self.chunks.front().map(|chunk| &chunk.bytes()[self.sent..])
    }

    /// So many bytes of [`Self::front`] were sent.
    pub fn advance(&mut self, sent: usize) {
        self.sent += sent;
        self.bytes -= sent;
        if self.chunks.front().is_some_and(|chunk| chunk.bytes().len() == self.sent) {
            self.chunks.pop_front();
            self.sent = 0;
        }
    }

    /// Appends what `write` writes.
    pub fn write(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.write_about(0, write);
    }

    /// Appends what `write` writes, which are about `expected` bytes.
    pub fn write_about(&mut self, expected: usize, write: impl FnOnce(&mut Vec<u8>)) {
        if !matches!(self.chunks.back(), Some(Chunk::Own(bytes)) if bytes.len() < CHUNK_BYTES) {
            // Most that is written is the reply to a small request.
            self.chunks.push_back(Chunk::Own(Vec::with_capacity(expected.max(SMALL_BYTES))));
        }
        let Some(Chunk::Own(bytes)) = self.chunks.back_mut() else { unreachable!("just pushed") };
        let before = bytes.len();
        bytes.reserve(expected);
        write(bytes);
        self.bytes += bytes.len() - before;
    }

    /// Appends a text that others may get too.
    pub fn share(&mut self, text: &Arc<[u8]>) {
        if text.len() <= COPIED_BYTES_MAX {
            return self.write_about(text.len(), |out| out.extend_from_slice(text));
        }
        self.bytes += text.len();
        self.chunks.push_back(Chunk::Shared(text.clone()));
    }
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Own(bytes) => bytes,
            Chunk::Shared(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_and_shared_comes_out_in_order_however_it_is_taken() {
        let long: Arc<[u8]> = vec![b'x'; COPIED_BYTES_MAX + 1].into();
        let short: Arc<[u8]> = Arc::from(&b"short"[..]);
        for step in [1, 7, 70_000, usize::MAX] {
            let mut output = Output::default();
            let mut expected = Vec::new();
            for part in [&b"a"[..], b"", b"bc"] {
                output.write(|out| out.extend_from_slice(part));
                expected.extend_from_slice(part);
                for text in [&short, &long] {
                    output.share(text);
                    expected.extend_from_slice(text);
                }
            }
            assert_eq!(output.len(), expected.len());
            // Three times the long text, which the test has once.
            assert!(output.cost() < 3 * long.len(), "what is shared is not counted whole");
            let mut taken = Vec::new();
            while let Some(front) = output.front() {
                let n = front.len().min(step);
                taken.extend_from_slice(&front[..n]);
                output.advance(n);
            }
            assert!(output.is_empty() && taken == expected && output.cost() == 0);
        }
    }
}
