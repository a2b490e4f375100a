//! The table of errors. `N => form(type, code)` applies from OpenFlow 1.N on, until the next entry.

use super::ErrorVendor;

type Clause = (u8, Option<(ErrorVendor, u16, u16)>);

const fn std(error_type: u16, code: u16) -> Option<(ErrorVendor, u16, u16)> {
    Some((ErrorVendor::Standard, error_type, code))
}

const fn nx(error_type: u16, code: u16) -> Option<(ErrorVendor, u16, u16)> {
    Some((ErrorVendor::Nicira, error_type, code))
}

const fn onf(error_type: u16, code: u16) -> Option<(ErrorVendor, u16, u16)> {
    Some((ErrorVendor::Onf, error_type, code))
}

const fn none() -> Option<(ErrorVendor, u16, u16)> {
    None
}

macro_rules! errors {
    ($($name:ident: $($since:literal => $number:expr),*;)*) => {
        /// What is wrong with a message, named as the standard and the Nicira extensions do.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        #[allow(non_camel_case_types, missing_docs)] // The standard's names, found by searching for them.
        #[repr(u8)]
        pub enum ErrorKind { $($name,)* }

        impl ErrorKind {
            /// All of them.
            pub const ALL: &'static [ErrorKind] = &[$(ErrorKind::$name,)*];

            /// The name that `ovs-ofctl` prints.
            pub const fn name(self) -> &'static str {
                match self { $(ErrorKind::$name => stringify!($name),)* }
            }

            pub(super) const fn clauses(self) -> &'static [Clause] {
                match self { $(ErrorKind::$name => const { &[$(($since, $number)),*] },)* }
            }
        }
    };
}

