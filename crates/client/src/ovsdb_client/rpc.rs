//! Requests to the server and their replies, one at a time; what comes between is kept.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::ctl::json::to_text;
use ovsdb::Schema;
use ovsdb::jsonrpc::Message;
use serde_json::{Value, json};
use transport::Tls;

use super::control::{Asked, Control, Next};
use crate::database;
use transport::jsonrpc::Connection;

/// A connection to a server.
pub(super) struct Server {
    /// How it was reached.
    pub(super) method: String,
    connection: Connection,
    next_id: u64,
    /// Notifications that came while a reply was awaited.
    notifications: VecDeque<(String, Value)>,
}

/// The events that wake a command that keeps running.
pub(super) enum Heard {
    /// The server's notification: its method and parameters.
    Notification(String, Value),
    /// The server's reply to a request that was [sent](Server::send) alone: its result.
    Reply(Value),
    /// A request at the control socket.
    Asked(Asked),
}

impl Server {
    pub(super) async fn connect(method: &str, tls: Option<&Arc<Tls>>) -> Result<Server, String> {
        let connection = database::connect(method, tls)
            .await
            .map_err(|error| format!("failed to connect to \"{method}\" ({error})"))?;
        Ok(Server { method: method.to_owned(), connection, next_id: 0, notifications: VecDeque::new() })
    }

    /// The result of a request; the inner error is the server's.
    pub(super) async fn try_call(
        &mut self,
        method: &str,
        params: Value,
    ) -> Result<Result<Value, Value>, String> {
        let lost = |error| format!("transaction failed ({error})");
        let own_id = self.next_id;
        self.next_id += 1;
        self.connection.send(&Message::request(method, &params, own_id)).await.map_err(lost)?;
        loop {
            let message = self.connection.receive().await.map_err(lost)?;
            let Some(message) = self.answer(message).await.map_err(lost)? else { continue };
            match message {
                Message::Reply { result, id } if id == own_id => return Ok(Ok(read(result.get())?)),
                Message::Error { error, id } if id == own_id => return Ok(Err(read(error.get())?)),
                Message::Notification { method, params } => {
                    self.notifications.push_back((method, read(params.get())?));
                }
                _ => {}
            }
        }
    }

    /// The result of a request; an error of the server is a failure.
    pub(super) async fn call(&mut self, method: &str, params: Value) -> Result<Value, String> {
        self.try_call(method, params)
            .await?
            .map_err(|error| format!("server returned error reply: {}", to_text(&error, false)))
    }

    /// Sends a request, whose reply [`Self::hear`] will yield.
    pub(super) async fn send(&mut self, method: &str, params: &Value) -> Result<(), String> {
        let request = Message::request(method, params, self.next_id);
        self.next_id += 1;
        self.connection.send(&request).await.map_err(|error| self.lost(&error))
    }

    /// The next event, from the server or the control socket.
    pub(super) async fn hear(&mut self, control: &mut Control) -> Result<Heard, String> {
        loop {
            if control.is_blocked() {
                return Ok(Heard::Asked(control.asked().await));
            }
            if let Some((method, params)) = self.notifications.pop_front() {
                return Ok(Heard::Notification(method, params));
            }
            // Neither loses anything where the other is first.
            let message = tokio::select! {
                message = self.connection.receive() => message.map_err(|error| self.lost(&error))?,
                asked = control.asked() => return Ok(Heard::Asked(asked)),
            };
            match self.answer(message).await.map_err(|error| self.lost(&error))? {
                Some(Message::Notification { method, params }) => {
                    return Ok(Heard::Notification(method, read(params.get())?));
                }
                Some(Message::Reply { result, .. }) => return Ok(Heard::Reply(read(result.get())?)),
                Some(Message::Error { error, .. }) => {
                    tracing::warn!(target: "ovsdb_client", "{}: {error}", self.method);
                }
                Some(Message::Request { .. }) | None => {}
            }
        }
    }

    /// Runs a request of the control socket.
    pub(super) async fn obey(&mut self, control: &mut Control, asked: Asked) -> Result<Next, String> {
        let (result, outgoing) = control.run(&asked);
        if let Some((method, params)) = outgoing {
            self.send(method, &params).await?;
        }
        Ok(control.answer(asked, result).await)
    }

    /// The next notification, for a command without a control socket.
    pub(super) async fn notification(&mut self) -> Result<(String, Value), String> {
        let mut control = Control::none();
        loop {
            if let Heard::Notification(method, params) = self.hear(&mut control).await? {
                return Ok((method, params));
            }
        }
    }

    /// Answers a message that is a request, such as whether we live, and hands on any other.
    async fn answer(&mut self, message: Message) -> Result<Option<Message>, String> {
        let Message::Request { method, params, id } = message else { return Ok(Some(message)) };
        let reply = match method.as_str() {
            "echo" => Message::Reply { result: params, id },
            _ => Message::error(&json!({"error": "unknown method"}), id),
        };
        self.connection.send(&reply).await.map(|()| None)
    }

    /// The connection is lost while nothing but events are awaited.
    fn lost(&self, error: &str) -> String {
        format!("{}: receive failed ({error})", self.method)
    }

    pub(super) async fn list_dbs(&mut self) -> Result<Vec<String>, String> {
        let reply = self.call("list_dbs", json!([])).await?;
        let names = reply.as_array().ok_or("list_dbs response is not array")?;
        let mut names = names
            .iter()
            .enumerate()
            .map(|(index, name)| {
                let name = name.as_str().map(str::to_owned);
                name.ok_or_else(|| format!("list_dbs response {index} is not string"))
            })
            .collect::<Result<Vec<String>, String>>()?;
        names.sort();
        Ok(names)
    }

    pub(super) async fn schema(&mut self, database: &str) -> Result<Schema, String> {
        let json = self.call("get_schema", json!([database])).await?;
        Schema::from_json(&json).map_err(|error| error.to_string())
    }

    /// The results of a transaction; an error among them is a failure.
    pub(super) async fn transact(&mut self, operations: Value) -> Result<Vec<Value>, String> {
        let results = self
            .try_call("transact", operations)
            .await?
            .map_err(|error| format!("transaction returned error: {}", to_text(&error, false)))?;
        let results = results.as_array().cloned().ok_or("result is not array")?;
        for result in &results {
            if let Some(error) = result.get("error").filter(|error| !error.is_null()) {
                let details = result.get("details").and_then(Value::as_str);
                let name = error.as_str().unwrap_or("transaction failed");
                return Err(match details {
                    Some(details) => format!("{name}: {details}"),
                    None => name.to_owned(),
                });
            }
        }
        Ok(results)
    }
}

fn read(json: &str) -> Result<Value, String> {
    serde_json::from_str(json).map_err(|error| error.to_string())
}
