//! A hash multimap with one writer at a time and any number of readers that neither wait nor write: the rules
//! of a subtable.
//!
//! Idea: open addressing with linear probing over an array of pointers. Each element is one allocation with
//! its hash, its value and its words (the matched words of a rule), and never moves. The low bits of a
//! pointer are free because of alignment and hold some bits of the hash, so that a probe past other elements
//! seldom touches them. Growing creates a larger array of the same pointers and publishes it. Elements and
//! replaced arrays are freed by the [`Domain`] after a grace period, so a reader's references stay valid
//! until it is quiescent. A large array is filled a few slots with each insertion, so that no insertion among
//! a million takes longer than others, and published when it is complete.
//!
//! Cost: a lookup takes two cache misses (array, element) and about 1.5 probes at a load of 1/4 to 2/3;
//! insertion and removal are O(1). Many elements with one hash form one long run of probes for each of them.
//!
//! Threads: writers wait for each other (mutex), readers do not wait. A reader that runs concurrently with a
//! writer sees each element that exists during the whole lookup exactly once.

use crate::rcu::{Domain, Garbage, Reader};
use crate::region::{prefetch_at, prefetch_ptr};
use crate::slab::Chunk;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};

/// Slots of a map that has contained something.
const SLOTS_MIN: usize = 4;
/// See [`Multimap::is_large`].
const SLOTS_LARGE: usize = 8192;
/// A table of up to this many slots is copied at once.
const AT_ONCE_SLOTS: usize = 1024;
/// Slots of a larger table that are copied with each insertion. Its load is two thirds when copying begins,
/// and 0.7 at the end.
const STEP_SLOTS: usize = 32;

/// Elements begin at addresses that are multiples of this, so that many low bits are free for the tag.
const ALIGN: usize = 16;

#[repr(C, align(16))]
struct Element<T> {
    hash: u32,
    words_len: u32,
    value: T,
    // `words_len` words follow, at `words_offset`.
}

const fn words_offset<T>() -> usize {
    // The size is a multiple of the alignment, 16.
    size_of::<Element<T>>()
}

fn layout_of<T>(words_len: usize) -> Layout {
    let size = words_offset::<T>() + words_len * 8;
    Layout::from_size_align(size, align_of::<Element<T>>()).expect("a few kilobytes at most")
}

impl<T> Element<T> {
    fn allocate(hash: u32, words: &[u64], value: T) -> NonNull<Element<T>> {
        assert!(words.len() <= usize::from(u16::MAX), "an element has at most 65,535 words");
        let layout = layout_of::<T>(words.len());
        // SAFETY: the layout's size is not zero, for the header has a hash.
        let raw = unsafe { alloc(layout) }.cast::<Element<T>>();
        let Some(element) = NonNull::new(raw) else { handle_alloc_error(layout) };
        // SAFETY: freshly allocated for an `Element<T>` with its alignment.
        unsafe { element.write(Element { hash, words_len: words.len() as u32, value }) };
        // SAFETY: `words_offset` lies within or at the end of the allocation.
        let to = unsafe { raw.byte_add(words_offset::<T>()) }.cast::<u64>();
        // SAFETY: the layout has room for `words.len()` words there, aligned since the offset is a multiple
        // of 16; the allocation is new, so they do not overlap.
        unsafe { std::ptr::copy_nonoverlapping(words.as_ptr(), to, words.len()) };
        element
    }

    /// # Safety
    /// `object` is an element that [`Self::allocate`] made; it is unreachable, and is freed once.
    unsafe fn free(object: NonNull<()>) {
        let element = object.cast::<Element<T>>();
        // SAFETY: by the contract it is a live element.
        let layout = layout_of::<T>(unsafe { element.as_ref() }.words_len as usize);
        // SAFETY: by the contract it is no longer used.
        unsafe { element.drop_in_place() };
        // SAFETY: allocated with this layout.
        unsafe { dealloc(element.as_ptr().cast(), layout) };
    }
}

