//! The requests about monitors, and what monitors tell.

use super::budget::{exhausted, id_bytes};
use super::requests::Answer;
use super::session::{Held, MonitorCharge, OUTPUT_BYTES_FULL, SessionId, SessionMonitor};
use super::state::Server;
use crate::error::syntax_error;
use crate::execute::Reply;
use crate::monitor::history::Position;
use crate::monitor::{Form, MonitorId, Spec, Update};
use crate::{Error, Uuid};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Monitors of one session.
pub(super) const MONITORS_MAX: usize = 10_000;
/// Bytes of a notification around its id and its updates, at most.
const UPDATE_FRAME_BYTES: usize = 96;
/// What updates may cost in one turn, in clauses that rows are compared with, or as many of their bytes as
/// cost the same (12.8 MB): some milliseconds.
/// The rest follows after other work.
const TELL_WORK: usize = 50_000;
/// Longer updates may have a piece of memory of their own.
const UPDATE_BYTES_AT_ONCE: usize = 4 << 10;

impl Server {
    /// `monitor`, `monitor_cond` and `monitor_cond_since`. Their replies may be as long as the database, and
    /// go out as they were composed.
    pub(super) fn monitor(&mut self, session: SessionId, method: &str, params: &Value, request: &Value) {
        match self.start_monitor(session, method, params) {
            Err(error) => self.reply_error(session, request, &error),
            Ok(prefix_and_updates) => {
                let (prefix, updates) = prefix_and_updates;
                let Some(session) = self.sessions.get_mut(&session) else { return };
                session.output.write(|out| {
                    out.extend_from_slice(b"{\"error\":null,\"id\":");
                    serde_json::to_writer(&mut *out, request).expect("values can be written");
                    out.extend_from_slice(b",\"result\":");
                    out.extend_from_slice(prefix.as_deref().unwrap_or_default().as_bytes());
                });
                session.output.share(&updates);
                session.output.write(|out| {
                    out.extend_from_slice(if prefix.is_some() { b"]}" } else { b"}" });
                });
            }
        }
    }

    fn start_monitor(
        &mut self,
        session: SessionId,
        method: &str,
        params: &Value,
    ) -> Result<(Option<String>, Arc<[u8]>), Value> {
        let name = self.name_of(method, params)?;
        let form = match method {
            "monitor" => Form::Plain,
            "monitor_cond" => Form::Conditional,
            _ => Form::Since,
        };
        let bad = |json: &Value, why: &str| syntax_error(json, why).to_json();
        let (id, requests, since) = match (form, &params.as_array().map_or(&[][..], Vec::as_slice)[1..]) {
            (Form::Plain | Form::Conditional, [id, requests]) => (id, requests, None),
            (Form::Since, [id, requests, Value::String(since)]) => match Uuid::parse(since) {
                Some(since) => (id, requests, Some(since)),
                None => return Err(bad(&params[3], "last-txn-id must be UUID format.")),
            },
            (Form::Since, [_, _, since]) => return Err(bad(since, "last-txn-id must be string")),
            _ => return Err(bad(params, "invalid parameters")),
        };
        let key = id.to_string();
        let monitors = self.sessions.get(&session).map(|s| &s.monitors);
        if monitors.is_some_and(|m| m.contains_key(&key)) {
            return Err(bad(id, "duplicate monitor ID"));
        }
        if monitors.is_some_and(|m| m.len() >= MONITORS_MAX) {
            let details = format!("more than {MONITORS_MAX} monitors in one session");
            return Err(exhausted(details).to_json());
        }
        let monitors_max = self.budget.limits.monitors;
        if self.databases.values().map(|hosted| hosted.monitors.len()).sum::<usize>() >= monitors_max {
            return Err(exhausted(format!("more than {monitors_max} monitors in all sessions")).to_json());
        }
        let hosted = self.databases.get_mut(name).expect("its name was found");
        let spec = Spec::from_json(form, hosted.database.schema(), requests).map_err(|e| e.to_json())?;
        let work = hosted.monitors.first_work(&hosted.database, &spec, since).map_err(|e| e.to_json())?;
        self.tell_work += work;
        self.check_room().map_err(|e| e.to_json())?;
        let charge = MonitorCharge::of(&key, requests);
        self.keep(session, charge.bytes()).map_err(|e| e.to_json())?;
        let hosted = self.databases.get_mut(name).expect("its name was found");
        let before = hosted.monitors.work();
        let (monitor, initial) = hosted.monitors.add(&hosted.database, requests, spec, since);
        self.tell_work += hosted.monitors.work() - before;
        hosted.owners.insert(monitor, (session, key.clone()));
        if let Some(session) = self.sessions.get_mut(&session) {
            session.monitors.insert(key, SessionMonitor { database: name.to_owned(), id: monitor, charge });
        }
        let prefix = (form == Form::Since).then(|| format!("[{},\"{}\",", initial.found, initial.txn));
        Ok((prefix, initial.updates))
    }

