//! A disk in memory that fails as real ones do: writes that stop half way, a full disk, errors, syncs that
//! fail and forget, and power cuts that keep of what was not synced only a beginning, or garbage. What was
//! written may last before it is synced, as a system writes its cache back when it likes.
//!
//! Every call may be the last one of the process (`die_in`): it does a part of its work, and from then on
//! every call fails. What the next process finds is `after_kill`, or `after_power_cut`.

use crate::durability::chance::Chance;
use ovsdb::log::{LogDirectory, LogFile, ReadAt, Temporary};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// How often calls fail: once in so many, 0 for never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// A write stops short without an error.
    pub short_write: u64,
    /// A write does a part of its work, or all of it, and reports EIO or ENOSPC.
    pub write_error: u64,
    /// A truncation fails.
    pub truncate_error: u64,
    /// A sync fails, and what it should have made last is lost at the next power cut, whatever later syncs
    /// say.
    pub sync_error: u64,
    /// What is written lasts at once.
    pub write_back: u64,
    /// Creating, renaming, syncing the directory fail.
    pub directory_error: u64,
    /// Bytes on the whole disk, 0 for no limit.
    pub capacity: u64,
}

/// A disk with one directory, which holds the database's file and a temporary one. Cloning shares it.
#[derive(Clone)]
pub struct Disk(Arc<Mutex<State>>);

struct State {
    chance: Chance,
    faults: Faults,
    die_in: Option<u64>,
    /// Calls that wrote.
    writes: u64,
    /// The last truncation failed: bytes that were reported as not written may be there.
    truncate_failed: bool,
    /// The last sync of a file failed.
    sync_failed: bool,
    /// Syncs of files do nothing and say that they succeeded.
    syncs_lie: bool,
    files: Vec<Stored>,
    /// The file under the database's name, as every process sees it.
    named: Option<usize>,
    /// The file that has the name for certain after a power cut.
    named_synced: Option<usize>,
    temporary: Vec<usize>,
}

#[derive(Clone, Default)]
struct Stored {
    /// As every process sees it.
    seen: Vec<u8>,
    /// As it was synced last.
    synced: Vec<u8>,
    /// Ranges that a failed sync forgot to be dirty.
    forgotten: Vec<std::ops::Range<usize>>,
}

struct SimFile {
    disk: Disk,
    index: usize,
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(5)
}

fn enospc() -> io::Error {
    io::Error::from_raw_os_error(28)
}

