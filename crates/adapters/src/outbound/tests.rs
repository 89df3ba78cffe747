//! Which requests are sent and which are not, on loopback servers.

use std::sync::Mutex;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};

use super::*;

/// A gate that a test opens and closes.
struct TestGate(watch::Sender<bool>);

impl TestGate {
    fn open() -> Self {
        TestGate(watch::channel(true).0)
    }

    fn closed() -> Self {
        TestGate(watch::channel(false).0)
    }
}

impl Gate for TestGate {
    async fn proceed(&self) {
        self.0.subscribe().wait_for(|is_open| *is_open).await.unwrap();
    }

    async fn sleep(&self, time: Duration) {
        self.proceed().await;
        tokio::time::sleep(time).await;
    }
}

/// A server that answers each connection with what a function returns for the request's head.
struct Server {
    port: u16,
    requests: mpsc::UnboundedReceiver<String>,
}

impl Server {
    async fn start(answer: impl Fn(&str) -> String + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                let answer = answer(&request);
                drop(sender.send(request));
                // The client may have closed the connection: it refuses a response before its end.
                drop(stream.write_all(answer.as_bytes()).await);
                drop(stream.shutdown().await);
            }
        });
        Server { port, requests }
    }

    fn url(&self, path: &str) -> Url {
        Url::parse(&format!("http://127.0.0.1:{}{path}", self.port)).unwrap()
    }

    fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The next request. The client has its response already, so the request is there or never comes.
    fn next_request(&mut self) -> Option<String> {
        self.requests.try_recv().ok()
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text;
            }
        }
        if stream.read_buf(&mut request).await.unwrap() == 0 {
            return text;
        }
    }
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Test: yes\r\n\r\n{body}", body.len())
}

fn redirect(status: u16, to: &str) -> String {
    format!("HTTP/1.1 {status} Redirect\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
}

fn allowing(hosts: &[&str]) -> Outbound {
    Outbound::new(Options::parse(hosts.iter().copied(), []).unwrap())
}

fn get(url: Url) -> Request {
    Request::new(Method::GET, url)
}

async fn send(outbound: &Outbound, request: Request) -> Result<Response, OutboundError> {
    outbound.send(request, &TestGate::open()).await
}

#[tokio::test]
async fn a_listed_host_is_reached() {
    let mut server = Server::start(|_| ok("hello")).await;
    let outbound = allowing(&[&server.host()]);
    let mut request = get(server.url("/a?b=c#d"));
    request.headers.insert("accept", HeaderValue::from_static("text/plain"));
    let response = send(&outbound, request).await.unwrap();
    assert_eq!((response.status, &response.body[..]), (StatusCode::OK, &b"hello"[..]));
    assert_eq!(response.headers["x-test"], "yes");
    let seen = server.next_request().unwrap();
    assert!(seen.starts_with("GET /a?b=c HTTP/1.1\r\n"), "{seen}");
    assert!(seen.contains(&format!("host: {}\r\n", server.host())), "{seen}");
    assert!(seen.contains("user-agent: catena/"), "{seen}");
    assert!(seen.contains("accept: text/plain\r\n"), "{seen}");
}

#[tokio::test]
async fn addresses_that_are_not_public_are_refused() {
    let outbound = allowing(&[]);
    for (host, why) in [
        ("127.0.0.1", "it is a loopback address"),
        ("localhost", "it has a loopback address"),
        ("2130706433", "it is a loopback address"),
        ("0x7f.1", "it is a loopback address"),
        ("0.0.0.0", "it is an unspecified address"),
        ("10.1.2.3", "it is a private address"),
        ("172.16.0.1", "it is a private address"),
        ("192.168.0.1", "it is a private address"),
        ("100.64.0.1", "it is a carrier-grade NAT address"),
        ("169.254.1.1", "it is a link-local address"),
        ("169.254.169.254", "it is a cloud metadata address"),
        ("224.0.0.1", "it is a multicast address"),
        ("255.255.255.255", "it is a reserved address"),
        ("[::1]", "it is a loopback address"),
        ("[::]", "it is an unspecified address"),
        ("[::ffff:8.8.8.8]", "it is an IPv4-mapped address"),
        ("[fd00::1]", "it is a unique local address"),
        ("[fe80::1]", "it is a link-local address"),
        ("[ff02::1]", "it is a multicast address"),
    ] {
        let url = Url::parse(&format!("http://{host}:9/")).unwrap();
        match send(&outbound, get(url)).await.unwrap_err() {
            OutboundError::Refused { why: found, .. } => assert_eq!(found, why, "{host}"),
            other => panic!("{host}: {other}"),
        }
    }
}

#[tokio::test]
async fn a_refusal_says_what_an_operator_can_do() {
    let url = Url::parse("http://10.0.0.1/secret?key=1").unwrap();
    let refused = send(&allowing(&[]), get(url)).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the request to 10.0.0.1:80 was refused: it is a private address; an operator can allow \
         it with --allow-host 10.0.0.1:80"
    );
    assert_eq!(Failure::from(refused).code, "outbound_refused");
}

