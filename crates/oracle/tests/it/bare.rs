//! What the connection tracker makes of packets without an Ethernet header.

use base::rcu::{Domain, Reader};
use base::{OfPort, PortNo, Version};
use datapath::conntrack::{Request, state};
use datapath::{Config, DpAction, FlowView, Pipeline, PortView, Translation};
use flow::{Depth, FieldId, Key};
use oracle::home::udp_frame;
use oracle::rig::{Rig, pool_is_whole};
use std::sync::{Arc, Mutex};

const CLIENT: PortNo = PortNo(1);
const SERVER: PortNo = PortNo(2);
/// Its packets lose their Ethernet header before they are tracked.
const OTHER: PortNo = PortNo(3);

/// Tracks all packets, and records what rules would see of those that come back.
#[derive(Default)]
struct Tracks {
    seen: Mutex<Vec<(u128, u128)>>,
}

impl Pipeline for Tracks {
    type Effect = ();
    fn version(&self) -> Version {
        Version(1)
    }
    fn port_view(&self, port: PortNo) -> Arc<PortView> {
        Arc::new(PortView::new(OfPort(port.0 as u16), Depth::Everything))
    }
    fn translate(&self, _: Version, key: &Key, _: &Reader, out: &mut Translation<()>) {
        use FieldId::*;
        [InPort, DpPort, RecircId, PacketType, EthType, NwFrag].iter().for_each(|f| out.mask.add_exact(*f));
        if key.get(RecircId) != 0 {
            [CtState, CtNwSrc].iter().for_each(|f| out.mask.add_exact(*f));
            self.seen.lock().unwrap().push((key.get(CtState), key.get(CtNwSrc)));
            return out.actions.push(DpAction::Output(CLIENT));
        }
        let port = PortNo(key.get(DpPort) as u32);
        if port == OTHER {
            out.actions.push(DpAction::PopEth { eth_type: 0x800 });
        }
        let request = Request { commit: port == CLIENT, ..Request::default() };
        out.actions.extend([DpAction::Ct(Arc::new(request)), DpAction::Recirc(1)]);
    }
    fn touched(&self, _: FlowView<'_>, _: Version, _: Version, _: &Reader) -> bool {
        false
    }
}

/// An IPv4 packet from 8.0.69.0 without a header of its own behind that of IPv4, whose bytes are at the same
/// time a frame of the connection from 10.0.0.1:1000 to 10.0.0.2:2000.
fn disguised() -> Vec<u8> {
    let mut packet = vec![0; 54];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 54, 0, 0, 0, 0, 64, 253, 0, 0, 8, 0, 0x45, 0, 0, 40, 0, 0]);
    packet[22..24].copy_from_slice(&[64, 17]);
    packet[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    packet[34..40].copy_from_slice(&[1000u16, 2000, 20].map(u16::to_be_bytes).concat());
    for header in [14..34, 0..20] {
        let sum = wire::checksum::checksum(&packet[header.clone()]);
        packet[header][10..12].copy_from_slice(&sum.to_be_bytes());
    }
    packet
}

#[test]
fn a_packet_without_an_ethernet_header_belongs_to_no_connection_that_its_payload_names() {
    let pipeline = Arc::new(Tracks::default());
    let config = Config { hash_seed: Some(1), ..Config::default() };
    let mut rig = Rig::new(pipeline.clone(), Domain::new(), config, &[CLIENT, SERVER, OTHER]);
    let (there, mut back) = (udp_frame(), udp_frame());
    back[26..38].copy_from_slice(&[&there[30..34], &there[26..30], &there[36..38], &there[34..36]].concat());
    rig.receive(CLIENT, vec![there.clone()]);
    rig.receive(SERVER, vec![back]);
    rig.receive(OTHER, vec![[&there[..14], &disguised()].concat()]);
    let client = 0x0a00_0001;
    let [opens, answers, other] = pipeline.seen.lock().unwrap()[..] else { panic!("each came back once") };
    let said = |bits: u8| u128::from(bits | state::TRACKED);
    assert_eq!(opens, (said(state::NEW), client));
    assert_eq!(answers, (said(state::ESTABLISHED | state::REPLY), client));
    assert_eq!(other, (said(state::NEW), 0x0800_4500));
    rig.end().unwrap();
    pool_is_whole().unwrap();
}
