//! `--user`: the daemon gives up root for another user, and keeps the few capabilities that its work takes.

use nix::unistd::{Gid, Group, Uid, User as SystemUser, getgrouplist, setgid, setgroups, setuid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_keep_capabilities};
use std::ffi::CString;
use std::io;
use std::path::Path;

/// The capabilities that every daemon keeps: low ports, and memory that is not paged out.
const BASIC: CapabilitySet = CapabilitySet::IPC_LOCK.union(CapabilitySet::NET_BIND_SERVICE);
/// The capabilities needed to create devices, sockets and XDP programs.
const DATAPATH: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BROADCAST)
    .union(CapabilitySet::BPF);

/// Whom to become.
#[derive(Debug)]
pub struct User {
    name: String,
    uid: Uid,
    gid: Gid,
    groups: Vec<Gid>,
}

impl User {
    /// Parses `USER`, `USER:GROUP`, or `:GROUP`. The error names what does not exist.
    pub fn parse(text: &str) -> Result<User, String> {
        let (name, group) = match text.split_once(':') {
            Some((name, group)) => (name, Some(group)),
            None => (text, None),
        };
        let found = match name {
            "" => SystemUser::from_uid(Uid::current()),
            name => SystemUser::from_name(name),
        };
        let user = found.map_err(os)?.ok_or_else(|| format!("user {name} not found, aborting."))?;
        let gid = match group.filter(|g| !g.is_empty()) {
            None => user.gid,
            Some(group) => {
                let found = Group::from_name(group).map_err(os)?;
                found.ok_or_else(|| format!("{name}: group {group} not found, aborting."))?.gid
            }
        };
        let c_name = CString::new(user.name.clone()).map_err(|e| e.to_string())?;
        let groups = getgrouplist(&c_name, gid).map_err(os)?;
        Ok(User { name: user.name, uid: user.uid, gid, groups })
    }

    /// Makes that user the owner of a file; of a link itself, since in a directory that is not root's it may
    /// lead to any file. The error is a sentence in Open vSwitch's words.
    pub fn give_file(&self, path: &Path) -> Result<(), String> {
        if !Uid::current().is_root() {
            return Ok(());
        }
        std::os::unix::fs::lchown(path, Some(self.uid.as_raw()), Some(self.gid.as_raw()))
            .map_err(|e| format!("failed to change {} ownership: {}.", path.display(), os(e)))
    }

    /// Switches to that user, and gives up all capabilities but those that the daemon needs, even if the user
    /// is root. Call it before the process has other threads. Does nothing if it already is that user, and
    /// not root.
    pub fn become_it(&self, datapath: bool) -> Result<(), String> {
        if Uid::current() == self.uid && Gid::current() == self.gid && !self.uid.is_root() {
            return Ok(());
        }
        let failed =
            |what: &str, e: String| format!("fail to switch to user {}: {what} ({e}), aborting.", self.name);
        if !Uid::current().is_root() {
            return Err(failed("not started as root", "Operation not permitted".into()));
        }
        set_keep_capabilities(true).map_err(|e| failed("prctl", os(e)))?;
        setgroups(&self.groups).map_err(|e| failed("setgroups", os(e)))?;
        setgid(self.gid).map_err(|e| failed("setgid", os(e)))?;
        setuid(self.uid).map_err(|e| failed("setuid", os(e)))?;
        let kept = if datapath { BASIC.union(DATAPATH) } else { BASIC };
        // Containers and old kernels have not all of them: what needs one says so.
        let permitted = capabilities(None).map_err(|e| failed("capget", os(e)))?.permitted;
        let kept = kept.intersection(permitted);
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).map_err(|e| failed("capset", os(e)))?;
        Ok(())
    }
}

fn os(e: impl Into<io::Error>) -> String {
    crate::log::os_text(&e.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn users_and_groups_are_looked_up_and_what_is_not_there_is_named() {
        let root = User::parse("root").unwrap();
        assert!(root.uid.is_root() && root.groups.contains(&Gid::from_raw(0)));
        assert_ne!(User::parse("root:nogroup").unwrap().gid, Gid::from_raw(0));
        assert_eq!(User::parse("nosuch").unwrap_err(), "user nosuch not found, aborting.");
        assert_eq!(User::parse("root:nosuch").unwrap_err(), "root: group nosuch not found, aborting.");
    }

    #[test]
    fn what_a_link_leads_to_is_not_given_away() {
        assert!(Uid::current().is_root(), "run this test as root");
        let dir = tempfile::tempdir().unwrap();
        let (theirs, log) = (dir.path().join("shadow"), dir.path().join("log"));
        std::fs::write(&theirs, "").unwrap();
        std::os::unix::fs::symlink(&theirs, &log).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).unwrap().uid();
        let nobody = User::parse("nobody").unwrap();
        nobody.give_file(&log).unwrap();
        assert_eq!((owner(&theirs), owner(&log)), (0, nobody.uid.as_raw()));
    }
}
