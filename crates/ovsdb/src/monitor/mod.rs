//! Monitors of one database: what each selects, how far each has got, and what to send next.
//!
//! Monitors with equal requests share a *feed*, which composes an update once for all of them: 500 clients of
//! the whole database cost one pass over the changes and 500 copies of bytes. A change is identified by a
//! pair of positions in the [history]; clients that keep up are all at the same position, so the texts that a
//! feed made last serve nearly all. A client that does not read is not sent more; it stays at its position,
//! and later gets one update of everything that happened meanwhile.
//!
//! Pure: no I/O, no clock; UUIDs of commits come from the caller.
//!
//! Source: RFC 7047 sections 4.1.5 to 4.1.7, ovsdb-server(7) sections 4.1.12 to 4.1.16.

mod condition;
pub mod history;
mod request;
mod update;

pub use condition::{CLAUSES_MAX, Condition, OTHERS_MAX};
pub use request::{Form, Spec};

use crate::execute::{VALUE_BYTES, WORK_MAX};
use crate::{Changes, Database, Error, Schema, Uuid};
use history::{History, Position};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::{Arc, Weak};

/// Texts of updates that a feed keeps.
const TEXTS_KEPT: usize = 4;
/// What a text costs that is there already, in clauses that rows are compared with: looking it up, and
/// writing to the client.
const LOOKUP_WORK: usize = 8;
/// Longer texts are kept only while they are being sent.
const TEXT_KEPT_BYTES_MAX: usize = 64 << 10;

/// One of a database's monitors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MonitorId(u64);

/// All monitors of one database.
#[derive(Debug)]
pub struct Monitors {
    schema: Arc<Schema>,
    history: History,
    monitors: BTreeMap<MonitorId, Monitor>,
    /// By numbers of our own: no hash that keeps clients from choosing them.
    feeds: hashbrown::HashMap<FeedId, Feed>,
    /// By a hash of the requests that they come from: a text would grow with each change of conditions.
    by_key: HashMap<u64, FeedId>,
    next: u64,
    work: usize,
}

type FeedId = u64;

#[derive(Debug)]
struct Monitor {
    feed: FeedId,
    position: Position,
    /// The position whose name the client has: that of the last text it was sent.
    named: Position,
}

#[derive(Debug)]
struct Feed {
    key: u64,
    spec: Arc<Spec>,
    users: usize,
    /// The initial contents, while they are still being sent.
    initial: Option<(Position, Weak<[u8]>)>,
    /// What a monitor saw appear and vanish that came here from another feed, while it is still being sent.
    arrival: Option<(FeedId, Position, Weak<[u8]>)>,
    /// Updates from one position to another.
    texts: VecDeque<(Position, Position, Kept)>,
}

/// A text that may be wanted again.
#[derive(Debug)]
enum Kept {
    /// There was nothing to tell.
    Nothing,
    Small(Arc<[u8]>),
    /// Kept alive by the connections that send it.
    Large(Weak<[u8]>),
}

/// What the first reply contains.
#[derive(Clone, Debug)]
pub struct Initial {
    /// Whether the state that the client had was known, so that `updates` contains only changes since then.
    pub found: bool,
    /// The name of the present state.
    pub txn: Uuid,
    /// `<table-updates>` or `<table-updates2>`.
    pub updates: Arc<[u8]>,
}

/// What a notification contains.
#[derive(Clone, Debug)]
pub struct Update {
    /// How it looks.
    pub form: Form,
    /// The name of the state that it leads to.
    pub txn: Uuid,
    /// `<table-updates>` or `<table-updates2>`.
    pub updates: Arc<[u8]>,
}

impl Monitors {
    /// No monitors yet, for a database with this schema whose present state is called `txn`.
    pub fn new(schema: Arc<Schema>, txn: Uuid) -> Monitors {
        Monitors {
            schema,
            history: History::new(txn),
            monitors: BTreeMap::new(),
            feeds: hashbrown::HashMap::new(),
            by_key: HashMap::new(),
            next: 0,
            work: 0,
        }
    }

    /// What updates have cost so far, in clauses that rows were compared with, and bytes that were made.
    pub fn work(&self) -> usize {
        self.work
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.monitors.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.monitors.is_empty()
    }

    /// Records a commit, called `txn`. Nothing is sent before [`Self::poll`].
    pub fn commit(&mut self, txn: Uuid, changes: Arc<Changes>) {
        self.history.commit(txn, changes);
    }

    /// What the first contents of a monitor cost, in clauses that rows are compared with. `Err` "resources
    /// exhausted": too much for one turn.
    pub fn first_work(&self, database: &Database, spec: &Spec, since: Option<Uuid>) -> Result<usize, Error> {
        match since.and_then(|txn| self.history.find(txn)) {
            Some(_) => Ok(0),
            None => checked(update::initial_work(database, spec)),
        }
    }

