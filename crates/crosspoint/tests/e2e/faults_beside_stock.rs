//! Requests with faults, several at once where the order in which they are looked for shows: both switches
//! tell the same error. They were found by sending the same mutated bytes to both.

use crate::actions_beside_stock::Both;
use crate::common::PATIENCE;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// What is wrong, and the request.
const REQUESTS: &[(&str, &str)] = &[
    ("a hello said again", "0400000800000001"),
    (
        "a flow of a length that is no multiple of 8, of an unknown match",
        "050e005c0000000600000000000000050000000000000007ff03000000008000ffffffff00000002ffffffff000000000001\
         002880000a028600000100dd800014013a80003a018780003e1000000000000000000000000000000000",
    ),
    (
        "an unknown match and unknown flags",
        "060e0058000000060000000000000000000000000000000000000000000000000100000000008000ffffffffffffffffffff\
         ffff00000000000100040000000000040018000000000019001080004c080000000200000005",
    ),
    (
        "an output port that there cannot be",
        "050e00600000000600000000000000050000000000000007ff03000000008000fffffffffff80002ffffffff000000000001\
         001c80000004000000038000090c0000000000000100000000000000000000000000000000000000000000000000",
    ),
    (
        "a match without length",
        "060e0058000000060000000000000000000000000000000001000000000080 00ffffffffffffffff0000000000000000000000\
         0000000000ffffffff00000000000100040000000000040010000000000016000800000005",
    ),
    (
        "all tables, and an unknown command",
        "030e00580000000600000000000000000000400000000000ffffffffffff0000000000000000ffffffffffff000000000001\
         0004000000000005000800000000000200180000000000000000000000050000000000000007",
    ),
    (
        "a buffered packet, and a group that there is not",
        "030e00480000000600000000000000000000000000000000010000000000800009ffffffffffffffffffffff000000000001\
         00040000000000040010000000000016000800000005",
    ),
    ("NXST_FLOW by 1.3", "0412002000000002ffff0000000000000000232000000000ffff0000ff000000"),
    ("NXST_AGGREGATE by 1.1", "0212002000000002ffff0000000000000000232000000001ffff0000ff000000"),
    ("NXST_FLOW_MONITOR by 1.4", "0512001800000002ffff000000000000 0000232000000002"),
    ("NXST_GROUP_FEATURES by 1.1", "0212001800000002ffff0000000000000000232000000009"),
    ("NXST_GROUP_FEATURES by 1.2", "0312001800000002ffff0000000000000000232000000009"),
    ("statistics of the ONF that there are not", "0412001800000002ffff0000000000004f4e460000000010"),
    ("statistics of ports, too long", "0312002000000002000400000000000000000000000000000000000000000000"),
    ("statistics of a port that there cannot be", "04120018000000020004000000000000fff8000200000000"),
    ("statistics of a queue of such a port", "04120018000000020005000000000000fff80002ffffffff"),
    ("queues of such a port", "0416001000000002fff8000200000000"),
    ("a description of such a port", "0612001800000002000d000000000000fff8000200000000"),
    (
        "a packet from such a port",
        "040d002c00000002fffffffffff800020000000000000000000000000000000000000000000000000000000000000000",
    ),
    ("a table, with bits that mean nothing", "02110010000000040700000000008002"),
    ("a table that is to be told of beyond all", "0511001800000005060000000000000800030008 0aff0000"),
    ("an eviction that is too long", "05110020000000050600000000000008 0002000a0000000700000000 00000000"),
    (
        "flags of meters that there are not",
        "041d002000000002000000800000000200010010000000090000001801000000",
    ),
    (
        "a message of 1.3 in a bundle of 1.4",
        "05220058000000060000000000000003040e004800000006000000000000000000000000000000000000000000000000\
         000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    ),
    (
        "one of 1.4 in a bundle of 1.3",
        "0404005c000000064f4e4600000008fd0000000000000003050e004800000006000000000000000000000000000000000000\
         000000000000000000000000000000000000000000000000000000000000000000000000000000000000",
    ),
    ("a bundle's flags that there are not", "052100100000000200000009000000ff"),
    (
        "a group with a bad bucket, and an unknown command",
        "040f0048000000060020000000000001ffffffff000000000000001000000001000000000000000000200000ffffffff0000\
         00050000000000000010000000010000000000000000",
    ),
    (
        "an unknown action without length",
        "060e005000000006000000000000000000000000000000000100000000008000ffffffffffffffffffffffff000000020001\
         000a80000a02884700000000000000040010800046010200000000000000",
    ),
    (
        "a controller's action with padding",
        "040e005000000006000000000000000000000000000000000100000000008000ffffffffffffffffffffffff000000000001\
         00040000000000040018000000 00ffff0010000023200014800005000050",
    ),
    (
        "a push with padding",
        "040e005800000006000000000000000000000000000000000100000000008000ffffffffffffffffffffffff000000000001\
         00040000000000040020000000 00ffff001800002320001b00000001000400200000000000fe",
    ),
];

/// What a switch answers a request with: type and body of each message, the echo of the request left out.
fn answers(dir: &Path, request: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let version = request[0];
    let mut stream = UnixStream::connect(dir.join("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    stream.write_all(request).unwrap();
    // When the echo comes back, all else has.
    stream.write_all(&[version, 2, 0, 8, 0, 0, 0, 0xee]).unwrap();
    let mut answers = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).unwrap();
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[2], header[3]])) - 8];
        stream.read_exact(&mut body).unwrap();
        match header[1] {
            3 => return answers,
            0 | 2 => {}
            // Type and code, the experimenter's too.
            1 => answers.push((1, body[..body.len().min(8)].to_vec())),
            kind => answers.push((kind, Vec::new())),
        }
    }
}

#[test]
fn of_several_faults_the_one_is_told_that_the_stock_switch_tells() {
    let both = Both::start();
    let mut differ = String::new();
    for (what, hex) in REQUESTS {
        let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
        let mut request: Vec<u8> = digits.chunks(2).map(byte).collect();
        let length = request.len() as u16;
        request[2..4].copy_from_slice(&length.to_be_bytes());
        let [ours, stock] = both.directories().map(|dir| answers(dir, &request));
        if ours != stock {
            differ += &format!("{what}: ours {ours:02x?}, the stock switch's {stock:02x?}\n");
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn a_rule_for_a_buffered_packet_is_not_added() {
    let both = Both::start();
    let flow = [
        &[4, 14, 0, 80, 0, 0, 0, 6][..],
        &[0; 17],
        &[0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 9],
        &[0xff; 8],
        &[0, 0, 0, 0],
        &[0, 1, 0, 4, 0, 0, 0, 0],
        &[0, 4, 0, 24, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0],
    ]
    .concat();
    for dir in both.directories() {
        assert_eq!(answers(dir, &flow), [(1, vec![0, 1, 0, 8, 4, 14, 0, 80])], "{}", dir.display());
    }
    let [ours, stock] = both.texts(&["-O", "OpenFlow13", "dump-flows", "br0"]);
    assert_eq!((ours.lines().count(), ours), (1, stock));
}
