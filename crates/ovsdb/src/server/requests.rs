//! Each request but transactions and monitors.

use super::budget::{exhausted, lock_bytes};
use super::session::{Now, Session, SessionId};
use super::state::Server;
use crate::error::syntax_error;
use crate::{Error, Schema, is_identifier};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// What a handler answers: the result, or the error.
pub(super) type Answer = Result<Value, Value>;

impl Server {
    pub(super) fn handle_request(
        &mut self,
        now: Now,
        session: SessionId,
        method: &str,
        params: &RawValue,
        request: Value,
    ) {
        self.settle();
        if method == "echo" {
            return self.echo(session, params, &request);
        }
        if let Err(error) = self.check_params(params) {
            return self.reply_error(session, &request, &error.to_json());
        }
        let params: Value = match serde_json::from_str(params.get()) {
            Ok(params) => params,
            // The message was read whole, so it is JSON; numbers can still be out of every range.
            Err(e) => {
                let error = Error::new("syntax error", e.to_string()).to_json();
                return self.reply_error(session, &request, &error);
            }
        };
        let answer = match method {
            "list_dbs" => Ok(self.database_names().map(Value::from).collect()),
            "get_server_id" => Ok(Value::from(self.id().to_string())),
            "get_schema" => match self.get_schema(&params) {
                Ok(schema) => return self.reply(session, &request, &schema),
                Err(error) => Err(error),
            },
            "set_db_change_aware" => self.set_db_change_aware(session, &params),
            "lock" | "steal" => self.lock(session, method, &params),
            "unlock" => self.unlock(session, &params),
            "convert" => self.convert(now, session, &params),
            "monitor_cancel" => self.monitor_cancel(session, &params),
            "monitor_cond" | "monitor_cond_since" | "monitor_cond_change" if self.monitor_cond_disabled => {
                Err(Value::from("unknown method"))
            }
            "monitor" | "monitor_cond" | "monitor_cond_since" => {
                return self.monitor(session, method, &params, &request);
            }
            "monitor_cond_change" => self.monitor_cond_change(session, &params),
            _ => Err(Value::from("unknown method")),
        };
        match answer {
            Ok(result) => self.reply(session, &request, &result),
            Err(error) => self.reply_error(session, &request, &error),
        }
    }

    fn echo(&mut self, session: SessionId, params: &RawValue, request: &Value) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.output.write(|out| crate::jsonrpc::write_reply(out, request, params));
        }
    }

    /// The database name that `params` begin with, if the server has that database.
    pub(super) fn name_of<'a>(&self, method: &str, params: &'a Value) -> Result<&'a str, Value> {
        match params.get(0).and_then(Value::as_str) {
            Some(name) if self.databases.contains_key(name) => Ok(name),
            name => Err(no_database(method, name, params)),
        }
    }

    fn get_schema(&self, params: &Value) -> Result<Box<RawValue>, Value> {
        let name = self.name_of("get_schema", params)?;
        Ok(self.databases[name].schema_json.clone())
    }

    fn set_db_change_aware(&mut self, session: SessionId, params: &Value) -> Answer {
        let [Value::Bool(aware)] = params.as_array().map_or(&[][..], Vec::as_slice) else {
            let details = "set_db_change_aware: true or false parameter expected";
            return Err(syntax_error(params, details).to_json());
        };
        if let Some(session) = self.sessions.get_mut(&session) {
            session.is_change_aware = *aware;
        }
        Ok(json!({}))
    }

    fn lock(&mut self, session: SessionId, method: &str, params: &Value) -> Answer {
        self.refuse_if_read_only(session)?;
        let name = lock_name(method, params)?;
        let limits = self.limits();
        if self.locks.count(session) >= limits.locks {
            return Err(exhausted(format!("a session may have {} locks", limits.locks)).to_json());
        }
        self.keep(session, lock_bytes(name)).map_err(|e| e.to_json())?;
        let (locked, news) = match method {
            "lock" => (self.locks.lock(session, name), None),
            _ => match self.locks.steal(session, name) {
                Some(news) => (Some(true), news),
                None => (None, None),
            },
        };
        let Some(locked) = locked else {
            self.release(session, lock_bytes(name));
            let details = format!("must issue \"unlock\" before new \"{method}\"");
            return Err(syntax_error(params, details).to_json());
        };
        self.tell_locks(news);
        Ok(json!({"locked": locked}))
    }

    fn unlock(&mut self, session: SessionId, params: &Value) -> Answer {
        self.refuse_if_read_only(session)?;
        let name = lock_name("unlock", params)?;
        let Some(news) = self.locks.unlock(session, name) else {
            let details = "unlock: \"unlock\" without \"lock\" or \"steal\"";
            return Err(syntax_error(params, details).to_json());
        };
        self.release(session, lock_bytes(name));
        self.tell_locks(news);
        Ok(json!({}))
    }

    fn refuse_if_read_only(&self, session: SessionId) -> Result<(), Value> {
        if self.may_only_read(session) {
            return Err(Value::from("lock and unlock methods not allowed, DB server is read only."));
        }
        Ok(())
    }

    fn may_only_read(&self, session: SessionId) -> bool {
        self.read_only || self.sessions.get(&session).is_some_and(|s| s.read_only)
    }

    fn convert(&mut self, now: Now, session: SessionId, params: &Value) -> Answer {
        let name = self.name_of("convert", params)?.to_owned();
        if let Some(principal) = self.sessions.get(&session).map(Session::principal)
            && !principal.role.is_empty()
        {
            // For any database: a new schema could lack the tables that restrict the client.
            let act = format!("\"convert\" of database {name} (only the root role may convert databases)");
            return Err(principal.refused(&act).to_json());
        }
        let [_, schema] = params.as_array().map_or(&[][..], Vec::as_slice) else {
            return Err(syntax_error(params, "array expected").to_json());
        };
        let converted = Schema::from_json(schema).and_then(|schema| {
            if self.may_only_read(session) {
                return Err(Error::new("not allowed", "convert is not allowed in read only mode"));
            }
            self.convert_database(now, &name, schema)
        });
        converted.map(|()| json!({})).map_err(|e| e.to_json())
    }
}

/// The error for parameters that begin with no name, or with an unknown one.
pub(super) fn no_database(method: &str, name: Option<&str>, params: &impl Serialize) -> Value {
    let Some(name) = name else {
        let details = format!("{method} request params must begin with <db-name>");
        return syntax_error(params, details).to_json();
    };
    let details = format!("{method} request specifies unknown database {name}");
    Error { name: "unknown database".into(), ..syntax_error(params, details) }.to_json()
}

fn lock_name<'a>(method: &str, params: &'a Value) -> Result<&'a str, Value> {
    match params.as_array().map_or(&[][..], Vec::as_slice) {
        [Value::String(name)] if is_identifier(name) => Ok(name),
        _ => Err(syntax_error(params, format!("{method} request params must be <id>")).to_json()),
    }
}
