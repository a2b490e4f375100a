//! Rings that are disabled, by whichever message.

use super::attacks::Victim;
use crate::{Guest, GuestConfig, RingLayout};
use packet::{Batch, LinkState, Port};
use ports::vhost_user::message::request;

#[test]
fn resetting_the_owner_disables_the_rings_and_changes_nothing_else() {
    for layout in [RingLayout::Split, RingLayout::Packed] {
        let (_dir, mut cache, mut port) = Victim::alone();
        let mut guest =
            Guest::connect(&port.path, &GuestConfig { layout, ..GuestConfig::default() }).unwrap();
        let mut pair = guest.take_pairs().remove(0);
        let mut batch = Batch::new();
        for n in 0..3 {
            guest.enable_pair(0, true).unwrap();
            guest.synchronise().unwrap();
            assert!(pair.send(&[n; 60]));
            port.rx[0].rx_burst(&mut cache, &mut batch);
            assert_eq!((batch.len(), port.port.status().link), (1, LinkState::Up), "{layout:?}");
            port.tx[0].tx_burst(&mut cache, &mut batch);
            let mut seen = 0;
            pair.receive(2, |frame| {
                assert_eq!(frame, [n; 60], "{layout:?}");
                seen += 1;
            });
            assert_eq!(seen, 1, "{layout:?}");
            guest.front_end.say(request::RESET_OWNER, &[], &[]).unwrap();
            guest.synchronise().unwrap();
            assert_eq!(port.port.status().link, LinkState::Down, "{layout:?}");
        }
    }
}
