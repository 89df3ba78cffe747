//! HTTP/2, which a venue with a certificate offers, misused on the level of frames.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use catena_api::{Credentials, HttpClient};
use catena_tests::process::Process;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::MutexGuard;
use tokio_rustls::client::TlsStream;

use super::{ONE_AT_A_TIME, RESIDENT_KB_MAX, count_attack, echo_time, limited_binary, peak_kb};

/// How long an attack waits for an answer before it gives up.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest time that sending the frames of an attack takes. A venue may stop reading them.
const SENDING: Duration = Duration::from_secs(20);

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let mut bytes = vec![length[1], length[2], length[3], kind, flags];
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The compressed headers of a GET request: three of the static table, the path as a text.
fn get(path: &str) -> Vec<u8> {
    let mut headers = vec![0x82, 0x87, 0x04, u8::try_from(path.len()).unwrap()];
    headers.extend(path.as_bytes());
    // The authority, by the first name of the static table.
    headers.extend([0x01, 9]);
    headers.extend(b"localhost");
    headers
}

/// Requests on successive streams, each followed by what `more` adds.
fn requests(path: &str, count: u32, more: impl Fn(u32) -> Vec<u8>) -> Vec<u8> {
    let one = |number: u32| {
        let stream = 2 * number + 1;
        let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &get(path));
        [request, more(stream)].concat()
    };
    (0..count).flat_map(one).collect()
}

/// A header that the table remembers, and references to it: a few bytes that stand for megabytes.
fn header_bomb() -> Vec<u8> {
    let mut headers = get("/livez");
    headers.extend([0x40, 1, b'a', 0x7f]);
    // 4,000 bytes, as a number of several bytes: 127 + 33 + 30 * 128.
    headers.extend([0xa1, 0x1e]);
    headers.extend([b'v'; 4_000]);
    headers.extend(vec![0xbe; 12_000]);
    headers
}

fn attacks() -> Vec<(&'static str, Vec<u8>)> {
    let reset = |stream: u32| frame(RST_STREAM, 0, stream, &8u32.to_be_bytes());
    let setting = |number: u16, value: u32| {
        let payload = [&number.to_be_bytes()[..], &value.to_be_bytes()].concat();
        frame(SETTINGS, 0, 0, &payload)
    };
    let many = |bytes: Vec<u8>, count: usize| bytes.repeat(count);
    let filler = vec![b'x'; 16_000];
    let open = frame(HEADERS, 0, 1, &get("/livez"));
    vec![
        ("20,000 requests that are reset at once", requests("/api/v1/jobs", 20_000, reset)),
        ("1,000 requests at once", requests("/api/v1/jobs", 1_000, |_| Vec::new())),
        (
            "endless continuations",
            [open.clone(), many(frame(CONTINUATION, 0, 1, &filler), 2_000)].concat(),
        ),
        ("empty continuations", [open, many(frame(CONTINUATION, 0, 1, &[]), 200_000)].concat()),
        ("a bomb of headers", frame(HEADERS, END_HEADERS | END_STREAM, 1, &header_bomb())),
        ("200,000 pings", many(frame(PING, 0, 0, &[7; 8]), 200_000)),
        ("100,000 settings", many(setting(3, 100), 100_000)),
        ("200,000 priorities", many(frame(PRIORITY, 0, 5, &[0, 0, 0, 3, 9]), 200_000)),
        ("a window beyond its end", {
            let update = frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes());
            many(update, 10)
        }),
        ("100,000 empty parts of a body", {
            let mut bytes = frame(HEADERS, END_HEADERS, 1, &get("/api/v1/invoke"));
            bytes.extend(many(frame(DATA, 0, 1, &[]), 100_000));
            bytes
        }),
        ("a frame that is too long", frame(DATA, 0, 1, &vec![0; 1 << 20])),
        ("data without a request", frame(DATA, END_STREAM, 77, b"x")),
        ("a push of a client", frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])),
        ("a farewell and more", {
            let mut bytes = frame(GOAWAY, 0, 0, &[0; 8]);
            bytes.extend(requests("/livez", 200, |_| Vec::new()));
            bytes
        }),
        (
            "a table of 4 GB",
            [setting(1, u32::MAX), requests("/livez", 50, |_| Vec::new())].concat(),
        ),
        (
            "responses for which there is no window",
            [setting(4, 0), requests("/openapi.json", 200, |_| Vec::new())].concat(),
        ),
        ("garbage", (0..100_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 11) as u8).collect()),
    ]
}

