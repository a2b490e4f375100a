"""Python's clients against the server at the remote that is the argument, which has the database Open_vSwitch:
the IDL of Open vSwitch, and ovsdbapp, by which OpenStack configures switches."""

import json
import socket
import sys
import threading
import uuid

import ovs.db.idl
import ovs.poller
from ovsdbapp.backend.ovs_idl import connection
from ovsdbapp.schema.open_vswitch import impl_idl

REMOTE = sys.argv[1]


def switch():
    """Stands for a switch that is always done: cur_cfg follows next_cfg, and interfaces have ports."""
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(REMOTE.removeprefix("unix:"))
    decoder, text = json.JSONDecoder(), ""

    def send(method, params):
        stream.sendall(json.dumps({"method": method, "params": params, "id": method}).encode())

    send("monitor", ["Open_vSwitch", "m", {"Open_vSwitch": {"columns": ["next_cfg"]}}])
    while True:
        received = stream.recv(65536)
        if not received:
            return
        text += received.decode()
        while text:
            try:
                message, end = decoder.raw_decode(text)
            except json.JSONDecodeError:
                break
            text = text[end:]
            tables = message["params"][1] if message.get("method") == "update" else {}
            for row in tables.get("Open_vSwitch", {}).values():
                update = {"op": "update", "table": "Open_vSwitch", "where": [], "row": {"cur_cfg": row["new"]["next_cfg"]}}
                no_port = [["ofport", "==", ["set", []]]]
                ports = {"op": "update", "table": "Interface", "where": no_port, "row": {"ofport": 1}}
                send("transact", ["Open_vSwitch", ports, update])


def wait_until(idl, holds):
    for _ in range(100):
        idl.run()
        if holds():
            return
        poller = ovs.poller.Poller()
        idl.wait(poller)
        poller.timer_wait(100)
        poller.block()
    raise AssertionError("the IDL does not see it")


def commit(idl, txn):
    status = txn.commit_block()
    assert status in (txn.SUCCESS, txn.UNCHANGED), (status, txn.get_error())


def idl_follows_and_changes():
    helper = ovs.db.idl.SchemaHelper("/usr/share/openvswitch/vswitch.ovsschema")
    helper.register_all()
    idl = ovs.db.idl.Idl(REMOTE, helper)
    wait_until(idl, lambda: idl.has_ever_connected() and idl.tables["Open_vSwitch"].rows)
    root = next(iter(idl.tables["Open_vSwitch"].rows.values()))
    txn = ovs.db.idl.Transaction(idl)
    bridge = txn.insert(idl.tables["Bridge"])
    bridge.name = "idl0"
    bridge.external_ids = {"a": "1", "b": "2"}
    root.addvalue("bridges", bridge.uuid)
    commit(idl, txn)
    find = lambda: [b for b in idl.tables["Bridge"].rows.values() if b.name == "idl0"]
    wait_until(idl, lambda: len(find()) == 1)
    txn = ovs.db.idl.Transaction(idl)
    find()[0].setkey("external_ids", "b", "3")
    find()[0].delkey("external_ids", "a")
    find()[0].verify("external_ids")
    commit(idl, txn)
    wait_until(idl, lambda: find()[0].external_ids == {"b": "3"})
    # Another client changes what this one monitors by conditions.
    idl.cond_change("Bridge", [["name", "==", "other"]])
    wait_until(idl, lambda: not find())
    idl.cond_change("Bridge", [True])
    wait_until(idl, lambda: len(find()) == 1)
    txn = ovs.db.idl.Transaction(idl)
    root.delvalue("bridges", find()[0].uuid)
    commit(idl, txn)
    wait_until(idl, lambda: not find())
    idl.close()


def ovsdbapp_configures():
    idl = connection.OvsdbIdl.from_server(REMOTE, "Open_vSwitch")
    api = impl_idl.OvsdbIdl(connection.Connection(idl=idl, timeout=20))
    api.add_br("br-int", datapath_type="netdev").execute(check_error=True)
    api.add_port("br-int", "p0").execute(check_error=True)
    api.db_set("Interface", "p0", ("type", "internal"), ("external_ids", {"iface-id": "x"})).execute(check_error=True)
    assert api.list_ports("br-int").execute(check_error=True) == ["p0"]
    assert api.db_get("Interface", "p0", "external_ids").execute(check_error=True) == {"iface-id": "x"}
    assert api.port_to_br("p0").execute(check_error=True) == "br-int"
    name = str(uuid.uuid4())
    with api.transaction(check_error=True) as txn:
        txn.add(api.set_controller("br-int", ["tcp:127.0.0.1:6653"]))
        txn.add(api.br_set_external_id("br-int", "name", name))
    assert api.get_controller("br-int").execute(check_error=True) == ["tcp:127.0.0.1:6653"]
    api.del_br("br-int").execute(check_error=True)
    assert api.list_br().execute(check_error=True) == []


threading.Thread(target=switch, daemon=True).start()
idl_follows_and_changes()
ovsdbapp_configures()
print("done")
