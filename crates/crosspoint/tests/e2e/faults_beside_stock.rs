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
    (
        "a change of a table in a bundle, of a length that is none",
        "05220020000000060000000000000003 051100100000000603000000 00000000",
    ),
    (
        "a flow of half a length in a bundle",
        "052200200000000600000000 00000003 050e001000000006 0000000000000000",
    ),
    (
        "a flow in a bundle, with an unknown action",
        "052200580000000600000000 00000003 050e0048000000060000000000000000000000000000000000000000000080 00\
         ffffffffffffffffffffffff00000000 0001000400000000 0004001000000000 00fe000800000000",
    ),
    (
        "a packet whose actions are no whole words",
        "040d002800000002ffffffff00000001 0004000000000000 0000000800000000 00000000",
    ),
    (
        "a packet from no port, with an unknown action",
        "060d002800000005ffffffff00080000 0001000400000000 \
         00fe000800000000 0000000000000000",
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
    (
        "a match of a port of two bytes",
        "040e003800000006000000000000000000000000000000000000000000008000ffffffffffffffffffffffff00000000\
         0001000a80000002 0001000000000000",
    ),
    (
        "a masked match, of a length that is not its field's and a value beyond its mask",
        "040e003800000006000000000000000000000000000000000000000000008000ffffffffffffffffffffffff00000000\
         0001000c80000104 0305000100000000",
    ),
    (
        "an instruction that is too long before an action that is bad",
        "040e005800000006000000000000000000000000000000000000000000008000ffffffffffffffffffffffff00000000\
         0001000400000000 0003001000000000ffee000800000000 0001001005000000 0000000000000000",
    ),
    ("a group that is added behind a bucket", "060f00180000000500000000000000090000000000000005"),
    ("a bucket for a group of no type", "060f0020000000050003070000000009 00080000fffffffe 0008000000000001"),
    ("a bucket removed by a number that is none", "060f0018000000050005000000000009 00000000fffffffc"),
    (
        "a bucket whose weight has no room",
        "060f0028000000050000010000000009 00100000ffffffff 0010000000000001 0000000400000000",
    ),
    (
        "a bucket that watches a port of eight bytes",
        "060f0030000000050000030000000009 00180000ffffffff 0018000000000001 0001000c00000001 0000000000000000",
    ),
    (
        "an experimenter's property of a group",
        "060f0028000000050000010000000009 00000000ffffffff ffff000c00001234 \
         0000000100000000",
    ),
    (
        "one of no experimenter",
        "060f0028000000050000010000000009 00000000ffffffff ffff000c00000000 \
         0000000100000000",
    ),
    (
        "a selection method for a group that does not select",
        "060f0040000000050000000000000009 00000000ffffffff ffff00280000154d 0000000100000000 6861736800000000 \
         0000000000000000 0000000000000000",
    ),
    (
        "the same field to hash twice",
        "060f0050000000050000010000000009 00000000ffffffff ffff00380000154d 0000000100000000 6861736800000000 \
         0000000000000000 0000000000000000 80001a020005 80001a020005 00000000",
    ),
    (
        "a field to hash of a length that is not its own",
        "060f0048000000050000010000000009 00000000ffffffff ffff002d0000154d 0000000100000000 6861736800000000 \
         0000000000000000 0000000000000000 80001a0105 000000",
    ),
    (
        "buckets of a group that is deleted by 1.2",
        "030f0020000000050002000000000009 00100000ffffffff ffffffff00000000",
    ),
    ("and by 1.3", "040f0020000000050002000000000009 00100000ffffffff ffffffff00000000"),
    ("a bucket removed by 1.3", "040f0010000000050005000000000009"),
    (
        "a band and a number of a meter that there cannot be",
        "041d0020000000050000000100000000 0009001000000001 0000000000000000",
    ),
    ("messages that an experimenter has", "051c001800000005 fffe000c00000007 0000000100000000"),
    ("messages with a reason too many", "051c001000000005 0000000800000040"),
    ("packets in with a reason of 1.4 by 1.3", "0404001800000005 000023200000001b 0000000800000020"),
    ("a vacancy of a table", "051100180000000503000000 0000000800030008145a0a00"),
];

