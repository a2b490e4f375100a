//! Guests that do their worst while a payload lies in the sender's memory, between reception and delivery.
//!
//! An attack may cost the port of who does it, and nothing else: the other guest gets whole frames or none,
//! no chunk is lost, and both ports serve the next guest.

use super::lending::{End, LAYOUTS, Pair, config, frame, pass_to_all};
use crate::Guest;
use packet::lent::HEAD_BYTES;
use packet::{LinkState, Port};
use ports::vhost_user::VhostUserPort;
use ports::vhost_user::message::request;
use rustix::fs::ftruncate;
use std::time::Duration;
use testkit::lab::wait_for;

/// What happens between reception and delivery, and what is to become of the two ports.
struct Attack {
    name: &'static str,
    act: fn(&mut End, &mut End),
    /// Why the sender is disconnected, and why the receiver.
    from: Option<&'static str>,
    to: Option<&'static str>,
    /// Whether the receiver gets its frames, and with the heads that were classified, and with the tails.
    arrives: Option<bool>,
}

/// Writes over all buffers that the guest has on offer for transmission, but for their virtio headers.
fn scribble(from: &mut End) {
    for offset in from.pair.tx.offered.iter().flatten() {
        from.pair.ram.buffer_mut(*offset + crate::HEADER, crate::BUFFER - crate::HEADER).fill(0xee);
    }
}

/// Has the guest's monitor say something, from a thread of its own: it is answered when the burst is over.
fn say(end: &mut End, what: fn(&mut Guest)) {
    let mut guest = end.guest.take().expect("a guest that is there");
    std::thread::spawn(move || {
        what(&mut guest);
        // It stays connected for a while.
        std::thread::sleep(Duration::from_millis(300));
    });
    std::thread::sleep(Duration::from_millis(100));
}

fn cut_off(end: &mut End) {
    shrink(end, 0);
}

/// Bytes that the rings of 64 descriptors take, in front of the buffers.
fn rings() -> u64 {
    2 * crate::ring_bytes(64) as u64
}

fn shrink(end: &mut End, len: u64) {
    // This process touches what lies behind no more.
    ftruncate(end.pair.ram.fd(), len).unwrap();
}

#[test]
fn what_a_guest_does_while_its_payload_is_lent_costs_its_own_packets_alone() {
    let attacks = [
        Attack {
            name: "the sender writes over its buffers",
            act: |from, _| scribble(from),
            from: None,
            to: None,
            arrives: Some(false),
        },
        Attack {
            name: "the sender changes its rings' indices and descriptors",
            act: |from, _| {
                let ring = &from.pair.tx.ring;
                for at in (ring.descriptors..ring.descriptors + 64 * 16).step_by(4) {
                    from.pair.ram.u32(at).store(u32::MAX, std::sync::atomic::Ordering::Relaxed);
                }
            },
            from: None,
            to: None,
            arrives: Some(true),
        },
        Attack {
            name: "the sender's memory is cut off",
            act: |from, _| cut_off(from),
            from: Some("vanished"),
            to: None,
            arrives: Some(false),
        },
        Attack {
            name: "the sender's memory shrinks to its rings",
            act: |from, _| shrink(from, rings()),
            from: Some("vanished"),
            to: None,
            arrives: Some(false),
        },
        Attack {
            name: "the receiver's memory shrinks to its rings",
            act: |_, to| shrink(to, rings()),
            from: None,
            to: Some("vanished"),
            arrives: None,
        },
        Attack {
            name: "the receiver's memory is cut off",
            act: |_, to| cut_off(to),
            from: None,
            to: Some("vanished"),
            arrives: None,
        },
        Attack {
            name: "the sender disconnects",
            act: |from, _| {
                drop(from.guest.take());
                std::thread::sleep(Duration::from_millis(100));
            },
            from: None,
            to: None,
            arrives: Some(true),
        },
        Attack {
            name: "the sender replaces its memory by none",
            act: |from, _| {
                say(from, |guest| {
                    let _ = guest.front_end.say(request::SET_MEM_TABLE, &0u64.to_le_bytes(), &[]);
                });
            },
            from: Some("ring outside"),
            to: None,
            arrives: Some(true),
        },
        Attack {
            name: "the sender resets its rings",
            act: |from, _| {
                say(from, |guest| {
                    let _ = guest.front_end.say(request::RESET_DEVICE, &[], &[]);
                });
            },
            from: None,
            to: None,
            arrives: Some(true),
        },
        Attack {
            name: "the sender stops its rings",
            act: |from, _| {
                // What was lent counts as taken: none of it is to be sent again.
                say(from, |guest| assert_eq!(guest.stop(2).unwrap()[1] & 0x7fff, 8));
            },
            from: None,
            to: None,
            arrives: Some(true),
        },
        Attack {
            name: "the receiver disconnects",
            act: |_, to| {
                drop(to.guest.take());
                wait_for("the receiver's end", || to.port.status().link == LinkState::Down);
            },
            from: None,
            to: None,
            arrives: None,
        },
        Attack {
            name: "both write and go",
            act: |from, to| {
                scribble(from);
                drop((from.guest.take(), to.guest.take()));
            },
            from: None,
            to: None,
            arrives: None,
        },
    ];
    // In one buffer each, and in chains of three.
    let shapes = LAYOUTS.iter().flat_map(|layout| [(*layout, 1518), (*layout, 5000)]);
    for ((layout, len), attack) in shapes.flat_map(|shape| attacks.iter().map(move |attack| (shape, attack)))
    {
        let name = format!("{} ({layout:?}, {len} bytes)", attack.name);
        let mut pair = Pair::new(&config(layout));
        let frames: Vec<_> = (0..8).map(|n| frame(n, len)).collect();
        for frame in &frames {
            assert!(pair.from.pair.send(frame));
        }
        assert_eq!(pair.forward_while(attack.act), 8, "{name}");
        if let Some(are_tails_whole) = attack.arrives {
            let received = pair.to.received();
            assert_eq!(received.len(), 8, "{name}");
            for (received, sent) in received.iter().zip(&frames) {
                assert_eq!(
                    received[..HEAD_BYTES],
                    sent[..HEAD_BYTES],
                    "{name}: the head is what was classified"
                );
                assert_eq!(received.len(), sent.len(), "{name}");
                assert_eq!(received == sent, are_tails_whole, "{name}");
            }
        }
        for (end, reason) in [(&pair.from, attack.from), (&pair.to, attack.to)] {
            match reason {
                Some(reason) => {
                    wait_for(&name, || end.port.status().error.is_some_and(|e| e.contains(reason)))
                }
                None => assert_eq!(end.port.status().error, None, "{name}"),
            }
        }
        // Both ports serve the next guest, whose packets are lent too.
        for (end, socket) in [(&mut pair.from, "from"), (&mut pair.to, "to")] {
            drop(end.guest.take());
            wait_for(&name, || end.port.status().link == LinkState::Down && !is_connected(&end.port));
            let mut guest = Guest::connect(&pair.dir.path().join(socket), &config(layout)).unwrap();
            guest.synchronise().unwrap();
            end.pair = guest.take_pairs().remove(0);
            end.guest = Some(guest);
        }
        for frame in &frames[..2] {
            assert!(pair.from.pair.send(frame), "{name}");
            // After a burst whose tails nobody took one is copied whole.
            let is_lent = pair.forward() == 1;
            assert!(is_lent || attack.arrives.is_none(), "{name}");
        }
        assert_eq!(pair.to.received(), frames[..2], "{name}");
        pair.end();
    }
}

