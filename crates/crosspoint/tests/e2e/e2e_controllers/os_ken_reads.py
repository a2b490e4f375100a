"""Asks a switch everything that os-ken can ask in a version, provokes what a switch says unasked, and prints what
os-ken reads: os_ken_reads.py SOCKET VERSION, where SOCKET is a bridge's and VERSION the number on the wire.
"""

import json
import socket
import struct
import sys
import time

from os_ken.ofproto import ofproto_parser, ofproto_protocol

# Importing one makes its version known to os-ken.
from os_ken.ofproto import ofproto_v1_0_parser, ofproto_v1_2_parser, ofproto_v1_3_parser  # noqa: F401
from os_ken.ofproto import ofproto_v1_4_parser, ofproto_v1_5_parser  # noqa: F401

V10, V12, V13, V14, V15 = 1, 3, 4, 5, 6
# What differs by time, or by what each switch is.
LEFT_OUT = {"duration_sec", "duration_nsec", "xid", "hw_desc", "mfr_desc", "sw_desc", "max_meter", "band_types"}
FRAME = bytes.fromhex("0200000000020200000000010800") + bytes.fromhex(
    "4500002e00010000401166bb0a0000010a00000203e80035001a0000") + bytes(18)


class Connection:
    def __init__(self, path, version):
        self.datapath = ofproto_protocol.ProtocolDesc(version=version)
        self.version = version
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.socket.settimeout(10)
        self.bytes = b""
        self.socket.sendall(struct.pack("!BBHI", version, 0, 8, 1))
        self.next()

    def next(self):
        while True:
            if len(self.bytes) >= 8:
                length = struct.unpack("!H", self.bytes[2:4])[0]
                if len(self.bytes) >= length:
                    message, self.bytes = self.bytes[:length], self.bytes[length:]
                    return message
            more = self.socket.recv(65536)
            if not more:
                raise EOFError
            self.bytes += more

    def send(self, message):
        message.set_xid(5)
        message.serialize()
        self.socket.sendall(bytes(message.buf))

    def heard(self, most=50):
        """What comes until the answer to a barrier, as os-ken reads it."""
        request, reply = (18, 19) if self.version == V10 else (20, 21)
        self.socket.sendall(struct.pack("!BBHI", self.version, request, 8, 99))
        read = []
        while True:
            message = self.next()
            if message[1] == reply and message[4:8] == b"\0\0\0c":
                return read
            if len(read) < most:
                read.append(self.read(message))

    def told(self):
        """What the switch says when it likes."""
        until = time.monotonic() + 20
        while not (read := self.heard()) and time.monotonic() < until:
            time.sleep(0.02)
        return read

    def read(self, message):
        version, kind, length, xid = struct.unpack("!BBHI", message[:8])
        parsed = ofproto_parser.msg(self.datapath, version, kind, length, xid, message)
        if parsed is None:
            return f"unread: {message.hex()}"
        return json.dumps(plain(parsed.to_jsondict()), sort_keys=True, indent=1)


def plain(value):
    """Without what may differ, and entries of statistics by their text, each once."""
    if isinstance(value, list):
        return [plain(v) for v in value]
    if not isinstance(value, dict):
        return value
    value = {k: plain(v) for k, v in value.items() if k not in LEFT_OUT}
    if value.get("field") in ("duration", "idle_time"):
        del value["value"]
    # Each switch has its own way to make up addresses of dummies.
    if value.get("hw_addr", "").startswith("aa:55:"):
        value["hw_addr"] = "a dummy's"
    for key in ("body", "stats", "properties", "oxm_ids"):
        if isinstance(value.get(key), list):
            entries = value[key]
            if entries and "OFPTableFeaturesStats" in entries[0]:
                del entries[1:]
            # A number and a name tell most tables from each other.
            for table in (e[k] for e in entries for k in e if k == "OFPTableStats"):
                if table["table_id"] > 9:
                    table["table_id"] = table["name"] = "N"
            texts = {json.dumps(e, sort_keys=True) for e in entries}
            value[key] = [json.loads(text) for text in sorted(texts)]
    return value


