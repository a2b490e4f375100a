//! Figures of the four documents whose experiments the suites repeat: other machines, other years, other
//! versions. They stand beside ours for orientation, and are marked as not measured side by side.

/// A figure of a document.
pub struct Figure {
    /// Who and when.
    pub document: &'static str,
    /// The experiment in it.
    pub experiment: &'static str,
    /// On what.
    pub hardware: &'static str,
    /// The suite that repeats it.
    pub suite: &'static str,
    /// What was measured.
    pub switch: &'static str,
    /// Under which load.
    pub load: &'static str,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
}

const EMMERICH: &str = "Emmerich et al., Performance Characteristics of Virtual Switching, CloudNet 2014";
const RED_HAT: &str = "Red Hat, Measuring and comparing Open vSwitch performance, 2017";
const CARBONE: &str = "Carbone, Catalli, Rizzo, Improving the performance of Open vSwitch, 2011";
const INTEL: &str = "Intel, Open vSwitch Enables SDN and NFV Transformation, 2015";
const fn red_hat(load: &'static str, value: f64) -> Figure {
    Figure {
        document: RED_HAT,
        experiment: "PVP, 64 bytes",
        hardware: "4 queues and 4 polling threads, 10 Gbit/s",
        suite: "pvp-matrix",
        switch: "Open vSwitch with DPDK",
        load,
        value,
        unit: "Mpps",
    }
}

const fn carbone(switch: &'static str, value: f64) -> Figure {
    Figure {
        document: CARBONE,
        experiment: "forwarding by Open vSwitch in user space",
        hardware: "as in the document",
        suite: "io-loop",
        switch,
        load: "64 bytes, 2 ports",
        value,
        unit: "kpps",
    }
}

/// All of them, as far as they could be checked: a figure of which nobody is sure is none.
pub const FIGURES: &[Figure] = &[
    carbone("packets in the control loop", 65.0),
    carbone("a thread of its own, batches, ready descriptors", 690.0),
    Figure {
        document: EMMERICH,
        experiment: "Table I, 64 bytes",
        hardware: "as in the document, one core",
        suite: "forwarding-table",
        switch: "Open vSwitch, kernel",
        load: "pNIC to pNIC",
        value: 1.88,
        unit: "Mpps",
    },
    red_hat("10 flows", 4.73),
    red_hat("1,000,000 flows", 0.136),
    Figure {
        document: INTEL,
        experiment: "Figures 6 and 7, 256 bytes, zero loss",
        hardware: "as in the document",
        suite: "native-vs-poll-mode",
        switch: "Open vSwitch with DPDK to Open vSwitch in the kernel",
        load: "P2P, both ways",
        value: 12.0,
        unit: "times",
    },
];

/// Those that a suite repeats.
pub fn of_suite(suite: &str) -> impl Iterator<Item = &'static Figure> + Clone {
    FIGURES.iter().filter(move |figure| figure.suite == suite)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_a_suite() {
        for figure in FIGURES {
            assert!(crate::suite::list::find(figure.suite).is_some(), "{}", figure.suite);
        }
    }
}
