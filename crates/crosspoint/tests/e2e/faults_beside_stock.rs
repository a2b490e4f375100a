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
    ("half a property of a bundle of 1.3", "0404001c00000002 4f4e4600000008fc 0000000200000003 00000000"),
    ("half a property of connections", "0204001c00000002 0000232000000020 1102000000000000 d7d7d7d7"),
    (
        "a flow of a length that is not a multiple of 8, of an unknown match",
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
        "a packet whose actions are not whole words",
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
        "a meter that there is not, by 1.2",
        "030e004000000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0006000800000009",
    ),
    (
        "a meter of 16 bytes, by 1.2",
        "030e004800000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0006001000000009 0000000000000000",
    ),
    (
        "a meter of 16 bytes, by 1.5, which has it as an action alone",
        "060e004800000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0006001000000009 0000000000000000",
    ),
    (
        "the first kind of NSH metadata that there is not",
        "040e004800000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001001380000a02 894fffff0405005a d650000000000000",
    ),
    (
        "and the last",
        "040e004800000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001001380000a02 894fffff0405005a d650030000000000",
    ),
    (
        "a band and a number of a meter that there cannot be",
        "041d0020000000050000000100000000 0009001000000001 0000000000000000",
    ),
    ("messages that an experimenter has", "051c001800000005 fffe000c00000007 0000000100000000"),
    ("messages with a reason too many", "051c001000000005 0000000800000040"),
    ("packets in with a reason of 1.4 by 1.3", "0404001800000005 000023200000001b 0000000800000020"),
    ("a vacancy of a table", "051100180000000503000000 0000000800030008145a0a00"),
    (
        "a clause beside another action, and a meter that cannot be",
        "040e006800000006000000000000000000000000000000000000000000000064ffffffffffffffffffffffff000000000001\
         0010 0001d30800000002000000ff 0006000800000000 0004002000000000 0012000800000000\
         ffff0010000023200022010300000005",
    ),
    (
        "a packet from no port, with a clause beside another action",
        "040d003800000002fffffffffffffffa 0018000000000000 ffff0010000023200022010300000005 000f000805000000",
    ),
    (
        "a group with a clause beside another action, and a group that there is not",
        "040f004000000002 00000000 00000004 00300000ffffffffffffffff00000000 0016000800000009\
         ffff0010000023200022000300000005 001500080000000a",
    ),
    (
        "a mark set outside of ct, and an unknown type of group",
        "060f003800000002 00010900fffffffc 00200000ffffffff 0020001000000003 001900100001d60400000001000000000001\
         000800000002",
    ),
    (
        "a mark set outside of ct, and an instruction",
        "040f003800000002 00000000 00000009 00400000ffffffffffffffff00000000 001900100001d6040000000100000000\
         ffff0020000023200016000000000000 0000000000000005ffffffffffffffff",
    ),
    (
        "a translation outside of ct, in clone",
        "050d003800000002ffffffff00000001 0020000000000000\
         ffff0020000023200 02a000000000000 ffff0010000023200024000000000000",
    ),
    (
        "a property of optical ports",
        "06100028000000020000000100000000aa55aa55000100000000004000000040 0001000800000000",
    ),
    (
        "an experimenter's property of ports",
        "05100030000000020000000100000000aa55aa55000100000000004000000040 ffff000c00002320 0000000100000000",
    ),
    (
        "NXT_FLOW_MOD by 1.5, with actions in the place of instructions",
        "0604005800000002000023200000000d 0000000000000000 0000000000000064ffffffffffff0000 0000000000000000\
         ffff0018000023200007001f0001000400000000 00000005",
    ),
    ("a queue of all ports by 1.5", "06120018000000020005000000000000fffffffc00000000"),
    ("a queue of all ports by 1.0", "0110001400000002 00050000 fffc0000ffffffff"),
    (
        "a change of no flow, with an action for another packet",
        "040e006000000002 00000000000000000000000000000000 0001000000008000 ffffffffffffffffffffffff 00000000\
         0001000a80000a0286dd000000000000 0004001800000000 0019001080004404 0000006400000000",
    ),
    (
        "a deletion, with an action for another packet",
        "040e006000000002 00000000000000000000000000000000 0003000000008000 ffffffffffffffffffffffff 00000000\
         0001000a80000a0286dd000000000000 0004001800000000 0019001080004404 0000006400000000",
    ),
    (
        "an instruction among the actions to write, and unknown flags",
        "040e006000000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00200000\
         0001000400000000 0003002800000000 ffff002000002320001600000000000000000000000000 00ffffffffffffffff",
    ),
    (
        "a buffered packet, and an action for another one",
        "040e005800000002 00000000000000000000000000000000 0000000000000064 00000005ffffffffffffffff 00000000\
         0001000400000000 0004001800000000 0019001080004404 0000006400000000",
    ),
    (
        "the table that cannot be changed, and an action for another packet",
        "040e005800000002 00000000000000000000000000000000 fe00000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0004001800000000 0019001080004404 0000006400000000",
    ),
    (
        "a group that there is not, and an action for another packet",
        "040e006000000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0004002000000000 0016000800000009 0019001080004404 0000006400000000",
    ),
    (
        "an action for another packet, and a table before this one",
        "040e006000000002 00000000000000000000000000000000 0500000000000064 ffffffffffffffffffffffff 00000000\
         0001000400000000 0004001800000000 0019001080004404 0000006400000000 0001000801000000",
    ),
    (
        "a packet in a bundle, with an action for another one",
        "06220060000000020000000100000003 060d005000000002ffffffff 00080000 0001000c80000004 0000000100000000\
         0014000808000000 ffffffffffff50540000000708060001080006040001505400000007 0a000001 000000000000 0a000002",
    ),
    (
        "a flow in a bundle, with an action for another packet",
        "05220060000000020000000100000003 050e005000000002 00000000000000000000000000000000 0000000000000064\
         ffffffffffffffffffffffff 00000000 0001000400000000 0004001800000000 0019001080004404 0000006400000000",
    ),
    (
        "fields that accompany no packet, one of them twice",
        "060d004000000002ffffffff00000000 0001002480000004 00000001 80000a020800 80000a020800 800008040 0000001\
         00000000 00000000",
    ),
    (
        "a deletion from all tables, with a table to go to",
        "040e004000000002 00000000000000000000000000000000 ff03000000008000 ffffffffffffffffffffffff 00000000\
         0001000400000000 0001000800000000",
    ),
    (
        "NXT_FLOW_MOD by 1.1 that deletes from all tables",
        "0204003800000002 000023200000000d 0000000000000000 0003000000008000 ffffffffffff0000 0000000000000000",
    ),
    (
        "a deletion with the meter of no number",
        "040e004000000002 00000000000000000000000000000000 0003000000008000 ffffffffffffffffffffffff 00000000\
         0001000400000000 0006000800000000",
    ),
    (
        "NXT_FLOW_MOD by 1.5 without a table",
        "0604004000000002000023200000000d 0000000000000000 0001000000000064ffffffffffff0000 0000000000000000",
    ),
    (
        "a bundle that loads what is not a field, by an unknown algorithm",
        "040e006000000002000000000000000000000000000000000000000000000005ffffffffffffffffffffffff00000000\
         00010004000000000004002800000000ffff002000002320000d00090000000000000000000000000000000000000000",
    ),
    (
        "a field of no maskable bits, some of them masked",
        "040e004000000002000000000000000000000000000000000000000000000005ffffffffffffffffffffffff00000000\
         0001001080000a02080000000b0200fc",
    ),
    (
        "flags of a tunnel, with other bits masked than there are",
        "040e004000000002000000000000000000000000000000000000000000000005ffffffffffffffffffffffff00000000\
         0001000c0001d1040000fffe00000000",
    ),
    ("a packet to resume that is none", "0404001000000002000023200000001c"),
    ("a flow monitor that is cut short", "0412002000000002ffff00000000000000002320000000020000000000000000"),
    ("a packet-out without a match", "060d0010000000020000000000000000"),
    ("a packet-out with a match of length 0", "060d00180000000200000000000000000000000000000000"),
    (
        "a flow with a match of an unknown type and of length 0",
        "040e003800000002000000000000000000000000000000000000000000000005ffffffffffffffffffffffff00000000\
         0007000000000000",
    ),
];