def requests(c):
    """By name, all that can be asked. Versions differ in arguments: 1.2 has no flags."""
    P, O, v = c.datapath.ofproto_parser, c.datapath.ofproto, c.version

    def stats(name, *args):
        return lambda: getattr(P, f"OFP{name}StatsRequest")(c.datapath, *([] if v == V12 else [0]), *args)

    everything = P.OFPMatch()
    yield "echo", lambda: P.OFPEchoRequest(c.datapath, b"abc")
    yield "features", lambda: P.OFPFeaturesRequest(c.datapath)
    yield "config", lambda: P.OFPGetConfigRequest(c.datapath)
    yield "description", stats("Desc")
    yield "tables", stats("Table")
    if v == V10:
        yield "flows", stats("Flow", everything, 0xFF, O.OFPP_NONE)
        yield "aggregate", stats("Aggregate", everything, 0xFF, O.OFPP_NONE)
        yield "ports", stats("Port", O.OFPP_NONE)
        yield "queues", stats("Queue", O.OFPP_ALL, O.OFPQ_ALL)
        yield "queue config", lambda: P.OFPQueueGetConfigRequest(c.datapath, 1)
        return
    selection = O.OFPTT_ALL, O.OFPP_ANY, O.OFPG_ANY, 0, 0, everything
    yield "flows", stats("Flow", *selection)
    yield "aggregate", stats("Aggregate", *selection)
    yield "ports", stats("Port", O.OFPP_ANY)
    yield "queues", stats("Queue", O.OFPP_ANY, O.OFPQ_ALL)
    yield "groups", stats("Group", O.OFPG_ALL)
    yield "group features", stats("GroupFeatures")
    if v < V15:
        yield "group descriptions", stats("GroupDesc")
    role = O.OFPCR_ROLE_NOCHANGE, 0
    yield "role", lambda: P.OFPRoleRequest(c.datapath, *role, *([0] if v == V15 else []))
    if v < V14:
        yield "queue config", lambda: P.OFPQueueGetConfigRequest(c.datapath, 1)
    if v >= V13:
        yield "meters", stats("Meter", O.OFPM_ALL)
        # Of 1.5 os-ken expects eight bytes more than Open vSwitch sends.
        if v < V15:
            yield "meter features", stats("MeterFeatures")
        yield "meter configurations", stats("MeterConfig" if v < V15 else "MeterDesc", O.OFPM_ALL)
        yield "port descriptions", stats("PortDesc", *([O.OFPP_ANY] if v == V15 else []))
        yield "table features", stats("TableFeatures")
        yield "asynchronous configuration", lambda: P.OFPGetAsyncRequest(c.datapath)
    if v >= V14:
        yield "table descriptions", stats("TableDesc")
        yield "queue descriptions", stats("QueueDesc", O.OFPP_ANY, O.OFPQ_ALL)
    if v == V15:
        yield "flow descriptions", stats("FlowDesc", *selection)


def flow_mod(c, command, **more):
    P, O = c.datapath.ofproto_parser, c.datapath.ofproto
    match = P.OFPMatch(in_port=3)
    if c.version == V10:
        return P.OFPFlowMod(c.datapath, match, 7, command, priority=9, out_port=O.OFPP_NONE, **more)
    return P.OFPFlowMod(c.datapath, cookie=7, table_id=0, command=command, priority=9, match=match, instructions=[],
                        out_port=O.OFPP_ANY, out_group=O.OFPG_ANY, **more)


def provoked(c, path):
    """By name, what makes the switch say something unasked, and who hears it."""
    P, O, v = c.datapath.ofproto_parser, c.datapath.ofproto, c.version
    c.send(P.OFPSetConfig(c.datapath, 0, 40))
    to_controller = [P.OFPActionOutput(O.OFPP_CONTROLLER, 50)]
    source = {"match": P.OFPMatch(in_port=2)} if v == V15 else {"in_port": 2}
    c.send(P.OFPPacketOut(c.datapath, buffer_id=0xFFFFFFFF, actions=to_controller, data=FRAME, **source))
    yield "packet-in", c
    c.send(flow_mod(c, O.OFPFC_ADD, idle_timeout=300, hard_timeout=400, flags=O.OFPFF_SEND_FLOW_REM))
    c.send(flow_mod(c, O.OFPFC_DELETE))
    yield "flow-removed", c
    if v == V10:
        c.send(P.OFPPortMod(c.datapath, 3, "02:00:00:00:00:33", O.OFPPC_NO_FLOOD, O.OFPPC_NO_FLOOD, 0))
        yield "error", c
    if v > V10:
        c.send(P.OFPExperimenter(c.datapath, 0x12345678, 9, b""))
    else:
        vendor = P.OFPVendor(c.datapath)
        vendor.vendor, vendor.data = 0x12345678, b""
        c.send(vendor)
    yield "experimenter", c
    c.send(flow_mod(c, 77))
    yield "bad command", c
    if v < V13:
        return
    yield from changed_by_bundles(c)
    other = Connection(path, v)
    if v >= V14:
        forward = {"properties": [P.OFPAsyncConfigPropReasons(kind, 16, 3) for kind in (
            O.OFPACPT_REQUESTFORWARD_SLAVE, O.OFPACPT_REQUESTFORWARD_MASTER,
            O.OFPACPT_ROLE_STATUS_SLAVE, O.OFPACPT_ROLE_STATUS_MASTER)]}
        forward["properties"].append(P.OFPAsyncConfigPropReasons(O.OFPACPT_TABLE_STATUS_MASTER, 16, 24))
        c.send(P.OFPSetAsync(c.datapath, **forward))
        c.heard()
        bucket = [P.OFPBucket(actions=[P.OFPActionOutput(2)])] if v == V14 else []
        other.send(P.OFPGroupMod(other.datapath, O.OFPGC_ADD, O.OFPGT_ALL, 90 + v, buckets=bucket))
        other.heard()
        yield "forwarded group", c
        drop = [P.OFPMeterBandDrop(rate=5, burst_size=0)]
        other.send(P.OFPMeterMod(other.datapath, O.OFPMC_ADD, O.OFPMF_KBPS, 90 + v, drop))
        other.heard()
        yield "forwarded meter", c
        yield from told_of_tables(c)
    more = [5] if v == V15 else []  # A short name.
    c.send(P.OFPRoleRequest(c.datapath, O.OFPCR_ROLE_MASTER, *more, 10 * v + 3))
    yield "primary", c
    other.send(P.OFPRoleRequest(other.datapath, O.OFPCR_ROLE_MASTER, *more, 10 * v + 4))
    yield "next primary", other
    if v >= V14:
        yield "role-status", c
    other.send(P.OFPRoleRequest(other.datapath, O.OFPCR_ROLE_MASTER, *more, 10 * v + 2))
    yield "stale", other


