//! `--config-file`: remotes and databases in a JSON file, read at start-up and by `ovsdb-server/reload`.
//!
//! ```json
//! {"remotes": {"punix:db.sock": {}, "pssl:6640": {"inactivity-probe": 10000, "read-only": true}},
//!  "databases": {"conf.db": {"service-model": "standalone"}}}
//! ```
//!
//! A database's `service-model` is `standalone`, or `active-backup` with `source` (an object with one
//! remote), `backup` and `exclude-tables`; all databases of a server have the same source.
//!
//! Source: ovsdb-server(1) of Open vSwitch 3.3, "Configuration file".

use super::databases;
use super::remote_options::{Dscp, Overrides};
use super::remotes::Remotes;
use super::replication::Replication;
use super::state::State;
use host::program;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

/// A configuration file that could be read.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    /// The path as given.
    given: PathBuf,
    path: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    remotes: BTreeMap<String, Option<RemoteConfig>>,
    #[serde(default)]
    databases: BTreeMap<String, Option<DatabaseConfig>>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct RemoteConfig {
    max_backoff: Option<u64>,
    inactivity_probe: Option<u64>,
    read_only: bool,
    role: Option<String>,
    /// 0 to 63.
    dscp: Option<u8>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
struct DatabaseConfig {
    service_model: Option<String>,
    source: BTreeMap<String, Option<RemoteConfig>>,
    backup: bool,
    exclude_tables: Vec<String>,
}

/// The path as given.
impl std::fmt::Display for ConfigFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.given.display().fmt(f)
    }
}

impl ConfigFile {
    /// The file at `given`, if it can be read; a relative name is one of `directory`. The error is a
    /// sentence.
    pub fn at(given: &Path, directory: &Path) -> Result<ConfigFile, String> {
        let file = ConfigFile { given: given.to_owned(), path: directory.join(given) };
        file.read()?;
        Ok(file)
    }

    fn read(&self) -> Result<Contents, String> {
        let shown = self.given.display();
        let text = std::fs::read_to_string(&self.path);
        let text = text.map_err(|e| format!("{shown}: {}", transport::reason(&e)))?;
        serde_json::from_str(&text).map_err(|e| format!("{shown}: {e}"))
    }

    /// Makes the server match the file exactly. Applies everything that it can before it returns an error.
    pub(super) async fn apply(
        &self,
        state: &Rc<State>,
        remotes: &Remotes,
        replication: &Rc<Replication>,
    ) -> Result<(), String> {
        let contents = self.read()?;
        let mut errors = Vec::new();
        let wanted: BTreeMap<PathBuf, (&str, &Option<DatabaseConfig>)> = contents
            .databases
            .iter()
            .map(|(name, config)| (program::database_directory().join(name), (name.as_str(), config)))
            .collect();
        let open: Vec<(String, PathBuf)> =
            state.files.borrow().iter().map(|(name, path)| (name.clone(), path.clone())).collect();
        for (name, _) in open.iter().filter(|(_, path)| !wanted.contains_key(path)) {
            // It exists: it was listed just now.
            let _ = state.server.borrow_mut().remove_database(name);
            state.files.borrow_mut().remove(name);
        }
        let open: BTreeSet<PathBuf> = open.into_iter().map(|(_, path)| path).collect();
        for (path, (given, _)) in wanted.iter().filter(|(path, _)| !open.contains(*path)) {
            if let Err(why) = databases::open(state, Path::new(given), path, false) {
                errors.push(why);
            }
        }
        if let Err(why) = replicate(replication, wanted.values().filter_map(|(_, config)| config.as_ref())) {
            errors.push(why);
        }
        for remote in remotes.list().iter().filter(|remote| !contents.remotes.contains_key(*remote)) {
            remotes.remove(remote);
        }
        for (remote, config) in &contents.remotes {
            let overrides = config.as_ref().map(RemoteConfig::overrides).unwrap_or_default();
            if let Err(why) = remotes.add(remote, overrides).await {
                errors.push(why);
            }
        }
        if errors.is_empty() { Ok(()) } else { Err(errors.join("\n")) }
    }
}

fn replicate<'a>(
    replication: &Rc<Replication>,
    databases: impl Iterator<Item = &'a DatabaseConfig>,
) -> Result<(), String> {
    let mut source: Option<&str> = None;
    let mut backup = false;
    for database in databases {
        match database.service_model.as_deref() {
            None | Some("standalone") => continue,
            Some("active-backup") => {}
            Some(other) => return Err(format!("service-model \"{other}\" is not supported")),
        }
        let Some(remote) = database.source.keys().next().filter(|_| database.source.len() == 1) else {
            return Err("a database of service-model active-backup needs one source".into());
        };
        if source.is_some_and(|source| source != remote) {
            return Err("databases with different sources in one server are not supported".into());
        }
        source = Some(remote);
        backup |= database.backup;
        if !database.exclude_tables.is_empty() {
            replication.set_exclude(&database.exclude_tables.join(","))?;
        }
    }
    match source {
        Some(source) => replication.set_source(source)?,
        None => replication.stop(),
    }
    match backup {
        true => replication.start().map(drop),
        false => {
            replication.stop();
            Ok(())
        }
    }
}

impl RemoteConfig {
    fn overrides(&self) -> Overrides {
        Overrides {
            max_backoff: self.max_backoff.map(Duration::from_millis),
            probe_interval: self.inactivity_probe.map(|ms| (ms > 0).then(|| Duration::from_millis(ms))),
            read_only: self.read_only,
            role: self.role.clone().unwrap_or_default(),
            dscp: self.dscp.map_or(Dscp::Default, Dscp::of),
        }
    }
}
