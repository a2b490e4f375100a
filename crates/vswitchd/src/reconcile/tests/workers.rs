//! What workers give up, take over and go on forwarding while the switch is reconfigured.

use super::*;

#[test]
fn workers_move_to_the_processors_of_a_mask_and_keep_ports_and_counts() {
    let mut v = vswitch();
    let mut w = wanted(&["p1", "p2"]);
    become_(&mut v, &w);
    let inject = |v: &Vswitch, name: &str| {
        let port = v.plane.dp.port(v.devices.port_named(name).unwrap().port_no).unwrap();
        assert!(port.as_dummy().unwrap().inject(&broadcast(name.as_bytes()[1])));
    };
    let sent = |v: &Vswitch, name: &str| {
        let port_no = v.devices.port_named(name).unwrap().port_no;
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let frames = v.plane.dp.port(port_no).unwrap().as_dummy().unwrap().take_sent().len();
            if frames > 0 || Instant::now() > end {
                return frames;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    let places =
        |v: &Vswitch| (0..v.plane.dp.workers()).map(|n| v.plane.dp.worker_cpu(n)).collect::<Vec<_>>();
    inject(&v, "p1");
    assert_eq!((sent(&v, "p2"), places(&v)), (1, vec![None]));
    for (cpus, expected, note) in [
        (Some(vec![0]), vec![Some(0)], false),
        (Some(vec![0, 1]), vec![Some(0), Some(1)], false),
        (Some(vec![1, 5000]), vec![Some(1)], true),
        (Some(vec![4000, 5000]), vec![None], true),
        (Some(vec![0, 1]), vec![Some(0), Some(1)], false),
        (None, vec![None], false),
    ] {
        w.switch.workers.cpus = cpus;
        become_(&mut v, &w);
        assert_eq!((places(&v), v.workers.mask_note.is_some()), (expected, note));
        inject(&v, "p1");
        inject(&v, "p2");
        assert_eq!((sent(&v, "p2"), sent(&v, "p1")), (1, 1));
    }
    w.switch.workers.flow_limit = Some(1000);
    w.switch.workers.max_idle_ms = Some(700);
    become_(&mut v, &w);
    inject(&v, "p1");
    assert_eq!(sent(&v, "p2"), 1);
    let p1 = v.plane.dp.port(v.devices.port_named("p1").unwrap().port_no).unwrap().stats();
    assert_eq!((p1.rx_packets, p1.tx_packets), (8, 6));
    // The bridge's rule has counted them all, whichever worker had them.
    v.plane.dp.fold(Duration::from_secs(5));
    let idx = v.bridge_named("br0").unwrap().idx;
    let rules = v.plane.control.rules(idx, &switch::control::RuleFilter::default());
    assert_eq!(v.plane.slot(rules[0].slot).packets, 14);
}

#[test]
fn ports_that_come_and_go_among_a_thousand_lose_no_packet_of_the_others() {
    let mut v = vswitch();
    let names: Vec<String> = (1..=1000).map(|n| format!("p{n}")).collect();
    let mut w = wanted(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let bridge = w.bridges.get_mut("br0").unwrap();
    let mut source = Interface::new("source", "null");
    source.options = [("size", "60"), ("rate", "50000")].map(|(k, v)| (k.into(), v.into())).into();
    bridge.add(source);
    bridge.add(Interface::new("sink", "null"));
    // In a VLAN of their own: what the source sends is flooded to the sink alone.
    let vlan = |tag| VlanConfig { mode: VlanMode::Access, tag, ..VlanConfig::default() };
    for port in bridge.ports.values_mut() {
        port.vlan = vlan(if ["source", "sink"].contains(&port.name.as_str()) { 7 } else { 8 });
    }
    become_(&mut v, &w);
    let port = |v: &Vswitch, name: &str| v.devices.port_named(name).unwrap().port_no;
    let (source, sink) = (port(&v, "source"), port(&v, "sink"));
    let received = |v: &Vswitch| v.plane.dp.port(source).unwrap().stats().rx_packets;
    let end = Instant::now() + Duration::from_secs(60);
    let wait_for = |v: &Vswitch, count: u64| {
        while received(v) < count {
            assert!(Instant::now() < end, "the source sends nothing");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    for n in 1001..=1020 {
        wait_for(&v, received(&v) + 1000);
        let name = format!("p{n}");
        w.bridges.get_mut("br0").unwrap().add(dummy(&name)).vlan = vlan(8);
        become_(&mut v, &w);
        if n % 2 == 0 {
            w.bridges.get_mut("br0").unwrap().ports.remove(&name);
            become_(&mut v, &w);
        }
    }
    wait_for(&v, received(&v) + 1000);
    v.plane.dp.port_mut(source).unwrap().set_admin_up(false).unwrap();
    let counts = |v: &Vswitch| (received(v), v.plane.dp.port(sink).unwrap().stats().tx_packets);
    // What is under way arrives; what was lost never does.
    while counts(&v).0 != counts(&v).1 {
        assert!(Instant::now() < end, "lost: {:?}", counts(&v));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(received(&v) > 21_000);
    assert_eq!(DropReason::ALL.iter().map(|r| v.plane.dp.drops(*r)).sum::<u64>(), 0);
}

#[test]
fn queues_go_where_settings_bind_them_and_are_spread_by_what_they_cost() {
    let mut v = vswitch();
    let mut w = wanted(&["p1", "p2"]);
    w.switch.workers.cpus = Some(vec![0, 1]);
    let mut source = Interface::new("src", "null");
    source.options = [("size".to_string(), "60".to_string()), ("n_rxq".into(), "4".into())].into();
    w.bridges.get_mut("br0").unwrap().add(source);
    become_(&mut v, &w);
    let workers = |v: &Vswitch| v.plane.dp.rx_workers(v.devices.port_named("src").unwrap().port_no).to_vec();
    let processors =
        |v: &Vswitch| workers(v).iter().map(|n| v.plane.dp.worker_cpu(*n).unwrap()).collect::<Vec<_>>();
    let is_kept = |v: &Vswitch, n| v.workers.is_kept(&v.workers.seen(&v.plane, &v.devices.ports), n);
    // Two of four on each worker: the fewest so far.
    assert_eq!(workers(&v).iter().filter(|n| **n == 0).count(), 2);
    interface(&mut w, "src").rxq_affinity = [(0, 1), (2, 1)].into();
    become_(&mut v, &w);
    v.tick();
    // Worker 1 is kept for the two; all others leave it.
    assert_eq!(processors(&v), [1, 0, 1, 0]);
    assert!(is_kept(&v, 1) && !is_kept(&v, 0));
    w.switch.workers.rxq_isolate = false;
    w.switch.workers.rxq_policy = Policy::Group;
    interface(&mut w, "src").rxq_affinity = [(0, 1)].into();
    become_(&mut v, &w);
    v.tick();
    assert_eq!(processors(&v)[0], 1);
    assert!(!is_kept(&v, 1));
    // One that no worker runs on: said, and placed like others.
    interface(&mut w, "src").rxq_affinity = [(0, 77)].into();
    become_(&mut v, &w);
    v.tick();
    w.switch.workers.rxq_policy = Policy::RoundRobin;
    become_(&mut v, &w);
    v.tick();
    let spread = workers(&v);
    assert_eq!(spread.iter().filter(|n| **n == 0).count(), 2, "{spread:?}");
    let src = v.devices.port_named("src").unwrap().port_no;
    let end = Instant::now() + Duration::from_secs(20);
    while v
        .workers
        .queues_of(&v.plane, &v.devices.ports, src)
        .iter()
        .any(|queue| v.workers.scheduler.queue_cost(queue) == 0)
    {
        assert!(Instant::now() < end, "a queue has cost nothing");
        v.tick();
        std::thread::sleep(Duration::from_millis(2));
    }
    let text = crate::commands::datapath::pmd_rxq_show(&mut v, &[]).unwrap();
    assert!(
        text.contains("isolated : false") && text.contains("queue-id:  3 (enabled)   pmd usage:"),
        "{text}"
    );
}

#[test]
fn a_worker_that_does_not_answer_holds_up_its_plan_and_nobody_else_and_is_named() {
    let mut v = vswitch();
    let mut w = wanted(&["p1", "p2"]);
    become_(&mut v, &w);
    // It answers when it is told to.
    let mut stuck = v.plane.dp.stepped_worker().unwrap();
    w.bridges.get_mut("br0").unwrap().ports.remove("p2");
    let mut plan = Reconciliation::plan(&v.running(), w.clone().into(), Default::default());
    let start = Instant::now();
    while plan.step(&mut v) == Progress::More {}
    assert_eq!(plan.step(&mut v), Progress::Waiting);
    assert!(start.elapsed() < Duration::from_millis(900), "nobody waits for the worker");
    assert!(v.devices.port_named("p2").is_none());
    // The other worker answers in order: what it has been asked last is the last to be answered.
    let other = v.plane.dp.request_flows(0, 0).unwrap();
    while v.plane.dp.take_flows(other).is_none() {
        std::thread::yield_now();
    }
    let soon = Instant::now();
    assert_eq!(v.plane.dp.overdue(soon), []);
    let overdue = v.plane.dp.overdue(soon + Duration::from_secs(2));
    assert_eq!(overdue.iter().map(|o| (o.worker, o.what)).collect::<Vec<_>>(), [(1, "a port's queues")]);
    assert_eq!(v.plane.dp.overdue(soon + Duration::from_secs(3)), [], "once is enough");
    // Its late answer is taken for what it is.
    while plan.step(&mut v) != Progress::Done {
        stuck.turn();
    }
    // A command that cannot but wait gives up after a second, and says who kept it waiting.
    let p1 = v.devices.port_named("p1").unwrap().port_no;
    let error = v.plane.dp.remove_port(p1).map(drop).unwrap_err().to_string();
    assert_eq!(error, "no answer within 1 s from pmd-1");
}

#[test]
fn a_port_is_opened_anew_once_workers_have_given_it_up_and_with_its_old_options_if_need_be() {
    let mut v = vswitch();
    let mut w = wanted(&["p1", "p2"]);
    interface(&mut w, "p2").options.insert("n_rxq".into(), "2".into());
    become_(&mut v, &w);
    let before = v.devices.port_named("p2").map(|port| (port.port_no, port.of_port)).unwrap();
    // It answers when it is told to.
    let mut slow = v.plane.dp.stepped_worker().unwrap();
    let taken = tempfile::tempdir().unwrap();
    let stream = format!("punix:{}/nowhere/socket", taken.path().display());
    interface(&mut w, "p2").options.insert("pstream".into(), stream);
    let mut plan = Reconciliation::plan(&v.running(), w.clone().into(), Default::default());
    while plan.step(&mut v) == Progress::More {}
    assert_eq!(plan.step(&mut v), Progress::Waiting, "the worker has not given it up");
    assert!(v.devices.port_named("p2").is_none());
    // A plan that replaces this one knows of it.
    plan = Reconciliation::plan(&v.running(), w.clone().into(), Default::default());
    while plan.step(&mut v) != Progress::Done {
        slow.turn();
    }
    let outcome = plan.outcomes(&v).remove("p2").unwrap();
    assert!(outcome.error.is_some_and(|error| error.contains("nowhere")));
    let port = v.devices.port_named("p2").unwrap();
    assert_eq!((port.port_no, port.of_port), before);
    assert_eq!(v.plane.dp.rx_workers(port.port_no).len(), 2);
    assert!(v.devices.returning.is_empty());
}

#[test]
fn a_port_that_cannot_be_opened_anew_returns_as_it_was_once_it_can() {
    let mut v = vswitch();
    let mut w = wanted(&["p1", "p2"]);
    let allowed = tempfile::tempdir().unwrap();
    v.devices.set_files(ports::files::FileDirs::new([allowed.path().to_path_buf()]).unwrap());
    let dir = allowed.path().join("dir");
    std::fs::create_dir(&dir).unwrap();
    let socket = |name: &str| format!("punix:{}", dir.join(name).display());
    let listen = |w: &mut Wanted, at: String| _ = interface(w, "p2").options.insert("pstream".into(), at);
    listen(&mut w, socket("socket"));
    become_(&mut v, &w);
    let port_no = v.devices.port_named("p2").unwrap().port_no;
    v.plane.update_port(port_no, |spec| spec.config.no_flood = true);
    // Neither the new options nor the old ones will do.
    std::fs::remove_dir_all(&dir).unwrap();
    listen(&mut w, socket("another"));
    become_(&mut v, &w);
    assert!(v.devices.port_named("p2").is_none());
    std::fs::create_dir(&dir).unwrap();
    listen(&mut w, socket("third"));
    become_(&mut v, &w);
    let port = v.devices.port_named("p2").unwrap();
    assert!(port.port_no == port_no && v.plane.port_spec(port_no).unwrap().config.no_flood);
    assert!(v.devices.returning.is_empty());
}