/// Accepts every certificate: the test attacks a venue that it has started.
#[derive(Debug)]
struct Trusting;

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256, SignatureScheme::ED25519]
    }
}

fn certificates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/support/tls")
}

/// A venue with a certificate.
struct TlsVictim {
    process: Process,
    client: HttpClient,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl TlsVictim {
    /// Starts a venue with copies of the certificate and the key of the tests.
    async fn start() -> TlsVictim {
        let turn = ONE_AT_A_TIME.lock().await;
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        for name in ["cert.pem", "key.pem"] {
            std::fs::copy(certificates().join(name), file(name)).unwrap();
        }
        let flags = ["--tls-cert", &file("cert.pem"), "--tls-key", &file("key.pem")];
        let flags = flags.map(str::to_owned);
        let binary = limited_binary(folder.path(), "");
        let process = Process::start(&binary, &folder.path().join("data"), &flags).await;
        let client = client(&process, &certificates().join("cert.pem"));
        TlsVictim { process, client, folder, _turn: turn }
    }

    async fn connect(&self) -> TlsStream<TcpStream> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Trusting))
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let stream = TcpStream::connect(self.process.address).await.unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let mut stream = connector.connect(name, stream).await.unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.unwrap();
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
        stream
    }

    async fn echo(&self, name: &str) {
        let begun = tokio::time::Instant::now();
        let echo = self.client.run("test:echo", 1.into());
        let output = tokio::time::timeout(echo_time(), echo).await;
        assert!(matches!(output, Ok(Ok(_))), "{name}: {output:?} after {:?}", begun.elapsed());
    }
}

fn client(process: &Process, certificate: &Path) -> HttpClient {
    let url = format!("https://{}", process.address).parse().unwrap();
    HttpClient::connect_pinned(url, Credentials::Anonymous, certificate.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_frames_of_http2_harm_the_venue() {
    let victim = TlsVictim::start().await;
    for (name, bytes) in attacks() {
        count_attack();
        let mut stream = victim.connect().await;
        // The venue may close the connection before it has read everything.
        let attack = async {
            let _ = tokio::time::timeout(SENDING, stream.write_all(&bytes)).await;
            let mut answer = vec![0; 1 << 16];
            let reading =
                async { while stream.read(&mut answer).await.is_ok_and(|read| read > 0) {} };
            let _ = tokio::time::timeout(PATIENCE, reading).await;
        };
        let echoes = async {
            loop {
                victim.echo(name).await;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        };
        tokio::select! {
            () = attack => {}
            () = echoes => unreachable!(),
        }
        victim.echo(name).await;
    }
    let peak = peak_kb(&victim.process);
    println!("peak resident memory: {} MB", peak / 1_000);
    assert!(peak < RESIDENT_KB_MAX, "{peak} kB");
    assert!(victim.process.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewed_certificate_is_used_after_a_hangup_and_a_bad_one_is_not() {
    let victim = TlsVictim::start().await;
    let folder = victim.folder.path().to_owned();
    victim.echo("the first certificate").await;
    let renewed = client(&victim.process, &certificates().join("renewed-cert.pem"));
    assert!(renewed.run("test:echo", 1.into()).await.is_err());
    for (file, name) in [("cert.pem", "renewed-cert.pem"), ("key.pem", "renewed-key.pem")] {
        std::fs::copy(certificates().join(name), folder.join(file)).unwrap();
    }
    let hangup = || victim.process.send(rustix::process::Signal::HUP);
    hangup();
    let reloaded = async {
        while renewed.run("test:echo", 1.into()).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(catena_tests::TIMEOUT, reloaded).await.unwrap();
    let first = client(&victim.process, &certificates().join("cert.pem"));
    assert!(first.run("test:echo", 1.into()).await.is_err(), "it is not presented any more");
    // A file that cannot be used changes nothing, and the venue goes on.
    std::fs::write(folder.join("cert.pem"), "no certificate").unwrap();
    hangup();
    for _ in 0..10 {
        let fresh = client(&victim.process, &certificates().join("renewed-cert.pem"));
        fresh.run("test:echo", 1.into()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(victim.process.terminate().await.success());
}
