//! The frames of a load, made before it begins, and stamped as they are sent.

use super::Load;
use super::pattern::{IMIX, Pattern, Protocol, STAMP};
use super::receive::{Expected, stamp};
use wire::checksum::{Sum, nonzero, update16};

/// Flows at most: a stamp has 20 bits for them.
const FLOWS_MAX: u32 = 1 << 20;
/// Memory for frames at most, and what each takes with its allocation.
const MEMORY_MAX: u64 = 2 << 30;
const TEMPLATE_BYTES: u64 = 128;

/// A place that sends.
pub struct Source {
    /// Its end.
    pub end: usize,
    /// Whether it sends the other way, with source and destination swapped.
    pub is_back: bool,
}

/// A frame without the zeros at its end, which are most of a long one.
#[derive(Clone)]
struct Template {
    head: Box<[u8]>,
    len: u16,
}

impl Template {
    fn of(frame: &[u8]) -> Template {
        let head = frame.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        Template { head: frame[..head].into(), len: frame.len() as u16 }
    }

    fn write(&self, frame: &mut Vec<u8>) {
        frame.clear();
        frame.extend_from_slice(&self.head);
        frame.resize(self.len.into(), 0);
    }
}

/// The frames of a load, and the position of its flows.
pub struct Frames {
    /// By source and flow: one frame, or a mix of sizes.
    templates: Vec<Vec<Vec<Template>>>,
    /// By source.
    numbers: Vec<Vec<u32>>,
    picks: Vec<u32>,
    /// See [`Pattern::checksum_at`].
    checksum_at: Option<usize>,
    is_capture: bool,
}

impl Frames {
    /// Makes them for each flow of each source.
    pub fn of(load: &Load, sources: &[Source]) -> Result<Frames, String> {
        if let Protocol::Pcap(path) = &load.pattern.protocol {
            let bytes = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
            let records = ports::pcap::file::parse(&bytes).map_err(|e| format!("{}: {e}", path.display()))?;
            if records.is_empty() {
                return Err(format!("{}: no frame in it", path.display()));
            }
            let flows: Vec<_> = records.iter().map(|r| vec![Template::of(r.frame)]).collect();
            let picks = load.pattern.picks(flows.len());
            let numbers = vec![vec![0; flows.len()]; sources.len()];
            let templates = vec![flows; sources.len()];
            return Ok(Frames { templates, numbers, picks, checksum_at: None, is_capture: true });
        }
        let flows = load.flows.clamp(1, FLOWS_MAX) as usize;
        let of_flow = |n, is_back| -> Result<Vec<Template>, String> {
            Ok(load.pattern.frames(n, load.size, is_back)?.iter().map(|frame| Template::of(frame)).collect())
        };
        let of = |source: &Source| (0..flows).map(|n| of_flow(n, source.is_back)).collect();
        let templates = sources.iter().map(of).collect::<Result<Vec<_>, String>>()?;
        let (numbers, picks) = (vec![vec![0; flows]; sources.len()], load.pattern.picks(flows));
        let checksum_at = load.pattern.checksum_at();
        Ok(Frames { templates, numbers, picks, checksum_at, is_capture: false })
    }

    /// Flows of each source.
    pub fn flows(&self) -> usize {
        self.templates[0].len()
    }

    /// Those of a capture, none of which has been sent.
    pub fn expected(&self) -> Option<Expected> {
        let whole = |template: &Template| {
            let mut frame = Vec::new();
            template.write(&mut frame);
            (frame, 0)
        };
        self.is_capture.then(|| self.templates[0].iter().flatten().map(whole).collect())
    }

    /// Writes the `n`-th frame of a source, stamped.
    pub fn next(&mut self, frame: &mut Vec<u8>, source: usize, n: u64, trial: u16, due_ns: u64) {
        let flow = self.picks[(n % self.picks.len() as u64) as usize] as usize;
        let number = &mut self.numbers[source][flow];
        let mix = &self.templates[source][flow];
        // Sizes take turns within a flow; flows begin at different ones.
        mix[(*number as usize + flow) % mix.len()].write(frame);
        if !self.is_capture {
            stamp(frame, trial, (flow as u32, source as u32), *number, due_ns);
            if let Some(at) = self.checksum_at {
                correct(frame, at);
            }
        }
        *number = number.wrapping_add(1);
    }
}

