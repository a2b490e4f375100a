"""A learning switch on os-ken, in OpenFlow 1.0 or 1.3: what is unknown is flooded and comes here, what is known gets a flow.

Usage: learning_switch.py PORT 1.0|1.3. Listens on 127.0.0.1, over TLS where the environment names key and certificates.
"""

import os
import sys

from os_ken import cfg
from os_ken.base import app_manager
from os_ken.controller import controller, ofp_event  # noqa: F401 (registers options)
from os_ken.controller.handler import CONFIG_DISPATCHER, MAIN_DISPATCHER, set_ev_cls
from os_ken.lib.packet import ethernet, packet
from os_ken.ofproto import ofproto_v1_0, ofproto_v1_3

VERSION = sys.argv[2]


class LearningSwitch(app_manager.OSKenApp):
    OFP_VERSIONS = [ofproto_v1_0.OFP_VERSION if VERSION == "1.0" else ofproto_v1_3.OFP_VERSION]

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.places = {}

    @set_ev_cls(ofp_event.EventOFPSwitchFeatures, CONFIG_DISPATCHER)
    def features(self, event):
        datapath = event.msg.datapath
        print(f"switch {datapath.id:016x}", flush=True)
        if VERSION == "1.3":
            # There a packet without a rule is dropped unless a rule says otherwise.
            ofp, parser = datapath.ofproto, datapath.ofproto_parser
            actions = [parser.OFPActionOutput(ofp.OFPP_CONTROLLER, ofp.OFPCML_NO_BUFFER)]
            self.add_flow(datapath, 0, parser.OFPMatch(), actions)

    def add_flow(self, datapath, priority, match, actions):
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        if VERSION == "1.0":
            flow = parser.OFPFlowMod(
                datapath=datapath, match=match, cookie=0, command=ofp.OFPFC_ADD, idle_timeout=0, hard_timeout=0,
                priority=priority, flags=ofp.OFPFF_SEND_FLOW_REM, actions=actions)
        else:
            does = [parser.OFPInstructionActions(ofp.OFPIT_APPLY_ACTIONS, actions)]
            flow = parser.OFPFlowMod(datapath=datapath, priority=priority, match=match, instructions=does)
        datapath.send_msg(flow)

    @set_ev_cls(ofp_event.EventOFPPacketIn, MAIN_DISPATCHER)
    def packet_in(self, event):
        message = event.msg
        datapath = message.datapath
        ofp, parser = datapath.ofproto, datapath.ofproto_parser
        in_port = message.in_port if VERSION == "1.0" else message.match["in_port"]
        header = packet.Packet(message.data).get_protocol(ethernet.ethernet)
        if header.ethertype == 0x88cc:
            return
        self.places[(datapath.id, header.src)] = in_port
        out_port = self.places.get((datapath.id, header.dst), ofp.OFPP_FLOOD)
        actions = [parser.OFPActionOutput(out_port)]
        if out_port != ofp.OFPP_FLOOD:
            if VERSION == "1.0":
                match = parser.OFPMatch(in_port=in_port, dl_dst=header.dst, dl_src=header.src)
            else:
                match = parser.OFPMatch(in_port=in_port, eth_dst=header.dst, eth_src=header.src)
            self.add_flow(datapath, 1, match, actions)
        datapath.send_msg(parser.OFPPacketOut(
            datapath=datapath, buffer_id=message.buffer_id, in_port=in_port, actions=actions, data=message.data))

    @set_ev_cls(ofp_event.EventOFPErrorMsg, [CONFIG_DISPATCHER, MAIN_DISPATCHER])
    def error(self, event):
        print(f"error {event.msg.type} {event.msg.code}", flush=True)


def main():
    args = ["--ofp-listen-host=127.0.0.1"]
    if "CONTROLLER_KEY" in os.environ:
        args += [
            f"--ofp-ssl-listen-port={sys.argv[1]}",
            f"--ctl-privkey={os.environ['CONTROLLER_KEY']}",
            f"--ctl-cert={os.environ['CONTROLLER_CERT']}",
            f"--ca-certs={os.environ['CONTROLLER_CA']}",
        ]
    else:
        args.append(f"--ofp-tcp-listen-port={sys.argv[1]}")
    cfg.CONF(args=args, project="os_ken", version="test")
    # Apps are found by the names of their modules, so this file is imported once more.
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    app_manager.AppManager.run_apps(["learning_switch", "os_ken.controller.ofp_handler"])


if __name__ == "__main__":
    main()
