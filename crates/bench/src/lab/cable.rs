//! A cable between two network interfaces of this machine, in place of a veth pair that a bed makes.

use std::path::Path;
use std::str::FromStr;

/// See the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cable {
    /// The generator's interface.
    pub outside: String,
    /// The switch's.
    pub switch: String,
}

/// As on the command line: `eth1=eth2`.
impl FromStr for Cable {
    type Err = String;

    fn from_str(text: &str) -> Result<Cable, String> {
        let cable = text.split_once('=').map(|(a, b)| Cable { outside: a.into(), switch: b.into() });
        let is_name =
            |name: &str| (1..16).contains(&name.len()) && !name.contains(['/', ' ', '=']) && name != "lo";
        let cable = cable.filter(|c| is_name(&c.outside) && is_name(&c.switch) && c.outside != c.switch);
        cable.ok_or("expected GENERATOR=SWITCH: two interfaces that are cabled to each other".into())
    }
}

impl Cable {
    /// Why these cannot be used together: an interface has one end of one cable.
    pub fn refused(cables: &[Cable]) -> Option<String> {
        let mut names: Vec<&str> = cables.iter().flat_map(|c| [&*c.outside, &*c.switch]).collect();
        names.sort_unstable();
        let twice = names.windows(2).find(|pair| pair[0] == pair[1])?;
        Some(format!("--nic names {} twice", twice[0]))
    }

    /// Which of their interfaces is not here. Asked before each load: a run that was killed may have had it
    /// until this one began.
    pub fn missing(cables: &[Cable]) -> Option<String> {
        let mut names = cables.iter().flat_map(|c| [&c.outside, &c.switch]);
        let missing = names.find(|name| !Path::new("/sys/class/net").join(name).exists())?;
        Some(format!("there is no interface {missing} here; `ip link` lists all"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cable_has_two_interfaces_that_are_here() {
        let why = |text: &str| text.parse::<Cable>().unwrap_err();
        for bad in ["a", "a=a", "=a", "a=", "a/b=c", "a=0123456789abcdef", "lo=a"] {
            assert!(why(bad).starts_with("expected GENERATOR=SWITCH"), "{bad}: {}", why(bad));
        }
        let cable = Cable { outside: "lo".into(), switch: "no-such-device".into() };
        let missing = Cable::missing(&[cable]).unwrap();
        assert!(missing.starts_with("there is no interface no-such-device here"), "{missing}");
    }

    #[test]
    fn no_interface_is_at_the_end_of_two_cables() {
        let cable = |a: &str, b: &str| Cable { outside: a.into(), switch: b.into() };
        assert_eq!(Cable::refused(&[cable("a", "b"), cable("c", "d")]), None);
        let why = Cable::refused(&[cable("a", "b"), cable("c", "a")]);
        assert_eq!(why.as_deref(), Some("--nic names a twice"));
    }
}