/// An element as a reader borrows it.
pub struct Entry<'g, T> {
    /// Its words.
    pub words: &'g [u64],
    /// Its value.
    pub value: &'g T,
    /// Its hash.
    pub hash: u32,
}

impl<T> Clone for Entry<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Entry<'_, T> {}

struct Table<T> {
    /// Null: never used, ends a run. Tombstone: was removed. Else a tagged pointer.
    slots: Chunk<AtomicPtr<Element<T>>>,
}

/// A removed element; probing continues past it. No element has this address.
fn tombstone<T>() -> *mut Element<T> {
    std::ptr::without_provenance_mut(ALIGN / 2)
}

fn tagged<T>(element: NonNull<Element<T>>, hash: u32) -> *mut Element<T> {
    element.as_ptr().map_addr(|address| address | tag_of(hash))
}

/// Four bits that do not choose the slot.
#[inline(always)]
fn tag_of(hash: u32) -> usize {
    hash as usize >> 28
}

#[inline(always)]
fn untag<T>(slot: *mut Element<T>) -> *mut Element<T> {
    slot.map_addr(|address| address & !(ALIGN - 1))
}

/// Whether the slot contains an element (not null, nor a tombstone; those untag to null).
#[inline(always)]
fn is_element<T>(slot: *mut Element<T>) -> bool {
    slot.addr() >= ALIGN
}

impl<T> Table<T> {
    fn new(slots: usize) -> Table<T> {
        assert!(slots.is_power_of_two());
        // Zero is null.
        Table { slots: Chunk::new(slots) }
    }

    #[inline(always)]
    fn slots(&self) -> &[AtomicPtr<Element<T>>] {
        self.slots.elements()
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.slots().len() - 1
    }

    /// Writer: puts an element that is not in the table into the first free slot of its run. Which, and
    /// whether it was never used.
    fn put(&self, element: NonNull<Element<T>>, hash: u32) -> (usize, bool) {
        let mut i = hash as usize & self.mask();
        loop {
            let slot = self.slots()[i].load(Ordering::Relaxed);
            if !is_element(slot) {
                // Release: a reader that sees the pointer also sees the element.
                self.slots()[i].store(tagged(element, hash), Ordering::Release);
                return (i, slot.is_null());
            }
            i = (i + 1) & self.mask();
        }
    }

    /// Writer: where the element with this value is.
    fn place_of(&self, hash: u32, value: *const T) -> Option<usize> {
        let mut i = hash as usize & self.mask();
        for _ in 0..self.slots().len() {
            let slot = self.slots()[i].load(Ordering::Relaxed);
            if slot.is_null() {
                return None;
            }
            // SAFETY: linked elements are alive, and only writers unlink.
            if is_element(slot) && std::ptr::eq(unsafe { entry(slot) }.value, value) {
                return Some(i);
            }
            i = (i + 1) & self.mask();
        }
        None
    }

    /// Writer: empties a slot; whether it is as if it had never been used.
    fn vacate(&self, i: usize) -> bool {
        let next = self.slots()[(i + 1) & self.mask()].load(Ordering::Relaxed);
        // A run that ends here anyway may end one slot earlier.
        let gone = if next.is_null() { null_mut() } else { tombstone() };
        self.slots()[i].store(gone, Ordering::Release);
        next.is_null()
    }
}

struct Writer<T> {
    len: usize,
    /// Slots that are not null.
    used: usize,
    /// Bytes of the elements.
    element_bytes: usize,
    /// The table to come, while it is being filled.
    next: Option<Next<T>>,
}

/// A table that is being filled, which no reader knows. It has the elements of the first `copied` slots of
/// the table in force.
struct Next<T> {
    table: Table<T>,
    used: usize,
    copied: usize,
}

