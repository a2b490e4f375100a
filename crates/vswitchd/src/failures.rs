//! Wanted interfaces that could not be opened, with the reasons. The configurator retries each with its next
//! plan: there is one when the configuration changes and when a device appears.

use crate::config::wanted::Interface;
use base::OfPort;
use std::collections::BTreeMap;

/// See the module documentation.
#[derive(Default)]
pub(crate) struct Failures {
    by_name: BTreeMap<String, Failure>,
}

struct Failure {
    device: String,
    error: String,
    of_port: Option<OfPort>,
}

impl Failures {
    /// An interface could not be had, which had this OpenFlow number. Whether that, or the reason, is new.
    pub fn note(&mut self, interface: &Interface, error: &str, of_port: Option<OfPort>) -> bool {
        let failure = Failure { device: interface.device().into(), error: error.into(), of_port };
        let before = self.by_name.insert(interface.name.clone(), failure);
        before.is_none_or(|before| before.error != error)
    }

    /// It could be opened after all.
    pub fn forget(&mut self, name: &str) {
        self.by_name.remove(name);
    }

    /// Forgets those that are no longer wanted.
    pub fn keep_only(&mut self, is_wanted: impl Fn(&str) -> bool) {
        self.by_name.retain(|name, _| is_wanted(name));
    }

    /// Why an interface could not be had.
    pub fn error(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|failure| failure.error.as_str())
    }

    /// The number that an interface had before it could not be had: it will have it again.
    pub fn of_port(&self, name: &str) -> Option<OfPort> {
        self.by_name.get(name)?.of_port
    }

    /// The interfaces' names.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.by_name.keys()
    }

    /// Whether one of them may work once a device with this name exists.
    pub fn wait_for(&self, device: &str) -> bool {
        self.by_name.values().any(|failure| failure.device == device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_new_once_and_goes_when_it_is_mended_or_not_wanted() {
        let mut failures = Failures::default();
        let eth0 = Interface::new("eth0", "system");
        assert!(failures.note(&eth0, "no such device", None));
        assert!(!failures.note(&eth0, "no such device", None));
        assert!(failures.note(&eth0, "busy", None));
        assert_eq!(failures.error("eth0"), Some("busy"));
        assert!(failures.wait_for("eth0") && !failures.wait_for("eth1"));
        failures.keep_only(|name| name == "eth0");
        assert_eq!(failures.names().collect::<Vec<_>>(), ["eth0"]);
        failures.forget("eth0");
        assert_eq!(failures.error("eth0"), None);
        failures.note(&eth0, "busy", None);
        failures.keep_only(|_| false);
        assert!(!failures.wait_for("eth0"));
    }
}