/// Bodies of flows that have one action: what is wrong with it, and the action.
const ACTIONS: &[(&str, &str)] = &[
    ("move from a field of another length", "ffff001800002320000600080000000800010002 00010204"),
    ("move from a field with a mask", "ffff001800002320000600080000000800010108 00010204"),
    ("move from no field", "ffff001800002320000600080000000800057e04 00010204"),
    ("move to a field of another length", "ffff001800002320000600080000000800010004 00010202"),
    ("move of no bits", "ffff001800002320000600000000000000010004 00010204"),
    ("move of too many", "ffff001800002320000600080000001900010004 00010204"),
    ("move to what cannot be set", "ffff001800002320000600080000000000010004 0001d204"),
    ("move without fields", "ffff0010000023200006000800000008"),
    ("move to half a field", "ffff0020000023200006000800000000 ffff08080000232001020304 00000000"),
    ("move with padding", "ffff002000002320000600080000000800010004 00010204 0000000000000001"),
    ("copy-field from a field of another length", "001c00180008000000080000 80000202 80001804 00000000"),
    ("copy-field of no bits", "001c00180000000000000000 00010004 00010204 00000000"),
    ("push of a field of another length", "ffff001800002320001b0000000100020020000000000000"),
    ("push of too many bits", "ffff001800002320001b0000000100040021000000000000"),
    ("push that is too long", "ffff002000002320001b00000001000400200000000000000000000000000000"),
    ("pop of a field with a mask", "ffff001800002320001c0000000101080020000000000000"),
    ("pop of what cannot be set", "ffff001800002320001c00000001d2040020000000000000"),
    ("output to a field of another length", "ffff001800002320000f000f00010002ffff000000000000"),
    ("output to a field with a mask", "ffff001800002320000f000f00010108ffff000000000000"),
    ("output to a field, with padding", "ffff001800002320000f000f00010002ffff000000000001"),
    ("output to a long field of another length", "ffff0018000023200020000fffff000100020000 00000000"),
    ("load of a field of another length", "ffff0018000023200007000700010002 0000000000000005"),
    ("load of a field with a mask", "ffff0018000023200007000700010108 0000000000000005"),
    ("load of too many bits", "ffff001800002320000707c700010004 0000000000000005"),
    ("load of what cannot be set", "ffff001800002320000700070001d204 0000000000000005"),
    ("load that is too long", "ffff0020000023200007000700010004 0000000000000005 0000000000000000"),
    ("set-field of another length", "0019001080000402 0005000000000000"),
    ("set-field without a value", "0019000880000400"),
    ("set-field that is cut", "0019000800010004"),
    ("set-field with a value beyond its mask", "0019001000010108 00000005 00000004"),
    ("set-field of the port", "0019001080000004 0000000500000000"),
    ("set-field with padding", "0019001080000c02 1005000100000000"),
    ("long load of another length", "ffff00180000232000210000 0001000200050000 00000000"),
    (
        "learn of a field of another length",
        "ffff0030000023200010000000008000 0000000000000000 0000030000000000 \
         0020 00010002 0000 00010004 0000 0000",
    ),
    (
        "learn of a part that is cut",
        "ffff0028000023200010000000008000 0000000000000000 0000030000000000 \
         0020 00010002 0000",
    ),
    ("learn for all tables", "ffff0020000023200010000000008000 0000000000000000 0000ff0000000000"),
    (
        "learn with a result of another length",
        "ffff0030000023200 02d000000008000 0000000000000000 0004030000000000 \
         0000000000000000 00010002 00000000",
    ),
    (
        "multipath to a field of another length, of no algorithm",
        "ffff002000002320000a0001003200000009000b00000000 \
         00000007 00010002",
    ),
    (
        "bundle_load to a field of another length",
        "ffff002800002320000d000000010000 000000020001000f00010002 00000000 \
         0001000000000000",
    ),
    ("check_pkt_larger to a field of another length", "ffff00180000232000310064000000010002 000000000000"),
    ("check_pkt_larger of a bit that there is not", "ffff00180000232000310064002000010004 000000000000"),
    ("delete_field of no field", "ffff0018000023200032 00057e04 00000000000000000000"),
    ("ct in a zone of a field of another length", "ffff001800002320002300000001000200 0fff0000000000"),
    ("resubmit with padding", "ffff001000002320000efff803000001"),
    ("a tag that is too long", "0011001081000000 0000000000000000"),
    ("encap of half a property", "ffff001800002320002e0000 0001894f 0004020900000000"),
    ("packets in with a property that is cut", "ffff001800002320002500000000 0000 0000000c00000000"),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

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
        let mut request = bytes(hex);
        let length = request.len() as u16;
        request[2..4].copy_from_slice(&length.to_be_bytes());
        let [ours, stock] = both.directories().map(|dir| answers(dir, &request));
        if ours != stock {
            differ += &format!("{what}: ours {ours:02x?}, the stock switch's {stock:02x?}\n");
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

/// A flow-mod that adds a rule for all packets, with these actions.
fn flow_with(version: u8, actions: &[u8]) -> Vec<u8> {
    let mut flow = vec![version, 14, 0, 0, 0, 0, 0, 6];
    if version == 1 {
        flow.extend([0, 0x3f, 0xff, 0xff]);
        flow.extend([0; 36 + 8 + 6]);
        flow.extend([0x80, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0]);
    } else {
        flow.extend([0; 16 + 6]);
        flow.extend([0x80, 0]);
        flow.extend([0xff; 12]);
        flow.extend([0, 0, 0, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0, 4]);
        flow.extend((8 + actions.len() as u16).to_be_bytes());
        flow.extend([0; 4]);
    }
    flow.extend(actions);
    let length = flow.len() as u16;
    flow[2..4].copy_from_slice(&length.to_be_bytes());
    flow
}

#[test]
fn faults_of_actions_are_those_that_the_stock_switch_tells() {
    let both = Both::start();
    let mut differ = String::new();
    for version in [1, 4, 6] {
        for (what, hex) in ACTIONS {
            let request = flow_with(version, &bytes(hex));
            let [ours, stock] = both.directories().map(|dir| answers(dir, &request));
            if ours != stock {
                differ += &format!("{version}, {what}: ours {ours:02x?}, the stock switch's {stock:02x?}\n");
            }
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
