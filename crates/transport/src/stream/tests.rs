use super::*;
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Certificates by `ovs-pki`: of the authority `switchca` for sc, of `controllerca` for ctl, and one that
/// signs itself.
fn pki() -> &'static std::path::Path {
    static PKI: OnceLock<tempfile::TempDir> = OnceLock::new();
    let made = PKI.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let run = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).current_dir(dir.path()).output();
            let output =
                output.unwrap_or_else(|e| panic!("{program} (of the package openvswitch-common): {e}"));
            assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        };
        for words in
            [&["init"][..], &["-u", "req+sign", "sc", "switch"], &["-u", "req+sign", "ctl", "controller"]]
        {
            run("ovs-pki", &[&["--dir=pki", "--log=log", "-B", "2048"], words].concat());
        }
        run("ovs-pki", &["--log=log", "req", "self"]);
        run("ovs-pki", &["--log=log", "self-sign", "self"]);
        run("openssl", &["req", "-new", "-key", "sc-privkey.pem", "-subj", "/CN=old", "-out", "old-req.pem"]);
        // Version 1, as older tools made them.
        run(
            "openssl",
            &[
                "x509",
                "-req",
                "-in",
                "old-req.pem",
                "-CA",
                "pki/switchca/cacert.pem",
                "-CAkey",
                "pki/switchca/private/cakey.pem",
                "-out",
                "old-cert.pem",
                "-set_serial",
                "7",
            ],
        );
        dir
    });
    made.path()
}

fn files(certificate: &str, ca: &str) -> TlsFiles {
    let key = if certificate == "old" { "sc" } else { certificate };
    TlsFiles {
        private_key: Some(pki().join(format!("{key}-privkey.pem"))),
        certificate: Some(pki().join(format!("{certificate}-cert.pem"))),
        ca_cert: Some(match ca {
            "none" => PathBuf::from("none"),
            "self" => pki().join("self-cert.pem"),
            ca => pki().join(format!("pki/{ca}ca/cacert.pem")),
        }),
        ..TlsFiles::default()
    }
}

fn run<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), future).await.expect("in time") })
}

/// A listener, and where it is reached.
async fn listening(listen: &str, tls: Option<&Arc<Tls>>) -> (Listener, ActiveTarget) {
    let target = PassiveTarget::parse(listen, OVSDB_PORT).unwrap();
    let listener = Listener::bind(&target, tls).await.unwrap();
    let target = match listener.target() {
        PassiveTarget::Unix(path) => ActiveTarget::Unix(path.clone()),
        PassiveTarget::Tcp(host, _) => ActiveTarget::Tcp(host.clone(), listener.bound_port().unwrap()),
        PassiveTarget::Ssl(host, _) => ActiveTarget::Ssl(host.clone(), listener.bound_port().unwrap()),
    };
    (listener, target)
}

