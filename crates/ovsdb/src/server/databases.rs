//! The databases of a server: which there are, and what the server keeps of each.

use super::session::{Now, SessionId};
use super::state::{DatabaseNo, Hosted, Model, SERVER_DATABASE, Server, Unsynced, Waiting};
use crate::execute::OpResult;
use crate::log::transaction::Note;
use crate::monitor::{MonitorId, Monitors};
use crate::storage::{CommitNo, Done, Event, Job, Storage, io_error};
use crate::{Changes, Database, Error, Schema, UuidGenerator, jsonrpc};
use hashbrown::HashMap;
use serde_json::Value;
use std::collections::{BTreeSet, VecDeque};

/// There is no database of that name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoSuchDatabase;

/// Events of a database's storage.
#[derive(Debug)]
pub enum StorageNews {
    /// Its file was replaced by a smaller one: bytes before and now.
    Compacted(u64, u64),
    /// The compaction failed.
    NotCompacted(std::io::Error),
    /// Commits could not be made durable.
    NotDurable(std::io::Error),
}

impl Hosted {
    pub(super) fn new(
        database: Database,
        storage: Option<Storage>,
        model: Model,
        ids: &mut UuidGenerator,
    ) -> Hosted {
        let schema = database.schema().clone();
        let txn = ids.next_uuid();
        Hosted {
            number: DatabaseNo(ids.next_u64()),
            last_commit: storage.as_ref().map_or(0, Storage::committed),
            storage,
            model,
            monitors: Monitors::new(schema.clone(), txn),
            owners: HashMap::new(),
            waiting: Vec::new(),
            unsynced: VecDeque::new(),
            changed: BTreeSet::new(),
            was_reverted: false,
            version: 0,
            schema_json: jsonrpc::raw(&schema.to_json()),
            database,
        }
    }

    /// Writes commits to the log, all or none.
    pub(super) fn log<'a>(
        &mut self,
        commits: impl IntoIterator<Item = (&'a Changes, Note<'a>)>,
    ) -> std::io::Result<()> {
        if let Some(storage) = &mut self.storage {
            self.last_commit = storage.commit_all(commits)?;
        }
        Ok(())
    }

    /// Asks for the last commit to be durable. `None`: it is, or there is no disk.
    pub(super) fn want_durable(&mut self) -> Option<CommitNo> {
        let storage = self.storage.as_mut()?;
        if storage.durable() >= self.last_commit {
            return None;
        }
        storage.want_durable(self.last_commit);
        Some(self.last_commit)
    }

    pub(super) fn remove_monitor(&mut self, id: MonitorId) {
        self.monitors.remove(id);
        self.owners.remove(&id);
    }

    /// A session is gone.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.waiting.retain(|w| w.session != session);
        self.unsynced.retain(|u| u.session != session);
    }
}

impl Server {
    /// Adds a database that lives in memory alone. False: there is one of its name.
    pub fn add_in_memory(&mut self, database: Database, model: Model) -> bool {
        self.add(database, None, model)
    }

    /// Adds a database that was opened from its file. False: there is one of its name.
    pub fn add_stored(&mut self, database: Database, storage: Storage) -> bool {
        self.add(database, Some(storage), Model::Standalone)
    }

    fn add(&mut self, database: Database, storage: Option<Storage>, model: Model) -> bool {
        let name = database.schema().name.clone();
        if self.databases.contains_key(&name) {
            return false;
        }
        self.databases.insert(name, Hosted::new(database, storage, model, &mut self.ids));
        self.own_is_stale = true;
        self.close_unaware_sessions();
        true
    }

    /// The next piece of work that takes long, with the database that it is for: run it on another thread and
    /// hand its result to [`Server::handle_done`]. Ask after each round of requests, and now and then:
    /// compaction is due by time too.
    pub fn poll_job(&mut self, now: Now) -> Option<(DatabaseNo, Job)> {
        self.settle();
        let now_ms = self.now_ms(now);
        self.databases.values_mut().find_map(|hosted| {
            let job = hosted.storage.as_mut()?.poll_job(now_ms, now.date_ms, &hosted.database)?;
            Some((hosted.number, job))
        })
    }

    /// Processes the result of a job: answers the transactions that waited for it. The caller must log
    /// anything else.
    pub fn handle_done(&mut self, now: Now, of: DatabaseNo, done: Done) -> Vec<(String, StorageNews)> {
        let now_ms = self.now_ms(now);
        // The database may be gone meanwhile.
        let Some((name, hosted)) = self.databases.iter_mut().find(|(_, h)| h.number == of) else {
            return Vec::new();
        };
        let name = name.clone();
        let Some(storage) = &mut hosted.storage else { return Vec::new() };
        storage.handle_done(now_ms, done);
        let events: Vec<Event> = std::iter::from_fn(|| storage.poll_event()).collect();
        let mut news = Vec::new();
        for event in events {
            match event {
                Event::Durable(upto) => self.synced(&name, upto, None),
                Event::NotDurable { upto, error } => {
                    self.synced(&name, upto, Some(&io_error(&error)));
                    news.push((name.clone(), StorageNews::NotDurable(error)));
                }
                Event::Compacted { before, after } => {
                    news.push((name.clone(), StorageNews::Compacted(before, after)));
                }
                Event::NotCompacted { error } => {
                    news.push((name.clone(), StorageNews::NotCompacted(error)));
                }
            }
        }
        news
    }

