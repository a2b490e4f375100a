"""One chassis of OVN, with whichever ovs-vswitchd and ovsdb-server are first on the path: logical switches
and routers, firewalls, load balancers, translation, DHCP and DNS, all of which OVN makes of OpenFlow.

Hosts are namespaces behind veth pairs. Each probe has what becomes of it with Open vSwitch. What differs is
printed, and the exit code is 1 then. Runs in network, process and mount namespaces of its own, as root.
"""

import os
import re
import socket
import struct
import subprocess
import sys
import time

RUN = os.environ["OVS_RUNDIR"]
NORTH, SOUTH = f"unix:{RUN}/nb.sock", f"unix:{RUN}/sb.sock"
os.environ |= {"OVN_RUNDIR": RUN, "OVN_LOGDIR": RUN, "OVN_DBDIR": RUN, "OVN_NB_DB": NORTH, "OVN_SB_DB": SOUTH}
SCHEMAS = {"conf": "/usr/share/openvswitch/vswitch.ovsschema", "nb": "/usr/share/ovn/ovn-nb.ovsschema",
           "sb": "/usr/share/ovn/ovn-sb.ovsschema"}
DIFFERENCES = []
# What runs within a namespace.
CLIENT = [sys.executable, __file__]


def run(*words, may_fail=False):
    said = subprocess.run(words, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
    if said.returncode and not may_fail:
        sys.exit(f"{' '.join(words)}: {said.returncode}\n{said.stdout}{said.stderr}")
    return said.stdout


def lines(program, text):
    for line in filter(None, map(str.strip, text.splitlines())):
        run("sh", "-c", f"{program} {line}")


def daemon(*words):
    """A program that logs to a file of its name, and says nothing else."""
    words = [*words, "-vconsole:off", f"--log-file={RUN}/{words[0]}.log"]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)


def wait_for(what, done):
    end = time.monotonic() + 30
    while not done():
        if time.monotonic() > end:
            sys.exit(f"{what}: waited in vain for 30 s")
        time.sleep(0.05)


def start_switch():
    """The switch's daemon, once it answers."""
    daemon_ = daemon("ovs-vswitchd", f"unix:{RUN}/conf.sock", f"--unixctl={RUN}/switch.ctl")
    wait_for("the switch", lambda: run("ovs-appctl", "-t", f"{RUN}/switch.ctl", "version", may_fail=True))
    return daemon_


def start():
    # Names of namespaces are ours alone then.
    run("mount", "-t", "tmpfs", "none", "/run")
    run("ip", "link", "set", "lo", "up")
    for name, schema in SCHEMAS.items():
        run("ovsdb-tool", "create", f"{RUN}/{name}.db", schema)
        daemon("ovsdb-server", f"{RUN}/{name}.db", f"--remote=punix:{RUN}/{name}.sock",
               f"--unixctl={RUN}/{name}.ctl")
        wait_for(name, lambda: os.path.exists(f"{RUN}/{name}.sock"))
    os.symlink(f"{RUN}/conf.sock", f"{RUN}/db.sock")
    run("ovs-vsctl", "--no-wait", "init", "--", "set", "open", ".", "external-ids:system-id=chassis",
        f"external-ids:ovn-remote={SOUTH}", "external-ids:ovn-encap-type=geneve",
        "external-ids:ovn-encap-ip=127.0.0.1",
        "external-ids:ovn-bridge-datapath-type=netdev", "external-ids:ovn-bridge-mappings=outside:br-ex")
    switch = start_switch()
    run("ovs-vsctl", "add-br", "br-ex", "--", "set", "bridge", "br-ex", "datapath_type=netdev")
    daemon("ovn-northd", f"--unixctl={RUN}/northd.ctl")
    # Before the south is made, ovn-controller may begin to wait for ever.
    run("ovn-nbctl", "--wait=sb", "--timeout=30", "sync")
    daemon("ovn-controller", f"unix:{RUN}/conf.sock")
    return switch


