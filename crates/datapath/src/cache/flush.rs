//! Which places are still to be flushed: everything that is cached goes in steps, so that a command never
//! keeps packets waiting. Millions of flows take a second.
//!
//! Megaflows go first. Exact entries are made from megaflows, so once those have gone, one turn around the
//! exact tier finds all exact entries of theirs.

/// The places of a tier that are still to be flushed: `left` of them from `next` on, around those up to
/// `end`.
#[derive(Default)]
struct Span {
    next: u32,
    left: u32,
    end: u32,
}

impl Span {
    /// All places up to `end` are to be flushed. The turn begins where the last one is, so that requests that
    /// come often still reach every place.
    fn ask(&mut self, end: u32) {
        (self.left, self.end) = (end, end);
        self.next = self.next.max(1);
    }

    fn take(&mut self) -> Option<u32> {
        self.left = self.left.checked_sub(1)?;
        let place = if self.next > self.end { 1 } else { self.next };
        self.next = place + 1;
        Some(place)
    }

    fn contains(&self, place: u32) -> bool {
        let from_next = if place >= self.next { place - self.next } else { place + self.end - self.next };
        place <= self.end && from_next < self.left
    }
}

/// What is still to be flushed of both tiers.
#[derive(Default)]
pub struct Flush {
    mega: Span,
    exact: Span,
    /// The exact entries follow.
    is_exact_due: bool,
}

/// A place that is to be flushed.
pub enum Place {
    /// A megaflow's.
    Mega(u32),
    /// An exact entry's.
    Exact(u32),
}

impl Flush {
    /// All megaflows are to go, those in the places up to this one, and then all exact entries.
    pub fn ask(&mut self, last_megaflow: u32) {
        self.mega.ask(last_megaflow);
        self.is_exact_due = true;
    }

    /// Whether something is still to be flushed.
    #[inline(always)]
    pub fn is_open(&self) -> bool {
        self.is_exact_due || self.exact.left > 0
    }

    /// The next place. Exact entries have those up to `last_exact`.
    pub fn take(&mut self, last_exact: u32) -> Option<Place> {
        if let Some(place) = self.mega.take() {
            return Some(Place::Mega(place));
        }
        if std::mem::take(&mut self.is_exact_due) {
            self.exact.ask(last_exact);
        }
        self.exact.take().map(Place::Exact)
    }

    /// Whether a megaflow is still to be flushed.
    pub fn has(&self, megaflow: u32) -> bool {
        self.mega.contains(megaflow)
    }
}
