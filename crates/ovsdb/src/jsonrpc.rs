//! JSON-RPC 1.0 as OVSDB uses it: JSON objects one after the other on a byte stream, separated only by white
//! space.
//!
//! [`Message`] is one object: a request, a notification, a reply or an error. (The crate `transport` finds
//! where it ends.) Parameters and results remain the original text ([`RawValue`]) until code that knows their
//! type parses them: a transaction of 100 MB is parsed once, with types.
//!
//! Source: RFC 7047 section 4; JSON-RPC 1.0.

use crate::json::{Json, Text};
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// The longest id as text. A peer chooses its ids, and the tree of one takes up to a hundred times its text.
pub const ID_BYTES_MAX: usize = 1 << 10;

/// Why a message is refused. The connection must be closed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BadMessage {
    /// The object is no JSON.
    NotJson(String),
    /// It is JSON but not a message; gives the reason.
    NotAMessage(String),
    /// A "reply" or an "error" without a request.
    Unexpected(&'static str),
}

impl fmt::Display for BadMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadMessage::NotJson(why) => write!(f, "error parsing stream: {why}"),
            BadMessage::NotAMessage(why) => write!(f, "received bad JSON-RPC message: {why}"),
            BadMessage::Unexpected(what) => write!(f, "received unexpected {what} message"),
        }
    }
}

impl std::error::Error for BadMessage {}

/// One message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants a reply or an error that carries its id.
    Request {
        /// What to do.
        method: String,
        /// An array.
        params: Box<RawValue>,
        /// Any JSON value but null.
        id: Value,
    },
    /// Wants nothing back.
    Notification {
        /// What happened.
        method: String,
        /// An array.
        params: Box<RawValue>,
    },
    /// A request that was done.
    Reply {
        /// Anything but null.
        result: Box<RawValue>,
        /// The request's.
        id: Value,
    },
    /// A request that was not done.
    Error {
        /// Anything but null; a string, or an object with "error" and "details".
        error: Box<RawValue>,
        /// The request's.
        id: Value,
    },
}

/// One message as it came. What a request asks for is a part of the message's text: thousands of them may
/// come in a second.
#[derive(Debug)]
pub enum Received<'a> {
    /// See [`Message::Request`].
    Request {
        /// What to do.
        method: Cow<'a, str>,
        /// An array.
        params: &'a RawValue,
        /// Any JSON value but null.
        id: Value,
    },
    /// Anything else.
    Other(Message),
}

/// All members that a message may have; of repeated ones, the last. Null is not distinguished from a missing
/// member.
#[derive(Default)]
struct Members<'a> {
    method: Option<Text<'a>>,
    params: Option<&'a RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    id: Option<&'a RawValue>,
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader<'a>(PhantomData<Members<'a>>);
        impl<'de: 'a, 'a> Visitor<'de> for Reader<'a> {
            type Value = Members<'a>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'a>, A::Error> {
                let mut members = Members::default();
                while let Some(Text(name)) = map.next_key::<Text<'de>>()? {
                    match &*name {
                        "method" => members.method = map.next_value()?,
                        "params" => members.params = map.next_value()?,
                        "result" => members.result = map.next_value()?,
                        "error" => members.error = map.next_value()?,
                        "id" => members.id = map.next_value()?,
                        other => {
                            return Err(de::Error::custom(format_args!(
                                "message has unexpected member \"{other}\""
                            )));
                        }
                    }
                }
                Ok(members)
            }
        }
        deserializer.deserialize_map(Reader(PhantomData))
    }
}

/// A request for a transaction, which is what most messages are, read in one go with its parameters.
pub(crate) struct Transact<'a> {
    pub(crate) params: Vec<Json<'a>>,
    pub(crate) id: Value,
}