# Three networks: red and blue of virtual machines, and the world outside, which br-ex stands for.
NETWORK = """
    ls-add red -- ls-add blue -- ls-add out -- lr-add router
    lrp-add router r-red 00:00:00:00:01:01 10.0.1.1/24 fd01::1/64
    lrp-add router r-blue 00:00:00:00:02:01 10.0.2.1/24 fd02::1/64
    lrp-add router r-out 00:00:00:00:03:01 172.16.0.1/24 fd03::1/64
    lrp-set-gateway-chassis r-out chassis -- set logical_router_port r-out options:gateway_mtu=1200
    lsp-add red red-r -- lsp-set-type red-r router -- lsp-set-addresses red-r router
    lsp-set-options red-r router-port=r-red
    lsp-add blue blue-r -- lsp-set-type blue-r router -- lsp-set-addresses blue-r router
    lsp-set-options blue-r router-port=r-blue
    lsp-add out out-r -- lsp-set-type out-r router -- lsp-set-addresses out-r router
    lsp-set-options out-r router-port=r-out
    lsp-add out wire -- lsp-set-type wire localnet -- lsp-set-addresses wire unknown
    lsp-set-options wire network_name=outside
    lr-nat-add router snat 172.16.0.1 10.0.0.0/16
    lr-nat-add router snat fd03::1 fd01::/64
    lr-nat-add router dnat_and_snat 172.16.0.50 10.0.1.11
    lr-policy-add router 100 'ip4.src == 10.0.2.14 && tcp.dst == 8181' drop
"""
# Sets of addresses and ports become conjunctive matches.
FRIENDS = "outport == @servers && ip4.src == $friends && tcp.dst == {2000, 2001, 2002}"
FRIENDS6 = FRIENDS.replace("ip4", "ip6").replace("friends", "friends6")
FIREWALL = f"""
    create Address_Set name=friends addresses='"10.0.1.11","10.0.2.13"'
    create Address_Set name=friends6 addresses='"fd02::13"'
    pg-add servers vm2 vm4
    --log --name=web acl-add red to-lport 1001 'outport == "vm2" && tcp.dst == 80' allow-related
    acl-add red to-lport 1002 'outport == "vm2" && tcp.dst == 9999' drop
    acl-add red to-lport 1002 'outport == "vm2" && tcp.dst == 7777' reject
    acl-add red to-lport 1002 'outport == "vm2" && udp.dst == 7777' reject
    acl-add red from-lport 1000 'inport == "vm1" && ip' allow-related
    acl-add servers to-lport 1500 '{FRIENDS}' allow-related
    acl-add servers to-lport 1500 '{FRIENDS6}' allow-related
    acl-add servers to-lport 1400 'outport == @servers && tcp.dst >= 2000 && tcp.dst < 2100' drop
    lsp-set-port-security vm1 '02:00:00:00:01:11 10.0.1.11'
    qos-add red from-lport 100 'inport == "vm1" && udp.dst == 4000' dscp=46
    qos-add red from-lport 101 'inport == "vm1" && udp.dst == 4001' rate=1000000 burst=1000
"""
BALANCERS = """
    lr-nat-add router dnat_and_snat 172.16.0.51 10.0.2.13 vm3 00:00:00:00:03:51
    lb-add web 10.0.0.100:80 10.0.1.12:80,10.0.2.13:80 tcp -- ls-lb-add red web -- ls-lb-add blue web
    lr-lb-add router web
    lb-add web6 [fd00::100]:80 [fd01::12]:80,[fd02::13]:80 tcp -- ls-lb-add red web6 -- ls-lb-add blue web6
    lb-add outer 172.16.0.60:80 10.0.1.12:80,10.0.2.13:80 tcp -- lr-lb-add router outer
    lb-add names 10.0.0.101:53 10.0.1.12:53 udp -- ls-lb-add red names
    lb-add loyal 10.0.0.102:80 10.0.2.13:80,10.0.2.14:80 tcp -- ls-lb-add red loyal
    set load_balancer loyal options:affinity_timeout=60
"""
HOSTS = {"vm1": ("red", 1, 11), "vm2": ("red", 1, 12), "vm3": ("blue", 2, 13), "vm4": ("blue", 2, 14)}


def host(name, mac, addresses, routes):
    """A namespace with a device of its name, whose other end is named with a p before."""
    run("ip", "netns", "add", name)
    run("ip", "link", "add", f"p{name}", "type", "veth", "peer", "name", name, "netns", name)
    # Open vSwitch would take checksums that are still to be made for wrong ones.
    run("ip", "netns", "exec", name, "ethtool", "-K", name, "tx", "off")
    run("ip", "link", "set", f"p{name}", "up")
    lines(f"ip -n {name}", f"link set lo up\n link set {name} address {mac}\n link set {name} up")
    for address in addresses:
        lines(f"ip -n {name} addr add", f"{address} dev {name} {'nodad' if ':' in address else ''}")
    for network, gateway in routes:
        run("ip", "-n", name, "route", "add", network, "via", gateway)


