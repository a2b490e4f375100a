//! Handles a guest that takes its memory away.
//!
//! A guest's memory is a file that the guest's process can shrink while it is mapped here; the next access to
//! the missing part raises SIGBUS, which would end the switch. The handler here looks the address up among
//! the mappings of guests: if it is in one, the page and all that follow it are replaced by zeros, the
//! mapping's flag is set, and the access continues. (A file that shrinks loses its end. If pages were
//! replaced one by one, a guest with a long ring could make one burst split its mapping into more mappings
//! than a process may have.) Users of the mapping check the flag after each burst, and disable the port. Any
//! other SIGBUS goes to the previous handler.
//!
//! Threads: the handler runs on the thread that made the access, and reads the table without locks. An
//! entry's address is stored last when it is created and cleared first when it is removed. It is removed only
//! when the mapping is no longer used, so an entry that matches a faulting address is complete.
//!
//! Source: sigaction(2), signal-safety(7) (mmap is a plain system call).

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Mappings at once: those of 990 guests with 32 regions each, and their logs. A process may have twice as
/// many, by default (`vm.max_map_count`).
pub(super) const SLOTS: usize = 32_768;
const RESERVED: usize = 1;

struct Slot {
    /// 0: free. 1: being written.
    start: AtomicUsize,
    len: AtomicUsize,
    page: AtomicUsize,
    flag: AtomicPtr<AtomicBool>,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        len: AtomicUsize::new(0),
        page: AtomicUsize::new(0),
        flag: AtomicPtr::new(std::ptr::null_mut()),
    }
}; SLOTS];

static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// A watched range; watching ends when this is dropped.
pub(super) struct Watch {
    slot: &'static Slot,
    _flag: Arc<AtomicBool>,
}

impl Watch {
    /// Watches `len` bytes from `start` on, a mapping of pages of `page` bytes. `flag` is set when one of
    /// them turns out to be gone. `None` where the table is full.
    pub(super) fn new(start: usize, len: usize, page: usize, flag: Arc<AtomicBool>) -> Option<Watch> {
        PREVIOUS.get_or_init(install);
        let is_free = |slot: &&Slot| {
            slot.start.load(Ordering::Relaxed) == 0
                && slot.start.compare_exchange(0, RESERVED, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let slot = TABLE.iter().find(is_free)?;
        slot.len.store(len, Ordering::Relaxed);
        slot.page.store(page, Ordering::Relaxed);
        slot.flag.store(Arc::as_ptr(&flag).cast_mut(), Ordering::Relaxed);
        slot.start.store(start, Ordering::Release);
        Some(Watch { slot, _flag: flag })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.slot.start.store(0, Ordering::Release);
    }
}

fn install() -> libc::sigaction {
    // SAFETY: zero bytes are a valid sigaction.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_sigbus as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
    // SAFETY: zero bytes are a valid sigaction.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: both structures are initialised and outlive the call; the handler is of the kind that
    // SA_SIGINFO says.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, &raw mut previous) };
    previous
}

extern "C" fn on_sigbus(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid siginfo to a handler installed with SA_SIGINFO.
    let info_ref = unsafe { &*info };
    // SAFETY: SIGBUS has an address.
    let address = unsafe { info_ref.si_addr() } as usize;
    if !replace_page(address) {
        pass_on(signal, info, context);
    }
}

/// Puts zeros where a guest's page was. False where the address is no guest's.
fn replace_page(address: usize) -> bool {
    for slot in &TABLE {
        let start = slot.start.load(Ordering::Acquire);
        let len = slot.len.load(Ordering::Relaxed);
        if start <= RESERVED || address < start || address - start >= len {
            continue;
        }
        let page = slot.page.load(Ordering::Relaxed).max(4096);
        // A file may say that its pages are larger than those of the mapping.
        let at = (address & !(page - 1)).max(start);
        let behind = start + len - at;
        // Without overcommit, the kernel may refuse that much memory. Then only that page is replaced.
        if !put_zeros(at, behind) && !put_zeros(at, page.min(behind)) {
            return false;
        }
        let flag = slot.flag.load(Ordering::Relaxed);
        // SAFETY: the slot holds the flag alive as long as its range is set, and the range is in use: it was
        // just accessed.
        unsafe { &*flag }.store(true, Ordering::Release);
        return true;
    }
    false
}

/// Replaces pages of a mapping of a guest's file by zeros. False if the kernel refuses.
fn put_zeros(at: usize, len: usize) -> bool {
    let flags = libc::MAP_FIXED | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: this process made the mapping and still has it; nothing but copies of raw bytes and atomic
    // accesses goes there.
    let new = unsafe { libc::mmap(at as *mut libc::c_void, len, protection, flags, -1, 0) };
    new != libc::MAP_FAILED
}

/// The previous handler, or the default, which ends the process when the access is repeated; at once if there
/// was no access because a process sent the signal.
fn pass_on(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS.get().filter(|p| p.sa_sigaction > libc::SIG_IGN);
    let Some(previous) = previous else {
        // SAFETY: setting the default action takes no pointer of ours.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        // SAFETY: the kernel gives a valid siginfo to a handler installed with SA_SIGINFO.
        if unsafe { (*info).si_code } <= 0 {
            // SAFETY: it takes no pointer.
            unsafe { libc::raise(signal) };
        }
        return;
    };
    if previous.sa_flags & libc::SA_SIGINFO != 0 {
        type Handler = extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void);
        // SAFETY: the kernel gave us this address as a handler of that kind.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(previous.sa_sigaction) };
        handler(signal, info, context);
    } else {
        // SAFETY: as above, of the kind without SA_SIGINFO.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(i32)>(previous.sa_sigaction) };
        handler(signal);
    }
}