    /// `Err`: there is no memory for a monitor's contents. Each may be as long as the database, and who takes
    /// too much is only ended after others' requests.
    fn check_room(&self) -> Result<(), Error> {
        if self.output_bytes() + self.budget.kept >= self.budget.limits.total_bytes {
            let details = "what waits to be sent leaves no memory for the contents of another monitor";
            return Err(exhausted(details));
        }
        Ok(())
    }

    pub(super) fn monitor_cancel(&mut self, session: SessionId, params: &Value) -> Answer {
        let [id] = params.as_array().map_or(&[][..], Vec::as_slice) else {
            return Err(Value::from("invalid parameters"));
        };
        let monitor = self.sessions.get_mut(&session).and_then(|s| s.monitors.remove(&id.to_string()));
        let Some(monitor) = monitor else { return Err(Value::from("unknown monitor")) };
        self.release(session, monitor.charge.bytes());
        if let Some(hosted) = self.databases.get_mut(&monitor.database) {
            hosted.remove_monitor(monitor.id);
        }
        Ok(json!({}))
    }

    pub(super) fn monitor_cond_change(&mut self, session: SessionId, params: &Value) -> Answer {
        let [old, new, requests] = params.as_array().map_or(&[][..], Vec::as_slice) else {
            return Err(syntax_error(params, "invalid parameters").to_json());
        };
        let (old_key, new_key) = (old.to_string(), new.to_string());
        let monitors = self.sessions.get(&session).map(|s| &s.monitors);
        let Some(monitor) = monitors.and_then(|m| m.get(&old_key)) else {
            return Err(syntax_error(old, "unknown monitor session").to_json());
        };
        let (name, id) = (monitor.database.clone(), monitor.id);
        if old_key != new_key && monitors.is_some_and(|m| m.contains_key(&new_key)) {
            return Err(syntax_error(new, "duplicate monitor ID").to_json());
        }
        self.check_room().map_err(|e| e.to_json())?;
        let charge = MonitorCharge::of(&new_key, requests);
        // Until the new conditions take their place, the old ones are there as well.
        self.keep(session, charge.bytes()).map_err(|e| e.to_json())?;
        // Earlier changes are reported under the old conditions.
        self.tell(&name, id);
        let hosted = self.databases.get_mut(&name).expect("its monitors go with it");
        let before = hosted.monitors.work();
        let update = hosted.monitors.change_conditions(&hosted.database, id, requests);
        self.tell_work += hosted.monitors.work() - before;
        let update = match update {
            Ok(update) => update,
            Err(error) => {
                self.release(session, charge.bytes());
                return Err(error.to_json());
            }
        };
        hosted.owners.insert(id, (session, new_key.clone()));
        if let Some(state) = self.sessions.get_mut(&session)
            && let Some(mut monitor) = state.monitors.remove(&old_key)
        {
            let replaced = monitor.charge.replace(charge);
            state.monitors.insert(new_key, monitor);
            self.release(session, replaced);
        }
        if let Some(update) = update {
            self.send_update(&name, id, &update);
        }
        Ok(json!({}))
    }

    /// Sends a monitor what has happened since its last update.
    fn tell(&mut self, database: &str, id: MonitorId) {
        let hosted = self.databases.get_mut(database).expect("its monitors go with it");
        let before = hosted.monitors.work();
        let update = hosted.monitors.poll(id);
        self.tell_work += hosted.monitors.work() - before;
        if let Some(update) = update {
            self.send_update(database, id, &update);
        }
    }

    fn send_update(&mut self, database: &str, id: MonitorId, update: &Update) {
        let Some((session, key)) = self.databases.get(database).and_then(|h| h.owners.get(&id)) else {
            return;
        };
        let Some(state) = self.sessions.get_mut(session) else { return };
        self.counters.updates += 1;
        // Reserves room for the whole notification if it is not long: some hundred clients may get it.
        let expected = UPDATE_FRAME_BYTES + key.len() + update.updates.len().min(UPDATE_BYTES_AT_ONCE);
        state.output.write_about(expected, |out| {
            out.extend_from_slice(b"{\"id\":null,\"method\":\"");
            out.extend_from_slice(update.form.method().as_bytes());
            out.extend_from_slice(b"\",\"params\":[");
            out.extend_from_slice(key.as_bytes());
            out.push(b',');
            if update.form == Form::Since {
                out.push(b'"');
                out.extend_from_slice(&update.txn.text());
                out.extend_from_slice(b"\",");
            }
        });
        state.output.share(&update.updates);
        state.output.write(|out| out.extend_from_slice(b"]}"));
        self.ready.insert(*session);
    }

    /// Sends the reply to a transaction, after what the transaction changed: if the output is full meanwhile,
    /// once the client has taken enough of it.
    pub(super) fn answer(&mut self, database: &str, session: SessionId, request: Value, reply: Reply) {
        let Some(state) = self.sessions.get(&session) else { return };
        let position = self.databases.get(database).map_or(0, |hosted| hosted.monitors.now());
        if state.held.is_empty() && self.tell_upto(session, database, position) {
            return self.reply(session, &request, &reply);
        }
        let bytes = reply.bytes() + id_bytes(&request);
        self.keep_anyway(session, bytes);
        let held = Held { database: database.to_owned(), position, request, reply, bytes };
        self.sessions.get_mut(&session).expect("just looked at").held.push_back(held);
    }

