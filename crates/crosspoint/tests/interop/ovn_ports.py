"""A chassis of OVN with many ports, with whichever ovs-vswitchd and ovsdb-server are first on the path.

Twenty logical switches at one router, each with a port group and a firewall. Prints how many rules the
integration bridge has after each step: the same on every switch that does what OVN asks. To stderr it prints
how long each step took until the rules had not changed for a second, by the clock and in CPU seconds of the
switch, and the switch's memory. `OVN_PORTS` says how many ports (200).
"""

import os
import sys
import time

from ovn_chassis import RUN, run, start, start_switch, wait_for

SWITCHES = 20
EACH = int(os.environ.get("OVN_PORTS", "200")) // SWITCHES
BRIDGE = f"unix:{RUN}/br-int.mgmt"


def port(switch, n):
    return f"p{switch}x{n}"


def all_ports():
    return [(switch, port(switch, n)) for switch in range(SWITCHES) for n in range(EACH)]


def synchronize():
    run("ovn-nbctl", "--wait=hv", "--timeout=50", "sync")


def rules():
    said = run("ovs-ofctl", "-O", "OpenFlow15", "dump-aggregate", BRIDGE, may_fail=True)
    return int(said.split("flow_count=")[1].split()[0]) if "flow_count=" in said else 0


def settled():
    """The number of rules once it has not changed for a second."""
    seen = [rules()]

    def rests():
        time.sleep(0.5)
        seen.append(rules())
        return len(seen) > 2 and seen[-1] > 0 and len(set(seen[-3:])) == 1

    wait_for("rules that no longer change", rests)
    return seen[-1]


class Step:
    """Measures what is done within, and prints the number of rules after it."""

    def __init__(self, what, switch):
        self.what, self.switch = what, switch

    def __enter__(self):
        self.began, self.cpu = time.monotonic(), self.cpu_seconds()
        return self

    def __exit__(self, kind, *_):
        if kind:
            return
        print(f"{self.what}: {settled()} rules")
        took, cpu, kib = time.monotonic() - self.began, self.cpu_seconds() - self.cpu, self.memory_kib()
        print(f"{self.what:28} {took:7.2f} s {cpu:7.2f} CPU s {kib // 1024:6} MiB", file=sys.stderr)

    def cpu_seconds(self):
        words = open(f"/proc/{self.switch.pid}/stat").read().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kib(self):
        lines = open(f"/proc/{self.switch.pid}/status").read().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1])


def network():
    run("ovn-nbctl", "lr-add", "router")
    for s in range(SWITCHES):
        run("ovn-nbctl", "ls-add", f"s{s}", "--", "pg-add", f"g{s}",
            "--", "lrp-add", "router", f"r{s}", f"00:00:00:00:{s + 1:02x}:01", f"10.{s}.0.1/16",
            "--", "lsp-add", f"s{s}", f"s{s}r", "--", "lsp-set-type", f"s{s}r", "router",
            "--", "lsp-set-addresses", f"s{s}r", "router",
            "--", "lsp-set-options", f"s{s}r", f"router-port=r{s}")
        words = []
        for n in range(EACH):
            address = f"02:00:00:{s:02x}:{n >> 8:02x}:{n & 255:02x} 10.{s}.1.{n + 1}"
            words += ["--", "lsp-add", f"s{s}", port(s, n), "--", "lsp-set-addresses", port(s, n), address,
                      "--", "lsp-set-port-security", port(s, n), address]
        run("ovn-nbctl", *words[1:])
        members = f"outport == @g{s} && ip4"
        run("ovn-nbctl", "pg-set-ports", f"g{s}", *(port(s, n) for n in range(EACH)),
            "--", "acl-add", f"g{s}", "from-lport", "1000", f"inport == @g{s} && ip4", "allow-related",
            "--", "acl-add", f"g{s}", "to-lport", "1000",
            f"{members}.src == $g{s}_ip4 && tcp.dst == {{22, 80, 443}}", "allow-related",
            "--", "acl-add", f"g{s}", "to-lport", "900", members, "drop")


def add_ports(names):
    run("ovs-vsctl", "--timeout=50", *(word for name in names for word in [
        "--", "add-port", "br-int", name,
        "--", "set", "interface", name, "type=internal", f"external-ids:iface-id={name}"]))


def main():
    switch = start()
    network()
    with Step("ports", switch):
        for s in range(SWITCHES):
            add_ports(port(s, n) for n in range(EACH))
        find = ["ovn-nbctl", "--bare", "--columns=name", "find", "logical_switch_port", "up=false"]
        wait_for("ports that are up", lambda: not run(*find).strip())
        synchronize()
    with Step("a firewall rule each", switch):
        for s in range(SWITCHES):
            rule = f"outport == @g{s} && ip4.src == $g{s}_ip4 && udp.dst == 53"
            run("ovn-nbctl", "acl-add", f"g{s}", "to-lport", "1100", rule, "allow-related")
        synchronize()
    with Step("ports go and come", switch):
        for _, name in all_ports()[:EACH]:
            run("ovs-vsctl", "del-port", name)
            add_ports([name])
        synchronize()
    switch.kill(), switch.wait()
    switch = start_switch()
    with Step("the switch was killed", switch):
        synchronize()
    with Step("ports are gone", switch):
        run("ovs-vsctl", "--timeout=50", *(word for _, name in all_ports() for word in ["--", "del-port", name]))
        synchronize()
    refused = [line for line in open(f"{RUN}/ovn-controller.log") if "OFPT_ERROR" in line]
    print("requests of OVN that were refused:", refused)


if __name__ == "__main__":
    main()
