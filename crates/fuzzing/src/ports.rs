//! Targets for `ports`: files that a user replays.

use ports::pcap::file::{Writer, parse};

/// A capture file: what is read lies in the file, and written again it is read the same.
pub fn ports_pcap(input: &[u8]) {
    let Ok(records) = parse(input) else { return };
    let bytes: usize = records.iter().map(|record| record.frame.len()).sum();
    assert!(bytes <= input.len());
    let mut copy = Vec::new();
    let mut writer = Writer::new(&mut copy).expect("memory takes a header");
    for record in &records {
        writer.write(record.time_ns, std::iter::once(record.frame)).expect("memory takes a frame");
    }
    let again = parse(&copy).expect("what was written can be read");
    assert!(again.iter().map(|record| record.frame).eq(records.iter().map(|record| record.frame)));
    // A fraction of more than a second can carry the seconds past the 32 bits that a file has for them.
    for (again, record) in again.iter().zip(&records) {
        assert!(record.time_ns >> 32 >= 1_000_000_000 || again.time_ns == record.time_ns);
    }
}
