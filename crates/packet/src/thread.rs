//! The few things that workers ask of their thread.

/// The operating system's id of the calling thread, as under /proc/self/task.
pub fn id() -> i32 {
    #[cfg(target_os = "linux")]
    // SAFETY: gettid takes nothing and cannot fail.
    return unsafe { libc::gettid() };
    #[cfg(not(target_os = "linux"))]
    return 0;
}

/// The processors that a thread may run on.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CpuSet {
    /// Empty means all processors.
    cpus: Vec<usize>,
}

impl CpuSet {
    /// All processors.
    pub fn all() -> CpuSet {
        CpuSet::default()
    }

    /// These processors; all if the list is empty.
    pub fn of(cpus: Vec<usize>) -> CpuSet {
        CpuSet { cpus }
    }

    /// The one that a pinned thread runs on.
    pub fn single(&self) -> Option<usize> {
        if let [cpu] = self.cpus[..] { Some(cpu) } else { None }
    }
}

impl From<Option<usize>> for CpuSet {
    fn from(cpu: Option<usize>) -> CpuSet {
        CpuSet { cpus: cpu.into_iter().collect() }
    }
}

/// Pins the calling thread to a processor. False if there is no such processor (the thread then stays
/// unpinned).
pub fn pin(cpu: usize) -> bool {
    bind(0, &CpuSet::from(Some(cpu)))
}

/// Binds a thread of this process, by [`id`] (0: the calling one), to processors. False if there are no such
/// processors, or no such thread.
pub fn bind(id: i32, to: &CpuSet) -> bool {
    #[cfg(target_os = "linux")]
    {
        let max = libc::CPU_SETSIZE as usize;
        // SAFETY: a cpu_set_t is a bit array, valid as zeros.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        let all = if to.cpus.is_empty() { 0..max } else { 0..0 };
        for cpu in to.cpus.iter().copied().filter(|cpu| *cpu < max).chain(all) {
            // SAFETY: `cpu < CPU_SETSIZE`, by the filter and the range.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: the set lives through the call.
        unsafe { libc::sched_setaffinity(id, size_of::<libc::cpu_set_t>(), &raw const set) == 0 }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (id, to);
        false
    }
}
