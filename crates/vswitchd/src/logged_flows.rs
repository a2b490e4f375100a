//! What the log of flows has seen of them, and what of a further look is new.

use std::collections::HashMap;

/// What the log has seen of the flows, as of the look that began last of those that have ended. Several can
/// be going on at once, since commands look, too. One that ends after a later one would tell what is past.
#[derive(Default)]
pub(crate) struct LoggedFlows {
    begun: u64,
    last: u64,
    /// Actions by unique id; `None` before the first look.
    actions: Option<HashMap<String, String>>,
}

/// Why a flow is logged.
#[derive(Debug, PartialEq)]
pub(crate) enum Change {
    New,
    Actions,
}

impl LoggedFlows {
    /// The next look to begin is the first one.
    pub fn forget(&mut self) {
        self.actions = None;
        self.last = self.begun + 1;
    }

    /// Gives a look, before it reads the first flow, its number.
    pub fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.begun
    }

    /// Takes what a look has found. Returns what is new since the last one, sorted by key.
    pub fn end(&mut self, look: u64, found: HashMap<String, FlowText>) -> Vec<(String, FlowText, Change)> {
        if look < self.last {
            return Vec::new();
        }
        self.last = look;
        let actions = found.iter().map(|(ufid, text)| (ufid.clone(), text.actions.clone())).collect();
        let Some(before) = self.actions.replace(actions) else { return Vec::new() };
        let change = |(ufid, text): (String, FlowText)| match before.get(&ufid) {
            None => Some((ufid, text, Change::New)),
            Some(old) if *old == text.actions => None,
            Some(_) => Some((ufid, text, Change::Actions)),
        };
        let mut changes: Vec<_> = found.into_iter().filter_map(change).collect();
        changes.sort_by(|(_, a, _), (_, b, _)| a.key.cmp(&b.key));
        changes
    }
}

/// The text of a flow for the log.
pub(crate) struct FlowText {
    pub key: String,
    /// Including fields that the flow does not match.
    pub whole: String,
    pub actions: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(actions: &str) -> HashMap<String, FlowText> {
        let text = FlowText { key: "in_port(1)".into(), whole: "in_port(1)".into(), actions: actions.into() };
        HashMap::from([("ufid:1".into(), text)])
    }

    fn logged(flows: &mut LoggedFlows, look: u64, actions: &str) -> Vec<(String, Change)> {
        flows.end(look, flow(actions)).into_iter().map(|(_, text, change)| (text.actions, change)).collect()
    }

    #[test]
    fn a_look_that_ends_after_a_later_one_logs_nothing() {
        let mut flows = LoggedFlows::default();
        let look = flows.begin();
        assert_eq!(flows.end(look, HashMap::new()).len(), 0, "the starting point");
        let look = flows.begin();
        assert_eq!(logged(&mut flows, look, "100"), [("100".into(), Change::New)]);

        let (early, late) = (flows.begin(), flows.begin());
        assert_eq!(logged(&mut flows, late, "drop"), [("drop".into(), Change::Actions)]);
        assert_eq!(logged(&mut flows, early, "100"), [], "it read the flow before the rule was deleted");
        let look = flows.begin();
        assert_eq!(logged(&mut flows, look, "drop"), [], "nothing has changed since");
    }
}