/// Requests after each other, of which the first ones decide what becomes of the last.
const SEQUENCES: &[(&str, &[&str])] = &[
    (
        "a message for a closed bundle ends the bundle",
        &[
            "0521001000000001 0000000100000003",
            "0521001000000002 0000000100020003",
            "0522002000000003 0000000100000003 050f001000000003 0001010000000001",
            "0521001000000004 0000000100000003",
        ],
    ),
    (
        "a message with other flags ends its bundle",
        &[
            "0404001800000001 4f4e4600000008fc 0000000100000003",
            "0404002800000002 4f4e4600000008fd 0000000100000002 040f001000000002 0001010000000001",
            "0404001800000003 4f4e4600000008fc 0000000100000003",
        ],
    ),
    (
        "reasons of 1.4 in the form of the first extension",
        &[
            "0504002800000001 0000232000000013 000000ff00000007 0000000100000001 00000000000000ff",
            "051a000800000002",
        ],
    ),
    (
        "reasons that 1.3 does not have",
        &[
            "0404002800000001 0000232000000013 000000ff00000007 0000000100000001 00000000000000ff",
            "041a000800000002",
        ],
    ),
    (
        "invalid TTLs by the choice of messages",
        &[
            "0304002800000001 0000232000000013 000000ff00000007 0000000100000001 00000000000000ff",
            "0307000800000002",
            "0309000c00000003 00000080",
            "0307000800000004",
            "0309000c00000005 00040080",
            "0307000800000006",
        ],
    ),
    (
        "a change by 1.1 adds what there is not, unless its cookie is all ones",
        &[
            "020e008800000002ffffffffffffffff00000000000000000101000000000005ffffffffffffffffffffffff00000000\
             0000005800000000000003ff000000000000ffffffffffff000000000000ffffffffffff000000000000000000000000\
             ffffffff00000000ffffffff0000000000000000000000000000000000000000ffffffffffffffff",
            "0212008800000003000200000000000001000000ffffffffffffffff0000000000000000000000000000000000000000\
             0000005800000000000003ff000000000000ffffffffffff000000000000ffffffffffff000000000000000000000000\
             ffffffff00000000ffffffff0000000000000000000000000000000000000000ffffffffffffffff",
            "020e008800000002000000000000000700000000000000000101000000000005ffffffffffffffffffffffff00000000\
             0000005800000000000003ff000000000000ffffffffffff000000000000ffffffffffff000000000000000000000000\
             ffffffff00000000ffffffff0000000000000000000000000000000000000000ffffffffffffffff",
            "0212008800000003000200000000000001000000ffffffffffffffff0000000000000000000000000000000000000000\
             0000005800000000000003ff000000000000ffffffffffff000000000000ffffffffffff000000000000000000000000\
             ffffffff00000000ffffffff0000000000000000000000000000000000000000ffffffffffffffff",
            "020e008800000002000000000000000000000000000000000103000000000005ffffffffffffffffffffffff00000000\
             0000005800000000000003ff000000000000ffffffffffff000000000000ffffffffffff000000000000000000000000\
             ffffffff00000000ffffffff0000000000000000000000000000000000000000ffffffffffffffff",
        ],
    ),
];