/// Connects, sends "ping", and takes "pong"; what each side says of it.
async fn converse(listen: &str, server: Option<TlsFiles>, client: Option<TlsFiles>) -> (String, String) {
    let server = server.map(|files| Arc::new(Tls::new(files)));
    let client = client.map(Tls::new);
    let (listener, target) = listening(listen, server.as_ref()).await;
    let serve = async {
        let mut stream = listener.accept().await.unwrap().establish().await.map_err(|e| e.to_string())?;
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.map_err(|e| e.to_string())?;
        stream.write_all(b"pong").await.map_err(|e| e.to_string())?;
        stream.flush().await.map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let call = async {
        let mut stream = Stream::connect(&target, client.as_ref()).await.map_err(|e| e.to_string())?;
        stream.write_all(b"ping").await.map_err(|e| e.to_string())?;
        stream.flush().await.map_err(|e| e.to_string())?;
        let mut bytes = [0; 4];
        stream.read_exact(&mut bytes).await.map_err(|e| e.to_string())?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (served, called): (Result<String, String>, Result<String, String>) = tokio::join!(serve, call);
    (served.unwrap_or_else(|e| e), called.unwrap_or_else(|e| e))
}

const GOOD: (&str, &str) = ("ping", "pong");

fn said(result: &(String, String)) -> (&str, &str) {
    (&result.0, &result.1)
}

#[test]
fn bytes_go_both_ways_over_every_kind() {
    let dir = tempfile::tempdir().unwrap();
    let unix = format!("punix:{}/{}/db.sock", dir.path().display(), "d".repeat(100));
    std::fs::create_dir(dir.path().join("d".repeat(100))).unwrap();
    for listen in [unix.as_str(), "ptcp:0:127.0.0.1", "ptcp:0:[::1]"] {
        assert_eq!(said(&run(converse(listen, None, None))), GOOD, "{listen}");
    }
    let result =
        run(converse("pssl:0:127.0.0.1", Some(files("ctl", "switch")), Some(files("sc", "controller"))));
    assert_eq!(said(&result), GOOD);
}

#[test]
fn another_thread_reads_and_writes_while_the_runtime_is_held_up() {
    let tls = Arc::new(Tls::new(files("ctl", "switch")));
    let client = Tls::new(files("sc", "controller"));
    let dir = tempfile::tempdir().unwrap();
    let unix = format!("punix:{}/s", dir.path().display());
    for listen in [unix.as_str(), "ptcp:0:127.0.0.1", "pssl:0:127.0.0.1"] {
        run(async {
            let (listener, target) = listening(listen, Some(&tls)).await;
            let serve = async { listener.accept().await.unwrap().establish().await.unwrap() };
            let call = async { Stream::connect(&target, Some(&client)).await.unwrap() };
            let (mut served, mut called) = tokio::join!(serve, call);
            called.write_all(b"ping").await.unwrap();
            called.flush().await.unwrap();
            let mut buffer = [0; 16];
            std::thread::scope(|scope| {
                let other = || {
                    while served.read_now(&mut buffer).is_err() {
                        std::thread::yield_now();
                    }
                    assert_eq!(&buffer[..5], b"ping\0", "{listen}");
                    assert_eq!(
                        served.read_now(&mut buffer).unwrap_err().kind(),
                        std::io::ErrorKind::WouldBlock
                    );
                    assert_eq!(served.write_now(b"pong").unwrap(), 4);
                };
                scope.spawn(other).join().unwrap();
            });
            called.read_exact(&mut buffer[..4]).await.unwrap();
            assert_eq!(&buffer[..4], b"pong", "{listen}");
            // Its own runtime goes on with it.
            called.write_all(b"more").await.unwrap();
            called.flush().await.unwrap();
            served.read_exact(&mut buffer[..4]).await.unwrap();
            assert_eq!(&buffer[..4], b"more", "{listen}");
            // What nobody reads is not taken without end.
            let lots = vec![0; 1 << 20];
            let mut taken = 0;
            while let Ok(n) = served.write_now(&lots) {
                taken += n;
                assert!(taken < 64 << 20, "{listen}");
            }
            served.shutdown_now();
            let mut rest = Vec::new();
            let _ = called.read_to_end(&mut rest).await;
            assert!(rest.len() > 1 << 16, "{listen}: {}", rest.len());
        });
    }
}

#[test]
fn a_certificate_of_another_authority_is_refused_on_either_side() {
    let strict = || Some(files("ctl", "switch"));
    let (served, _) = run(converse("pssl:0:127.0.0.1", strict(), Some(files("ctl", "controller"))));
    assert!(served.contains("not signed by an authority"), "{served}");
    let (_, called) = run(converse("pssl:0:127.0.0.1", strict(), Some(files("sc", "switch"))));
    assert!(called.contains("not signed by an authority"), "{called}");
    // Nobody is asked for a certificate by `none`.
    let result =
        run(converse("pssl:0:127.0.0.1", Some(files("ctl", "none")), Some(files("ctl", "controller"))));
    assert_eq!(said(&result), GOOD);
}

#[test]
fn a_peer_is_known_by_the_common_name_of_its_certificate_where_that_was_verified() {
    // Which each side says of the other.
    let names = |server: TlsFiles, client: TlsFiles| {
        let (server, client) = (Arc::new(Tls::new(server)), Tls::new(client));
        run(async {
            let (listener, target) = listening("pssl:0:127.0.0.1", Some(&server)).await;
            let serve = async { listener.accept().await.unwrap().establish().await.unwrap() };
            let call = async { Stream::connect(&target, Some(&client)).await.unwrap() };
            let (served, called) = tokio::join!(serve, call);
            [served, called].map(|stream| stream.peer_name().map(str::to_owned))
        })
    };
    let both = names(files("ctl", "switch"), files("sc", "controller"));
    assert_eq!(both.map(Option::unwrap), ["sc", "ctl"]);
    assert_eq!(names(files("ctl", "none"), files("sc", "controller")), [None, Some("ctl".into())]);
    assert_eq!(names(files("ctl", "switch"), files("sc", "none")), [Some("sc".into()), None]);
}

#[test]
fn certificates_that_sign_themselves_are_trusted_where_they_are_given() {
    let result = run(converse("pssl:0:127.0.0.1", Some(files("self", "self")), Some(files("self", "self"))));
    assert_eq!(said(&result), GOOD);
}

#[test]
fn a_certificate_that_signs_itself_expires_as_others_do() {
    let pem = std::fs::read(pki().join("self-cert.pem")).unwrap();
    for (days, expected) in [(0, Ok(())), (-2, Err("it is not valid yet")), (100_000, Err("it has expired"))]
    {
        let verified = super::tls::verify_pinned(&pem, days);
        match expected {
            Ok(()) => assert_eq!(verified, Ok(())),
            Err(why) => assert!(verified.unwrap_err().contains(why), "after {days} days"),
        }
    }
}

#[test]
fn a_certificate_of_version_1_is_refused_and_the_error_says_what_to_do() {
    let error = Tls::new(files("old", "switch")).check_server().unwrap_err().to_string();
    assert!(error.contains("version 1") && error.contains("ovs-pki"), "{error}");
}

#[test]
fn what_is_missing_is_named() {
    let missing = |change: fn(&mut TlsFiles)| {
        let mut files = files("sc", "switch");
        change(&mut files);
        Tls::new(files).check_server().unwrap_err().to_string()
    };
    assert_eq!(missing(|f| f.private_key = None), "Private key must be configured to use SSL");
    assert_eq!(missing(|f| f.certificate = None), "Certificate must be configured to use SSL");
    assert_eq!(missing(|f| f.ca_cert = None), "CA certificate must be configured to use SSL");
    assert_eq!(missing(|f| f.ca_cert = Some("/nonesuch".into())), "/nonesuch: No such file or directory");
    let wrong = missing(|f| f.private_key = Some(pki().join("ctl-privkey.pem")));
    assert!(wrong.contains("does not belong"), "{wrong}");
    let wrong = missing(|f| f.certificate = Some(pki().join("sc-privkey.pem")));
    assert!(wrong.contains("no certificate in it"), "{wrong}");
}

#[test]
fn the_first_peers_authority_is_saved_and_trusted_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("cacert.pem");
    let server =
        TlsFiles { peer_ca_cert: Some(pki().join("pki/controllerca/cacert.pem")), ..files("ctl", "switch") };
    let client = TlsFiles {
        ca_cert: Some(saved.clone()),
        bootstrap: Bootstrap::Anywhere,
        ..files("sc", "controller")
    };
    run(async {
        let tls = Arc::new(Tls::new(server));
        let target = PassiveTarget::parse("pssl:0:127.0.0.1", OVSDB_PORT).unwrap();
        let listener = Listener::bind(&target, Some(&tls)).await.unwrap();
        let target =
            ActiveTarget::parse(&format!("ssl:127.0.0.1:{}", listener.bound_port().unwrap()), 0).unwrap();
        let serve = async {
            for _ in 0..2 {
                if let Ok(mut stream) = listener.accept().await.unwrap().establish().await {
                    let _ = stream.read(&mut [0; 1]).await;
                }
            }
        };
        let client = Tls::new(client);
        let call = async {
            let first = Stream::connect(&target, Some(&client)).await;
            assert!(matches!(first, Err(StreamError::Bootstrapped(_))), "it was not verified");
            drop(Stream::connect(&target, Some(&client)).await.unwrap());
        };
        tokio::join!(serve, call);
    });
    let text = |path| std::fs::read_to_string(path).unwrap();
    let body = |pem: String| pem[pem.find("-----BEGIN").unwrap()..].to_owned();
    assert_eq!(body(text(saved)), body(text(pki().join("pki/controllerca/cacert.pem"))));
}

#[test]
fn files_that_block_or_never_end_are_refused_wherever_they_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let (fifo, huge) = (dir.path().join("fifo"), dir.path().join("huge"));
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, rustix::fs::Mode::RWXU).unwrap();
    std::fs::File::create(&huge).unwrap().set_len(1 << 30).unwrap();
    let cases = [
        (fifo, "not a regular file"),
        (PathBuf::from("/dev/zero"), "not a regular file"),
        (dir.path().to_owned(), "not a regular file"),
        (huge, "longer than 1 MiB"),
        // A regular file, whose readers wait for the kernel's messages; some machines hide it.
        (PathBuf::from("/proc/kmsg"), ""),
    ];
    type Name = fn(&mut TlsFiles) -> &mut Option<PathBuf>;
    let names: [Name; 4] =
        [|f| &mut f.private_key, |f| &mut f.certificate, |f| &mut f.ca_cert, |f| &mut f.peer_ca_cert];
    // Before the time counts: it takes a while to make keys.
    let usual = files("sc", "switch");
    let (done, was_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for (path, why) in cases {
            for name in names {
                let mut files = usual.clone();
                *name(&mut files) = Some(path.clone());
                let said = Tls::new(files).check_server().unwrap_err().to_string();
                assert!(said.starts_with(&format!("{}: ", path.display())) && said.contains(why), "{said}");
            }
        }
        done.send(()).unwrap();
    });
    was_done.recv_timeout(Duration::from_secs(60)).expect("none of them is waited for");
}