/// See the module documentation.
pub struct Multimap<T: Send + Sync + 'static> {
    domain: Arc<Domain>,
    table: AtomicPtr<Table<T>>,
    writer: Mutex<Writer<T>>,
}

// SAFETY: the raw pointers own `T`s and are shared by reference only; `T` is `Send` and `Sync`.
unsafe impl<T: Send + Sync + 'static> Send for Multimap<T> {}
// SAFETY: as above; changes are made under the mutex and published with Release.
unsafe impl<T: Send + Sync + 'static> Sync for Multimap<T> {}

// SAFETY: a table holds pointers to elements and frees none of them; `T` is `Send`.
unsafe impl<T: Send + Sync> Send for Table<T> {}

impl<T: Send + Sync + 'static> Multimap<T> {
    /// An empty map, which has allocated a few words only.
    pub fn new(domain: Arc<Domain>) -> Multimap<T> {
        let table = AtomicPtr::new(Box::into_raw(Box::new(Table::new(SLOTS_MIN))));
        Multimap {
            domain,
            table,
            writer: Mutex::new(Writer { len: 0, used: 0, element_bytes: 0, next: None }),
        }
    }

    #[inline(always)]
    fn table<'g>(&'g self, reader: &'g Reader) -> &'g Table<T> {
        assert!(reader.is_of(&self.domain), "the reader belongs to another domain");
        // SAFETY: from `Box::into_raw`; a replaced table is freed after every reader of the domain was
        // quiescent, which `reader`, borrowed for 'g, cannot be; the last one by `Drop`, and the map is
        // borrowed for 'g too.
        unsafe { &*self.table.load(Ordering::Acquire) }
    }

    /// The elements with this hash.
    #[inline]
    pub fn find<'g>(&'g self, hash: u32, reader: &'g Reader) -> Find<'g, T> {
        let table = self.table(reader);
        Find { table, next: hash as usize & table.mask(), hash, left: table.slots().len() }
    }

    /// Whether the map is so large that what was not used lately is in no processor's own cache.
    #[inline]
    pub fn is_large(&self, reader: &Reader) -> bool {
        self.table(reader).slots().len() >= SLOTS_LARGE
    }

    /// Prefetches what [`Self::find`] looks at first for each hash: all slots, and then the elements that
    /// these contain.
    #[inline]
    pub fn prefetch(&self, hashes: &[u32], reader: &Reader) {
        let table = self.table(reader);
        let first = |hash: u32| hash as usize & table.mask();
        hashes.iter().for_each(|&hash| prefetch_at(table.slots(), first(hash)));
        for &hash in hashes {
            let slot = table.slots()[first(hash)].load(Ordering::Relaxed);
            if is_element(slot) && slot.addr() & (ALIGN - 1) == tag_of(hash) {
                prefetch_ptr(untag(slot));
            }
        }
    }

    /// All elements, in no particular order. Concurrent insertions and removals may or may not be included.
    pub fn iter<'g>(&'g self, reader: &'g Reader) -> impl Iterator<Item = Entry<'g, T>> {
        self.table(reader).slots().iter().filter_map(|slot| {
            let slot = slot.load(Ordering::Acquire);
            // SAFETY: reached through the table that `reader` protects.
            is_element(slot).then(|| unsafe { entry(slot) })
        })
    }

    /// Adds an element. `words` are copied; at most 65,535.
    pub fn insert<'g>(&'g self, hash: u32, words: &[u64], value: T, reader: &'g Reader) -> Entry<'g, T> {
        assert!(reader.is_of(&self.domain), "the reader belongs to another domain");
        let mut writer = self.writer.lock().expect("no holder panics");
        // SAFETY: only writers replace the table, and we hold their lock.
        let mut table = unsafe { &*self.table.load(Ordering::Relaxed) };
        if writer.next.is_some() || (writer.used + 1) * 3 > table.slots().len() * 2 {
            table = self.rebuild(table, &mut writer);
        }
        let element = Element::allocate(hash, words, value);
        let (at, is_new) = table.put(element, hash);
        writer.used += usize::from(is_new);
        writer.len += 1;
        if let Some(next) = writer.next.as_mut().filter(|next| at < next.copied) {
            next.used += usize::from(next.table.put(element, hash).1);
        }
        writer.element_bytes += allocated::<T>(words.len());
        // SAFETY: `reader` protects it from now on: its removal defers freeing.
        unsafe { entry(element.as_ptr()) }
    }

    /// Unlinks the element whose value is at `value` (an address from an [`Entry`]), to be freed when no
    /// reader sees it any more. `false` if it is not there.
    pub fn remove(&self, hash: u32, value: *const T) -> bool {
        let mut writer = self.writer.lock().expect("no holder panics");
        // SAFETY: only writers replace the table, and we hold their lock.
        let table = unsafe { &*self.table.load(Ordering::Relaxed) };
        let Some(at) = table.place_of(hash, value) else { return false };
        let element = NonNull::new(untag(table.slots()[at].load(Ordering::Relaxed)));
        let element = element.expect("an element is not null");
        writer.used -= usize::from(table.vacate(at));
        writer.len -= 1;
        if let Some(next) = writer.next.as_mut().filter(|next| at < next.copied) {
            let at = next.table.place_of(hash, value).expect("it was copied with its slot");
            next.used -= usize::from(next.table.vacate(at));
        }
        // SAFETY: a linked element is alive.
        writer.element_bytes -= allocated::<T>(unsafe { element.as_ref() }.words_len as usize);
        // SAFETY: unlinked above, by the one that holds the lock; `T` is `Send`.
        let garbage = unsafe { Garbage::raw(element.cast(), Element::<T>::free) };
        self.domain.defer_garbage(garbage);
        true
    }

    /// Copies a piece of the table, and publishes the new one when it is complete: one without tombstones, in
    /// which initially at most a third of the slots is used. Returns the table in force.
    fn rebuild<'a>(&self, old: &'a Table<T>, writer: &mut Writer<T>) -> &'a Table<T> {
        let all = old.slots().len();
        let step = if all <= AT_ONCE_SLOTS { all } else { STEP_SLOTS };
        // Room for what is there, and for what comes until all is copied: the table may shrink.
        let room = writer.len + all.div_ceil(step);
        let slots = (room * 3).next_power_of_two().max(SLOTS_MIN);
        let next = writer.next.get_or_insert_with(|| Next { table: Table::new(slots), used: 0, copied: 0 });
        let end = (next.copied + step).min(all);
        for slot in &old.slots()[next.copied..end] {
            let slot = slot.load(Ordering::Relaxed);
            if is_element(slot) {
                let element = NonNull::new(untag(slot)).expect("an element is not null");
                // SAFETY: linked elements are alive, and only writers unlink.
                let hash = unsafe { element.as_ref() }.hash;
                next.used += usize::from(next.table.put(element, hash).1);
            }
        }
        next.copied = end;
        if end < all {
            return old;
        }
        let next = writer.next.take().expect("filled above");
        writer.used = next.used;
        let new = Box::into_raw(Box::new(next.table));
        // Release: a reader that sees the table also sees its slots.
        let old = self.table.swap(new, Ordering::AcqRel);
        // SAFETY: from `Box::into_raw`, unlinked now, by the one that holds the lock.
        let old = unsafe { Box::from_raw(old) };
        self.domain.defer(old);
        // SAFETY: linked just now; only writers replace it, and the caller holds their lock.
        unsafe { &*new }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.writer.lock().expect("no holder panics").len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap: elements (with the allocator's 8 bytes each) and slots; what waits to be freed is
    /// not counted.
    pub fn memory_bytes(&self) -> usize {
        let writer = self.writer.lock().expect("no holder panics");
        // SAFETY: only writers replace the table, and we hold their lock.
        let slots = unsafe { &*self.table.load(Ordering::Relaxed) }.slots().len();
        let to_come = writer.next.as_ref().map_or(0, |next| next.table.slots().len());
        writer.element_bytes + (slots + to_come) * size_of::<usize>()
    }
}