impl<'a> Transact<'a> {
    /// `None`: the text is something else, or is invalid; [`Received::parse`] tells which.
    pub(crate) fn parse(text: &'a str) -> Option<Transact<'a>> {
        serde_json::from_str(text).ok()
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Transact<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Transact<'a>, D::Error> {
        struct Members;
        impl<'de> Visitor<'de> for Members {
            type Value = Transact<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a transaction")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Transact<'de>, A::Error> {
                let other = || de::Error::custom("something else");
                let (mut is_transact, mut params, mut id) = (false, None, None);
                while let Some(Text(name)) = map.next_key()? {
                    match &*name {
                        "id" if id.is_none() => {
                            id = Some(id_of(map.next_value()?).map_err(de::Error::custom)?);
                        }
                        "method" if !is_transact => {
                            // This usually comes before the parameters, so that those of other methods are
                            // not parsed in vain.
                            if map.next_value::<Text<'_>>()?.0 != "transact" {
                                return Err(other());
                            }
                            is_transact = true;
                        }
                        "params" if params.is_none() => params = Some(map.next_value()?),
                        _ => return Err(other()),
                    }
                }
                match (is_transact, params, id) {
                    (true, Some(params), Some(id)) if !id.is_null() => Ok(Transact { params, id }),
                    _ => Err(other()),
                }
            }
        }
        deserializer.deserialize_map(Members)
    }
}

/// Reads an id, unless it is too long to be kept.
fn id_of(text: &RawValue) -> Result<Value, BadMessage> {
    if text.get().len() > ID_BYTES_MAX {
        return Err(BadMessage::NotAMessage(format!("an \"id\" longer than {ID_BYTES_MAX} bytes")));
    }
    serde_json::from_str(text.get()).map_err(|e| BadMessage::NotJson(e.to_string()))
}

impl<'a> Received<'a> {
    /// Reads the text of one object.
    pub fn parse(text: &'a str) -> Result<Received<'a>, BadMessage> {
        let members: Members<'a> = serde_json::from_str(text).map_err(|e| match e.classify() {
            serde_json::error::Category::Data => BadMessage::NotAMessage(e.to_string()),
            _ => BadMessage::NotJson(e.to_string()),
        })?;
        let bad = |why: &str| Err(BadMessage::NotAMessage(why.into()));
        let Members { method, params, result, error, id } = members;
        let id = id.map_or(Ok(Value::Null), id_of)?;
        Ok(Received::Other(match (method, params, result, error) {
            (Some(Text(method)), Some(params), None, None) => {
                if !params.get().starts_with('[') {
                    return bad("\"params\" is not an array");
                }
                match id {
                    Value::Null => {
                        Message::Notification { method: method.into_owned(), params: params.to_owned() }
                    }
                    id => return Ok(Received::Request { method, params, id }),
                }
            }
            (Some(_), None, ..) => return bad("a request without \"params\""),
            (Some(_), ..) => return bad("both a request and a reply"),
            (None, Some(_), ..) => return bad("\"params\" without \"method\""),
            (None, None, ..) if id.is_null() => return bad("a reply without \"id\""),
            (None, None, Some(_), Some(_)) => return bad("both a result and an error"),
            (None, None, None, Some(error)) => Message::Error { error: error.to_owned(), id },
            (None, None, Some(result), None) => Message::Reply { result: result.to_owned(), id },
            (None, None, None, None) => return bad("neither a result nor an error"),
        }))
    }
}

impl Message {
    /// A request.
    pub fn request(method: &str, params: &impl Serialize, id: impl Into<Value>) -> Message {
        Message::Request { method: method.into(), params: raw(params), id: id.into() }
    }

    /// A notification.
    pub fn notification(method: &str, params: &impl Serialize) -> Message {
        Message::Notification { method: method.into(), params: raw(params) }
    }

    /// A reply.
    pub fn reply(result: &impl Serialize, id: Value) -> Message {
        Message::Reply { result: raw(result), id }
    }

    /// An error.
    pub fn error(error: &impl Serialize, id: Value) -> Message {
        Message::Error { error: raw(error), id }
    }

    /// Reads the text of one object.
    pub fn parse(text: &str) -> Result<Message, BadMessage> {
        Ok(match Received::parse(text)? {
            Received::Request { method, params, id } => {
                Message::Request { method: method.into_owned(), params: params.to_owned(), id }
            }
            Received::Other(message) => message,
        })
    }

    /// Appends its text.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Message::Request { method, params, id } => write_request(out, method, params, id),
            Message::Notification { method, params } => write_request(out, method, params, &Value::Null),
            Message::Reply { result, id } => write_reply(out, id, &**result),
            Message::Error { error, id } => write_error(out, id, error),
        }
    }

    /// Its text.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }
}