errors! {
    NXBAC_BAD_CONJUNCTION: 0 => nx(2, 526), 2 => nx(15, 0);
    NXBAC_BAD_ED_PROP: 3 => nx(41, 0);
    NXBAC_BAD_HEADER_TYPE: 3 => nx(39, 0);
    NXBAC_CT_DATAPATH_SUPPORT: 0 => nx(1, 265), 2 => nx(42, 0);
    NXBAC_MUST_BE_ZERO: 0 => nx(2, 256), 2 => nx(11, 0);
    NXBAC_UNKNOWN_ED_PROP: 3 => nx(40, 0);
    NXBMC_CT_DATAPATH_SUPPORT: 0 => nx(1, 264), 2 => nx(43, 0);
    NXBRC_BAD_REASON: 0 => nx(1, 516), 2 => nx(5, 0);
    NXBRC_FM_BAD_EVENT: 0 => nx(1, 520), 2 => nx(9, 0);
    NXBRC_MUST_BE_ZERO: 0 => nx(1, 515), 2 => nx(4, 0);
    NXBRC_NXM_BAD_TYPE: 0 => nx(1, 257), 2 => nx(3, 0);
    NXBRC_NXM_INVALID: 0 => nx(1, 256), 2 => nx(2, 0);
    NXBRC_UNENCODABLE_ERROR: 0 => nx(1, 521), 2 => nx(10, 0);
    NXFMFC_BAD_TABLE_ID: 0 => nx(5, 257), 2 => nx(13, 0);
    NXFMFC_HARDWARE: 0 => nx(5, 256), 2 => nx(12, 0);
    NXFMFC_INVALID_TLV_FIELD: 0 => nx(1, 536), 2 => nx(37, 0);
    NXQOFC_QUEUE_ERROR: 4 => nx(23, 0);
    NXR_NOT_SUPPORTED: 0 => nx(1, 533), 2 => nx(34, 0);
    NXR_STALE: 0 => nx(1, 534), 2 => nx(35, 0);
    NXST_NOT_CONFIGURED: 0 => nx(1, 535), 2 => nx(36, 0);
    NXTFFC_DUP_TABLE: 3 => nx(44, 0);
    NXTTMFC_ALREADY_MAPPED: 0 => nx(1, 531), 2 => nx(20, 0);
    NXTTMFC_BAD_COMMAND: 0 => nx(1, 527), 2 => nx(16, 0);
    NXTTMFC_BAD_FIELD_IDX: 0 => nx(1, 529), 2 => nx(18, 0);
    NXTTMFC_BAD_OPT_LEN: 0 => nx(1, 528), 2 => nx(17, 0);
    NXTTMFC_DUP_ENTRY: 0 => nx(1, 532), 2 => nx(21, 0);
    NXTTMFC_INVALID_TLV_DEL: 0 => nx(1, 537), 2 => nx(38, 0);
    NXTTMFC_TABLE_FULL: 0 => nx(1, 530), 2 => nx(19, 0);
    OFPACFC_EPERM: 3 => onf(2372, 0), 4 => std(15, 2);
    OFPACFC_INVALID: 3 => onf(2370, 0), 4 => std(15, 0);
    OFPACFC_UNSUPPORTED: 3 => onf(2371, 0), 4 => std(15, 1);
    OFPBAC_BAD_ARGUMENT: 0 => std(2, 5);
    OFPBAC_BAD_LEN: 0 => std(2, 1);
    OFPBAC_BAD_METER: 5 => std(2, 17);
    OFPBAC_BAD_OUT_GROUP: 0 => nx(2, 9), 1 => std(2, 9);
    OFPBAC_BAD_OUT_PORT: 0 => std(2, 4);
    OFPBAC_BAD_QUEUE: 0 => std(2, 8);
    OFPBAC_BAD_SET_ARGUMENT: 0 => nx(1, 525), 2 => std(2, 15);
    OFPBAC_BAD_SET_LEN: 0 => nx(1, 524), 2 => std(2, 14);
    OFPBAC_BAD_SET_MASK: 3 => onf(4250, 0), 5 => std(2, 16);
    OFPBAC_BAD_SET_TYPE: 0 => nx(1, 523), 2 => std(2, 13);
    OFPBAC_BAD_TAG: 1 => std(2, 12);
    OFPBAC_BAD_TYPE: 0 => std(2, 0);
    OFPBAC_BAD_VENDOR: 0 => std(2, 2);
    OFPBAC_BAD_VENDOR_TYPE: 0 => std(2, 3);
    OFPBAC_EPERM: 0 => std(2, 6);
    OFPBAC_MATCH_INCONSISTENT: 0 => nx(1, 522), 1 => std(2, 10);
    OFPBAC_TOO_MANY: 0 => std(2, 7);
    OFPBAC_UNSUPPORTED_ORDER: 1 => std(2, 11);
    OFPBFC_BAD_FLAGS: 3 => onf(2307, 0), 4 => std(17, 7);
    OFPBFC_BAD_ID: 3 => onf(2302, 0), 4 => std(17, 2);
    OFPBFC_BAD_TYPE: 3 => onf(2306, 0), 4 => std(17, 6);
    OFPBFC_BAD_VERSION: 4 => nx(22, 0);
    OFPBFC_BUNDLE_CLOSED: 3 => onf(2304, 0), 4 => std(17, 4);
    OFPBFC_BUNDLE_EXIST: 3 => onf(2303, 0), 4 => std(17, 3);
    OFPBFC_BUNDLE_IN_PROGRESS: 3 => onf(2315, 0), 4 => std(17, 15);
    OFPBFC_EPERM: 3 => onf(2301, 0), 4 => std(17, 1);
    OFPBFC_MSG_BAD_LEN: 3 => onf(2308, 0), 4 => std(17, 8);
    OFPBFC_MSG_BAD_XID: 3 => onf(2309, 0), 4 => std(17, 9);
    OFPBFC_MSG_CONFLICT: 3 => onf(2311, 0), 4 => std(17, 11);
    OFPBFC_MSG_FAILED: 3 => onf(2313, 0), 4 => std(17, 13);
    OFPBFC_MSG_TOO_MANY: 3 => onf(2312, 0), 4 => std(17, 12);
    OFPBFC_MSG_UNSUP: 3 => onf(2310, 0), 4 => std(17, 10);
    OFPBFC_OUT_OF_BUNDLES: 3 => onf(2305, 0), 4 => std(17, 5);
    OFPBFC_SCHED_FUTURE: 5 => std(17, 17);
    OFPBFC_SCHED_NOT_SUPPORTED: 5 => std(17, 16);
    OFPBFC_SCHED_PAST: 5 => std(17, 18);
    OFPBFC_TIMEOUT: 3 => onf(2314, 0), 4 => std(17, 14);
    OFPBFC_UNKNOWN: 3 => onf(2300, 0), 4 => std(17, 0);
    OFPBIC_BAD_EXPERIMENTER: 1 => std(3, 5);
    OFPBIC_BAD_EXP_TYPE: 1 => std(3, 5), 2 => std(3, 6);
    OFPBIC_BAD_LEN: 2 => std(3, 7);
    OFPBIC_BAD_TABLE_ID: 1 => std(3, 2);
    OFPBIC_DUP_INST: 1 => nx(3, 256), 2 => onf(2600, 0), 4 => std(3, 9);
    OFPBIC_EPERM: 2 => std(3, 8);
    OFPBIC_UNKNOWN_INST: 1 => std(3, 0);
    OFPBIC_UNSUP_INST: 0 => nx(2, 257), 1 => std(3, 1);
    OFPBIC_UNSUP_METADATA: 1 => std(3, 3);
    OFPBIC_UNSUP_METADATA_MASK: 1 => std(3, 4);
    OFPBMC_BAD_DL_ADDR_MASK: 1 => std(4, 3);
    OFPBMC_BAD_FIELD: 0 => nx(0, 263), 1 => std(4, 6);
    OFPBMC_BAD_LEN: 1 => std(4, 1);
    OFPBMC_BAD_MASK: 0 => nx(1, 259), 2 => std(4, 8);
    OFPBMC_BAD_NW_ADDR_MASK: 1 => std(4, 4);
    OFPBMC_BAD_PREREQ: 0 => nx(1, 260), 2 => std(4, 9);
    OFPBMC_BAD_TAG: 1 => std(4, 2);
    OFPBMC_BAD_TYPE: 1 => std(4, 0);
    OFPBMC_BAD_VALUE: 0 => nx(1, 258), 1 => std(4, 7);
    OFPBMC_BAD_WILDCARDS: 0 => nx(1, 262), 1 => std(4, 5);
    OFPBMC_DUP_FIELD: 0 => nx(1, 261), 2 => std(4, 10);
    OFPBMC_EPERM: 2 => std(4, 11);
    OFPBPC_BAD_EXPERIMENTER: 0 => nx(14, 5), 2 => nx(30, 0), 3 => onf(4445, 0), 4 => std(14, 5);
    OFPBPC_BAD_EXP_TYPE: 0 => nx(14, 6), 2 => nx(31, 0), 3 => onf(4446, 0), 4 => std(14, 6);
    OFPBPC_BAD_EXP_VALUE: 0 => nx(14, 7), 2 => nx(32, 0), 3 => onf(4447, 0), 4 => std(14, 7);
    OFPBPC_BAD_LEN: 0 => nx(13, 3), 2 => nx(26, 0), 3 => std(13, 3), 4 => std(14, 1);
    OFPBPC_BAD_TYPE: 0 => nx(13, 2), 2 => nx(25, 0), 3 => std(13, 2), 4 => std(14, 0);
    OFPBPC_BAD_VALUE: 0 => nx(13, 4), 2 => nx(27, 0), 3 => std(13, 4), 4 => std(14, 2);
    OFPBPC_DUP_TYPE: 0 => nx(14, 4), 2 => nx(29, 0), 3 => onf(4444, 0), 4 => std(14, 4);
    OFPBPC_EPERM: 0 => nx(14, 8), 2 => nx(33, 0), 3 => onf(4448, 0), 4 => std(14, 8);
    OFPBPC_TOO_MANY: 0 => nx(14, 3), 2 => nx(28, 0), 3 => onf(4443, 0), 4 => std(14, 3);
    OFPBRC_BAD_LEN: 0 => std(1, 6);
    OFPBRC_BAD_PACKET: 2 => std(1, 12);
    OFPBRC_BAD_PORT: 0 => nx(1, 514), 2 => std(1, 11);
    OFPBRC_BAD_STAT: 0 => std(1, 2);
    OFPBRC_BAD_SUBTYPE: 0 => std(1, 4);
    OFPBRC_BAD_TABLE_ID: 0 => nx(1, 512), 1 => std(1, 9);
    OFPBRC_BAD_TYPE: 0 => std(1, 1);
    OFPBRC_BAD_VENDOR: 0 => std(1, 3);
    OFPBRC_BAD_VERSION: 0 => std(1, 0);
    OFPBRC_BUFFER_EMPTY: 0 => std(1, 7);
    OFPBRC_BUFFER_UNKNOWN: 0 => std(1, 8);
    OFPBRC_EPERM: 0 => std(1, 5);
    OFPBRC_IS_SECONDARY: 0 => std(1, 5), 2 => std(1, 10);
    OFPBRC_MULTIPART_BAD_SCHED: 5 => std(1, 16);
    OFPBRC_MULTIPART_BUFFER_OVERFLOW: 3 => std(1, 13);
    OFPBRC_MULTIPART_REPLY_TIMEOUT: 3 => onf(2641, 0), 4 => std(1, 15);
    OFPBRC_MULTIPART_REQUEST_TIMEOUT: 3 => onf(2640, 0), 4 => std(1, 14);
    OFPBRC_PIPELINE_FIELDS_ONLY: 5 => std(1, 17);
    OFPBRC_UNKNOWN: 5 => std(1, 18);
    OFPFMFC_BAD_COMMAND: 0 => std(3, 4), 1 => std(5, 6);
    OFPFMFC_BAD_EMERG_TIMEOUT: 0 => std(3, 3), 1 => none();
    OFPFMFC_BAD_FLAGS: 0 => nx(3, 258), 1 => nx(5, 258), 2 => std(5, 7);
    OFPFMFC_BAD_PRIORITY: 3 => onf(2360, 0), 4 => std(5, 9);
    OFPFMFC_BAD_TABLE_ID: 1 => std(5, 2);
    OFPFMFC_BAD_TIMEOUT: 1 => std(5, 5);
    OFPFMFC_CANT_SYNC: 4 => std(5, 8);
    OFPFMFC_EPERM: 0 => std(3, 2), 1 => std(5, 4);
    OFPFMFC_IS_SYNC: 4 => std(5, 10);
    OFPFMFC_OVERLAP: 0 => std(3, 1), 1 => std(5, 3);
    OFPFMFC_TABLE_FULL: 0 => std(3, 0), 1 => std(5, 1);
    OFPFMFC_UNKNOWN: 1 => std(5, 0);
    OFPFMFC_UNSUPPORTED: 0 => std(3, 5), 1 => none();
    OFPGMFC_BAD_BUCKET: 0 => nx(6, 12), 1 => none(), 2 => std(6, 12);
    OFPGMFC_BAD_COMMAND: 0 => nx(6, 11), 1 => none(), 2 => std(6, 11);
    OFPGMFC_BAD_TYPE: 0 => nx(6, 10), 1 => none(), 2 => std(6, 10);
    OFPGMFC_BAD_WATCH: 0 => nx(6, 13), 1 => none(), 2 => std(6, 13);
    OFPGMFC_BUCKET_EXISTS: 0 => nx(6, 16), 1 => none(), 5 => std(6, 16);
    OFPGMFC_CHAINED_GROUP: 0 => nx(6, 9), 1 => none(), 2 => std(6, 9);
    OFPGMFC_CHAINING_UNSUPPORTED: 0 => nx(6, 5), 1 => std(6, 5);
    OFPGMFC_EPERM: 0 => nx(6, 14), 1 => none(), 2 => std(6, 14);
    OFPGMFC_GROUP_EXISTS: 0 => nx(6, 0), 1 => std(6, 0);
    OFPGMFC_INVALID_GROUP: 0 => nx(6, 1), 1 => std(6, 1);
    OFPGMFC_LOOP: 0 => nx(6, 7), 1 => std(6, 7);
    OFPGMFC_OUT_OF_BUCKETS: 0 => nx(6, 4), 1 => std(6, 4);
    OFPGMFC_OUT_OF_GROUPS: 0 => nx(6, 3), 1 => std(6, 3);
    OFPGMFC_UNKNOWN_BUCKET: 0 => nx(6, 15), 1 => none(), 5 => std(6, 15);
    OFPGMFC_UNKNOWN_GROUP: 0 => nx(6, 8), 1 => std(6, 8);
    OFPGMFC_WATCH_UNSUPPORTED: 0 => nx(6, 6), 1 => std(6, 6);
    OFPGMFC_WEIGHT_UNSUPPORTED: 0 => nx(6, 2), 1 => std(6, 2);
    OFPHFC_EPERM: 0 => std(0, 1);
    OFPHFC_INCOMPATIBLE: 0 => std(0, 0);
    OFPMMFC_BAD_BAND: 3 => std(12, 8);
    OFPMMFC_BAD_BAND_VALUE: 3 => std(12, 9);
    OFPMMFC_BAD_BURST: 3 => std(12, 7);
    OFPMMFC_BAD_COMMAND: 3 => std(12, 4);
    OFPMMFC_BAD_FLAGS: 3 => std(12, 5);
    OFPMMFC_BAD_RATE: 3 => std(12, 6);
    OFPMMFC_INVALID_METER: 3 => std(12, 2);
    OFPMMFC_METER_EXISTS: 3 => std(12, 1);
    OFPMMFC_OUT_OF_BANDS: 3 => std(12, 11);
    OFPMMFC_OUT_OF_METERS: 3 => std(12, 10);
    OFPMMFC_UNKNOWN: 3 => std(12, 0);
    OFPMMFC_UNKNOWN_METER: 3 => std(12, 3);
    OFPMOFC_BAD_COMMAND: 4 => std(16, 4);
    OFPMOFC_BAD_FLAGS: 0 => nx(1, 518), 2 => nx(7, 0), 4 => std(16, 5);
    OFPMOFC_BAD_OUT: 4 => std(16, 7);
    OFPMOFC_BAD_TABLE_ID: 4 => std(16, 6);
    OFPMOFC_INVALID_MONITOR: 4 => std(16, 2);
    OFPMOFC_MONITOR_EXISTS: 0 => nx(1, 517), 2 => nx(6, 0), 4 => std(16, 1);
    OFPMOFC_UNKNOWN: 4 => std(16, 0);
    OFPMOFC_UNKNOWN_MONITOR: 0 => nx(1, 519), 2 => nx(8, 0), 4 => std(16, 3);
    OFPPMFC_BAD_ADVERTISE: 1 => std(7, 3);
    OFPPMFC_BAD_CONFIG: 1 => std(7, 2);
    OFPPMFC_BAD_HW_ADDR: 0 => std(4, 1), 1 => std(7, 1);
    OFPPMFC_BAD_PORT: 0 => std(4, 0), 1 => std(7, 0);
    OFPPMFC_EPERM: 2 => std(7, 4);
    OFPQOFC_BAD_PORT: 0 => std(5, 0), 1 => std(9, 0);
    OFPQOFC_BAD_QUEUE: 0 => std(5, 1), 1 => std(9, 1);
    OFPQOFC_EPERM: 0 => std(5, 2), 1 => std(9, 2);
    OFPRRFC_BAD_ROLE: 0 => nx(1, 513), 2 => std(11, 2);
    OFPRRFC_ID_IN_USE: 5 => std(11, 4);
    OFPRRFC_ID_UNSUP: 5 => std(11, 3);
    OFPRRFC_STALE: 2 => std(11, 0);
    OFPRRFC_UNSUP: 2 => std(11, 1);
    OFPSCFC_BAD_FLAGS: 1 => std(10, 0);
    OFPSCFC_BAD_LEN: 1 => std(10, 1);
    OFPSCFC_EPERM: 2 => std(10, 2);
    OFPTFFC_BAD_CAPA: 5 => std(13, 6);
    OFPTFFC_BAD_COMMAND: 5 => std(13, 9);
    OFPTFFC_BAD_FEATURES: 5 => std(13, 8);
    OFPTFFC_BAD_MAX_ENT: 5 => std(13, 7);
    OFPTFFC_BAD_METADATA: 3 => std(13, 1);
    OFPTFFC_BAD_TABLE: 3 => std(13, 0);
    OFPTFFC_EPERM: 3 => std(13, 5);
    OFPTFFC_TOO_MANY: 5 => std(13, 10);
    OFPTMFC_BAD_CONFIG: 1 => std(8, 1);
    OFPTMFC_BAD_TABLE: 1 => std(8, 0);
    OFPTMFC_EPERM: 2 => std(8, 2);
}