/// The usual allocators' overhead per element: 8 bytes more, rounded up to 16.
fn allocated<T>(words_len: usize) -> usize {
    (layout_of::<T>(words_len).size() + 8).next_multiple_of(16)
}

impl<T: Send + Sync + 'static> Drop for Multimap<T> {
    fn drop(&mut self) {
        // SAFETY: from `Box::into_raw`; `&mut self` proves that no borrow through the map exists.
        let table = unsafe { Box::from_raw(*self.table.get_mut()) };
        for slot in table.slots() {
            let slot = slot.load(Ordering::Relaxed);
            if is_element(slot) {
                let element = NonNull::new(untag(slot)).expect("an element is not null");
                // SAFETY: linked once, and unreachable for others now.
                unsafe { Element::<T>::free(element.cast()) };
            }
        }
    }
}

/// # Safety
/// The slot holds an element that stays alive for 'g.
#[inline(always)]
unsafe fn entry<'g, T>(slot: *mut Element<T>) -> Entry<'g, T> {
    let element = untag(slot);
    // SAFETY: by the contract it is alive.
    let header = unsafe { &*element };
    // SAFETY: the words begin there, within the same allocation.
    let words = unsafe { element.byte_add(words_offset::<T>()) }.cast::<u64>();
    // SAFETY: `allocate` wrote `words_len` words there, which never change.
    let words = unsafe { std::slice::from_raw_parts(words, header.words_len as usize) };
    Entry { words, value: &header.value, hash: header.hash }
}

