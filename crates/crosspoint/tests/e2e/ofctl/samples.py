"""Prints the messages that os-ken brings for its own tests: a line of a version, a name and hexadecimal digits each.

What os-ken only reads comes as it was caught, the rest as its encoder writes it.
"""

import json
import pathlib
import sys

import os_ken
from os_ken.ofproto import ofproto_parser, ofproto_protocol

# Importing one makes its version known to os-ken.
from os_ken.ofproto import ofproto_v1_0_parser, ofproto_v1_2_parser, ofproto_v1_3_parser  # noqa: F401
from os_ken.ofproto import ofproto_v1_4_parser, ofproto_v1_5_parser  # noqa: F401

VERSIONS = {"of10": 1, "of12": 3, "of13": 4, "of14": 5, "of15": 6}


def encoded(version, said):
    datapath = ofproto_protocol.ProtocolDesc(version=VERSIONS[version])
    message = ofproto_parser.ofp_msg_from_jsondict(datapath, said)
    message.set_xid(next(iter(said.values())).get("xid") or 0)
    message.serialize()
    return bytes(message.buf)


def main():
    tests = pathlib.Path(os_ken.__file__).parent / "tests"
    for version in VERSIONS:
        for path in sorted((tests / "unit/ofproto/json" / version).glob("*.json")):
            # These are cut on purpose and in words alone.
            if ".truncated" in path.name:
                continue
            name = path.name.removesuffix(".json")
            caught = tests / "packet_data" / version / name
            data = caught.read_bytes() if caught.exists() else encoded(version, json.loads(path.read_text()))
            if not data:
                sys.exit(f"{name} has no bytes")
            print(version, name.removesuffix(".packet"), data.hex())


main()
