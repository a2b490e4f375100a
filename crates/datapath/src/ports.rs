//! A worker's tables of ports.

use base::PortNo;

/// The index under which a worker's caches keep what they know of an input port. Its queues hold the index,
/// so that no packet needs a lookup by port number.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InputIdx(pub u32);

/// A value for each port, by number. Numbers are dense, since the control side gives a new port the lowest
/// free one, so a table has room for about as many entries as there are ports.
pub struct PortTable<T>(Vec<Option<T>>);

impl<T> PortTable<T> {
    pub const fn new() -> PortTable<T> {
        PortTable(Vec::new())
    }

    #[inline(always)]
    pub fn get(&self, port: PortNo) -> Option<&T> {
        self.0.get(port.0 as usize)?.as_ref()
    }

    #[inline(always)]
    pub fn get_mut(&mut self, port: PortNo) -> Option<&mut T> {
        self.0.get_mut(port.0 as usize)?.as_mut()
    }

    /// The port's value, created by `new` if there is none. Allocates if the port's number is higher than any
    /// before.
    pub fn get_or_insert_with(&mut self, port: PortNo, new: impl FnOnce() -> T) -> &mut T {
        let n = port.0 as usize & 0xffff;
        if n >= self.0.len() {
            self.0.resize_with(n + 1, || None);
        }
        self.0[n].get_or_insert_with(new)
    }

    /// Sets the port's value, replacing any previous one.
    pub fn insert(&mut self, port: PortNo, value: T) {
        self.remove(port);
        self.get_or_insert_with(port, || value);
    }

    pub fn remove(&mut self, port: PortNo) -> Option<T> {
        self.0.get_mut(port.0 as usize)?.take()
    }

    /// How many ports there is room for.
    pub fn room(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_the_highest_number_and_no_more() {
        let mut table = PortTable::new();
        assert_eq!((table.remove(PortNo::NONE), table.room()), (None, 0));
        assert_eq!(table.get(PortNo(7)), None);
        table.insert(PortNo(7), 'a');
        table.insert(PortNo(7), 'b');
        assert_eq!((table.get(PortNo(7)), table.get(PortNo(6)), table.room()), (Some(&'b'), None, 8));
        assert_eq!(*table.get_or_insert_with(PortNo(7), || 'c'), 'b');
        assert_eq!((table.remove(PortNo(7)), table.get(PortNo(7))), (Some('b'), None));
    }
}
