"""Networks of Mininet: every host pings every other, and TCP crosses from the first to the last."""

import json
import sys

from mininet.net import Mininet
from mininet.node import OVSController, OVSSwitch
from mininet.topo import LinearTopo, SingleSwitchTopo
from mininet.topolib import TreeTopo


def tcp(client, server):
    """Bytes that reached the server in two seconds."""
    server.cmd("iperf3 --server --one-off --daemon")
    for _ in range(50):
        said = client.cmd(f"iperf3 --client {server.IP()} --time 2 --json")
        report = json.loads(said)
        if "error" not in report:
            return report["end"]["sum_received"]["bytes"]
        if "refused" not in report["error"]:
            break
        client.cmd("sleep 0.1")
    sys.exit(f"iperf3 from {client} to {server}: {said}")


def main():
    topologies = {"single,4": SingleSwitchTopo(4), "linear,4": LinearTopo(4), "tree,2,3": TreeTopo(2, 3)}
    for name, topology in topologies.items():
        net = Mininet(topo=topology, switch=OVSSwitch, controller=OVSController)
        net.start()
        if not net.waitConnected(timeout=30):
            sys.exit(f"{name}: a switch has no controller")
        # The first packets to a host are flooded hop by hop, and may be lost where two floods meet.
        net.pingAll(timeout="5")
        lost = net.pingAll(timeout="5")
        if lost > 0:
            sys.exit(f"{name}: {lost} % of the pings were lost")
        if tcp(net.hosts[0], net.hosts[-1]) < 1_000_000:
            sys.exit(f"{name}: less than a megabyte of TCP in two seconds")
        net.stop()
        print(f"{name}: all hosts answer, TCP passes", flush=True)


main()