def mac_of(name):
    _, net, number = HOSTS[name]
    return f"02:00:00:00:0{net}:{number}"


def build():
    lines("ovn-nbctl", NETWORK)
    for name, (switch, net, number) in HOSTS.items():
        addresses = [f"10.0.{net}.{number}", f"fd0{net}::{number}"]
        run("ovn-nbctl", "lsp-add", switch, name, "--", "lsp-set-addresses", name,
            " ".join([mac_of(name), *addresses]))
        host(name, mac_of(name), [f"{addresses[0]}/24", f"{addresses[1]}/64"],
             [("0.0.0.0/0", f"10.0.{net}.1"), ("::/0", f"fd0{net}::1")])
        run("ovs-vsctl", "add-port", "br-int", f"p{name}", "--", "set", "interface", f"p{name}",
            f"external-ids:iface-id={name}")
    host("ext", "02:00:00:00:03:02", ["172.16.0.2/24", "fd03::2/64"],
         [("10.0.0.0/16", "172.16.0.1"), ("fd01::/64", "fd03::1")])
    run("ovs-vsctl", "add-port", "br-ex", "pext")
    lines("ovn-nbctl", FIREWALL + BALANCERS)
    options = '"server_id"="10.0.1.1" "server_mac"="00:00:00:00:01:01" "lease_time"="3600" "mtu"="1400"'
    dhcp = run("ovn-nbctl", "create", "DHCP_Options", "cidr=10.0.1.0/24", f"options={options}").strip()
    names = run("ovn-nbctl", "create", "DNS", 'records=vm2.ovn.org="10.0.1.12 fd01::12"').strip()
    run("ovn-nbctl", "lsp-set-dhcpv4-options", "vm1", dhcp)
    run("ovn-nbctl", "add", "logical_switch", "red", "dns_records", names)
    synchronize()


def synchronize():
    """Waits until all that the north knows is in the switch."""
    run("ovn-nbctl", "--wait=hv", "--timeout=30", "sync")


def inside(host, *words):
    said = subprocess.run(["ip", "netns", "exec", host, *words], capture_output=True, text=True, timeout=60)
    return said.stdout + said.stderr


def expect(what, found, wanted):
    fits = found in wanted if isinstance(wanted, set) else found == wanted
    print(f"{what}: {found}{'' if fits else f' (with Open vSwitch: {wanted})'}", flush=True)
    if not fits:
        DIFFERENCES.append(what)


def ping(host, to, wanted, *more):
    said = inside(host, "ping", "-c1", "-W1", *more, to)
    errors = ["Time to live", "Hop limit", "Frag needed"]
    found = next((error for error in errors if error in said), "nothing")
    ttl = re.search(r"ttl=(\d+)", said)
    expect(f"ping {' '.join(more)} {host} {to}", ttl.group(1) if ttl else found, wanted)


def serve(host, port, kind="tcp"):
    subprocess.Popen(["ip", "netns", "exec", host, *CLIENT, f"{kind}-server", host, str(port)])


def tcp(host, to, port, wanted):
    """`wanted` is who answers, and from whom it saw the connection come."""
    expect(f"tcp {host} {to} {port}", inside(host, *CLIENT, "tcp", to, str(port)).strip(), wanted)


def udp(host, to, port, wanted):
    expect(f"udp {host} {to} {port}", inside(host, *CLIENT, "udp", to, str(port)).strip(), wanted)


NOTHING, REFUSED = "TimeoutError", "ConnectionRefusedError"


