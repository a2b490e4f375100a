//! What controllers have configured for the tables of a bridge.

/// What controllers have configured for a table.
#[derive(Clone, Default, Debug)]
pub(crate) struct TableRecord {
    pub name: String,
    pub evicts: bool,
    pub vacancy: Option<VacancyWatch>,
}

/// When to tell how much room is left, in percent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct VacancyWatch {
    pub down: u8,
    pub up: u8,
    /// Whether the next vacancy event is about less room; otherwise it is about more.
    pub awaits_less: bool,
}