/// Iterator over the elements with one hash.
pub struct Find<'g, T> {
    table: &'g Table<T>,
    next: usize,
    hash: u32,
    left: usize,
}

impl<'g, T> Iterator for Find<'g, T> {
    type Item = Entry<'g, T>;

    #[inline]
    fn next(&mut self) -> Option<Entry<'g, T>> {
        while self.left > 0 {
            let slot = self.table.slots()[self.next].load(Ordering::Acquire);
            if slot.is_null() {
                return None;
            }
            self.left -= 1;
            self.next = (self.next + 1) & self.table.mask();
            if is_element(slot) && slot.addr() & (ALIGN - 1) == tag_of(self.hash) {
                // SAFETY: an element that was linked in a table that the reader of 'g protects.
                let hash = unsafe { &*untag(slot) }.hash;
                if hash == self.hash {
                    // SAFETY: as above.
                    return Some(unsafe { entry(slot) });
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn elements_are_found_by_hash_with_their_words_and_values() {
        let domain = Domain::new();
        let reader = domain.register();
        let map = Multimap::new(domain.clone());
        for i in 0..1000u32 {
            map.insert(i % 100 * 77, &[u64::from(i), 5], i, &reader);
        }
        assert_eq!(map.len(), 1000);
        for h in 0..100u32 {
            let mut found: Vec<_> = map.find(h * 77, &reader).map(|e| (*e.value, e.words.to_vec())).collect();
            found.sort();
            let expected: Vec<_> = (0..10).map(|n| (n * 100 + h, vec![u64::from(n * 100 + h), 5])).collect();
            assert_eq!(found, expected);
        }
        assert_eq!(map.iter(&reader).count(), 1000);
    }

    #[test]
    fn a_removed_element_stays_for_its_reader_and_is_dropped_once() {
        struct Count(Arc<AtomicUsize>);
        impl Drop for Count {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        let domain = Domain::new();
        let mut reader = domain.register();
        let drops = Arc::new(AtomicUsize::new(0));
        let map = Multimap::new(domain.clone());
        {
            let e = map.insert(9, &[1, 2, 3], Count(drops.clone()), &reader);
            map.insert(9, &[4], Count(drops.clone()), &reader);
            assert!(map.remove(9, e.value));
            assert!(!map.remove(9, e.value));
            domain.reclaim();
            assert_eq!((e.words, drops.load(Ordering::SeqCst)), (&[1u64, 2, 3][..], 0));
            assert_eq!(map.find(9, &reader).count(), 1);
        }
        reader.quiescent();
        domain.reclaim();
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        drop(map);
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn what_changes_while_a_larger_table_is_filled_is_found_in_both() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let map = Multimap::new(domain.clone());
        let hash_of = |i: u32| i.wrapping_mul(0x9e37_79b9);
        let mut there = std::collections::BTreeSet::new();
        let mut halves = 0;
        for i in 0..40_000u32 {
            map.insert(hash_of(i), &[], i, &reader);
            there.insert(i);
            halves += usize::from(map.writer.lock().unwrap().next.is_some());
            // From all over the table: from what is copied already, and from what is not.
            let old = i.wrapping_mul(7919) % (i + 1);
            if i % 3 == 0 && there.remove(&old) {
                let entry = map.find(hash_of(old), &reader).find(|e| *e.value == old).unwrap();
                assert!(map.remove(hash_of(old), entry.value));
            }
            if i % 1000 == 0 {
                let mut found: Vec<u32> = map.iter(&reader).map(|e| *e.value).collect();
                found.sort_unstable();
                assert!(found.iter().eq(there.iter()), "at {i}");
            }
            reader.quiescent();
            domain.reclaim();
        }
        assert!(halves > 100, "{halves} insertions found a table half filled");
        for i in 0..40_000 {
            assert_eq!(map.find(hash_of(i), &reader).any(|e| *e.value == i), there.contains(&i), "{i}");
        }
        assert_eq!(map.len(), there.len());
    }

    #[test]
    fn a_smaller_table_that_is_filled_slowly_has_room_for_what_comes_meanwhile() {
        let domain = Domain::new();
        let reader = domain.register();
        let map = Multimap::new(domain.clone());
        let insert = |i: u32| {
            map.insert(i, &[], i, &reader);
        };
        let slots = || {
            let writer = map.writer.lock().unwrap();
            writer.next.as_ref().map_or(0, |next| next.table.slots().len())
        };
        // One run of slots: removed from its start on, each leaves a trace, and the table is as full as it
        // was.
        let full = AT_ONCE_SLOTS as u32 * 4 * 2 / 3;
        (0..full).for_each(insert);
        for i in 0..full - 1 {
            let entry = map.find(i, &reader).find(|e| *e.value == i).unwrap();
            assert!(map.remove(i, entry.value));
        }
        assert_eq!((map.len(), slots()), (1, 0));
        // So a table for few is to replace it. If it has no free slot, it is searched for one for ever.
        insert(full);
        assert!(slots() > 0, "it is being filled");
        let many = full + 1..full + 100;
        for i in many.clone() {
            map.insert(i % 7, &[], i, &reader);
        }
        assert!(many.into_iter().all(|i| map.find(i % 7, &reader).any(|e| *e.value == i)));
    }

    #[test]
    fn churn_neither_grows_the_table_nor_loses_elements() {
        let domain = Domain::new();
        let mut reader = domain.register();
        let map = Multimap::new(domain.clone());
        for i in 0..100_000u32 {
            let hash = i.wrapping_mul(0x9e37_79b9);
            map.insert(hash, &[], i, &reader);
            if let Some(old) = i.checked_sub(8) {
                let hash = old.wrapping_mul(0x9e37_79b9);
                let e = map.find(hash, &reader).find(|e| *e.value == old).unwrap();
                assert!(map.remove(hash, e.value));
            }
            reader.quiescent();
            domain.reclaim();
        }
        assert_eq!((map.len(), map.iter(&reader).count()), (8, 8));
        assert!(map.memory_bytes() < 2000);
    }
}