/// Makes a checksum that was right before the stamp, where there were zeros, right again.
fn correct(frame: &mut [u8], at: usize) {
    // Words begin at even places: headers take up whole words.
    let stamp = (frame.len() - STAMP) & !1;
    let sum = Sum::new().bytes(&frame[stamp..]).fold();
    let before = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // UDP has no checksum of zero, and TCP's may as well be the other form of it.
    let after = nonzero(update16(before, 0, sum));
    frame[at..at + 2].copy_from_slice(&after.to_be_bytes());
}

/// Why frames cannot be sent, if they cannot: of so many flows, by so many sources.
pub fn check(pattern: &Pattern, size: u16, flows: u32, sources: usize) -> Result<(), String> {
    if flows > FLOWS_MAX {
        return Err(format!("{flows} flows: at most {FLOWS_MAX}"));
    }
    let sizes = match pattern.protocol {
        Protocol::Pcap(_) => return Ok(()),
        Protocol::Imix => IMIX.len(),
        _ => 1,
    };
    let bytes = u64::from(flows) * (sizes * sources) as u64 * TEMPLATE_BYTES;
    if bytes > MEMORY_MAX {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let (takes, most) = (gib(bytes), gib(MEMORY_MAX));
        return Err(format!(
            "frames of {sizes} sizes for {flows} flows from {sources} places take {takes:.1} GiB of memory; the \
             generator takes {most:.0} at most"
        ));
    }
    pattern.frames(0, size, false).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_right_with_the_stamp() {
        use wire::checksum::{pseudo_v4, pseudo_v6};
        use wire::ip::IpProtocol;
        for (pattern, ip_len, protocol) in [
            ("tcp-syn", 20, IpProtocol::TCP),
            ("tcp-syn+vlan", 20, IpProtocol::TCP),
            ("tcp-syn+ipv6", 40, IpProtocol::TCP),
            ("udp+ipv6", 40, IpProtocol::UDP),
        ] {
            // The stamp begins at an even place, and at an odd one.
            for size in [127, 128] {
                let pattern = pattern.parse().unwrap();
                let load = Load { size, flows: 10, rate: None, seconds: 1.0, burst: None, pattern };
                let sources = [(0, false), (1, true)].map(|(end, is_back)| Source { end, is_back });
                let mut frames = Frames::of(&load, &sources).unwrap();
                let mut frame = Vec::new();
                for n in 0..50 {
                    frames.next(&mut frame, (n % 2) as usize, n, 7, n * 1_234_567_891);
                    let ip = if load.pattern.vlan { 18 } else { 14 };
                    let (header, segment) = frame[ip..].split_at(ip_len);
                    let address = |at: usize| <[u8; 4]>::try_from(&header[at..at + 4]).unwrap().into();
                    let long = |at: usize| <[u8; 16]>::try_from(&header[at..at + 16]).unwrap().into();
                    let pseudo = match ip_len {
                        20 => pseudo_v4(address(12), address(16), protocol, segment.len() as u16),
                        _ => pseudo_v6(long(8), long(24), protocol, segment.len() as u32),
                    };
                    assert!(
                        pseudo.bytes(segment).is_valid(),
                        "{} of {size} bytes: {frame:02x?}",
                        load.pattern
                    );
                }
            }
        }
    }

    #[test]
    fn memory_is_refused_before_it_is_taken() {
        let check = |text: &str, flows, sources| check(&text.parse().unwrap(), 128, flows, sources);
        for (text, sources) in [("imix", 1), ("udp", 8), ("udp+vlan", 2)] {
            assert_eq!(check(text, 1_000_000, sources), Ok(()), "{text}");
        }
        let why = check("imix", 1_000_000, 2).unwrap_err();
        assert!(why.contains("take 2.9 GiB of memory; the generator takes 2 at most"), "{why}");
        assert!(check("udp", FLOWS_MAX + 1, 1).is_err());
        // A long frame takes no more than a short one, and is whole again when it is sent.
        let frame = Pattern::default().frames(3, 9_000, false).unwrap().remove(0);
        let (template, mut written) = (Template::of(&frame), vec![7; 20_000]);
        template.write(&mut written);
        assert!(template.head.len() as u64 <= TEMPLATE_BYTES - 48 && written == frame);
    }
}