/// The same of a controller that only watches: its role's, unless the type's or the length is wrong.
const OF_A_SECONDARY: &[(&str, &str)] = &[
    (
        "an unknown action",
        "040e005800000002 00000000000000000000000000000000 0000000000000064 ffffffffffffffffffff\
         ffff 00000000 0001000400000000 0004001800000000 00fe001080004404 0000006400000000",
    ),
    ("a bundle that there is not", "0521001000000002 0000000200060003"),
    (
        "actions beyond the end",
        "040d002800000002 ffffffff 00000002 0030 000000000000 0000001000000001 0000000000000000",
    ),
    ("a message that no bundle takes", "0522002000000002 0000000100000003 05160010000000020000000100000000"),
    (
        "a message that no bundle of 1.3 takes",
        "04040028000000024f4e4600000008fd 0000000100000003 041600100000000200000001\
         00000000",
    ),
    ("an unknown type of group", "040f001000000002 0000090000000001"),
    ("a group that is cut", "040f000c00000002 00000900"),
    (
        "a property of optical ports",
        "06100028000000020000000100000000aa55aa55000100000000004000000040 0001000800000000",
    ),
    ("an unknown extension", "0404001000000002 0000232000000063"),
    ("an option of no length", "0404002000000002 0000232000000018 0000000000000000 ffff020300010000"),
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
    ("output of what is truncated to many ports", "ffff0010000023200027fffb00000064"),
    ("output of what is truncated to a port that there cannot be", "ffff0010000023200027ff0000000064"),
    ("packets in with a property that is cut", "ffff001800002320002500000000 0000 0000000c00000000"),
];

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