    /// Tells a session's monitors of a database what has happened up to a position at least. False: its
    /// output is full before that, or it takes longer than a turn.
    fn tell_upto(&mut self, session: SessionId, database: &str, position: Position) -> bool {
        let Some(hosted) = self.databases.get(database) else { return true };
        let Some(state) = self.sessions.get(&session) else { return true };
        // A database that was converted since begins anew.
        let position = position.min(hosted.monitors.now());
        let of_database = state.monitors.values().filter(|m| m.database == database);
        let behind = of_database.map(|m| m.id).filter(|id| !hosted.monitors.has_reached(*id, position));
        for id in behind.collect::<Vec<_>>() {
            if !self.may_tell(session) {
                return false;
            }
            self.tell(database, id);
        }
        true
    }

    /// Changes are left to be told because this turn was long.
    pub(super) fn has_untold(&self) -> bool {
        self.tell_work >= TELL_WORK
    }

    fn may_tell(&self, session: SessionId) -> bool {
        self.tell_work < TELL_WORK
            && self.sessions.get(&session).is_some_and(|s| s.output.len() < OUTPUT_BYTES_FULL)
    }

    /// A client has read its output, or much of it: sends it the changes that it missed, and the replies that
    /// waited for them.
    pub fn drained(&mut self, session: SessionId) {
        while self.may_tell(session)
            && let Some(held) = self.sessions.get(&session).and_then(|s| s.held.front())
        {
            let (database, position) = (held.database.clone(), held.position);
            if !self.tell_upto(session, &database, position) {
                return;
            }
            let held = self.sessions.get_mut(&session).and_then(|s| s.held.pop_front());
            let Some(Held { request, reply, bytes, .. }) = held else { return };
            self.release(session, bytes);
            self.reply(session, &request, &reply);
            self.ready.insert(session);
        }
        let Some(state) = self.sessions.get(&session).filter(|_| self.may_tell(session)) else { return };
        let is_behind =
            |m: &&SessionMonitor| self.databases.get(&m.database).is_some_and(|h| h.monitors.is_behind(m.id));
        let behind: Vec<(String, MonitorId)> =
            state.monitors.values().filter(is_behind).map(|m| (m.database.clone(), m.id)).collect();
        for (database, id) in behind {
            if !self.may_tell(session) {
                return;
            }
            self.tell(&database, id);
        }
    }

    /// Sends changes to all monitors whose clients read their output, as many as one turn allows. Sessions
    /// take turns, one monitor at a time: one with many that cost much keeps no other waiting.
    pub(super) fn tell_all(&mut self) {
        self.end_those_too_far_behind();
        // What was told before replies was those clients' own.
        self.tell_work = 0;
        let mut has_room = false;
        let mut behind: BTreeMap<SessionId, VecDeque<(Arc<str>, MonitorId)>> = BTreeMap::new();
        for (name, hosted) in &self.databases {
            let name: Arc<str> = name.as_str().into();
            for id in hosted.monitors.behind() {
                if let Some((session, _)) = hosted.owners.get(&id) {
                    behind.entry(*session).or_default().push_back((name.clone(), id));
                }
            }
        }
        for (id, _) in self.sessions.iter().filter(|(_, s)| !s.held.is_empty()) {
            behind.entry(*id).or_default();
        }
        let last = self.told_last;
        let after = behind.split_off(&SessionId(last.0 + 1));
        let mut sessions: VecDeque<_> = after.into_iter().chain(behind).collect();
        while let Some((session, mut monitors)) = sessions.pop_front() {
            if self.tell_work >= TELL_WORK {
                return;
            }
            if !self.may_tell(session) || self.is_closing(session) {
                continue;
            }
            // Looked at once: a turn adds as much as it may cost, and one text.
            has_room = has_room || self.check_room().is_ok();
            if !has_room {
                // Next time, when clients have taken some of it, or those that take most are ended.
                self.tell_work = TELL_WORK;
                return;
            }
            self.told_last = session;
            match monitors.pop_front() {
                Some((database, id)) => {
                    self.tell(&database, id);
                    sessions.push_back((session, monitors));
                }
                // Only replies are left that have waited for this.
                None => self.drained(session),
            }
        }
    }

    /// Ends the sessions whose monitors miss so much that it costs too much to keep it for them.
    fn end_those_too_far_behind(&mut self) {
        for name in self.databases.keys().cloned().collect::<Vec<_>>() {
            for id in self.databases[&name].monitors.too_far_behind() {
                let owner = self.databases[&name].owners.get(&id).map(|(session, _)| *session);
                // One that takes what it is sent is told soon.
                let is_full = |s: &SessionId| {
                    self.sessions.get(s).is_some_and(|s| s.output.len() >= OUTPUT_BYTES_FULL && !s.is_closing)
                };
                if let Some(session) = owner.filter(is_full) {
                    self.counters.sessions_too_far_behind += 1;
                    self.close(session);
                    self.discard_output(session);
                }
            }
        }
    }
}