    /// Requests the compaction of a database, which jobs do. False: it is in memory only.
    pub fn compact(&mut self, name: &str) -> Result<bool, NoSuchDatabase> {
        let hosted = self.databases.get_mut(name).ok_or(NoSuchDatabase)?;
        let Some(storage) = &mut hosted.storage else { return Ok(false) };
        storage.compact();
        Ok(true)
    }

    /// Whether a database is being compacted.
    pub fn is_compacting(&self, name: &str) -> bool {
        let storage = self.databases.get(name).and_then(|h| h.storage.as_ref());
        storage.is_some_and(Storage::is_compacting)
    }

    /// Removes a database. Its monitors end, and what waits in it is answered with an error.
    pub fn remove_database(&mut self, name: &str) -> Result<Database, NoSuchDatabase> {
        if name == SERVER_DATABASE {
            return Err(NoSuchDatabase);
        }
        self.settle();
        let hosted = self.databases.remove(name).ok_or(NoSuchDatabase)?;
        self.own_is_stale = true;
        Ok(self.abandon(hosted))
    }

    /// Ends all that hangs on a database.
    fn abandon(&mut self, mut hosted: Hosted) -> Database {
        for Waiting { session, request, bytes, .. } in hosted.waiting.drain(..).collect::<Vec<_>>() {
            self.waits_no_more(session, bytes);
            // Clients that are not aware of database changes are disconnected, so that they look again.
            if self.sessions.get(&session).is_some_and(|state| state.is_change_aware) {
                self.reply_error(session, &request, &Value::from("canceled"));
            }
            self.ready.insert(session);
        }
        for (session, key) in hosted.owners.into_values() {
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            let monitor = state.monitors.remove(&key);
            let is_change_aware = state.is_change_aware;
            self.release(session, monitor.map_or(0, |monitor| monitor.charge.bytes()));
            if is_change_aware {
                // The key is JSON already.
                let params = serde_json::value::RawValue::from_string(format!("[{key}]"));
                let params = params.expect("an id is JSON");
                if let Some(state) = self.sessions.get_mut(&session) {
                    state.output.write(|out| {
                        jsonrpc::write_request(out, "monitor_canceled", &params, &Value::Null);
                    });
                }
                self.ready.insert(session);
            }
        }
        // They are in the file, and nobody will tell whether they reached the disk.
        let removed = Error::new("I/O error", "the database was removed before this was known to be durable");
        for Unsynced { session, request, mut reply, bytes, .. } in
            hosted.unsynced.drain(..).collect::<Vec<_>>()
        {
            self.release(session, bytes);
            reply.0.push(OpResult::Failed(removed.clone()));
            self.reply(session, &request, &reply);
            self.ready.insert(session);
        }
        self.close_unaware_sessions();
        hosted.database
    }

    /// Milliseconds on the clock of storages.
    fn now_ms(&self, now: Now) -> u64 {
        now.at.saturating_duration_since(self.start).as_millis() as u64
    }

    /// Puts a database under another schema, which must be of its name.
    pub fn convert_database(&mut self, now: Now, name: &str, schema: Schema) -> Result<(), Error> {
        if name == SERVER_DATABASE {
            let details = format!("convert operation not allowed on reserved database {name}");
            return Err(Error::new("not allowed", details));
        }
        if schema.name != name {
            let details = format!("new schema name ({}) does not match database name ({name})", schema.name);
            return Err(Error::new("invalid parameters", details));
        }
        self.settle();
        let now_ms = self.now_ms(now);
        let hosted = self.databases.get_mut(name).ok_or_else(|| Error::bare("unknown database"))?;
        let converted = hosted.database.convert(schema, &mut self.ids)?;
        let mut storage = hosted.storage.take();
        if let Some(stored) = &mut storage
            && let Err(error) = stored.convert(now_ms, now.date_ms, &converted)
        {
            hosted.storage = storage;
            return Err(io_error(&error));
        }
        let mut new = Hosted::new(converted, storage, hosted.model, &mut self.ids);
        // Jobs that are out are the storage's still.
        new.number = hosted.number;
        new.last_commit = hosted.last_commit;
        new.unsynced = std::mem::take(&mut hosted.unsynced);
        new.version = hosted.version + 1;
        let old = self.databases.insert(name.to_owned(), new).expect("just looked at");
        self.own_is_stale = true;
        self.abandon(old);
        Ok(())
    }

    /// The names of all databases, `_Server` among them, in order.
    pub fn database_names(&self) -> impl Iterator<Item = &str> {
        self.databases.keys().map(String::as_str)
    }

    /// A database.
    pub fn database(&self, name: &str) -> Option<&Database> {
        self.databases.get(name).map(|h| &h.database)
    }

    /// Changes with each commit to a database, and with its conversion.
    pub fn database_version(&self, name: &str) -> Option<u64> {
        self.databases.get(name).map(|h| h.version)
    }
}
