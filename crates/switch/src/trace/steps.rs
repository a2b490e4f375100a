//! The steps of a trace: a tree, in which bridges have tables, and tables and buckets have actions, each
//! followed by its effect and by the tables, buckets and bridges that it led to. As in Open vSwitch, the last
//! step of a level is not indented further, so that a chain of tables reads as a list.
//!
//! Rules decide how many steps a packet takes, and how long their texts are: past [`STEPS_BYTES_MAX`] none is
//! recorded, and no text is made.

use std::fmt::Write;

/// Bytes after which steps are left out: of what is recorded, and of its text, which indentation lengthens.
pub const STEPS_BYTES_MAX: usize = 4 << 20;
/// The text in place of them.
pub const LEFT_OUT: &str = "... (further steps are left out)\n";

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Kind {
    Bridge,
    Table,
    Bucket,
    Thaw,
    Action,
    Detail,
    Warning,
    Error,
}

struct Node {
    kind: Kind,
    text: String,
    below: Vec<Node>,
}

/// See the module documentation.
pub struct Steps {
    /// Unfinished ones, outermost first; the first is the root.
    open: Vec<Node>,
    /// Bytes of all.
    recorded: usize,
}

impl Steps {
    /// None so far.
    pub fn new() -> Steps {
        let root = Node { kind: Kind::Table, text: String::new(), below: vec![] };
        Steps { open: vec![root], recorded: 0 }
    }

    /// Whether what comes is left out.
    pub fn is_full(&self) -> bool {
        self.recorded > STEPS_BYTES_MAX
    }

    fn node(&mut self, kind: Kind, text: String) -> Node {
        self.recorded += size_of::<Node>() + text.len();
        Node { kind, text, below: vec![] }
    }

    fn last(&mut self) -> &mut Node {
        self.open.last_mut().expect("the root is never left")
    }

    /// A step begins that has others below it; ends with [`Self::leave`]. If all is full, `text` is empty.
    pub fn enter(&mut self, kind: Kind, text: String) {
        let node = self.node(kind, text);
        self.open.push(node);
    }

    /// The innermost step ends.
    pub fn leave(&mut self) {
        if self.open.len() > 1 {
            let node = self.open.pop().expect("more than one");
            // What came when all was full has neither.
            if !node.text.is_empty() || !node.below.is_empty() {
                self.last().below.push(node);
            }
        }
    }

    /// A step without others below it.
    pub fn leaf(&mut self, kind: Kind, text: String) {
        let leaf = self.node(kind, text);
        self.last().below.push(leaf);
    }

    /// The same where there is room.
    pub fn leaf_unless_full(&mut self, kind: Kind, text: impl FnOnce() -> String) {
        if !self.is_full() {
            self.leaf(kind, text());
        }
    }

    /// Whether the innermost step is of this kind.
    pub fn is_in(&self, kind: Kind) -> bool {
        self.open.last().is_some_and(|node| node.kind == kind)
    }

    /// The name of the innermost bridge.
    pub fn bridge(&self) -> String {
        let bridge = self.open.iter().rev().find(|node| node.kind == Kind::Bridge);
        bridge.map_or(String::new(), |node| node.text.clone())
    }

    /// Enters the innermost bridge's first table again: what comes follows its last step as if that had led
    /// there, except for a packet that continues where it was frozen. Returns whether there is one.
    pub fn reopen_first_table(&mut self) -> bool {
        let bridge = self.last();
        let goes_on = bridge.below.iter().any(|node| node.kind == Kind::Thaw);
        let first = bridge.below.pop_if(|node| node.kind == Kind::Table && !goes_on);
        let is_there = first.is_some();
        self.open.extend(first);
        is_there
    }

    /// Appends all steps, which end.
    pub fn print(&mut self, text: &mut String) {
        while self.open.len() > 1 {
            self.leave();
        }
        print(text, &self.last().below, 0);
        if self.is_full() || text.len() > STEPS_BYTES_MAX {
            *text += LEFT_OUT;
        }
    }
}

fn print(text: &mut String, nodes: &[Node], level: usize) {
    for (i, node) in nodes.iter().enumerate() {
        if text.len() > STEPS_BYTES_MAX {
            return;
        }
        let ends_a_line = !matches!(node.kind, Kind::Bridge | Kind::Table | Kind::Thaw);
        let more = usize::from(i + 1 < nodes.len() || ends_a_line);
        let indent = " ".repeat((level + more) * 4);
        let _ = match node.kind {
            Kind::Bridge => {
                let title = format!("bridge(\"{}\")", node.text);
                writeln!(text, "\n{indent}{title}\n{indent}{}", "-".repeat(title.len()))
            }
            Kind::Table | Kind::Bucket | Kind::Thaw | Kind::Action => writeln!(text, "{indent}{}", node.text),
            Kind::Detail => writeln!(text, "{indent} -> {}", node.text),
            Kind::Warning => writeln!(text, "{indent} >> {}", node.text),
            Kind::Error => writeln!(text, "{indent} >>>> {} <<<<", node.text),
        };
        print(text, &node.below, level + 2 * more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_past_the_limit_are_neither_kept_nor_made_into_text() {
        let mut steps = Steps::new();
        steps.enter(Kind::Bridge, "br0".into());
        let mut made = 0;
        for _ in 0..100 {
            let name = if steps.is_full() { String::new() } else { "a table".into() };
            steps.enter(Kind::Table, name);
            steps.leaf_unless_full(Kind::Action, || {
                made += 1;
                "x".repeat(100_000)
            });
            steps.leave();
        }
        assert_eq!((made, steps.last().below.len()), (42, 42));
        assert_eq!(steps.bridge(), "br0");
        let mut text = String::new();
        steps.print(&mut text);
        assert!(text.contains("bridge(\"br0\")") && text.ends_with(LEFT_OUT));
        assert!(text.len() < STEPS_BYTES_MAX + 200_000);
    }
}