#[test]
fn what_one_of_two_receivers_does_meanwhile_costs_it_alone() {
    type Act = fn(&mut End);
    let attacks: [(&str, Act, Option<&str>); 5] = [
        ("its memory is cut off", cut_off, Some("vanished")),
        ("its memory shrinks to its rings", |end| shrink(end, rings()), Some("vanished")),
        (
            "it resets its rings",
            |end| {
                say(end, |guest| {
                    let _ = guest.front_end.say(request::RESET_DEVICE, &[], &[]);
                })
            },
            None,
        ),
        (
            "it replaces its memory by none",
            |end| {
                say(end, |guest| {
                    let _ = guest.front_end.say(request::SET_MEM_TABLE, &0u64.to_le_bytes(), &[]);
                })
            },
            Some("ring outside"),
        ),
        ("it disconnects", |end| drop(end.guest.take()), None),
    ];
    let cases = LAYOUTS.iter().flat_map(|layout| attacks.iter().map(move |attack| (*layout, *attack)));
    for (n, (layout, (name, act, reason))) in cases.enumerate() {
        let mut pair = Pair::new(&config(layout));
        let mut third = End::new(pair.dir.path(), "third", &config(layout));
        // Once it is the outer one, once the inner.
        let is_first = n % 2 == 0;
        let mut ways = vec![pair.to.tx.remove(0), third.tx.remove(0)];
        if is_first {
            ways.swap(0, 1);
        }
        let frames: Vec<_> = (0..8).map(|n| frame(n, [1518, 5000][n as usize % 2])).collect();
        for frame in &frames {
            assert!(pair.from.pair.send(frame));
        }
        let Pair { cache, from, .. } = &mut pair;
        assert_eq!(pass_to_all(cache, &mut from.rx[0], &mut ways, &mut || act(&mut third)), 8, "{name}");
        assert!(pair.to.received() == frames, "{layout:?}: {name}");
        assert_eq!(pair.from.on_offer(), 0, "{layout:?}: {name}");
        if let Some(reason) = reason {
            wait_for(name, || third.port.status().error.is_some_and(|error| error.contains(reason)));
        }
        for end in [&pair.from, &pair.to] {
            assert_eq!(end.port.status().error, None, "{layout:?}: {name}");
        }
        pair.end();
    }
}

fn is_connected(port: &VhostUserPort) -> bool {
    port.status().details.iter().any(|(key, value)| key == "status" && value == "connected")
}
