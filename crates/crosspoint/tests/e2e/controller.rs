//! A controller, or a client of a bridge's own socket, in the test's own hands.

use crate::common::{PATIENCE, accept};
use openflow::message::{Message, StatsBody, StatsReply, StatsRequest};
use openflow::{Connection, ConnectionConfig, Event, Side, Version, VersionSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a read waits at most.
const TURN: Duration = Duration::from_millis(50);

/// What messages go over.
pub trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// One end of a connection of OpenFlow that is up.
pub struct Controller {
    pub stream: Box<dyn Stream>,
    pub connection: Connection,
}

impl Controller {
    /// Waits for a switch.
    pub fn accept(listener: &TcpListener, version: Version) -> Controller {
        let stream = accept(listener);
        stream.set_read_timeout(Some(TURN)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Controller::over(Box::new(stream), version)
    }

    /// Connects to a bridge's socket.
    pub fn connect(socket: &Path, version: Version) -> Controller {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(TURN)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Controller::over(Box::new(stream), version)
    }

    /// Connects to where a switch listens.
    pub fn call(port: u16, version: Version) -> Controller {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(TURN)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        Controller::over(Box::new(stream), version)
    }

    fn over(stream: Box<dyn Stream>, version: Version) -> Controller {
        let config = ConnectionConfig {
            side: Side::Controller,
            versions: VersionSet::only(version),
            probe_interval: None,
        };
        let mut controller = Controller { stream, connection: Connection::new(config, Instant::now()) };
        let up = controller.events_until(|e| matches!(e, Event::Up(_)));
        assert!(matches!(up.last(), Some(Event::Up(v)) if *v == version), "{up:?}");
        controller
    }

    /// What happens within this time.
    pub fn events_for(&mut self, time: Duration) -> Vec<Event> {
        let end = Instant::now() + time;
        let mut events = vec![];
        while Instant::now() < end {
            self.step(&mut events);
        }
        events
    }

    #[track_caller]
    pub fn events_until(&mut self, done: impl Fn(&Event) -> bool) -> Vec<Event> {
        let end = Instant::now() + PATIENCE;
        let mut events = vec![];
        while !events.iter().any(&done) {
            assert!(Instant::now() < end, "waited in vain: {events:?}");
            self.step(&mut events);
        }
        events
    }

    fn step(&mut self, events: &mut Vec<Event>) {
        let out = self.connection.transmit().to_vec();
        if self.stream.write_all(&out).is_ok() {
            self.connection.transmitted(out.len());
        }
        let mut buffer = [0; 65_536];
        if let Ok(n) = self.stream.read(&mut buffer) {
            let mut rest = &buffer[..n];
            while !rest.is_empty() {
                let taken = self.connection.handle_bytes(Instant::now(), rest);
                rest = &rest[taken..];
                while let Some(event) = self.connection.next_event(Instant::now()) {
                    events.push(event);
                }
            }
        }
    }

    /// Sends a message and does not wait.
    pub fn send(&mut self, message: &Message) -> u32 {
        let xid = self.connection.new_xid();
        self.connection.send(xid, message).unwrap();
        xid
    }

    /// The first answer to a request.
    #[track_caller]
    pub fn ask(&mut self, message: &Message) -> Message {
        let xid = self.send(message);
        let events = self.events_until(|e| matches!(e, Event::Message { xid: x, .. } if *x == xid));
        let answer = events.into_iter().find_map(|e| match e {
            Event::Message { xid: x, message, .. } if x == xid => Some(message),
            _ => None,
        });
        answer.unwrap()
    }

    /// All parts of the answer to a request for statistics.
    #[track_caller]
    pub fn ask_for(&mut self, request: StatsRequest) -> Vec<StatsBody> {
        let xid = self.send(&Message::StatsRequest(request));
        let is_answer = |e: &Event| matches!(e, Event::Message { xid: x, .. } if *x == xid);
        let is_last = |e: &Event| {
            let more =
                |message: &Message| matches!(message, Message::StatsReply(StatsReply { more: true, .. }));
            is_answer(e) && !matches!(e, Event::Message { message, .. } if more(message))
        };
        let events = self.events_until(is_last);
        let bodies = events.into_iter().filter(is_answer).map(|e| match e {
            Event::Message { message: Message::StatsReply(reply), .. } => reply.body,
            other => panic!("{other:?}"),
        });
        bodies.collect()
    }

    /// What has been said up to the answer to a barrier: messages, each with whether it answers.
    #[track_caller]
    pub fn heard(&mut self) -> Vec<Message> {
        let barrier = self.send(&Message::BarrierRequest);
        let events = self.events_until(|e| matches!(e, Event::Message { xid, .. } if *xid == barrier));
        let heard = events.into_iter().filter_map(|e| match e {
            Event::Message { xid, message, .. } => (xid != barrier).then_some(message),
            other => panic!("{other:?}"),
        });
        heard.collect()
    }
}