/// What a switch answers a request with: type and body of each message, the echo of the request left out.
fn answers(dir: &Path, request: &[u8]) -> Vec<(u8, Vec<u8>)> {
    answers_to(dir, &[request.to_vec()], false)
}

/// The same for requests of one connection. `whole`: with the bodies of answers that are no errors.
fn answers_to(dir: &Path, requests: &[Vec<u8>], whole: bool) -> Vec<(u8, Vec<u8>)> {
    let version = requests[0][0];
    let mut stream = UnixStream::connect(dir.join("br0.mgmt")).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[version, 0, 0, 8, 0, 0, 0, 1]).unwrap();
    requests.iter().for_each(|request| stream.write_all(request).unwrap());
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
            kind if whole => answers.push((kind, body)),
            kind => answers.push((kind, Vec::new())),
        }
    }
}

/// A request of its true length.
fn request(hex: &str) -> Vec<u8> {
    let mut request = bytes(hex);
    let length = request.len() as u16;
    request[2..4].copy_from_slice(&length.to_be_bytes());
    request
}

#[test]
fn of_several_faults_the_one_is_told_that_the_stock_switch_tells() {
    let both = Both::start();
    let mut differ = String::new();
    for (what, hex) in REQUESTS {
        let request = request(hex);
        let [ours, stock] = both.directories().map(|dir| answers(dir, &request));
        if ours != stock {
            differ += &format!("{what}: ours {ours:02x?}, the stock switch's {stock:02x?}\n");
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn a_secondary_is_told_of_its_role_before_the_faults_of_its_requests() {
    let both = Both::start();
    let mut differ = String::new();
    for (what, hex) in OF_A_SECONDARY {
        let request = request(hex);
        let role = [&[request[0]][..], &bytes("18001800000003 00000003 00000000 0000000000000001")].concat();
        let [ours, stock] =
            both.directories().map(|dir| answers_to(dir, &[role.clone(), request.clone()], false));
        if ours != stock || ours.len() != 2 {
            differ += &format!("{what}: ours {ours:02x?}, the stock switch's {stock:02x?}\n");
        }
    }
    assert!(differ.is_empty(), "{differ}");
}

#[test]
fn sequences_of_requests_are_answered_as_by_the_stock_switch() {
    let both = Both::start();
    let mut differ = String::new();
    for (what, all) in SEQUENCES {
        let requests: Vec<_> = all.iter().map(|hex| request(hex)).collect();
        let [ours, stock] = both.directories().map(|dir| answers_to(dir, &requests, true));
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
