//! Figures of the four documents whose experiments the suites repeat: other machines, other years, other
//! versions. They are shown next to ours for orientation, and marked as not measured side by side.

/// A figure of a document.
pub struct Figure {
    /// Author and date.
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
    pub load: String,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The source of the figure.
    pub read_in: &'static str,
}

const EMMERICH: &str = "Emmerich et al., Performance Characteristics of Virtual Switching, CloudNet 2014";
const RED_HAT: &str = "Red Hat, Measuring and comparing Open vSwitch performance, 2017";
const CARBONE: &str = "Carbone, Catalli, Rizzo, Improving the performance of Open vSwitch, 2011";
const INTEL: &str = "Intel, Open vSwitch Enables SDN and NFV Transformation, 2015";

/// For a document whose text could not be read again: figures known to those who began this project.
const HANDED_DOWN: &str = "not read again: the document's text was not to be had";

/// Bytes of a packet in the columns of Red Hat's table.
const RED_HAT_SIZES: [u16; 6] = [64, 128, 256, 512, 1024, 1514];
/// Its rows: flows, and packets per second of each size.
const RED_HAT_TABLE: [(&str, [u32; 6]); 5] = [
    ("10", [4_727_031, 4_667_014, 4_364_771, 2_287_723, 1_173_821, 789_753]),
    ("1,000", [2_250_851, 2_220_449, 2_173_335, 2_046_173, 1_163_426, 792_141]),
    ("10,000", [1_953_504, 1_920_673, 1_850_641, 1_739_900, 1_159_739, 797_118]),
    ("100,000", [1_282_826, 1_291_901, 1_230_113, 1_163_795, 1_027_806, 771_231]),
    ("1,000,000", [135_964, 131_448, 134_586, 129_210, 125_610, 125_875]),
];

/// All figures that could be checked; uncertain ones are left out.
pub fn figures() -> Vec<Figure> {
    let carbone = |switch, value| Figure {
        document: CARBONE,
        experiment: "forwarding by Open vSwitch in user space",
        hardware: "as in the document",
        suite: "io-loop",
        switch,
        load: "64 bytes, 2 ports".into(),
        value,
        unit: "kpps",
        read_in: HANDED_DOWN,
    };
    let mut all = vec![
        carbone("packets in the control loop", 65.0),
        carbone("a thread of its own, batches, ready descriptors", 690.0),
        Figure {
            document: EMMERICH,
            experiment: "Table I, 64 bytes",
            hardware: "as in the document, one core",
            suite: "forwarding-table",
            switch: "Open vSwitch, kernel",
            load: "pNIC to pNIC".into(),
            value: 1.88,
            unit: "Mpps",
            read_in: "a note in the authors' later paper (J. Netw. Syst. Manage. 26, 2018)",
        },
        Figure {
            document: INTEL,
            experiment: "Figures 6 and 7, 256 bytes, zero loss",
            hardware: "as in the document",
            suite: "native-vs-poll-mode",
            switch: "Open vSwitch with DPDK to Open vSwitch in the kernel",
            load: "P2P, both ways".into(),
            value: 12.0,
            unit: "times",
            read_in: HANDED_DOWN,
        },
    ];
    for (flows, row) in RED_HAT_TABLE {
        for (size, pps) in RED_HAT_SIZES.into_iter().zip(row) {
            all.push(Figure {
                document: RED_HAT,
                experiment: "PVP, IPv4 addresses differ",
                hardware: "Xeon E5-2690 v4 at 2.6 GHz, Intel 82599ES, 10 Gbit/s",
                suite: "pvp-matrix",
                switch: "Open vSwitch with DPDK",
                load: format!("{size} bytes, {flows} flows"),
                value: f64::from(pps),
                unit: "packets/s",
                read_in: "README of the author's scripts for it (github.com/chaudron/ovs_perf)",
            });
        }
    }
    all
}

/// The figures of a suite.
pub fn of_suite(suite: &str) -> Vec<Figure> {
    figures().into_iter().filter(|figure| figure.suite == suite).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_of_a_suite_and_says_where_it_was_read() {
        for figure in figures() {
            assert!(crate::suite::list::find(figure.suite).is_some(), "{}", figure.suite);
            assert!(!figure.read_in.is_empty() && figure.value > 0.0);
        }
        let most = of_suite("pvp-matrix").into_iter().map(|f| f.value).fold(0.0, f64::max);
        assert_eq!(most, 4_727_031.0);
    }
}
