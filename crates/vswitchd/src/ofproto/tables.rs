//! What controllers have set of the tables of a bridge.

/// What controllers have set of a table.
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
    /// Whether less room is told of next; else more room.
    pub awaits_less: bool,
}