/// Appends the text of a request, or of a notification where `id` is null.
pub fn write_request(out: &mut Vec<u8>, method: &str, params: &RawValue, id: &Value) {
    out.extend_from_slice(b"{\"id\":");
    write_json(out, id);
    out.extend_from_slice(b",\"method\":");
    write_json(out, method);
    out.extend_from_slice(b",\"params\":");
    out.extend_from_slice(params.get().as_bytes());
    out.push(b'}');
}

/// Appends the text of a reply.
pub fn write_reply(out: &mut Vec<u8>, id: &Value, result: &(impl Serialize + ?Sized)) {
    out.extend_from_slice(b"{\"error\":null,\"id\":");
    write_json(out, id);
    out.extend_from_slice(b",\"result\":");
    write_json(out, result);
    out.push(b'}');
}

/// Appends the text of an error. It has no "result", like those of the stock server.
pub fn write_error(out: &mut Vec<u8>, id: &Value, error: &RawValue) {
    out.extend_from_slice(b"{\"error\":");
    out.extend_from_slice(error.get().as_bytes());
    out.extend_from_slice(b",\"id\":");
    write_json(out, id);
    out.push(b'}');
}

fn write_json(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("values and strings can be written");
}

/// A value as text.
///
/// # Panics
/// If the value cannot be JSON, as a map whose keys are not strings.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("it has a form in JSON")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn of_a_member_that_is_there_twice_the_last_counts() {
        let text = r#"{"method":"a","id":1,"params":[1],"method":"echo","id":2,"params":[]}"#;
        let Ok(Message::Request { method, params, id }) = Message::parse(text) else { panic!("no request") };
        assert_eq!((&*method, params.get(), id), ("echo", "[]", json!(2)));
        let error = Message::parse(r#"{"method":"echo","id":1,"params":[],"extra":1}"#).unwrap_err();
        assert!(error.to_string().contains("received bad JSON-RPC message: "), "{error}");
        assert!(error.to_string().contains("unexpected member \"extra\""), "{error}");
    }

    #[test]
    fn messages_are_read_as_they_are_written() {
        for message in [
            Message::request("transact", &json!(["db", {"op": "comment"}]), 7),
            Message::request("echo", &json!([]), "echo"),
            Message::notification("update", &json!([null, {}])),
            Message::reply(&json!({}), json!([1])),
            Message::error(&json!({"error": "e"}), "x".into()),
        ] {
            let text = String::from_utf8(message.to_bytes()).unwrap();
            let read = Message::parse(&text).unwrap();
            assert_eq!(std::mem::discriminant(&read), std::mem::discriminant(&message), "{text}");
            assert_eq!(String::from_utf8(read.to_bytes()).unwrap(), text);
        }
    }

    #[test]
    fn what_is_no_message_is_refused_with_its_reason() {
        let long = |length: usize| {
            let id = "i".repeat(length - 2);
            format!("{{\"method\":\"m\",\"params\":[],\"id\":\"{id}\"}}")
        };
        Message::parse(&long(ID_BYTES_MAX)).unwrap();
        for (bad, why) in [
            (&*long(ID_BYTES_MAX + 1), "an \"id\" longer than 1024 bytes"),
            ("{\"method\":\"m\",\"params\":[],\"id\":1e999}", "error parsing stream"),
            ("{}", "a reply without"),
            ("{\"method\":\"m\",\"id\":1}", "without \"params\""),
            ("{\"method\":\"m\",\"params\":{},\"id\":1}", "not an array"),
            ("{\"method\":1,\"params\":[],\"id\":1}", "invalid type"),
            ("{\"method\":\"m\",\"params\":[],\"result\":1,\"id\":1}", "both a request and a reply"),
            ("{\"result\":1,\"error\":1,\"id\":1}", "both a result and an error"),
            ("{\"result\":null,\"error\":null,\"id\":1}", "neither a result nor an error"),
            ("{\"params\":[],\"id\":1}", "without \"method\""),
            ("{\"method\":\"m\",\"params\":[],\"id\":1,\"x\":0}", "unexpected member"),
            ("{\"method\":\"m\" \"params\":[]}", "error parsing stream"),
        ] {
            let error = Message::parse(bad).unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }
}
