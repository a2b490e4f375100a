"""See failover.rs."""

import fcntl
import select
import socket
import struct
import sys
import time

FRAME = bytes.fromhex("0200000000020200000000010806") + bytes(46)
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1


def opened(name):
    link = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0806))
    link.bind((name, 0x0806))
    link.setblocking(False)
    return link


def set_up(name, up):
    control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    request = struct.pack("16sH14x", name.encode(), 0)
    flags = struct.unpack("16sH14x", fcntl.ioctl(control, SIOCGIFFLAGS, request))[1]
    flags = flags | IFF_UP if up else flags & ~IFF_UP
    fcntl.ioctl(control, SIOCSIFFLAGS, struct.pack("16sH14x", name.encode(), flags))


def drain(link):
    try:
        while True:
            link.recv(2048)
    except OSError:
        pass


def wait_for_frame(source, sink, seconds=10):
    """The time at which a frame comes out."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        source.send(FRAME)
        if select.select([sink], [], [], 0.00025)[0]:
            return time.monotonic()
    sys.exit("no frame came out")


source, second = opened("far0"), opened("far2")
for _ in range(5):
    set_up("far1", True)
    first = opened("far1")
    wait_for_frame(source, first)
    time.sleep(0.05)
    drain(second)
    began = time.monotonic()
    set_up("far1", False)
    print(round((wait_for_frame(source, second) - began) * 1e6))
    first.close()