    /// Starts a monitor. `requests` is the JSON that `spec` was parsed from, by which equal requests are
    /// found; `since` is the state that the client has, for [`Form::Since`].
    pub fn add(
        &mut self,
        database: &Database,
        requests: &Value,
        spec: Spec,
        since: Option<Uuid>,
    ) -> (MonitorId, Initial) {
        if spec.form == Form::Since {
            self.history.keep();
        }
        let key = self.by_key.hasher().hash_one((spec.form.method(), requests.to_string()));
        let feed = self.subscribe(key, spec);
        let now = self.history.now();
        let from = since.and_then(|txn| self.history.find(txn));
        let updates = match from {
            Some(from) => self.text(feed, from).unwrap_or_else(|| Arc::from(&b"{}"[..])),
            None => self.initial(feed, database),
        };
        let id = MonitorId(self.next);
        self.next += 1;
        self.monitors.insert(id, Monitor { feed, position: now, named: now });
        self.history.enter(now);
        (id, Initial { found: from.is_some(), txn: self.history.last_txn(), updates })
    }

    /// Ends a monitor.
    pub fn remove(&mut self, id: MonitorId) {
        let Some(monitor) = self.monitors.remove(&id) else { return };
        self.history.leave(monitor.position);
        self.unsubscribe(monitor.feed);
    }

    /// The next update for `id`, if any; it counts as sent.
    pub fn poll(&mut self, id: MonitorId) -> Option<Update> {
        let monitor = self.monitors.get_mut(&id)?;
        let (feed, from, now) = (monitor.feed, monitor.position, self.history.now());
        if from == now {
            return None;
        }
        let updates = self.text(feed, from);
        self.history.enter(now);
        self.history.leave(from);
        let monitor = self.monitors.get_mut(&id)?;
        monitor.position = now;
        if updates.is_some() {
            monitor.named = now;
        }
        let form = self.feeds[&feed].spec.form;
        updates.map(|updates| Update { form, txn: self.history.last_txn(), updates })
    }

    /// Changes conditions. Returns the rows that this shows and hides, which must be sent before the reply;
    /// everything from [`Self::poll`] must have been sent before. A client that may come back with the name
    /// of an earlier state is told the present one's even if it shows and hides nothing: what happened in
    /// between was told, or not, by the old conditions.
    pub fn change_conditions(
        &mut self,
        database: &Database,
        id: MonitorId,
        requests: &Value,
    ) -> Result<Option<Update>, Error> {
        let monitor = self.monitors.get(&id).expect("the session knows its monitors");
        debug_assert_eq!(monitor.position, self.history.now());
        let old_feed = monitor.feed;
        let before = self.feeds[&old_feed].spec.clone();
        let after = before.with_conditions(&self.schema, requests)?;
        self.work += checked(update::condition_change_work(database, &before, &after))?;
        let form = after.form;
        let is_renamed = form == Form::Since && monitor.named < monitor.position && *before != after;
        // Another than that of a monitor that requests these conditions from the start.
        let key = self.by_key.hasher().hash_one((self.feeds[&old_feed].key, requests.to_string()));
        let feed = if *before == after { old_feed } else { self.subscribe(key, after) };
        let updates = self.arrival(feed, old_feed, database);
        let updates = updates.or_else(|| is_renamed.then(|| Arc::from(&b"{}"[..])));
        let monitor = self.monitors.get_mut(&id).expect("looked at above");
        monitor.feed = feed;
        if updates.is_some() {
            monitor.named = monitor.position;
        }
        if feed != old_feed {
            self.unsubscribe(old_feed);
        }
        let txn = self.history.last_txn();
        Ok(updates.map(|updates| Update { form, txn, updates }))
    }

    /// The number of the last commit.
    pub fn now(&self) -> Position {
        self.history.now()
    }

    /// Whether `id` has been sent all changes up to `position`.
    pub fn has_reached(&self, id: MonitorId, position: Position) -> bool {
        self.monitors.get(&id).is_none_or(|m| m.position >= position)
    }

    /// Whether `id` has changes yet to be sent.
    pub fn is_behind(&self, id: MonitorId) -> bool {
        self.monitors.get(&id).is_some_and(|m| m.position < self.history.now())
    }

    /// Monitors with changes yet to be sent, those that are furthest behind first.
    pub fn behind(&self) -> Vec<MonitorId> {
        let now = self.history.now();
        let behind = self.monitors.iter().filter(|(_, m)| m.position < now);
        let mut behind: Vec<(Position, MonitorId)> = behind.map(|(id, m)| (m.position, *id)).collect();
        behind.sort_unstable();
        behind.into_iter().map(|(_, id)| id).collect()
    }

