//! All generators.

use super::Generator;
use super::builtin::Builtin;
use super::testpmd::{Mode, Testpmd};
use super::trex::Trex;

/// Frames of a burst, unless the name gives another number.
const BURST: u16 = 32;

/// Names; `trex@HOST:PORT` stands for a TRex server. The first one is the default.
pub const NAMES: &[&str] = &["builtin", "builtin-256", "builtin-xdp", "testpmd-flowgen", "testpmd-txonly"];

/// The generator of this name.
pub fn find(name: &str) -> Result<Box<dyn Generator>, String> {
    if let Some(address) = name.strip_prefix("trex@") {
        return Trex::at(name, address).map(|trex| Box::new(trex) as Box<dyn Generator>);
    }
    Ok(match name {
        "builtin" => Box::new(Builtin { name: "builtin", driver: "packet", burst: BURST }),
        // For kernels whose system calls are dear.
        "builtin-256" => Box::new(Builtin { name: "builtin-256", driver: "packet", burst: 256 }),
        "builtin-xdp" => Box::new(Builtin { name: "builtin-xdp", driver: "xdp", burst: BURST }),
        "testpmd-flowgen" => Box::new(Testpmd { name: "testpmd-flowgen", mode: Mode::Flowgen }),
        "testpmd-txonly" => Box::new(Testpmd { name: "testpmd-txonly", mode: Mode::Txonly }),
        _ => {
            let (known, hint) = (NAMES.join(", "), base::suggest::hint(name, NAMES));
            return Err(format!("unknown generator {name}; known: {known}, trex@HOST:PORT{hint}"));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_a_generator_s_own() {
        for name in NAMES {
            assert_eq!(find(name).unwrap().name(), *name);
        }
        assert!(find("abacus").is_err() && find("trex@nowhere").is_err());
        assert!(find("bulitin").err().unwrap().ends_with(", trex@HOST:PORT (did you mean 'builtin'?)"));
    }
}