impl Disk {
    /// An empty one.
    pub fn new(seed: u64) -> Disk {
        Disk(Arc::new(Mutex::new(State {
            chance: Chance::new(seed),
            faults: Faults::default(),
            die_in: None,
            writes: 0,
            truncate_failed: false,
            sync_failed: false,
            syncs_lie: false,
            files: Vec::new(),
            named: None,
            named_synced: None,
            temporary: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// A file with this content under the database's name, for certain.
    pub fn set_file(&self, bytes: &[u8]) {
        let mut state = self.state();
        state.files.push(Stored { seen: bytes.to_vec(), synced: bytes.to_vec(), forgotten: Vec::new() });
        state.named = Some(state.files.len() - 1);
        state.named_synced = state.named;
    }

    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// From now on syncs of files do nothing and say that they succeeded, or no longer.
    pub fn set_syncs_lie(&self, lie: bool) {
        self.state().syncs_lie = lie;
    }

    /// The process ends in the middle of the call after so many.
    pub fn die_in(&self, calls: Option<u64>) {
        self.state().die_in = calls;
    }

    pub fn is_dead(&self) -> bool {
        self.state().die_in == Some(0)
    }

    /// Calls that wrote, or were to.
    pub fn writes(&self) -> u64 {
        self.state().writes
    }

    /// Whether bytes that were reported as not written may be there.
    pub fn truncate_failed(&self) -> bool {
        self.state().truncate_failed
    }

    /// Whether bytes that were just reported as not written may be there after a power cut.
    pub fn cut_failed(&self) -> bool {
        let state = self.state();
        state.truncate_failed || state.sync_failed
    }

    /// Whether a failed sync lost something of the database's file.
    pub fn forgot(&self) -> bool {
        let state = self.state();
        [state.named, state.named_synced].into_iter().flatten().any(|i| !state.files[i].forgotten.is_empty())
    }

    /// The content of the database's file.
    pub fn content(&self) -> Vec<u8> {
        let state = self.state();
        state.named.map(|i| state.files[i].seen.clone()).unwrap_or_default()
    }

    /// The disk as the next process finds it after kill -9: everything that was written is there.
    pub fn after_kill(&self, seed: u64) -> Disk {
        let state = self.state();
        let next = Disk::new(seed);
        {
            let mut new = next.state();
            new.files = state.files.clone();
            new.named = state.named;
            new.named_synced = state.named_synced;
            new.temporary = state.temporary.clone();
        }
        next
    }

    /// The disk after a power cut: what was synced, and some beginning of what was not, perhaps with garbage
    /// behind it.
    pub fn after_power_cut(&self, seed: u64) -> Disk {
        let mut state = self.state();
        let named = if state.chance.one_in(2) { state.named } else { state.named_synced };
        let mut file = named.map(|i| state.files[i].clone()).unwrap_or_default();
        let chance = &mut state.chance;
        let mut kept = file.synced.clone();
        if chance.one_in(2) {
            let mut written = file.seen.clone();
            for range in file.forgotten.drain(..) {
                let end = range.end.min(written.len());
                written[range.start.min(end)..end].fill(0);
            }
            // The first byte that differs, and from there to anywhere.
            let same = kept.iter().zip(&written).take_while(|(a, b)| a == b).count();
            let upto = same + chance.below((written.len() - same) as u64 + 1) as usize;
            kept.truncate(same);
            kept.extend_from_slice(&written[same..upto]);
            if chance.one_in(4) {
                let garbage = chance.below(600) as usize;
                kept.extend((0..garbage).map(|_| if chance.one_in(2) { 0 } else { chance.next() as u8 }));
            }
        }
        let next = Disk::new(seed);
        if named.is_some() {
            next.set_file(&kept);
        }
        next
    }
}

impl State {
    /// Counts a call; `Err` where the process is dead, `Ok(true)` where it dies in this one.
    fn call(&mut self) -> io::Result<bool> {
        match &mut self.die_in {
            None => Ok(false),
            Some(0) => Err(eio()),
            Some(n) => {
                *n -= 1;
                Ok(*n == 0)
            }
        }
    }

    fn used(&self) -> u64 {
        let live = self.named.iter().chain(&self.temporary);
        live.map(|&i| self.files[i].seen.len() as u64).sum()
    }

    fn write(&mut self, index: usize, offset: usize, bytes: &[u8]) {
        let seen = &mut self.files[index].seen;
        if seen.len() < offset + bytes.len() {
            seen.resize(offset + bytes.len(), 0);
        }
        seen[offset..offset + bytes.len()].copy_from_slice(bytes);
        if self.chance.one_in(self.faults.write_back) {
            self.files[index].make_last();
        }
    }

    fn create(&mut self) -> usize {
        self.files.push(Stored::default());
        self.files.len() - 1
    }
}

impl Stored {
    fn make_last(&mut self) {
        self.synced.clone_from(&self.seen);
        for range in &self.forgotten {
            let end = range.end.min(self.synced.len());
            self.synced[range.start.min(end)..end].fill(0);
        }
    }
}

impl ReadAt for SimFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.disk.state();
        (&state.files[self.index].seen[..]).read_at(offset, buffer)
    }

    fn size(&self) -> io::Result<u64> {
        Ok(self.disk.state().files[self.index].seen.len() as u64)
    }
}

impl LogFile for SimFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.writes += 1;
        let dies = state.call()?;
        let faults = state.faults;
        let offset = offset as usize;
        let part = match state.chance.below(4) {
            0 => bytes.len(),
            _ => state.chance.below(bytes.len() as u64 + 1) as usize,
        };
        if dies {
            state.write(self.index, offset, &bytes[..part]);
            return Err(eio());
        }
        let room = match faults.capacity {
            0 => u64::MAX,
            capacity => capacity.saturating_sub(state.used()),
        };
        if room < bytes.len() as u64 {
            let room = room as usize;
            state.write(self.index, offset, &bytes[..room]);
            return if room == 0 { Err(enospc()) } else { Ok(room) };
        }
        if state.chance.one_in(faults.write_error) {
            state.write(self.index, offset, &bytes[..part]);
            return Err(if state.chance.one_in(2) { eio() } else { enospc() });
        }
        if state.chance.one_in(faults.short_write) && part > 0 {
            state.write(self.index, offset, &bytes[..part]);
            return Ok(part);
        }
        state.write(self.index, offset, bytes);
        Ok(bytes.len())
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        if state.call()? {
            return Err(eio());
        }
        if state.syncs_lie {
            return Ok(());
        }
        let n = state.faults.sync_error;
        let fails = state.chance.one_in(n);
        state.sync_failed = fails;
        let file = &mut state.files[self.index];
        if fails {
            let start = file.synced.iter().zip(&file.seen).take_while(|(a, b)| a == b).count();
            file.forgotten.push(start..file.seen.len());
            return Err(eio());
        }
        file.make_last();
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut state = self.disk.state();
        let dies = state.call()?;
        let n = state.faults.truncate_error;
        state.truncate_failed = dies || state.chance.one_in(n);
        if state.truncate_failed {
            return Err(eio());
        }
        state.files[self.index].seen.truncate(size as usize);
        Ok(())
    }
}

impl Disk {
    fn directory_call(&self) -> io::Result<MutexGuard<'_, State>> {
        let mut state = self.state();
        let dies = state.call()?;
        let n = state.faults.directory_error;
        if dies || state.chance.one_in(n) { Err(eio()) } else { Ok(state) }
    }

    fn file(&self, index: usize) -> Arc<dyn LogFile> {
        Arc::new(SimFile { disk: self.clone(), index })
    }
}

impl LogDirectory for Disk {
    fn open(&self) -> io::Result<Arc<dyn LogFile>> {
        let named = self.directory_call()?.named.ok_or(io::ErrorKind::NotFound)?;
        Ok(self.file(named))
    }

    fn create_temporary(&self) -> io::Result<Box<dyn Temporary>> {
        let index = {
            let mut state = self.directory_call()?;
            let index = state.create();
            state.temporary.push(index);
            index
        };
        Ok(Box::new(SimTemporary { disk: self.clone(), index, file: self.file(index) }))
    }

    fn sync(&self) -> io::Result<()> {
        let mut state = self.directory_call()?;
        state.named_synced = state.named;
        Ok(())
    }
}

struct SimTemporary {
    disk: Disk,
    index: usize,
    file: Arc<dyn LogFile>,
}

impl Temporary for SimTemporary {
    fn file(&self) -> &Arc<dyn LogFile> {
        &self.file
    }

    fn replace(self: Box<Self>) -> io::Result<()> {
        let mut state = self.disk.directory_call()?;
        state.named = Some(self.index);
        Ok(())
    }
}

impl Drop for SimTemporary {
    fn drop(&mut self) {
        let index = self.index;
        self.disk.state().temporary.retain(|&other| other != index);
    }
}
