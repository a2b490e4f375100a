//! Bytes that wait to be sent on a stream whose owner also does other things meanwhile.
//!
//! A TLS stream keeps what it has encrypted until the socket takes it, and says that all is written: without
//! a flush, the rest of it waits for the next write.

use std::io;
use tokio::io::{AsyncWrite, AsyncWriteExt};

/// See the [module](self).
#[derive(Default, Debug)]
pub struct Outbox {
    bytes: Vec<u8>,
    /// Bytes of these that the stream has taken.
    sent: usize,
    /// The stream has taken bytes that it may not have sent.
    needs_flush: bool,
}

impl Outbox {
    /// Where to append what is to be sent.
    pub fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Whether there is something to send.
    pub fn has_more(&self) -> bool {
        self.sent < self.bytes.len() || self.needs_flush
    }

    /// Sends some of it. Cancelling it loses nothing.
    pub async fn send(&mut self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        if self.sent < self.bytes.len() {
            match stream.write(&self.bytes[self.sent..]).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                n => self.sent += n,
            }
            self.needs_flush = true;
            if self.sent < self.bytes.len() {
                return Ok(());
            }
            self.bytes.clear();
            self.sent = 0;
        }
        stream.flush().await?;
        self.needs_flush = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    /// Takes a few bytes at a time, and passes them on when it is flushed, one each time.
    #[derive(Default)]
    struct Slow {
        taken: Vec<u8>,
        passed_on: usize,
    }

    impl AsyncWrite for Slow {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let n = bytes.len().min(3);
            self.get_mut().taken.extend_from_slice(&bytes[..n]);
            Poll::Ready(Ok(n))
        }

        fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
            let this = self.get_mut();
            if this.passed_on == this.taken.len() {
                return Poll::Ready(Ok(()));
            }
            this.passed_on += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_the_stream_has_taken_is_flushed_also_if_that_is_interrupted() {
        let (mut outbox, mut stream) = (Outbox::default(), Slow::default());
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        outbox.bytes().extend_from_slice(b"12345678");
        runtime.block_on(async {
            let mut more = Some(b"9");
            while outbox.has_more() {
                // Something else happens each time: what was not done at once is begun anew.
                tokio::select! {
                    biased;
                    sent = outbox.send(&mut stream) => sent.unwrap(),
                    () = std::future::ready(()) => {}
                }
                if let Some(more) = more.take_if(|_| stream.passed_on == 5) {
                    outbox.bytes().extend_from_slice(more);
                }
            }
        });
        assert_eq!((&stream.taken[..], stream.passed_on), (&b"123456789"[..], 9));
    }
}