def probes(switch):
    for port in [80, 2000, 2050, 9999]:
        serve("vm2", port)
    for host, port in [("vm3", 80), ("vm4", 80), ("vm4", 2000), ("vm4", 2050), ("vm1", 80), ("ext", 80),
                       ("ext", 8181)]:
        serve(host, port)
    serve("vm2", 53, "udp"), serve("ext", 4000, "udp"), serve("ext", 4001, "udp")
    time.sleep(1)

    # Switching and routing, in both IP versions; errors that the router answers by itself.
    ping("vm1", "10.0.1.12", "64"), ping("vm1", "10.0.2.13", "63"), ping("vm3", "10.0.1.12", "63")
    ping("vm3", "fd01::12", "63"), ping("vm3", "fd02::1", "254"), ping("vm1", "10.0.1.1", "254")
    ping("vm1", "10.0.2.13", "Time to live", "-t1"), ping("vm3", "fd01::12", "Hop limit", "-t1")
    ping("vm1", "10.0.2.13", "63", "-s3000"), ping("vm1", "10.0.9.9", "nothing")
    ping("vm1", "172.16.0.2", "Frag needed", "-Mdo", "-s1300"), ping("vm1", "172.16.0.2", "63", "-s1100")
    inside("vm1", "ip", "addr", "add", "10.0.1.77/24", "dev", "vm1")
    ping("vm1", "10.0.1.12", "nothing", "-I10.0.1.77")

    # Translation: by the router, by an address of its own, and where the machine is.
    tcp("vm1", "172.16.0.2", 80, "ext saw 172.16.0.50"), tcp("vm2", "172.16.0.2", 80, "ext saw 172.16.0.1")
    tcp("vm3", "172.16.0.2", 80, "ext saw 172.16.0.51"), tcp("vm2", "fd03::2", 80, "ext saw fd03::1")
    tcp("ext", "172.16.0.50", 80, "vm1 saw 172.16.0.2"), tcp("ext", "172.16.0.51", 80, "vm3 saw 172.16.0.2")
    ping("ext", "172.16.0.50", "63"), ping("ext", "172.16.0.1", "254")
    tcp("vm4", "172.16.0.2", 8181, NOTHING), tcp("vm1", "172.16.0.2", 8181, "ext saw 172.16.0.50")

    # The firewall.
    tcp("vm1", "10.0.1.12", 80, "vm2 saw 10.0.1.11"), tcp("vm1", "10.0.1.12", 9999, NOTHING)
    tcp("vm1", "10.0.1.12", 7777, REFUSED), udp("vm1", "10.0.1.12", 7777, REFUSED)
    for host, saw in [("vm1", "10.0.1.11"), ("vm3", "10.0.2.13")]:
        tcp(host, "10.0.1.12", 2000, f"vm2 saw {saw}"), tcp(host, "10.0.2.14", 2000, f"vm4 saw {saw}")
        tcp(host, "10.0.1.12", 2050, NOTHING)
    tcp("vm4", "10.0.1.12", 2000, NOTHING), tcp("vm3", "fd01::12", 2000, "vm2 saw fd02::13")
    tcp("vm3", "fd01::12", 2050, NOTHING), tcp("vm2", "10.0.1.11", 80, "vm1 saw 10.0.1.12")
    expect("the log names the rule", 'name="web"' in open(f"{RUN}/ovn-controller.log").read(), True)

    # Load balancers: from within, from a backend to itself, through the router, by affinity.
    for _ in range(3):
        tcp("vm1", "10.0.0.100", 80, {"vm2 saw 10.0.1.11", "vm3 saw 10.0.1.11"})
        tcp("vm2", "10.0.0.100", 80, {"vm2 saw 10.0.0.100", "vm3 saw 10.0.1.12"})
        tcp("vm4", "fd00::100", 80, {"vm2 saw fd02::14", "vm3 saw fd02::14"})
        tcp("ext", "172.16.0.60", 80, {"vm2 saw 172.16.0.2", "vm3 saw 172.16.0.2"})
    udp("vm1", "10.0.0.101", 53, "vm2"), udp("vm2", "10.0.0.101", 53, "vm2")
    inside("vm1", *CLIENT, "tcp", "10.0.0.102", "80")
    loyal = {inside("vm1", *CLIENT, "tcp", "10.0.0.102", "80").strip() for _ in range(4)}
    expect("one backend by affinity", len(loyal - {NOTHING}), 1)
    udp("vm1", "172.16.0.2", 4000, "ext"), udp("vm1", "172.16.0.2", 4001, "ext")

    # What the controller answers itself, with packets that the switch gave it.
    expect("a name", inside("vm1", *CLIENT, "name").strip(), "10.0.1.12")
    expect("a lease", inside("vm1", *CLIENT, "lease").strip(), "offer of 10.0.1.11")
    expect("a neighbour", "00:00:00:00:03:51" in inside("ext", "ip", "neigh", "show", "172.16.0.51"), True)

    # A connection that a rule no longer allows ends, and a switch that was killed comes back with all of it.
    held = subprocess.Popen(["ip", "netns", "exec", "vm1", *CLIENT, "echo", "10.0.2.14", "2000"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def echo():
        print("x", file=held.stdin, flush=True)
        return held.stdout.readline().strip()

    expect("a connection", echo(), "x")
    run("ovn-nbctl", "acl-del", "servers", "to-lport", "1500", FRIENDS), synchronize()
    expect("a connection whose rule is gone", echo(), NOTHING), tcp("vm1", "10.0.2.14", 2000, NOTHING)
    run("ovn-nbctl", "lsp-set-enabled", "vm3", "disabled"), synchronize(), ping("vm1", "10.0.2.13", "nothing")
    run("ovn-nbctl", "lsp-set-enabled", "vm3", "enabled"), synchronize(), ping("vm1", "10.0.2.13", "63")
    switch.kill(), switch.wait()
    start_switch()
    synchronize()
    wait_for("rules", lambda: run("ovs-ofctl", "dump-flows", "br-int", may_fail=True).count("cookie=") > 500)
    ping("vm1", "10.0.2.13", "63"), tcp("vm1", "10.0.0.100", 80, {"vm2 saw 10.0.1.11", "vm3 saw 10.0.1.11"})
    refused = [line for line in open(f"{RUN}/ovn-controller.log") if "OFPT_ERROR" in line]
    expect("requests of OVN that were refused", refused, [])


def client(kind, *args):
    """What a probe does within its namespace: says one line."""
    def stream(kind=socket.SOCK_STREAM):
        family = socket.AF_INET6 if ":" in args[0] else socket.AF_INET
        s = socket.socket(family, kind)
        s.settimeout(1)
        s.connect((args[0], int(args[1])))
        return s

    def peer(c):
        return c.getpeername()[0]

    if kind == "tcp-server":
        s = socket.create_server(("::", int(args[1])), family=socket.AF_INET6, dualstack_ipv6=True)
        while True:
            c, (address, *_) = s.accept()
            if os.fork() == 0:
                c.sendall(f"{args[0]} saw {address.removeprefix('::ffff:')}\n".encode())
                while data := c.recv(100):
                    c.sendall(data)
                os._exit(0)
            c.close()
    elif kind == "udp-server":
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(("0.0.0.0", int(args[1])))
        while True:
            s.sendto(args[0].encode(), s.recvfrom(100)[1])
    elif kind == "tcp":
        print(stream().recv(100).decode())
    elif kind == "udp":
        s = stream(socket.SOCK_DGRAM)
        s.send(b"x")
        print(s.recv(100).decode())
    elif kind == "echo":
        s = stream()
        s.recv(100)
        for line in sys.stdin:
            s.sendall(line.strip().encode())
            try:
                print(s.recv(100).decode(), flush=True)
            except OSError as e:
                print(type(e).__name__, flush=True)
    elif kind == "name":
        args = ("10.0.1.1", 53)
        s = stream(socket.SOCK_DGRAM)
        s.send(struct.pack(">6H", 1, 0x100, 1, 0, 0, 0) + b"\3vm2\3ovn\3org\0" + struct.pack(">2H", 1, 1))
        print(socket.inet_ntoa(s.recv(500)[-4:]))
    elif kind == "lease":
        s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x800))
        s.bind(("vm1", 0))
        s.settimeout(1)
        mac = bytes.fromhex("020000000111")
        ask = struct.pack(">4BIHH", 1, 1, 6, 0, 7, 0, 0) + bytes(16) + mac + bytes(202)
        ask += bytes.fromhex("63825363 350101 ff")
        udp = struct.pack(">4H", 68, 67, 8 + len(ask), 0) + ask
        head = struct.pack(">BBHIBBH4s4s", 0x45, 0, 20 + len(udp), 0, 64, 17, 0, bytes(4), b"\xff" * 4)
        total = sum(struct.unpack(">10H", head))
        head = head[:10] + struct.pack(">H", 0xffff - (total & 0xffff) - (total >> 16)) + head[12:]
        s.send(b"\xff" * 6 + mac + b"\x08\0" + head + udp)
        while True:
            frame = s.recv(2000)
            # From the server's port to the client's: an offer.
            if frame[23] == 17 and frame[34:38] == struct.pack(">2H", 67, 68):
                print("offer of", socket.inet_ntoa(frame[58:62]))
                break


def main():
    if len(sys.argv) > 1:
        try:
            client(*sys.argv[1:])
        except OSError as e:
            print(type(e).__name__)
        return
    switch = start()
    build()
    probes(switch)
    sys.exit(f"{len(DIFFERENCES)} differ: {', '.join(DIFFERENCES)}" if DIFFERENCES else 0)


if __name__ == "__main__":
    main()
