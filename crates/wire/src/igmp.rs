//! IGMP versions 1 and 2 (RFC 2236) and 3 (RFC 3376).

use std::net::Ipv4Addr;

use crate::Result;
use crate::bytes::{array, be16, clamped, need, room};
use crate::checksum;

/// Byte ranges of the header.
pub mod field {
    use std::ops::Range;

    /// Type.
    pub const TYPE: usize = 0;
    /// Maximum response time, in queries.
    pub const MAX_RESPONSE: usize = 1;
    /// Checksum of the whole message.
    pub const CHECKSUM: Range<usize> = 2..4;
    /// Group; 0 in a general query.
    pub const GROUP: Range<usize> = 4..8;
    /// Number of group records, in a report of version 3.
    pub const RECORDS: Range<usize> = 6..8;
    /// Group records of a report of version 3.
    pub const PAYLOAD: usize = 8;
}

/// Length of the header in bytes.
pub const HEADER_LEN: usize = field::PAYLOAD;

/// Types.
pub mod igmp_type {
    /// Query: general or for a group.
    pub const QUERY: u8 = 0x11;
    /// Membership report of version 1.
    pub const V1_REPORT: u8 = 0x12;
    /// Membership report of version 2.
    pub const V2_REPORT: u8 = 0x16;
    /// Leaves a group.
    pub const LEAVE: u8 = 0x17;
    /// Membership report of version 3.
    pub const V3_REPORT: u8 = 0x22;
}

fn check(bytes: &[u8]) -> Result<()> {
    need("igmp", bytes, HEADER_LEN)
}

view!(
    /// An IGMP message: the whole of what IPv4 carries.
    IgmpMessage, check
);

fields!(IgmpMessage {
    /// Type: see [`igmp_type`].
    igmp_type, set_igmp_type: u8 at field::TYPE;
    /// Maximum response time, in queries; OpenFlow's "code".
    max_response, set_max_response: u8 at field::MAX_RESPONSE;
    /// Checksum.
    checksum, set_checksum: u16 at field::CHECKSUM;
    /// Group; in a report of version 3, reserved bits and the number of records.
    group, set_group: Ipv4Addr at field::GROUP;
});

impl<B: AsRef<[u8]>> IgmpMessage<B> {
    /// What follows the header.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[HEADER_LEN..]
    }

    /// The group records of a report of version 3; none in other messages.
    pub fn records(&self) -> GroupRecords<'_> {
        let left = match self.igmp_type() {
            igmp_type::V3_REPORT => be16(self.0.as_ref(), field::RECORDS),
            _ => 0,
        };
        GroupRecords { rest: self.payload(), left }
    }

    /// Whether the checksum is valid.
    pub fn is_checksum_valid(&self) -> bool {
        checksum::is_valid(self.0.as_ref())
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]>> IgmpMessage<B> {
    /// Computes and stores the checksum.
    pub fn fill_checksum(&mut self) {
        self.set_checksum(0);
        let sum = checksum::checksum(self.0.as_ref());
        self.set_checksum(sum);
    }
}

/// A group record (RFC 3376 section 4.2.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupRecord<'a> {
    /// 1 and 2: mode is include, exclude; 3 and 4: change to; 5 and 6: allow, block sources.
    pub record_type: u8,
    /// Group.
    pub group: Ipv4Addr,
    /// Sources, four bytes each.
    sources: &'a [u8],
}

impl<'a> GroupRecord<'a> {
    /// Sources.
    pub fn sources(&self) -> impl ExactSizeIterator<Item = Ipv4Addr> + use<'a> {
        self.sources.as_chunks().0.iter().copied().map(Ipv4Addr::from_octets)
    }
}

/// Iterator over group records. After an error it ends.
#[derive(Debug, Clone)]
pub struct GroupRecords<'a> {
    rest: &'a [u8],
    left: u16,
}

impl<'a> GroupRecords<'a> {
    fn step(&mut self) -> Result<GroupRecord<'a>> {
        need("igmp", self.rest, 8)?;
        let sources_end = 8 + 4 * usize::from(be16(self.rest, 2..4));
        let len = sources_end + 4 * usize::from(self.rest[1]);
        need("igmp", self.rest, len)?;
        let record = GroupRecord {
            record_type: self.rest[0],
            group: Ipv4Addr::from(array::<4>(self.rest, 4..8)),
            sources: clamped(self.rest, 8, sources_end),
        };
        self.rest = &self.rest[len..];
        self.left -= 1;
        Ok(record)
    }
}