#[test]
fn a_database_has_an_authority_saved_only_below_the_directory_of_the_configuration() {
    let dir = tempfile::tempdir().unwrap();
    let below = dir.path().join("etc");
    let checked = |bootstrap: &Bootstrap, path: &std::path::Path| {
        let files =
            TlsFiles { ca_cert: Some(path.into()), bootstrap: bootstrap.clone(), ..files("sc", "switch") };
        Tls::new(files).check_server().map_err(|e| e.to_string())
    };
    let by_database = Bootstrap::Below(below.clone());
    for (path, is_allowed) in [
        (below.join("ca.pem"), true),
        (below.join("tls/ca.pem"), true),
        (below.join("../ca.pem"), false),
        (dir.path().join("ca.pem"), false),
        (dir.path().join("etc2/ca.pem"), false),
        ("ca.pem".into(), false),
    ] {
        let result = checked(&by_database, &path);
        assert_eq!(result.is_ok(), is_allowed, "{}: {result:?}", path.display());
        if let Err(why) = result {
            assert!(why.contains(&format!("below {}", below.display())), "{why}");
            assert!(why.contains("--bootstrap-ca-cert"), "{why}");
        }
        checked(&Bootstrap::Anywhere, &path).unwrap();
    }
    // What is there already is used, wherever it is, and `none` is not the name of a file.
    checked(&by_database, &pki().join("pki/switchca/cacert.pem")).unwrap();
    checked(&by_database, "none".as_ref()).unwrap();
    assert!(checked(&Bootstrap::No, &below.join("ca.pem")).unwrap_err().contains("No such file"));
}

