//! How long a connection may be silent: depends on the protocol, its state, and its zone's policy.
//!
//! Policy 0 is the default; others come from `CT_Timeout_Policy` rows of the database. The names are those of
//! Open vSwitch's user-space datapath, which uses UDP's timeouts for all protocols but TCP and ICMP.
//!
//! Threads: the control thread writes, workers read; each timeout is a word of its own.

use base::slab::Slab;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! phases {
    ($($name:ident = $text:literal, $seconds:expr;)*) => {
        /// A connection's state as it determines the timeout.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Phase { $($name,)* }

        impl Phase {
            pub const ALL: &'static [Phase] = &[$(Phase::$name,)*];
            const DEFAULTS_S: [u32; Phase::COUNT] = [$($seconds,)*];

            /// The key of `CT_Timeout_Policy`'s column `timeouts`.
            pub fn name(self) -> &'static str {
                match self { $(Phase::$name => $text,)* }
            }
        }
    };
}

phases! {
    TcpSynSent = "tcp_syn_sent", 30;
    TcpSynRecv = "tcp_syn_recv", 30;
    TcpEstablished = "tcp_established", 24 * 60 * 60;
    TcpFinWait = "tcp_fin_wait", 15 * 60;
    TcpTimeWait = "tcp_time_wait", 45;
    TcpClose = "tcp_close", 30;
    UdpFirst = "udp_first", 60;
    UdpSingle = "udp_single", 60;
    UdpMultiple = "udp_multiple", 30;
    IcmpFirst = "icmp_first", 60;
    IcmpReply = "icmp_reply", 30;
}

impl Phase {
    pub const COUNT: usize = 11;

    pub fn default_s(self) -> u32 {
        Phase::DEFAULTS_S[self as usize]
    }
}

/// One policy, in milliseconds. All zeros before it is set.
#[derive(zerocopy::FromZeros)]
struct Policy([AtomicU64; Phase::COUNT]);

impl Policy {
    fn set(&self, timeouts_s: impl Iterator<Item = (Phase, u32)>) {
        let mut new = Phase::DEFAULTS_S;
        for (phase, seconds) in timeouts_s.filter(|(_, seconds)| *seconds != 0) {
            new[phase as usize] = seconds;
        }
        self.0.iter().zip(new).for_each(|(word, seconds)| word.store(1_000 * u64::from(seconds), Relaxed));
    }
}

/// Maximum number of policies: the default, and one for each zone.
pub const POLICIES_MAX: u32 = (1 << 16) + 1;

/// All policies, by number.
pub struct Timeouts {
    /// Policy 0, which nearly all connections have.
    default: Policy,
    /// All others; the first place stays unused.
    others: Slab<Policy>,
}

impl Default for Timeouts {
    fn default() -> Timeouts {
        let default: Policy = zerocopy::FromZeros::new_zeroed();
        default.set(std::iter::empty());
        Timeouts { default, others: Slab::new() }
    }
}

impl Timeouts {
    #[inline(always)]
    pub fn timeout_ms(&self, policy: u32, phase: Phase) -> u64 {
        if policy == 0 {
            return self.default.0[phase as usize].load(Relaxed);
        }
        match self.others.get(policy as usize).map_or(0, |row| row.0[phase as usize].load(Relaxed)) {
            0 => 1_000 * u64::from(phase.default_s()),
            set => set,
        }
    }

    /// Replaces a policy; timeouts that are left out have their defaults. For the control thread.
    pub fn set(&self, policy: u32, timeouts_s: impl Iterator<Item = (Phase, u32)>) {
        if policy >= POLICIES_MAX {
            return;
        }
        if policy == 0 {
            return self.default.set(timeouts_s);
        }
        self.others.reserve(policy as usize + 1);
        self.others[policy as usize].set(timeouts_s);
    }
}
