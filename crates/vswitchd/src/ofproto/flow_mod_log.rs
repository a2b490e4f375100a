//! How many rules a connection has changed. Like Open vSwitch, the log reports it ten seconds after the first
//! change, at the end of the connection, and otherwise at most once a minute.

use std::ops::AddAssign;
use std::time::{Duration, Instant};
use switch::control::Command;

/// Time from the first change to the report.
const REPORT_AFTER: Duration = Duration::from_secs(10);
/// Time between two reports.
const BACKOFF: Duration = Duration::from_secs(60);

/// Flow-mods that succeeded.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct FlowModCounts {
    adds: u64,
    deletes: u64,
    modifications: u64,
}

impl From<Command> for FlowModCounts {
    fn from(command: Command) -> FlowModCounts {
        let mut counts = FlowModCounts::default();
        match command {
            Command::Add => counts.adds = 1,
            Command::Delete | Command::DeleteStrict => counts.deletes = 1,
            Command::Modify | Command::ModifyStrict => counts.modifications = 1,
        }
        counts
    }
}

impl AddAssign for FlowModCounts {
    fn add_assign(&mut self, more: FlowModCounts) {
        self.adds += more.adds;
        self.deletes += more.deletes;
        self.modifications += more.modifications;
    }
}

/// See the module documentation.
#[derive(Default)]
pub(crate) struct FlowModLog {
    counts: FlowModCounts,
    /// When the first and the last of them were made, if there are any.
    span: Option<(Instant, Instant)>,
    due: Option<Instant>,
    not_before: Option<Instant>,
}

impl FlowModLog {
    /// These were made now.
    pub fn made(&mut self, counts: FlowModCounts, now: Instant) {
        if counts == FlowModCounts::default() {
            return;
        }
        self.counts += counts;
        if self.due.is_none() {
            let due = self.not_before.unwrap_or(now).max(now + REPORT_AFTER);
            self.due = Some(due);
            self.not_before = Some(due + BACKOFF);
        }
        self.span = Some((self.span.map_or(now, |(first, _)| first), now));
    }

    /// When to report [`Self::take`].
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The report, if there is anything.
    pub fn take(&mut self, now: Instant) -> Option<String> {
        let (first, last) = self.span.take()?;
        let FlowModCounts { adds, deletes, modifications } = std::mem::take(&mut self.counts);
        self.due = None;
        let ago_s = now.saturating_duration_since(first).as_secs();
        let interval_s = (last - first).as_secs();
        let when = match interval_s {
            _ if interval_s == ago_s => format!("in the last {ago_s} s"),
            0 => format!("{ago_s} s ago"),
            _ => format!("in the {interval_s} s starting {ago_s} s ago"),
        };
        let parts = [(adds, "adds"), (deletes, "deletes"), (modifications, "modifications")];
        let parts: Vec<String> =
            parts.into_iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        Some(format!("{} flow_mods {when} ({})", adds + deletes + modifications, parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_told_ten_seconds_after_the_first_and_then_once_a_minute() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let mut log = FlowModLog::default();
        assert_eq!((log.due(), log.take(start)), (None, None));
        log.made(Command::Add.into(), at(0));
        log.made(Command::Add.into(), at(3));
        log.made(Command::DeleteStrict.into(), at(4));
        assert_eq!(log.due(), Some(at(10)));
        let told = log.take(at(10)).unwrap();
        assert_eq!(told, "3 flow_mods in the 4 s starting 10 s ago (2 adds, 1 deletes)");
        log.made(Command::Modify.into(), at(12));
        assert_eq!(log.due(), Some(at(70)));
        assert_eq!(log.take(at(70)).unwrap(), "1 flow_mods 58 s ago (1 modifications)");
        log.made(Command::Add.into(), at(500));
        assert_eq!(log.due(), Some(at(510)), "the last report is long ago");
        assert_eq!(log.take(at(500)).unwrap(), "1 flow_mods in the last 0 s (1 adds)", "it ends");
        assert_eq!((log.due(), log.take(at(501))), (None, None));
    }
}
