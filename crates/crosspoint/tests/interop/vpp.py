#!/usr/bin/env python3
"""Stands in for FD.io's VPP in tests of the adapter that drives it.

Called as `vpp -c startup.conf` it answers, on the socket that `cli-listen` names, the debug commands that
the adapter uses, as FD.io's documentation has them, keeps all of them in the file `told` beside this one,
and forwards between its host interfaces as it is told. Called as `vppctl -s SOCKET WORDS...` it asks.

With a file `refuses` beside this one, commands that begin with its text are answered with an error, which
vppctl does not put in its exit code either.
"""

import os
import re
import select
import socket
import sys
import threading

HERE = os.path.dirname(os.path.abspath(sys.argv[0]))
PACKET_OUTGOING = 4


def ask(path, words):
    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        line.sendall(" ".join(words).encode())
        line.shutdown(socket.SHUT_WR)
        print(b"".join(iter(lambda: line.recv(65536), b"")).decode())


class Interface:
    def __init__(self, device):
        self.device, self.up, self.to = device, False, None
        self.counts = {"rx packets": 0, "tx packets": 0, "drops": 0}
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.socket.bind((device, 0))


class Vpp:
    def __init__(self):
        self.interfaces = {}
        self.refused = None
        if os.path.exists(HERE + "/refuses"):
            self.refused = open(HERE + "/refuses").read().strip()

    def forward(self):
        while True:
            ready = [i for i in list(self.interfaces.values()) if i.up]
            by_socket = {i.socket: i for i in ready}
            for line in select.select(list(by_socket), [], [], 0.01)[0]:
                here = by_socket[line]
                for _ in range(256):
                    try:
                        frame, address = line.recvfrom(65536, socket.MSG_DONTWAIT)
                    except BlockingIOError:
                        break
                    if address[2] == PACKET_OUTGOING:
                        continue
                    here.counts["rx packets"] += 1
                    if here.to is None:
                        here.counts["drops"] += 1
                        continue
                    here.to.socket.send(frame)
                    here.to.counts["tx packets"] += 1

    def answer(self, words):
        with open(HERE + "/told", "a") as told:
            told.write(words + "\n")
        if self.refused and words.startswith(self.refused):
            return "%s: failed" % self.refused
        if words == "show version":
            return "vpp v99.01-stand-in built by nobody on nowhere"
        if words == "show interface":
            return self.table()
        match = re.fullmatch(r"create host-interface name (\S+)(?: num-rx-queues \d+ num-tx-queues \d+)?", words)
        if match:
            self.interfaces["host-" + match[1]] = Interface(match[1])
            return "host-" + match[1]
        match = re.fullmatch(r"set interface state (\S+) up", words)
        if match and match[1] in self.interfaces:
            self.interfaces[match[1]].up = True
            return ""
        match = re.fullmatch(r"set interface l2 xconnect (\S+) (\S+)", words)
        if match and match[1] in self.interfaces and match[2] in self.interfaces:
            self.interfaces[match[1]].to = self.interfaces[match[2]]
            return ""
        return "unknown input `%s'" % words

    def table(self):
        lines = ["%18s %14s %9s  MTU (L3/IP4/IP6/MPLS) %11s %14s" % ("Name", "Idx", "State", "Counter", "Count")]
        for index, (name, interface) in enumerate(self.interfaces.items()):
            head = "%-33s %d %7s %19s" % (name, index + 1, "up" if interface.up else "down", "9000/0/0/0")
            for counter, count in interface.counts.items():
                if count:
                    lines.append("%-64s %-12s %16d" % (head, counter, count))
                    head = ""
            if head:
                lines.append(head)
        return "\n".join(lines)


def serve(conf):
    vpp = Vpp()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(re.search(r"cli-listen (\S+)", open(conf).read())[1])
    listener.listen()
    threading.Thread(target=vpp.forward, daemon=True).start()
    while True:
        line, _ = listener.accept()
        with line:
            words = b"".join(iter(lambda: line.recv(65536), b"")).decode()
            line.sendall(vpp.answer(words).encode())


if os.path.basename(sys.argv[0]) == "vppctl":
    assert sys.argv[1] == "-s", sys.argv
    ask(sys.argv[2], sys.argv[3:])
else:
    assert sys.argv[1] == "-c", sys.argv
    serve(sys.argv[2])