#[test]
fn changed_files_are_read_again_and_half_written_ones_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let certificate = dir.path().join("cert.pem");
    std::fs::copy(pki().join("ctl-cert.pem"), &certificate).unwrap();
    let tls = Tls::new(TlsFiles { certificate: Some(certificate.clone()), ..files("ctl", "switch") });
    tls.check_server().unwrap();
    std::fs::write(&certificate, "half").unwrap();
    tls.check_server().unwrap();
}

#[test]
fn a_client_that_never_shakes_hands_holds_up_nobody() {
    run(async {
        let tls = Arc::new(Tls::new(files("ctl", "switch")));
        let target = PassiveTarget::parse("pssl:0:127.0.0.1", OVSDB_PORT).unwrap();
        let listener = Listener::bind(&target, Some(&tls)).await.unwrap();
        let port = listener.bound_port().unwrap();
        let silent = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let held = listener.accept().await.unwrap();
        let held = tokio::spawn(held.establish());
        let target = ActiveTarget::parse(&format!("ssl:127.0.0.1:{port}"), 0).unwrap();
        let client = Tls::new(files("sc", "controller"));
        let serve = async { listener.accept().await.unwrap().establish().await.map(|_| ()) };
        let (served, called) = tokio::join!(serve, Stream::connect(&target, Some(&client)));
        assert!(served.is_ok() && called.is_ok());
        drop(silent);
        assert!(held.await.unwrap().unwrap_err().to_string().contains("closed the connection"));
    });
}

#[test]
fn errors_are_those_of_the_system_in_its_words() {
    let error = run(Stream::connect(&ActiveTarget::Unix("/nonesuch/db.sock".into()), None)).unwrap_err();
    assert_eq!(error.to_string(), "No such file or directory");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let target = ActiveTarget::parse(&format!("tcp:127.0.0.1:{nobody}"), 0).unwrap();
    assert_eq!(run(Stream::connect(&target, None)).unwrap_err().to_string(), "Connection refused");
    let target = ActiveTarget::parse("ssl:127.0.0.1", 6640).unwrap();
    assert!(run(Stream::connect(&target, None)).unwrap_err().to_string().contains("Private key must be"));
}

#[test]
fn who_does_not_shake_hands_gives_its_place_to_the_next() {
    let server = Arc::new(Tls::new(files("sc", "controller")));
    let client = Tls::new(files("ctl", "switch"));
    let local = tokio::task::LocalSet::new();
    run(local.run_until(async {
        let (listener, target) = listening("pssl:0:127.0.0.1", Some(&server)).await;
        let places = crate::Places::new(1);
        let serve = crate::accept(
            &listener,
            &places,
            |why| panic!("{why}"),
            |incoming, place| {
                tokio::task::spawn_local(async move {
                    let Ok(_stream) = place.establish(incoming).await else { return };
                    place.idlers().wait(crate::Idle::AsksNothing).dismissed().await;
                });
            },
        );
        let call = async {
            let silent = tokio::net::TcpStream::connect(("127.0.0.1", listener.bound_port().unwrap()));
            let _silent = silent.await.unwrap();
            let connecting = Stream::connect(&target, Some(&client));
            tokio::time::timeout(HANDSHAKE_TIMEOUT / 2, connecting).await.expect("a place").unwrap();
        };
        tokio::select! {
            never = serve => match never {},
            () = call => {}
        }
    }));
}