/// Resolves every name to the same addresses.
struct Fixed(Vec<IpAddr>, Arc<Mutex<u32>>);

impl Resolve for Fixed {
    fn resolve<'a>(&'a self, _name: &'a str, port: u16) -> Resolving<'a> {
        *self.1.lock().unwrap() += 1;
        let addresses = self.0.iter().map(|ip| SocketAddr::new(*ip, port)).collect();
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

fn resolving(outbound: Outbound, to: &[&str]) -> (Outbound, Arc<Mutex<u32>>) {
    let count = Arc::new(Mutex::new(0));
    let addresses = to.iter().map(|ip| ip.parse().unwrap()).collect();
    let resolver = Box::new(Fixed(addresses, count.clone()));
    (Outbound { resolver, ..outbound }, count)
}

#[tokio::test]
async fn a_name_is_checked_by_its_addresses() {
    let (outbound, _) = resolving(allowing(&[]), &["10.0.0.1", "fd00::1"]);
    let url = Url::parse("http://public.example:9/").unwrap();
    let refused = send(&outbound, get(url)).await.unwrap_err();
    assert!(matches!(refused, OutboundError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn the_connection_is_made_to_an_address_that_was_checked() {
    let mut server = Server::start(|_| ok("hello")).await;
    let listed = server.host();
    let (outbound, lookups) = resolving(allowing(&[&listed]), &["10.0.0.1", "127.0.0.1"]);
    let url = Url::parse(&format!("http://mixed.example:{}/", server.port)).unwrap();
    let response = send(&outbound, get(url)).await.unwrap();
    assert_eq!(response.status, StatusCode::OK);
    assert!(server.next_request().unwrap().contains("host: mixed.example:"));
    assert_eq!(*lookups.lock().unwrap(), 1, "a second lookup could give another address");
}

#[tokio::test]
async fn a_listed_name_may_have_any_address() {
    let server = Server::start(|_| ok("hello")).await;
    let (outbound, _) = resolving(allowing(&["intranet"]), &["127.0.0.1"]);
    let url = Url::parse(&format!("http://intranet:{}/", server.port)).unwrap();
    assert_eq!(send(&outbound, get(url)).await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_host_listed_with_its_port_is_refused_on_another() {
    let server = Server::start(|_| ok("hello")).await;
    let outbound = allowing(&["127.0.0.1:1"]);
    let refused = send(&outbound, get(server.url("/"))).await.unwrap_err();
    assert!(matches!(refused, OutboundError::Refused { .. }), "{refused}");
}

#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let mut inner = Server::start(|_| ok("secret")).await;
    let target = inner.url("/").to_string();
    let outer = Server::start(move |_| redirect(302, &target)).await;
    let outbound = allowing(&[&outer.host()]);
    match send(&outbound, get(outer.url("/"))).await.unwrap_err() {
        OutboundError::Refused { host, .. } => assert_eq!(host, inner.host()),
        other => panic!("{other}"),
    }
    assert_eq!(inner.next_request(), None);
}

#[tokio::test]
async fn a_redirect_to_something_else_than_http_is_refused() {
    for target in ["file:///etc/passwd", "ftp://x/", "http://me:pw@x/", "http://[/"] {
        let server = Server::start(move |_| redirect(302, target)).await;
        let outbound = allowing(&[&server.host()]);
        let refused = send(&outbound, get(server.url("/"))).await.unwrap_err();
        assert!(matches!(refused, OutboundError::Redirect { .. }), "{target}: {refused}");
    }
}

#[tokio::test]
async fn credentials_do_not_follow_a_redirect_to_another_origin() {
    let mut second = Server::start(|_| ok("there")).await;
    let target = second.url("/").to_string();
    let mut first = Server::start(move |request| {
        if request.starts_with("GET /start") {
            redirect(307, "/here")
        } else {
            redirect(307, &target)
        }
    })
    .await;
    let outbound = allowing(&["127.0.0.1"]);
    let mut request = get(first.url("/start"));
    for name in ["authorization", "cookie", "x-auth-token", "private-token"] {
        request.headers.insert(name, HeaderValue::from_static("hidden"));
    }
    request.headers.insert("accept", HeaderValue::from_static("text/kept"));
    request.headers.insert("content-type", HeaderValue::from_static("text/plain"));
    request.body = "hidden too".into();
    send(&outbound, request).await.unwrap();
    for _ in 0..2 {
        let seen = first.next_request().unwrap();
        assert!(seen.matches("hidden").count() >= 4, "{seen}");
    }
    let seen = second.next_request().unwrap();
    assert!(!seen.contains("hidden") && seen.contains("accept: text/kept"), "{seen}");
    assert!(!seen.contains("content-type"), "it has no body: {seen}");
}

#[tokio::test]
async fn a_redirect_changes_the_method_as_the_standard_requires() {
    for (status, method, expected, has_body) in [
        (301, Method::POST, "GET", false),
        (302, Method::POST, "GET", false),
        (302, Method::PUT, "PUT", true),
        (303, Method::PUT, "GET", false),
        (307, Method::POST, "POST", true),
        (308, Method::PATCH, "PATCH", true),
    ] {
        let mut server = Server::start(move |request| {
            if request.contains(" /start ") { redirect(status, "/end") } else { ok("") }
        })
        .await;
        let outbound = allowing(&[&server.host()]);
        let mut request = Request::new(method, server.url("/start"));
        request.body = Bytes::from_static(b"payload");
        send(&outbound, request).await.unwrap();
        assert!(server.next_request().unwrap().ends_with("payload"));
        let seen = server.next_request().unwrap();
        assert!(seen.starts_with(&format!("{expected} /end ")), "{status}: {seen}");
        assert_eq!(seen.ends_with("payload"), has_body, "{status}: {seen}");
    }
}

#[tokio::test]
async fn redirects_end() {
    let mut server = Server::start(|_| redirect(302, "/again")).await;
    let outbound = allowing(&[&server.host()]);
    let refused = send(&outbound, get(server.url("/"))).await.unwrap_err();
    assert!(matches!(refused, OutboundError::TooManyRedirects { .. }), "{refused}");
    let requests = std::iter::from_fn(|| server.next_request()).count();
    assert_eq!(requests, REDIRECTS_MAX + 1);
}

#[tokio::test]
async fn a_redirect_can_be_the_answer() {
    let server = Server::start(|_| redirect(302, "http://10.0.0.1/")).await;
    let outbound = allowing(&[&server.host()]);
    let request = Request { redirects: Redirects::Return, ..get(server.url("/")) };
    assert_eq!(send(&outbound, request).await.unwrap().status, StatusCode::FOUND);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused() {
    let declared = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", RESPONSE_BYTES_MAX + 1);
    let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(RESPONSE_BYTES_MAX + 1));
    for answer in [declared.clone(), endless] {
        let server = Server::start(move |_| answer.clone()).await;
        let outbound = allowing(&[&server.host()]);
        let refused = send(&outbound, get(server.url("/"))).await.unwrap_err();
        assert!(matches!(refused, OutboundError::TooLarge { .. }), "{refused}");
    }
    // A HEAD response only declares the length.
    let server = Server::start(move |_| declared.clone()).await;
    let outbound = allowing(&[&server.host()]);
    let response = send(&outbound, Request::new(Method::HEAD, server.url("/"))).await.unwrap();
    assert!(response.body.is_empty());
}

#[tokio::test]
async fn a_body_as_large_as_allowed_is_read_completely() {
    let body = "x".repeat(RESPONSE_BYTES_MAX);
    let answer = ok(&body);
    let server = Server::start(move |_| answer.clone()).await;
    let outbound = allowing(&[&server.host()]);
    let response = send(&outbound, get(server.url("/"))).await.unwrap();
    assert_eq!(response.body.len(), RESPONSE_BYTES_MAX);
}

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() {
    let many: String = (0..200).map(|i| format!("X-{i}: 1\r\n")).collect();
    let long = format!("X-Long: {}\r\n", "x".repeat(100_000));
    for headers in [many, long] {
        let answer = format!("HTTP/1.1 200 OK\r\n{headers}\r\n");
        let server = Server::start(move |_| answer.clone()).await;
        let outbound = allowing(&[&server.host()]);
        let sent = send(&outbound, get(server.url("/"))).await;
        assert!(matches!(sent, Err(OutboundError::TooLarge { .. })));
    }
}

#[tokio::test]
async fn a_response_that_is_not_http_is_a_failure() {
    for (answer, reason) in [
        ("SSH-2.0-x\r\n", "the response is not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", "before the response was complete"),
        ("", "before the response was complete"),
    ] {
        let server = Server::start(|_| answer.to_owned()).await;
        let outbound = allowing(&[&server.host()]);
        let failed = send(&outbound, get(server.url("/"))).await.unwrap_err();
        assert!(failed.to_string().contains(reason), "{failed}");
        assert_eq!(Failure::from(failed).code, "connection");
    }
}

#[tokio::test]
async fn a_closed_port_is_a_failure_that_may_pass() {
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        listener.local_addr().unwrap().port()
    };
    let url = Url::parse(&format!("http://127.0.0.1:{port}/")).unwrap();
    let failure = Failure::from(send(&allowing(&["127.0.0.1"]), get(url)).await.unwrap_err());
    assert_eq!(
        (failure.code.as_str(), failure.retry),
        ("connection", catena_engine::RetryAdvice::MaySucceed)
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_takes_too_long_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let url = Url::parse(&format!("http://{host}/")).unwrap();
    let request = Request { time: Duration::from_secs(7), ..get(url) };
    let failed = send(&allowing(&[&host]), request).await.unwrap_err();
    assert_eq!(failed.to_string(), format!("{host} did not answer within 7000 ms"));
    assert_eq!(Failure::from(failed).code, "timeout");
}

#[tokio::test(start_paused = true)]
async fn nothing_leaves_while_the_gate_is_closed() {
    let server = Server::start(|_| ok("hello")).await;
    let outbound = allowing(&[&server.host()]);
    let gate = TestGate::closed();
    let mut sending = Box::pin(outbound.send(get(server.url("/")), &gate));
    // The clock advances only when nothing else can happen: a request would have been sent by then.
    let waited = tokio::time::timeout(Duration::from_secs(3600), &mut sending).await;
    assert!(waited.is_err(), "{waited:?}");
    assert!(server.requests.is_empty());
    gate.0.send_replace(true);
    assert_eq!(sending.await.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn a_redirect_waits_for_the_gate_too() {
    let gate = Arc::new(TestGate::open());
    let closing = gate.clone();
    let mut server = Server::start(move |request| {
        if !request.starts_with("GET /start ") {
            return ok("hello");
        }
        closing.0.send_replace(false);
        redirect(302, "/end")
    })
    .await;
    let outbound = allowing(&[&server.host()]);
    let sending = outbound.send(get(server.url("/start")), &*gate);
    let opening = async {
        assert!(server.requests.recv().await.unwrap().starts_with("GET /start "));
        assert!(server.requests.is_empty());
        gate.0.send_replace(true);
        assert!(server.requests.recv().await.unwrap().starts_with("GET /end "));
    };
    let (sent, ()) = tokio::join!(sending, opening);
    assert_eq!(sent.unwrap().status, StatusCode::OK);
}

#[tokio::test]
async fn dropping_a_request_closes_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    let outbound = allowing(&[&host]);
    let gate = TestGate::open();
    let url = Url::parse(&format!("http://{host}/")).unwrap();
    let mut sending = Box::pin(outbound.send(get(url), &gate));
    let arrived = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        assert!(read_request(&mut stream).await.starts_with("GET / "));
        stream
    };
    let mut stream = tokio::select! {
        sent = &mut sending => panic!("{sent:?}"),
        stream = arrived => stream,
    };
    drop(sending);
    assert_eq!(stream.read_u8().await.unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
}

/// A server with a certificate for `secure.example`, which is valid until 2120.
async fn secure_server() -> u16 {
    use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let leaf = CertificateDer::from(&include_bytes!("testdata/leaf.der")[..]);
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("testdata/leaf-key.der")[..]);
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            read_request(&mut stream).await;
            stream.write_all(ok("secret").as_bytes()).await.unwrap();
        }
    });
    port
}

#[tokio::test]
async fn a_certificate_must_be_for_the_host_and_by_a_known_root() {
    let port = secure_server().await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(include_bytes!("testdata/root.der").to_vec().into()).unwrap();
    let hosts = ["secure.example", "other.example"];
    let (trusting, _) = resolving(allowing(&hosts), &["127.0.0.1"]);
    let trusting = Outbound { tls: connector(roots), ..trusting };
    let url = |host: &str| Url::parse(&format!("https://{host}:{port}/")).unwrap();
    let response = send(&trusting, get(url("secure.example"))).await.unwrap();
    assert_eq!(response.body, b"secret");
    let (distrusting, _) = resolving(allowing(&hosts), &["127.0.0.1"]);
    for (outbound, host) in [(&trusting, "other.example"), (&distrusting, "secure.example")] {
        let failed = send(outbound, get(url(host))).await.unwrap_err();
        assert!(failed.to_string().contains("TLS failed: invalid peer certificate"), "{failed}");
    }
}

#[tokio::test]
async fn a_url_that_cannot_be_requested_is_refused() {
    let long = format!("http://x/{}", "x".repeat(10_000));
    for url in ["ftp://x/", "http://me@x/", "http://me:pw@x/", "file:///x", &long] {
        let refused = send(&allowing(&[]), get(Url::parse(url).unwrap())).await.unwrap_err();
        assert!(matches!(refused, OutboundError::Url(_)), "{refused}");
        assert!(!refused.to_string().contains("pw"), "{refused}");
    }
}

#[tokio::test]
async fn a_venue_must_be_on_a_list() {
    let options = Options::parse(["10.0.0.1:80"], ["https://venue.example"]).unwrap();
    let outbound = Outbound::new(options);
    let permitted = |name: &str| outbound.check_venue(&venue_url(name).unwrap());
    assert_eq!(permitted("did:web:venue.example"), Ok(()));
    assert_eq!(permitted("http://10.0.0.1"), Ok(()));
    let refused = permitted("http://venue.example").unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the request to http://venue.example was refused: it is not on this venue's list of \
         venues; an operator can allow it with --allow-venue http://venue.example"
    );
}