def changed_by_bundles(c):
    """By name, what is answered to bundles: committed, discarded, with an error, closed, and unknown."""
    P, O = c.datapath.ofproto_parser, c.datapath.ofproto
    ours, kinds = ("ONF", "ONF_BCT_{}_REQUEST") if c.version == V13 else ("OFP", "OFPBCT_{}_REQUEST")

    def control(bundle, what):
        c.send(getattr(P, f"{ours}BundleCtrlMsg")(c.datapath, bundle, getattr(O, kinds.format(what)), 3, []))

    def add(bundle, command):
        message = flow_mod(c, command)
        message.set_xid(5)
        message.serialize()
        c.send(getattr(P, f"{ours}BundleAddMsg")(c.datapath, bundle, 3, message, []))

    for bundle, steps in (
        (7, ["OPEN", O.OFPFC_ADD, "CLOSE", "COMMIT"]),
        (7, ["OPEN", "DISCARD"]),
        (8, ["OPEN", 77, "COMMIT"]),
        (9, ["OPEN", "CLOSE", O.OFPFC_DELETE, "COMMIT"]),
        (10, ["CLOSE"]),
    ):
        for step in steps:
            control(bundle, step) if isinstance(step, str) else add(bundle, step)
        yield f"bundle {bundle}: {steps}", c


def told_of_tables(c):
    """By name, what is told of flows at first (os-ken cannot read what comes later), and of a table that fills
    and empties. The test limits table 9 to four flows."""
    P, O = c.datapath.ofproto_parser, c.datapath.ofproto
    flags = O.OFPFMF_INITIAL | O.OFPFMF_ADD | O.OFPFMF_INSTRUCTIONS
    c.send(P.OFPFlowMonitorRequest(c.datapath, 0, 3, O.OFPP_ANY, O.OFPG_ANY, flags, 4, O.OFPFMC_ADD, P.OFPMatch()))
    yield "flows at first", c
    vacancy = P.OFPTableModPropVacancy(O.OFPTMPT_VACANCY, vacancy_down=30, vacancy_up=60, vacancy=0)
    c.send(P.OFPTableMod(c.datapath, 9, O.OFPTC_VACANCY_EVENTS, [vacancy]))
    for command, name in ((O.OFPFC_ADD, "full"), (O.OFPFC_DELETE, "empty")):
        for priority in range(3):
            c.send(P.OFPFlowMod(c.datapath, table_id=9, command=command, priority=priority, instructions=[],
                                out_port=O.OFPP_ANY, out_group=O.OFPG_ANY))
        yield f"a table is {name}", c


def main():
    path, version = sys.argv[1], int(sys.argv[2])
    c = Connection(path, version)
    for name, build in requests(c):
        c.send(build())
        # Features of 254 tables take os-ken half a minute.
        print(f"== {name}", *c.heard(1 if name == "table features" else 50), sep="\n")
    for name, listener in provoked(c, path):
        print(f"== {name}", *listener.told(), sep="\n")


main()
