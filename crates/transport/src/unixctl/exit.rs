//! The command `exit`: the program ends once its client has the reply. A client that finds its connection
//! closed instead takes the command for failed.

use std::time::Duration;
use tokio::sync::Notify;

/// How long a client may leave its reply unread.
const PATIENCE: Duration = Duration::from_secs(1);

/// Tells a program when to end.
#[derive(Default)]
pub struct Exit {
    is_told: Notify,
    is_replied: Notify,
}

impl Exit {
    /// The program is to end, once the reply to the command is written.
    pub fn tell(&self) {
        self.is_told.notify_one();
    }

    /// The program is to end at once: nobody waits for a reply.
    pub fn tell_without_reply(&self) {
        self.is_replied.notify_one();
        self.is_told.notify_one();
    }

    /// A reply is written, or cannot be.
    pub(super) fn replied(&self, is_exit: bool, result: &Result<String, String>) {
        if is_exit && result.is_ok() {
            self.is_replied.notify_one();
        }
    }

    /// Returns when the program is to end: with the reply written, or a second after it was told to.
    pub async fn ended(&self) {
        self.is_told.notified().await;
        // A client that does not read cannot keep the program.
        let _ = tokio::time::timeout(PATIENCE, self.is_replied.notified()).await;
    }
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    #[test]
    fn a_program_ends_when_the_client_that_told_it_to_has_room_for_the_reply() {
        let exit = Rc::new(Exit::default());
        let runtime = crate::runtime().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let (client, its) = Stream::pair().unwrap();
            rustix::net::sockopt::set_socket_send_buffer_size(&its, 1).unwrap();
            let told = exit.clone();
            let answer = async move |request: &Request, _| {
                if request.method == "exit" {
                    told.tell();
                }
                Ok("x".repeat(3_000))
            };
            let (stream, end) = (Stream::of_pair(its).unwrap(), exit.clone());
            tokio::task::spawn_local(async move {
                let account = Rc::new(Budget::new(REPLIES_BYTES_MAX).open());
                converse(stream, &answer, &end, &Rc::default(), &account).await;
            });
            let mut client = tokio::net::UnixStream::from_std(client).unwrap();
            for method in ["first", "exit"] {
                let request = format!(r#"{{"id":0,"method":"{method}","params":[]}}"#);
                client.write_all(request.as_bytes()).await.unwrap();
            }
            exit.is_told.notified().await;
            exit.tell();
            let mut ended = pin!(exit.ended());
            let is_ended = poll_fn(|context| Poll::Ready(ended.as_mut().poll(context).is_ready())).await;
            assert!(!is_ended, "the reply has no room yet");
            let mut text = vec![0; 6_000];
            client.read_exact(&mut text).await.unwrap();
            ended.await;
        });
    }

    #[test]
    fn a_client_that_does_not_read_cannot_keep_a_program() {
        let exit = Exit::default();
        crate::runtime().unwrap().block_on(async {
            exit.tell();
            exit.ended().await;
            exit.tell_without_reply();
            exit.ended().await;
        });
    }
}
