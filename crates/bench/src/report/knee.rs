//! Where a load curve breaks: the offered load beyond which throughput no longer follows it.

use crate::units::grouped;
use std::fmt;

/// Maximum share of a load that may be lost if it counts as delivered.
const LOSS_MAX: f64 = 0.01;

/// See the module documentation. Loads are in packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Knee {
    /// The highest load that came through, and the next one, which did not.
    Between(f64, f64),
    /// The lowest load did not come through.
    Below(f64),
    /// The highest load came through, of those that the generator could offer.
    Above(f64),
}

/// The inflection point of a line of (offered, received, …), sorted by offered load. A single load is not a
/// curve.
pub fn of(points: &[(f64, f64, f64, f64)]) -> Option<Knee> {
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < 2 {
        return None;
    }
    // A load that lost something by chance below one that did not is not an inflection.
    Some(match points.iter().rposition(came_through) {
        None => Knee::Below(first.0),
        Some(at) if at + 1 == points.len() => Knee::Above(last.0),
        Some(at) => Knee::Between(points[at].0, points[at + 1].0),
    })
}

/// Whether a load of a curve came through.
pub fn came_through((offered, received, ..): &(f64, f64, f64, f64)) -> bool {
    *received >= offered * (1.0 - LOSS_MAX)
}

impl Knee {
    /// Its position in the graph.
    pub fn at(self) -> Option<f64> {
        if let Knee::Between(at, _) = self { Some(at) } else { None }
    }
}

impl fmt::Display for Knee {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let short = |load: &f64| grouped(*load as u64);
        match self {
            Knee::Between(at, next) => {
                write!(f, "{} packets/s; {} lost more", short(at), short(next))
            }
            Knee::Below(first) => write!(f, "below {} packets/s, the least that was offered", short(first)),
            Knee::Above(last) => {
                write!(f, "above {} packets/s: no higher load shows a limit of the switch", short(last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(received: &[(f64, f64)]) -> Vec<(f64, f64, f64, f64)> {
        received.iter().map(|(x, y)| (*x, *y, *y, *y)).collect()
    }

    #[test]
    fn a_line_breaks_behind_the_last_load_that_came_through() {
        let broken = line(&[(10e3, 10e3), (20e3, 19.7e3), (50e3, 49.9e3), (100e3, 61e3), (200e3, 60e3)]);
        let knee = of(&broken).unwrap();
        assert_eq!((knee, knee.at()), (Knee::Between(50e3, 100e3), Some(50e3)));
        assert_eq!(knee.to_string(), "50,000 packets/s; 100,000 lost more");
        assert_eq!(of(&broken[3..]), Some(Knee::Below(100e3)));
        assert_eq!(of(&broken[..3]), Some(Knee::Above(50e3)));
        assert_eq!((of(&broken[..1]), of(&[])), (None, None));
    }
}