impl<'a> Iterator for GroupRecords<'a> {
    type Item = Result<GroupRecord<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        let step = self.step();
        if step.is_err() {
            self.left = 0;
        }
        Some(step)
    }
}

/// The header as values. The checksum is the caller's, once the payload is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IgmpRepr {
    /// Type: see [`igmp_type`].
    pub igmp_type: u8,
    /// Maximum response time, in queries.
    pub max_response: u8,
    /// Group; in a report of version 3, reserved bits and the number of records.
    pub group: Ipv4Addr,
}

impl IgmpRepr {
    /// Reads the header.
    pub fn parse<B: AsRef<[u8]>>(message: &IgmpMessage<B>) -> Self {
        Self { igmp_type: message.igmp_type(), max_response: message.max_response(), group: message.group() }
    }

    /// Bytes that [`Self::emit`] writes: 8.
    pub fn header_len(&self) -> usize {
        HEADER_LEN
    }

    /// Writes the header, checksum 0, to the start of `buffer`.
    pub fn emit(&self, buffer: &mut [u8]) -> Result<()> {
        let mut message = IgmpMessage(room("igmp", buffer, HEADER_LEN)?);
        message.set_igmp_type(self.igmp_type);
        message.set_max_response(self.max_response);
        message.set_checksum(0);
        message.set_group(self.group);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bytes::each_prefix;
    use proptest::prelude::*;

    const V2_REPORT: [u8; 8] = [0x16, 0, 0x08, 0xfb, 225, 1, 0, 3];
    /// Two records: group 225.1.0.3 with two sources, 225.1.0.4 with none and four bytes of auxiliary data.
    const V3_REPORT: [u8; 36] = [
        0x22, 0, 0, 0, 0, 0, 0, 2, 4, 0, 0, 2, 225, 1, 0, 3, 10, 0, 0, 1, 10, 0, 0, 2, 3, 1, 0, 0, 225, 1, 0,
        4, 9, 9, 9, 9,
    ];

    #[test]
    fn a_literal_report_reads_and_writes_back() {
        let message = IgmpMessage::new(&V2_REPORT[..]).unwrap();
        assert!(message.is_checksum_valid());
        let repr = IgmpRepr::parse(&message);
        assert_eq!((repr.igmp_type, repr.group), (igmp_type::V2_REPORT, Ipv4Addr::new(225, 1, 0, 3)));
        assert_eq!(message.records().count(), 0);
        let mut out = [0xff; 8];
        repr.emit(&mut out).unwrap();
        IgmpMessage::new(&mut out[..]).unwrap().fill_checksum();
        assert_eq!(out, V2_REPORT);
        each_prefix(&V2_REPORT, |short| assert!(IgmpMessage::new(short).is_err()));
    }

    #[test]
    fn records_of_version_3_are_listed() {
        let message = IgmpMessage::new(&V3_REPORT[..]).unwrap();
        let records: Vec<_> = message.records().map(|record| record.unwrap()).collect();
        assert_eq!(records.len(), 2);
        assert_eq!(records[0].group, Ipv4Addr::new(225, 1, 0, 3));
        let sources: Vec<_> = records[0].sources().collect();
        assert_eq!(sources, [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)]);
        assert_eq!((records[1].record_type, records[1].sources().len()), (3, 0));
    }

    #[test]
    fn a_cut_report_of_version_3_ends_in_an_error() {
        each_prefix(&V3_REPORT, |short| {
            if let Ok(message) = IgmpMessage::new(short) {
                assert!(message.records().last().unwrap().is_err());
            }
        });
    }

    proptest! {
        #[test]
        fn records_of_any_bytes_come_to_an_end(bytes in prop::collection::vec(any::<u8>(), 7..200)) {
            let bytes = [&[0x22][..], &bytes].concat();
            prop_assert!(IgmpMessage::new(&bytes).unwrap().records().count() <= bytes.len() / 8);
        }
    }
}