    /// Monitors so far behind that it costs too much to wait for them. Their sessions must be ended.
    pub fn too_far_behind(&self) -> Vec<MonitorId> {
        let Some(position) = self.history.too_far_behind() else { return Vec::new() };
        self.monitors.iter().filter(|(_, m)| m.position == position).map(|(id, _)| *id).collect()
    }

    /// The name of the present state.
    pub fn last_txn(&self) -> Uuid {
        self.history.last_txn()
    }

    fn subscribe(&mut self, key: u64, spec: Spec) -> FeedId {
        if let Some(&id) = self.by_key.get(&key)
            && *self.feeds[&id].spec == spec
        {
            self.feeds.get_mut(&id).expect("just looked at").users += 1;
            return id;
        }
        let id = self.next;
        self.next += 1;
        self.by_key.insert(key, id);
        let feed = Feed {
            key,
            spec: Arc::new(spec),
            users: 1,
            initial: None,
            arrival: None,
            texts: VecDeque::new(),
        };
        self.feeds.insert(id, feed);
        id
    }

    fn unsubscribe(&mut self, id: FeedId) {
        let feed = self.feeds.get_mut(&id).expect("a monitor's feed is there");
        feed.users -= 1;
        if feed.users == 0 {
            let feed = self.feeds.remove(&id).expect("just looked at");
            if self.by_key.get(&feed.key) == Some(&id) {
                self.by_key.remove(&feed.key);
            }
        }
    }

    fn initial(&mut self, feed: FeedId, database: &Database) -> Arc<[u8]> {
        let now = self.history.now();
        let feed = self.feeds.get_mut(&feed).expect("a monitor's feed is there");
        if let Some((position, text)) = &feed.initial
            && *position == now
            && let Some(text) = text.upgrade()
        {
            return text;
        }
        let text: Arc<[u8]> = update::initial(database, &feed.spec).into();
        feed.initial = Some((now, Arc::downgrade(&text)));
        self.work += text.len() / VALUE_BYTES;
        text
    }

    /// What a monitor sees appear and vanish that comes to a feed from another one.
    fn arrival(&mut self, feed: FeedId, from: FeedId, database: &Database) -> Option<Arc<[u8]>> {
        let now = self.history.now();
        let before = self.feeds[&from].spec.clone();
        let feed = self.feeds.get_mut(&feed).expect("a monitor's feed is there");
        if let Some((left, position, text)) = &feed.arrival
            && (*left, *position) == (from, now)
            && let Some(text) = text.upgrade()
        {
            return Some(text);
        }
        let text: Arc<[u8]> = update::condition_change(database, &before, &feed.spec)?.into();
        feed.arrival = Some((from, now, Arc::downgrade(&text)));
        self.work += text.len() / VALUE_BYTES;
        Some(text)
    }

    /// What changed from `from` to now, for a feed.
    fn text(&mut self, feed: FeedId, from: Position) -> Option<Arc<[u8]>> {
        self.work += LOOKUP_WORK;
        let now = self.history.now();
        let feed = self.feeds.get_mut(&feed).expect("a monitor's feed is there");
        let kept = feed.texts.iter().find(|(a, b, _)| (*a, *b) == (from, now)).map(|(.., kept)| kept);
        match kept {
            Some(Kept::Nothing) => return None,
            Some(Kept::Small(text)) => return Some(text.clone()),
            Some(Kept::Large(text)) if text.strong_count() > 0 => return text.upgrade(),
            Some(Kept::Large(_)) | None => {}
        }
        let net = self.history.since(from);
        let (text, work) = update::changes(&self.schema, &feed.spec, &net);
        self.work += work;
        let text: Option<Arc<[u8]>> = text.map(Into::into);
        self.work += text.as_ref().map_or(0, |text| text.len() / VALUE_BYTES);
        feed.texts.truncate(TEXTS_KEPT - 1);
        let kept = match &text {
            None => Kept::Nothing,
            Some(text) if text.len() <= TEXT_KEPT_BYTES_MAX => Kept::Small(text.clone()),
            Some(text) => Kept::Large(Arc::downgrade(text)),
        };
        feed.texts.push_front((from, now, kept));
        text
    }
}

/// What a monitor's contents may cost, as much as a transaction: nothing can interrupt either.
fn checked(work: usize) -> Result<usize, Error> {
    if work > WORK_MAX {
        let details = format!("the monitor compares rows with more than {WORK_MAX} clauses");
        return Err(Error::new("resources exhausted", details));
    }
    Ok(work)
}

#[cfg(test)]
mod tests;
